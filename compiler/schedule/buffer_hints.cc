// storage_align, swizzle, double_buffer, prefetch, stream_writes: how data lies and moves, not what
// is computed.
#include <algorithm>
#include <utility>

#include "compiler/ir/expr_parts.h"
#include "compiler/ir/streamed_writes.h"
#include "compiler/ir/tensor_intrinsics.h"
#include "compiler/ir/visit.h"
#include "compiler/schedule/legality.h"
#include "compiler/schedule/primitives.h"
#include "compiler/schedule/produced.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::schedule {
namespace {

using analysis::Analyzer;
using ir::Expr;
using ir::Stmt;
using ir::StmtNode;
using support::StrCat;

// What one prefetch brings. Not the machine's line: a step means the same wherever it is replayed.
constexpr int64_t kLineBytes = 64;
constexpr int64_t kMaxPrefetch = 64;  // per iteration: more is traffic, not help

int64_t IntOption(const Step& step, std::string_view key) {
  return support::ParseInt64(step.Option(key)).value_or(0);
}

absl::Status CheckWritesIntermediate(const Step& step, const Stmt& block) {
  if (block->writes.size() == 1 && block->writes[0].buffer->role == ir::Role::kIntermediate) {
    return absl::OkStatus();
  }
  return Refuse(step, "not_intermediate",
                "expected a block that writes one intermediate buffer, found another", block);
}

// The rows of dimension `dim` of the intermediate that the block writes are of constant size.
absl::Status CheckRows(const Step& step, const Stmt& block, int64_t dim) {
  TW_TRY(CheckWritesIntermediate(step, block));
  const ir::Buffer& buffer = block->writes[0].buffer;
  if (dim + 1 >= static_cast<int64_t>(buffer->shape.size())) {
    return Refuse(
        step, "dimension",
        StrCat("expected a dimension of ", buffer->name, " with another inside it, found ", dim),
        block);
  }
  return absl::OkStatus();
}

// How many dimensions are inside `dim`.
int Inside(const ir::BufferNode& buffer, int64_t dim) {
  return static_cast<int>(static_cast<int64_t>(buffer.shape.size()) - 1 - dim);
}

// The loops around the block and everything that reads its result; nullopt if nothing reads it.
std::optional<std::vector<Stmt>> LoopsAroundReaders(const Path& path,
                                                    const std::vector<BlockSite>& sites) {
  const Stmt& block = path.back();
  std::vector<Stmt> shared = LoopsOf(path);
  bool consumed = false;
  for (const BlockSite& site : sites) {
    if (site.block == block || !Reads(*site.block, block->writes[0].buffer)) continue;
    consumed = true;
    while (!shared.empty() && !IsBelow(site, shared.back()->var)) shared.pop_back();
  }
  if (!consumed) return std::nullopt;
  return shared;
}

bool IsTensorized(const ir::StmtNode& block) {
  bool found = false;
  ir::VisitStmts(block.body, [&](const Stmt& s) {
    found = found || (s->kind == ir::StmtKind::kFor && !ir::TensorNameOf(*s).empty());
    return !found;
  });
  return found;
}

}  // namespace

absl::Status ApplyStorageAlign(Schedule& s, const Step& step) {
  TW_ASSIGN(Path path, BlockPath(s, step, 0));
  const Stmt& block = path.back();
  const int64_t dim = IntOption(step, "dim");
  TW_TRY(CheckRows(step, block, dim));
  if (IntOption(step, "offset") >= IntOption(step, "factor")) {
    return Refuse(step, "offset", "expected an offset below the factor, found a larger one", block);
  }
  const ir::Buffer buffer = block->writes[0].buffer;
  auto node = std::make_shared<ir::BufferNode>(*buffer);
  node->storage_align = {Inside(*buffer, dim), IntOption(step, "factor"),
                         IntOption(step, "offset")};
  ReplaceIntermediate(s, buffer, node);
  return absl::OkStatus();
}

