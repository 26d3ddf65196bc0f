// Random programs as SPIR-V on a Vulkan device against the interpreter (random_device.h). Every
// module is validated by the tools of its makers first. Skips without a device; TILEWRIGHT_ROUNDS
// makes the rounds more (tests/long/vulkan.py).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "compiler/codegen/host_device.h"
#include "compiler/ir/ir_text.h"
#include "compiler/targets/vulkan/vulkan_codegen.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"
#include "tests/differential/random_device.h"
#include "tests/support/run_plan.h"
#include "tests/support/spirv_check.h"
#include "tests/support/test_seed.h"

namespace tilewright::tests {
namespace {

absl::StatusOr<std::string> Validated(const std::vector<ir::Function>& kernels) {
  TW_ASSIGN(codegen::KernelCode code, vulkan::EmitSpirv(kernels));
  TW_TRY(ValidateSpirv(code.bytes));
  return std::move(code.bytes);
}

constexpr DeviceLanguage kSpirv = {"vulkan", "codegen.vulkan.unsupported", Validated,
                                   DisassembledSpirv};

// With all that the profile has.
absl::StatusOr<std::string> ValidatedOf2022(const std::vector<ir::Function>& kernels) {
  const target::Target target = *target::ParseTarget("vulkan,config=roadmap2022");
  TW_ASSIGN(codegen::KernelCode code,
            vulkan::EmitSpirv(kernels, vulkan::SpirvOptions::Of(target.machine)));
  TW_TRY(ValidateSpirv(code.bytes));
  return std::move(code.bytes);
}

constexpr DeviceLanguage kSpirvOf2022 = {"vulkan,config=roadmap2022", "codegen.vulkan.unsupported",
                                         ValidatedOf2022, DisassembledSpirv};

class RandomVulkanTest : public testing::Test {
 protected:
  void SetUp() override {
    auto device = PlanDevice::Open(TILEWRIGHT_DEVICE_VULKAN);
    if (!device.ok())
      GTEST_SKIP() << "[SKIP] no Vulkan device: " << support::StatusText(device.status());
    device_ = *std::move(device);
  }
  std::unique_ptr<PlanDevice> device_;
};

TEST_F(RandomVulkanTest, DeviceComputesWhatTheInterpreterDoes) {
  FlatProgramsComputeTheSame(kSpirv, device_.get(), TestRounds(30));
}

TEST_F(RandomVulkanTest, ScheduledProgramsComputeTheSameOnTheDevice) {
  SchedulesComputeTheSame(kSpirv, device_.get(), TestRounds(30));
}

TEST_F(RandomVulkanTest, PointsOfTheSearchComputeTheSameOnTheDevice) {
  PointsOfTheSearchComputeTheSame(kSpirv, device_.get(), TestRounds(30));
}

TEST_F(RandomVulkanTest, PointsOfTheProfileComputeTheSameOnTheDevice) {
  FlatProgramsComputeTheSame(kSpirvOf2022, device_.get(), TestRounds(15));
  PointsOfTheSearchComputeTheSame(kSpirvOf2022, device_.get(), TestRounds(15));
}

TEST_F(RandomVulkanTest, ProgramsForPhonesComputeTheSameOnTheDevice) {
  ProgramsForPhonesComputeTheSame(kSpirv, device_.get(), TestRounds(8));
}

TEST_F(RandomVulkanTest, SumsOfSubGroupsAreTheSame) {
  DeviceLanguage language = kSpirvOf2022;
  language.emit = [](const std::vector<ir::Function>& kernels) {
    auto code = ValidatedOf2022(kernels);
    EXPECT_THAT(DisassembledSpirv(code.value_or("")), testing::HasSubstr("OpGroupNonUniform"));
    return code;
  };
  SubGroupTreesComputeTheSame(language, device_.get(), TestRounds(16));
}

// One operation for each pair of signs, of all bytes, shared or of each lane. A word is four
// unsigned bytes.
TEST_F(RandomVulkanTest, DotProductsOfAllBytesAreTheSame) {
  std::vector<std::string> factors;
  for (const std::string a : {"i8", "u8"}) {
    for (const std::string b : {"i8", "u8"}) {
      factors.push_back(support::StrCat("A: ", a, "[512] input, B: ", b, "[512]"));
    }
    factors.push_back(support::StrCat("A: ", a, "[512] input, B: i32[128]"));
  }
  for (const std::string& types : factors) {
    const bool words = types.find("i32") != std::string::npos;
    for (const std::string a : {"A[ramp(t * 4, 1, 4)]", "A[ramp(t * 8, 1, 8)]"}) {
      const auto f = ir::ParseFunction(support::StrCat(
          "fn f(", types,
          " input, Y: i32[128] output) stage=flat {\n  for t in 0..64 threadIdx.x {",
          "\n    Y[ramp(t * 2, 1, 2)] = dot4(broadcast(2147483640i32, 2), ", a, ", ",
          words ? "B[ramp(t * 2, 1, 2)]" : "B[ramp(t * 8, 1, 8)]", ");\n  }\n}\n"));
      ASSERT_TRUE(f.ok()) << f.status();
      const auto plan = codegen::SplitHostDevice(*f);
      const auto code = ValidatedOf2022({plan->launches[0].kernel});
      ASSERT_TRUE(code.ok()) << code.status();
      EXPECT_THAT(DisassembledSpirv(*code), testing::ContainsRegex("Op[SU]+Dot"));
      ir::TensorData in[2], out, expected;
      for (size_t i = 0; i < 512; ++i) {
        in[0].bytes.push_back(static_cast<uint8_t>(i * 37));
        in[1].bytes.push_back(static_cast<uint8_t>(i / 2 * 91 + 128));
      }
      ASSERT_TRUE(device_->Run(*plan, *code, {}, {&in[0], &in[1], &out}).ok());
      const absl::Status ran = InterpretPlan(*plan, {}, {&in[0], &in[1], &expected});
      ASSERT_TRUE(ran.ok()) << support::StatusText(ran);
      EXPECT_EQ(out.bytes, expected.bytes) << types << " " << a << DisassembledSpirv(*code);
    }
  }
}

// Each of 2 * `threads` threads adds up all of the first terms of X.
std::string SumOf(const std::string& type, const std::string& sum, int threads, int terms) {
  return support::StrCat(
      "fn f(X: ", type, "[100] input, Y: ", type, "[", 2 * threads,
      "] output) stage=flat {\n  for y in 0..2 threadIdx.y {\n    for t in 0..", threads,
      " threadIdx.x {\n      alloc L: ", type, "[1] scope=local {\n        L[0] = X[7];\n",
      "        for k in 0..", terms, " @{sub_group=1} {\n          L[0] = ", sum,
      ";\n        }\n        Y[y * ", threads, " + t] = L[0];\n      }\n    }\n  }\n}\n");
}

// Groups that are no whole number of sub-groups, and loops shorter than one.
TEST_F(RandomVulkanTest, SubGroupsOfAnySizeTakeEveryTermOnce) {
  for (const std::string type : {"i32", "u32", "f32", "f64", "i64"}) {
    for (const std::string op : {"+", "min", "max"}) {
      for (const int threads : {1, 3, 8, 20, 64}) {
        for (const int terms : {1, 5, 100}) {
          const std::string sum = op == "+" ? "L[0] + X[k]" : op + "(L[0], X[k])";
          const auto f = ir::ParseFunction(SumOf(type, sum, threads, terms));
          ASSERT_TRUE(f.ok()) << f.status();
          FlatComputesTheSame(kSpirvOf2022, device_.get(), *f);
        }
      }
    }
  }
}

TEST(VulkanWithoutSubGroups, RefusesKernelsThatNeedThem) {
  auto device = PlanDevice::Open(TILEWRIGHT_DEVICE_VULKAN_POOR);
  if (!device.ok()) GTEST_SKIP() << "[SKIP] no Vulkan device";
  const auto f = ir::ParseFunction(SumOf("f32", "L[0] + X[k]", 8, 100));
  ASSERT_TRUE(f.ok()) << f.status();
  const auto plan = codegen::SplitHostDevice(*f);
  const auto code = ValidatedOf2022({plan->launches[0].kernel});
  ASSERT_TRUE(code.ok()) << code.status();
  ir::TensorData in, out;
  in.bytes.resize(400);
  EXPECT_THAT(support::StatusText((*device)->Run(*plan, *code, {}, {&in, &out})),
              testing::AllOf(testing::HasSubstr("device.vulkan.kernel"),
                             testing::HasSubstr("feature subgroupArithmetic")));
}

// lavapipe leaves all loops of a thread after 65,535 iterations: such kernels are unrolled, or
// refused.
TEST_F(RandomVulkanTest, LoopsEndWhereTheyShould) {
  struct Row {
    int64_t outer, inner;
  };
  for (const auto& [outer, inner] : {Row{1, 65'000}, Row{1, 70'001}, Row{300, 301}, Row{7, 100'003},
                                     Row{40'000, 1}, Row{40'000, 50}}) {
    const auto f = ir::ParseFunction(support::StrCat(
        "fn f(X: i32[64] input, Y: i32[64] output) stage=flat {\n  for t in 0..64 threadIdx.x {\n",
        "    Y[t] = 0i32;\n    for a in 0..", outer, " {\n      for b in 0..", inner,
        " {\n        Y[t] = Y[t] + X[t];\n      }\n    }\n  }\n}\n"));
    ASSERT_TRUE(f.ok()) << f.status();
    const auto plan = codegen::SplitHostDevice(*f);
    ASSERT_TRUE(plan.ok()) << plan.status();
    const auto code = Validated({plan->launches[0].kernel});
    ASSERT_TRUE(code.ok()) << code.status();
    std::vector<int32_t> x(64), y(64);
    for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<int32_t>(i) - 7;
    ir::TensorData in, out;
    in.bytes.resize(x.size() * sizeof(int32_t));
    std::memcpy(in.bytes.data(), x.data(), in.bytes.size());
    const absl::Status ran = device_->Run(*plan, *code, {}, {&in, &out});
    if (outer == 40'000 && !ran.ok()) {  // no innermost loop that would help, or not enough
      EXPECT_THAT(support::StatusText(ran), testing::HasSubstr("where this driver leaves them"));
      continue;
    }
    ASSERT_TRUE(ran.ok()) << support::StatusText(ran);
    std::memcpy(y.data(), out.bytes.data(), out.bytes.size());
    for (size_t i = 0; i < x.size(); ++i)
      ASSERT_EQ(y[i], static_cast<int32_t>(outer * inner) * x[i]) << outer << " x " << inner;
  }
}

}  // namespace
}  // namespace tilewright::tests
