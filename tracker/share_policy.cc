#include "tracker/share_policy.h"

#include <cmath>
#include <vector>

#include "deploy/support/strings.h"

namespace tilewright::tracker {
namespace {

constexpr double kMaxWeight = 1e6;

absl::Status Invalid(std::string_view text) {
  return support::InvalidArgument(
      "tracker.share.invalid",
      "expected USER:weight=W,items=N,devices=N,seconds_per_day=S with positive numbers, found " +
          support::Quote(text, 120));
}

bool Set(std::string_view key, std::string_view value, UserPolicy* policy) {
  if (key == "weight" || key == "seconds_per_day") {
    const auto number = support::ParseDouble(value);
    if (!number || !std::isfinite(*number) || *number <= 0) return false;
    if (key == "weight" && (*number > kMaxWeight || *number < 1 / kMaxWeight)) return false;
    (key == "weight" ? policy->weight : policy->device_seconds_per_day) = *number;
    return true;
  }
  const auto number = support::ParseInt64(value);
  if (!number || *number < 1 || *number > INT32_MAX) return false;
  if (key == "items") {
    policy->max_open_items = *number;
  } else if (key == "devices") {
    policy->max_devices = static_cast<int>(*number);
  } else {
    return false;
  }
  return true;
}

}  // namespace

absl::Status AddUserPolicy(std::string_view text, SharePolicy* policy) {
  const size_t colon = text.rfind(':');  // a user's name may be an address with colons
  if (colon == std::string_view::npos || colon == 0) return Invalid(text);
  const std::string user(text.substr(0, colon));
  UserPolicy row;
  for (const std::string& part : support::Split(text.substr(colon + 1), ',')) {
    const size_t equals = part.find('=');
    if (equals == std::string::npos) return Invalid(text);
    const std::string_view view = part;
    if (!Set(view.substr(0, equals), view.substr(equals + 1), &row)) return Invalid(text);
  }
  if (user == "*") {
    policy->everyone = row;
    return absl::OkStatus();
  }
  if (!policy->users.emplace(user, row).second) return Invalid(text);
  return absl::OkStatus();
}

}  // namespace tilewright::tracker
