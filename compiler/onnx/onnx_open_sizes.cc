// Open dimensions of inputs in the import: the size variables they become, and integers that are
// expressions over them (what models compute from Shape).
#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "compiler/onnx/onnx_importer.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::graph::onnx {
namespace {

using op::Dim;
using support::StrCat;

constexpr int64_t kMostDims = 256;               // elements of a value that is computed from shapes
constexpr double kMostWhole = int64_t{1} << 24;  // a float that counts as a size: exact in f32

// The numbers of an operand's elements: what a row makes of them says where each one goes.
op::RefTensor Positions(const op::TensorType& type) {
  op::RefTensor tensor{{ir::kI64, type.shape}, {}};
  for (int64_t i = 0; i < type.elements(); ++i) tensor.values.push_back(static_cast<double>(i));
  return tensor;
}

// What is certain about expressions in the ranges of their variables.
class Known {
 public:
  explicit Known(const Importer& importer) : importer_(importer) {}

  std::optional<bool> Below(const Dim& a, const Dim& b) const {
    const std::optional<int64_t> least = importer_.Bound(b - a, false);
    const std::optional<int64_t> most = importer_.Bound(b - a, true);
    if (least && *least > 0) return true;
    if (most && *most <= 0) return false;
    return std::nullopt;
  }
  std::optional<bool> Equal(const Dim& a, const Dim& b) const {
    if (a == b) return true;
    const std::optional<bool> less = Below(a, b), more = Below(b, a);
    if ((less && *less) || (more && *more) || (a - b).is_constant()) return false;
    return std::nullopt;
  }
  // x / y, rounded as the row does it.
  std::optional<Dim> Divided(const Dim& x, const Dim& y, bool whole) const {
    if (const std::optional<Dim> exact = x.DivideExactly(y)) return exact;
    if (!whole || !y.is_constant() || y.value() <= 0) return std::nullopt;
    if (const std::optional<bool> negative = Below(x, 0); negative && !*negative) {
      return x.FloorDiv(y.value());
    }
    return std::nullopt;
  }

 private:
  const Importer& importer_;
};

// A logic row on flags of which one may be unknown.
std::optional<Dim> Logic(std::string_view row, const std::vector<Dim>& x) {
  const auto is = [&](size_t i, int64_t flag) { return i < x.size() && x[i] == Dim(flag); };
  const bool known = std::all_of(x.begin(), x.end(), [](const Dim& d) { return d.is_constant(); });
  if (row == "and" && (is(0, 0) || is(1, 0))) return Dim(0);
  if (row == "or" && (is(0, 1) || is(1, 1))) return Dim(1);
  if (!known) return std::nullopt;
  if (row == "and") return Dim(1);
  if (row == "or") return Dim(0);
  if (row == "not") return Dim(is(0, 0) ? 1 : 0);
  if (row == "xor") return Dim(x[0] == x[1] ? 0 : 1);
  return std::nullopt;
}

// An elementwise row on dimensions; nothing where the result is no expression, or not the same for
// all sizes. `whole`: of integers, not of floats that happen to be whole.
std::optional<Dim> Combined(std::string_view row, const std::vector<Dim>& x, const Known& known,
                            const op::Attrs& attrs, bool whole) {
  const auto flag = [](std::optional<bool> value) {
    return value ? std::optional<Dim>(Dim(*value ? 1 : 0)) : std::nullopt;
  };
  const auto opposite = [&](std::optional<bool> value) {
    return flag(value ? std::optional<bool>(!*value) : std::nullopt);
  };
  const bool to_flag = row == "cast" && op::GetString(attrs, "dtype", "") == "bool";
  if (to_flag) return opposite(known.Equal(x[0], 0));
  for (const std::string_view same : {"identity", "cast", "floor", "ceil", "round"}) {
    if (row == same) return x[0];
  }
  if (row == "add") return x[0] + x[1];
  if (row == "sub") return x[0] - x[1];
  if (row == "mul") return x[0] * x[1];
  if (row == "neg") return Dim(0) - x[0];
  if (row == "div") return known.Divided(x[0], x[1], whole);
  if (row == "mod" && x[1].is_constant() && x[1].value() > 0) {
    // Rounding down; of the truncating form only what has no sign.
    const std::optional<bool> negative = known.Below(x[0], 0);
    if (op::GetInt(attrs, "fmod", 0) != 0 && (!negative || *negative)) return std::nullopt;
    return x[0] - x[0].FloorDiv(x[1].value()) * x[1];
  }
  if (row == "equal") return flag(known.Equal(x[0], x[1]));
  if (row == "less") return flag(known.Below(x[0], x[1]));
  if (row == "greater") return flag(known.Below(x[1], x[0]));
  if (row == "less_equal") return opposite(known.Below(x[1], x[0]));
  if (row == "greater_equal") return opposite(known.Below(x[0], x[1]));
  if (row == "where") {
    if (x[1] == x[2]) return x[1];
    return x[0].is_constant() ? std::optional<Dim>(x[0].value() != 0 ? x[1] : x[2]) : std::nullopt;
  }
  if (row == "abs" || row == "relu") {
    const std::optional<bool> negative = known.Below(x[0], 0);
    if (!negative) return std::nullopt;
    return !*negative ? x[0] : row == "relu" ? Dim(0) : Dim(0) - x[0];
  }
  if (row == "max" || row == "min") {
    const std::optional<bool> less = known.Below(x[0], x[1]), more = known.Below(x[1], x[0]);
    const bool second = (less && *less) || (more && !*more),
               first = (more && *more) || (less && !*less);
    if (first || second) return x[(row == "max") == second ? 1 : 0];
    return std::nullopt;
  }
  return Logic(row, x);
}

// A list of dimensions made one number, as tf2onnx multiplies the axes of a batch.
std::optional<Dim> Reduced(const std::vector<Dim>& list, const op::TensorType& result,
                           const Known& known, const op::Attrs& attrs, bool whole) {
  static const std::map<std::string, std::string_view> kSteps = {
      {"sum", "add"}, {"prod", "mul"}, {"min", "min"}, {"max", "max"}};
  const auto step = kSteps.find(op::GetString(attrs, "kind", ""));
  if (step == kSteps.end() || list.empty() || result.elements() != 1) return std::nullopt;
  std::optional<Dim> all = list[0];
  for (size_t i = 1; all && i < list.size(); ++i) {
    all = Combined(step->second, {*all, list[i]}, known, {}, whole);
  }
  return all;
}

}  // namespace

