// Sizes that only a run finds in the import: numbers that the model states for them, or variables.
#include <algorithm>
#include <cctype>
#include <optional>

#include "compiler/onnx/onnx_composer.h"
#include "compiler/onnx/onnx_conversions.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::graph::onnx {
namespace {

using op::Dim;
using support::Quote;
using support::StrCat;

using Stated = pb::TensorShapeProto::Dimension;

// What the graph says about a dimension of a value: a number or a name; null where it says nothing.
const Stated* StatedDim(const pb::GraphProto& graph, const std::string& name, int64_t axis) {
  for (const auto* values : {&graph.output(), &graph.value_info()}) {
    for (const pb::ValueInfoProto& value : *values) {
      const auto& dims = value.type().tensor_type().shape().dim();
      if (value.name() != name || axis >= dims.size()) continue;
      const Stated& dim = dims[static_cast<int>(axis)];
      const bool named = !dim.dim_param().empty() && dim.dim_param() != "?";
      if (named || (dim.has_dim_value() && dim.dim_value() >= 0)) return &dim;
    }
  }
  return nullptr;
}

// Operators that are no element-wise rows, whose result has the shape of their first operand.
bool KeepsShape(const pb::NodeProto& node) {
  constexpr std::string_view kOfFirst[] = {"Cast", "CastLike", "Identity", "Softmax"};
  return std::ranges::find(kOfFirst, node.op_type()) != std::end(kOfFirst);
}

}  // namespace

// Any text may be a name in ONNX; a variable is a word.
std::string SizeWord(const std::string& name) {
  constexpr size_t kMostLetters = 40;  // texts of dimensions take words of 64
  std::string word;
  for (const char c : name.substr(0, kMostLetters)) {
    word += std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  }
  if (word.empty() || std::isdigit(static_cast<unsigned char>(word[0])) != 0) {
    word.insert(word.begin(), '_');
  }
  return word;
}

Dim Importer::AddSize(std::string word, const SizeRange& range) {
  if (range.min > 0) {
    graph_.size_ranges[word] = range;
    return Dim::Variable(word);
  }
  const std::string variable = StrCat(word, "_plus_1");
  graph_.size_ranges[variable] = {1, range.max + 1, word};
  return Dim::Variable(variable) - 1;
}

// What --shape says of a size with these names; from 0 to `most` where it says nothing.
std::optional<SizeRange> Importer::RangeGiven(const std::string& own, const std::string& name,
                                              std::optional<int64_t> most) {
  for (const std::string& given : {name, own}) {
    const auto number = options_.shapes.find(given);
    if (number != options_.shapes.end() && number->second.size() == 1) {
      claimed_.insert(given);
      return SizeRange{number->second[0], number->second[0]};
    }
    const auto open = options_.open.find(given);
    if (open == options_.open.end()) continue;
    claimed_.insert(given);
    const auto& [least, largest, unused] = open->second;
    return SizeRange{least, most ? std::min(*most, largest) : largest};
  }
  return most ? std::optional<SizeRange>({0, *most}) : std::nullopt;
}

bool Importer::IsScalar(const std::string& name) const {
  if (const auto known = values_.find(name); known != values_.end()) {
    return ContainerOf(known->second) == nullptr && TypeOf(known->second).shape.empty();
  }
  const auto tensor = initializers_.find(name);
  return tensor != initializers_.end() && tensor->second->dims().empty();
}

std::vector<std::string> Importer::OfSameShape(const std::string& name) const {
  constexpr size_t kMost = 32;
  std::vector<std::string> same = {name};
  const auto has_shape = [&](const std::string& input) {
    return std::ranges::find(same, input) != same.end();
  };
  for (const pb::NodeProto& node : Scope().node()) {
    if (same.size() == kMost) break;
    if (node.input().empty() || node.output().empty() || !IsDefaultDomain(node.domain())) continue;
    const bool fits = KeepsShape(node)
                          ? has_shape(node.input(0))
                          : ElementwiseRow(node.op_type()) != nullptr &&
                                std::ranges::any_of(node.input(), has_shape) &&
                                std::ranges::all_of(node.input(), [&](const std::string& input) {
                                  return has_shape(input) || IsScalar(input);
                                });
    if (fits) same.push_back(node.output(0));
  }
  return same;
}

std::optional<int64_t> Importer::LargestEnd() const {
  int64_t largest = 0;
  for (const auto* ends : {&model_.graph().input(), &model_.graph().output()}) {
    for (const pb::ValueInfoProto& end : *ends) {
      const pb::TypeProto& type = end.type();
      if (!type.has_tensor_type() || !type.tensor_type().has_shape()) return std::nullopt;
      for (const Stated& dim : type.tensor_type().shape().dim()) {
        if (!dim.has_dim_value() || dim.dim_value() < 0) return std::nullopt;
        largest = std::max<int64_t>(largest, dim.dim_value());
      }
    }
  }
  return largest;
}

