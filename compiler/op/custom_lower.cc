#include "compiler/op/custom_lower.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "compiler/ir/text_words.h"
#include "compiler/ir/tuple_reduction.h"
#include "compiler/op/custom_size.h"
#include "compiler/op/custom_translate.h"
#include "compiler/op/op_rows.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::op::custom {
namespace {

using support::Quote;
using support::StrCat;

constexpr size_t kShown = 80;  // characters of an expression that an error shows
constexpr size_t kMaxLoweredStages = 256;

absl::Status Wrong(std::string_view reason, std::string_view detail) {
  return OpError("custom", reason, detail);
}

// What an expression mentions: names, and whether it reads along `..`.
struct Mentions {
  std::set<std::string> names, tensors;
  bool leading = false;
  int64_t operations = 0;  // positions of elements do not count

  void Add(const NodeRef& node, bool position = false) {
    const bool operation = node->kind == NodeKind::kOperation || node->kind == NodeKind::kCall;
    if (operation && !position) ++operations;
    if (node->kind == NodeKind::kName) names.insert(node->name);
    if (node->kind == NodeKind::kAccess) {
      tensors.insert(node->name);
      leading = leading || node->leading;
      position = true;
    }
    for (const NodeRef& arg : node->args) Add(arg, position);
  }
};

std::vector<Dim> ShapeOf(const std::vector<SizedAxis>& axes) {
  std::vector<Dim> shape;
  for (const SizedAxis& axis : axes) shape.push_back(axis.extent);
  return shape;
}
// Of loops in dumps and schedules.
std::vector<std::string> AxisNames(const std::vector<SizedAxis>& axes) {
  std::vector<std::string> names;
  for (const SizedAxis& axis : axes) {
    names.push_back(axis.name.empty() ? StrCat("i", names.size()) : ir::Sanitise(axis.name));
  }
  return names;
}

ir::Combiner CombinerOf(std::string_view word) {
  if (word == "max") return ir::Combiner::kMax;
  if (word == "min") return ir::Combiner::kMin;
  return word == "prod" ? ir::Combiner::kProd : ir::Combiner::kSum;
}

// What an expression of the stage sees, with these variables of its axes and reductions.
Translator MakeTranslator(const LoweredStage& stage, const std::vector<ir::Expr>& vars,
                          const std::vector<ir::Expr>& reduced) {
  Translator t;
  for (size_t i = 0; i < stage.axes.size(); ++i) {
    const Translator::Index index{vars[i], stage.axes[i].extent};
    if (i < stage.leading) {
      t.leading.push_back(index);
    } else {
      t.axes[stage.axes[i].name] = index;
    }
  }
  for (size_t i = 0; i < stage.reduced.size(); ++i) {
    t.axes[stage.reduced[i].name] = {reduced[i], stage.reduced[i].extent};
  }
  return t;
}

}  // namespace

absl::StatusOr<Lowered> Lowered::Create(const Definition& definition,
                                        std::span<const TensorType> inputs, bool wide,
                                        DimEqualities* equal) {
  Lowered lowered(definition, wide);
  DimEqualities unused;
  if (equal == nullptr) equal = &unused;
  TW_TRY(lowered.BindOperands(inputs, equal));
  TW_TRY(lowered.CheckRequirements(equal));
  TW_TRY(lowered.AddStages());
  return lowered;
}

absl::StatusOr<ir::DType> Lowered::TypeOf(std::string_view word) const {
  const std::optional<ir::DType> type = TypeOfWord(word, types_, wide_);
  if (type) return *type;
  return Wrong("type", StrCat("expected an element type or a type variable of an operand, found ",
                              Quote(word, kShown)));
}

// ------------------------------------------------------------ sizes

