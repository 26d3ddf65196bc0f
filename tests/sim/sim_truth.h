// What really happened in a simulated fleet, beside what its parts believe: every result that was
// made, every acknowledgement that was given. The checks compare the two. Not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "tests/sim/sim_world.h"
#include "tilewright/v1/agent.pb.h"

namespace tilewright::sim {

class SimTruth {
 public:
  explicit SimTruth(SimWorld* world) : world_(world) {}

  // A different time for each measurement, so that two can never be mixed up unseen.
  double NextMedian() { return 1000 + static_cast<double>(++made_); }

  // An agent has made this result durable. The same attempt has one result.
  void Made(const v1::MeasurementResult& result);
  // The tracker answers that it has these, under that database.
  void Acked(const v1::ReportResultsRequest& request, const v1::ReportResultsResponse& response,
             int database);
  // An agent has taken a grant.
  void Granted(const v1::Grant& grant);

  // Results that were made and that the tracker has neither taken nor refused, as "{measurement id}
  // {device} {token}".
  std::set<std::string> Unanswered() const;
  static std::string KeyOf(const v1::MeasurementResult& result);

  bool WasMade(const v1::MeasurementResult& result) const;

  // Ids of measurements that count, and the database of the tracker that acknowledged them.
  const std::map<std::string, int>& stored() const { return stored_; }
  int64_t results() const { return static_cast<int64_t>(made_results_.size()); }

 private:
  SimWorld* world_;
  int64_t made_ = 0;
  std::map<std::string, std::string> made_results_;  // id, device and token -> outcome and median
  std::set<std::string> answered_;
  std::map<std::string, int> stored_;  // id -> database of the tracker
  // Device -> highest one taken, and its lease.
  std::map<std::string, std::pair<int64_t, std::string>> tokens_;
};

}  // namespace tilewright::sim
