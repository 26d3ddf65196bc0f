#include "compiler/onnx/onnx_strip_weights.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <set>

#include "compiler/onnx/custom_operators.h"
#include "compiler/onnx/onnx_importer.h"
#include "compiler/onnx/onnx_spacing.h"
#include "deploy/support/hash.h"
#include "deploy/support/rng.h"
#include "deploy/support/strings.h"
#include "tilewright_onnx.pb.h"

namespace tilewright::graph {
namespace {

namespace pb = ::tilewright_onnx;

constexpr int64_t kMaxIndices = 64;

// Their operands after the first decide about shapes or bounds, not about learned values.
const std::set<std::string>& ShapingOperators() {
  static const auto* const names = new std::set<std::string>{
      "Resize", "Upsample", "Clip", "Pad", "Range", "Slice", "Tile", "Expand", "Reshape"};
  return *names;
}

// Zero points decide whether bytes hold the weights without them.
const std::map<std::string, std::vector<int>>& ZeroPoints() {
  static const auto* const inputs = new std::map<std::string, std::vector<int>>{
      {"QuantizeLinear", {2}},      {"DequantizeLinear", {2}}, {"QLinearConv", {2, 5, 7}},
      {"QLinearMatMul", {2, 5, 7}}, {"ConvInteger", {2, 3}},   {"MatMulInteger", {2, 3}},
      {"MatMulNBits", {3}}};
  return *inputs;
}

void ClearData(pb::TensorProto* tensor) {
  tensor->clear_float_data();
  tensor->clear_double_data();
  tensor->clear_int32_data();
  tensor->clear_int64_data();
  tensor->clear_uint64_data();
  tensor->clear_string_data();
  tensor->clear_external_data();
  tensor->clear_data_location();
  tensor->clear_doc_string();
  tensor->clear_raw_data();
}

template <typename T>
void AppendValue(T value, std::string* out) {
  out->append(reinterpret_cast<const char*>(&value), sizeof value);
}

// The numbers of a tensor as bytes, however it holds them; of one in another file, where they are.
std::string Numbers(const pb::TensorProto& tensor) {
  if (tensor.data_location() == pb::TensorProto::EXTERNAL) {
    std::string place = "outside";
    for (const pb::StringStringEntryProto& entry : tensor.external_data()) {
      place += support::StrCat("\n", entry.key(), "=", entry.value());
    }
    return place;
  }
  if (!tensor.raw_data().empty()) return tensor.raw_data();
  std::string bytes;
  for (const float value : tensor.float_data()) AppendValue(value, &bytes);
  for (const double value : tensor.double_data()) AppendValue(value, &bytes);
  const int type = tensor.data_type();
  const bool narrow = type == pb::TensorProto::INT8 || type == pb::TensorProto::UINT8;
  const bool half = type == pb::TensorProto::FLOAT16 || type == pb::TensorProto::BFLOAT16;
  for (const int32_t value : tensor.int32_data()) {
    if (narrow) {
      AppendValue(static_cast<uint8_t>(value), &bytes);
    } else if (half) {
      AppendValue(static_cast<uint16_t>(value), &bytes);
    } else {
      AppendValue(value, &bytes);
    }
  }
  for (const int64_t value : tensor.int64_data()) AppendValue(value, &bytes);
  for (const uint64_t value : tensor.uint64_data()) AppendValue(value, &bytes);
  return bytes;
}

// Whether these are positions in equal steps, which decide about the graph and were not learned.
bool IsInSteps(const pb::TensorProto& tensor) {
  if (tensor.data_type() != pb::TensorProto::INT64) return false;
  std::vector<int64_t> numbers(tensor.int64_data().begin(), tensor.int64_data().end());
  const std::string& raw = tensor.raw_data();
  if (numbers.empty()) {
    numbers.resize(raw.size() / sizeof(int64_t));
    std::memcpy(numbers.data(), raw.data(), numbers.size() * sizeof(int64_t));
  }
  return onnx::EvenlySpaced(numbers).has_value();
}

// Made-up numbers for one tensor.
class Inventor {
 public:
  explicit Inventor(support::Rng rng) : rng_(rng) {}