absl::StatusOr<Dim> Lowered::Size(const NodeRef& node) const {
  const auto bad = [&](std::string_view expected) {
    return Wrong("shape", StrCat("expected ", expected, ", found ", Quote(Print(node), kShown)));
  };
  if (node->kind == NodeKind::kInt) {
    if (node->integer > (int64_t{1} << 40)) return bad("a size up to 2^40");
    return Dim(node->integer);
  }
  if (node->kind == NodeKind::kName) {
    const auto dim = dims_.find(node->name);
    if (dim == dims_.end()) return bad("a size that an operand states");
    return dim->second;
  }
  if (node->kind != NodeKind::kOperation && node->kind != NodeKind::kCall) return bad("a size");
  std::vector<MaybeSize> args;
  for (const NodeRef& arg : node->args) {
    TW_ASSIGN(const Dim dim, Size(arg));
    args.push_back(CheckedSize::Of(dim));
  }
  MaybeSize result;
  const std::string& symbol = node->name;
  if (symbol == "-" && args.size() == 1) {
    result = Negate(args[0]);
  } else if (args.size() != 2) {
    return bad("a size of + - * / % min max");
  } else if (symbol == "+") {
    result = Add(args[0], args[1]);
  } else if (symbol == "-") {
    result = Add(args[0], Negate(args[1]));
  } else if (symbol == "*") {
    result = Multiply(args[0], args[1]);
  } else {
    const std::optional<int64_t> a = args[0]->dim.constant(), b = args[1]->dim.constant();
    if (symbol == "/" && b && *b > 0) {
      result = FloorDivide(args[0], *b);
    } else if (symbol == "/" || (symbol == "%" && b && *b <= 0)) {
      return bad("a divisor that is a number above 0");
    } else if (!a || !b) {
      return NotFixed("custom", StrCat(Print(node),
                                       " of open sizes; give numbers instead of ranges "
                                       "(--shape NAME=N)"));
    } else if (symbol == "%") {
      result = CheckedSize::Of(Dim((*a % *b + *b) % *b));
    } else if (symbol == "min" || symbol == "max") {
      result = CheckedSize::Of(Dim(symbol == "min" ? std::min(*a, *b) : std::max(*a, *b)));
    } else {
      return bad("a size of + - * / % min max");
    }
  }
  if (!result) return bad("a size below 2^48");
  return result->dim;
}

absl::StatusOr<std::optional<bool>> Lowered::Decide(const NodeRef& node,
                                                    DimEqualities* equal) const {
  using Answer = std::optional<bool>;
  if (node->kind == NodeKind::kBool) return Answer(node->integer != 0);
  const std::string& symbol = node->name;
  if (node->kind != NodeKind::kOperation || node->args.empty()) {
    return Wrong("require", StrCat("expected a condition on sizes and attributes, found ",
                                   Quote(Print(node), kShown)));
  }
  if (symbol == "!" || symbol == "&&" || symbol == "||") {
    std::vector<Answer> args;
    for (const NodeRef& arg : node->args) {
      // What an `or` and a `not` ask of open sizes is no demand.
      DimEqualities unused;
      TW_ASSIGN(Answer answer, Decide(arg, symbol == "&&" ? equal : &unused));
      if (symbol != "&&" && !unused.empty()) answer.reset();
      args.push_back(answer);
    }
    if (symbol == "!") return args[0] ? Answer(!*args[0]) : args[0];
    const bool decisive = symbol == "||";
    if (args[0] == Answer(decisive) || args[1] == Answer(decisive)) return Answer(decisive);
    return args[0] && args[1] ? Answer(!decisive) : Answer();
  }
  if (node->args.size() != 2) return Answer();
  TW_ASSIGN(const Dim a, Size(node->args[0]));
  TW_ASSIGN(const Dim b, Size(node->args[1]));
  if (symbol == "==") return Answer(MayEqual(a, b, equal));
  const std::optional<int64_t> gap = (a - b).constant();
  if (!gap) return Answer();
  if (symbol == "!=") return Answer(*gap != 0);
  if (symbol == "<") return Answer(*gap < 0);
  if (symbol == "<=") return Answer(*gap <= 0);
  if (symbol == ">") return Answer(*gap > 0);
  return Answer(symbol == ">=" && *gap >= 0);
}

