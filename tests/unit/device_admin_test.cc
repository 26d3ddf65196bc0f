// What people and hosts do to devices in the tracker's state machine: reservations, resets; and
// artifacts that vanish.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "tests/unit/pool_fixture.h"
#include "tracker/device_pool.h"

namespace tilewright::tracker::testing {
namespace {

using ::testing::HasSubstr;

class DeviceAdminTest : public ::testing::Test {
 protected:
  v1::SyncResponse Sync(double at_s, const v1::ResetReport* reset = nullptr,
                        bool can_reset = true) {
    v1::SyncRequest request = SyncOf("agents/a", {"devices/d"}, ++sequence_);
    request.mutable_devices(0)->set_can_reset(can_reset);
    if (reset != nullptr) *request.mutable_devices(0)->mutable_last_reset() = *reset;
    EXPECT_TRUE(pool_.Sync(request, "10.0.0.2", At(at_s)).ok());
    v1::SyncResponse response;
    news_ = pool_.FillSyncResponse("agents/a", true, At(at_s), &response);
    const absl::Status rules = pool_.CheckInvariants();
    EXPECT_TRUE(rules.ok()) << rules;
    return response;
  }

  absl::StatusOr<v1::Hold> Hold(double at_s, const std::string& holder, int seconds,
                                const std::string& name = "") {
    v1::CreateHoldRequest request;
    request.mutable_hold()->set_device("devices/d");
    request.mutable_hold()->set_holder(holder);
    request.mutable_hold()->set_name(name);
    request.mutable_ttl()->set_seconds(seconds);
    return pool_.CreateHold(request, At(at_s));
  }

  absl::StatusOr<v1::Device> Reset(double at_s) {
    v1::ResetDeviceRequest request;
    request.set_name("devices/d");
    request.set_reason("hangs");
    return pool_.ResetDevice(request, At(at_s));
  }

