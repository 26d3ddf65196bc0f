// linear_attention: attention whose keys and values are summed up in a state per head, a matrix
// that each token fades, adds to and reads. One kernel with a serial loop over tokens.
//   for b, h {                         # of a key head
//     S = state[b,h,:,:]
//     for t {
//       S = exp(decay[b,t,h,:]) S      # rows of S; left out without decay
//       u = beta[b,t,h] (v[b,t,h,:] - Sᵀ k[b,t,h,:])     # v[b,t,h,:] without beta
//       S = S + k[b,t,h,:] uᵀ
//       y[b,h,t,g,:] = scale Sᵀ q[b,t,h * n + g,:]       # for the n query heads of h
//     }
//   }
// Operands: q [b,t,h * n,d], k [b,t,h,d], v [b,t,h,e], state [b,h,d,e]; then, as far as the
// attributes of these names are not 0, decay [b,t,h,d] or [b,t,h,1] and beta [b,t,h,1]. The result
// is [b,h,t * n + d,e]: the rows of y, then those of S after the last token.
#include <algorithm>
#include <cmath>

#include "compiler/op/op_rows.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::op {
namespace {

using ir::Expr;
using ir::Var;
using support::StrCat;

constexpr std::string_view kOp = "linear_attention";

// Sizes, and the positions of the operands that there need not be; -1 without one.
struct Problem {
  Dim batch, tokens;
  int64_t heads = 0, shared = 0, key = 0, value = 0;
  int decay = -1, beta = -1;
  bool decays_by_row = false;
  double scale = 1;
};

absl::StatusOr<Problem> ProblemOf(std::span<const TensorType> inputs, const Attrs& attrs,
                                  DimEqualities* equal) {
  Problem p;
  p.scale = GetDouble(attrs, "scale", 1);
  int next = 4;
  if (GetInt(attrs, "decay", 0) != 0) p.decay = next++;
  if (GetInt(attrs, "beta", 0) != 0) p.beta = next++;
  if (static_cast<int>(inputs.size()) != next) {
    return OpError(kOp, "inputs", StrCat("expected ", next, " operands, found ", inputs.size()));
  }
  for (const TensorType& in : inputs) {
    if (in.rank() == 4 && in.dtype == inputs[0].dtype) continue;
    return OpError(kOp, "shape",
                   StrCat("expected tensors of four dimensions and one type, found ", ToText(in)));
  }
  p.batch = inputs[0].shape[0], p.tokens = inputs[0].shape[1];
  TW_ASSIGN(const int64_t query_heads, Fixed(kOp, inputs[0].shape[2]));
  TW_ASSIGN(p.heads, Fixed(kOp, inputs[1].shape[2]));
  TW_ASSIGN(p.key, Fixed(kOp, inputs[1].shape[3]));
  TW_ASSIGN(p.value, Fixed(kOp, inputs[2].shape[3]));
  if (query_heads % p.heads != 0) {
    return OpError(
        kOp, "shape",
        StrCat("expected a number of query heads that ", p.heads, " divides, found ", query_heads));
  }
  p.shared = query_heads / p.heads;
  const auto check = [&](int i, const std::vector<Dim>& wanted) -> absl::Status {
    if (i < 0 || MayEqual(inputs[static_cast<size_t>(i)].shape, wanted, equal)) {
      return absl::OkStatus();
    }
    return OpError(kOp, "shape",
                   StrCat("expected operand ", i, " of ", DimsText(wanted), ", found ",
                          ToText(inputs[static_cast<size_t>(i)])));
  };
  const Dim heads = p.heads, key = p.key, value = p.value, one = 1;
  TW_TRY(check(0, {p.batch, p.tokens, query_heads, key}));
  TW_TRY(check(1, {p.batch, p.tokens, heads, key}));
  TW_TRY(check(2, {p.batch, p.tokens, heads, value}));
  TW_TRY(check(3, {p.batch, heads, key, value}));
  p.decays_by_row = p.decay >= 0 && inputs[static_cast<size_t>(p.decay)].shape[3] != one;
  TW_TRY(check(p.decay, {p.batch, p.tokens, heads, p.decays_by_row ? key : one}));
  TW_TRY(check(p.beta, {p.batch, p.tokens, heads, one}));
  return p;
}

absl::StatusOr<TensorTypes> Infer(std::span<const TensorType> inputs, const Attrs& attrs,
                                  DimEqualities* equal) {
  TW_ASSIGN(const Problem p, ProblemOf(inputs, attrs, equal));
  const Dim rows = p.tokens * Dim(p.shared) + Dim(p.key);
  return TensorTypes{{inputs[0].dtype, {p.batch, p.heads, rows, p.value}}};
}

// ------------------------------------------------------------ compute

class Builder {
 public:
  Builder(const ComputeArgs& a, const Problem& problem)
      : b_(a.b), name_(a.name), in_(a.inputs), p_(problem), type_(in_[0]->dtype) {}

