// Behaviours of the tracker's state machine, one by one. The random simulation is in
// device_pool_sim_test.cc.
#include "tracker/device_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "deploy/daemon/fleet_contract.h"
#include "deploy/daemon/work_spec.h"
#include "tests/unit/pool_fixture.h"
#include "tracker/device_match.h"

namespace tilewright::tracker::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class DevicePoolTest : public ::testing::Test {
 protected:
  // One Sync of agent "agents/a" with device "devices/d"; returns the answer.
  v1::SyncResponse SyncA(Now now, const std::vector<v1::Grant>& held = {}, bool busy = false) {
    v1::SyncRequest request = SyncOf("agents/a", {"devices/d"}, ++sequence_);
    for (const v1::Grant& grant : held) {
      v1::LeaseReport* lease = request.add_leases();
      lease->set_lease(grant.lease());
      lease->set_fencing_token(grant.fencing_token());
      lease->set_phase(v1::LEASE_PHASE_RUNNING);
    }
    if (busy) request.mutable_devices(0)->set_activity(v1::ACTIVITY_MEASURING);
    EXPECT_TRUE(pool_.Sync(request, "10.0.0.2", now).ok());
    v1::SyncResponse response;
    news_ = pool_.FillSyncResponse("agents/a", true, now, &response);
    const absl::Status invariants = pool_.CheckInvariants();
    EXPECT_TRUE(invariants.ok()) << invariants;
    return response;
  }

  v1::SubmitOutcome::Kind Submit(const v1::WorkItem& item, Now now = At(1)) {
    return pool_.Submit("tuner", item, now).kind();
  }

  // Everything the consumer has not acknowledged.
  std::vector<v1::WorkUpdate> Updates() {
    v1::PullResultsRequest request;
    request.set_consumer("tuner");
    v1::PullResultsResponse response;
    pool_.Pull(request, &response);
    return {response.updates().begin(), response.updates().end()};
  }

  std::vector<std::string> States() {
    std::vector<std::string> states;
    for (const v1::WorkUpdate& update : Updates()) {
      states.push_back(update.work_item() + " " + v1::WorkState_Name(update.state()).substr(11));
    }
    return states;
  }

  DevicePool pool_{PoolOptions(), EmptySnapshot(), At(0)};
  uint64_t sequence_ = 0;
  bool news_ = false;
};

TEST_F(DevicePoolTest, MeasuresOneItemFromSubmissionToUpdate) {
  EXPECT_EQ(Submit(Item("w1")), v1::SubmitOutcome::KIND_NO_DEVICE_NOW);
  const v1::SyncResponse answer = SyncA(At(1));
  ASSERT_EQ(answer.grants_size(), 1);
  const v1::Grant& grant = answer.grants(0);
  EXPECT_TRUE(news_);
  EXPECT_EQ(grant.work(0).work_item(), "w1");
  EXPECT_EQ(grant.work(0).attempt(), 1);
  EXPECT_EQ(grant.work(0).target(), "cpu,arch=x86_64,threads=2");
  const v1::Ack ack = pool_.Report(ResultOf(grant, 0), "10.0.0.2", At(2));
  EXPECT_EQ(ack.disposition(), v1::DISPOSITION_STORED);
  const auto updates = Updates();
  ASSERT_EQ(updates.size(), 1u);
  EXPECT_EQ(updates[0].state(), v1::WORK_STATE_DONE);
  EXPECT_EQ(updates[0].result().measurement_id(), "w1/1");
  EXPECT_EQ(updates[0].result().agent_address(), "10.0.0.2");
  EXPECT_EQ(pool_.Report(ResultOf(grant, 0), "10.0.0.2", At(2)).disposition(),
            v1::DISPOSITION_ALREADY_STORED);
  EXPECT_EQ(Updates().size(), 1u);
}

// A tracker that lost its database: agents and tuner remember, so that nothing is named twice.
TEST_F(DevicePoolTest, TokensAndAttemptsGoOnWhereAgentAndConsumerHaveSeenThem) {
  v1::WorkItem item = Item("w1");
  item.set_attempts_before(3);
  ASSERT_EQ(Submit(item), v1::SubmitOutcome::KIND_NO_DEVICE_NOW);
  item.set_attempts_before(4);
  EXPECT_EQ(Submit(item), v1::SubmitOutcome::KIND_EXISTS) << "no part of what the item is";
  v1::SyncRequest request = SyncOf("agents/a", {"devices/d"}, ++sequence_);
  request.mutable_devices(0)->set_highest_fencing_token(41);
  ASSERT_TRUE(pool_.Sync(request, "10.0.0.2", At(1)).ok());
  v1::SyncResponse answer;
  pool_.FillSyncResponse("agents/a", true, At(1), &answer);
  ASSERT_EQ(answer.grants_size(), 1);
  EXPECT_EQ(answer.grants(0).fencing_token(), 42);
  EXPECT_EQ(answer.grants(0).work(0).attempt(), 4);
  v1::MeasurementResult old = ResultOf(answer.grants(0), 0);
  old.set_attempt(3);
  old.set_measurement_id("w1/3");
  EXPECT_EQ(pool_.Report(old, "10.0.0.2", At(2)).disposition(), v1::DISPOSITION_REJECTED);
  EXPECT_EQ(pool_.Report(ResultOf(answer.grants(0), 0), "10.0.0.2", At(2)).disposition(),
            v1::DISPOSITION_STORED);
  ASSERT_EQ(Updates().size(), 1u);
  EXPECT_EQ(Updates()[0].result().measurement_id(), "w1/4");
}

