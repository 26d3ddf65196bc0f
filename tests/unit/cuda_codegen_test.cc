// CUDA C texts and what NVRTC makes of them: a request becomes a cubin, calls with grid and group,
// and a report of resources. What needs NVRTC skips where it is not installed.
#include "compiler/targets/cuda/cuda_codegen.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "compiler/codegen/host_device.h"
#include "compiler/ir/ir_text.h"
#include "compiler/schedule/schedule.h"
#include "compiler/targets/cuda/nvrtc.h"
#include "compiler/transform/passes.h"
#include "deploy/support/file.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::cuda {
namespace {

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
constexpr char kBound[] = "bind %0 blockIdx.x; bind %1 threadIdx.x";

absl::StatusOr<codegen::Artifact> Generated(const std::string& steps, const std::string& target,
                                            const std::string& dump = "") {
  TW_ASSIGN(const ir::Function function, ir::ParseFunction(kProduct));
  TW_ASSIGN(const schedule::Steps parsed, schedule::ParseSteps(steps));
  schedule::Schedule scheduled(function);
  TW_TRY(scheduled.ApplyAll(parsed));
  transform::PassContext context;
  TW_ASSIGN(context.target, target::ParseTarget(target));
  TW_ASSIGN(const ir::Function lowered,
            transform::RunPipeline(scheduled.function(), transform::GpuPipeline(), context));
  const std::vector<ir::Function> functions = {lowered};
  return Generate({functions, context.target, {.dump_dir = dump}});
}

TEST(CudaCodegen, SumsOfF16AreInstructionsAndThoseOfBf16AreRefused) {
  const auto sums = [](const std::string& type) {
    const auto f = ir::ParseFunction("fn sums(X: " + type + "[32] input, Y: " + type +
                                     "[32] output) stage=flat { for t in 0..32 threadIdx.x {"
                                     " Y[t] = X[t] + X[t]; } }");
    TW_CHECK(f.ok()) << f.status();
    return EmitCuda({*f});
  };
  const auto text = sums("f16");
  ASSERT_TRUE(text.ok()) << text.status();
  // A sum without a rounding in its name may become part of a multiply-add.
  EXPECT_NE(text->find(R"(asm(#name ".rn.f16)"), std::string::npos) << *text;
  EXPECT_EQ(support::Slug(sums("bf16").status()), "codegen.cuda.unsupported");
}

// A run is as few accesses as its place allows: of 16 bytes at most, or of 8.
TEST(CudaCodegen, LongRunsAreSeveralWideAccesses) {
  const auto f = ir::ParseFunction(R"(fn copy(X: f32[512] input, Y: f32[512] output) stage=flat {
  for t in 0..32 threadIdx.x {
    Y[ramp(t * 8, 1, 8)] = X[ramp(t * 8 + 2, 1, 8)];
  }
}
)");
  ASSERT_TRUE(f.ok()) << f.status();
  const auto text = EmitCuda({*f});
  ASSERT_TRUE(text.ok()) << text.status();
  const auto count = [&](const std::string& part) {
    int times = 0;
    for (size_t at = 0; (at = text->find(part, at)) != std::string::npos; ++at) ++times;
    return times;
  };
  EXPECT_EQ(count("= *(const tw_wide<float, 2>*)(X + "), 4) << *text;
  EXPECT_EQ(count("*(tw_wide<float, 4>*)(Y + "), 2) << *text;
  EXPECT_NE(text->find("*(tw_wide<float, 4>*)(Y + ((t * 8) + 4))"), std::string::npos) << *text;
}

bool HaveNvrtc() { return NvrtcName() != "nvrtc-none"; }

TEST(CudaCodegen, ATaskBecomesACubinForEachMachine) {
  if (!HaveNvrtc()) GTEST_SKIP() << "[SKIP] no NVRTC";
  for (const char* arch : {"sm_80", "sm_90", "sm_90a"}) {
    auto artifact = Generated(kBound, support::StrCat("cuda,arch=", arch));
    ASSERT_TRUE(artifact.ok()) << artifact.status();
    EXPECT_EQ(artifact->format, "cubin");
    EXPECT_EQ(artifact->bytes.substr(1, 3), "ELF");
    EXPECT_EQ(artifact->required_features, std::vector<std::string>{arch});
    ASSERT_EQ(artifact->programs[0].calls.size(), 1u);
    EXPECT_EQ(artifact->programs[0].calls[0].group, (std::array<int64_t, 3>{32, 1, 1}));
    ASSERT_EQ(artifact->resources.size(), 1u);
    EXPECT_EQ(artifact->resources[0].name, "mm_k0");
    EXPECT_GT(artifact->resources[0].registers, 0);
    EXPECT_LE(artifact->resources[0].registers, 255);
    EXPECT_EQ(artifact->resources[0].spill_bytes, 0);
  }
}

TEST(CudaCodegen, TheTextIsDumpedWhetherOrNotItIsCompiled) {
  auto folder = support::TempDir::Create("cuda");
  ASSERT_TRUE(folder.ok()) << folder.status();
  auto artifact = Generated(kBound, "cuda", folder->path());
  if (!artifact.ok()) {
    EXPECT_EQ(support::Slug(artifact.status()), "codegen.device_compiler.missing");
  }
  if (artifact.ok()) {
    auto report = support::ReadFile(folder->path() + "/mm.resources", 1 << 20);
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_TRUE(report->starts_with("mm_k0 registers=")) << *report;
    EXPECT_NE(report->find(" spill_bytes=0 stack_bytes=0 shared_bytes=0\n"), std::string::npos);
  }
  auto text = support::ReadFile(folder->path() + "/mm.cu", 1 << 20);
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_NE(text->find("__launch_bounds__(32 * 1 * 1) void mm_k0(const float* restrict A"),
            std::string::npos)
      << *text;
}

TEST(Nvrtc, TextsThatDoNotCompileAreErrorsWithItsMessages) {
  if (!HaveNvrtc()) GTEST_SKIP() << "[SKIP] no NVRTC";
  const auto cubin = CompileText("extern \"C\" __global__ void k() { nonsense; }", "sm_90");
  EXPECT_EQ(support::Slug(cubin.status()), "codegen.cuda.compile");
  EXPECT_NE(cubin.status().message().find("identifier \"nonsense\" is undefined"),
            std::string::npos)
      << cubin.status();
  EXPECT_EQ(support::Slug(CompileText("", "sm_20").status()), "codegen.device_compiler.missing");
}

// A thread that needs more registers than it may have says what it spills.
TEST(Nvrtc, ReportsSpills) {
  if (!HaveNvrtc()) GTEST_SKIP() << "[SKIP] no NVRTC";
  std::string text = "extern \"C\" __global__ __launch_bounds__(1024) void k(float* y) {\n";
  for (int i = 0; i < 100; ++i)
    text += support::StrCat("  float v", i, " = y[", i, " * y[0] > 0];\n");
  text += "  __syncthreads();\n";
  for (int i = 0; i < 100; ++i) text += support::StrCat("  y[", 2 * i, "] = v", i, ";\n");
  const auto cubin = CompileText(text + "}\n", "sm_80");
  ASSERT_TRUE(cubin.ok()) << cubin.status();
  ASSERT_EQ(cubin->kernels.size(), 1u);
  EXPECT_GT(cubin->kernels[0].spill_bytes, 0);
  EXPECT_EQ(cubin->kernels[0].registers, 64);  // of 65536, for 1024 threads
}

TEST(Nvrtc, ItsLogSaysWhatKernelsUse) {
  const auto kernels = ResourcesOf(
      "ptxas info    : 0 bytes gmem\n"
      "ptxas info    : Compiling entry function 'b' for 'sm_90'\n"
      "ptxas info    : Function properties for b\n"
      "ptxas         .     48 bytes stack frame, 12 bytes spill stores, 20 bytes spill loads\n"
      "ptxas info    : Used 255 registers, used 1 barriers, 48 bytes cumulative stack size\n"
      "ptxas info    : Compiling entry function 'a' for 'sm_90'\n"
      "ptxas info    : Function properties for a\n"
      "ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
      "ptxas info    : Used 24 registers, used 1 barriers, 512 bytes smem\n");
  ASSERT_EQ(kernels.size(), 2u);
  EXPECT_EQ(kernels[0].name, "a");
  EXPECT_EQ(kernels[0].registers, 24);
  EXPECT_EQ(kernels[0].shared_bytes, 512);
  EXPECT_EQ(kernels[0].spill_bytes, 0);
  EXPECT_EQ(kernels[1].name, "b");
  EXPECT_EQ(kernels[1].registers, 255);
  EXPECT_EQ(kernels[1].spill_bytes, 32);
  EXPECT_EQ(kernels[1].stack_bytes, 48);
  EXPECT_TRUE(ResourcesOf("").empty());
}

TEST(CudaCodegen, LaunchesWithTooManyGroupsAlongYAreRefused) {
  codegen::HostPlan plan;
  codegen::Launch& launch = plan.launches.emplace_back();
  for (size_t a = 0; a < 3; ++a) launch.grid[a] = launch.group[a] = ir::Int(1);
  launch.grid[0] = ir::Int(1 << 20);
  const target::LaunchLimits limits = target::ParseTarget("cuda")->machine.launch;
  EXPECT_EQ(codegen::CheckLaunchLimits(plan, limits), absl::OkStatus());
  launch.grid[1] = ir::Int(65536);
  EXPECT_EQ(support::Slug(codegen::CheckLaunchLimits(plan, limits)),
            "codegen.launch_limits.groups");
}

// A product of a tile of 7 by 64 pixels and channels. NVRTC 13 spills three registers of it to have
// room for seven groups.
constexpr char kSpilled[] = R"(#define restrict __restrict__
struct alignas(16) Four { float v[4]; };
struct alignas(8) Two { float v[2]; };
extern "C" __global__ __launch_bounds__(224 * 1 * 1) void k7(const float* restrict x, const
float* restrict w, const float* restrict b, float* restrict y) {
  __shared__ __align__(16) float xs[448];
  __shared__ __align__(16) float ws[4096];
  const int g = (int)blockIdx.x;
  const int tx = (int)threadIdx.x;
  {
    float sum[2];
    {
      const float lane = 0.0f;
      const float l1 = 0.0f;
      sum[0] = lane;
      sum[1] = l1;
    }
    for (int i = 0; i < 16; ++i) {
      for (int r = 0; r < 8; ++r) {
        __syncthreads();
        if ((tx < 128)) {
          {
            const auto run = *(const Four*)(w + ((((((g / 7) * 65536) + ((r / 2) * 16384)) + (i
            * 1024)) + ((r % 2) * 512)) + (tx * 4)));
            const Four wide = {{run.v[0], run.v[1], run.v[2], run.v[3]}};
            *(Four*)(ws + (((r * 512) + ((tx / 4) * 16)) + ((((tx / 4) + tx) % 4) * 4))) = wide;
          }
        }
      }
      for (int r = 0; r < 2; ++r) {
        __syncthreads();
        xs[((r * 224) + tx)] = x[(((((i * 3136) + (r * 1568)) + ((tx / 7) * 49)) + ((g % 7) *
        7)) + (tx % 7))];
      }
      __syncthreads();
      for (int k = 0; k < 64; ++k) {
        {
          const auto two = *(const Two*)(ws + (((((tx / 56) * 1024) + (k * 16)) + ((((((tx / 7)
          % 8) / 2) + k) % 4) * 4)) + (((tx / 7) % 2) * 2)));
          const float l2 = fma(xs[((k * 7) + (tx % 7))], two.v[0], sum[0]);
          const float l3 = fma(xs[((k * 7) + (tx % 7))], two.v[1], sum[1]);
          sum[0] = l2;
          sum[1] = l3;
        }
      }
    }
    {
      const auto bias = *(const Two*)(b + (((g / 7) * 64) + ((tx / 7) * 2)));
      const float l4 = (6.0f < (0.0f > (sum[0] + bias.v[0]) ? 0.0f : (sum[0] + bias.v[0])) ?
      6.0f : (0.0f > (sum[0] + bias.v[0]) ? 0.0f : (sum[0] + bias.v[0])));
      const float l5 = (6.0f < (0.0f > (sum[1] + bias.v[1]) ? 0.0f : (sum[1] + bias.v[1])) ?
      6.0f : (0.0f > (sum[1] + bias.v[1]) ? 0.0f : (sum[1] + bias.v[1])));
      y[(((((g / 7) * 3136) + ((tx / 7) * 98)) + ((g % 7) * 7)) + (tx % 7))] = l4;
      y[((((((g / 7) * 3136) + ((tx / 7) * 98)) + ((g % 7) * 7)) + (tx % 7)) + 49)] = l5;
    }
  }
}
)";

TEST(Nvrtc, KernelsThatItSpillsGetMoreRegisters) {
  if (!HaveNvrtc()) GTEST_SKIP() << "[SKIP] no NVRTC";
  const auto cubin = CompileText(kSpilled, "sm_90a");
  ASSERT_TRUE(cubin.ok()) << support::StatusText(cubin.status());
  EXPECT_EQ(cubin->kernels[0].spill_bytes, 0);
}

}  // namespace
}  // namespace tilewright::cuda
