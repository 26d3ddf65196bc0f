// GPU schedules from the program text to the device: the golden schedules of tests/golden/programs/
// whose names begin with `gpu_` are replayed, lowered pass by pass (each keeps the meaning, by the
// interpreter, which also reports races between threads), cut into launches, interpreted launch by
// launch, written as OpenCL C (tests/golden/gpu/NAME.cl), and run where an OpenCL device is. Texts
// with sub-groups are compiled as such where a compiler is, and run with emulated ones. As CUDA C
// (NAME.cu) they run on the emulated GPU, and NVRTC compiles them where it is.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include "compiler/codegen/host_device.h"
#include "compiler/ir/ir_text.h"
#include "compiler/ir/structural.h"
#include "compiler/ir/verify.h"
#include "compiler/schedule/schedule.h"
#include "compiler/targets/cuda/cuda_codegen.h"
#include "compiler/targets/cuda/nvrtc.h"
#include "compiler/targets/hip/hip_codegen.h"
#include "compiler/targets/metal/metal_codegen.h"
#include "compiler/targets/opencl/opencl_codegen.h"
#include "compiler/transform/passes.h"
#include "deploy/support/env.h"
#include "deploy/support/file.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"
#include "tests/support/count_text.h"
#include "tests/support/equivalence.h"
#include "tests/support/golden.h"
#include "tests/support/metal_types.h"
#include "tests/support/race_check.h"
#include "tests/support/run_plan.h"
#include "tests/support/simt/simt_plan.h"

namespace tilewright::tests {
namespace {

using support::StatusText;
using support::StrCat;

struct Case {
  const char* name;
  size_t launches;
  int barriers;  // in all kernels: none missing (the interpreter says so), none too many
  // Of the CUDA C on the emulated GPU: turns of the banks of shared memory that are lost, and
  // sectors of global memory.
  int64_t conflicts, sectors;
  bool sub_groups = false;
  bool only_cuda = false;  // for tensor cores
};
constexpr Case kCases[] = {
    {"gpu_byte_dots", 1, 0, 0, 78},
    {"gpu_gemm_pipeline", 1, 3, 1536, 768},
    {"gpu_mma", 1, 2, 32, 256, /*sub_groups=*/false, /*only_cuda=*/true},
    {"gpu_row_sum", 1, 1, 0, 582},
    {"gpu_split_k", 2, 0, 0, 3104},
    {"gpu_stream_k", 2, 4, 3328, 1052},
    {"gpu_sub_group_sum", 1, 1, 0, 198, /*sub_groups=*/true},
};

// Comments `#: steps …` of the file are its schedule.
ir::Function Scheduled(const std::string& text, const ir::Function& program) {
  std::string steps;
  for (const std::string& line : support::Split(text, '\n')) {
    if (line.starts_with("#: steps ")) steps += line.substr(9) + "\n";
  }
  auto parsed = schedule::ParseSteps(steps);
  EXPECT_TRUE(parsed.ok()) << StatusText(parsed.status());
  schedule::Schedule s(program);
  s.set_verify_each(true);
  absl::Status applied = s.ApplyAll(*parsed);
  EXPECT_TRUE(applied.ok()) << StatusText(applied) << "\n" << s.Describe();
  return s.function();
}

absl::StatusOr<codegen::HostPlan> Lowered(const ir::Function& scheduled,
                                          const ir::Function& program, bool only_cuda = false) {
  transform::PassContext ctx;
  if (only_cuda) ctx.target = *target::ParseTarget("cuda");
  ctx.verify_each = true;
  ir::Function f = scheduled;
  for (const transform::PassRow& pass : transform::GpuPipeline()) {
    TW_ASSIGN(f, transform::RunPipeline(f, std::span(&pass, 1), ctx));
    absl::Status same = SameResults(program, f);
    if (!same.ok())
      return support::WithContext(same, StrCat("after ", pass.name, ":\n", ir::Print(f)));
  }
  return codegen::SplitHostDevice(f);
}

class GpuSchedules : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    text_ = *support::ReadFile(GoldenPath(StrCat("programs/", GetParam().name, ".tir")), 1 << 20);
    auto parsed = ir::ParseFunction(text_);
    ASSERT_TRUE(parsed.ok()) << StatusText(parsed.status());
    program_ = *parsed;
    scheduled_ = Scheduled(text_, program_);
  }
  std::string text_;
  ir::Function program_, scheduled_;
};

