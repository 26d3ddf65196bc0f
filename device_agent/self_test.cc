#include "device_agent/self_test.h"

#include <vector>

#include "deploy/runtime/input_gen.h"
#include "deploy/support/bytes.h"
#include "deploy/support/strings.h"

namespace tilewright::device_agent {
namespace {

constexpr int64_t kTaps = 16;
constexpr double kTolerance = 1e-5;
constexpr int64_t kWallSeconds = 10;

// What the kernel is to make of its input, which has this description.
absl::StatusOr<std::string> ExpectedFloats(v1::TensorSpec* input) {
  std::vector<float> x(kSelfTestElements);
  TW_TRY(runtime::GenerateInput(module::DType::kFloat32, kSelfTestElements, kSelfTestLaw,
                                kSelfTestSeed, x.data()));
  std::vector<float> y(x.size());
  for (size_t i = 0; i < y.size(); ++i) {
    double sum = 0;
    for (size_t j = 0; j < kTaps; ++j) {
      sum += static_cast<double>(j + 1) / 8 * static_cast<double>(x[(i + j) % x.size()]);
    }
    y[i] = static_cast<float>(sum);
  }
  input->set_dtype("f32");
  input->mutable_distribution()->mutable_uniform()->set_low(kSelfTestLaw.a);
  input->mutable_distribution()->mutable_uniform()->set_high(kSelfTestLaw.b);
  return support::BytesOf(y);
}

absl::StatusOr<std::string> ExpectedBytes(v1::TensorSpec* input) {
  std::vector<int32_t> x(kSelfTestElements);
  TW_TRY(runtime::GenerateInput(module::DType::kInt32, kSelfTestElements, kWholeSelfTestLaw,
                                kSelfTestSeed, x.data()));
  std::vector<int8_t> y;
  for (const int32_t value : x) y.push_back(static_cast<int8_t>(3 * value + 5));
  input->set_dtype("i32");
  auto* law = input->mutable_distribution()->mutable_integers();
  law->set_low(static_cast<int64_t>(kWholeSelfTestLaw.a));
  law->set_high(static_cast<int64_t>(kWholeSelfTestLaw.b));
  return support::BytesOf(y);
}

}  // namespace

absl::StatusOr<v1::MeasureModule> SelfTestRequest(bool whole) {
  v1::MeasureModule measure;
  measure.set_slot(kSelfTestSlot);
  v1::TensorSpec* input = measure.mutable_inputs()->add_tensors();
  input->set_name("x");
  input->add_shape(kSelfTestElements);
  input->set_seed(kSelfTestSeed);
  TW_ASSIGN(*measure.mutable_expected_output(),
            whole ? ExpectedBytes(input) : ExpectedFloats(input));
  measure.mutable_tolerance()->set_rel(whole ? 0 : kTolerance);
  measure.mutable_wall_limit()->set_seconds(kWallSeconds);
  // Whether it works, not how fast: as short as a measurement can be.
  v1::MeasurementPlan* plan = measure.mutable_plan();
  plan->set_min_repeats(1);
  plan->set_max_repeats(1);
  plan->mutable_min_repeat_time()->set_nanos(1);
  plan->mutable_warmup()->set_nanos(1);
  return measure;
}

absl::Status SelfTestVerdict(const v1::ModuleMeasured& measured) {
  if (measured.outcome() == v1::OK) return absl::OkStatus();
  return support::FailedPrecondition(
      "agent.self_test.failed",
      support::StrCat("the kernel with a known answer ended as ",
                      v1::Outcome_Name(measured.outcome()), " ", measured.error_class(), ": ",
                      measured.error_detail()));
}

}  // namespace tilewright::device_agent
