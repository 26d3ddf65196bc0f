#include "tuner_server/cli/launch_profile.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <string_view>

#include "deploy/module/size_plan.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"
#include "tuner_server/cli/launch_text.h"
#include "tuner_server/cli/table.h"

namespace tilewright::cli {
namespace {

constexpr size_t kHashDigits = 8;  // of a task without a name
constexpr char kOnProcessor[] = "processor";

// A launch's operands once each, however often an argument repeats.
peaks::KernelWork WorkOf(const module::Manifest& manifest, const module::Launch& launch,
                         const module::SizePlan& plan, const module::Sizes& sizes) {
  peaks::KernelWork work;
  work.operations = launch.flops;
  if (launch.open_flops) {
    work.operations = static_cast<double>(launch.open_flops->Evaluate(sizes).value_or(0));
  }
  const std::set<int64_t> operands(launch.args.begin(), launch.args.end());
  for (const int64_t id : operands) {
    work.bytes += static_cast<double>(plan.tensors[static_cast<size_t>(id)].bytes);
  }
  if (!launch.args.empty()) {
    work.type = manifest.tensors[static_cast<size_t>(launch.args.front())].dtype;
  }
  return work;
}

}  // namespace

std::string_view BoundName(peaks::Bound bound) {
  switch (bound) {
    case peaks::Bound::kCompute:
      return "compute";
    case peaks::Bound::kMemory:
      return "memory";
    case peaks::Bound::kUnknown:
      break;
  }
  return "-";
}

std::vector<LaunchProfile> ProfileLaunches(const module::Manifest& manifest,
                                           const std::vector<double>& medians,
                                           const std::optional<peaks::Roofline>& roofline,
                                           const module::Function& function,
                                           const module::Sizes& sizes) {
  const std::vector<module::Launch>& launches = function.launches;
  const std::vector<module::LaunchNames> names = NamesOf(manifest, function);
  module::SizePlan plan;
  const module::SizePlanner planner(manifest, function);
  const std::vector<int64_t> values = module::ValuesOf(manifest, sizes);
  const absl::Status planned = planner.Plan(values, &plan);
  TW_CHECK(planned.ok()) << support::StatusText(planned);  // it ran at these sizes
  // To the sizes that the run found. What a loop without trips would have found may fit to no other
  // size: then the plan is that of the largest sizes.
  planner.Resize(values, &plan).IgnoreError();
  const double total = std::accumulate(medians.begin(), medians.end(), 0.0);
  std::vector<LaunchProfile> rows;
  for (size_t k = 0; k < std::min(launches.size(), medians.size()); ++k) {
    const module::Launch& launch = launches[k];
    const peaks::KernelWork work = WorkOf(manifest, launch, plan, sizes);
    const double ns = std::max(medians[k], 1.0);  // 10^9 a second are one a nanosecond
    LaunchProfile& row = rows.emplace_back();
    row.name = launch.name.empty() ? launch.symbol : launch.name;
    row.task = names[k].task;
    row.task_hash = launch.task;
    row.nodes = names[k].nodes;
    const std::string& device = manifest.code[static_cast<size_t>(launch.code)].device;
    row.on = device.empty() ? kOnProcessor : device;
    row.median_ns = medians[k];
    row.share = medians[k] / std::max(total, 1.0);
    const auto holds = [&](const module::Loop& loop) {
      return loop.first <= static_cast<int64_t>(k) && static_cast<int64_t>(k) < loop.end;
    };
    // A run decides how often it ran, so nobody knows how much it did.
    if (std::ranges::any_of(function.loops, holds)) continue;
    row.gflop_s = work.operations / ns;
    row.gb_s = work.bytes / ns;
    if (!roofline || !device.empty()) continue;
    row.of_limit = roofline->LeastNs(work) / ns;
    row.bound = roofline->BoundOf(work);
  }
  return rows;
}

std::string ProfileTable(const std::vector<LaunchProfile>& launches) {
  std::vector<Table::Column> columns = {{"launch"},         {"task"},          {"median", true},
                                        {"share", true},    {"GFLOP/s", true}, {"GB/s", true},
                                        {"of limit", true}, {"bound"},         {"ONNX nodes"}};
  const bool devices = std::ranges::any_of(
      launches, [](const LaunchProfile& row) { return row.on != kOnProcessor; });
  if (devices) columns.insert(columns.begin() + 2, {"on"});
  Table table(columns);
  for (const LaunchProfile& row : launches) {
    std::vector<std::string> cells = {
        row.name,
        row.task.empty() ? row.task_hash.substr(0, kHashDigits) : row.task,
        TimeText(row.median_ns),
        PercentText(row.share),
        row.gb_s > 0 ? support::FormatFixed(row.gflop_s, 2) : "-",
        row.gb_s > 0 ? support::FormatFixed(row.gb_s, 2) : "-",
        row.of_limit > 0 ? PercentText(row.of_limit) : "-",
        std::string(BoundName(row.bound)),
        NodesText(row.nodes)};
    if (devices) cells.insert(cells.begin() + 2, row.on);
    table.AddRow(cells);
  }
  return table.Render();
}

nlohmann::json ProfileJson(const std::vector<LaunchProfile>& launches) {
  nlohmann::json rows = nlohmann::json::array();
  for (const LaunchProfile& row : launches) {
    nlohmann::json& json = rows.emplace_back();
    json = {{"name", row.name},        {"task", row.task}, {"task_hash", row.task_hash},
            {"onnx_nodes", row.nodes}, {"on", row.on},     {"median_us", row.median_ns / 1e3},
            {"gflop_s", row.gflop_s},  {"gb_s", row.gb_s}, {"share", row.share}};
    if (row.of_limit <= 0) continue;
    json["of_limit"] = row.of_limit;
    json["bound"] = BoundName(row.bound);
  }
  return rows;
}

nlohmann::json RooflineJson(const peaks::Roofline& roofline) {
  nlohmann::json reads = nlohmann::json::array();
  for (const peaks::Roofline::Bandwidth& read : roofline.reads()) {
    reads.push_back({{"working_set_bytes", read.bytes}, {"gb_s", read.gb_s}});
  }
  return {{"gflop_s", roofline.PeakOf(module::DType::kFloat32)},
          {"int8_gop_s", roofline.PeakOf(module::DType::kInt8)},
          {"bf16_gflop_s", roofline.PeakOf(module::DType::kBFloat16)},
          {"read", std::move(reads)}};
}

nlohmann::json ProfileTrace(const std::vector<LaunchProfile>& launches, const std::string& model) {
  nlohmann::json events = nlohmann::json::array();
  events.push_back(
      {{"ph", "M"}, {"name", "process_name"}, {"pid", 1}, {"args", {{"name", model}}}});
  double at_us = 0;
  const nlohmann::json rows = ProfileJson(launches);
  for (size_t k = 0; k < launches.size(); ++k) {
    const double us = launches[k].median_ns / 1e3;
    const std::string& task = launches[k].task;
    events.push_back({{"ph", "X"},
                      {"name", launches[k].name},
                      {"cat", task.empty() ? "launch" : task},
                      {"pid", 1},
                      {"tid", 1},
                      {"ts", at_us},
                      {"dur", us},
                      {"args", rows[k]}});
    at_us += us;
  }
  return {{"traceEvents", std::move(events)}, {"displayTimeUnit", "ns"}};
}

}  // namespace tilewright::cli
