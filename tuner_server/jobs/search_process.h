// The real search child: a tilewright-builder in search mode behind a thread that waits for it.
// One owner calls Send and Kill; the thread calls the sink. The destructor kills the child; the
// sink is not called afterwards.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <thread>

#include "deploy/support/mutex.h"
#include "tuner_server/jobs/job_ports.h"
#include "tuner_server/search/builder_client.h"

namespace tilewright::jobs {

class SearchProcess final : public SearchChild {
 public:
  SearchProcess(search::BuilderOptions options, JobEventSink sink);
  ~SearchProcess() override;

  void Send(const v1::BuilderRequest& request, int64_t timeout_ms) override;
  void Kill() override;

 private:
  struct Request {
    v1::BuilderRequest message;
    int64_t timeout_ms = 0;
  };

  void Loop();
  absl::StatusOr<v1::BuilderReply> Answer(const Request& request);

  const search::BuilderOptions options_;
  const JobEventSink sink_;
  support::Mutex mutex_;
  support::CondVar wake_;
  bool stopping_ TW_GUARDED_BY(mutex_) = false;
  std::optional<Request> request_ TW_GUARDED_BY(mutex_);
  // Replaced by the thread under the mutex only, so that others may kill the child at any time.
  std::unique_ptr<search::BuilderClient> client_;
  std::thread thread_;
};

// Sends one request to a builder. If the live child refuses, the reply holds an error. An error
// status means that the child is dead.
absl::StatusOr<v1::BuilderReply> AskBuilder(search::BuilderClient* client,
                                            const v1::BuilderRequest& request, int64_t timeout_ms);

}  // namespace tilewright::jobs
