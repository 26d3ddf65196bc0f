// The tensor-expression builder: operators describe their compute as `Compute(shape, λ)` and
// `Reduce`, and get a naive function of the tensor IR, one block under a perfect loop nest per
// stage.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "compiler/ir/ir.h"
#include "compiler/ir/tuple_reduction.h"

namespace tilewright::ir {

struct Axis {  // a reduction axis
  Var var;
  Expr extent;
};
enum class Combiner : uint8_t { kSum, kMax, kMin, kProd };

class FunctionBuilder {
 public:
  explicit FunctionBuilder(std::string name);
  Buffer Input(const std::string& name, DType dtype, std::vector<Expr> shape);
  Buffer Constant(const std::string& name, DType dtype, std::vector<Expr> shape);
  Var SizeParam(const std::string& name);
  // The size parameter of this name, which it adds where there is none yet.
  Var Size(const std::string& name);
  Axis ReduceAxis(const std::string& name, Expr extent);

  // out[i...] = value(i...). Axis names become loop names; missing names are i0, i1, ...
  Buffer Compute(const std::string& name, DType dtype, std::vector<Expr> shape,
                 const std::vector<std::string>& axis_names,
                 const std::function<Expr(const std::vector<Var>&)>& value);
  // out[i...] = combine over `axes` of value(i...); init is the combiner's identity.
  Buffer Reduce(const std::string& name, DType dtype, std::vector<Expr> shape,
                const std::vector<std::string>& axis_names, const std::vector<Axis>& axes,
                Combiner combiner, const std::function<Expr(const std::vector<Var>&)>& value);
  // The same on tuples: outs[k][i...] = combination over `axes` of values(i...)[k], element k of
  // type `types[k]`; init is the reduction's identity.
  std::vector<Buffer> ReduceTuple(
      const std::vector<std::string>& names, const std::vector<DType>& types,
      std::vector<Expr> shape, const std::vector<std::string>& axis_names,
      const std::vector<Axis>& axes, const TupleReduction& reduction,
      const std::function<std::vector<Expr>(const std::vector<Var>&)>& values);

  // A nest: stages added between BeginNest and EndNest run at one point of its axes before any of
  // them runs at the next. Their buffers get these axes as dimensions in front of `shape`, their
  // values the axes' variables in front of the others.
  void BeginNest(const std::vector<std::string>& axis_names, std::vector<Expr> extents);
  void EndNest();

  // A scan: stages added between BeginScan and EndScan run once for each of `steps` steps, in
  // order, under one loop. Their buffers get the step as a dimension in front of `shape`, their
  // values the step as the variable in front of the others. Its iterator is sequential. In a nest
  // it is so only in stages that read or write what is carried, and the axes of the nest come
  // first; there, `turns` may say that only so many of the steps run at a point of the nest. With
  // `peel`, steps that no choice of their stages concerns get code without it.
  using NestExpr = std::function<Expr(const std::vector<Var>& nest)>;
  void BeginScan(const std::string& axis_name, Expr steps, const NestExpr& turns = {},
                 bool peel = false);
  void EndScan();
  // What is carried: a buffer of [steps + 1, shape...] with buffer[0, i...] = initial(i...). Step t
  // reads buffer[t, ...]; Next says what it becomes: buffer[t + 1, i...] = value(t, i...).
  // REQUIRES: State before BeginScan, Next of each state once within.
  Buffer State(const std::string& name, DType dtype, Expr steps, std::vector<Expr> shape,
               const std::vector<std::string>& axis_names,
               const std::function<Expr(const std::vector<Var>&)>& initial);
  void Next(const Buffer& state, const std::vector<std::string>& axis_names,
            const std::function<Expr(const std::vector<Var>&)>& value);
  // What a nest carries through its scan in place: a buffer of [nest..., shape...] that begins as
  // initial(nest..., i...). In each step Carry makes it value(nest..., t, i...), which may
  // read what it was. REQUIRES: Carried within a nest before BeginScan, Carry within the scan.
  Buffer Carried(const std::string& name, DType dtype, std::vector<Expr> shape,
                 const std::vector<std::string>& axis_names,
                 const std::function<Expr(const std::vector<Var>&)>& initial);
  void Carry(const Buffer& carried, const std::vector<std::string>& axis_names,
             const std::function<Expr(const std::vector<Var>&)>& value);

  // A result that leaves a nest, whose last axis counts blocks of `block` rows out of `rows`:
  // out[place(v)] = value(v), where v has the other axes of the nest, the row, and variables of
  // `extents`. The loop over the rows of a block is the innermost, if there are several.
  struct RowResult {
    std::vector<Expr> shape;  // of the result
    int64_t block = 1;
    Expr rows;
    std::vector<Expr> extents;
    std::vector<std::string> axis_names;  // of `extents`
    std::function<std::vector<Expr>(const std::vector<Var>&)> place;
  };
  Buffer ComputeRows(const std::string& name, DType dtype, const RowResult& result,
                     const std::function<Expr(const std::vector<Var>&)>& value);

  // Marks stages as outputs (in this order) and finishes; regions are derived, the result verifies.
  Function Finish(const std::vector<Buffer>& outputs);

 private:
  // One block under its loops. What it writes is `outs`, at `prefix` and its spatial variables.
  struct Stage {
    std::string name;
    std::vector<Buffer> outs;
    std::vector<Expr> shape;  // of the spatial loops
    const std::vector<std::string>& axis_names;
    std::vector<Axis> axes = {};
    // The statements of body and init from the values; init is null without axes.
    std::function<Stmt(const std::vector<Expr>& place, const std::vector<Expr>& values)> body = {};
    std::function<Stmt(const std::vector<Expr>& place)> init = {};
    std::function<std::vector<Expr>(const std::vector<Var>&)> values = {};
    // Where in the outs the block writes: null for its step (if any) and its spatial variables.
    std::function<std::vector<Expr>(const std::vector<Var>&)> place = {};
  };
  // The nest or the scan whose stages are being added.
  struct Around {
    std::vector<Var> loops;
    std::vector<Expr> extents;
    std::vector<Stmt> nests;
  };
  struct ScanLoop {
    Var loop;
    Expr steps, turns;
    bool peel = false;
    std::vector<Stmt> nests;
  };
  std::string UniqueName(const std::string& name);
  Buffer Intermediate(const std::string& name, DType dtype, std::vector<Expr> shape);
  Buffer NewBuffer(const std::string& name, DType dtype, std::vector<Expr> shape);
  void AddStage(const Stage& stage);
  IterType StepType(const Stage& stage, const std::vector<Expr>& values) const;
  std::vector<Stmt>& Here();

  Function function_;
  std::vector<Stmt> nests_;
  std::optional<Around> nest_;
  std::optional<ScanLoop> scan_;
  std::vector<Buffer> carried_;  // of the nest
  std::vector<std::string> used_names_;
  std::map<std::string, Var> sizes_;  // by the name that was asked for
};

// The distinct points that `value` loads, in order: the read regions of a block whose body has no
// loops. A guarded load (padding) declares its point too, so a region may stick out of its buffer;
// consumers clamp.
std::vector<BufferRegion> PointReads(const Expr& value);

}  // namespace tilewright::ir
