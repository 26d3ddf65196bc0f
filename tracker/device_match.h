// Whether a device may take a work item: its class, its attributes against a target string, its
// labels against a selector. Pure functions.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "deploy/support/status.h"
#include "tilewright/v1/agent.pb.h"

namespace tilewright::tracker {

// What a work item asks of a device. Two items with equal keys are interchangeable for matching.
struct Requirement {
  std::string pool;      // device class; empty = any
  std::string target;    // "KIND,key=value,..."; empty = any
  std::string selector;  // "key=value,..." over labels; empty = any

  // One text for use as a map key.
  std::string Key() const;
  static Requirement FromKey(std::string_view key);
};

// invalid_argument (target.parse.invalid or selector.parse.invalid) when a part is malformed.
absl::Status ValidateRequirement(const Requirement& requirement);

// Returns ok if the device fits. Else failed_precondition with what was expected and found, and the
// slug of the first mismatch: device.pool.mismatch, device.selector.mismatch, device.target.kind,
// device.target.threads, device.target.<key>.
absl::Status MatchDevice(const Requirement& requirement, const v1::DeviceReport& device);

// "a=1,b=2" -> {{a, 1}, {b, 2}}; a part without '=' has an empty value only when `allow_bare`.
absl::StatusOr<std::vector<std::pair<std::string, std::string>>> ParseKeyValues(
    std::string_view text, bool allow_bare, std::string_view slug);

// Returns the attribute's value as text, for any type.
std::string AttributeText(const v1::Attribute& attribute);

}  // namespace tilewright::tracker
