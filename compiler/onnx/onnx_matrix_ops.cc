// Conversions of matrix products, whose constant factors go into constants, and of Det.
#include "compiler/onnx/onnx_composer.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::graph::onnx {
namespace {

using support::StrCat;

// A constant scaled by `factor`, or a multiplication where the value is not known.
Result Scaled(NodeReader& n, ValueId value, double factor, const char* suffix) {
  if (factor == 1) return value;
  const op::TensorType type = n.importer().TypeOf(value);
  if (n.importer().ValueOf(value).constant != nullptr) {
    TW_ASSIGN(op::RefTensor tensor,
              op::FromBytes(type, n.importer().ValueOf(value).constant->view()));
    for (double& v : tensor.values) v = op::RoundToType(v * factor, type.dtype);
    return n.importer().Constant(PartName(n, suffix), type, op::ToBytes(tensor));
  }
  op::RefTensor scalar{{type.dtype, {}}, {op::RoundToType(factor, type.dtype)}};
  const ValueId constant = n.importer().Constant(PartName(n, StrCat(suffix, "_factor")),
                                                 scalar.type, op::ToBytes(scalar));
  return n.importer().Emit("mul", {value, constant}, {}, PartName(n, suffix));
}

}  // namespace

Result ImportGemm(NodeReader& n) {
  TW_ASSIGN(ValueId a, n.Input(0));
  TW_ASSIGN(ValueId b, n.Input(1));
  TW_ASSIGN(const int64_t trans_a, n.Int("transA", 0));
  TW_ASSIGN(const int64_t trans_b, n.Int("transB", 0));
  TW_ASSIGN(const double alpha, n.Float("alpha", 1));
  TW_ASSIGN(const double beta, n.Float("beta", 1));
  if (n.importer().TypeOf(a).shape.size() != 2 || n.importer().TypeOf(b).shape.size() != 2) {
    return n.Error("rank", "expected two matrices, found other ranks");
  }
  if (trans_a != 0) {
    TW_ASSIGN(a, n.importer().Emit("transpose", {a}, {{"perm", std::vector<int64_t>{1, 0}}},
                                   PartName(n, "_a")));
  }
  const bool has_c = n.HasInput(2) && beta != 0;
  // alpha belongs to the product: to the weight where that is a constant.
  const bool scale_b = n.importer().ValueOf(b).constant != nullptr;
  if (scale_b) {
    TW_ASSIGN(b, Scaled(n, b, alpha, "_b"));
  }
  const bool last = !has_c && (scale_b || alpha == 1);
  TW_ASSIGN(ValueId out,
            n.importer().Emit("dense", {a, b},
                              {{"weight_layout", std::string(trans_b != 0 ? "NK" : "KN")}},
                              last ? n.output_name() : PartName(n, "_product")));
  if (!scale_b) {
    TW_ASSIGN(out, Scaled(n, out, alpha, "_alpha"));
  }
  if (!has_c) return out;
  TW_ASSIGN(ValueId c, n.Input(2));
  TW_ASSIGN(c, Scaled(n, c, beta, "_c"));
  const op::TensorType product = n.importer().TypeOf(out);
  TW_ASSIGN(ValueId sum, n.importer().Emit("add", {out, c}, {}, n.output_name()));
  if (n.importer().TypeOf(sum) != product) {
    return n.Error("shape", StrCat("expected C to broadcast to ", op::ToText(product), ", found ",
                                   op::ToText(n.importer().TypeOf(c))));
  }
  return sum;
}