std::optional<Dim> Importer::OpenSize(const std::string& name) {
  const auto range = options_.open.find(name);
  if (name.empty() || range == options_.open.end()) return std::nullopt;
  std::string word = SizeWord(name);
  for (const auto& [other, unused] : options_.open) {
    if (other != name && other < name && *OpenSize(other)->variables().begin() == word) word += "_";
  }
  const Dim size = AddSize(word, range->second);
  size_words_.insert(word);
  return size;
}

absl::Status Importer::CheckOpen(const Conversion& row, const pb::NodeProto& node) {
  if (row.takes_open) return absl::OkStatus();
  for (const std::string& name : node.input()) {
    const auto it = values_.find(name);
    if (it == values_.end()) continue;
    const bool dims = IsDims(it->second);
    if (!dims && TypeOf(it->second).fixed()) continue;
    return support::Unimplemented(
        "graph.onnx.open_size",
        StrCat(NodeLabel(node), ": this operator is imported at fixed sizes only, found ",
               support::Quote(name), ", ",
               dims ? op::DimsText(dims_.at(it->second)) : op::ToText(TypeOf(it->second)),
               kGiveNumbers));
  }
  return absl::OkStatus();
}

ValueId Importer::AddDims(const std::string& name, op::TensorType type, std::vector<Dim> dims) {
  if (std::all_of(dims.begin(), dims.end(), [](const Dim& d) { return d.is_constant(); })) {
    op::RefTensor tensor{std::move(type), {}};
    for (const Dim& dim : dims) tensor.values.push_back(static_cast<double>(dim.value()));
    return Constant(name, tensor.type, op::ToBytes(tensor));
  }
  Value value;
  value.name = FreshName(name);
  value.type = std::move(type);
  graph_.values.push_back(std::move(value));
  const ValueId id = static_cast<ValueId>(graph_.values.size()) - 1;
  dims_[id] = std::move(dims);
  return id;
}

std::optional<std::vector<Dim>> Importer::ConstantDims(ValueId id) const {
  if (const auto it = dims_.find(id); it != dims_.end()) return it->second;
  const Value& value = graph_.values[id];
  if (value.constant == nullptr && !IsEmpty(id)) return std::nullopt;
  if (value.type.dtype.is_int()) {
    const std::optional<std::vector<int64_t>> values = ConstantInts(id);
    if (!values) return std::nullopt;
    return std::vector<Dim>(values->begin(), values->end());
  }
  if (value.type.elements() > kMostDims) return std::nullopt;
  // Flags, and floats that are whole numbers.
  const absl::StatusOr<op::RefTensor> tensor = op::FromBytes(value.type, value.constant->view());
  if (!tensor.ok()) return std::nullopt;
  std::vector<Dim> dims;
  for (const double number : tensor->values) {
    if (std::abs(number) > kMostWhole || number != std::floor(number)) return std::nullopt;
    dims.emplace_back(static_cast<int64_t>(number));
  }
  return dims;
}