TEST_F(DevicePoolTest, SubmittingTwiceIsHarmlessAndConflictsAreRefused) {
  EXPECT_NE(Submit(Item("w1")), v1::SubmitOutcome::KIND_EXISTS);
  EXPECT_EQ(Submit(Item("w1")), v1::SubmitOutcome::KIND_EXISTS);
  v1::WorkItem other = Item("w1");
  other.set_priority(1);
  EXPECT_EQ(Submit(other), v1::SubmitOutcome::KIND_CONFLICT);
  v1::WorkItem no_artifact = Item("w2");
  no_artifact.mutable_work()->clear_artifact();
  EXPECT_EQ(Submit(no_artifact), v1::SubmitOutcome::KIND_INVALID);
  v1::WorkItem bad_target = Item("w3");
  bad_target.set_target("arch=x86_64,cpu");
  EXPECT_EQ(Submit(bad_target), v1::SubmitOutcome::KIND_INVALID);
  EXPECT_EQ(Submit(Item("")), v1::SubmitOutcome::KIND_INVALID);
  EXPECT_EQ(pool_.stats(At(1)).queued, 1);
}

TEST_F(DevicePoolTest, GrantsOnlyWhatTheDeviceSatisfies) {
  v1::WorkItem aarch64 = Item("w1");
  aarch64.set_target("cpu,arch=aarch64");
  Submit(aarch64);
  v1::WorkItem other_pool = Item("w2");
  other_pool.set_pool("phone");
  Submit(other_pool);
  v1::WorkItem many_threads = Item("w3");
  many_threads.set_target("cpu,threads=3");
  Submit(many_threads);
  v1::WorkItem elsewhere = Item("w4");
  elsewhere.set_selector("site=attic");
  Submit(elsewhere);
  EXPECT_EQ(SyncA(At(1)).grants_size(), 0);
  v1::WorkItem fits = Item("w5");
  fits.set_target("cpu,cpu=x86-64-v3,threads=2");
  fits.set_selector("site=lab,device=d");
  EXPECT_EQ(Submit(fits), v1::SubmitOutcome::KIND_ACCEPTED);
  const v1::SyncResponse answer = SyncA(At(1));
  ASSERT_EQ(answer.grants_size(), 1);
  EXPECT_EQ(answer.grants(0).work(0).work_item(), "w5");
}

TEST_F(DevicePoolTest, ABusyUnhealthyDrainedOrHeldDeviceGetsNothing) {
  Submit(Item("w1"));
  EXPECT_EQ(SyncA(At(1), {}, /*busy=*/true).grants_size(), 0);
  v1::SyncRequest cooling = SyncOf("agents/a", {"devices/d"}, ++sequence_);
  cooling.mutable_devices(0)->set_health(v1::HEALTH_COOLING);
  ASSERT_TRUE(pool_.Sync(cooling, "", At(1)).ok());
  v1::SyncResponse response;
  EXPECT_FALSE(pool_.FillSyncResponse("agents/a", true, At(1), &response));
  v1::SetDeviceAdminStateRequest drain;
  drain.set_name("devices/d");
  drain.set_admin_state(v1::ADMIN_STATE_DRAINING);
  ASSERT_TRUE(pool_.SetAdminState(drain, At(1)).ok());
  EXPECT_EQ(SyncA(At(1)).grants_size(), 0);
  const auto device = pool_.GetDevice("devices/d", At(1));
  ASSERT_TRUE(device.ok());
  EXPECT_EQ(device->conditions(0).reason(), "device.admin.draining");
  v1::CreateHoldRequest hold;
  hold.mutable_hold()->set_device("devices/d");
  hold.mutable_hold()->set_holder("ann");
  hold.mutable_ttl()->set_seconds(10);
  const auto held = pool_.CreateHold(hold, At(1));
  ASSERT_TRUE(held.ok());
  EXPECT_EQ(support::Slug(pool_.CreateHold(hold, At(1)).status()), "device.hold.held");
  EXPECT_EQ(SyncA(At(5)).grants_size(), 0);
  pool_.Tick(At(12));  // the hold ends by itself
  EXPECT_EQ(SyncA(At(12)).grants_size(), 1);
}

TEST_F(DevicePoolTest, RepeatsAGrantWhoseAnswerWasLost) {
  Submit(Item("w1"));
  const v1::SyncResponse first = SyncA(At(1));
  const v1::SyncResponse again = SyncA(At(1.1));
  ASSERT_EQ(again.grants_size(), 1);
  EXPECT_EQ(again.grants(0).SerializeAsString(), first.grants(0).SerializeAsString());
  EXPECT_FALSE(news_) << "an agent that ignores the grant would spin";
  SyncA(At(2.5));
  EXPECT_TRUE(news_);
  EXPECT_EQ(SyncA(At(3), {first.grants(0)}).grants_size(), 0) << "the agent has it";
}