absl::Status Lowered::CheckRequirements(DimEqualities* equal) const {
  for (const NodeRef& condition : definition_.requirements) {
    TW_ASSIGN(const std::optional<bool> holds, Decide(condition, equal));
    std::vector<std::string> sizes;
    for (const auto& [name, dim] : dims_) sizes.push_back(StrCat(name, " = ", dim.ToText()));
    const std::string at =
        StrCat(Quote(Print(condition), kShown), " with ", support::Join(sizes, ", "));
    if (!holds) {
      return NotFixed("custom", StrCat(at, "; give numbers instead of ranges (--shape NAME=N)"));
    }
    if (!*holds) return Wrong("require", StrCat("expected ", at, ", found that it does not hold"));
  }
  return absl::OkStatus();
}

absl::Status Lowered::BindOperands(std::span<const TensorType> inputs, DimEqualities* equal) {
  if (inputs.size() != definition_.operands.size()) {
    return Wrong("inputs", StrCat("expected ", definition_.operands.size(), " operands, found ",
                                  inputs.size()));
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Operand& operand = definition_.operands[i];
    TW_TRY(BindOperand(operand, inputs[i], equal));
    // With the definition's own sizes, which are what `equal` says these are.
    TensorType& type = tensors_[operand.name];
    type.dtype = inputs[i].dtype;
    if (operand.leading) type.shape = *leading_;
    for (const NodeRef& node : operand.dims) {
      TW_ASSIGN(Dim dim, Size(node));
      type.shape.push_back(std::move(dim));
    }
  }
  return absl::OkStatus();
}

absl::Status Lowered::BindOperand(const Operand& operand, const TensorType& type,
                                  DimEqualities* equal) {
  const auto bad = [&](std::string_view reason, std::string_view expected) {
    return Wrong(reason, StrCat("operand ", operand.name, ": expected ", expected, ", found ",
                                ToText(type)));
  };
  const auto variable = std::find_if(definition_.types.begin(), definition_.types.end(),
                                     [&](const auto& v) { return v.name == operand.type; });
  if (variable != definition_.types.end() && types_.count(operand.type) == 0) {
    std::vector<std::string> names;
    for (const ir::DType allowed : variable->types) {
      names.push_back(ir::TypeName(allowed));
      const ir::DType meant = wide_ && allowed == ir::kF32 ? ir::kF64 : allowed;
      if (meant == type.dtype) types_[operand.type] = type.dtype;
    }
    if (types_.count(operand.type) == 0) return bad("type", support::Join(names, " or "));
  }
  TW_ASSIGN(const ir::DType dtype, TypeOf(operand.type));
  if (dtype != type.dtype) return bad("type", ir::TypeName(dtype));

  const size_t rank = type.shape.size(), named = operand.dims.size();
  if (operand.leading ? rank < named : rank != named) {
    return bad("shape", StrCat(operand.leading ? "at least " : "", named, " dimensions"));
  }
  if (operand.leading) {
    const std::vector<Dim> front(type.shape.begin(), type.shape.end() - static_cast<long>(named));
    if (!leading_) leading_ = front;
    if (leading_->size() != front.size() || !MayEqual(*leading_, front, equal)) {
      return bad("shape", StrCat(DimsText(*leading_), " in front, as other operands have"));
    }
  }
  for (size_t d = 0; d < named; ++d) {
    const Dim& found = type.shape[rank - named + d];
    const NodeRef& stated = operand.dims[d];
    if (stated->kind == NodeKind::kName && dims_.count(stated->name) == 0) {
      dims_[stated->name] = found;
      continue;
    }
    TW_ASSIGN(const Dim expected, Size(stated));
    if (!MayEqual(expected, found, equal)) {
      return bad("shape", StrCat("dimension ", Print(stated), " to be ", expected.ToText()));
    }
  }
  return absl::OkStatus();
}

// ------------------------------------------------------------ stages

absl::StatusOr<std::vector<SizedAxis>> Lowered::Sized(const std::vector<Axis>& axes) const {
  std::vector<SizedAxis> sized;
  for (const Axis& axis : axes) {
    if (dims_.count(axis.name) > 0 || tensors_.count(axis.name) > 0) {
      return Wrong("name", StrCat("expected a new name for an axis, found ", Quote(axis.name)));
    }
    TW_ASSIGN(Dim extent, Size(axis.extent));
    if (extent.constant().value_or(1) < 1) {
      return Wrong("shape", StrCat("expected a size of at least 1 for axis ", axis.name, ", found ",
                                   extent.ToText()));
    }
    sized.push_back({axis.name, std::move(extent)});
  }
  return sized;
}

