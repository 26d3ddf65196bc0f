// pad_einsum: a sum of products over extents that are multiples of what a tile wants.
#include <algorithm>
#include <functional>
#include <utility>

#include "compiler/ir/structural.h"
#include "compiler/ir/visit.h"
#include "compiler/schedule/legality.h"
#include "compiler/schedule/primitives.h"
#include "compiler/schedule/produced.h"
#include "compiler/schedule/reduce.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::schedule {
namespace {

using ir::Expr;
using ir::Stmt;
using ir::StmtNode;
using support::StrCat;

// The factors of a product, casts left out; false when there is anything else.
bool CollectFactors(const Expr& e, std::vector<Expr>* loads) {
  switch (e->kind) {
    case ir::ExprKind::kMul:
      return CollectFactors(e->args[0], loads) && CollectFactors(e->args[1], loads);
    case ir::ExprKind::kCast:
      return CollectFactors(e->args[0], loads);
    case ir::ExprKind::kLoad:
      loads->push_back(e);
      return e->mask == nullptr;
    default:
      return false;
  }
}

struct PadPlan {
  Stmt block;
  std::vector<Stmt> nest;        // outermost first
  std::vector<Stmt> loops;       // one per iterator, in their order
  std::vector<int64_t> extents;  // padded
  std::vector<Expr> loads;
};

int IterOf(const StmtNode& block, const Expr& index) {
  for (size_t i = 0; i < block.iters.size(); ++i) {
    if (block.iters[i].var == index) return static_cast<int>(i);
  }
  return -1;
}

bool IsPadded(const PadPlan& plan, int iter) {
  if (iter < 0) return false;
  const ir::IterVar& v = plan.block->iters[static_cast<size_t>(iter)];
  return plan.extents[static_cast<size_t>(iter)] != *ir::AsInt(v.domain.extent);
}

// Iterators over loops of their own, from 0 to constant extents, as the builder makes them.
absl::Status CheckNest(const Step& step, const Path& path, PadPlan* plan) {
  const size_t own = OwnNest(path);
  std::vector<Stmt> loops = LoopsOf(path);
  bool top = LoopsOf(path, own).empty();
  bool plain = plan->block->predicate == nullptr && loops.size() == plan->block->iters.size();
  for (const ir::IterVar& iter : plan->block->iters) {
    auto loop = std::find_if(loops.begin(), loops.end(),
                             [&](const Stmt& l) { return l->var == iter.binding; });
    plain = plain && loop != loops.end() && (*loop)->for_kind == ir::ForKind::kSerial &&
            ir::IsInt(iter.domain.min, 0) && ir::AsInt(iter.domain.extent) != nullptr &&
            ir::IsInt((*loop)->range.min, 0) &&
            ir::StructuralEqual((*loop)->range.extent, iter.domain.extent);
    if (!plain) break;
    plan->loops.push_back(*loop);
  }
  plan->nest = loops;
  if (top && plain) return absl::OkStatus();
  return Refuse(step, top ? "loops" : "nested",
                "expected one serial loop per iterator over all of it, in a nest of their own, "
                "found another nest",
                path[own]);
}

absl::Status CheckEinsum(const Step& step, PadPlan* plan) {
  auto bad = [&](std::string_view found) {
    return Refuse(
        step, "not_einsum",
        StrCat("expected a sum of products of elements at single iterators, found ", found),
        plan->block);
  };
  const StmtNode& block = *plan->block;
  std::optional<Combine> combine = CombineOf(block);
  if (!combine.has_value() || combine->op != ir::ExprKind::kAdd) return bad("another reduction");
  if (!CollectFactors(combine->value, &plan->loads)) return bad("another expression");
  for (const Expr& load : plan->loads) {
    for (const Expr& index : load->args) {
      if (IterOf(block, index) < 0 && ir::AsInt(index) == nullptr) return bad("another index");
    }
  }
  // Padding adds nothing to a sum only where every factor is zero there (0 times inf is not).
  for (size_t i = 0; i < block.iters.size(); ++i) {
    const ir::IterVar& iter = block.iters[i];
    if (iter.type != ir::IterType::kReduce || !IsPadded(*plan, static_cast<int>(i))) continue;
    for (const Expr& load : plan->loads) {
      if (!ir::UsesVar(load, iter.var)) {
        return bad(StrCat("a factor without the padded reduction iterator ", iter.var->name));
      }
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<PadPlan> MakePadPlan(const Step& step, const Path& path) {
  PadPlan plan;
  plan.block = path.back();
  TW_TRY(WrittenIters(step, plan.block).status());
  TW_TRY(CheckNest(step, path, &plan));
  if (step.factors.size() != plan.block->iters.size()) {
    return Refuse(step, "factors",
                  StrCat("expected ", plan.block->iters.size(),
                         " factors, one per iterator, found ", step.factors.size()),
                  plan.block);
  }
  for (size_t i = 0; i < step.factors.size(); ++i) {
    int64_t extent = *ir::AsInt(plan.block->iters[i].domain.extent), f = step.factors[i];
    if (f == kInfer || f > (int64_t{1} << 16)) {
      return Refuse(step, "factors", "expected factors up to 65536, found another", plan.block);
    }
    plan.extents.push_back((extent + f - 1) / f * f);
  }
  TW_TRY(CheckEinsum(step, &plan));
  return plan;
}

// A nest of its own for an unused name: `value` at every point of `out`, `loops` outermost first.
struct Nest {
  Stmt stmt;
  std::string block;
  std::vector<ir::Var> loops;
};

Nest MakeNest(Schedule& s, const std::string& name, const ir::Buffer& out,
              const std::vector<Expr>& extents, const ir::Buffer& in,
              const std::function<Expr(const std::vector<Expr>&)>& value) {
  Nest nest;
  nest.block = name;
  StmtNode block{.kind = ir::StmtKind::kBlock};
  block.name = nest.block;
  std::vector<Expr> point;
  for (size_t d = 0; d < extents.size(); ++d) {
    const ir::DType type = extents[d]->dtype;
    std::string axis = s.UniqueName("d" + std::to_string(d));
    nest.loops.push_back(ir::MakeVar(axis, type));
    ir::Var var = ir::MakeVar(s.UniqueName("v" + axis), type);
    block.iters.push_back(
        {var, {ir::Int(0, type), extents[d]}, ir::IterType::kSpatial, nest.loops.back()});
    point.push_back(var);
  }
  ir::BufferRegion region{in, {}};
  for (const Expr& p : point) region.region.push_back({p, ir::Int(1, p->dtype)});
  block.reads = {region};
  region.buffer = out;
  block.writes = {region};
  block.body = ir::MakeStore(out, point, value(point));
  nest.stmt = ir::MakeBlock(std::move(block));
  for (size_t d = extents.size(); d-- > 0;) {
    nest.stmt = ir::MakeFor(nest.loops[d], ir::Int(0, extents[d]->dtype), extents[d], nest.stmt);
  }
  return nest;
}

class PaddedEinsum {
 public:
  PaddedEinsum(Schedule& s, const PadPlan& plan) : s_(s), plan_(plan) {}

  Stmt Build() {
    const StmtNode& old = *plan_.block;
    auto node = std::make_shared<StmtNode>(old);
    ir::BufferMap moved;
    for (const Expr& load : plan_.loads) PadOperand(load, &moved);
    for (size_t i = 0; i < node->iters.size(); ++i) {
      node->iters[i].domain.extent = ir::Int(plan_.extents[i], node->iters[i].var->dtype);
    }
    const ir::Buffer& out = old.writes[0].buffer;
    ir::Buffer padded = Padded(out, old.body->indices);
    if (padded != nullptr) moved[out.get()] = padded;
    Stmt nest = ir::ReplaceBuffers(node, moved);
    for (size_t i = plan_.nest.size(); i-- > 0;) {
      const StmtNode& loop = *plan_.nest[i];
      auto at = std::find(plan_.loops.begin(), plan_.loops.end(), plan_.nest[i]);
      int64_t extent = plan_.extents[static_cast<size_t>(at - plan_.loops.begin())];
      nest = ir::MakeFor(loop.var, loop.range.min, ir::Int(extent, loop.var->dtype), nest,
                         loop.for_kind, loop.annotations);
    }
    stmts_.push_back(nest);
    if (padded != nullptr) {
      Add(MakeNest(s_, s_.UniqueName(out->name + "_crop"), out, out->shape, padded,
                   [&](const std::vector<Expr>& p) { return ir::Load(padded, p); }));
    }
    return ir::MakeSeq(stmts_);
  }
  void AddHandles() {
    for (const Nest& nest : nests_) {
      s_.AddBlock(nest.block);
      for (const ir::Var& v : nest.loops) s_.AddLoop(v);
    }
  }

 private:
  // A larger buffer where an index is a padded iterator; null when none is.
  ir::Buffer Padded(const ir::Buffer& buffer, const std::vector<Expr>& indices) {
    std::vector<Expr> shape = buffer->shape;
    bool grows = false;
    for (size_t d = 0; d < shape.size(); ++d) {
      int iter = IterOf(*plan_.block, indices[d]);
      if (!IsPadded(plan_, iter)) continue;
      grows = true;
      shape[d] = ir::Int(plan_.extents[static_cast<size_t>(iter)], shape[d]->dtype);
    }
    if (!grows) return nullptr;
    ir::Buffer padded =
        ir::MakeBuffer(s_.UniqueName(buffer->name + "_pad"), buffer->dtype, std::move(shape));
    s_.mutable_function().allocs.push_back(padded);
    return padded;
  }

  void PadOperand(const Expr& load, ir::BufferMap* moved) {
    if (moved->count(load->buffer.get()) != 0) return;
    ir::Buffer padded = Padded(load->buffer, load->args);
    if (padded == nullptr) return;
    (*moved)[load->buffer.get()] = padded;
    Add(MakeNest(
        s_, padded->name, padded, padded->shape, load->buffer, [&](const std::vector<Expr>& p) {
          Expr inside;
          for (size_t d = 0; d < p.size(); ++d) {
            int iter = IterOf(*plan_.block, load->args[d]);
            if (!IsPadded(plan_, iter)) continue;
            Expr part = p[d] < plan_.block->iters[static_cast<size_t>(iter)].domain.extent;
            inside = inside == nullptr ? part : inside && part;
          }
          return ir::Select(inside, ir::Load(load->buffer, p), ir::Zero(load->buffer->dtype));
        }));
  }
  void Add(Nest nest) {
    stmts_.push_back(nest.stmt);
    nests_.push_back(std::move(nest));
  }

  Schedule& s_;
  const PadPlan& plan_;
  std::vector<Stmt> stmts_;
  std::vector<Nest> nests_;
};

// One buffer read at two points has no one padded form.
absl::Status CheckOneIndexEach(const Step& step, const PadPlan& plan) {
  for (const Expr& a : plan.loads) {
    for (const Expr& b : plan.loads) {
      if (a->buffer == b->buffer && !ir::StructuralEqual(a, b)) {
        return Refuse(step, "not_einsum",
                      StrCat("expected one index of ", a->buffer->name, ", found two"), plan.block);
      }
    }
  }
  return absl::OkStatus();
}

// A padded iterator runs over the whole of every dimension that it indexes.
absl::Status CheckExtents(const Step& step, const PadPlan& plan, const ir::Buffer& buffer,
                          const std::vector<Expr>& indices) {
  for (size_t d = 0; d < indices.size(); ++d) {
    int iter = IterOf(*plan.block, indices[d]);
    if (!IsPadded(plan, iter)) continue;
    const Expr& extent = plan.block->iters[static_cast<size_t>(iter)].domain.extent;
    if (ir::StructuralEqual(buffer->shape[d], extent)) continue;
    return Refuse(step, "extent",
                  StrCat("expected dimension ", d, " of ", buffer->name,
                         " as long as the iterator that indexes it, found another"),
                  plan.block);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ApplyPadEinsum(Schedule& s, const Step& step) {
  TW_ASSIGN(Path path, BlockPath(s, step, 0));
  TW_ASSIGN(PadPlan plan, MakePadPlan(step, path));
  TW_TRY(CheckOneIndexEach(step, plan));
  for (const Expr& load : plan.loads) {
    TW_TRY(CheckExtents(step, plan, load->buffer, load->args));
  }
  const ir::Buffer& out = plan.block->writes[0].buffer;
  TW_TRY(CheckExtents(step, plan, out, plan.block->body->indices));
  TW_TRY(CheckWhollyWritten(step, s.function(), BlocksIn(path[0]), out));
  if (WritersOf(BlocksIn(path[0]), out).size() != 1) {
    return Refuse(step, "several_writers",
                  StrCat("expected one block that writes ", out->name, ", found more"), path[0]);
  }
  Schedule trial = s;
  PaddedEinsum padded(trial, plan);
  Stmt stmts = padded.Build();
  trial.SetBody(ReplaceAt(path, OwnNest(path), std::move(stmts)));
  padded.AddHandles();
  s = std::move(trial);
  return absl::OkStatus();
}

}  // namespace tilewright::schedule
