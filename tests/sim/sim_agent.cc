#include "tests/sim/sim_agent.h"

#include <algorithm>
#include <utility>

#include "deploy/daemon/fleet_contract.h"
#include "deploy/support/hash.h"
#include "deploy/support/strings.h"

namespace tilewright::sim {

using device_agent::AgentCore;
using device_agent::MeasurementId;
using device_agent::Record;
using device_agent::WorkOrder;
using support::StatusText;
using support::StrCat;

namespace {

constexpr int64_t kHoldMs = 10'000;
constexpr int64_t kSyncTimeoutNs = 20 * kSecond;
constexpr int64_t kReportTimeoutNs = 15 * kSecond;
constexpr int64_t kFetchTimeoutNs = 10 * kSecond;
constexpr int64_t kSpoolRetryNs = 500 * kMs;
constexpr int64_t kRetryLaterNs = kSecond;
constexpr int64_t kDrainNs = 30 * kSecond;
constexpr size_t kReportBatch = 8;
constexpr int64_t kMaxBackoffNs = 10 * kSecond;

int64_t NsOf(const google::protobuf::Duration& duration) {
  return duration.seconds() * kSecond + duration.nanos();
}

}  // namespace

// What a process has in memory.
struct SimAgent::Process {
  std::unique_ptr<device_agent::Spool> spool;
  std::unique_ptr<AgentCore> core;
  bool ready = false;
  bool news_planned = false;
  uint64_t sync_id = 0;  // of the current call
  bool sync_out = false;
  bool reporting = false;
  int64_t backoff_ns = 200 * kMs;
  std::set<std::string> working;        // devices with an order in hand
  std::map<std::string, uint64_t> run;  // device -> number of its measurement
  std::set<std::string> degraded;
  uint64_t next_run = 1;
};

SimAgent::SimAgent(SimWorld* world, SimNet* net, SimTracker* tracker, SimTruth* truth, int number,
                   int devices)
    : world_(world),
      net_(net),
      tracker_(tracker),
      truth_(truth),
      node_(world->AddNode(StrCat("agent", number))),
      name_(StrCat("agents/a", number)) {
  for (int i = 0; i < devices; ++i) devices_.push_back(StrCat("devices/a", number, "d", i));
}

SimAgent::~SimAgent() = default;

bool SimAgent::IsPoison(const std::string& artifact) {
  return support::StableHash64(artifact) % 37 == 0;
}

v1::DeviceReport SimAgent::Report(const std::string& device) const {
  v1::DeviceReport report;
  report.set_device(device);
  report.set_key("board");
  report.set_fingerprint("f1");
  auto& attributes = *report.mutable_attributes();
  attributes["kind"].set_s("cpu");
  attributes["arch"].set_s("x86_64");
  attributes["cpu"].set_s("x86-64");
  attributes["cores"].set_i(2);
  report.set_health(v1::HEALTH_GOOD);
  return report;
}

void SimAgent::Start() {
  world_->Boot(node_);
  process_ = std::make_unique<Process>();
  file_.forgets_sync = bugs.spool_without_sync;
  device_agent::Ledger ledger;
  auto spool =
      device_agent::Spool::Open(std::make_unique<SimSpoolFile>(&file_), name_ + ".spool", &ledger);
  if (!spool.ok()) {
    if (absl::IsResourceExhausted(spool.status())) {  // a full disk: the supervisor tries again
      process_.reset();
      world_->Kill(node_);
      return StartLater();
    }
    process_.reset();
    world_->Kill(node_);
    world_->Fail(StrCat(name_, " cannot start: ", StatusText(spool.status())));
    return;
  }
  process_->spool = *std::move(spool);
  device_agent::AgentIdentity identity;
  identity.agent = name_;
  identity.session_id = StrCat(name_, ".s", ++session_);
  identity.boot_id = StrCat("boot", boot_);
  process_->core = std::make_unique<AgentCore>(identity, std::move(ledger));
  for (const std::string& device : devices_) {
    if (gone_.count(device) == 0) process_->core->SetDevice(Report(device));
  }
  world_->Tell(StrCat(name_, " starts"));
  const std::vector<Record> recovered = process_->core->Recover();
  if (!Persist(recovered).ok()) {  // as above: nothing was said yet
    world_->Kill(node_);
    process_.reset();
    return StartLater();
  }
  StartSync();
  KickReports();
  for (const std::string& device : devices_) Kick(device);
}

void SimAgent::Crash(bool power) {
  world_->Tell(StrCat(name_, power ? " loses power" : " dies"));
  world_->Kill(node_);
  process_.reset();
  if (!power) return;
  ++boot_;
  file_.PowerCut(&world_->rng());
}

void SimAgent::LoseSpool() {
  TW_CHECK(process_ == nullptr) << name_ << " runs";
  world_->Tell(name_ + " loses its spool");
  file_ = SimFile();
}

void SimAgent::Vanish(int device, bool gone) {
  const std::string& name = devices_[static_cast<size_t>(device) % devices_.size()];
  // A real agent reads its devices at its start; a device that goes away shows as degraded.
  if (gone) {
    gone_.insert(name);
  } else {
    gone_.erase(name);
  }
  if (process_ != nullptr) SetHealth(name, gone ? v1::HEALTH_DEGRADED : v1::HEALTH_GOOD);
}

void SimAgent::BreakDevice(int device, bool broken) {
  const std::string& name = devices_[static_cast<size_t>(device) % devices_.size()];
  if (broken) world_->Tell(name + " breaks");
  if (broken) {
    broken_.insert(name);
  } else {
    broken_.erase(name);
  }
}

void SimAgent::Drain() {
  if (process_ == nullptr) return;
  world_->Tell(name_ + " drains");
  (void)Persist(process_->core->Drain());
  News();
  world_->After(node_, kDrainNs, [this] { Stop(); });
}

// Ends in good order; the supervisor of the host starts it again.
void SimAgent::Stop() {
  Crash(false);
  StartLater();
}

void SimAgent::StartLater() {
  world_->AfterAlways(kSecond, [this] {
    if (!world_->up(node_)) Start();
  });
}

absl::Status SimAgent::Persist(const std::vector<Record>& records) {
  for (const Record& record : records) {
    TW_TRY(process_->spool->Append(record, device_agent::MustBeSynced(record.kind)));
    if (record.kind == Record::Kind::kGrant) truth_->Granted(record.grant);
    if (record.kind == Record::Kind::kResult) truth_->Made(record.result);
    process_->core->Apply(record);
  }
  return absl::OkStatus();
}

void SimAgent::SetHealth(const std::string& device, v1::Health health) {
  v1::DeviceReport report = Report(device);
  report.set_health(gone_.count(device) != 0 ? v1::HEALTH_DEGRADED : health);
  process_->core->SetDevice(report);
  News();
}

void SimAgent::RemoveUnacked(std::set<std::string>* keys) const {
  if (process_ == nullptr) return;
  for (const auto& [id, result] : process_->core->ledger().unacked()) {
    keys->erase(SimTruth::KeyOf(result));
  }
}

std::string SimAgent::Text() const {
  if (process_ == nullptr) return name_ + " is down\n";
  std::string text = StrCat(name_, ": ", process_->core->unacked_count(), " unacked\n");
  for (const auto& [name, lease] : process_->core->ledger().leases()) {
    text += "  " + name + (process_->working.count(lease.device) != 0 ? " at work" : " idle");
    for (const device_agent::LedgerItem& item : lease.items) {
      text += StrCat(" ", MeasurementId(item.work), "=", static_cast<int>(item.state));
    }
    text += "\n";
  }
  return text;
}

// --- Sync

void SimAgent::News() {
  if (std::exchange(process_->news_planned, true)) return;
  world_->After(node_, 0, [this] {
    process_->news_planned = false;
    if (process_->sync_out) StartSync();  // overtakes
  });
}

void SimAgent::StartSync() {
  auto request = std::make_shared<v1::SyncRequest>(
      process_->core->MakeSync(process_->ready && !process_->core->draining() ? kHoldMs : 0));
  const uint64_t id = ++process_->sync_id;
  process_->sync_out = true;
  net_->Call<v1::SyncResponse>(
      node_, tracker_->node(), kSyncTimeoutNs,
      [this, request](const auto& response, std::function<bool()> gone, SimNet::Finish finish) {
        tracker::LoopCall call = tracker::SyncCall(request.get(), response.get(), name_);
        call.apply = [this, request, apply = std::move(call.apply)](tracker::DevicePool& pool,
                                                                    tracker::Now now) {
          tracker_->oracle().SyncTaken(*request);
          return apply(pool, now);
        };
        call.cancelled = std::move(gone);
        call.finish = [request, response, finish](const absl::Status& status) { finish(status); };
        tracker_->Post(std::move(call));
      },
      [this, id](const absl::Status& status, const v1::SyncResponse& response) {
        OnSync(id, status, response);
      });
}

void SimAgent::OnSync(uint64_t id, const absl::Status& status, const v1::SyncResponse& response) {
  if (status.ok()) TakeResponse(response);
  if (id != process_->sync_id) return;  // overtaken
  process_->sync_out = false;
  // A late message of the session before may make the tracker take that one for the newest: the
  // agent then ends, and its supervisor starts a session newer than both.
  if (support::Slug(status) == "agent.session.replaced") return Stop();
  int64_t pause_ns = 0;
  if (status.ok()) {
    process_->ready = true;
    process_->backoff_ns = 200 * kMs;
    pause_ns = response.has_restarting() ? world_->Between(200 * kMs, 2 * kSecond)
                                         : NsOf(response.next_sync());
    if (process_->core->draining()) {
      pause_ns = std::max(pause_ns, 50 * kMs);
      if (process_->core->quiet() && process_->core->unacked_count() == 0) {
        return Stop();
      }
    }
  } else {
    pause_ns = world_->Between(process_->backoff_ns / 2, process_->backoff_ns);
    process_->backoff_ns = std::min(process_->backoff_ns * 2, kMaxBackoffNs);
  }
  world_->After(node_, pause_ns, [this] {
    if (!process_->sync_out) StartSync();
  });
}

void SimAgent::TakeResponse(const v1::SyncResponse& response) {
  AgentCore::SyncActions actions = process_->core->OnSync(response);
  if (bugs.takes_old_tokens) {
    for (const v1::Grant& grant : response.grants()) {
      if (process_->core->ledger().leases().count(grant.lease()) != 0) continue;
      Record record;
      record.grant = grant;
      const bool known =
          std::any_of(actions.records.begin(), actions.records.end(),
                      [&](const Record& one) { return one.grant.lease() == grant.lease(); });
      if (!known) actions.records.push_back(record);
    }
  }
  const bool changed = !actions.records.empty();
  (void)Persist(actions.records);  // a grant that is not written down is offered again
  for (const std::string& device : process_->core->OnSync(response).kill) {
    const auto run = process_->run.find(device);
    if (run != process_->run.end()) run->second = 0;  // its measurement is told at its end
  }
  if (changed) News();
  for (const std::string& device : devices_) Kick(device);
}

// --- results

void SimAgent::KickReports() {
  if (process_->reporting || process_->core->unacked_count() == 0) return;
  process_->reporting = true;
  auto request = std::make_shared<v1::ReportResultsRequest>();
  for (v1::MeasurementResult& result : process_->core->Unacked(kReportBatch)) {
    *request->add_results() = std::move(result);
  }
  request->set_agent(name_);
  net_->Call<v1::ReportResultsResponse>(
      node_, tracker_->node(), kReportTimeoutNs,
      [this, request](const auto& response, std::function<bool()>, SimNet::Finish finish) {
        tracker::LoopCall call = tracker::ReportCall(request.get(), response.get(), name_);
        call.finish = [this, request, response, finish](const absl::Status& status) {
          if (status.ok()) truth_->Acked(*request, *response, tracker_->database());
          finish(status);
        };
        tracker_->Post(std::move(call));
      },
      [this](const absl::Status& status, const v1::ReportResultsResponse& response) {
        OnReported(status, response);
      });
  if (!bugs.forgets_before_ack) return;
  v1::ReportResultsResponse imagined;
  for (const v1::MeasurementResult& result : request->results()) {
    imagined.add_acks()->set_measurement_id(result.measurement_id());
    imagined.mutable_acks()->rbegin()->set_disposition(v1::DISPOSITION_STORED);
  }
  (void)Persist(process_->core->OnAcks(imagined));
}

void SimAgent::OnReported(const absl::Status& status, const v1::ReportResultsResponse& response) {
  int64_t pause_ns = world_->Between(kSecond / 5, 3 * kSecond);
  if (status.ok()) {
    const std::vector<Record> records = process_->core->OnAcks(response);
    const absl::Status persisted = Persist(records);
    pause_ns = !persisted.ok() || records.empty() ? kRetryLaterNs : 0;
    News();
  }
  world_->After(node_, pause_ns, [this] {
    process_->reporting = false;
    KickReports();
  });
}

// --- measuring

void SimAgent::Kick(const std::string& device) {
  if (process_->working.count(device) != 0) return;
  const std::optional<WorkOrder> order = process_->core->Next(device);
  if (!order) return;
  process_->working.insert(device);
  process_->core->Hold(*order);
  Fetch(*order);
}

void SimAgent::Idle(const std::string& device) {
  process_->working.erase(device);
  process_->core->LetGo(device);
  // Also the others: a suspect waits while another one runs.
  world_->After(node_, 0, [this] {
    for (const std::string& each : devices_) Kick(each);
  });
}

void SimAgent::Fetch(const WorkOrder& order) {
  const std::string hex = support::HexEncode(order.work.artifact().hash());
  const auto cached = cache_.find(hex);
  if (cached != cache_.end()) return OnFetched(order, absl::OkStatus(), cached->second);
  net_->Call<v1::Ack>(  // any message that carries bytes
      node_, tracker_->node(), kFetchTimeoutNs,
      [this, hex](const auto& response, std::function<bool()>, SimNet::Finish finish) {
        auto bytes = tracker_->blobs()->Get(hex);
        if (bytes.ok()) {
          // Not text, but nothing here encodes it.
          response->set_detail(support::HexEncode(*bytes));
        }
        finish(bytes.status());
      },
      [this, order, hex](const absl::Status& status, const v1::Ack& response) {
        if (!status.ok()) return OnFetched(order, status, "");
        std::string bytes = support::HexDecode(response.detail()).value_or("");
        if (world_->Happens(corrupt)) bytes += "?";
        if (!bugs.trusts_artifacts && support::Sha256Hex(bytes) != hex) {
          return OnFetched(order, absl::UnavailableError("digest mismatch"), "");
        }
        cache_[hex] = bytes;
        OnFetched(order, status, bytes);
      });
}

void SimAgent::OnFetched(const WorkOrder& order, const absl::Status& status,
                         const std::string& bytes) {
  if (!process_->core->StillWanted(order)) return Idle(order.device);
  if (status.ok()) return Begin(order, bytes);
  const bool again = absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status);
  if (again) {
    world_->After(node_, world_->Between(kSecond / 5, 3 * kSecond), [this, order] {
      if (!process_->core->StillWanted(order)) return Idle(order.device);
      Fetch(order);
    });
    return;
  }
  v1::MeasurementResult result;
  result.set_outcome(v1::DEVICE_LOST);
  result.set_error_class(absl::IsNotFound(status) ? daemon::kArtifactMissingClass : "AGENT");
  result.set_error_detail(StatusText(status));
  End(order, std::move(result));
}

