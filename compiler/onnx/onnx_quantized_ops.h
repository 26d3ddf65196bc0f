// What conversions of quantised operators share: scales, zero points and sums of integers. Part of
// the import.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/onnx/onnx_conversions.h"

namespace tilewright::graph::onnx {

struct Parameters {
  ValueId scale, zero;
};
// Bytes of a scale and zero point that follow from the data.
struct DynamicBytes {
  ValueId bytes, scale, zero;
};

// One node, or its value where all operands are known (scales, zero points, weights) and it is no
// larger than they are.
Result EmitKnown(NodeReader& n, std::string_view op_name, std::vector<ValueId> inputs,
                 op::Attrs attrs, const std::string& name);
// A scale or zero point with the axis of the data that its one dimension means; as it is where it
// is one number, and where it has several dimensions already.
Result Aligned(NodeReader& n, ValueId parameter, int64_t axis, size_t rank,
               const std::string& name);
// Scale and zero point as inputs `scale` and `scale + 1` say; a zero point of type `type` and value
// 0 where there is none.
absl::StatusOr<Parameters> ReadParameters(NodeReader& n, int scale, ir::DType type, int64_t axis,
                                          size_t rank, std::string_view what);
// An operand of a product of integers, without its zero point, as i32.
Result CentredBy(NodeReader& n, ValueId value, std::optional<ValueId> zero_point, int64_t axis,
                 std::string_view what);
// The same with the zero point of an input, which may be left out.
Result WithoutZero(NodeReader& n, ValueId value, int zero_input, int64_t axis,
                   std::string_view what);
// Sums of i32 times x_scale * w_scale, in floats.
Result FloatsOfSums(NodeReader& n, ValueId sums, ValueId x_scale, ValueId w_scale);
// Sums of i32 times x_scale * w_scale / y_scale, rounded into the type of the zero point.
Result Requantized(NodeReader& n, ValueId sums, ValueId x_scale, ValueId w_scale,
                   const Parameters& y);
// The axis of a scale or zero point of an operand of MatMul: the rows of a, the columns of b.
int64_t RowAxis(const op::TensorType& type);
int64_t ColumnAxis(const op::TensorType& type);
// The scale that lets the data and 0 fit into u8. Data that is all zeros has scale 0, and bytes 0.
absl::StatusOr<DynamicBytes> DynamicallyQuantized(NodeReader& n, ValueId x);

}  // namespace tilewright::graph::onnx
