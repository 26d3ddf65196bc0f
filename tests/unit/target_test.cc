// Target strings.
#include "compiler/target/target.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "compiler/target/on_chip.h"
#include "deploy/runtime/phone_gpu.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::target {
namespace {

TEST(Target, EveryMachineParsesPrintsAndHasLimits) {
  int machines = 0;
  for (const Kind& kind : Kinds()) {
    for (const Family& family : kind.families) {
      EXPECT_FALSE(family.code_format.empty()) << kind.name << " " << family.arch;
      for (const Machine& row : family.machines) {
        std::string text(kind.name);
        if (!family.arch.empty()) {
          text += support::StrCat(",arch=", family.arch, ",cpu=", row.name, ",threads=3");
        } else if (!row.name.empty()) {
          text += support::StrCat(",", family.machine_key, "=", row.name);
        }
        absl::StatusOr<Target> t = ParseTarget(text);
        ASSERT_TRUE(t.ok()) << t.status();
        EXPECT_EQ(t->ToString(), text);
        EXPECT_EQ(t->threads, family.arch.empty() ? 1 : 3);
        EXPECT_EQ(&t->family(), &family) << text;
        const Machine& m = t->machine;
        EXPECT_EQ(m.name, row.name);
        EXPECT_GE(m.vector_bytes, 16) << text;
        EXPECT_GE(m.vector_registers, 16) << text;
        EXPECT_LT(m.l1.bytes, m.l2.all_bytes()) << text;
        EXPECT_LE(m.l2.all_bytes(), m.l3.all_bytes()) << text;
        // Farther is slower, and sums enough to hide the latency are asked for.
        EXPECT_GE(m.l2.bytes_per_cycle, m.l3.bytes_per_cycle) << text;
        EXPECT_GT(m.l3.bytes_per_cycle, m.memory_bytes_per_cycle) << text;
        EXPECT_GE(m.sums_in_flight, m.fma_latency * m.fma_per_cycle) << text;
        // An instruction for dot products is as fast as its neighbours, else several make one.
        EXPECT_LE(m.dots_per_cycle, m.fma_per_cycle) << text;
        EXPECT_GE(m.dot_latency, 1) << text;
        EXPECT_FALSE(m.FeatureList().empty()) << text;
        EXPECT_LE(m.launch.group_threads, kMostGroupThreads) << text;
        // What serves the groups serves no loops.
        EXPECT_EQ(m.rule_set == RuleSet::kGroups, m.has_groups()) << text;
        EXPECT_EQ(m.rule_set == RuleSet::kMatrix, m.has_matrix()) << text;
        EXPECT_EQ(m.feature_set == FeatureSet::kGroups, m.has_groups()) << text;
        if (m.has_groups()) {
          EXPECT_LE(m.launch.usual_threads, m.launch.group_threads) << text;
          EXPECT_LE(m.launch.thread_bytes, 4 * m.launch.registers) << text;
          EXPECT_GE(m.launch.unit_threads, m.launch.warp) << text;
        }
        ++machines;
      }
    }
  }
  EXPECT_GT(machines, 20);
}

TEST(Target, KeysComeInAnyOrderAndPrintSorted) {
  absl::StatusOr<Target> t = ParseTarget("cpu,threads=2,cpu=znver4,arch=x86_64");
  ASSERT_TRUE(t.ok()) << t.status();
  EXPECT_EQ(t->ToString(), "cpu,arch=x86_64,cpu=znver4,threads=2");
  EXPECT_EQ(t->WithoutThreads(), "cpu,arch=x86_64,cpu=znver4");
  EXPECT_EQ(t->machine.vector_bytes, 64);
  EXPECT_EQ(ParseTarget("cpu")->ToString(), "cpu,arch=x86_64,cpu=x86-64,threads=1");
  EXPECT_EQ(ParseTarget("cpu,arch=aarch64")->ToString(), "cpu,arch=aarch64,cpu=generic,threads=1");
  EXPECT_EQ(ParseTarget("wasm")->ToString(), "cpu,arch=wasm,cpu=simd128,threads=1");
  EXPECT_EQ(ParseTarget("wasm,cpu=relaxed_simd")->WithoutThreads(),
            "cpu,arch=wasm,cpu=relaxed_simd");
  EXPECT_EQ(ParseTarget("aarch64,cpu=cortex-a76")->WithoutThreads(),
            "cpu,arch=aarch64,cpu=cortex-a76");
  EXPECT_EQ(ParseTarget("vta")->ToString(), "vta,config=block16");
  EXPECT_EQ(ParseTarget("vta,config=block8")->WithoutThreads(), "vta,config=block8");
  EXPECT_EQ(ParseTarget("vta,config=block8")->machine.matrix.block, 8);
  EXPECT_EQ(ParseTarget("cuda")->ToString(), "cuda,arch=sm_80");
  EXPECT_EQ(ParseTarget("cuda,arch=sm_90a")->WithoutThreads(), "cuda,arch=sm_90a");
  EXPECT_EQ(ParseTarget("cuda,arch=sm_90")->machine.launch.units, 132);
  EXPECT_EQ(ParseTarget("hip")->ToString(), "hip,arch=gfx90a");
  EXPECT_EQ(ParseTarget("hip,arch=gfx1100")->machine.launch.warp, 32);
  EXPECT_EQ(ParseTarget("metal")->ToString(), "metal,arch=apple7");
  EXPECT_EQ(ParseTarget("opencl")->ToString(), "opencl");
  EXPECT_EQ(ParseTarget("opencl")->WithoutThreads(), "opencl");
}

TEST(Kinds, EachIsThereOnceAndFoundByItsName) {
  EXPECT_EQ(KindNames(", "), "cpu, cuda, hip, metal, opencl, vta, vulkan");
  EXPECT_EQ(DeviceKindNames(" or "), "cpu or cuda or opencl or vta or vulkan");
  for (const Kind& kind : Kinds()) {
    EXPECT_EQ(FindKind(kind.name), &kind) << kind.name;
    EXPECT_TRUE(ParseTarget(kind.name).ok()) << ParseTarget(kind.name).status();
  }
  EXPECT_EQ(FindKind("toaster"), nullptr);
  EXPECT_EQ(support::Detail(ParseTarget("toaster").status()),
            "expected cpu, cuda, hip, metal, opencl, vta, vulkan or native, found \"toaster\"");
}

TEST(Machine, FeaturesAreWholeWords) {
  const Machine machine{.features = "avx2,avx512f,fma"};
  for (const char* has : {"avx2", "avx512f", "fma"}) EXPECT_TRUE(machine.Has(has)) << has;
  for (const char* lacks : {"", "avx", "avx512", "fma4", "2"}) {
    EXPECT_FALSE(machine.Has(lacks)) << lacks;
  }
  EXPECT_FALSE(Machine().Has(""));
  EXPECT_EQ(machine.FeatureList(), (std::vector<std::string>{"avx2", "avx512f", "fma"}));
}

TEST(CacheLevel, ACoreFillsThePartsOfIdleOnes) {
  const CacheLevel level{.bytes = 1000, .sharers = 8};
  EXPECT_EQ(level.all_bytes(), 8000);
  EXPECT_EQ(level.ReachableBytes(1), 8000);
  EXPECT_EQ(level.ReachableBytes(4), 2000);
  EXPECT_EQ(level.ReachableBytes(16), 1000);
  EXPECT_EQ(CacheLevel{.bytes = 1000}.ReachableBytes(1), 1000);
}

// Over the configuration that the text names, in its canonical form.
TEST(Target, MemoriesOfAMatrixUnitMayHaveOtherSizes) {
  const auto small = ParseTarget("vta,weights=64KiB,inputs=16384,config=block16,sums=131072");
  ASSERT_TRUE(small.ok()) << small.status();
  // sums: what block16 has anyway.
  EXPECT_EQ(small->ToString(), "vta,config=block16,inputs=16KiB,weights=64KiB");
  EXPECT_EQ(ParseTarget(small->ToString())->ToString(), small->ToString());
  EXPECT_EQ(ParseTarget("vta,weights=64KiB,inputs=16KiB")->ToString(), small->ToString());
  const MatrixUnit &unit = small->machine.matrix, row = ParseTarget("vta")->machine.matrix;
  EXPECT_EQ(unit.inputs, 1024);
  EXPECT_EQ(unit.weights, 256);
  EXPECT_EQ(unit.sums, row.sums);
  EXPECT_EQ(unit.micro_ops, row.micro_ops);
  EXPECT_EQ(OnChipBytes(ParseTarget("vta")->machine), (32 + 256 + 128 + 32 + 32) << 10);
  EXPECT_EQ(OnChipBytes(small->machine), (16 + 64 + 128 + 32 + 32) << 10);
  // Of another configuration the same bytes are other elements.
  EXPECT_EQ(ParseTarget("vta,config=block32,inputs=32KiB")->machine.matrix.inputs, 1024);
  EXPECT_EQ(ParseTarget("vta,config=block8,micro_ops=64,inputs=16KiB")->ToString(),
            "vta,config=block8,inputs=16KiB,micro_ops=64");
  const std::string why = std::string(ParseTarget("vta,inputs=33KiB").status().message());
  EXPECT_NE(why.find("inputs: expected 16 bytes times a power of two, such as 32KiB"),
            std::string::npos)
      << why;
}

// Products that round more than models say are there where a target asks for them.
TEST(Target, InexactFeaturesAreAskedFor) {
  const Target plain = *ParseTarget("cuda,arch=sm_90a"),
               off = *ParseTarget("cuda,arch=sm_90a,tf32=off");
  const Target asked = *ParseTarget("cuda,tf32=on,arch=sm_90a");
  EXPECT_FALSE(plain.machine.Has("tf32"));
  EXPECT_FALSE(off.machine.Has("tf32"));
  EXPECT_TRUE(asked.machine.Has("tf32"));
  EXPECT_EQ(off.ToString(), plain.ToString());
  EXPECT_EQ(asked.ToString(), "cuda,arch=sm_90a,tf32=on");
  EXPECT_EQ(asked.WithoutThreads(), asked.ToString()) << "records of other numbers";
  EXPECT_TRUE(ParseTarget(asked.ToString())->machine.Has("tf32"));
}

TEST(Target, RefusalsNameTheProblem) {
  const std::pair<const char*, const char*> rows[] = {
      {"", "ir.target.unknown_kind"},
      {"abacus", "ir.target.unknown_kind"},
      {"toaster,arch=sm_90", "ir.target.unknown_kind"},
      {"metal,arch=sm_90", "ir.target.bad_value"},
      {"hip,arch=sm_90", "ir.target.bad_value"},
      {"cuda,arch=sm_20", "ir.target.bad_value"},
      {"cuda,config=sm_90", "ir.target.bad_value"},
      {"cuda,arch=sm_90,threads=2", "ir.target.bad_value"},
      {"native", "ir.target.native"},
      {"native,threads=2", "ir.target.native"},
      {"cpu,cpu=znver99", "ir.target.unknown_cpu"},
      {"cpu,arch=aarch64,cpu=znver4", "ir.target.unknown_cpu"},
      {"cpu,arch=vax", "ir.target.bad_value"},
      {"wasm,arch=wasm", "ir.target.bad_value"},
      {"wasm,cpu=znver4", "ir.target.unknown_cpu"},
      {"opencl,threads=2", "ir.target.bad_value"},
      {"opencl,config=a", "ir.target.bad_value"},
      {"cuda,tf32=yes", "ir.target.bad_value"},
      {"hip,tf32=on", "ir.target.bad_value"},
      {"cpu,tf32=on", "ir.target.bad_value"},
      {"vulkan,config=roadmap1999", "ir.target.bad_value"},
      {"vulkan,arch=sm_90", "ir.target.bad_value"},
      {"cpu,config=block16", "ir.target.bad_value"},
      {"vta,config=block7", "ir.target.bad_value"},
      {"vta,inputs=33KiB", "ir.target.bad_value"},
      {"vta,inputs=0", "ir.target.bad_value"},
      {"vta,inputs=24", "ir.target.bad_value"},  // an element and a half
      {"vta,weights=128", "ir.target.bad_value"},
      {"vta,sums=99999999999MiB", "ir.target.bad_value"},
      {"vta,micro_ops=4KB", "ir.target.bad_value"},
      {"vta,outputs=4KiB", "ir.target.bad_value"},
      {"vta,weights=512KiB", "vta.config.memories"},
      {"vta,config=block8,sums=1MiB", "vta.config.memories"},
      {"cpu,inputs=32KiB", "ir.target.bad_value"},
      {"cuda,inputs=32KiB", "ir.target.bad_value"},
      {"vta,cpu=block8", "ir.target.bad_value"},
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

TEST(Machine, ProcessorsAreKnownByTheirNumbers) {
  const auto best = [](const char* arch, const char* vendor, int family, int model,
                       const char* features_of) {
    return BestMachineName(arch, vendor, family, model,
                           FindMachine(*FindFamily(arch), features_of)->FeatureList());
  };
  const auto arm = [&](int part, const char* features_of) {
    return best("aarch64", "0x41", 8, part, features_of);
  };
  EXPECT_EQ(arm(0xD03, "cortex-a53"), "cortex-a53");
  EXPECT_EQ(arm(0xD0B, "cortex-a76"), "cortex-a76");
  EXPECT_EQ(arm(0xD40, "neoverse-v1"), "neoverse-v1");
  // A kernel may hide features; parts that are not in the table run portable code.
  EXPECT_EQ(arm(0xD0B, "cortex-a72"), "generic");
  EXPECT_EQ(arm(0xFFF, "neoverse-v1"), "generic");
  EXPECT_EQ(BestMachineName("aarch64", "", 0, 0, {"fma", "neon"}), "generic");
  // Code for vectors of one length does not run where the kernel set another.
  EXPECT_EQ(best("aarch64", "0x46", 8, 0x001, "a64fx"), "a64fx");
  std::vector<std::string> shorter = FindMachine(*FindFamily("aarch64"), "a64fx")->FeatureList();
  std::replace(shorter.begin(), shorter.end(), std::string("sve512"), std::string("sve256"));
  EXPECT_EQ(BestMachineName("aarch64", "0x46", 8, 0x001, shorter), "generic");
  const auto intel = [&](int model, const char* features_of) {
    return best("x86_64", "GenuineIntel", 6, model, features_of);
  };
  EXPECT_EQ(intel(0x55, "cascadelake"), "cascadelake");  // one model number, two machines
  EXPECT_EQ(intel(0x55, "skylake-avx512"), "skylake-avx512");
  EXPECT_EQ(intel(0x55, "cooperlake"), "cooperlake");
  EXPECT_EQ(intel(0x55, "haswell"), "x86-64-v3");
  EXPECT_EQ(intel(0x8F, "sapphirerapids"), "sapphirerapids");
  EXPECT_EQ(intel(0x8F, "znver4"), "cooperlake");  // a hypervisor may hide arithmetic of f16
  EXPECT_EQ(intel(0xFF, "znver4"), "x86-64-v4");
  EXPECT_EQ(BestMachineName("x86_64", "", 0, 0, {}), "x86-64");
  EXPECT_EQ(BestMachineName("vax", "", 0, 0, {}), "");
  EXPECT_TRUE(RunnableMachines("vax", {}).empty());
}

// What Vulkan drivers and OpenCL drivers (name and version) of these devices say.
TEST(Machine, PhonesAreKnownByWhatTheirDriversSay) {
  struct Row {
    const char *device, *machine;
  };
  for (const auto& [device, machine] : {Row{"Mali-G78", "valhall"},
                                        {"Mali-G57 MC2", "valhall"},
                                        {"Mali-G715-Immortalis MC10", "valhall"},
                                        {"Immortalis-G925 OpenCL 3.0 v1.r49p0", "valhall"},
                                        {"Mali-G610 r0p0 OpenCL 3.0 v1.g6p0", "valhall"},
                                        {"Mali-G76", ""},
                                        {"Mali-G72 MP3", ""},
                                        {"Mali-T880", ""},
                                        {"Mali-G", ""},
                                        {"Adreno (TM) 730", "adreno"},
                                        {"Turnip Adreno (TM) 650", "adreno"},
                                        {"QUALCOMM Adreno(TM) OpenCL 3.0 Adreno(TM) 740", "adreno"},
                                        {"Adreno (TM) 540", ""},
                                        {"QUALCOMM Adreno(TM)", ""},
                                        {"llvmpipe (LLVM 15.0.6, 256 bits)", ""},
                                        {"", ""}}) {
    EXPECT_EQ(plugin::PhoneGpuOf(device), machine) << device;
    if (*machine == 0) continue;
    for (const char* kind : {"opencl,config=", "vulkan,config="})
      EXPECT_GT(ParseTarget(support::StrCat(kind, machine))->machine.launch.warp, 1) << machine;
  }
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