absl::Status Lowered::AddStages() {
  for (const Operand& result : definition_.results) {
    TensorType type;
    TW_ASSIGN(type.dtype, TypeOf(result.type));
    if (result.leading && !leading_) {
      return Wrong("shape", "expected an operand with `..`, which a result has");
    }
    if (result.leading) type.shape = *leading_;
    for (const NodeRef& node : result.dims) {
      TW_ASSIGN(Dim dim, Size(node));
      type.shape.push_back(std::move(dim));
    }
    TW_TRY(support::WithContext(CheckType(type), StrCat("result ", result.name)));
    results_.push_back(std::move(type));
  }
  for (const Stage& stage : definition_.stages) {
    TW_TRY(support::WithContext(AddStage(stage), StrCat("stage ", stage.name)));
  }
  return absl::OkStatus();
}

absl::Status Lowered::AddStage(const Stage& stage) {
  LoweredStage lowered;
  lowered.name = stage.name;
  if (stage.leading && !leading_) {
    return Wrong("shape", "expected an operand with `..`, which the stage has");
  }
  std::vector<Axis> axes = stage.axes;
  const auto result = std::find_if(definition_.results.begin(), definition_.results.end(),
                                   [&](const Operand& r) { return r.name == stage.name; });
  if (result != definition_.results.end()) {
    if (result->leading != stage.leading || result->dims.size() != axes.size()) {
      return Wrong("shape", StrCat("expected the axes of result ", result->name, ", found others"));
    }
    for (size_t d = 0; d < axes.size(); ++d) axes[d].extent = result->dims[d];
  }
  if (stage.leading) {
    lowered.leading = leading_->size();
    for (const Dim& dim : *leading_) lowered.axes.push_back({"", dim});
  }
  TW_ASSIGN(const std::vector<SizedAxis> named, Sized(axes));
  lowered.axes.insert(lowered.axes.end(), named.begin(), named.end());
  NodeRef value = stage.value;
  std::vector<SizedAxis> scope = named;
  if (value->kind == NodeKind::kReduce) {
    lowered.reduction = value->name;
    TW_ASSIGN(lowered.reduced, Sized(value->axes));
    scope.insert(scope.end(), lowered.reduced.begin(), lowered.reduced.end());
    value = value->args[0];
  }
  TW_ASSIGN(lowered.value, Lift(value, lowered, scope));
  return AddLowered(std::move(lowered));
}

// Reductions inside of an expression become stages over the axes that they depend on.
absl::StatusOr<NodeRef> Lowered::Lift(const NodeRef& node, const LoweredStage& within,
                                      const std::vector<SizedAxis>& scope) {
  if (node->kind == NodeKind::kReduce) return LiftReduction(node, within, scope);
  Node copy = *node;
  bool changed = false;
  for (NodeRef& arg : copy.args) {
    TW_ASSIGN(NodeRef lifted, Lift(arg, within, scope));
    changed = changed || lifted != arg;
    arg = std::move(lifted);
  }
  return changed ? std::make_shared<const Node>(std::move(copy)) : node;
}

