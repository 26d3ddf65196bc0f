// The default for a matrix unit: a product of bytes with a matrix of weights in blocks, then
// operations on its sums, each a block, and a last block that stores bytes.
//   for m, n, ko, ki: C += X * W;  for m, n: S = f(C);  for m, n: Y = i8(S)
//     → for m_0, n_0, threads { for ko_0 { load X, W;  C += X x W };  S = f(C);  store Y }
// The loops around each intrinsic become loops of its instructions. A function of another form gets
// no steps, and code generation says what it cannot do.
#include <algorithm>

#include "compiler/ir/tensor_intrinsics.h"
#include "compiler/schedule/default_scheduler.h"
#include "compiler/schedule/legality.h"
#include "deploy/support/strings.h"

namespace tilewright::schedule {
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

// Copies of all parameters, and sums in the memory of sums.
bool DefaultScheduler::CacheMatrixOperands(const MatrixProblem& problem, MatrixCopies* copies) {
  if (!CacheOperand(problem.product, 0, "inp", &copies->inputs)) return false;
  if (!CacheOperand(problem.product, 1, "wgt", &copies->weights)) return false;
  for (const std::string& stage : problem.stages) {
    std::vector<ir::Buffer> seen;
    for (const ir::BufferRegion& read : BlockOf(stage)->reads) {
      if (std::find(seen.begin(), seen.end(), read.buffer) != seen.end()) continue;
      seen.push_back(read.buffer);
      if (read.buffer->role == ir::Role::kIntermediate) continue;
      const int index = static_cast<int>(seen.size()) - 1;
      if (!CacheOperand(stage, index, "acc", &copies->operands.emplace_back())) return false;
    }
  }
  std::vector<std::string> sums = problem.stages;
  sums.push_back(problem.product);
  return std::all_of(sums.begin(), sums.end(), [this](const std::string& name) {
    return Try({.kind = StepKind::kSetScope,
                .handles = {schedule_.BlockHandle(name)},
                .word = MatrixWord("acc")});
  });
}

// Splits the loops of the last block into tiles, and makes it a store. Returns the loop of threads,
// -1 if a step was refused.
int DefaultScheduler::TileMatrixResult(const std::string& last, const MatrixTile& tile) {
  const std::vector<int> loops = schedule_.LoopsOf(schedule_.BlockHandle(last));
  const int row = loops[loops.size() - 2], column = loops.back();
  const int64_t block = target_.machine.matrix.block;
  if (!Try({.kind = StepKind::kSplit, .handles = {row}, .factors = {kInfer, tile.rows}})) return -1;
  const std::vector<int> rows = schedule_.LastResults();
  if (!Try({.kind = StepKind::kSplit,
            .handles = {column},
            .factors = {kInfer, tile.threads, tile.columns, block}})) {
    return -1;
  }
  const std::vector<int> columns = schedule_.LastResults();
  if (!Try({.kind = StepKind::kReorder,
            .handles = {rows[0], columns[0], columns[1], rows[1], columns[2], columns[3]}})) {
    return -1;
  }
  if (!Try({.kind = StepKind::kTensorize,
            .handles = {rows[1]},
            .options = {{"intrin", MatrixWord("store")}}})) {
    return -1;
  }
  return columns[1];
}

// An operation on sums: at the loop of threads, by the first intrinsic that does it.
bool DefaultScheduler::PlaceMatrixStage(const std::string& name, int at) {
  if (!Try({.kind = StepKind::kComputeAt, .handles = {schedule_.BlockHandle(name), at}}))
    return false;
  const int column = schedule_.LastResults().back();
  const int64_t block = target_.machine.matrix.block;
  if (!Try({.kind = StepKind::kSplit, .handles = {column}, .factors = {kInfer, block}}))
    return false;
  const int lanes = schedule_.LastResults()[1];
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

// A copy of an operand: its last dimensions are whole blocks.
bool DefaultScheduler::PlaceMatrixLoad(const std::string& name, int at, std::string_view memory) {
  if (!Try({.kind = StepKind::kComputeAt, .handles = {schedule_.BlockHandle(name), at}}))
    return false;
  std::vector<int> loops = schedule_.LastResults();
  if (memory != "wgt") {
    const int64_t block = target_.machine.matrix.block;
    if (!Try({.kind = StepKind::kSplit, .handles = {loops.back()}, .factors = {kInfer, block}}))
      return false;
    loops.pop_back();
    loops.insert(loops.end(), schedule_.LastResults().begin(), schedule_.LastResults().end());
  }
  // Rows of rows of elements, of which each has one or two dimensions.
  const size_t inner = memory == "wgt" ? 4 : 3;
  const size_t first = loops.size() > inner ? loops.size() - inner : 0;
  return Try({.kind = StepKind::kTensorize,
              .handles = {loops[first]},
              .options = {{"intrin", MatrixWord(StrCat("load.", memory))}}});
}

bool DefaultScheduler::PlaceMatrixProduct(const std::string& name, const MatrixTile& tile, int at,
                                          const MatrixCopies& copies) {
  const int product = schedule_.BlockHandle(name);
  if (!Try({.kind = StepKind::kComputeAt, .handles = {product, at}})) return false;
  const std::vector<int> loops = schedule_.LastResults();
  const size_t n = loops.size();
  const int64_t block = target_.machine.matrix.block;
  const int row = loops[n - 4], inner = loops[n - 1];
  if (!Try({.kind = StepKind::kSplit, .handles = {loops[n - 3]}, .factors = {kInfer, block}}))
    return false;
  const std::vector<int> columns = schedule_.LastResults();
  if (!Try({.kind = StepKind::kSplit, .handles = {loops[n - 2]}, .factors = {kInfer, tile.steps}}))
    return false;
  const std::vector<int> steps = schedule_.LastResults();
  if (!Try({.kind = StepKind::kReorder,
            .handles = {steps[0], steps[1], columns[0], row, columns[1], inner}})) {
    return false;
  }
  if (!PlaceMatrixLoad(copies.inputs, steps[0], "inp") ||
      !PlaceMatrixLoad(copies.weights, steps[0], "wgt"))
    return false;
  return Try({.kind = StepKind::kTensorize,
              .handles = {columns[1]},
              .options = {{"intrin", MatrixWord("gemm")}}});
}

void DefaultScheduler::RunMatrix() {
  const target::MatrixUnit& unit = target_.machine.matrix;
  const std::optional<MatrixProblem> problem = MatrixProblemOf(schedule_.function(), unit);
  if (!problem.has_value()) return;
  const BlockChoice& choice = ChoiceOf(problem->product);
  const std::optional<MatrixTile> tile =
      BestTile(unit, *problem, {choice.rows, choice.vectors, choice.unroll, choice.threads});
  MatrixCopies copies;
  if (!tile.has_value() || !CacheMatrixOperands(*problem, &copies)) return;
  const int at = TileMatrixResult(problem->last, *tile);
  if (at < 0) return;
  std::vector<std::string> stages = problem->stages;
  for (; !stages.empty(); stages.pop_back()) {
    if (!PlaceMatrixStage(stages.back(), at)) return;
  }
  if (!PlaceMatrixProduct(problem->product, *tile, at, copies)) return;
  for (const std::string& operand : copies.operands) {
    if (!PlaceMatrixLoad(operand, at, "acc")) return;
  }
  if (tile->threads > 1) Try({.kind = StepKind::kVirtualThread, .handles = {at}});
}

}  // namespace tilewright::schedule
