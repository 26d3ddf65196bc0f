// The tensor-expression builder: operators describe their compute as `Compute(shape, λ)` and
// `Reduce`, and get a naive function of the tensor IR, one block under a perfect loop nest per
// stage.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "compiler/ir/ir.h"

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
  Axis ReduceAxis(const std::string& name, Expr extent);

  // out[i...] = value(i...). Axis names become loop names; missing names are i0, i1, ...
  Buffer Compute(const std::string& name, DType dtype, std::vector<Expr> shape,
                 const std::vector<std::string>& axis_names,
                 const std::function<Expr(const std::vector<Var>&)>& value);
  // out[i...] = combine over `axes` of value(i...); init is the combiner's identity.
  Buffer Reduce(const std::string& name, DType dtype, std::vector<Expr> shape,
                const std::vector<std::string>& axis_names, const std::vector<Axis>& axes,
                Combiner combiner, const std::function<Expr(const std::vector<Var>&)>& value);
  // Marks stages as outputs (in this order) and finishes; regions are derived, the result verifies.
  Function Finish(const std::vector<Buffer>& outputs);

 private:
  std::string UniqueName(const std::string& name);
  // No axes: an elementwise stage.
  Buffer AddStage(const std::string& name, DType dtype, std::vector<Expr> shape,
                  const std::vector<std::string>& axis_names, const std::vector<Axis>& axes,
                  Combiner combiner, const std::function<Expr(const std::vector<Var>&)>& value);

  Function function_;
  std::vector<Stmt> nests_;
  std::vector<std::string> used_names_;
};

// The distinct points that `value` loads, in order: the read regions of a block whose body has no
// loops. A guarded load (padding) declares its point too, so a region may stick out of its buffer;
// consumers clamp.
std::vector<BufferRegion> PointReads(const Expr& value);

}  // namespace tilewright::ir
