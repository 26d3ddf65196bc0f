#include "tuner_server/jobs/tracker_dispatcher.h"

#include <set>
#include <utility>

#include "deploy/daemon/artifact_service.h"
#include "deploy/daemon/wire.h"
#include "deploy/support/failpoint.h"
#include "deploy/support/status.h"

namespace tilewright::jobs {
namespace {

using support::MutexLock;

constexpr int64_t kPullWaitSeconds = 15;
constexpr int64_t kPullTimeoutMs = 25'000;
constexpr int64_t kCallTimeoutMs = 10'000;
constexpr int64_t kUploadTimeoutMs = 60'000;
constexpr int64_t kStopTimeoutMs = 1'000;

// The artifacts that a work item names.
std::vector<std::string> ArtifactsOf(const v1::WorkItem& item) {
  std::vector<std::string> digests;
  const v1::Work& work = item.work();
  for (const v1::Digest* digest : {&work.artifact(), &work.expected_output(), &work.baseline()}) {
    const auto hex = daemon::DigestToHex(*digest);
    if (hex.ok()) digests.push_back(*hex);
  }
  return digests;
}

}  // namespace

TrackerDispatcher::TrackerDispatcher(std::shared_ptr<grpc::Channel> channel,
                                     daemon::BlobStore* blobs, DispatcherOptions options,
                                     JobEventSink sink)
    : blobs_(blobs),
      options_(std::move(options)),
      sink_(std::move(sink)),
      dispatch_(v1::DispatchService::NewStub(channel)),
      artifacts_(v1::ArtifactService::NewStub(channel)),
      command_thread_([this] { CommandLoop(); }),
      pull_thread_([this] { PullLoop(); }) {}

TrackerDispatcher::~TrackerDispatcher() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    if (pull_context_ != nullptr) pull_context_->TryCancel();
  }
  wake_.NotifyAll();
  command_thread_.join();
  pull_thread_.join();
}

void TrackerDispatcher::Answer(JobEvent event) {
  {
    MutexLock lock(mutex_);
    if (stopping_) return;
  }
  sink_(std::move(event));
}

int64_t TrackerDispatcher::CallTimeoutMs(int64_t ordinary_ms) {
  MutexLock lock(mutex_);
  return stopping_ ? kStopTimeoutMs : ordinary_ms;
}

void TrackerDispatcher::Add(bool at_stop, std::function<void()> run) {
  {
    MutexLock lock(mutex_);
    commands_.push_back({std::move(run), at_stop});
  }
  wake_.NotifyAll();
}

void TrackerDispatcher::CommandLoop() {
  for (;;) {
    Command command;
    bool stopping = false;
    {
      MutexLock lock(mutex_);
      while (!stopping_ && commands_.empty()) wake_.Wait(mutex_);
      if (commands_.empty()) return;
      stopping = stopping_;
      command = std::move(commands_.front());
      commands_.pop_front();
    }
    if (!stopping || command.at_stop) command.run();
  }
}

void TrackerDispatcher::PullLoop() {
  for (;;) {
    std::string cursor;
    {
      MutexLock lock(mutex_);
      while (!stopping_ && !pull_wanted_) wake_.Wait(mutex_);
      if (stopping_) return;
      pull_wanted_ = false;
      cursor = pull_cursor_;
    }
    Answer(ResultsPulled{PullNow(cursor)});
  }
}

absl::StatusOr<v1::PullResultsResponse> TrackerDispatcher::PullNow(const std::string& cursor) {
  grpc::ClientContext context;
  daemon::SetTimeout(&context, kPullTimeoutMs);
  v1::PullResultsRequest request;
  request.set_consumer(options_.consumer);
  request.set_cursor(cursor);
  request.mutable_max_wait()->set_seconds(kPullWaitSeconds);
  {
    MutexLock lock(mutex_);
    if (stopping_) return absl::CancelledError();
    pull_context_ = &context;
  }
  v1::PullResultsResponse response;
  const grpc::Status status = dispatch_->PullResults(&context, request, &response);
  {
    MutexLock lock(mutex_);
    pull_context_ = nullptr;
  }
  TW_TRY(daemon::FromGrpc(status));
  support::HitFailpoint(support::Failpoint::tuner_results_pulled);
  return response;
}

