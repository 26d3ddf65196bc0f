#include "tests/sim/sim_oracle.h"

#include <algorithm>
#include <utility>

#include "deploy/support/strings.h"

namespace tilewright::sim {

using support::StrCat;

void CommitOracle::NewDatabase() {
  leases_.clear();
  tokens_.clear();
  attempts_.clear();
  results_.clear();
}

bool CommitOracle::InOrder(const v1::SyncRequest& request) {
  Session& session = sessions_[request.agent()];
  if (session.replaced.count(request.session_id()) != 0) return false;
  if (session.id != request.session_id()) {
    session.replaced.insert(session.id);
    session.id = request.session_id();
    session.sequence = 0;
  }
  if (request.sequence() < session.sequence) return false;
  session.sequence = request.sequence();
  return true;
}

void CommitOracle::SyncTaken(const v1::SyncRequest& request) {
  if (!InOrder(request)) return;
  // An agent keeps leases of the devices that it offers.
  std::set<std::string> offered;
  for (const v1::DeviceReport& device : request.devices()) offered.insert(device.device());
  for (const v1::LeaseReport& report : request.leases()) {
    const auto lease = leases_.find(report.lease());
    if (lease == leases_.end() || lease->second.alive_ns == world_->now_ns()) continue;
    if (offered.count(lease->second.device) == 0) continue;
    lease->second.before_ns = std::exchange(lease->second.alive_ns, world_->now_ns());
  }
}

void CommitOracle::Committed(const tracker::Changes& changes) {
  ++commits_;
  std::map<std::string, std::map<int, KnownAttempt>> before;
  for (const tracker::WorkRow& row : changes.items) {
    const std::string& name = row.item.name();
    before[name] = attempts_[name];
    // Attempts are counted from what the consumer knows; none is forgotten.
    if (row.attempts.size() < attempts_[name].size()) {
      world_->Fail(StrCat("the tracker forgets attempts of ", name));
    }
    for (const tracker::Attempt& attempt : row.attempts) CheckAttempt(name, attempt);
  }
  for (const tracker::ResultRow& row : changes.results) {
    if (!results_.insert(row.result.measurement_id()).second) {
      world_->Fail("a result is stored twice: " + row.result.measurement_id());
    }
  }
  for (const tracker::OutboxRow& row : changes.outbox) {
    if (row.reason == "lease.expired") CheckExpiry(row.work_item, before[row.work_item]);
  }
  for (const std::string& name : changes.forgotten) attempts_.erase(name);
}

void CommitOracle::CheckAttempt(const std::string& item, const tracker::Attempt& attempt) {
  const auto [known, fresh] = attempts_[item].try_emplace(attempt.number);
  const std::string id = StrCat(item, "/", attempt.number);
  if (fresh) {
    known->second.lease = attempt.lease;
    const auto [lease, granted] = leases_.try_emplace(attempt.lease);
    if (granted) {
      lease->second = {attempt.device, attempt.token, world_->now_ns(), world_->now_ns(), commits_};
      if (on_lease_) on_lease_(attempt.device);
      int64_t& highest = tokens_[attempt.device];
      if (attempt.token <= highest) {
        world_->Fail(StrCat("the tracker gives token ", attempt.token, " of ", attempt.device,
                            " after ", highest, ": ", id));
      }
      highest = std::max(highest, attempt.token);
    } else if (lease->second.device != attempt.device || lease->second.token != attempt.token ||
               lease->second.commit != commits_) {
      world_->Fail(StrCat("two grants have the name ", attempt.lease, ": ", id));
    }
  } else if (known->second.lease != attempt.lease) {
    world_->Fail(StrCat("one attempt is granted twice: ", id, " as ", known->second.lease, " and ",
                        attempt.lease));
  }
  if (known->second.disposition != v1::DISPOSITION_UNSPECIFIED &&
      known->second.disposition != attempt.disposition) {
    world_->Fail(StrCat("what became of ", id, " is written anew"));
  }
  if (known->second.accepted && !attempt.accepted) {
    world_->Fail(StrCat("an accepted result is taken back: ", id));
  }
  known->second.disposition = attempt.disposition;
  known->second.accepted = attempt.accepted;
}

// The lease that expired is the one of the last attempt before this commit: a new grant may be part
// of the same one.
void CommitOracle::CheckExpiry(const std::string& item, const std::map<int, KnownAttempt>& before) {
  if (before.empty()) return;
  const auto lease = leases_.find(before.rbegin()->second.lease);
  if (lease == leases_.end()) return;
  // A round looks at the clock before it takes Syncs in: one of this very moment came too late.
  const bool now = lease->second.alive_ns == world_->now_ns();
  const int64_t silent_ns =
      world_->now_ns() - (now ? lease->second.before_ns : lease->second.alive_ns);
  if (silent_ns + kSecond < ttl_ns_) {
    world_->Fail(StrCat("a lease ended after ", silent_ns / kMs, " ms of silence instead of ",
                        ttl_ns_ / kMs, ": ", lease->first, " with ", item));
  }
}

}  // namespace tilewright::sim
