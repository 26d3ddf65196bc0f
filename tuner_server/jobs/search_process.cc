#include "tuner_server/jobs/search_process.h"

#include <utility>

#include "deploy/support/failpoint.h"
#include "deploy/support/status.h"
#include "tuner_server/search/builder_error.h"

namespace tilewright::jobs {

using support::MutexLock;

absl::StatusOr<v1::BuilderReply> AskBuilder(search::BuilderClient* client,
                                            const v1::BuilderRequest& request, int64_t timeout_ms) {
  absl::StatusOr<v1::BuilderReply> reply = client->Ask(request, timeout_ms);
  if (reply.ok() || !client->alive()) return reply;
  v1::BuilderReply refusal;
  *refusal.mutable_error() = search::ToBuilderError(reply.status());
  return refusal;
}

SearchProcess::SearchProcess(search::BuilderOptions options, JobEventSink sink)
    : options_(std::move(options)), sink_(std::move(sink)), thread_([this] { Loop(); }) {}

SearchProcess::~SearchProcess() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    if (client_ != nullptr) client_->Kill();
  }
  wake_.NotifyAll();
  thread_.join();
}

void SearchProcess::Send(const v1::BuilderRequest& request, int64_t timeout_ms) {
  {
    MutexLock lock(mutex_);
    TW_CHECK(!request_.has_value()) << "one request at a time";
    request_ = Request{request, timeout_ms};
  }
  wake_.NotifyAll();
}

void SearchProcess::Kill() {
  MutexLock lock(mutex_);
  if (client_ != nullptr) client_->Kill();
}

void SearchProcess::Loop() {
  for (;;) {
    Request request;
    {
      MutexLock lock(mutex_);
      while (!stopping_ && !request_.has_value()) wake_.Wait(mutex_);
      if (stopping_) return;
      request = *std::move(request_);
      request_.reset();
    }
    absl::StatusOr<v1::BuilderReply> reply = Answer(request);
    {
      MutexLock lock(mutex_);
      if (stopping_) return;
      if (!reply.ok()) client_.reset();
    }
    sink_(SearchAnswered{std::move(reply)});
  }
}

absl::StatusOr<v1::BuilderReply> SearchProcess::Answer(const Request& request) {
  if (client_ == nullptr) {
    TW_ASSIGN(auto started, search::BuilderClient::Start(options_));
    MutexLock lock(mutex_);
    client_ = std::move(started);
    if (stopping_) client_->Kill();
  }
  support::HitFailpoint(support::Failpoint::tuner_search_asked);
  auto reply = AskBuilder(client_.get(), request.message, request.timeout_ms);
  support::HitFailpoint(support::Failpoint::tuner_search_answered);
  return reply;
}

}  // namespace tilewright::jobs
