#include "device_agent/agent_core.h"

#include <google/protobuf/util/time_util.h>

#include <algorithm>
#include <utility>

#include "deploy/daemon/fleet_contract.h"
#include "deploy/support/protocol_revision.h"
#include "deploy/support/strings.h"

namespace tilewright::device_agent {
namespace {

constexpr size_t kMaxReportBytes = 4 << 20;  // a tracker takes 16 MiB

Record Named(Record::Kind kind, const std::string& measurement_id) {
  Record record;
  record.kind = kind;
  record.result.set_measurement_id(measurement_id);
  return record;
}

}  // namespace

AgentCore::AgentCore(AgentIdentity identity, Ledger recovered)
    : identity_(std::move(identity)), ledger_(std::move(recovered)) {}

void AgentCore::SetDevice(const v1::DeviceReport& report) { devices_[report.device()] = report; }

std::vector<Record> AgentCore::Recover() const {
  std::vector<Record> records;
  for (const auto& [name, lease] : ledger_.leases()) {
    for (const LedgerItem& item : lease.items) {
      const WorkOrder order{name, lease.token, lease.device, item.work};
      if (devices_.count(lease.device) == 0 && item.state == ItemState::kWaiting) {
        // The device is not offered any more; nobody would ever measure it.
        records.push_back(Named(Record::Kind::kDropped, MeasurementId(item.work)));
      }
      if (item.state != ItemState::kStarted) continue;
      v1::MeasurementResult result;
      result.set_outcome(v1::DEVICE_LOST);
      result.set_error_class("AGENT");
      const bool rebooted = item.boot_id != identity_.boot_id;
      result.set_error_detail(rebooted
                                  ? "the host went down while the candidate was measured"
                                  : "the agent was restarted while the candidate was measured");
      result.set_phase(rebooted ? "timed" : daemon::kAgentEndedPhase);
      records.push_back(ResultRecord(order, std::move(result)));
    }
  }
  return records;
}

void AgentCore::Apply(const Record& record) {
  const std::string& id = record.result.measurement_id();
  if (record.kind == Record::Kind::kResult) {
    std::erase_if(running_, [&](const auto& entry) { return entry.second == id; });
  }
  ledger_.Apply(record);
  if (record.kind != Record::Kind::kStarted) return;
  const LedgerItem* item = ledger_.FindItem(id);
  if (item != nullptr && item->state == ItemState::kStarted) running_[record.result.device()] = id;
}

v1::Activity AgentCore::ActivityOf(const std::string& device) const {
  if (busy(device)) return v1::ACTIVITY_MEASURING;
  for (const auto& [name, lease] : ledger_.leases()) {
    if (lease.device == device && !lease.ended()) return v1::ACTIVITY_PREPARING;
  }
  return v1::ACTIVITY_IDLE;
}

v1::SyncRequest AgentCore::MakeSync(int64_t max_wait_ms) {
  v1::SyncRequest request;
  request.set_agent(identity_.agent);
  request.set_boot_id(identity_.boot_id);
  request.set_session_id(identity_.session_id);
  request.set_sequence(++sequence_);
  request.set_protocol_revision(support::kProtocolRevision);
  request.set_software_version(identity_.version);
  request.set_draining(draining_);
  *request.mutable_max_wait() =
      google::protobuf::util::TimeUtil::MillisecondsToDuration(max_wait_ms);
  request.set_known_tracker_epoch(tracker_epoch_);
  request.set_unacked_results(static_cast<int32_t>(unacked_count()));
  for (const auto& [name, device] : devices_) {
    v1::DeviceReport* report = request.add_devices();
    *report = device;
    report->set_activity(ActivityOf(name));
    report->set_highest_fencing_token(ledger_.last_token(name));
  }
  for (const auto& [name, lease] : ledger_.leases()) {
    v1::LeaseReport* report = request.add_leases();
    report->set_lease(name);
    report->set_fencing_token(lease.token);
    report->set_total(static_cast<int32_t>(lease.items.size()));
    int done = 0;
    bool started = false;
    for (const LedgerItem& item : lease.items) {
      done += item.state == ItemState::kReported || item.state == ItemState::kAcked ? 1 : 0;
      started = started || item.state != ItemState::kWaiting;
      if (item.state == ItemState::kStarted) report->set_running_work_item(item.work.work_item());
    }
    report->set_done(done);
    report->set_phase(lease.ended() ? v1::LEASE_PHASE_FINISHED
                      : started     ? v1::LEASE_PHASE_RUNNING
                                    : v1::LEASE_PHASE_RECEIVED);
  }
  return request;
}

bool AgentCore::TakesGrant(const v1::Grant& grant, SyncActions* actions) const {
  if (draining_ || ledger_.leases().count(grant.lease()) != 0) return false;
  if (devices_.count(grant.device()) == 0) {
    actions->warnings.push_back("a grant for an unknown device: " + grant.device());
    return false;
  }
  // Also the same token: a repeated grant of a lease that has ended here.
  if (grant.fencing_token() <= ledger_.last_token(grant.device())) {
    actions->warnings.push_back(support::StrCat("a grant with an old token: ", grant.lease()));
    return false;
  }
  return true;
}

void AgentCore::DropWaiting(const LedgerLease& lease, const v1::Revoke* revoke,
                            SyncActions* actions) const {
  const auto meant = [&](const std::string& work_item) {
    if (revoke == nullptr || revoke->work_items().empty()) return true;
    return std::find(revoke->work_items().begin(), revoke->work_items().end(), work_item) !=
           revoke->work_items().end();
  };
  for (const LedgerItem& item : lease.items) {
    if (!meant(item.work.work_item())) continue;
    const std::string id = MeasurementId(item.work);
    if (item.state == ItemState::kWaiting) {
      actions->records.push_back(Named(Record::Kind::kDropped, id));
    }
    const auto running = running_.find(lease.device);
    const bool runs = running != running_.end() && running->second == id;
    if (runs && revoke != nullptr && revoke->kill_now()) actions->kill.push_back(lease.device);
  }
}

AgentCore::SyncActions AgentCore::OnSync(const v1::SyncResponse& response) {
  SyncActions actions;
  // Answers of calls that were overtaken may come late; an epoch never goes back.
  tracker_epoch_ = std::max<uint64_t>(tracker_epoch_, response.tracker_epoch());
  actions.warnings.assign(response.warnings().begin(), response.warnings().end());
  for (const v1::Grant& grant : response.grants()) {
    if (!TakesGrant(grant, &actions)) continue;
    Record& record = actions.records.emplace_back();
    record.kind = Record::Kind::kGrant;
    record.grant = grant;
  }
  for (const v1::Revoke& revoke : response.revokes()) {
    const auto it = ledger_.leases().find(revoke.lease());
    if (it != ledger_.leases().end()) DropWaiting(it->second, &revoke, &actions);
  }
  for (const std::string& name : response.unknown_leases()) {
    const auto it = ledger_.leases().find(name);
    if (it != ledger_.leases().end()) DropWaiting(it->second, nullptr, &actions);
  }
  return actions;
}

// Whether another device has a suspect.
bool AgentCore::OtherSuspect(const std::string& device) const {
  const auto suspect = [&](const auto& entry) {
    const LedgerItem* item = ledger_.FindItem(entry.second);
    return entry.first != device && item != nullptr && item->work.suspect();
  };
  return std::any_of(running_.begin(), running_.end(), suspect) ||
         std::any_of(held_.begin(), held_.end(), suspect);
}

std::optional<WorkOrder> AgentCore::Next(const std::string& device) const {
  if (draining_ || busy(device)) return std::nullopt;
  const LedgerLease* oldest = nullptr;
  for (const auto& [name, lease] : ledger_.leases()) {
    if (lease.device != device || lease.ended()) continue;
    if (oldest == nullptr || lease.token < oldest->token) oldest = &lease;
  }
  if (oldest == nullptr) return std::nullopt;
  for (const LedgerItem& item : oldest->items) {
    if (item.state != ItemState::kWaiting) continue;
    if (item.work.suspect() && OtherSuspect(device)) continue;
    return WorkOrder{oldest->lease, oldest->token, device, item.work};
  }
  return std::nullopt;
}

bool AgentCore::StillWanted(const WorkOrder& order) const {
  const LedgerItem* item = ledger_.FindItem(MeasurementId(order.work));
  return !draining_ && item != nullptr && item->state == ItemState::kWaiting;
}

Record AgentCore::StartedRecord(const WorkOrder& order) const {
  Record record = Named(Record::Kind::kStarted, MeasurementId(order.work));
  record.result.set_device(order.device);
  record.result.set_boot_id(identity_.boot_id);
  return record;
}

Record AgentCore::ResultRecord(const WorkOrder& order, v1::MeasurementResult result) const {
  result.set_measurement_id(MeasurementId(order.work));
  result.set_work_item(order.work.work_item());
  result.set_attempt(order.work.attempt());
  result.set_lease(order.lease);
  result.set_fencing_token(order.token);
  result.set_device(order.device);
  const auto device = devices_.find(order.device);
  if (device != devices_.end()) {
    result.set_device_fingerprint(device->second.fingerprint());
    result.set_device_class(device->second.key());
    const auto& attributes = device->second.attributes();
    const auto compiler = attributes.find(daemon::kDriverCompilerAttribute);
    if (compiler != attributes.end()) result.set_driver_compiler(compiler->second.s());
  }
  result.set_agent(identity_.agent);
  result.set_agent_version(identity_.version);
  result.set_boot_id(identity_.boot_id);
  Record record;
  record.kind = Record::Kind::kResult;
  record.result = std::move(result);
  return record;
}

std::vector<v1::MeasurementResult> AgentCore::Unacked(size_t limit) const {
  std::vector<v1::MeasurementResult> results;
  size_t bytes = 0;
  for (const auto& [id, result] : ledger_.unacked()) {
    bytes += result.ByteSizeLong();
    if (results.size() == limit || (!results.empty() && bytes > kMaxReportBytes)) break;
    results.push_back(result);
  }
  return results;
}

std::vector<Record> AgentCore::OnAcks(const v1::ReportResultsResponse& response) const {
  std::vector<Record> records;
  for (const v1::Ack& ack : response.acks()) {
    switch (ack.disposition()) {
      case v1::DISPOSITION_STORED:
      case v1::DISPOSITION_ALREADY_STORED:
      case v1::DISPOSITION_SUPERSEDED:
      case v1::DISPOSITION_REJECTED:
        if (ledger_.unacked().count(ack.measurement_id()) != 0) {
          records.push_back(Named(Record::Kind::kAcked, ack.measurement_id()));
        }
        break;
      default:  // RETRY_LATER, and words of a later protocol
        break;
    }
  }
  return records;
}

std::vector<Record> AgentCore::Drain() {
  draining_ = true;
  SyncActions actions;
  for (const auto& [name, lease] : ledger_.leases()) DropWaiting(lease, nullptr, &actions);
  return std::move(actions.records);
}

}  // namespace tilewright::device_agent
