// What people and hosts do to devices in the tracker's state machine: reservations, resets; and
// artifacts that vanish.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

}  // namespace
}  // namespace tilewright::tracker::testing