  // In (0, 1), away from both ends.
  double Draw() { return 0.05 + 0.9 * rng_.UniformDouble(); }

  // False for a type that holds no numbers.
  bool Append(int type, std::string* bytes) {
    switch (type) {
      case pb::TensorProto::FLOAT:
        AppendValue(static_cast<float>(Draw()), bytes);
        return true;
      case pb::TensorProto::DOUBLE:
        AppendValue(Draw(), bytes);
        return true;
      case pb::TensorProto::FLOAT16:
        AppendValue(Between(0x2c00, 0x3b00), bytes);  // 1/16 .. 7/8
        return true;
      case pb::TensorProto::BFLOAT16:
        AppendValue(Between(0x3d80, 0x3f60), bytes);  // the same
        return true;
      case pb::TensorProto::INT64:
      case pb::TensorProto::UINT64:
        AppendValue(int64_t{0}, bytes);
        return true;
      case pb::TensorProto::INT32:
      case pb::TensorProto::UINT32:
        AppendValue(int32_t{0}, bytes);
        return true;
      case pb::TensorProto::INT8:
      case pb::TensorProto::UINT8:
        AppendValue(static_cast<uint8_t>(Between(1, 100)), bytes);
        return true;
      case pb::TensorProto::BOOL:
        AppendValue(static_cast<uint8_t>(1), bytes);
        return true;
      default:
        return false;
    }
  }

 private:
  // Bit patterns: those of positive floating-point numbers rise with the number.
  uint16_t Between(int64_t low, int64_t high) {
    return static_cast<uint16_t>(rng_.UniformInt(low, high));
  }

  support::Rng rng_;
};

class Stripper {
 public:
  explicit Stripper(uint64_t seed) : rng_(seed) {}

  absl::Status Strip(pb::GraphProto* graph, std::set<std::string> shaping) {
    if (graph->sparse_initializer_size() > 0) {
      return support::InvalidArgument("graph.onnx.strip", "expected no sparse tensors, found some");
    }
    for (const pb::NodeProto& node : graph->node()) {
      if (auto zeros = ZeroPoints().find(node.op_type()); zeros != ZeroPoints().end()) {
        for (const int i : zeros->second) {
          if (i < node.input_size()) shaping.insert(node.input(i));
        }
      }
      if (ShapingOperators().count(node.op_type()) == 0) continue;
      for (int i = 1; i < node.input_size(); ++i) shaping.insert(node.input(i));
    }
    graph->clear_doc_string();
    for (pb::TensorProto& tensor : *graph->mutable_initializer()) {
      TW_TRY(Replace(&tensor, shaping.count(tensor.name()) != 0));
    }
    for (pb::NodeProto& node : *graph->mutable_node()) {
      node.clear_doc_string();
      const bool keep = node.output_size() > 0 && shaping.count(node.output(0)) != 0;
      for (pb::AttributeProto& attribute : *node.mutable_attribute()) {
        TW_TRY(StripAttribute(&attribute, node.op_type() == "Constant" && !keep, keep, shaping));
      }
    }
    return absl::OkStatus();
  }

  StrippedModel result;

