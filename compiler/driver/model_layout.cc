#include "compiler/driver/model_layout.h"

#include <set>
#include <utility>

#include "compiler/driver/launch_writer.h"
#include "compiler/graph/keep_state.h"
#include "compiler/graph/loops.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::driver {

using graph::ValueId;
using support::StrCat;

int64_t ConstantSection::OffsetOf(const std::shared_ptr<const graph::ConstantData>& data) {
  const auto [seen, first] = seen_.try_emplace(data.get(), 0);
  if (!first) return seen->second;
  const std::string_view bytes = data->view();
  std::vector<Stored>& stored = by_size_[bytes.size()];
  for (const Stored& one : stored) {
    if (one.bytes == bytes) return seen->second = one.offset;
  }
  const auto offset = static_cast<int64_t>(parts_.constants.size());
  stored.push_back({bytes, offset});
  parts_.constants.Append(absl::MakeCordFromExternal(absl::string_view(bytes.data(), bytes.size()),
                                                     [data](absl::string_view) {}));
  const auto end = static_cast<int64_t>(parts_.constants.size());
  parts_.constants.Append(std::string(static_cast<size_t>(RoundUp(end, alignment_) - end), '\0'));
  parts_.manifest.constants_bytes = static_cast<int64_t>(parts_.constants.size());
  return seen->second = offset;
}

absl::StatusOr<int64_t> ConstantSection::TensorOf(const graph::Value& value) {
  const int64_t offset = OffsetOf(value.constant);
  std::vector<module::Tensor>& tensors = parts_.manifest.tensors;
  TW_ASSIGN(module::Tensor tensor, driver::TensorOf(value.type, module::TensorKind::kConstant,
                                                    static_cast<int64_t>(tensors.size())));
  const auto [known, fresh] =
      tensors_.try_emplace({offset, tensor.dtype, module::FixedExtents(tensor.shape)}, tensor.id);
  if (!fresh) return known->second;
  tensor.name = value.name;
  tensor.offset = offset;
  tensors.push_back(std::move(tensor));
  return known->second;
}

absl::Status ModelLayout::Run(module::Function* function) {
  for (const graph::Node& node : g_.nodes) {
    if (graph::IsJoin(node)) joined_.insert(storage_[node.outputs[0]].root);
  }
  TW_TRY(AddEnds(function));
  for (ValueId root : joined_) TW_TRY(Intermediate(root));
  for (const graph::Node& node : g_.nodes) {
    if (graph::IsView(node)) continue;
    for (ValueId id : node.inputs) TW_TRY(Operand(id));
    for (ValueId id : node.outputs) TW_TRY(Intermediate(id));
  }
  for (const graph::Loop& loop : graph::LoopsOf(g_)) {
    for (const graph::Loop::Carried& carried : loop.carried) {
      for (ValueId id : {carried.init, carried.value, carried.next}) TW_TRY(Operand(id));
    }
    for (const graph::Loop::Stacked& stacked : loop.stacked) {
      for (ValueId id : {stacked.part, stacked.whole}) TW_TRY(Operand(id));
    }
  }
  if (open_) PlaceOpen();
  return absl::OkStatus();
}

absl::Status ModelLayout::AddEnds(module::Function* function) {
  std::set<ValueId> kept;  // lists before the run
  for (const graph::Node& node : g_.nodes) {
    if (graph::IsAppend(node)) kept.insert(node.inputs[0]);
  }
  for (ValueId id : g_.inputs) {
    if (kept.contains(id)) continue;
    TW_TRY(Add(id, module::TensorKind::kInput, 0));
    function->inputs.push_back(TensorId(id));
  }
  // An output may be a view: its kernel writes the root, under the output's own name and shape.
  for (ValueId id : g_.outputs) {
    if (Known(id)) {
      return support::Internal("driver.module.output",
                               StrCat("expected outputs with storage of their own, found ",
                                      g_.values[id].name, " to share its"));
    }
    TW_TRY(Add(id, module::TensorKind::kOutput, 0));
    function->outputs.push_back(TensorId(id));
  }
  for (const graph::Node& node : g_.nodes) {
    if (graph::IsAppend(node)) TW_TRY(AddState(node));
  }
  const size_t results = function->outputs.size() - g_.checks.size();
  for (size_t i = 0; i < g_.checks.size(); ++i) {
    function->checks.push_back(
        {function->outputs[results + i], g_.checks[i].expected, g_.checks[i].what});
  }
  function->outputs.resize(results);
  return absl::OkStatus();
}

