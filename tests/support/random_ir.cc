#include "tests/support/random_ir.h"

#include <algorithm>
#include <cstring>

#include "compiler/ir/build.h"
#include "compiler/ir/ir_text.h"
#include "deploy/support/status.h"

namespace tilewright::tests {
namespace {

using ir::Buffer;
using ir::DType;
using ir::Expr;
using ir::ExprKind;
using ir::Int;
using ir::Stmt;
using ir::Var;
using support::Rng;

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
