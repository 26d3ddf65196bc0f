#include "device_agent/device_spec.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "deploy/support/strings.h"
#include "device_agent/fingerprint.h"

namespace tilewright::device_agent {
namespace {

using support::Quote;

constexpr int64_t kMaxCore = 1023;  // of the kernel's fixed set (CPU_SETSIZE)
constexpr size_t kMaxName = 100;
constexpr std::string_view kLabel = "label.";
constexpr std::string_view kBridge = "bridge";
constexpr char kStrict[] = "strict";
constexpr char kDriver[] = "driver";

absl::Status Invalid(std::string_view entry, const std::string& what) {
  return support::InvalidArgument("agent.device.invalid",
                                  "--device " + Quote(std::string(entry)) + ": expected " + what);
}

// "0-3+8" as {0, 1, 2, 3, 8}.
std::optional<std::vector<int>> ParseCores(std::string_view text) {
  std::vector<int> cores;
  for (const std::string& range : support::Split(text, '+')) {
    const size_t dash = range.find('-');
    const auto low = support::ParseInt64(range.substr(0, dash));
    const auto high = dash == std::string::npos ? low : support::ParseInt64(range.substr(dash + 1));
    if (!low.has_value() || !high.has_value() || *low < 0 || *high < *low || *high > kMaxCore) {
      return std::nullopt;
    }
    for (int64_t core = *low; core <= *high; ++core) cores.push_back(static_cast<int>(core));
  }
  std::sort(cores.begin(), cores.end());
  cores.erase(std::unique(cores.begin(), cores.end()), cores.end());
  return cores;
}

absl::Status Set(std::string_view entry, const std::string& key, const std::string& value,
                 DeviceSpec* spec) {
  const auto number = support::ParseInt64(value);
  if (value.empty()) return Invalid(entry, "a value after " + Quote(key + "="));
  if (key == "name") {
    TW_TRY(CheckName(value));
    spec->name = value;
  } else if (key == "cores") {
    auto cores = ParseCores(value);
    if (!cores.has_value()) return Invalid(entry, "cores like 0-3+8, found " + Quote(value));
    spec->cores = *std::move(cores);
  } else if (key == "threads") {
    if (number.value_or(0) < 1 || *number > kMaxCore) return Invalid(entry, "threads of 1 to 1023");
    spec->threads = static_cast<int>(*number);
  } else if (key == "memory") {
    if (number.value_or(0) < 1) return Invalid(entry, "memory in bytes");
    spec->memory_limit_bytes = *number;
  } else if (key == "pool") {
    spec->pool = value;
  } else if (key == "profile") {
    if (value != kStrict && value != kDriver) {
      return Invalid(entry, "profile=strict or profile=driver, found " + Quote(value));
    }
    spec->profile = value;
  } else if (key == "nodes") {
    spec->nodes = support::Split(value, '+');
    for (const std::string& node : spec->nodes) {
      if (!node.starts_with("/dev/") || node.find("..") != std::string::npos) {
        return Invalid(entry,
                       "device nodes like /dev/nvidia0+/dev/nvidiactl, found " + Quote(node));
      }
    }
  } else if (key == "index") {
    if (number.value_or(-1) < 0 || *number > kMaxCore) return Invalid(entry, "index of 0 to 1023");
    spec->index = static_cast<int>(*number);
  } else if (key == kBridge) {
    spec->bridge = value;
  } else if (key.rfind(kLabel, 0) == 0 && key.size() > kLabel.size()) {
    spec->labels[key.substr(kLabel.size())] = value;
  } else {
    return Invalid(
        entry,
        "name, cores, threads, pool, memory, profile, nodes, index, label.KEY or bridge, found " +
            Quote(key));
  }
  return absl::OkStatus();
}

// Without a list of cores a device uses them all.
bool Overlap(const DeviceSpec& a, const DeviceSpec& b) {
  if (a.cores.empty() || b.cores.empty()) return true;
  return std::any_of(a.cores.begin(), a.cores.end(), [&](int core) {
    return std::binary_search(b.cores.begin(), b.cores.end(), core);
  });
}

}  // namespace

absl::Status CheckName(std::string_view name) {
  const bool good = !name.empty() && name.size() <= kMaxName &&
                    name.find_first_not_of(
                        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                        "0123456789-_.") == std::string::npos;
  if (good) return absl::OkStatus();
  return support::InvalidArgument(
      "agent.name.invalid",
      "expected letters, digits, '-', '_' and '.', found " + Quote(std::string(name)));
}

absl::StatusOr<DeviceSpec> ParseDeviceSpec(std::string_view text) {
  DeviceSpec spec;
  size_t comma = std::min(text.find(','), text.size());
  spec.kind = std::string(text.substr(0, comma));
  TW_TRY(CheckDeviceKind(spec.kind));
  spec.name = spec.kind;
  const bool has_driver = spec.kind != "cpu";
  if (has_driver) spec.profile = kDriver;
  while (comma < text.size()) {
    const std::string_view rest = text.substr(comma + 1);
    const size_t equals = rest.find('=');
    if (equals == std::string_view::npos) return Invalid(text, "KEY=VALUE after the kind");
    const std::string key(rest.substr(0, equals));
    // A command has commas of its own: it is the rest of the entry.
    const size_t end = key == kBridge ? rest.size() : std::min(rest.find(',', equals), rest.size());
    TW_TRY(Set(text, key, std::string(rest.substr(equals + 1, end - equals - 1)), &spec));
    comma += 1 + end;
  }
  if (has_driver && spec.profile == kStrict) {
    return Invalid(text, "profile=driver: the driver of " + Quote(spec.kind) +
                             " needs more than strict allows");
  }
  if (spec.profile == kStrict && !spec.nodes.empty()) {
    return Invalid(text, "nodes with profile=driver only");
  }
  return spec;
}

absl::StatusOr<std::vector<DeviceSpec>> ParseDevices(const std::vector<std::string>& texts) {
  std::vector<DeviceSpec> specs;
  if (texts.empty()) specs.emplace_back().name = "cpu";
  for (const std::string& text : texts) {
    TW_ASSIGN(DeviceSpec spec, ParseDeviceSpec(text));
    for (const DeviceSpec& other : specs) {
      if (other.name == spec.name) {
        return support::InvalidArgument("agent.device.twice",
                                        "two devices are called " + Quote(spec.name) +
                                            "; give each a name: --device cpu,name=NAME,...");
      }
      if (other.bridge.empty() && spec.bridge.empty() && Overlap(other, spec)) {
        return support::InvalidArgument(
            "agent.device.overlap",
            "devices " + Quote(other.name) + " and " + Quote(spec.name) +
                " may run on the same core; give each its own: --device cpu,cores=0-3");
      }
    }
    specs.push_back(std::move(spec));
  }
  return specs;
}

}  // namespace tilewright::device_agent
