#include "device_agent/fingerprint.h"

#include <array>

#include "deploy/support/hash.h"
#include "deploy/support/strings.h"

namespace tilewright::device_agent {
namespace {

constexpr std::array<std::string_view, 10> kTimingAttributes = {
    "arch", "cores",    "cpu",      "cpu_model", "features",
    "kind", "l1_bytes", "l2_bytes", "l3_bytes",  "line_bytes",
};

}  // namespace

v1::DeviceReport DeviceFrom(const Attributes& attributes) {
  v1::DeviceReport device;
  *device.mutable_attributes() = attributes;
  const auto text = [&](const char* name) {
    const auto it = attributes.find(name);
    return it == attributes.end() ? std::string() : it->second.s();
  };
  device.set_key(text("kind") + "-" + text("cpu"));
  device.set_health(v1::HEALTH_GOOD);
  device.set_fingerprint(Fingerprint(device));
  return device;
}

std::string Fingerprint(const v1::DeviceReport& device) {
  std::string text;
  for (const std::string_view name : kTimingAttributes) {
    const auto it = device.attributes().find(std::string(name));
    if (it == device.attributes().end()) continue;
    const v1::Attribute& value = it->second;
    text += support::StrCat(
        name, "=", value.value_case() == v1::Attribute::kI ? std::to_string(value.i()) : value.s(),
        "\n");
  }
  return support::Sha256Hex(text);
}

absl::Status CheckDeviceKind(std::string_view kind) {
  if (kind == "cpu") return absl::OkStatus();
  return support::InvalidArgument("agent.device.unknown",
                                  "expected \"cpu\", found " + support::Quote(kind));
}

}  // namespace tilewright::device_agent