TEST_F(DevicePoolTest, ExpiredLeaseGoesBackToTheQueueAndTheFirstResultWins) {
  Submit(Item("w1"));
  const v1::Grant old_grant = SyncA(At(1)).grants(0);
  SyncA(At(2), {old_grant});
  pool_.Tick(At(31.5));
  EXPECT_EQ(pool_.stats(At(31.5)).queued, 0) << "renewed at 2 s";
  pool_.Tick(At(33));
  EXPECT_EQ(pool_.stats(At(33)).queued, 1);
  ASSERT_TRUE(pool_.Sync(SyncOf("agents/b", {"devices/e"}, 1), "", At(33)).ok());
  v1::SyncResponse answer;
  pool_.FillSyncResponse("agents/b", true, At(33), &answer);
  ASSERT_EQ(answer.grants_size(), 1);
  EXPECT_EQ(answer.grants(0).work(0).attempt(), 2);
  EXPECT_EQ(pool_.Report(ResultOf(old_grant, 0), "", At(34)).disposition(), v1::DISPOSITION_STORED);
  EXPECT_EQ(pool_.Report(ResultOf(answer.grants(0), 0), "", At(35)).disposition(),
            v1::DISPOSITION_SUPERSEDED);
  EXPECT_THAT(States(), ElementsAre("w1 QUEUED", "w1 DONE"));
  EXPECT_TRUE(pool_.CheckInvariants().ok());
}

TEST_F(DevicePoolTest, AnAgentThatReturnsGetsItsExpiredLeaseBack) {
  Submit(Item("w1"));
  const v1::Grant grant = SyncA(At(1)).grants(0);
  SyncA(At(2), {grant});
  pool_.Tick(At(40));
  EXPECT_EQ(pool_.stats(At(40)).queued, 1);
  const v1::SyncResponse answer = SyncA(At(41), {grant});
  EXPECT_EQ(answer.grants_size(), 0);
  EXPECT_EQ(answer.unknown_leases_size(), 0);
  EXPECT_EQ(pool_.stats(At(41)).queued, 0);
  EXPECT_EQ(pool_.stats(At(41)).leases_reactivated, 1);
}

TEST_F(DevicePoolTest, ADroppedLeaseIsQueuedAgainAndAnUnknownOneIsNamedOnce) {
  Submit(Item("w1"));
  const v1::Grant grant = SyncA(At(1)).grants(0);
  SyncA(At(2), {grant});
  const v1::SyncResponse answer = SyncA(At(3));  // named before, not now
  ASSERT_EQ(answer.grants_size(), 1);
  EXPECT_EQ(answer.grants(0).work(0).attempt(), 2);
  EXPECT_GT(answer.grants(0).fencing_token(), grant.fencing_token());
  const v1::SyncResponse stale = SyncA(At(4), {grant, answer.grants(0)});
  EXPECT_THAT(stale.unknown_leases(), ElementsAre(grant.lease()));
  EXPECT_TRUE(news_);
  EXPECT_THAT(SyncA(At(5), {grant, answer.grants(0)}).unknown_leases(), ElementsAre(grant.lease()));
  EXPECT_FALSE(news_);
}

TEST_F(DevicePoolTest, QuarantinesAnItemThatTookDownTwoDevices) {
  Submit(Item("w1"));
  for (int attempt = 1; attempt <= 2; ++attempt) {
    const v1::SyncResponse answer = SyncA(At(attempt * 2));
    ASSERT_EQ(answer.grants_size(), 1) << attempt;
    v1::MeasurementResult lost = ResultOf(answer.grants(0), 0, v1::DEVICE_LOST);
    lost.set_phase("timed");
    EXPECT_EQ(pool_.Report(lost, "", At(attempt * 2)).disposition(), v1::DISPOSITION_STORED);
  }
  EXPECT_THAT(States(), ElementsAre("w1 QUEUED", "w1 QUARANTINED"));
  EXPECT_EQ(Updates()[1].result().measurement_id(), "w1/2");
  EXPECT_EQ(SyncA(At(9)).grants_size(), 0);
}

// An agent that is back after its death says what it measured when it died.
TEST_F(DevicePoolTest, AnItemThatRanWhenItsAgentDiedIsASuspectAndTwoDeathsQuarantineIt) {
  Submit(Item("w1"));
  Submit(Item("w2"));
  const auto die = [&](const v1::Grant& grant, int index, double at) {
    v1::MeasurementResult lost = ResultOf(grant, index, v1::DEVICE_LOST);
    lost.set_phase(daemon::kAgentEndedPhase);
    lost.set_error_class("AGENT");
    pool_.Report(lost, "", At(at));
  };
  const v1::Grant first = SyncA(At(1)).grants(0);
  ASSERT_EQ(first.work_size(), 2);
  EXPECT_FALSE(first.work(0).suspect());
  die(first, 0, 2);  // w2 only waited: nothing is said of it
  pool_.Report(ResultOf(first, 1), "", At(3));
  const v1::Grant second = SyncA(At(4)).grants(0);
  ASSERT_EQ(second.work_size(), 1);
  EXPECT_TRUE(second.work(0).suspect());
  die(second, 0, 5);
  EXPECT_EQ(Updates().back().reason(), "work.candidate.poison");
  EXPECT_EQ(States().back(), "w1 QUARANTINED");
  EXPECT_EQ(SyncA(At(9)).grants_size(), 0);
}

// One power cut takes down an agent with a running item on each of many devices.
TEST_F(DevicePoolTest, OneDeathCondemnsNobodyAndASuspectThatEndsWellIsDone) {
  Submit(Item("w1"));
  Submit(Item("w2"));
  const v1::Grant first = SyncA(At(1)).grants(0);
  for (int i = 0; i < first.work_size(); ++i) {
    v1::MeasurementResult lost = ResultOf(first, i, v1::DEVICE_LOST);
    lost.set_phase("timed");
    pool_.Report(lost, "", At(2));
  }
  const v1::Grant second = SyncA(At(3)).grants(0);
  EXPECT_EQ(second.work_size(), first.work_size());
  for (int i = 0; i < second.work_size(); ++i) {
    EXPECT_TRUE(second.work(i).suspect());
    pool_.Report(ResultOf(second, i), "", At(4));
  }
  for (const std::string& state : States()) EXPECT_EQ(state.find("QUARANTINED"), std::string::npos);
}

