// What of a scheduled function depends on constants only (packed weights) goes into a function of
// its own, which runs once, before the first call and untimed. Pure functions; thread-safe.
#pragma once

#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/ir/ir.h"

namespace tilewright::transform {

struct PreparedFunction {
  // Parameters: the constants that it reads, then the prepared buffers as outputs. Nothing where
  // no nest depends on constants only.
  std::optional<ir::Function> prepare;
  // Parameters: those of the original; the prepared buffers, as constants, before the outputs.
  ir::Function main;
  // In the order of both parameter lists; the names are those of the buffers.
  std::vector<ir::Buffer> prepared;
};

// kScheduled → kScheduled, twice. Running `prepare` and then `main` computes what `f` computes.
// Only whole top-level nests move, and only where everything that they write is a global
// intermediate of fixed size that no other nest writes. Nests over open sizes stay.
absl::StatusOr<PreparedFunction> SplitPrepare(const ir::Function& f);

}  // namespace tilewright::transform
