// The tails of a split that change more than a predicate: overlapping tiles, and padded buffers.
// Used by split only; thread-safe.
#pragma once

#include "absl/status/status.h"
#include "compiler/schedule/legality.h"

namespace tilewright::schedule {

// tail=overlap: refuses (not_repeatable) unless every block below the loop at the end of `path`
// computes a point from scratch each time that it is visited.
absl::Status CheckRepeatable(const Step& step, const Path& path);

// tail=pad: the loop runs to `extent`, and what the blocks below write grows to hold the rest.
// Changes the schedule only where it succeeds. Refuses (pad_form, output, several_writers).
absl::Status PadLoop(Schedule& s, const Step& step, const Path& path, int64_t extent);

}  // namespace tilewright::schedule
