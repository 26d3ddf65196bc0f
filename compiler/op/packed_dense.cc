// packed_dense: a dense layer whose weights are small integers with a scale, and maybe a zero
// point, for each group of `group` neighbours along k and each column:
//   y[..., n] = sum over groups g: scale[n, g] * sum over k in g: x[..., k] (q[n, k] - zero[n, g])
// Operands: data f32 [..., k]; words i32 [n/16, k * bits / 32, 16], where a word holds the unsigned
// q of 32 / bits neighbours along k, the first in its lowest bits; scales f32 [n/16, k/group, 16];
// and zero points of the same type, 2^(bits - 1) if there are none. Attributes: bits (4 or 8),
// group, and units if the last block of 16 columns has columns that are none of the result's.
// A kernel reads the words and no floats: with one row of data that is what it waits for. The
// variant fixed_point multiplies integers (fixed_point_dense.h), for few rows; unpack_first makes
// floats of the weights first, for many.
#include "compiler/op/packed_dense.h"

#include "compiler/op/fixed_point_dense.h"
#include "compiler/op/op_rows.h"
#include "compiler/op/plain_product.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::op {
namespace {

using support::StrCat;

constexpr std::string_view kOp = "packed_dense";
constexpr int64_t kWordBits = 32;

struct Packing {
  int64_t bits, group, fields;  // fields: of a word
  double zero;                  // where there is no operand of zero points
};

absl::StatusOr<Packing> PackingOf(const Attrs& attrs) {
  Packing p{GetInt(attrs, "bits", 4), GetInt(attrs, "group", 0), 0, 0};
  if (p.bits == 4 || p.bits == 8) p.fields = kWordBits / p.bits;
  if (p.fields == 0 || p.group < p.fields || p.group % p.fields != 0) {
    return OpError(kOp, "attribute",
                   StrCat("expected bits 4 or 8, and a group of whole words, found bits ", p.bits,
                          " and group ", p.group));
  }
  p.zero = static_cast<double>(int64_t{1} << (p.bits - 1));
  return p;
}

absl::StatusOr<TensorTypes> Infer(std::span<const TensorType> inputs, const Attrs& attrs,
                                  DimEqualities* equal) {
  TW_ASSIGN(const Packing p, PackingOf(attrs));
  const TensorType &x = inputs[0], &words = inputs[1], &scales = inputs[2];
  const auto blocks = [&](const TensorType& t, ir::DType type) {
    return t.dtype == type && t.shape.size() == 3 && MayEqual(t.shape[0], words.shape[0], equal) &&
           MayEqual(t.shape[2], kWeightBlock, equal);
  };
  bool fits = x.dtype == ir::kF32 && !x.shape.empty() && words.shape.size() == 3 &&
              blocks(words, ir::kI32) && blocks(scales, ir::kF32) &&
              (inputs.size() == 3 || inputs[3] == scales);
  fits = fits && MayEqual(x.shape.back(), words.shape[1] * Dim(p.fields), equal) &&
         MayEqual(x.shape.back(), scales.shape[1] * Dim(p.group), equal);
  if (!fits) {
    return OpError(kOp, "shape",
                   StrCat("expected data f32[...,k], words i32[n/16,k/", p.fields,
                          ",16] and scales f32[n/16,k/", p.group, ",16], found ", ToText(x), ", ",
                          ToText(words), " and ", ToText(scales)));
  }
  const Dim columns = words.shape[0] * Dim(kWeightBlock);
  const Dim n = attrs.contains("units") ? Dim(GetInt(attrs, "units", 0)) : columns;
  if (SurelyBelow(columns, n) || SurelyBelow(n, columns - Dim(kWeightBlock - 1))) {
    return OpError(kOp, "attribute",
                   StrCat("expected units in the last of the weight's blocks, found ", n.ToText()));
  }
  TensorType out = x;
  out.shape.back() = n;
  return TensorTypes{out};
}

absl::StatusOr<std::vector<ir::Buffer>> Build(const ComputeArgs& a) {
  const auto& [b, name, inputs, types, outputs, attrs] = a;
  TW_ASSIGN(const Packing p, PackingOf(attrs));
  const int64_t words = p.group / p.fields;  // of a group
  const ir::Axis group = b.ReduceAxis("g", inputs[2]->shape[1]);
  const ir::Axis word = b.ReduceAxis("w", ir::Int(words));
  std::vector<std::string> axes;
  const size_t rank = outputs[0].shape.size();
  for (size_t d = 0; d + 1 < rank; ++d) axes.push_back(rank == 2 ? "m" : StrCat("m", d));
  axes.push_back("n");
  return std::vector<ir::Buffer>{b.Reduce(
      name, ir::kF32, ShapeExprs(b, outputs[0].shape), axes, {group, word}, ir::Combiner::kSum,
      [&](const std::vector<ir::Var>& i) {
        std::vector<ir::Expr> at = VarExprs(i);
        const ir::Expr block = ir::FloorDiv(at.back(), ir::Int(kWeightBlock));
        const ir::Expr lane = ir::FloorMod(at.back(), ir::Int(kWeightBlock));
        const ir::Expr packed =
            ir::Load(inputs[1], {block, group.var * ir::Int(words) + word.var, lane});
        ir::Expr products, data;
        for (int64_t f = 0; f < p.fields; ++f) {
          at.back() = group.var * ir::Int(p.group) + word.var * ir::Int(p.fields) + ir::Int(f);
          const ir::Expr x = ir::Load(inputs[0], at);
          ir::Expr q = packed;
          if (f > 0) {
            q = ir::Call(ir::Intrinsic::kShiftRight, {q, ir::Int(f * p.bits, ir::kI32)});
          }
          if (f + 1 < p.fields) {
            const int64_t mask = (int64_t{1} << p.bits) - 1;
            q = ir::Call(ir::Intrinsic::kBitAnd, {q, ir::Int(mask, ir::kI32)});
          }
          const ir::Expr product = x * ir::Cast(ir::kF32, q);
          products = f == 0 ? product : products + product;
          data = f == 0 ? x : data + x;
        }
        const ir::Expr zero = inputs.size() > 3 ? ir::Load(inputs[3], {block, group.var, lane})
                                                : ir::Float(p.zero, ir::kF32);
        return ir::Load(inputs[2], {block, group.var, lane}) * (products - zero * data);
      })};
}

bool FitsFixedPoint(std::span<const TensorType> inputs, const Attrs& attrs) {
  const std::optional<int64_t> blocks = inputs[1].shape[0].constant();
  const bool whole = blocks.has_value() &&
                     GetInt(attrs, "units", *blocks * kWeightBlock) == *blocks * kWeightBlock;
  return whole && GetInt(attrs, "group", 0) <= kFixedPointGroup;
}

absl::StatusOr<std::vector<ir::Buffer>> BuildFixedPoint(const ComputeArgs& a) {
  TW_ASSIGN(const Packing p, PackingOf(a.attrs));
  return ComputeFixedPointDense(a, p.bits, p.group, p.zero);
}

bool RowsAreOpen(std::span<const TensorType> inputs, const Attrs&) { return !inputs[0].fixed(); }

absl::StatusOr<std::vector<ir::Buffer>> BuildUnpackFirst(const ComputeArgs& a) {
  const auto& [b, name, inputs, types, outputs, attrs] = a;
  TW_ASSIGN(const Packing p, PackingOf(attrs));
  const ir::Expr k_size = inputs[0]->shape.back();
  const ir::Buffer weights = b.Compute(
      std::string(kUnpackedWeights), ir::kF32, {inputs[1]->shape[0], k_size, ir::Int(kWeightBlock)},
      {"nb", "k", "nl"}, [&](const std::vector<ir::Var>& i) {
        const ir::Expr block = i[0], k = i[1], lane = i[2];
        const ir::Expr word =
            ir::Load(inputs[1], {block, ir::FloorDiv(k, ir::Int(p.fields)), lane});
        const ir::Expr place = ir::FloorMod(k, ir::Int(p.fields)) * ir::Int(p.bits);
        const ir::Expr q =
            ir::Call(ir::Intrinsic::kBitAnd,
                     {ir::Call(ir::Intrinsic::kShiftRight, {word, ir::Cast(ir::kI32, place)}),
                      ir::Int((int64_t{1} << p.bits) - 1, ir::kI32)});
        const std::vector<ir::Expr> group = {block, ir::FloorDiv(k, ir::Int(p.group)), lane};
        const ir::Expr zero =
            inputs.size() > 3 ? ir::Load(inputs[3], group) : ir::Float(p.zero, ir::kF32);
        return ir::Load(inputs[2], group) * (ir::Cast(ir::kF32, q) - zero);
      });
  const ir::Axis sum = b.ReduceAxis("k", k_size);
  std::vector<std::string> axes;
  const size_t rank = outputs[0].shape.size();
  for (size_t d = 0; d + 1 < rank; ++d) axes.push_back(rank == 2 ? "m" : StrCat("m", d));
  axes.push_back("n");
  return std::vector<ir::Buffer>{
      b.Reduce(name, ir::kF32, ShapeExprs(b, outputs[0].shape), axes, {sum}, ir::Combiner::kSum,
               [&](const std::vector<ir::Var>& i) {
                 std::vector<ir::Expr> at = VarExprs(i);
                 const ir::Expr n = at.back();
                 at.back() = sum.var;
                 return ir::Load(inputs[0], at) *
                        ir::Load(weights, {ir::FloorDiv(n, ir::Int(kWeightBlock)), sum.var,
                                           ir::FloorMod(n, ir::Int(kWeightBlock))});
               })};
}

// A term is as large as q: the roundoff of as many terms of 1.
double Reduction(std::span<const TensorType> inputs, const Attrs& attrs) {
  const int64_t largest = int64_t{1} << GetInt(attrs, "bits", 4);
  return static_cast<double>(inputs[0].size(-1) * largest);
}

absl::StatusOr<std::vector<RefTensor>> Plain(std::span<const RefTensor> inputs,
                                             std::span<const TensorType> outputs,
                                             const Attrs& attrs) {
  TW_ASSIGN(const Packing p, PackingOf(attrs));
  const int64_t k_size = inputs[0].type.size(-1), n_size = outputs[0].size(-1);
  const int64_t rows = outputs[0].elements() / n_size;
  const int64_t words = inputs[1].type.size(1), groups = inputs[2].type.size(1);
  RefTensor out{outputs[0], std::vector<double>(outputs[0].elements(), 0)};
  const auto weight = [&](int64_t k, int64_t n) {
    const int64_t block = n / kWeightBlock, lane = n % kWeightBlock;
    const int64_t place = (block * words + k / p.fields) * kWeightBlock + lane;
    const auto word = static_cast<uint32_t>(static_cast<int64_t>(inputs[1].values[place]));
    const uint32_t q = word >> (k % p.fields * p.bits) & ((uint32_t{1} << p.bits) - 1);
    const int64_t of_group = (block * groups + k / p.group) * kWeightBlock + lane;
    const double zero = inputs.size() > 3 ? inputs[3].values[of_group] : p.zero;
    return inputs[2].values[of_group] * (q - zero);
  };
  AddProduct(inputs[0].values.data(), weight, rows, n_size, k_size, out.values.data());
  return std::vector<RefTensor>{std::move(out)};
}

}  // namespace

std::vector<OpSpec> PackedDenseRows() {
  OpSpec packed;
  packed.name = kOp;
  packed.fusion = FusionClass::kComplexOutFusable;
  packed.min_inputs = 3;
  packed.max_inputs = 4;
  packed.infer = Infer;
  packed.compute = Build;
  packed.flops = ContractFlops;
  packed.reduction_length = Reduction;
  packed.reference = Plain;
  packed.domain = OfSecond<Domain::kWords>;
  packed.variants = {{kFixedPoint, FitsFixedPoint, BuildFixedPoint},
                     {kUnpackFirst, RowsAreOpen, BuildUnpackFirst}};
  return {packed};
}

}  // namespace tilewright::op