TEST_F(DevicePoolTest, LossesThatAreNotTheCandidatesDoNotQuarantine) {
  Submit(Item("w1"));
  for (int attempt = 1; attempt <= 5; ++attempt) {
    const v1::SyncResponse answer = SyncA(At(attempt * 2));
    ASSERT_EQ(answer.grants_size(), 1);
    pool_.Report(ResultOf(answer.grants(0), 0, v1::DEVICE_LOST), "", At(attempt * 2));
  }
  EXPECT_EQ(SyncA(At(20)).grants(0).work(0).attempt(), 6);
}

TEST_F(DevicePoolTest, FailsAnItemAfterTwentyLostAttempts) {
  Submit(Item("w1"));
  int grants = 0;
  for (int i = 0; i < 30; ++i) {
    const v1::SyncResponse answer = SyncA(At(2 + i * 100));
    grants += answer.grants_size();
    pool_.Tick(At(2 + i * 100 + 50));
  }
  EXPECT_EQ(grants, 20);
  EXPECT_EQ(States().back(), "w1 FAILED");
  EXPECT_EQ(Updates().back().reason(), "work.attempts.lost");
}

TEST_F(DevicePoolTest, RequeuesInvalidMeasurementsAsOftenAsTheItemSays) {
  v1::WorkItem item = Item("w1");
  item.set_invalid_retries(1);
  Submit(item);
  for (int attempt = 1; attempt <= 2; ++attempt) {
    const v1::SyncResponse answer = SyncA(At(attempt * 2));
    ASSERT_EQ(answer.grants_size(), 1);
    v1::MeasurementResult result = ResultOf(answer.grants(0), 0);
    result.set_valid(false);
    pool_.Report(result, "", At(attempt * 2));
  }
  EXPECT_THAT(States(), ElementsAre("w1 QUEUED", "w1 DONE"));
}

TEST_F(DevicePoolTest, RejectsResultsThatFencingOrNamesForbid) {
  Submit(Item("w1"));
  const v1::Grant grant = SyncA(At(1)).grants(0);
  v1::MeasurementResult token = ResultOf(grant, 0);
  token.set_fencing_token(99);
  EXPECT_EQ(pool_.Report(token, "", At(1)).disposition(), v1::DISPOSITION_REJECTED);
  v1::MeasurementResult device = ResultOf(grant, 0);
  device.set_device("devices/x");
  EXPECT_EQ(pool_.Report(device, "", At(1)).disposition(), v1::DISPOSITION_REJECTED);
  v1::MeasurementResult attempt = ResultOf(grant, 0);
  attempt.set_attempt(2);
  EXPECT_EQ(pool_.Report(attempt, "", At(1)).disposition(), v1::DISPOSITION_REJECTED);
  v1::MeasurementResult item = ResultOf(grant, 0);
  item.set_work_item("nobody");
  EXPECT_EQ(pool_.Report(item, "", At(1)).disposition(), v1::DISPOSITION_REJECTED);
  v1::MeasurementResult outcome = ResultOf(grant, 0, v1::OUTCOME_UNSPECIFIED);
  EXPECT_EQ(pool_.Report(outcome, "", At(1)).disposition(), v1::DISPOSITION_REJECTED);
  EXPECT_TRUE(Updates().empty());
}

TEST_F(DevicePoolTest, CancellingStopsQueuedAndRunningItems) {
  v1::WorkItem one = Item("w1");
  one.set_max_batch(1);
  Submit(one);
  Submit(Item("w2"));
  Submit(Item("x1", "other"));
  const v1::Grant grant = SyncA(At(1)).grants(0);
  SyncA(At(2), {grant}, true);
  v1::CancelWorkRequest cancel;
  cancel.set_consumer("somebody else");
  cancel.set_job("job");
  EXPECT_EQ(pool_.Cancel(cancel, At(3)).queued_cancelled(), 0);
  cancel.set_consumer("tuner");
  cancel.set_kill_running(true);
  const v1::CancelWorkResponse done = pool_.Cancel(cancel, At(3));
  EXPECT_EQ(done.queued_cancelled(), 1);
  EXPECT_EQ(done.running_revoked(), 1);
  EXPECT_THAT(States(), ElementsAre("w1 CANCELLED", "w2 CANCELLED"));
  const v1::SyncResponse answer = SyncA(At(4), {grant}, true);
  ASSERT_EQ(answer.revokes_size(), 1);
  EXPECT_TRUE(news_);
  EXPECT_TRUE(answer.revokes(0).kill_now());
  EXPECT_EQ(answer.unknown_leases_size(), 0);
  SyncA(At(5), {grant}, true);
  EXPECT_FALSE(news_) << "told once per session";
  EXPECT_EQ(pool_.Report(ResultOf(grant, 0), "", At(6)).disposition(), v1::DISPOSITION_SUPERSEDED);
  EXPECT_EQ(SyncA(At(7)).grants(0).work(0).work_item(), "x1");
}

