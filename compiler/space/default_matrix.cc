// The default for a matrix unit: a product of bytes with a matrix of weights in blocks, then
// operations on its sums, each a block, and a last block that stores bytes.
//   for m, n, ko, ki: C += X * W;  for m, n: S = f(C);  for m, n: Y = i8(S)
//     → for m_0, n_0, threads { for ko_0 { load X, W;  C += X x W };  S = f(C);  store Y }
// A convolution of an image in blocks of channels is one for each of its taps:
//   for n, c, h, w, l, ko, kh, kw, ki: C += P * W, with P = X inside of the image, else 0
//     → for n, c_0, h_0, w_0, threads { for ko_0 { load X as P, W;  C += P x W };  ...;  store Y }
// The maxima of windows of such an image are bytes that become sums, then maxima of these, at the
// loop of threads.
// Operations on such images without a product begin with bytes that become sums.
// The loops around each intrinsic become loops of its instructions. A function of another form gets
// no steps, and code generation says what it cannot do.
#include <algorithm>

#include "compiler/ir/tensor_intrinsics.h"
#include "compiler/schedule/legality.h"
#include "compiler/space/default_scheduler.h"
#include "deploy/support/strings.h"

namespace tilewright::space {
namespace {

using support::StrCat;

}  // namespace

std::string DefaultScheduler::MatrixWord(std::string_view part) const {
  return StrCat(target_.machine.matrix.name, ".", part);
}

// A copy of what `block` reads `read`-th, in a memory of the unit.
bool DefaultScheduler::CacheOperand(const std::string& block, int read, std::string_view memory,
                                    std::string* copy) {
  Step step{.kind = StepKind::kCacheRead, .handles = {schedule_.BlockHandle(block)}};
  if (read > 0) step.options["read"] = std::to_string(read);
  step.options["scope"] = MatrixWord(memory);
  if (!Try(step)) return false;
  *copy = schedule_.handles()[static_cast<size_t>(schedule_.LastResults()[0])].block;
  return true;
}

// Copies of what the product reads.
bool DefaultScheduler::CacheMatrixProduct(const MatrixProblem& problem, MatrixCopies* copies) {
  if (problem.staging.empty()) {
    if (!CacheOperand(problem.product, 0, "inp", &copies->inputs)) return false;
  } else {
    // Loads put zeros around what they bring.
    copies->inputs = problem.staging;
    if (!Try({.kind = StepKind::kSetScope,
              .handles = {schedule_.BlockHandle(problem.staging)},
              .word = MatrixWord("inp")})) {
      return false;
    }
  }
  return CacheOperand(problem.product, 1, "wgt", &copies->weights);
}

// Copies of all parameters, and sums in the memory of sums.
bool DefaultScheduler::CacheMatrixOperands(const MatrixProblem& problem, MatrixCopies* copies) {
  if (!problem.product.empty() && !CacheMatrixProduct(problem, copies)) return false;
  for (const std::string& stage : problem.stages) {
    std::vector<ir::Buffer> seen;
    for (const ir::BufferRegion& read : BlockOf(stage)->reads) {
      if (std::find(seen.begin(), seen.end(), read.buffer) != seen.end()) continue;
      seen.push_back(read.buffer);
      if (read.buffer->role == ir::Role::kIntermediate) continue;
      const int index = static_cast<int>(seen.size()) - 1;
      MatrixCopy& copy = copies->operands.emplace_back();
      copy.memory = read.buffer->dtype == ir::kI8 ? "inp" : "acc";
      if (!CacheOperand(stage, index, copy.memory, &copy.block)) return false;
    }
  }
  std::vector<std::string> sums = problem.stages;
  if (!problem.product.empty()) sums.push_back(problem.product);
  return std::all_of(sums.begin(), sums.end(), [this](const std::string& name) {
    return Try({.kind = StepKind::kSetScope,
                .handles = {schedule_.BlockHandle(name)},
                .word = MatrixWord("acc")});
  });
}

// Splits the loops of the last block into tiles, and makes it a store. Returns the loop of threads,
// -1 if a step was refused.
int DefaultScheduler::TileMatrixResult(const MatrixProblem& problem, const MatrixTile& tile) {
  const std::vector<int> loops = schedule_.LoopsOf(schedule_.BlockHandle(problem.last));
  const bool image = problem.image, along_columns = ThreadsAlongColumns(problem, tile);
  const size_t n = loops.size();
  // Of an image the columns' lanes are a loop of their own, and come before its rows.
  const int row = loops[image ? n - 3 : n - 2], column = loops[image ? n - 4 : n - 1];
  const int64_t for_columns = along_columns ? tile.threads : 1,
                block = target_.machine.matrix.block;
  const auto split = [this](int loop, std::vector<int64_t> factors) {
    const bool done = Try({.kind = StepKind::kSplit, .handles = {loop}, .factors = factors});
    return done ? schedule_.LastResults() : std::vector<int>();
  };
  const std::vector<int> rows = split(row, {kInfer, tile.threads / for_columns, tile.rows});
  const std::vector<int> columns = image
                                       ? split(column, {kInfer, for_columns, tile.columns})
                                       : split(column, {kInfer, for_columns, tile.columns, block});
  const std::vector<int> width =
      image ? split(loops[n - 2], {kInfer, tile.width}) : std::vector<int>();
  if (rows.empty() || columns.empty() || (image && width.empty())) return -1;
  const int threads = along_columns ? columns[1] : rows[1];
  const int others = along_columns ? rows[1] : columns[1];
  std::vector<int> order = {rows[0], columns[0], others, threads, rows[2], columns[2]};
  if (image)
    order = {columns[0], rows[0], width[0], others, threads, columns[2], rows[2], width[1]};
  order.push_back(image ? loops.back() : columns.back());
  if (!Try({.kind = StepKind::kReorder, .handles = order})) return -1;
  if (!Try({.kind = StepKind::kTensorize,
            .handles = {order.back()},
            .options = {{"intrin", MatrixWord("store")}}})) {
    return -1;
  }
  return threads;
}

// The loop over the lanes of a block whose loops are `loops`; its last dimension is whole blocks.
// -1 if a step was refused.
int DefaultScheduler::LanesOf(const std::vector<int>& loops, bool image) {
  if (image) return loops.back();
  const int64_t block = target_.machine.matrix.block;
  if (!Try({.kind = StepKind::kSplit, .handles = {loops.back()}, .factors = {kInfer, block}}))
    return -1;
  return schedule_.LastResults()[1];
}

// An operation on sums: at the loop of threads, by the first intrinsic that does it.
bool DefaultScheduler::PlaceMatrixStage(const std::string& name, int at, bool image) {
  if (!Try({.kind = StepKind::kComputeAt, .handles = {schedule_.BlockHandle(name), at}}))
    return false;
  const int lanes = LanesOf(schedule_.LastResults(), image);
  if (lanes < 0) return false;
  const std::string prefix = MatrixWord("");
  for (const ir::TensorIntrinsic& intrinsic : ir::TensorIntrinsics()) {
    if (intrinsic.op != ir::TensorOp::kAlu || !intrinsic.name.starts_with(prefix)) continue;
    if (Try({.kind = StepKind::kTensorize,
             .handles = {lanes},
             .options = {{"intrin", intrinsic.name}}})) {
      return true;
    }
  }
  return false;
}

// A copy of an operand, element by element: vectors of lanes, or matrices. The code generator joins
// them to larger transfers. Stays in front of all tiles if `at` is -1.
bool DefaultScheduler::PlaceMatrixLoad(const std::string& name, int at, std::string_view memory,
                                       bool image) {
  const int block = schedule_.BlockHandle(name);
  if (at >= 0 && !Try({.kind = StepKind::kComputeAt, .handles = {block, at}})) return false;
  const std::vector<int> loops = at >= 0 ? schedule_.LastResults() : schedule_.LoopsOf(block);
  const int element = memory == "wgt" ? loops[loops.size() - 2] : LanesOf(loops, image);
  return element >= 0 && Try({.kind = StepKind::kTensorize,
                              .handles = {element},
                              .options = {{"intrin", MatrixWord(StrCat("load.", memory))}}});
}

bool DefaultScheduler::PlaceMatrixProduct(const MatrixProblem& problem, const MatrixTile& tile,
                                          int at, const MatrixCopies& copies) {
  const int product = schedule_.BlockHandle(problem.product);
  if (!Try({.kind = StepKind::kComputeAt, .handles = {product, at}})) return false;
  std::vector<int> loops = schedule_.LastResults();
  const bool image = problem.image;
  const size_t n = loops.size(), reduced = image ? 4 : 2;
  const int inner = loops.back();
  std::vector<int> around(
      loops.begin() + static_cast<std::ptrdiff_t>(n - reduced - (image ? 4 : 2)),
      loops.begin() + static_cast<std::ptrdiff_t>(n - reduced));
  int lanes = around.back();
  around.pop_back();
  if (!image) {
    lanes = LanesOf({lanes}, image);
    if (lanes < 0) return false;
    around.insert(around.begin(), schedule_.LastResults()[0]);
  }
  const int step = loops[n - reduced];
  if (!Try({.kind = StepKind::kSplit, .handles = {step}, .factors = {kInfer, tile.steps}}))
    return false;
  const std::vector<int> steps = schedule_.LastResults();
  std::vector<int> order = {steps[0], steps[1]};
  if (image) order.insert(order.end(), {loops[n - 3], loops[n - 2]});
  order.insert(order.end(), around.begin(), around.end());
  order.insert(order.end(), {lanes, inner});
  if (!Try({.kind = StepKind::kReorder, .handles = order})) return false;
  if (!PlaceMatrixLoad(copies.inputs, steps[0], "inp", image) ||
      !PlaceMatrixLoad(copies.weights, steps[0], "wgt", image))
    return false;
  return Try({.kind = StepKind::kTensorize,
              .handles = {lanes},
              .options = {{"intrin", MatrixWord("gemm")}}});
}

// The maxima at the loop of threads, one instruction for all taps; then what they read.
bool DefaultScheduler::PlaceMatrixPool(const MatrixProblem& problem, const std::string& inputs,
                                       int at) {
  if (!Try({.kind = StepKind::kComputeAt, .handles = {schedule_.BlockHandle(problem.pool), at}}))
    return false;
  const std::vector<int> loops = schedule_.LastResults();
  const size_t n = loops.size();
  std::vector<int> order = {loops[n - 2], loops[n - 1]};
  order.insert(order.end(), loops.end() - 6, loops.end() - 2);
  if (!Try({.kind = StepKind::kReorder, .handles = order}) ||
      !Try({.kind = StepKind::kTensorize,
            .handles = {order.back()},
            .options = {{"intrin", MatrixWord("alu.max.into")}}})) {
    return false;
  }
  return PlaceMatrixStage(problem.wide, at, problem.image) &&
         PlaceMatrixLoad(inputs, at, "inp", problem.image);
}

void DefaultScheduler::RunMatrixPool(const MatrixProblem& problem, const MatrixTile& tile) {
  std::string inputs = problem.staging;  // loads put zeros around what they bring
  if (inputs.empty()) {
    if (!CacheOperand(problem.wide, 0, "inp", &inputs)) return;
  } else if (!Try({.kind = StepKind::kSetScope,
                   .handles = {schedule_.BlockHandle(inputs)},
                   .word = MatrixWord("inp")})) {
    return;
  }
  for (const std::string& sums : {problem.pool, problem.wide}) {
    if (!Try({.kind = StepKind::kSetScope,
              .handles = {schedule_.BlockHandle(sums)},
              .word = MatrixWord("acc")})) {
      return;
    }
  }
  const int at = TileMatrixResult(problem, tile);
  if (at < 0 || !PlaceMatrixPool(problem, inputs, at)) return;
  if (tile.threads > 1) Try({.kind = StepKind::kVirtualThread, .handles = {at}});
}

void DefaultScheduler::RunMatrix() {
  const target::MatrixUnit& unit = target_.machine.matrix;
  const std::optional<MatrixProblem> problem = MatrixProblemOf(schedule_.function(), unit);
  if (!problem.has_value()) {
    if (explains()) trace_->Decide("", "matrix_tile", "no steps", "nothing of the unit's form");
    return;
  }
  const BlockChoice& choice = ChoiceOf(problem->key());
  const std::optional<MatrixTile> tile = BestTile(
      unit, *problem, {choice.rows, choice.vectors, choice.unroll, choice.threads, choice.planes});
  const Within rule(this, "matrix_tile", problem->key());
  if (explains()) {
    Decide(tile.has_value() ? StrCat(tile->rows, " rows x ", tile->columns, " columns, ",
                                     tile->steps, " steps, ", tile->threads, " threads")
                            : "no tile",
           tile.has_value() ? StrCat(TileCycles(unit, *problem, *tile), " cycles by the estimate")
                            : "none fits the memories");
  }
  if (tile.has_value() && !problem->pool.empty()) return RunMatrixPool(*problem, *tile);
  MatrixCopies copies;
  if (!tile.has_value() || !CacheMatrixOperands(*problem, &copies)) return;
  const int at = TileMatrixResult(*problem, *tile);
  if (at < 0) return;
  std::vector<std::string> stages = problem->stages;
  for (; !stages.empty(); stages.pop_back()) {
    if (!PlaceMatrixStage(stages.back(), at, problem->image)) return;
  }
  if (!problem->product.empty() && !PlaceMatrixProduct(*problem, *tile, at, copies)) return;
  const bool keeps = KeepsOperands(unit, *problem, *tile);
  for (const MatrixCopy& operand : copies.operands) {
    const bool stays = keeps && operand.memory == "acc";
    if (!PlaceMatrixLoad(operand.block, stays ? -1 : at, operand.memory, problem->image)) return;
  }
  if (tile->threads > 1) Try({.kind = StepKind::kVirtualThread, .handles = {at}});
}

}  // namespace tilewright::space
