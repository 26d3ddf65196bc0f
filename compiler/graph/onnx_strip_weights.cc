#include "compiler/graph/onnx_strip_weights.h"

#include <cstring>
#include <map>
#include <set>

#include "deploy/support/rng.h"
#include "deploy/support/strings.h"
#include "tilewright_onnx.pb.h"

namespace tilewright::graph {
namespace {

namespace pb = ::tilewright_onnx;

constexpr int64_t kMaxIndices = 64;
constexpr int64_t kMaxElements = int64_t{1} << 34;

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
      {"QLinearMatMul", {2, 5, 7}}, {"ConvInteger", {2, 3}},   {"MatMulInteger", {2, 3}}};
  return *inputs;
}

int64_t Elements(const pb::TensorProto& tensor) {
  int64_t count = 1;
  for (const int64_t dim : tensor.dims()) {
    if (dim < 0 || (dim > 0 && count > kMaxElements / dim)) return -1;
    count *= dim;
  }
  return count;
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
      for (float& value : *attribute->mutable_floats()) value = static_cast<float>(Draw());
      ++result.replaced_tensors;
      result.replaced_values += attribute->floats_size();
    }
    if (attribute->has_g()) TW_TRY(Strip(attribute->mutable_g(), shaping));
    for (pb::GraphProto& graph : *attribute->mutable_graphs()) TW_TRY(Strip(&graph, shaping));
    return absl::OkStatus();
  }

  // In (0, 1), away from both ends.
  double Draw() { return 0.05 + 0.9 * rng_.UniformDouble(); }

  absl::Status Replace(pb::TensorProto* tensor, bool shaping) {
    const int64_t count = Elements(*tensor);
    if (count < 0) {
      return support::InvalidArgument("graph.onnx.strip",
                                      "a tensor has a bad shape: " + tensor->name());
    }
    const int type = tensor->data_type();
    const bool indices = type == pb::TensorProto::INT64 || type == pb::TensorProto::INT32 ||
                         type == pb::TensorProto::UINT64 || type == pb::TensorProto::UINT32;
    const bool is_external = tensor->data_location() == pb::TensorProto::EXTERNAL;
    if (!is_external && (count <= 1 || shaping || type == pb::TensorProto::BOOL ||
                         (indices && count <= kMaxIndices))) {
      result.kept_values += count;
      tensor->clear_doc_string();
      return absl::OkStatus();
    }
    std::string bytes;
    for (int64_t i = 0; i < count; ++i) {
      switch (type) {
        case pb::TensorProto::FLOAT:
          AppendValue(static_cast<float>(Draw()), &bytes);
          break;
        case pb::TensorProto::DOUBLE:
          AppendValue(Draw(), &bytes);
          break;
        case pb::TensorProto::FLOAT16:
          AppendValue(uint16_t{0x3800}, &bytes);  // 0.5
          break;
        case pb::TensorProto::BFLOAT16:
          AppendValue(uint16_t{0x3f00}, &bytes);  // 0.5
          break;
        case pb::TensorProto::INT64:
        case pb::TensorProto::UINT64:
          AppendValue(int64_t{0}, &bytes);
          break;
        case pb::TensorProto::INT32:
        case pb::TensorProto::UINT32:
          AppendValue(int32_t{0}, &bytes);
          break;
        case pb::TensorProto::INT8:
        case pb::TensorProto::UINT8:
        case pb::TensorProto::BOOL:
          AppendValue(static_cast<uint8_t>(1), &bytes);
          break;
        default:
          return support::InvalidArgument(
              "graph.onnx.strip", support::StrCat("expected a type of numbers for tensor ",
                                                  tensor->name(), ", found ONNX type ", type));
      }
    }
    ClearData(tensor);
    tensor->set_raw_data(std::move(bytes));
    ++result.replaced_tensors;
    result.replaced_values += count;
    return absl::OkStatus();
  }

  support::Rng rng_;
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
  model.clear_metadata_props();
  model.clear_doc_string();
  Stripper stripper(seed);
  TW_TRY(stripper.Strip(model.mutable_graph(), {}));
  stripper.result.onnx = model.SerializeAsString();
  return std::move(stripper.result);
}

}  // namespace tilewright::graph
