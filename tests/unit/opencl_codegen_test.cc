// The OpenCL generator behind the interface of all generators: a request becomes text, calls with
// grid and group, and temporaries; and a task becomes a module whose launches are those calls.
#include "compiler/targets/opencl/opencl_codegen.h"

#include <string>
#include <utility>
#include <vector>

#include "compiler/driver/compile.h"
#include "compiler/ir/ir_text.h"
#include "compiler/schedule/schedule.h"
#include "compiler/transform/passes.h"
#include "deploy/module/module_file.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"
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

constexpr char kProduct[] =
    R"(fn mm(A: f32[32, 64] input, B: f32[64, 32] input, C: f32[32, 32] output) stage=scheduled {
  for i in 0..32 {
    for j in 0..32 {
      for k in 0..64 {
        block C(vi: spatial 0..32 = i, vj: spatial 0..32 = j, vk: reduce 0..64 = k) {
          reads A[vi:1, vk:1], B[vk:1, vj:1];
          writes C[vi:1, vj:1];
          init {
            C[vi, vj] = 0.0f32;
          }
          C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj];
        }
      }
    }
  }
}
)";

absl::StatusOr<codegen::Artifact> Generated(const std::string& program, const std::string& steps) {
  TW_ASSIGN(const ir::Function function, ir::ParseFunction(program));
  TW_ASSIGN(const schedule::Steps parsed, schedule::ParseSteps(steps));
  schedule::Schedule scheduled(function);
  TW_TRY(scheduled.ApplyAll(parsed));
  TW_ASSIGN(const target::Target target, target::ParseTarget("opencl"));
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

TEST(OpenClCodegen, IndicesHave32BitsWhereThatIsEnough) {
  const std::string steps = "split %0 [?,50]; bind %3 threadIdx.x; bind %2 blockIdx.x";
  auto narrow = Generated(kDouble, steps);
  ASSERT_TRUE(narrow.ok()) << narrow.status();
  EXPECT_EQ(narrow->bytes.find("long"), std::string::npos) << narrow->bytes;
  // Both buffers of 3 · 2^30 elements: the last index needs 32 bits and a sign.
  std::string large = kDouble;
  for (size_t at = 0; (at = large.find("1000", at)) != std::string::npos;)
    large.replace(at, 4, "3221225472");
  auto wide = Generated(large, "split %0 [?,64]; bind %3 threadIdx.x; bind %2 blockIdx.x");
  ASSERT_TRUE(wide.ok()) << wide.status();
  EXPECT_NE(wide->bytes.find("long"), std::string::npos) << wide->bytes;
}

// With `restrict`, LLVM keeps a value of global memory in a register across the barrier behind
// which another thread changed it (random_opencl_test, seed 50000021007).
TEST(OpenClCodegen, WhatThreadsPassThroughGlobalMemoryIsNotRestrict) {
  constexpr char kReversed[] =
      R"(fn f(X: f32[64] input, T: f32[64] output, Y: f32[64] output) stage=flat {
  for t in 0..64 threadIdx.x {
    T[t] = X[t];
    sync barrier;
    Y[t] = T[63 - t];
  }
}
)";
  auto function = ir::ParseFunction(kReversed);
  ASSERT_TRUE(function.ok()) << function.status();
  auto text = EmitOpenCl({*function});
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_NE(text->find("__global const float* restrict X"), std::string::npos) << *text;
  EXPECT_NE(text->find("__global float* T"), std::string::npos) << *text;
  EXPECT_NE(text->find("__global float* restrict Y"), std::string::npos) << *text;
}