absl::StatusOr<ValueId> Importer::DataOf(ValueId id) {
  if (!IsDims(id)) return id;
  if (const auto made = data_of_dims_.find(id); made != data_of_dims_.end()) return made->second;
  const op::TensorType type = TypeOf(id);
  const std::string name = ValueOf(id).name;
  std::vector<ValueId> parts;
  for (const Dim& dim : std::vector<Dim>(dims_.at(id))) {
    TW_ASSIGN(
        const ValueId part,
        Emit("counting", {}, {{"start", op::ShapeAttr({dim})}, {"shape", std::vector<int64_t>{1}}},
             StrCat(name, "_size")));
    parts.push_back(part);
  }
  ValueId data = parts[0];
  if (parts.size() > 1) {
    TW_ASSIGN(data, Emit("concat", parts, {{"axis", int64_t{0}}}, StrCat(name, "_sizes")));
  }
  TW_ASSIGN(data, Emit("reshape", {data}, {{"shape", op::ShapeAttr(type.shape)}},
                       StrCat(name, "_shape")));
  if (type.dtype != ir::kI64) {
    TW_ASSIGN(data,
              Emit("cast", {data}, {{"dtype", ir::TypeName(type.dtype)}}, StrCat(name, "_data")));
  }
  data_of_dims_[id] = data;
  return data;
}

absl::StatusOr<ValueId> Importer::EmitOfDims(const op::OpSpec& spec, std::vector<ValueId> inputs,
                                             const op::Attrs& attrs, const std::string& name) {
  TW_ASSIGN(const std::optional<ValueId> dims, DimsOf(spec, inputs, attrs, name));
  if (dims) return *dims;
  // Not a size any more: the module computes it.
  for (ValueId& id : inputs) {
    TW_ASSIGN(id, DataOf(id));
  }
  return Emit(spec.name, std::move(inputs), attrs, name);
}

absl::StatusOr<std::optional<ValueId>> Importer::DimsOf(const op::OpSpec& spec,
                                                        const std::vector<ValueId>& inputs,
                                                        const op::Attrs& attrs,
                                                        const std::string& name) {
  const std::optional<ValueId> none;
  std::vector<op::TensorType> types;
  std::vector<std::vector<Dim>> operands;
  std::vector<op::RefTensor> positions;
  bool whole = true;
  for (ValueId id : inputs) {
    if (!TypeOf(id).fixed() || TypeOf(id).elements() > kMostDims) return none;
    std::optional<std::vector<Dim>> dims = ConstantDims(id);
    if (!dims) return none;
    types.push_back(TypeOf(id));
    whole = whole && !types.back().dtype.is_float();
    operands.push_back(*std::move(dims));
    positions.push_back(Positions(types.back()));
  }
  TW_ASSIGN(const op::TensorTypes results, op::InferTypes(spec, types, attrs));
  std::vector<Dim> elements;
  if (spec.elementwise()) {
    // Each operand as broadcasting repeats it.
    const op::Attrs shape = {{"shape", op::ShapeAttr(results[0].shape)}};
    std::vector<std::vector<op::RefTensor>> spread;
    for (const op::RefTensor& operand : positions) {
      TW_ASSIGN(auto repeated, op::Reference(*op::FindOp("expand"), {&operand, 1}, shape));
      spread.push_back(std::move(repeated));
    }
    for (size_t i = 0; i < spread[0][0].values.size(); ++i) {
      std::vector<Dim> args;
      for (size_t k = 0; k < operands.size(); ++k) {
        args.push_back(operands[k][static_cast<size_t>(spread[k][0].values[i])]);
      }
      const std::optional<Dim> element = Combined(spec.name, args, Known(*this), attrs, whole);
      if (!element) return none;
      elements.push_back(*element);
    }
    return AddDims(name, results[0], std::move(elements));
  }
  if (spec.name == "reduce") {
    const std::optional<Dim> all = Reduced(operands[0], results[0], Known(*this), attrs, whole);
    if (!all) return none;
    return AddDims(name, results[0], {*all});
  }
  if (spec.moves == 0) return none;
  // Of rows that move elements: those of all operands are numbered through.
  std::vector<Dim> all;
  for (size_t k = 0; k < operands.size(); ++k) {
    if (static_cast<int>(k) >= spec.moves) {  // positions, such as a gather's
      const std::optional<std::vector<int64_t>> known = ConstantInts(inputs[k]);
      if (!known) return none;
      positions[k] = op::FromIntegers(types[k], *known);
      continue;
    }
    for (double& value : positions[k].values) value += static_cast<double>(all.size());
    all.insert(all.end(), operands[k].begin(), operands[k].end());
  }
  TW_ASSIGN(const auto moved, op::Reference(spec, positions, attrs));
  for (const double at : moved[0].values) elements.push_back(all[static_cast<size_t>(at)]);
  return AddDims(name, results[0], std::move(elements));
}

}  // namespace tilewright::graph::onnx