absl::StatusOr<NodeRef> Lowered::LiftReduction(const NodeRef& node, const LoweredStage& within,
                                               const std::vector<SizedAxis>& scope) {
  LoweredStage stage;
  stage.reduction = node->name;
  TW_ASSIGN(stage.reduced, Sized(node->axes));
  std::vector<SizedAxis> inner = scope;
  inner.insert(inner.end(), stage.reduced.begin(), stage.reduced.end());
  TW_ASSIGN(stage.value, Lift(node->args[0], within, inner));
  Mentions mentions;
  mentions.Add(stage.value);
  Node access{.kind = NodeKind::kAccess, .leading = mentions.leading};
  if (mentions.leading) {
    stage.leading = within.leading;
    stage.axes.assign(within.axes.begin(), within.axes.begin() + static_cast<long>(within.leading));
  }
  std::string key = Print(node);
  for (const SizedAxis& axis : scope) {
    if (mentions.names.count(axis.name) == 0) continue;
    stage.axes.push_back(axis);
    key += StrCat(" ", axis.name, ":", axis.extent.ToText());
    access.args.push_back(
        std::make_shared<const Node>(Node{.kind = NodeKind::kName, .name = axis.name}));
  }
  // Equal reductions are computed once.
  std::string& name = lifted_[key];
  if (name.empty()) {
    const auto taken = [&](const std::string& candidate) {
      return tensors_.count(candidate) > 0 ||
             std::any_of(definition_.stages.begin(), definition_.stages.end(),
                         [&](const Stage& s) { return s.name == candidate; });
    };
    for (size_t n = stages_.size(); name.empty() || taken(name); ++n) {
      name = StrCat(node->name, n);
    }
    stage.name = name;
    TW_TRY(AddLowered(std::move(stage)));
  }
  access.name = name;
  return std::make_shared<const Node>(std::move(access));
}

// Checks the stage's expression: it is translated as it will be, with elements that nobody reads.
absl::Status Lowered::AddLowered(LoweredStage stage) {
  if (stages_.size() == kMaxLoweredStages) {
    return Wrong("limit", StrCat("expected at most ", kMaxLoweredStages, " stages, found more"));
  }
  Mentions mentions;
  mentions.Add(stage.value);
  stage.operations = mentions.operations + (stage.reduced.empty() ? 0 : 1);
  stage.reads = mentions.tensors;
  std::vector<ir::Expr> vars, reduced;
  for (const SizedAxis& axis : stage.axes) vars.push_back(ir::MakeVar(axis.name));
  for (const SizedAxis& axis : stage.reduced) reduced.push_back(ir::MakeVar(axis.name));
  ir::FunctionBuilder scratch("check");
  Translator translator = MakeTranslator(stage, vars, reduced);
  translator.dims = dims_;
  translator.types = types_;
  translator.wide = wide_;
  translator.size = [&](const Dim& dim) { return SizeExpr(scratch, dim); };
  for (const auto& [name, type] : tensors_) {
    translator.tensors[name] = {type, [dtype = type.dtype](const std::vector<ir::Expr>&) {
                                  return ir::MakeVar("element", dtype);
                                }};
  }
  stage.type.shape = ShapeOf(stage.axes);
  TW_TRY(SetType(translator, &stage));
  TW_TRY(CheckType(stage.type));
  // All iterations: what a reduction runs over may be larger than any tensor.
  TensorType iterations = stage.type;
  for (const SizedAxis& axis : stage.reduced) iterations.shape.push_back(axis.extent);
  double count = 1;
  for (const Dim& dim : iterations.shape) count *= static_cast<double>(dim.constant().value_or(1));
  if (count > kMaxMagnitude) {
    return Wrong("limit",
                 StrCat("expected fewer than 2^48 iterations, found ", DimsText(iterations.shape)));
  }
  tensors_[stage.name] = stage.type;
  stages_.push_back(std::move(stage));
  return absl::OkStatus();
}

// The type of its elements: that of its result if it computes one, and that of its expression. A
// position is an i64, whatever is compared.
absl::Status Lowered::SetType(Translator& translator, LoweredStage* stage) const {
  const auto result = std::find_if(definition_.results.begin(), definition_.results.end(),
                                   [&](const Operand& r) { return r.name == stage->name; });
  const bool is_result = result != definition_.results.end();
  const bool position = FindsPosition(stage->reduction);
  ir::DType stated = ir::kI64;
  if (is_result) {
    TW_ASSIGN(stated, TypeOf(result->type));
  }
  ir::DType value = stated;
  if (is_result && !position) {
    TW_TRY(translator.Element(stage->value, stated).status());
  } else {
    TW_ASSIGN(const ir::Expr element, translator.Element(stage->value));
    value = element->dtype;
  }
  if (!stage->reduced.empty() && value.is_bool()) {
    return Wrong("type", "expected numbers in a reduction, found bools; write a cast (i32(...))");
  }
  if (position && stated != ir::kI64) {
    return Wrong("type", StrCat("expected i64, the type of ", stage->reduction, ", found ",
                                ir::TypeName(stated),
                                "; compute it in a stage of its own and write "
                                "a cast"));
  }
  stage->type.dtype = position ? ir::kI64 : value;
  stage->compared = value;
  return absl::OkStatus();
}

