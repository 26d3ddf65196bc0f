#include "device_agent/fingerprint.h"

#include <array>

#include "compiler/target/machine.h"
#include "deploy/support/hash.h"
#include "deploy/support/strings.h"

namespace tilewright::device_agent {
namespace {

// Of every kind of device; what one does not have does not count.
constexpr std::array<std::string_view, 15> kTimingAttributes = {
    "arch",     "compute_units", "cores", "cpu",      "cpu_model",
    "driver",   "features",      "kind",  "l1_bytes", "l2_bytes",
    "l3_bytes", "line_bytes",    "name",  "unit",     "version",
};

// As part of a device class: "NVIDIA H100 PCIe" as "nvidia-h100-pcie".
std::string Word(const std::string& name) {
  std::string word;
  for (const char c : name) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (plain) word.push_back(c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c);
    if (!plain && !word.empty() && word.back() != '-') word.push_back('-');
  }
  while (word.ends_with('-')) word.pop_back();
  return word;
}

}  // namespace

v1::DeviceReport DeviceFrom(const Attributes& attributes) {
  v1::DeviceReport device;
  *device.mutable_attributes() = attributes;
  const auto text = [&](const char* name) {
    const auto it = attributes.find(name);
    return it == attributes.end() ? std::string() : it->second.s();
  };
  const std::string cpu = text("cpu");
  device.set_key(support::ClassOfUnit(text("kind") + "-" + (cpu.empty() ? Word(text("name")) : cpu),
                                      UnitOf(device)));
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

const support::MeasureUnit& UnitOf(const v1::DeviceReport& device) {
  const auto it = device.attributes().find("unit");
  const support::MeasureUnit* unit =
      it == device.attributes().end() ? nullptr : support::FindMeasureUnit(it->second.s());
  return unit == nullptr ? support::MeasureUnits().front() : *unit;
}

absl::Status CheckDeviceKind(std::string_view kind) {
  const target::Kind* known = target::FindKind(kind);
  if (known != nullptr && known->has_devices()) return absl::OkStatus();
  return support::InvalidArgument("agent.device.unknown",
                                  support::StrCat("expected ", target::DeviceKindNames(" or "),
                                                  ", found ", support::Quote(kind)));
}

}  // namespace tilewright::device_agent
