#include "compiler/space/space.h"

#include <algorithm>

#include "compiler/ir/bind_sizes.h"
#include "compiler/space/default_schedule.h"
#include "compiler/space/field_sums.h"
#include "compiler/space/rules/rules.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::space {
namespace {

constexpr int kTries = 64;
constexpr int kRepairs = 48;

// Lowers knobs at random until the machine's limits admit the point: limits bound tiles from above.
bool Repair(const Sketch& sketch, support::Rng* rng, Point* point) {
  for (int i = 0; i < kRepairs; ++i) {
    if (sketch.Feasible(*point)) return true;
    int& choice = point->choices[rng->Uniform(point->choices.size())];
    if (choice > 0) choice -= 1 + static_cast<int>(rng->Uniform(static_cast<uint64_t>(choice)));
  }
  return sketch.Feasible(*point);
}

}  // namespace

size_t Sketch::AddKnob(std::string name, std::vector<int64_t> menu) {
  TW_CHECK(!menu.empty()) << "knob " << name << " has an empty menu";
  knobs_.push_back({std::move(name), std::move(menu)});
  return knobs_.size() - 1;
}

absl::StatusOr<std::unique_ptr<Space>> Space::Create(ir::Function function,
                                                     const target::Target& target) {
  return Create(std::vector<schedule::Variant>{{"direct", std::move(function)}}, target);
}

absl::StatusOr<std::unique_ptr<Space>> Space::Create(std::vector<schedule::Variant> variants,
                                                     const target::Target& target,
                                                     std::map<std::string, int64_t> typical) {
  for (const schedule::Variant& variant : variants) {
    if (variant.function.stage == ir::Stage::kScheduled) continue;
    return support::InvalidArgument("space.function", "expected an unscheduled function");
  }
  std::unique_ptr<Space> space(new Space(std::move(variants), target, std::move(typical)));
  // The rules in order of preference: the first that describes a function makes its sketches, and
  // so do those that add to others.
  for (size_t v = 0; v < space->variants_.size(); ++v) {
    const ir::Function function = ir::BindSizes(space->variants_[v].function, space->typical_);
    for (const Rule& rule : Rules(target)) {
      if ((rule.use == RuleUse::kOfVariants) != (v > 0)) continue;
      auto made = rule.make(function, target);
      if (made.empty()) continue;
      for (auto& sketch : made) {
        space->sketches_.push_back(std::move(sketch));
        space->variant_of_.push_back(v);
      }
      if (rule.use != RuleUse::kInAddition) break;
    }
  }
  const auto& sketches = space->sketches_;
  space->has_estimates_ =
      !sketches.empty() && std::all_of(sketches.begin(), sketches.end(), [](const auto& sketch) {
        return !sketch->BestPoints(1).empty();
      });
  return space;
}

std::optional<Point> Space::DefaultPoint() const {
  const size_t variant = DefaultVariant(variants_, target_, typical_);
  for (size_t i = 0; i < sketches_.size(); ++i) {
    if (variant_of_[i] != variant) continue;
    if (auto choices = sketches_[i]->DefaultChoices()) {
      return Point{static_cast<int>(i), *std::move(choices)};
    }
  }
  return std::nullopt;
}

double Space::size() const {
  double total = 0;
  for (const auto& sketch : sketches_) {
    double product = 1;
    for (const Knob& knob : sketch->knobs()) product *= static_cast<double>(knob.menu.size());
    total += product;
  }
  return total;
}

bool Space::Contains(const Point& point) const {
  if (point.sketch < 0 || static_cast<size_t>(point.sketch) >= sketches_.size()) return false;
  const std::vector<Knob>& knobs = sketches_[static_cast<size_t>(point.sketch)]->knobs();
  if (point.choices.size() != knobs.size()) return false;
  for (size_t k = 0; k < knobs.size(); ++k) {
    const int choice = point.choices[k];
    if (choice < 0 || static_cast<size_t>(choice) >= knobs[k].menu.size()) return false;
  }
  return Feasible(point);
}

bool Space::Repair(support::Rng* rng, Point* point) const {
  return space::Repair(*sketches_[static_cast<size_t>(point->sketch)], rng, point);
}