void SimAgent::Begin(const WorkOrder& order, const std::string& bytes) {
  if (!process_->core->StillWanted(order)) return Idle(order.device);
  if (!Persist({process_->core->StartedRecord(order)}).ok()) {
    SetHealth(order.device, v1::HEALTH_DEGRADED);
    process_->degraded.insert(order.device);
    world_->After(node_, kSpoolRetryNs, [this, order, bytes] { Begin(order, bytes); });
    return;
  }
  if (process_->degraded.erase(order.device) != 0) SetHealth(order.device, v1::HEALTH_GOOD);
  if (!process_->core->busy(order.device)) return Idle(order.device);  // revoked meanwhile
  Measure(order, bytes);
}

void SimAgent::Measure(const WorkOrder& order, const std::string& bytes) {
  if (support::Sha256Hex(bytes) != support::HexEncode(order.work.artifact().hash())) {
    world_->Fail("damaged bytes are measured: " + MeasurementId(order.work));
  }
  v1::MeasurementResult result;
  result.set_value_kind(v1::VALUE_KIND_WALL_NS);
  int64_t takes_ns = world_->Between(20 * kMs, 400 * kMs) * (slow_host ? 10 : 1);
  if (IsPoison(bytes) || world_->Happens(faults.crash)) {
    result.set_outcome(v1::DEVICE_LOST);
    result.set_phase("timed");
  } else if (broken_.count(order.device) != 0) {
    result.set_outcome(v1::RUN_CRASH);
    result.set_phase("timed");
  } else if (world_->Happens(faults.hang)) {
    result.set_outcome(v1::RUN_TIMEOUT);
    takes_ns = std::max(takes_ns, NsOf(order.work.wall_limit()));
  } else if (world_->Happens(faults.wrong)) {
    result.set_outcome(v1::WRONG_RESULT);
    result.set_valid(true);
  } else {
    result.set_outcome(v1::OK);
    result.set_valid(!world_->Happens(faults.invalid));
    result.set_median(truth_->NextMedian());
    result.add_samples(result.median());
    result.set_baseline_before(1000 + 10 * world_->rng().UniformDouble());
    result.set_baseline_after(1000 + 10 * world_->rng().UniformDouble());
  }
  measured_ns[order.device] += takes_ns;
  const uint64_t run = process_->next_run++;
  process_->run[order.device] = run;
  world_->After(node_, takes_ns, [this, order, result, run] {
    v1::MeasurementResult told = result;
    if (process_->run[order.device] != run) {  // killed by a revocation
      told.Clear();
      told.set_outcome(v1::CANCELLED);
      told.set_error_class("REVOKED");
    }
    process_->run.erase(order.device);
    End(order, std::move(told));
  });
}