 private:
  absl::Status StripAttribute(pb::AttributeProto* attribute, bool is_constant, bool keep,
                              const std::set<std::string>& shaping) {
    if (attribute->has_sparse_tensor() || attribute->sparse_tensors_size() > 0) {
      return support::InvalidArgument("graph.onnx.strip", "expected no sparse tensors, found some");
    }
    if (attribute->has_t()) TW_TRY(Replace(attribute->mutable_t(), keep));
    for (pb::TensorProto& tensor : *attribute->mutable_tensors()) TW_TRY(Replace(&tensor, keep));
    // A Constant may hold its numbers as a list.
    if (is_constant && attribute->floats_size() > 1) {
      pb::TensorProto list;
      list.set_data_type(pb::TensorProto::FLOAT);
      list.add_dims(attribute->floats_size());
      list.mutable_float_data()->CopyFrom(attribute->floats());
      Inventor inventor = InventorFor(list);
      for (float& value : *attribute->mutable_floats()) {
        value = static_cast<float>(inventor.Draw());
      }
      ++result.replaced_tensors;
      result.replaced_values += attribute->floats_size();
    }
    if (attribute->has_g()) TW_TRY(Strip(attribute->mutable_g(), shaping));
    for (pb::GraphProto& graph : *attribute->mutable_graphs()) TW_TRY(Strip(&graph, shaping));
    return absl::OkStatus();
  }

  // Equal tensors get equal numbers and others get others: a pass that makes one constant of two
  // does so with and without the weights.
  Inventor InventorFor(const pb::TensorProto& tensor) {
    std::string key = support::StrCat(tensor.data_type());
    for (const int64_t dim : tensor.dims()) key += support::StrCat(" ", dim);
    key += "\n" + Numbers(tensor);
    const auto place = static_cast<uint64_t>(places_.size());
    return Inventor(rng_.Split(places_.emplace(support::Sha256Hex(key), place).first->second));
  }

  absl::Status Replace(pb::TensorProto* tensor, bool shaping) {
    const int64_t count = onnx::Elements(*tensor);
    if (count < 0) {
      return support::InvalidArgument("graph.onnx.strip",
                                      "a tensor has a bad shape: " + tensor->name());
    }
    const int type = tensor->data_type();
    const bool indices = type == pb::TensorProto::INT64 || type == pb::TensorProto::INT32 ||
                         type == pb::TensorProto::UINT64 || type == pb::TensorProto::UINT32;
    const bool is_external = tensor->data_location() == pb::TensorProto::EXTERNAL;
    if (!is_external && (count <= 1 || shaping || type == pb::TensorProto::BOOL ||
                         (indices && (count <= kMaxIndices || IsInSteps(*tensor))))) {
      result.kept_values += count;
      tensor->clear_doc_string();
      return absl::OkStatus();
    }
    std::string bytes;
    Inventor inventor = InventorFor(*tensor);
    for (int64_t i = 0; i < count; ++i) {
      if (inventor.Append(type, &bytes)) continue;
      return support::InvalidArgument("graph.onnx.strip",
                                      support::StrCat("expected a type of numbers for tensor ",
                                                      tensor->name(), ", found ONNX type ", type));
    }
    ClearData(tensor);
    tensor->set_raw_data(std::move(bytes));
    ++result.replaced_tensors;
    result.replaced_values += count;
    return absl::OkStatus();
  }

  const support::Rng rng_;
  std::map<std::string, uint64_t> places_;  // of the first tensor with this content, by digest
};

}  // namespace

absl::StatusOr<StrippedModel> StripWeights(std::string_view onnx, uint64_t seed) {
  pb::ModelProto model;
  if (!model.ParseFromArray(onnx.data(), static_cast<int>(onnx.size())) || !model.has_graph()) {
    return support::InvalidArgument("graph.onnx.parse",
                                    "expected an ONNX model, found other bytes");
  }
  if (model.functions_size() > 0) {
    return support::InvalidArgument("graph.onnx.strip", "expected a model without functions");
  }
  model.clear_training_info();
  // Definitions of custom operators are part of the graph.
  auto& metadata = *model.mutable_metadata_props();
  metadata.erase(
      std::remove_if(metadata.begin(), metadata.end(),
                     [](const auto& entry) { return !entry.key().starts_with(kOperatorsKey); }),
      metadata.end());
  model.clear_doc_string();
  Stripper stripper(seed);
  TW_TRY(stripper.Strip(model.mutable_graph(), {}));
  stripper.result.onnx = model.SerializeAsString();
  return std::move(stripper.result);
}

}  // namespace tilewright::graph
