// Devices and leases. Agents: device_pool_sync.cc. Work items and results: device_pool_work.cc.
// People: device_pool_admin.cc.
#include "tracker/device_pool.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "deploy/support/strings.h"

namespace tilewright::tracker {
namespace {

constexpr int64_t kRevocationLifeNs = 600 * kSecondNs;
constexpr int64_t kExpiredLeaseLifeNs = 3600 * kSecondNs;

}  // namespace

DevicePool::DevicePool(PoolOptions options, Snapshot snapshot, Now now)
    : options_(options),
      store_id_(std::move(snapshot.store_id)),
      epoch_(snapshot.epoch),
      next_work_seq_(snapshot.next_work_seq),
      next_outbox_seq_(snapshot.next_outbox_seq),
      share_(options_.share) {
  for (UsageRow& row : snapshot.usage) usage_[row.user] = row;
  for (DeviceRow& row : snapshot.devices) {
    Device& device = devices_[row.name];
    if (row.hold.has_value()) {
      const int64_t left_us = std::max<int64_t>(0, row.hold->expire_us - now.wall_us);
      device.hold_until_ns = now.mono_ns + left_us * 1000;
    }
    device.health = DeviceHealth(options_.health);
    device.next_probe_ns =
        now.mono_ns + std::max<int64_t>(0, row.health.next_probe_us - now.wall_us) * 1000;
    device.row = std::move(row);
    if (NeedsWatching(device)) watched_devices_.insert(device.row.name);
  }
  std::set<std::string> unacknowledged;
  for (OutboxRow& row : snapshot.outbox) {
    const int64_t seq = row.seq;
    unacknowledged.insert(row.work_item);
    outbox_[row.consumer].emplace(seq, std::move(row));
    ++outbox_size_;
  }
  std::vector<WorkRow*> queued;
  for (WorkRow& loaded : snapshot.items) {
    WorkRow& row = items_.emplace_hint(items_.end(), loaded.item.name(), WorkRow())->second;
    row = std::move(loaded);
    if (row.open()) {
      RestoreOpen(&row, now);
      if (row.state == v1::WORK_STATE_QUEUED) queued.push_back(&row);
      continue;
    }
    row.closed_ns = now.mono_ns;
    if (unacknowledged.count(row.item.name()) == 0) MayForget(row.item.name());
  }
  std::sort(queued.begin(), queued.end(), [](auto* a, auto* b) { return a->seq < b->seq; });
  for (WorkRow* row : queued) Enqueue(row, now);
  // What they cost before this start is forgotten.
  for (auto& [name, lease] : leases_) {
    const QueueTerms& terms = items_.at(lease.items.front()).item.terms().queue;
    BeginCharge(&lease, terms.flow, terms.weight, 0, now);
  }
}

void DevicePool::RestoreOpen(WorkRow* row, Now now) {
  const std::string& name = row->item.name();
  CountOpen(row->item, +1);
  if (IsCanary(*row)) devices_[CanaryDevice(row->item)].canary = name;
  row->queued_ns = now.mono_ns;
  if (row->item.queue_timeout_s() > 0) {
    const int64_t waited_us = std::max<int64_t>(0, now.wall_us - row->submitted_us);
    deadlines_.emplace(now.mono_ns + row->item.queue_timeout_s() * kSecondNs - waited_us * 1000,
                       name);
  }
  if (row->state != v1::WORK_STATE_LEASED) return;
  // A lease lives in the rows of its items. Its agent gets time to come back and say so.
  const Attempt& attempt = row->attempts.back();
  Lease& lease = leases_[attempt.lease];
  lease.name = attempt.lease;
  lease.device = attempt.device;
  lease.token = attempt.token;
  lease.expires_ns = now.mono_ns + std::max(options_.lease_ttl_ns, options_.recovery_ns);
  lease.items.push_back(name);
  devices_[attempt.device].lease = attempt.lease;
  devices_[attempt.device].row.name = attempt.device;
}

bool DevicePool::Matches(Device* device, const std::string& requirement) {
  const auto [it, inserted] = device->match_cache.try_emplace(requirement, false);
  if (inserted) {
    it->second = MatchDevice(Requirement::FromKey(requirement), device->report).ok();
  }
  return it->second;
}

v1::Reachability DevicePool::ReachabilityOf(const Device& device, Now now) const {
  if (!device.reported) return v1::REACHABILITY_OFFLINE;
  if (!device.revoked.empty()) return v1::REACHABILITY_REVOKED;
  const int64_t silent = now.mono_ns - device.last_seen_ns;
  if (silent > options_.offline_after_ns) return v1::REACHABILITY_OFFLINE;
  return silent > options_.suspect_after_ns ? v1::REACHABILITY_SUSPECT : v1::REACHABILITY_ONLINE;
}

bool DevicePool::IsReachable(const Device& device, Now now) const {
  const v1::Reachability reachability = ReachabilityOf(device, now);
  return reachability == v1::REACHABILITY_ONLINE || reachability == v1::REACHABILITY_SUSPECT;
}

absl::Status DevicePool::Dispatchable(const Device& device, Now now) const {
  TW_TRY(Usable(device, now));
  if (device.row.health.verdict == Verdict::kGood) return absl::OkStatus();
  return support::FailedPrecondition(device.row.health.reason, device.row.health.detail);
}

absl::Status DevicePool::Usable(const Device& device, Now now) const {
  if (!device.revoked.empty()) {
    return support::FailedPrecondition("device.agent.revoked",
                                       device.agent + " is refused: " + device.revoked);
  }
  if (ReachabilityOf(device, now) != v1::REACHABILITY_ONLINE) {
    return support::FailedPrecondition("device.reachability.away",
                                       "the device's agent does not report");
  }
  if (device.row.admin_state == v1::ADMIN_STATE_DRAINING) {
    return support::FailedPrecondition("device.admin.draining", device.row.admin_reason);
  }
  if (device.row.admin_state == v1::ADMIN_STATE_HELD) {
    return support::FailedPrecondition(
        "device.admin.held",
        device.row.hold.has_value() ? "held by " + device.row.hold->holder : std::string());
  }
  const auto agent = agents_.find(device.agent);
  if (agent != agents_.end() && agent->second.draining) {
    return support::FailedPrecondition("device.agent.draining", device.agent + " drains");
  }
  if (device.report.health() != v1::HEALTH_GOOD) {
    return support::FailedPrecondition("device.health.not_good",
                                       v1::Health_Name(device.report.health()));
  }
  if (!device.reset.request().empty() ||
      device.report.last_reset().state() == v1::RESET_STATE_RUNNING) {
    return support::FailedPrecondition("device.reset.running", "it is being reset");
  }
  if (!device.lease.empty()) {
    return support::FailedPrecondition("device.activity.leased", device.lease);
  }
  if (device.report.activity() != v1::ACTIVITY_IDLE) {
    return support::FailedPrecondition("device.activity.busy",
                                       v1::Activity_Name(device.report.activity()));
  }
  return absl::OkStatus();
}

Batch DevicePool::TakeBatch(Device* device, Now now) {
  TakeRequest request;
  request.device_class = device->report.key();
  request.matches = [&](const std::string& requirement) { return Matches(device, requirement); };
  request.admits = [&](const std::string& user) { return Blocked(user, now).empty(); };
  if (device->row.health.verdict != Verdict::kGood) {
    if (device->canary.empty()) return Batch();
    const std::string only = items_.at(device->canary).item.terms().queue.requirement;
    request.matches = [only](const std::string& requirement) { return requirement == only; };
    request.admits = nullptr;
  }
  request.default_batch = options_.default_batch;
  request.max_batch = options_.max_batch;
  request.quantum_s = options_.quantum_s;
  request.age_class_ns = options_.age_class_ns;
  request.now_ns = now.mono_ns;
  return queue_.Take(request, &share_);
}

bool DevicePool::GrantWork(Device* device, Now now, v1::Grant* grant) {
  if (!Usable(*device, now).ok()) return false;
  const Batch batch = TakeBatch(device, now);
  const std::vector<std::string>& names = batch.names;
  if (names.empty()) return false;
  // Unique for ever: a device's token is durable and only rises.
  const int64_t token = ++device->row.last_token;
  const std::string lease_name = support::StrCat(
      "leases/", device->row.name.substr(std::string_view("devices/").size()), "-", token);
  Lease& lease = leases_[lease_name];
  lease.name = lease_name;
  lease.device = device->row.name;
  lease.token = token;
  lease.items = names;
  lease.expires_ns = now.mono_ns + options_.lease_ttl_ns;
  device->lease = lease_name;
  device->baselines.clear();
  BeginCharge(&lease, batch.flow, batch.weight, batch.item_seconds, now);
  Touch(*device);
  for (const std::string& name : names) {
    WorkRow& row = items_.at(name);
    row.state = v1::WORK_STATE_LEASED;
    Attempt attempt;
    attempt.number = row.item.attempts_before() + static_cast<int>(row.attempts.size()) + 1;
    attempt.lease = lease_name;
    attempt.token = lease.token;
    attempt.device = lease.device;
    row.attempts.push_back(std::move(attempt));
    Touch(row);
    const double waited =
        static_cast<double>(now.mono_ns - row.queued_ns) / static_cast<double>(kSecondNs);
    waits_.push_back(waited);
    constexpr size_t kRecentWaits = 256;
    if (recent_waits_.size() < kRecentWaits) {
      recent_waits_.push_back(waited);
    } else {
      recent_waits_[recent_wait_next_++ % kRecentWaits] = waited;
    }
  }
  counters_.granted_items += static_cast<int64_t>(names.size());
  WriteGrant(lease, grant);
  return true;
}

void DevicePool::EndLease(const std::string& name, int64_t until_ns, Now now) {
  const auto it = leases_.find(name);
  if (it == leases_.end()) return;
  EndCharge(&it->second, until_ns, now);
  Device& device = devices_[it->second.device];
  if (device.lease == name) device.lease.clear();
  Tell(device);
  leases_.erase(it);
  if (device.health.OnBatch(std::exchange(device.baselines, {}), &device.row.health)) {
    ActOnVerdict(&device, now);
  }
}

void DevicePool::RemoveFromLease(WorkRow* row, Now now) {
  const auto it = leases_.find(row->attempts.back().lease);
  if (it == leases_.end()) return;
  std::vector<std::string>& items = it->second.items;
  items.erase(std::remove(items.begin(), items.end(), row->item.name()), items.end());
  if (items.empty()) EndLease(it->first, now.mono_ns, now);
}

void DevicePool::DropLease(const std::string& name, std::string_view reason, bool loss, Now now) {
  const std::vector<std::string> items = leases_.at(name).items;
  // Of a device that fell silent nobody knows how long it went on: nobody pays for the silence.
  const Device& device = devices_.at(leases_.at(name).device);
  EndLease(name, loss ? std::min(now.mono_ns, device.last_seen_ns) : now.mono_ns, now);
  for (const std::string& item : items) LoseAttempt(&items_.at(item), reason, loss, now);
}

void DevicePool::Revoke(const Lease& lease, const std::vector<std::string>& items,
                        std::string_view reason, bool kill, Now now) {
  Revocation& revocation = revocations_[lease.name];
  // A revocation of the whole lease (no items named) covers all later ones.
  const bool whole = revocation.until_ns != 0 && revocation.revoke.work_items().empty();
  revocation.device = lease.device;
  Tell(devices_.at(lease.device));
  revocation.until_ns = now.mono_ns + kRevocationLifeNs;
  revocation.delivered_session.clear();
  revocation.revoke.set_lease(lease.name);
  revocation.revoke.set_reason(std::string(reason));
  revocation.revoke.set_kill_now(kill || revocation.revoke.kill_now());
  if (items.empty() || whole) {
    revocation.revoke.clear_work_items();
  } else {
    for (const std::string& item : items) revocation.revoke.add_work_items(item);
  }
}

void DevicePool::ExpireLeases(Now now) {
  std::vector<std::string> overdue;
  for (const auto& [name, lease] : leases_) {
    if (lease.expires_ns <= now.mono_ns) overdue.push_back(name);
  }
  for (const std::string& name : overdue) {
    ExpiredLease& expired = expired_[name];
    expired.lease = leases_.at(name);
    expired.expired_ns = now.mono_ns;
    ++counters_.leases_expired;
    DropLease(name, "lease.expired", true, now);
  }
  std::erase_if(expired_, [&](const auto& entry) {
    return now.mono_ns - entry.second.expired_ns > kExpiredLeaseLifeNs;
  });
  std::erase_if(revocations_,
                [&](const auto& entry) { return entry.second.until_ns <= now.mono_ns; });
}

void DevicePool::ExpireHolds(Now now) {
  for (const std::string& name : watched_devices_) {
    Device& device = devices_.at(name);
    if (device.row.admin_state != v1::ADMIN_STATE_HELD || device.hold_until_ns > now.mono_ns) {
      continue;
    }
    device.row.admin_state = v1::ADMIN_STATE_ENABLED;
    device.row.admin_reason = "hold expired";
    device.row.hold.reset();
    ++device.row.admin_version;
    Touch(device);
  }
}

bool DevicePool::NeedsWatching(const Device& device) {
  return device.row.admin_state == v1::ADMIN_STATE_HELD ||
         device.row.health.verdict != Verdict::kGood;
}

void DevicePool::UnwatchDevices() {
  std::erase_if(watched_devices_,
                [this](const std::string& name) { return !NeedsWatching(devices_.at(name)); });
}

void DevicePool::Tick(Now now) {
  ExpireLeases(now);
  ExpireHolds(now);
  ProbeDevices(now);
  UnwatchDevices();
  FailOverdueWork(now);
  ForgetClosedWork(now);
}

Changes DevicePool::TakeChanges() {
  for (const std::string& name : dirty_items_) {
    const auto it = items_.find(name);
    if (it != items_.end()) changes_.items.push_back(it->second);
  }
  for (const std::string& name : dirty_devices_) changes_.devices.push_back(devices_.at(name).row);
  for (const std::string& user : dirty_usage_) changes_.usage.push_back(usage_.at(user));
  dirty_items_.clear();
  dirty_usage_.clear();
  dirty_devices_.clear();
  return std::exchange(changes_, Changes());
}

absl::Status DevicePool::CheckInvariants() const {
  const auto broken = [](std::string_view rule, const std::string& what) {
    return support::Internal("pool.invariant." + std::string(rule), what);
  };
  std::set<std::string> leased_devices;
  std::map<std::string, std::string> leased_items;
  for (const auto& [name, lease] : leases_) {
    if (!leased_devices.insert(lease.device).second) return broken("i1", lease.device);
    if (devices_.at(lease.device).lease != name) return broken("i1", name + " is not its device's");
    if (lease.items.empty()) return broken("i3", name + " is empty");
    for (const std::string& item : lease.items) {
      if (!leased_items.emplace(item, name).second) return broken("i3", item + " in two leases");
    }
  }
  int64_t queued = 0;
  int64_t leased = 0;
  for (const auto& [name, row] : items_) {
    const auto accepted = std::count_if(row.attempts.begin(), row.attempts.end(),
                                        [](const Attempt& a) { return a.accepted; });
    if (accepted > 1) return broken("i2", name);
    if ((row.state == v1::WORK_STATE_DONE) != (accepted == 1)) {
      return broken("i2", name + ": " + v1::WorkState_Name(row.state));
    }
    const bool in_queue = queue_.Contains(row.seq, row.item.terms().queue);
    const auto lease = leased_items.find(name);
    if (in_queue && lease != leased_items.end()) return broken("i4", name);
    const bool awaits = awaiting_.count(name) != 0;
    if (in_queue && awaits) return broken("i3", name + " is queued and awaits artifacts");
    if ((in_queue || awaits) != (row.state == v1::WORK_STATE_QUEUED)) return broken("i3", name);
    if ((lease != leased_items.end()) != (row.state == v1::WORK_STATE_LEASED)) {
      return broken("i3", name);
    }
    if (lease != leased_items.end() && row.attempts.back().lease != lease->second) {
      return broken("i3", name + " is in a lease of an older attempt");
    }
    queued += in_queue ? 1 : 0;
    leased += row.state == v1::WORK_STATE_LEASED ? 1 : 0;
  }
  if (queued != queue_.size()) return broken("i3", "the queue holds unknown items");
  if (leased != static_cast<int64_t>(leased_items.size())) {
    return broken("i3", "leases hold unknown items");
  }
  for (const auto& [name, device] : devices_) {
    if (NeedsWatching(device) && watched_devices_.count(name) == 0) return broken("i8", name);
  }
  TW_TRY(CheckAccounts());
  return CheckQuarantine();
}

absl::Status DevicePool::CheckAccounts() const {
  std::map<std::string, int> devices;
  for (const auto& [name, lease] : leases_) ++devices[lease.charge.flow.user];
  if (devices != devices_of_user_) {
    return support::Internal("pool.invariant.i6", "devices at work are not leases");
  }
  std::map<std::string, int64_t> open;
  for (const auto& [name, row] : items_) {
    if (row.open()) ++open[row.item.user()];
  }
  if (open != open_items_of_user_) {
    return support::Internal("pool.invariant.i6", "open items of users are not their rows");
  }
  return absl::OkStatus();
}

}  // namespace tilewright::tracker
