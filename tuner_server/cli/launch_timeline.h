// `run --timeline`: what a device did in each launch of a module on it, and how much of its own
// limits the launches reach. As a table, as JSON, and as files: a picture and events for Chrome's
// trace viewer for each launch, and a roofline of all of them. Values and functions; thread-safe.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "deploy/module/manifest.h"
#include "deploy/runtime/launch_trace.h"
#include "tuner_server/cli/svg_chart.h"

namespace tilewright::cli {

struct LaunchTimeline {
  std::string name;  // as the module calls the launch
  std::string file;  // of its pictures, without the ending
  std::string unit;  // of `time`
  std::string work_name;
  double time = 0, work = 0, bytes = 0;
  double per_byte = 0;    // work
  double of_peak = 0;     // the work over the most that fits into the time
  double of_limit = 0;    // the least time that the work and the bytes allow, over the time
  bool by_bytes = false;  // the bytes allow less than the work
};

// `traces`: of a run of `function`, in order.
std::vector<LaunchTimeline> Timelines(const module::Function& function,
                                      const std::vector<runtime::LaunchTrace>& traces);

std::string TimelineTable(const std::vector<LaunchTimeline>& rows);
nlohmann::json TimelineJson(const std::vector<LaunchTimeline>& rows);
// The launches below the roof of the device, which all of them share. REQUIRES: as many rows as
// traces, and at least one.
Chart RooflineChart(const std::vector<LaunchTimeline>& rows,
                    const std::vector<runtime::LaunchTrace>& traces);

// Makes the folder and writes FILE.svg and FILE.json for each launch, and roofline.svg.
absl::Status WriteTimelines(const std::string& folder, const std::vector<LaunchTimeline>& rows,
                            const std::vector<runtime::LaunchTrace>& traces);

}  // namespace tilewright::cli
