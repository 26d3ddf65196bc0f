#include "compiler/space/point.h"

#include "deploy/support/strings.h"

namespace tilewright::space {

std::string PointText(const Point& point) {
  std::string text = support::StrCat(point.sketch, ":");
  for (size_t i = 0; i < point.choices.size(); ++i) {
    if (i > 0) text += ',';
    text += std::to_string(point.choices[i]);
  }
  return text;
}

std::optional<Point> ParsePoint(std::string_view text) {
  constexpr int64_t kMax = 1 << 20;
  const auto number = [](std::string_view word, int* value) {
    const auto parsed = support::ParseInt64(word);
    if (!parsed || *parsed < 0 || *parsed > kMax) return false;
    *value = static_cast<int>(*parsed);
    return true;
  };
  const size_t colon = text.find(':');
  Point point;
  if (colon == std::string_view::npos || !number(text.substr(0, colon), &point.sketch)) {
    return std::nullopt;
  }
  text.remove_prefix(colon + 1);
  if (text.empty()) return point;
  for (const std::string& word : support::Split(text, ',')) {
    if (!number(word, &point.choices.emplace_back())) return std::nullopt;
  }
  return point;
}

}  // namespace tilewright::space