TEST_F(DevicePoolTest, DrainingWithKillTakesTheRunningLeaseBackWithoutBlame) {
  Submit(Item("w1"));
  const v1::Grant grant = SyncA(At(1)).grants(0);
  SyncA(At(2), {grant}, true);
  v1::SetDeviceAdminStateRequest drain;
  drain.set_name("devices/d");
  drain.set_admin_state(v1::ADMIN_STATE_DRAINING);
  drain.set_kill_running(true);
  ASSERT_TRUE(pool_.SetAdminState(drain, At(3)).ok());
  EXPECT_EQ(pool_.stats(At(3)).queued, 1);
  const v1::SyncResponse answer = SyncA(At(4), {grant}, true);
  ASSERT_EQ(answer.revokes_size(), 1);
  EXPECT_EQ(answer.revokes(0).work_items_size(), 0);
  EXPECT_EQ(pool_.Report(ResultOf(grant, 0, v1::CANCELLED), "", At(5)).disposition(),
            v1::DISPOSITION_STORED);
  EXPECT_EQ(pool_.stats(At(5)).queued, 1) << "still to be measured";
}

TEST_F(DevicePoolTest, ANewSessionReplacesTheOldOne) {
  ASSERT_TRUE(pool_.Sync(SyncOf("agents/a", {"devices/d"}, 5, "s1"), "", At(1)).ok());
  EXPECT_FALSE(*pool_.Sync(SyncOf("agents/a", {"devices/d"}, 4, "s1"), "", At(1)));
  ASSERT_TRUE(pool_.Sync(SyncOf("agents/a", {"devices/d"}, 1, "s2"), "", At(1)).ok());
  EXPECT_EQ(
      support::Slug(pool_.Sync(SyncOf("agents/a", {"devices/d"}, 6, "s1"), "", At(1)).status()),
      "agent.session.replaced");
  EXPECT_EQ(support::Slug(pool_.Sync(SyncOf("a", {}, 1), "", At(1)).status()),
            "agent.sync.invalid");
  v1::SyncRequest future = SyncOf("agents/z", {}, 1);
  future.set_protocol_revision(2);
  EXPECT_EQ(support::Slug(pool_.Sync(future, "", At(1)).status()), "agent.protocol.unsupported");
}

TEST_F(DevicePoolTest, ADeviceBelongsToOneAgentUntilThatOneIsOffline) {
  ASSERT_TRUE(pool_.Sync(SyncOf("agents/a", {"devices/d"}, 1), "", At(1)).ok());
  ASSERT_TRUE(pool_.Sync(SyncOf("agents/b", {"devices/d"}, 1), "", At(2)).ok());
  v1::SyncResponse response;
  EXPECT_TRUE(pool_.FillSyncResponse("agents/b", true, At(2), &response));
  EXPECT_THAT(response.warnings(0), HasSubstr("belongs to agents/a"));
  ASSERT_TRUE(pool_.Sync(SyncOf("agents/b", {"devices/d"}, 2), "", At(90)).ok());
  EXPECT_EQ(pool_.GetDevice("devices/d", At(90))->agent(), "agents/b");
}

TEST_F(DevicePoolTest, ReachabilityFollowsSilence) {
  SyncA(At(1));
  EXPECT_EQ(pool_.GetDevice("devices/d", At(2))->reachability(), v1::REACHABILITY_ONLINE);
  EXPECT_EQ(pool_.GetDevice("devices/d", At(40))->reachability(), v1::REACHABILITY_SUSPECT);
  EXPECT_EQ(pool_.GetDevice("devices/d", At(70))->reachability(), v1::REACHABILITY_OFFLINE);
  EXPECT_EQ(support::Slug(pool_.GetDevice("devices/q", At(70)).status()), "device.name.not_found");
}

// Its work goes elsewhere at once; a thief who still calls with the old certificate says nothing
// about the agent that has a new one.
TEST_F(DevicePoolTest, DevicesOfARevokedAgentSaySoUntilItReturns) {
  Submit(Item("w1"));
  const auto sync = [&](int sequence, const std::string& credential, Now now) {
    EXPECT_TRUE(pool_.Sync(SyncOf("agents/a", {"devices/d"}, sequence), "", now, credential).ok());
  };
  const auto device = [&](Now now) { return *pool_.GetDevice("devices/d", now); };
  sync(1, "old", At(1));
  v1::SyncResponse answer;
  pool_.FillSyncResponse("agents/a", true, At(1), &answer);
  ASSERT_EQ(answer.grants_size(), 1);
  pool_.RevokeAgent("agents/a", "another", "revoked", At(2));
  pool_.RevokeAgent("agents/b", "old", "revoked", At(2));
  EXPECT_EQ(device(At(2)).reachability(), v1::REACHABILITY_ONLINE);
  pool_.RevokeAgent("agents/a", "old", "certificate 5c was revoked", At(2));
  EXPECT_EQ(device(At(2)).reachability(), v1::REACHABILITY_REVOKED);
  EXPECT_EQ(device(At(2)).conditions().rbegin()->reason(), "device.agent.revoked");
  EXPECT_THAT(device(At(2)).conditions().rbegin()->message(),
              HasSubstr("certificate 5c was revoked"));
  EXPECT_EQ(device(At(2)).current_lease(), "");
  EXPECT_EQ(pool_.stats(At(2)).queued, 1);
  EXPECT_TRUE(pool_.CheckInvariants().ok()) << pool_.CheckInvariants();
  EXPECT_EQ(device(At(1000)).reachability(), v1::REACHABILITY_REVOKED);
  sync(2, "new", At(1001));
  pool_.RevokeAgent("agents/a", "old", "certificate 5c was revoked", At(1002));
  EXPECT_EQ(device(At(1002)).reachability(), v1::REACHABILITY_ONLINE);
}

