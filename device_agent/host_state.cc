#include "device_agent/host_state.h"

#include <algorithm>
#include <string>
#include <vector>

#include "deploy/support/file.h"
#include "deploy/support/strings.h"

namespace tilewright::device_agent {
namespace {

constexpr uint64_t kMaxKernelFile = 1 << 20;
constexpr size_t kStealField = 8;  // "cpu user nice system idle iowait irq softirq steal ..."
constexpr int kMaxSensors = 32;

std::string KernelText(const std::string& path) {
  const auto text = support::ReadFile(path, kMaxKernelFile);
  return text.ok() ? std::string(support::Trim(*text)) : std::string();
}

std::vector<std::string> Words(const std::string& line) {
  std::vector<std::string> words;
  for (const std::string& word : support::Split(line, ' ')) {
    if (!word.empty()) words.push_back(word);
  }
  return words;
}

double LoadAverage() {
  const std::vector<std::string> words = Words(KernelText("/proc/loadavg"));
  return words.empty() ? 0 : support::ParseDouble(words[0]).value_or(0);
}

double ClockMhz() {
  const auto khz =
      support::ParseDouble(KernelText("/sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq"));
  if (khz.has_value()) return *khz / 1000;
  double highest = 0;
  for (const std::string& line : support::Split(KernelText("/proc/cpuinfo"), '\n')) {
    const size_t colon = line.find(':');
    if (line.rfind("cpu MHz", 0) != 0 || colon == std::string::npos) continue;
    const auto mhz = support::ParseDouble(support::Trim(std::string_view(line).substr(colon + 1)));
    highest = std::max(highest, mhz.value_or(0));
  }
  return highest;
}

double HottestSensor() {
  double hottest = 0;
  for (int zone = 0; zone < kMaxSensors; ++zone) {
    const std::string text =
        KernelText(support::StrCat("/sys/class/thermal/thermal_zone", zone, "/temp"));
    if (text.empty()) break;
    hottest = std::max(hottest, support::ParseDouble(text).value_or(0) / 1000);
  }
  return hottest;
}

}  // namespace

void HostState::Read() {
  const std::string stat = KernelText("/proc/stat");
  const std::vector<std::string> words = Words(stat.substr(0, stat.find('\n')));
  total_ticks_ = 0;
  steal_ticks_ = 0;
  for (size_t i = 1; i < words.size() && i <= kStealField; ++i) {
    const int64_t ticks = support::ParseInt64(words[i]).value_or(0);
    total_ticks_ += ticks;
    if (i == kStealField) steal_ticks_ = ticks;
  }
}

void HostState::Finish(v1::Telemetry* telemetry) {
  const int64_t total = total_ticks_;
  const int64_t steal = steal_ticks_;
  Read();
  if (total_ticks_ > total) {
    telemetry->set_steal_fraction(static_cast<double>(steal_ticks_ - steal) /
                                  static_cast<double>(total_ticks_ - total));
  }
  telemetry->set_load_average(LoadAverage());
  telemetry->set_clock_mhz(ClockMhz());
  telemetry->set_temperature_celsius(HottestSensor());
}

std::string ReadBootId() { return KernelText("/proc/sys/kernel/random/boot_id"); }

std::string NewUuid() { return KernelText("/proc/sys/kernel/random/uuid"); }

}  // namespace tilewright::device_agent
