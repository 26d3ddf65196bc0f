#include "tuner_server/service/job_service.h"

#include <string>

#include "deploy/daemon/wire.h"
#include "deploy/support/clock.h"
#include "tuner_server/service/unary_call.h"

namespace tilewright::service {
namespace {

constexpr int kUrgent = 1;  // goes before everybody's work
constexpr int kMaxWatchers = 500;
// A watcher without news is looked after this often.
constexpr int64_t kWatchPollMs = 50;
// One stream at most; then the client comes back with its cursor.
constexpr int64_t kWatchStreamNs = int64_t{600} * 1'000'000'000;
constexpr size_t kChunkBytes = size_t{1} << 20;

}  // namespace

grpc::Status JobServiceImpl::CreateJob(grpc::ServerContext* context,
                                       const v1::CreateJobRequest* request, v1::Job* response) {
  if (security_ == nullptr || !security_->secure()) {
    return Reply(api_->Create(*request, context->peer()), response);
  }
  if (request->job().priority() == kUrgent) {
    const absl::Status admin = security_->CheckAdmin(*context, "priority 1 (urgent)");
    if (!admin.ok()) return daemon::ToGrpc(admin);
  }
  return Reply(api_->Create(*request, security_->CallerText(*context)), response);
}

grpc::Status JobServiceImpl::GetJob(grpc::ServerContext*, const v1::GetJobRequest* request,
                                    v1::Job* response) {
  return Reply(api_->Get(request->name()), response);
}

grpc::Status JobServiceImpl::ListJobs(grpc::ServerContext*, const v1::ListJobsRequest* request,
                                      v1::ListJobsResponse* response) {
  return Reply(api_->List(*request), response);
}

grpc::Status JobServiceImpl::CancelJob(grpc::ServerContext*, const v1::CancelJobRequest* request,
                                       v1::Job* response) {
  return Reply(api_->Cancel(*request), response);
}

grpc::Status JobServiceImpl::ListTasks(grpc::ServerContext*, const v1::ListTasksRequest* request,
                                       v1::ListTasksResponse* response) {
  return Reply(api_->ListTasks(*request), response);
}

grpc::Status JobServiceImpl::ListTrials(grpc::ServerContext*, const v1::ListTrialsRequest* request,
                                        v1::ListTrialsResponse* response) {
  return Reply(api_->ListTrials(*request), response);
}

grpc::Status JobServiceImpl::WatchJob(grpc::ServerContext* context,
                                      const v1::WatchJobRequest* request,
                                      grpc::ServerWriter<v1::JobEvent>* writer) {
  absl::Status status = support::ResourceExhausted("job.watch.too_many", "try again later");
  if (watchers_.fetch_add(1) < kMaxWatchers) status = Follow(context, *request, writer);
  watchers_.fetch_sub(1);
  return daemon::ToGrpc(status);
}

absl::Status JobServiceImpl::Follow(grpc::ServerContext* context,
                                    const v1::WatchJobRequest& request,
                                    grpc::ServerWriter<v1::JobEvent>* writer) {
  TW_ASSIGN(JobApi::Watch watch, api_->StartWatch(request));
  support::SystemClock clock;
  const int64_t end_ns = clock.NowNs() + kWatchStreamNs;
  while (!context->IsCancelled()) {
    if (draining_) return support::Unavailable("job.watch.draining", "the server stops");
    if (!watch.greeted || api_->MayHaveNews(watch)) {
      TW_ASSIGN(const std::vector<v1::JobEvent> events, api_->NextEvents(&watch));
      for (const v1::JobEvent& event : events) {
        if (!writer->Write(event)) return absl::OkStatus();
      }
      if (watch.ended) return absl::OkStatus();
      if (!events.empty()) continue;
    }
    if (clock.NowNs() >= end_ns) return absl::OkStatus();
    support::SleepMs(kWatchPollMs);
  }
  return absl::OkStatus();
}

grpc::Status JobServiceImpl::ExportLog(grpc::ServerContext* context,
                                       const v1::ExportLogRequest* request,
                                       grpc::ServerWriter<v1::Chunk>* writer) {
  const auto options = api_->ExportOptionsOf(*request);
  if (!options.ok()) return daemon::ToGrpc(options.status());
  int64_t offset = 0;
  const absl::Status status =
      log::ExportLog(log_, *options, [&](std::string_view piece) -> absl::Status {
        for (size_t at = 0; at < piece.size(); at += kChunkBytes) {
          v1::Chunk chunk;
          chunk.set_data(std::string(piece.substr(at, kChunkBytes)));
          chunk.set_offset(offset);
          offset += static_cast<int64_t>(chunk.data().size());
          if (context->IsCancelled() || !writer->Write(chunk)) {
            return support::Cancelled("job.export.cancelled", "the client is gone");
          }
        }
        return absl::OkStatus();
      });
  return daemon::ToGrpc(status);
}

grpc::Status JobServiceImpl::ImportLog(grpc::ServerContext*, const v1::ImportLogRequest* request,
                                       v1::ImportLogResponse* response) {
  return Reply(api_->ImportLog(*request), response);
}

}  // namespace tilewright::service
