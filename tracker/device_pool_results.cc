// The part of DevicePool that deals in results of attempts, and attempts without one.
#include <utility>

#include "deploy/daemon/fleet_contract.h"
#include "deploy/support/strings.h"
#include "tracker/device_pool.h"

namespace tilewright::tracker {
namespace {

constexpr int kMaxCanaryLosses = 2;

std::string MeasurementId(const std::string& work_item, int attempt) {
  return support::StrCat(work_item, "/", attempt);
}

}  // namespace

// The current attempt of a leased item (already out of its lease) is over without a result.
void DevicePool::LoseAttempt(WorkRow* row, std::string_view reason, bool loss, Now now) {
  if (loss) ++row->infra_losses;
  row->state = v1::WORK_STATE_QUEUED;
  Enqueue(row, now);
  Touch(*row);
  if (row->infra_losses >= options_.max_infra_losses) {
    Close(row, v1::WORK_STATE_FAILED, "work.attempts.lost", "", now);
  } else {
    AddUpdate(*row, reason, "", now);
  }
}

v1::Ack DevicePool::Report(const v1::MeasurementResult& result, const std::string& address,
                           Now now) {
  v1::Ack ack;
  ack.set_measurement_id(result.measurement_id());
  const auto reject = [&](const std::string& why) {
    ack.set_disposition(v1::DISPOSITION_REJECTED);
    ack.set_detail(why);
    ++counters_.results_by_disposition[v1::Disposition_Name(ack.disposition())];
    return ack;
  };
  const auto it = items_.find(result.work_item());
  if (it == items_.end()) return reject("result.work_item.unknown: no such work item");
  WorkRow& row = it->second;
  const int number = result.attempt() - row.item.attempts_before();
  if (number < 1 || number > static_cast<int>(row.attempts.size()) ||
      result.measurement_id() != MeasurementId(result.work_item(), result.attempt())) {
    return reject("result.measurement_id.invalid: expected {work item}/{attempt} of a grant");
  }
  Attempt& attempt = row.attempts[static_cast<size_t>(number) - 1];
  if (result.fencing_token() != attempt.token || result.device() != attempt.device) {
    return reject("result.fencing.mismatch: not the device and token of that attempt");
  }
  if (result.outcome() == v1::OUTCOME_UNSPECIFIED) {
    return reject("result.outcome.missing: expected an outcome");
  }
  if (attempt.disposition != v1::DISPOSITION_UNSPECIFIED) {
    ack.set_disposition(v1::DISPOSITION_ALREADY_STORED);
  } else {
    ResultRow stored;
    stored.at_us = now.wall_us;
    stored.result = result;
    stored.result.set_agent_address(address);
    stored.disposition = row.open() ? v1::DISPOSITION_STORED : v1::DISPOSITION_SUPERSEDED;
    attempt.disposition = stored.disposition;
    ack.set_disposition(stored.disposition);
    changes_.results.push_back(std::move(stored));
    Touch(row);
    const auto lease = leases_.find(attempt.lease);
    if (lease != leases_.end()) ChargeItem(&lease->second, now);
    const std::string device = attempt.device;
    if (row.open()) {
      NoteBaselines(attempt, row, result);
      TakeResult(&row, &attempt, result, now);
      ObserveResult(device, row, result, now);
    }
  }
  ++counters_.results_by_disposition[v1::Disposition_Name(ack.disposition())];
  return ack;
}

void DevicePool::StopOtherAttempt(const WorkRow& row, bool current, Now now) {
  if (row.state != v1::WORK_STATE_LEASED || current) return;
  const auto lease = leases_.find(row.attempts.back().lease);
  if (lease == leases_.end()) return;
  Revoke(lease->second, {row.item.name()}, "lease.revoked.superseded", false, now);
}

void DevicePool::TakeResult(WorkRow* row, Attempt* attempt, const v1::MeasurementResult& result,
                            Now now) {
  // "Current": the item is with a device under this very attempt. Otherwise its lease was lost and
  // this result is late: the first one stored still wins.
  const bool current = row->state == v1::WORK_STATE_LEASED && attempt == &row->attempts.back();
  // An agent that was restarted says nothing about the device, but one that never gets there does.
  const bool restarted = result.phase().empty() || result.phase() == daemon::kAgentEndedPhase;
  const bool never_ran =
      result.outcome() == v1::DEVICE_LOST && restarted && row->infra_losses < kMaxCanaryLosses;
  if (IsCanary(*row) && result.error_class() == daemon::kArtifactMissingClass) {
    LoseCanary(row, now);
    return;
  }
  if (IsCanary(*row) && result.outcome() != v1::CANCELLED && !never_ran) {
    TakeCanaryResult(row, attempt, result, now);
    return;
  }
  if (result.outcome() == v1::DEVICE_LOST) {
    TakeLostAttempt(row, result, current, now);
    return;
  }
  if (result.outcome() == v1::CANCELLED) {  // stopped before its time, for no fault of its own
    if (current) {
      RemoveFromLease(row, now);
      LoseAttempt(row, "work.attempt.cancelled", false, now);
    }
    return;
  }
  const bool retry = !result.valid() && result.outcome() == v1::OK &&
                     row->invalid_results < row->item.terms().invalid_retries;
  if (retry) {
    ++row->invalid_results;
    if (current) {
      RemoveFromLease(row, now);
      row->state = v1::WORK_STATE_QUEUED;
      Enqueue(row, now);
    }
    AddUpdate(*row, "work.measurement.invalid", result.measurement_id(), now);
    return;
  }
  KeepAsCanary(*row, result);
  attempt->accepted = true;
  ++counters_.accepted_by_outcome[v1::Outcome_Name(result.outcome())];
  const auto device = devices_.find(attempt->device);
  if (device != devices_.end()) ++device->second.done;
  StopOtherAttempt(*row, current, now);
  Close(row, v1::WORK_STATE_DONE, "", result.measurement_id(), now);
}

void DevicePool::AwaitArtifacts(WorkRow* row, const v1::MeasurementResult& result, Now now) {
  RemoveFromLease(row, now);
  row->state = v1::WORK_STATE_QUEUED;
  awaiting_.insert(row->item.name());
  AddUpdate(*row, daemon::kArtifactMissingReason, result.measurement_id(), now);
}

void DevicePool::TakeLostAttempt(WorkRow* row, const v1::MeasurementResult& result, bool current,
                                 Now now) {
  // It was running when the device or its agent went away. A canary is the tracker's own.
  const bool candidate = !result.phase().empty() && !IsCanary(*row);
  if (candidate) {
    ++row->candidate_kills;
  } else {
    ++row->infra_losses;
  }
  if (row->candidate_kills >= options_.max_candidate_kills) {
    StopOtherAttempt(*row, current, now);
    Close(row, v1::WORK_STATE_QUARANTINED, "work.candidate.poison", result.measurement_id(), now);
    return;
  }
  if (row->infra_losses >= options_.max_infra_losses) {
    StopOtherAttempt(*row, current, now);
    Close(row, v1::WORK_STATE_FAILED, "work.attempts.lost", result.measurement_id(), now);
    return;
  }
  if (current && result.error_class() == daemon::kArtifactMissingClass) {
    AwaitArtifacts(row, result, now);
    return;
  }
  if (current) {
    RemoveFromLease(row, now);
    row->state = v1::WORK_STATE_QUEUED;
    Enqueue(row, now);
  }
  AddUpdate(*row, candidate ? "work.device.lost" : "work.infrastructure.lost",
            result.measurement_id(), now);
}

}  // namespace tilewright::tracker