void TrackerDispatcher::Pull(const std::string& cursor) {
  {
    MutexLock lock(mutex_);
    pull_wanted_ = true;
    pull_cursor_ = cursor;
  }
  wake_.NotifyAll();
}

void TrackerDispatcher::Submit(std::vector<Submission> items) {
  Add(false, [this, items = std::move(items)] { DoSubmit(items); });
}

void TrackerDispatcher::DoSubmit(const std::vector<Submission>& items) {
  WorkSubmitted answer;
  for (const Submission& item : items) answer.trials.push_back(item.trial);
  answer.response = SubmitNow(items);
  Answer(std::move(answer));
}

// Items whose artifacts are not in our own store cannot be sent: they are answered for here.
absl::StatusOr<v1::SubmitWorkResponse> TrackerDispatcher::SubmitNow(
    const std::vector<Submission>& items) {
  v1::SubmitWorkRequest request;
  request.set_consumer(options_.consumer);
  std::set<std::string> artifacts;
  std::vector<bool> sent;
  for (const Submission& submission : items) {
    const std::vector<std::string> digests = ArtifactsOf(submission.item);
    bool complete = true;
    for (const std::string& hex : digests) complete = complete && blobs_->Contains(hex);
    sent.push_back(complete);
    if (!complete) continue;
    artifacts.insert(digests.begin(), digests.end());
    *request.add_work_items() = submission.item;
  }
  v1::SubmitWorkResponse response;
  if (request.work_items_size() > 0) {
    TW_TRY(daemon::UploadMissingArtifacts(
        artifacts_.get(), blobs_, std::vector<std::string>(artifacts.begin(), artifacts.end()),
        kUploadTimeoutMs));
    support::HitFailpoint(support::Failpoint::tuner_work_uploaded);
    grpc::ClientContext context;
    daemon::SetTimeout(&context, kCallTimeoutMs);
    TW_TRY(daemon::FromGrpc(dispatch_->SubmitWork(&context, request, &response)));
    support::HitFailpoint(support::Failpoint::tuner_work_submitted);
    if (response.outcomes_size() != request.work_items_size()) {
      return support::Internal("job.tracker.wrong_reply", "an outcome is missing");
    }
  }
  v1::SubmitWorkResponse all;
  int next = 0;
  for (size_t i = 0; i < items.size(); ++i) {
    if (sent[i]) {
      *all.add_outcomes() = response.outcomes(next++);
      continue;
    }
    v1::SubmitOutcome* outcome = all.add_outcomes();
    outcome->set_work_item(items[i].item.name());
    outcome->set_kind(v1::SubmitOutcome::KIND_MISSING_ARTIFACT);
  }
  return all;
}

void TrackerDispatcher::Acknowledge(const std::string& cursor) {
  Add(true, [this, cursor] {
    grpc::ClientContext context;
    daemon::SetTimeout(&context, CallTimeoutMs(kCallTimeoutMs));
    v1::AckResultsRequest request;
    request.set_consumer(options_.consumer);
    request.set_cursor(cursor);
    google::protobuf::Empty response;
    // A lost acknowledgement only means that the updates come again.
    (void)dispatch_->AckResults(&context, request, &response);
    support::HitFailpoint(support::Failpoint::tuner_results_acked);
  });
}

void TrackerDispatcher::Cancel() {
  Add(true, [this] {
    grpc::ClientContext context;
    daemon::SetTimeout(&context, CallTimeoutMs(kCallTimeoutMs));
    v1::CancelWorkRequest request;
    request.set_consumer(options_.consumer);
    request.set_job(options_.job_uid);
    request.set_kill_running(true);
    v1::CancelWorkResponse response;
    Answer(WorkCancelled{daemon::FromGrpc(dispatch_->CancelWork(&context, request, &response))});
  });
}

void TrackerDispatcher::QueryLoad() {
  Add(false, [this] {
    grpc::ClientContext context;
    daemon::SetTimeout(&context, kCallTimeoutMs);
    v1::GetPoolLoadRequest request;
    request.set_pool(options_.pool);
    request.set_target(options_.target);
    v1::PoolLoad load;
    const absl::Status status = daemon::FromGrpc(dispatch_->GetPoolLoad(&context, request, &load));
    LoadKnown known;
    if (status.ok()) {
      known.load = std::move(load);
    } else {
      known.load = status;
    }
    Answer(std::move(known));
  });
}

}  // namespace tilewright::jobs
