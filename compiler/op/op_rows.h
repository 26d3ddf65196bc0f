// For the families of this folder only: the rows each family contributes to the one table, and the
// small helpers that several of them share. Free functions without state.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/op/op.h"

namespace tilewright::op {

#define TW_FAMILY(Name, source) std::vector<OpSpec> Name##Rows();
#include "compiler/op/families.def"

// An operator on one element of each operand, whose types and loops follow from that (op.cc).
constexpr uint8_t kExact = 8, kOfPositive = 16;  // facts: OpSpec::exact, Domain::kPositive
struct ScalarRow {
  std::string_view name, onnx;  // ONNX may have none
  int inputs;
  uint8_t types;  // a sum of TypeClass, and of facts
  ir::Expr (*scalar)(std::span<const ir::Expr>, const Attrs&);
  double (*reference)(std::span<const double>, const Attrs&);
  // Where the row takes integers.
  int64_t (*integer)(std::span<const int64_t>, ir::DType, const Attrs&) = nullptr;
};
OpSpec SpecOf(const ScalarRow& row);

// OpSpec::domain of a row whose second operand is a narrow one.
template <Domain kDomain>
Domain OfSecond(size_t operand, const Attrs&) {
  return operand == 1 ? kDomain : Domain::kAny;
}

// Whether a double that holds an integer stands for no other one: below 2^53.
bool IsExact(double integer);
// a < b for integers of this type: u64 compares by its bit pattern.
bool Below(int64_t a, int64_t b, ir::DType type);

// A quotient or remainder of integers. Division by zero gives 0, as in NumPy: machines trap.
ir::Expr SafeDivide(ir::ExprKind kind, const ir::Expr& a, const ir::Expr& b);

// InferTypes, with this check of the types of operands and results.
using TypeCheck = absl::Status(const TensorType&);
absl::StatusOr<TensorTypes> InferWith(TypeCheck* check, const OpSpec& spec,
                                      std::span<const TensorType> inputs, const Attrs& attrs,
                                      DimEqualities* equal = nullptr);

// op.<name>.<reason>: <detail>
absl::Status OpError(std::string_view op, std::string_view reason, std::string_view detail);

TensorTypes TypesOf(std::span<const RefTensor> tensors);

// Element strides of a row-major shape.
std::vector<int64_t> RowMajorStrides(const std::vector<int64_t>& shape);
std::vector<Dim> RowMajorStrides(const std::vector<Dim>& shape);

// For type rules. Whether the sizes can be equal. If only some are, adds the pair to `equal`; with
// null such sizes are not.
bool MayEqual(const Dim& a, const Dim& b, DimEqualities* equal);
bool MayEqual(const std::vector<Dim>& a, const std::vector<Dim>& b, DimEqualities* equal);
// Whether the number of groups can divide a number of channels. 0 and less divide none.
bool MayDivide(int64_t groups, const Dim& channels);
// Whether a < b for all sizes.
bool SurelyBelow(const Dim& a, const Dim& b);
// op.<name>.symbolic: the rule needs a number where `found` stands.
absl::Status NotFixed(std::string_view op, std::string_view found);
// Returns the number that the dimension is, or NotFixed.
absl::StatusOr<int64_t> Fixed(std::string_view op, const Dim& dim);
// NumPy broadcasting. Returns false if the dimensions fit for no sizes.
bool BroadcastDims(const std::vector<Dim>& a, const std::vector<Dim>& b, DimEqualities* equal,
                   std::vector<Dim>* out);
// The type of the first operand in the shape that all broadcast to (op.<name>.shape).
absl::StatusOr<TensorType> BroadcastOperands(std::string_view op,
                                             std::span<const TensorType> inputs,
                                             DimEqualities* equal);

// The index of an operand of shape `from` at the output index `index` (broadcasting aligns right).
std::vector<ir::Expr> BroadcastIndex(const std::vector<ir::Expr>& index,
                                     const std::vector<Dim>& from);
// Steps `index` through `shape` in row-major order; false after the last element.
bool NextIndex(const std::vector<int64_t>& shape, std::vector<int64_t>* index);
// A vector attribute of exactly `n` values, each in [low, high].
absl::StatusOr<std::vector<int64_t>> IntsInRange(std::string_view op, const Attrs& attrs,
                                                 std::string_view name,
                                                 std::vector<int64_t> fallback, size_t n,
                                                 int64_t low, int64_t high);
// Whether a reduction leaves its dimensions with a size of 1: attribute keepdims, yes where absent.
bool KeepsDims(const Attrs& attrs);
// `axis` in [-rank, rank) made non-negative.
absl::StatusOr<int64_t> NormalizeAxis(std::string_view op, int64_t axis, size_t rank);

std::vector<ir::Expr> VarExprs(const std::vector<ir::Var>& vars);

// One sliding-window dimension: output size, and the input position of a window's element.
struct Window {
  int64_t kernel = 1, stride = 1, dilation = 1, pad_begin = 0, pad_end = 0;
  Dim OutputSize(const Dim& input) const;  // may be <= 0: no window fits
  // output * stride + tap * dilation - pad_begin
  ir::Expr Position(const ir::Expr& output, const ir::Expr& tap) const;
  // Whether the last window of `output` positions surely ends within `input`.
  bool EndsInside(const Dim& input, const Dim& output) const;
  // Conditions where some window of `output` positions may reach outside [0, input).
  void Guards(ir::FunctionBuilder& b, const ir::Expr& position, const Dim& input, const Dim& output,
              std::vector<ir::Expr>* conditions) const;
};
inline constexpr int64_t kMaxWindowAttr = int64_t{1} << 24;
// strides, pads, dilations of a 2-D window operator with a kernel of fixed size
// (op.<name>.attribute).
absl::StatusOr<std::vector<Window>> WindowsOf(std::string_view op, const Attrs& attrs,
                                              const Dim& rows, const Dim& columns);
// The sizes of a window operator's images, [n, c, h, w, ...], as numbers.
struct ImageSizes {
  // REQUIRES: these dimensions are numbers.
  ImageSizes(const TensorType& in, const TensorType& out)
      : batch(in.size(0)),
        height(in.size(2)),
        width(in.size(3)),
        out_height(out.size(2)),
        out_width(out.size(3)) {}
  int64_t batch, height, width, out_height, out_width;
};
// One padded spatial dimension: position j holds input j - begin, a constant outside the input.
struct Padded {
  int64_t begin;
  Dim extent;
  bool ends_inside;  // no position is behind the input's last one
  bool covers() const { return begin == 0 && ends_inside; }
};
Padded PadTo(int64_t begin, const Dim& extent, const Dim& input);
// A stage that pads dimensions 2 and 3 of `x` with `value`; `x` itself where it covers both.
// Schedules place it, or guard the loads instead (inline).
ir::Buffer PadImage(ir::FunctionBuilder& b, const std::string& name, const ir::Buffer& x,
                    const Padded& h, const Padded& w, int64_t value = 0);
// The layout that an attribute names, `plain` where it is absent; the letters of `plain` are the
// axes (op.<name>.attribute).
absl::StatusOr<Layout> LayoutAttr(std::string_view op, const Attrs& attrs, std::string_view name,
                                  std::string_view plain);
// What a convolution takes outside of the image: its attribute pad_value, which only bytes have
// (op.<name>.attribute).
absl::StatusOr<int64_t> PadValueOf(std::string_view op, const Attrs& attrs, ir::DType type);
// The positions of an input that `output` windows touch; the windows themselves begin at 0 from
// then on.
Padded TakePadding(Window* window, const Dim& input, const Dim& output);
// The type of sums of products: floats and i32 keep theirs, bytes (u8 or i8, times i8) give i32,
// 16-bit floats of one type and f32 times either of them give f32 (op.<name>.type).
absl::StatusOr<ir::DType> SumType(std::string_view op, const TensorType& x, const TensorType& w);
// OpSpec::flops of products of the last dimension of the first operand.
double ContractFlops(std::span<const TensorType> inputs, std::span<const TensorType> outputs,
                     const Attrs& attrs);
// A factor of such a product.
ir::Expr AsSum(ir::DType sum, const ir::Expr& factor);
// value if all conditions hold, else otherwise.
ir::Expr Guarded(const std::vector<ir::Expr>& conditions, ir::Expr value, ir::Expr otherwise);

}  // namespace tilewright::op
