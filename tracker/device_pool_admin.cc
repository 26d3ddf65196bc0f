// The part of DevicePool that people see: devices with the reason why they get no work, admin
// states, holds, load and statistics.
#include <google/protobuf/util/time_util.h>

#include <algorithm>
#include <set>
#include <utility>

#include "deploy/daemon/fleet_contract.h"
#include "deploy/support/duration.h"
#include "deploy/support/printable.h"
#include "deploy/support/strings.h"
#include "tracker/device_pool.h"

namespace tilewright::tracker {
namespace {

using google::protobuf::util::TimeUtil;

constexpr int64_t kDefaultHoldNs = 3600 * kSecondNs;
constexpr int64_t kMaxHoldNs = 7 * 24 * 3600 * kSecondNs;

v1::Hold HoldMessage(const std::string& device, const HoldRow& row) {
  v1::Hold hold;
  hold.set_name(row.name);
  hold.set_device(device);
  hold.set_holder(row.holder);
  hold.set_purpose(row.purpose);
  *hold.mutable_expire_time() = TimeUtil::MicrosecondsToTimestamp(row.expire_us);
  return hold;
}

absl::Status NoSuchDevice(const std::string& name) {
  return support::NotFound("device.name.not_found", "no device " + support::Quote(name, 80));
}

}  // namespace

v1::Device DevicePool::DeviceMessage(const Device& device, Now now) const {
  v1::Device message;
  message.set_name(device.row.name);
  message.set_pool(device.report.key());
  message.set_agent(device.agent.empty() ? device.row.agent : device.agent);
  *message.mutable_labels() = device.report.labels();
  *message.mutable_attributes() = device.report.attributes();
  message.set_fingerprint(device.report.fingerprint());
  message.set_reachability(ReachabilityOf(device, now));
  message.set_health(HealthOf(device));
  if (device.row.health.verdict != Verdict::kGood)
    *message.mutable_quarantine() = QuarantineOf(device, now);
  message.set_activity(device.report.activity());
  message.set_admin_state(device.row.admin_state);
  message.set_admin_reason(device.row.admin_reason);
  for (const v1::Condition& condition : device.report.conditions()) {
    *message.add_conditions() = condition;
  }
  if (device.report.has_last_reset()) *message.mutable_last_reset() = device.report.last_reset();
  const absl::Status dispatchable = Dispatchable(device, now);
  if (!dispatchable.ok()) {
    v1::Condition* condition = message.add_conditions();
    condition->set_type("NOT_DISPATCHABLE");
    condition->set_reason(support::Slug(dispatchable));
    condition->set_message(support::Detail(dispatchable));
  }
  message.set_current_lease(device.lease);
  if (device.reported) {
    *message.mutable_last_seen() = TimeUtil::MicrosecondsToTimestamp(device.last_seen_us);
  }
  message.set_etag(support::StrCat(device.row.admin_version));
  message.set_address(device.address);
  if (device.row.hold.has_value()) {
    *message.mutable_hold() = HoldMessage(device.row.name, *device.row.hold);
  }
  message.set_work_items_done(device.done);
  return message;
}

bool DevicePool::AnyDeviceMatches(const Requirement& requirement, Now now) const {
  return std::any_of(devices_.begin(), devices_.end(), [&](const auto& entry) {
    return ReachabilityOf(entry.second, now) == v1::REACHABILITY_ONLINE &&
           MatchDevice(requirement, entry.second.report).ok();
  });
}

std::vector<v1::Device> DevicePool::ListDevices(const std::string& pool, const std::string& after,
                                                size_t limit, Now now) const {
  std::vector<v1::Device> result;
  for (auto it = devices_.upper_bound(after); it != devices_.end() && result.size() < limit; ++it) {
    if (!pool.empty() && it->second.report.key() != pool) continue;
    result.push_back(DeviceMessage(it->second, now));
  }
  return result;
}

absl::StatusOr<v1::Device> DevicePool::GetDevice(const std::string& name, Now now) const {
  const auto it = devices_.find(name);
  if (it == devices_.end()) return NoSuchDevice(name);
  return DeviceMessage(it->second, now);
}

absl::StatusOr<v1::Device> DevicePool::SetAdminState(const v1::SetDeviceAdminStateRequest& request,
                                                     Now now) {
  const auto it = devices_.find(request.name());
  if (it == devices_.end()) return NoSuchDevice(request.name());
  Device& device = it->second;
  if (request.admin_state() != v1::ADMIN_STATE_ENABLED &&
      request.admin_state() != v1::ADMIN_STATE_DRAINING) {
    return support::InvalidArgument(
        "device.admin_state.invalid",
        "expected ENABLED or DRAINING, found " + v1::AdminState_Name(request.admin_state()));
  }
  TW_TRY(support::CheckPrintable(request.reason(), "device.admin_reason.invalid", "reason"));
  if (!request.etag().empty() && request.etag() != support::StrCat(device.row.admin_version)) {
    return support::Aborted("device.etag.mismatch",
                            support::StrCat("expected ", device.row.admin_version, ", found ",
                                            support::Quote(request.etag(), 40)));
  }
  device.row.admin_state = request.admin_state();
  device.row.admin_reason = request.reason();
  device.row.hold.reset();
  ++device.row.admin_version;
  if (request.admin_state() == v1::ADMIN_STATE_ENABLED) {
    device.health.Renew(&device.row.health);
    ActOnVerdict(&device, now);
  }
  Touch(device);
  if (request.admin_state() == v1::ADMIN_STATE_DRAINING && request.kill_running() &&
      !device.lease.empty()) {
    const std::string lease = device.lease;
    Revoke(leases_.at(lease), {}, "lease.revoked.draining", true, now);
    DropLease(lease, "lease.revoked.draining", false, now);
  }
  return DeviceMessage(device, now);
}

absl::Status DevicePool::ForgetDevice(const std::string& name, Now now) {
  const auto it = devices_.find(name);
  if (it == devices_.end()) return NoSuchDevice(name);
  Device& device = it->second;
  const char* why = IsReachable(device, now)      ? "its agent reports it"
                    : !device.lease.empty()       ? "it has a lease"
                    : device.row.hold.has_value() ? "it is held"
                                                  : "";
  if (*why != '\0') {
    return support::FailedPrecondition("device.forget.in_use", support::StrCat(name, ": ", why));
  }
  EndCanary(&device, now);
  const auto agent = agents_.find(device.agent);
  if (agent != agents_.end()) std::erase(agent->second.devices, name);
  dirty_devices_.erase(name);
  watched_devices_.erase(name);
  changes_.gone_devices.push_back(name);
  devices_.erase(it);
  return absl::OkStatus();
}

// A device that nobody could use is not given to a person, who would only find that out later.
absl::Status DevicePool::Holdable(const Device& device, Now now) const {
  if (!IsReachable(device, now)) {
    return support::FailedPrecondition("device.hold.unusable",
                                       device.row.name + " is offline or revoked");
  }
  if (device.row.health.verdict == Verdict::kQuarantined) {
    return support::FailedPrecondition(
        "device.hold.unusable",
        support::StrCat(device.row.name, " is quarantined: ", device.row.health.detail,
                        "; 'devices undrain' ends that"));
  }
  return absl::OkStatus();
}

absl::StatusOr<v1::Hold> DevicePool::CreateHold(const v1::CreateHoldRequest& request, Now now) {
  const auto it = devices_.find(request.hold().device());
  if (it == devices_.end()) return NoSuchDevice(request.hold().device());
  Device& device = it->second;
  if (request.hold().holder().empty()) {
    return support::InvalidArgument("device.hold.invalid", "expected a holder");
  }
  TW_TRY(support::CheckPrintable(request.hold().holder(), "device.hold.invalid", "holder"));
  TW_TRY(support::CheckPrintable(request.hold().purpose(), "device.hold.invalid", "purpose"));
  const int64_t asked = support::DurationNs(request.ttl());
  const int64_t ttl = asked <= 0 ? kDefaultHoldNs : std::min(asked, kMaxHoldNs);
  const bool extends = device.row.hold.has_value() &&
                       device.row.hold->name == request.hold().name() &&
                       device.row.hold->holder == request.hold().holder();
  if (extends) {
    device.row.hold->expire_us = now.wall_us + ttl / 1000;
    device.hold_until_ns = now.mono_ns + ttl;
    Touch(device);
    return HoldMessage(device.row.name, *device.row.hold);
  }
  TW_TRY(Holdable(device, now));
  if (device.row.hold.has_value()) {
    return support::FailedPrecondition(
        "device.hold.held",
        support::StrCat(device.row.name, " is held by ", device.row.hold->holder, " (",
                        device.row.hold->name, ")"));
  }
  HoldRow hold;
  // Unique for ever: the version of a device's admin state only rises.
  hold.name = support::StrCat("holds/", device.row.name.substr(device.row.name.rfind('/') + 1), "-",
                              device.row.admin_version + 1);
  hold.holder = request.hold().holder();
  hold.purpose = request.hold().purpose();
  hold.expire_us = now.wall_us + ttl / 1000;
  device.hold_until_ns = now.mono_ns + ttl;
  device.row.hold = hold;
  device.row.admin_state = v1::ADMIN_STATE_HELD;
  device.row.admin_reason = hold.purpose;
  ++device.row.admin_version;
  Touch(device);
  return HoldMessage(device.row.name, hold);
}

absl::Status DevicePool::ReleaseHold(const std::string& name) {
  for (auto& [device_name, device] : devices_) {
    if (!device.row.hold.has_value()) continue;
    if (device.row.hold->name != name && device_name != name) continue;
    device.row.hold.reset();
    device.row.admin_state = v1::ADMIN_STATE_ENABLED;
    device.row.admin_reason = "hold released";
    ++device.row.admin_version;
    Touch(device);
    return absl::OkStatus();
  }
  return support::NotFound("device.hold.not_found", "no hold " + support::Quote(name, 80));
}

v1::PoolLoad DevicePool::Load(const v1::GetPoolLoadRequest& request, Now now) const {
  v1::PoolLoad load;
  const Requirement wanted{request.pool(), request.target(), ""};
  std::vector<const Device*> devices;
  std::set<std::string> classes;
  for (const auto& [name, device] : devices_) {
    if (ReachabilityOf(device, now) != v1::REACHABILITY_ONLINE ||
        !MatchDevice(wanted, device.report).ok()) {
      continue;
    }
    devices.push_back(&device);
    classes.insert(device.report.key());
    const auto& attributes = device.report.attributes();
    const auto compiler = attributes.find(daemon::kDriverCompilerAttribute);
    ++(*load.mutable_driver_compilers())[compiler == attributes.end() ? "" : compiler->second.s()];
    load.set_online(load.online() + 1);
    const bool enabled =
        device.row.admin_state == v1::ADMIN_STATE_ENABLED && HealthOf(device) == v1::HEALTH_GOOD;
    if (enabled) load.set_dispatchable(load.dispatchable() + 1);
    if (enabled && device.lease.empty()) load.set_idle(load.idle() + 1);
    if (!device.lease.empty()) {
      load.set_leased(load.leased() + static_cast<int64_t>(leases_.at(device.lease).items.size()));
    }
  }
  load.mutable_device_classes()->Assign(classes.begin(), classes.end());
  load.set_queued(queue_.Count([&](const std::string& requirement) {
    const Requirement asked = Requirement::FromKey(requirement);
    return std::any_of(devices.begin(), devices.end(), [&](const Device* device) {
      return MatchDevice(asked, device->report).ok();
    });
  }));
  if (!recent_waits_.empty()) {
    std::vector<double> sorted = recent_waits_;
    std::nth_element(sorted.begin(), sorted.begin() + static_cast<int64_t>(sorted.size() / 2),
                     sorted.end());
    const double median = sorted[sorted.size() / 2];
    *load.mutable_p50_wait() = TimeUtil::NanosecondsToDuration(static_cast<int64_t>(median * 1e9));
  }
  return load;
}

PoolStats DevicePool::stats(Now now) const {
  PoolStats stats = counters_;
  stats.queued = queue_.size();
  stats.leases = static_cast<int64_t>(leases_.size());
  for (const auto& [name, lease] : leases_) {
    stats.leased += static_cast<int64_t>(lease.items.size());
  }
  stats.outbox = outbox_size_;
  for (const auto& [name, device] : devices_) {
    if (ReachabilityOf(device, now) == v1::REACHABILITY_ONLINE) ++stats.devices_online;
    if (Dispatchable(device, now).ok()) ++stats.devices_dispatchable;
    if (device.row.health.verdict == Verdict::kQuarantined) ++stats.devices_quarantined;
  }
  return stats;
}

std::vector<double> DevicePool::TakeWaits() { return std::exchange(waits_, {}); }

}  // namespace tilewright::tracker
