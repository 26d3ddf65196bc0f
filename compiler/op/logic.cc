// Comparisons, logic on bools, and the choice between two operands. A bool is one byte, 0 or 1.
#include "compiler/op/op_rows.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::op {
namespace {

using ir::Expr;
using ir::ExprKind;
using support::StrCat;
using Exprs = std::span<const Expr>;
using Doubles = std::span<const double>;
using Ints = std::span<const int64_t>;

template <ExprKind kind>
Expr Binary(Exprs x, const Attrs&) {
  return ir::Binary(kind, x[0], x[1]);
}

constexpr ScalarRow kRows[] = {
    {"equal", "Equal", 2, kAnyType, Binary<ExprKind::kEq>,
     [](Doubles x, const Attrs&) -> double { return x[0] == x[1]; },
     [](Ints x, ir::DType, const Attrs&) -> int64_t { return x[0] == x[1]; }},
    {"less", "Less", 2, kNumbers, Binary<ExprKind::kLt>,
     [](Doubles x, const Attrs&) -> double { return x[0] < x[1]; },
     [](Ints x, ir::DType t, const Attrs&) -> int64_t { return Below(x[0], x[1], t); }},
    {"less_equal", "LessOrEqual", 2, kNumbers, Binary<ExprKind::kLe>,
     [](Doubles x, const Attrs&) -> double { return x[0] <= x[1]; },
     [](Ints x, ir::DType t, const Attrs&) -> int64_t { return !Below(x[1], x[0], t); }},
    {"greater", "Greater", 2, kNumbers, Binary<ExprKind::kGt>,
     [](Doubles x, const Attrs&) -> double { return x[0] > x[1]; },
     [](Ints x, ir::DType t, const Attrs&) -> int64_t { return Below(x[1], x[0], t); }},
    {"greater_equal", "GreaterOrEqual", 2, kNumbers, Binary<ExprKind::kGe>,
     [](Doubles x, const Attrs&) -> double { return x[0] >= x[1]; },
     [](Ints x, ir::DType t, const Attrs&) -> int64_t { return !Below(x[0], x[1], t); }},
    {"and", "And", 2, kBools, Binary<ExprKind::kAnd>,
     [](Doubles x, const Attrs&) -> double { return x[0] != 0 && x[1] != 0; }},
    {"or", "Or", 2, kBools, Binary<ExprKind::kOr>,
     [](Doubles x, const Attrs&) -> double { return x[0] != 0 || x[1] != 0; }},
    {"xor", "Xor", 2, kBools, Binary<ExprKind::kNe>,
     [](Doubles x, const Attrs&) -> double { return x[0] != x[1]; }},
    {"not", "Not", 1, kBools, [](Exprs x, const Attrs&) { return ir::Not(x[0]); },
     [](Doubles x, const Attrs&) -> double { return x[0] == 0; }},
};

absl::StatusOr<TensorTypes> InferWhere(std::span<const TensorType> inputs, const Attrs&,
                                       DimEqualities* equal) {
  if (!inputs[0].dtype.is_bool() || inputs[1].dtype != inputs[2].dtype) {
    return OpError("where", "type",
                   StrCat("expected a condition of bool and two operands of one type, found ",
                          ToText(inputs[0]), ", ", ToText(inputs[1]), " and ", ToText(inputs[2])));
  }
  TW_ASSIGN(TensorType out, BroadcastOperands("where", inputs, equal));
  out.dtype = inputs[1].dtype;
  return TensorTypes{out};
}

}  // namespace

std::vector<OpSpec> LogicRows() {
  std::vector<OpSpec> rows;
  for (const ScalarRow& row : kRows) {
    rows.push_back(SpecOf(row));
    rows.back().gives_bool = true;
  }
  OpSpec where;
  where.name = "where";
  where.onnx = {"Where"};
  where.fusion = FusionClass::kInjective;
  where.min_inputs = where.max_inputs = 3;
  where.infer = InferWhere;
  where.scalar = [](Exprs x, const Attrs&) { return ir::Select(x[0], x[1], x[2]); };
  where.scalar_reference = [](Doubles x, const Attrs&) { return x[0] != 0 ? x[1] : x[2]; };
  where.moves = 3;  // the condition moves nothing, but is no number either
  where.integer_reference = [](Ints x, ir::DType, const Attrs&) { return x[0] != 0 ? x[1] : x[2]; };
  rows.push_back(std::move(where));
  return rows;
}

}  // namespace tilewright::op
