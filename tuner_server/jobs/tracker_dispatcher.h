// The real tracker port of one job: gRPC calls on two threads, one for the long poll, one for all
// other calls. One owner calls the methods; both threads call the sink. The destructor cancels the
// long poll and still sends waiting acknowledgements and cancellations, with a short deadline. The
// sink is not called afterwards.
#pragma once

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "deploy/daemon/blob_store.h"
#include "deploy/support/mutex.h"
#include "tilewright/v1/artifact.grpc.pb.h"
#include "tilewright/v1/dispatch.grpc.pb.h"
#include "tuner_server/jobs/job_ports.h"

namespace tilewright::jobs {

struct DispatcherOptions {
  std::string consumer;
  std::string job_uid;
  std::string pool;
  std::string target;
};

class TrackerDispatcher final : public Dispatcher {
 public:
  TrackerDispatcher(std::shared_ptr<grpc::Channel> channel, daemon::BlobStore* blobs,
                    DispatcherOptions options, JobEventSink sink);
  ~TrackerDispatcher() override;

  void Submit(std::vector<Submission> items) override;
  void Pull(const std::string& cursor) override;
  void Acknowledge(const std::string& cursor) override;
  void Cancel() override;
  void QueryLoad() override;

 private:
  struct Command {
    std::function<void()> run;
    bool at_stop = false;  // run even while the port is being closed
  };

  void Add(bool at_stop, std::function<void()> run);
  void CommandLoop();
  void PullLoop();
  void DoSubmit(const std::vector<Submission>& items);
  absl::StatusOr<v1::SubmitWorkResponse> SubmitNow(const std::vector<Submission>& items);
  absl::StatusOr<v1::PullResultsResponse> PullNow(const std::string& cursor);
  void Answer(JobEvent event);
  int64_t CallTimeoutMs(int64_t ordinary_ms);

  daemon::BlobStore* blobs_;
  const DispatcherOptions options_;
  const JobEventSink sink_;
  std::unique_ptr<v1::DispatchService::Stub> dispatch_;
  std::unique_ptr<v1::ArtifactService::Stub> artifacts_;

  support::Mutex mutex_;
  support::CondVar wake_;
  bool stopping_ TW_GUARDED_BY(mutex_) = false;
  std::deque<Command> commands_ TW_GUARDED_BY(mutex_);
  bool pull_wanted_ TW_GUARDED_BY(mutex_) = false;
  std::string pull_cursor_ TW_GUARDED_BY(mutex_);
  grpc::ClientContext* pull_context_ TW_GUARDED_BY(mutex_) = nullptr;
  std::thread command_thread_;
  std::thread pull_thread_;
};

}  // namespace tilewright::jobs