// PoCL 3.1 leaves out a condition right behind a loop with barriers (random_opencl_test, seed
// 50000000010).
TEST(OpenClCodegen, ABarrierStandsBetweenALoopWithBarriersAndACondition) {
  const auto barriers = [](const std::string& meets, const std::string& condition) {
    auto function = ir::ParseFunction(
        "fn f(X: f32[64] input, T: f32[64] output, Y: f32[64] output)"
        " stage=flat { for t in 0..64 threadIdx.x { for k in 0..3 { "
        "T[t] = X[t]; " +
        meets + " } " + condition + "{ Y[t] = T[63 - t]; } } }");
    EXPECT_TRUE(function.ok()) << function.status();
    auto text = EmitOpenCl({*function});
    EXPECT_TRUE(text.ok()) << text.status();
    int count = 0;
    for (size_t at = text->find("barrier("); at != std::string::npos;
         at = text->find("barrier(", at + 1))
      ++count;
    return count;
  };
  EXPECT_EQ(barriers("sync barrier;", "if (t < 7) "), 2);
  EXPECT_EQ(barriers("sync barrier;", "for i in 0..2 "), 1);
  EXPECT_EQ(barriers("", "if (t < 7) "), 0);
}

// Half of the largest i32 fits, twice that does not: intermediate values count.
TEST(OpenClCodegen, IntermediateValuesOfIndicesCount) {
  constexpr char kScaled[] = R"(fn f(X: f32[4096] input, Y: f32[4096] output) stage=flat {
  for i in 0..4096 {
    Y[i] = X[floordiv(i * SCALE, SCALE)];
  }
}
)";
  for (const auto& [scale, type] : {std::pair("1000", "int"), std::pair("1000000", "long")}) {
    std::string text = kScaled;
    for (size_t at = 0; (at = text.find("SCALE")) != std::string::npos;) text.replace(at, 5, scale);
    auto function = ir::ParseFunction(text);
    ASSERT_TRUE(function.ok()) << function.status();
    auto code = EmitOpenCl({*function});
    ASSERT_TRUE(code.ok()) << code.status();
    EXPECT_NE(code->find(std::string("for (") + type + " i = "), std::string::npos) << *code;
    EXPECT_EQ(code->find("tw_floordiv"), std::string::npos) << "of nothing negative: " << *code;
  }
}

TEST(OpenClCodegen, SumsOfVectorsAreVariablesAndContracted) {
  auto artifact = Generated(
      kProduct,
      "cache_write %3; split %5 [?,2]; split %6 [?,8]; reorder %7 %9 %8 %10; bind %7 blockIdx.x; "
      "bind %9 threadIdx.x; compute_at %3 %9; reorder %13 %11 %12; unroll %11; vectorize %12; "
      "unroll %8; vectorize %10");
  ASSERT_TRUE(artifact.ok()) << artifact.status();
  const std::string& text = artifact->bytes;
  EXPECT_NE(text.find("float8 C_local;"), std::string::npos) << text;
  EXPECT_NE(text.find("float8 C_local_1;"), std::string::npos) << text;
  EXPECT_NE(text.find("C_local = fma(((float8)(A["), std::string::npos) << text;
  EXPECT_NE(text.find("vstore8(C_local, 0, C + "), std::string::npos) << text;
}

// A kernel of 64 threads whose body is the text; S is shared, L is each thread's own.
std::string InThreads(const std::string& body) {
  return R"(fn f(X: f32[64] input, Y: f32[64] output) stage=flat {
  alloc S: f32[64] scope=shared {
    for t in 0..64 threadIdx.x {
      alloc L: f32[1] scope=local {
        S[t] = X[t];
        L[0] = 0.0f32;
        sync barrier;
        )" +
         body +
         R"(
        Y[t] = L[0];
      }
    }
  }
}
)";
}

