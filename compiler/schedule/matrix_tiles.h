// Tiles of a product on a matrix unit (compiler/target/machine.h): which fit its memories, and how
// long they take. Pure functions; thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "compiler/ir/ir.h"
#include "compiler/target/machine.h"

namespace tilewright::schedule {

// A product of a matrix and weights in blocks, the operations on its sums, each a block of the
// function, and the last block, which makes bytes of them.
struct MatrixProblem {
  std::string product, last;
  std::vector<std::string> stages;
  int64_t outer = 1;               // how often it is done, for other rows
  int64_t rows = 1;                // vectors of a step of the sum
  int64_t columns = 1, steps = 1;  // in blocks
  int64_t operands = 0;            // vectors of sums for each block of columns (bias, multipliers)
};

// Returns nullopt for a function of another form.
std::optional<MatrixProblem> MatrixProblemOf(const ir::Function& function,
                                             const target::MatrixUnit& unit);

// What a virtual thread computes at a time, and of how many steps of the sum the operands are
// loaded together.
struct MatrixTile {
  int64_t rows = 1, columns = 1, steps = 1;
  int64_t threads = 1;
};

// Whether the tile divides the problem, and all threads' parts fit the memories.
bool Fits(const target::MatrixUnit& unit, const MatrixProblem& problem, const MatrixTile& tile);

// An estimate. With one thread, loads and products take turns; with two, each hides the other.
double TileCycles(const target::MatrixUnit& unit, const MatrixProblem& problem,
                  const MatrixTile& tile);

// The numbers that divide n, ascending.
std::vector<int64_t> DivisorsOf(int64_t n);

// Returns the tile of the best estimate of those whose members are the given ones, where these are
// not 0. nullopt if none fits.
std::optional<MatrixTile> BestTile(const target::MatrixUnit& unit, const MatrixProblem& problem,
                                   const MatrixTile& given);

}  // namespace tilewright::schedule
