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

  // A scan: stages added between BeginScan and EndScan run once for each of `steps` steps, in
  // order, under one loop. Their buffers get the step as a dimension in front of `shape`, their
  // values the step as the variable in front of the others (of a sequential iterator).
  void BeginScan(const std::string& axis_name, Expr steps);
  void EndScan();
  // What is carried: a buffer of [steps + 1, shape...] with buffer[0, i...] = initial(i...). Step t
  // reads buffer[t, ...]; Next says what it becomes: buffer[t + 1, i...] = value(t, i...).
  // REQUIRES: State before BeginScan, Next of each state once within.
  Buffer State(const std::string& name, DType dtype, Expr steps, std::vector<Expr> shape,
               const std::vector<std::string>& axis_names,
               const std::function<Expr(const std::vector<Var>&)>& initial);
  void Next(const Buffer& state, const std::vector<std::string>& axis_names,
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
  std::string UniqueName(const std::string& name);
  Buffer Intermediate(const std::string& name, DType dtype, std::vector<Expr> shape);
  void AddStage(const Stage& stage);

  struct ScanLoop {
    Var loop;
    Expr steps;
    std::vector<Stmt> nests;
  };
  Function function_;
  std::vector<Stmt> nests_;
  std::optional<ScanLoop> scan_;
  std::vector<std::string> used_names_;
  std::map<std::string, Var> sizes_;  // by the name that was asked for
};

// The distinct points that `value` loads, in order: the read regions of a block whose body has no
// loops. A guarded load (padding) declares its point too, so a region may stick out of its buffer;
// consumers clamp.
std::vector<BufferRegion> PointReads(const Expr& value);

}  // namespace tilewright::ir