absl::Status ApplySwizzle(Schedule& s, const Step& step) {
  TW_ASSIGN(Path path, BlockPath(s, step, 0));
  const Stmt& block = path.back();
  const int64_t dim = IntOption(step, "dim"), vector = IntOption(step, "vector");
  TW_TRY(CheckRows(step, block, dim));
  const ir::Buffer buffer = block->writes[0].buffer;
  for (size_t d = static_cast<size_t>(dim) + 1; d < buffer->shape.size(); ++d) {
    if (ir::AsInt(buffer->shape[d]) != nullptr) continue;
    return Refuse(step, "symbolic_extent",
                  StrCat("expected constant extents inside dimension ", dim, " of ", buffer->name,
                         ", found another"),
                  block);
  }
  int64_t row = 1;
  for (size_t d = static_cast<size_t>(dim) + 1; d < buffer->shape.size(); ++d)
    row *= *ir::AsInt(buffer->shape[d]);
  const int64_t vectors = row / vector;
  const bool whole = row % vector == 0 && vectors > 1 && (vectors & (vectors - 1)) == 0;
  const std::vector<BlockSite> sites = BlocksIn(path[0]);
  const std::optional<std::vector<Stmt>> around = LoopsAroundReaders(path, sites);
  // A tile inside of loops is compacted: its rows become shorter.
  if (!whole && (!around.has_value() || around->empty())) {
    return Refuse(step, "row",
                  StrCat("expected rows of a power of two of vectors of ", vector, ", found ", row,
                         " elements"),
                  block);
  }
  for (const BlockSite& site : sites) {
    if (!Writes(*site.block, buffer) && !Reads(*site.block, buffer)) continue;
    if (!IsTensorized(*site.block)) continue;
    return Refuse(step, "tensorized",
                  StrCat("expected that no tensor intrinsic uses ", buffer->name, ", found one"),
                  site.block);
  }
  auto node = std::make_shared<ir::BufferNode>(*buffer);
  node->swizzle = {Inside(*buffer, dim), vector};
  ReplaceIntermediate(s, buffer, node);
  return absl::OkStatus();
}

absl::Status ApplyStreamWrites(Schedule& s, const Step& step) {
  TW_ASSIGN(Path path, BlockPath(s, step, 0));
  const Stmt& block = path.back();
  if (block->writes.size() != 1 || block->writes[0].buffer->role != ir::Role::kOutput) {
    return Refuse(step, "not_output",
                  "expected a block that writes one output of the function, found another", block);
  }
  const ir::Buffer& buffer = block->writes[0].buffer;
  for (const BlockSite& site : BlocksIn(path[0])) {
    // A sum reads what it has so far, which its regions do not say.
    bool reads = Reads(*site.block, buffer);
    ir::VisitExprsIn(site.block->body, [&](const Expr& e) {
      reads = reads || (e->kind == ir::ExprKind::kLoad && e->buffer == buffer);
      return !reads;
    });
    if (!reads) continue;
    return Refuse(step, "read",
                  StrCat("expected that nothing reads ", buffer->name, ", found a block that does"),
                  site.block);
  }
  ir::SetStreamedWrites(&s.mutable_function(), buffer->name);
  return absl::OkStatus();
}

absl::Status ApplyDoubleBuffer(Schedule& s, const Step& step) {
  TW_ASSIGN(Path path, BlockPath(s, step, 0));
  const Stmt& block = path.back();
  TW_TRY(CheckWritesIntermediate(step, block));
  const ir::Buffer& buffer = block->writes[0].buffer;
  std::vector<BlockSite> sites = BlocksIn(path[0]);
  if (WritersOf(sites, buffer).size() != 1) {
    return Refuse(step, "several_writers",
                  StrCat("expected one block that writes ", buffer->name, ", found more"), path[0]);
  }
  const std::optional<std::vector<Stmt>> shared = LoopsAroundReaders(path, sites);
  if (!shared.has_value() || shared->empty()) {
    return Refuse(step, "not_in_loop",
                  StrCat("expected a loop around ", block->name, " and all that reads ",
                         buffer->name, ", found none"),
                  path[0]);
  }
  if (shared->back()->for_kind != ir::ForKind::kSerial) {
    return Refuse(step, "not_serial",
                  StrCat("expected that the loop ", shared->back()->var->name,
                         " runs one iteration after the other, found a mapped one"),
                  shared->back());
  }
  auto node = std::make_shared<StmtNode>(*block);
  node->annotations["double_buffer"] = int64_t{1};
  s.SetBody(ReplaceAt(path, path.size() - 1, std::move(node)));
  return absl::OkStatus();
}

