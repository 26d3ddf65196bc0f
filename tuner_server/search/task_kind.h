// What kind of task a canonical text describes: its operators and attributes without the extents of
// their tensors. Tasks of one kind with near extents are relatives: what was good for one is worth
// a try for the other. Pure functions of text, without the compiler; thread-safe.
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

// Of how many relatives, the nearest first, a task inherits; how many programs of each, and how
// much slower than its best they may be.
inline constexpr size_t kMaxRelatives = 3, kProgramsOfRelative = 2;
inline constexpr double kGoodEnough = 1.1;

// Any text has a kind; one that is no task's is of a kind of its own.
TaskKind KindOf(std::string_view canonical_text);

// How far apart the extents are: the sum over them of |log2 of their ratio|, 0 for equal ones. None
// for tasks of different kinds and where an extent differs by more than a factor of eight, or is 1
// on one side only: their good schedules have little in common.
std::optional<double> KindDistance(const TaskKind& a, const TaskKind& b);

}  // namespace tilewright::search
