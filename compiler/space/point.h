// A point of a design space. A plain value.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tilewright::space {

// A point of a space: one choice per knob of one sketch (positions in the knobs' menus).
struct Point {
  int sketch = 0;
  std::vector<int> choices;
  bool operator==(const Point&) const = default;
};

// Convert a point to and from its text in the log, "sketch:choice,choice,…". ParsePoint returns
// nullopt for any other text. It does not check that the space has such a point.
std::string PointText(const Point& point);
std::optional<Point> ParsePoint(std::string_view text);

}  // namespace tilewright::space