  ir::Buffer Run() {
    const Expr batch = SizeExpr(b_, p_.batch), tokens = SizeExpr(b_, p_.tokens);
    const std::vector<Expr> matrix = {ir::Int(p_.key), ir::Int(p_.value)};
    b_.BeginNest({"b", "h"}, {batch, ir::Int(p_.heads)});
    state_ = b_.Carried(name_ + "_state", type_, matrix, {"d", "e"},
                        [&](const auto& v) { return ir::Load(in_[3], {v[0], v[1], v[2], v[3]}); });
    b_.BeginScan("t", tokens);
    AddFade();
    const ir::Buffer fresh = Fresh();
    b_.Carry(state_, {"d", "e"}, [&](const std::vector<Var>& v) {
      return Faded(v, v[3], v[4]) + K(v, v[3]) * ir::Load(fresh, {v[0], v[1], v[2], v[4]});
    });
    const ir::Buffer read = Read();
    b_.EndScan();
    const ir::Buffer result = Result(read, tokens);
    b_.EndNest();
    return result;
  }

 private:
  // In the scan the variables are b, h, t and those of the stage; operands have the token first.
  Expr K(const std::vector<Var>& v, const Expr& d) const {
    return ir::Load(in_[1], {v[0], v[2], v[1], d});
  }
  Expr StateAt(const std::vector<Var>& v, const Expr& d, const Expr& e) const {
    return ir::Load(state_, {v[0], v[1], d, e});
  }
  // What the state of before this token counts for, once for all columns.
  void AddFade() {
    if (p_.decay < 0) return;
    fade_ = b_.Compute(name_ + "_fade", type_, {ir::Int(p_.decays_by_row ? p_.key : 1)}, {"d"},
                       [&](const std::vector<Var>& v) {
                         const Expr x = ir::Load(in_[p_.decay], {v[0], v[2], v[1], v[3]});
                         return ir::Call(ir::Intrinsic::kExp, {x});
                       });
  }
  Expr Faded(const std::vector<Var>& v, const Expr& d, const Expr& e) const {
    const Expr state = StateAt(v, d, e);
    if (p_.decay < 0) return state;
    return ir::Load(fade_, {v[0], v[1], v[2], p_.decays_by_row ? d : ir::Int(0)}) * state;
  }
  // The value that the state takes in.
  ir::Buffer Fresh() {
    const auto value = [this](const std::vector<Var>& v) {
      return ir::Load(in_[2], {v[0], v[2], v[1], v[3]});
    };
    const std::vector<Expr> shape = {ir::Int(p_.value)};
    if (p_.beta < 0) return b_.Compute(name_ + "_fresh", type_, shape, {"e"}, value);
    const ir::Axis d = b_.ReduceAxis("d", ir::Int(p_.key));
    const ir::Buffer known =
        b_.Reduce(name_ + "_known", type_, shape, {"e"}, {d}, ir::Combiner::kSum,
                  [&](const std::vector<Var>& v) { return Faded(v, d.var, v[3]) * K(v, d.var); });
    return b_.Compute(name_ + "_fresh", type_, shape, {"e"}, [&](const std::vector<Var>& v) {
      const Expr beta = ir::Load(in_[p_.beta], {v[0], v[2], v[1], ir::Int(0)});
      return beta * (value(v) - ir::Load(known, {v[0], v[1], v[2], v[3]}));
    });
  }
  // What the queries of this token find, [g,e].
  ir::Buffer Read() {
    const ir::Axis d = b_.ReduceAxis("d", ir::Int(p_.key));
    return b_.Reduce(name_ + "_read", type_, {ir::Int(p_.shared), ir::Int(p_.value)}, {"g", "e"},
                     {d}, ir::Combiner::kSum, [&](const std::vector<Var>& v) {
                       const Expr head = v[1] * ir::Int(p_.shared) + v[3];
                       return ir::Load(in_[0], {v[0], v[2], head, d.var}) * StateAt(v, d.var, v[4]);
                     });
  }
  // In the nest, too: the variables are b, h and those of the stage.
  ir::Buffer Result(const ir::Buffer& read, const Expr& tokens) {
    const Expr shared = ir::Int(p_.shared), of_tokens = tokens * shared;
    const std::vector<Expr> shape = {of_tokens + ir::Int(p_.key), ir::Int(p_.value)};
    return b_.Compute(name_, type_, shape, {"r", "e"}, [&](const std::vector<Var>& v) {
      // A position outside of what the row reads is not read.
      const Expr y = ir::Load(
          read, {v[0], v[1], ir::FloorDiv(v[2], shared), ir::FloorMod(v[2], shared), v[3]});
      const Expr state = ir::Load(state_, {v[0], v[1], v[2] - of_tokens, v[3]});
      return ir::Select(v[2] < of_tokens, y * ir::Float(p_.scale, type_), state);
    });
  }

