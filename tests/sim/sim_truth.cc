#include "tests/sim/sim_truth.h"

#include "deploy/support/strings.h"

namespace tilewright::sim {
namespace {

using support::StrCat;

std::string ContentOf(const v1::MeasurementResult& result) {
  return StrCat(static_cast<int>(result.outcome()), " ", result.median());
}

}  // namespace

std::string SimTruth::KeyOf(const v1::MeasurementResult& result) {
  return StrCat(result.measurement_id(), " ", result.device(), " ", result.fencing_token());
}

std::set<std::string> SimTruth::Unanswered() const {
  std::set<std::string> keys;
  for (const auto& [key, content] : made_results_) {
    if (answered_.count(key) == 0) keys.insert(key);
  }
  return keys;
}

void SimTruth::Made(const v1::MeasurementResult& result) {
  const auto [it, fresh] = made_results_.emplace(KeyOf(result), ContentOf(result));
  if (!fresh) {
    world_->Fail(StrCat("one attempt has two results: ", it->first, ": ", it->second, " and ",
                        ContentOf(result)));
  }
}

void SimTruth::Acked(const v1::ReportResultsRequest& request,
                     const v1::ReportResultsResponse& response, int database) {
  for (int i = 0; i < response.acks_size() && i < request.results_size(); ++i) {
    const v1::MeasurementResult& result = request.results(i);
    if (response.acks(i).disposition() != v1::DISPOSITION_RETRY_LATER) {
      answered_.insert(KeyOf(result));
    }
    if (result.outcome() == v1::CANCELLED) continue;  // stopped: nothing was measured
    // Not ALREADY_STORED: that may be the echo of a superseded one, which does not count.
    if (response.acks(i).disposition() != v1::DISPOSITION_STORED) continue;
    stored_[result.measurement_id()] = database;
  }
}

void SimTruth::Granted(const v1::Grant& grant) {
  auto& [highest, lease] = tokens_[grant.device()];
  // A grant that a power cut took before anything followed from it comes again as it was.
  const bool again = grant.fencing_token() == highest && grant.lease() == lease;
  if (grant.fencing_token() <= highest && !again) {
    world_->Fail(StrCat("a token does not rise: ", grant.lease(), " after ", highest));
  }
  highest = grant.fencing_token();
  lease = grant.lease();
}

bool SimTruth::WasMade(const v1::MeasurementResult& result) const {
  const auto it = made_results_.find(KeyOf(result));
  return it != made_results_.end() && it->second == ContentOf(result);
}

}  // namespace tilewright::sim
