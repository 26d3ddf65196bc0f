// The part of DevicePool that keeps account of what devices are used for, and by whom.
#include <algorithm>
#include <utility>

#include "deploy/support/strings.h"
#include "tracker/device_pool.h"

namespace tilewright::tracker {
namespace {

constexpr int64_t kDayUs = int64_t{86'400} * 1'000'000;

double Seconds(int64_t ns) { return static_cast<double>(ns) / static_cast<double>(kSecondNs); }

}  // namespace

void DevicePool::BeginCharge(Lease* lease, const Flow& flow, double weight, double item_seconds,
                             Now now) {
  LeaseCharge& charge = lease->charge;
  charge = LeaseCharge();
  charge.flow = flow;
  charge.device_class = devices_.at(lease->device).report.key();
  charge.since_ns = now.mono_ns;
  charge.expected_item_s = item_seconds;
  charge.expected_items = static_cast<int>(lease->items.size());
  share_.Begin(charge.device_class, flow, weight);
  share_.Charge(charge.device_class, flow, item_seconds * charge.expected_items);
  ++devices_of_user_[flow.user];
}

// Charges the time since the last charge.
void DevicePool::ChargeSeconds(LeaseCharge* charge, int64_t until_ns, Now now) {
  const double seconds = Seconds(std::max<int64_t>(0, until_ns - charge->since_ns));
  charge->since_ns = std::max(charge->since_ns, until_ns);
  if (seconds <= 0) return;
  charge->used_s += seconds;
  counters_.device_seconds += seconds;
  share_.Charge(charge->device_class, charge->flow, seconds);
  const int64_t day = now.wall_us / kDayUs;
  UsageRow& usage = usage_[charge->flow.user];
  usage.user = charge->flow.user;
  if (usage.day != day) usage.seconds = 0;
  usage.day = day;
  usage.seconds += seconds;
  dirty_usage_.insert(charge->flow.user);
}

void DevicePool::ChargeItem(Lease* lease, Now now) {
  LeaseCharge& charge = lease->charge;
  ++charge.ended_items;
  if (charge.expected_items > 0) {
    --charge.expected_items;
    share_.Charge(charge.device_class, charge.flow, -charge.expected_item_s);
  }
  ChargeSeconds(&charge, now.mono_ns, now);
}

void DevicePool::EndCharge(Lease* lease, int64_t until_ns, Now now) {
  LeaseCharge& charge = lease->charge;
  share_.Charge(charge.device_class, charge.flow, -charge.expected_item_s * charge.expected_items);
  charge.expected_items = 0;
  ChargeSeconds(&charge, until_ns, now);
  share_.End(charge.device_class, charge.flow, charge.used_s, charge.ended_items);
  const auto devices = devices_of_user_.find(charge.flow.user);
  if (--devices->second == 0) devices_of_user_.erase(devices);
}

double DevicePool::UsedToday(const std::string& user, Now now) const {
  const auto it = usage_.find(user);
  if (it == usage_.end() || it->second.day != now.wall_us / kDayUs) return 0;
  return it->second.seconds;
}

std::string_view DevicePool::Blocked(const std::string& user, Now now) const {
  const UserPolicy& policy = options_.share.Of(user);
  const auto devices = devices_of_user_.find(user);
  if (policy.max_devices > 0 && devices != devices_of_user_.end() &&
      devices->second >= policy.max_devices) {
    return "quota.user.devices";
  }
  if (policy.device_seconds_per_day > 0 && UsedToday(user, now) >= policy.device_seconds_per_day) {
    return "quota.user.device_seconds";
  }
  return "";
}

std::string DevicePool::NoRoom(const std::string& user) const {
  int64_t all = 0;
  for (const auto& [name, open] : open_items_of_user_) all += open;
  if (all >= options_.max_open_items) {
    return support::StrCat("queue.items.full: ", all, " work items are open, the limit of all");
  }
  const int64_t limit = options_.share.Of(user).max_open_items;
  const auto open = open_items_of_user_.find(user);
  if (limit == 0 || open == open_items_of_user_.end() || open->second < limit) return "";
  return support::StrCat("quota.user.items: ", open->second, " work items of ",
                         support::Quote(user, 80), " are open, the quota");
}

std::vector<v1::UserShare> DevicePool::Shares(Now now) const {
  std::map<std::string, v1::UserShare> shares;
  for (const auto& [user, open] : open_items_of_user_) shares[user].set_queued(open);
  for (const auto& [user, devices] : devices_of_user_) shares[user].set_devices(devices);
  for (const auto& [user, row] : usage_) {
    if (const double used = UsedToday(user, now); used > 0) {
      shares[user].set_device_seconds_today(used);
    }
  }
  for (const auto& [name, lease] : leases_) {
    v1::UserShare& share = shares[lease.charge.flow.user];
    const int64_t items = static_cast<int64_t>(lease.items.size());
    share.set_leased(share.leased() + items);
    share.set_queued(share.queued() - items);
  }
  std::vector<v1::UserShare> list;
  for (auto& [user, share] : shares) {
    const UserPolicy& policy = options_.share.Of(user);
    share.set_user(user);
    share.set_weight(policy.weight);
    share.set_max_devices(policy.max_devices);
    share.set_max_open_items(policy.max_open_items);
    share.set_device_seconds_per_day(policy.device_seconds_per_day);
    share.set_blocked(std::string(Blocked(user, now)));
    list.push_back(std::move(share));
  }
  return list;
}

}  // namespace tilewright::tracker