TEST_F(DevicePoolTest, QueueTimeoutFailsWhatWaitsNotWhatRuns) {
  v1::WorkItem running = Item("w1");
  running.mutable_queue_timeout()->set_seconds(10);
  running.set_max_batch(1);
  Submit(running);
  v1::WorkItem waiting = Item("w2");
  waiting.mutable_queue_timeout()->set_seconds(10);
  Submit(waiting);
  const v1::Grant grant = SyncA(At(2)).grants(0);
  EXPECT_EQ(grant.work(0).work_item(), "w1");
  pool_.Tick(At(12));
  EXPECT_THAT(States(), ElementsAre("w2 FAILED"));
  pool_.Report(ResultOf(grant, 0), "", At(13));
  EXPECT_EQ(States().back(), "w1 DONE");
}

TEST_F(DevicePoolTest, CursorsResumeAndAcknowledgedUpdatesAreForgotten) {
  for (int i = 1; i <= 3; ++i) Submit(Item(support::StrCat("w", i)));
  const v1::Grant grant = SyncA(At(1)).grants(0);
  for (int i = 0; i < 3; ++i) pool_.Report(ResultOf(grant, i), "", At(2));
  v1::PullResultsRequest request;
  request.set_consumer("tuner");
  request.set_max_updates(2);
  v1::PullResultsResponse page;
  ASSERT_TRUE(pool_.Pull(request, &page));
  ASSERT_EQ(page.updates_size(), 2);
  request.set_cursor(page.cursor());
  v1::PullResultsResponse rest;
  ASSERT_TRUE(pool_.Pull(request, &rest));
  EXPECT_EQ(rest.updates(0).work_item(), "w3");
  v1::AckResultsRequest ack;
  ack.set_consumer("tuner");
  ack.set_cursor(page.cursor());
  ASSERT_TRUE(pool_.Acknowledge(ack).ok());
  EXPECT_EQ(Updates().size(), 1u);
  // A cursor of a database that is gone: from the oldest update on, nothing is skipped.
  request.set_cursor("elsewhere-999");
  ASSERT_TRUE(pool_.Pull(request, &rest));
  EXPECT_EQ(rest.updates_size(), 1);
  ack.set_cursor("nonsense");
  EXPECT_EQ(support::Slug(pool_.Acknowledge(ack)), "cursor.parse.invalid");
}

// Memory does not grow with what was ever measured: what has ended is forgotten after its time, or
// sooner when there is too much of it, but never before its consumer has acknowledged it.
TEST_F(DevicePoolTest, WhatEndedAndWasAcknowledgedIsForgotten) {
  PoolOptions options;
  options.keep_closed_ns = 60'000'000'000;
  options.max_closed = 2;
  DevicePool pool(options, EmptySnapshot(), At(0));
  for (int i = 1; i <= 4; ++i) pool.Submit("tuner", Item(support::StrCat("w", i)), At(1));
  ASSERT_TRUE(pool.Sync(SyncOf("agents/a", {"devices/d"}, 1), "", At(1)).ok());
  v1::SyncResponse answer;
  pool.FillSyncResponse("agents/a", true, At(1), &answer);
  ASSERT_EQ(answer.grants(0).work_size(), 4);
  for (int i = 0; i < 4; ++i) pool.Report(ResultOf(answer.grants(0), i), "", At(2 + i));
  pool.Tick(At(1000));
  EXPECT_TRUE(pool.TakeChanges().forgotten.empty()) << "the consumer has not heard of any";
  v1::PullResultsRequest pull;
  pull.set_consumer("tuner");
  pull.set_max_updates(3);
  v1::PullResultsResponse page;
  ASSERT_TRUE(pool.Pull(pull, &page));
  v1::AckResultsRequest ack;
  ack.set_consumer("tuner");
  ack.set_cursor(page.cursor());
  ASSERT_TRUE(pool.Acknowledge(ack).ok());
  pool.Tick(At(10));  // too soon for any, but there are too many
  EXPECT_THAT(pool.TakeChanges().forgotten, ElementsAre("w1"));
  EXPECT_FALSE(pool.Knows("w1"));
  EXPECT_TRUE(pool.Knows("w2"));
  pool.Tick(At(62 + 2));
  EXPECT_THAT(pool.TakeChanges().forgotten, ElementsAre("w2", "w3"));
  EXPECT_TRUE(pool.Knows("w4"));
  EXPECT_EQ(pool.Report(ResultOf(answer.grants(0), 0), "", At(70)).disposition(),
            v1::DISPOSITION_REJECTED);
}

