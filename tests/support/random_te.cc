// Naive programs as operators make them.
#include <algorithm>
#include <functional>

#include "compiler/ir/build.h"
#include "deploy/support/status.h"
#include "tests/support/random_ir.h"

namespace tilewright::tests {
namespace {

using ir::Axis;
using ir::Buffer;
using ir::Combiner;
using ir::DType;
using ir::Expr;
using ir::Int;
using ir::Var;
using support::Rng;

// An extent as the program writes it and as this run has it.
struct Extent {
  Expr e;
  int64_t value = 1;
};
struct Tensor {
  Buffer buffer;
  std::vector<Extent> shape;
};

class TeGenerator {
 public:
  TeGenerator(uint64_t seed, const RandomIrOptions& options)
      : rng_(seed),
        options_(options),
        builder_("random"),
        dtype_(rng_.Bernoulli(0.5) ? ir::kF32 : ir::kI32) {}

  RandomProgram Generate() {
    if (options_.symbolic && rng_.Bernoulli(0.25)) {
      symbol_ = {builder_.SizeParam("n"),
                 rng_.UniformInt(1, std::min<int64_t>(9, options_.max_extent))};
    }
    std::vector<Extent> shape;
    for (int64_t rank = rng_.UniformInt(1, 3); rank > 0; --rank) shape.push_back(NewExtent());
    tensors_.push_back(NewInput(Fit(shape)));
    int stages = static_cast<int>(rng_.UniformInt(1, options_.max_stages));
    for (int i = 0; i < stages; ++i) AddStage();
    RandomProgram program;
    program.function = builder_.Finish({tensors_.back().buffer});
    if (symbol_.e != nullptr) program.sizes = {symbol_.value};
    return program;
  }

 private:
  Extent NewExtent() {
    if (symbol_.e != nullptr && rng_.Bernoulli(0.4)) return symbol_;
    static const std::vector<int64_t> kExtents = {1, 2, 3, 4, 5, 6, 7, 8, 11, 12, 13, 16, 17};
    int64_t value = std::min(rng_.Choice(kExtents), options_.max_extent);
    return {Int(value), value};
  }
  static int64_t Elements(const std::vector<Extent>& shape) {
    int64_t n = 1;
    for (const Extent& e : shape) n *= e.value;
    return n;
  }
  std::vector<Extent> Fit(std::vector<Extent> shape) const {
    while (Elements(shape) > options_.max_elements) shape.pop_back();
    return shape;
  }
  static std::vector<Expr> Exprs(const std::vector<Extent>& shape) {
    std::vector<Expr> exprs;
    for (const Extent& e : shape) exprs.push_back(e.e);
    return exprs;
  }
  std::string Name(const std::string& base) { return base + std::to_string(names_++); }
  Tensor NewInput(const std::vector<Extent>& shape) {
    bool constant = rng_.Bernoulli(0.3);
    std::string name = Name("in");
    Buffer b = constant ? builder_.Constant(name, dtype_, Exprs(shape))
                        : builder_.Input(name, dtype_, Exprs(shape));
    return {b, shape};
  }
  Expr Constant(int64_t v) {
    return dtype_.is_float() ? ir::Float(static_cast<double>(v), dtype_) : Int(v, dtype_);
  }

  Expr Combine(const Expr& a, const Expr& b) {
    switch (rng_.Uniform(8)) {
      case 0:
        return a + b;
      case 1:
        return a - b;
      case 2:
        return ir::Min(a, b);
      case 3:
        return ir::Max(a, b);
      case 4:
        return ir::Select(a < b, a + Constant(1), b);
      case 5:
        return ir::Select(ir::Eq(a, b), Constant(2), a);
      case 6:
        return ir::Select(a < Constant(rng_.UniformInt(-1, 2)), b, a);
      default:
        return ir::Call(ir::Intrinsic::kAbs, {a}) + b;
    }
  }
  Expr Unary(const Expr& a) {
    switch (rng_.Uniform(5)) {
      case 0:
        return ir::Max(a, Constant(0));
      case 1:
        return ir::Min(ir::Max(a, Constant(-6)), Constant(6));
      case 2:
        return ir::Call(ir::Intrinsic::kAbs, {a});
      case 3:
        return a * Constant(rng_.UniformInt(-2, 2));
      default:
        if (dtype_.is_float()) return ir::Cast(dtype_, ir::Cast(ir::kI32, a));
        return ir::Call(ir::Intrinsic::kRoundingShiftRight,
                        {a * Constant(3), Constant(rng_.UniformInt(0, 3))});
    }
  }