bool Space::Feasible(const Point& point) const {
  return sketches_[static_cast<size_t>(point.sketch)]->Feasible(point);
}

std::optional<double> Space::Estimate(const Point& point) const {
  if (!has_estimates_) return std::nullopt;
  return sketches_[static_cast<size_t>(point.sketch)]->Estimate(point);
}

std::vector<Point> Space::BestPoints(size_t most) const {
  if (!has_estimates_) return {};
  std::vector<std::pair<double, Point>> found;
  for (size_t i = 0; i < sketches_.size(); ++i) {
    for (Point& point : sketches_[i]->BestPoints(most)) {
      point.sketch = static_cast<int>(i);
      found.emplace_back(sketches_[i]->Estimate(point).value_or(0), std::move(point));
    }
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<Point> points;
  for (auto& [estimate, point] : found) points.push_back(std::move(point));
  points.resize(std::min(points.size(), most));
  return points;
}

bool Space::Sample(support::Rng* rng, Point* point) const {
  if (sketches_.empty()) return false;
  for (int attempt = 0; attempt < kTries; ++attempt) {
    point->sketch = static_cast<int>(rng->Uniform(sketches_.size()));
    point->choices.clear();
    for (const Knob& knob : sketches_[static_cast<size_t>(point->sketch)]->knobs()) {
      point->choices.push_back(static_cast<int>(rng->Uniform(knob.menu.size())));
    }
    if (Repair(rng, point)) return true;
  }
  return false;
}

bool Space::Mutate(const Point& from, support::Rng* rng, Point* point) const {
  const std::vector<Knob>& knobs = sketches_[static_cast<size_t>(from.sketch)]->knobs();
  for (int attempt = 0; attempt < kTries; ++attempt) {
    *point = from;
    const int changes = 1 + static_cast<int>(rng->Uniform(3) == 0);
    for (int i = 0; i < changes; ++i) {
      const size_t k = rng->Uniform(knobs.size());
      const int menu = static_cast<int>(knobs[k].menu.size());
      if (rng->Uniform(3) == 0) {
        point->choices[k] = static_cast<int>(rng->Uniform(static_cast<uint64_t>(menu)));
      } else {
        point->choices[k] =
            std::clamp(point->choices[k] + (rng->Uniform(2) == 0 ? 1 : -1), 0, menu - 1);
      }
    }
    if (*point != from && Feasible(*point)) return true;
  }
  return false;
}

bool Space::Cross(const Point& a, const Point& b, support::Rng* rng, Point* point) const {
  if (a.sketch != b.sketch) return false;
  for (int attempt = 0; attempt < kTries; ++attempt) {
    *point = a;
    for (size_t k = 0; k < a.choices.size(); ++k) {
      if (rng->Uniform(2) == 0) point->choices[k] = b.choices[k];
    }
    if (*point != a && *point != b && Feasible(*point)) return true;
  }
  return false;
}

std::vector<Point> Space::Neighbours(const Point& from) const {
  std::vector<Point> out;
  const std::vector<Knob>& knobs = sketches_[static_cast<size_t>(from.sketch)]->knobs();
  for (size_t k = 0; k < knobs.size(); ++k) {
    for (const int step : {-1, 1}) {
      Point point = from;
      point.choices[k] += step;
      if (point.choices[k] < 0 || point.choices[k] >= static_cast<int>(knobs[k].menu.size()))
        continue;
      if (Feasible(point)) out.push_back(std::move(point));
    }
  }
  return out;
}

absl::StatusOr<schedule::Schedule> Space::Apply(const Point& point) const {
  schedule::Schedule schedule = Start();
  TW_TRY(Apply(point, &schedule));
  return schedule;
}

absl::Status Space::Apply(const Point& point, schedule::Schedule* schedule) const {
  const size_t variant = variant_of_[static_cast<size_t>(point.sketch)];
  if (variant > 0) {
    TW_TRY(schedule->Apply({schedule::StepKind::kVariant, {}, {}, variants_[variant].name, {}}));
  }
  TW_TRY(sketches_[static_cast<size_t>(point.sketch)]->Apply(point, schedule));
  StreamLargeOutputs(target_, schedule);
  return absl::OkStatus();
}

}  // namespace tilewright::space
