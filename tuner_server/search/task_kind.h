// The kind of a task: its operators and attributes without the extents of their tensors. Tasks of
// one kind with similar extents are relatives: schedules that are good for one are worth a try for
// the other. Pure functions of text; do not use the compiler. Thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tilewright::search {

struct TaskKind {
  std::string skeleton;          // the text, '#' for each extent
  std::vector<int64_t> extents;  // in the text's order
};

// A task inherits from so many relatives, the nearest first, and so many programs of each. A
// program may be slower than the relative's best by the last factor.
inline constexpr size_t kMaxRelatives = 3, kProgramsOfRelative = 2;
inline constexpr double kGoodEnough = 1.1;

// Returns the kind of any text. A text that is not a task has a kind of its own.
TaskKind KindOf(std::string_view canonical_text);

// Returns the distance of two tasks: the sum over extents of |log2 of their ratio|, 0 for equal
// extents. Returns nullopt if the kinds differ, if an extent differs by more than a factor of
// eight, or if it is 1 on one side only: such tasks share few good schedules.
std::optional<double> KindDistance(const TaskKind& a, const TaskKind& b);

}  // namespace tilewright::search
