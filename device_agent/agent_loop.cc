#include "device_agent/agent_loop.h"

#include <algorithm>
#include <list>
#include <thread>
#include <utility>

#include "deploy/daemon/daemon_log.h"
#include "deploy/daemon/systemd.h"
#include "deploy/support/clock.h"
#include "deploy/support/duration.h"
#include "deploy/support/failpoint.h"
#include "deploy/support/file.h"
#include "deploy/support/hash.h"
#include "deploy/support/rng.h"
#include "deploy/support/strings.h"
#include "device_agent/host_state.h"
#include "device_agent/measured_result.h"

namespace tilewright::device_agent {
namespace {

using daemon::LogError;
using daemon::LogInfo;
using daemon::LogWarning;

constexpr int64_t kSyncSlackMs = 10'000;  // beyond the hold, before a silent tracker is given up
constexpr int64_t kReportTimeoutMs = 15'000;
constexpr int64_t kRetryLaterMs = 1'000;
constexpr int64_t kUnreachableMs = 1'000;
constexpr int64_t kSpoolRetryMs = 500;
constexpr int64_t kBeatMs = 1'000;
constexpr size_t kReportBatch = 64;
constexpr char kUnknownPool[] = "unknown";  // of a device that has not worked yet
constexpr int64_t kDrainStepMs = 50;
constexpr int64_t kTellEndMs = 2'000;

// A call without a connection costs the tracker nothing, and when to connect again is the channel's
// to decide; calls that the tracker answers with an error come more and more seldom.
int64_t PauseAfterError(const absl::Status& error, daemon::Backoff* backoff) {
  const int64_t pause_ms = backoff->NextMs();
  return support::Slug(error) == "rpc.unavailable" ? std::min(pause_ms, kUnreachableMs) : pause_ms;
}

}  // namespace

struct AgentLoop::SyncCall {
  grpc::ClientContext context;
  v1::SyncRequest request;
  v1::SyncResponse response;
  absl::Status status;
  bool done = false;  // guarded by the loop's mutex
};

absl::StatusOr<std::unique_ptr<AgentLoop>> AgentLoop::Create(AgentLoopOptions options,
                                                             std::shared_ptr<grpc::Channel> channel,
                                                             daemon::Metrics* metrics,
                                                             daemon::StopSignal* stop) {
  auto loop = std::unique_ptr<AgentLoop>(
      new AgentLoop(std::move(options), std::move(channel), metrics, stop));
  const AgentLoopOptions& given = loop->options_;
  Ledger ledger;
  {
    support::MutexLock lock(loop->spool_mutex_);
    TW_ASSIGN(loop->spool_, Spool::Open(support::PathJoin(given.state_dir, "spool"), &ledger));
    if (loop->spool_->dropped_bytes() > 0) {
      LogWarning("spool.torn", {{"bytes", loop->spool_->dropped_bytes()}});
    }
  }
  TW_ASSIGN(loop->cache_, ArtifactCache::Open(support::PathJoin(given.state_dir, "artifacts"),
                                              given.cache_bytes, loop->artifact_stub_.get()));
  std::vector<Record> recovered;
  {
    support::MutexLock lock(loop->mutex_);
    loop->core_ = std::make_unique<AgentCore>(given.identity, std::move(ledger));
    for (const AgentDevice& device : given.devices) {
      v1::DeviceReport& report = loop->devices_[device.name];
      report.set_device(device.name);
      report.set_key(device.pool.empty() ? kUnknownPool : device.pool);
      for (const auto& [key, value] : device.labels) (*report.mutable_labels())[key] = value;
      report.set_can_reset(!given.reset.command.empty());
      loop->core_->SetDevice(report);
    }
    recovered = loop->core_->Recover();
  }
  std::vector<std::string> names;
  for (const AgentDevice& device : given.devices) {
    names.push_back(device.name);
    loop->supervisors_[device.name] = std::make_unique<Supervisor>(device.supervisor);
  }
  TW_TRY(loop->StartDevices());
  TW_ASSIGN(loop->resets_, ResetRunner::Create(given.reset, names, given.state_dir, &loop->clock_,
                                               [loop = loop.get()](const std::string& device,
                                                                   const v1::ResetReport& report) {
                                                 loop->SetReset(device, report);
                                               }));
  TW_TRY(loop->Persist(recovered));
  support::HitFailpoint(support::Failpoint::agent_recovered);
  if (!recovered.empty()) {
    LogInfo("spool.recovered", {{"records", static_cast<int64_t>(recovered.size())}});
  }
  return loop;
}

AgentLoop::AgentLoop(AgentLoopOptions options, std::shared_ptr<grpc::Channel> channel,
                     daemon::Metrics* metrics, daemon::StopSignal* stop)
    : options_(std::move(options)),
      metrics_(metrics),
      stop_(stop),
      agent_stub_(v1::AgentService::NewStub(channel)),
      artifact_stub_(v1::ArtifactService::NewStub(channel)) {}

AgentLoop::~AgentLoop() = default;

support::Rng AgentLoop::Jitter(std::string_view purpose) const {
  return support::Rng(support::StableHash64(options_.identity.session_id)).Split(purpose);
}

absl::Status AgentLoop::Persist(const std::vector<Record>& records) {
  support::MutexLock spool_lock(spool_mutex_);
  for (const Record& record : records) {
    TW_TRY(spool_->Append(record, MustBeSynced(record.kind)));
    support::HitFailpoint(support::Failpoint::agent_persisted);
    support::MutexLock lock(mutex_);
    core_->Apply(record);
    support::HitFailpoint(support::Failpoint::agent_applied);
  }
  if (!spool_->WantsCompaction()) return absl::OkStatus();
  std::vector<Record> snapshot;
  {
    support::MutexLock lock(mutex_);
    snapshot = core_->ledger().Snapshot();
  }
  const absl::Status rewritten = spool_->Rewrite(snapshot);
  // The long file serves as well as the short one would.
  if (!rewritten.ok()) LogWarning("spool.rewrite", {{"error", support::StatusText(rewritten)}});
  return absl::OkStatus();
}

void AgentLoop::SetHealth(const std::string& device, const absl::Status& trouble) {
  if (trouble.ok()) {
    LogInfo("device.good", {{"device", device}});
  } else {
    LogError("device.degraded", {{"device", device}, {"error", support::StatusText(trouble)}});
  }
  support::MutexLock lock(mutex_);
  v1::DeviceReport& report = devices_.at(device);
  report.clear_conditions();
  report.set_health(trouble.ok() ? v1::HEALTH_GOOD : v1::HEALTH_DEGRADED);
  if (!trouble.ok()) {
    v1::Condition* condition = report.add_conditions();
    condition->set_type("AGENT_TROUBLE");
    condition->set_reason(support::Slug(trouble));
    condition->set_message(support::StatusText(trouble));
  }
  core_->SetDevice(report);
  news_ = true;
  changed_.NotifyAll();
}

void AgentLoop::SetReset(const std::string& device, const v1::ResetReport& reset) {
  support::MutexLock lock(mutex_);
  v1::DeviceReport& report = devices_.at(device);
  *report.mutable_last_reset() = reset;
  core_->SetDevice(report);
  news_ = true;
  changed_.NotifyAll();
}

bool AgentLoop::PersistStubbornly(const Record& record, const std::string& device) {
  bool degraded = false;
  while (true) {
    const absl::Status status = Persist({record});
    if (status.ok()) break;
    if (!degraded) LogError("spool.failed", {{"error", support::StatusText(status)}});
    if (!degraded) SetHealth(device, status);
    degraded = true;
    if (!Pause(kSpoolRetryMs)) return false;
  }
  if (degraded) SetHealth(device, absl::OkStatus());
  return true;
}

bool AgentLoop::Pause(int64_t pause_ms) {
  support::SystemClock clock;
  const int64_t end_ns = clock.NowNs() + pause_ms * 1'000'000;
  support::MutexLock lock(mutex_);
  while (!ending_) {
    const int64_t left_ms = (end_ns - clock.NowNs()) / 1'000'000;
    if (left_ms <= 0) break;
    changed_.WaitForMs(mutex_, left_ms);
  }
  return !ending_;
}

void AgentLoop::Finish(absl::Status status) {
  support::MutexLock lock(mutex_);
  if (status_.ok()) status_ = std::move(status);
  ending_ = true;
  changed_.NotifyAll();
}

// --- Sync
// -----------------------------------------------------------------------------------------

std::shared_ptr<AgentLoop::SyncCall> AgentLoop::StartSync(bool hold) {
  auto call = std::make_shared<SyncCall>();
  {
    support::MutexLock lock(mutex_);
    // The first answer, also after trouble, says that the tracker knows this agent, the last ones
    // that it knows of the end: nothing to hold them back for.
    hold = hold && ready_ && !core_->draining();
    call->request = core_->MakeSync(hold ? options_.max_wait_ms : 0);
    news_ = false;
  }
  daemon::SetTimeout(&call->context, options_.max_wait_ms + kSyncSlackMs);
  agent_stub_->async()->Sync(&call->context, &call->request, &call->response,
                             [this, call](grpc::Status status) {
                               support::MutexLock lock(mutex_);
                               call->status = daemon::FromGrpc(status);
                               call->done = true;
                               changed_.NotifyAll();
                             });
  support::HitFailpoint(support::Failpoint::agent_sync_sent);
  return call;
}

void AgentLoop::AnnounceReady() {
  {
    support::MutexLock lock(mutex_);
    if (ready_) return;
    ready_ = true;
  }
  LogInfo("agent.ready", {{"agent", options_.identity.agent}, {"tracker", options_.ready_text}});
  daemon::NotifySystemd("READY=1");
  if (options_.ready_file.empty()) return;
  const absl::Status written =
      support::WriteFileAtomic(options_.ready_file, options_.ready_text + "\n");
  if (!written.ok()) Finish(written);
}

void AgentLoop::TakeResponse(const v1::SyncResponse& response) {
  support::HitFailpoint(support::Failpoint::agent_sync_answered);
  AgentCore::SyncActions actions;
  {
    support::MutexLock lock(mutex_);
    actions = core_->OnSync(response);
  }
  for (const v1::ResetOrder& order : response.resets()) resets_->Order(order);
  for (const std::string& warning : actions.warnings) {
    LogWarning("tracker.warning", {{"text", warning}});
  }
  for (const Record& record : actions.records) {
    if (record.kind != Record::Kind::kGrant) continue;
    LogInfo("lease.granted", {{"lease", record.grant.lease()},
                              {"device", record.grant.device()},
                              {"work_items", record.grant.work_size()}});
  }
  // A grant that cannot be written down is not taken: the tracker offers it again.
  const absl::Status status = Persist(actions.records);
  if (!status.ok()) LogError("spool.failed", {{"error", support::StatusText(status)}});
  if (!actions.records.empty()) {
    support::HitFailpoint(support::Failpoint::agent_grant_taken);
  }
  // Looked at again: what waited when the answer came may run by now.
  std::vector<std::string> kill;
  {
    support::MutexLock lock(mutex_);
    kill = core_->OnSync(response).kill;
  }
  for (const std::string& device : kill) {
    LogInfo("worker.revoked", {{"device", device}});
    supervisors_.at(device)->Abort();
  }
  support::MutexLock lock(mutex_);
  if (!actions.records.empty()) news_ = true;  // name the lease, or show what is dropped
  changed_.NotifyAll();
}

int64_t AgentLoop::PauseAfter(const v1::SyncResponse& response) {
  if (!response.has_restarting()) return support::DurationMs(response.next_sync());
  const int64_t low =
      std::max<int64_t>(0, support::DurationMs(response.restarting().retry_after_min()));
  const int64_t high = std::max(low, support::DurationMs(response.restarting().retry_after_max()));
  return Jitter("restarting").UniformInt(low, high);
}

void AgentLoop::SyncLoop() {
  daemon::Backoff backoff(Jitter("sync"));
  std::list<std::shared_ptr<SyncCall>> overtaken;
  bool reachable = true;
  std::shared_ptr<SyncCall> current = StartSync(reachable);
  while (true) {
    bool answered = false, overtake = false;
    {
      support::MutexLock lock(mutex_);
      // An overtaken call may have been answered with a grant before the tracker saw the newer one.
      const auto arrived = [&] {
        return current->done || std::any_of(overtaken.begin(), overtaken.end(),
                                            [](const auto& call) { return call->done; });
      };
      while (!ending_ && !news_ && !arrived()) {
        daemon::BeatWatchdog();
        changed_.WaitForMs(mutex_, kBeatMs);
      }
      if (ending_) break;
      answered = current->done;
      overtake = !answered && news_;
    }
    if (overtake) {  // something changed: tell at once; the tracker then answers the older call
      overtaken.push_back(std::exchange(current, StartSync(reachable)));
    }
    for (auto it = overtaken.begin(); it != overtaken.end();) {
      bool done = false;
      {
        support::MutexLock lock(mutex_);
        done = (*it)->done;
      }
      if (done && (*it)->status.ok()) TakeResponse((*it)->response);
      it = done ? overtaken.erase(it) : std::next(it);
    }
    if (!answered) continue;
    int64_t pause_ms = 0;
    if (current->status.ok()) {
      if (!reachable) LogInfo("tracker.reachable");
      reachable = true;
      backoff.Reset();
      TakeResponse(current->response);
      AnnounceReady();
      pause_ms = PauseAfter(current->response);
      if (current->request.draining()) {
        pause_ms = std::max(pause_ms, kDrainStepMs);
        support::MutexLock lock(mutex_);
        end_told_ = current->request.leases().empty();
      }
    } else if (absl::IsAborted(current->status) &&
               support::Slug(current->status) == "agent.session.replaced") {
      Finish(current->status);
      break;
    } else {
      pause_ms = PauseAfterError(current->status, &backoff);
      const std::string error = support::StatusText(current->status);
      if (reachable && daemon::IsRefused(current->status)) {
        LogError("tracker.refused", {{"error", error}});
      } else if (reachable) {
        LogWarning("tracker.lost", {{"error", error}});
      }
      reachable = false;
    }
    bool goes_on = Pause(std::min(pause_ms, kBeatMs));
    for (int64_t left_ms = pause_ms - kBeatMs; goes_on && left_ms > 0; left_ms -= kBeatMs) {
      daemon::BeatWatchdog();
      goes_on = Pause(std::min(left_ms, kBeatMs));
    }
    if (!goes_on) break;
    current = StartSync(reachable);
  }
  overtaken.push_back(current);
  for (const auto& call : overtaken) call->context.TryCancel();
  support::MutexLock lock(mutex_);
  for (const auto& call : overtaken) {
    while (!call->done) changed_.Wait(mutex_);
  }
}

// --- results
// --------------------------------------------------------------------------------------

bool AgentLoop::ReportOnce(daemon::Backoff* backoff, int64_t* pause_ms) {
  v1::ReportResultsRequest request;
  {
    support::MutexLock lock(mutex_);
    while (!ending_ && core_->unacked_count() == 0) changed_.Wait(mutex_);
    if (ending_) return false;
    for (v1::MeasurementResult& result : core_->Unacked(kReportBatch)) {
      *request.add_results() = std::move(result);
    }
  }
  request.set_agent(options_.identity.agent);
  request.set_session_id(options_.identity.session_id);
  v1::ReportResultsResponse response;
  grpc::ClientContext context;
  daemon::SetTimeout(&context, kReportTimeoutMs);
  support::HitFailpoint(support::Failpoint::agent_report_sent);
  absl::Status status = daemon::FromGrpc(agent_stub_->ReportResults(&context, request, &response));
  support::HitFailpoint(support::Failpoint::agent_report_answered);
  if (!status.ok()) {
    *pause_ms = PauseAfterError(status, backoff);
    return true;
  }
  backoff->Reset();
  std::vector<Record> records;
  {
    support::MutexLock lock(mutex_);
    records = core_->OnAcks(response);
  }
  for (const v1::Ack& ack : response.acks()) {
    daemon::LogDebug("result.acked", {{"measurement_id", ack.measurement_id()},
                                      {"disposition", v1::Disposition_Name(ack.disposition())}});
    if (ack.disposition() != v1::DISPOSITION_REJECTED) continue;
    LogWarning("result.rejected",
               {{"measurement_id", ack.measurement_id()}, {"detail", ack.detail()}});
  }
  status = Persist(records);
  if (!status.ok()) LogError("spool.failed", {{"error", support::StatusText(status)}});
  support::HitFailpoint(support::Failpoint::agent_report_acked);
  *pause_ms = !status.ok() || records.empty() ? kRetryLaterMs : 0;
  support::MutexLock lock(mutex_);
  news_ = true;
  changed_.NotifyAll();
  return true;
}

void AgentLoop::ReportLoop() {
  daemon::Backoff backoff(Jitter("report"));
  int64_t pause_ms = 0;
  while (ReportOnce(&backoff, &pause_ms)) {
    if (pause_ms > 0 && !Pause(pause_ms)) return;
    pause_ms = 0;
  }
}

// --- start and end
// --------------------------------------------------------------------------------

void AgentLoop::BeginDrain() {
  std::vector<Record> records;
  {
    support::MutexLock lock(mutex_);
    records = core_->Drain();
    news_ = true;
    changed_.NotifyAll();
  }
  LogInfo("agent.draining", {{"returned", static_cast<int64_t>(records.size())}});
  const absl::Status status = Persist(records);
  if (!status.ok()) LogError("spool.failed", {{"error", support::StatusText(status)}});
  // What runs ends, is reported and acknowledged; what is not stays in the spool. The tracker hears
  // that the rest is given back, where it can be reached; else the leases expire.
  support::SystemClock clock;
  const int64_t begin_ns = clock.NowNs();
  while (true) {
    const int64_t elapsed_ms = (clock.NowNs() - begin_ns) / 1'000'000;
    if (elapsed_ms > options_.drain_ms) break;
    {
      support::MutexLock lock(mutex_);
      const bool told = end_told_ || elapsed_ms > kTellEndMs;
      if (core_->quiet() && core_->unacked_count() == 0 && told) break;
    }
    if (!Pause(kDrainStepMs)) break;
  }
}

absl::Status AgentLoop::Run() {
  std::vector<std::thread> threads;
  threads.emplace_back([this] { SyncLoop(); });
  threads.emplace_back([this] { ReportLoop(); });
  for (const AgentDevice& device : options_.devices) {
    threads.emplace_back([this, &device] { DeviceLoop(device); });
  }
  while (!stop_->Wait(200)) {
    support::MutexLock lock(mutex_);
    if (ending_) break;
  }
  daemon::NotifySystemd("STOPPING=1");
  if (stop_->requested()) BeginDrain();
  Finish(absl::OkStatus());
  for (const auto& [device, supervisor] : supervisors_) supervisor->Abort();
  for (std::thread& thread : threads) thread.join();
  if (!options_.ready_file.empty()) support::RemoveFile(options_.ready_file).IgnoreError();
  support::MutexLock lock(mutex_);
  return status_;
}

}  // namespace tilewright::device_agent
