// The part of DevicePool that tells broken devices from bad candidates: canaries are work items of
// the pool's own, granted, fenced and reported like any other.
#include <algorithm>
#include <utility>

#include "deploy/daemon/fleet_contract.h"
#include "deploy/support/strings.h"
#include "tracker/device_pool.h"

namespace tilewright::tracker {
namespace {

constexpr char kCanaryConsumer[] = "tracker/canaries";
constexpr std::string_view kSelectDevice = "device=";
constexpr std::string_view kCanaryFailed = "device.canary.failed";

}  // namespace

bool DevicePool::IsCanary(const WorkRow& row) { return row.consumer == kCanaryConsumer; }

std::string DevicePool::CanaryDevice(const StoredItem& item) {
  const std::string& selector = item.terms().selector;
  return selector.substr(std::min(selector.size(), kSelectDevice.size()));
}

v1::Health DevicePool::HealthOf(const Device& device) const {
  if (device.report.health() != v1::HEALTH_GOOD) return device.report.health();
  switch (device.row.health.verdict) {
    case Verdict::kSuspect:
      return v1::HEALTH_SUSPECT;
    case Verdict::kQuarantined:
      return v1::HEALTH_QUARANTINED;
    case Verdict::kGood:
      break;
  }
  return v1::HEALTH_GOOD;
}

v1::Quarantine DevicePool::QuarantineOf(const Device& device, Now now) const {
  const HealthRow& row = device.row.health;
  v1::Quarantine quarantine;
  quarantine.set_reason(row.reason);
  quarantine.set_message(row.detail);
  quarantine.set_probes(row.probes);
  quarantine.mutable_since()->set_seconds(row.since_us / 1'000'000);
  const int64_t left_ns = std::max<int64_t>(0, device.next_probe_ns - now.mono_ns);
  quarantine.mutable_next_probe()->set_seconds(left_ns / kSecondNs);
  return quarantine;
}

// A known good candidate of the device's class; the first one serves until its artifacts are gone.
void DevicePool::KeepAsCanary(const WorkRow& row, const v1::MeasurementResult& result) {
  if (result.outcome() != v1::OK || !result.valid() || !(result.median() > 0)) return;
  const auto device = devices_.find(result.device());
  if (device == devices_.end()) return;
  const auto [it, fresh] = canaries_.try_emplace(device->second.report.key());
  if (!fresh) return;
  it->second.item = row.item;
  it->second.best_ns = result.median();
  CountReferences(it->second.item, +1);
}

void DevicePool::NoteBaselines(const Attempt& attempt, const WorkRow& row,
                               const v1::MeasurementResult& result) {
  // A module as baseline takes its own time; the worker's calibration loop is the same everywhere.
  if (IsCanary(row) || row.item.has_baseline()) return;
  if (result.value_kind() != v1::VALUE_KIND_WALL_NS) return;
  const auto device = devices_.find(attempt.device);
  if (device == devices_.end() || device->second.lease != attempt.lease) return;
  device->second.baselines.push_back(result.baseline_before());
  device->second.baselines.push_back(result.baseline_after());
}

void DevicePool::ObserveResult(const std::string& device_name, const WorkRow& row,
                               const v1::MeasurementResult& result, Now now) {
  if (IsCanary(row)) return;
  const auto it = devices_.find(device_name);
  if (it == devices_.end()) return;
  Device& device = it->second;
  if (!device.health.OnResult(result, &device.row.health)) return;
  ActOnVerdict(&device, now);
  if (device.row.health.verdict == Verdict::kGood || device.lease.empty()) return;
  // What it still has is measured elsewhere, without blame; what runs may end.
  const std::string lease = device.lease;
  Revoke(leases_.at(lease), {}, "lease.revoked.suspect", false, now);
  DropLease(lease, "lease.revoked.suspect", false, now);
}

void DevicePool::TakeCanaryResult(WorkRow* row, Attempt* attempt,
                                  const v1::MeasurementResult& result, Now now) {
  const auto it = devices_.find(attempt->device);
  attempt->accepted = true;
  Close(row, v1::WORK_STATE_DONE, "", result.measurement_id(), now);
  if (it == devices_.end()) return;
  Device& device = it->second;
  device.canary.clear();
  const auto kernel = canaries_.find(device.report.key());
  const double best_ns = kernel == canaries_.end() ? 0 : kernel->second.best_ns;
  if (!device.health.OnCanary(result, best_ns, &device.row.health)) return;
  const bool passed = device.row.health.verdict == Verdict::kGood;
  ++(passed ? counters_.canaries_passed : counters_.canaries_failed);
  if (passed && kernel != canaries_.end() && result.median() > 0) {
    kernel->second.best_ns = std::min(kernel->second.best_ns, result.median());
  }
  ActOnVerdict(&device, now);
}

void DevicePool::OrderReset(Device* device, const std::string& reason) {
  if (!device->report.can_reset() || !device->reset.request().empty()) return;
  device->reset.set_device(device->row.name);
  device->reset.set_request(support::StrCat(
      "resets/", store_id_, "/", device->row.name.substr(device->row.name.rfind('/') + 1), "-",
      ++device->row.resets));
  device->reset.set_reason(reason);
  Touch(*device);
}

absl::StatusOr<v1::Device> DevicePool::ResetDevice(const v1::ResetDeviceRequest& request, Now now) {
  const auto it = devices_.find(request.name());
  if (it == devices_.end()) {
    return support::NotFound("device.name.not_found",
                             "no device " + support::Quote(request.name()));
  }
  Device& device = it->second;
  if (!device.report.can_reset()) {
    return support::FailedPrecondition(
        "device.reset.impossible",
        "its agent has no reset command: start it with --reset-command COMMAND");
  }
  if (!device.lease.empty()) {
    return support::FailedPrecondition(
        "device.reset.busy",
        "it measures " + device.lease + ": drain it first, with --now to kill");
  }
  OrderReset(&device, request.reason().empty() ? "by request" : request.reason());
  return DeviceMessage(device, now);
}

void DevicePool::ActOnVerdict(Device* device, Now now) {
  HealthRow& health = device->row.health;
  Touch(*device);
  if (health.since_us == 0 && health.verdict != Verdict::kGood) health.since_us = now.wall_us;
  if (health.verdict == Verdict::kSuspect && !StartCanary(device, now)) {
    device->health.OnNoCanary(&health);
  }
  if (health.verdict == Verdict::kQuarantined) {
    const int64_t wait_s = device->health.ProbeAfterSeconds(health);
    device->next_probe_ns = now.mono_ns + wait_s * kSecondNs;
    health.next_probe_us = now.wall_us + wait_s * 1'000'000;
    // What is slow or noisy is not mended by a reset.
    if (health.reason == kCanaryFailed || health.reason == kDevicesLost) {
      OrderReset(device, health.reason);
    }
  }
  if (health.verdict == Verdict::kGood) EndCanary(device, now);
}

// False when the class of the device has no canary.
bool DevicePool::StartCanary(Device* device, Now now) {
  if (!device->canary.empty()) return true;
  const auto kernel = canaries_.find(device->report.key());
  if (kernel == canaries_.end()) return false;
  v1::WorkItem item = kernel->second.item.Unpack();
  // Unique for ever: the count is durable, another database has another name. Of a device that was
  // forgotten, the items that are still known count.
  do {
    item.set_name(support::StrCat(daemon::kCanaryJob, "/", store_id_, "/",
                                  device->row.name.substr(device->row.name.rfind('/') + 1), "-",
                                  ++device->row.canaries));
  } while (items_.count(item.name()) != 0);
  item.set_selector(std::string(kSelectDevice) + device->row.name);
  item.set_pool("");
  item.set_job(daemon::kCanaryJob);
  item.set_user("");
  item.set_priority(kMostUrgent);
  item.set_max_batch(1);
  item.set_invalid_retries(0);
  item.set_attempts_before(0);
  item.clear_queue_timeout();
  item.mutable_work()->set_work_item(item.name());
  item.mutable_work()->mutable_plan()->set_abort_if_slower_than_ns(0);
  device->canary = item.name();
  Touch(*device);
  WorkRow& row = items_[item.name()];
  row.consumer = kCanaryConsumer;
  row.seq = next_work_seq_++;
  row.item = StoredItem(item);
  row.submitted_us = now.wall_us;
  row.queued_ns = now.mono_ns;
  Enqueue(&row, now);
  CountOpen(row.item, +1);
  Touch(row);
  return true;
}

// A canary that nobody waits for any more.
void DevicePool::EndCanary(Device* device, Now now) {
  const auto it = items_.find(std::exchange(device->canary, {}));
  if (it == items_.end() || !it->second.open()) return;
  v1::CancelWorkResponse ignored;
  CancelItem(&it->second, false, &ignored, now);
}

absl::Status DevicePool::CheckQuarantine() const {
  for (const auto& [name, device] : devices_) {
    const bool good = device.row.health.verdict == Verdict::kGood;
    const auto canary = items_.find(device.canary);
    const bool open = canary != items_.end() && canary->second.open();
    if (good && open) return support::Internal("pool.invariant.i7", name + " needs no canary");
    if (good || device.lease.empty()) continue;
    for (const std::string& item : leases_.at(device.lease).items) {
      if (item == device.canary) continue;
      return support::Internal("pool.invariant.i7", name + " is not trusted and has " + item);
    }
  }
  return absl::OkStatus();
}

void DevicePool::LoseCanary(WorkRow* row, Now now) {
  const auto device = devices_.find(CanaryDevice(row->item));
  if (device != devices_.end()) {
    device->second.canary.clear();
    const auto kernel = canaries_.find(device->second.report.key());
    if (kernel != canaries_.end()) {
      CountReferences(kernel->second.item, -1);
      canaries_.erase(kernel);
    }
  }
  Close(row, v1::WORK_STATE_FAILED, daemon::kArtifactMissingReason, "", now);
}

void DevicePool::ProbeDevices(Now now) {
  // What happens to a device here keeps it among those watched.
  for (const std::string& name : watched_devices_) {
    Device& device = devices_.at(name);
    const HealthRow& health = device.row.health;
    if (health.verdict == Verdict::kGood) continue;
    const auto open = items_.find(device.canary);
    if (open != items_.end() && open->second.open()) continue;
    device.canary.clear();
    if (health.verdict == Verdict::kQuarantined && device.next_probe_ns > now.mono_ns) continue;
    if (!Usable(device, now).ok() || StartCanary(&device, now)) continue;
    if (health.verdict == Verdict::kSuspect) {
      ActOnVerdict(&device, now);
    } else {
      device.health.OnTrial(&device.row.health);
      Touch(device);
    }
  }
}

}  // namespace tilewright::tracker