namespace {

Stmt PrefetchNest(Schedule& s, const ir::Buffer& buffer, const std::vector<Expr>& mins,
                  const std::vector<int64_t>& counts, int64_t line_elements, Analyzer analyzer,
                  std::string* name, std::vector<ir::Var>* loops) {
  StmtNode block{.kind = ir::StmtKind::kBlock};
  block.name = *name = s.UniqueName(buffer->name + "_prefetch");
  std::vector<Expr> point, guards;
  for (size_t d = 0; d < counts.size(); ++d) {
    const ir::DType type = buffer->shape[d]->dtype;
    std::string axis = s.UniqueName("p" + std::to_string(d));
    loops->push_back(ir::MakeVar(axis, type));
    analyzer.SetRange(loops->back(), {ir::Int(0, type), ir::Int(counts[d], type)});
    ir::Var var = ir::MakeVar(s.UniqueName("v" + axis), type);
    bool last = d + 1 == counts.size();
    Expr at = mins[d] + (last ? loops->back() * ir::Int(line_elements, type) : loops->back());
    at = analyzer.Normal(at);
    block.iters.push_back({var, {ir::Int(0, type), buffer->shape[d]}, ir::IterType::kSpatial, at});
    guards.push_back(at >= ir::Int(0, type));
    guards.push_back(at < buffer->shape[d]);
    point.push_back(var);
  }
  block.predicate = analyzer.NormalPredicate(ir::Conjunction(guards));
  ir::BufferRegion region{buffer, {}};
  for (const Expr& p : point) region.region.push_back({p, ir::Int(1, p->dtype)});
  block.reads = {region};
  block.body = ir::MakeEvaluate(ir::Call(ir::Intrinsic::kPrefetch, {ir::Load(buffer, point)}));
  Stmt nest = ir::MakeBlock(std::move(block));
  for (size_t d = counts.size(); d-- > 0;) {
    const ir::DType type = (*loops)[d]->dtype;
    nest = ir::MakeFor((*loops)[d], ir::Int(0, type), ir::Int(counts[d], type), std::move(nest));
  }
  return nest;
}

}  // namespace

absl::Status ApplyPrefetch(Schedule& s, const Step& step) {
  TW_ASSIGN(Path block_path, BlockPath(s, step, 0));
  TW_ASSIGN(Path loop_path, LoopPath(s, step, 1));
  const BlockSite site{block_path.back(), LoopsOf(block_path)};
  const Stmt& loop = loop_path.back();
  if (!IsBelow(site, loop->var)) {
    return Refuse(step, "not_around",
                  StrCat("expected a loop around ", site.block->name, ", found ", loop->var->name),
                  loop);
  }
  if (HasLoopOfKind(LoopsOf(loop_path), ir::ForKind::kVectorized)) {
    return Refuse(step, "vectorized", "expected a place outside vectorised loops, found one inside",
                  loop);
  }
  const ir::Buffer buffer = ReadBuffer(*site.block, IntOption(step, "read"));
  if (buffer == nullptr || !IsGiven(buffer) || buffer->shape.empty()) {
    return Refuse(step, "not_parameter", "expected a read of a parameter, found none", site.block);
  }
  Box box(buffer->shape.size());
  bool first = true;
  for (const ir::BufferRegion& r : site.block->reads) {
    if (r.buffer != buffer) continue;
    GrowBox(s.function(), site, r, loop->var, first, &box);
    first = false;
  }
  // The region of a later iteration, line by line.
  const int64_t line = std::max<int64_t>(1, kLineBytes / buffer->dtype.bytes());
  Analyzer analyzer = AnalyzerOf(s.function(), LoopsOf(loop_path));
  ir::VarMap ahead{
      {loop->var.get(), loop->var + ir::Int(IntOption(step, "distance"), loop->var->dtype)}};
  std::vector<Expr> mins;
  std::vector<int64_t> counts;
  int64_t total = 1;
  for (size_t d = 0; d < box.size() && total <= kMaxPrefetch; ++d) {
    if (!box[d].has_value()) {
      total = kMaxPrefetch + 1;
      break;
    }
    bool last = d + 1 == box.size();
    mins.push_back(analyzer.Normal(ir::Substitute(ToExpr(box[d]->min), ahead)));
    counts.push_back(last ? (box[d]->extent + line - 1) / line : box[d]->extent);
    total = counts.back() > kMaxPrefetch ? kMaxPrefetch + 1 : total * counts.back();
  }
  if (total > kMaxPrefetch) {
    return Refuse(step, "region",
                  StrCat("expected a region of at most ", kMaxPrefetch, " lines of ", buffer->name,
                         " per iteration of ", loop->var->name, ", found more"),
                  loop);
  }
  std::string name;
  std::vector<ir::Var> loops;
  Stmt nest = PrefetchNest(s, buffer, mins, counts, line, analyzer, &name, &loops);
  auto node = std::make_shared<StmtNode>(*loop);
  node->body = ir::MakeSeq({std::move(nest), loop->body});
  s.SetBody(ReplaceAt(loop_path, loop_path.size() - 1, std::move(node)));
  s.AddBlock(name);
  for (const ir::Var& v : loops) s.AddLoop(v);
  return absl::OkStatus();
}

}  // namespace tilewright::schedule
