#include "tests/support/agent_swarm.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "deploy/daemon/wire.h"
#include "deploy/support/hash.h"
#include "deploy/support/rng.h"
#include "device_agent/agent_core.h"
#include "device_agent/sample_stats.h"
#include "tilewright/v1/agent.grpc.pb.h"

namespace tilewright::tests {
namespace {

using device_agent::Record;
using device_agent::WorkOrder;
using support::MutexLock;

constexpr int64_t kMsNs = 1'000'000;
constexpr int64_t kSyncSlackMs = 10'000;  // as the agent has it
constexpr int64_t kReportTimeoutMs = 15'000;
constexpr int64_t kUnreachableMs = 1'000;
constexpr size_t kReportBatch = 64;
constexpr int kSamples = 10;

v1::MeasurementResult Measured(support::Rng* rng) {
  v1::MeasurementResult result;
  result.set_outcome(v1::OK);
  result.set_value_kind(v1::VALUE_KIND_WALL_NS);
  std::vector<double> samples;
  for (int i = 0; i < kSamples; ++i) samples.push_back(1e6 * (1 + 0.01 * rng->UniformDouble()));
  for (const double sample : samples) result.add_samples(sample);
  result.set_inner_loops(1);
  result.set_median(device_agent::ComputeStats(samples).median);
  result.set_baseline_before(1e6);
  result.set_baseline_after(1e6);
  result.set_valid(true);
  return result;
}

}  // namespace

Alarms::Alarms() : thread_([this] { Run(); }) {}

Alarms::~Alarms() {
  {
    MutexLock lock(mutex_);
    stop_ = true;
    changed_.NotifyAll();
  }
  thread_.join();
}

void Alarms::After(int64_t delay_ms, std::function<void()> run) {
  MutexLock lock(mutex_);
  due_.emplace(clock_.NowNs() + delay_ms * kMsNs, std::move(run));
  changed_.NotifyAll();
}

void Alarms::Run() {
  constexpr int64_t kLongMs = 1000;
  while (true) {
    std::function<void()> run;
    {
      MutexLock lock(mutex_);
      if (stop_) return;
      const int64_t left_ns = due_.empty() ? kLongMs * kMsNs : due_.begin()->first - clock_.NowNs();
      if (left_ns > 0) {
        changed_.WaitForMs(mutex_, left_ns / kMsNs + 1);
        continue;
      }
      run = std::move(due_.begin()->second);
      due_.erase(due_.begin());
    }
    run();
  }
}

// The order of calls is that of device_agent/agent_loop.cc: a Sync always waits at the tracker; one
// with news overtakes it; results go out on their own.
class SwarmAgent {
 public:
  SwarmAgent(const std::string& name, const v1::DeviceReport& device, const SwarmOptions& options,
             const std::shared_ptr<grpc::ChannelCredentials>& credentials, Alarms* alarms)
      : options_(options),
        device_(device.device()),
        alarms_(alarms),
        stub_(v1::AgentService::NewStub(daemon::MakeChannel(options.address, {true, credentials}))),
        rng_(support::StableHash64(name)),
        backoff_(rng_.Split("sync")),
        report_backoff_(rng_.Split("report")),
        core_({.agent = "agents/" + name,
               .session_id = name + ".1",
               .boot_id = "boot",
               .version = "swarm"},
              device_agent::Ledger()) {
    core_.SetDevice(device);
  }

  void Start() {
    MutexLock lock(mutex_);
    Sync();
  }

  void Stop() {
    MutexLock lock(mutex_);
    stop_ = true;
    for (grpc::ClientContext* context : calls_) context->TryCancel();
    while (!calls_.empty()) idle_.Wait(mutex_);
  }

  uint64_t epoch() const { return epoch_.load(); }

  SwarmCounts counts() {
    MutexLock lock(mutex_);
    return counts_;
  }

 private:
  struct SyncCall {
    grpc::ClientContext context;
    v1::SyncRequest request;
    v1::SyncResponse response;
  };
  struct ReportCall {
    grpc::ClientContext context;
    v1::ReportResultsRequest request;
    v1::ReportResultsResponse response;
  };

  void Sync() TW_REQUIRES(mutex_) {
    if (stop_) return;
    auto call = std::make_shared<SyncCall>();
    call->request = core_.MakeSync(reachable_ ? options_.sync_hold_ms : 0);
    daemon::SetTimeout(&call->context, options_.sync_hold_ms + kSyncSlackMs);
    calls_.insert(&call->context);
    current_ = call.get();
    stub_->async()->Sync(&call->context, &call->request, &call->response,
                         [this, call](const grpc::Status& status) { Synced(call, status); });
  }

  void Synced(const std::shared_ptr<SyncCall>& call, const grpc::Status& status) {
    MutexLock lock(mutex_);
    Ended(&call->context);
    if (stop_) return;
    bool news = false;
    if (status.ok()) {
      ++counts_.sync_answers;
      reachable_ = true;
      epoch_.store(std::max<uint64_t>(epoch_.load(), call->response.tracker_epoch()));
      news = Take(core_.OnSync(call->response).records);
    } else {
      ++counts_.failed_calls;
    }
    if (call.get() != current_) {
      if (news) Sync();
      return;
    }
    current_ = nullptr;
    if (status.ok()) {
      backoff_.Reset();
      return Sync();
    }
    reachable_ = false;
    alarms_->After(std::min(backoff_.NextMs(), kUnreachableMs), [this] {
      MutexLock again(mutex_);
      if (current_ == nullptr) Sync();
    });
  }

