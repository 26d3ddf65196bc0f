#include "tuner_server/search/transfer.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string>

#include "compiler/ir/structural.h"
#include "deploy/support/hash.h"
#include "deploy/support/rng.h"

namespace tilewright::search {
namespace {

// Position of the menu's entry next to `value`: by ratio where both are sizes, else by difference
// (zero and negative entries are words, not sizes).
int NearestChoice(const std::vector<int64_t>& menu, int64_t value) {
  const auto distance = [&](int64_t entry) {
    if (entry == value) return 0.0;
    if (entry <= 0 || value <= 0) return 1e3 + static_cast<double>(std::abs(entry - value));
    return std::abs(std::log2(static_cast<double>(entry) / static_cast<double>(value)));
  };
  size_t best = 0;
  for (size_t i = 1; i < menu.size(); ++i) {
    if (distance(menu[i]) < distance(menu[best])) best = i;
  }
  return static_cast<int>(best);
}

// One knob lowered as little as possible, the last knob first; several at random where that is not
// enough, the same ones each time.
bool Legalise(const Space& space, Point* point) {
  if (space.Feasible(*point)) return true;
  for (size_t k = point->choices.size(); k-- > 0;) {
    Point one = *point;
    while (one.choices[k] > 0) {
      --one.choices[k];
      if (!space.Feasible(one)) continue;
      *point = std::move(one);
      return true;
    }
  }
  support::Rng rng(support::StableHash64(PointText(*point)));
  return space.Repair(&rng, point);
}

}  // namespace

std::optional<Point> TransferPoint(const Space& from, const Point& point, const Space& to) {
  const auto old_index = static_cast<size_t>(point.sketch);
  const Sketch& old_sketch = *from.sketches()[old_index];
  for (size_t i = 0; i < to.sketches().size(); ++i) {
    const Sketch& sketch = *to.sketches()[i];
    if (sketch.name() != old_sketch.name() || to.VariantOf(i) != from.VariantOf(old_index)) {
      continue;
    }
    Point made{static_cast<int>(i), std::vector<int>(sketch.knobs().size(), 0)};
    for (size_t k = 0; k < sketch.knobs().size(); ++k) {
      for (size_t j = 0; j < old_sketch.knobs().size(); ++j) {
        if (old_sketch.knobs()[j].name != sketch.knobs()[k].name) continue;
        made.choices[k] = NearestChoice(sketch.knobs()[k].menu, old_sketch.Value(point, j));
      }
    }
    if (Legalise(to, &made)) return made;
    return std::nullopt;
  }
  return std::nullopt;
}

std::vector<Point> InheritedPoints(const Space& from, const std::vector<RelativeProgram>& programs,
                                   const Space& to) {
  std::vector<Point> points;
  for (const RelativeProgram& program : programs) {
    const std::optional<Point> old = space::ParsePoint(program.point);
    if (!old.has_value() || !from.Contains(*old)) continue;
    const absl::StatusOr<schedule::Schedule> applied = from.Apply(*old);
    if (!applied.ok() || ir::ProgramHash(applied->function()) != program.program_hash) continue;
    const std::optional<Point> made = TransferPoint(from, *old, to);
    if (!made.has_value() || std::find(points.begin(), points.end(), *made) != points.end())
      continue;
    points.push_back(*made);
  }
  return points;
}

}  // namespace tilewright::search
