// The layers of a model as its author knows them: which nodes of the ONNX model, the kernels that
// compute them, their time and how near it is to what the machine can do. Values and pure
// functions; thread-safe.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "deploy/peaks/roofline.h"
#include "tuner_server/cli/launch_profile.h"
#include "tuner_server/cli/svg_chart.h"

namespace tilewright::cli {

// The least sets of nodes whose kernels compute nothing else: a fused kernel joins its nodes, and a
// node joins the kernels that compute parts of it.
struct Layer {
  std::vector<std::string> nodes;    // in the order of their work; none: a kernel of the compiler's
  std::vector<std::string> kernels;  // launches, in their order
  double ns = 0;                     // of all of its kernels
  double share = 0;                  // of the time of all layers
  double operations = 0, bytes = 0;
  double of_limit = 0;  // the least time that the machine allows, over `ns`; 0 if not known
  peaks::Bound bound = peaks::Bound::kUnknown;  // of the kernel that takes the longest
};
// In the order of their first launches.
std::vector<Layer> LayersOf(std::span<const LaunchProfile> launches);

// The longest layers as bars, then all of them as a table.
std::string LayersHtml(std::span<const Layer> layers);

// Operations per byte against operations per time, under the lower of two roofs: `peak`, 10^9
// operations a second of one data type, and `gb_s`, 10^9 bytes a second (0: only the peak).
ChartSeries Roof(const std::string& data_type, double peak, double gb_s, double low, double high);

// The page that `run --html` writes. `title` says what ran.
std::string LayerPage(const std::string& title, std::span<const LaunchProfile> launches,
                      const std::optional<peaks::Roofline>& roofline);

}  // namespace tilewright::cli
