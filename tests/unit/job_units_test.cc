// A job whose work fits devices that measure in two units: the records of one task that count are
// all in the unit of its first one, and the others say why they do not count.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "deploy/support/measure_units.h"
#include "deploy/support/status.h"
#include "tests/unit/job_world.h"

namespace tilewright::tests {
namespace {

constexpr char kClock[] = "cpu-x";
constexpr char kCounter[] = "board@virtual_cycles";
constexpr int64_t kTrials = 24;
constexpr int64_t kMaxSteps = 200'000;

// What the log says of one task.
struct Seen {
  std::set<std::string> units;  // of the records that count
  int64_t refused = 0;
};

std::map<std::string, Seen> SeenBy(log::TuningLog* log) {
  std::map<std::string, Seen> tasks;
  const auto records = log->ListRecords({"job1", 0, 1000});
  EXPECT_TRUE(records.ok()) << records.status();
  for (const log::RecordRow& record : *records) {
    Seen& seen = tasks[record.task];
    if (record.usable()) seen.units.insert(record.value_kind);
    const auto& reasons = record.invalid_reasons;
    if (std::find(reasons.begin(), reasons.end(), "tuner.unit.differs") != reasons.end()) {
      EXPECT_FALSE(record.valid);
      // It fits its own class: the class is what differs.
      EXPECT_EQ(record.value_kind, support::UnitOfClass(record.key.device_class).name);
      ++seen.refused;
    }
  }
  return tasks;
}

// The devices are replaced by others once each task has a record.
void ExpectOneUnit(const char* first, const char* second, bool restart) {
  JobWorld world(7, {});
  world.device_class = first;
  world.CreateJob(kTrials);
  world.StartCore();
  const std::string unit(support::UnitOfClass(first).name);
  const auto all_measured = [&] {
    const std::map<std::string, Seen> tasks = SeenBy(&world.log());
    return tasks.size() == 3 && std::all_of(tasks.begin(), tasks.end(), [](const auto& task) {
             return !task.second.units.empty();
           });
  };
  for (int64_t step = 0; step < kMaxSteps && !all_measured(); ++step) world.Step();
  ASSERT_TRUE(all_measured());
  world.device_class = second;
  if (restart) {  // the unit is what the log says, not what a process remembers
    world.KillCore();
    world.StartCore();
  }
  world.RunToEnd(kMaxSteps);
  int64_t refused = 0;
  for (const auto& [name, seen] : SeenBy(&world.log())) {
    EXPECT_EQ(seen.units, std::set<std::string>{unit}) << name;
    refused += seen.refused;
  }
  EXPECT_GT(refused, 0);
}

TEST(JobUnits, NanosecondsDoNotMeetCycles) { ExpectOneUnit(kCounter, kClock, false); }
TEST(JobUnits, CyclesDoNotMeetNanoseconds) { ExpectOneUnit(kClock, kCounter, false); }
TEST(JobUnits, ATunerThatIsStartedAgainKnowsTheUnit) { ExpectOneUnit(kClock, kCounter, true); }

}  // namespace
}  // namespace tilewright::tests
