// The tracker's verdict on one device, from its measurements: is the device broken, or are the
// candidates? Many failures in a row, of at least three different candidates, make the device a
// suspect. Then a canary is measured: a candidate of its class that measured well before, with
// known outputs. Only a failed canary puts the device into quarantine. There canaries probe it
// after 1, 5, 15, then every 60 minutes. A device that only became slow or noisy is probed after
// seconds: clocks and neighbours on the same host change all the time. If it stays a little slower
// for four probes, that is its usual time from now on.
// Without a canary, the next batch after that time decides.
//
// Pure; times are the caller's; not thread-safe.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "tilewright/v1/common.pb.h"
#include "tracker/drift_detector.h"
#include "tracker/pool_rows.h"

namespace tilewright::tracker {

// The reason of a suspect whose measurements ended in DEVICE_LOST too often.
inline constexpr std::string_view kDevicesLost = "device.results.lost";

struct HealthOptions {
  int failures = 5;          // in a row make a suspect; doubled while canaries prove it wrong
  int max_failures = 80;     // the doubling ends here
  int lost = 3;              // DEVICE_LOST of the last `window`
  int invalid = 6;           // not valid of the last `window`
  int window = 10;           // results that count for the two
  int different = 3;         // number of different candidates that must be among them
  double canary_slow = 1.5;  // a canary is slow if it takes this many times its best on the class
  std::vector<int64_t> probe_after_s = {60, 300, 900, 3600};
  std::vector<int64_t> slow_probe_after_s = {2, 5, 10, 20, 30};  // slow or noisy
  int slow_probes = 4;  // in a row at most this much slower make a new usual time
  double slow_usual = 1.10;
  DriftOptions drift;
};

class DeviceHealth {
 public:
  explicit DeviceHealth(const HealthOptions& options = {})
      : options_(options), drift_(options.drift) {}

  // One result of an ordinary work item. True when the verdict in `row` changed.
  bool OnResult(const v1::MeasurementResult& result, HealthRow* row);
  // The baselines of one batch that has ended. True as above.
  bool OnBatch(const std::vector<double>& baselines, HealthRow* row);
  // A canary has ended. `best_ns`: the least time that it ever took on a device of the class.
  bool OnCanary(const v1::MeasurementResult& result, double best_ns, HealthRow* row);
  // A canary is needed, but the class has none. True as above. Lost, invalid or slow results prove
  // a fault of the device: it is quarantined. Failures that candidates may have caused do not
  // count.
  bool OnNoCanary(HealthRow* row);
  // The time of a probe without a canary has come: the next batch decides.
  void OnTrial(HealthRow* row);
  // A person declares the device healthy, or it is another device: forgets all, also the usual
  // time.
  void Renew(HealthRow* row);

  const DriftDetector& drift() const { return drift_; }
  // Until the next probe of a device in quarantine.
  int64_t ProbeAfterSeconds(const HealthRow& row) const;

 private:
  struct Seen {
    std::string work_item;
    v1::Outcome outcome = v1::OUTCOME_UNSPECIFIED;
    bool valid = true;
  };
  bool Suspect(std::string_view reason, const std::string& detail, HealthRow* row);
  bool Quarantine(std::string_view reason, const std::string& detail, HealthRow* row);
  bool IsNewUsual(double ratio, const HealthRow& row) const;
  bool QuarantineAgain(std::string_view reason, const std::string& detail, HealthRow* row);
  void Forget(HealthRow* row);
  bool Recent(const std::function<bool(const Seen&)>& bad, int limit) const;

  HealthOptions options_;
  DriftDetector drift_;
  std::deque<Seen> seen_;  // the last `window`
  int failed_in_row_ = 0;
  std::set<std::string> failed_items_;  // of the row
  int failures_limit_ = 0;              // doubled; 0 = as configured
  bool on_trial_ = false;
};

}  // namespace tilewright::tracker
