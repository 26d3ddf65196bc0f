#include "compiler/quantize/raise_opset.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "deploy/support/strings.h"

namespace tilewright::quantize {
namespace {

using support::StrCat;
using Ints = std::vector<int64_t>;

constexpr int64_t kOldestOpset = 7;

absl::Status Refuse(std::string_view found) {
  return support::InvalidArgument(
      "quantize.model.opset",
      StrCat("expected a model that can be brought to opset ", kNeededOpset, ", found ", found));
}

class OpsetRaiser {
 public:
  OpsetRaiser(int64_t opset, FreshNames* names) : opset_(opset), names_(names) {}

  absl::Status Raise(pb::GraphProto* graph) {
    google::protobuf::RepeatedPtrField<pb::NodeProto> old;
    old.Swap(graph->mutable_node());
    for (pb::NodeProto& node : old) {
      for (pb::AttributeProto& attribute : *node.mutable_attribute()) {
        if (attribute.has_g()) TW_TRY(OpsetRaiser(opset_, names_).Raise(attribute.mutable_g()));
      }
      nodes_ = graph->mutable_node();
      TW_TRY(Convert(&node));
      if (!node.op_type().empty()) *nodes_->Add() = std::move(node);
    }
    return absl::OkStatus();
  }

 private:
  struct Row {
    std::string_view op;
    int64_t before;  // opsets whose form is another
    absl::Status (OpsetRaiser::*convert)(pb::NodeProto*);
  };

  absl::Status Convert(pb::NodeProto* node) {
    static constexpr Row kRows[] = {
        {"BatchNormalization", 9, &OpsetRaiser::Normalization},
        {"Clip", 11, &OpsetRaiser::Clip},
        {"Dropout", 12, &OpsetRaiser::Dropout},
        {"Hardmax", 13, &OpsetRaiser::Softmax},
        {"LogSoftmax", 13, &OpsetRaiser::Softmax},
        {"Pad", 11, &OpsetRaiser::Pad},
        {"ReduceSum", 13, &OpsetRaiser::Axes},
        {"Resize", 11, &OpsetRaiser::Resize},
        {"Scan", 9, &OpsetRaiser::Unknown},
        {"Scatter", 11, &OpsetRaiser::Scatter},
        {"Slice", 10, &OpsetRaiser::Slice},
        {"Softmax", 13, &OpsetRaiser::Softmax},
        {"Split", 13, &OpsetRaiser::Split},
        {"Squeeze", 13, &OpsetRaiser::Axes},
        {"TopK", 10, &OpsetRaiser::TopK},
        {"Unsqueeze", 13, &OpsetRaiser::Axes},
        {"Upsample", 10, &OpsetRaiser::Resize},
    };
    for (const Row& row : kRows) {
      if (Is(*node, row.op) && opset_ < row.before) return (this->*row.convert)(node);
    }
    return absl::OkStatus();
  }

  absl::Status Unknown(pb::NodeProto* node) {
    return Refuse(StrCat(node->op_type(), " of opset ", opset_, " (node ", NodeName(*node), ")"));
  }

  // A node before the one under conversion that makes this tensor.
  std::string Constant(const pb::NodeProto& node, std::string_view what, pb::TensorProto tensor) {
    pb::NodeProto* constant = nodes_->Add();
    constant->set_op_type("Constant");
    const std::string name = names_->Take(StrCat(NodeName(node), "_", what));
    constant->set_name(name);
    constant->add_output(name);
    pb::AttributeProto* value = constant->add_attribute();
    value->set_name("value");
    value->set_type(pb::AttributeProto::TENSOR);
    *value->mutable_t() = std::move(tensor);
    return name;
  }
  std::string IntConstant(const pb::NodeProto& node, std::string_view what, const Ints& values) {
    pb::TensorProto tensor;
    tensor.set_data_type(pb::TensorProto::INT64);
    tensor.add_dims(static_cast<int64_t>(values.size()));
    for (const int64_t value : values) tensor.add_int64_data(value);
    return Constant(node, what, std::move(tensor));
  }
  std::string FloatConstant(const pb::NodeProto& node, std::string_view what, double value) {
    return Constant(node, what, FloatTensor("", {}, {static_cast<float>(value)}));
  }

  // Takes an attribute of integers away.
  static std::optional<Ints> TakeInts(pb::NodeProto* node, std::string_view name) {
    const pb::AttributeProto* found = FindAttribute(*node, name);
    if (found == nullptr) return std::nullopt;
    Ints values(found->ints().begin(), found->ints().end());
    EraseAttribute(node, name);
    return values;
  }
  static void SetOperand(pb::NodeProto* node, int i, const std::string& name) {
    while (node->input_size() <= i) node->add_input("");
    node->set_input(i, name);
  }
  static void SetText(pb::NodeProto* node, std::string_view name, std::string_view text) {
    pb::AttributeProto* attribute = node->add_attribute();
    attribute->set_name(std::string(name));
    attribute->set_type(pb::AttributeProto::STRING);
    attribute->set_s(std::string(text));
  }
  static void SetInt(pb::NodeProto* node, std::string_view name, int64_t value) {
    EraseAttribute(node, name);
    pb::AttributeProto* attribute = node->add_attribute();
    attribute->set_name(std::string(name));
    attribute->set_type(pb::AttributeProto::INT);
    attribute->set_i(value);
  }

