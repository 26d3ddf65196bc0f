// The agent's decisions, one behaviour each.
#include "device_agent/agent_core.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "deploy/daemon/fleet_contract.h"
#include "deploy/support/strings.h"

namespace tilewright::device_agent {
namespace {

constexpr char kDevice[] = "devices/d";

v1::DeviceReport DeviceOf(const std::string& name) {
  v1::DeviceReport device;
  device.set_device(name);
  device.set_key("cpu-test");
  device.set_fingerprint("f");
  (*device.mutable_attributes())["driver_compiler"].set_s("maker 1");
  device.set_health(v1::HEALTH_GOOD);
  return device;
}

void AddGrant(v1::SyncResponse* response, int64_t token, const std::vector<std::string>& items,
              const std::string& device = kDevice) {
  v1::Grant* grant = response->add_grants();
  grant->set_lease(support::StrCat("leases/d-", token));
  grant->set_device(device);
  grant->set_fencing_token(token);
  for (const std::string& item : items) {
    v1::Work* work = grant->add_work();
    work->set_work_item(item);
    work->set_attempt(1);
  }
}

class AgentCoreTest : public ::testing::Test {
 protected:
  AgentCoreTest() { Restart("boot-1", Ledger()); }

  void Restart(const std::string& boot, Ledger ledger) {
    core_ = std::make_unique<AgentCore>(AgentIdentity{"agents/a", "session", boot, "version"},
                                        std::move(ledger));
    core_->SetDevice(DeviceOf(kDevice));
  }

  void ApplyAll(const std::vector<Record>& records) {
    for (const Record& record : records) core_->Apply(record);
  }

  AgentCore::SyncActions Take(const v1::SyncResponse& response) {
    AgentCore::SyncActions actions = core_->OnSync(response);
    ApplyAll(actions.records);
    return actions;
  }

  void Grant(int64_t token, const std::vector<std::string>& items) {
    v1::SyncResponse response;
    AddGrant(&response, token, items);
    Take(response);
  }

  // Starts the next item; its measurement id, or "" when there is none.
  std::string StartNext() {
    const auto order = core_->Next(kDevice);
    if (!order.has_value()) return "";
    order_ = *order;
    core_->Apply(core_->StartedRecord(*order));
    return MeasurementId(order->work);
  }

  void FinishIt(v1::Outcome outcome = v1::OK) {
    v1::MeasurementResult result;
    result.set_outcome(outcome);
    core_->Apply(core_->ResultRecord(order_, result));
  }

  void Ack(const std::string& id, v1::Disposition disposition) {
    v1::ReportResultsResponse response;
    v1::Ack* ack = response.add_acks();
    ack->set_measurement_id(id);
    ack->set_disposition(disposition);
    ApplyAll(core_->OnAcks(response));
  }

