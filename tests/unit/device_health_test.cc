// Is the device broken, or are the candidates? The drift of baselines on recorded noise, the
// verdict from results and canaries, and both in the tracker's state machine.
// Promises R12 and R13 of tests/README.md.
#include "tracker/device_health.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <string>
#include <vector>

#include "deploy/support/file.h"
#include "tests/unit/pool_fixture.h"
#include "tracker/device_pool.h"
#include "tracker/drift_detector.h"

namespace tilewright::tracker::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// --- drift

std::vector<double> RecordedNoise(const std::string& name = "baseline_noise.txt") {
  const auto text = support::ReadFile(TILEWRIGHT_SOURCE_DIR "/tests/unit/" + name, 1 << 20);
  TW_CHECK(text.ok()) << text.status();
  std::vector<double> values;
  for (const std::string& line : support::Split(*text, '\n')) {
    if (line.empty() || line[0] == '#') continue;
    for (const std::string& word : support::Split(line, ' ')) {
      values.push_back(support::ParseDouble(word).value());
    }
  }
  return values;
}

constexpr size_t kBatch = 16;

std::vector<double> BatchAt(const std::vector<double>& noise, size_t index, double factor = 1) {
  std::vector<double> batch;
  for (size_t i = 0; i < kBatch; ++i) {
    batch.push_back(noise[(index * kBatch + i) % noise.size()] * factor);
  }
  return batch;
}

struct DriftCounts {
  int judged = 0;
  int alarms = 0;
  int injected = 0;
  int found = 0;
};

// From every place of the recording, in both directions, so that what became quicker comes as a
// rise, too: noise alone, and noise that is 5 % slower from one batch on.
DriftCounts Replay(std::vector<double> noise) {
  DriftCounts counts;
  const size_t batches = noise.size() / kBatch;
  for (int direction = 0; direction < 2; ++direction) {
    for (size_t start = 0; start + 9 < batches; start += 3) {
      DriftDetector detector;
      for (size_t i = start; i < batches; ++i) {
        ++counts.judged;
        counts.alarms += detector.Add(BatchAt(noise, i)) == Drift::kSlower ? 1 : 0;
      }
    }
    for (size_t at = 10; at + 2 < batches; ++at) {
      DriftDetector detector;
      for (size_t i = 0; i < at; ++i) detector.Add(BatchAt(noise, i));
      ++counts.injected;
      const Drift one = detector.Add(BatchAt(noise, at, 1.05));
      const Drift two = detector.Add(BatchAt(noise, at + 1, 1.05));
      counts.found += one == Drift::kSlower || two == Drift::kSlower ? 1 : 0;
    }
    std::reverse(noise.begin(), noise.end());
  }
  std::printf("5 %% slower: found within two batches %d of %d; false alarms %d of %d batches\n",
              counts.found, counts.injected, counts.alarms, counts.judged);
  return counts;
}

TEST(DriftDetectorTest, FiveOfAHundredAreFoundInTwoBatchesAndNoiseIsNot) {
  const DriftCounts counts = Replay(RecordedNoise());
  EXPECT_GT(counts.injected, 100);
  EXPECT_EQ(counts.found, counts.injected);
  EXPECT_LT(counts.alarms, counts.judged / 100);
}

TEST(DriftDetectorTest, AnOverloadedHostHidesLittleAndRaisesNoAlarms) {
  const DriftCounts counts = Replay(RecordedNoise("baseline_noise_busy.txt"));
  EXPECT_GT(counts.found, counts.injected * 95 / 100);
  EXPECT_LT(counts.alarms, counts.judged / 100);
}

TEST(DriftDetectorTest, AQuickerDeviceIsLearnedAnew) {
  const std::vector<double> noise = RecordedNoise();
  DriftDetector detector;
  size_t at = 0;
  for (; at < 20; ++at) detector.Add(BatchAt(noise, at));
  const double before = detector.reference();
  Drift last = Drift::kNone;
  for (int i = 0; i < 4; ++i) last = detector.Add(BatchAt(noise, at++, 0.8));
  EXPECT_EQ(last, Drift::kFaster);
  EXPECT_EQ(detector.reference(), 0) << "not known yet";
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(detector.Add(BatchAt(noise, at++, 0.8)), Drift::kNone);
  }
  EXPECT_NEAR(detector.reference() / before, 0.8, 0.04);
}

