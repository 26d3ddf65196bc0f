// Operators that users define. The definition is an attribute of the node, as canonical text:
// graphs, tasks and everything that is sent stay complete, and there is no table to keep. Two rows,
// because what an operator may be fused with is a row's: `custom_elementwise` is one expression on
// the elements at one place, `custom` any other definition.
#include <algorithm>
#include <map>

#include "compiler/ir/interp.h"
#include "compiler/op/custom_lower.h"
#include "compiler/op/op_rows.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::op {
namespace {

using custom::Definition;
using custom::Lowered;
using custom::LoweredStage;
using support::StrCat;

constexpr int kMaxOperands = static_cast<int>(custom::kMaxNames);

absl::Status Wrong(std::string_view reason, std::string_view detail) {
  return OpError("custom", reason, detail);
}

TensorTypes Widened(std::span<const TensorType> types) {
  TensorTypes wide(types.begin(), types.end());
  for (TensorType& type : wide) {
    if (type.dtype == ir::kF32) type.dtype = ir::kF64;
  }
  return wide;
}

// ------------------------------------------------------------ custom

// A node's definition for its operands: attribute `definition`. It computes the stage of that name
// (attribute `stage`). Stages that other nodes computed are operands behind the definition's own
// (attribute `given`, names with commas between).
struct Use {
  Lowered lowered;
  std::string stage;
  size_t operands = 0;
  std::vector<std::string> given;
};

absl::StatusOr<Use> UseOf(std::span<const TensorType> inputs, const Attrs& attrs, bool wide,
                          DimEqualities* equal) {
  TW_ASSIGN(const std::vector<Definition> definitions,
            custom::Parse(GetString(attrs, "definition", "")));
  if (definitions.size() != 1 || !definitions[0].attributes.empty() ||
      definitions[0].stages.empty()) {
    return Wrong("attribute", "expected one definition with stages, without attributes");
  }
  const Definition& definition = definitions[0];
  std::vector<std::string> given;
  if (const std::string text = GetString(attrs, "given", ""); !text.empty()) {
    given = support::Split(text, ',');
  }
  const size_t operands = definition.operands.size();
  if (inputs.size() != operands + given.size()) {
    return Wrong("inputs",
                 StrCat("expected ", operands + given.size(), " operands, found ", inputs.size()));
  }
  TW_ASSIGN(Lowered lowered, Lowered::Create(definition, inputs.first(operands), wide, equal));
  for (size_t i = 0; i < given.size(); ++i) {
    const LoweredStage* stage = lowered.Find(given[i]);
    if (stage == nullptr || stage->type != inputs[operands + i]) {
      return Wrong("inputs", StrCat("expected the result of another stage as operand ",
                                    operands + i, ", found ", ToText(inputs[operands + i])));
    }
  }
  std::string stage = GetString(attrs, "stage", definition.results[0].name);
  if (lowered.Find(stage) == nullptr) {
    return Wrong("attribute",
                 StrCat("expected a stage of the definition, found ", support::Quote(stage, 60)));
  }
  return Use{std::move(lowered), std::move(stage), operands, std::move(given)};
}

absl::StatusOr<TensorTypes> Infer(std::span<const TensorType> inputs, const Attrs& attrs,
                                  DimEqualities* equal) {
  TW_ASSIGN(const Use use, UseOf(inputs, attrs, false, equal));
  return TensorTypes{use.lowered.Find(use.stage)->type};
}

ir::Buffer BuildUse(const Use& use, ir::FunctionBuilder& b, const std::string& name,
                    std::span<const ir::Buffer> inputs) {
  std::map<std::string, ir::Buffer> given;
  for (size_t i = 0; i < use.given.size(); ++i) given[use.given[i]] = inputs[use.operands + i];
  return use.lowered.Build(b, name, use.stage, inputs.first(use.operands), std::move(given));
}

absl::StatusOr<std::vector<ir::Buffer>> Build(const ComputeArgs& a) {
  DimEqualities equal;
  TW_ASSIGN(const Use use, UseOf(a.input_types, a.attrs, false, &equal));
  return std::vector<ir::Buffer>{BuildUse(use, a.b, a.name, a.inputs)};
}

// Calls `visit` for every stage that the node computes.
template <typename Visit>
void ForEachStage(std::span<const TensorType> inputs, const Attrs& attrs, const Visit& visit) {
  DimEqualities equal;
  const absl::StatusOr<Use> use = UseOf(inputs, attrs, false, &equal);
  if (!use.ok()) return;  // InferTypes refuses the node
  const std::set<std::string> needed =
      use->lowered.Needs(use->stage, {use->given.begin(), use->given.end()});
  for (const LoweredStage& stage : use->lowered.stages()) {
    if (needed.count(stage.name) > 0) visit(stage);
  }
}
double Repeats(const LoweredStage& stage) {
  double count = 1;
  for (const custom::SizedAxis& axis : stage.reduced) {
    count *= static_cast<double>(axis.extent.constant().value_or(1));
  }
  return count;
}
double CountFlops(std::span<const TensorType> inputs, std::span<const TensorType>,
                  const Attrs& attrs) {
  double total = 0;
  ForEachStage(inputs, attrs, [&](const LoweredStage& stage) {
    total += static_cast<double>(stage.type.elements() * std::max<int64_t>(1, stage.operations)) *
             Repeats(stage);
  });
  return total;
}
// Stages may follow each other: the chain of sums is no longer than all of them.
double Length(std::span<const TensorType> inputs, const Attrs& attrs) {
  double total = 1;
  ForEachStage(inputs, attrs, [&](const LoweredStage& stage) {
    if (!stage.reduced.empty()) total += Repeats(stage);
  });
  return total;
}

// ------------------------------------------------------------ custom_elementwise

absl::StatusOr<ir::DType> ResultType(const Attrs& attrs) {
  ir::DType type;
  const std::string text = GetString(attrs, "dtype", "");
  if (ir::ParseType(text, &type) && !type.is_vector()) return type;
  return Wrong("attribute", StrCat("expected an element type, found ", support::Quote(text, 60)));
}
absl::StatusOr<ir::Expr> ElementExpr(std::span<const ir::Expr> args, const Attrs& attrs,
                                     bool wide) {
  TW_ASSIGN(ir::DType type, ResultType(attrs));
  if (wide && type == ir::kF32) type = ir::kF64;
  TW_ASSIGN(const custom::NodeRef node,
            custom::ParseExpression(GetString(attrs, "expression", "")));
  return custom::ElementOf(node, args, type, wide);
}
absl::StatusOr<TensorTypes> InferElement(std::span<const TensorType> inputs, const Attrs& attrs,
                                         DimEqualities* equal) {
  TW_ASSIGN(TensorType type, BroadcastOperands("custom", inputs, equal));
  TW_ASSIGN(type.dtype, ResultType(attrs));
  std::vector<ir::Expr> args;
  for (const TensorType& input : inputs) args.push_back(ir::MakeVar("x", input.dtype));
  TW_TRY(ElementExpr(args, attrs, false).status());
  return TensorTypes{std::move(type)};
}
ir::Expr Scalar(std::span<const ir::Expr> args, const Attrs& attrs) {
  absl::StatusOr<ir::Expr> element = ElementExpr(args, attrs, false);
  TW_CHECK(element.ok()) << support::StatusText(element.status());  // InferElement tried it
  return *std::move(element);
}
double ElementFlops(std::span<const TensorType> inputs, std::span<const TensorType> outputs,
                    const Attrs& attrs) {
  (void)inputs;
  const auto node = custom::ParseExpression(GetString(attrs, "expression", ""));
  if (!node.ok()) return 0;
  const std::function<int64_t(const custom::NodeRef&)> count = [&](const custom::NodeRef& n) {
    int64_t total = n->kind == custom::NodeKind::kOperation || n->kind == custom::NodeKind::kCall;
    for (const custom::NodeRef& arg : n->args) total += count(arg);
    return total;
  };
  return static_cast<double>(outputs[0].elements() * std::max<int64_t>(1, count(*node)));
}

// ------------------------------------------------------------ external

// A function of a library computes the result (attributes `definition` and `attributes`). The
// compiler knows its types, and what it should compute if the definition has stages.
absl::StatusOr<TensorTypes> InferExternal(std::span<const TensorType> inputs, const Attrs& attrs,
                                          DimEqualities* equal) {
  TW_ASSIGN(const std::vector<Definition> definitions,
            custom::Parse(GetString(attrs, "definition", "")));
  if (definitions.size() != 1 || !definitions[0].attributes.empty() ||
      definitions[0].library.empty()) {
    return Wrong("attribute", "expected one definition of a library's function");
  }
  TW_ASSIGN(const Lowered lowered, Lowered::Create(definitions[0], inputs, false, equal));
  return lowered.results();
}
absl::StatusOr<std::vector<ir::Buffer>> BuildExternal(const ComputeArgs&) {
  return support::Unimplemented("op.external.compute",
                                "expected an operator that the compiler computes, found a function "
                                "of a library");
}
double NoFlops(std::span<const TensorType>, std::span<const TensorType>, const Attrs&) { return 0; }

// ------------------------------------------------------------ references

// The definition's own meaning, by the interpreter of the tensor IR: no schedule, no code
// generation. Floats of 32 bits are computed in 64.
template <typename AddResult>
absl::StatusOr<std::vector<RefTensor>> Interpreted(std::span<const RefTensor> inputs,
                                                   const TensorType& output,
                                                   const AddResult& add_result) {
  ir::FunctionBuilder b("reference");
  std::vector<ir::Buffer> buffers;
  std::vector<ir::TensorData> data;
  for (const RefTensor& input : inputs) {
    RefTensor wide = input;
    wide.type = Widened({&input.type, 1})[0];
    buffers.push_back(
        b.Input(StrCat("x", buffers.size()), wide.type.dtype, ShapeExprs(b, wide.type.shape)));
    const std::string bytes = ToBytes(wide);
    data.push_back({{bytes.begin(), bytes.end()}});
  }
  TW_ASSIGN(const ir::Buffer result, add_result(b, buffers));
  const ir::Function function = b.Finish({result});
  data.emplace_back();
  std::vector<ir::TensorData*> args;
  for (ir::TensorData& tensor : data) args.push_back(&tensor);
  TW_TRY(ir::Interpret(function, {}, args));
  const std::vector<uint8_t>& bytes = data.back().bytes;
  TW_ASSIGN(RefTensor tensor,
            FromBytes(Widened({&output, 1})[0],
                      {reinterpret_cast<const char*>(bytes.data()), bytes.size()}));
  tensor.type = output;
  return std::vector<RefTensor>{std::move(tensor)};
}

absl::StatusOr<std::vector<RefTensor>> Reference(std::span<const RefTensor> inputs,
                                                 std::span<const TensorType> outputs,
                                                 const Attrs& attrs) {
  TW_ASSIGN(const Use use, UseOf(Widened(TypesOf(inputs)), attrs, true, nullptr));
  return Interpreted(inputs, outputs[0],
                     [&](ir::FunctionBuilder& b, std::span<const ir::Buffer> buffers) {
                       return absl::StatusOr<ir::Buffer>(BuildUse(use, b, "out", buffers));
                     });
}

absl::StatusOr<std::vector<RefTensor>> ExternalReference(std::span<const RefTensor> inputs,
                                                         std::span<const TensorType> outputs,
                                                         const Attrs& attrs) {
  TW_ASSIGN(const std::vector<Definition> definitions,
            custom::Parse(GetString(attrs, "definition", "")));
  if (!definitions[0].stages.empty()) return Reference(inputs, outputs, attrs);
  return support::Unimplemented("op.external.reference",
                                StrCat("expected an operator with a reference, found a function of "
                                       "a library; write what it computes as stages, function ",
                                       definitions[0].function, " { ... }"));
}

absl::StatusOr<std::vector<RefTensor>> ElementReference(std::span<const RefTensor> inputs,
                                                        std::span<const TensorType> outputs,
                                                        const Attrs& attrs) {
  const TensorTypes types = TypesOf(inputs);
  return Interpreted(inputs, outputs[0],
                     [&](ir::FunctionBuilder& b,
                         std::span<const ir::Buffer> buffers) -> absl::StatusOr<ir::Buffer> {
                       return b.Compute(
                           "out", Widened(outputs)[0].dtype, ShapeExprs(b, outputs[0].shape), {},
                           [&](const std::vector<ir::Var>& vars) {
                             std::vector<ir::Expr> args;
                             for (size_t i = 0; i < types.size(); ++i) {
                               args.push_back(ir::Load(
                                   buffers[i], BroadcastIndex(VarExprs(vars), types[i].shape)));
                             }
                             const auto element = ElementExpr(args, attrs, true);
                             TW_CHECK(element.ok()) << support::StatusText(element.status());
                             return *element;
                           });
                     });
}

// What a definition divides by, or takes the root of, may be any operand.
Domain DomainOf(size_t, const Attrs& attrs) {
  const std::string text = GetString(attrs, "definition", "") + GetString(attrs, "expression", "");
  for (const std::string_view part : {"sqrt(", "log(", "pow(", "acosh(", " / "}) {
    if (text.find(part) != std::string::npos) return Domain::kPositive;
  }
  return Domain::kAny;
}

}  // namespace

std::vector<OpSpec> CustomRows() {
  OpSpec elementwise;
  elementwise.name = "custom_elementwise";
  elementwise.fusion = FusionClass::kInjective;
  elementwise.max_inputs = kMaxOperands;
  elementwise.infer = InferElement;
  elementwise.scalar = Scalar;
  elementwise.reference = ElementReference;
  elementwise.flops = ElementFlops;

  OpSpec custom;
  custom.name = "custom";
  custom.fusion = FusionClass::kComplexOutFusable;
  custom.max_inputs = 2 * kMaxOperands;
  custom.infer = Infer;
  custom.compute = Build;
  custom.reference = Reference;
  custom.flops = CountFlops;
  custom.reduction_length = Length;
  OpSpec external;
  external.name = "external";
  external.fusion = FusionClass::kOpaque;
  external.library = true;
  external.max_inputs = kMaxOperands;
  external.infer = InferExternal;
  external.compute = BuildExternal;
  external.reference = ExternalReference;
  external.flops = NoFlops;

  for (OpSpec* row : {&elementwise, &custom, &external}) {
    row->reads_wide = true;
    row->domain = DomainOf;
  }
  return {std::move(elementwise), std::move(custom), std::move(external)};
}

}  // namespace tilewright::op
