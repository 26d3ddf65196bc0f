// The profile of a module's run: each launch with its names, its time, what it reached and what the
// machine could reach at most (deploy/peaks). As a table, as JSON, and as a trace for
// chrome://tracing or ui.perfetto.dev. Values and pure functions; thread-safe.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "deploy/module/manifest.h"
#include "deploy/peaks/roofline.h"

namespace tilewright::cli {

struct LaunchProfile {
  std::string name;                // as the module calls the launch
  std::string task;                // in the log; may be ""
  std::string task_hash;           // may be ""
  std::vector<std::string> nodes;  // of the ONNX model
  std::string on = {};             // the kind of device that ran it; "processor"
  double median_ns = 0;
  double share = 0;  // of all launches' medians
  // Of a launch in a loop, whose trips a run decides, all trips count, and the next three are 0.
  double gflop_s = 0;  // 10^9 operations a second
  double gb_s = 0;     // of all its operands, read or written once
  // The least time that this machine allows, over the median; 0 if not known. Above 1 where an
  // algorithm does with fewer operations than those counted (Winograd).
  double of_limit = 0;
  peaks::Bound bound = peaks::Bound::kUnknown;
};

// `medians`: one for each launch of the function, in its order. `roofline`: of the machine that ran
// it, if known; it says nothing about launches on other devices than the processor. `sizes`: of the
// module's size variables in the run.
std::vector<LaunchProfile> ProfileLaunches(const module::Manifest& manifest,
                                           const std::vector<double>& medians,
                                           const std::optional<peaks::Roofline>& roofline,
                                           const module::Function& function,
                                           const module::Sizes& sizes = {});

// "compute", "memory" or "-".
std::string_view BoundName(peaks::Bound bound);

std::string ProfileTable(const std::vector<LaunchProfile>& launches);
nlohmann::json ProfileJson(const std::vector<LaunchProfile>& launches);
nlohmann::json RooflineJson(const peaks::Roofline& roofline);
// Trace event format: the launches one after the other, each as long as its median. It leaves
// out what happens between launches in a real run.
nlohmann::json ProfileTrace(const std::vector<LaunchProfile>& launches, const std::string& model);

}  // namespace tilewright::cli
