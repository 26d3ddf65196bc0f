// How long tune waits for the devices of its own machine.
#include "tuner_server/cli/device_patience.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "deploy/support/status.h"
#include "tuner_server/cli/cli_error.h"

namespace tilewright::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int64_t kSecond = 1'000'000'000;

// One device of this machine, as a tracker describes it.
std::vector<v1::Device> OneDevice(v1::Health health, int probes = 0) {
  v1::Device device;
  device.set_name("devices/here-cpu");
  device.set_reachability(v1::REACHABILITY_ONLINE);
  device.set_health(health);
  if (health == v1::HEALTH_QUARANTINED) {
    device.mutable_quarantine()->set_reason("device.canary.failed");
    device.mutable_quarantine()->set_message("a canary crashed");
    device.mutable_quarantine()->set_probes(probes);
    device.mutable_quarantine()->mutable_next_probe()->set_seconds(60);
  }
  return {device};
}

// Looks every second, from `second` on, until the patience ends; returns how many seconds it took.
int64_t SecondsUntilGivenUp(DevicePatience* patience, int64_t second, absl::Status* why) {
  for (int64_t waited = 0; waited < 3600; ++waited) {
    const bool probed = waited % 60 < 5;  // on trial for five seconds, each minute
    *why = patience->Look(OneDevice(probed ? v1::HEALTH_GOOD : v1::HEALTH_QUARANTINED, 2),
                          (second + waited) * kSecond);
    if (!why->ok()) return waited;
  }
  return -1;
}

TEST(DevicePatience, ADeviceThatStaysQuarantinedEndsTheTuningUnavailable) {
  DevicePatience patience(kSecond);
  EXPECT_TRUE(patience.Look(OneDevice(v1::HEALTH_GOOD), 2 * kSecond).ok());
  EXPECT_EQ(patience.TakeNotice(), "");
  EXPECT_TRUE(patience.Look(OneDevice(v1::HEALTH_QUARANTINED), 3 * kSecond).ok());
  EXPECT_THAT(patience.TakeNotice(),
              AllOf(HasSubstr("waiting for a healthy device"), HasSubstr("a canary crashed"),
                    HasSubstr("the next one is in 60 s")));
  EXPECT_EQ(patience.TakeNotice(), "") << "once";
  absl::Status why;
  const int64_t seconds = SecondsUntilGivenUp(&patience, 4, &why);
  EXPECT_GE(seconds, 600);
  EXPECT_LE(seconds, 700);
  EXPECT_EQ(support::Slug(why), "cli.embedded.unwell");
  EXPECT_THAT(support::StatusText(why), HasSubstr("device.canary.failed"));
  EXPECT_EQ(ExitCodeOf(why), kExitUnavailable);
}

TEST(DevicePatience, ADeviceThatIsWellAgainStartsItAfresh) {
  DevicePatience patience(0);
  for (int64_t second = 1; second < 3600; ++second) {
    const bool well = second % 500 < 70;  // 430 s unwell at a time
    const auto devices = OneDevice(well ? v1::HEALTH_GOOD : v1::HEALTH_QUARANTINED);
    ASSERT_TRUE(patience.Look(devices, second * kSecond).ok()) << second;
  }
}

TEST(DevicePatience, AMachineWithoutADeviceIsNoticedSoon) {
  DevicePatience patience(0);
  EXPECT_TRUE(patience.Look({}, DevicePatience::kRegisterNs - 1).ok());
  EXPECT_EQ(support::Slug(patience.Look({}, DevicePatience::kRegisterNs)), "cli.embedded.device");
  EXPECT_FALSE(patience.registered());
}

}  // namespace
}  // namespace tilewright::cli
