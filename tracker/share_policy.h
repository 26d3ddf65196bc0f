// Weights and quotas of users. Plain values, set by the operator (--share); by default all weights
// are equal and there are no quotas.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "deploy/support/status.h"

namespace tilewright::tracker {

struct UserPolicy {
  double weight = 1;                  // share of devices relative to other users
  int64_t max_open_items = 0;         // work items queued or running; 0 = no limit
  int max_devices = 0;                // devices that work for the user; 0 = no limit
  double device_seconds_per_day = 0;  // by UTC day; 0 = no limit
};

struct SharePolicy {
  UserPolicy everyone;  // those without a row of their own
  std::map<std::string, UserPolicy> users;

  const UserPolicy& Of(const std::string& user) const {
    const auto it = users.find(user);
    return it == users.end() ? everyone : it->second;
  }
};

// Adds "USER:weight=W,items=N,devices=N,seconds_per_day=S" (any subset, in any order; USER "*" is
// everyone else). invalid_argument (tracker.share.invalid) for anything else.
absl::Status AddUserPolicy(std::string_view text, SharePolicy* policy);

}  // namespace tilewright::tracker
