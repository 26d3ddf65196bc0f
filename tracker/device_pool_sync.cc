// Agents: what a Sync says, and what it is answered. Devices and leases: device_pool.cc.
#include <google/protobuf/util/time_util.h>

#include <algorithm>
#include <utility>

#include "deploy/support/printable.h"
#include "deploy/support/protocol_revision.h"
#include "deploy/support/strings.h"
#include "tracker/device_pool.h"

namespace tilewright::tracker {
namespace {

using google::protobuf::util::TimeUtil;

constexpr size_t kMaxReplacedSessions = 64;
// A grant that the agent's Syncs do not name is repeated at most this often.
constexpr int64_t kRepeatGrantNs = kSecondNs;
// No device lives to see so many; a report beyond it must not make the counter overflow.
constexpr int64_t kHighestToken = int64_t{1} << 60;
constexpr int64_t kHighestReset = 1'000'000'000;  // likewise

bool ValidName(std::string_view name, std::string_view prefix) {
  return name.size() > prefix.size() && name.size() <= 256 &&
         name.substr(0, prefix.size()) == prefix;
}

}  // namespace

absl::Status DevicePool::CheckSync(const v1::SyncRequest& request) const {
  if (!ValidName(request.agent(), "agents/") || request.session_id().empty()) {
    return support::InvalidArgument(
        "agent.sync.invalid",
        "expected agents/{agent} and a session_id, found " + support::Quote(request.agent(), 80));
  }
  if (request.protocol_revision() != support::kProtocolRevision) {
    return support::FailedPrecondition(
        "agent.protocol.unsupported",
        support::StrCat("expected protocol revision ", support::kProtocolRevision, ", found ",
                        request.protocol_revision()));
  }
  TW_TRY(support::CheckPrintable(request.agent(), "agent.name.unprintable", "agent"));
  if (request.devices_size() > options_.max_devices_per_agent) {
    return support::ResourceExhausted(
        "agent.devices.too_many",
        support::StrCat("expected at most ", options_.max_devices_per_agent,
                        " devices of an agent, found ", request.devices_size()));
  }
  std::set<std::string> seen;
  for (const v1::DeviceReport& device : request.devices()) {
    if (!ValidName(device.device(), "devices/") || device.key().empty()) {
      return support::InvalidArgument(
          "agent.sync.invalid",
          "expected devices/{device} with a key, found " + support::Quote(device.device(), 80));
    }
    TW_TRY(support::CheckPrintable(device.device(), "agent.name.unprintable", "device"));
    if (!seen.insert(device.device()).second) {
      return support::InvalidArgument("agent.sync.invalid",
                                      "a device is reported twice: " + device.device());
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> DevicePool::Sync(const v1::SyncRequest& request, const std::string& address,
                                      Now now, const std::string& credential) {
  TW_TRY(CheckSync(request));
  Agent& agent = agents_[request.agent()];
  if (agent.replaced_sessions.count(request.session_id()) != 0) {
    return support::Aborted("agent.session.replaced",
                            "a newer session of " + request.agent() + " exists");
  }
  if (agent.session != request.session_id()) {
    if (!agent.session.empty()) {
      if (agent.replaced_sessions.size() >= kMaxReplacedSessions) agent.replaced_sessions.clear();
      agent.replaced_sessions.insert(agent.session);
    }
    agent.session = request.session_id();
    agent.sequence = 0;
    agent.told_unknown.clear();
  }
  if (request.sequence() < agent.sequence) return false;
  agent.sequence = request.sequence();
  agent.credential = credential;
  agent.draining = request.draining();
  agent.leases.assign(request.leases().begin(), request.leases().end());
  agent.devices.clear();
  agent.warnings.clear();
  for (const v1::DeviceReport& report : request.devices()) {
    UpdateDevice(&agent, request.agent(), report, address, now);
  }
  ReconcileLeases(request.agent(), &agent, now);
  return true;
}

void DevicePool::UpdateDevice(Agent* agent, const std::string& agent_name,
                              const v1::DeviceReport& report, const std::string& address, Now now) {
  const auto known = devices_.find(report.device());
  if ((known == devices_.end() || known->second.row.agent != agent_name) &&
      !HasRoomFor(agent_name)) {
    agent->warnings.push_back(support::StrCat(
        report.device(), " is ignored: ", agent_name, " has ", options_.max_devices_per_agent,
        " devices, which is the limit; 'tilewright devices forget' removes those that are gone"));
    return;
  }
  Device& device = devices_[report.device()];
  // One agent owns a device; another may take it over only when the owner is gone.
  if (device.reported && device.agent != agent_name && IsReachable(device, now)) {
    agent->warnings.push_back(report.device() + " belongs to " + device.agent + "; ignored");
    return;
  }
  if (device.row.name.empty()) {
    device.health = DeviceHealth(options_.health);
    device.row.name = report.device();
    // Numbers of its resets are never used twice, though the device was forgotten meanwhile.
    const std::string& reset = report.last_reset().request();
    device.row.resets = std::clamp<int64_t>(
        support::ParseInt64(reset.substr(reset.rfind('-') + 1)).value_or(0), 0, kHighestReset);
    Touch(device);
  }
  if (device.row.agent != agent_name) {
    device.row.agent = agent_name;
    Touch(device);
  }
  // A tracker whose database was lost or restored knows fewer grants than the agent has seen.
  const int64_t seen = std::min(report.highest_fencing_token(), kHighestToken);
  if (seen > device.row.last_token) {
    device.row.last_token = seen;
    Touch(device);
  }
  if (device.reported && device.report.fingerprint() != report.fingerprint()) {
    // Another machine under the old name: what is known does not hold for it.
    device.health.Renew(&device.row.health);
    ActOnVerdict(&device, now);
  }
  device.agent = agent_name;
  device.address = address;
  device.report = report;
  device.match_cache.clear();
  if (report.last_reset().request() == device.reset.request() || !report.can_reset()) {
    device.reset.Clear();  // answered, or there is nobody to answer
  }
  device.last_seen_ns = now.mono_ns;
  device.last_seen_us = now.wall_us;
  device.reported = true;
  device.revoked.clear();
  agent->devices.push_back(report.device());
}

bool DevicePool::HasRoomFor(const std::string& agent_name) const {
  const auto count = std::count_if(devices_.begin(), devices_.end(), [&](const auto& entry) {
    return entry.second.row.agent == agent_name;
  });
  return count < options_.max_devices_per_agent;
}

void DevicePool::RevokeAgent(const std::string& agent, const std::string& credential,
                             const std::string& reason, Now now) {
  const auto it = agents_.find(agent);
  if (it == agents_.end() || it->second.credential != credential) return;
  for (const std::string& name : it->second.devices) {
    Device& device = devices_[name];
    if (device.agent != agent || !device.revoked.empty()) continue;
    device.revoked = reason;
    const std::string lease = device.lease;
    if (!lease.empty()) DropLease(lease, "lease.agent.revoked", true, now);
  }
}

void DevicePool::ReconcileLeases(const std::string& agent_name, Agent* agent, Now now) {
  std::set<std::string> listed;
  for (const v1::LeaseReport& report : agent->leases) {
    const auto it = leases_.find(report.lease());
    if (it == leases_.end()) {
      if (Reactivate(report.lease(), report.fencing_token(), agent_name, agent->session, now)) {
        listed.insert(report.lease());
      }
      continue;
    }
    Lease& lease = it->second;
    if (lease.token != report.fencing_token() || devices_[lease.device].agent != agent_name) {
      continue;  // somebody else's: it will hear that the lease is unknown
    }
    lease.seen = true;
    lease.expires_ns = std::max(lease.expires_ns, now.mono_ns + options_.lease_ttl_ns);
    listed.insert(report.lease());
  }
  // A lease that this agent named before and names no more was dropped: its open items go back.
  for (const std::string& device_name : agent->devices) {
    const std::string name = devices_[device_name].lease;
    if (name.empty() || listed.count(name) != 0) continue;
    if (leases_.at(name).seen) DropLease(name, "lease.dropped_by_agent", true, now);
  }
}

bool DevicePool::Reactivate(const std::string& lease_name, int64_t token,
                            const std::string& agent_name, const std::string& session, Now now) {
  const auto it = expired_.find(lease_name);
  if (it == expired_.end()) return false;
  Lease lease = it->second.lease;
  const auto owner = devices_.find(lease.device);
  if (owner == devices_.end()) return false;  // forgotten meanwhile
  Device& device = owner->second;
  // Only while nothing else was granted on the device: an older token must stay dead.
  if (device.agent != agent_name || !device.lease.empty() || lease.token != token ||
      device.row.last_token != token || device.row.health.verdict != Verdict::kGood) {
    return false;
  }
  std::vector<std::string> back;
  for (const std::string& name : lease.items) {
    const auto item = items_.find(name);
    if (item == items_.end()) continue;
    WorkRow& row = item->second;
    if (!queue_.Contains(row.seq, row.item.terms().queue)) continue;
    if (row.attempts.empty() || row.attempts.back().lease != lease_name ||
        row.attempts.back().disposition != v1::DISPOSITION_UNSPECIFIED) {
      continue;
    }
    queue_.Remove(row.seq, row.item.terms().queue);
    row.state = v1::WORK_STATE_LEASED;
    Touch(row);
    back.push_back(name);
  }
  expired_.erase(it);
  if (back.empty()) return false;
  lease.items = std::move(back);
  lease.seen = true;
  lease.offered_session = session;
  lease.expires_ns = now.mono_ns + options_.lease_ttl_ns;
  device.lease = lease_name;
  Lease& alive = leases_[lease_name] = std::move(lease);
  const QueueTerms& terms = items_.at(alive.items.front()).item.terms().queue;
  BeginCharge(&alive, terms.flow, terms.weight, 0, now);
  ++counters_.leases_reactivated;
  return true;
}

void DevicePool::WriteGrant(const Lease& lease, v1::Grant* grant) const {
  grant->set_lease(lease.name);
  grant->set_fencing_token(lease.token);
  grant->set_device(lease.device);
  *grant->mutable_ttl() = TimeUtil::NanosecondsToDuration(options_.lease_ttl_ns);
  for (const std::string& name : lease.items) {
    const WorkRow& row = items_.at(name);
    v1::Work* work = grant->add_work();
    v1::WorkItem item = row.item.Unpack();
    *work = std::move(*item.mutable_work());
    work->set_work_item(name);
    work->set_attempt(row.attempts.back().number);
    work->set_suspect(row.candidate_kills > 0);
    work->set_job(row.item.job());
    if (work->target().empty()) work->set_target(item.target());
  }
}

bool DevicePool::FillUnknownLeases(Agent* agent, v1::SyncResponse* response) {
  bool news = false;
  for (const v1::LeaseReport& report : agent->leases) {
    const auto it = leases_.find(report.lease());
    if (it != leases_.end() && it->second.token == report.fencing_token()) continue;
    if (revocations_.count(report.lease()) != 0) continue;
    response->add_unknown_leases(report.lease());
    news = agent->told_unknown.insert(report.lease()).second || news;
  }
  return news;
}

bool DevicePool::FillRevokes(Agent* agent, v1::SyncResponse* response) {
  bool news = false;
  for (const v1::LeaseReport& report : agent->leases) {
    const auto it = revocations_.find(report.lease());
    if (it == revocations_.end()) continue;
    *response->add_revokes() = it->second.revoke;
    if (it->second.delivered_session != agent->session) {
      it->second.delivered_session = agent->session;
      news = true;
    }
  }
  return news;
}

bool DevicePool::FillResets(Agent* agent, v1::SyncResponse* response) {
  bool news = false;
  for (const std::string& name : agent->devices) {
    Device& device = devices_.at(name);
    if (device.reset.request().empty()) continue;
    *response->add_resets() = device.reset;
    if (device.reset_told != agent->session + device.reset.request()) {
      device.reset_told = agent->session + device.reset.request();
      news = true;
    }
  }
  return news;
}

bool DevicePool::CouldTakeWork(const std::string& agent_name, Now now) const {
  const auto agent = agents_.find(agent_name);
  return agent != agents_.end() &&
         std::any_of(agent->second.devices.begin(), agent->second.devices.end(),
                     [&](const std::string& name) { return Usable(devices_.at(name), now).ok(); });
}

bool DevicePool::FillSyncResponse(const std::string& agent_name, bool may_grant, Now now,
                                  v1::SyncResponse* response) {
  response->Clear();
  response->set_tracker_epoch(epoch_);
  *response->mutable_next_sync() = TimeUtil::NanosecondsToDuration(0);
  *response->mutable_offline_after() = TimeUtil::NanosecondsToDuration(options_.offline_after_ns);
  *response->mutable_server_time() = TimeUtil::MicrosecondsToTimestamp(now.wall_us);
  const auto found = agents_.find(agent_name);
  if (found == agents_.end()) return true;  // not known since a restart of this pool: sync again
  Agent& agent = found->second;
  for (const std::string& warning : agent.warnings) response->add_warnings(warning);
  bool news = !agent.warnings.empty() && !agent.told_warnings;
  agent.told_warnings = !agent.warnings.empty();
  news = FillUnknownLeases(&agent, response) || news;
  news = FillRevokes(&agent, response) || news;
  news = FillResets(&agent, response) || news;
  for (const std::string& device_name : agent.devices) {
    Device& device = devices_.at(device_name);
    if (device.lease.empty()) {
      if (!may_grant || outbox_size_ >= options_.max_outbox) continue;
      v1::Grant grant;
      if (!GrantWork(&device, now, &grant)) continue;
      Lease& lease = leases_.at(device.lease);
      lease.offered_session = agent.session;
      lease.offered_ns = now.mono_ns;
      *response->add_grants() = std::move(grant);
      news = true;
      continue;
    }
    Lease& lease = leases_.at(device.lease);
    if (lease.seen) continue;
    // The answer that held this grant may be lost: say it again.
    WriteGrant(lease, response->add_grants());
    if (lease.offered_session != agent.session ||
        now.mono_ns - lease.offered_ns >= kRepeatGrantNs) {
      lease.offered_session = agent.session;
      lease.offered_ns = now.mono_ns;
      news = true;
    }
  }
  return news;
}

}  // namespace tilewright::tracker
