// A whole fleet in one thread: tracker, tuner and agents, the network between them, and somebody
// who breaks things. First chaos, then everything is repaired, and every job must end in time. All
// of it follows from one seed.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "deploy/support/file.h"
#include "tests/sim/sim_agent.h"
#include "tests/sim/sim_net.h"
#include "tests/sim/sim_tracker.h"
#include "tests/sim/sim_truth.h"
#include "tests/sim/sim_tuner.h"
#include "tests/sim/sim_world.h"

namespace tilewright::sim {

struct FleetOptions {
  int64_t chaos_ns = 180 * kSecond;
  // After the repair every job ends within this, beside the time that the busiest device measures.
  int64_t heal_ns = 120 * kSecond;
  int64_t give_up_ns = 900 * kSecond;  // all in all
  double database_loss = 0.15;  // chance that the tracker's database is lost once in this run
  bool faults = true;
};

// What a run did, so that one that exercised nothing shows.
struct FleetCounts {
  int64_t events = 0;
  int64_t simulated_s = 0;
  int64_t results = 0;
  int64_t kills = 0;
  int64_t pauses = 0;
  int64_t cuts = 0;
  int64_t clock_jumps = 0;
  int64_t disks_full = 0;
  int64_t databases_lost = 0;
  int64_t power_cuts = 0;
  int64_t broken = 0;           // devices
  int64_t canaries_passed = 0;  // since the tracker's last start
  int64_t canaries_failed = 0;
  int64_t spared = 0;  // trials that jobs did not need since others had measured them
  // From the repair until the last job's end, less what the busiest device measured meanwhile; of
  // all runs the most.
  int64_t slowest_end_s = 0;

  void Add(const FleetCounts& other);
  std::string Text() const;
};

class SimFleet {
 public:
  SimFleet(uint64_t seed, const FleetOptions& options);
  ~SimFleet();

  // Runs to the end. Empty, or what went wrong first.
  std::string Run();

  SimWorld& world() { return world_; }
  SimTracker& tracker() { return *tracker_; }
  SimTuner& tuner() { return *tuner_; }
  std::vector<std::unique_ptr<SimAgent>>& agents() { return agents_; }
  const FleetCounts& counts() const { return counts_; }

 private:
  void PlanChaos();
  void Break();
  void BreakAgent(SimAgent* agent);
  void BreakTracker();
  void KillTracker();
  void BreakAtGrant(const std::string& device);
  void BreakNetwork();
  void BreakAdmin();
  void Restart(SimAgent* agent, int64_t after_ns);
  void Heal();
  void RunUntil(int64_t end_ns, bool stop_when_ended);
  int AnyNode();
  void CheckEnd();
  int64_t BusiestNs(std::map<std::string, int64_t>* before) const;

  const FleetOptions options_;
  SimWorld world_;
  SimTruth truth_;
  SimNet net_;
  support::TempDir dir_;
  std::unique_ptr<SimTracker> tracker_;
  std::unique_ptr<SimTuner> tuner_;
  std::vector<std::unique_ptr<SimAgent>> agents_;
  bool chaos_ = true;
  int64_t lose_database_at_ns_ = -1;
  FleetCounts counts_;
};

}  // namespace tilewright::sim
