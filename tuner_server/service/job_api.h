// The job service without its transport: checks requests, reads the log, asks the job manager.
// Thread-safe; owns none of its arguments.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "deploy/daemon/blob_store.h"
#include "deploy/support/clock.h"
#include "deploy/support/status.h"
#include "tilewright/v1/job.pb.h"
#include "tuner_server/jobs/job_manager.h"
#include "tuner_server/log/import_export.h"
#include "tuner_server/log/tuning_log.h"

namespace tilewright::service {

class JobApi {
 public:
  JobApi(jobs::JobManager* manager, log::TuningLog* log, daemon::BlobStore* blobs,
         support::Clock* clock)
      : manager_(manager), log_(log), blobs_(blobs), clock_(clock) {}

  // `caller` is where the request came from, for people.
  absl::StatusOr<v1::Job> Create(const v1::CreateJobRequest& request, const std::string& caller);
  absl::StatusOr<v1::Job> Get(const std::string& name);
  absl::StatusOr<v1::ListJobsResponse> List(const v1::ListJobsRequest& request);
  absl::StatusOr<v1::Job> Cancel(const v1::CancelJobRequest& request);
  absl::StatusOr<v1::ListTasksResponse> ListTasks(const v1::ListTasksRequest& request);
  absl::StatusOr<v1::ListTrialsResponse> ListTrials(const v1::ListTrialsRequest& request);
  absl::StatusOr<log::ExportOptions> ExportOptionsOf(const v1::ExportLogRequest& request);
  absl::StatusOr<v1::ImportLogResponse> ImportLog(const v1::ImportLogRequest& request);

  // What one watcher of a job has seen.
  struct Watch {
    std::string job;
    int64_t seq = 0;       // last event given
    int64_t version = -1;  // of the job when progress was given last
    bool greeted = false;  // the present state was given
    bool ended = false;    // the final state was given: the stream is over
    std::string progress;  // last one given, serialized
  };
  absl::StatusOr<Watch> StartWatch(const v1::WatchJobRequest& request);
  // Returns what the watcher has not seen yet; empty if nothing is new.
  absl::StatusOr<std::vector<v1::JobEvent>> NextEvents(Watch* watch);
  // Whether NextEvents may have something.
  bool MayHaveNews(const Watch& watch) { return manager_->Version(watch.job) != watch.version; }

 private:
  absl::StatusOr<v1::Job> Message(const log::JobRow& row);
  absl::StatusOr<v1::Trial> Message(const log::TrialRow& row);
  absl::StatusOr<v1::JobEvent> EventMessage(const log::JobRow& job, const log::EventRow& event);
  absl::Status Check(const v1::CreateJobRequest& request);
  // invalid_argument (job.spec.bad).
  absl::StatusOr<log::JobRow> NewRow(const v1::CreateJobRequest& request,
                                     const std::string& caller);
  std::string NewSuffix();

  jobs::JobManager* manager_;
  log::TuningLog* log_;
  daemon::BlobStore* blobs_;
  support::Clock* clock_;
  std::atomic<uint64_t> created_{0};
};

}  // namespace tilewright::service
