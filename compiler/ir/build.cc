#include "compiler/ir/build.h"

#include <algorithm>
#include <utility>

#include "compiler/ir/expr_parts.h"
#include "compiler/ir/structural.h"
#include "compiler/ir/verify.h"
#include "compiler/ir/visit.h"
#include "deploy/support/status.h"

namespace tilewright::ir {
namespace {

ExprKind KindOf(Combiner combiner) {
  switch (combiner) {
    case Combiner::kSum:
      return ExprKind::kAdd;
    case Combiner::kProd:
      return ExprKind::kMul;
    case Combiner::kMax:
      return ExprKind::kMax;
    case Combiner::kMin:
      break;
  }
  return ExprKind::kMin;
}

// Along a dimension where memory says which element it is, it may be any of them.
BufferRegion PointRegion(const Buffer& buffer, const std::vector<Expr>& indices) {
  BufferRegion r{buffer, {}};
  for (size_t d = 0; d < indices.size(); ++d) {
    const Expr& index = indices[d];
    if (HasLoad(index)) {
      r.region.push_back({Int(0, buffer->shape[d]->dtype), buffer->shape[d]});
    } else {
      r.region.push_back({index, Int(1, index->dtype)});
    }
  }
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

Var FunctionBuilder::Size(const std::string& name) {
  auto it = sizes_.find(name);
  return it != sizes_.end() ? it->second : sizes_[name] = SizeParam(name);
}

Axis FunctionBuilder::ReduceAxis(const std::string& name, Expr extent) {
  DType type = extent->dtype;
  return {MakeVar(name, type), std::move(extent)};
}

Buffer FunctionBuilder::NewBuffer(const std::string& name, DType dtype, std::vector<Expr> shape) {
  function_.allocs.push_back(MakeBuffer(UniqueName(name), dtype, std::move(shape)));
  return function_.allocs.back();
}

// With the dimensions of the nest and of the scan.
Buffer FunctionBuilder::Intermediate(const std::string& name, DType dtype,
                                     std::vector<Expr> shape) {
  if (scan_.has_value()) shape.insert(shape.begin(), scan_->steps);
  if (nest_.has_value()) {
    shape.insert(shape.begin(), nest_->extents.begin(), nest_->extents.end());
  }
  return NewBuffer(name, dtype, std::move(shape));
}

std::vector<Stmt>& FunctionBuilder::Here() {
  return scan_.has_value() ? scan_->nests : nest_.has_value() ? nest_->nests : nests_;
}

Buffer FunctionBuilder::Compute(const std::string& name, DType dtype, std::vector<Expr> shape,
                                const std::vector<std::string>& axis_names,
                                const std::function<Expr(const std::vector<Var>&)>& value) {
  Buffer out = Intermediate(name, dtype, shape);
  Stage stage{
      .name = out->name, .outs = {out}, .shape = std::move(shape), .axis_names = axis_names};
  stage.values = [&](const std::vector<Var>& v) { return std::vector<Expr>{value(v)}; };
  stage.body = [&](const std::vector<Expr>& place, const std::vector<Expr>& values) {
    return MakeStore(out, place, values[0]);
  };
  AddStage(stage);
  return out;
}

Buffer FunctionBuilder::Reduce(const std::string& name, DType dtype, std::vector<Expr> shape,
                               const std::vector<std::string>& axis_names,
                               const std::vector<Axis>& axes, Combiner combiner,
                               const std::function<Expr(const std::vector<Var>&)>& value) {
  TW_CHECK(!axes.empty()) << "reduction " << name << " without axes";
  Buffer out = Intermediate(name, dtype, shape);
  Stage stage{.name = out->name,
              .outs = {out},
              .shape = std::move(shape),
              .axis_names = axis_names,
              .axes = axes};
  stage.values = [&](const std::vector<Var>& v) { return std::vector<Expr>{value(v)}; };
  stage.body = [&](const std::vector<Expr>& place, const std::vector<Expr>& values) {
    return MakeStore(out, place, Binary(KindOf(combiner), Load(out, place), values[0]));
  };
  stage.init = [&](const std::vector<Expr>& place) {
    return MakeStore(out, place, IdentityOf(KindOf(combiner), dtype));
  };
  AddStage(stage);
  return out;
}

std::vector<Buffer> FunctionBuilder::ReduceTuple(
    const std::vector<std::string>& names, const std::vector<DType>& types, std::vector<Expr> shape,
    const std::vector<std::string>& axis_names, const std::vector<Axis>& axes,
    const TupleReduction& reduction,
    const std::function<std::vector<Expr>(const std::vector<Var>&)>& values) {
  TW_CHECK(!axes.empty() && !names.empty() && names.size() == types.size() &&
           types.size() == reduction.identity.size())
      << "malformed tuple reduction";
  std::vector<Buffer> outs;
  for (size_t k = 0; k < names.size(); ++k) outs.push_back(Intermediate(names[k], types[k], shape));
  Stage stage{.name = outs[0]->name,
              .outs = outs,
              .shape = std::move(shape),
              .axis_names = axis_names,
              .axes = axes};
  stage.values = values;
  stage.body = [&](const std::vector<Expr>& place, const std::vector<Expr>& point) {
    TW_CHECK(point.size() == outs.size()) << "tuple of " << point.size() << " values";
    std::vector<Stmt> stores;
    for (size_t k = 0; k < outs.size(); ++k) stores.push_back(MakeStore(outs[k], place, point[k]));
    return MakeCombine(reduction.combiner, std::move(stores));
  };
  stage.init = [&](const std::vector<Expr>& place) {
    std::vector<Stmt> stores;
    for (size_t k = 0; k < outs.size(); ++k)
      stores.push_back(MakeStore(outs[k], place, reduction.identity[k]));
    return MakeSeq(std::move(stores));
  };
  AddStage(stage);
  return outs;
}

void FunctionBuilder::BeginScan(const std::string& axis_name, Expr steps, const NestExpr& turns,
                                bool peel) {
  TW_CHECK(!scan_.has_value()) << "scan " << axis_name << " within a scan";
  TW_CHECK(!turns || nest_.has_value()) << "turns of a scan that is in no nest";
  scan_ = ScanLoop{MakeVar(axis_name, steps->dtype), steps, steps, peel, {}};
  if (turns) scan_->turns = turns(nest_->loops);
}

void FunctionBuilder::EndScan() {
  TW_CHECK(scan_.has_value() && !scan_->nests.empty()) << "end of a scan without stages";
  Annotations marks;
  if (scan_->peel) marks["tail"] = std::string("peel");
  Stmt loop = MakeFor(scan_->loop, Int(0, scan_->steps->dtype), scan_->turns,
                      MakeSeq(std::move(scan_->nests)), ForKind::kSerial, std::move(marks));
  scan_.reset();
  Here().push_back(std::move(loop));
}

Buffer FunctionBuilder::State(const std::string& name, DType dtype, Expr steps,
                              std::vector<Expr> shape, const std::vector<std::string>& axis_names,
                              const std::function<Expr(const std::vector<Var>&)>& initial) {
  TW_CHECK(!scan_.has_value() && !nest_.has_value()) << "state " << name << " within a scan";
  std::vector<Expr> whole = shape;
  whole.insert(whole.begin(), std::move(steps) + Int(1));
  Buffer state = Intermediate(name, dtype, std::move(whole));
  Stage stage{.name = UniqueName(name + "_start"),
              .outs = {state},
              .shape = std::move(shape),
              .axis_names = axis_names};
  stage.values = [&](const std::vector<Var>& v) { return std::vector<Expr>{initial(v)}; };
  stage.body = [&](const std::vector<Expr>& place, const std::vector<Expr>& values) {
    return MakeStore(state, place, values[0]);
  };
  stage.place = [](const std::vector<Var>& v) {
    std::vector<Expr> place(v.begin(), v.end());
    place.insert(place.begin(), Int(0));
    return place;
  };
  AddStage(stage);
  return state;
}

void FunctionBuilder::Next(const Buffer& state, const std::vector<std::string>& axis_names,
                           const std::function<Expr(const std::vector<Var>&)>& value) {
  TW_CHECK(scan_.has_value() && !nest_.has_value()) << "next " << state->name << " in no scan";
  std::vector<Expr> shape(state->shape.begin() + 1, state->shape.end());
  Stage stage{.name = UniqueName(state->name + "_next"),
              .outs = {state},
              .shape = std::move(shape),
              .axis_names = axis_names};
  stage.values = [&](const std::vector<Var>& v) { return std::vector<Expr>{value(v)}; };
  stage.body = [&](const std::vector<Expr>& place, const std::vector<Expr>& values) {
    return MakeStore(state, place, values[0]);
  };
  stage.place = [](const std::vector<Var>& v) {
    std::vector<Expr> place(v.begin(), v.end());
    place[0] = place[0] + Int(1, place[0]->dtype);
    return place;
  };
  AddStage(stage);
}

void FunctionBuilder::AddStage(const Stage& stage) {
  StmtNode block{.kind = StmtKind::kBlock};
  block.name = stage.name;
  std::vector<Var> loops, vars;
  std::vector<Expr> extents;
  auto add_iter = [&](const std::string& axis, Var var, const Expr& extent, IterType type) {
    Expr zero = Int(0, extent->dtype);
    loops.push_back(MakeVar(axis, extent->dtype));
    extents.push_back(extent);
    block.iters.push_back({std::move(var), {zero, extent}, type, loops.back()});
  };
  const auto add_outer = [&](const Var& loop, const Expr& extent) {
    vars.push_back(MakeVar("v" + loop->name, loop->dtype));
    block.iters.push_back({vars.back(), {Int(0, loop->dtype), extent}, IterType::kSpatial, loop});
  };
  for (size_t d = 0; nest_.has_value() && d < nest_->loops.size(); ++d) {
    add_outer(nest_->loops[d], nest_->extents[d]);
  }
  const size_t step = vars.size();
  if (scan_.has_value()) add_outer(scan_->loop, scan_->steps);
  for (size_t d = 0; d < stage.shape.size(); ++d) {
    bool named = d < stage.axis_names.size() && !stage.axis_names[d].empty();
    std::string axis = named ? stage.axis_names[d] : "i" + std::to_string(d);
    vars.push_back(MakeVar("v" + axis, stage.shape[d]->dtype));
    add_iter(axis, vars.back(), stage.shape[d], IterType::kSpatial);
  }
  // An axis may serve several reductions: each block gets iteration variables of its own.
  VarMap own_axes;
  for (const Axis& axis : stage.axes) {
    Var var = MakeVar("v" + axis.var->name, axis.var->dtype);
    own_axes[axis.var.get()] = var;
    add_iter(axis.var->name, var, axis.extent, IterType::kReduce);
  }
  std::vector<Expr> place =
      stage.place ? stage.place(vars) : std::vector<Expr>(vars.begin(), vars.end());
  std::vector<Expr> values = stage.values(vars);
  if (scan_.has_value()) block.iters[step].type = StepType(stage, values);
  for (size_t k = 0; k < values.size(); ++k) {
    values[k] = Substitute(values[k], own_axes);
    TW_CHECK(k < stage.outs.size() && values[k]->dtype == stage.outs[k]->dtype)
        << "stage " << stage.name << ": value of type " << TypeName(values[k]->dtype);
    for (BufferRegion& r : PointReads(values[k])) {
      bool known = std::any_of(block.reads.begin(), block.reads.end(),
                               [&](const BufferRegion& o) { return SameRegion(o, r); });
      if (!known) block.reads.push_back(std::move(r));
    }
  }
  for (const Buffer& out : stage.outs) block.writes.push_back(PointRegion(out, place));
  block.body = stage.body(place, values);
  if (stage.init) block.init = stage.init(place);
  Stmt nest = MakeBlock(std::move(block));
  for (size_t d = loops.size(); d-- > 0;)
    nest = MakeFor(loops[d], Int(0, extents[d]->dtype), extents[d], nest);
  Here().push_back(std::move(nest));
}

Function FunctionBuilder::Finish(const std::vector<Buffer>& outputs) {
  TW_CHECK(!scan_.has_value() && !nest_.has_value())
      << "function " << function_.name << " finished within a scan";
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