// `#: hash HEX` of the file: the scheduled program is the one that was looked at.
TEST_P(GpuSchedules, GivesTheProgramThatItGave) {
  size_t at = text_.find("#: hash ");
  ASSERT_NE(at, std::string::npos);
  size_t end = text_.find('\n', at);
  std::string line = StrCat("#: hash ", ir::ProgramHash(scheduled_));
  if (support::GetEnv("TILEWRIGHT_UPDATE_GOLDEN") == "1") {
    std::string path = GoldenPath(StrCat("programs/", GetParam().name, ".tir"));
    ASSERT_TRUE(support::WriteFileAtomic(path, text_.replace(at, end - at, line)).ok());
    return;
  }
  EXPECT_EQ(text_.substr(at, end - at), line) << ir::Print(scheduled_);
}

TEST_P(GpuSchedules, LoweredPassByPassAndCutIntoLaunches) {
  absl::Status same = SameResults(program_, scheduled_);
  ASSERT_TRUE(same.ok()) << StatusText(same) << "\n" << ir::Print(scheduled_);
  absl::Status races = CheckRaces(scheduled_, {});
  EXPECT_TRUE(races.ok()) << StatusText(races);
  auto plan = Lowered(scheduled_, program_, GetParam().only_cuda);
  ASSERT_TRUE(plan.ok()) << StatusText(plan.status());
  EXPECT_EQ(plan->launches.size(), GetParam().launches);
  EXPECT_TRUE(
      codegen::CheckLaunchLimits(*plan, target::ParseTarget("opencl")->machine.launch).ok());
  EquivalenceOptions options;
  options.run_other = [&](const ir::Function&, const std::vector<int64_t>& sizes,
                          std::vector<ir::TensorData*> args) {
    return InterpretPlan(*plan, sizes, args);
  };
  same = SameResults(program_, scheduled_, options);
  EXPECT_TRUE(same.ok()) << StatusText(same);
}

TEST_P(GpuSchedules, OpenClText) {
  auto plan = Lowered(scheduled_, program_, GetParam().only_cuda);
  ASSERT_TRUE(plan.ok()) << StatusText(plan.status());
  std::vector<ir::Function> kernels;
  for (const codegen::Launch& l : plan->launches) kernels.push_back(l.kernel);
  auto text = opencl::EmitOpenCl(kernels, GetParam().sub_groups);
  if (GetParam().only_cuda) {
    EXPECT_EQ(support::Slug(text.status()), "codegen.opencl.unsupported") << text.status();
    return;
  }
  ASSERT_TRUE(text.ok()) << StatusText(text.status());
  EXPECT_EQ(*opencl::EmitOpenCl(kernels, GetParam().sub_groups), *text);
  EXPECT_TRUE(MatchesGolden(StrCat("gpu/", GetParam().name, ".cl"), *text));
  EXPECT_EQ(tests::CountOf(*text, "barrier("), GetParam().barriers) << *text;
  auto device = PlanDevice::Open(TILEWRIGHT_DEVICE_OPENCL);
  if (!device.ok()) GTEST_SKIP() << "[SKIP] no OpenCL device: " << StatusText(device.status());
  const std::string run = GetParam().sub_groups ? WithEmulatedSubGroups(*text) : *text;
  EquivalenceOptions options;
  options.run_other = [&](const ir::Function&, const std::vector<int64_t>& sizes,
                          std::vector<ir::TensorData*> args) {
    return (*device)->Run(*plan, run, sizes, args);
  };
  absl::Status same = SameResults(program_, scheduled_, options);
  EXPECT_TRUE(same.ok()) << StatusText(same) << "\n" << *text;
  std::cout << GetParam().name << ": ran on an OpenCL device\n";
}

