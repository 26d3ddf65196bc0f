// Independent pieces of work on all processors of the process.
#pragma once

#include <cstddef>
#include <functional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tilewright::support {

// What a thread does with the piece at a position.
using PieceOfWork = std::function<absl::Status(size_t position)>;

// Does the pieces 0 … count - 1, each once, begun in this order, on at most as many threads as the
// process has processors. `make` is called on each thread: what it returns may own what threads do
// not share. After an error no more pieces are begun. Returns the error of the first position that
// has one, which does not depend on who was faster.
absl::Status ForEachInParallel(size_t count,
                               const std::function<absl::StatusOr<PieceOfWork>()>& make);

}  // namespace tilewright::support
