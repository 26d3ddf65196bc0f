// The --device entries of an agent.
#include "device_agent/device_spec.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tilewright::device_agent {
namespace {

TEST(DeviceSpec, EveryKeyOfAnEntry) {
  const auto spec = ParseDeviceSpec(
      "cpu,name=big,cores=6+0-2,threads=3,pool=phone,memory=1048576,label.rack=7,label.site=a b,"
      "bridge=ssh -T -o A=1,B=2 bench 'exec tilewright-worker'");
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->kind, "cpu");
  EXPECT_EQ(spec->name, "big");
  EXPECT_EQ(spec->cores, (std::vector<int>{0, 1, 2, 6}));
  EXPECT_EQ(spec->threads, 3);
  EXPECT_EQ(spec->pool, "phone");
  EXPECT_EQ(spec->memory_limit_bytes, 1048576);
  EXPECT_EQ(spec->labels, (std::map<std::string, std::string>{{"rack", "7"}, {"site", "a b"}}));
  EXPECT_EQ(spec->bridge, "ssh -T -o A=1,B=2 bench 'exec tilewright-worker'")
      << "the rest of the entry, commas included";
}

TEST(DeviceSpec, ADeviceWithADriverIsConfinedByTheProfileDriver) {
  auto spec = ParseDeviceSpec("opencl,name=gpu,index=1,nodes=/dev/nvidia0+/dev/nvidiactl");
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->profile, "driver");
  EXPECT_EQ(spec->index, 1);
  EXPECT_EQ(spec->nodes, (std::vector<std::string>{"/dev/nvidia0", "/dev/nvidiactl"}));
  spec = ParseDeviceSpec("cpu");
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->profile, "strict");
  spec = ParseDeviceSpec("cpu,profile=driver");
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->profile, "driver");
}

TEST(DeviceSpec, DefaultsAreOneCpuOfAllCores) {
  const auto specs = ParseDevices({});
  ASSERT_TRUE(specs.ok()) << specs.status();
  ASSERT_EQ(specs->size(), 1u);
  EXPECT_EQ(specs->front().kind, "cpu");
  EXPECT_EQ(specs->front().name, "cpu");
  EXPECT_TRUE(specs->front().cores.empty());
  EXPECT_TRUE(specs->front().bridge.empty());
}

TEST(DeviceSpec, MistakesAreRefusedByName) {
  const std::vector<std::pair<const char*, const char*>> rows = {
      {"toaster", "agent.device.unknown"},
      {"", "agent.device.unknown"},
      {"cpu,", "agent.device.invalid"},
      {"cpu,cores", "agent.device.invalid"},
      {"cpu,cores=", "agent.device.invalid"},
      {"cpu,cores=a", "agent.device.invalid"},
      {"cpu,cores=3-1", "agent.device.invalid"},
      {"cpu,cores=-1", "agent.device.invalid"},
      {"cpu,cores=0-99999999999", "agent.device.invalid"},
      {"cpu,threads=0", "agent.device.invalid"},
      {"cpu,memory=-1", "agent.device.invalid"},
      {"cpu,label.=x", "agent.device.invalid"},
      {"cpu,speed=9", "agent.device.invalid"},
      {"cpu,bridge=", "agent.device.invalid"},
      {"cpu,name=a/b", "agent.name.invalid"},
      {"cpu,profile=open", "agent.device.invalid"},
      {"cpu,nodes=/dev/dri", "agent.device.invalid"},
      {"cpu,index=-1", "agent.device.invalid"},
      {"opencl,profile=strict", "agent.device.invalid"},
      {"opencl,nodes=/etc", "agent.device.invalid"},
      {"opencl,nodes=/dev/../etc", "agent.device.invalid"},
  };
  for (const auto& [text, slug] : rows) {
    EXPECT_EQ(support::Slug(ParseDeviceSpec(text).status()), slug) << text;
  }
}

TEST(DeviceSpec, DevicesOfOneAgentHaveNamesAndCoresOfTheirOwn) {
  const auto slug = [](const std::vector<std::string>& texts) {
    return support::Slug(ParseDevices(texts).status());
  };
  EXPECT_TRUE(ParseDevices({"cpu,name=a,cores=0-1", "cpu,name=b,cores=2-3"}).ok());
  EXPECT_TRUE(ParseDevices({"cpu", "cpu,name=phone,bridge=adb shell -T x"}).ok())
      << "the cores behind a bridge are others";
  EXPECT_EQ(slug({"cpu,cores=0", "cpu,cores=1"}), "agent.device.twice");
  EXPECT_EQ(slug({"cpu,name=a,cores=0-2", "cpu,name=b,cores=2-3"}), "agent.device.overlap");
  EXPECT_EQ(slug({"cpu,name=a", "cpu,name=b,cores=2"}), "agent.device.overlap");
  EXPECT_EQ(slug({"cpu,name=a", "toaster"}), "agent.device.unknown");
}

}  // namespace
}  // namespace tilewright::device_agent
