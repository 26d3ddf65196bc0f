// An agent of a simulated fleet: the real core, ledger and spool; around them what agent_loop does
// with threads, as events. Its devices measure, crash, hang, lie and vanish.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "device_agent/agent_core.h"
#include "device_agent/spool.h"
#include "tests/sim/sim_disk.h"
#include "tests/sim/sim_net.h"
#include "tests/sim/sim_tracker.h"
#include "tests/sim/sim_truth.h"
#include "tests/sim/sim_world.h"

namespace tilewright::sim {

struct AgentBugs {
  bool forgets_before_ack = false;  // a result is forgotten when it is sent
  bool spool_without_sync = false;
  bool trusts_artifacts = false;  // bytes are measured without a look at their digest
  bool takes_old_tokens = false;  // every grant is new to it
};

// Chances of what a device does with one candidate.
struct DeviceFaults {
  double crash = 0;    // the device goes away under the candidate
  double hang = 0;     // until the wall limit: RUN_TIMEOUT
  double wrong = 0;    // WRONG_RESULT
  double invalid = 0;  // measured, but not valid
  double lies = 0;     // reports results that it never made
};

class SimAgent {
 public:
  SimAgent(SimWorld* world, SimNet* net, SimTracker* tracker, SimTruth* truth, int number,
           int devices);
  ~SimAgent();

  void Start();
  // kill -9; with `power` the host goes down: what was not synced may be gone, the boot is another.
  void Crash(bool power);
  // As SIGTERM does; the process ends when it is quiet.
  void Drain();
  // The spool is lost with the disk. REQUIRES: it is down.
  void LoseSpool();
  // Every candidate crashes on the device, or works again.
  void BreakDevice(int device, bool broken);
  // The device is not reported any more, or again.
  void Vanish(int device, bool gone);

  int node() const { return node_; }
  const std::string& name() const { return name_; }
  const std::vector<std::string>& devices() const { return devices_; }
  SimFile& spool_file() { return file_; }
  // Takes its unacknowledged results out of the set.
  void RemoveUnacked(std::set<std::string>* keys) const;
  // Its leases and what it does, for people.
  std::string Text() const;

  AgentBugs bugs;
  DeviceFaults faults;
  double corrupt = 0;                          // chance that fetched bytes are damaged on the way
  bool slow_host = false;                      // measurements take ten times as long
  std::map<std::string, int64_t> measured_ns;  // by device: how long it has measured in all
  // The text of a device's artifacts that kill it.
  static bool IsPoison(const std::string& artifact);

 private:
  struct Process;
  v1::DeviceReport Report(const std::string& device) const;
  absl::Status Persist(const std::vector<device_agent::Record>& records);
  void SetHealth(const std::string& device, v1::Health health);
  void News();
  void StartSync();
  void OnSync(uint64_t id, const absl::Status& status, const v1::SyncResponse& response);
  void TakeResponse(const v1::SyncResponse& response);
  void Stop();
  void StartLater();
  void KickReports();
  void OnReported(const absl::Status& status, const v1::ReportResultsResponse& response);
  void Kick(const std::string& device);
  void Fetch(const device_agent::WorkOrder& order);
  void OnFetched(const device_agent::WorkOrder& order, const absl::Status& status,
                 const std::string& bytes);
  void Begin(const device_agent::WorkOrder& order, const std::string& bytes);
  void Measure(const device_agent::WorkOrder& order, const std::string& bytes);
  void End(const device_agent::WorkOrder& order, v1::MeasurementResult result);
  void Spool(const device_agent::Record& record);
  void Idle(const std::string& device);
  void Lie();

  SimWorld* world_;
  SimNet* net_;
  SimTracker* tracker_;
  SimTruth* truth_;
  int node_;
  std::string name_;
  std::vector<std::string> devices_;
  std::set<std::string> gone_;
  std::set<std::string> broken_;
  SimFile file_;
  int boot_ = 1;
  int session_ = 0;
  std::map<std::string, std::string> cache_;  // artifacts by digest; survives
  std::unique_ptr<Process> process_;
};

}  // namespace tilewright::sim