TEST(DriftDetectorTest, ValuesThatAreNoTimesAreLeftOut) {
  DriftDetector detector;
  EXPECT_EQ(detector.Add({0, -1, std::nan(""), INFINITY}), Drift::kNone);
  EXPECT_EQ(detector.reference(), 0);
  EXPECT_FALSE(detector.Slower({}));
}

// --- the verdict

v1::MeasurementResult Result(const std::string& item, v1::Outcome outcome, bool valid = true) {
  v1::MeasurementResult result;
  result.set_work_item(item);
  result.set_outcome(outcome);
  result.set_valid(valid);
  result.set_median(1000);
  return result;
}

class DeviceHealthTest : public ::testing::Test {
 protected:
  // `count` failures of different candidates; whether the last one changed the verdict.
  bool Fail(int count, v1::Outcome outcome = v1::RUN_CRASH) {
    bool changed = false;
    for (int i = 0; i < count; ++i) {
      changed = health_.OnResult(Result(support::StrCat("w", next_++), outcome), &row_);
    }
    return changed;
  }

  DeviceHealth health_;
  HealthRow row_;
  int next_ = 0;
};

TEST_F(DeviceHealthTest, FiveFailuresInARowMakeASuspectAndTheCanaryDecides) {
  EXPECT_FALSE(Fail(4));
  EXPECT_TRUE(Fail(1));
  EXPECT_EQ(row_.verdict, Verdict::kSuspect);
  EXPECT_EQ(row_.reason, "device.results.failing");
  EXPECT_TRUE(health_.OnCanary(Result("canary", v1::WRONG_RESULT), 1000, &row_));
  EXPECT_EQ(row_.verdict, Verdict::kQuarantined);
  EXPECT_EQ(row_.reason, "device.canary.failed");
  EXPECT_THAT(row_.detail, HasSubstr("WRONG_RESULT"));
}

TEST_F(DeviceHealthTest, ACanaryThatPassesBlamesTheCandidatesAndMoreOfThemAreBelieved) {
  Fail(5);
  EXPECT_TRUE(health_.OnCanary(Result("canary", v1::OK), 1000, &row_));
  EXPECT_EQ(row_, HealthRow());
  EXPECT_FALSE(Fail(9));
  EXPECT_TRUE(Fail(1)) << "twice as many as before";
  health_.OnCanary(Result("canary", v1::OK), 1000, &row_);
  health_.OnResult(Result("good", v1::OK), &row_);
  EXPECT_FALSE(Fail(4));
  EXPECT_TRUE(Fail(1)) << "as at first, after one that worked";
}

TEST_F(DeviceHealthTest, OneCandidateAloneNeverMakesASuspect) {
  for (int i = 0; i < 50; ++i) {
    EXPECT_FALSE(health_.OnResult(Result("poison", v1::DEVICE_LOST), &row_)) << i;
    EXPECT_FALSE(health_.OnResult(Result("other poison", v1::RUN_CRASH), &row_)) << i;
  }
}

TEST_F(DeviceHealthTest, LostDevicesAndInvalidMeasurementsAreFlaky) {
  health_.OnResult(Result("a", v1::OK), &row_);
  EXPECT_FALSE(Fail(2, v1::DEVICE_LOST));
  health_.OnResult(Result("b", v1::OK), &row_);
  EXPECT_TRUE(Fail(1, v1::DEVICE_LOST));
  EXPECT_EQ(row_.reason, "device.results.lost");
  EXPECT_TRUE(health_.OnNoCanary(&row_)) << "proven without a canary";
  EXPECT_EQ(row_.verdict, Verdict::kQuarantined);

  DeviceHealth other;
  HealthRow row;
  bool changed = false;
  for (int i = 0; i < 9 && !changed; ++i) {
    changed = other.OnResult(Result(support::StrCat("n", i), v1::OK, i % 3 == 0), &row);
  }
  EXPECT_EQ(row.reason, "device.results.invalid");
}

TEST_F(DeviceHealthTest, WithoutACanaryFailingCandidatesAreNotHeldAgainstTheDevice) {
  Fail(5);
  EXPECT_TRUE(health_.OnNoCanary(&row_));
  EXPECT_EQ(row_.verdict, Verdict::kGood);
  EXPECT_FALSE(Fail(9));
  EXPECT_TRUE(Fail(1));
}

