// Operators: one row each (OpSpec) with type rule, compute, FLOPs, fusion class, ONNX names and a
// plain reference implementation. The one table is in op.cc; an operator lives in its family's .cc.
// Adding one touches that file and its test. Attributes are typed values. Type rules work on
// dimensions that are expressions; everything else works on fixed shapes. Rows are immutable;
// everything is thread-safe.
//
// Rows leave to the functions below what all operators share: use `InferTypes`, `Compute`,
// `Element`, `Flops` and `Reference`, not the row's pointers.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/ir/build.h"
#include "compiler/ir/ir.h"
#include "compiler/op/layout.h"
#include "compiler/op/tensor_type.h"

namespace tilewright::op {

// Fusion classes of the TVM paper (OSDI'18, section 3): what an operator may be fused with.
enum class FusionClass : uint8_t { kInjective, kReduction, kComplexOutFusable, kOpaque };

// A list of dimensions stands only where one of them is an expression: else it is a list of numbers
// (ShapeAttr).
using AttrValue = std::variant<int64_t, double, std::string, std::vector<int64_t>,
                               std::vector<double>, std::vector<Dim>>;
using Attrs = std::map<std::string, AttrValue>;

// A dense row-major tensor for the reference implementations: values as double, which is exact but
// for integers above 2^53.
struct RefTensor {
  TensorType type;
  std::vector<double> values;
  // Of 64-bit integers of which some are not exact as doubles: all values, u64 as bit patterns.
  std::vector<int64_t> wide = {};
};
// The values of a tensor of integers or bools, u64 as bit patterns.
std::vector<int64_t> IntegersOf(const RefTensor& tensor);
// A tensor of integers or bools with these values, wrapped to the type.
RefTensor FromIntegers(const TensorType& type, const std::vector<int64_t>& values);
// Raw little-endian bytes ⇄ values. FromBytes: op.tensor.size when the length is not the type's.
absl::StatusOr<RefTensor> FromBytes(const TensorType& type, std::string_view bytes);
std::string ToBytes(const RefTensor& tensor);
// `value` as the element type holds it: floats round to nearest even, integers truncate and
// saturate.
double RoundToType(double value, ir::DType dtype);

// Output channels that lie side by side in weights for vectors (conv2d OIHW16o, dense NK16n): two
// AVX2 or one AVX-512 vector of f32. A kernel that computes some blocks reads one contiguous stream
// for each.
inline constexpr int64_t kWeightBlock = 16;
inline constexpr int64_t kDot = 4;   // terms of one dot product of bytes
inline constexpr int64_t kPair = 2;  // of one of bf16

// A dimension in a function under construction: its size variables are size parameters.
ir::Expr SizeExpr(ir::FunctionBuilder& b, const Dim& dim);
std::vector<ir::Expr> ShapeExprs(ir::FunctionBuilder& b, const std::vector<Dim>& shape);

// One use of an operator in a function under construction.
struct ComputeArgs {
  ir::FunctionBuilder& b;
  const std::string& name;  // of the result's buffer
  std::span<const ir::Buffer> inputs;
  std::span<const TensorType> input_types, outputs;
  const Attrs& attrs;
};
// Reads the element of one input at an index.
using ElementReader = std::function<ir::Expr(std::vector<ir::Expr>)>;
// One element of the result of an injective operator.
struct ElementArgs {
  ir::FunctionBuilder& b;
  std::span<const ElementReader> inputs;
  std::span<const TensorType> input_types;
  const TensorType& output;
  const std::vector<ir::Expr>& index;
  const Attrs& attrs;
};

// Another algorithm for an operator: operands and results are those of the row's own compute, the
// rounding differs.
struct OpVariant {
  std::string_view name;  // "winograd"
  // REQUIRES: InferTypes accepted these types and attributes.
  bool (*applies)(std::span<const TensorType> inputs, const Attrs& attrs) = nullptr;
  absl::StatusOr<std::vector<ir::Buffer>> (*compute)(const ComputeArgs& args) = nullptr;
  // By how much the tolerance of a result check grows against the row's own compute.
  double tolerance_factor = 1;
};

// Element types that an operator takes.
enum TypeClass : uint8_t { kFloats = 1, kInts = 2, kBools = 4, kNumbers = 3, kAnyType = 7 };

// Which values of an operand make sense, where not all do.
enum class Domain : uint8_t {
  kAny,
  kPositive,    // elsewhere the result has no value, or none that can be compared
  kScale,       // of quantised values
  kMultiplier,  // a whole number over 2^shift (attribute shift), which stands for a scale
  kWords,       // of packed integers: every pattern of bits is some
};

struct OpSpec {
  std::string_view name;               // "conv2d"
  std::vector<std::string_view> onnx;  // ONNX operators that import to it, may be empty
  FusionClass fusion = FusionClass::kOpaque;
  int min_inputs = 1, max_inputs = 1;
  uint8_t types = kAnyType;  // of operands: a sum of TypeClass
  bool gives_bool = false;   // elementwise: the result is bool, whatever the operands
  bool reads_wide = false;   // its reference looks at RefTensor::wide
  // Whether the type rule holds for dimensions of 0. It does for all elementwise operators.
  bool takes_empty = false;
  // What every element of the result is if an operand has no elements: a tensor of one value. Null
  // if each element of the result needs one of an operand.
  absl::StatusOr<RefTensor> (*of_empty)(ir::DType type, const Attrs& attrs) = nullptr;
  // Stands for an instruction on whole tensors: where a task has it, every operator of the task is
  // a block of its own, so that each can become an instruction.
  bool staged = false;
  // Says how often nodes run, and computes nothing: the row has no compute and no reference.
  bool control = false;
  // Its steps follow each other. A device would do them in one thread or a few, and drivers take
  // minutes to compile them: a processor runs it.
  bool serial = false;
  // A function of a library computes it (attribute definition): no kernel does.
  bool library = false;
  // How many operands, from the first, only hand their elements on: the result
  // has no others.
  int moves = 0;
  // Of floats: a result is the same by each machine and in each order, as a product is. A sum is
  // not: it may be fused with the product before it.
  bool exact = false;
  Domain (*domain)(size_t operand, const Attrs& attrs) = nullptr;  // null: any values
  // The result is the operand's bytes, all of them, under another type: a view in a compiled graph,
  // which no kernel computes. Such a row may go without compute.
  bool alias = false;

