#include "tuner_server/search/task_kind.h"

#include <algorithm>
#include <cctype>
#include <cmath>

#include "deploy/support/strings.h"

namespace tilewright::search {
namespace {

constexpr double kFarthest = 3;  // log2 of the ratio of two extents
constexpr char kUnits[] = "units=";

bool IsDigit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

// Whether the bracket at `at` opens a tensor's extents, as in f32[1,3]: attributes have '=' there.
bool OpensExtents(std::string_view text, size_t at) {
  return text[at] == '[' && at > 0 && std::isalnum(static_cast<unsigned char>(text[at - 1])) != 0;
}

// The end of the number that starts at `at`.
size_t EndOfNumber(std::string_view text, size_t at) {
  while (at < text.size() && IsDigit(text[at])) ++at;
  return at;
}

}  // namespace

TaskKind KindOf(std::string_view text) {
  TaskKind kind;
  bool extents = false;
  for (size_t i = 0; i < text.size();) {
    if (extents && IsDigit(text[i])) {
      const size_t end = EndOfNumber(text, i);
      kind.extents.push_back(support::ParseInt64(text.substr(i, end - i)).value_or(0));
      kind.skeleton += '#';
      i = end;
      continue;
    }
    // The attribute that repeats an extent says nothing of the kind.
    const size_t digits = i + sizeof(kUnits) - 1;
    if (text.substr(i, digits - i) == kUnits) {
      kind.skeleton += kUnits;
      i = EndOfNumber(text, digits);
      continue;
    }
    if (OpensExtents(text, i)) extents = true;
    if (text[i] == ']') extents = false;
    kind.skeleton += text[i++];
  }
  return kind;
}

std::optional<double> KindDistance(const TaskKind& a, const TaskKind& b) {
  if (a.skeleton != b.skeleton || a.extents.size() != b.extents.size()) return std::nullopt;
  double sum = 0;
  for (size_t i = 0; i < a.extents.size(); ++i) {
    if (a.extents[i] == b.extents[i]) continue;
    if (std::min(a.extents[i], b.extents[i]) <= 1) return std::nullopt;
    const double ratio =
        std::log2(static_cast<double>(a.extents[i]) / static_cast<double>(b.extents[i]));
    if (std::abs(ratio) > kFarthest) return std::nullopt;
    sum += std::abs(ratio);
  }
  return sum;
}

}  // namespace tilewright::search