  void Emit(Buffer buffer, std::vector<Extent> shape) {
    tensors_.push_back({std::move(buffer), std::move(shape)});
  }
  // The next tensor, element by element.
  void Compute(const std::vector<Extent>& shape,
               const std::function<Expr(const std::vector<Var>&)>& value) {
    Emit(builder_.Compute(Name("t"), dtype_, Exprs(shape), {}, value), shape);
  }

  void AddStage() {
    const Tensor x = tensors_.back();
    switch (rng_.Uniform(15)) {
      case 0:
        return Elementwise(x);
      case 1:
        return Broadcast(x);
      case 2:
        return Reduction(x);
      case 3:
        return rng_.Bernoulli(0.5) ? Stencil(x) : Rows(x);
      case 4:
        return Window(x);
      case 5:
        return Matmul(x);
      case 6:
        return Transpose(x);
      case 8:
        return Tuple(x);
      case 9:
        return Scan(x);
      case 10:
        return Concat(x);
      case 11:
        return Reshape(x);
      case 12:
        return Upsample(x);
      case 13:
        return Gather(x);
      case 14:
        return rng_.Bernoulli(0.5) ? Causal(x) : Choose(x);
      default:
        return Convolution();
    }
  }

  void Elementwise(const Tensor& x) {
    bool second = rng_.Bernoulli(0.6);
    Tensor y = second ? (rng_.Bernoulli(0.3) ? x : NewInput(x.shape)) : x;
    Compute(x.shape, [&](const std::vector<Var>& v) {
      Expr a = ir::Load(x.buffer, v);
      return second ? Combine(a, ir::Load(y.buffer, v)) : Unary(a);
    });
  }

  // A tensor of fewer axes (bias) over those of x.
  void Broadcast(const Tensor& x) {
    size_t axis = rng_.Uniform(std::max<size_t>(x.shape.size(), 1));
    if (x.shape.empty()) return Elementwise(x);
    Tensor bias = NewInput({x.shape[axis]});
    Compute(x.shape, [&](const std::vector<Var>& v) {
      return Combine(ir::Load(x.buffer, v), ir::Load(bias.buffer, {v[axis]}));
    });
  }

  Combiner AnyCombiner() {
    static const std::vector<Combiner> kAll = {Combiner::kSum, Combiner::kSum, Combiner::kMax,
                                               Combiner::kMin};
    return rng_.Choice(kAll);
  }

  void Reduction(const Tensor& x) {
    if (x.shape.empty()) return Elementwise(x);
    size_t axis = rng_.Uniform(x.shape.size());
    std::vector<Extent> shape = x.shape;
    shape.erase(shape.begin() + static_cast<int64_t>(axis));
    Axis k = builder_.ReduceAxis("k", x.shape[axis].e);
    Buffer out = builder_.Reduce(Name("t"), dtype_, Exprs(shape), {}, {k}, AnyCombiner(),
                                 [&](const std::vector<Var>& v) {
                                   std::vector<Expr> at(v.begin(), v.end());
                                   at.insert(at.begin() + static_cast<int64_t>(axis), k.var);
                                   return ir::Load(x.buffer, at);
                                 });
    Emit(out, shape);
  }

  // (value, place) of the first extreme, (sum, largest), or (value, place) of the last that is not
  // zero, for which the order counts.
  ir::TupleReduction AnyTuple(DType place) {
    switch (rng_.Uniform(4)) {
      case 0:
        return ir::ArgMax(dtype_, place);
      case 1:
        return ir::ArgMin(dtype_, place);
      default:
        break;
    }
    auto combiner = std::make_shared<ir::TupleCombiner>();
    combiner->lhs = {ir::MakeVar("a", dtype_), ir::MakeVar("i", place)};
    combiner->rhs = {ir::MakeVar("b", dtype_), ir::MakeVar("j", place)};
    const Var &a = combiner->lhs[0], &i = combiner->lhs[1], &b = combiner->rhs[0],
              &j = combiner->rhs[1];
    combiner->ordered = rng_.Bernoulli(0.5);
    Expr skip = ir::Eq(b, Constant(0));
    if (combiner->ordered) {
      combiner->results = {ir::Select(skip, a, b), ir::Select(skip, i, j)};
    } else {
      combiner->results = {a + b, ir::Max(i, j)};
    }
    return {combiner, {Constant(0), Int(0, place)}};
  }