  // Elementwise operators (NumPy broadcasting, one output) state only what happens to one element;
  // compute, element, reference and type rule (one type for all operands and the result) follow
  // from it, where the row does not give its own. Null for all others.
  ir::Expr (*scalar)(std::span<const ir::Expr> args, const Attrs& attrs) = nullptr;
  double (*scalar_reference)(std::span<const double> args, const Attrs& attrs) = nullptr;
  // The same of integers and bools, exact: u64 as bit patterns, `type` is the
  // first operand's. The result wraps. Null where doubles do (results of small
  // numbers).
  int64_t (*integer_reference)(std::span<const int64_t> args, ir::DType type,
                               const Attrs& attrs) = nullptr;

  // The type rule. Returns the result types for all sizes at once. Adds to `equal` what holds only
  // for some sizes; `equal` may be null if all dimensions are fixed. Errors name the operator and
  // the offending operand (op.<name>.<reason>); op.<name>.symbolic: an expression stands where the
  // rule needs a fixed dimension.
  absl::StatusOr<TensorTypes> (*infer)(std::span<const TensorType> inputs, const Attrs& attrs,
                                       DimEqualities* equal) = nullptr;
  // The layouts of the data and of the weights, the first two operands, where the attributes
  // data_layout and weight_layout do not say others; "" if the operator knows no layouts.
  std::string_view data_layout = "", weight_layout = "";
  // Names the attribute that holds the sizes of the result, if there is one. They are dimensions;
  // -1 stands for one that follows from the operands.
  std::string_view sizes_attr = "";
  // Adds the compute of this operator to a function under construction; returns its output buffers.
  // Null where `element` is given.
  absl::StatusOr<std::vector<ir::Buffer>> (*compute)(const ComputeArgs& args) = nullptr;
  // Element expression of an injective operator, for inlining chains into one block: value of the
  // output at `index`, given a reader of each input's element.
  ir::Expr (*element)(const ElementArgs& args) = nullptr;
  // Null: one operation per output element.
  double (*flops)(std::span<const TensorType> inputs, std::span<const TensorType> outputs,
                  const Attrs& attrs) = nullptr;
  // Additions in the longest chain of sums one output element depends on (1 where null): what the
  // tolerance of a result check grows with.
  double (*reduction_length)(std::span<const TensorType> inputs, const Attrs& attrs) = nullptr;
  // Plain loops in double: no IR, no schedule, no LLVM. The independent truth for measured results.
  absl::StatusOr<std::vector<RefTensor>> (*reference)(std::span<const RefTensor> inputs,
                                                      std::span<const TensorType> outputs,
                                                      const Attrs& attrs) = nullptr;

