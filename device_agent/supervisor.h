// Keeps one worker process for one device and turns whatever happens to it into an outcome. Measure
// is called from one thread at a time; Abort from any.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "deploy/support/mutex.h"
#include "deploy/support/process.h"
#include "deploy/support/status.h"
#include "tilewright/v1/agent.pb.h"
#include "tilewright/v1/worker.pb.h"

namespace tilewright::device_agent {

struct SupervisorOptions {
  std::string worker_path;
  std::string device_kind = "cpu";
  int threads = 0;         // 0 = all usable
  std::vector<int> cores;  // empty = any
  int64_t memory_limit_bytes = int64_t{4} << 30;
  int64_t default_wall_ms = 10'000;
  int64_t grace_ms = 10'000;  // beyond the wall limit, for what is not the candidate's
};

struct MeasureInput {
  v1::Work work;
  std::string module;
  std::string baseline;  // empty = the worker's calibration loop
  std::string expected;  // empty = no check
  v1::InjectedFault fault = v1::INJECTED_FAULT_UNSPECIFIED;
};

class Supervisor {
 public:
  explicit Supervisor(SupervisorOptions options) : options_(std::move(options)) {}

  // Starts the worker where none runs, and measures. Never fails: DEVICE_LOST with class AGENT and
  // no phase means that the candidate was not at fault and may not even have run.
  v1::ModuleMeasured Measure(const MeasureInput& input);

  // Starts the worker now, to see whether it works. Its answer to hello.
  absl::StatusOr<v1::WorkerReady> Start();

  // Kills the worker; a Measure under way returns CANCELLED.
  void Abort();

  // The last Measure found no worker that answers: the host's trouble, not the candidate's.
  bool broken() const { return broken_; }

  int64_t restarts() const { return starts_ > 0 ? starts_ - 1 : 0; }

 private:
  // `timed_out` and `phase` of an exchange that failed say why.
  struct Exchange {
    v1::WorkerPhase phase = v1::WORKER_PHASE_UNSPECIFIED;
    bool timed_out = false;
  };
  absl::StatusOr<v1::WorkerReply> Call(v1::WorkerRequest request, int64_t timeout_ms,
                                       Exchange* exchange);
  absl::StatusOr<v1::WorkerReady> Hello(int64_t memory_limit_bytes);
  v1::ModuleMeasured MeasureOnce(const MeasureInput& input);
  absl::Status Ensure(const v1::Work& work);
  absl::Status Load(const std::string& slot, const std::string& module);
  v1::ModuleMeasured Died(const Exchange& exchange, const absl::Status& why);
  void Stop();
  bool aborted() TW_EXCLUDES(mutex_);

  const SupervisorOptions options_;
  uint64_t next_id_ = 0;
  int64_t starts_ = 0;
  bool broken_ = false;
  int64_t memory_limit_bytes_ = -1;  // of the running worker
  support::Mutex mutex_;
  std::shared_ptr<support::Child> child_ TW_GUARDED_BY(mutex_);
  bool aborted_ TW_GUARDED_BY(mutex_) = false;
};

}  // namespace tilewright::device_agent