  std::unique_ptr<AgentCore> core_;
  WorkOrder order_;
};

TEST_F(AgentCoreTest, AnIdleAgentOffersItsDeviceAndHoldsNothing) {
  const v1::SyncRequest request = core_->MakeSync(2500);
  EXPECT_EQ(request.agent(), "agents/a");
  EXPECT_EQ(request.protocol_revision(), 1);
  EXPECT_EQ(request.max_wait().seconds(), 2);
  EXPECT_EQ(request.max_wait().nanos(), 500'000'000);
  ASSERT_EQ(request.devices_size(), 1);
  EXPECT_EQ(request.devices(0).activity(), v1::ACTIVITY_IDLE);
  EXPECT_EQ(request.leases_size(), 0);
  EXPECT_LT(request.sequence(), core_->MakeSync(0).sequence());
}

TEST_F(AgentCoreTest, AGrantIsWorkedOffInOrderAndNamedUntilItsResultsAreTaken) {
  Grant(1, {"a", "b"});
  EXPECT_EQ(core_->MakeSync(0).leases(0).phase(), v1::LEASE_PHASE_RECEIVED);
  EXPECT_EQ(core_->MakeSync(0).devices(0).activity(), v1::ACTIVITY_PREPARING);
  EXPECT_EQ(StartNext(), "a/1");
  EXPECT_EQ(StartNext(), "") << "one at a time";
  v1::SyncRequest request = core_->MakeSync(0);
  EXPECT_EQ(request.devices(0).activity(), v1::ACTIVITY_MEASURING);
  EXPECT_EQ(request.leases(0).running_work_item(), "a");
  FinishIt();
  EXPECT_EQ(StartNext(), "b/1");
  FinishIt();
  request = core_->MakeSync(0);
  EXPECT_EQ(request.leases(0).phase(), v1::LEASE_PHASE_FINISHED);
  EXPECT_EQ(request.leases(0).done(), 2);
  EXPECT_EQ(request.leases(0).total(), 2);
  EXPECT_EQ(request.unacked_results(), 2);
  EXPECT_EQ(request.devices(0).activity(), v1::ACTIVITY_IDLE);
  Ack("a/1", v1::DISPOSITION_STORED);
  EXPECT_EQ(core_->MakeSync(0).leases_size(), 1);
  Ack("b/1", v1::DISPOSITION_ALREADY_STORED);
  EXPECT_EQ(core_->MakeSync(0).leases_size(), 0);
  EXPECT_TRUE(core_->quiet());
}

// A report that no tracker takes would be sent for ever.
TEST_F(AgentCoreTest, AReportIsNeverLargerThanAMessage) {
  Grant(7, {"a", "b", "c"});
  for (int i = 0; i < 3; ++i) {
    ASSERT_NE(StartNext(), "");
    v1::MeasurementResult result;
    result.set_outcome(v1::OK);
    result.mutable_samples()->Resize(i == 0 ? 600'000 : 200'000, 1000);
    core_->Apply(core_->ResultRecord(order_, result));
  }
  EXPECT_EQ(core_->Unacked(10).size(), 1u) << "one goes in any case";
  Ack("a/1", v1::DISPOSITION_STORED);
  EXPECT_EQ(core_->Unacked(10).size(), 2u);
}

TEST_F(AgentCoreTest, ResultsCarryWhoMeasuredWhat) {
  Grant(7, {"a"});
  StartNext();
  FinishIt(v1::WRONG_RESULT);
  const std::vector<v1::MeasurementResult> results = core_->Unacked(10);
  ASSERT_EQ(results.size(), 1u);
  EXPECT_EQ(results[0].measurement_id(), "a/1");
  EXPECT_EQ(results[0].work_item(), "a");
  EXPECT_EQ(results[0].attempt(), 1);
  EXPECT_EQ(results[0].lease(), "leases/d-7");
  EXPECT_EQ(results[0].fencing_token(), 7);
  EXPECT_EQ(results[0].device(), kDevice);
  EXPECT_EQ(results[0].device_class(), "cpu-test");
  EXPECT_EQ(results[0].device_fingerprint(), "f");
  EXPECT_EQ(results[0].driver_compiler(), "maker 1");
  EXPECT_EQ(results[0].agent(), "agents/a");
  EXPECT_EQ(results[0].boot_id(), "boot-1");
}

TEST_F(AgentCoreTest, EveryDispositionButRetryLaterForgets) {
  Grant(1, {"a", "b", "c", "d", "e"});
  for (int i = 0; i < 5; ++i) {
    StartNext();
    FinishIt();
  }
  Ack("a/1", v1::DISPOSITION_RETRY_LATER);
  Ack("b/1", v1::DISPOSITION_UNSPECIFIED);
  EXPECT_EQ(core_->unacked_count(), 5u);
  Ack("a/1", v1::DISPOSITION_STORED);
  Ack("b/1", v1::DISPOSITION_ALREADY_STORED);
  Ack("c/1", v1::DISPOSITION_SUPERSEDED);
  Ack("d/1", v1::DISPOSITION_REJECTED);
  EXPECT_EQ(core_->unacked_count(), 1u);
  EXPECT_EQ(core_->Unacked(10)[0].measurement_id(), "e/1");
}

TEST_F(AgentCoreTest, RepeatedAndOutdatedGrantsAreRefused) {
  Grant(5, {"a"});
  Grant(5, {"a"});
  EXPECT_EQ(core_->MakeSync(0).leases_size(), 1);
  v1::SyncResponse old;
  AddGrant(&old, 4, {"stale"});
  const AgentCore::SyncActions actions = Take(old);
  EXPECT_TRUE(actions.records.empty());
  EXPECT_EQ(actions.warnings.size(), 1u);
  StartNext();
  FinishIt();
  Ack("a/1", v1::DISPOSITION_STORED);
  Grant(5, {"a"});  // the lease has ended here; its repetition must not run again
  EXPECT_EQ(StartNext(), "");
  v1::SyncResponse strange;
  AddGrant(&strange, 9, {"x"}, "devices/of-somebody-else");
  EXPECT_TRUE(Take(strange).records.empty());
}

TEST_F(AgentCoreTest, ARevokedItemIsNotStarted) {
  Grant(1, {"a", "b", "c"});
  v1::SyncResponse response;
  v1::Revoke* revoke = response.add_revokes();
  revoke->set_lease("leases/d-1");
  revoke->add_work_items("b");
  const auto before = core_->Next(kDevice);
  Take(response);
  EXPECT_TRUE(core_->StillWanted(*before));
  EXPECT_EQ(StartNext(), "a/1");
  FinishIt();
  EXPECT_EQ(StartNext(), "c/1");
}

TEST_F(AgentCoreTest, ARevokeKillsWhatRunsOnlyWhenItSaysSo) {
  Grant(1, {"a", "b"});
  StartNext();
  v1::SyncResponse response;
  v1::Revoke* revoke = response.add_revokes();
  revoke->set_lease("leases/d-1");
  EXPECT_TRUE(Take(response).kill.empty());
  response.mutable_revokes(0)->set_kill_now(true);
  const std::vector<std::string> kill = Take(response).kill;
  ASSERT_EQ(kill.size(), 1u);
  EXPECT_EQ(kill[0], kDevice);
  FinishIt(v1::CANCELLED);
  EXPECT_EQ(StartNext(), "") << "the whole lease was revoked";
}

TEST_F(AgentCoreTest, AnUnknownLeaseEndsWithWhatRuns) {
  Grant(1, {"a", "b"});
  StartNext();
  v1::SyncResponse response;
  response.add_unknown_leases("leases/d-1");
  Take(response);
  FinishIt();
  EXPECT_EQ(StartNext(), "");
  EXPECT_EQ(core_->unacked_count(), 1u) << "its result is reported all the same";
  Ack("a/1", v1::DISPOSITION_SUPERSEDED);
  EXPECT_EQ(core_->MakeSync(0).leases_size(), 0);
}

TEST_F(AgentCoreTest, AfterARestartTheLeaseGoesOnAndTheInterruptedItemIsLost) {
  Grant(1, {"a", "b", "c"});
  StartNext();
  FinishIt();
  StartNext();
  Restart("boot-1", core_->ledger());
  ApplyAll(core_->Recover());
  EXPECT_EQ(core_->unacked_count(), 2u);
  const v1::MeasurementResult lost = core_->Unacked(10)[1];
  EXPECT_EQ(lost.measurement_id(), "b/1");
  EXPECT_EQ(lost.outcome(), v1::DEVICE_LOST);
  EXPECT_EQ(lost.error_class(), "AGENT");
  EXPECT_EQ(lost.phase(), daemon::kAgentEndedPhase) << "a suspect: it ran when the agent died";
  EXPECT_EQ(core_->MakeSync(0).leases_size(), 1);
  EXPECT_EQ(StartNext(), "c/1");
  EXPECT_TRUE(core_->Recover().size() == 1) << "the one that runs now";
}

TEST_F(AgentCoreTest, AHostThatWentDownCountsAgainstTheCandidateThatRan) {
  Grant(1, {"a"});
  StartNext();
  Restart("boot-2", core_->ledger());
  ApplyAll(core_->Recover());
  EXPECT_EQ(core_->Unacked(1)[0].outcome(), v1::DEVICE_LOST);
  EXPECT_NE(core_->Unacked(1)[0].phase(), "");
}

// So that a second death of the agent has one suspect.
TEST_F(AgentCoreTest, SuspectsOfTwoDevicesRunOneAfterTheOther) {
  const std::string other = "devices/other";
  core_->SetDevice(DeviceOf(other));
  v1::SyncResponse response;
  AddGrant(&response, 1, {"a", "b"});
  v1::Grant* second = response.add_grants();
  *second = response.grants(0);
  second->set_lease("leases/other-1");
  second->set_device(other);
  second->mutable_work(0)->set_work_item("c");
  second->mutable_work(1)->set_work_item("d");
  response.mutable_grants(0)->mutable_work(0)->set_suspect(true);
  second->mutable_work(0)->set_suspect(true);
  Take(response);

  const auto first = core_->Next(kDevice);
  ASSERT_TRUE(first.has_value());
  core_->Hold(*first);
  ASSERT_TRUE(core_->Next(other).has_value());
  EXPECT_EQ(core_->Next(other)->work.work_item(), "d") << "before the first one's start is known";
  order_ = *first;
  core_->Apply(core_->StartedRecord(*first));
  EXPECT_EQ(core_->Next(other)->work.work_item(), "d") << "while it runs";
  FinishIt();
  core_->LetGo(kDevice);
  EXPECT_EQ(core_->Next(other)->work.work_item(), "c") << "its turn";
}

TEST_F(AgentCoreTest, WorkOfADeviceThatIsNoLongerOfferedIsGivenBack) {
  Grant(1, {"a"});
  core_ = std::make_unique<AgentCore>(AgentIdentity{"agents/a", "s", "boot-1", "v"},
                                      Ledger(core_->ledger()));
  core_->SetDevice(DeviceOf("devices/other"));
  ApplyAll(core_->Recover());
  EXPECT_EQ(core_->MakeSync(0).leases_size(), 0);
}

TEST_F(AgentCoreTest, ADrainFinishesWhatRunsAndGivesTheRestBack) {
  Grant(1, {"a", "b"});
  StartNext();
  const auto waiting = core_->Next(kDevice);
  ApplyAll(core_->Drain());
  EXPECT_FALSE(waiting.has_value());
  EXPECT_TRUE(core_->MakeSync(0).draining());
  EXPECT_FALSE(core_->quiet());
  FinishIt();
  EXPECT_EQ(StartNext(), "");
  Grant(2, {"c"});
  EXPECT_EQ(StartNext(), "") << "nothing new";
  Ack("a/1", v1::DISPOSITION_STORED);
  EXPECT_TRUE(core_->quiet());
  EXPECT_EQ(core_->MakeSync(0).leases_size(), 0);
}

// A drop that was decided while the item waited and comes to be after it was started.
TEST_F(AgentCoreTest, AStartAndARevokeInAnyOrderAgree) {
  Grant(1, {"a"});
  v1::SyncResponse response;
  response.add_revokes()->set_lease("leases/d-1");
  response.mutable_revokes(0)->set_kill_now(true);
  const auto order = core_->Next(kDevice);
  const AgentCore::SyncActions actions = core_->OnSync(response);
  core_->Apply(core_->StartedRecord(*order));
  ApplyAll(actions.records);
  EXPECT_TRUE(core_->busy(kDevice));
  EXPECT_EQ(core_->OnSync(response).kill.size(), 1u) << "looking again finds it";

  Grant(2, {"b"});
  FinishIt();
  v1::SyncResponse second;
  second.add_revokes()->set_lease("leases/d-2");
  Take(response);
  Restart("boot-1", Ledger());
  Grant(3, {"c"});
  const auto other = core_->Next(kDevice);
  v1::SyncResponse third;
  third.add_revokes()->set_lease("leases/d-3");
  Take(third);
  core_->Apply(core_->StartedRecord(*other));
  EXPECT_FALSE(core_->busy(kDevice)) << "what was dropped does not start";
}

}  // namespace
}  // namespace tilewright::device_agent