void SimAgent::End(const WorkOrder& order, v1::MeasurementResult result) {
  Spool(process_->core->ResultRecord(order, std::move(result)));
  if (world_->Happens(faults.lies)) Lie();
}

void SimAgent::Spool(const Record& record) {
  const std::string device = record.result.device();
  if (!Persist({record}).ok()) {
    if (process_->degraded.insert(device).second) SetHealth(device, v1::HEALTH_DEGRADED);
    world_->After(node_, kSpoolRetryNs, [this, record] { Spool(record); });
    return;
  }
  if (process_->degraded.erase(device) != 0) SetHealth(device, v1::HEALTH_GOOD);
  News();
  KickReports();
  Idle(device);
}

// Results of attempts that this agent never had, under its own and other devices' names.
void SimAgent::Lie() {
  auto request = std::make_shared<v1::ReportResultsRequest>();
  for (const auto& [name, lease] : process_->core->ledger().leases()) {
    for (const device_agent::LedgerItem& item : lease.items) {
      v1::MeasurementResult* result = request->add_results();
      result->set_work_item(item.work.work_item());
      result->set_attempt(item.work.attempt() + static_cast<int>(world_->rng().Uniform(2)));
      result->set_measurement_id(StrCat(result->work_item(), "/", result->attempt()));
      result->set_device(lease.device);
      result->set_lease(name);
      result->set_fencing_token(lease.token + 1'000'000 +
                                static_cast<int64_t>(world_->rng().Uniform(3)));
      result->set_outcome(v1::OK);
      result->set_valid(true);
      result->set_median(1);
    }
  }
  net_->Call<v1::ReportResultsResponse>(
      node_, tracker_->node(), kReportTimeoutNs,
      [this, request](const auto& response, std::function<bool()>, SimNet::Finish finish) {
        tracker::LoopCall call = tracker::ReportCall(request.get(), response.get(), name_);
        call.finish = [request, response, finish](const absl::Status& status) { finish(status); };
        tracker_->Post(std::move(call));
      },
      [this](const absl::Status& status, const v1::ReportResultsResponse& response) {
        for (const v1::Ack& ack : response.acks()) {
          if (status.ok() && ack.disposition() == v1::DISPOSITION_STORED) {
            world_->Fail("a lie was stored: " + ack.measurement_id());
          }
        }
      });
}

}  // namespace tilewright::sim