  void Tuple(const Tensor& x) {
    if (x.shape.empty()) return Elementwise(x);
    size_t axis = rng_.Uniform(x.shape.size());
    std::vector<Extent> shape = x.shape;
    shape.erase(shape.begin() + static_cast<int64_t>(axis));
    Axis k = builder_.ReduceAxis("k", x.shape[axis].e);
    DType place = rng_.Bernoulli(0.5) ? ir::kI64 : ir::kI32;
    auto values = [&](const std::vector<Var>& v) {
      std::vector<Expr> at(v.begin(), v.end());
      at.insert(at.begin() + static_cast<int64_t>(axis), k.var);
      return std::vector<Expr>{ir::Load(x.buffer, at), ir::Cast(place, k.var)};
    };
    std::vector<Buffer> pair = builder_.ReduceTuple({Name("t"), Name("at")}, {dtype_, place},
                                                    Exprs(shape), {}, {k}, AnyTuple(place), values);
    Compute(shape, [&](const std::vector<Var>& v) {
      Expr found = ir::FloorMod(ir::Load(pair[1], VarList(v)), Int(97, place));
      return ir::Load(pair[0], VarList(v)) + ir::Cast(dtype_, found);
    });
  }
  static std::vector<Expr> VarList(const std::vector<Var>& v) { return {v.begin(), v.end()}; }

  // Carried along the first axis; the last state goes on.
  void Scan(const Tensor& x) {
    if (x.shape.empty()) return Elementwise(x);
    std::vector<Extent> shape(x.shape.begin() + 1, x.shape.end());
    Expr steps = x.shape[0].e;
    Buffer state = builder_.State(Name("s"), dtype_, steps, Exprs(shape), {},
                                  [&](const std::vector<Var>&) { return Constant(1); });
    builder_.BeginScan("t", steps);
    Buffer from = x.buffer;
    if (rng_.Bernoulli(0.4)) {
      from = builder_.Compute(Name("u"), dtype_, Exprs(shape), {}, [&](const std::vector<Var>& v) {
        return Unary(ir::Load(x.buffer, VarList(v)));
      });
    }
    builder_.Next(state, {}, [&](const std::vector<Var>& v) {
      Expr old = ir::Load(state, VarList(v)), next = ir::Load(from, VarList(v));
      return rng_.Bernoulli(0.5) ? ir::Max(old, next) - Constant(1) : next - old;
    });
    builder_.EndScan();
    Compute(shape, [&](const std::vector<Var>& v) {
      std::vector<Expr> at = VarList(v);
      at.insert(at.begin(), steps);
      return ir::Load(state, at);
    });
  }

  // A neighbour along the last axis, zero outside.
  Expr Tap(const Tensor& x, std::vector<Expr> at, int64_t d) {
    at.back() = at.back() + Int(d);
    Expr inside = at.back() >= Int(0) && at.back() < x.shape.back().e;
    return ir::Select(inside, ir::Load(x.buffer, at), Constant(0));
  }

  // Three neighbours.
  void Stencil(const Tensor& x) {
    if (x.shape.empty()) return Elementwise(x);
    Compute(x.shape, [&](const std::vector<Var>& v) {
      const std::vector<Expr> at = VarList(v);
      return Tap(x, at, -1) + Tap(x, at, 0) + Tap(x, at, 1);
    });
  }

  // Rows of a matrix times neighbours, each row a sum of its own, as in Winograd's transforms.
  // Tiles of two elements come again and again: no loop's ends decide which one is at a border.
  void Rows(const Tensor& x) {
    if (x.shape.empty() || ir::AsInt(x.shape.back().e) == nullptr) return Stencil(x);
    const Extent rows{Int(3), 3};
    std::vector<Extent> shape = x.shape;
    shape.insert(shape.begin(), rows);
    if (Elements(shape) > options_.max_elements) return Stencil(x);
    const int64_t tiles = (x.shape.back().value + 1) / 2;
    Compute(shape, [&](const std::vector<Var>& v) {
      std::vector<Expr> at(v.begin() + 1, v.end());
      at.back() = ir::FloorMod(at.back(), Int(tiles)) * Int(2);
      const Expr others = ir::Select(ir::Eq(v[0], Int(1)), Tap(x, at, 0) * Constant(2),
                                     Tap(x, at, -1) + Tap(x, at, 1));
      return ir::Select(ir::Eq(v[0], Int(0)), Tap(x, at, -1) - Tap(x, at, 0), others);
    });
  }

