#include "compiler/op/op.h"

#include <algorithm>
#include <utility>

#include "compiler/ir/visit.h"
#include "compiler/op/op_rows.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::op {
namespace {

using support::StrCat;

std::vector<OpSpec> MakeTable() {
  std::vector<OpSpec> table;
  for (auto rows : {
#define TW_FAMILY(Name, source) Name##Rows(),
#include "compiler/op/families.def"
       }) {
    for (OpSpec& row : rows) table.push_back(std::move(row));
  }
  return table;
}

TypeClass ClassOf(ir::DType type) {
  return type.is_float() ? kFloats : type.is_bool() ? kBools : kInts;
}
std::string TypesText(uint8_t types) {
  std::vector<std::string_view> names;
  if (types & kFloats) names.push_back("floats");
  if (types & kInts) names.push_back("integers");
  if (types & kBools) names.push_back("bools");
  return support::Join(names, " or ");
}

absl::StatusOr<TensorTypes> InferElementwise(const OpSpec& spec, std::span<const TensorType> inputs,
                                             DimEqualities* equal) {
  for (size_t i = 1; i < inputs.size(); ++i) {
    if (inputs[i].dtype != inputs[0].dtype) {
      return OpError(spec.name, "type",
                     StrCat("expected operand ", i, " of type ", ir::TypeName(inputs[0].dtype),
                            ", found ", ToText(inputs[i])));
    }
  }
  TW_ASSIGN(TensorType out, BroadcastOperands(spec.name, inputs, equal));
  if (spec.gives_bool) out.dtype = ir::kBool;
  return TensorTypes{std::move(out)};
}

absl::Status CheckOperands(TypeCheck* check, const OpSpec& spec,
                           std::span<const TensorType> inputs) {
  const int count = static_cast<int>(inputs.size());
  if (count < spec.min_inputs || count > spec.max_inputs) {
    std::string expected = spec.min_inputs == spec.max_inputs
                               ? StrCat(spec.min_inputs)
                               : StrCat(spec.min_inputs, " to ", spec.max_inputs);
    return OpError(spec.name, "inputs", StrCat("expected ", expected, " inputs, found ", count));
  }
  for (int i = 0; i < count; ++i) {
    absl::Status status = check(inputs[i]);
    if (!status.ok()) return support::WithContext(status, StrCat(spec.name, " operand ", i));
    if ((spec.types & ClassOf(inputs[i].dtype)) == 0) {
      return OpError(
          spec.name, "type",
          StrCat("expected operands of ", TypesText(spec.types), ", found ", ToText(inputs[i])));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckResult(TypeCheck* check, const OpSpec& spec, const TensorType& result) {
  absl::Status status = check(result);
  return status.ok() ? status : support::WithContext(status, StrCat(spec.name, " result"));
}

absl::StatusOr<TensorTypes> ApplyRule(const OpSpec& spec, std::span<const TensorType> inputs,
                                      const Attrs& attrs, DimEqualities* equal) {
  return spec.infer != nullptr ? spec.infer(inputs, attrs, equal)
                               : InferElementwise(spec, inputs, equal);
}

// The offset in each operand of every element of a result of this shape, in order.
template <typename Visit>
void VisitBroadcast(std::span<const RefTensor> inputs, const std::vector<int64_t>& shape,
                    const Visit& visit) {
  // Per operand, the stride of every output dimension (0 where it is broadcast).
  std::vector<std::vector<int64_t>> strides;
  for (const RefTensor& in : inputs) {
    const std::vector<int64_t> sizes = in.type.sizes(), own = RowMajorStrides(sizes);
    std::vector<int64_t> aligned(shape.size(), 0);
    const size_t skip = shape.size() - own.size();
    for (size_t d = 0; d < own.size(); ++d) aligned[skip + d] = sizes[d] == 1 ? 0 : own[d];
    strides.push_back(std::move(aligned));
  }
  std::vector<int64_t> index(shape.size(), 0), offsets(inputs.size());
  do {
    for (size_t i = 0; i < inputs.size(); ++i) {
      offsets[i] = 0;
      for (size_t d = 0; d < index.size(); ++d) offsets[i] += index[d] * strides[i][d];
    }
    visit(offsets);
  } while (NextIndex(shape, &index));
}

std::vector<RefTensor> ReferenceElementwise(const OpSpec& spec, std::span<const RefTensor> inputs,
                                            const TensorType& type, const Attrs& attrs) {
  RefTensor out{type, {}};
  out.values.reserve(type.elements());
  std::vector<double> args(inputs.size());
  VisitBroadcast(inputs, type.sizes(), [&](const std::vector<int64_t>& offsets) {
    for (size_t i = 0; i < inputs.size(); ++i) args[i] = inputs[i].values[offsets[i]];
    out.values.push_back(spec.scalar_reference(args, attrs));
  });
  return {std::move(out)};
}

std::vector<RefTensor> ReferenceIntegers(const OpSpec& spec, std::span<const RefTensor> inputs,
                                         const TensorType& type, const Attrs& attrs) {
  std::vector<std::vector<int64_t>> operands;
  for (const RefTensor& in : inputs) operands.push_back(IntegersOf(in));
  std::vector<int64_t> args(inputs.size()), results;
  results.reserve(type.elements());
  VisitBroadcast(inputs, type.sizes(), [&](const std::vector<int64_t>& offsets) {
    for (size_t i = 0; i < inputs.size(); ++i) args[i] = operands[i][offsets[i]];
    results.push_back(spec.integer_reference(args, inputs[0].type.dtype, attrs));
  });
  return {FromIntegers(type, results)};
}

absl::Status Inexact(const OpSpec& spec) {
  return support::Unimplemented(StrCat("op.", spec.name, ".inexact"),
                                "expected integers below 2^53 where the reference computes in "
                                "double, found larger ones");
}
bool IsWide(const RefTensor& tensor) { return !tensor.wide.empty(); }

absl::StatusOr<std::vector<RefTensor>> PlainReference(const OpSpec& spec,
                                                      std::span<const RefTensor> inputs,
                                                      std::span<const TensorType> types,
                                                      const Attrs& attrs) {
  if (spec.scalar_reference == nullptr) return spec.reference(inputs, types, attrs);
  return ReferenceElementwise(spec, inputs, types[0], attrs);
}

// Integers above 2^53 that only move: the halves of 32 bits do so as exact
// numbers.
absl::StatusOr<std::vector<RefTensor>> MoveHalves(const OpSpec& spec,
                                                  std::span<const RefTensor> inputs,
                                                  std::span<const TensorType> types,
                                                  const Attrs& attrs) {
  std::vector<RefTensor> halves[2];
  for (const int half : {0, 1}) {
    std::vector<RefTensor> operands(inputs.begin(), inputs.end());
    for (size_t k = 0; k < operands.size() && static_cast<int>(k) < spec.moves; ++k) {
      RefTensor& operand = operands[k];
      std::vector<int64_t> values = IntegersOf(operand);
      for (size_t i = 0; i < values.size(); ++i) {
        const uint64_t bits = static_cast<uint64_t>(values[i]);
        operand.values[i] = static_cast<double>(half == 0 ? bits & 0xffffffff : bits >> 32);
      }
      operand.wide.clear();
    }
    TW_ASSIGN(halves[half], PlainReference(spec, operands, types, attrs));
  }
  std::vector<RefTensor> results;
  for (size_t o = 0; o < types.size(); ++o) {
    std::vector<int64_t> values;
    for (size_t i = 0; i < halves[0][o].values.size(); ++i) {
      const auto part = [&](int half) { return static_cast<uint64_t>(halves[half][o].values[i]); };
      values.push_back(static_cast<int64_t>(part(1) << 32 | part(0)));
    }
    results.push_back(FromIntegers(types[o], values));
  }
  return results;
}

constexpr std::string_view kDirect = "direct";

}  // namespace

std::span<const OpSpec> Operators() {
  static const std::vector<OpSpec>* const table = new std::vector<OpSpec>(MakeTable());
  return *table;
}

const OpSpec* FindOp(std::string_view name) {
  static const std::map<std::string_view, const OpSpec*>* const by_name = [] {
    auto* map = new std::map<std::string_view, const OpSpec*>;
    for (const OpSpec& spec : Operators()) (*map)[spec.name] = &spec;
    return map;
  }();
  auto it = by_name->find(name);
  return it == by_name->end() ? nullptr : it->second;
}

absl::StatusOr<TensorTypes> InferTypes(const OpSpec& spec, std::span<const TensorType> inputs,
                                       const Attrs& attrs, DimEqualities* equal) {
  return InferWith(CheckType, spec, inputs, attrs, equal);
}

absl::StatusOr<TensorTypes> InferWith(TypeCheck* check, const OpSpec& spec,
                                      std::span<const TensorType> inputs, const Attrs& attrs,
                                      DimEqualities* equal) {
  TW_TRY(CheckOperands(check, spec, inputs));
  TW_ASSIGN(TensorTypes results, ApplyRule(spec, inputs, attrs, equal));
  for (const TensorType& result : results) TW_TRY(CheckResult(check, spec, result));
  return results;
}

Attrs SpecializeAttrs(const OpSpec& spec, const Attrs& attrs, const TensorType& result) {
  Attrs fixed = attrs;
  const auto it = fixed.find(std::string(spec.sizes_attr));
  if (it == fixed.end()) return fixed;
  std::vector<Dim> sizes = GetDims(attrs, spec.sizes_attr);
  for (size_t d = 0; d < sizes.size() && d < result.shape.size(); ++d) {
    if (sizes[d] == Dim(-1) || !sizes[d].is_constant()) sizes[d] = result.shape[d];
  }
  if (!sizes.empty()) it->second = ShapeAttr(sizes);
  return fixed;
}

absl::StatusOr<std::vector<ir::Buffer>> Compute(const OpSpec& spec, const ComputeArgs& args) {
  if (spec.compute != nullptr) return spec.compute(args);
  if (spec.fusion != FusionClass::kInjective) {
    return support::Unimplemented(StrCat("op.", spec.name, ".compute"),
                                  "expected an operator with a compute rule, found none");
  }
  std::vector<ElementReader> readers;
  for (const ir::Buffer& input : args.inputs) {
    readers.push_back([input](std::vector<ir::Expr> index) { return ir::Load(input, index); });
  }
  const TensorType& out = args.outputs[0];
  return std::vector<ir::Buffer>{args.b.Compute(
      args.name, out.dtype, ShapeExprs(args.b, out.shape), {},
      [&](const std::vector<ir::Var>& vars) {
        return Element(spec, {args.b, readers, args.input_types, out, VarExprs(vars), args.attrs});
      })};
}

std::vector<std::string> VariantsOf(const OpSpec& spec, std::span<const TensorType> inputs,
                                    const Attrs& attrs) {
  std::vector<std::string> names = {std::string(kDirect)};
  for (const OpVariant& v : spec.variants) {
    if (v.applies(inputs, attrs)) names.emplace_back(v.name);
  }
  return names;
}

absl::StatusOr<std::vector<ir::Buffer>> ComputeVariant(const OpSpec& spec, std::string_view variant,
                                                       const ComputeArgs& args) {
  if (variant == kDirect) return Compute(spec, args);
  for (const OpVariant& v : spec.variants) {
    if (v.name == variant && v.applies(args.input_types, args.attrs)) return v.compute(args);
  }
  return OpError(spec.name, "variant",
                 StrCat("expected one of ",
                        support::Join(VariantsOf(spec, args.input_types, args.attrs), ", "),
                        ", found ", support::Quote(variant, 60)));
}

ir::Expr Element(const OpSpec& spec, const ElementArgs& args) {
  TW_CHECK(spec.fusion == FusionClass::kInjective) << spec.name << " is not injective";
  if (spec.scalar == nullptr) return spec.element(args);
  std::vector<ir::Expr> operands;
  for (size_t i = 0; i < args.inputs.size(); ++i) {
    operands.push_back(args.inputs[i](BroadcastIndex(args.index, args.input_types[i].shape)));
  }
  return spec.scalar(operands, args.attrs);
}

int OperandUses(const OpSpec& spec, size_t operand, std::span<const TensorType> inputs,
                const Attrs& attrs) {
  if (spec.scalar == nullptr) return 1;
  const ir::Var probe = ir::MakeVar("probe", inputs[operand].dtype);
  int most = 0;
  // A rule may look at its operands: they are tried as variables and as the literal 3 (a cube).
  for (const bool literal : {false, true}) {
    std::vector<ir::Expr> args;
    for (const TensorType& in : inputs) {
      args.push_back(!literal              ? ir::MakeVar("other", in.dtype)
                     : in.dtype.is_float() ? ir::Float(3, in.dtype)
                                           : ir::Int(3, in.dtype));
    }
    args[operand] = probe;
    int uses = 0;
    ir::VisitExprs(spec.scalar(args, attrs), [&](const ir::Expr& e) {
      uses += e == probe;
      return true;
    });
    most = std::max(most, uses);
  }
  return most;
}

double Flops(const OpSpec& spec, std::span<const TensorType> inputs,
             std::span<const TensorType> outputs, const Attrs& attrs) {
  if (spec.flops != nullptr) return spec.flops(inputs, outputs, attrs);
  double total = 0;
  for (const TensorType& out : outputs) total += static_cast<double>(out.elements());
  return total;
}

double ReductionLength(const OpSpec& spec, std::span<const TensorType> inputs, const Attrs& attrs) {
  return spec.reduction_length == nullptr ? 1 : spec.reduction_length(inputs, attrs);
}

absl::StatusOr<std::vector<RefTensor>> Reference(const OpSpec& spec,
                                                 std::span<const RefTensor> inputs,
                                                 const Attrs& attrs) {
  std::vector<TensorType> input_types;
  for (const RefTensor& in : inputs) {
    input_types.push_back(in.type);
    TW_TRY(CheckType(in.type));
    if (static_cast<int64_t>(in.values.size()) != in.type.elements()) {
      return OpError(spec.name, "values",
                     StrCat("expected ", in.type.elements(), " values, found ", in.values.size()));
    }
  }
  TW_ASSIGN(std::vector<TensorType> types, InferTypes(spec, input_types, attrs));
  const bool integers = std::all_of(inputs.begin(), inputs.end(),
                                    [](const RefTensor& in) { return !in.type.dtype.is_float(); });
  if (spec.integer_reference != nullptr && integers) {
    return ReferenceIntegers(spec, inputs, types[0], attrs);
  }
  const bool wide = std::any_of(inputs.begin(), inputs.end(), IsWide);
  const bool result_wide = types[0].dtype == ir::kI64 || types[0].dtype == ir::kU64;
  if (wide && spec.moves > 0 && result_wide) return MoveHalves(spec, inputs, types, attrs);
  if (wide && spec.moves == 0 && !spec.reads_wide) return Inexact(spec);
  TW_ASSIGN(std::vector<RefTensor> results, PlainReference(spec, inputs, types, attrs));
  for (RefTensor& result : results) {
    if (IsWide(result)) continue;
    for (double& value : result.values) {
      value = RoundToType(value, result.type.dtype);
      if (result.type.dtype.is_int() && !IsExact(value)) return Inexact(spec);
    }
  }
  return results;
}

absl::StatusOr<Layout> WeightLayout(const OpSpec& spec, const Attrs& attrs) {
  return LayoutAttr(spec.name, attrs, "weight_layout", spec.weight_layout);
}

int64_t GetInt(const Attrs& attrs, std::string_view name, int64_t fallback) {
  auto it = attrs.find(std::string(name));
  if (it == attrs.end()) return fallback;
  const int64_t* value = std::get_if<int64_t>(&it->second);
  return value != nullptr ? *value : fallback;
}

double GetDouble(const Attrs& attrs, std::string_view name, double fallback) {
  auto it = attrs.find(std::string(name));
  if (it == attrs.end()) return fallback;
  const double* value = std::get_if<double>(&it->second);
  return value != nullptr ? *value : fallback;
}

std::string GetString(const Attrs& attrs, std::string_view name, std::string_view fallback) {
  auto it = attrs.find(std::string(name));
  if (it == attrs.end()) return std::string(fallback);
  const std::string* value = std::get_if<std::string>(&it->second);
  return value != nullptr ? *value : std::string(fallback);
}

std::vector<int64_t> GetInts(const Attrs& attrs, std::string_view name,
                             std::vector<int64_t> fallback) {
  auto it = attrs.find(std::string(name));
  if (it == attrs.end()) return fallback;
  const auto* value = std::get_if<std::vector<int64_t>>(&it->second);
  return value != nullptr ? *value : fallback;
}

std::vector<Dim> GetDims(const Attrs& attrs, std::string_view name) {
  auto it = attrs.find(std::string(name));
  if (it == attrs.end()) return {};
  if (const auto* dims = std::get_if<std::vector<Dim>>(&it->second)) return *dims;
  const auto* sizes = std::get_if<std::vector<int64_t>>(&it->second);
  return sizes == nullptr ? std::vector<Dim>{} : std::vector<Dim>(sizes->begin(), sizes->end());
}

AttrValue ShapeAttr(const std::vector<Dim>& shape) {
  const TensorType type{ir::kF32, shape};
  return type.fixed() ? AttrValue(type.sizes()) : AttrValue(shape);
}

}  // namespace tilewright::op
