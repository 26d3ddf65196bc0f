#include "device_agent/fingerprint.h"

#include <sys/sysinfo.h>
#include <sys/utsname.h>

#include <array>

#include "deploy/support/cpu_table.h"
#include "deploy/support/hash.h"
#include "deploy/support/strings.h"

namespace tilewright::device_agent {
namespace {

constexpr std::array<std::string_view, 10> kTimingAttributes = {
    "arch", "cores",    "cpu",      "cpu_model", "features",
    "kind", "l1_bytes", "l2_bytes", "l3_bytes",  "line_bytes",
};

using Attributes = google::protobuf::Map<std::string, v1::Attribute>;

void SetText(Attributes* attributes, const char* name, const std::string& value) {
  (*attributes)[name].set_s(value);
}

void SetNumber(Attributes* attributes, const char* name, int64_t value, const char* unit) {
  (*attributes)[name].set_i(value);
  (*attributes)[name].set_unit(unit);
}

}  // namespace

HostFacts ReadHostFacts() {
  HostFacts facts;
  utsname names{};
  if (uname(&names) == 0) facts.kernel = names.release;
  struct sysinfo info{};
  if (sysinfo(&info) == 0) {
    facts.memory_bytes = static_cast<int64_t>(info.totalram) * info.mem_unit;
  }
  return facts;
}

v1::DeviceReport CpuDevice(const runtime::CpuInfo& cpu, const HostFacts& host, double peak_gflops) {
  v1::DeviceReport device;
  Attributes* attributes = device.mutable_attributes();
  const std::string name =
      support::BestCpuName(cpu.arch, cpu.vendor, cpu.family, cpu.model, cpu.features);
  SetText(attributes, "kind", "cpu");
  SetText(attributes, "arch", cpu.arch);
  SetText(attributes, "cpu", name);
  SetText(attributes, "cpu_accepts",
          support::Join(support::RunnableCpus(cpu.arch, cpu.features), ","));
  SetText(attributes, "cpu_model", cpu.model_name);
  SetText(attributes, "features", support::Join(cpu.features, ","));
  SetText(attributes, "kernel", host.kernel);
  SetNumber(attributes, "cores", cpu.cores_usable, "");
  SetNumber(attributes, "l1_bytes", cpu.l1d_bytes, "bytes");
  SetNumber(attributes, "l2_bytes", cpu.l2_bytes, "bytes");
  SetNumber(attributes, "l3_bytes", cpu.l3_bytes, "bytes");
  SetNumber(attributes, "line_bytes", cpu.line_bytes, "bytes");
  SetNumber(attributes, "memory_bytes", host.memory_bytes, "bytes");
  (*attributes)["peak_gflops"].set_d(peak_gflops);
  (*attributes)["peak_gflops"].set_unit("GFLOP/s");
  device.set_key("cpu-" + name);
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