TEST_F(DeviceHealthTest, ASlowBaselineMakesASuspectAndItsCanaryMustBeQuickAgain) {
  const std::vector<double> usual(kBatch, 1000.0), slow(kBatch, 1050.0);
  for (int i = 0; i < 12; ++i) EXPECT_FALSE(health_.OnBatch(usual, &row_));
  EXPECT_FALSE(health_.OnBatch(slow, &row_));
  EXPECT_TRUE(health_.OnBatch(slow, &row_));
  EXPECT_EQ(row_.reason, "device.baseline.slow");
  EXPECT_THAT(row_.detail, HasSubstr("5 % slower"));
  v1::MeasurementResult canary = Result("canary", v1::OK);
  canary.set_baseline_before(1049);
  canary.set_baseline_after(1052);
  EXPECT_TRUE(health_.OnCanary(canary, 1000, &row_));
  EXPECT_EQ(row_.verdict, Verdict::kQuarantined);
  EXPECT_EQ(row_.reason, "device.baseline.slow");
  EXPECT_EQ(health_.ProbeAfterSeconds(row_), 2);
  canary.set_baseline_before(1001);
  EXPECT_TRUE(health_.OnCanary(canary, 1000, &row_));
  EXPECT_EQ(row_.verdict, Verdict::kGood);
}

// A busy host makes kernels slow for seconds. A job whose only device waited minutes for its next
// probe was given up.
TEST_F(DeviceHealthTest, ACanaryThatIsOnlySlowIsMeasuredAgainAfterSeconds) {
  Fail(5);
  v1::MeasurementResult canary = Result("canary", v1::OK);
  canary.set_median(1600);
  EXPECT_TRUE(health_.OnCanary(canary, 1000, &row_));
  EXPECT_EQ(row_.verdict, Verdict::kQuarantined);
  EXPECT_EQ(row_.reason, "device.canary.slow");
  EXPECT_THAT(row_.detail, HasSubstr("took 1600 ns, elsewhere 1000 ns"));
  EXPECT_EQ(health_.ProbeAfterSeconds(row_), 2);
  EXPECT_TRUE(health_.OnCanary(canary, 1000, &row_));
  EXPECT_EQ(health_.ProbeAfterSeconds(row_), 5);
  EXPECT_TRUE(health_.OnCanary(Result("canary", v1::RUN_CRASH), 1000, &row_));
  EXPECT_EQ(row_.reason, "device.canary.failed");
  EXPECT_GE(health_.ProbeAfterSeconds(row_), 60) << "broken, not slow";
  canary.set_median(1400);
  EXPECT_TRUE(health_.OnCanary(canary, 1000, &row_));
  EXPECT_EQ(row_.verdict, Verdict::kGood);
}

// The only device of a small fleet runs on a host whose clock went down by 5 %: a job stood still
// for minutes on it.
TEST_F(DeviceHealthTest, ADeviceThatStaysALittleSlowerIsUsedAgainWithinAMinute) {
  const auto slow_down_to = [this](double ns) {
    health_.Renew(&row_);
    for (int i = 0; i < 12; ++i) health_.OnBatch(std::vector<double>(kBatch, 1000.0), &row_);
    for (int i = 0; i < 2; ++i) health_.OnBatch(std::vector<double>(kBatch, ns), &row_);
    EXPECT_EQ(row_.verdict, Verdict::kSuspect);
    v1::MeasurementResult canary = Result("canary", v1::OK);
    canary.set_baseline_before(ns);
    canary.set_baseline_after(ns);
    int64_t waited_s = 0;
    for (int probe = 0; probe < 6 && row_.verdict != Verdict::kGood; ++probe) {
      EXPECT_TRUE(health_.OnCanary(canary, 1000, &row_));
      if (row_.verdict != Verdict::kGood) waited_s += health_.ProbeAfterSeconds(row_);
    }
    return waited_s;
  };
  EXPECT_EQ(slow_down_to(1050), 2 + 5 + 10 + 20);
  EXPECT_EQ(row_.verdict, Verdict::kGood);
  EXPECT_EQ(health_.drift().reference(), 0) << "learned anew";
  slow_down_to(1200);
  EXPECT_EQ(row_.verdict, Verdict::kQuarantined) << "another machine than before";
}

