// Open dimensions of inputs in the import: the size variables they become, and integers that are
// expressions over them (what models compute from Shape).
#include <algorithm>
#include <optional>

#include "compiler/graph/onnx_importer.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::graph::onnx {
namespace {

using op::Dim;
using support::StrCat;

constexpr int64_t kMostDims = 256;  // elements of a value that is computed from shapes

// The numbers of an operand's elements: what a row makes of them says where each one goes.
op::RefTensor Positions(const op::TensorType& type) {
  op::RefTensor tensor{{ir::kI64, type.shape}, {}};
  for (int64_t i = 0; i < type.elements(); ++i) tensor.values.push_back(static_cast<double>(i));
  return tensor;
}

// Sizes are at least 1: whether a < b, where that holds for all sizes or for none.
std::optional<bool> Below(const Dim& a, const Dim& b) {
  const Dim gap = b - a;
  if (gap.is_constant()) return gap.value() > 0;
  // A variable alone is at least 1.
  if (a.is_constant() && a.value() < 1 && !b.variable().empty()) return true;
  if (b.is_constant() && b.value() <= 1 && !a.variable().empty()) return false;
  return std::nullopt;
}
std::optional<bool> Equal(const Dim& a, const Dim& b) {
  if (a == b) return true;
  const std::optional<bool> less = Below(a, b), more = Below(b, a);
  if ((less && *less) || (more && *more) || (a - b).is_constant()) return false;
  return std::nullopt;
}

// An elementwise row on dimensions; nothing where the result is no expression, or not the same for
// all sizes.
std::optional<Dim> Combined(std::string_view row, const std::vector<Dim>& x) {
  const auto flag = [](std::optional<bool> value) {
    return value ? std::optional<Dim>(Dim(*value ? 1 : 0)) : std::nullopt;
  };
  if (row == "identity" || row == "cast") return x[0];
  if (row == "add") return x[0] + x[1];
  if (row == "sub") return x[0] - x[1];
  if (row == "mul") return x[0] * x[1];
  if (row == "div") {
    const bool positive = x[1].is_constant() && x[1].value() > 0;
    return positive ? std::optional<Dim>(x[0].FloorDiv(x[1].value())) : x[0].DivideExactly(x[1]);
  }
  if (row == "equal") return flag(Equal(x[0], x[1]));
  if (row == "less") return flag(Below(x[0], x[1]));
  if (row == "greater") return flag(Below(x[1], x[0]));
  if (row == "where") {
    return x[0].is_constant() ? std::optional<Dim>(x[0].value() != 0 ? x[1] : x[2]) : std::nullopt;
  }
  const std::optional<bool> less = Below(x[0], x[x.size() - 1]);
  if (row == "max" && less) return *less ? x[1] : x[0];
  if (row == "min" && less) return *less ? x[0] : x[1];
  return std::nullopt;
}

}  // namespace

std::optional<Dim> Importer::OpenSize(const std::string& name) {
  const auto range = options_.open.find(name);
  if (name.empty() || range == options_.open.end()) return std::nullopt;
  // Any text may be a name in ONNX; a variable is a word.
  std::string word;
  for (const char c : name) {
    word += std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  }
  if (std::isdigit(static_cast<unsigned char>(word[0])) != 0) word.insert(word.begin(), '_');
  for (const auto& [other, unused] : options_.open) {
    if (other != name && other < name && *OpenSize(other)->variables().begin() == word) word += "_";
  }
  const auto& [min, max, unused] = range->second;
  if (min > 0) {
    graph_.size_ranges[word] = range->second;
    return Dim::Variable(word);
  }
  const std::string variable = StrCat(word, "_plus_1");
  graph_.size_ranges[variable] = {1, max + 1, word};
  return Dim::Variable(variable) - 1;
}

std::optional<int64_t> Importer::Bound(const Dim& dim, bool largest) const {
  op::Sizes at;
  for (const std::string& name : dim.variables()) {
    const auto range = graph_.size_ranges.find(name);
    if (range == graph_.size_ranges.end()) return std::nullopt;
    at[name] = largest ? range->second.max : range->second.min;
  }
  const absl::StatusOr<int64_t> value = dim.Evaluate(at);
  if (!value.ok()) return std::nullopt;
  // Monotone in each variable: what one more of it does at this corner has the sign everywhere for
  // sums, products of sizes and quotients of them.
  for (const auto& [name, size] : at) {
    op::Sizes next = at;
    next[name] = size + 1;
    const absl::StatusOr<int64_t> grown = dim.Evaluate(next);
    if (!grown.ok() || *grown < *value) return std::nullopt;
  }
  return *value;
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
  if (value.type.dtype.is_bool() && value.constant != nullptr) {
    std::vector<Dim> flags;
    for (const uint8_t byte : value.constant->bytes) flags.emplace_back(byte != 0 ? 1 : 0);
    return flags;
  }
  const std::optional<std::vector<int64_t>> values = ConstantInts(id);
  if (!values) return std::nullopt;
  return std::vector<Dim>(values->begin(), values->end());
}

absl::StatusOr<ValueId> Importer::EmitOfDims(const op::OpSpec& spec,
                                             const std::vector<ValueId>& inputs,
                                             const op::Attrs& attrs, const std::string& name) {
  const auto refuse = [&](std::string_view why) {
    return support::Unimplemented(
        "graph.onnx.open_size",
        StrCat("expected arithmetic on the sizes of inputs that stays one of whole numbers, found ",
               spec.name, " ", why, kGiveNumbers));
  };
  std::vector<op::TensorType> types;
  std::vector<std::vector<Dim>> operands;
  std::vector<op::RefTensor> positions;
  for (ValueId id : inputs) {
    std::optional<std::vector<Dim>> dims = ConstantDims(id);
    if (!dims || !TypeOf(id).fixed() || TypeOf(id).elements() > kMostDims) {
      return refuse("with data of the model");
    }
    types.push_back(TypeOf(id));
    operands.push_back(*std::move(dims));
    positions.push_back(Positions(types.back()));
  }
  TW_ASSIGN(const op::TensorTypes results, op::InferTypes(spec, types, attrs));
  if (!results[0].dtype.is_int() && !results[0].dtype.is_bool()) return refuse("to floats");
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
      const std::optional<Dim> element = Combined(spec.name, args);
      if (!element) return refuse(StrCat("of ", op::DimsText(args)));
      elements.push_back(*element);
    }
    return AddDims(name, results[0], std::move(elements));
  }
  if (spec.moves == 0) return refuse("of sizes");
  // Of rows that move elements: those of all operands are numbered through.
  std::vector<Dim> all;
  for (size_t k = 0; k < operands.size(); ++k) {
    if (static_cast<int>(k) >= spec.moves) {  // positions, such as a gather's
      const std::optional<std::vector<int64_t>> known = ConstantInts(inputs[k]);
      if (!known) return refuse("at a place that depends on sizes");
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