  // x, then another tensor behind it along one axis: each side is read where it is chosen only.
  void Concat(const Tensor& x) {
    if (x.shape.empty()) return Elementwise(x);
    const size_t axis = rng_.Uniform(x.shape.size());
    std::vector<Extent> other = x.shape, shape = x.shape;
    other[axis] = {Int(3), 3};
    shape[axis] = {x.shape[axis].e + Int(3), x.shape[axis].value + 3};
    if (Elements(shape) > options_.max_elements) return Elementwise(x);
    const Tensor y = NewInput(other);
    Compute(shape, [&](const std::vector<Var>& v) {
      std::vector<Expr> behind = VarList(v);
      behind[axis] = behind[axis] - x.shape[axis].e;
      return ir::Select(v[axis] < x.shape[axis].e, Unary(ir::Load(x.buffer, VarList(v))),
                        ir::Load(y.buffer, behind));
    });
  }

  // The same elements in rows of another length.
  void Reshape(const Tensor& x) {
    const bool constant =
        std::ranges::all_of(x.shape, [](const Extent& e) { return ir::AsInt(e.e) != nullptr; });
    if (x.shape.empty() || !constant) return Elementwise(x);
    const int64_t all = Elements(x.shape);
    int64_t row = rng_.UniformInt(1, std::min<int64_t>(all, options_.max_extent));
    while (all % row != 0) --row;
    const std::vector<Extent> shape = {{Int(all / row), all / row}, {Int(row), row}};
    Compute(shape, [&](const std::vector<Var>& v) {
      Expr flat = v[0] * Int(row) + v[1];
      std::vector<Expr> at(x.shape.size());
      for (size_t d = x.shape.size(); d-- > 0;) {
        at[d] = d == 0 ? flat : ir::FloorMod(flat, x.shape[d].e);
        flat = ir::FloorDiv(flat, x.shape[d].e);
      }
      return Unary(ir::Load(x.buffer, at));
    });
  }

  // Each element of the last axis twice.
  void Upsample(const Tensor& x) {
    if (x.shape.empty()) return Elementwise(x);
    std::vector<Extent> shape = x.shape;
    shape.back() = {shape.back().e * Int(2), shape.back().value * 2};
    if (Elements(shape) > options_.max_elements) return Stencil(x);
    Compute(shape, [&](const std::vector<Var>& v) {
      std::vector<Expr> at = VarList(v);
      at.back() = ir::FloorDiv(at.back(), Int(2));
      return ir::Load(x.buffer, at);
    });
  }

  // Rows of x that an input of indices names.
  void Gather(const Tensor& x) {
    if (x.shape.empty()) return Elementwise(x);
    std::vector<Extent> shape = x.shape;
    shape[0] = NewExtent();
    if (Elements(shape) > options_.max_elements) return Elementwise(x);
    const Buffer rows = builder_.Input(Name("rows"), ir::kI32, {shape[0].e});
    Compute(shape, [&](const std::vector<Var>& v) {
      std::vector<Expr> at = VarList(v);
      const Expr row = ir::Cast(ir::kI64, ir::Load(rows, {v[0]}));
      at[0] = ir::Max(Int(0), ir::Min(row, x.shape[0].e - Int(1)));
      return ir::Load(x.buffer, at);
    });
  }

  // Sums of what lies before each element along the last axis, and of itself.
  void Causal(const Tensor& x) {
    if (x.shape.empty()) return Elementwise(x);
    Axis k = builder_.ReduceAxis("k", x.shape.back().e);
    Buffer out = builder_.Reduce(
        Name("t"), dtype_, Exprs(x.shape), {}, {k}, AnyCombiner(), [&](const std::vector<Var>& v) {
          std::vector<Expr> at = VarList(v);
          at.back() = k.var;
          return ir::Select(k.var <= v.back(), ir::Load(x.buffer, at), Constant(0));
        });
    Emit(out, x.shape);
  }

  // Choices within choices: by indices, by what was read, by what lies inside.
  void Choose(const Tensor& x) {
    if (x.shape.empty()) return Elementwise(x);
    Compute(x.shape, [&](const std::vector<Var>& v) {
      const std::vector<Expr> at = VarList(v);
      const Expr here = ir::Load(x.buffer, at);
      const Expr near = ir::Select(RandomCondition(&rng_, v, 1), Tap(x, at, -1), here);
      const Expr other = ir::Select(here < Constant(rng_.UniformInt(-1, 2)), Tap(x, at, 2), near);
      return ir::Select(RandomCondition(&rng_, v, 1), other, Tap(x, at, 1) - near);
    });
  }

