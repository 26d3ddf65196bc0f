// Operators: one row each (OpSpec) with type rule, compute, FLOPs, fusion class, ONNX names and a plain reference
// implementation. The one table is in op.cc; an operator lives in its family's .cc. Adding one touches that file and its test.
// Attributes are typed values; shapes are int64 (symbolic sizes come with the next issue: a dimension may be an expression).
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/ir/build.h"
#include "compiler/ir/ir.h"

namespace tilewright::op {

// Fusion classes of the TVM paper (OSDI'18, section 3): what an operator may be fused with.
enum class FusionClass : uint8_t { kInjective, kReduction, kComplexOutFusable, kOpaque };

struct TensorType {
  ir::DType dtype = ir::kF32;
  std::vector<int64_t> shape;
  bool operator==(const TensorType&) const = default;
  int64_t elements() const;
  int64_t bytes() const;
};
std::string ToText(const TensorType& type);              // "f32[1,4,84,84]"

using AttrValue = std::variant<int64_t, double, std::string, std::vector<int64_t>, std::vector<double>>;
using Attrs = std::map<std::string, AttrValue>;

// A dense row-major tensor for the reference implementations: values as double, exact for f32 and integers below 2^53.
struct RefTensor {
  TensorType type;
  std::vector<double> values;
};

struct OpSpec {
  std::string_view name;                                  // "conv2d"
  std::vector<std::string_view> onnx;                     // ONNX operators that import to it, may be empty
  FusionClass fusion;
  // Result types; errors name the operator and the offending operand (op.<name>.<reason>).
  absl::StatusOr<std::vector<TensorType>> (*infer)(std::span<const TensorType> inputs, const Attrs& attrs);
  // Adds the compute of this operator to a function under construction and returns its output buffer(s).
  absl::StatusOr<std::vector<ir::Buffer>> (*compute)(ir::FunctionBuilder& b, const std::string& name,
                                                     std::span<const ir::Buffer> inputs,
                                                     std::span<const TensorType> outputs, const Attrs& attrs);
  // Element expression of an injective operator, for inlining chains into one block (null for the other classes):
  // value of the output at `index`, given a reader of each input's element.
  ir::Expr (*element)(std::span<const std::function<ir::Expr(std::vector<ir::Expr>)>> inputs, std::span<const TensorType> input_types,
                      const TensorType& output, const std::vector<ir::Expr>& index, const Attrs& attrs);
  double (*flops)(std::span<const TensorType> inputs, std::span<const TensorType> outputs, const Attrs& attrs);
  // Plain loops in double: no IR, no schedule, no LLVM. The independent truth for measured results.
  absl::StatusOr<std::vector<RefTensor>> (*reference)(std::span<const RefTensor> inputs, const Attrs& attrs);
};

std::span<const OpSpec> Operators();
const OpSpec* FindOp(std::string_view name);

int64_t GetInt(const Attrs& attrs, std::string_view name, int64_t fallback);
double GetDouble(const Attrs& attrs, std::string_view name, double fallback);
std::string GetString(const Attrs& attrs, std::string_view name, std::string_view fallback);
std::vector<int64_t> GetInts(const Attrs& attrs, std::string_view name, std::vector<int64_t> fallback);

}  // namespace tilewright::op
