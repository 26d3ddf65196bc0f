// Elementwise operators: what happens to one element, in the tensor IR and in double. Everything
// else about them (types, broadcasting, loops) is derived in op.cc. Maxima and minima are written
// so that a NaN in the data comes through: ir::Max(c, x) gives x where one side is NaN.
#include <cmath>

#include "compiler/op/op_rows.h"

namespace tilewright::op {
namespace {

using ir::Expr;
using Exprs = std::span<const ir::Expr>;
using Doubles = std::span<const double>;

Expr Like(double value, const Expr& x) {
  return x->dtype.is_float() ? ir::Float(value, x->dtype)
                             : ir::Int(static_cast<int64_t>(value), x->dtype);
}
Expr Apply(ir::Intrinsic f, const Expr& x) { return ir::Call(f, {x}); }
Expr ClipTo(const Expr& x, double low, double high) {
  Expr value = x;
  if (std::isfinite(low)) value = ir::Max(Like(low, x), value);
  if (std::isfinite(high)) value = ir::Min(Like(high, x), value);
  return value;
}
double ClipValue(double x, double low, double high) {
  if (x < low) return low;
  return x > high ? high : x;
}
double AttrMin(const Attrs& a) { return GetDouble(a, "min", -INFINITY); }
double AttrMax(const Attrs& a) { return GetDouble(a, "max", INFINITY); }
double Alpha(const Attrs& a, double fallback) { return GetDouble(a, "alpha", fallback); }
double Beta(const Attrs& a, double fallback) { return GetDouble(a, "beta", fallback); }
Expr Sigmoid(const Expr& x) {
  return Like(1, x) / (Like(1, x) + Apply(ir::Intrinsic::kExp, Like(0, x) - x));
}
double SigmoidValue(double x) { return 1 / (1 + std::exp(-x)); }

struct Row {
  std::string_view name, onnx;
  int inputs;
  uint8_t types;
  Expr (*scalar)(Exprs, const Attrs&);
  double (*reference)(Doubles, const Attrs&);
};

using ir::Intrinsic;

constexpr Row kRows[] = {
    {"add", "Add", 2, kNumbers, [](Exprs x, const Attrs&) { return x[0] + x[1]; },
     [](Doubles x, const Attrs&) { return x[0] + x[1]; }},
    {"sub", "Sub", 2, kNumbers, [](Exprs x, const Attrs&) { return x[0] - x[1]; },
     [](Doubles x, const Attrs&) { return x[0] - x[1]; }},
    {"mul", "Mul", 2, kNumbers, [](Exprs x, const Attrs&) { return x[0] * x[1]; },
     [](Doubles x, const Attrs&) { return x[0] * x[1]; }},
    {"div", "Div", 2, kFloats, [](Exprs x, const Attrs&) { return x[0] / x[1]; },
     [](Doubles x, const Attrs&) { return x[0] / x[1]; }},
    {"pow", "Pow", 2, kFloats,
     [](Exprs x, const Attrs&) {
       // Small whole exponents are products: exact, and no library call.
       if (x[1]->kind == ir::ExprKind::kFloatImm && x[1]->float_value == 2) return x[0] * x[0];
       return ir::Call(Intrinsic::kPow, {x[0], x[1]});
     },
     [](Doubles x, const Attrs&) { return std::pow(x[0], x[1]); }},
    {"max", "Max", 2, kNumbers, [](Exprs x, const Attrs&) { return ir::Max(x[0], x[1]); },
     [](Doubles x, const Attrs&) { return x[0] > x[1] ? x[0] : x[1]; }},
    {"min", "Min", 2, kNumbers, [](Exprs x, const Attrs&) { return ir::Min(x[0], x[1]); },
     [](Doubles x, const Attrs&) { return x[0] < x[1] ? x[0] : x[1]; }},
    {"relu", "Relu", 1, kNumbers,
     [](Exprs x, const Attrs&) { return ir::Max(Like(0, x[0]), x[0]); },
     [](Doubles x, const Attrs&) { return x[0] < 0 ? 0 : x[0]; }},
    {"clip", "Clip", 1, kNumbers,
     [](Exprs x, const Attrs& a) { return ClipTo(x[0], AttrMin(a), AttrMax(a)); },
     [](Doubles x, const Attrs& a) { return ClipValue(x[0], AttrMin(a), AttrMax(a)); }},
    {"neg", "Neg", 1, kNumbers, [](Exprs x, const Attrs&) { return Like(0, x[0]) - x[0]; },
     [](Doubles x, const Attrs&) { return 0 - x[0]; }},
    {"abs", "Abs", 1, kFloats, [](Exprs x, const Attrs&) { return Apply(Intrinsic::kAbs, x[0]); },
     [](Doubles x, const Attrs&) { return std::fabs(x[0]); }},
    {"exp", "Exp", 1, kFloats, [](Exprs x, const Attrs&) { return Apply(Intrinsic::kExp, x[0]); },
     [](Doubles x, const Attrs&) { return std::exp(x[0]); }},
    {"log", "Log", 1, kFloats, [](Exprs x, const Attrs&) { return Apply(Intrinsic::kLog, x[0]); },
     [](Doubles x, const Attrs&) { return std::log(x[0]); }},
    {"sqrt", "Sqrt", 1, kFloats,
     [](Exprs x, const Attrs&) { return Apply(Intrinsic::kSqrt, x[0]); },
     [](Doubles x, const Attrs&) { return std::sqrt(x[0]); }},
    {"reciprocal", "Reciprocal", 1, kFloats,
     [](Exprs x, const Attrs&) { return Like(1, x[0]) / x[0]; },
     [](Doubles x, const Attrs&) { return 1 / x[0]; }},
    {"tanh", "Tanh", 1, kFloats,
     [](Exprs x, const Attrs&) { return Apply(Intrinsic::kTanh, x[0]); },
     [](Doubles x, const Attrs&) { return std::tanh(x[0]); }},
    {"erf", "Erf", 1, kFloats, [](Exprs x, const Attrs&) { return Apply(Intrinsic::kErf, x[0]); },
     [](Doubles x, const Attrs&) { return std::erf(x[0]); }},
    {"floor", "Floor", 1, kFloats,
     [](Exprs x, const Attrs&) { return Apply(Intrinsic::kFloor, x[0]); },
     [](Doubles x, const Attrs&) { return std::floor(x[0]); }},
    {"ceil", "Ceil", 1, kFloats,
     [](Exprs x, const Attrs&) { return Apply(Intrinsic::kCeil, x[0]); },
     [](Doubles x, const Attrs&) { return std::ceil(x[0]); }},
    {"round", "Round", 1, kFloats,
     [](Exprs x, const Attrs&) { return Apply(Intrinsic::kRoundEven, x[0]); },
     [](Doubles x, const Attrs&) { return std::nearbyint(x[0]); }},
    {"sigmoid", "Sigmoid", 1, kFloats, [](Exprs x, const Attrs&) { return Sigmoid(x[0]); },
     [](Doubles x, const Attrs&) { return SigmoidValue(x[0]); }},
    {"softplus", "Softplus", 1, kFloats,
     [](Exprs x, const Attrs&) {
       // max(x, 0) + log(1 + exp(-|x|)) does not overflow.
       Expr tail = Apply(Intrinsic::kExp, Like(0, x[0]) - Apply(Intrinsic::kAbs, x[0]));
       return ir::Max(Like(0, x[0]), x[0]) + Apply(Intrinsic::kLog, Like(1, x[0]) + tail);
     },
     [](Doubles x, const Attrs&) {
       return (x[0] > 0 ? x[0] : 0) + std::log1p(std::exp(-std::fabs(x[0])));
     }},
    {"softsign", "Softsign", 1, kFloats,
     [](Exprs x, const Attrs&) { return x[0] / (Like(1, x[0]) + Apply(Intrinsic::kAbs, x[0])); },
     [](Doubles x, const Attrs&) { return x[0] / (1 + std::fabs(x[0])); }},
    {"leaky_relu", "LeakyRelu", 1, kFloats,
     [](Exprs x, const Attrs& a) {
       return ir::Select(x[0] < Like(0, x[0]), x[0] * Like(Alpha(a, 0.01), x[0]), x[0]);
     },
     [](Doubles x, const Attrs& a) { return x[0] < 0 ? x[0] * Alpha(a, 0.01) : x[0]; }},
    {"prelu", "PRelu", 2, kFloats,
     [](Exprs x, const Attrs&) { return ir::Select(x[0] < Like(0, x[0]), x[0] * x[1], x[0]); },
     [](Doubles x, const Attrs&) { return x[0] < 0 ? x[0] * x[1] : x[0]; }},
    {"elu", "Elu", 1, kFloats,
     [](Exprs x, const Attrs& a) {
       Expr below = (Apply(Intrinsic::kExp, x[0]) - Like(1, x[0])) * Like(Alpha(a, 1), x[0]);
       return ir::Select(x[0] < Like(0, x[0]), below, x[0]);
     },
     [](Doubles x, const Attrs& a) {
       return x[0] < 0 ? Alpha(a, 1) * (std::exp(x[0]) - 1) : x[0];
     }},
    {"hard_sigmoid", "HardSigmoid", 1, kFloats,
     [](Exprs x, const Attrs& a) {
       return ClipTo(x[0] * Like(Alpha(a, 0.2), x[0]) + Like(Beta(a, 0.5), x[0]), 0, 1);
     },
     [](Doubles x, const Attrs& a) {
       return ClipValue(x[0] * Alpha(a, 0.2) + Beta(a, 0.5), 0, 1);
     }},
    {"hard_swish", "HardSwish", 1, kFloats,
     [](Exprs x, const Attrs&) {
       return x[0] * ClipTo(x[0] * Like(1.0 / 6, x[0]) + Like(0.5, x[0]), 0, 1);
     },
     [](Doubles x, const Attrs&) { return x[0] * ClipValue(x[0] / 6 + 0.5, 0, 1); }},
    {"gelu", "Gelu", 1, kFloats,
     [](Exprs x, const Attrs&) {
       Expr erf = Apply(Intrinsic::kErf, x[0] * Like(std::sqrt(0.5), x[0]));
       return x[0] * Like(0.5, x[0]) * (Like(1, x[0]) + erf);
     },
     [](Doubles x, const Attrs&) { return x[0] * 0.5 * (1 + std::erf(x[0] * std::sqrt(0.5))); }},
    {"identity", "Identity", 1, kAnyType, [](Exprs x, const Attrs&) { return x[0]; },
     [](Doubles x, const Attrs&) { return x[0]; }},
};

}  // namespace

std::vector<OpSpec> ElementwiseRows() {
  std::vector<OpSpec> rows;
  for (const Row& row : kRows) {
    OpSpec spec;
    spec.name = row.name;
    spec.onnx = {row.onnx};
    spec.fusion = FusionClass::kInjective;
    spec.min_inputs = spec.max_inputs = row.inputs;
    spec.types = row.types;
    spec.scalar = row.scalar;
    spec.scalar_reference = row.reference;
    rows.push_back(std::move(spec));
  }
  return rows;
}

}  // namespace tilewright::op