  // An attribute that is an operand now.
  absl::Status IntsToOperand(pb::NodeProto* node, std::string_view name, int operand) {
    const auto values = TakeInts(node, name);
    if (values) SetOperand(node, operand, IntConstant(*node, name, *values));
    return absl::OkStatus();
  }
  absl::Status Axes(pb::NodeProto* node) { return IntsToOperand(node, "axes", 1); }
  absl::Status Split(pb::NodeProto* node) { return IntsToOperand(node, "split", 1); }

  absl::Status Slice(pb::NodeProto* node) {
    TW_TRY(IntsToOperand(node, "starts", 1));
    TW_TRY(IntsToOperand(node, "ends", 2));
    return IntsToOperand(node, "axes", 3);
  }

  absl::Status TopK(pb::NodeProto* node) {
    const int64_t k = IntAttribute(*node, "k", 1);
    EraseAttribute(node, "k");
    SetOperand(node, 1, IntConstant(*node, "k", {k}));
    return absl::OkStatus();
  }

  absl::Status Pad(pb::NodeProto* node) {
    TW_TRY(IntsToOperand(node, "pads", 1));
    const double value = FloatAttribute(*node, "value", 0);
    EraseAttribute(node, "value");
    if (value != 0) SetOperand(node, 2, FloatConstant(*node, "value", value));
    return absl::OkStatus();
  }

  absl::Status Clip(pb::NodeProto* node) {
    int operand = 1;
    for (const std::string_view bound : {"min", "max"}) {
      if (FindAttribute(*node, bound) != nullptr) {
        const double value = FloatAttribute(*node, bound, 0);
        EraseAttribute(node, bound);
        SetOperand(node, operand, FloatConstant(*node, bound, value));
      }
      ++operand;
    }
    return absl::OkStatus();
  }

  absl::Status Normalization(pb::NodeProto* node) {
    if (IntAttribute(*node, "spatial", 1) == 0) return Unknown(node);
    EraseAttribute(node, "spatial");
    return absl::OkStatus();
  }

  absl::Status Dropout(pb::NodeProto* node) {
    EraseAttribute(node, "ratio");
    return absl::OkStatus();
  }

  absl::Status Scatter(pb::NodeProto* node) {
    node->set_op_type("ScatterElements");
    return absl::OkStatus();
  }

  // Upsample and the first Resize: the pixel at the largest coordinate that is not behind.
  absl::Status Resize(pb::NodeProto* node) {
    std::string scales = Operand(*node, 1);
    if (const pb::AttributeProto* found = FindAttribute(*node, "scales")) {
      const std::vector<float> values(found->floats().begin(), found->floats().end());
      EraseAttribute(node, "scales");
      scales =
          Constant(*node, "scales", FloatTensor("", {static_cast<int64_t>(values.size())}, values));
    }
    node->set_op_type("Resize");
    SetOperand(node, 1, "");
    SetOperand(node, 2, scales);
    SetText(node, "coordinate_transformation_mode", "asymmetric");
    SetText(node, "nearest_mode", "floor");
    return absl::OkStatus();
  }

  // It was over all dimensions from the axis on, as one.
  absl::Status Softmax(pb::NodeProto* node) {
    const int64_t axis = IntAttribute(*node, "axis", 1);
    SetInt(node, "axis", -1);
    if (axis == -1) return absl::OkStatus();
    const std::string x = node->input(0), y = node->output(0), name = NodeName(*node);
    const auto add = [&](std::string_view op, const std::vector<std::string>& inputs,
                         const std::string& output) {
      pb::NodeProto* added = nodes_->Add();
      added->set_op_type(std::string(op));
      added->set_name(names_->Take(StrCat(name, "_", op)));
      for (const std::string& input : inputs) added->add_input(input);
      added->add_output(output);
      return added;
    };
    const std::string flat = names_->Take(y + "_flat"), result = names_->Take(y + "_rows");
    const std::string shape = names_->Take(y + "_shape");
    SetInt(add("Flatten", {x}, flat), "axis", axis);
    add("Shape", {x}, shape);
    pb::NodeProto* softmax = nodes_->Add();
    *softmax = *node;
    softmax->set_input(0, flat);
    softmax->set_output(0, result);
    add("Reshape", {result, shape}, y);
    node->clear_op_type();  // it is written already
    return absl::OkStatus();
  }

  const int64_t opset_;
  FreshNames* const names_;
  google::protobuf::RepeatedPtrField<pb::NodeProto>* nodes_ = nullptr;
};

}  // namespace

absl::Status RaiseOpset(pb::ModelProto* model) {
  for (auto& import : *model->mutable_opset_import()) {
    if (!import.domain().empty() && import.domain() != "ai.onnx") continue;
    const int64_t opset = import.version();
    if (opset >= kNeededOpset) return absl::OkStatus();
    if (opset < kOldestOpset) return Refuse(StrCat("opset ", opset));
    FreshNames names(model->graph());
    TW_TRY(OpsetRaiser(opset, &names).Raise(model->mutable_graph()));
    import.set_version(kNeededOpset);
    constexpr int64_t kIrVersion = 7;  // of opset 13
    model->set_ir_version(std::max<int64_t>(model->ir_version(), kIrVersion));
  }
  return absl::OkStatus();
}

}  // namespace tilewright::quantize
