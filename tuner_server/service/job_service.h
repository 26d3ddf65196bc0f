// JobService over gRPC: thin handlers around JobApi. Synchronous: a handler may wait for the log,
// and each open WatchJob holds a thread of the server (their number is limited). Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>

#include "deploy/daemon/server_security.h"
#include "tilewright/v1/job.grpc.pb.h"
#include "tuner_server/service/job_api.h"

namespace tilewright::service {

inline constexpr char kJobServiceName[] = "tilewright.v1.JobService";

class JobServiceImpl final : public v1::JobService::Service {
 public:
  // `security` names the caller; null: only the address is known.
  JobServiceImpl(JobApi* api, log::TuningLog* log, const daemon::ServerSecurity* security = nullptr)
      : api_(api), log_(log), security_(security) {}

  // Ends open streams soon, with UNAVAILABLE: their clients call again with their cursors.
  void Drain() { draining_ = true; }

  grpc::Status CreateJob(grpc::ServerContext* context, const v1::CreateJobRequest* request,
                         v1::Job* response) override;
  grpc::Status GetJob(grpc::ServerContext* context, const v1::GetJobRequest* request,
                      v1::Job* response) override;
  grpc::Status ListJobs(grpc::ServerContext* context, const v1::ListJobsRequest* request,
                        v1::ListJobsResponse* response) override;
  grpc::Status CancelJob(grpc::ServerContext* context, const v1::CancelJobRequest* request,
                         v1::Job* response) override;
  grpc::Status WatchJob(grpc::ServerContext* context, const v1::WatchJobRequest* request,
                        grpc::ServerWriter<v1::JobEvent>* writer) override;
  grpc::Status ListTasks(grpc::ServerContext* context, const v1::ListTasksRequest* request,
                         v1::ListTasksResponse* response) override;
  grpc::Status ListTrials(grpc::ServerContext* context, const v1::ListTrialsRequest* request,
                          v1::ListTrialsResponse* response) override;
  grpc::Status ExportLog(grpc::ServerContext* context, const v1::ExportLogRequest* request,
                         grpc::ServerWriter<v1::Chunk>* writer) override;
  grpc::Status ImportLog(grpc::ServerContext* context, const v1::ImportLogRequest* request,
                         v1::ImportLogResponse* response) override;

 private:
  absl::Status Follow(grpc::ServerContext* context, const v1::WatchJobRequest& request,
                      grpc::ServerWriter<v1::JobEvent>* writer);

  JobApi* api_;
  log::TuningLog* log_;
  const daemon::ServerSecurity* security_;
  std::atomic<bool> draining_{false};
  std::atomic<int> watchers_{0};
};

}  // namespace tilewright::service
