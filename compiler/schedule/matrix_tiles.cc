#include "compiler/schedule/matrix_tiles.h"

#include <algorithm>

#include "compiler/schedule/lane_axes.h"
#include "compiler/schedule/legality.h"

namespace tilewright::schedule {
namespace {

constexpr double kSumBytes = 4;

std::vector<int64_t> MenuOf(int64_t given, int64_t n) {
  return given > 0 ? std::vector<int64_t>{given} : DivisorsOf(n);
}

}  // namespace

// The iterators of a product are rows, then columns, blocks of the sum, and places in a block.
std::optional<MatrixProblem> MatrixProblemOf(const ir::Function& function,
                                             const target::MatrixUnit& unit) {
  const std::vector<BlockSite> blocks = BlocksIn(function.body);
  if (blocks.size() < 2) return std::nullopt;
  const ir::StmtNode &product = *blocks.front().block, &last = *blocks.back().block;
  const size_t iters = product.iters.size();
  if (product.init == nullptr || product.reads.size() < 2 || iters < 4) return std::nullopt;
  if (last.iters.size() + 2 != iters) return std::nullopt;
  std::vector<int64_t> extents;
  for (size_t i = 0; i < iters; ++i) {
    const bool reduces = product.iters[i].type == ir::IterType::kReduce;
    const int64_t* extent = ir::AsInt(product.iters[i].domain.extent);
    if (reduces != (i + 2 >= iters) || extent == nullptr) return std::nullopt;
    extents.push_back(*extent);
  }
  if (extents[iters - 1] != unit.block || extents[iters - 3] % unit.block != 0) return std::nullopt;
  MatrixProblem problem{.product = product.name, .last = last.name, .stages = {}};
  for (size_t i = 0; i + 4 < iters; ++i) problem.outer *= extents[i];
  problem.rows = extents[iters - 4];
  problem.columns = extents[iters - 3] / unit.block;
  problem.steps = extents[iters - 2];
  for (size_t b = 1; b < blocks.size(); ++b) {
    const ir::StmtNode& stage = *blocks[b].block;
    if (stage.init != nullptr) return std::nullopt;
    if (b + 1 < blocks.size()) problem.stages.push_back(stage.name);
    for (const ir::BufferRegion& read : stage.reads)
      problem.operands += read.buffer->role == ir::Role::kIntermediate ? 0 : 1;
  }
  return problem;
}

bool Fits(const target::MatrixUnit& unit, const MatrixProblem& p, const MatrixTile& t) {
  if (t.rows < 1 || t.columns < 1 || t.steps < 1 || t.threads < 1) return false;
  if (p.rows % t.rows != 0 || p.steps % t.steps != 0) return false;
  if (p.columns % (t.columns * t.threads) != 0) return false;
  // Three loops are around the product, of which the shortest becomes micro-ops.
  const int64_t micro_ops = std::min({t.rows, t.columns, t.steps}) * t.threads;
  return t.threads * t.columns * (t.rows + p.operands) <= unit.sums &&
         t.threads * t.rows * t.steps <= unit.inputs &&
         t.threads * t.columns * t.steps <= unit.weights && 4 * micro_ops <= unit.micro_ops;
}

double TileCycles(const target::MatrixUnit& unit, const MatrixProblem& p, const MatrixTile& t) {
  const auto d = [](int64_t n) { return static_cast<double>(n); };
  const double block = d(unit.block), bytes = d(unit.bytes_per_cycle);
  const double tiles = d(p.outer * (p.rows / t.rows) * (p.columns / t.columns));
  const double turns = d(p.steps / t.steps);  // of the sum, in a tile
  const double product = d(t.rows * t.columns * t.steps);
  const double load = d(unit.load_cycles) + d(t.rows * t.steps) * block / bytes +
                      d(t.columns * t.steps) * block * block / bytes;
  const double both = t.threads > 1 ? std::max(load, product) : load + product;
  const double sums = d(t.rows * t.columns);
  const double epilogue = sums * (1 + d(unit.sums_cycles) * static_cast<double>(p.stages.size())) +
                          d(t.columns * p.operands) * block * kSumBytes / bytes +
                          d(unit.load_cycles * p.operands);
  const double store = d(unit.load_cycles) + sums * block / bytes;
  return tiles * (turns * both + epilogue + (t.threads > 1 ? 0 : store)) + load + store;
}

std::vector<int64_t> DivisorsOf(int64_t n) {
  std::vector<int64_t> divisors;
  for (int64_t d = 1; d <= n; ++d) {
    if (n % d == 0) divisors.push_back(d);
  }
  return divisors;
}

std::optional<MatrixTile> BestTile(const target::MatrixUnit& unit, const MatrixProblem& p,
                                   const MatrixTile& given) {
  std::optional<MatrixTile> best;
  double least = 0;
  const std::vector<int64_t> some = {2, 1};
  for (const int64_t threads : given.threads > 0 ? std::vector{given.threads} : some) {
    for (const int64_t rows : MenuOf(given.rows, p.rows)) {
      for (const int64_t columns : MenuOf(given.columns, p.columns)) {
        for (const int64_t steps : MenuOf(given.steps, p.steps)) {
          const MatrixTile tile{rows, columns, steps, threads};
          if (!Fits(unit, p, tile)) continue;
          const double cycles = TileCycles(unit, p, tile);
          if (best.has_value() && cycles >= least) continue;
          best = tile;
          least = cycles;
        }
      }
    }
  }
  return best;
}

}  // namespace tilewright::schedule
