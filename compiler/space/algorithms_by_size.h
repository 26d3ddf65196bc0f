// Which of a task's algorithms is the fastest where its open sizes are far from the typical ones.
// Pure function; thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/ir/ir.h"
#include "compiler/schedule/schedule.h"
#include "compiler/target/target.h"
#include "deploy/support/dim.h"

namespace tilewright::space {

using support::Sizes;

// Sizes that a task is for, by the names of its size parameters: the smallest, those that its first
// schedule is made for, the largest.
struct SizeSpan {
  Sizes least = {}, typical = {}, most = {};
};

struct AlgorithmAtSizes {
  size_t variant = 0;
  ir::Function scheduled;  // by the default schedule for such sizes
  std::string steps;
  int64_t bound = 0;   // a product of all its sizes
  bool larger = true;  // it computes what has a larger product, or else what has no larger one
};

// Returns the algorithm of which the estimate is sure that it is faster than `scheduled` where
// sizes are larger than the typical ones, and the one where they are smaller; those for that are
// nearest to the typical sizes, because each may hold weights of its own. Nothing where sizes have
// no typical values, and on devices that are no processors. Errors of the passes.
absl::StatusOr<std::vector<AlgorithmAtSizes>> AlgorithmsBySize(
    std::span<const schedule::Variant> variants, const target::Target& target, const SizeSpan& span,
    const ir::Function& scheduled);

}  // namespace tilewright::space
