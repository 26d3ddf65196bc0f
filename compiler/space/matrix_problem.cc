// Which functions are problems of a matrix unit: the forms of their blocks.
#include <algorithm>
#include <array>

#include "compiler/ir/expr_parts.h"
#include "compiler/ir/visit.h"
#include "compiler/schedule/legality.h"
#include "compiler/space/block_info.h"
#include "compiler/space/lane_axes.h"
#include "compiler/space/matrix_tiles.h"
#include "deploy/support/strings.h"

namespace tilewright::space {

using schedule::BlocksIn;
using schedule::BlockSite;

namespace {

// Extents of a block's iterators; empty where one is not constant, or where the last `reduced` are
// not those that it reduces.
std::vector<int64_t> ExtentsOf(const ir::StmtNode& block, size_t reduced) {
  std::vector<int64_t> extents;
  const size_t iters = block.iters.size();
  for (size_t i = 0; i < iters; ++i) {
    const bool reduces = block.iters[i].type == ir::IterType::kReduce;
    const int64_t* extent = ir::AsInt(block.iters[i].domain.extent);
    if (reduces != (i + reduced >= iters) || extent == nullptr) return {};
    extents.push_back(*extent);
  }
  return extents;
}

// position = stride * output + dilation * tap
std::optional<MatrixWindow> WindowOf(const ir::Expr& position, const ir::IterVar& output,
                                     const ir::IterVar& tap) {
  const std::vector<ir::Var> vars = {output.var, tap.var};
  const auto steps = ir::CoefficientsOf(position, vars);
  const ir::SumTerms terms = ir::TermsOf(position);
  if (!steps || terms.constant != 0) return std::nullopt;
  MatrixWindow window{.taps = *ir::AsInt(tap.domain.extent)};
  // An extent of one leaves no term of its variable.
  window.stride = std::max<int64_t>(1, (*steps)[0]);
  window.dilation = std::max<int64_t>(1, (*steps)[1]);
  return window;
}

// Whether a block puts at most so many zeros around the image that the product reads, and no window
// lies in them alone.
bool PadsWithZeros(const ir::StmtNode& block, const MatrixProblem& problem, int64_t most) {
  const ir::Stmt& store = block.body;
  if (block.iters.size() != 5 || store->kind != ir::StmtKind::kStore) return false;
  const ir::Expr& value = store->value;
  if (value->kind != ir::ExprKind::kSelect || !ir::IsInt(value->args[2], 0)) return false;
  const ir::Expr& image = value->args[1];
  if (image->kind != ir::ExprKind::kLoad || image->args.size() != 5) return false;
  for (const size_t d : {2, 3}) {
    const MatrixWindow& window = d == 2 ? problem.down : problem.across;
    const int64_t begin = -ir::TermsOf(image->args[d]).constant;
    const int64_t *padded = ir::AsInt(store->buffer->shape[d]),
                  *size = ir::AsInt(image->buffer->shape[d]);
    if (padded == nullptr || size == nullptr) return false;
    const int64_t reach = (window.taps - 1) * window.dilation;
    for (const int64_t zeros : {begin, *padded - begin - *size}) {
      if (zeros > std::min(most, reach)) return false;
    }
  }
  return true;
}

// Whether a block takes every so many rows of an image, `rows` in all, and nothing else. Sets `all`
// to whether the next image begins so many rows behind the last one.
bool TakesRows(const ir::StmtNode& block, int64_t rows, bool* all) {
  const ir::Stmt& store = block.body;
  if (block.iters.size() != 5 || store->kind != ir::StmtKind::kStore) return false;
  const ir::Expr& image = store->value;
  if (image->kind != ir::ExprKind::kLoad || image->args.size() != 5) return false;
  for (size_t d = 0; d < 5; ++d) {
    const std::vector<ir::Var> var = {block.iters[d].var};
    const auto step = ir::CoefficientsOf(image->args[d], var);
    const ir::SumTerms terms = ir::TermsOf(image->args[d]);
    if (!step || terms.constant != 0 || ((*step)[0] > 1 && d != 2)) return false;
    if (d == 2) *all = ir::IsInt(image->buffer->shape[2], rows * (*step)[0]);
  }
  return true;
}

// The blocks behind `first`: operations on sums, and the one that makes bytes of them.
bool AddStages(const std::vector<BlockSite>& blocks, size_t first, MatrixProblem* problem) {
  for (size_t b = first; b < blocks.size(); ++b) {
    const ir::StmtNode& stage = *blocks[b].block;
    if (stage.init != nullptr) return false;
    if (b + 1 < blocks.size()) {
      problem->stages.push_back(stage.name);
      problem->immediates += stage.reads.size() == 1 ? 1 : 0;
    }
    for (const ir::BufferRegion& read : stage.reads) {
      if (read.buffer->role == ir::Role::kIntermediate) continue;
      ++(read.buffer->dtype == ir::kI8 ? problem->images : problem->operands);
    }
  }
  return true;
}

// What the product reads first, its own result left out.
const ir::BufferRegion* DataOf(const ir::StmtNode& product) {
  for (const ir::BufferRegion& read : product.reads) {
    if (read.buffer != product.writes[0].buffer) return &read;
  }
  return nullptr;
}

// A convolution: iterators are image, column blocks, rows, width, lanes; then blocks of the sum,
// taps down and across, places in a block.
std::optional<MatrixProblem> ConvolutionOf(const std::vector<BlockSite>& blocks,
                                           const target::MatrixUnit& unit) {
  const ir::StmtNode& before = *blocks[0].block;
  const size_t at = before.init == nullptr ? 1 : 0;
  if (blocks.size() < at + 2) return std::nullopt;
  const ir::StmtNode &product = *blocks[at].block, &last = *blocks.back().block;
  const std::vector<int64_t> extents = ExtentsOf(product, 4);
  if (extents.size() != 9 || product.init == nullptr || last.iters.size() != 5) return std::nullopt;
  if (extents[4] != unit.block || extents[8] != unit.block) return std::nullopt;
  MatrixProblem problem{.product = product.name, .last = last.name, .staging = {}, .stages = {}};
  problem.image = true;
  problem.outer = extents[0];
  problem.columns = extents[1];
  problem.rows = extents[2];
  problem.width = extents[3];
  problem.steps = extents[5];
  const ir::BufferRegion* data = DataOf(product);
  if (data == nullptr || data->region.size() != 5) return std::nullopt;
  const auto down = WindowOf(data->region[2].min, product.iters[2], product.iters[6]);
  const auto across = WindowOf(data->region[3].min, product.iters[3], product.iters[7]);
  if (!down || !across) return std::nullopt;
  problem.down = *down;
  problem.across = *across;
  problem.apart = ir::UsesVar(data->region[1].min, product.iters[1].var);
  problem.whole_rows = at == 0 && ir::IsInt(data->buffer->shape[3], across->Inputs(problem.width));
  if (at == 1) {
    problem.skips_rows = TakesRows(before, problem.rows, &problem.whole_rows);
    if (!problem.skips_rows && !PadsWithZeros(before, problem, unit.padding)) return std::nullopt;
    problem.staging = before.name;
  }
  if (!AddStages(blocks, at + 1, &problem) || problem.images > 0) return std::nullopt;
  return problem;
}

// Operations on images in blocks of channels, each on the same elements.
std::optional<MatrixProblem> OperationsOf(const std::vector<BlockSite>& blocks,
                                          const target::MatrixUnit& unit) {
  const std::vector<int64_t> extents = ExtentsOf(*blocks.back().block, 0);
  if (extents.size() != 5 || extents[4] != unit.block) return std::nullopt;
  for (const BlockSite& site : blocks) {
    if (ExtentsOf(*site.block, 0) != extents) return std::nullopt;
  }
  MatrixProblem problem{
      .product = {}, .last = blocks.back().block->name, .staging = {}, .stages = {}};
  problem.image = true;
  problem.outer = extents[0];
  problem.columns = extents[1];
  problem.rows = extents[2];
  problem.width = extents[3];
  problem.whole_rows = true;
  if (!AddStages(blocks, 0, &problem) || problem.images == 0) return std::nullopt;
  return problem;
}

// Whether blocks make sums of bytes, maxima of these, and bytes again.
bool AreMaximaOfBytes(const ir::StmtNode& wide, const ir::StmtNode& pool,
                      const ir::StmtNode& last) {
  if (wide.init != nullptr || pool.init == nullptr || last.init != nullptr) return false;
  if (wide.reads.size() != 1 || wide.reads[0].buffer->dtype != ir::kI8) return false;
  for (const ir::StmtNode* converts : {&wide, &last}) {
    const ir::Stmt& store = converts->body;
    if (store->kind != ir::StmtKind::kStore || store->value->kind != ir::ExprKind::kCast)
      return false;
  }
  return wide.writes[0].buffer->dtype == ir::kI32 && pool.writes[0].buffer->dtype == ir::kI32 &&
         last.writes[0].buffer->dtype == ir::kI8 && pool.body->kind == ir::StmtKind::kStore &&
         pool.body->value->kind == ir::ExprKind::kMax;
}

// The maxima of windows: perhaps the image with zeros around it, its bytes as sums, maxima, bytes.
std::optional<MatrixProblem> PoolOf(const std::vector<BlockSite>& blocks,
                                    const target::MatrixUnit& unit) {
  if (blocks.size() != 3 && blocks.size() != 4) return std::nullopt;
  const size_t at = blocks.size() - 3;
  const ir::StmtNode &wide = *blocks[at].block, &pool = *blocks[at + 1].block,
                     &last = *blocks[at + 2].block;
  if (!AreMaximaOfBytes(wide, pool, last)) return std::nullopt;
  const std::vector<int64_t> extents = ExtentsOf(pool, 2);
  const ir::BufferRegion* data = DataOf(pool);
  if (extents.size() != 7 || extents[4] != unit.block || data == nullptr) return std::nullopt;
  if (data->region.size() != 5 || wide.writes[0].buffer != data->buffer) return std::nullopt;
  MatrixProblem problem{.product = {},
                        .last = last.name,
                        .wide = wide.name,
                        .pool = pool.name,
                        .staging = {},
                        .stages = {}};
  problem.image = true;
  problem.outer = extents[0];
  problem.columns = extents[1];
  problem.rows = extents[2];
  problem.width = extents[3];
  const auto down = WindowOf(data->region[2].min, pool.iters[2], pool.iters[5]);
  const auto across = WindowOf(data->region[3].min, pool.iters[3], pool.iters[6]);
  if (!down || !across) return std::nullopt;
  problem.down = *down;
  problem.across = *across;
  problem.whole_rows = at == 0 && ir::IsInt(data->buffer->shape[3], across->Inputs(problem.width));
  if (at == 1) {
    if (!PadsWithZeros(*blocks[0].block, problem, unit.padding)) return std::nullopt;
    problem.staging = blocks[0].block->name;
  }
  return problem;
}

// The iterators of a product are rows, then columns, blocks of the sum, and places in a block.
std::optional<MatrixProblem> ProductOf(const std::vector<BlockSite>& blocks,
                                       const target::MatrixUnit& unit) {
  const ir::StmtNode &product = *blocks.front().block, &last = *blocks.back().block;
  const std::vector<int64_t> extents = ExtentsOf(product, 2);
  const size_t iters = extents.size();
  if (product.init == nullptr || product.reads.size() < 2 || iters < 4) return std::nullopt;
  if (last.iters.size() + 2 != iters) return std::nullopt;
  if (extents[iters - 1] != unit.block || extents[iters - 3] % unit.block != 0) return std::nullopt;
  MatrixProblem problem{.product = product.name, .last = last.name, .staging = {}, .stages = {}};
  for (size_t i = 0; i + 4 < iters; ++i) problem.outer *= extents[i];
  problem.rows = extents[iters - 4];
  problem.columns = extents[iters - 3] / unit.block;
  problem.steps = extents[iters - 2];
  problem.whole_rows = true;
  if (!AddStages(blocks, 1, &problem) || problem.images > 0) return std::nullopt;
  return problem;
}

// A type of an operand or result that the unit has not.
std::optional<ir::DType> ForeignType(const ir::Function& function) {
  for (const ir::Buffer& param : function.params) {
    if (param->dtype != ir::kI8 && param->dtype != ir::kI32) return param->dtype;
  }
  return std::nullopt;
}

}  // namespace

std::optional<MatrixProblem> MatrixProblemOf(const ir::Function& function,
                                             const target::MatrixUnit& unit) {
  const std::vector<BlockSite> blocks = BlocksIn(function.body);
  if (blocks.size() < 2 || ForeignType(function)) return std::nullopt;
  if (blocks.back().block->writes[0].buffer->dtype != ir::kI8) return std::nullopt;
  for (const auto& form : {ConvolutionOf, ProductOf, OperationsOf, PoolOf}) {
    std::optional<MatrixProblem> problem = form(blocks, unit);
    if (problem) return problem;
  }
  return std::nullopt;
}

std::string WhyNotOnUnit(const ir::Function& function, const target::MatrixUnit& unit) {
  if (const auto type = ForeignType(function))
    return support::StrCat("it has ", ir::TypeName(*type), ", the unit i8 and i32");
  const std::optional<MatrixProblem> problem = MatrixProblemOf(function, unit);
  if (!problem) {
    return support::StrCat("it is no product, sum, mean or maximum of i8 in blocks of ", unit.block,
                           " that ends as i8");
  }
  const MatrixTile any = {.rows = 0, .columns = 0, .steps = 0, .threads = 0, .width = 0};
  if (!BestTile(unit, *problem, any)) return "no tile of it fits the memories of the unit";
  return "some of its operations are no instructions of the unit";
}

}  // namespace tilewright::space
