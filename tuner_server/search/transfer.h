// Converts points of one task's space to points of a relative's space (task_kind.h). Pure
// functions; thread-safe.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "compiler/space/space.h"
#include "tuner_server/search/search.h"

namespace tilewright::search {

// Returns the point of `to` with the decisions that `point` has in `from`: the sketch of the same
// name for the same algorithm, each knob at the nearest value, new knobs at their first value. If
// the extents do not allow that, knobs that grow a tile are lowered, the last first. Returns
// nullopt if there is no such sketch or no feasible point. REQUIRES: `point` is a point of `from`.
std::optional<Point> TransferPoint(const Space& from, const Point& point, const Space& to);

// A good program of a relative, as its log has it.
struct RelativeProgram {
  std::string program_hash;
  std::string point;  // PointText
};
// Returns the points that `to` inherits, in the order of `programs`, each once. Leaves out programs
// whose point now gives another program (spaces change between versions), and points that cannot be
// converted.
std::vector<Point> InheritedPoints(const Space& from, const std::vector<RelativeProgram>& programs,
                                   const Space& to);

}  // namespace tilewright::search