TEST_P(GpuSchedules, CudaText) {
  auto plan = Lowered(scheduled_, program_, GetParam().only_cuda);
  ASSERT_TRUE(plan.ok()) << StatusText(plan.status());
  std::vector<ir::Function> kernels;
  for (const codegen::Launch& l : plan->launches) kernels.push_back(l.kernel);
  auto text = cuda::EmitCuda(kernels);
  ASSERT_TRUE(text.ok()) << StatusText(text.status());
  EXPECT_TRUE(MatchesGolden(StrCat("gpu/", GetParam().name, ".cu"), *text));
  EXPECT_EQ(tests::CountOf(*text, "__syncthreads();"), GetParam().barriers) << *text;
  auto compiled = simt::CompilePlans({{simt::Language::kCuda, *plan, *text}});
  ASSERT_TRUE(compiled.ok()) << StatusText(compiled.status());
  simt::Traffic traffic;
  EquivalenceOptions options;
  options.run_other = [&](const ir::Function&, const std::vector<int64_t>& sizes,
                          std::vector<ir::TensorData*> args) {
    return simt::RunPlan((*compiled)[0], sizes, args, &traffic);
  };
  const absl::Status same = SameResults(program_, scheduled_, options);
  EXPECT_TRUE(same.ok()) << StatusText(same) << "\n" << *text;
  EXPECT_EQ(traffic.shared_conflicts(), GetParam().conflicts);
  EXPECT_EQ(traffic.global_sectors, GetParam().sectors);
  std::cout << GetParam().name << ": " << traffic.global_sectors << " sectors of 32 bytes, "
            << traffic.global_ideal_sectors << " at best\n";
  if (cuda::NvrtcName() == "nvrtc-none") GTEST_SKIP() << "[SKIP] no NVRTC";
  for (const char* arch : {"sm_80", "sm_90a"}) {
    const auto cubin = cuda::CompileText(*text, arch);
    ASSERT_TRUE(cubin.ok()) << StatusText(cubin.status());
    for (const codegen::KernelResources& k : cubin->kernels) EXPECT_EQ(k.spill_bytes, 0) << k.name;
  }
}

// The languages that no device of a test runs: their texts on the emulator, for each size of warps.
struct Untested {
  const char *suffix, *barrier;
  simt::Language language;
  uint32_t warp;
  absl::StatusOr<std::string> (*emit)(const std::vector<ir::Function>&);
};
constexpr Untested kUntested[] = {
    {".hip", "__syncthreads();", simt::Language::kHip, 64,
     [](const std::vector<ir::Function>& kernels) { return hip::EmitHip(kernels, true, 64); }},
    {"", "__syncthreads();", simt::Language::kHip, 32,
     [](const std::vector<ir::Function>& kernels) { return hip::EmitHip(kernels, true, 32); }},
    {".metal", "threadgroup_barrier(", simt::Language::kMetal, 32,
     [](const std::vector<ir::Function>& kernels) { return metal::EmitMetal(kernels); }},
};

TEST_P(GpuSchedules, TextsOfLanguagesWithoutADevice) {
  if (GetParam().only_cuda) GTEST_SKIP() << "[SKIP] no fragments in these languages";
  auto plan = Lowered(scheduled_, program_);
  ASSERT_TRUE(plan.ok()) << StatusText(plan.status());
  std::vector<ir::Function> kernels;
  for (const codegen::Launch& l : plan->launches) kernels.push_back(l.kernel);
  for (const Untested& row : kUntested) {
    auto text = row.emit(kernels);
    ASSERT_TRUE(text.ok()) << StatusText(text.status());
    if (*row.suffix != '\0') {
      EXPECT_TRUE(MatchesGolden(StrCat("gpu/", GetParam().name, row.suffix), *text));
    }
    EXPECT_EQ(tests::CountOf(*text, row.barrier), GetParam().barriers) << *text;
    if (row.language == simt::Language::kMetal) {
      const absl::Status types = CheckMetalTypes(*text);
      EXPECT_TRUE(types.ok() || support::Slug(types) == "test.metal_types.no_clang") << types;
    }
    auto compiled = simt::CompilePlans({{row.language, *plan, *text, row.warp}});
    ASSERT_TRUE(compiled.ok()) << StatusText(compiled.status());
    EquivalenceOptions options;
    options.run_other = [&](const ir::Function&, const std::vector<int64_t>& sizes,
                            std::vector<ir::TensorData*> args) {
      return simt::RunPlan((*compiled)[0], sizes, args);
    };
    const absl::Status same = SameResults(program_, scheduled_, options);
    EXPECT_TRUE(same.ok()) << StatusText(same) << "\n" << *text;
  }
}

