// The part of DevicePool that deals in work items, results and the outbox.
#include <algorithm>
#include <utility>

#include "deploy/support/hash.h"
#include "deploy/support/strings.h"
#include "tracker/device_pool.h"

namespace tilewright::tracker {
namespace {

constexpr size_t kMaxWorkItemName = 512;
constexpr double kMaxShareWeight = 100;
constexpr int kMaxAttemptsBefore = 1'000'000;
constexpr int kDefaultPriority = 3;
constexpr int kMaxCanaryLosses = 2;
constexpr char kArtifactMissing[] = "ARTIFACT_MISSING";  // of DEVICE_LOST
constexpr int kDefaultPull = 256;
constexpr int kMaxPull = 1000;
// Of a round: what happens with each is some work for the database.
constexpr int kForgetAtOnce = 100;
// A message must fit into gRPC's limit together with its neighbours.
constexpr size_t kMaxPullBytes = 8 << 20;

bool ValidDigest(const v1::Digest& digest) {
  return digest.algorithm() == "sha256" && digest.hash().size() == 32;
}

// Message types of work items have no maps, so equal items give equal bytes.
uint64_t SpecHash(const v1::WorkItem& item) {
  v1::WorkItem canonical = item;
  canonical.mutable_work()->clear_attempt();
  canonical.clear_attempts_before();
  std::string bytes;
  canonical.SerializeToString(&bytes);
  return support::StableHash64(bytes);
}

std::string MeasurementId(const std::string& work_item, int attempt) {
  return support::StrCat(work_item, "/", attempt);
}

}  // namespace

absl::Status DevicePool::CheckItem(const v1::WorkItem& item) const {
  const auto invalid = [](const std::string& detail) {
    return support::InvalidArgument("work_item.submit.invalid", detail);
  };
  const std::string& name = item.name();
  const bool printable =
      std::all_of(name.begin(), name.end(), [](char c) { return c > ' ' && c < 0x7f; });
  if (name.empty() || name.size() > kMaxWorkItemName || !printable) {
    return invalid("expected a printable name of at most 512 characters, found " +
                   support::Quote(name, 80));
  }
  if (!(item.share_weight() >= 0 && item.share_weight() <= kMaxShareWeight) ||
      item.user().size() > kMaxWorkItemName) {
    return invalid("expected a share_weight of 0..100 and a short user");
  }
  if (item.priority() < 0 || item.priority() > 5) {
    return invalid(support::StrCat("expected priority 0..5, found ", item.priority()));
  }
  if (item.max_batch() < 0 || item.invalid_retries() < 0 || item.attempts_before() < 0 ||
      item.attempts_before() > kMaxAttemptsBefore) {
    return invalid("expected max_batch, invalid_retries and attempts_before of at least 0");
  }
  const v1::Work& work = item.work();
  if (!ValidDigest(work.artifact())) return invalid("expected a sha256 digest as work.artifact");
  if (work.has_expected_output() && !ValidDigest(work.expected_output())) {
    return invalid("expected a sha256 digest as work.expected_output");
  }
  if (work.has_baseline() && !ValidDigest(work.baseline())) {
    return invalid("expected a sha256 digest as work.baseline");
  }
  return ValidateRequirement(RequirementOf(item));
}

Requirement DevicePool::RequirementOf(const v1::WorkItem& item) {
  return {item.pool(), item.target(), item.selector()};
}

Flow DevicePool::FlowOf(const v1::WorkItem& item) { return {item.user(), item.job()}; }

double DevicePool::WeightOf(const v1::WorkItem& item) {
  return item.share_weight() > 0 ? item.share_weight() : 1;
}

void DevicePool::CountOpen(const v1::WorkItem& item, int delta) {
  int64_t& open = open_items_of_user_[item.user()];
  open += delta;
  if (open <= 0) open_items_of_user_.erase(item.user());
  CountReferences(item, delta);
}

void DevicePool::CountReferences(const v1::WorkItem& item, int delta) {
  const auto count = [&](const v1::Digest& digest) {
    const std::string hex = support::HexEncode(digest.hash());
    int64_t& references = references_[hex];
    references += delta;
    if (references <= 0) references_.erase(hex);
  };
  const v1::Work& work = item.work();
  count(work.artifact());
  if (work.has_expected_output()) count(work.expected_output());
  if (work.has_baseline()) count(work.baseline());
}

bool DevicePool::References(const std::string& sha256_hex) const {
  return references_.count(sha256_hex) != 0;
}

std::string DevicePool::OwnerOf(const std::string& device) const {
  const auto it = devices_.find(device);
  return it == devices_.end() ? "" : it->second.agent;
}

void DevicePool::Enqueue(WorkRow* row, Now now) {
  QueuedWork work;
  work.name = row->item.name();
  work.seq = row->seq;
  work.flow = FlowOf(row->item);
  work.weight = WeightOf(row->item);
  work.priority = row->item.priority() == 0 ? kDefaultPriority : row->item.priority();
  work.max_batch = std::min(row->item.max_batch(), options_.max_batch);
  work.requirement = RequirementOf(row->item).Key();
  queue_.Add(work, now.mono_ns);
}

v1::SubmitOutcome DevicePool::Submit(const std::string& consumer, const v1::WorkItem& item,
                                     Now now) {
  v1::SubmitOutcome outcome;
  outcome.set_work_item(item.name());
  absl::Status status = CheckItem(item);
  if (status.ok() && consumer.empty()) {
    status = support::InvalidArgument("work_item.submit.invalid", "expected a consumer");
  }
  if (!status.ok()) {
    outcome.set_kind(v1::SubmitOutcome::KIND_INVALID);
    outcome.set_detail(support::StatusText(status));
    return outcome;
  }
  const uint64_t hash = SpecHash(item);
  if (const auto it = items_.find(item.name()); it != items_.end()) {
    const bool same = it->second.spec_hash == hash && it->second.consumer == consumer;
    if (same && awaiting_.erase(item.name()) != 0) Enqueue(&it->second, now);
    outcome.set_kind(same ? v1::SubmitOutcome::KIND_EXISTS : v1::SubmitOutcome::KIND_INVALID);
    outcome.set_detail(same ? v1::WorkState_Name(it->second.state)
                            : "work_item.submit.conflict: the name is taken by another work item");
    return outcome;
  }
  if (const std::string full = NoRoom(item.user()); !full.empty()) {
    outcome.set_kind(v1::SubmitOutcome::KIND_RETRY_LATER);
    outcome.set_detail(full);
    return outcome;
  }
  WorkRow& row = items_[item.name()];
  row.consumer = consumer;
  row.seq = next_work_seq_++;
  row.item = item;
  row.spec_hash = hash;
  row.submitted_us = now.wall_us;
  Enqueue(&row, now);
  CountOpen(row.item, +1);
  submitted_ns_[item.name()] = now.mono_ns;
  if (item.queue_timeout().seconds() > 0) {
    deadlines_.emplace(now.mono_ns + item.queue_timeout().seconds() * kSecondNs, item.name());
  }
  Touch(row);
  const bool device = AnyDeviceMatches(RequirementOf(item), now);
  outcome.set_kind(device ? v1::SubmitOutcome::KIND_ACCEPTED
                          : v1::SubmitOutcome::KIND_NO_DEVICE_NOW);
  if (!device) outcome.set_detail("queued; no device that is online satisfies it now");
  return outcome;
}

void DevicePool::AddUpdate(const WorkRow& row, std::string_view reason,
                           const std::string& measurement_id, Now now) {
  if (IsCanary(row)) return MayForget(row.item.name());  // nobody pulls these
  OutboxRow update;
  update.seq = next_outbox_seq_++;
  update.consumer = row.consumer;
  update.work_item = row.item.name();
  // A late attempt that failed while another one runs: to the consumer the item still waits.
  update.state = row.open() ? v1::WORK_STATE_QUEUED : row.state;
  update.reason = std::string(reason);
  update.measurement_id = measurement_id;
  update.at_us = now.wall_us;
  // The result that caused it is the newest one: Report has just added it.
  if (!measurement_id.empty()) update.result = changes_.results.back().result;
  changes_.outbox.push_back(update);
  const int64_t seq = update.seq;
  outbox_[row.consumer].emplace(seq, std::move(update));
  ++outbox_size_;
  news_.insert(row.consumer);
}

void DevicePool::Close(WorkRow* row, v1::WorkState state, std::string_view reason,
                       const std::string& measurement_id, Now now) {
  TW_CHECK(row->open()) << row->item.name() << " is closed twice";
  if (row->state == v1::WORK_STATE_QUEUED) {
    queue_.Remove(row->item.name());
    awaiting_.erase(row->item.name());
  } else {
    RemoveFromLease(row, now);
  }
  CountOpen(row->item, -1);
  submitted_ns_.erase(row->item.name());
  row->state = state;
  row->closed_us = now.wall_us;
  row->closed_ns = now.mono_ns;
  v1::WorkItem kept;
  kept.set_name(row->item.name());
  kept.set_job(row->item.job());
  kept.set_attempts_before(row->item.attempts_before());
  row->item = std::move(kept);
  Touch(*row);
  ++counters_.closed_by_state[v1::WorkState_Name(state)];
  AddUpdate(*row, reason, measurement_id, now);
}

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
  const bool never_ran = result.outcome() == v1::DEVICE_LOST && result.phase().empty() &&
                         row->infra_losses < kMaxCanaryLosses;
  if (IsCanary(*row) && result.error_class() == kArtifactMissing) {
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
                     row->invalid_results < row->item.invalid_retries();
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
  ++devices_[attempt->device].done;
  StopOtherAttempt(*row, current, now);
  Close(row, v1::WORK_STATE_DONE, "", result.measurement_id(), now);
}

void DevicePool::AwaitArtifacts(WorkRow* row, const v1::MeasurementResult& result, Now now) {
  RemoveFromLease(row, now);
  row->state = v1::WORK_STATE_QUEUED;
  awaiting_.insert(row->item.name());
  AddUpdate(*row, "work.artifact.missing", result.measurement_id(), now);
}

void DevicePool::TakeLostAttempt(WorkRow* row, const v1::MeasurementResult& result, bool current,
                                 Now now) {
  const bool candidate = !result.phase().empty();  // it was running when the device went away
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
  if (current && result.error_class() == kArtifactMissing) {
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

void DevicePool::CancelItem(WorkRow* row, bool kill, v1::CancelWorkResponse* response, Now now) {
  if (row->state == v1::WORK_STATE_LEASED) {
    const auto lease = leases_.find(row->attempts.back().lease);
    if (lease != leases_.end()) {
      Revoke(lease->second, {row->item.name()}, "lease.revoked.cancelled", kill, now);
    }
    response->set_running_revoked(response->running_revoked() + 1);
  } else {
    response->set_queued_cancelled(response->queued_cancelled() + 1);
  }
  Close(row, v1::WORK_STATE_CANCELLED, "work.cancelled", "", now);
}

v1::CancelWorkResponse DevicePool::Cancel(const v1::CancelWorkRequest& request, Now now) {
  v1::CancelWorkResponse response;
  std::vector<std::string> names(request.work_items().begin(), request.work_items().end());
  if (!request.job().empty()) {
    for (const auto& [name, row] : items_) {
      if (row.open() && row.item.job() == request.job()) names.push_back(name);
    }
  }
  for (const std::string& name : names) {
    const auto it = items_.find(name);
    if (it == items_.end() || !it->second.open() || it->second.consumer != request.consumer()) {
      continue;
    }
    CancelItem(&it->second, request.kill_running(), &response, now);
  }
  return response;
}

std::string DevicePool::CursorText(int64_t seq) const {
  return support::StrCat(store_id_, "-", seq);
}

// 0 for an empty cursor and for one of another database; -1 for a text that is no cursor.
int64_t DevicePool::CursorSeq(const std::string& cursor) const {
  if (cursor.empty()) return 0;
  const size_t dash = cursor.rfind('-');
  if (dash == std::string::npos) return -1;
  const auto seq = support::ParseInt64(std::string_view(cursor).substr(dash + 1));
  if (!seq.has_value() || *seq < 0) return -1;
  return cursor.substr(0, dash) == store_id_ ? *seq : 0;
}

bool DevicePool::Pull(const v1::PullResultsRequest& request,
                      v1::PullResultsResponse* response) const {
  response->Clear();
  response->set_tracker_epoch(epoch_);
  const int64_t after = std::max<int64_t>(0, CursorSeq(request.cursor()));
  response->set_cursor(CursorText(after));
  const auto box = outbox_.find(request.consumer());
  if (box == outbox_.end()) return false;
  const int limit =
      request.max_updates() <= 0 ? kDefaultPull : std::min<int>(request.max_updates(), kMaxPull);
  size_t bytes = 0;
  for (auto it = box->second.upper_bound(after);
       it != box->second.end() && response->updates_size() < limit && bytes < kMaxPullBytes; ++it) {
    const OutboxRow& row = it->second;
    v1::WorkUpdate* update = response->add_updates();
    update->set_cursor(CursorText(row.seq));
    update->set_work_item(row.work_item);
    update->set_state(row.state);
    update->set_reason(row.reason);
    if (!row.measurement_id.empty()) *update->mutable_result() = row.result;
    update->mutable_at()->set_seconds(row.at_us / 1'000'000);
    update->mutable_at()->set_nanos(static_cast<int32_t>(row.at_us % 1'000'000 * 1000));
    response->set_cursor(update->cursor());
    bytes += update->ByteSizeLong();
  }
  return response->updates_size() > 0;
}

absl::Status DevicePool::Acknowledge(const v1::AckResultsRequest& request) {
  const int64_t seq = CursorSeq(request.cursor());
  if (seq < 0) {
    return support::InvalidArgument("cursor.parse.invalid", support::Quote(request.cursor(), 80));
  }
  const auto box = outbox_.find(request.consumer());
  if (seq == 0 || box == outbox_.end()) return absl::OkStatus();
  const auto end = box->second.upper_bound(seq);
  outbox_size_ -= std::distance(box->second.begin(), end);
  for (auto it = box->second.begin(); it != end; ++it) {
    // The last update of an item that has ended.
    if (it->second.state != v1::WORK_STATE_QUEUED) MayForget(it->second.work_item);
  }
  box->second.erase(box->second.begin(), end);
  int64_t& acked = changes_.acked[request.consumer()];
  acked = std::max(acked, seq);
  return absl::OkStatus();
}

void DevicePool::FailOverdueWork(Now now) {
  while (!deadlines_.empty() && deadlines_.begin()->first <= now.mono_ns) {
    const std::string name = deadlines_.begin()->second;
    deadlines_.erase(deadlines_.begin());
    const auto it = items_.find(name);
    if (it == items_.end() || !it->second.open()) continue;
    if (it->second.state == v1::WORK_STATE_LEASED) {
      deadlines_.emplace(now.mono_ns + kSecondNs, name);  // let it finish; look again
      continue;
    }
    Close(&it->second, v1::WORK_STATE_FAILED, "work.queue.timeout", "", now);
  }
}

void DevicePool::MayForget(const std::string& work_item) {
  const auto it = items_.find(work_item);
  if (it == items_.end() || it->second.open()) return;
  forgettable_.emplace(it->second.closed_ns, work_item);
}

void DevicePool::ForgetClosedWork(Now now) {
  for (int i = 0; i < kForgetAtOnce && !forgettable_.empty(); ++i) {
    const auto oldest = forgettable_.begin();
    const bool old = oldest->first + options_.keep_closed_ns <= now.mono_ns;
    if (!old && forgettable_.size() <= options_.max_closed) return;
    dirty_items_.erase(oldest->second);
    items_.erase(oldest->second);
    changes_.forgotten.push_back(oldest->second);
    forgettable_.erase(oldest);
  }
}

}  // namespace tilewright::tracker