TEST_F(DeviceHealthTest, ProbesGrowApartAndATrialThatFailsGoesOnWithThem) {
  Fail(3, v1::DEVICE_LOST);
  health_.OnNoCanary(&row_);
  EXPECT_EQ(row_.probes, 0);
  std::vector<int64_t> waits;
  for (HealthRow row = row_; row.probes < 5; ++row.probes) {
    waits.push_back(health_.ProbeAfterSeconds(row));
  }
  EXPECT_THAT(waits, ElementsAre(60, 300, 900, 3600, 3600));
  for (int probe = 1; probe <= 3; ++probe) {
    health_.OnTrial(&row_);
    EXPECT_EQ(row_.verdict, Verdict::kGood);
    EXPECT_TRUE(Fail(1, v1::DEVICE_LOST)) << "one is enough now";
    EXPECT_EQ(row_.verdict, Verdict::kQuarantined);
    EXPECT_EQ(row_.probes, probe);
  }
  health_.OnTrial(&row_);
  health_.OnResult(Result("good", v1::OK), &row_);
  EXPECT_TRUE(health_.OnBatch({}, &row_));
  EXPECT_EQ(row_, HealthRow());
}

// --- in the pool

class CanaryPoolTest : public ::testing::Test {
 protected:
  v1::SyncResponse Sync(const std::string& device, double at_s,
                        const std::vector<v1::Grant>& held = {}) {
    v1::SyncRequest request = SyncOf("agents/" + device, {"devices/" + device}, ++sequence_);
    for (const v1::Grant& grant : held) {
      v1::LeaseReport* lease = request.add_leases();
      lease->set_lease(grant.lease());
      lease->set_fencing_token(grant.fencing_token());
    }
    EXPECT_TRUE(pool_.Sync(request, "10.0.0.2", At(at_s)).ok());
    v1::SyncResponse response;
    pool_.FillSyncResponse("agents/" + device, true, At(at_s), &response);
    const absl::Status rules = pool_.CheckInvariants();
    EXPECT_TRUE(rules.ok()) << rules;
    return response;
  }

  void SubmitSome(int count) {
    for (int i = 0; i < count; ++i) {
      v1::WorkItem item = Item(support::StrCat("w", ++items_));
      item.set_max_batch(1);
      pool_.Submit("tuner", item, At(1));
    }
  }

  // One grant measured with that outcome; the name of the work item, empty without a grant.
  std::string Measure(const std::string& device, double at_s, v1::Outcome outcome) {
    const v1::SyncResponse answer = Sync(device, at_s);
    if (answer.grants_size() == 0) return "";
    v1::MeasurementResult result = ResultOf(answer.grants(0), 0, outcome);
    if (outcome == v1::DEVICE_LOST) result.set_phase("timed");
    pool_.Report(result, "", At(at_s));
    return answer.grants(0).work(0).work_item();
  }

  v1::Device Get(const std::string& device, double at_s) {
    return pool_.GetDevice("devices/" + device, At(at_s)).value();
  }

  DevicePool pool_{PoolOptions(), EmptySnapshot(), At(0)};
  uint64_t sequence_ = 0;
  int items_ = 0;
};

TEST_F(CanaryPoolTest, ABrokenDeviceIsFoundByACanaryShownAndProbedUntilItPasses) {
  SubmitSome(40);
  EXPECT_EQ(Measure("good", 1, v1::OK), "w1");
  for (int i = 0; i < 5; ++i) EXPECT_NE(Measure("bad", 2 + i, v1::RUN_CRASH), "");
  EXPECT_EQ(Get("bad", 7).health(), v1::HEALTH_SUSPECT);
  const std::string canary = Measure("bad", 8, v1::RUN_CRASH);
  EXPECT_THAT(canary, HasSubstr("canaries/test/bad-1"));
  EXPECT_TRUE(pool_.References(support::Sha256Hex("artifact of w1"))) << "the canary is kept";
  const v1::Device broken = Get("bad", 9);
  EXPECT_EQ(broken.health(), v1::HEALTH_QUARANTINED);
  EXPECT_EQ(broken.quarantine().reason(), "device.canary.failed");
  EXPECT_EQ(broken.quarantine().next_probe().seconds(), 59);
  EXPECT_EQ(broken.conditions(0).reason(), "device.canary.failed");
  EXPECT_THAT(broken.conditions(0).message(), HasSubstr("known to work"));
  EXPECT_EQ(Measure("bad", 10, v1::OK), "") << "nothing before the probe";
  EXPECT_NE(Measure("good", 10, v1::OK), "") << "the other goes on";
  Sync("bad", 68.5);
  pool_.Tick(At(69));
  EXPECT_THAT(Measure("bad", 70, v1::WRONG_RESULT), HasSubstr("bad-2"));
  Sync("bad", 199);
  pool_.Tick(At(200));
  EXPECT_EQ(Measure("bad", 201, v1::OK), "") << "the second probe waits longer";
  Sync("bad", 370.5);
  pool_.Tick(At(371));
  EXPECT_THAT(Measure("bad", 372, v1::OK), HasSubstr("bad-3"));
  EXPECT_EQ(Get("bad", 373).health(), v1::HEALTH_GOOD);
  EXPECT_NE(Measure("bad", 374, v1::OK), "");
  EXPECT_EQ(pool_.stats(At(374)).canaries_failed, 2);
  EXPECT_EQ(pool_.stats(At(374)).canaries_passed, 1);
  v1::PullResultsRequest pull;
  pull.set_consumer("tracker/canaries");
  v1::PullResultsResponse page;
  EXPECT_FALSE(pool_.Pull(pull, &page)) << "nobody is told of canaries";
}

