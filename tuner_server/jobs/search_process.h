// The real search child: a tilewright-builder in search mode behind a thread that waits for it.
// Send and Kill belong to one owner; the sink is called from the thread. Destruction kills the
// child and answers nothing more.
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

// One request to a builder. A refusal of a live child becomes an error in the reply; an error
// status says that the child is dead.
absl::StatusOr<v1::BuilderReply> AskBuilder(search::BuilderClient* client,
                                            const v1::BuilderRequest& request, int64_t timeout_ms);

}  // namespace tilewright::jobs
