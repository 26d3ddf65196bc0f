// Builds small ONNX models inside tests, from the generated message classes. One model per object.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "deploy/support/rng.h"
#include "tilewright_onnx.pb.h"

namespace tilewright::tests {

namespace pb = ::tilewright_onnx;

class OnnxBuilder {
 public:
  explicit OnnxBuilder(int64_t opset = 13, uint64_t seed = 1) : rng_(seed) {
    model_.set_ir_version(7);
    model_.add_opset_import()->set_version(opset);
    graph().set_name("test");
  }
  pb::ModelProto& model() { return model_; }
  pb::GraphProto& graph() { return *model_.mutable_graph(); }
  std::string Bytes() const { return model_.SerializeAsString(); }

  OnnxBuilder& Input(const std::string& name, const std::vector<int64_t>& shape,
                     int type = pb::TensorProto::FLOAT) {
    Describe(graph().add_input(), name, shape, type);
    return *this;
  }
  OnnxBuilder& Output(const std::string& name, const std::vector<int64_t>& shape,
                      int type = pb::TensorProto::FLOAT) {
    Describe(graph().add_output(), name, shape, type);
    return *this;
  }
  // Names a size of an input.
  OnnxBuilder& NameSize(int input, int axis, const std::string& name) {
    pb::TypeProto* type = graph().mutable_input(input)->mutable_type();
    type->mutable_tensor_type()->mutable_shape()->mutable_dim(axis)->set_dim_param(name);
    return *this;
  }
  // Seeded values around 0 with this deviation from it at most.
  OnnxBuilder& Weight(const std::string& name, const std::vector<int64_t>& shape,
                      double scale = 0.5) {
    pb::TensorProto* t = graph().add_initializer();
    t->set_name(name);
    t->set_data_type(pb::TensorProto::FLOAT);
    int64_t count = 1;
    for (int64_t dim : shape) {
      t->add_dims(dim);
      count *= dim;
    }
    for (int64_t i = 0; i < count; ++i) {
      t->add_float_data(static_cast<float>((2 * rng_.UniformDouble() - 1) * scale));
    }
    return *this;
  }
  OnnxBuilder& Ints(const std::string& name, const std::vector<int64_t>& values) {
    pb::TensorProto* t = graph().add_initializer();
    t->set_name(name);
    t->set_data_type(pb::TensorProto::INT64);
    t->add_dims(static_cast<int64_t>(values.size()));
    for (int64_t v : values) t->add_int64_data(v);
    return *this;
  }
  // Integers of a type whose values stand in the field int32_data: INT8, UINT8, INT32.
  OnnxBuilder& Small(const std::string& name, int type, const std::vector<int64_t>& shape,
                     const std::vector<int64_t>& values) {
    pb::TensorProto* t = graph().add_initializer();
    t->set_name(name);
    t->set_data_type(type);
    for (int64_t dim : shape) t->add_dims(dim);
    for (int64_t v : values) t->add_int32_data(static_cast<int32_t>(v));
    return *this;
  }
  OnnxBuilder& Floats(const std::string& name, const std::vector<float>& values) {
    pb::TensorProto* t = graph().add_initializer();
    t->set_name(name);
    t->set_data_type(pb::TensorProto::FLOAT);
    t->add_dims(static_cast<int64_t>(values.size()));
    for (float v : values) t->add_float_data(v);
    return *this;
  }
  OnnxBuilder& Scalar(const std::string& name, float value) {
    pb::TensorProto* t = graph().add_initializer();
    t->set_name(name);
    t->set_data_type(pb::TensorProto::FLOAT);
    t->add_float_data(value);
    return *this;
  }
  pb::NodeProto* Node(const std::string& op, const std::vector<std::string>& inputs,
                      const std::string& output) {
    pb::NodeProto* node = graph().add_node();
    node->set_op_type(op);
    node->set_name(output);
    for (const std::string& input : inputs) node->add_input(input);
    node->add_output(output);
    return node;
  }

  static pb::AttributeProto* Attr(pb::NodeProto* node, const std::string& name, int64_t value) {
    pb::AttributeProto* a = Add(node, name, pb::AttributeProto::INT);
    a->set_i(value);
    return a;
  }
  static pb::AttributeProto* Attr(pb::NodeProto* node, const std::string& name,
                                  const std::vector<int64_t>& values) {
    pb::AttributeProto* a = Add(node, name, pb::AttributeProto::INTS);
    for (int64_t v : values) a->add_ints(v);
    return a;
  }
  static pb::AttributeProto* AttrFloat(pb::NodeProto* node, const std::string& name, float value) {
    pb::AttributeProto* a = Add(node, name, pb::AttributeProto::FLOAT);
    a->set_f(value);
    return a;
  }
  static pb::AttributeProto* AttrText(pb::NodeProto* node, const std::string& name,
                                      const std::string& value) {
    pb::AttributeProto* a = Add(node, name, pb::AttributeProto::STRING);
    a->set_s(value);
    return a;
  }

  // The action-value network of the DQN paper with other sizes: the acceptance model, small.
  static OnnxBuilder Dqn(int64_t size, int64_t c1, int64_t c2, int64_t c3, int64_t hidden) {
    OnnxBuilder b;
    b.Input("input", {1, 4, size, size});
    std::string x = "input";
    int64_t channels = 4, side = size;
    const int64_t layers[3][3] = {{c1, 8, 4}, {c2, 4, 2}, {c3, 3, 1}};
    for (const auto& [outputs, kernel, stride] : layers) {
      const std::string n = "conv" + std::to_string(kernel);
      b.Weight(n + "_w", {outputs, channels, kernel, kernel}, 0.2).Weight(n + "_b", {outputs});
      pb::NodeProto* conv = b.Node("Conv", {x, n + "_w", n + "_b"}, n);
      Attr(conv, "kernel_shape", std::vector<int64_t>{kernel, kernel});
      Attr(conv, "strides", std::vector<int64_t>{stride, stride});
      b.Node("Relu", {n}, n + "_relu");
      x = n + "_relu";
      channels = outputs;
      side = (side - kernel) / stride + 1;
    }
    Attr(b.Node("Flatten", {x}, "flat"), "axis", int64_t{1});
    const int64_t features = channels * side * side;
    b.Weight("fc1_w", {hidden, features}, 0.2).Weight("fc1_b", {hidden});
    Attr(b.Node("Gemm", {"flat", "fc1_w", "fc1_b"}, "fc1"), "transB", int64_t{1});
    b.Node("Relu", {"fc1"}, "fc1_relu");
    b.Weight("fc2_w", {6, hidden}).Weight("fc2_b", {6});
    Attr(b.Node("Gemm", {"fc1_relu", "fc2_w", "fc2_b"}, "fc2"), "transB", int64_t{1});
    b.Node("Identity", {"fc2"}, "output");
    b.Output("output", {1, 6});
    return b;
  }

 private:
  static void Describe(pb::ValueInfoProto* info, const std::string& name,
                       const std::vector<int64_t>& shape, int type) {
    info->set_name(name);
    auto* tensor = info->mutable_type()->mutable_tensor_type();
    tensor->set_elem_type(type);
    tensor->mutable_shape();
    for (int64_t dim : shape) tensor->mutable_shape()->add_dim()->set_dim_value(dim);
  }
  static pb::AttributeProto* Add(pb::NodeProto* node, const std::string& name,
                                 pb::AttributeProto::AttributeType type) {
    pb::AttributeProto* a = node->add_attribute();
    a->set_name(name);
    a->set_type(type);
    return a;
  }

  pb::ModelProto model_;
  support::Rng rng_;
};

}  // namespace tilewright::tests
