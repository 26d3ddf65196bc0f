#include "tracker/tracker_metrics.h"

#include <map>
#include <string>

namespace tilewright::tracker {

TrackerMetrics::TrackerMetrics(daemon::Metrics* metrics)
    : metrics_(metrics),
      commit_seconds_(metrics->Histogram("tilewright_tracker_commit_seconds",
                                         "time of one database transaction",
                                         daemon::LatencyBuckets())),
      wait_seconds_(metrics->Histogram("tilewright_tracker_queue_wait_seconds",
                                       "time from a work item's submission to its grant",
                                       daemon::LatencyBuckets())) {}

void TrackerMetrics::ObserveCommit(double seconds, bool ok) {
  commit_seconds_.Observe(seconds);
  if (!ok) {
    metrics_->Counter("tilewright_tracker_commit_failures_total", "transactions that failed")
        .Increment();
  }
}

void TrackerMetrics::ObserveWait(double seconds) { wait_seconds_.Observe(seconds); }

void TrackerMetrics::Update(const PoolStats& stats, int64_t waiting_calls, int64_t artifact_bytes) {
  const auto level = [this](const char* name, const char* help, int64_t value) {
    metrics_->Gauge(name, help).Set(static_cast<double>(value));
  };
  level("tilewright_tracker_queue_work_items", "work items that wait", stats.queued);
  level("tilewright_tracker_leased_work_items", "work items with a device", stats.leased);
  level("tilewright_tracker_leases", "live leases", stats.leases);
  level("tilewright_tracker_outbox_updates", "updates no consumer acknowledged yet", stats.outbox);
  level("tilewright_tracker_devices_online", "devices that report", stats.devices_online);
  level("tilewright_tracker_devices_dispatchable", "devices that could take work now",
        stats.devices_dispatchable);
  level("tilewright_tracker_devices_quarantined", "devices that get canaries only",
        stats.devices_quarantined);
  level("tilewright_tracker_waiting_calls", "long polls being held", waiting_calls);
  level("tilewright_tracker_artifact_bytes", "bytes in the artifact cache", artifact_bytes);

  const auto count = [this](const char* name, const char* help, int64_t now, int64_t before,
                            const daemon::MetricLabels& labels) {
    auto& counter = metrics_->Counter(name, help, labels);
    if (now > before) counter.Increment(static_cast<double>(now - before));
  };
  count("tilewright_tracker_granted_work_items_total", "work items given to devices",
        stats.granted_items, last_.granted_items, {});
  count("tilewright_tracker_canaries_passed_total", "canaries that a suspect device measured well",
        stats.canaries_passed, last_.canaries_passed, {});
  count("tilewright_tracker_canaries_failed_total", "canaries that failed: the device is to blame",
        stats.canaries_failed, last_.canaries_failed, {});
  count("tilewright_tracker_leases_expired_total", "leases whose agent fell silent",
        stats.leases_expired, last_.leases_expired, {});
  count("tilewright_tracker_leases_reactivated_total", "expired leases whose agent came back",
        stats.leases_reactivated, last_.leases_reactivated, {});
  const auto count_map = [&](const char* name, const char* help, const char* label,
                             const std::map<std::string, int64_t>& now,
                             const std::map<std::string, int64_t>& before) {
    for (const auto& [key, value] : now) {
      const auto it = before.find(key);
      count(name, help, value, it == before.end() ? 0 : it->second, {{label, key}});
    }
  };
  count_map("tilewright_tracker_results_total", "results reported by agents", "disposition",
            stats.results_by_disposition, last_.results_by_disposition);
  count_map("tilewright_tracker_measurements_total", "accepted results", "outcome",
            stats.accepted_by_outcome, last_.accepted_by_outcome);
  count_map("tilewright_tracker_work_items_closed_total", "work items by final state", "state",
            stats.closed_by_state, last_.closed_by_state);
  last_ = stats;
}

}  // namespace tilewright::tracker