// A tuner that was restored from a backup asks for work that has ended: measured once, told again.
TEST_F(DevicePoolTest, EndedWorkThatIsAskedForAgainIsDeliveredAgainNotMeasured) {
  PoolOptions options;
  options.keep_closed_ns = 60'000'000'000;
  DevicePool pool(options, EmptySnapshot(), At(0));
  v1::WorkItem retried = Item("w2");
  retried.set_invalid_retries(1);
  pool.Submit("tuner", Item("w1"), At(1));
  pool.Submit("tuner", retried, At(1));
  pool.Submit("tuner", Item("w3"), At(1));
  std::map<std::string, std::vector<ResultRow>> stored;
  const auto report = [&](const v1::MeasurementResult& result, double at) {
    pool.Report(result, "", At(at));
    const Changes changes = pool.TakeChanges();
    for (const ResultRow& row : changes.results) stored[row.result.work_item()].push_back(row);
  };
  const auto sync = [&](int sequence, double at) {
    EXPECT_TRUE(pool.Sync(SyncOf("agents/a", {"devices/d"}, sequence), "", At(at)).ok());
    v1::SyncResponse answer;
    pool.FillSyncResponse("agents/a", true, At(at), &answer);
    return answer.grants(0);
  };
  const v1::Grant first = sync(1, 1);
  ASSERT_EQ(first.work_size(), 3);
  v1::MeasurementResult invalid = ResultOf(first, 1);
  invalid.set_valid(false);
  report(ResultOf(first, 0), 2);
  report(invalid, 2);
  v1::CancelWorkRequest cancel;
  cancel.set_consumer("tuner");
  cancel.add_work_items("w3");
  pool.Cancel(cancel, At(2));
  report(ResultOf(sync(2, 3), 0), 4);  // w2, the second attempt
  v1::PullResultsRequest pull;
  pull.set_consumer("tuner");
  v1::PullResultsResponse before;
  ASSERT_TRUE(pool.Pull(pull, &before));
  const auto names = [](const v1::PullResultsResponse& page) {
    std::vector<std::string> lines;
    for (const v1::WorkUpdate& update : page.updates()) {
      lines.push_back(support::StrCat(update.work_item(), " ",
                                      v1::WorkState_Name(update.state()).substr(11), " ",
                                      update.result().measurement_id()));
    }
    return lines;
  };
  EXPECT_THAT(names(before),
              ElementsAre("w1 DONE w1/1", "w2 QUEUED w2/1", "w3 CANCELLED ", "w2 DONE w2/2"));

  // Not acknowledged: it comes anyway.
  EXPECT_FALSE(pool.Submit("tuner", Item("w1"), At(5)).delivered_again());
  EXPECT_TRUE(pool.TakeAskedAgain().empty());
  v1::AckResultsRequest ack;
  ack.set_consumer("tuner");
  ack.set_cursor(before.cursor());
  ASSERT_TRUE(pool.Acknowledge(ack).ok());
  v1::PullResultsResponse nothing;
  EXPECT_FALSE(pool.Pull(pull, &nothing));
  EXPECT_EQ(pool.Submit("somebody", Item("w1"), At(5)).kind(), v1::SubmitOutcome::KIND_CONFLICT);

  for (const v1::WorkItem& item : {Item("w1"), retried, Item("w3")}) {
    const v1::SubmitOutcome outcome = pool.Submit("tuner", item, At(6));
    EXPECT_EQ(outcome.kind(), v1::SubmitOutcome::KIND_EXISTS);
    EXPECT_TRUE(outcome.delivered_again());
  }
  pool.TakeNews();
  for (const std::string& name : pool.TakeAskedAgain())
    pool.DeliverAgain(name, stored[name], At(6));
  EXPECT_EQ(pool.TakeNews().count("tuner"), 1u);
  v1::PullResultsResponse again;
  ASSERT_TRUE(pool.Pull(pull, &again));
  EXPECT_THAT(names(again),
              ElementsAre("w1 DONE w1/1", "w2 QUEUED w2/1", "w2 DONE w2/2", "w3 CANCELLED "));
  EXPECT_EQ(again.updates(0).spec_hash(), daemon::WorkSpecHash(Item("w1")));
  EXPECT_EQ(pool.stats(At(6)).queued, 0);
  EXPECT_TRUE(pool.CheckInvariants().ok());

  // It stays until it is acknowledged once more; what is forgotten is new work.
  pool.Tick(At(1000));
  EXPECT_TRUE(pool.TakeChanges().forgotten.empty());
  ack.set_cursor(again.cursor());
  ASSERT_TRUE(pool.Acknowledge(ack).ok());
  pool.Tick(At(1001));
  EXPECT_THAT(pool.TakeChanges().forgotten, ElementsAre("w1", "w3", "w2"));
  EXPECT_FALSE(pool.Submit("tuner", Item("w1"), At(1002)).delivered_again());
  EXPECT_EQ(pool.stats(At(1002)).queued, 1);
}

TEST_F(DevicePoolTest, OpenItemsPinTheirArtifacts) {
  Submit(Item("w1"));
  Submit(Item("w2"));
  const std::string hex = support::Sha256Hex("artifact of w2");
  EXPECT_TRUE(pool_.References(hex));
  const v1::Grant grant = SyncA(At(1)).grants(0);
  EXPECT_TRUE(pool_.References(hex));
  for (int i = 0; i < 2; ++i) pool_.Report(ResultOf(grant, i), "", At(2));
  EXPECT_FALSE(pool_.References(hex));
  EXPECT_TRUE(pool_.References(support::Sha256Hex("artifact of w1"))) << "the class's canary";
}

TEST_F(DevicePoolTest, NothingIsGrantedWhileTheOutboxIsFull) {
  PoolOptions options;
  options.max_outbox = 1;
  DevicePool pool(options, EmptySnapshot(), At(0));
  v1::WorkItem item = Item("w1");
  item.set_max_batch(1);
  pool.Submit("tuner", item, At(1));
  pool.Submit("tuner", Item("w2"), At(1));
  v1::SyncResponse answer;
  ASSERT_TRUE(pool.Sync(SyncOf("agents/a", {"devices/d"}, 1), "", At(1)).ok());
  pool.FillSyncResponse("agents/a", true, At(1), &answer);
  pool.Report(ResultOf(answer.grants(0), 0), "", At(2));
  EXPECT_FALSE(pool.FillSyncResponse("agents/a", true, At(2), &answer));
  v1::PullResultsRequest pull;
  pull.set_consumer("tuner");
  v1::PullResultsResponse page;
  ASSERT_TRUE(pool.Pull(pull, &page));
  v1::AckResultsRequest ack;
  ack.set_consumer("tuner");
  ack.set_cursor(page.cursor());
  ASSERT_TRUE(pool.Acknowledge(ack).ok());
  EXPECT_TRUE(pool.FillSyncResponse("agents/a", true, At(2), &answer));
}

