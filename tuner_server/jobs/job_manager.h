// All jobs of a server: creates, starts in order, cancels and describes them. Jobs that were open
// when the server stopped are resumed first. Thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <thread>

#include "deploy/support/mutex.h"
#include "tuner_server/jobs/job_runner.h"
#include "tuner_server/jobs/job_versions.h"

namespace tilewright::jobs {

class JobManager {
 public:
  // Sets `environment.claims`. When artifacts take more than `max_artifact_bytes`, those that no
  // module, job or open trial names are deleted, the least recently used first.
  JobManager(const ServerEnvironment& environment, int64_t max_running, int64_t max_artifact_bytes);
  ~JobManager();

  // Starts to run jobs.
  void Start();
  // Stops all runners. Their jobs stay open in the log. Idempotent.
  void Stop();

  // Stores the job and starts it when its turn comes. Errors as TuningLog::CreateJob.
  absl::StatusOr<log::CreatedJob> Create(const log::JobRow& job);
  // Asks for the job's end. A job that has ended is returned unchanged. So is a running one while
  // the log cannot be written: its condition CANCEL_WAITS says so, as does JobRunner::CancelLater.
  absl::StatusOr<log::JobRow> Cancel(const std::string& id, const std::string& reason);

  // Returns the job's progress: live while it runs, else from the log.
  absl::StatusOr<JobSnapshot> Snapshot(const log::JobRow& job);

  // Returns a number that rises whenever the job may have changed. Streams wait for it.
  int64_t Version(const std::string& id);

 private:
  void Loop();
  void Reap();
  bool IsBusy(const std::string& task_set) TW_REQUIRES(mutex_);
  void Admit();
  void CountWaits();
  absl::StatusOr<log::JobRow> CancelLater(const log::JobRow& job, const std::string& reason,
                                          const absl::Status& why);
  void RetainModules();
  void RetainSearches();
  absl::Status CollectArtifacts();
  void Changed(const std::string& id, bool check);

  TaskClaims claims_;
  const ServerEnvironment env_;
  const int64_t max_running_;
  const int64_t max_artifact_bytes_;
  support::Mutex mutex_;
  support::CondVar wake_;
  bool stopping_ TW_GUARDED_BY(mutex_) = false;
  bool check_ TW_GUARDED_BY(mutex_) = true;  // something may have to be started or reaped
  std::map<std::string, std::shared_ptr<JobRunner>> runners_ TW_GUARDED_BY(mutex_);
  JobVersions versions_ TW_GUARDED_BY(mutex_);
  // By set of tasks: the running job (with recall) that tunes it. Others with the same set wait.
  std::map<std::string, std::string> busy_ TW_GUARDED_BY(mutex_);
  std::map<std::string, JobSnapshot> ended_ TW_GUARDED_BY(mutex_);  // cache of final jobs
  bool searches_swept_ = false;                                     // by the manager's thread
  std::thread thread_;
};

}  // namespace tilewright::jobs