absl::StatusOr<Dim> Importer::FoundSize(const std::string& value, int64_t axis,
                                        std::optional<int64_t> most,
                                        std::optional<int64_t> presumed) {
  const std::string own = StrCat(value, "_", axis);
  std::string name = own;
  for (const std::string& same : OfSameShape(value)) {
    const Stated* stated = StatedDim(Scope(), same, axis);
    if (stated == nullptr) continue;
    if (stated->dim_param().empty()) return Dim(stated->dim_value());
    name = stated->dim_param();
    break;
  }
  if (input_sizes_.contains(name)) return input_sizes_.at(name);
  // A name in a subgraph has another size in each of its runs.
  const auto known = found_sizes_.find(name);
  if (known != found_sizes_.end() && scopes_.empty()) return known->second;
  std::optional<SizeRange> range = RangeGiven(own, name, most);
  if (!range && presumed) range = SizeRange{0, *presumed};
  TW_ASSIGN(const Dim size, SizeOfRange(name, range));
  if (scopes_.empty() && !size.is_constant()) found_sizes_.insert_or_assign(name, size);
  return size;
}

absl::StatusOr<Dim> Importer::NewSize(const std::string& name, std::optional<int64_t> presumed) {
  std::optional<SizeRange> range = RangeGiven(name, name, std::nullopt);
  if (!range && presumed) range = SizeRange{0, *presumed};
  return SizeOfRange(name, range);
}

absl::StatusOr<Dim> Importer::SizeOfRange(const std::string& name,
                                          const std::optional<SizeRange>& range) {
  if (!range || range->max < range->min) {
    return Bad("size_bound", StrCat("expected the largest size of ", Quote(name),
                                    ", a dimension that only a run finds; give a range: --shape ",
                                    name, "=0..N"));
  }
  if (range->max == range->min) return Dim(range->max);
  std::string word = SizeWord(name);
  while (!size_words_.insert(word).second) word += "_";
  return AddSize(word, *range);
}

absl::Status Importer::CheckClaimed() const {
  for (const std::string& name : unclaimed_) {
    if (claimed_.contains(name)) continue;
    return Bad(
        "shape_override",
        StrCat("expected the names of inputs, of a dimension of them, or of a dimension that "
               "only a run finds, found ",
               Quote(name)));
  }
  return absl::OkStatus();
}

Dim Composer::SizeFound(int64_t axis, const SizeBound& bound, int output) {
  if (bound.known) return *bound.known;
  if (!status_.ok()) return 1;
  absl::StatusOr<Dim> size =
      n_.importer().FoundSize(n_.output_name(output), axis, bound.most, n_.importer().LargestEnd());
  if (size.ok()) return *size;
  status_ = n_.Error("size_bound", support::Detail(size.status()));
  return 1;
}

Dim Composer::SizeInTrip(ValueId size, int64_t axis, int output, std::optional<int64_t> presumed) {
  if (!status_.ok()) return 1;
  const absl::StatusOr<Dim> found =
      n_.importer().NewSize(StrCat(n_.output_name(output), "_", axis), presumed);
  if (!found.ok()) {
    status_ = n_.Error("size_bound", support::Detail(found.status()));
    return 1;
  }
  ExpectDims(size, {*found}, n_.label());
  return *found;
}

Dim Composer::FoundSize(ValueId size, int64_t axis, std::optional<int64_t> most, int output) {
  if (!status_.ok()) return 1;
  if (const auto known = n_.importer().ConstantDims(size)) return known->at(0);
  const std::optional<int64_t> own = n_.importer().LargestElement(size);
  if (own && (!most || *own < *most)) most = std::max<int64_t>(*own, 0);
  const Dim found = SizeFound(axis, {{}, most}, output);
  ExpectDims(size, {found}, n_.label());
  return found;
}

std::vector<Dim> Composer::FoundShape(ValueId sizes, const std::vector<SizeBound>& bounds,
                                      int output) {
  constexpr size_t kMostDims = 64;  // no model has as many, and hostile ones take long
  if (bounds.size() > kMostDims) {
    Fail("too_large",
         StrCat("expected a shape of at most ", kMostDims, " dimensions, found ", bounds.size()));
  }
  std::vector<Dim> shape;
  for (size_t d = 0; status_.ok() && d < bounds.size(); ++d) {
    const auto axis = static_cast<int64_t>(d);
    SizeBound bound = bounds[d];
    if (!bound.known) bound.known = n_.importer().KnownElement(sizes, axis);
    const ValueId from = n_.importer().ElementOf(sizes, axis).of;
    const std::optional<int64_t> own = n_.importer().LargestElement(from);
    if (own && (!bound.most || *own < *bound.most)) bound.most = std::max<int64_t>(*own, 0);
    shape.push_back(SizeFound(axis, bound, output));
  }
  if (status_.ok()) ExpectDims(sizes, shape, n_.label());
  return shape;
}

ValueId Composer::SizesOf(const std::vector<Dim>& sizes) {
  const auto count = static_cast<int64_t>(sizes.size());
  if (std::ranges::all_of(sizes, &Dim::is_constant)) {
    std::vector<double> numbers;
    for (const Dim& size : sizes) numbers.push_back(static_cast<double>(size.value()));
    return Constant(ir::kI64, {count}, std::move(numbers));
  }
  std::vector<ValueId> parts;
  for (const Dim& size : sizes) parts.push_back(Reshape(SizeOf(size, ir::kI64), {1}));
  return Concat(std::move(parts), 0);
}

std::optional<int64_t> Composer::Most(const Dim& size) const {
  return n_.importer().Bound(size, /*largest=*/true);
}

}  // namespace tilewright::graph::onnx
