#include "device_agent/device_facts.h"

#include <sys/sysinfo.h>
#include <sys/utsname.h>

#include "compiler/target/machine.h"
#include "deploy/support/strings.h"

namespace tilewright::device_agent {
namespace {

void SetText(Attributes* attributes, const char* name, const std::string& value) {
  (*attributes)[name].set_s(value);
}

void SetNumber(Attributes* attributes, const char* name, int64_t value, const char* unit) {
  (*attributes)[name].set_i(value);
  (*attributes)[name].set_unit(unit);
}

void SetRate(Attributes* attributes, const char* name, double value, const char* unit) {
  if (value <= 0) return;
  (*attributes)[name].set_d(value);
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

Attributes CpuAttributes(const runtime::CpuInfo& cpu, const HostFacts& host,
                         const CpuPeaks& peaks) {
  Attributes map;
  Attributes* attributes = &map;
  const std::string name =
      target::BestMachineName(cpu.arch, cpu.vendor, cpu.family, cpu.model, cpu.features);
  SetText(attributes, "kind", "cpu");
  SetText(attributes, "arch", cpu.arch);
  SetText(attributes, "cpu", name);
  SetText(attributes, "cpu_accepts",
          support::Join(target::RunnableMachines(cpu.arch, cpu.features), ","));
  SetText(attributes, "cpu_model", cpu.model_name);
  SetText(attributes, "features", support::Join(cpu.features, ","));
  SetText(attributes, "kernel", host.kernel);
  SetNumber(attributes, "cores", cpu.cores_usable, "");
  SetNumber(attributes, "l1_bytes", cpu.l1d_bytes, "bytes");
  SetNumber(attributes, "l2_bytes", cpu.l2_bytes, "bytes");
  SetNumber(attributes, "l3_bytes", cpu.l3_bytes, "bytes");
  SetNumber(attributes, "line_bytes", cpu.line_bytes, "bytes");
  SetNumber(attributes, "memory_bytes", host.memory_bytes, "bytes");
  SetRate(attributes, "peak_gflops", peaks.gflops, "GFLOP/s");
  SetRate(attributes, "peak_int8_gops", peaks.int8_gops, "GOP/s");
  return map;
}

}  // namespace tilewright::device_agent
