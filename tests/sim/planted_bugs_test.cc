// Does the simulation bite? Each mistake that somebody could make is planted in turn; some seed
// must catch it. Prints how many seeds that took.
#include <gtest/gtest.h>

#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "tests/sim/sim_fleet.h"

namespace tilewright::sim {
namespace {

constexpr uint64_t kFirstSeed = 5000;
constexpr int kSeeds = 400;

struct PlantedBug {
  std::string name;
  std::function<void(SimFleet*)> plant;
};

std::function<void(SimFleet*)> InAgents(bool AgentBugs::* bug) {
  return [bug](SimFleet* fleet) {
    for (auto& agent : fleet->agents()) agent->bugs.*bug = true;
  };
}

std::function<void(SimFleet*)> InTracker(bool TrackerBugs::* bug) {
  return [bug](SimFleet* fleet) { fleet->tracker().bugs.*bug = true; };
}

std::vector<PlantedBug> AllBugs() {
  return {
      {"acks_before_commit", InTracker(&TrackerBugs::acks_before_commit)},
      {"forgets_outbox", InTracker(&TrackerBugs::forgets_outbox)},
      {"forgets_attempts", InTracker(&TrackerBugs::forgets_attempts)},
      {"forgets_tokens", InTracker(&TrackerBugs::forgets_tokens)},
      {"forgets_dispositions", InTracker(&TrackerBugs::forgets_dispositions)},
      {"late_dispositions", InTracker(&TrackerBugs::late_dispositions)},
      {"wall_clock_leases", InTracker(&TrackerBugs::wall_clock_leases)},
      {"forgets_before_ack", InAgents(&AgentBugs::forgets_before_ack)},
      {"spool_without_sync", InAgents(&AgentBugs::spool_without_sync)},
      {"trusts_artifacts", InAgents(&AgentBugs::trusts_artifacts)},
      {"takes_old_tokens", InAgents(&AgentBugs::takes_old_tokens)},
      {"acks_before_store", [](SimFleet* fleet) { fleet->tuner().bugs.acks_before_store = true; }},
      {"claims_forgotten", [](SimFleet* fleet) { fleet->tuner().bugs.claims_forgotten = true; }},
  };
}

TEST(PlantedBugsTest, EveryOneIsCaught) {
  for (const PlantedBug& bug : AllBugs()) {
    std::string failure;
    int seeds = 0;
    while (failure.empty() && seeds < kSeeds) {
      SimFleet fleet(kFirstSeed + static_cast<uint64_t>(seeds++), {});
      bug.plant(&fleet);
      failure = fleet.Run();
    }
    EXPECT_FALSE(failure.empty()) << bug.name << " was not caught in " << kSeeds << " seeds";
    SimFleet sound(kFirstSeed + static_cast<uint64_t>(seeds) - 1, {});
    EXPECT_EQ(sound.Run(), "") << "this fails without " << bug.name << ", too";
    std::printf("%-20s caught after %3d seeds: %s\n", bug.name.c_str(), seeds,
                failure.substr(0, failure.find('\n')).substr(0, 110).c_str());
  }
}

}  // namespace
}  // namespace tilewright::sim
