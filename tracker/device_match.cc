#include "tracker/device_match.h"

#include <algorithm>

#include "deploy/support/strings.h"

namespace tilewright::tracker {
namespace {

constexpr char kKeySeparator = '\x1f';

absl::Status Mismatch(const std::string& slug, std::string_view expected, std::string_view found) {
  return support::FailedPrecondition(
      slug, support::StrCat("expected ", support::Quote(expected), ", found ",
                            found.empty() ? "nothing" : support::Quote(found)));
}

std::string AttributeOf(const v1::DeviceReport& device, const std::string& key) {
  const auto it = device.attributes().find(key);
  return it == device.attributes().end() ? std::string() : AttributeText(it->second);
}

bool ListHas(const std::string& comma_list, std::string_view value) {
  const auto parts = support::Split(comma_list, ',');
  return std::any_of(parts.begin(), parts.end(),
                     [&](const std::string& part) { return support::Trim(part) == value; });
}

// device.target.<key>; keys come from strangers, and only plain ones make a slug.
std::string TargetSlug(std::string_view key) {
  const bool plain = std::all_of(key.begin(), key.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
  });
  return support::StrCat("device.target.", plain ? key : "mismatch");
}

absl::Status MatchAttribute(const v1::DeviceReport& device, const std::string& key,
                            const std::string& value) {
  const std::string found = AttributeOf(device, key);
  const std::string accepts = AttributeOf(device, key + "_accepts");
  if (found == value || accepts == "*" || ListHas(accepts, value)) {
    return absl::OkStatus();
  }
  return Mismatch(TargetSlug(key), value, found);
}

absl::Status MatchThreads(const v1::DeviceReport& device, const std::string& value) {
  const auto wanted = support::ParseInt64(value);
  const std::string found = AttributeOf(device, "cores");
  const auto cores = support::ParseInt64(found);
  if (wanted.has_value() && cores.has_value() && *cores >= *wanted) return absl::OkStatus();
  return Mismatch("device.target.threads", value, found);
}

absl::Status MatchTarget(const std::string& target, const v1::DeviceReport& device) {
  if (target.empty()) return absl::OkStatus();
  TW_ASSIGN(const auto parts, ParseKeyValues(target, true, "target.parse.invalid"));
  TW_TRY(MatchAttribute(device, "kind", parts[0].first));
  for (size_t i = 1; i < parts.size(); ++i) {
    const auto& [key, value] = parts[i];
    if (key == "threads") {
      TW_TRY(MatchThreads(device, value));
    } else {
      TW_TRY(MatchAttribute(device, key, value));
    }
  }
  return absl::OkStatus();
}

absl::Status MatchSelector(const std::string& selector, const v1::DeviceReport& device) {
  if (selector.empty()) return absl::OkStatus();
  TW_ASSIGN(const auto parts, ParseKeyValues(selector, false, "selector.parse.invalid"));
  for (const auto& [key, value] : parts) {
    if (key == "device") {
      if (device.device() == value || device.device() == "devices/" + value) continue;
      return Mismatch("device.selector.mismatch", value, device.device());
    }
    const auto it = device.labels().find(key);
    const std::string found = it == device.labels().end() ? std::string() : it->second;
    if (found != value) {
      return Mismatch("device.selector.mismatch", key + "=" + value, found);
    }
  }
  return absl::OkStatus();
}

}  // namespace

std::string Requirement::Key() const {
  return support::StrCat(pool, kKeySeparator, target, kKeySeparator, selector);
}

Requirement Requirement::FromKey(std::string_view key) {
  const auto parts = support::Split(key, kKeySeparator);
  TW_CHECK(parts.size() == 3) << "not a requirement key";
  return {parts[0], parts[1], parts[2]};
}

absl::StatusOr<std::vector<std::pair<std::string, std::string>>> ParseKeyValues(
    std::string_view text, bool allow_bare, std::string_view slug) {
  std::vector<std::pair<std::string, std::string>> result;
  for (const std::string& piece : support::Split(text, ',')) {
    const std::string_view part = support::Trim(piece);
    const size_t equals = part.find('=');
    // Only the first part may be a bare word: the kind of a target.
    const bool bare = equals == std::string_view::npos;
    if (part.empty() || equals == 0 || (bare && !(allow_bare && result.empty())) ||
        part.find(kKeySeparator) != std::string_view::npos) {
      return support::InvalidArgument(
          slug, "expected key=value parts separated by commas, found " + support::Quote(text));
    }
    result.emplace_back(std::string(part.substr(0, equals)),
                        bare ? std::string() : std::string(part.substr(equals + 1)));
  }
  if (allow_bare && !result[0].second.empty()) {
    return support::InvalidArgument(
        slug, "expected a kind first (\"cpu,...\"), found " + support::Quote(text));
  }
  return result;
}

absl::Status ValidateRequirement(const Requirement& requirement) {
  if (requirement.pool.find(kKeySeparator) != std::string::npos) {
    return support::InvalidArgument("pool.name.invalid", "control characters in the pool's name");
  }
  if (!requirement.target.empty()) {
    TW_TRY(ParseKeyValues(requirement.target, true, "target.parse.invalid").status());
  }
  if (!requirement.selector.empty()) {
    TW_TRY(ParseKeyValues(requirement.selector, false, "selector.parse.invalid").status());
  }
  return absl::OkStatus();
}

absl::Status MatchDevice(const Requirement& requirement, const v1::DeviceReport& device) {
  if (!requirement.pool.empty() && requirement.pool != device.key()) {
    return Mismatch("device.pool.mismatch", requirement.pool, device.key());
  }
  TW_TRY(MatchSelector(requirement.selector, device));
  return MatchTarget(requirement.target, device);
}

std::string AttributeText(const v1::Attribute& attribute) {
  switch (attribute.value_case()) {
    case v1::Attribute::kS:
      return attribute.s();
    case v1::Attribute::kI:
      return support::StrCat(attribute.i());
    case v1::Attribute::kD:
      return support::FormatDouble(attribute.d());
    case v1::Attribute::kB:
      return attribute.b() ? "true" : "false";
    case v1::Attribute::VALUE_NOT_SET:
      return "";
  }
  return "";
}

}  // namespace tilewright::tracker
