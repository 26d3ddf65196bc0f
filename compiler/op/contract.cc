// Contractions: dense (a matrix of weights in any layout of its axes N and K; in the last block of
// N the attribute `units` may leave some columns out) and matmul (NumPy semantics with batch
// dimensions). On floats, i32, or bytes with weights i8 and sums i32. 16-bit floats have sums f32;
// data may be f32 then. The sum follows the blocks of K: NK16n4k keeps four bytes of a column side
// by side, as dot products read them, NK16n2k two bf16; NK16n16k has the squares of a matrix unit.
#include "compiler/op/op_rows.h"
#include "compiler/op/plain_product.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::op {
namespace {

using support::StrCat;

constexpr std::string_view kWeights = "NK";

absl::StatusOr<Layout> LayoutOf(const Attrs& attrs) {
  return LayoutAttr("dense", attrs, "weight_layout", kWeights);
}

absl::StatusOr<TensorTypes> InferDense(std::span<const TensorType> inputs, const Attrs& attrs,
                                       DimEqualities* equal) {
  const TensorType &a = inputs[0], &w = inputs[1];
  TW_ASSIGN(const Layout layout, LayoutOf(attrs));
  const auto sizes = layout.SizesOf(w.shape, equal);
  if (a.shape.empty() || !sizes.has_value()) {
    return OpError("dense", "shape",
                   StrCat("expected data [...,k] and a weight ", layout.ToText(), ", found ",
                          ToText(a), " and ", ToText(w)));
  }
  TW_ASSIGN(const ir::DType sum, SumType("dense", a, w));
  const Dim &columns = (*sizes)[0], &k = (*sizes)[1];
  const int64_t block = layout.Block('N');
  const Dim n = block > 1 && attrs.contains("units") ? Dim(GetInt(attrs, "units", 0)) : columns;
  if (SurelyBelow(columns, n) || SurelyBelow(n, columns - Dim(block - 1))) {
    return OpError("dense", "attribute",
                   StrCat("expected units in the last of the weight's blocks, found ", n.ToText()));
  }
  if (!MayEqual(a.shape.back(), k, equal)) {
    return OpError(
        "dense", "shape",
        StrCat("expected data whose last dimension is ", k.ToText(), ", found ", ToText(a)));
  }
  TensorType out{sum, a.shape};
  out.shape.back() = n;
  return TensorTypes{out};
}

absl::StatusOr<std::vector<ir::Buffer>> BuildDense(const ComputeArgs& a) {
  const auto& [b, name, inputs, types, outputs, attrs] = a;
  TW_ASSIGN(const Layout layout, LayoutOf(attrs));
  const std::vector<int64_t> blocks = layout.Blocks('K');
  const ir::Expr outer =
      blocks.empty() ? inputs[0]->shape.back() : inputs[1]->shape[layout.Dimension('K')];
  std::vector<ir::Axis> sum = {b.ReduceAxis("k", outer)};
  Place k = {{sum[0].var}};
  for (const int64_t block : blocks) {
    sum.push_back(b.ReduceAxis(StrCat("k", sum.size()), ir::Int(block)));
    k.push_back({sum.back().var, block});
  }
  const size_t rank = outputs[0].shape.size();
  std::vector<std::string> axes;
  for (size_t d = 0; d + 1 < rank; ++d) axes.push_back(rank == 2 ? "m" : StrCat("m", d));
  axes.push_back("n");
  const ir::DType type = outputs[0].dtype;
  return std::vector<ir::Buffer>{b.Reduce(name, type, ShapeExprs(b, outputs[0].shape), axes, sum,
                                          ir::Combiner::kSum, [&](const std::vector<ir::Var>& i) {
                                            std::vector<ir::Expr> at = VarExprs(i);
                                            const Place weight[] = {{{at.back()}}, k};
                                            at.back() = Join(k);
                                            return AsSum(type, ir::Load(inputs[0], at)) *
                                                   AsSum(type,
                                                         ir::Load(inputs[1], layout.Index(weight)));
                                          })};
}

double DenseReduction(std::span<const TensorType> inputs, const Attrs&) {
  return static_cast<double>(inputs[0].size(-1));
}

absl::StatusOr<std::vector<RefTensor>> PlainDense(std::span<const RefTensor> inputs,
                                                  std::span<const TensorType> outputs,
                                                  const Attrs& attrs) {
  TW_ASSIGN(const Layout layout, LayoutOf(attrs));
  const int64_t n_size = outputs[0].size(-1), k_size = inputs[0].type.size(-1);
  const int64_t rows = outputs[0].elements() / n_size;
  // Steps along n and k, each on its own.
  const auto offsets = layout.Offsets({n_size, k_size});
  RefTensor out{outputs[0], std::vector<double>(outputs[0].elements(), 0)};
  const double* weights = inputs[1].values.data();
  AddProduct(
      inputs[0].values.data(),
      [&](int64_t k, int64_t n) { return weights[offsets[0][n] + offsets[1][k]]; }, rows, n_size,
      k_size, out.values.data());
  return std::vector<RefTensor>{std::move(out)};
}

absl::StatusOr<TensorTypes> InferMatmul(std::span<const TensorType> inputs, const Attrs&,
                                        DimEqualities* equal) {
  const auto &a = inputs[0].shape, &b = inputs[1].shape;
  auto refuse = [&] {
    return OpError("matmul", "shape",
                   StrCat("expected [...,m,k] and [...,k,n], found ", ToText(inputs[0]), " and ",
                          ToText(inputs[1])));
  };
  if (a.size() < 2 || b.size() < 2) return refuse();
  TW_ASSIGN(const ir::DType sum, SumType("matmul", inputs[0], inputs[1]));
  TensorType out{sum, {}};
  if (!MayEqual(a.back(), b[b.size() - 2], equal) ||
      !BroadcastDims({a.begin(), a.end() - 2}, {b.begin(), b.end() - 2}, equal, &out.shape)) {
    return refuse();
  }
  out.shape.push_back(a[a.size() - 2]);
  out.shape.push_back(b.back());
  return TensorTypes{out};
}

// Index of an operand's matrix element (row, col) under broadcast batch dimensions `batch`.
std::vector<ir::Expr> MatrixIndex(const ir::Buffer& operand, std::span<const ir::Expr> batch,
                                  const ir::Expr& row, const ir::Expr& col) {
  std::vector<ir::Expr> index;
  const size_t own = operand->shape.size() - 2;
  for (size_t d = 0; d < own; ++d) {
    const bool one = ir::IsInt(operand->shape[d], 1);
    index.push_back(one ? ir::Int(0) : batch[batch.size() - own + d]);
  }
  index.push_back(row);
  index.push_back(col);
  return index;
}

absl::StatusOr<std::vector<ir::Buffer>> BuildMatmul(const ComputeArgs& a) {
  const auto& [b, name, inputs, types, outputs, attrs] = a;
  const ir::Axis k = b.ReduceAxis("k", inputs[0]->shape.back());
  const size_t rank = outputs[0].shape.size();
  std::vector<std::string> axes;
  for (size_t d = 0; d + 2 < rank; ++d) axes.push_back(StrCat("b", d));
  axes.push_back("m");
  axes.push_back("n");
  const ir::DType type = outputs[0].dtype;
  return std::vector<ir::Buffer>{b.Reduce(
      name, type, ShapeExprs(b, outputs[0].shape), axes, {k}, ir::Combiner::kSum,
      [&](const std::vector<ir::Var>& vars) {
        const std::vector<ir::Expr> i = VarExprs(vars);
        const std::span<const ir::Expr> batch(i.data(), rank - 2);
        const auto left = MatrixIndex(inputs[0], batch, i[rank - 2], k.var);
        const auto right = MatrixIndex(inputs[1], batch, k.var, i[rank - 1]);
        return AsSum(type, ir::Load(inputs[0], left)) * AsSum(type, ir::Load(inputs[1], right));
      })};
}

// Offset of the matrix of `shape` that belongs to batch position `batch`.
int64_t MatrixOffset(const std::vector<int64_t>& shape, const std::vector<int64_t>& batch) {
  const std::vector<int64_t> strides = RowMajorStrides(shape);
  int64_t offset = 0;
  const size_t own = shape.size() - 2;
  for (size_t d = 0; d < own; ++d) {
    if (shape[d] != 1) offset += batch[batch.size() - own + d] * strides[d];
  }
  return offset;
}

absl::StatusOr<std::vector<RefTensor>> PlainMatmul(std::span<const RefTensor> inputs,
                                                   std::span<const TensorType> outputs,
                                                   const Attrs&) {
  const std::vector<int64_t> shape = outputs[0].sizes();
  const int64_t m_size = shape[shape.size() - 2], n_size = shape.back();
  const int64_t k_size = inputs[0].type.size(-1);
  const std::vector<int64_t> batch_shape(shape.begin(), shape.end() - 2);
  std::vector<int64_t> batch(batch_shape.size(), 0);
  RefTensor out{outputs[0], std::vector<double>(outputs[0].elements(), 0)};
  double* c = out.values.data();
  do {
    const double* a = inputs[0].values.data() + MatrixOffset(inputs[0].type.sizes(), batch);
    const double* b = inputs[1].values.data() + MatrixOffset(inputs[1].type.sizes(), batch);
    AddProduct(
        a, [&](int64_t k, int64_t n) { return b[k * n_size + n]; }, m_size, n_size, k_size, c);
    c += m_size * n_size;
  } while (NextIndex(batch_shape, &batch));
  return std::vector<RefTensor>{std::move(out)};
}

}  // namespace

