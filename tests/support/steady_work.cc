#include "tests/support/steady_work.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "deploy/daemon/wire.h"
#include "deploy/support/strings.h"
#include "tests/support/patience.h"

namespace tilewright::tests {
namespace {

using support::MutexLock;
using support::StrCat;

constexpr char kConsumer[] = "steady-tuner";
constexpr int64_t kCallMs = 5'000;
constexpr int64_t kAgainMs = 100;

}  // namespace

struct SteadyWork::Submit {
  grpc::ClientContext context;
  v1::SubmitWorkRequest request;
  v1::SubmitWorkResponse response;
};

SteadyWork::SteadyWork(SteadyWorkOptions options)
    : options_(std::move(options)),
      stub_(v1::DispatchService::NewStub(
          daemon::MakeChannel(options_.address, {true, options_.credentials}))) {}

SteadyWork::~SteadyWork() {
  finishing_.store(true);
  stop_.store(true);
  for (std::thread& thread : threads_) thread.join();
  MutexLock lock(mutex_);
  while (submits_out_ > 0) changed_.Wait(mutex_);
}

void SteadyWork::Start() {
  threads_.emplace_back([this] { SubmitLoop(); });
  threads_.emplace_back([this] { PullLoop(); });
}

void SteadyWork::SubmitLoop() {
  const double period_ns = 1e9 * options_.items_per_call / options_.items_per_s;
  const int64_t begin_ns = clock_.NowNs();
  int64_t again_ns = begin_ns;
  for (int64_t round = 0, number = 0; !stop_.load();) {
    const int64_t due_ns = begin_ns + static_cast<int64_t>(period_ns * static_cast<double>(round));
    const int64_t now_ns = clock_.NowNs();
    if (now_ns >= again_ns) {
      again_ns = now_ns + kAgainMs * 1'000'000;
      std::vector<std::string> again;
      {
        MutexLock lock(mutex_);
        again = std::exchange(again_, {});
      }
      if (!again.empty()) Send(std::move(again));
    }
    if (finishing_.load() || now_ns < due_ns) {
      support::SleepMs(1);
      continue;
    }
    ++round;
    std::vector<std::string> names;
    for (int i = 0; i < options_.items_per_call; ++i) names.push_back(StrCat("steady/", ++number));
    {
      MutexLock lock(mutex_);
      counts_.submitted = number;
      for (const std::string& name : names) due_ns_[name] = due_ns;
    }
    Send(std::move(names));
  }
}

void SteadyWork::Send(std::vector<std::string> names) {
  auto call = std::make_shared<Submit>();
  call->request.set_consumer(kConsumer);
  for (const std::string& name : names) {
    v1::WorkItem* item = call->request.add_work_items();
    *item = options_.model;
    item->set_name(name);
    item->mutable_work()->set_work_item(name);
  }
  {
    MutexLock lock(mutex_);
    ++submits_out_;
  }
  daemon::SetTimeout(&call->context, Patiently(kCallMs));
  stub_->async()->SubmitWork(&call->context, &call->request, &call->response,
                             [this, call, names = std::move(names)](const grpc::Status& status) {
                               MutexLock lock(mutex_);
                               if (!status.ok())
                                 again_.insert(again_.end(), names.begin(), names.end());
                               for (const v1::SubmitOutcome& outcome : call->response.outcomes()) {
                                 const bool taken =
                                     outcome.kind() == v1::SubmitOutcome::KIND_ACCEPTED ||
                                     outcome.kind() == v1::SubmitOutcome::KIND_EXISTS ||
                                     outcome.kind() == v1::SubmitOutcome::KIND_NO_DEVICE_NOW;
                                 counts_.refused += taken ? 0 : 1;
                               }
                               --submits_out_;
                               changed_.NotifyAll();
                             });
}

void SteadyWork::Granted(const std::string& work_item, int attempt) {
  const int64_t now_ns = clock_.NowNs();
  MutexLock lock(mutex_);
  const auto due = due_ns_.find(work_item);
  if (due == due_ns_.end()) return;
  if (attempt == 1) dispatch_ms_.push_back(static_cast<double>(now_ns - due->second) * 1e-6);
  due_ns_.erase(due);
}

std::vector<double> SteadyWork::TakeDispatchMs() {
  MutexLock lock(mutex_);
  return std::exchange(dispatch_ms_, {});
}

void SteadyWork::Pull(std::string* cursor) {
  v1::PullResultsRequest request;
  request.set_consumer(kConsumer);
  request.set_cursor(*cursor);
  request.mutable_max_wait()->set_nanos(500'000'000);
  v1::PullResultsResponse response;
  grpc::ClientContext context;
  daemon::SetTimeout(&context, Patiently(kCallMs));
  if (!stub_->PullResults(&context, request, &response).ok()) {
    support::SleepMs(kAgainMs);
    return;
  }
  {
    MutexLock lock(mutex_);
    for (const v1::WorkUpdate& update : response.updates()) {
      if (!cursors_.insert(update.cursor()).second) continue;
      if (update.has_result() && !results_.insert(update.result().measurement_id()).second) {
        ++counts_.results_twice;
      }
      if (update.state() == v1::WORK_STATE_QUEUED) continue;
      counts_.ended_not_done += update.state() == v1::WORK_STATE_DONE ? 0 : 1;
      counts_.ended_twice += ended_.insert(update.work_item()).second ? 0 : 1;
    }
    counts_.ended = static_cast<int64_t>(ended_.size());
  }
  *cursor = response.cursor();
  v1::AckResultsRequest ack;
  ack.set_consumer(kConsumer);
  ack.set_cursor(*cursor);
  google::protobuf::Empty empty;
  grpc::ClientContext ack_context;
  daemon::SetTimeout(&ack_context, Patiently(kCallMs));
  (void)stub_->AckResults(&ack_context, ack, &empty);  // a later one says the same
}

void SteadyWork::PullLoop() {
  std::string cursor;
  while (!stop_.load()) Pull(&cursor);
}

bool SteadyWork::Finish(int64_t patience_ms) {
  finishing_.store(true);
  const int64_t end_ns = clock_.NowNs() + patience_ms * 1'000'000;
  bool all = false;
  while (!all && clock_.NowNs() < end_ns) {
    support::SleepMs(10);
    MutexLock lock(mutex_);
    all = counts_.ended >= counts_.submitted && submits_out_ == 0 && again_.empty();
  }
  stop_.store(true);
  return all;
}

WorkCounts SteadyWork::counts() const {
  MutexLock lock(mutex_);
  return counts_;
}

double Quantile(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const double rank = std::ceil(share * static_cast<double>(values.size())) - 1;
  return values[static_cast<size_t>(std::clamp<double>(rank, 0, values.size() - 1.0))];
}

}  // namespace tilewright::tests
