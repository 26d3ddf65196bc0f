// HIP texts and what clang makes of them: a request becomes a code object whose metadata another
// tool reads, calls with grid and group, and a report of resources. What needs clang skips where it
// is not installed. No GPU runs any of it.
#include "compiler/targets/hip/hip_codegen.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "compiler/ir/ir_text.h"
#include "compiler/schedule/schedule.h"
#include "compiler/targets/hip/hip_compiler.h"
#include "compiler/transform/passes.h"
#include "deploy/support/file.h"
#include "deploy/support/process.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"
#include "tests/support/golden.h"
#include "tests/support/te_programs.h"

namespace tilewright::hip {
namespace {

using support::StrCat;

// Rows of a group go through its local memory: 64 x 4 bytes of it.
constexpr char kStaged[] =
    "cache_read %3 scope=shared; compute_at %4 %0; bind %0 blockIdx.x; bind %1 threadIdx.x; "
    "bind %8 threadIdx.x";

absl::StatusOr<codegen::Artifact> Generated(const std::string& target, const std::string& steps,
                                            const std::string& dump = "") {
  TW_ASSIGN(const schedule::Steps parsed, schedule::ParseSteps(steps));
  schedule::Schedule scheduled(tests::MatmulProgram(32, 64, 64));
  TW_TRY(scheduled.ApplyAll(parsed));
  transform::PassContext context;
  TW_ASSIGN(context.target, target::ParseTarget(target));
  TW_ASSIGN(const ir::Function lowered,
            transform::RunPipeline(scheduled.function(), transform::GpuPipeline(), context));
  const std::vector<ir::Function> functions = {lowered};
  return Generate({functions, context.target, {.dump_dir = dump}});
}

bool HaveClang() { return ClangName() != "clang-none"; }

// What a tool of LLVM prints of a code object; empty where the tool is not installed.
std::string Printed(const std::string& tool, const std::vector<std::string>& flags,
                    const std::string& code) {
  const std::string program = StrCat("/usr/bin/", tool);
  if (!support::FileExists(program)) return "";
  auto folder = support::TempDir::Create("hip");
  EXPECT_TRUE(folder.ok()) << folder.status();
  const std::string path = folder->File("kernels.hsaco");
  EXPECT_TRUE(support::WriteFileAtomic(path, code).ok());
  support::ChildOptions options;
  options.program = program;
  options.args = flags;
  options.args.push_back(path);
  const auto result = support::RunCommand(options, "", 60'000);
  EXPECT_TRUE(result.ok() && result->status.ok()) << program;
  return result.ok() ? result->stdout_text : "";
}

TEST(HipCodegen, ATaskBecomesACodeObjectForEachMachine) {
  if (!HaveClang()) GTEST_SKIP() << "[SKIP] no clang for amdgcn";
  for (const char* arch : {"gfx90a", "gfx942", "gfx1100"}) {
    auto artifact = Generated(StrCat("hip,arch=", arch), kStaged);
    ASSERT_TRUE(artifact.ok()) << artifact.status();
    EXPECT_EQ(artifact->format, "hsaco");
    ASSERT_GT(artifact->bytes.size(), 64u);
    EXPECT_EQ(artifact->bytes.substr(1, 3), "ELF");
    constexpr unsigned char kAmdGpu = 224;  // the machine of an ELF file
    EXPECT_EQ(static_cast<unsigned char>(artifact->bytes[18]), kAmdGpu);
    EXPECT_EQ(artifact->required_features, std::vector<std::string>{arch});
    ASSERT_EQ(artifact->programs[0].calls.size(), 1u);
    EXPECT_EQ(artifact->programs[0].calls[0].group, (std::array<int64_t, 3>{64, 1, 1}));
    ASSERT_EQ(artifact->resources.size(), 1u);
    const codegen::KernelResources& kernel = artifact->resources[0];
    EXPECT_GT(kernel.registers, 0);
    EXPECT_EQ(kernel.spill_bytes, 0);
    EXPECT_GT(kernel.shared_bytes, 0);
    const auto again = Generated(StrCat("hip,arch=", arch), kStaged);
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(again->bytes, artifact->bytes) << "the same input gives the same bytes";
    const std::string notes = Printed("llvm-readobj-19", {"--notes"}, artifact->bytes);
    if (notes.empty()) GTEST_SKIP() << "[SKIP] no llvm-readobj-19";
    const bool wide = std::string(arch) != "gfx1100";
    for (const std::string& said :
         {StrCat("amdgcn-amd-amdhsa--", arch), StrCat(".name:           ", kernel.name),
          std::string(".kernarg_segment_size: 24"), std::string(".max_flat_workgroup_size: 64"),
          StrCat(".group_segment_fixed_size: ", kernel.shared_bytes),
          StrCat(".wavefront_size: ", wide ? 64 : 32), std::string(".vgpr_spill_count: 0")}) {
      EXPECT_NE(notes.find(said), std::string::npos) << said << "\n" << notes;
    }
  }
}

// Four products of bytes are one instruction where the machine has it for their signs.
TEST(HipCodegen, ProductsOfBytesAreInstructions) {
  if (!HaveClang()) GTEST_SKIP() << "[SKIP] no clang for amdgcn";
  const auto dots = [](const char* b) {
    return ir::ParseFunction(
        StrCat("fn dots(A: i8[1024] input, B: ", b,
               "[1024] input, C: i32[256] output) stage=flat { "
               "for t in 0..64 threadIdx.x { C[ramp(t * 4, 1, 4)] = dot4(C[ramp(t * 4, 1, 4)], "
               "A[ramp(t * 16, 1, 16)], B[ramp(t * 16, 1, 16)]); } }"));
  };
  for (const auto& [arch, b, has] : {std::tuple{"gfx90a", "i8", true},
                                     {"gfx90a", "u8", false},
                                     {"gfx1100", "i8", true},
                                     {"gfx1100", "u8", true}}) {
    const auto f = dots(b);
    ASSERT_TRUE(f.ok()) << f.status();
    const auto text = EmitHip({*f}, true, std::string(arch) == "gfx1100" ? 32 : 64);
    ASSERT_TRUE(text.ok()) << text.status();
    const auto code = CompileText(*text, arch);
    ASSERT_TRUE(code.ok()) << code.status() << "\n" << *text;
    const std::string assembly = Printed("llvm-objdump-19", {"-d"}, code->bytes);
    if (assembly.empty()) GTEST_SKIP() << "[SKIP] no llvm-objdump-19";
    EXPECT_EQ(assembly.find("v_dot4") != std::string::npos, has) << arch << " " << b;
  }
}

TEST(HipCodegen, TheTextIsDumpedWhetherOrNotItIsCompiled) {
  auto folder = support::TempDir::Create("hip");
  ASSERT_TRUE(folder.ok()) << folder.status();
  auto artifact = Generated("hip", kStaged, folder->path());
  if (!artifact.ok()) {
    EXPECT_EQ(support::Slug(artifact.status()), "codegen.device_compiler.missing");
  }
  auto text = support::ReadFile(folder->File("matmul.hip"), 1 << 20);
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_TRUE(text->starts_with("#define TW_LANES 64\n")) << *text;
  if (!artifact.ok()) return;
  auto report = support::ReadFile(folder->File("matmul.resources"), 1 << 20);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_TRUE(report->starts_with("matmul_k0 registers=")) << *report;
}

TEST(HipCompiler, SaysWhatTheCompilerSays) {
  if (!HaveClang()) {
    EXPECT_EQ(support::Slug(CompileText("", "gfx90a").status()), "codegen.device_compiler.missing");
    GTEST_SKIP() << "[SKIP] no clang for amdgcn";
  }
  const auto code =
      CompileText("extern \"C\" __attribute__((global)) void k() { nonsense; }", "gfx90a");
  EXPECT_EQ(support::Slug(code.status()), "codegen.hip.compile");
  EXPECT_NE(code.status().message().find("nonsense"), std::string::npos) << code.status();
  EXPECT_EQ(support::Slug(CompileText("", "gfx9999").status()), "codegen.device_compiler.missing");
}

// The whole text is for the machine's warps, and says so where it is compiled for another.
TEST(HipCompiler, RefusesOtherWarps) {
  if (!HaveClang()) GTEST_SKIP() << "[SKIP] no clang for amdgcn";
  const auto text = support::ReadFile(tests::GoldenPath("gpu/gpu_sub_group_sum.hip"), 1 << 20);
  ASSERT_TRUE(text.ok()) << text.status();
  const std::string& wide = *text;
  EXPECT_TRUE(CompileText(wide, "gfx90a").ok());
  const absl::Status status = CompileText(wide, "gfx1100").status();
  EXPECT_EQ(support::Slug(status), "codegen.hip.compile");
  EXPECT_NE(status.message().find("the machine has other warps"), std::string::npos) << status;
}

// The sum of functions of one element, as a kernel's text.
std::string SumsOf(const std::vector<std::string>& functions, const char* type) {
  std::string sum;
  for (const std::string& f : functions) {
    const bool two = f == "pow" || f == "fmod";
    sum += StrCat(sum.empty() ? "" : " + ", f, "(X[t]", two ? ", X[t]" : "", ")");
  }
  const auto function = ir::ParseFunction(
      StrCat("fn f(X: ", type, "[64] input, Y: ", type,
             "[64] output) stage=flat { for t in 0..64 threadIdx.x { Y[t] = ", sum, "; } }"));
  EXPECT_TRUE(function.ok()) << function.status();
  const auto text = EmitHip({*function});
  EXPECT_TRUE(text.ok()) << text.status();
  return *text;
}

// Functions that the compiler has no instructions for are those of ROCm's libraries. Where they are
// installed (HIP_DEVICE_LIB_PATH names their folder), texts are linked with them.
TEST(HipCompiler, LinksOrNamesTheLibrariesOfFunctions) {
  if (!HaveClang()) GTEST_SKIP() << "[SKIP] no clang for amdgcn";
  const std::vector<std::string> own = {"exp",  "log", "tanh",  "erf",  "expm1",
                                        "sqrt", "abs", "floor", "ceil", "round_even"};
  const auto alone = CompileText(SumsOf(own, "f32"), "gfx90a");
  EXPECT_TRUE(alone.ok()) << alone.status();
  const std::vector<std::string> others = {"sin",   "cos",  "tan",  "asin",  "acos",
                                           "atan",  "sinh", "cosh", "asinh", "acosh",
                                           "atanh", "pow",  "fmod"};
  for (const char* type : {"f32", "f64"}) {
    std::vector<std::string> functions = others;
    if (type == std::string("f64")) functions.insert(functions.end(), own.begin(), own.end());
    const auto code = CompileText(SumsOf(functions, type), "gfx90a");
    if (code.ok()) continue;
    EXPECT_EQ(support::Slug(code.status()), "codegen.device_library.missing") << code.status();
  }
}

TEST(HipCompiler, ItsRemarksSayWhatKernelsUse) {
  const auto kernels = ResourcesOf(
      "kernels.hip:9:1: remark: Function Name: b [-Rpass-analysis=kernel-resource-usage]\n"
      "kernels.hip:9:1: remark:     SGPRs: 14 [-Rpass-analysis=kernel-resource-usage]\n"
      "kernels.hip:9:1: remark:     VGPRs: 256 [-Rpass-analysis=kernel-resource-usage]\n"
      "kernels.hip:9:1: remark:     AGPRs: 12 [-Rpass-analysis=kernel-resource-usage]\n"
      "kernels.hip:9:1: remark:     ScratchSize [bytes/lane]: 40 [-Rpass-analysis]\n"
      "kernels.hip:9:1: remark:     SGPRs Spill: 3 [-Rpass-analysis=kernel-resource-usage]\n"
      "kernels.hip:9:1: remark:     VGPRs Spill: 7 [-Rpass-analysis=kernel-resource-usage]\n"
      "kernels.hip:9:1: remark:     LDS Size [bytes/block]: 512 [-Rpass-analysis]\n"
      "kernels.hip:1:1: remark: Function Name: a [-Rpass-analysis=kernel-resource-usage]\n"
      "kernels.hip:1:1: remark:     VGPRs: 9 [-Rpass-analysis=kernel-resource-usage]\n");
  ASSERT_EQ(kernels.size(), 2u);
  EXPECT_EQ(kernels[0].name, "a");
  EXPECT_EQ(kernels[0].registers, 9);
  EXPECT_EQ(kernels[1].name, "b");
  EXPECT_EQ(kernels[1].registers, 268);
  EXPECT_EQ(kernels[1].stack_bytes, 40);
  EXPECT_EQ(kernels[1].spill_bytes, 28);
  EXPECT_EQ(kernels[1].shared_bytes, 512);
}

}  // namespace
}  // namespace tilewright::hip