double ContractFlops(std::span<const TensorType> inputs, std::span<const TensorType> outputs,
                     const Attrs&) {
  return 2.0 * static_cast<double>(outputs[0].elements()) * static_cast<double>(inputs[0].size(-1));
}

std::vector<OpSpec> ContractRows() {
  OpSpec dense;
  dense.name = "dense";
  dense.takes_empty = true;
  dense.onnx = {"Gemm", "MatMul"};
  dense.fusion = FusionClass::kComplexOutFusable;
  dense.weight_layout = kWeights;
  dense.min_inputs = dense.max_inputs = 2;
  dense.infer = InferDense;
  dense.compute = BuildDense;
  dense.flops = ContractFlops;
  dense.reduction_length = DenseReduction;
  dense.reference = PlainDense;
  dense.of_empty = [](ir::DType type, const Attrs&) -> absl::StatusOr<RefTensor> {
    return RefTensor{{type, {}}, {0}};
  };

  OpSpec matmul = dense;
  matmul.name = "matmul";
  matmul.weight_layout = "";
  matmul.onnx = {"MatMul"};
  matmul.infer = InferMatmul;
  matmul.compute = BuildMatmul;
  matmul.reference = PlainMatmul;
  return {dense, matmul};
}

}  // namespace tilewright::op