  // True when there was anything: the tracker wants to hear of it.
  bool Take(const std::vector<Record>& records) TW_REQUIRES(mutex_) {
    for (const Record& record : records) {
      core_.Apply(record);
      for (const v1::Work& work : record.grant.work()) {
        if (options_.on_grant) options_.on_grant(work.work_item(), work.attempt());
      }
    }
    if (!records.empty()) Measure();
    return !records.empty();
  }

  void Measure() TW_REQUIRES(mutex_) {
    const std::optional<WorkOrder> order = core_.Next(device_);
    if (!order.has_value()) return;
    core_.Apply(core_.StartedRecord(*order));
    alarms_->After(options_.measure_ms, [this, order = *order] {
      MutexLock lock(mutex_);
      if (stop_) return;
      ++counts_.measured;
      core_.Apply(core_.ResultRecord(order, Measured(&rng_)));
      Report();
      Measure();
    });
  }

  void Report() TW_REQUIRES(mutex_) {
    if (stop_ || reporting_ || core_.unacked_count() == 0) return;
    reporting_ = true;
    auto call = std::make_shared<ReportCall>();
    for (v1::MeasurementResult& result : core_.Unacked(kReportBatch)) {
      *call->request.add_results() = std::move(result);
    }
    call->request.set_agent(core_.Unacked(1).front().agent());
    daemon::SetTimeout(&call->context, kReportTimeoutMs);
    calls_.insert(&call->context);
    stub_->async()->ReportResults(
        &call->context, &call->request, &call->response,
        [this, call](const grpc::Status& status) { Reported(call, status); });
  }

  void Reported(const std::shared_ptr<ReportCall>& call, const grpc::Status& status) {
    MutexLock lock(mutex_);
    Ended(&call->context);
    if (stop_) return;
    const std::vector<Record> acknowledged =
        status.ok() ? core_.OnAcks(call->response) : std::vector<Record>();
    if (acknowledged.empty()) {
      ++counts_.failed_calls;
      alarms_->After(std::min(report_backoff_.NextMs(), kUnreachableMs), [this] {
        MutexLock again(mutex_);
        reporting_ = false;
        Report();
      });
      return;
    }
    report_backoff_.Reset();
    counts_.acknowledged += static_cast<int64_t>(acknowledged.size());
    for (const Record& record : acknowledged) core_.Apply(record);
    reporting_ = false;
    Report();
    if (current_ != nullptr) Sync();  // the lease is over, or shrinks
  }

  void Ended(grpc::ClientContext* context) TW_REQUIRES(mutex_) {
    calls_.erase(context);
    idle_.NotifyAll();
  }

  const SwarmOptions& options_;
  const std::string device_;
  Alarms* const alarms_;
  const std::unique_ptr<v1::AgentService::Stub> stub_;
  std::atomic<uint64_t> epoch_{0};
  support::Mutex mutex_;
  support::CondVar idle_;
  support::Rng rng_ TW_GUARDED_BY(mutex_);
  daemon::Backoff backoff_ TW_GUARDED_BY(mutex_);
  daemon::Backoff report_backoff_ TW_GUARDED_BY(mutex_);
  device_agent::AgentCore core_ TW_GUARDED_BY(mutex_);
  std::set<grpc::ClientContext*> calls_ TW_GUARDED_BY(mutex_);
  const SyncCall* current_ TW_GUARDED_BY(mutex_) = nullptr;  // the newest; null between two
  bool reachable_ TW_GUARDED_BY(mutex_) = false;
  bool reporting_ TW_GUARDED_BY(mutex_) = false;
  bool stop_ TW_GUARDED_BY(mutex_) = false;
  SwarmCounts counts_ TW_GUARDED_BY(mutex_);
};

AgentSwarm::AgentSwarm(SwarmOptions options) : options_(std::move(options)) {}

AgentSwarm::~AgentSwarm() { Stop(); }

void AgentSwarm::Add(const std::string& name, const v1::DeviceReport& device,
                     const std::shared_ptr<grpc::ChannelCredentials>& credentials) {
  agents_.push_back(std::make_unique<SwarmAgent>(name, device, options_, credentials, &alarms_));
  agents_.back()->Start();
}

void AgentSwarm::Stop() {
  for (const auto& agent : agents_) agent->Stop();
}

int AgentSwarm::Synced(uint64_t epoch) const {
  return static_cast<int>(std::count_if(
      agents_.begin(), agents_.end(), [&](const auto& agent) { return agent->epoch() >= epoch; }));
}

uint64_t AgentSwarm::Epoch() const {
  uint64_t highest = 0;
  for (const auto& agent : agents_) highest = std::max(highest, agent->epoch());
  return highest;
}

SwarmCounts AgentSwarm::counts() const {
  SwarmCounts all;
  for (const auto& agent : agents_) {
    const SwarmCounts one = agent->counts();
    all.sync_answers += one.sync_answers;
    all.failed_calls += one.failed_calls;
    all.measured += one.measured;
    all.acknowledged += one.acknowledged;
  }
  return all;
}

}  // namespace tilewright::tests