TEST_F(DevicePoolTest, LoadCountsDriverCompilers) {
  v1::SyncRequest sync = SyncOf("agents/a", {"devices/d", "devices/e", "devices/f"}, ++sequence_);
  for (const int i : {1, 2}) {
    (*sync.mutable_devices(i)->mutable_attributes())["driver_compiler"].set_s("maker 1");
  }
  ASSERT_TRUE(pool_.Sync(sync, "", At(1)).ok());
  const v1::PoolLoad load = pool_.Load({}, At(1));
  EXPECT_THAT(load.driver_compilers(), ::testing::UnorderedElementsAre(
                                           ::testing::Pair("", 1), ::testing::Pair("maker 1", 2)));
}

TEST_F(DevicePoolTest, LoadCountsWhatCouldRun) {
  Submit(Item("w1"));
  v1::WorkItem phone = Item("w2");
  phone.set_pool("phone");
  Submit(phone);
  ASSERT_TRUE(
      pool_.Sync(SyncOf("agents/a", {"devices/d", "devices/e"}, ++sequence_), "", At(1)).ok());
  v1::GetPoolLoadRequest request;
  request.set_target("cpu,arch=x86_64");
  EXPECT_EQ(pool_.Load(request, At(1)).online(), 2);
  EXPECT_EQ(pool_.Load(request, At(1)).idle(), 2);
  EXPECT_EQ(pool_.Load(request, At(1)).queued(), 1);
  EXPECT_THAT(pool_.Load(request, At(1)).device_classes(), testing::ElementsAre("board"));
  v1::SyncResponse response;
  pool_.FillSyncResponse("agents/a", true, At(1), &response);
  EXPECT_EQ(pool_.Load(request, At(1)).queued(), 0);
  EXPECT_EQ(pool_.Load(request, At(1)).leased(), 1);
  EXPECT_EQ(pool_.Load(request, At(1)).idle(), 1);
  request.set_pool("phone");
  EXPECT_EQ(pool_.Load(request, At(1)).online(), 0);
}

// --- matching
// ----------------------------------------------------------------------------------------

std::string MatchSlug(const Requirement& requirement) {
  const absl::Status status = MatchDevice(requirement, Report("devices/d"));
  return status.ok() ? "ok" : support::Slug(status);
}

TEST(DeviceMatchTest, EachPartIsJudgedAndNamed) {
  EXPECT_EQ(MatchSlug({"", "", ""}), "ok");
  EXPECT_EQ(MatchSlug({"board", "cpu,arch=x86_64,cpu=znver4,threads=1", "site=lab"}), "ok");
  EXPECT_EQ(MatchSlug({"", "cpu,cpu=x86-64-v3", ""}), "ok");
  EXPECT_EQ(MatchSlug({"phone", "", ""}), "device.pool.mismatch");
  EXPECT_EQ(MatchSlug({"", "cuda", ""}), "device.target.kind");
  EXPECT_EQ(MatchSlug({"", "cpu,cpu=x86-64-v4", ""}), "device.target.cpu");
  EXPECT_EQ(MatchSlug({"", "cpu,threads=3", ""}), "device.target.threads");
  EXPECT_EQ(MatchSlug({"", "cpu,threads=many", ""}), "device.target.threads");
  EXPECT_EQ(MatchSlug({"", "cpu,inputs=4KiB", ""}), "device.target.inputs");
  v1::DeviceReport any = Report("devices/d");
  (*any.mutable_attributes())["inputs_accepts"].set_s("*");
  EXPECT_TRUE(MatchDevice({"", "cpu,inputs=4KiB", ""}, any).ok());
  // Keys of strangers make no slugs (found by fleet_fuzzer).
  EXPECT_EQ(MatchSlug({"", "cpu,a:rc=x86_64", ""}), "device.target.mismatch");
  EXPECT_EQ(MatchSlug({"", "cpu,A b=1", ""}), "device.target.mismatch");
  EXPECT_EQ(MatchSlug({"", "", "site=attic"}), "device.selector.mismatch");
  EXPECT_EQ(MatchSlug({"", "", "device=e"}), "device.selector.mismatch");
  EXPECT_EQ(MatchSlug({"", "", "device=devices/d"}), "ok");
}

TEST(DeviceMatchTest, MalformedRequirementsAreRefused) {
  EXPECT_TRUE(ValidateRequirement({"p", "cpu,threads=2", "a=b"}).ok());
  EXPECT_EQ(support::Slug(ValidateRequirement({"", "arch=x86_64", ""})), "target.parse.invalid");
  EXPECT_EQ(support::Slug(ValidateRequirement({"", "cpu,", ""})), "target.parse.invalid");
  EXPECT_EQ(support::Slug(ValidateRequirement({"", "cpu,arch", ""})), "target.parse.invalid");
  EXPECT_EQ(support::Slug(ValidateRequirement({"", "", "a"})), "selector.parse.invalid");
  EXPECT_EQ(support::Slug(ValidateRequirement({"", "", "=b"})), "selector.parse.invalid");
}

}  // namespace
}  // namespace tilewright::tracker::testing