const LoweredStage* Lowered::Find(std::string_view name) const {
  for (const LoweredStage& stage : stages_) {
    if (stage.name == name) return &stage;
  }
  return nullptr;
}

std::set<std::string> Lowered::Needs(const std::string& stage,
                                     const std::set<std::string>& given) const {
  std::set<std::string> needed = {stage};
  // Stages read earlier ones only.
  for (size_t s = stages_.size(); s-- > 0;) {
    if (needed.count(stages_[s].name) == 0) continue;
    for (const std::string& name : stages_[s].reads) {
      if (given.count(name) == 0 && Find(name) != nullptr) needed.insert(name);
    }
  }
  return needed;
}

namespace {

// The position of the best value along `axis`, the first among equals. NaN counts as the best, as
// in the operators of ONNX.
ir::Buffer BuildPosition(ir::FunctionBuilder& b, const std::string& name, const LoweredStage& stage,
                         const std::vector<ir::Expr>& shape, const ir::Axis& axis,
                         const std::function<ir::Expr(const std::vector<ir::Var>&)>& value) {
  const bool max = stage.reduction == "argmax";
  const ir::DType type = stage.compared;
  const ir::TupleReduction best = max ? ir::ArgMax(type, ir::kI64) : ir::ArgMin(type, ir::kI64);
  const std::vector<ir::Buffer> found =
      b.ReduceTuple({name + "_value", name + "_at"}, {type, ir::kI64}, shape, AxisNames(stage.axes),
                    {axis}, best, [&](const std::vector<ir::Var>& vars) {
                      ir::Expr element = value(vars);
                      if (type.is_float()) {
                        const ir::Expr top = ir::Float(max ? INFINITY : -INFINITY, type);
                        const ir::Expr is_nan = ir::Binary(ir::ExprKind::kNe, element, element);
                        element = ir::Select(is_nan, top, element);
                      }
                      return std::vector<ir::Expr>{element, axis.var};
                    });
  return b.Compute(
      name, ir::kI64, shape, AxisNames(stage.axes),
      [&](const std::vector<ir::Var>& vars) { return ir::Load(found[1], VarExprs(vars)); });
}

}  // namespace

ir::Buffer Lowered::Build(ir::FunctionBuilder& b, const std::string& name, const std::string& stage,
                          std::span<const ir::Buffer> operands,
                          std::map<std::string, ir::Buffer> given) const {
  std::set<std::string> there;
  for (const auto& [known, buffer] : given) there.insert(known);
  const std::set<std::string> needed = Needs(stage, there);
  for (size_t i = 0; i < operands.size(); ++i) given[definition_.operands[i].name] = operands[i];
  for (const LoweredStage& s : stages_) {
    if (needed.count(s.name) == 0) continue;
    std::vector<ir::Axis> axes;
    std::vector<ir::Expr> reduced;
    const std::vector<std::string> reduced_names = AxisNames(s.reduced);
    for (size_t i = 0; i < s.reduced.size(); ++i) {
      axes.push_back(b.ReduceAxis(reduced_names[i], SizeExpr(b, s.reduced[i].extent)));
      reduced.push_back(axes.back().var);
    }
    const auto value = [&](const std::vector<ir::Var>& vars) {
      Translator t = MakeTranslator(s, VarExprs(vars), reduced);
      t.dims = dims_;
      t.types = types_;
      t.wide = wide_;
      t.size = [&](const Dim& dim) { return SizeExpr(b, dim); };
      for (const auto& [known, buffer] : given) {
        t.tensors[known] = {tensors_.at(known), [buffer](std::vector<ir::Expr> index) {
                              return ir::Load(buffer, std::move(index));
                            }};
      }
      absl::StatusOr<ir::Expr> element = t.Element(s.value, s.compared);
      TW_CHECK(element.ok()) << support::StatusText(element.status());  // AddLowered tried it
      return *std::move(element);
    };
    const std::string buffer = s.name == stage ? name : StrCat(name, "_", s.name);
    const std::vector<ir::Expr> shape = ShapeExprs(b, s.type.shape);
    if (FindsPosition(s.reduction)) {
      given[s.name] = BuildPosition(b, buffer, s, shape, axes[0], value);
    } else if (axes.empty()) {
      given[s.name] = b.Compute(buffer, s.type.dtype, shape, AxisNames(s.axes), value);
    } else {
      given[s.name] = b.Reduce(buffer, s.type.dtype, shape, AxisNames(s.axes), axes,
                               CombinerOf(s.reduction), value);
    }
  }
  return given.at(stage);
}

