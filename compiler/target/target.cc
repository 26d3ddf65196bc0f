#include "compiler/target/target.h"

#include <map>
#include <optional>
#include <utility>

#include "deploy/support/cpu_table.h"
#include "deploy/support/device_kinds.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::target {
namespace {

constexpr int64_t kMaxThreads = 1024;

absl::Status CheckKind(const std::string& kind) {
  const support::DeviceKind* known = support::FindDeviceKind(kind);
  if (known != nullptr && known->compiled) return absl::OkStatus();
  if (kind == "native") {
    return support::InvalidArgument(
        "ir.target.native",
        "expected a target that names its cpu, found 'native': the command line expands it on the "
        "machine that it runs on");
  }
  // A known kind is refused by name, so that its user does not look for a typing mistake.
  return support::InvalidArgument(
      "ir.target.unknown_kind",
      support::StrCat("expected ", support::DeviceKindNames(&support::DeviceKind::compiled, ", "),
                      " or native, found ", support::Quote(kind, 40),
                      known != nullptr ? ", for which this version has no code generator" : ""));
}

absl::StatusOr<std::map<std::string, std::string>> ParseKeys(
    const std::vector<std::string>& parts) {
  std::map<std::string, std::string> keys;
  for (size_t i = 1; i < parts.size(); ++i) {
    size_t equals = parts[i].find('=');
    std::string key = parts[i].substr(0, equals);
    if (equals == std::string::npos || equals + 1 == parts[i].size()) {
      return support::InvalidArgument("ir.target.bad_value",
                                      "expected key=value, found " + support::Quote(parts[i], 60));
    }
    if (key != "arch" && key != "cpu" && key != "threads") {
      return support::InvalidArgument(
          "ir.target.bad_value", "expected arch, cpu or threads, found " + support::Quote(key, 60));
    }
    if (!keys.emplace(key, parts[i].substr(equals + 1)).second) {
      return support::InvalidArgument("ir.target.bad_value",
                                      "expected each key once, found " + key + " twice");
    }
  }
  return keys;
}

absl::StatusOr<int> ParseThreads(const std::string& text) {
  std::optional<int64_t> threads = support::ParseInt64(text);
  if (!threads || *threads < 1 || *threads > kMaxThreads) {
    return support::InvalidArgument(
        "ir.target.bad_value", support::StrCat("threads: expected 1 to ", kMaxThreads, ", found ",
                                               support::Quote(text, 40)));
  }
  return static_cast<int>(*threads);
}

std::string CpusOf(std::string_view arch) {
  std::vector<std::string_view> names;
  for (const support::CpuRow& row : support::Cpus()) {
    if (row.arch == arch) names.push_back(row.name);
  }
  return support::Join(names, ", ");
}

}  // namespace

std::string Target::WithoutThreads() const {
  return FindGpu(kind) != nullptr ? kind : kind + ",arch=" + arch + ",cpu=" + cpu;
}
std::string Target::ToString() const {
  return FindGpu(kind) != nullptr ? kind : WithoutThreads() + ",threads=" + std::to_string(threads);
}

absl::StatusOr<Target> ParseTarget(std::string_view text) {
  std::vector<std::string> parts = support::Split(text, ',');
  TW_TRY(CheckKind(parts[0]));
  TW_ASSIGN(auto keys, ParseKeys(parts));
  Target target;
  if (FindGpu(parts[0]) != nullptr) {  // one row of limits for all devices of the kind
    if (!keys.empty()) {
      return support::InvalidArgument(
          "ir.target.bad_value",
          support::StrCat(parts[0], ": expected no keys, found ", keys.begin()->first));
    }
    target.kind = parts[0];
    return target;
  }
  if (auto it = keys.find("arch"); it != keys.end()) target.arch = it->second;
  std::string known = CpusOf(target.arch);
  if (known.empty()) {
    return support::InvalidArgument(
        "ir.target.bad_value",
        "arch: expected x86_64 or aarch64, found " + support::Quote(target.arch, 40));
  }
  target.cpu = target.arch == "x86_64" ? "x86-64" : "generic";
  if (auto it = keys.find("cpu"); it != keys.end()) target.cpu = it->second;
  const support::CpuRow* row = support::FindCpu(target.arch, target.cpu);
  if (row == nullptr) {
    return support::InvalidArgument("ir.target.unknown_cpu",
                                    support::StrCat("expected one of ", known, " for ", target.arch,
                                                    ", found ", support::Quote(target.cpu, 40)));
  }
  if (auto it = keys.find("threads"); it != keys.end()) {
    TW_ASSIGN(target.threads, ParseThreads(it->second));
  }
  target.vector_bytes = row->vector_bytes;
  target.vector_registers = row->vector_registers;
  target.fma_per_cycle = row->fma_per_cycle;
  target.l1_bytes = row->l1_bytes;
  target.l2_bytes = row->l2_bytes;
  target.l3_bytes = row->l3_bytes;
  target.required_features = support::FeaturesOf(*row);
  return target;
}

const GpuLimits* FindGpu(std::string_view kind) {
  // OpenCL: what devices from phones to servers have; the specification guarantees less.
  static constexpr GpuLimits kRows[] = {
      {"opencl", 256, 32 << 10, 1},
  };
  for (const GpuLimits& row : kRows) {
    if (row.kind == kind) return &row;
  }
  return nullptr;
}

absl::StatusOr<std::string> ExpandNative(std::string_view text, std::string_view arch,
                                         std::string_view cpu, int threads) {
  std::vector<std::string> parts = support::Split(text, ',');
  if (parts[0] != "native") {
    TW_ASSIGN(Target target, ParseTarget(text));
    return target.ToString();
  }
  TW_ASSIGN(auto keys, ParseKeys(parts));
  if (keys.count("arch") != 0 || keys.count("cpu") != 0) {
    return support::InvalidArgument("ir.target.bad_value",
                                    "native: expected threads only, found arch or cpu");
  }
  std::string threads_text = keys.count("threads") != 0 ? keys["threads"] : std::to_string(threads);
  TW_ASSIGN(Target target, ParseTarget(support::StrCat("cpu,arch=", arch, ",cpu=", cpu,
                                                       ",threads=", threads_text)));
  return target.ToString();
}

}  // namespace tilewright::target