  std::vector<OpVariant> variants;  // beside `compute`, which is the variant "direct"

  bool elementwise() const { return scalar != nullptr; }
};

std::span<const OpSpec> Operators();
const OpSpec* FindOp(std::string_view name);

// Checks the number and the types of the inputs, applies the row's rule, then checks the results'
// types. Adds to `equal` what holds only for some sizes; null is for fixed shapes.
absl::StatusOr<TensorTypes> InferTypes(const OpSpec& spec, std::span<const TensorType> inputs,
                                       const Attrs& attrs, DimEqualities* equal = nullptr);
// Returns the attributes with every -1 and every expression in the row's `sizes_attr` replaced by
// the result's dimension.
Attrs SpecializeAttrs(const OpSpec& spec, const Attrs& attrs, const TensorType& result);
// REQUIRES for the next four: InferTypes accepted these types and attributes.
absl::StatusOr<std::vector<ir::Buffer>> Compute(const OpSpec& spec, const ComputeArgs& args);
// REQUIRES: spec.fusion == kInjective.
ir::Expr Element(const OpSpec& spec, const ElementArgs& args);
// How often the expression of one output element reads this operand's: what composed expressions
// grow by.
int OperandUses(const OpSpec& spec, size_t operand, std::span<const TensorType> inputs,
                const Attrs& attrs);
double Flops(const OpSpec& spec, std::span<const TensorType> inputs,
             std::span<const TensorType> outputs, const Attrs& attrs);
double ReductionLength(const OpSpec& spec, std::span<const TensorType> inputs, const Attrs& attrs);
// Infers, runs the reference, rounds the results to their element types.
absl::StatusOr<std::vector<RefTensor>> Reference(const OpSpec& spec,
                                                 std::span<const RefTensor> inputs,
                                                 const Attrs& attrs);

// The names of the algorithms for these operands, "direct" first.
std::vector<std::string> VariantsOf(const OpSpec& spec, std::span<const TensorType> inputs,
                                    const Attrs& attrs);
// Compute by the algorithm of that name; op.<name>.variant where there is none for these operands.
absl::StatusOr<std::vector<ir::Buffer>> ComputeVariant(const OpSpec& spec, std::string_view variant,
                                                       const ComputeArgs& args);

// The layout of an operator's weights (op.<name>.attribute). REQUIRES: the row has one.
absl::StatusOr<Layout> WeightLayout(const OpSpec& spec, const Attrs& attrs);

int64_t GetInt(const Attrs& attrs, std::string_view name, int64_t fallback);
double GetDouble(const Attrs& attrs, std::string_view name, double fallback);
std::string GetString(const Attrs& attrs, std::string_view name, std::string_view fallback);
std::vector<int64_t> GetInts(const Attrs& attrs, std::string_view name,
                             std::vector<int64_t> fallback);
std::vector<Dim> GetDims(const Attrs& attrs, std::string_view name);  // [] where absent
AttrValue ShapeAttr(const std::vector<Dim>& shape);

}  // namespace tilewright::op
