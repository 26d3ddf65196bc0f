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
#include "compiler/targets/opencl/opencl_codegen.h"
#include "compiler/transform/passes.h"
#include "deploy/support/env.h"
#include "deploy/support/file.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"
#include "tests/support/equivalence.h"
#include "tests/support/golden.h"
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
};
constexpr Case kCases[] = {
    {"gpu_byte_dots", 1, 0, 0, 78},
    {"gpu_gemm_pipeline", 1, 3, 1536, 768},
    {"gpu_row_sum", 1, 1, 0, 582},
    {"gpu_split_k", 2, 0, 0, 3104},
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
                                          const ir::Function& program) {
  transform::PassContext ctx;
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

int Occurrences(const std::string& text, std::string_view what) {
  int count = 0;
  for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; ++at) ++count;
  return count;
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
  auto plan = Lowered(scheduled_, program_);
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
  auto plan = Lowered(scheduled_, program_);
  ASSERT_TRUE(plan.ok()) << StatusText(plan.status());
  std::vector<ir::Function> kernels;
  for (const codegen::Launch& l : plan->launches) kernels.push_back(l.kernel);
  auto text = opencl::EmitOpenCl(kernels, GetParam().sub_groups);
  ASSERT_TRUE(text.ok()) << StatusText(text.status());
  EXPECT_EQ(*opencl::EmitOpenCl(kernels, GetParam().sub_groups), *text);
  EXPECT_TRUE(MatchesGolden(StrCat("gpu/", GetParam().name, ".cl"), *text));
  EXPECT_EQ(Occurrences(*text, "barrier("), GetParam().barriers) << *text;
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
  auto plan = Lowered(scheduled_, program_);
  ASSERT_TRUE(plan.ok()) << StatusText(plan.status());
  std::vector<ir::Function> kernels;
  for (const codegen::Launch& l : plan->launches) kernels.push_back(l.kernel);
  auto text = cuda::EmitCuda(kernels);
  ASSERT_TRUE(text.ok()) << StatusText(text.status());
  EXPECT_TRUE(MatchesGolden(StrCat("gpu/", GetParam().name, ".cu"), *text));
  EXPECT_EQ(Occurrences(*text, "__syncthreads();"), GetParam().barriers) << *text;
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
