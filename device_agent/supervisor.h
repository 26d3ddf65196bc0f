// Keeps one worker for one device and turns every event of the worker into an outcome. The worker
// is a child, or runs elsewhere behind a bridge: a command (ssh, adb, a serial line) whose standard
// streams lead to the worker's. Measure is called from one thread at a time; Abort from any.
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
  std::string worker_path;  // not used with a bridge
  std::string bridge;       // for /bin/sh -c, with $DEVICE; runs the worker at its other end
  std::string device;       // resource name, for the bridge
  std::string device_kind = "cpu";
  std::string sandbox_profile = "strict";  // or "driver"
  std::vector<std::string> device_nodes;   // as DeviceSpec
  bool allow_weak_sandbox = false;         // work on a machine whose kernel refuses a part of it
  int device_index = 0;
  int threads = 0;         // 0 = all usable
  std::vector<int> cores;  // empty = any
  int64_t memory_limit_bytes = int64_t{4} << 30;
  int64_t default_wall_ms = 10'000;
  int64_t grace_ms = 10'000;   // beyond the wall limit, for our own part of the work
  int failing_self_tests = 0;  // TESTS ONLY: so many compute a wrong answer
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

  // Starts the worker if none runs, and measures. Never fails: DEVICE_LOST with class AGENT and no
  // phase means that the candidate was not at fault and may not have run.
  v1::ModuleMeasured Measure(const MeasureInput& input);

  // Starts the worker, refuses a sandbox that lacks something (failed_precondition
  // agent.sandbox.weak), runs the self-test (failed_precondition agent.self_test.failed) and
  // returns the worker's answer to hello. Later starts refuse another device at the end of the
  // bridge (agent.device.changed) until this is called again. REQUIRES: no Measure is under way.
  absl::StatusOr<v1::WorkerReady> Start();

  // Kills the worker; a Measure under way returns CANCELLED.
  void Abort();

  // Whether the last Measure found no worker that answers: a fault of host or bridge, not of the
  // candidate. trouble() is the error (agent.worker.failed, agent.bridge.failed).
  bool broken() const { return !trouble_.ok(); }
  const absl::Status& trouble() const { return trouble_; }

  int64_t restarts() const { return starts_ > 0 ? starts_ - 1 : 0; }

 private:
  // Why an exchange failed: `timed_out` and `phase`.
  struct Exchange {
    v1::WorkerPhase phase = v1::WORKER_PHASE_UNSPECIFIED;
    bool sent = false;  // the worker got all of the request
    bool timed_out = false;
  };
  absl::StatusOr<v1::WorkerReply> Call(v1::WorkerRequest request, int64_t timeout_ms,
                                       Exchange* exchange);
  absl::StatusOr<v1::WorkerReady> Hello(int64_t memory_limit_bytes, bool describe);
  absl::StatusOr<v1::WorkerReady> StartWorker(bool describe);
  absl::Status StartupError(const absl::Status& why);
  absl::Status CheckSandbox(const v1::WorkerReady& ready) const;
  absl::Status SelfTest(bool whole);
  v1::ModuleMeasured MeasureOnce(const MeasureInput& input);
  absl::Status Ensure(const v1::Work& work);
  absl::Status Load(const std::string& slot, const std::string& module);
  v1::ModuleMeasured Died(const Exchange& exchange, const absl::Status& why);
  void Stop();
  bool aborted() TW_EXCLUDES(mutex_);

  const SupervisorOptions options_;
  uint64_t next_id_ = 0;
  int64_t starts_ = 0;
  int self_tests_ = 0;
  absl::Status trouble_;
  int64_t memory_limit_bytes_ = -1;  // of the running worker
  std::string fingerprint_;          // of the device that Start found
  support::Mutex mutex_;
  std::shared_ptr<support::Child> child_ TW_GUARDED_BY(mutex_);
  bool aborted_ TW_GUARDED_BY(mutex_) = false;
};

}  // namespace tilewright::device_agent