  // A strided window along the last axis, as pooling does.
  void Window(const Tensor& x) {
    if (x.shape.empty() || ir::AsInt(x.shape.back().e) == nullptr) return Stencil(x);
    int64_t n = x.shape.back().value, stride = rng_.UniformInt(1, 3),
            width = rng_.UniformInt(1, std::min<int64_t>(n, 4));
    std::vector<Extent> shape = x.shape;
    shape.back().value = (n - width) / stride + 1;
    shape.back().e = Int(shape.back().value);
    Axis k = builder_.ReduceAxis("k", Int(width));
    Buffer out = builder_.Reduce(Name("t"), dtype_, Exprs(shape), {}, {k}, AnyCombiner(),
                                 [&](const std::vector<Var>& v) {
                                   std::vector<Expr> at(v.begin(), v.end());
                                   at.back() = at.back() * Int(stride) + k.var;
                                   return ir::Load(x.buffer, at);
                                 });
    Emit(out, shape);
  }

  void Matmul(const Tensor& x) {
    if (x.shape.empty()) return Elementwise(x);
    std::vector<Extent> shape = x.shape;
    Extent inner = shape.back(), columns = NewExtent();
    shape.back() = columns;
    bool fits = Elements(shape) <= options_.max_elements &&
                Elements(shape) * inner.value <= options_.max_work &&
                inner.value * columns.value <= options_.max_elements;
    if (!fits) return Reduction(x);
    Tensor w = NewInput({inner, columns});
    Axis k = builder_.ReduceAxis("k", inner.e);
    Buffer out = builder_.Reduce(
        Name("t"), dtype_, Exprs(shape), {}, {k}, Combiner::kSum, [&](const std::vector<Var>& v) {
          std::vector<Expr> at(v.begin(), v.end());
          at.back() = k.var;
          return ir::Load(x.buffer, at) * ir::Load(w.buffer, {k.var, v.back()});
        });
    Emit(out, shape);
  }

  void Transpose(const Tensor& x) {
    std::vector<Extent> shape(x.shape.rbegin(), x.shape.rend());
    Compute(shape, [&](const std::vector<Var>& v) {
      return Unary(ir::Load(x.buffer, std::vector<Expr>(v.rbegin(), v.rend())));
    });
  }

  // A small padded or strided 2-D convolution of fresh inputs, added to nothing: later stages build
  // on it.
  void Convolution() {
    int64_t channels = rng_.UniformInt(1, 3), filters = rng_.UniformInt(1, 5),
            size = rng_.UniformInt(3, 8);
    int64_t kernel = rng_.UniformInt(1, 3), stride = rng_.UniformInt(1, 2),
            pad = rng_.Bernoulli(0.4) ? kernel / 2 : 0;
    int64_t out_size = (size + 2 * pad - kernel) / stride + 1;
    auto extent = [](int64_t v) { return Extent{Int(v), v}; };
    Tensor x = NewInput({extent(channels), extent(size), extent(size)});
    Tensor w = NewInput({extent(filters), extent(channels), extent(kernel), extent(kernel)});
    std::vector<Extent> shape = {extent(filters), extent(out_size), extent(out_size)};
    Axis c = builder_.ReduceAxis("ic", Int(channels)), ky = builder_.ReduceAxis("ky", Int(kernel)),
         kx = builder_.ReduceAxis("kx", Int(kernel));
    auto value = [&](const std::vector<Var>& v) {
      Expr y = v[1] * Int(stride) + ky.var - Int(pad), z = v[2] * Int(stride) + kx.var - Int(pad);
      Expr tap = ir::Load(x.buffer, {c.var, y, z});
      if (pad > 0) {
        Expr inside = y >= Int(0) && y < Int(size) && z >= Int(0) && z < Int(size);
        tap = ir::Select(inside, tap, Constant(0));
      }
      return tap * ir::Load(w.buffer, {v[0], c.var, ky.var, kx.var});
    };
    Buffer out = builder_.Reduce(Name("conv"), dtype_, Exprs(shape), {"oc", "oh", "ow"},
                                 {c, ky, kx}, Combiner::kSum, value);
    Emit(out, shape);
  }

  Rng rng_;
  const RandomIrOptions options_;
  ir::FunctionBuilder builder_;
  const DType dtype_;
  Extent symbol_;
  std::vector<Tensor> tensors_;
  int names_ = 0;
};

}  // namespace

RandomProgram RandomTe(uint64_t seed, const RandomIrOptions& options) {
  return TeGenerator(seed, options).Generate();
}

}  // namespace tilewright::tests