  ir::FunctionBuilder& b_;
  const std::string& name_;
  const std::span<const ir::Buffer> in_;
  const Problem& p_;
  const ir::DType type_;
  ir::Buffer state_, fade_;
};

absl::StatusOr<std::vector<ir::Buffer>> Build(const ComputeArgs& a) {
  DimEqualities equal;
  TW_ASSIGN(const Problem p, ProblemOf(a.input_types, a.attrs, &equal));
  return std::vector<ir::Buffer>{Builder(a, p).Run()};
}

// ------------------------------------------------------------ reference

// Elements of a tensor of four dimensions.
class View {
 public:
  explicit View(const RefTensor& x) : x_(x), strides_(RowMajorStrides(x.type.sizes())) {}
  double operator()(int64_t a, int64_t b, int64_t c, int64_t d) const {
    return x_.values[static_cast<size_t>(a * strides_[0] + b * strides_[1] + c * strides_[2] + d)];
  }

 private:
  const RefTensor& x_;
  const std::vector<int64_t> strides_;
};

// One head of one sequence; its state is a matrix [d,e].
class Head {
 public:
  Head(std::span<const RefTensor> in, const Problem& p, int64_t b, int64_t h)
      : in_(in), p_(p), b_(b), h_(h), state_(static_cast<size_t>(p.key * p.value)) {
    const View start(in[3]);
    for (int64_t d = 0; d < p.key; ++d) {
      for (int64_t e = 0; e < p.value; ++e) At(d, e) = start(b, h, d, e);
    }
  }
  const std::vector<double>& state() const { return state_; }

  void Take(int64_t t) {
    const View k(in_[1]), v(in_[2]);
    for (int64_t d = 0; p_.decay >= 0 && d < p_.key; ++d) {
      const View decay(in_[static_cast<size_t>(p_.decay)]);
      const double fade = std::exp(decay(b_, t, h_, p_.decays_by_row ? d : 0));
      for (int64_t e = 0; e < p_.value; ++e) At(d, e) *= fade;
    }
    for (int64_t e = 0; e < p_.value; ++e) {
      double fresh = v(b_, t, h_, e);
      if (p_.beta >= 0) {
        double known = 0;
        for (int64_t d = 0; d < p_.key; ++d) known += At(d, e) * k(b_, t, h_, d);
        fresh = View(in_[static_cast<size_t>(p_.beta)])(b_, t, h_, 0) * (fresh - known);
      }
      for (int64_t d = 0; d < p_.key; ++d) At(d, e) += k(b_, t, h_, d) * fresh;
    }
  }
  double Read(int64_t t, int64_t g, int64_t e) const {
    const View q(in_[0]);
    double sum = 0;
    for (int64_t d = 0; d < p_.key; ++d) {
      sum += q(b_, t, h_ * p_.shared + g, d) * state_[static_cast<size_t>(d * p_.value + e)];
    }
    return p_.scale * sum;
  }

 private:
  double& At(int64_t d, int64_t e) { return state_[static_cast<size_t>(d * p_.value + e)]; }
  const std::span<const RefTensor> in_;
  const Problem& p_;
  const int64_t b_, h_;
  std::vector<double> state_;
};

absl::StatusOr<std::vector<RefTensor>> Plain(std::span<const RefTensor> inputs,
                                             std::span<const TensorType> outputs,
                                             const Attrs& attrs) {
  const TensorTypes types = TypesOf(inputs);
  DimEqualities equal;
  TW_ASSIGN(const Problem p, ProblemOf(types, attrs, &equal));
  RefTensor out{outputs[0], {}};
  for (int64_t b = 0; b < p.batch.value(); ++b) {
    for (int64_t h = 0; h < p.heads; ++h) {
      Head head(inputs, p, b, h);
      for (int64_t t = 0; t < p.tokens.value(); ++t) {
        head.Take(t);
        for (int64_t g = 0; g < p.shared; ++g) {
          for (int64_t e = 0; e < p.value; ++e) out.values.push_back(head.Read(t, g, e));
        }
      }
      out.values.insert(out.values.end(), head.state().begin(), head.state().end());
    }
  }
  return std::vector<RefTensor>{std::move(out)};
}

double Flops(std::span<const TensorType> inputs, std::span<const TensorType> outputs,
             const Attrs& attrs) {
  DimEqualities equal;
  const absl::StatusOr<Problem> p = ProblemOf(inputs, attrs, &equal);
  if (!p.ok()) return 0;
  const int64_t each = 2 + (p->decay >= 0 ? 1 : 0) + (p->beta >= 0 ? 2 : 0) + 2 * p->shared;
  return static_cast<double>(inputs[1].elements()) * static_cast<double>(p->value) *
             static_cast<double>(each) +
         static_cast<double>(outputs[0].elements());
}

}  // namespace

std::vector<OpSpec> LinearAttentionRows() {
  OpSpec row;
  row.name = kOp;
  row.onnx = {"LinearAttention"};
  row.min_inputs = 4;
  row.max_inputs = 6;
  row.types = kFloats;
  row.infer = Infer;
  row.compute = Build;
  row.flops = Flops;
  row.reduction_length = [](std::span<const TensorType> inputs, const Attrs&) {
    return static_cast<double>(inputs[1].size(1) + inputs[1].size(3));
  };
  row.reference = Plain;
  return {row};
}

}  // namespace tilewright::op