ModelLayout::Place ModelLayout::PlaceOf(ValueId id) const {
  const graph::Storage& storage = storage_[id];
  // Of open size, only concats have views that are not the whole.
  if (open_ && !joined_.contains(storage.root)) return {storage.root, "0", ""};
  const std::optional<op::Dim> bytes = op::BytesOf(g_.values[id].type);
  return {storage.root, storage.offset.ToText(), bytes ? bytes->ToText() : StrCat("value ", id)};
}

absl::Status ModelLayout::Add(ValueId id, module::TensorKind kind, int64_t offset) {
  const graph::Value& value = g_.values[id];
  TW_ASSIGN(module::Tensor tensor,
            TensorOf(value.type, kind, static_cast<int64_t>(manifest_.tensors.size())));
  tensor.name = value.name;
  tensor.offset = offset;
  tensor_[PlaceOf(id)] = tensor.id;
  manifest_.tensors.push_back(std::move(tensor));
  return absl::OkStatus();
}

// The list with the new entries, under the input's name, and the entries. Of functions behind main
// it is the list of that name.
absl::Status ModelLayout::AddState(const graph::Node& append) {
  const ValueId entries = append.inputs[1], list = append.outputs[0];
  TW_TRY(Add(list, module::TensorKind::kState, 0));
  TW_TRY(Add(entries, module::TensorKind::kState, 0));
  std::vector<module::Tensor>& tensors = manifest_.tensors;
  tensors[static_cast<size_t>(TensorId(list))].name = g_.values[append.inputs[0]].name;
  tensors[static_cast<size_t>(TensorId(entries))].entries_of = TensorId(list);
  module::Tensor& own = tensors[static_cast<size_t>(TensorId(list))];
  for (const module::Tensor& known : tensors) {
    if (known.is_own_list() && known.name == own.name && known.id != own.id) {
      own.same_list = known.id;
    }
  }
  if (manifest_.state) return absl::OkStatus();  // main's
  const op::Dim length = g_.values[append.inputs[0]].type.shape[0];
  manifest_.state = {*length.variables().begin(), g_.values[list].type.shape[0]};
  return absl::OkStatus();
}

// Offsets follow from the tensors below.
void ModelLayout::PlaceOpen() {
  for (size_t i = 0; i < g_.values.size(); ++i) {
    const ValueId id = static_cast<ValueId>(i);
    if (!Known(id)) continue;
    module::Tensor& tensor = manifest_.tensors[static_cast<size_t>(TensorId(id))];
    if (tensor.kind != module::TensorKind::kIntermediate || !tensor.after.empty()) continue;
    tensor.offset = 0;
    tensor.after = Below(id);
  }
}

// A part of a concat begins where the part in front of it ends.
std::vector<int64_t> ModelLayout::Below(ValueId id) const {
  std::vector<int64_t> below;
  const graph::Storage& at = storage_[id];
  if (at.offset == op::Dim(0)) {
    for (ValueId root : plan_.after[static_cast<size_t>(id)]) below.push_back(TensorId(root));
    return below;
  }
  for (size_t i = 0; i < g_.values.size() && below.empty(); ++i) {
    const ValueId other = static_cast<ValueId>(i);
    if (storage_[i].root != at.root || !Known(other)) continue;
    const std::optional<op::Dim> bytes = op::BytesOf(g_.values[i].type);
    if (bytes && storage_[i].offset + *bytes == at.offset) below.push_back(TensorId(other));
  }
  TW_CHECK(!below.empty()) << g_.values[static_cast<size_t>(id)].name << " has no part below";
  return below;
}

std::vector<int64_t> ModelLayout::LastIntermediates() const {
  std::set<int64_t> last;
  const auto tensor = [&](int64_t id) -> const module::Tensor& {
    return manifest_.tensors[static_cast<size_t>(id)];
  };
  for (const auto& [place, id] : tensor_) {
    if (tensor(id).kind == module::TensorKind::kIntermediate) last.insert(id);
  }
  for (const auto& [place, id] : tensor_) {
    for (const int64_t below : tensor(id).after) last.erase(below);
  }
  return {last.begin(), last.end()};
}

absl::Status ModelLayout::Operand(ValueId id) {
  const ValueId root = storage_[id].root;
  return g_.values[root].constant ? Constant(root) : Intermediate(id);
}

absl::Status ModelLayout::Intermediate(ValueId id) {
  if (Known(id)) return absl::OkStatus();
  return Add(id, module::TensorKind::kIntermediate, plan_.offset[id]);
}

absl::Status ModelLayout::Constant(ValueId id) {
  if (Known(id)) return absl::OkStatus();
  TW_ASSIGN(tensor_[PlaceOf(id)], constants_.TensorOf(g_.values[id]));
  return absl::OkStatus();
}

}  // namespace tilewright::driver