TEST_F(CanaryPoolTest, ABadJobCostsACanaryNowAndThenAndNoDevice) {
  SubmitSome(60);
  Measure("d", 1, v1::OK);
  int canaries = 0;
  for (int i = 0; i < 58; ++i) {
    const v1::SyncResponse answer = Sync("d", 2 + i);
    ASSERT_EQ(answer.grants_size(), 1) << i;
    const bool canary = answer.grants(0).work(0).work_item().starts_with("canaries/");
    canaries += canary ? 1 : 0;
    pool_.Report(ResultOf(answer.grants(0), 0, canary ? v1::OK : v1::RUN_TIMEOUT), "", At(2 + i));
  }
  EXPECT_EQ(canaries, 3) << "after 5, 10 and 20 failures";
  EXPECT_EQ(Get("d", 60).health(), v1::HEALTH_GOOD);
}

TEST_F(CanaryPoolTest, TheRestOfASuspectsBatchIsMeasuredElsewhere) {
  SubmitSome(1);
  Measure("good", 1, v1::OK);
  for (int i = 0; i < 8; ++i) pool_.Submit("tuner", Item(support::StrCat("b", i)), At(2));
  const v1::Grant grant = Sync("bad", 2).grants(0);
  ASSERT_EQ(grant.work_size(), 8);
  for (int i = 0; i < 5; ++i) pool_.Report(ResultOf(grant, i, v1::RUN_CRASH), "", At(3));
  EXPECT_EQ(pool_.stats(At(3)).queued, 4) << "three and the canary";
  const v1::SyncResponse answer = Sync("bad", 4, {grant});
  ASSERT_EQ(answer.revokes_size(), 1);
  EXPECT_EQ(answer.revokes(0).reason(), "lease.revoked.suspect");
  EXPECT_EQ(Sync("good", 5).grants(0).work_size(), 3);
}

TEST_F(CanaryPoolTest, QuarantineSurvivesARestartAndUndrainEndsIt) {
  SubmitSome(40);
  Measure("bad", 1, v1::OK);
  for (int i = 0; i < 5; ++i) Measure("bad", 2 + i, v1::RUN_CRASH);
  Measure("bad", 8, v1::RUN_CRASH);
  const Changes changes = pool_.TakeChanges();
  Snapshot snapshot = EmptySnapshot();
  snapshot.next_work_seq = 1000;
  for (const DeviceRow& row : changes.devices) snapshot.devices.push_back(row);
  for (const WorkRow& row : changes.items) snapshot.items.push_back(row);
  DevicePool again(PoolOptions(), snapshot, At(20));
  ASSERT_TRUE(again.Sync(SyncOf("agents/bad", {"devices/bad"}, 1), "", At(20)).ok());
  v1::SyncResponse answer;
  again.FillSyncResponse("agents/bad", true, At(20), &answer);
  EXPECT_EQ(answer.grants_size(), 0);
  EXPECT_EQ(again.GetDevice("devices/bad", At(20))->health(), v1::HEALTH_QUARANTINED);
  EXPECT_EQ(again.GetDevice("devices/bad", At(20))->quarantine().next_probe().seconds(), 48);
  v1::SetDeviceAdminStateRequest undrain;
  undrain.set_name("devices/bad");
  undrain.set_admin_state(v1::ADMIN_STATE_ENABLED);
  ASSERT_TRUE(again.SetAdminState(undrain, At(21)).ok());
  again.FillSyncResponse("agents/bad", true, At(21), &answer);
  EXPECT_EQ(answer.grants_size(), 1);
  EXPECT_TRUE(again.CheckInvariants().ok());
}

}  // namespace
}  // namespace tilewright::tracker::testing
