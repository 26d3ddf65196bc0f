#include "tuner_server/cli/device_patience.h"

#include <algorithm>
#include <utility>

#include "deploy/support/strings.h"

namespace tilewright::cli {
namespace {

using support::StrCat;

bool IsOnline(const v1::Device& device) { return device.reachability() == v1::REACHABILITY_ONLINE; }

bool IsWell(const v1::Device& device) {
  return IsOnline(device) && device.health() == v1::HEALTH_GOOD;
}

std::string WhyUnwell(const v1::Device& device) {
  if (!IsOnline(device)) return StrCat(device.name(), " is gone");
  const v1::Quarantine& quarantine = device.quarantine();
  if (quarantine.reason().empty()) {
    return StrCat(device.name(), " is ", v1::Health_Name(device.health()));
  }
  return StrCat(device.name(), " is quarantined (", quarantine.reason(), ": ", quarantine.message(),
                "), ", quarantine.probes(), " probes failed, the next one is in ",
                quarantine.next_probe().seconds(), " s");
}

}  // namespace

absl::Status DevicePatience::Look(const std::vector<v1::Device>& devices, int64_t now_ns) {
  const int64_t passed_ns = now_ns - std::exchange(last_look_ns_, now_ns);
  registered_ = registered_ || std::any_of(devices.begin(), devices.end(), IsOnline);
  if (!registered_) {
    if (now_ns - started_ns_ < kRegisterNs) return absl::OkStatus();
    return support::Unavailable("cli.embedded.device", "no device has registered");
  }
  if (std::any_of(devices.begin(), devices.end(), IsWell)) {
    unwell_ = false;
    if (well_since_ns_ == 0) well_since_ns_ = now_ns;
    if (now_ns - well_since_ns_ >= kWellNs) unwell_ns_ = 0;
    return absl::OkStatus();
  }
  well_since_ns_ = 0;
  std::vector<std::string> reasons;
  for (const v1::Device& device : devices) reasons.push_back(WhyUnwell(device));
  const std::string why = reasons.empty() ? "no device" : support::Join(reasons, "; ");
  if (!std::exchange(unwell_, true)) {
    notice_ = StrCat("waiting for a healthy device: ", why);
  } else {
    unwell_ns_ += passed_ns;
  }
  if (unwell_ns_ < kUnwellNs) return absl::OkStatus();
  return support::Unavailable(
      "cli.embedded.unwell",
      StrCat("no healthy device for ", kUnwellNs / 1'000'000'000, " s: ", why));
}

std::string DevicePatience::TakeNotice() { return std::exchange(notice_, ""); }

}  // namespace tilewright::cli
