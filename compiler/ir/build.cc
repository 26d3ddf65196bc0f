#include "compiler/ir/build.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "compiler/ir/numeric.h"
#include "compiler/ir/structural.h"
#include "compiler/ir/verify.h"
#include "compiler/ir/visit.h"
#include "deploy/support/status.h"

namespace tilewright::ir {
namespace {

Expr Identity(Combiner combiner, DType t) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  switch (combiner) {
    case Combiner::kSum:
      return Zero(t);
    case Combiner::kProd:
      return t.is_float() ? Float(1, t) : Int(1, t);
    case Combiner::kMax:
      return t.is_float() ? Float(-kInf, t) : Int(MinInt(t), t);
    case Combiner::kMin:
      return t.is_float() ? Float(kInf, t) : Int(MaxInt(t), t);
  }
  return nullptr;
}

Expr Combine(Combiner combiner, Expr so_far, Expr value) {
  switch (combiner) {
    case Combiner::kSum:
      return std::move(so_far) + std::move(value);
    case Combiner::kProd:
      return std::move(so_far) * std::move(value);
    case Combiner::kMax:
      return Max(std::move(so_far), std::move(value));
    case Combiner::kMin:
      return Min(std::move(so_far), std::move(value));
  }
  return nullptr;
}

BufferRegion PointRegion(const Buffer& buffer, const std::vector<Expr>& indices) {
  BufferRegion r{buffer, {}};
  for (const Expr& i : indices) r.region.push_back({i, Int(1, i->dtype)});
  return r;
}

bool SameRegion(const BufferRegion& a, const BufferRegion& b) {
  if (a.buffer != b.buffer || a.region.size() != b.region.size()) return false;
  for (size_t i = 0; i < a.region.size(); ++i) {
    if (!StructuralEqual(a.region[i].min, b.region[i].min)) return false;
    if (!StructuralEqual(a.region[i].extent, b.region[i].extent)) return false;
  }
  return true;
}

}  // namespace

std::vector<BufferRegion> PointReads(const Expr& value) {
  std::vector<BufferRegion> reads;
  VisitExprs(value, [&](const Expr& e) {
    if (e->kind != ExprKind::kLoad) return true;
    BufferRegion r = PointRegion(e->buffer, e->args);
    bool known = std::any_of(reads.begin(), reads.end(),
                             [&](const BufferRegion& o) { return SameRegion(o, r); });
    if (!known) reads.push_back(std::move(r));
    return true;
  });
  return reads;
}

FunctionBuilder::FunctionBuilder(std::string name) { function_.name = std::move(name); }

std::string FunctionBuilder::UniqueName(const std::string& name) {
  std::string unique = name;
  for (int n = 1; std::find(used_names_.begin(), used_names_.end(), unique) != used_names_.end();
       ++n) {
    unique = name + "_" + std::to_string(n);
  }
  used_names_.push_back(unique);
  return unique;
}

Buffer FunctionBuilder::Input(const std::string& name, DType dtype, std::vector<Expr> shape) {
  function_.params.push_back(MakeBuffer(UniqueName(name), dtype, std::move(shape), Role::kInput));
  return function_.params.back();
}

Buffer FunctionBuilder::Constant(const std::string& name, DType dtype, std::vector<Expr> shape) {
  function_.params.push_back(
      MakeBuffer(UniqueName(name), dtype, std::move(shape), Role::kConstant));
  return function_.params.back();
}

Var FunctionBuilder::SizeParam(const std::string& name) {
  function_.size_params.push_back(MakeVar(UniqueName(name)));
  return function_.size_params.back();
}

Axis FunctionBuilder::ReduceAxis(const std::string& name, Expr extent) {
  DType type = extent->dtype;
  return {MakeVar(name, type), std::move(extent)};
}

