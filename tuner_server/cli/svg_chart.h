// Charts as SVG text for an HTML page: no scripts, no network, tooltips by <title>.
// Pure functions; values that are not finite are left out.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tilewright::cli {

// Text made safe for HTML and SVG, attributes included; what is not UTF-8 becomes '?'.
std::string EscapeHtml(std::string_view text);

struct ChartPoint {
  double x = 0, y = 0;
  std::string title = {};  // tooltip
  std::string label = {};  // text next to the point
};

struct ChartSeries {
  std::string name;
  std::vector<ChartPoint> points;  // by x
  bool line = true;                // else dots
  bool steps = false;              // a line that holds each value until the next point
};

struct Chart {
  std::string x_label, y_label;
  bool log_x = false, log_y = false;  // points that are not positive are left out
  bool from_zero = true;              // the y axis, unless log_y
  std::vector<ChartSeries> series;
};

// At most six series have colours of their own. A chart without points says so.
std::string ChartSvg(const Chart& chart);

// The same as a file of its own, with the names of the series inside of the picture.
std::string ChartFile(const Chart& chart);
// Several charts in one file, each below the one before.
std::string ChartFile(const std::vector<Chart>& charts);

// Horizontal bars with their values as text.
struct Bar {
  std::string label, text;
  double value = 0;
};
std::string BarsSvg(const std::vector<Bar>& bars);

}  // namespace tilewright::cli
