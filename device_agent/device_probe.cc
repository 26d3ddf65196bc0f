#include "device_agent/device_probe.h"

#include <unistd.h>

#include "deploy/runtime/device_loader.h"
#include "deploy/support/file.h"
#include "deploy/support/strings.h"
#include "device_agent/probe_child.h"
#include "tilewright/v1/worker.pb.h"

namespace tilewright::device_agent {
namespace {

// A driver that compiles its own built-in functions at the first start takes a while.
constexpr int64_t kTimeoutMs = 15'000;

// `key=value` lines; numbers as numbers.
void AddFingerprint(const std::string& text, Attributes* attributes) {
  for (const std::string& line : support::Split(text, '\n')) {
    const size_t equals = line.find('=');
    if (equals == std::string::npos || equals == 0) continue;
    const std::string value = line.substr(equals + 1);
    v1::Attribute& attribute = (*attributes)[line.substr(0, equals)];
    if (const auto number = support::ParseInt64(value); number.has_value()) {
      attribute.set_i(*number);
    } else {
      attribute.set_s(value);
    }
  }
}

void AddNumber(const char* name, int64_t value, const char* unit, Attributes* attributes) {
  if (value <= 0) return;
  (*attributes)[name].set_i(value);
  (*attributes)[name].set_unit(unit);
}

// In the child. The answer's bytes are a WorkerReady with the attributes alone.
absl::StatusOr<std::string> Describe(const DeviceTarget& target) {
  TW_ASSIGN(const runtime::DevicePlugin plugin, runtime::DevicePlugin::Open(target.plugin));
  const TwDevicePlugin& table = plugin.table();
  char why[512] = {};
  TwDevice* device = nullptr;
  if (table.open(target.index, &device, why, sizeof(why)) != TW_DEVICE_OK) {
    return support::Unavailable("runtime.device.broken", why);
  }
  TwDeviceInfo info{};
  info.struct_bytes = sizeof(info);
  TW_TRY(runtime::DeviceStatus(table, device, table.describe(device, &info)));
  v1::WorkerReady ready;
  Attributes* attributes = ready.mutable_attributes();
  AddFingerprint(info.fingerprint, attributes);
  (*attributes)["kind"].set_s(target.kind);
  (*attributes)["name"].set_s(info.name);
  (*attributes)["code_formats"].set_s(info.code_formats);
  const char* timer = info.unit == nullptr ? "device_ns" : info.unit;
  (*attributes)["unit"].set_s(info.device_timer != 0 ? timer : "wall_ns");
  AddNumber("memory_bytes", info.memory_bytes, "bytes", attributes);
  AddNumber("shared_bytes", info.shared_bytes, "bytes", attributes);
  AddNumber("max_group_threads", info.max_group_threads, "", attributes);
  // The driver is not asked to close: its threads end with the process.
  return ready.SerializeAsString();
}

}  // namespace

absl::StatusOr<Attributes> ProbeDevice(const DeviceTarget& target, SandboxSpec sandbox,
                                       const std::string& scratch_parent, bool sandboxed) {
  TW_ASSIGN(const support::TempDir scratch, MakeScratch(scratch_parent));
  sandbox.driver.scratch = scratch.path();
  const pid_t parent = getpid();
  TW_ASSIGN(const std::string bytes, InChild(
                                         [&]() -> absl::StatusOr<std::string> {
                                           TW_TRY(ApplyLimits(sandbox, parent));
                                           if (sandboxed) TW_TRY(ApplyFilter(sandbox));
                                           return Describe(target);
                                         },
                                         kTimeoutMs));
  v1::WorkerReady ready;
  if (!ready.ParseFromString(bytes)) {
    return support::Unavailable("probe.child.garbled", "expected the device's attributes");
  }
  return std::move(*ready.mutable_attributes());
}

}  // namespace tilewright::device_agent
