// A thread around one job's core. It makes the core from the log, connects its ports, passes events
// to it and publishes snapshots. When the core reports that storage failed, the thread discards it
// and makes a new one from the log after a pause, for as long as it takes. Thread-safe. The
// destructor stops the thread; the job stays open and is resumed later.
#pragma once

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "deploy/daemon/metrics.h"
#include "deploy/support/mutex.h"
#include "tuner_server/jobs/build_farm.h"
#include "tuner_server/jobs/job_core.h"

namespace tilewright::jobs {

// What all jobs of a server share. Not owned.
struct ServerEnvironment {
  log::TuningLog* log = nullptr;
  modules::ModuleStore* modules = nullptr;
  daemon::BlobStore* blobs = nullptr;
  support::Clock* clock = nullptr;
  BuildFarm* builds = nullptr;
  TaskClaims* claims = nullptr;  // the job manager's own
  std::shared_ptr<grpc::Channel> tracker;
  search::BuilderOptions builder;      // mode is set where it is used
  std::string jobs_dir;                // exists; each job gets a folder in it
  JobCoreOptions core;                 // state_dir is set per job
  modules::RetentionPolicy retention;  // of published modules, after each job
  int64_t keep_search_jobs = 0;        // that ended last keep drafts and models; 0: all
  daemon::Metrics* metrics = nullptr;
};

struct JobSnapshot {
  v1::Progress progress;
  std::vector<v1::Condition> conditions;
  std::string best_trial;  // as BestTrial (job_times.h)
  // What the job waits for; kNone: for nothing that the machine is short of.
  support::Shortage shortage = support::Shortage::kNone;
};

class JobRunner {
 public:
  // The runner's thread calls `on_change(ended)` whenever the job's log or snapshot changed.
  JobRunner(const ServerEnvironment& environment, const log::JobRow& job,
            std::function<void(bool)> on_change);
  ~JobRunner();

  // The log says CANCELLING: the core starts to cancel.
  void NotifyCancelled();
  // The log should say CANCELLING and cannot be written, because of `why`. The job stops working
  // and removes its files immediately. It is cancelled when the log can be written. A restart of
  // the server before that forgets the request. The condition CANCEL_WAITS says all that.
  void CancelLater(const std::string& reason, const absl::Status& why);
  // The job is in a final state.
  bool done() const { return done_.load(); }
  JobSnapshot snapshot();

 private:
  void Loop();
  absl::Status RunOnce(bool* ended);
  absl::Status WriteCancellation();
  absl::Status PrepareFolder();
  void Post(JobEvent event);
  JobEvent NextEvent();
  bool stopping();
  bool stopping_core();
  std::string cancellation();
  void Publish(const JobCore& core);
  void PublishProblem(const absl::Status& problem);
  void SetProblem(const absl::Status& problem) TW_REQUIRES(mutex_);
  void NoteShortage(support::Shortage shortage, const std::string& error);
  bool GiveUp(const absl::Status& problem);
  void CountChanges(const v1::Progress& now);

  const ServerEnvironment env_;
  const std::string id_;
  const std::string dir_;
  const std::string model_sha256_;
  const std::function<void(bool)> on_change_;
  std::atomic<bool> done_{false};

  support::Mutex mutex_;
  support::CondVar wake_;
  bool stopping_ TW_GUARDED_BY(mutex_) = false;
  std::string cancellation_ TW_GUARDED_BY(mutex_);  // the reason; not in the log yet
  std::deque<JobEvent> events_ TW_GUARDED_BY(mutex_);
  JobSnapshot snapshot_ TW_GUARDED_BY(mutex_);
  v1::Progress counted_;                                // what the metrics have; of the thread
  support::Shortage noted_ = support::Shortage::kNone;  // in the daemon's log; of the thread
  int64_t short_since_ns_ = 0;
  std::thread thread_;
};

}  // namespace tilewright::jobs