Result EmitMatMul(NodeReader& n, ValueId a, ValueId b, const std::string& name) {
  const std::vector<op::Dim> sa = n.importer().TypeOf(a).shape, sb = n.importer().TypeOf(b).shape;
  if (sa.empty() || sb.empty()) return n.Error("rank", "expected matrices, found a scalar");
  const bool row = sa.size() == 1, col = sb.size() == 1;
  if (row) {
    TW_ASSIGN(a, ReshapedTo(n, a, {op::Dim(1), sa[0]}, PartName(n, "_a")));
  }
  if (col) {
    TW_ASSIGN(b, ReshapedTo(n, b, {sb[0], op::Dim(1)}, PartName(n, "_b")));
  }
  const std::string product = row || col ? PartName(n, "_2d") : name;
  Result out =
      n.importer().TypeOf(b).shape.size() == 2
          ? n.importer().Emit("dense", {a, b}, {{"weight_layout", std::string("KN")}}, product)
          : n.importer().Emit("matmul", {a, b}, {}, product);
  if (!out.ok() || (!row && !col)) return out;
  std::vector<op::Dim> shape = n.importer().TypeOf(*out).shape;
  if (col) shape.pop_back();
  if (row) shape.erase(shape.end() - (col ? 1 : 2));
  return ReshapedTo(n, *out, shape, name);
}

Result ImportMatMul(NodeReader& n) {
  TW_ASSIGN(const ValueId a, n.Input(0));
  TW_ASSIGN(const ValueId b, n.Input(1));
  return EmitMatMul(n, a, b, n.output_name());
}

namespace {

constexpr int64_t kMaxDetRows = 64;  // each is a step of elimination of about 20 operators

// One step of elimination of a [n,size,size]: multiplies `det` [n,1,1] (or kNone) by the pivot, the
// largest element of the first column, and returns what is left, [n,size-1,size-1].
ValueId Eliminate(Composer& c, ValueId a, int64_t size, ValueId* det) {
  const ir::DType type = c.TypeOf(a).dtype;
  const ValueId zero = c.Scalar(0, type);
  const ValueId best =
      c.Op("arg_reduce", {c.Op("abs", {c.Slice(a, 2, 0, 1)})}, {{"axis", int64_t{1}}});
  const ValueId hit = c.Op("equal", {c.Counting(ir::kI64, size, 1, 3), best});
  const ValueId row = c.Reduce("sum", c.Op("where", {hit, a, zero}), {1});
  const ValueId pivot = c.Slice(row, 2, 0, 1);
  // The first row moves to the place of the pivot's row, which changes the sign.
  const ValueId moved = c.Op("where", {hit, c.Slice(a, 1, 0, 1), a});
  const ValueId first = c.Op("equal", {best, c.Number(0)});
  const ValueId factor = c.Op("where", {first, pivot, c.Op("neg", {pivot})});
  *det = *det == kNone ? factor : c.Mul(*det, factor);
  if (size == 1) return kNone;
  const ValueId rest = c.Slice(moved, 1, 1, size - 1);
  // A pivot of 0 has a column of zeros below it.
  const ValueId divisor = c.Op("where", {c.Op("equal", {pivot, zero}), c.Scalar(1, type), pivot});
  const ValueId share = c.Div(c.Slice(rest, 2, 0, 1), divisor);
  return c.Sub(c.Slice(rest, 2, 1, size - 1), c.Mul(share, c.Slice(row, 2, 1, size - 1)));
}

}  // namespace

// The determinants of the matrices in the last two dimensions, by elimination with pivots.
Result ImportDet(NodeReader& n) {
  Composer c(n);
  const ValueId x = c.Input(0);
  TW_TRY(c.status());
  const op::TensorType type = c.TypeOf(x);
  std::vector<int64_t> shape = type.sizes();
  const size_t rank = shape.size();
  if (rank < 2 || shape[rank - 1] != shape[rank - 2] || shape[rank - 1] > kMaxDetRows ||
      !type.dtype.is_float()) {
    return n.Error("shape", StrCat("expected square matrices of at most ", kMaxDetRows,
                                   " rows of floats, found ", op::ToText(type)));
  }
  const int64_t rows = shape[rank - 1];
  ValueId a = c.Reshape(x, {type.elements() / (rows * rows), rows, rows}), det = kNone;
  if (type.dtype.bits == 16) a = c.Cast(a, ir::kF32);
  for (int64_t size = rows; size >= 1; --size) a = Eliminate(c, a, size, &det);
  shape.resize(rank - 2);
  return c.Done(c.Cast(c.Reshape(det, shape), type.dtype));
}

}  // namespace tilewright::graph::onnx