// Faults planted into the text of the product on tensor cores: each is found by what it is.
struct Planted {
  const char *name, *from, *to;
  const char* slug;  // of the emulator's fault, or of results that differ; empty: none
};
constexpr Planted kPlanted[] = {
    {"nothing", "", "", ""},
    {"rows_of_sums", "threadIdx.x % 32 / 4 + element", "threadIdx.x % 8 + element",
     "simt.race.global"},
    {"columns_of_sums", "(int)(threadIdx.x % 4 +", "(int)(3 - threadIdx.x % 4 +",
     "test.equivalence.differs"},
    {"rows_of_a", "lane % 16 * rows + lane / 16", "lane / 2 * rows + lane % 2",
     "test.equivalence.differs"},
    {"terms_of_b", "\".trans\", f, p + lane % 16 * rows", "\"\", f, p + lane % 16 * rows",
     "test.equivalence.differs"},
    {"another_fragment", "C_local[1], A_shared_local[0]", "C_local[1], A_shared_local[1]",
     "test.equivalence.differs"},
    {"no_barrier_before_loads", "  __syncthreads();\n      {\n        tw_u32",
     "  {\n        tw_u32", "simt."},
    {"no_barrier_before_copies", "++k_0) {\n      __syncthreads();", "++k_0) {",
     "simt.race.shared"},
    {"lanes_left_out", "        tw_cuda_mma_f16(C_local[3]",
     "        if (tx < 31) tw_cuda_mma_f16(C_local[3]", "simt.warp.divergent"},
    {"half_a_warp", "tw_cuda_load_b_f16<40, 1, 16, true>(B_shared_local[1]",
     "if (tx % 2 == 0) tw_cuda_load_b_f16<40, 1, 16, true>(B_shared_local[1]",
     "simt.warp.divergent"},
    {"misaligned", "A_shared_local[1], A_shared + 384", "A_shared_local[1], A_shared + 380",
     "simt.misaligned"},
};

TEST(TensorCores, PlantedFaultsAreFound) {
  const std::string text = *support::ReadFile(GoldenPath("programs/gpu_mma.tir"), 1 << 20);
  const std::string cuda = *support::ReadFile(GoldenPath("gpu/gpu_mma.cu"), 1 << 20);
  const ir::Function program = *ir::ParseFunction(text);
  transform::PassContext ctx;
  ctx.target = *target::ParseTarget("cuda");
  const auto plan = codegen::SplitHostDevice(
      *transform::RunPipeline(Scheduled(text, program), transform::GpuPipeline(), ctx));
  ASSERT_TRUE(plan.ok()) << StatusText(plan.status());
  std::vector<simt::PlanText> texts;
  for (const Planted& planted : kPlanted) {
    std::string faulty = cuda;
    const size_t at = faulty.find(planted.from);
    ASSERT_NE(at, std::string::npos) << planted.name;
    texts.push_back({simt::Language::kCuda, *plan,
                     faulty.replace(at, std::string(planted.from).size(), planted.to)});
  }
  const auto compiled = simt::CompilePlans(texts);
  ASSERT_TRUE(compiled.ok()) << StatusText(compiled.status());
  for (size_t i = 0; i < texts.size(); ++i) {
    EquivalenceOptions options;
    options.run_other = [&](const ir::Function&, const std::vector<int64_t>& sizes,
                            std::vector<ir::TensorData*> args) {
      return simt::RunPlan((*compiled)[i], sizes, args);
    };
    const absl::Status same = SameResults(program, program, options);
    const std::string_view found = kPlanted[i].slug;
    EXPECT_EQ(same.ok(), found.empty()) << kPlanted[i].name;
    EXPECT_NE(StatusText(same).find(found), std::string::npos) << kPlanted[i].name << ": " << same;
  }
}

struct Factors {
  const char *product, *a, *b, *sum, *zero;
  int terms;
};
constexpr Factors kFactors[] = {
    {"f16", "f16", "f16", "f32", "0.0f32", 16}, {"bf16", "bf16", "bf16", "f32", "0.0f32", 16},
    {"s8s8", "i8", "i8", "i32", "0i32", 32},    {"u8s8", "u8", "i8", "i32", "0i32", 32},
    {"tf32", "f32", "f32", "f32", "0.0f32", 8},
};

