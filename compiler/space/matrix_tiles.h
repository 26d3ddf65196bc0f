// Tiles of a product on a matrix unit (compiler/target/machine.h): which fit its memories, and how
// long they take. Pure functions; thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "compiler/ir/ir.h"
#include "compiler/target/machine.h"

namespace tilewright::space {

// Which inputs a row (or a line) of outputs reads: `taps` of them each, `dilation` apart, and the
// next output's `stride` further.
struct MatrixWindow {
  int64_t taps = 1, stride = 1, dilation = 1;
  int64_t Inputs(int64_t outputs) const {
    return (outputs - 1) * stride + (taps - 1) * dilation + 1;
  }
};

// A product of a matrix, or of an image in blocks of channels, and weights in blocks; the
// operations on its sums, each a block of the function; and the last block, which makes bytes of
// them. Or no product, but operations on images of bytes, which become sums first; or the maxima of
// windows of such an image.
struct MatrixProblem {
  std::string product;  // empty: there is none
  std::string last;
  // Of maxima: the bytes as sums, and the maxima. Empty: there are none.
  std::string wide = {}, pool = {};
  // The block that puts zeros around the image, or takes every so many rows of it. Empty: none.
  std::string staging;
  std::vector<std::string> stages;
  bool image = false;                   // loops are [outer, columns, rows, width, lanes]
  int64_t outer = 1;                    // how often it is done, for other rows
  int64_t rows = 1, width = 1;          // vectors of a step of the sum; of an image: its sides
  int64_t columns = 1, steps = 1;       // in blocks
  MatrixWindow down = {}, across = {};  // of a convolution
  bool apart = false;                   // each block of columns reads its own block of the image
  bool skips_rows = false;              // the staging takes some of the image's rows
  // A row of outputs reads whole rows of the image. If it skips some: all outputs read all others.
  bool whole_rows = false;
  int64_t operands = 0;    // vectors of sums for each block of columns (bias, multipliers)
  int64_t images = 0;      // of bytes, that operations read
  int64_t immediates = 0;  // stages that read one vector and a constant
  // The block whose name the choices for this problem have.
  const std::string& key() const { return product.empty() ? last : product; }
};

// Returns nullopt for a function of another form.
std::optional<MatrixProblem> MatrixProblemOf(const ir::Function& function,
                                             const target::MatrixUnit& unit);

// What a virtual thread computes at a time, and of how many steps of the sum the operands are
// loaded together.
struct MatrixTile {
  int64_t rows = 1, columns = 1, steps = 1;
  int64_t threads = 1;
  int64_t width = 1;
};
// How many virtual threads a tile may have, the usual number first.
inline constexpr int64_t kMatrixThreads[] = {2, 4, 1};

// Whether the threads of a tile lie along its columns; else they lie along its rows.
bool ThreadsAlongColumns(const MatrixProblem& problem, const MatrixTile& tile);

// Whether the tile divides the problem, all threads' parts fit the memories, and the program is not
// longer than the unit can run.
bool Fits(const target::MatrixUnit& unit, const MatrixProblem& problem, const MatrixTile& tile);

// Whether what operations read for each block of columns (bias, multipliers) is loaded once and
// stays on the chip; else each tile loads its own.
bool KeepsOperands(const target::MatrixUnit& unit, const MatrixProblem& problem,
                   const MatrixTile& tile);

// An estimate. With one thread, loads and products take turns; with two, each hides the other.
double TileCycles(const target::MatrixUnit& unit, const MatrixProblem& problem,
                  const MatrixTile& tile);

// Returns the tile of the best estimate of those whose members are the given ones, where these are
// not 0. nullopt if none fits.
std::optional<MatrixTile> BestTile(const target::MatrixUnit& unit, const MatrixProblem& problem,
                                   const MatrixTile& given);

// Returns every tile that fits, those of the best estimates first.
std::vector<MatrixTile> TilesByEstimate(const target::MatrixUnit& unit,
                                        const MatrixProblem& problem);

// Why a function does not run on the unit, for people: what it has that the unit has not.
std::string WhyNotOnUnit(const ir::Function& function, const target::MatrixUnit& unit);

}  // namespace tilewright::space
