#include "tests/support/measured_kernels.h"

#include <utility>
#include <vector>

#include "deploy/module/kernel_module.h"
#include "deploy/runtime/code_loader.h"
#include "deploy/runtime/input_gen.h"
#include "deploy/support/file.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::tests {
namespace {

constexpr uint64_t kSeed = 7;
constexpr uint64_t kMaxCode = 16 << 20;

// Of the build tree of this program, wherever that was copied to.
std::string Library(const char* name) {
  const std::string folder = support::DirName(*support::SelfExeDir());
  absl::StatusOr<std::string> code =
      support::ReadFile(support::StrCat(folder, "/lib/", name), kMaxCode);
  TW_CHECK(code.ok()) << support::StatusText(code.status());
  return *std::move(code);
}

std::string Code(int constructor) {
  return Library(constructor == 0   ? TILEWRIGHT_TEST_MEASURED
                 : constructor == 1 ? TILEWRIGHT_TEST_MEASURED_1
                                    : TILEWRIGHT_TEST_MEASURED_2);
}

}  // namespace

std::string AttackCode(const std::string& attack, char when, const std::string& secret_file,
                       int64_t victim) {
  std::string code = Library(TILEWRIGHT_TEST_ATTACKS);
  const size_t at = code.find("TWATTACK");
  std::string order = support::StrCat(std::string(1, when), attack);
  for (const std::string& word : {secret_file, support::StrCat(victim)}) order += '\0' + word;
  TW_CHECK(at != std::string::npos && order.size() < 500);
  return code.replace(at + 8, order.size(), order);
}

std::string KernelModule(const std::string& kernel, const KernelOptions& options) {
  module::KernelModule made;
  made.name = options.name.empty() ? kernel : options.name;
  made.target = support::StrCat("cpu,arch=x86_64,cpu=x86-64,threads=", options.threads);
  made.format = runtime::NativeCodeFormat();
  made.code = options.code.empty() ? Code(options.constructor) : options.code;
  made.inputs = {{"x", {options.elements}}};
  made.outputs = {{"y", {options.elements}}};
  module::Launch& launch = made.launches.emplace_back();
  launch.symbol = "tw_kernel_" + kernel;
  launch.sizes = {options.elements};
  launch.workspace_bytes = options.workspace_bytes;
  absl::StatusOr<std::string> bytes = module::SerializeKernelModule(made);
  TW_CHECK(bytes.ok()) << support::StatusText(bytes.status());
  return *std::move(bytes);
}

v1::MeasurementPlan ShortPlan() {
  v1::MeasurementPlan plan;
  plan.set_min_repeats(3);
  plan.set_max_repeats(4);
  plan.mutable_min_repeat_time()->set_nanos(100'000);
  plan.mutable_warmup()->set_nanos(100'000);
  return plan;
}

v1::InputSpec KernelInputs(int64_t elements) {
  v1::InputSpec inputs;
  v1::TensorSpec* tensor = inputs.add_tensors();
  tensor->set_name("x");
  tensor->set_dtype("f32");
  tensor->add_shape(elements);
  tensor->set_seed(kSeed);
  tensor->mutable_distribution()->mutable_uniform()->set_low(-1);
  tensor->mutable_distribution()->mutable_uniform()->set_high(1);
  return inputs;
}

std::string KernelExpected(int64_t elements) {
  std::vector<float> values(static_cast<size_t>(elements));
  const module::Distribution law{module::Distribution::Kind::kUniform, -1, 1};
  const absl::Status made =
      runtime::GenerateInput(module::DType::kFloat32, elements, law, kSeed, values.data());
  TW_CHECK(made.ok()) << support::StatusText(made);
  for (float& value : values) value = 2 * value + 1;
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

}  // namespace tilewright::tests
