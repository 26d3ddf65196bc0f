// The tuner of a simulated fleet: real job cores over a real log and stores, one dispatcher per job
// that talks to the simulated tracker as tracker_dispatcher does.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "deploy/daemon/blob_store.h"
#include "tests/sim/sim_net.h"
#include "tests/sim/sim_search.h"
#include "tests/sim/sim_tracker.h"
#include "tests/sim/sim_truth.h"
#include "tests/sim/sim_world.h"
#include "tuner_server/jobs/job_core.h"
#include "tuner_server/log/tuning_log.h"
#include "tuner_server/modules/module_store.h"

namespace tilewright::sim {

struct TunerBugs {
  bool acks_before_store = false;  // updates are acknowledged when they arrive, not when stored
  bool claims_forgotten = false;   // a job does not know on which tasks the others are at work
};

class SimTuner {
 public:
  SimTuner(SimWorld* world, SimNet* net, SimTracker* tracker, std::string dir);
  ~SimTuner();

  void Start();
  void Crash();
  // With `recall` the jobs share their tasks, which are the same.
  void CreateJob(int64_t max_trials, int priority, bool recall);
  // As the service does: the log first, then the core.
  void CancelJob(size_t index);

  size_t jobs() const { return jobs_.size(); }
  // Every job is in a final state.
  bool AllEnded();
  int node() const { return node_; }
  log::TuningLog& log() { return *log_; }
  std::string JobText();

  // Compares the log with what happened. Call at the end.
  void Check(const SimTruth& truth);
  // Trials that succeeded jobs were spared by what others measured. Call at the end.
  int64_t Spared();

  ChildFaults faults;
  TunerBugs bugs;

 private:
  class Dispatcher;
  struct Running;
  void Run(const std::string& id);
  void Handle(const std::string& id, uint64_t life, jobs::JobEvent event);
  void Tick(const std::string& id, uint64_t life);
  void CheckJob(const std::string& id, const SimTruth& truth);
  void CheckShared();

  SimWorld* world_;
  SimNet* net_;
  SimTracker* tracker_;
  int node_;
  std::string dir_;
  std::unique_ptr<log::TuningLog> log_;
  std::unique_ptr<daemon::BlobStore> blobs_;
  std::unique_ptr<modules::ModuleStore> modules_;
  std::unique_ptr<jobs::TaskClaims> claims_;  // of this life
  std::vector<std::string> jobs_;
  uint64_t next_life_ = 1;
  std::map<std::string, std::unique_ptr<Running>> running_;
};

}  // namespace tilewright::sim