  DevicePool pool_{PoolOptions(), EmptySnapshot(), At(0)};
  uint64_t sequence_ = 0;
  bool news_ = false;
};

TEST_F(DeviceAdminTest, AHolderExtendsAndReleasesByTheDevicesName) {
  Sync(1);
  pool_.Submit("tuner", Item("w"), At(1));
  const auto hold = Hold(1, "ann", 10);
  ASSERT_TRUE(hold.ok());
  EXPECT_EQ(support::Slug(Hold(2, "bob", 10, hold->name()).status()), "device.hold.held");
  ASSERT_TRUE(Hold(9, "ann", 10, hold->name()).ok());
  pool_.Tick(At(12));
  EXPECT_EQ(Sync(12).grants_size(), 0) << "held until 19 s now";
  ASSERT_TRUE(pool_.ReleaseHold("devices/d").ok());
  EXPECT_EQ(support::Slug(pool_.ReleaseHold("devices/d")), "device.hold.not_found");
  EXPECT_EQ(Sync(13).grants_size(), 1);
}

TEST_F(DeviceAdminTest, NobodyIsGivenADeviceThatCannotBeUsed) {
  Sync(1);
  EXPECT_EQ(support::Slug(Hold(90, "ann", 10).status()), "device.hold.unusable");
  EXPECT_THAT(Hold(90, "ann", 10).status().message(), HasSubstr("offline"));
}

TEST_F(DeviceAdminTest, AResetIsOrderedUntilTheAgentAnswersAndNothingRunsMeanwhile) {
  Sync(1);
  pool_.Submit("tuner", Item("w"), At(1));
  ASSERT_TRUE(Reset(2).ok());
  v1::SyncResponse answer = Sync(3);
  ASSERT_EQ(answer.resets_size(), 1);
  EXPECT_TRUE(news_);
  EXPECT_EQ(answer.resets(0).request(), "resets/test/d-1");
  EXPECT_EQ(answer.resets(0).reason(), "hangs");
  EXPECT_EQ(answer.grants_size(), 0);
  answer = Sync(4);
  EXPECT_EQ(answer.resets_size(), 1) << "the answer may be lost";
  EXPECT_FALSE(news_);
  v1::ResetReport report;
  report.set_request("resets/test/d-1");
  report.set_state(v1::RESET_STATE_RUNNING);
  answer = Sync(5, &report);
  EXPECT_EQ(answer.resets_size(), 0);
  EXPECT_EQ(answer.grants_size(), 0);
  EXPECT_EQ(pool_.GetDevice("devices/d", At(5))->conditions(0).reason(), "device.reset.running");
  report.set_state(v1::RESET_STATE_DONE);
  EXPECT_EQ(Sync(6, &report).grants_size(), 1);
  EXPECT_EQ(pool_.GetDevice("devices/d", At(6))->last_reset().state(), v1::RESET_STATE_DONE);
}

TEST_F(DeviceAdminTest, ResetsAreRefusedWithoutACommandAndUnderALease) {
  Sync(1, nullptr, false);
  EXPECT_EQ(support::Slug(Reset(1).status()), "device.reset.impossible");
  pool_.Submit("tuner", Item("w"), At(1));
  EXPECT_EQ(Sync(2).grants_size(), 1);
  EXPECT_EQ(support::Slug(Reset(3).status()), "device.reset.busy");
  v1::ResetDeviceRequest nobody;
  nobody.set_name("devices/nobody");
  EXPECT_EQ(support::Slug(pool_.ResetDevice(nobody, At(3)).status()), "device.name.not_found");
}

TEST_F(DeviceAdminTest, ADeviceThatIsLostAgainAndAgainIsResetWhenItGoesIntoQuarantine) {
  for (int i = 0; i < 4; ++i) {
    v1::WorkItem item = Item(support::StrCat("w", i));
    item.set_max_batch(1);
    pool_.Submit("tuner", item, At(1));
  }
  v1::SyncResponse answer;
  for (int i = 0; i < 3; ++i) {
    answer = Sync(2 + i);
    ASSERT_EQ(answer.grants_size(), 1) << i;
    v1::MeasurementResult lost = ResultOf(answer.grants(0), 0, v1::DEVICE_LOST);
    lost.set_phase("timed");
    pool_.Report(lost, "", At(2 + i));
    // Poison is closed after two; the others come first because they were lost less often.
    v1::CancelWorkRequest cancel;
    cancel.set_consumer("tuner");
    cancel.add_work_items(lost.work_item());
    pool_.Cancel(cancel, At(2 + i));
  }
  EXPECT_EQ(pool_.GetDevice("devices/d", At(5))->health(), v1::HEALTH_QUARANTINED);
  EXPECT_EQ(pool_.GetDevice("devices/d", At(5))->quarantine().reason(), "device.results.lost");
  answer = Sync(6);
  ASSERT_EQ(answer.resets_size(), 1);
  EXPECT_EQ(answer.resets(0).reason(), "device.results.lost");
}

// --- artifacts

TEST_F(DeviceAdminTest, AnItemWhoseArtifactVanishedWaitsForItAndIsMeasuredThen) {
  const v1::WorkItem item = Item("w");
  pool_.Submit("tuner", item, At(1));
  v1::SyncResponse answer = Sync(1);
  ASSERT_EQ(answer.grants_size(), 1);
  v1::MeasurementResult missing = ResultOf(answer.grants(0), 0, v1::DEVICE_LOST);
  missing.set_error_class("ARTIFACT_MISSING");
  EXPECT_EQ(pool_.Report(missing, "", At(2)).disposition(), v1::DISPOSITION_STORED);
  v1::PullResultsRequest pull;
  pull.set_consumer("tuner");
  v1::PullResultsResponse page;
  ASSERT_TRUE(pool_.Pull(pull, &page));
  EXPECT_EQ(page.updates(0).state(), v1::WORK_STATE_QUEUED);
  EXPECT_EQ(page.updates(0).reason(), "work.artifact.missing");
  EXPECT_EQ(Sync(3).grants_size(), 0) << "nobody could measure it";
  EXPECT_TRUE(pool_.AwaitsArtifacts("w"));
  EXPECT_EQ(pool_.Submit("tuner", item, At(4)).kind(), v1::SubmitOutcome::KIND_EXISTS);
  EXPECT_FALSE(pool_.AwaitsArtifacts("w"));
  answer = Sync(5);
  ASSERT_EQ(answer.grants_size(), 1);
  EXPECT_EQ(answer.grants(0).work(0).attempt(), 2);
}

TEST_F(DeviceAdminTest, AnItemThatAwaitsItsArtifactCanBeCancelled) {
  pool_.Submit("tuner", Item("w"), At(1));
  const v1::SyncResponse answer = Sync(1);
  v1::MeasurementResult missing = ResultOf(answer.grants(0), 0, v1::DEVICE_LOST);
  missing.set_error_class("ARTIFACT_MISSING");
  pool_.Report(missing, "", At(2));
  v1::CancelWorkRequest cancel;
  cancel.set_consumer("tuner");
  cancel.add_work_items("w");
  EXPECT_EQ(pool_.Cancel(cancel, At(3)).queued_cancelled(), 1);
  EXPECT_TRUE(pool_.CheckInvariants().ok()) << pool_.CheckInvariants();
  EXPECT_FALSE(pool_.AwaitsArtifacts("w"));
}

// --- many devices, odd names ------------------------------------------------------------------

v1::SyncRequest Many(int first, int count, uint64_t sequence, const std::string& agent = "a") {
  std::vector<std::string> names;
  for (int i = first; i < first + count; ++i) {
    names.push_back(support::StrCat("devices/", agent, "-", 10'000 + i));
  }
  return SyncOf("agents/" + agent, names, sequence);
}

size_t Known(const DevicePool& pool) { return pool.ListDevices("", "", SIZE_MAX, At(1)).size(); }

TEST(DeviceLimitTest, AnAgentHasAtMostSoManyDevicesAlsoOneAfterTheOther) {
  PoolOptions options;
  options.max_devices_per_agent = 20;
  DevicePool pool(options, EmptySnapshot(), At(0));
  EXPECT_EQ(support::Slug(pool.Sync(Many(0, 21, 1), "10.0.0.2", At(1)).status()),
            "agent.devices.too_many");
  EXPECT_EQ(Known(pool), 0u);
  ASSERT_TRUE(pool.Sync(Many(0, 15, 1), "10.0.0.2", At(1)).ok());
  ASSERT_TRUE(pool.Sync(Many(10, 15, 2), "10.0.0.2", At(1)).ok());
  EXPECT_EQ(Known(pool), 20u) << "five others are known, five are ignored";
  v1::SyncResponse response;
  EXPECT_TRUE(pool.FillSyncResponse("agents/a", true, At(1), &response));
  ASSERT_EQ(response.warnings_size(), 5);
  EXPECT_THAT(response.warnings(0), HasSubstr("devices forget"));
  ASSERT_TRUE(pool.Sync(Many(0, 20, 1, "b"), "10.0.0.3", At(1)).ok());
  EXPECT_EQ(Known(pool), 40u) << "of each agent";
  // The limit outlives a restart, though nobody has reported yet.
  Snapshot snapshot = EmptySnapshot();
  snapshot.devices = pool.TakeChanges().devices;
  DevicePool again(options, std::move(snapshot), At(0));
  ASSERT_TRUE(again.Sync(Many(100, 20, 1), "10.0.0.2", At(1)).ok());
  EXPECT_EQ(Known(again), 40u);
  // Devices that are gone make room.
  ASSERT_TRUE(again.ForgetDevice("devices/a-10000", At(1)).ok());
  ASSERT_TRUE(again.Sync(Many(100, 20, 2), "10.0.0.2", At(1)).ok());
  EXPECT_EQ(Known(again), 40u);
  EXPECT_TRUE(again.GetDevice("devices/a-10100", At(1)).ok());
}

// A page costs what is in it: 20,000 devices are read in as many steps as there are devices.
TEST(DeviceLimitTest, APageHoldsTheNextDevicesOnly) {
  DevicePool pool(PoolOptions(), EmptySnapshot(), At(0));
  for (int agent = 100; agent < 180; ++agent) {
    ASSERT_TRUE(pool.Sync(Many(0, 250, 1, support::StrCat("b", agent)), "10.0.0.2", At(1)).ok());
  }
  std::string after;
  size_t seen = 0, pages = 0;
  while (true) {
    const std::vector<v1::Device> page = pool.ListDevices("", after, 1000, At(1));
    if (page.empty()) break;
    EXPECT_LE(page.size(), 1000u);
    EXPECT_GT(page.front().name(), after);
    after = page.back().name();
    seen += page.size();
    ++pages;
  }
  EXPECT_EQ(seen, 20'000u);
  EXPECT_EQ(pages, 20u);
  EXPECT_TRUE(pool.ListDevices("no such class", "", 10, At(1)).empty());
}

TEST(DeviceLimitTest, NamesThatATerminalWouldObeyAreRefused) {
  using std::string_literals::operator""s;
  DevicePool pool(PoolOptions(), EmptySnapshot(), At(0));
  for (const std::string& name : {"devices/\x1b[2J"s, "devices/a\0b"s, "devices/a\nb"s,
                                  "devices/\u202Egnp"s, "devices/\u2066x"s, "devices/\x9b"s}) {
    const absl::Status refused =
        pool.Sync(SyncOf("agents/a", {name}, 1), "10.0.0.2", At(1)).status();
    EXPECT_EQ(support::Slug(refused), "agent.name.unprintable");
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  }
  EXPECT_EQ(support::Slug(pool.Sync(SyncOf("agents/\a", {}, 1), "10.0.0.2", At(1)).status()),
            "agent.name.unprintable");
  EXPECT_EQ(Known(pool), 0u);
  EXPECT_TRUE(pool.Sync(SyncOf("agents/a", {"devices/büro 日本"}, 1), "10.0.0.2", At(1)).ok());
}

TEST_F(DeviceAdminTest, WhatPeopleWriteIsText) {
  Sync(1);
  EXPECT_EQ(support::Slug(Hold(1, "ann\x1b[1m", 10).status()), "device.hold.invalid");
  v1::SetDeviceAdminStateRequest drain;
  drain.set_name("devices/d");
  drain.set_admin_state(v1::ADMIN_STATE_DRAINING);
  drain.set_reason("\u202Eevil");
  EXPECT_EQ(support::Slug(pool_.SetAdminState(drain, At(1)).status()),
            "device.admin_reason.invalid");
}

TEST_F(DeviceAdminTest, ADeviceIsForgottenOnceItIsGone) {
  Sync(1);
  EXPECT_EQ(support::Slug(pool_.ForgetDevice("devices/none", At(1))), "device.name.not_found");
  EXPECT_EQ(support::Slug(pool_.ForgetDevice("devices/d", At(1))), "device.forget.in_use");
  ASSERT_TRUE(Hold(1, "ann", 1000).ok());
  EXPECT_EQ(support::Slug(pool_.ForgetDevice("devices/d", At(500))), "device.forget.in_use");
  ASSERT_TRUE(pool_.ReleaseHold("devices/d").ok());
  ASSERT_TRUE(pool_.ForgetDevice("devices/d", At(500)).ok());
  const Changes changes = pool_.TakeChanges();
  EXPECT_THAT(changes.gone_devices, ::testing::ElementsAre("devices/d"));
  EXPECT_TRUE(changes.devices.empty());
  EXPECT_EQ(support::Slug(pool_.GetDevice("devices/d", At(500)).status()), "device.name.not_found");
  // Its agent comes back: the device is a new one.
  Sync(501);
  EXPECT_EQ(pool_.GetDevice("devices/d", At(501))->admin_state(), v1::ADMIN_STATE_ENABLED);
}

// A lease that ran out before its device was forgotten must not bring it back.
TEST_F(DeviceAdminTest, ForgettingOutlivesWhatTheDeviceWasDoing) {
  pool_.Submit("tuner", Item("w"), At(1));
  const v1::SyncResponse granted = Sync(1);
  ASSERT_EQ(granted.grants_size(), 1);
  EXPECT_EQ(support::Slug(pool_.ForgetDevice("devices/d", At(2))), "device.forget.in_use");
  pool_.Tick(At(100));
  ASSERT_TRUE(pool_.ForgetDevice("devices/d", At(100)).ok());
  // The result comes late, from a device that nobody knows; then its agent is back with the lease.
  pool_.Report(ResultOf(granted.grants(0), 0), "10.0.0.2", At(101));
  EXPECT_EQ(support::Slug(pool_.GetDevice("devices/d", At(101)).status()), "device.name.not_found");
  v1::SyncRequest request = SyncOf("agents/a", {}, ++sequence_);
  v1::LeaseReport* lease = request.add_leases();
  lease->set_lease(granted.grants(0).lease());
  lease->set_fencing_token(granted.grants(0).fencing_token());
  ASSERT_TRUE(pool_.Sync(request, "10.0.0.2", At(102)).ok());
  EXPECT_EQ(pool_.ListDevices("", "", SIZE_MAX, At(102)).size(), 0u);
  const absl::Status rules = pool_.CheckInvariants();
  EXPECT_TRUE(rules.ok()) << rules;
  Sync(103);
  EXPECT_TRUE(pool_.GetDevice("devices/d", At(103)).ok());
}

}  // namespace
}  // namespace tilewright::tracker::testing