// ------------------------------------------------------------ elementwise

std::optional<Lowered::Elementwise> Lowered::AsElementwise() const {
  if (stages_.size() != 1 || definition_.results.size() != 1 || !stages_[0].reduced.empty()) {
    return std::nullopt;
  }
  const LoweredStage& stage = stages_[0];
  Elementwise result;
  std::vector<TensorType> read;
  bool plain = true;
  const std::function<NodeRef(const NodeRef&)> rewrite = [&](const NodeRef& node) -> NodeRef {
    Node copy = *node;
    if (node->kind == NodeKind::kName) {
      const auto dim = dims_.find(node->name);
      plain = plain && dim != dims_.end() && dim->second.is_constant();
      if (!plain) return node;
      return std::make_shared<const Node>(
          Node{.kind = NodeKind::kCall, .name = "i64", .args = {IntNode(dim->second.value())}});
    }
    if (node->kind == NodeKind::kAccess) {
      const auto operand = std::find_if(definition_.operands.begin(), definition_.operands.end(),
                                        [&](const Operand& o) { return o.name == node->name; });
      const size_t rank = stage.axes.size(), named = rank - stage.leading;
      const size_t count = node->args.size();
      const size_t position = static_cast<size_t>(operand - definition_.operands.begin());
      const TensorType& type = tensors_.at(node->name);
      // The last axes of the result, in order, and sizes that broadcasting reads so.
      plain = plain && count <= named && (!node->leading || count == named);
      for (size_t k = 0; plain && k < count; ++k) {
        const NodeRef& at = node->args[k];
        plain = at->kind == NodeKind::kName && at->name == stage.axes[rank - count + k].name;
      }
      for (size_t k = 0; plain && k < type.shape.size(); ++k) {
        plain = type.shape[k] == stage.axes[rank - type.shape.size() + k].extent;
      }
      auto known = std::find(result.operands.begin(), result.operands.end(), position);
      if (known == result.operands.end()) {
        result.operands.push_back(position);
        read.push_back(type);
        known = result.operands.end() - 1;
      }
      return std::make_shared<const Node>(
          Node{.kind = NodeKind::kName, .name = StrCat("x", known - result.operands.begin())});
    }
    if (const auto type = types_.find(node->name);
        node->kind == NodeKind::kCall && type != types_.end()) {
      copy.name = ir::TypeName(type->second);
    }
    for (NodeRef& arg : copy.args) arg = rewrite(arg);
    return std::make_shared<const Node>(std::move(copy));
  };
  const NodeRef expression = rewrite(stage.value);
  if (!plain || read.empty()) return std::nullopt;
  DimEqualities equal;
  const auto whole = BroadcastOperands("custom", read, &equal);
  if (!whole.ok() || whole->shape != stage.type.shape || !equal.empty()) return std::nullopt;
  result.text = Print(expression);
  return result;
}

absl::StatusOr<ir::Expr> ElementOf(const NodeRef& expression, std::span<const ir::Expr> args,
                                   ir::DType result, bool wide) {
  Translator t;
  t.wide = wide;
  for (size_t i = 0; i < args.size(); ++i) t.values[StrCat("x", i)] = args[i];
  return t.Element(expression, result);
}

}  // namespace tilewright::op::custom
