// cache_read, cache_write, set_scope: where what a block reads and writes lives.
#include <algorithm>

#include "compiler/ir/text_words.h"
#include "compiler/ir/visit.h"
#include "compiler/schedule/legality.h"
#include "compiler/schedule/primitives.h"
#include "compiler/schedule/produced.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::schedule {
namespace {

using ir::Stmt;
using support::StrCat;

ir::Scope ScopeOf(std::string_view word) {
  return ir::ParseScope(word).value_or(ir::Scope::kGlobal);  // steps.def lists what is known
}

// out[v...] = in[v...] over the whole buffer, as a nest of its own.
struct CopyNest {
  Stmt nest;
  std::string block;
  std::vector<ir::Var> loops;
};

// `block_name` is unused so far. `loop_names` and `iter_names` per dimension; an empty name: the
// dimension has one element, at 0.
CopyNest MakeCopy(Schedule& s, const std::string& block_name,
                  const std::vector<std::string>& loop_names,
                  const std::vector<std::string>& iter_names, const ir::Buffer& in,
                  const ir::Buffer& out) {
  CopyNest copy;
  copy.block = block_name;
  ir::StmtNode block{.kind = ir::StmtKind::kBlock};
  block.name = copy.block;
  std::vector<ir::Expr> point;
  for (size_t d = 0; d < out->shape.size(); ++d) {
    const ir::DType type = out->shape[d]->dtype;
    ir::Expr zero = ir::Int(0, type);
    if (loop_names[d].empty()) {
      point.push_back(zero);
      continue;
    }
    copy.loops.push_back(ir::MakeVar(s.UniqueName(loop_names[d]), type));
    ir::Var var = ir::MakeVar(s.UniqueName(iter_names[d]), type);
    block.iters.push_back({var, {zero, out->shape[d]}, ir::IterType::kSpatial, copy.loops.back()});
    point.push_back(var);
  }
  ir::BufferRegion region{in, {}};
  for (const ir::Expr& p : point) region.region.push_back({p, ir::Int(1, p->dtype)});
  block.reads = {region};
  region.buffer = out;
  block.writes = {region};
  block.body = ir::MakeStore(out, point, ir::Load(in, point));
  Stmt nest = ir::MakeBlock(block);
  for (size_t i = copy.loops.size(); i-- > 0;) {
    nest = ir::MakeFor(copy.loops[i], block.iters[i].domain.min, block.iters[i].domain.extent,
                       std::move(nest));
  }
  copy.nest = std::move(nest);
  return copy;
}

// Names come from the block whose result is copied.
CopyNest MakeCopyOfResult(Schedule& s, const ir::StmtNode& source, const std::vector<int>& written,
                          const ir::Buffer& in, const ir::Buffer& out) {
  std::vector<std::string> loop_names, iter_names;
  for (int w : written) {
    const ir::IterVar* iter = w < 0 ? nullptr : &source.iters[static_cast<size_t>(w)];
    loop_names.push_back(iter == nullptr ? "" : LoopNameFor(*iter) + "_c");
    iter_names.push_back(iter == nullptr ? "" : iter->var->name + "_c");
  }
  return MakeCopy(s, s.UniqueName(out->name + "_copy"), loop_names, iter_names, in, out);
}

absl::Status CheckWholeBuffer(const Step& step, const Stmt& block,
                              const std::vector<int>& written) {
  const ir::Buffer& buffer = block->writes[0].buffer;
  for (size_t d = 0; d < written.size(); ++d) {
    if (written[d] < 0) continue;
    const ir::Range& domain = block->iters[static_cast<size_t>(written[d])].domain;
    const int64_t* extent = ir::AsInt(domain.extent);
    const int64_t* size = ir::AsInt(buffer->shape[d]);
    bool whole =
        ir::IsInt(domain.min, 0) && (domain.extent == buffer->shape[d] ||
                                     (extent != nullptr && size != nullptr && *extent == *size));
    if (!whole) {
      return Refuse(step, "partial_write",
                    StrCat("expected a block that writes all of ", buffer->name,
                           ", found a part of dimension ", d),
                    block);
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ApplyCacheRead(Schedule& s, const Step& step) {
  TW_ASSIGN(Path path, BlockPath(s, step, 0));
  const Stmt& block = path.back();
  const int64_t index = support::ParseInt64(step.Option("read")).value_or(0);
  const ir::Buffer source = ReadBuffer(*block, index);
  if (source == nullptr) {
    return Refuse(step, "no_such_read",
                  StrCat("expected a block that reads more than ", index,
                         " buffers in addition to its result, found fewer"),
                  block);
  }
  const size_t top = path[0]->kind == ir::StmtKind::kSeq ? 1 : 0;
  if (!IsGiven(source)) {
    std::vector<BlockSite> sites = BlocksIn(path[0]);
    for (const BlockSite& writer : WritersOf(BlocksIn(path[top]), source)) {
      return Refuse(step, "nested",
                    StrCat("expected that ", source->name, " is complete before the nest of ",
                           block->name, ", found that ", writer.block->name, " writes it there"),
                    path[top]);
    }
    TW_TRY(CheckWhollyWritten(step, s.function(), sites, source));
  }
  const std::string_view scope = step.Option("scope");
  ir::Buffer copied =
      ir::MakeBuffer(s.UniqueName(StrCat(source->name, "_", scope.substr(scope.rfind('.') + 1))),
                     source->dtype, source->shape, ir::Role::kIntermediate, ScopeOf(scope));
  std::vector<std::string> loop_names, iter_names;
  for (size_t d = 0; d < source->shape.size(); ++d) {
    loop_names.push_back("d" + std::to_string(d));
    iter_names.push_back("vd" + std::to_string(d));
  }
  CopyNest copy = MakeCopy(s, copied->name, loop_names, iter_names, source, copied);
  Stmt body = ReplaceAt(path, path.size() - 1, ir::ReplaceBuffers(block, {{source.get(), copied}}));
  Path moved = FindBlock(body, block->name);
  s.SetBody(ReplaceAt(moved, top, ir::MakeSeq({copy.nest, moved[top]})));
  s.mutable_function().allocs.push_back(copied);
  s.AddBlock(copy.block);
  for (const ir::Var& v : copy.loops) s.AddLoop(v);
  return absl::OkStatus();
}

absl::Status ApplyCacheWrite(Schedule& s, const Step& step) {
  TW_ASSIGN(Path path, BlockPath(s, step, 0));
  const Stmt& block = path.back();
  TW_ASSIGN(std::vector<int> written, WrittenIters(step, block));
  TW_TRY(CheckWholeBuffer(step, block, written));
  const ir::Buffer target = block->writes[0].buffer;
  if (WritersOf(BlocksIn(path[0]), target).size() != 1) {
    return Refuse(step, "several_writers",
                  StrCat("expected one block that writes ", target->name, ", found more"), path[0]);
  }
  // A nest that an earlier step cut down to what its consumers need leaves the rest undefined.
  bool constant = std::all_of(target->shape.begin(), target->shape.end(),
                              [](const ir::Expr& e) { return ir::AsInt(e) != nullptr; });
  if (constant) TW_TRY(CheckWhollyWritten(step, s.function(), BlocksIn(path[0]), target));
  size_t own = OwnNest(path);
  if (!LoopsOf(path, own).empty()) {
    return Refuse(step, "nested",
                  "expected a block in a nest of its own at the top level, found it inside others",
                  path[0]);
  }
  ir::Buffer local =
      ir::MakeBuffer(s.UniqueName(target->name + "_local"), target->dtype, target->shape,
                     ir::Role::kIntermediate, ScopeOf(step.Option("scope")));
  CopyNest copy = MakeCopyOfResult(s, *block, written, local, target);
  Stmt nest = ir::ReplaceBuffers(path[own], {{target.get(), local}});
  s.SetBody(ReplaceAt(path, own, ir::MakeSeq({std::move(nest), copy.nest})));
  s.mutable_function().allocs.push_back(local);
  s.AddBlock(copy.block);
  for (const ir::Var& v : copy.loops) s.AddLoop(v);
  return absl::OkStatus();
}

absl::Status ApplySetScope(Schedule& s, const Step& step) {
  TW_ASSIGN(Path path, BlockPath(s, step, 0));
  const Stmt& block = path.back();
  if (block->writes.size() != 1 || block->writes[0].buffer->role != ir::Role::kIntermediate) {
    return Refuse(step, "not_intermediate",
                  "expected a block that writes one intermediate buffer, found another", block);
  }
  const ir::Buffer buffer = block->writes[0].buffer;
  auto node = std::make_shared<ir::BufferNode>(*buffer);
  node->scope = ScopeOf(step.word);
  if (node->scope == buffer->scope) return absl::OkStatus();
  ReplaceIntermediate(s, buffer, node);
  return absl::OkStatus();
}

}  // namespace tilewright::schedule
