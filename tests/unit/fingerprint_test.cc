// What a device says of itself.
#include "device_agent/fingerprint.h"

#include <gtest/gtest.h>

#include <string>

#include "compiler/target/machine.h"
#include "deploy/peaks/fma_peak.h"
#include "deploy/runtime/device_loader.h"
#include "device_agent/host_state.h"
#include "device_agent/self_test_module.h"

namespace tilewright::device_agent {
namespace {

runtime::CpuInfo Zen4() {
  runtime::CpuInfo cpu;
  cpu.arch = "x86_64";
  cpu.vendor = "AuthenticAMD";
  cpu.model_name = "AMD EPYC 9000";
  cpu.family = 0x19;
  cpu.model = 0x11;
  cpu.features = {"avx512bf16", "avx",     "avx2",     "avx512bw",   "avx512cd",
                  "avx512dq",   "avx512f", "avx512vl", "avx512vnni", "bmi",
                  "bmi2",       "f16c",    "fma",      "popcnt",     "sse2",
                  "sse3",       "sse4.1",  "sse4.2",   "ssse3"};
  cpu.cores_usable = 2;
  cpu.l1d_bytes = 32 << 10;
  cpu.l2_bytes = 1 << 20;
  cpu.l3_bytes = 32 << 20;
  return cpu;
}

v1::DeviceReport CpuDevice(const runtime::CpuInfo& cpu, const HostFacts& host, CpuPeaks peaks) {
  return DeviceFrom(CpuAttributes(cpu, host, peaks));
}

std::string Text(const v1::DeviceReport& device, const std::string& name) {
  return device.attributes().at(name).s();
}

TEST(Fingerprint, AttributesMatchTargets) {
  const v1::DeviceReport device = CpuDevice(Zen4(), {"6.1.0", 8LL << 30}, {236.5, 946});
  EXPECT_EQ(device.key(), "cpu-znver4");
  EXPECT_EQ(Text(device, "kind"), "cpu");
  EXPECT_EQ(Text(device, "arch"), "x86_64");
  EXPECT_EQ(Text(device, "cpu"), "znver4");
  const std::string accepts = "," + Text(device, "cpu_accepts") + ",";
  for (const char* cpu : {"x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4", "znver4", "znver3"}) {
    EXPECT_NE(accepts.find("," + std::string(cpu) + ","), std::string::npos) << cpu;
  }
  EXPECT_EQ(accepts.find("sapphirerapids-amx"), std::string::npos);
  EXPECT_EQ(device.attributes().at("cores").i(), 2);
  EXPECT_EQ(device.attributes().at("l2_bytes").unit(), "bytes");
  EXPECT_EQ(device.attributes().at("peak_gflops").d(), 236.5);
  EXPECT_EQ(device.attributes().at("peak_gflops").unit(), "GFLOP/s");
  EXPECT_EQ(device.attributes().at("peak_int8_gops").d(), 946);
  EXPECT_EQ(device.health(), v1::HEALTH_GOOD);
}

TEST(Fingerprint, AMachineWithoutAvx512AcceptsNoCodeForIt) {
  runtime::CpuInfo cpu = Zen4();
  std::erase_if(cpu.features, [](const std::string& f) { return f.rfind("avx512", 0) == 0; });
  const v1::DeviceReport device = CpuDevice(cpu, {}, {1, 0});
  EXPECT_EQ(Text(device, "cpu_accepts").find("x86-64-v4"), std::string::npos);
  EXPECT_EQ(Text(device, "cpu_accepts").find("znver4"), std::string::npos);
  EXPECT_EQ(device.key(), "cpu-x86-64-v3");
}

// A hypervisor hides instructions: dot products of bytes stay.
TEST(Fingerprint, AMachineWithoutBf16IsOneWithDotProducts) {
  runtime::CpuInfo cpu = Zen4();
  std::erase(cpu.features, "avx512bf16");
  const v1::DeviceReport device = CpuDevice(cpu, {}, {1, 0});
  EXPECT_EQ(device.key(), "cpu-cascadelake");
  EXPECT_EQ(Text(device, "cpu_accepts").find("znver4"), std::string::npos);
}

TEST(Fingerprint, TheHashFollowsWhatMattersForTimingOnly) {
  const std::string base = CpuDevice(Zen4(), {"6.1.0", 8LL << 30}, {100, 0}).fingerprint();
  EXPECT_EQ(base.size(), 64u);
  EXPECT_EQ(CpuDevice(Zen4(), {"6.9.9", 64LL << 30}, {90, 300}).fingerprint(), base)
      << "kernel, memory and the measured peak do not count";
  runtime::CpuInfo cpu = Zen4();
  cpu.cores_usable = 4;
  EXPECT_NE(CpuDevice(cpu, {}, {100, 0}).fingerprint(), base);
  cpu = Zen4();
  cpu.l2_bytes = 512 << 10;
  EXPECT_NE(CpuDevice(cpu, {}, {100, 0}).fingerprint(), base);
  cpu = Zen4();
  cpu.model_name = "another";
  EXPECT_NE(CpuDevice(cpu, {}, {100, 0}).fingerprint(), base);
  cpu = Zen4();
  cpu.features.push_back("zzz");
  EXPECT_NE(CpuDevice(cpu, {}, {100, 0}).fingerprint(), base);
}

TEST(Fingerprint, ADeviceBehindADriverIsClassedByItsName) {
  Attributes attributes;
  attributes["kind"].set_s("opencl");
  attributes["name"].set_s("NVIDIA H100 (PCIe)");
  attributes["driver"].set_s("535.1");
  attributes["compute_units"].set_i(132);
  const v1::DeviceReport device = DeviceFrom(attributes);
  EXPECT_EQ(device.key(), "opencl-nvidia-h100-pcie");
  attributes["driver"].set_s("535.2");
  EXPECT_NE(DeviceFrom(attributes).fingerprint(), device.fingerprint()) << "it compiles the code";
  attributes["driver"].set_s("535.1");
  attributes["sandbox"].set_s("driver");
  EXPECT_EQ(DeviceFrom(attributes).fingerprint(), device.fingerprint());
}

TEST(Fingerprint, TheUnitIsPartOfTheClass) {
  Attributes attributes = CpuAttributes(Zen4(), {}, {1, 0});
  const v1::DeviceReport plain = DeviceFrom(attributes);
  attributes["unit"].set_s("virtual_cycles");
  const v1::DeviceReport board = DeviceFrom(attributes);
  EXPECT_EQ(board.key(), plain.key() + "@virtual_cycles");
  EXPECT_NE(board.fingerprint(), plain.fingerprint());
  EXPECT_EQ(support::UnitOfClass(board.key()).name, "virtual_cycles");
  EXPECT_EQ(support::UnitOfClass(plain.key()).name, "wall_ns");
  // Whatever pool the operator names, also with the unit in it.
  EXPECT_EQ(support::ClassOfUnit("boards", UnitOf(board)), "boards@virtual_cycles");
  EXPECT_EQ(support::ClassOfUnit("boards@virtual_cycles", UnitOf(board)), "boards@virtual_cycles");
  EXPECT_EQ(support::ClassOfUnit("boards", UnitOf(plain)), "boards");
}

TEST(Fingerprint, ThisMachine) {
  const runtime::CpuInfo cpu = runtime::DetectCpu();
  const HostFacts host = ReadHostFacts();
  EXPECT_GT(host.memory_bytes, 0);
  EXPECT_FALSE(host.kernel.empty());
  const v1::DeviceReport device =
      CpuDevice(cpu, host, {peaks::MeasureFmaPeak(cpu, 1, 5), peaks::MeasureInt8Peak(cpu, 1, 5)});
  const std::string accepts = "," + Text(device, "cpu_accepts") + ",";
  EXPECT_NE(accepts.find("," + Text(device, "cpu") + ","), std::string::npos)
      << "a machine accepts code for itself";
  // Any machine that runs this test does more than a billion operations per second.
  const double peak = device.attributes().at("peak_gflops").d();
  EXPECT_GT(peak, 1);
  // Dot products of bytes do four times the work of a fused multiply-add in each lane.
  const bool dots = cpu.HasFeature("avx512vnni") || cpu.HasFeature("avxvnni");
  ASSERT_EQ(device.attributes().count("peak_int8_gops"), dots ? 1u : 0u);
  if (dots) {
    EXPECT_GT(device.attributes().at("peak_int8_gops").d(), 2 * peak);
  }
}

TEST(DeviceKinds, EveryKindWithDevicesHasASelfTest) {
  EXPECT_TRUE(SelfTestModule().ok());
  EXPECT_EQ(support::Slug(SelfTestModule(*runtime::CpuDevicePlugin()).status()),
            "agent.self_test.kind");
  for (const target::Kind& kind : target::Kinds()) {
    EXPECT_EQ(CheckDeviceKind(kind.name).ok(), kind.has_devices()) << kind.name;
    if (!kind.has_devices() || kind.name == "cpu") continue;
    const auto path = runtime::FindDevicePlugin(kind.name);
    ASSERT_TRUE(path.ok()) << support::StatusText(path.status());
    const auto plugin = runtime::DevicePlugin::Open(*path);
    ASSERT_TRUE(plugin.ok()) << support::StatusText(plugin.status());
    EXPECT_TRUE(SelfTestModule(plugin->table()).ok()) << kind.name;
  }
  EXPECT_EQ(support::Slug(CheckDeviceKind("toaster")), "agent.device.unknown");
}

TEST(HostState, ReadsTheKernelsFiles) {
  HostState host;
  v1::Telemetry telemetry;
  host.Finish(&telemetry);
  EXPECT_GE(telemetry.load_average(), 0);
  EXPECT_GE(telemetry.steal_fraction(), 0);
  EXPECT_LE(telemetry.steal_fraction(), 1);
  EXPECT_EQ(ReadBootId().size(), 36u);
  EXPECT_EQ(ReadBootId(), ReadBootId());
  EXPECT_NE(NewUuid(), NewUuid());
}

}  // namespace
}  // namespace tilewright::device_agent
