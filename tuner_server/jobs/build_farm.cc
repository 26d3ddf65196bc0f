#include "tuner_server/jobs/build_farm.h"

#include <utility>

#include "deploy/support/failpoint.h"
#include "deploy/support/status.h"
#include "tuner_server/jobs/search_process.h"
#include "tuner_server/search/builder_error.h"

namespace tilewright::jobs {
namespace {

using support::MutexLock;

// A child is replaced after so many builds, so that nothing it leaks lasts.
constexpr int64_t kBuildsPerChild = 5000;

}  // namespace

class BuildFarm::Pool final : public BuildPool {
 public:
  Pool(BuildFarm* farm, int64_t owner) : farm_(farm), owner_(owner) {}
  ~Pool() override { farm_->Remove(owner_); }

  void Start(int64_t trial, const v1::Build& request) override {
    {
      MutexLock lock(farm_->mutex_);
      farm_->owners_[owner_].waiting.push_back({trial, request});
    }
    farm_->wake_.NotifyOne();
  }

  int64_t slots() const override { return farm_->options_.children + 1; }

 private:
  BuildFarm* farm_;
  const int64_t owner_;
};

BuildFarm::BuildFarm(BuildFarmOptions options)
    : options_([&options] {
        options.builder.mode = "build";
        return std::move(options);
      }()) {
  for (int64_t i = 0; i < options_.children; ++i) {
    workers_.push_back(std::make_unique<Worker>());
    Worker* worker = workers_.back().get();
    worker->thread = std::thread([this, worker] { Loop(worker); });
  }
}

BuildFarm::~BuildFarm() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    for (const auto& worker : workers_) {
      if (worker->client != nullptr) worker->client->Kill();
    }
  }
  wake_.NotifyAll();
  for (const auto& worker : workers_) worker->thread.join();
}

std::unique_ptr<BuildPool> BuildFarm::NewPool(JobEventSink sink) {
  MutexLock lock(mutex_);
  const int64_t owner = next_owner_++;
  owners_[owner].sink = std::move(sink);
  return std::make_unique<Pool>(this, owner);
}

void BuildFarm::Remove(int64_t owner) {
  MutexLock lock(mutex_);
  owners_.erase(owner);
}

bool BuildFarm::Next(int64_t* owner, Request* request) {
  MutexLock lock(mutex_);
  for (;;) {
    if (stopping_) return false;
    // The owner after the last one that had a turn, around the circle.
    auto it = owners_.upper_bound(last_turn_);
    for (size_t i = 0; i < owners_.size(); ++i, ++it) {
      if (it == owners_.end()) it = owners_.begin();
      if (it->second.waiting.empty()) continue;
      last_turn_ = it->first;
      *owner = it->first;
      *request = std::move(it->second.waiting.front());
      it->second.waiting.pop_front();
      return true;
    }
    wake_.Wait(mutex_);
  }
}

void BuildFarm::Loop(Worker* worker) {
  int64_t owner = 0;
  Request request;
  while (Next(&owner, &request)) {
    BuildEnded ended = Build(worker, request);
    support::HitFailpoint(support::Failpoint::tuner_build_ended);
    // Under the mutex: a pool that is gone when this returns gets nothing. The sink only queues.
    MutexLock lock(mutex_);
    const auto it = owners_.find(owner);
    if (it != owners_.end() && !stopping_) it->second.sink(std::move(ended));
  }
}

BuildEnded BuildFarm::Build(Worker* worker, const Request& request) {
  BuildEnded ended;
  ended.trial = request.trial;
  ended.outcome = log::Outcome::kBuildError;
  if (worker->client == nullptr || worker->builds >= kBuildsPerChild) {
    auto started = search::BuilderClient::Start(options_.builder);
    if (!started.ok()) {
      ended.crashed = true;
      ended.shortage = support::ShortageOf(started.status());
      ended.error = support::StatusText(started.status());
      return ended;
    }
    MutexLock lock(mutex_);
    worker->client = *std::move(started);
    worker->builds = 0;
    if (stopping_) worker->client->Kill();
  }
  ++worker->builds;
  v1::BuilderRequest message;
  *message.mutable_build() = request.build;
  const auto reply = AskBuilder(worker->client.get(), message, options_.timeout_ms);
  if (!reply.ok()) {
    ended.error = support::StatusText(reply.status());
    ended.crashed = !absl::IsDeadlineExceeded(reply.status());
    ended.shortage = support::ShortageOf(reply.status());
    if (!ended.crashed) ended.outcome = log::Outcome::kBuildTimeout;
    MutexLock lock(mutex_);
    worker->client.reset();
    return ended;
  }
  if (reply->has_built() && reply->built().outcome() == v1::OK) {
    ended.outcome = log::Outcome::kOk;
    ended.built = reply->built();
  } else if (reply->has_error()) {
    ended.shortage = support::ShortageOf(search::FromBuilderError(reply->error()));
    ended.error = reply->error().message();
  } else {
    ended.error = reply->built().error();
  }
  return ended;
}

}  // namespace tilewright::jobs
