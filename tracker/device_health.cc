#include "tracker/device_health.h"

#include <algorithm>

#include "deploy/support/strings.h"

namespace tilewright::tracker {
namespace {

using support::StrCat;

constexpr std::string_view kFailing = "device.results.failing";
constexpr std::string_view kInvalid = "device.results.invalid";
constexpr std::string_view kSlow = "device.baseline.slow";
constexpr std::string_view kCanary = "device.canary.failed";
constexpr std::string_view kCanarySlow = "device.canary.slow";

// Whether the candidate may be to blame, and the device as well.
bool Failed(v1::Outcome outcome) {
  return outcome != v1::OK && outcome != v1::EARLY_STOPPED && outcome != v1::CANCELLED;
}

std::string Percent(double ratio) {
  return StrCat(static_cast<double>(static_cast<int64_t>((ratio - 1) * 1000 + 0.5)) / 10, " %");
}

}  // namespace

int64_t DeviceHealth::ProbeAfterSeconds(const HealthRow& row) const {
  const bool passes = row.reason == kSlow || row.reason == kInvalid || row.reason == kCanarySlow;
  const std::vector<int64_t>& after = passes ? options_.slow_probe_after_s : options_.probe_after_s;
  return after[static_cast<size_t>(std::clamp(row.probes, 0, static_cast<int>(after.size()) - 1))];
}

bool DeviceHealth::Suspect(std::string_view reason, const std::string& detail, HealthRow* row) {
  if (row->verdict != Verdict::kGood) return false;
  row->verdict = Verdict::kSuspect;
  row->reason = std::string(reason);
  row->detail = detail;
  row->probes = 0;
  return true;
}

bool DeviceHealth::Quarantine(std::string_view reason, const std::string& detail, HealthRow* row) {
  // What made it a suspect says more than how the canary ended; both are told.
  row->reason = std::string(reason);
  row->detail = detail;
  row->probes = row->verdict == Verdict::kQuarantined ? row->probes + 1 : 0;
  row->verdict = Verdict::kQuarantined;
  return true;
}

// A trial has failed: the probes go on where they were.
bool DeviceHealth::QuarantineAgain(std::string_view reason, const std::string& detail,
                                   HealthRow* row) {
  on_trial_ = false;
  row->verdict = Verdict::kQuarantined;
  return Quarantine(std::string(reason), detail, row);
}

// Whether `limit` of the last results are bad, of enough different candidates.
bool DeviceHealth::Recent(const std::function<bool(const Seen&)>& bad, int limit) const {
  int count = 0;
  std::set<std::string> items;
  for (const Seen& one : seen_) {
    if (!bad(one)) continue;
    ++count;
    items.insert(one.work_item);
  }
  return count >= limit && static_cast<int>(items.size()) >= options_.different;
}

bool DeviceHealth::OnResult(const v1::MeasurementResult& result, HealthRow* row) {
  // A candidate that was running when the device went away is counted against the candidate, too:
  // different ones must have done it.
  seen_.push_back({result.work_item(), result.outcome(), result.valid()});
  if (static_cast<int>(seen_.size()) > options_.window) seen_.pop_front();
  if (!Failed(result.outcome())) {
    if (result.outcome() == v1::CANCELLED) return false;
    failed_in_row_ = 0;
    failed_items_.clear();
    failures_limit_ = 0;
  } else {
    ++failed_in_row_;
    failed_items_.insert(result.work_item());
    if (on_trial_) {
      return QuarantineAgain(row->reason, "failed again: " + v1::Outcome_Name(result.outcome()),
                             row);
    }
  }
  if (row->verdict != Verdict::kGood) return false;
  if (Recent([](const Seen& one) { return one.outcome == v1::DEVICE_LOST; }, options_.lost)) {
    return Suspect(kDevicesLost,
                   StrCat(options_.lost, " of the last ", seen_.size(),
                          " measurements lost the device: ", result.error_detail()),
                   row);
  }
  const int limit = failures_limit_ > 0 ? failures_limit_ : options_.failures;
  if (failed_in_row_ >= limit && static_cast<int>(failed_items_.size()) >= options_.different) {
    return Suspect(kFailing,
                   StrCat(failed_in_row_, " failures in a row, the last one ",
                          v1::Outcome_Name(result.outcome()), " ", result.error_class()),
                   row);
  }
  const auto invalid = [](const Seen& one) { return one.outcome == v1::OK && !one.valid; };
  if (Recent(invalid, options_.invalid)) {
    return Suspect(
        kInvalid,
        StrCat(options_.invalid, " of the last ", seen_.size(), " measurements are not valid: ",
               result.invalid_reasons_size() > 0 ? result.invalid_reasons(0) : std::string()),
        row);
  }
  return false;
}

bool DeviceHealth::OnBatch(const std::vector<double>& baselines, HealthRow* row) {
  if (row->verdict != Verdict::kGood) return false;
  if (on_trial_) {
    if (drift_.Slower(baselines)) return QuarantineAgain(kSlow, "its baseline is slow again", row);
    Forget(row);
    return true;
  }
  if (drift_.Add(baselines) != Drift::kSlower) return false;
  return Suspect(kSlow,
                 StrCat("its baseline is ", Percent(drift_.last_ratio()), " slower than usual (",
                        drift_.reference(), " ns)"),
                 row);
}

// Whether a device that stays slower is as it is now, rather than disturbed.
bool DeviceHealth::IsNewUsual(double ratio, const HealthRow& row) const {
  return row.verdict == Verdict::kQuarantined && row.reason == kSlow &&
         row.probes + 1 >= options_.slow_probes && ratio <= options_.slow_usual;
}

bool DeviceHealth::OnCanary(const v1::MeasurementResult& result, double best_ns, HealthRow* row) {
  if (row->verdict == Verdict::kGood) return false;
  if (result.outcome() != v1::OK) {
    return Quarantine(
        kCanary,
        StrCat("a candidate that is known to work ended ", v1::Outcome_Name(result.outcome()), " ",
               result.error_class(), " here"),
        row);
  }
  const bool slower = drift_.Slower({result.baseline_before(), result.baseline_after()});
  const double ratio = std::min(result.baseline_before(), result.baseline_after()) /
                       std::max(drift_.reference(), 1.0);
  if (slower && !IsNewUsual(ratio, *row)) {
    return Quarantine(kSlow,
                      StrCat("its baseline is ", Percent(ratio), " slower than usual (",
                             drift_.reference(), " ns)"),
                      row);
  }
  if (!result.valid()) return Quarantine(kInvalid, "a canary could not be measured well", row);
  if (best_ns > 0 && result.median() > best_ns * options_.canary_slow) {
    return Quarantine(kCanarySlow,
                      StrCat("a canary took ", result.median(), " ns, elsewhere ", best_ns, " ns"),
                      row);
  }
  if (slower) {
    Renew(row);
    return true;
  }
  const bool blamed = row->verdict == Verdict::kSuspect && row->reason == kFailing;
  const int limit = failures_limit_ > 0 ? failures_limit_ : options_.failures;
  Forget(row);
  // The candidates were to blame: more of them are believed before the next canary.
  if (blamed) failures_limit_ = std::min(2 * limit, options_.max_failures);
  return true;
}

bool DeviceHealth::OnNoCanary(HealthRow* row) {
  if (row->verdict != Verdict::kSuspect) return false;
  if (row->reason == kFailing) {
    const int limit = failures_limit_ > 0 ? failures_limit_ : options_.failures;
    Forget(row);
    failures_limit_ = std::min(2 * limit, options_.max_failures);
    return true;
  }
  return Quarantine(row->reason, row->detail, row);
}

void DeviceHealth::OnTrial(HealthRow* row) {
  row->verdict = Verdict::kGood;
  on_trial_ = true;
  seen_.clear();
  failed_in_row_ = 0;
  failed_items_.clear();
}

void DeviceHealth::Forget(HealthRow* row) {
  *row = HealthRow();
  seen_.clear();
  failed_in_row_ = 0;
  failed_items_.clear();
  failures_limit_ = 0;
  on_trial_ = false;
}

void DeviceHealth::Renew(HealthRow* row) {
  Forget(row);
  drift_.Reset();
}

}  // namespace tilewright::tracker
