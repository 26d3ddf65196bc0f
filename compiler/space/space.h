// The design space of a task on a target: sketches (structures of schedules) that generic rules
// make. Each sketch has knobs; the rules derive their menus from the target. A point becomes
// schedule steps. Every feasible point gives a legal program; any other result is a bug of the
// rule, which the search counts. Immutable after creation; thread-safe for reading.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/ir/ir.h"
#include "compiler/schedule/schedule.h"
#include "compiler/space/point.h"
#include "compiler/target/target.h"
#include "deploy/support/rng.h"

namespace tilewright::space {

struct Knob {
  std::string name;
  std::vector<int64_t> menu;  // never empty
};

// Adds a knob to a sketch, for the parts that sketches have in common.
using KnobAdder = std::function<size_t(std::string name, std::vector<int64_t> menu)>;

// One structure of schedules. Implemented by the rules.
class Sketch {
 public:
  virtual ~Sketch() = default;
  virtual std::string name() const = 0;
  // The choices that are the default schedule of a task that has this structure by default.
  // nullopt: the default has another structure.
  virtual std::optional<std::vector<int>> DefaultChoices() const { return std::nullopt; }
  const std::vector<Knob>& knobs() const { return knobs_; }
  // Returns whether the machine's limits allow the point. REQUIRES: one choice per knob, in range.
  virtual bool Feasible(const Point& point) const = 0;
  // Estimates what one run of the point's program takes, in the unit of the machine's devices.
  // nullopt: the rule knows nothing better than the analytical model (cost_model). REQUIRES: as
  // Feasible, and the point is feasible.
  virtual std::optional<double> Estimate(const Point& /*point*/) const { return std::nullopt; }
  // Returns the points of the best estimates, the best first, at most `most`, each of another
  // program. Empty without estimates.
  virtual std::vector<Point> BestPoints(size_t /*most*/) const { return {}; }
  // Returns what Apply does on this schedule for any point, and why; or nothing.
  virtual std::string DecidedOn(const schedule::Schedule& /*schedule*/) const { return ""; }
  // Applies the point's steps to a fresh schedule of the task's function.
  virtual absl::Status Apply(const Point& point, schedule::Schedule* schedule) const = 0;
  int64_t Value(const Point& point, size_t knob) const {
    return knobs_[knob].menu[static_cast<size_t>(point.choices[knob])];
  }

 protected:
  size_t AddKnob(std::string name, std::vector<int64_t> menu);
  std::vector<int> FirstChoices() const { return std::vector<int>(knobs_.size(), 0); }
  // Adds knobs that decide something of one block: their names end in its name. Without a block the
  // names stay. REQUIRES: called while the sketch is made.
  KnobAdder Adder(std::string_view block = "") {
    return [this, ending = block.empty() ? "" : "_" + std::string(block)](
               const std::string& name, std::vector<int64_t> menu) {
      return AddKnob(name + ending, std::move(menu));
    };
  }

  std::vector<Knob> knobs_;
};

class Space {
 public:
  // invalid_argument space.function for a function that is not freshly built.
  static absl::StatusOr<std::unique_ptr<Space>> Create(ir::Function function,
                                                       const target::Target& target);
  // Makes the sketches of each of an operator's algorithms. REQUIRES: not empty. Functions of open
  // sizes have the sketches of their `typical` sizes, by the names of their size parameters. The
  // steps are applied to the functions as they are, so that programs are right at all sizes; a
  // point whose tile covers an open extent gives none then (schedule.*).
  static absl::StatusOr<std::unique_ptr<Space>> Create(std::vector<schedule::Variant> variants,
                                                       const target::Target& target,
                                                       std::map<std::string, int64_t> typical = {});

  // The first of the algorithms.
  const ir::Function& function() const { return variants_[0].function; }
  const std::vector<schedule::Variant>& variants() const { return variants_; }
  const std::vector<std::unique_ptr<Sketch>>& sketches() const { return sketches_; }
  // Returns the name of the sketch's algorithm.
  const std::string& VariantOf(size_t sketch) const { return variants_[variant_of_[sketch]].name; }
  // Returns the point that is the default schedule; nullopt if no sketch has it.
  std::optional<Point> DefaultPoint() const;
  // Returns the number of points, feasible or not.
  double size() const;

  // Whether the rules estimate all points themselves; Estimate and BestPoints are those of the
  // sketches then.
  bool has_estimates() const { return has_estimates_; }
  std::optional<double> Estimate(const Point& point) const;
  std::vector<Point> BestPoints(size_t most) const;

  // Draws a feasible point at random. Returns false if it found none in a bounded number of tries.
  bool Sample(support::Rng* rng, Point* point) const;
  // Makes a feasible neighbour: one knob moves by one step or, one time in three, to any value.
  bool Mutate(const Point& from, support::Rng* rng, Point* point) const;
  // Takes each knob from one of two points of the same sketch.
  bool Cross(const Point& a, const Point& b, support::Rng* rng, Point* point) const;
  // Returns each feasible point next to `from`: one knob, one step up or down.
  std::vector<Point> Neighbours(const Point& from) const;

  // Lowers knobs at random until the point is feasible. Returns false if a bounded number of tries
  // was not enough. REQUIRES: one choice per knob of a sketch, each in range.
  bool Repair(support::Rng* rng, Point* point) const;

  // Returns whether `point` (from a log, for example) is a feasible point of this space.
  bool Contains(const Point& point) const;
  // REQUIRES: the point has one choice per knob of a sketch, each in range.
  bool Feasible(const Point& point) const;
  absl::StatusOr<schedule::Schedule> Apply(const Point& point) const;
  // Applies the point to a copy of Start(), which may remember steps that other points share.
  absl::Status Apply(const Point& point, schedule::Schedule* schedule) const;
  schedule::Schedule Start() const { return schedule::Schedule(variants_); }
  // Of open sizes.
  const std::map<std::string, int64_t>& typical() const { return typical_; }

 private:
  Space(std::vector<schedule::Variant> variants, target::Target target,
        std::map<std::string, int64_t> typical)
      : variants_(std::move(variants)), target_(std::move(target)), typical_(std::move(typical)) {}

  std::vector<schedule::Variant> variants_;
  target::Target target_;
  std::map<std::string, int64_t> typical_;
  std::vector<std::unique_ptr<Sketch>> sketches_;
  std::vector<size_t> variant_of_;  // each sketch's
  bool has_estimates_ = false;
};

}  // namespace tilewright::space
