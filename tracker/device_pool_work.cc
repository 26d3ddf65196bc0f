// The part of DevicePool that deals in work items: submitted, queued, ended, cancelled.
#include <algorithm>
#include <utility>

#include "deploy/daemon/work_spec.h"
#include "deploy/support/duration.h"
#include "deploy/support/hash.h"
#include "deploy/support/strings.h"
#include "tracker/device_pool.h"

namespace tilewright::tracker {
namespace {

constexpr size_t kMaxWorkItemName = 512;
constexpr double kMaxShareWeight = 100;
constexpr int kMaxAttemptsBefore = 1'000'000;
constexpr size_t kDigestBytes = 32;

bool ValidDigest(const v1::Digest& digest) {
  return digest.algorithm() == "sha256" && digest.hash().size() == 32;
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
  return ValidateRequirement({item.pool(), item.target(), item.selector()});
}

void DevicePool::CountOpen(const StoredItem& item, int delta) {
  int64_t& open = open_items_of_user_[item.user()];
  open += delta;
  if (open <= 0) open_items_of_user_.erase(item.user());
  CountReferences(item, delta);
}

void DevicePool::CountReferences(const StoredItem& item, int delta) {
  const std::string& digests = item.digests();
  for (size_t at = 0; at + kDigestBytes <= digests.size(); at += kDigestBytes) {
    const auto it = references_.try_emplace(digests.substr(at, kDigestBytes), 0).first;
    it->second += delta;
    if (it->second <= 0) references_.erase(it);
  }
}

bool DevicePool::References(const std::string& sha256_hex) const {
  const auto digest = support::HexDecode(sha256_hex);
  return digest.has_value() && references_.count(*digest) != 0;
}

std::string DevicePool::OwnerOf(const std::string& device) const {
  const auto it = devices_.find(device);
  return it == devices_.end() ? "" : it->second.agent;
}

void DevicePool::Enqueue(WorkRow* row, Now now) {
  queue_.Add(row->item.name(), row->seq, row->item.terms().queue, now.mono_ns);
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
  const uint64_t hash = daemon::WorkSpecHash(item);
  if (const auto it = items_.find(item.name()); it != items_.end()) {
    const bool same = it->second.spec_hash == hash && it->second.consumer == consumer;
    if (same && awaiting_.erase(item.name()) != 0) Enqueue(&it->second, now);
    if (same && forgettable_.count({it->second.closed_ns, item.name()}) != 0) {
      asked_again_.insert(item.name());
      outcome.set_delivered_again(true);
    }
    outcome.set_kind(same ? v1::SubmitOutcome::KIND_EXISTS : v1::SubmitOutcome::KIND_CONFLICT);
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
  row.item = StoredItem(item, &last_terms_);
  row.spec_hash = hash;
  row.submitted_us = now.wall_us;
  Enqueue(&row, now);
  CountOpen(row.item, +1);
  row.queued_ns = now.mono_ns;
  if (item.queue_timeout().seconds() > 0) {
    deadlines_.emplace(now.mono_ns + support::DurationNs(item.queue_timeout()), item.name());
  }
  Touch(row);
  const bool device = AnyDeviceMatches({item.pool(), item.target(), item.selector()}, now);
  outcome.set_kind(device ? v1::SubmitOutcome::KIND_ACCEPTED
                          : v1::SubmitOutcome::KIND_NO_DEVICE_NOW);
  if (!device) outcome.set_detail("queued; no device that is online satisfies it now");
  return outcome;
}

void DevicePool::AddUpdate(const WorkRow& row, std::string_view reason,
                           const std::string& measurement_id, Now now) {
  if (IsCanary(row)) return MayForget(row.item.name());  // nobody pulls these
  // The result that caused it is the newest one: Report has just added it.
  const v1::MeasurementResult* result =
      measurement_id.empty() ? nullptr : &changes_.results.back().result;
  // A late attempt that failed while another one runs: to the consumer the item still waits.
  const v1::WorkState state = row.open() ? v1::WORK_STATE_QUEUED : row.state;
  AppendUpdate(row, state, reason, result, now);
}

void DevicePool::AppendUpdate(const WorkRow& row, v1::WorkState state, std::string_view reason,
                              const v1::MeasurementResult* result, Now now) {
  OutboxRow update;
  update.seq = next_outbox_seq_++;
  update.consumer = row.consumer;
  update.work_item = row.item.name();
  update.state = state;
  update.reason = std::string(reason);
  update.at_us = now.wall_us;
  if (result != nullptr) {
    update.measurement_id = result->measurement_id();
    update.result = *result;
  }
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
    queue_.Remove(row->seq, row->item.terms().queue);
    awaiting_.erase(row->item.name());
  } else {
    RemoveFromLease(row, now);
  }
  CountOpen(row->item, -1);
  row->state = state;
  row->closed_us = now.wall_us;
  row->closed_ns = now.mono_ns;
  row->item.Close();
  Touch(*row);
  ++counters_.closed_by_state[v1::WorkState_Name(state)];
  AddUpdate(*row, reason, measurement_id, now);
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

}  // namespace tilewright::tracker
