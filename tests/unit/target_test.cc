// Target strings.
#include "compiler/target/target.h"

#include <gtest/gtest.h>

#include "deploy/support/cpu_table.h"
#include "deploy/support/device_kinds.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::target {
namespace {

TEST(Target, EveryCpuParsesPrintsAndHasLimits) {
  for (const support::CpuRow& row : support::Cpus()) {
    std::string text =
        "cpu,arch=" + std::string(row.arch) + ",cpu=" + std::string(row.name) + ",threads=3";
    absl::StatusOr<Target> t = ParseTarget(text);
    ASSERT_TRUE(t.ok()) << t.status();
    EXPECT_EQ(t->ToString(), text);
    EXPECT_EQ(t->threads, 3);
    EXPECT_GE(t->vector_bytes, 16);
    EXPECT_GE(t->vector_registers, 16);
    EXPECT_LT(t->l1_bytes, t->l2_bytes);
    EXPECT_FALSE(t->required_features.empty());
  }
}

TEST(Target, KeysComeInAnyOrderAndPrintSorted) {
  absl::StatusOr<Target> t = ParseTarget("cpu,threads=2,cpu=znver4,arch=x86_64");
  ASSERT_TRUE(t.ok()) << t.status();
  EXPECT_EQ(t->ToString(), "cpu,arch=x86_64,cpu=znver4,threads=2");
  EXPECT_EQ(t->WithoutThreads(), "cpu,arch=x86_64,cpu=znver4");
  EXPECT_EQ(t->vector_bytes, 64);
  EXPECT_EQ(ParseTarget("cpu")->ToString(), "cpu,arch=x86_64,cpu=x86-64,threads=1");
  EXPECT_EQ(ParseTarget("cpu,arch=aarch64")->ToString(), "cpu,arch=aarch64,cpu=generic,threads=1");
  EXPECT_EQ(ParseTarget("opencl")->ToString(), "opencl");
  EXPECT_EQ(ParseTarget("opencl")->WithoutThreads(), "opencl");
}

TEST(Target, KindsAreThoseOfTheTable) {
  for (const support::DeviceKind& kind : support::DeviceKinds()) {
    const absl::Status status = ParseTarget(kind.name).status();
    EXPECT_EQ(status.ok(), kind.compiled) << status;
    if (status.ok()) continue;
    EXPECT_EQ(support::Detail(status), "expected cpu, opencl or native, found " +
                                           support::Quote(std::string(kind.name)) +
                                           ", for which this version has no code generator");
  }
}

TEST(Target, RefusalsNameTheProblem) {
  const std::pair<const char*, const char*> rows[] = {
      {"", "ir.target.unknown_kind"},
      {"abacus", "ir.target.unknown_kind"},
      {"cuda,arch=sm_90", "ir.target.unknown_kind"},
      {"native", "ir.target.native"},
      {"native,threads=2", "ir.target.native"},
      {"cpu,cpu=znver99", "ir.target.unknown_cpu"},
      {"cpu,arch=aarch64,cpu=znver4", "ir.target.unknown_cpu"},
      {"cpu,arch=vax", "ir.target.bad_value"},
      {"opencl,threads=2", "ir.target.bad_value"},
      {"cpu,threads=0", "ir.target.bad_value"},
      {"cpu,threads=two", "ir.target.bad_value"},
      {"cpu,threads=", "ir.target.bad_value"},
      {"cpu,threads=1,threads=2", "ir.target.bad_value"},
      {"cpu,color=red", "ir.target.bad_value"},
      {"cpu,", "ir.target.bad_value"},
  };
  for (const auto& [text, slug] : rows)
    EXPECT_EQ(support::Slug(ParseTarget(text).status()), slug) << text;
}

TEST(CpuTable, BoardsAreKnownByTheNumberOfTheirPart) {
  const auto best = [](int part, const char* features_of) {
    return support::BestCpuName("aarch64", "0x41", 8, part,
                                support::FeaturesOf(*support::FindCpu("aarch64", features_of)));
  };
  EXPECT_EQ(best(0xD03, "cortex-a53"), "cortex-a53");
  EXPECT_EQ(best(0xD0B, "cortex-a76"), "cortex-a76");
  EXPECT_EQ(best(0xD40, "neoverse-v1"), "neoverse-v1");
  // A kernel may hide features; parts that are not in the table run portable code.
  EXPECT_EQ(best(0xD0B, "cortex-a72"), "generic");
  EXPECT_EQ(best(0xFFF, "neoverse-v1"), "generic");
  EXPECT_EQ(support::BestCpuName("aarch64", "", 0, 0, {"fma", "neon"}), "generic");
}

TEST(Target, NativeIsExpandedFromFacts) {
  EXPECT_EQ(*ExpandNative("native", "x86_64", "znver4", 8), "cpu,arch=x86_64,cpu=znver4,threads=8");
  EXPECT_EQ(*ExpandNative("native,threads=2", "x86_64", "znver4", 8),
            "cpu,arch=x86_64,cpu=znver4,threads=2");
  EXPECT_EQ(*ExpandNative("cpu,cpu=haswell", "x86_64", "znver4", 8),
            "cpu,arch=x86_64,cpu=haswell,threads=1");
  EXPECT_EQ(support::Slug(ExpandNative("native,cpu=haswell", "x86_64", "znver4", 8).status()),
            "ir.target.bad_value");
  EXPECT_EQ(support::Slug(ExpandNative("native", "x86_64", "unheard-of", 8).status()),
            "ir.target.unknown_cpu");
}

}  // namespace
}  // namespace tilewright::target
