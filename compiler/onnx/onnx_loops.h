// A loop that a run ends, under construction (compiler/graph/loops.h). Values are carried in, the
// body is made of what they are in a trip, then the loop is closed. Part of the import; one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "compiler/graph/loops.h"
#include "compiler/onnx/onnx_composer.h"

namespace tilewright::graph::onnx {

class LoopBuilder {
 public:
  explicit LoopBuilder(Composer& c) : c_(c), number_(c.node().importer().NewLoop()) {}

  // The value in a trip of what begins as `init`. The first is the condition of the first trip,
  // bool[]. REQUIRES: the loop is not closed yet.
  ValueId Carry(ValueId init);
  size_t num_carried() const { return values_.size(); }
  // In a trip.
  ValueId Value(size_t carried) const { return values_[carried]; }
  // `next`: what each value becomes, in their order; notes an error where it has another type.
  // `parts`: what each trip gives.
  void Close(const std::vector<ValueId>& next, const std::vector<ValueId>& parts);
  // Behind the last trip. REQUIRES: the loop is closed.
  ValueId Result(size_t carried) { return Control(kLoopResultOp, {end_, values_[carried]}, {}); }
  // The parts of `trips` trips along a new first dimension; a run with more has no result.
  ValueId Stack(ValueId part, const op::Dim& trips);

 private:
  ValueId Control(std::string_view row, std::vector<ValueId> inputs, op::Attrs attrs);

  Composer& c_;
  const int64_t number_;
  std::vector<ValueId> values_;
  ValueId end_ = kNone;
};

// One bool as a scalar; notes an error for another type.
ValueId AsFlag(Composer& c, ValueId condition);

// The trips of a loop: as many as `count` says, fewer where a body's condition ends it before.
struct TripsOfLoop {
  ValueId most = kNone;       // i64[]; kNone without such a number
  ValueId condition = kNone;  // bool[] before the first trip
};
struct LoopState {
  // kNone: nothing is carried. What a body gives for it is stacked, if it gives anything.
  ValueId init = kNone;
  // Each trip only appends to it, along this axis; bodies get a state without entries then, and
  // give what they append.
  std::optional<int64_t> appended = {};
  // Axes whose size differs from trip to trip, with the largest, where that is known.
  std::map<int64_t, std::optional<int64_t>> grows = {};
};
// What a body makes of the number of the trip and of the states: the condition to go on, the next
// states, then what is stacked.
using LoopBody = std::function<absl::StatusOr<std::vector<ValueId>>(
    ValueId trip, const std::vector<ValueId>& states)>;
// The loop of this body; states have one type in all trips, but for sizes that grow. `known`, which
// is read when `body` has been called: how many trips there are, if that is a size. Else the stacks
// are as long as a run finds, and `most` bounds them, if it is given. Returns the states, then the
// stacks, as results of the node from the first on.
absl::StatusOr<std::vector<ValueId>> LoopAtRunTime(Composer& c, const TripsOfLoop& trips,
                                                   const std::vector<LoopState>& states,
                                                   const std::optional<op::Dim>& known,
                                                   std::optional<int64_t> most,
                                                   const LoopBody& body);

}  // namespace tilewright::graph::onnx