TEST(OpenClCodegen, SubGroupsShareOutWhatAllThreadsAddUpAlike) {
  const auto shares = [](const std::string& body) {
    auto function = ir::ParseFunction(InThreads(body));
    EXPECT_TRUE(function.ok()) << function.status();
    auto text = EmitOpenCl({*function}, /*sub_groups=*/true);
    EXPECT_TRUE(text.ok()) << text.status();
    EXPECT_EQ(EmitOpenCl({*function})->find("sub_group"), std::string::npos);
    return text->find("sub_group_reduce_") != std::string::npos;
  };
  const std::string loop = "for k in 0..64 @{sub_group=1} ";
  EXPECT_TRUE(shares(loop + "{ L[0] = L[0] + S[k]; }"));
  EXPECT_TRUE(shares(loop + "{ L[0] = S[k] + L[0]; }"));
  EXPECT_TRUE(shares(loop + "{ L[0] = max(L[0], S[k] * 2.0f32); }"));
  EXPECT_TRUE(shares("if (S[0] > 0.0f32) { " + loop + "{ L[0] = L[0] + S[k]; } }"));
  // Without the mark; not together; terms of a thread's own; no sum; its result among the terms.
  EXPECT_FALSE(shares("for k in 0..64 { L[0] = L[0] + S[k]; }"));
  EXPECT_FALSE(shares("if (t == 0) { " + loop + "{ L[0] = L[0] + S[k]; } }"));
  EXPECT_FALSE(shares("for k in 0..t @{sub_group=1} { L[0] = L[0] + S[k]; }"));
  EXPECT_FALSE(shares(loop + "{ L[0] = L[0] + S[floormod(k + t, 64)]; }"));
  EXPECT_FALSE(shares("let n = t + 1 { " + loop + "{ L[0] = L[0] + S[floormod(k + n, 64)]; } }"));
  EXPECT_FALSE(shares(loop + "{ L[0] = L[0] * S[k]; }"));
  EXPECT_FALSE(shares(loop + "{ L[0] = L[0] + L[0] * S[k]; }"));
}

TEST(OpenClCodegen, ADeviceOfCodeWithSubGroupsMustHaveThem) {
  const std::vector<ir::Function> functions = {
      *ir::ParseFunction(InThreads("for k in 0..64 @{sub_group=1} { L[0] = L[0] + S[k]; }"))};
  target::Target target = *target::ParseTarget("opencl");
  EXPECT_EQ(Generate({functions, target, {}})->required_features, std::vector<std::string>());
  target.machine.launch.sub_groups = true;
  EXPECT_EQ(Generate({functions, target, {}})->required_features,
            std::vector<std::string>{"cl_khr_subgroups"});
}

TEST(OpenClCodegen, AModuleSaysWhichTypesTheDeviceMustHave) {
  const target::Target target = *target::ParseTarget("opencl");
  const auto features = [&](const std::string& type) {
    const std::string text = support::StrCat("graph {\n  input %0: ", type, "[64]\n  %1: ", type,
                                             "[64] = relu(%0)\n  output %1\n}\n");
    const auto steps = driver::DefaultSteps(text, target);
    EXPECT_TRUE(steps.ok()) << steps.status();
    const auto built = driver::BuildCandidate(text, *steps, target, nullptr);
    EXPECT_TRUE(built.ok()) << built.status();
    const auto file = module::ModuleFile::FromBytes(built->module_bytes);
    EXPECT_TRUE(file.ok()) << file.status();
    EXPECT_TRUE(file->manifest().cpu_features.empty());
    return file->manifest().code[0].features;
  };
  EXPECT_EQ(features("f32"), std::vector<std::string>());
  EXPECT_EQ(features("f16"), std::vector<std::string>{"cl_khr_fp16"});
  EXPECT_EQ(features("f64"), std::vector<std::string>{"cl_khr_fp64"});
}

// Maximum and sum need launches of their own.
constexpr char kSoftmax[] =
    "graph {\n  input %0: f32[3,100]\n  %1: f32[3,100] = softmax(%0) {axis=1}\n  output %1\n}\n";

TEST(OpenClCodegen, ATaskOfSeveralLaunchesIsAModuleOfThem) {
  const target::Target target = *target::ParseTarget("opencl");
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
