// Runs the agent: one thread calls Sync, one reports results, and one per device measures.
// AgentCore decides; this class makes the decisions durable, moves bytes and waits. Run returns
// after a requested stop and drain, or if the agent may not continue.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "deploy/daemon/daemon_main.h"
#include "deploy/daemon/wire.h"
#include "deploy/support/clock.h"
#include "deploy/support/mutex.h"
#include "deploy/support/rng.h"
#include "deploy/support/status.h"
#include "device_agent/agent_core.h"
#include "device_agent/artifact_cache.h"
#include "device_agent/reset_runner.h"
#include "device_agent/spool.h"
#include "device_agent/supervisor.h"
#include "device_agent/test_faults.h"
#include "tilewright/v1/agent.grpc.pb.h"

namespace tilewright::device_agent {

// One device of the agent. What `ready` says is the device's own: attributes, class, fingerprint.
struct AgentDevice {
  std::string name;                           // devices/{device}
  std::string pool;                           // device class; empty = the device's own
  std::map<std::string, std::string> labels;  // set by the operator
  SupervisorOptions supervisor;
};

struct AgentLoopOptions {
  AgentIdentity identity;
  std::vector<AgentDevice> devices;
  TestFaults faults;
  ResetOptions reset;            // of every device
  int64_t max_wait_ms = 10'000;  // how long a Sync may be held
  int64_t drain_ms = 30'000;     // how long a stop waits for what runs and for reports
  std::string state_dir;
  int64_t cache_bytes = int64_t{4} << 30;
  std::string ready_file;  // written with `ready_text` after the first answer of the tracker
  std::string ready_text;
};

class AgentLoop {
 public:
  // Opens spool and cache, and starts all workers concurrently to learn what the devices are.
  // Returns an error if none of them works. `channel` leads to the tracker; `metrics` and `stop`
  // are not owned.
  static absl::StatusOr<std::unique_ptr<AgentLoop>> Create(AgentLoopOptions options,
                                                           std::shared_ptr<grpc::Channel> channel,
                                                           daemon::Metrics* metrics,
                                                           daemon::StopSignal* stop);
  ~AgentLoop();

  // aborted (agent.session.replaced) when the tracker knows a newer session of this agent.
  absl::Status Run();

 private:
  struct SyncCall;

  AgentLoop(AgentLoopOptions options, std::shared_ptr<grpc::Channel> channel,
            daemon::Metrics* metrics, daemon::StopSignal* stop);

  // Writes the records and applies them to the core. After an error the rest is neither written nor
  // applied.
  absl::Status Persist(const std::vector<Record>& records) TW_EXCLUDES(spool_mutex_, mutex_);
  // Repeats Persist until it succeeds or the agent ends; the device is DEGRADED meanwhile.
  bool PersistStubbornly(const Record& record, const std::string& device);
  void SetHealth(const std::string& device, const absl::Status& trouble) TW_EXCLUDES(mutex_);

  void SetReset(const std::string& device, const v1::ResetReport& report);

  support::Rng Jitter(std::string_view purpose) const;

  void SyncLoop();
  // `hold`: the tracker may delay its answer until something changes.
  std::shared_ptr<SyncCall> StartSync(bool hold);
  void TakeResponse(const v1::SyncResponse& response);
  int64_t PauseAfter(const v1::SyncResponse& response);
  void AnnounceReady();

  void ReportLoop();
  bool ReportOnce(daemon::Backoff* backoff, int64_t* pause_ms);

  absl::Status StartDevices() TW_EXCLUDES(mutex_);
  bool StartDevice(const AgentDevice& device, absl::Status* status) TW_EXCLUDES(mutex_);
  void DeviceLoop(const AgentDevice& device);
  void MeasureOne(const WorkOrder& order, Supervisor* supervisor);
  absl::Status FetchAll(const WorkOrder& order, MeasureInput* input, bool* fetched);
  absl::Status Fetch(const WorkOrder& order, const v1::Digest& digest, std::string* bytes,
                     bool* fetched);
  void CountResult(const v1::MeasurementResult& result);

  void BeginDrain();
  void Finish(absl::Status status);
  // Sleeps at most that long, less when the agent ends. False when it has.
  bool Pause(int64_t pause_ms) TW_EXCLUDES(mutex_);

  const AgentLoopOptions options_;
  daemon::Metrics* const metrics_;
  daemon::StopSignal* const stop_;
  const std::unique_ptr<v1::AgentService::Stub> agent_stub_;
  const std::unique_ptr<v1::ArtifactService::Stub> artifact_stub_;
  std::unique_ptr<ArtifactCache> cache_;
  std::map<std::string, std::unique_ptr<Supervisor>> supervisors_;  // by device

  support::Mutex spool_mutex_;  // held while the spool is written; taken before mutex_
  std::unique_ptr<Spool> spool_ TW_GUARDED_BY(spool_mutex_);

  support::Mutex mutex_;
  support::CondVar changed_;
  std::unique_ptr<AgentCore> core_ TW_GUARDED_BY(mutex_);
  std::map<std::string, v1::DeviceReport> devices_ TW_GUARDED_BY(mutex_);
  bool news_ TW_GUARDED_BY(mutex_) = true;     // a change to report now
  bool ending_ TW_GUARDED_BY(mutex_) = false;  // threads return
  bool ready_ TW_GUARDED_BY(mutex_) = false;
  bool end_told_ TW_GUARDED_BY(mutex_) = false;  // the tracker knows that this agent holds nothing
  absl::Status status_ TW_GUARDED_BY(mutex_);

  support::SystemClock clock_;
  std::unique_ptr<ResetRunner> resets_;  // ends first: its sink is this object
};

}  // namespace tilewright::device_agent
