#include "compiler/space/matrix_tiles.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "compiler/space/block_info.h"

namespace tilewright::space {
namespace {

constexpr double kSumBytes = 4;
// Instructions of a tile of maxima but those on its windows: bytes become sums by two, maxima begin
// by three.
constexpr int64_t kPoolOperations = 5;

std::vector<int64_t> MenuOf(int64_t given, int64_t n) {
  return given > 0 ? std::vector<int64_t>{given} : Divisors(n, 1, n);
}

// Points of loops beyond the two longest.
int64_t MicroOps(std::vector<int64_t> extents) {
  std::sort(extents.begin(), extents.end());
  int64_t points = 1;
  for (size_t i = 0; i + 2 < extents.size(); ++i) points *= extents[i];
  return points;
}

// Instructions that move `planes` of rows: several planes of cut rows are one each.
int64_t Pieces(int64_t planes, int64_t rows, bool whole_rows) {
  return rows == 1 || whole_rows ? 1 : planes;
}

// What a thread does for one tile.
struct Work {
  int64_t tiles, turns;           // of the whole problem; of the sum
  int64_t inputs, weights, sums;  // vectors and matrices of a turn
  int64_t products;               // in a turn
  int64_t loads, stores;          // instructions: of inputs in a turn, of results
};
Work WorkOf(const MatrixProblem& p, const MatrixTile& t) {
  const bool whole = t.width == p.width;
  const int64_t sums = t.rows * t.width * t.columns;
  Work work{};
  work.tiles = p.outer * (p.rows / t.rows) * (p.width / t.width) * (p.columns / t.columns);
  work.turns = p.steps / t.steps;
  work.sums = sums;
  work.stores = p.image ? Pieces(t.columns, t.rows, whole) : 1;
  const int64_t in_rows = p.down.Inputs(t.rows), taps = p.down.taps * p.across.taps;
  if (!p.pool.empty()) {
    // Bytes become sums. Maxima begin with the least number, which takes three operations, and take
    // two cycles for each tap.
    work.inputs = in_rows * p.across.Inputs(t.width) * t.columns;
    work.products = work.inputs + (3 + 2 * taps) * sums;
    work.weights = 1;
    work.loads = t.columns * Pieces(2, in_rows, p.whole_rows && whole);
    return work;
  }
  if (p.product.empty()) {
    // Bytes become sums by products with one matrix.
    work.inputs = work.products = p.images * sums;
    work.weights = 1;
    work.loads = p.images * work.stores;
    return work;
  }
  const int64_t planes = p.apart ? t.columns : t.steps;  // of the image
  work.inputs = in_rows * p.across.Inputs(t.width) * planes;
  work.weights = t.columns * t.steps * taps;
  work.products = sums * t.steps * taps;
  const bool joins = p.whole_rows && (p.skips_rows ? t.rows == p.rows : whole);
  const bool cuts = !p.staging.empty() && !p.skips_rows;  // rows by their padding
  work.loads = p.image ? Pieces(planes, cuts ? 2 : in_rows, joins) : 1;
  return work;
}

}  // namespace

bool ThreadsAlongColumns(const MatrixProblem& p, const MatrixTile& t) {
  return p.columns % (t.columns * t.threads) == 0;
}

namespace {

// Whether all threads multiply the same inputs, or the same weights: then these are loaded once.
bool SharesInputs(const MatrixProblem& p, const MatrixTile& t) {
  return t.threads > 1 && !p.product.empty() && !p.apart && ThreadsAlongColumns(p, t);
}
bool SharesWeights(const MatrixProblem& p, const MatrixTile& t) {
  return t.threads > 1 && !p.product.empty() && !ThreadsAlongColumns(p, t);
}

// Loops of a product over different sums. Rows whose inputs follow each other are one loop.
std::vector<int64_t> LoopsOverSums(const MatrixProblem& p, const MatrixTile& t) {
  const bool follow = p.across.Inputs(t.width) * p.down.stride == t.width * p.across.stride;
  if (follow) return {t.columns, t.rows * t.width};
  return {t.columns, t.rows, t.width};
}

// Loops of a sum that may be among the two longest.
int64_t LongSums(const MatrixProblem& p, const MatrixTile& t) {
  std::vector<int64_t> all = LoopsOverSums(p, t);
  const std::vector<int64_t> sums = {t.steps, p.down.taps, p.across.taps};
  all.insert(all.end(), sums.begin(), sums.end());
  std::sort(all.rbegin(), all.rend());
  const auto is_long = [&](int64_t extent) { return extent > 1 && extent >= all[1]; };
  return std::min<int64_t>(2, std::count_if(sums.begin(), sums.end(), is_long));
}

// Micro-ops of a program, at most. The product and each operation have some of their own; so have
// bytes that become sums, and an operation in another place than its operand. The first products of
// sums overwrite them, the next ones along a loop of the instruction have other micro-ops.
struct MicroOpsOfTile {
  int64_t product, operation;  // of one instruction
  int64_t versions;            // of what threads share: each has micro-ops of its own
  int64_t parts;               // instructions of the first turn of a sum
  int64_t operations;          // instructions of a tile that are no products
  bool reload;                 // not all are on the chip at the same time
  // Instructions with so many, and the loads right before them.
  int64_t Instructions(const target::MatrixUnit& unit, int64_t micro_ops) const {
    const int64_t parts = (micro_ops + unit.micro_ops - 1) / unit.micro_ops;
    return reload ? 2 * parts : parts;
  }
  // To load all before the first product.
  double FirstCycles(const target::MatrixUnit& unit, const MatrixTile& t) const {
    if (reload) return 0;
    const int64_t all = t.threads * (versions * product + operation);
    return static_cast<double>(unit.load_cycles) + static_cast<double>(all * unit.micro_op_bytes) /
                                                       static_cast<double>(unit.bytes_per_cycle);
  }
  // To load so many again.
  double Cycles(const target::MatrixUnit& unit, int64_t micro_ops) const {
    if (!reload) return 0;
    const double bytes = static_cast<double>(micro_ops * unit.micro_op_bytes);
    return static_cast<double>(unit.load_cycles) +
           bytes / static_cast<double>(unit.bytes_per_cycle);
  }
};
MicroOpsOfTile MicroOpsOf(const target::MatrixUnit& unit, const MatrixProblem& p,
                          const MatrixTile& t) {
  std::vector<int64_t> product = LoopsOverSums(p, t);
  product.insert(product.end(), {t.steps, p.down.taps, p.across.taps});
  MicroOpsOfTile of{.product = MicroOps(std::move(product)),
                    .operation = 1,  // columns, and all sums of one
                    .versions = SharesInputs(p, t) || SharesWeights(p, t) ? t.threads : 1,
                    .parts = 2 + LongSums(p, t),
                    .operations = static_cast<int64_t>(p.stages.size()) + p.images + 2,
                    .reload = false};
  if (!p.pool.empty()) {
    of.operation = MicroOps({t.columns, p.down.Inputs(t.rows), p.across.Inputs(t.width)});
    of.operations = kPoolOperations;
  }
  const int64_t products = of.versions * of.product * (1 + LongSums(p, t));
  of.reload = t.threads * (products + of.operations * of.operation) > unit.micro_ops;
  return of;
}

// Vectors of sums that the threads hold.
int64_t SumsOf(const MatrixProblem& p, const MatrixTile& t, const Work& work) {
  const int64_t wide = p.pool.empty() ? 0 : work.inputs;
  return t.threads * (std::max<int64_t>(1, p.images) * work.sums + wide);
}

}  // namespace

bool KeepsOperands(const target::MatrixUnit& unit, const MatrixProblem& p, const MatrixTile& t) {
  return SumsOf(p, t, WorkOf(p, t)) + p.columns * p.operands <= unit.sums;
}

bool Fits(const target::MatrixUnit& unit, const MatrixProblem& p, const MatrixTile& t) {
  if (t.rows < 1 || t.columns < 1 || t.steps < 1 || t.threads < 1 || t.width < 1) return false;
  if (p.rows % t.rows != 0 || p.width % t.width != 0 || p.steps % t.steps != 0) return false;
  if (p.columns % t.columns != 0) return false;
  if (!ThreadsAlongColumns(p, t) && p.rows % (t.rows * t.threads) != 0) return false;
  const Work work = WorkOf(p, t);
  const MicroOpsOfTile micro_ops = MicroOpsOf(unit, p, t);
  const int64_t products = micro_ops.Instructions(unit, micro_ops.product),
                operations = micro_ops.Instructions(unit, micro_ops.operation);
  const int64_t turns = work.turns - 1 + micro_ops.parts;
  // Planes of large images are too far apart for one instruction.
  const int64_t planes =
      p.image ? std::max<int64_t>(1, p.images) * std::max(t.columns, t.steps) : 0;
  const int64_t instructions =
      work.tiles * (work.turns * (work.loads + planes + 1) + turns * products + p.operands +
                    micro_ops.operations * operations + work.stores + planes);
  const int64_t sums = SumsOf(p, t, work) + t.threads * t.columns * p.operands;
  return (sums <= unit.sums || KeepsOperands(unit, p, t)) &&
         t.threads * work.inputs <= unit.inputs && t.threads * work.weights <= unit.weights &&
         instructions <= unit.instructions;
}

namespace {

// Cycles that something waits for a tile's store which begins `slack` cycles before it. The code
// generator cuts operations and store into slices then, each half of what is left: every slice
// begins all operations again, and the last one is stored when compute is done.
double WaitForStore(const target::MatrixUnit& unit, size_t operations, double epilogue,
                    double store, double slack) {
  if (operations == 0) return std::max(0.0, store - slack);  // there is nothing to cut
  const double begin = static_cast<double>(operations) *
                       static_cast<double>(std::max<int64_t>(1, unit.start_cycles));
  double wait = std::max(0.0, store - slack), last = store;
  for (double begins = begin; begins < wait; begins += begin) {
    last /= 2;
    const double left = std::max(static_cast<double>(unit.load_cycles) + last, store - epilogue);
    wait = std::min(wait, begins + std::max(0.0, left - slack));
  }
  return wait;
}

// By how much the first product begins earlier than its last weights are there. The code generator
// cuts it and them into some parts; the next product must not wait for its own `weights` then.
double FirstPart(const MatrixProblem& p, const MatrixTile& t, double product, double own,
                 double weights) {
  constexpr int64_t kParts = 4;
  if (p.product.empty() || p.down.taps * p.across.taps > 1) return 0;
  const double parts = static_cast<double>(std::min(kParts, t.columns));
  return std::clamp(product - own, 0.0, weights * (1 - 1 / parts));
}

}  // namespace

double TileCycles(const target::MatrixUnit& unit, const MatrixProblem& p, const MatrixTile& t) {
  const auto d = [](int64_t n) { return static_cast<double>(n); };
  const double block = d(unit.block), bytes = d(unit.bytes_per_cycle);
  const Work work = WorkOf(p, t);
  const MicroOpsOfTile micro_ops = MicroOpsOf(unit, p, t);
  const double product =
      d(work.products + unit.start_cycles) + micro_ops.Cycles(unit, micro_ops.product);
  const double inputs = d(unit.load_cycles * work.loads) + d(work.inputs) * block / bytes;
  const double weights = d(unit.load_cycles) + d(work.weights) * block * block / bytes;
  // What the threads share, the first of them loads.
  const double own = (SharesInputs(p, t) ? 0 : inputs) + (SharesWeights(p, t) ? 0 : weights);
  const double load = own + (inputs + weights - own) / d(t.threads);
  const double sums = d(work.sums);
  const bool keeps = KeepsOperands(unit, p, t);
  const double vectors = d((keeps ? p.columns : t.columns) * p.operands);
  const double operands = vectors * block * kSumBytes / bytes + d(unit.load_cycles * p.operands);
  // An operation with a constant takes a cycle, as a product does.
  const auto stages = static_cast<int64_t>(p.stages.size());
  const int64_t each = p.immediates + unit.sums_cycles * (stages - p.immediates);
  const double epilogue = sums * d(each) +
                          d(unit.start_cycles * (micro_ops.operations + micro_ops.parts - 1)) +
                          (keeps ? 0 : operands) +
                          d(micro_ops.operations) * micro_ops.Cycles(unit, micro_ops.operation);
  const double store = d(unit.load_cycles * work.stores) + sums * block / bytes;
  const double turns = d(work.turns);
  const double once = (keeps ? operands : 0) + micro_ops.FirstCycles(unit, t);
  const auto wait = [&](double slack) {
    return WaitForStore(unit, p.stages.size(), epilogue, store, slack);
  };
  if (t.threads == 1) return once + d(work.tiles) * (turns * (load + product) + epilogue + wait(0));
  // While one thread computes, another one loads: for its next turn, or, during the operations on
  // sums, for the first turn of its next tile.
  const double tile = product + epilogue + (turns - 1) * std::max(load, product);
  // Before the first operations on sums all threads load.
  const double first = inputs + weights - FirstPart(p, t, product, own, weights) +
                       d(t.threads - 1) * std::max(0.0, own - product);
  // The last thread's next sums wait until its results are stored. Meanwhile the others multiply.
  const double groups = d(work.tiles) / d(t.threads);
  const double stalls = (groups - 1) * wait(d(t.threads - 1) * product);
  return once + d(work.tiles) * std::max(tile, turns * load) + first + stalls + wait(0);
}

namespace {

// Visits each tile that fits and whose members are the given ones, where these are not 0, with its
// estimate.
template <typename Visit>
void ForEachTile(const target::MatrixUnit& unit, const MatrixProblem& p, const MatrixTile& given,
                 const Visit& visit) {
  const std::vector<int64_t> some(std::begin(kMatrixThreads), std::end(kMatrixThreads));
  for (const int64_t threads : given.threads > 0 ? std::vector{given.threads} : some) {
    for (const int64_t rows : MenuOf(given.rows, p.rows)) {
      for (const int64_t width : MenuOf(given.width, p.width)) {
        for (const int64_t columns : MenuOf(given.columns, p.columns)) {
          for (const int64_t steps : MenuOf(given.steps, p.steps)) {
            const MatrixTile tile{rows, columns, steps, threads, width};
            if (Fits(unit, p, tile)) visit(tile, TileCycles(unit, p, tile));
          }
        }
      }
    }
  }
}

}  // namespace

std::optional<MatrixTile> BestTile(const target::MatrixUnit& unit, const MatrixProblem& p,
                                   const MatrixTile& given) {
  std::optional<MatrixTile> best;
  double least = 0;
  ForEachTile(unit, p, given, [&](const MatrixTile& tile, double cycles) {
    if (best.has_value() && cycles >= least) return;
    best = tile;
    least = cycles;
  });
  return best;
}

std::vector<MatrixTile> TilesByEstimate(const target::MatrixUnit& unit, const MatrixProblem& p) {
  constexpr MatrixTile kAny{.rows = 0, .columns = 0, .steps = 0, .threads = 0, .width = 0};
  std::vector<std::pair<double, MatrixTile>> found;
  ForEachTile(unit, p, kAny,
              [&](const MatrixTile& tile, double cycles) { found.emplace_back(cycles, tile); });
  std::stable_sort(found.begin(), found.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<MatrixTile> tiles;
  for (const auto& [cycles, tile] : found) tiles.push_back(tile);
  return tiles;
}

}  // namespace tilewright::space
