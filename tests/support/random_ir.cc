#include "tests/support/random_ir.h"

#include <algorithm>
#include <cstring>

#include "compiler/ir/build.h"
#include "compiler/ir/ir_text.h"
#include "deploy/support/status.h"

namespace tilewright::tests {
namespace {

using ir::Axis;
using ir::Buffer;
using ir::Combiner;
using ir::DType;
using ir::Expr;
using ir::ExprKind;
using ir::Int;
using ir::Stmt;
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

  void AddStage() {
    const Tensor x = tensors_.back();
    switch (rng_.Uniform(10)) {
      case 8:
        return Tuple(x);
      case 9:
        return Scan(x);
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
      default:
        return Convolution();
    }
  }

  void Elementwise(const Tensor& x) {
    bool second = rng_.Bernoulli(0.6);
    Tensor y = second ? (rng_.Bernoulli(0.3) ? x : NewInput(x.shape)) : x;
    Buffer out =
        builder_.Compute(Name("t"), dtype_, Exprs(x.shape), {}, [&](const std::vector<Var>& v) {
          Expr a = ir::Load(x.buffer, v);
          return second ? Combine(a, ir::Load(y.buffer, v)) : Unary(a);
        });
    Emit(out, x.shape);
  }

  // A tensor of fewer axes (bias) over those of x.
  void Broadcast(const Tensor& x) {
    size_t axis = rng_.Uniform(std::max<size_t>(x.shape.size(), 1));
    if (x.shape.empty()) return Elementwise(x);
    Tensor bias = NewInput({x.shape[axis]});
    Buffer out =
        builder_.Compute(Name("t"), dtype_, Exprs(x.shape), {}, [&](const std::vector<Var>& v) {
          return Combine(ir::Load(x.buffer, v), ir::Load(bias.buffer, {v[axis]}));
        });
    Emit(out, x.shape);
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
    Buffer out =
        builder_.Compute(Name("t"), dtype_, Exprs(shape), {}, [&](const std::vector<Var>& v) {
          Expr found = ir::FloorMod(ir::Load(pair[1], VarList(v)), Int(97, place));
          return ir::Load(pair[0], VarList(v)) + ir::Cast(dtype_, found);
        });
    Emit(out, shape);
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
    Buffer out =
        builder_.Compute(Name("t"), dtype_, Exprs(shape), {}, [&](const std::vector<Var>& v) {
          std::vector<Expr> at = VarList(v);
          at.insert(at.begin(), steps);
          return ir::Load(state, at);
        });
    Emit(out, shape);
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
    Buffer out =
        builder_.Compute(Name("t"), dtype_, Exprs(x.shape), {}, [&](const std::vector<Var>& v) {
          const std::vector<Expr> at = VarList(v);
          return Tap(x, at, -1) + Tap(x, at, 0) + Tap(x, at, 1);
        });
    Emit(out, x.shape);
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
    Buffer out =
        builder_.Compute(Name("t"), dtype_, Exprs(shape), {}, [&](const std::vector<Var>& v) {
          std::vector<Expr> at(v.begin() + 1, v.end());
          at.back() = ir::FloorMod(at.back(), Int(tiles)) * Int(2);
          const Expr others = ir::Select(ir::Eq(v[0], Int(1)), Tap(x, at, 0) * Constant(2),
                                         Tap(x, at, -1) + Tap(x, at, 1));
          return ir::Select(ir::Eq(v[0], Int(0)), Tap(x, at, -1) - Tap(x, at, 0), others);
        });
    Emit(out, shape);
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
    Buffer out =
        builder_.Compute(Name("t"), dtype_, Exprs(shape), {}, [&](const std::vector<Var>& v) {
          return Unary(ir::Load(x.buffer, std::vector<Expr>(v.rbegin(), v.rend())));
        });
    Emit(out, shape);
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

// ------------------------------------------------------------------------------------------------
// flat programs

constexpr int64_t kFlatElements = 96;

class FlatGenerator {
 public:
  explicit FlatGenerator(uint64_t seed) : rng_(seed) {}

  ir::Function Generate() {
    ir::Function f;
    f.name = "random_flat";
    f.stage = ir::Stage::kFlat;
    if (rng_.Bernoulli(0.3)) f.attrs["note"] = std::string("a \"quoted\"\ttext \x01");
    if (rng_.Bernoulli(0.3)) f.attrs["number"] = rng_.UniformInt(-5, 5);
    in_ = ir::MakeBuffer("x", ir::kF32, {Int(kFlatElements)}, ir::Role::kInput);
    ints_ = ir::MakeBuffer("k", ir::kI32, {Int(kFlatElements)}, ir::Role::kConstant);
    out_ = ir::MakeBuffer("y", ir::kF32, {Int(kFlatElements)}, ir::Role::kOutput);
    f.params = {in_, ints_, out_};
    Var i = ir::MakeVar("i");
    Stmt clear = ir::MakeFor(i, Int(0), Int(kFlatElements), ir::MakeStore(out_, {i}, ir::Float(0)));
    std::vector<Stmt> stmts{clear};
    for (int64_t n = rng_.UniformInt(1, 4); n > 0; --n) stmts.push_back(Statement(3));
    f.body = ir::MakeSeq(stmts);
    return f;
  }

 private:
  Expr Index(int lanes) {
    Expr e = RandomIndexExpr(&rng_, vars_, 2);
    if (lanes == 1) return ir::FloorMod(e, Int(kFlatElements));
    return ir::Ramp(ir::FloorMod(e, Int(kFlatElements - 2 * lanes)), Int(rng_.UniformInt(1, 2)),
                    lanes);
  }
  Expr Mask(int lanes) {
    if (rng_.Bernoulli(0.6)) return nullptr;
    if (lanes == 1) return RandomCondition(&rng_, vars_, 1);
    Expr base = RandomIndexExpr(&rng_, vars_, 1);
    return ir::Ramp(base, Int(1), lanes) < ir::Broadcast(Int(rng_.UniformInt(0, 20)), lanes);
  }
  Expr Value(int lanes, int depth) {
    if (depth == 0) {
      switch (rng_.Uniform(4)) {
        case 0:
          return ir::Load(in_, {Index(lanes)}, Mask(lanes));
        case 1:
          return ir::Cast(ir::kF32.WithLanes(lanes), ir::Load(ints_, {Index(lanes)}));
        case 2:
          if (local_ != nullptr) return ir::Load(local_, {Index(lanes)});
          [[fallthrough]];
        default:
          return ir::Broadcast(ir::Float(static_cast<double>(rng_.UniformInt(-8, 8)) / 4), lanes);
      }
    }
    if (lanes == 4 && rng_.Bernoulli(0.1)) return Dot(lanes);
    Expr a = Value(lanes, depth - 1), b = Value(lanes, depth - 1);
    switch (rng_.Uniform(8)) {
      case 0:
        return a + b;
      case 1:
        return a * b - a;
      case 2:
        return ir::Max(a, b);
      case 3:
        return ir::Select(a < b, a, b);
      case 4:
        return ir::Select(RandomCondition(&rng_, vars_, 1), a, b);
      case 5:
        return ir::Call(ir::Intrinsic::kFma, {a, b, a});
      default:
        return ir::Call(ir::Intrinsic::kFloor, {a});
    }
  }
  // Sums of four products of narrow integers.
  Expr Dot(int lanes) {
    ir::DType left = rng_.Bernoulli(0.5) ? ir::kU8 : ir::kI8;
    int left_lanes = rng_.Bernoulli(0.5) ? 4 : 4 * lanes;
    auto narrow = [&](ir::DType type, int n) {
      return ir::Cast(type.WithLanes(n), ir::Load(ints_, {Index(n)}));
    };
    Expr sum = ir::Cast(ir::kI32.WithLanes(lanes), ir::Load(ints_, {Index(lanes)}));
    const Expr right = rng_.Bernoulli(0.3)
                           ? ir::Cast(ir::kI32.WithLanes(lanes), ir::Load(ints_, {Index(lanes)}))
                           : narrow(ir::kI8, 4 * lanes);
    return ir::Cast(ir::kF32.WithLanes(lanes),
                    ir::Call(ir::Intrinsic::kDot4, {sum, narrow(left, left_lanes), right}));
  }
  Stmt Store() {
    static const std::vector<int> kLanes = {1, 1, 4, 8};
    int lanes = rng_.Choice(kLanes);
    const Buffer& to = local_ != nullptr && rng_.Bernoulli(0.4) ? local_ : out_;
    return ir::MakeStore(to, {Index(lanes)}, Value(lanes, 2), Mask(lanes));
  }
  Stmt Loop(int depth) {
    Var v = ir::MakeVar(rng_.Bernoulli(0.5) ? "i" : "j");
    Expr extent = rng_.Bernoulli(0.7) || vars_.empty()
                      ? Int(rng_.UniformInt(0, 5))
                      : ir::Min(Int(4), ir::FloorMod(vars_[0], Int(7)));
    Expr min = Int(rng_.UniformInt(-3, 3));
    vars_.push_back(v);
    ir::Annotations annotations;
    if (rng_.Bernoulli(0.2)) annotations["pragma"] = std::string("x");
    Stmt body = Statement(depth - 1);
    vars_.pop_back();
    bool once = rng_.Bernoulli(0.1);  // in any order: a claim that holds for one iteration
    return ir::MakeFor(v, min, once ? Int(1) : extent, body,
                       once ? ir::ForKind::kVirtual : ir::ForKind::kSerial, annotations);
  }
  // Stores in flight, waited for, and what has no effect on one thread.
  Stmt Async() {
    Stmt landed = ir::MakeSeq({ir::MakeAsync(AsyncStore()), ir::MakeSync(ir::SyncKind::kCommit)});
    int64_t pending = rng_.Bernoulli(0.3) ? 1 : 0;
    if (pending == 1) landed = ir::MakeSeq({landed, ir::MakeSync(ir::SyncKind::kCommit)});
    return ir::MakeSeq({landed, ir::MakeSync(ir::SyncKind::kWait, pending),
                        ir::MakeSync(ir::SyncKind::kBarrier), Store()});
  }
  Stmt AsyncStore() {
    const Buffer& to = local_ != nullptr ? local_ : out_;
    return ir::MakeStore(to, {Index(1)}, Value(1, 2));
  }
  Stmt Alloc(int depth) {
    Buffer outer = local_;
    local_ = ir::MakeBuffer("local" + std::to_string(names_++), ir::kF32, {Int(kFlatElements)},
                            ir::Role::kIntermediate,
                            rng_.Bernoulli(0.5) ? ir::Scope::kLocal : ir::Scope::kGlobal);
    Var i = ir::MakeVar("i");
    Stmt clear =
        ir::MakeFor(i, Int(0), Int(kFlatElements), ir::MakeStore(local_, {i}, ir::Float(1)));
    Buffer mine = local_;
    Stmt body = ir::MakeSeq({clear, Statement(depth - 1), Store()});
    local_ = outer;
    return ir::MakeAlloc(mine, body);
  }
  Stmt Statement(int depth) {
    if (depth == 0) return Store();
    switch (rng_.Uniform(8)) {
      case 0:
      case 1:
        return Loop(depth);
      case 7:
        return Async();
      case 2: {
        Stmt then_body = Statement(depth - 1);
        Stmt else_body = rng_.Bernoulli(0.5) ? Statement(depth - 1) : nullptr;
        return ir::MakeIf(RandomCondition(&rng_, vars_, 2), then_body, else_body);
      }
      case 3: {
        Var v = ir::MakeVar("v");
        Expr value = RandomIndexExpr(&rng_, vars_, 2);
        vars_.push_back(v);
        Stmt body = Statement(depth - 1);
        vars_.pop_back();
        return ir::MakeLet(v, value, body);
      }
      case 4:
        return Alloc(depth);
      case 5:
        return ir::MakeSeq(
            {ir::MakeEvaluate(ir::Call(ir::Intrinsic::kPrefetch, {ir::Load(in_, {Index(1)})})),
             Store()});
      default:
        return ir::MakeSeq({Store(), Statement(depth - 1)});
    }
  }

  Rng rng_;
  Buffer in_, ints_, out_, local_;
  std::vector<Var> vars_;
  int names_ = 0;
};

}  // namespace

RandomProgram RandomTe(uint64_t seed, const RandomIrOptions& options) {
  return TeGenerator(seed, options).Generate();
}
ir::Function RandomFlat(uint64_t seed) { return FlatGenerator(seed).Generate(); }

std::string RandomProgram::Describe() const {
  std::string text = "sizes [";
  for (int64_t s : sizes) text += " " + std::to_string(s);
  return text + " ]\n" + ir::Print(function);
}

Expr RandomIndexExpr(Rng* rng, const std::vector<Var>& vars, int depth) {
  DType type = vars.empty() ? ir::kI64 : vars[0]->dtype;
  if (depth == 0 || rng->Bernoulli(0.1)) {
    if (!vars.empty() && rng->Bernoulli(0.7)) return rng->Choice(vars);
    static const std::vector<int64_t> kValues = {-7, -4, -1, 0, 1, 2, 3, 4, 5, 8, 12, 16, 30};
    return Int(rng->Choice(kValues), type);
  }
  static const std::vector<int64_t> kDivisors = {1, 2, 3, 4, 5, 6, 8, 12, 16, -3};
  auto sub = [&] { return RandomIndexExpr(rng, vars, depth - 1); };
  Expr a = sub();
  switch (rng->Uniform(14)) {
    case 0:
    case 1:
    case 2:
      return a + sub();
    case 3:
      return a - sub();
    case 4:
    case 5:
      return a * Int(rng->UniformInt(-4, 16), type);
    case 6:
      return a * sub();
    case 7:
    case 8:
      return ir::FloorDiv(a, Int(rng->Choice(kDivisors), type));
    case 9:
    case 10:
      return ir::FloorMod(a, Int(rng->Choice(kDivisors), type));
    case 11:
      return rng->Bernoulli(0.5) ? ir::Min(a, sub()) : ir::Max(a, sub());
    case 12:
      return ir::Binary(rng->Bernoulli(0.5) ? ExprKind::kDiv : ExprKind::kMod, a,
                        Int(rng->Choice(kDivisors), type));
    default:
      return ir::Select(RandomCondition(rng, vars, depth - 1), a, sub());
  }
}

Expr RandomCondition(Rng* rng, const std::vector<Var>& vars, int depth) {
  if (depth > 0 && rng->Bernoulli(0.3)) {
    Expr a = RandomCondition(rng, vars, depth - 1);
    switch (rng->Uniform(3)) {
      case 0:
        return ir::Not(a);
      case 1:
        return a && RandomCondition(rng, vars, depth - 1);
      default:
        return ir::Binary(ExprKind::kOr, a, RandomCondition(rng, vars, depth - 1));
    }
  }
  static const std::vector<ExprKind> kKinds = {ExprKind::kEq, ExprKind::kNe, ExprKind::kLt,
                                               ExprKind::kLe, ExprKind::kGt, ExprKind::kGe};
  int below = std::max(depth - 1, 0);
  Expr a = RandomIndexExpr(rng, vars, below);
  return ir::Binary(rng->Choice(kKinds), a, RandomIndexExpr(rng, vars, below));
}

// ------------------------------------------------------------------------------------------------
// running

Arguments::Arguments(const ir::Function& f, const std::vector<int64_t>& sizes, uint64_t seed) {
  for (const Buffer& b : f.params) {
    tensors_.emplace_back();
    if (b->role == ir::Role::kOutput) continue;
    Rng rng = Rng(seed).Split(tensors_.size());
    absl::StatusOr<int64_t> elements = ir::BufferElements(f, b, sizes);
    TW_CHECK(elements.ok()) << support::StatusText(elements.status());
    size_t width = b->dtype.bytes();
    std::vector<uint8_t>& bytes = tensors_.back().bytes;
    bytes.assign(*elements * width, 0);
    for (int64_t i = 0; i < *elements; ++i) {
      int64_t v = rng.UniformInt(-4, 4);
      float as_float = static_cast<float>(v);
      TW_CHECK(b->dtype == ir::kF32 || b->dtype.is_int())
          << "inputs of type " << ir::TypeName(b->dtype);
      std::memcpy(bytes.data() + i * width,
                  b->dtype == ir::kF32 ? static_cast<void*>(&as_float) : &v, width);
    }
  }
}

std::vector<ir::TensorData*> Arguments::pointers() {
  std::vector<ir::TensorData*> list;
  for (ir::TensorData& t : tensors_) list.push_back(&t);
  return list;
}

std::vector<std::vector<uint8_t>> Arguments::Outputs(const ir::Function& f) const {
  std::vector<std::vector<uint8_t>> outputs;
  for (size_t i = 0; i < f.params.size(); ++i) {
    if (f.params[i]->role == ir::Role::kOutput) outputs.push_back(tensors_[i].bytes);
  }
  return outputs;
}

absl::StatusOr<std::vector<std::vector<uint8_t>>> RunProgram(const ir::Function& f,
                                                             const std::vector<int64_t>& sizes,
                                                             uint64_t input_seed,
                                                             const ir::InterpOptions& options) {
  Arguments args(f, sizes, input_seed);
  TW_TRY(ir::Interpret(f, sizes, args.pointers(), options));
  return args.Outputs(f);
}

RandomProgram Shrink(uint64_t seed, const RandomIrOptions& options,
                     const std::function<bool(const RandomProgram&)>& fails) {
  RandomIrOptions best = options;
  size_t best_size = RandomTe(seed, options).Describe().size();
  auto try_options = [&](RandomIrOptions smaller) {
    RandomProgram candidate = RandomTe(seed, smaller);
    size_t size = candidate.Describe().size();  // other options may mean another, longer program
    if (size > best_size || !fails(candidate)) return false;
    best = smaller;
    best_size = size;
    return true;
  };
  for (bool again = true; again;) {
    again = false;
    RandomIrOptions fewer = best, smaller = best, plain = best;
    --fewer.max_stages;
    smaller.max_extent = smaller.max_extent > 4 ? smaller.max_extent / 2 : smaller.max_extent - 1;
    plain.symbolic = false;
    if (fewer.max_stages >= 1) again |= try_options(fewer);
    if (smaller.max_extent >= 1) again |= try_options(smaller);
    if (best.symbolic) again |= try_options(plain);
  }
  return RandomTe(seed, best);
}

}  // namespace tilewright::tests