Buffer FunctionBuilder::Compute(const std::string& name, DType dtype, std::vector<Expr> shape,
                                const std::vector<std::string>& axis_names,
                                const std::function<Expr(const std::vector<Var>&)>& value) {
  return AddStage(name, dtype, std::move(shape), axis_names, {}, Combiner::kSum, value);
}

Buffer FunctionBuilder::Reduce(const std::string& name, DType dtype, std::vector<Expr> shape,
                               const std::vector<std::string>& axis_names,
                               const std::vector<Axis>& axes, Combiner combiner,
                               const std::function<Expr(const std::vector<Var>&)>& value) {
  TW_CHECK(!axes.empty()) << "reduction " << name << " without axes";
  return AddStage(name, dtype, std::move(shape), axis_names, axes, combiner, value);
}

Buffer FunctionBuilder::AddStage(const std::string& name, DType dtype, std::vector<Expr> shape,
                                 const std::vector<std::string>& axis_names,
                                 const std::vector<Axis>& axes, Combiner combiner,
                                 const std::function<Expr(const std::vector<Var>&)>& value) {
  std::string unique = UniqueName(name);
  Buffer out = MakeBuffer(unique, dtype, shape);
  function_.allocs.push_back(out);
  StmtNode block{.kind = StmtKind::kBlock};
  block.name = unique;
  std::vector<Var> loops, spatial;
  std::vector<Expr> extents;
  auto add_iter = [&](const std::string& axis, Var var, const Expr& extent, IterType type) {
    Expr zero = Int(0, extent->dtype);
    loops.push_back(MakeVar(axis, extent->dtype));
    extents.push_back(extent);
    block.iters.push_back({std::move(var), {zero, extent}, type, loops.back()});
  };
  for (size_t d = 0; d < shape.size(); ++d) {
    std::string axis =
        d < axis_names.size() && !axis_names[d].empty() ? axis_names[d] : "i" + std::to_string(d);
    spatial.push_back(MakeVar("v" + axis, shape[d]->dtype));
    add_iter(axis, spatial.back(), shape[d], IterType::kSpatial);
  }
  // An axis may serve several reductions: each block gets iteration variables of its own.
  VarMap own_axes;
  for (const Axis& axis : axes) {
    Var var = MakeVar("v" + axis.var->name, axis.var->dtype);
    own_axes[axis.var.get()] = var;
    add_iter(axis.var->name, var, axis.extent, IterType::kReduce);
  }
  Expr point = Substitute(value(spatial), own_axes);
  TW_CHECK(point->dtype == dtype) << "stage " << name << ": value of type "
                                  << TypeName(point->dtype) << ", expected " << TypeName(dtype);
  block.reads = PointReads(point);
  block.writes = {PointRegion(out, spatial)};
  if (axes.empty()) {
    block.body = MakeStore(out, spatial, point);
  } else {
    block.init = MakeStore(out, spatial, Identity(combiner, dtype));
    block.body = MakeStore(out, spatial, Combine(combiner, Load(out, spatial), point));
  }
  Stmt nest = MakeBlock(std::move(block));
  for (size_t d = loops.size(); d-- > 0;)
    nest = MakeFor(loops[d], Int(0, extents[d]->dtype), extents[d], nest);
  nests_.push_back(std::move(nest));
  return out;
}

Function FunctionBuilder::Finish(const std::vector<Buffer>& outputs) {
  BufferMap renamed;
  for (const Buffer& out : outputs) {
    auto it = std::find(function_.allocs.begin(), function_.allocs.end(), out);
    TW_CHECK(it != function_.allocs.end())
        << "output " << out->name << " is not a stage of this function, or given twice";
    auto node = std::make_shared<BufferNode>(*out);
    node->role = Role::kOutput;
    renamed[out.get()] = node;
    function_.params.push_back(node);
    function_.allocs.erase(it);
  }
  function_.body = ReplaceBuffers(MakeSeq(nests_), renamed);
  absl::Status status = Verify(function_);
  TW_CHECK(status.ok()) << support::StatusText(status);
  return function_;
}

}  // namespace tilewright::ir
