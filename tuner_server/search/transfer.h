// Decisions of one space carried over to another: what was good for a task, as a point of the space
// of a relative (task_kind.h). Pure functions; thread-safe.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tuner_server/search/space.h"

namespace tilewright::search {

// The point of `to` that decides what `point` decided in `from`: the sketch of the same name for
// the same algorithm, each knob at the value next to the old one (knobs that the old sketch did not
// have at their first). Where the other extents do not admit that, knobs that grow a tile are
// lowered, the last first. Nothing where there is no such sketch or no feasible point near by.
// REQUIRES: `point` is one of `from`.
std::optional<Point> TransferPoint(const Space& from, const Point& point, const Space& to);

// A good program of a relative, as its log has it.
struct RelativeProgram {
  std::string program_hash;
  std::string point;  // PointText
};
// What `to` inherits, in the order of `programs`, each point once. Programs whose point is not
// theirs any more (spaces change between versions), and what cannot be carried over, are left out.
std::vector<Point> InheritedPoints(const Space& from, const std::vector<RelativeProgram>& programs,
                                   const Space& to);

}  // namespace tilewright::search