// A product of one fragment, twice as many terms, with either operand lying either way.
std::string ProductText(const Factors& f, bool a_turned, bool b_turned) {
  const int k = 2 * f.terms;
  const auto matrix = [](const char* type, int rows, int columns, bool turned) {
    return turned ? StrCat(type, "[", columns, ", ", rows, "]")
                  : StrCat(type, "[", rows, ", ", columns, "]");
  };
  const std::string a = a_turned ? "vk, vi" : "vi, vk", b = b_turned ? "vj, vk" : "vk, vj";
  const std::string a_box = a_turned ? "vk:1, vi:1" : "vi:1, vk:1";
  const std::string b_box = b_turned ? "vj:1, vk:1" : "vk:1, vj:1";
  return StrCat("fn product(A: ", matrix(f.a, 16, k, a_turned),
                " input, B: ", matrix(f.b, k, 8, b_turned), " input, C: ", f.sum,
                "[16, 8] output) stage=scheduled { for i in 0..16 { for j in 0..8 { for k in 0..",
                k, " { block C(vi: spatial 0..16 = i, vj: spatial 0..8 = j, vk: reduce 0..", k,
                " = k) { reads A[", a_box, "], B[", b_box, "]; writes C[vi:1, vj:1]; init { ",
                "C[vi, vj] = ", f.zero, "; } C[vi, vj] = C[vi, vj] + ", f.sum, "(A[", a, "]) * ",
                f.sum, "(B[", b, "]); } } } } }");
}

// `apart`: elements between the rows of what is shared: their addresses are multiples of more bytes
// or fewer, which is how fragments are loaded.
std::string ProductSteps(const Factors& f, int apart) {
  return StrCat(
      "cache_write %3; set_scope %3 wmma.acc; cache_read %3 scope=shared; cache_read %3 read=1 ",
      "scope=shared; cache_read %3; set_scope %13 wmma.a; cache_read %3 read=1; set_scope %16 ",
      "wmma.b; split %0 [1,16]; split %1 [1,8]; split %2 [?,", f.terms,
      "]; reorder %19 %21 %23 %20 %22 %24; bind %19 blockIdx.x; compute_at %13 %23; ",
      "compute_at %16 %23; compute_at %7 %23; compute_at %10 %23; reverse_compute_at %4 %21; ",
      "tensorize %27 intrin=cuda.load_b.", f.b, "; tensorize %25 intrin=cuda.load_a.", f.a,
      "; tensorize %20 intrin=cuda.mma.", f.product, "; fuse %29 %30; split %35 [?,32]; ",
      "bind %37 threadIdx.x; fuse %31 %32; split %38 [?,32]; bind %40 threadIdx.x; ",
      "annotate %33 fragment=1; storage_align %7 dim=0 factor=32 offset=", apart,
      "; storage_align %10 dim=0 factor=32 offset=", apart);
}

TEST(TensorCores, EveryTypeAndLayout) {
  transform::PassContext ctx;
  ctx.target = *target::ParseTarget("cuda,tf32=on");
  std::vector<ir::Function> programs;
  std::vector<simt::PlanText> texts;
  for (const Factors& f : kFactors) {
    for (const int way : {0, 1, 2, 3}) {
      for (const int apart : {1, 4, 16}) {
        const auto program = ir::ParseFunction(ProductText(f, (way & 1) != 0, (way & 2) != 0));
        ASSERT_TRUE(program.ok()) << StatusText(program.status());
        const ir::Function scheduled =
            Scheduled(StrCat("#: steps ", ProductSteps(f, apart)), *program);
        const auto lowered = transform::RunPipeline(scheduled, transform::GpuPipeline(), ctx);
        ASSERT_TRUE(lowered.ok()) << StatusText(lowered.status());
        const auto plan = codegen::SplitHostDevice(*lowered);
        ASSERT_TRUE(plan.ok()) << StatusText(plan.status());
        const auto text = cuda::EmitCuda({plan->launches[0].kernel});
        ASSERT_TRUE(text.ok()) << StatusText(text.status());
        programs.push_back(*program);
        texts.push_back({simt::Language::kCuda, *plan, *text});
      }
    }
  }
  const auto compiled = simt::CompilePlans(texts);
  ASSERT_TRUE(compiled.ok()) << StatusText(compiled.status());
  for (size_t i = 0; i < texts.size(); ++i) {
    EquivalenceOptions options;
    options.run_other = [&](const ir::Function&, const std::vector<int64_t>& sizes,
                            std::vector<ir::TensorData*> args) {
      return simt::RunPlan((*compiled)[i], sizes, args);
    };
    const absl::Status same = SameResults(programs[i], programs[i], options);
    EXPECT_TRUE(same.ok()) << StatusText(same) << "\n" << texts[i].text;
    if (cuda::NvrtcName() == "nvrtc-none") continue;
    const auto cubin = cuda::CompileText(texts[i].text, "sm_80");
    ASSERT_TRUE(cubin.ok()) << StatusText(cubin.status()) << "\n" << texts[i].text;
    EXPECT_EQ(cubin->kernels[0].spill_bytes + cubin->kernels[0].stack_bytes, 0);
  }
}

