// Metal texts as artifacts. No compiler of Apple's is here: the emulator compiles and runs the
// texts (gpu_schedules_test, random_simt_test), and this test looks at what the language wants.
#include "compiler/targets/metal/metal_codegen.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "compiler/ir/ir_text.h"
#include "compiler/schedule/schedule.h"
#include "compiler/transform/passes.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"
#include "tests/support/metal_types.h"
#include "tests/support/te_programs.h"

namespace tilewright::metal {
namespace {

using support::StrCat;

bool Has(const std::string& text, std::string_view what) {
  return text.find(what) != std::string::npos;
}

TEST(MetalCodegen, ATaskBecomesTextWithItsCalls) {
  const auto steps = schedule::ParseSteps("bind %0 blockIdx.x; bind %1 threadIdx.x");
  ASSERT_TRUE(steps.ok()) << steps.status();
  schedule::Schedule scheduled(tests::MatmulProgram(32, 64, 64));
  ASSERT_EQ(scheduled.ApplyAll(*steps), absl::OkStatus());
  transform::PassContext context;
  context.target = *target::ParseTarget("metal");
  const auto lowered =
      transform::RunPipeline(scheduled.function(), transform::GpuPipeline(), context);
  ASSERT_TRUE(lowered.ok()) << lowered.status();
  const std::vector<ir::Function> functions = {*lowered};
  const auto artifact = Generate({functions, context.target, {}});
  ASSERT_TRUE(artifact.ok()) << artifact.status();
  EXPECT_EQ(artifact->format, "msl");
  EXPECT_TRUE(artifact->required_features.empty());
  EXPECT_TRUE(artifact->bytes.starts_with("#include <metal_stdlib>\n"));
  EXPECT_EQ(artifact->programs[0].calls[0].grid, (std::array<int64_t, 3>{32, 1, 1}));
  EXPECT_TRUE(Has(artifact->bytes,
                  "[[kernel, max_total_threads_per_threadgroup(64 * 1 * 1)]] "
                  "void matmul_k0(device const float* restrict A [[buffer(0)]], "
                  "device const float* restrict B [[buffer(1)]], device float*"))
      << artifact->bytes;
}

TEST(MetalCodegen, SizesAreConstantsInFrontOfTheBuffers) {
  const auto f = ir::ParseFunction(
      "fn copy(n: size, X: f16[n] input, Y: f32[n] output) stage=flat { for g in 0..n blockIdx.x { "
      "Y[g] = f32(X[g]); } }");
  ASSERT_TRUE(f.ok()) << f.status();
  const auto text = EmitMetal({*f});
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_TRUE(Has(*text,
                  "constant long& n [[buffer(0)]], device const half* restrict X "
                  "[[buffer(1)]], device float* restrict Y [[buffer(2)]], uint3 tw_group"))
      << *text;
}

// The check of address spaces finds a pointer that points elsewhere, or does not say where.
TEST(MetalTypes, FindsWrongAddressSpaces) {
  const auto kernel = [](const std::string& body) {
    return StrCat(
        "#include <metal_stdlib>\nusing namespace metal;\n"
        "[[kernel, max_total_threads_per_threadgroup(8)]] void k(constant long& n [[buffer(0)]], "
        "device const float* A [[buffer(1)]], device float* B [[buffer(2)]], uint3 tw_thread "
        "[[thread_position_in_threadgroup]]) {\n  alignas(16) threadgroup float S[64];\n  const "
        "int "
        "i = (int)tw_thread.x;\n  ",
        body, "\n}\n");
  };
  const absl::Status right = tests::CheckMetalTypes(
      kernel("const auto run = *(const device tw_wide<float, 4>*)(A + i * 4);"
             "const tw_wide<float, 4> wide = {{run.v[0], run.v[1], run.v[2], 1.0f}};"
             "*(threadgroup tw_wide<float, 4>*)(S + i * 4) = wide;"
             "threadgroup_barrier(mem_flags::mem_device | mem_flags::mem_threadgroup);"
             "B[i] = simd_sum(S[i]);"));
  if (support::Slug(right) == "test.metal_types.no_clang") GTEST_SKIP() << "[SKIP] no clang";
  EXPECT_EQ(right, absl::OkStatus());
  for (const char* wrong :
       {"B[i] = (*(const tw_wide<float, 4>*)(A + i)).v[0];", "device float* p = S; p[i] = 1.0f;",
        "B[i] = (*(const threadgroup tw_wide<float, 4>*)(A + i)).v[0];", "B[i] = erfc_of(A[i]);",
        "threadgroup_barrier(1);"}) {
    EXPECT_EQ(support::Slug(tests::CheckMetalTypes(kernel(wrong))), "test.metal_types") << wrong;
  }
}

TEST(MetalCodegen, RefusesWhatTheLanguageLacks) {
  const auto wide = ir::ParseFunction(
      "fn wide(X: f64[8] input, Y: f64[8] output) stage=flat { for t in 0..8 threadIdx.x { Y[t] = "
      "X[t]; } }");
  ASSERT_TRUE(wide.ok()) << wide.status();
  EXPECT_EQ(support::Slug(EmitMetal({*wide}).status()), "codegen.metal.unsupported");
  std::string params, sum = "0.0f32";
  for (int i = 0; i < 31; ++i) {
    params += StrCat("X", i, ": f32[8] input, ");
    sum += StrCat(" + X", i, "[t]");
  }
  const auto many = ir::ParseFunction(StrCat("fn many(", params,
                                             "Y: f32[8] output) stage=flat { for t in 0..8 "
                                             "threadIdx.x { Y[t] = ",
                                             sum, "; } }"));
  ASSERT_TRUE(many.ok()) << many.status();
  const absl::Status status = EmitMetal({*many}).status();
  EXPECT_EQ(support::Slug(status), "codegen.metal.unsupported");
  EXPECT_TRUE(Has(std::string(status.message()), "32 buffers, of at most 31")) << status;
}

}  // namespace
}  // namespace tilewright::metal
