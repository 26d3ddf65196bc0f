// The OpenCL generator behind the interface of all generators: a request becomes text, calls with
// grid and group, and temporaries; and a task becomes a module whose launches are those calls.
#include "compiler/targets/opencl/opencl_codegen.h"

#include <string>

#include "compiler/driver/compile.h"
#include "compiler/ir/ir_text.h"
#include "compiler/schedule/schedule.h"
#include "compiler/transform/passes.h"
#include "deploy/module/module_file.h"
#include "deploy/support/status.h"
#include "gtest/gtest.h"

namespace tilewright::opencl {
namespace {

// Through a copy in global memory that is a launch of its own.
constexpr char kDouble[] = R"(fn two(X: f32[1000] input, Y: f32[1000] output) stage=scheduled {
  for i in 0..1000 {
    block Y(vi: spatial 0..1000 = i) {
      reads X[vi:1];
      writes Y[vi:1];
      Y[vi] = X[vi] * 2.0f32;
    }
  }
}
)";

absl::StatusOr<codegen::Artifact> Generated(const std::string& program, const std::string& steps) {
  TW_ASSIGN(const ir::Function function, ir::ParseFunction(program));
  TW_ASSIGN(const schedule::Steps parsed, schedule::ParseSteps(steps));
  schedule::Schedule scheduled(function);
  TW_TRY(scheduled.ApplyAll(parsed));
  TW_ASSIGN(const ir::Target target, ir::ParseTarget("opencl"));
  transform::PassContext context;
  context.target = target;
  TW_ASSIGN(const ir::Function lowered,
            transform::RunPipeline(scheduled.function(), transform::GpuPipeline(), context));
  const std::vector<ir::Function> functions = {lowered};
  return Generate({functions, target, {}});
}

TEST(OpenClCodegen, AFunctionOfTwoLaunchesIsTwoCallsWithATemporary) {
  auto artifact = Generated(
      kDouble,
      "cache_write %1 scope=global; split %0 [?,64]; split %3 [?,128]; bind %4 blockIdx.x; "
      "bind %5 threadIdx.x; bind %6 blockIdx.x; bind %7 threadIdx.x");
  ASSERT_TRUE(artifact.ok()) << artifact.status();
  EXPECT_EQ(artifact->format, "opencl-c");
  ASSERT_EQ(artifact->programs.size(), 1u);
  const codegen::Program& program = artifact->programs[0];
  ASSERT_EQ(program.calls.size(), 2u);
  ASSERT_EQ(program.temporaries.size(), 1u);
  EXPECT_EQ(program.calls[0].symbol, "tw_kernel_two_k0");
  EXPECT_EQ(program.calls[0].buffers, (std::vector<int>{0, 2}));
  EXPECT_EQ(program.calls[1].buffers, (std::vector<int>{2, 1}));
  EXPECT_EQ(program.calls[0].grid, (std::array<int64_t, 3>{16, 1, 1}));
  EXPECT_EQ(program.calls[0].group, (std::array<int64_t, 3>{64, 1, 1}));
  EXPECT_EQ(program.calls[1].grid, (std::array<int64_t, 3>{8, 1, 1}));
  EXPECT_NE(artifact->bytes.find("__kernel"), std::string::npos);
}

TEST(OpenClCodegen, LaunchesBeyondTheKindsLimitsAreRefused) {
  auto artifact = Generated(kDouble, "split %0 [?,512]; bind %3 threadIdx.x");
  EXPECT_EQ(support::Slug(artifact.status()), "codegen.launch_limits.threads");
}

// Maximum and sum need launches of their own.
constexpr char kSoftmax[] =
    "graph {\n  input %0: f32[3,100]\n  %1: f32[3,100] = softmax(%0) {axis=1}\n  output %1\n}\n";

TEST(OpenClCodegen, ATaskOfSeveralLaunchesIsAModuleOfThem) {
  const ir::Target target = *ir::ParseTarget("opencl");
  auto steps = driver::DefaultSteps(kSoftmax, target);
  ASSERT_TRUE(steps.ok()) << steps.status();
  EXPECT_NE(steps->find("bind"), std::string::npos) << *steps;
  auto built = driver::BuildCandidate(kSoftmax, *steps, target, nullptr);
  ASSERT_TRUE(built.ok()) << built.status();
  auto file = module::ModuleFile::FromBytes(built->module_bytes);
  ASSERT_TRUE(file.ok()) << file.status();
  const module::Manifest& manifest = file->manifest();
  EXPECT_EQ(manifest.target, "opencl");
  EXPECT_EQ(manifest.code[0].device, "opencl");
  EXPECT_TRUE(manifest.cpu_features.empty());
  const auto& launches = manifest.functions[0].launches;
  ASSERT_GT(launches.size(), 1u);
  for (const module::Launch& launch : launches) EXPECT_TRUE(launch.has_grid());
  EXPECT_EQ(launches.back().steps, *steps);
  for (const module::Tensor& tensor : manifest.tensors) EXPECT_EQ(tensor.offset % 512, 0);
}

}  // namespace
}  // namespace tilewright::opencl