// A step's tiles are on their way while the one before is used: each wait and each barrier is
// needed.
TEST(TensorCores, EachWaitAndBarrierOfCopiesInFlightIsNeeded) {
  const Factors factors = {"f16", "f16", "f16", "f32", "0.0f32", 32};
  const ir::Function program = *ir::ParseFunction(ProductText(factors, false, false));
  const std::string steps =
      "cache_write %3; set_scope %3 wmma.acc; cache_read %3 scope=shared; cache_read %3 read=1 "
      "scope=shared; cache_read %3; set_scope %13 wmma.a; cache_read %3 read=1; set_scope %16 "
      "wmma.b; split %0 [1,16]; split %1 [1,8]; split %2 [?,2,16]; "
      "reorder %19 %21 %23 %24 %20 %22 %25; bind %19 blockIdx.x; compute_at %13 %24; "
      "compute_at %16 %24; compute_at %7 %23; compute_at %10 %23; reverse_compute_at %4 %21; "
      "tensorize %28 intrin=cuda.load_b.f16; tensorize %26 intrin=cuda.load_a.f16; "
      "tensorize %20 intrin=cuda.mma.f16; fuse %30 %31; split %36 [?,32,4]; bind %38 threadIdx.x; "
      "vectorize %39; fuse %32 %33; split %40 [?,32,4]; bind %42 threadIdx.x; vectorize %43; "
      "annotate %34 fragment=1; software_pipeline %23 [1,1,2] async=1";
  transform::PassContext ctx;
  ctx.target = *target::ParseTarget("cuda");
  const auto plan = codegen::SplitHostDevice(*transform::RunPipeline(
      Scheduled(StrCat("#: steps ", steps), program), transform::GpuPipeline(), ctx));
  ASSERT_TRUE(plan.ok()) << StatusText(plan.status());
  const std::string right = *cuda::EmitCuda({plan->launches[0].kernel});
  std::vector<simt::PlanText> texts = {{simt::Language::kCuda, *plan, right}};
  const size_t kernel = right.find("extern \"C\"");
  for (const std::string_view what : {"TW_WAIT_ASYNC(", "__syncthreads();"}) {
    for (size_t at = kernel; (at = right.find(what, at)) != std::string::npos; ++at) {
      std::string faulty = right;
      faulty.erase(at, right.find('\n', at) - at);
      texts.push_back({simt::Language::kCuda, *plan, faulty});
    }
  }
  EXPECT_GE(texts.size(), 5u) << right;
  const auto compiled = simt::CompilePlans(texts);
  ASSERT_TRUE(compiled.ok()) << StatusText(compiled.status());
  for (size_t i = 0; i < texts.size(); ++i) {
    EquivalenceOptions options;
    options.run_other = [&](const ir::Function&, const std::vector<int64_t>& sizes,
                            std::vector<ir::TensorData*> args) {
      return simt::RunPlan((*compiled)[i], sizes, args);
    };
    const absl::Status same = SameResults(program, program, options);
    EXPECT_EQ(same.ok(), i == 0) << StatusText(same) << "\n" << texts[i].text.substr(kernel);
  }
  if (cuda::NvrtcName() == "nvrtc-none") GTEST_SKIP() << "[SKIP] no NVRTC";
  const auto cubin = cuda::CompileText(right, "sm_80");
  EXPECT_TRUE(cubin.ok()) << StatusText(cubin.status());
}

