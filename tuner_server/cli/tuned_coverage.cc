#include "tuner_server/cli/tuned_coverage.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "deploy/support/strings.h"
#include "tuner_server/cli/table.h"

namespace tilewright::cli {
namespace {

using nlohmann::json;
using support::StrCat;

struct Kernel {
  std::string name, hash, stale_reason;
  double uses = 0;
  double flops = 0;
  bool tuned = false, stale = false;
  double median_ns = 0;  // 0: not measured
};

absl::StatusOr<Kernel> Read(const json& row, const ScheduleChoice& choice) {
  if (!row.is_object()) {
    return support::Internal("builder.summary.malformed", "expected kernels as objects");
  }
  const auto text = [&row](const char* key) {
    const auto it = row.find(key);
    return it != row.end() && it->is_string() ? it->get<std::string>() : std::string();
  };
  const auto number = [&row](const char* key) {
    const auto it = row.find(key);
    return it != row.end() && it->is_number() ? it->get<double>() : 0.0;
  };
  const auto flag = [&row](const char* key) {
    const auto it = row.find(key);
    return it != row.end() && it->is_boolean() && it->get<bool>();
  };
  Kernel kernel{text("task_name"), text("task_hash"), text("stale_reason"), number("uses"),
                number("flops"),   flag("tuned"),     flag("stale")};
  const auto chosen = choice.by_task.find(kernel.hash);
  if (chosen != choice.by_task.end()) kernel.median_ns = chosen->second.median_ns;
  return kernel;
}

// Operations per nanosecond of those that were measured; 0 when nothing tells.
double MeasuredRate(const std::vector<Kernel>& kernels) {
  double flops = 0, ns = 0;
  for (const Kernel& kernel : kernels) {
    if (kernel.median_ns <= 0 || kernel.flops <= 0) continue;
    flops += kernel.uses * kernel.flops;
    ns += kernel.uses * kernel.median_ns;
  }
  return ns > 0 ? flops / ns : 0;
}

std::string WhyMissed(const Kernel& kernel, const ScheduleChoice& choice) {
  if (kernel.stale) return "stale: " + kernel.stale_reason;
  const auto why = choice.why_not.find(kernel.hash);
  return why == choice.why_not.end() ? "no record" : why->second;
}

}  // namespace

absl::StatusOr<TunedCoverage> ComputeCoverage(const json& summary, const ScheduleChoice& choice) {
  std::vector<Kernel> kernels;
  bool measured = false;
  for (const json& row : summary["kernels"]) {
    TW_ASSIGN(Kernel kernel, Read(row, choice));
    measured = measured || kernel.median_ns > 0;
    kernels.push_back(std::move(kernel));
  }
  const double rate = MeasuredRate(kernels);
  TunedCoverage coverage;
  double all = 0, tuned = 0;
  for (const Kernel& kernel : kernels) {
    double each = kernel.median_ns;
    if (each <= 0) each = measured ? (rate > 0 ? kernel.flops / rate : 0) : kernel.flops;
    const double time = kernel.uses * each;
    all += time;
    if (kernel.tuned) {
      tuned += time;
    } else {
      coverage.misses.push_back(
          {kernel.name, kernel.uses, time, 0, kernel.median_ns <= 0, WhyMissed(kernel, choice)});
    }
  }
  if (all > 0) {
    coverage.percent = 100 * (tuned / all);  // in this order all of it is 100, not 99.99…
  } else if (!kernels.empty()) {             // neither times nor operations: each counts the same
    coverage.percent = 100 * (1 - static_cast<double>(coverage.misses.size()) /
                                      static_cast<double>(kernels.size()));
  }
  for (TunedMiss& miss : coverage.misses) miss.percent = all > 0 ? 100 * (miss.time_ns / all) : 0;
  std::stable_sort(coverage.misses.begin(), coverage.misses.end(),
                   [](const TunedMiss& a, const TunedMiss& b) { return a.time_ns > b.time_ns; });
  return coverage;
}

std::string MissTable(const TunedCoverage& coverage) {
  Table table(
      {{"kernel without a measured schedule"}, {"uses", true}, {"of the time", true}, {"why"}});
  for (const TunedMiss& miss : coverage.misses) {
    table.AddRow({miss.task, StrCat(miss.uses),
                  StrCat(miss.estimated ? "~" : "", support::FormatFixed(miss.percent, 1), "%"),
                  miss.why});
  }
  return table.Render();
}

json MissesJson(const TunedCoverage& coverage) {
  json rows = json::array();
  for (const TunedMiss& miss : coverage.misses) {
    rows.push_back({{"task", miss.task},
                    {"uses", miss.uses},
                    {"percent", miss.percent},
                    {"estimated", miss.estimated},
                    {"why", miss.why}});
  }
  return rows;
}

}  // namespace tilewright::cli
