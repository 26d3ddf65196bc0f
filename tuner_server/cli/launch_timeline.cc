#include "tuner_server/cli/launch_timeline.h"

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>
#include <utility>

#include "deploy/support/file.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"
#include "tuner_server/cli/table.h"

namespace tilewright::cli {
namespace {

using runtime::LaunchTrace;
using support::StrCat;

// A name that every file system takes: "03-conv2d_relu".
std::string FileName(size_t launch, const std::string& name) {
  constexpr size_t kMost = 60;
  std::string number = StrCat(launch);
  if (number.size() < 2) number = "0" + number;
  std::string text = name.substr(0, kMost);
  for (char& c : text) {
    if (isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  }
  return StrCat(number, "-", text);
}

double Ratio(double part, double whole) { return whole > 0 ? part / whole : 0; }

}  // namespace

std::vector<LaunchTimeline> Timelines(const module::Function& function,
                                      const std::vector<LaunchTrace>& traces) {
  std::vector<LaunchTimeline> rows;
  for (const LaunchTrace& trace : traces) {
    const module::Launch& launch = function.launches[trace.launch];
    LaunchTimeline& row = rows.emplace_back();
    row.name = launch.name.empty() ? trace.program : launch.name;
    row.file = FileName(trace.launch, row.name);
    row.unit = trace.unit;
    row.work_name = trace.work_name;
    row.time = static_cast<double>(trace.time);
    row.work = static_cast<double>(trace.work);
    row.bytes = static_cast<double>(trace.bytes);
    row.per_byte = Ratio(row.work, row.bytes);
    const double by_work = Ratio(row.work, trace.peak_work);
    const double by_bytes = Ratio(row.bytes, trace.peak_bytes);
    row.of_peak = Ratio(by_work, row.time);
    row.of_limit = Ratio(std::max(by_work, by_bytes), row.time);
    row.by_bytes = by_bytes > by_work;
  }
  return rows;
}

std::string TimelineTable(const std::vector<LaunchTimeline>& rows) {
  Table table({{"launch"},
               {"time", true},
               {"unit"},
               {"of peak", true},
               {"of limit", true},
               {"bound"},
               {"file"}});
  for (const LaunchTimeline& row : rows) {
    table.AddRow({row.name, support::FormatFixed(row.time, 0), row.unit, PercentText(row.of_peak),
                  PercentText(row.of_limit), row.by_bytes ? "memory" : "compute", row.file});
  }
  return table.Render();
}

nlohmann::json TimelineJson(const std::vector<LaunchTimeline>& rows) {
  nlohmann::json launches = nlohmann::json::array();
  double total = 0;
  for (const LaunchTimeline& row : rows) {
    total += row.time;
    launches.push_back({{"name", row.name},
                        {"file", row.file},
                        {"time", row.time},
                        {"work", row.work},
                        {"work_name", row.work_name},
                        {"bytes", row.bytes},
                        {"of_peak", row.of_peak},
                        {"of_limit", row.of_limit},
                        {"bound", row.by_bytes ? "memory" : "compute"}});
  }
  return {{"unit", rows.empty() ? "" : rows.front().unit},
          {"time", total},
          {"launches", std::move(launches)}};
}

Chart RooflineChart(const std::vector<LaunchTimeline>& rows,
                    const std::vector<LaunchTrace>& traces) {
  const double peak = traces.front().peak_work;
  // Where the roof bends: fewer operations for a byte wait for memory.
  const double bend = Ratio(peak, traces.front().peak_bytes);
  double least = bend, most = bend;
  ChartSeries roof{.name = "roof", .points = {}}, found{.name = "launches", .points = {}};
  found.line = false;
  for (const LaunchTimeline& row : rows) {
    if (row.work <= 0) continue;
    least = std::min(least, row.per_byte);
    most = std::max(most, row.per_byte);
    found.points.push_back({row.per_byte, Ratio(row.work, row.time),
                            StrCat(row.name, ": ", PercentText(row.of_peak), " of the peak, ",
                                   PercentText(row.of_limit), " of the limit"),
                            ""});
  }
  std::sort(found.points.begin(), found.points.end(),
            [](const ChartPoint& a, const ChartPoint& b) { return a.x < b.x; });
  roof.points = {
      {least / 2, least / 2 * traces.front().peak_bytes}, {bend, peak}, {2 * most, peak}};
  const std::string& work = rows.front().work_name;
  return {.x_label = StrCat(work, " per byte of memory"),
          .y_label = StrCat(work, " per unit of time (", rows.front().unit, ")"),
          .log_x = true,
          .log_y = true,
          .series = {std::move(roof), std::move(found)}};
}

absl::Status WriteTimelines(const std::string& folder, const std::vector<LaunchTimeline>& rows,
                            const std::vector<LaunchTrace>& traces) {
  TW_TRY(support::MakeDirs(folder));
  for (size_t i = 0; i < rows.size(); ++i) {
    const std::string path = support::PathJoin(folder, rows[i].file);
    TW_TRY(support::WriteFileAtomic(path + ".svg", traces[i].picture));
    TW_TRY(support::WriteFileAtomic(path + ".json", traces[i].events));
  }
  return support::WriteFileAtomic(support::PathJoin(folder, "roofline.svg"),
                                  ChartFile(RooflineChart(rows, traces)));
}

}  // namespace tilewright::cli
