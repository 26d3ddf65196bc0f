// Conversions of matrix products: Gemm's factors go into its constants.
#include "compiler/graph/onnx_conversions.h"
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
  std::vector<int64_t> sa = n.importer().TypeOf(a).shape, sb = n.importer().TypeOf(b).shape;
  if (sa.empty() || sb.empty()) return n.Error("rank", "expected matrices, found a scalar");
  const bool row = sa.size() == 1, col = sb.size() == 1;
  if (row) {
    TW_ASSIGN(a, Reshaped(n, a, {1, sa[0]}, PartName(n, "_a")));
  }
  if (col) {
    TW_ASSIGN(b, Reshaped(n, b, {sb[0], 1}, PartName(n, "_b")));
  }
  const std::string product = row || col ? PartName(n, "_2d") : name;
  Result out =
      n.importer().TypeOf(b).shape.size() == 2
          ? n.importer().Emit("dense", {a, b}, {{"weight_layout", std::string("KN")}}, product)
          : n.importer().Emit("matmul", {a, b}, {}, product);
  if (!out.ok() || (!row && !col)) return out;
  std::vector<int64_t> shape = n.importer().TypeOf(*out).shape;
  if (col) shape.pop_back();
  if (row) shape.erase(shape.end() - (col ? 1 : 2));
  return Reshaped(n, *out, shape, name);
}

Result ImportMatMul(NodeReader& n) {
  TW_ASSIGN(const ValueId a, n.Input(0));
  TW_ASSIGN(const ValueId b, n.Input(1));
  return EmitMatMul(n, a, b, n.output_name());
}

}  // namespace tilewright::graph::onnx
