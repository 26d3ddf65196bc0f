#include "device_agent/ledger.h"

#include <algorithm>
#include <utility>

#include "deploy/support/strings.h"

namespace tilewright::device_agent {

std::string MeasurementId(const v1::Work& work) {
  return support::StrCat(work.work_item(), "/", work.attempt());
}

bool LedgerLease::ended() const {
  return std::none_of(items.begin(), items.end(), [](const LedgerItem& item) {
    return item.state == ItemState::kWaiting || item.state == ItemState::kStarted;
  });
}

int64_t Ledger::last_token(const std::string& device) const {
  const auto it = tokens_.find(device);
  return it == tokens_.end() ? 0 : it->second;
}

const LedgerItem* Ledger::FindItem(const std::string& measurement_id) const {
  return const_cast<Ledger*>(this)->MutableItem(measurement_id);
}

LedgerItem* Ledger::MutableItem(const std::string& measurement_id) {
  const auto owner = lease_of_.find(measurement_id);
  if (owner == lease_of_.end()) return nullptr;
  for (LedgerItem& item : leases_.at(owner->second).items) {
    if (MeasurementId(item.work) == measurement_id) return &item;
  }
  return nullptr;
}

void Ledger::AddGrant(const v1::Grant& grant) {
  int64_t& token = tokens_[grant.device()];
  token = std::max(token, grant.fencing_token());
  if (grant.work().empty() || leases_.count(grant.lease()) != 0) return;
  LedgerLease lease;
  lease.lease = grant.lease();
  lease.device = grant.device();
  lease.token = grant.fencing_token();
  for (const v1::Work& work : grant.work()) {
    // The same attempt twice is the mistake of a tracker that lost its memory; the first one keeps
    // the name, and the tracker sees that this lease was not done.
    if (unacked_.count(MeasurementId(work)) != 0) continue;
    if (!lease_of_.emplace(MeasurementId(work), grant.lease()).second) continue;
    lease.items.push_back({work, ItemState::kWaiting, ""});
  }
  if (lease.items.empty()) return;
  leases_.emplace(grant.lease(), std::move(lease));
}

void Ledger::ForgetIfEnded(const std::string& lease) {
  const auto it = leases_.find(lease);
  if (it == leases_.end()) return;
  const auto& items = it->second.items;
  const bool live = std::any_of(items.begin(), items.end(), [](const LedgerItem& item) {
    return item.state != ItemState::kAcked && item.state != ItemState::kDropped;
  });
  if (live) return;
  for (const LedgerItem& item : items) lease_of_.erase(MeasurementId(item.work));
  leases_.erase(it);
}

void Ledger::Apply(const Record& record) {
  if (record.kind == Record::Kind::kGrant || record.kind == Record::Kind::kToken) {
    AddGrant(record.grant);
    return;
  }
  const std::string& id = record.result.measurement_id();
  LedgerItem* item = MutableItem(id);
  const bool open =
      item != nullptr && (item->state == ItemState::kWaiting || item->state == ItemState::kStarted);
  switch (record.kind) {
    case Record::Kind::kStarted:
      if (!open) return;
      item->state = ItemState::kStarted;
      item->boot_id = record.result.boot_id();
      return;
    case Record::Kind::kResult:
      // Kept even when its lease is gone: the tracker decides what a late result is worth. But one
      // attempt has one result.
      if (item != nullptr && !open) return;
      unacked_.emplace(id, record.result);
      if (item == nullptr) return;
      item->state = ItemState::kReported;
      item->boot_id.clear();
      return;
    case Record::Kind::kAcked:
      unacked_.erase(id);
      if (item == nullptr || item->state != ItemState::kReported) return;
      item->state = ItemState::kAcked;
      break;
    case Record::Kind::kDropped:
      // Decided while it waited; where it was started meanwhile, it runs to its end.
      if (item == nullptr || item->state != ItemState::kWaiting) return;
      item->state = ItemState::kDropped;
      break;
    default:
      return;
  }
  ForgetIfEnded(lease_of_.at(id));
}

std::vector<Record> Ledger::Snapshot() const {
  std::vector<Record> records;
  const auto named = [](Record::Kind kind, const std::string& id, const std::string& boot) {
    Record record;
    record.kind = kind;
    record.result.set_measurement_id(id);
    record.result.set_boot_id(boot);
    return record;
  };
  for (const auto& [device, token] : tokens_) {
    Record& record = records.emplace_back();
    record.kind = Record::Kind::kToken;
    record.grant.set_device(device);
    record.grant.set_fencing_token(token);
  }
  for (const auto& [name, lease] : leases_) {
    Record& record = records.emplace_back();
    record.grant.set_lease(name);
    record.grant.set_device(lease.device);
    record.grant.set_fencing_token(lease.token);
    for (const LedgerItem& item : lease.items) *record.grant.add_work() = item.work;
  }
  for (const auto& [id, result] : unacked_) {
    Record& record = records.emplace_back();
    record.kind = Record::Kind::kResult;
    record.result = result;
  }
  for (const auto& [name, lease] : leases_) {
    for (const LedgerItem& item : lease.items) {
      const std::string id = MeasurementId(item.work);
      if (item.state == ItemState::kStarted) {
        records.push_back(named(Record::Kind::kStarted, id, item.boot_id));
      } else if (item.state == ItemState::kDropped) {
        records.push_back(named(Record::Kind::kDropped, id, ""));
      } else if (item.state == ItemState::kAcked) {
        records.push_back(named(Record::Kind::kResult, id, ""));
        records.push_back(named(Record::Kind::kAcked, id, ""));
      }
    }
  }
  return records;
}

}  // namespace tilewright::device_agent
