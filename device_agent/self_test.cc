#include "device_agent/self_test.h"

#include <vector>

#include "deploy/runtime/input_gen.h"
#include "deploy/support/strings.h"

namespace tilewright::device_agent {
namespace {

constexpr int64_t kTaps = 16;
constexpr double kTolerance = 1e-5;
constexpr int64_t kWallSeconds = 10;

}  // namespace

absl::StatusOr<v1::MeasureModule> SelfTestRequest() {
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
  v1::MeasureModule measure;
  measure.set_slot(kSelfTestSlot);
  v1::TensorSpec* input = measure.mutable_inputs()->add_tensors();
  input->set_name("x");
  input->set_dtype("f32");
  input->add_shape(kSelfTestElements);
  input->set_seed(kSelfTestSeed);
  input->mutable_distribution()->mutable_uniform()->set_low(kSelfTestLaw.a);
  input->mutable_distribution()->mutable_uniform()->set_high(kSelfTestLaw.b);
  measure.set_expected_output(
      std::string(reinterpret_cast<const char*>(y.data()), y.size() * sizeof(float)));
  measure.mutable_tolerance()->set_rel(kTolerance);
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
