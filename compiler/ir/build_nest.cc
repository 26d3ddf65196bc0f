// Nests of the tensor-expression builder: stages that share outer loops, and what a scan among them
// carries in place.
#include <algorithm>
#include <utility>

#include "compiler/ir/build.h"
#include "compiler/ir/visit.h"
#include "deploy/support/status.h"

namespace tilewright::ir {

void FunctionBuilder::BeginNest(const std::vector<std::string>& axis_names,
                                std::vector<Expr> extents) {
  TW_CHECK(!nest_.has_value() && !scan_.has_value() && axis_names.size() == extents.size())
      << "nest within a nest or a scan, or without names";
  nest_ = Around{{}, std::move(extents), {}};
  for (size_t d = 0; d < axis_names.size(); ++d) {
    nest_->loops.push_back(MakeVar(axis_names[d], nest_->extents[d]->dtype));
  }
}

void FunctionBuilder::EndNest() {
  TW_CHECK(nest_.has_value() && !scan_.has_value() && !nest_->nests.empty())
      << "end of a nest without stages, or within its scan";
  Stmt body = MakeSeq(std::move(nest_->nests));
  for (size_t d = nest_->loops.size(); d-- > 0;) {
    body = MakeFor(nest_->loops[d], Int(0, nest_->extents[d]->dtype), nest_->extents[d], body);
  }
  nests_.push_back(std::move(body));
  nest_.reset();
  carried_.clear();
}

Buffer FunctionBuilder::Carried(const std::string& name, DType dtype, std::vector<Expr> shape,
                                const std::vector<std::string>& axis_names,
                                const std::function<Expr(const std::vector<Var>&)>& initial) {
  TW_CHECK(nest_.has_value() && !scan_.has_value()) << "carried " << name << " outside a nest";
  Buffer carried = Intermediate(name, dtype, shape);
  Stage stage{.name = UniqueName(name + "_start"),
              .outs = {carried},
              .shape = std::move(shape),
              .axis_names = axis_names};
  stage.values = [&](const std::vector<Var>& v) { return std::vector<Expr>{initial(v)}; };
  stage.body = [&](const std::vector<Expr>& place, const std::vector<Expr>& values) {
    return MakeStore(carried, place, values[0]);
  };
  AddStage(stage);
  carried_.push_back(carried);
  return carried;
}

void FunctionBuilder::Carry(const Buffer& carried, const std::vector<std::string>& axis_names,
                            const std::function<Expr(const std::vector<Var>&)>& value) {
  TW_CHECK(nest_.has_value() && scan_.has_value()) << "carry " << carried->name << " in no scan";
  const auto axes = static_cast<std::ptrdiff_t>(nest_->loops.size());
  Stage stage{.name = UniqueName(carried->name + "_next"),
              .outs = {carried},
              .shape = {carried->shape.begin() + axes, carried->shape.end()},
              .axis_names = axis_names};
  stage.values = [&](const std::vector<Var>& v) { return std::vector<Expr>{value(v)}; };
  stage.body = [&](const std::vector<Expr>& place, const std::vector<Expr>& values) {
    return MakeStore(carried, place, values[0]);
  };
  stage.place = [axes](const std::vector<Var>& v) {
    std::vector<Expr> place(v.begin(), v.end());
    place.erase(place.begin() + axes);  // the step
    return place;
  };
  AddStage(stage);
}

Buffer FunctionBuilder::ComputeRows(const std::string& name, DType dtype, const RowResult& result,
                                    const std::function<Expr(const std::vector<Var>&)>& value) {
  TW_CHECK(nest_.has_value() && !scan_.has_value()) << "rows " << name << " outside a nest";
  Buffer out = NewBuffer(name, dtype, result.shape);
  StmtNode block{.kind = StmtKind::kBlock};
  block.name = out->name;
  std::vector<Var> vars, loops;
  std::vector<Expr> extents;
  const auto add = [&](const std::string& axis, const Expr& extent, Expr binding) {
    vars.push_back(MakeVar("v" + axis, extent->dtype));
    block.iters.push_back(
        {vars.back(), {Int(0, extent->dtype), extent}, IterType::kSpatial, std::move(binding)});
  };
  for (size_t d = 0; d + 1 < nest_->loops.size(); ++d) {
    add(nest_->loops[d]->name, nest_->extents[d], nest_->loops[d]);
  }
  const Var row = MakeVar("row", result.rows->dtype);
  const Expr binding = nest_->loops.back() * Int(result.block) + row;
  add("row", result.rows, binding);
  const auto add_row = [&] {
    loops.push_back(row);
    extents.push_back(Int(result.block));
  };
  if (result.block == 1) add_row();
  for (size_t d = 0; d < result.extents.size(); ++d) {
    loops.push_back(MakeVar(result.axis_names[d], result.extents[d]->dtype));
    extents.push_back(result.extents[d]);
    add(result.axis_names[d], result.extents[d], loops.back());
  }
  if (result.block != 1) add_row();
  block.predicate = binding < result.rows;
  const std::vector<Expr> place = result.place(vars);
  const Expr stored = value(vars);
  block.reads = PointReads(stored);
  block.writes = {{out, {}}};
  for (const Expr& i : place) block.writes[0].region.push_back({i, Int(1, i->dtype)});
  block.body = MakeStore(out, place, stored);
  Stmt nest = MakeBlock(std::move(block));
  for (size_t d = loops.size(); d-- > 0;) nest = MakeFor(loops[d], Int(0), extents[d], nest);
  Here().push_back(std::move(nest));
  return out;
}

// In a nest only what is carried orders the steps.
IterType FunctionBuilder::StepType(const Stage& stage, const std::vector<Expr>& values) const {
  if (!nest_.has_value()) return IterType::kSequential;
  const auto is_carried = [&](const Buffer& buffer) {
    return std::find(carried_.begin(), carried_.end(), buffer) != carried_.end();
  };
  bool ordered = std::any_of(stage.outs.begin(), stage.outs.end(), is_carried);
  for (const Expr& value : values) {
    VisitExprs(value, [&](const Expr& e) {
      ordered = ordered || (e->kind == ExprKind::kLoad && is_carried(e->buffer));
      return !ordered;
    });
  }
  return ordered ? IterType::kSequential : IterType::kSpatial;
}

}  // namespace tilewright::ir
