// Jobs on devices whose equal runs give equal values: two jobs of one seed write the same log,
// whatever ends first. The world hands out every answer in a random order of its own.
#include <gtest/gtest.h>

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "deploy/support/status.h"
#include "deploy/support/strings.h"
#include "tests/support/test_seed.h"
#include "tests/unit/job_world.h"
#include "tuner_server/jobs/trial_waves.h"

namespace tilewright::jobs {
namespace {

using support::StrCat;
using tests::Faults;
using tests::JobWorld;
using tests::kManySteps;

constexpr int64_t kTrials = 60;
constexpr int kWorlds = 12;

// What must be equal of two jobs: what was chosen, in which order, by what knowledge, and what came
// of it.
std::string Transcript(JobWorld* world) {
  std::string text;
  const auto trials = world->log().ListTrials({.job = "job1", .limit = 1000});
  TW_CHECK(trials.ok());
  for (const log::TrialRow& trial : *trials) {
    text += StrCat(trial.number, " ", trial.task, " ", trial.batch, " ", trial.steps, " ",
                   trial.median, "\n");
  }
  for (const std::string& measurement : world->told) text += measurement + "\n";
  return text;
}

std::string RunJob(const std::string& device_class, uint64_t seed, const Faults& faults,
                   bool late_device) {
  JobWorld world(seed, faults);
  world.device_class = device_class;
  world.devices = late_device ? 0 : 1;
  world.tracker_measures = !late_device;
  world.CreateJob(kTrials);
  world.StartCore();
  for (int step = 0; late_device && step < 300; ++step) world.Step();
  world.devices = 1;
  world.tracker_measures = true;
  world.RunToEnd(kManySteps);
  world.CheckEnded();
  EXPECT_EQ(world.job().state, log::JobState::kSucceeded) << world.job().state_reason;
  return Transcript(&world);
}

std::set<std::string> Transcripts(const std::string& device_class, const Faults& faults) {
  std::set<std::string> found;
  const uint64_t seed = tests::TestSeed(900);
  for (uint64_t i = 0; i < kWorlds; ++i) {
    found.insert(RunJob(device_class, seed + i, faults, i % 3 == 2));
  }
  return found;
}

TEST(JobWaves, JobsOfOneSeedWriteTheSameLogWhereEqualRunsGiveEqualValues) {
  EXPECT_EQ(Transcripts("board@virtual_cycles", {}).size(), 1U);
  EXPECT_GT(Transcripts("board", {}).size(), 1U) << "the world is not random enough to tell";
}

TEST(JobWaves, ATunerThatIsKilledMeanwhileWritesTheSameLog) {
  Faults faults;
  faults.core_restarts = 0.01;
  std::set<std::string> found = Transcripts("board@virtual_cycles", faults);
  found.merge(Transcripts("board@virtual_cycles", {}));
  EXPECT_EQ(found.size(), 1U);
}

EndedTrial Ended(int64_t number, const std::string& batch, const std::string& device_class) {
  EndedTrial ended;
  ended.trial.number = number;
  ended.trial.batch = batch;
  ended.trial.ended_us = 1000 - number;
  ended.record.emplace().key.device_class = device_class;
  return ended;
}

std::string Numbers(const std::vector<EndedTrial>& ended) {
  std::string text;
  for (const EndedTrial& one : ended) text += StrCat(one.trial.number, " ");
  return text;
}

TEST(TrialWaves, AWaveCountsWhenItIsCompleteByItsNumbers) {
  TrialWaves waves;
  EXPECT_TRUE(waves.SearchWaits()) << "the first device may be an exact one";
  EXPECT_EQ(Numbers(waves.Add(Ended(3, "b1", "x@virtual_cycles"), false)), "");
  EXPECT_TRUE(waves.exact());
  EXPECT_EQ(Numbers(waves.Add(Ended(1, "b1", "x@virtual_cycles"), false)), "");
  EXPECT_EQ(Numbers(waves.Add(Ended(2, "b1", "x@virtual_cycles"), true)), "1 2 3 ");
  // A second class, of clocks: from now on nothing is to be gained by waiting.
  waves.Add(Ended(5, "b2", "x@virtual_cycles"), false);
  waves.NoteClasses(std::vector<std::string>{"x@virtual_cycles", "y"});
  EXPECT_FALSE(waves.SearchWaits());
  EXPECT_EQ(Numbers(waves.Add(Ended(4, "b2", "y"), false)), "4 5 ");
}

TEST(TrialWaves, AnotherTunerContinuesTheOpenWave) {
  const std::string exact = "x@virtual_cycles";
  log::TrialRow open;
  open.number = 5;
  open.batch = "b2";
  TrialWaves waves;
  EXPECT_EQ(
      Numbers(waves.Restore({Ended(1, "", exact), Ended(2, "b1", exact), Ended(3, "b1", exact),
                             Ended(4, "b2", exact), Ended(6, "b2", exact)},
                            &open)),
      "1 2 3 ");
  EXPECT_EQ(Numbers(waves.Add(Ended(5, "b2", exact), true)), "4 5 6 ");
  // By a clock: in the order in which they ended.
  TrialWaves plain;
  EXPECT_EQ(Numbers(plain.Restore({Ended(1, "", "x"), Ended(2, "b1", "x")}, nullptr)), "2 1 ");
  EXPECT_FALSE(plain.SearchWaits());
}

}  // namespace
}  // namespace tilewright::jobs