// More than a text may say the size of: the launch gives it, and the code says how much.
TEST(CudaShared, BeyondWhatATextMayHaveTheLaunchGivesIt) {
  const ir::Function program = *ir::ParseFunction(
      "fn turn(X: f32[128, 128] input, Y: f32[128, 128] output) stage=scheduled { for i in 0..128 "
      "{ "
      "for j in 0..128 { block Y(vi: spatial 0..128 = i, vj: spatial 0..128 = j) { reads X[vj:1, "
      "vi:1]; writes Y[vi:1, vj:1]; Y[vi, vj] = X[vj, vi]; } } } }");
  transform::PassContext ctx;
  ctx.target = *target::ParseTarget("cuda");
  const ir::Function scheduled = Scheduled(
      "#: steps cache_read %2 scope=shared; fuse %4 %5; split %6 [?,256]; bind %8 threadIdx.x; "
      "fuse %0 %1; split %9 [?,256]; bind %11 threadIdx.x",
      program);
  const auto plan =
      codegen::SplitHostDevice(*transform::RunPipeline(scheduled, transform::GpuPipeline(), ctx));
  ASSERT_TRUE(plan.ok()) << StatusText(plan.status());
  EXPECT_EQ(plan->launches[0].shared_bytes, 64 << 10);
  EXPECT_EQ(codegen::CheckLaunchLimits(*plan, ctx.target.machine.launch), absl::OkStatus());
  EXPECT_FALSE(
      codegen::CheckLaunchLimits(*plan, target::ParseTarget("opencl")->machine.launch).ok());
  const std::string text = *cuda::EmitCuda({plan->launches[0].kernel});
  const std::string size = StrCat(plan->launches[0].kernel.name, "_dynamic_shared_kib");
  EXPECT_NE(text.find(StrCat("__device__ tw_u8 ", size, "[64];")), std::string::npos) << text;
  const auto compiled = simt::CompilePlans({{simt::Language::kCuda, *plan, text}});
  ASSERT_TRUE(compiled.ok()) << StatusText(compiled.status());
  EquivalenceOptions options;
  options.run_other = [&](const ir::Function&, const std::vector<int64_t>& sizes,
                          std::vector<ir::TensorData*> args) {
    return simt::RunPlan((*compiled)[0], sizes, args);
  };
  const absl::Status same = SameResults(program, program, options);
  EXPECT_TRUE(same.ok()) << StatusText(same) << "\n" << text;
  if (cuda::NvrtcName() == "nvrtc-none") GTEST_SKIP() << "[SKIP] no NVRTC";
  const auto cubin = cuda::CompileText(text, "sm_80");
  ASSERT_TRUE(cubin.ok()) << StatusText(cubin.status());
  EXPECT_NE(cubin->bytes.find(size), std::string::npos) << "the code does not say it";
}

// On a device without sub-groups the marked loop is one like others.
TEST(SubGroups, OnlyADeviceThatHasThemGetsThem) {
  const std::string text =
      *support::ReadFile(GoldenPath("programs/gpu_sub_group_sum.tir"), 1 << 20);
  const ir::Function program = *ir::ParseFunction(text);
  auto plan = Lowered(Scheduled(text, program), program);
  ASSERT_TRUE(plan.ok()) << StatusText(plan.status());
  auto plain = opencl::EmitOpenCl({plan->launches[0].kernel});
  ASSERT_TRUE(plain.ok()) << StatusText(plain.status());
  EXPECT_EQ(plain->find("sub_group"), std::string::npos) << *plain;
}

TEST(SubGroups, TheirTextCompiles) {
  if (!support::FileExists(TILEWRIGHT_CLANG)) GTEST_SKIP() << "[SKIP] no " << TILEWRIGHT_CLANG;
  const std::string errors = testing::TempDir() + "/sub_group_errors.txt";
  const std::string command =
      StrCat(TILEWRIGHT_CLANG,
             " -x cl -cl-std=CL3.0 -Xclang -cl-ext=+cl_khr_subgroups,+__opencl_c_subgroups ",
             "-Xclang -finclude-default-header -fsyntax-only -Werror ",
             GoldenPath("gpu/gpu_sub_group_sum.cl"), " 2> ", errors);
  EXPECT_EQ(std::system(command.c_str()), 0) << *support::ReadFile(errors, 1 << 20);
}

INSTANTIATE_TEST_SUITE_P(Goldens, GpuSchedules, testing::ValuesIn(kCases),
                         [](const auto& row) { return std::string(row.param.name); });

}  // namespace
}  // namespace tilewright::tests
