// ONNX import: what each operator becomes, the errors of bad models by slug, and seeded mutations
// of a valid model, none of which may crash the importer or the graph passes.
#include "compiler/onnx/onnx_import.h"

#include <gtest/gtest.h>

#include <cmath>

#include "compiler/graph/graph.h"
#include "compiler/graph/graph_passes.h"
#include "deploy/support/rng.h"
#include "deploy/support/status.h"
#include "tests/support/test_seed.h"
#include "tests/unit/onnx_evaluate.h"

namespace tilewright::graph {
namespace {

using op::RefTensor;
using support::Rng;
using tests::OnnxBuilder;
namespace pb = tests::pb;
using Shape = std::vector<int64_t>;

Graph Import(const OnnxBuilder& b) {
  auto g = ImportOnnx(b.Bytes());
  EXPECT_TRUE(g.ok()) << g.status();
  return g.ok() ? *g : Graph();
}
std::string Slug(const OnnxBuilder& b, const ImportOptions& options = {}) {
  return support::Slug(ImportOnnx(b.Bytes(), options).status());
}
RefTensor Tensor(Shape shape, std::vector<double> values) {
  return {{ir::kF32, std::move(shape)}, std::move(values)};
}
// The only output of the model for these inputs, before and after the graph passes.
RefTensor Evaluate(const OnnxBuilder& b, const std::vector<RefTensor>& inputs) {
  const Graph g = Import(b);
  auto out = Interpret(g, inputs);
  EXPECT_TRUE(out.ok()) << out.status();
  if (!out.ok()) return {};
  auto fused = RunGraphPasses(g);
  EXPECT_TRUE(fused.ok()) << fused.status();
  if (!fused.ok()) return {};
  auto again = Interpret(*fused, inputs);
  EXPECT_TRUE(again.ok()) << again.status();
  for (size_t i = 0; again.ok() && i < (*out)[0].values.size(); ++i) {
    EXPECT_NEAR((*out)[0].values[i], (*again)[0].values[i], 1e-5);
  }
  return (*out)[0];
}
std::vector<double> Ramp(int64_t n) {
  std::vector<double> values;
  for (int64_t i = 0; i < n; ++i) values.push_back(static_cast<double>(i));
  return values;
}

TEST(OnnxImport, DqnBecomesFiveKernels) {
  const OnnxBuilder b = OnnxBuilder::Dqn(84, 32, 64, 64, 512);
  const Graph g = Import(b);
  EXPECT_EQ(g.inputs.size(), 1u);
  EXPECT_EQ(g.values[g.outputs[0]].name, "output");
  auto fused = RunGraphPasses(g);
  ASSERT_TRUE(fused.ok()) << fused.status();
  std::vector<std::string> kernels;
  for (const Node& n : fused->nodes) kernels.push_back(n.body ? n.body->name : n.op);
  EXPECT_EQ(kernels,
            (std::vector<std::string>{"conv2d_add_relu", "conv2d_add_relu", "conv2d_add_relu",
                                      "reshape", "dense_add_relu", "dense_add"}));
  EXPECT_EQ(fused->values[fused->outputs[0]].name, "output");
  EXPECT_EQ(Flops(*fused), Flops(*RunGraphPasses(g)));
}

TEST(OnnxImport, PaddingModes) {
  auto pads = [](const std::string& mode) {
    OnnxBuilder b;
    b.Input("x", {1, 1, 6, 5}).Weight("w", {1, 1, 3, 2});
    pb::NodeProto* conv = b.Node("Conv", {"x", "w"}, "y");
    OnnxBuilder::Attr(conv, "strides", Shape{2, 1});
    OnnxBuilder::AttrText(conv, "auto_pad", mode);
    b.Output("y", {});
    b.graph().mutable_output(0)->mutable_type()->mutable_tensor_type()->clear_shape();
    return op::GetInts(Import(b).nodes[0].attrs, "pads", {});
  };
  EXPECT_EQ(pads("VALID"), (Shape{0, 0, 0, 0}));
  EXPECT_EQ(pads("SAME_UPPER"), (Shape{0, 0, 1, 1}));
  EXPECT_EQ(pads("SAME_LOWER"), (Shape{1, 1, 0, 0}));
}

TEST(OnnxImport, OneDimensionalConvolution) {
  OnnxBuilder b;
  b.Input("x", {1, 1, 4}).Weight("w", {1, 1, 2}).Output("y", {1, 1, 3});
  b.graph().mutable_initializer(0)->clear_float_data();
  b.graph().mutable_initializer(0)->add_float_data(1);
  b.graph().mutable_initializer(0)->add_float_data(10);
  b.Node("Conv", {"x", "w"}, "y");
  EXPECT_EQ(Evaluate(b, {Tensor({1, 1, 4}, {1, 2, 3, 4})}).values,
            (std::vector<double>{21, 32, 43}));
}

TEST(OnnxImport, GemmWithEveryOption) {
  OnnxBuilder b;
  b.Input("a", {3, 2}).Input("b", {4, 3}).Input("c", {4}).Output("y", {2, 4});
  pb::NodeProto* gemm = b.Node("Gemm", {"a", "b", "c"}, "y");
  OnnxBuilder::Attr(gemm, "transA", int64_t{1});
  OnnxBuilder::Attr(gemm, "transB", int64_t{1});
  OnnxBuilder::AttrFloat(gemm, "alpha", 0.5);
  OnnxBuilder::AttrFloat(gemm, "beta", 2);
  const RefTensor y =
      Evaluate(b, {Tensor({3, 2}, Ramp(6)), Tensor({4, 3}, Ramp(12)), Tensor({4}, {1, 2, 3, 4})});
  // (A^T B^T)[0][0] = 0*0 + 2*1 + 4*2 = 10
  EXPECT_EQ(y.values[0], 0.5 * 10 + 2);
  EXPECT_EQ(y.values[7], 0.5 * (1 * 9 + 3 * 10 + 5 * 11) + 8);
}

TEST(OnnxImport, MatMulOfEveryRank) {
  auto shape = [](Shape a, Shape c) {
    OnnxBuilder b;
    b.Input("a", a).Input("b", c);
    b.Node("MatMul", {"a", "b"}, "y");
    b.graph().add_output()->set_name("y");
    const Graph g = Import(b);
    return g.outputs.empty() ? Shape{-1} : g.values[g.outputs[0]].type.sizes();
  };
  EXPECT_EQ(shape({2, 3}, {3, 4}), (Shape{2, 4}));
  EXPECT_EQ(shape({3}, {3, 4}), (Shape{4}));
  EXPECT_EQ(shape({2, 3}, {3}), (Shape{2}));
  EXPECT_EQ(shape({3}, {3}), (Shape{}));
  EXPECT_EQ(shape({5, 2, 3}, {3, 4}), (Shape{5, 2, 4}));
  EXPECT_EQ(shape({5, 1, 2, 3}, {7, 3, 4}), (Shape{5, 7, 2, 4}));
  EXPECT_EQ(shape({3}, {7, 3, 4}), (Shape{7, 4}));
  EXPECT_EQ(shape({7, 2, 3}, {3}), (Shape{7, 2}));
}

TEST(OnnxImport, ShapesOfShapeOperators) {
  auto shape = [](const std::string& op, const Shape& in, std::optional<Shape> second,
                  int64_t axis = INT64_MIN) {
    OnnxBuilder b;
    b.Input("x", in);
    std::vector<std::string> inputs = {"x"};
    if (second) {
      b.Ints("s", *second);
      inputs.push_back("s");
    }
    pb::NodeProto* node = b.Node(op, inputs, "y");
    if (axis != INT64_MIN) OnnxBuilder::Attr(node, "axis", axis);
    b.graph().add_output()->set_name("y");
    const Graph g = Import(b);
    return g.outputs.empty() ? Shape{-1} : g.values[g.outputs[0]].type.sizes();
  };
  EXPECT_EQ(shape("Reshape", {2, 3, 4}, Shape{0, -1}), (Shape{2, 12}));
  EXPECT_EQ(shape("Reshape", {2, 3, 4}, Shape{4, 6}), (Shape{4, 6}));
  EXPECT_EQ(shape("Flatten", {2, 3, 4}, {}), (Shape{2, 12}));
  EXPECT_EQ(shape("Flatten", {2, 3, 4}, {}, 0), (Shape{1, 24}));
  EXPECT_EQ(shape("Flatten", {2, 3, 4}, {}, -1), (Shape{6, 4}));
  EXPECT_EQ(shape("Squeeze", {1, 3, 1}, {}), (Shape{3}));
  EXPECT_EQ(shape("Squeeze", {1, 3, 1}, Shape{-1}), (Shape{1, 3}));
  EXPECT_EQ(shape("Unsqueeze", {3}, Shape{0, -1}), (Shape{1, 3, 1}));
  EXPECT_EQ(shape("Transpose", {2, 3, 4}, {}), (Shape{4, 3, 2}));
  EXPECT_EQ(shape("GlobalAveragePool", {1, 5, 3, 3}, {}), (Shape{1, 5, 1, 1}));
}

TEST(OnnxImport, PoolingWithCeilMode) {
  OnnxBuilder b;
  b.Input("x", {1, 1, 1, 5}).Output("y", {1, 1, 1, 3});
  pb::NodeProto* pool = b.Node("MaxPool", {"x"}, "y");
  OnnxBuilder::Attr(pool, "kernel_shape", Shape{1, 2});
  OnnxBuilder::Attr(pool, "strides", Shape{1, 2});
  OnnxBuilder::Attr(pool, "ceil_mode", int64_t{1});
  EXPECT_EQ(Evaluate(b, {Tensor({1, 1, 1, 5}, {5, 1, 2, 4, 3})}).values,
            (std::vector<double>{5, 4, 3}));
}

TEST(OnnxImport, SoftmaxOldAndNew) {
  for (int64_t opset : {11, 13}) {
    OnnxBuilder b(opset);
    b.Input("x", {1, 2, 2}).Output("y", {1, 2, 2});
    OnnxBuilder::Attr(b.Node("Softmax", {"x"}, "y"), "axis", int64_t{1});
    const RefTensor y = Evaluate(b, {Tensor({1, 2, 2}, {0, 0, 0, 0})});
    EXPECT_NEAR(y.values[0], opset == 11 ? 0.25 : 0.5, 1e-7);
  }
}

TEST(OnnxImport, ClipVariadicAndReductions) {
  OnnxBuilder b;
  b.Input("x", {2, 2}).Scalar("lo", 0.5).Input("hi", {});
  b.Node("Clip", {"x", "lo", "hi"}, "c");
  b.Node("Max", {"c", "x", "lo"}, "m");
  OnnxBuilder::Attr(b.Node("ReduceMean", {"m"}, "y"), "axes", Shape{-1});
  b.Output("y", {2, 1});
  EXPECT_EQ(Evaluate(b, {Tensor({2, 2}, {-1, 1, 2, 9}), Tensor({}, {3})}).values,
            (std::vector<double>{0.75, 5.5}));
}

TEST(OnnxImport, ConstantsShapesAndOmittedParts) {
  OnnxBuilder b;
  b.Input("x", {2, 3});
  pb::NodeProto* constant = b.Node("Constant", {}, "two");
  OnnxBuilder::AttrFloat(constant, "value_float", 2);
  b.Node("Shape", {"x"}, "shape");
  b.Node("Reshape", {"x", "shape"}, "same");
  b.Node("Dropout", {"same"}, "kept");
  b.Node("Mul", {"kept", "two"}, "y");
  b.Output("y", {2, 3});
  EXPECT_EQ(Evaluate(b, {Tensor({2, 3}, Ramp(6))}).values[5], 10);
}

TEST(OnnxImport, ConstantsOfAShape) {
  const auto filled = [](const Shape& shape) {
    OnnxBuilder b;
    b.Input("x", {2, 3}).Ints("shape", shape);
    b.Node("ConstantOfShape", {"shape"}, "zeros");
    pb::TensorProto* value =
        b.Node("ConstantOfShape", {"shape"}, "fives")->add_attribute()->mutable_t();
    pb::AttributeProto* attribute = b.graph().mutable_node(1)->mutable_attribute(0);
    attribute->set_name("value");
    attribute->set_type(pb::AttributeProto::TENSOR);
    value->set_data_type(pb::TensorProto::FLOAT);
    value->add_dims(1);
    value->add_float_data(5);
    b.Node("Add", {"x", "zeros"}, "sum");
    b.Node("Add", {"sum", "fives"}, "y");
    b.Output("y", {2, 3});
    return b;
  };
  EXPECT_EQ(Evaluate(filled({2, 3}), {Tensor({2, 3}, Ramp(6))}).values[5], 10);
  EXPECT_EQ(Evaluate(filled({1}), {Tensor({2, 3}, Ramp(6))}).values[0], 5);
  EXPECT_EQ(Slug(filled({2, 0})), "op.add.shape") << "no elements do not broadcast to three";
  EXPECT_EQ(Slug(filled({2, -3})), "graph.onnx.shape");
  EXPECT_EQ(Slug(filled({1 << 30, 1 << 30, 1 << 30})), "graph.onnx.too_large");
}

// As the definition has it: the squares of the neighbouring channels, an even window one more
// behind.
TEST(OnnxImport, LocalResponseNormalisation) {
  for (const double beta : {0.5, 0.75, 0.6}) {
    for (const int64_t size : {1, 2, 3, 5}) {
      OnnxBuilder b;
      b.Input("x", {1, 4, 1, 2}).Output("y", {1, 4, 1, 2});
      pb::NodeProto* lrn = b.Node("LRN", {"x"}, "y");
      OnnxBuilder::Attr(lrn, "size", size);
      OnnxBuilder::AttrFloat(lrn, "alpha", 0.5F);
      OnnxBuilder::AttrFloat(lrn, "beta", static_cast<float>(beta));
      OnnxBuilder::AttrFloat(lrn, "bias", 2);
      const std::vector<double> x = {1, -2, 3, 4, -5, 6, 7, 8};
      const std::vector<double> y = Evaluate(b, {Tensor({1, 4, 1, 2}, x)}).values;
      for (int64_t c = 0; c < 4; ++c) {
        double sum = 0;
        const int64_t first = c - (size - 1) / 2, last = c + size / 2;
        for (int64_t k = std::max<int64_t>(0, first); k <= std::min<int64_t>(3, last); ++k) {
          sum += x[k * 2] * x[k * 2];
        }
        const double size_d = static_cast<double>(size);
        EXPECT_NEAR(y[c * 2], x[c * 2] / std::pow(2 + 0.5 / size_d * sum, beta), 1e-6);
      }
    }
  }
}

TEST(OnnxImport, SliceSplitConcatGatherPad) {
  OnnxBuilder b;
  b.Input("x", {4, 6}).Ints("starts", {-1, 1}).Ints("ends", {-100, 100}).Ints("axes", {0, 1});
  b.Ints("steps", {-1, 2}).Ints("which", {2, 0}).Ints("pads", {0, 1, 0, 0});
  b.Node("Slice", {"x", "starts", "ends", "axes", "steps"}, "s");  // rows reversed, columns 1 3 5
  pb::NodeProto* split = b.Node("Split", {"s"}, "top");
  split->add_output("bottom");
  b.Node("Concat", {"bottom", "top"}, "c")
      ->add_attribute()
      ->CopyFrom(*OnnxBuilder::Attr(split, "axis", int64_t{0}));
  OnnxBuilder::Attr(b.Node("Gather", {"c", "which"}, "g"), "axis", int64_t{1});
  b.Node("Pad", {"g", "pads"}, "y");
  b.Output("y", {4, 3});
  // Rows 1 0 3 2 of x, columns 5 and 1, a zero before them.
  EXPECT_EQ(Evaluate(b, {Tensor({4, 6}, Ramp(24))}).values,
            (std::vector<double>{0, 11, 7, 0, 5, 1, 0, 23, 19, 0, 17, 13}));
}

TEST(OnnxImport, LstmByHand) {
  // One unit, weights 0 but for the cell gate: c = sigmoid(0) * c + sigmoid(0) * tanh(x).
  OnnxBuilder b;
  b.Input("x", {3, 1, 1}).Weight("w", {1, 4, 1}, 0).Weight("r", {1, 4, 1}, 0);
  b.graph().mutable_initializer(0)->set_float_data(3, 1);
  pb::NodeProto* lstm = b.Node("LSTM", {"x", "w", "r"}, "y");
  OnnxBuilder::Attr(lstm, "hidden_size", int64_t{1});
  lstm->add_output("h");
  lstm->add_output("c");
  b.Output("y", {3, 1, 1, 1}).Output("c", {1, 1, 1});
  double c = 0;
  std::vector<double> h;
  for (double x : {0.5, -1.0, 2.0}) {
    c = 0.5 * c + 0.5 * std::tanh(x);
    h.push_back(0.5 * std::tanh(c));
  }
  const RefTensor y = Evaluate(b, {Tensor({3, 1, 1}, {0.5, -1, 2})});
  ASSERT_EQ(y.values.size(), 3u);
  for (int t = 0; t < 3; ++t) EXPECT_NEAR(y.values[t], h[t], 1e-6);
  OnnxBuilder::AttrText(lstm, "direction", "sideways");
  EXPECT_EQ(Slug(b), "graph.onnx.attribute");
}

TEST(OnnxImport, NodesInAnyOrderAndOutputsOfAnyKind) {
  OnnxBuilder b;
  b.Input("x", {2}).Weight("k", {2});
  b.Node("Relu", {"a"}, "y0");
  b.Node("Exp", {"x"}, "a");
  b.Output("y0", {2}).Output("a", {2}).Output("x", {2}).Output("k", {2});
  const Graph g = Import(b);
  auto fused = RunGraphPasses(g);
  ASSERT_TRUE(fused.ok()) << fused.status();
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(fused->values[fused->outputs[i]].name, b.graph().output(static_cast<int>(i)).name());
  }
}

TEST(OnnxImport, SymbolicShapesNeedAnOption) {
  OnnxBuilder b;
  b.Input("x", {1, 4}).Output("y", {});
  b.graph().mutable_output(0)->mutable_type()->mutable_tensor_type()->clear_shape();
  b.NameSize(0, 0, "N");
  b.Node("Relu", {"x"}, "y");
  auto refused = ImportOnnx(b.Bytes());
  EXPECT_EQ(support::Slug(refused.status()), "graph.onnx.symbolic_shape");
  EXPECT_NE(std::string(refused.status().message()).find("\"x\" [N,4]"), std::string::npos);
  ImportOptions options;
  options.shapes["x"] = {3, 4};
  auto g = ImportOnnx(b.Bytes(), options);
  ASSERT_TRUE(g.ok()) << g.status();
  EXPECT_EQ(g->values[g->outputs[0]].type.sizes(), (Shape{3, 4}));
  options.shapes["x"] = {3, 5};
  EXPECT_EQ(Slug(b, options), "graph.onnx.shape_override");
  options.shapes["x"] = {3};
  EXPECT_EQ(Slug(b, options), "graph.onnx.shape_override");
  options.shapes = {{"x", {3, 4}}, {"nonesuch", {1}}};
  EXPECT_EQ(Slug(b, options), "graph.onnx.shape_override");
}

TEST(OnnxImport, NamedDimensionsHaveOneSize) {
  OnnxBuilder b;
  b.Input("x", {1, 4}).Input("z", {1, 4}).Output("y", {});
  b.graph().mutable_output(0)->mutable_type()->mutable_tensor_type()->clear_shape();
  auto dim = [&](int input, int d) {
    auto* type = b.graph().mutable_input(input)->mutable_type()->mutable_tensor_type();
    return type->mutable_shape()->mutable_dim(d);
  };
  dim(0, 0)->set_dim_param("N");
  dim(1, 0)->set_dim_param("N");
  b.Node("Add", {"x", "z"}, "y");
  auto refused = ImportOnnx(b.Bytes());
  EXPECT_EQ(support::Slug(refused.status()), "graph.onnx.symbolic_shape");
  EXPECT_NE(std::string(refused.status().message()).find("--shape N="), std::string::npos);
  ImportOptions options;
  // The shape of one input settles the other's; so does the size itself.
  for (const auto& [name, shape] : std::map<std::string, Shape>{{"z", {3, 4}}, {"N", {3}}}) {
    options.shapes = {{name, shape}};
    auto g = ImportOnnx(b.Bytes(), options);
    ASSERT_TRUE(g.ok()) << g.status();
    for (ValueId id : g->inputs) EXPECT_EQ(g->values[id].type.sizes(), (Shape{3, 4}));
    EXPECT_EQ(g->values[g->outputs[0]].type.sizes(), (Shape{3, 4}));
  }
  options.shapes = {{"x", {3, 4}}, {"z", {2, 4}}};
  refused = ImportOnnx(b.Bytes(), options);
  EXPECT_EQ(support::Slug(refused.status()), "graph.onnx.size_conflict");
  EXPECT_NE(std::string(refused.status().message()).find("shape of"), std::string::npos);
  options.shapes = {{"x", {3, 4}}, {"N", {2}}};
  EXPECT_EQ(Slug(b, options), "graph.onnx.size_conflict");
  options.shapes = {{"N", {2, 2}}};
  EXPECT_EQ(Slug(b, options), "graph.onnx.shape_override");
}

TEST(OnnxImport, UnsupportedOperatorsAreAllNamed) {
  OnnxBuilder b;
  b.Input("x", {1, 4}).Output("y", {1, 4});
  b.Node("StringNormalizer", {"x"}, "e");
  b.Node("Relu", {"e"}, "r");
  b.Node("CustomThing", {"r"}, "y")->set_domain("com.example");
  auto g = ImportOnnx(b.Bytes());
  EXPECT_EQ(support::Slug(g.status()), "graph.onnx.unsupported_operator");
  const std::string text(g.status().message());
  EXPECT_NE(text.find("\"e\" (StringNormalizer)"), std::string::npos) << text;
  EXPECT_NE(text.find("(CustomThing of com.example)"), std::string::npos) << text;
  EXPECT_NE(text.find("opset 13"), std::string::npos) << text;
}

TEST(OnnxImport, RefusalsNameNodeOperatorDomainAndOpset) {
  OnnxBuilder b;
  b.Input("x", {1, 4}).Output("y", {1, 4});
  b.Node("RotaryEmbedding", {"x"}, "y")->set_domain("com.microsoft");
  const std::string text(ImportOnnx(b.Bytes()).status().message());
  EXPECT_NE(text.find("opset 13: node \"y\" (RotaryEmbedding of com.microsoft): expected "),
            std::string::npos)
      << text;
}

// Exporters write the sizes of their own run beside inputs whose sizes are open.
TEST(OnnxImport, StatedSizesOfOutputsCountWhereInputsAreFixed) {
  auto import = [](bool open, const std::vector<int64_t>& stated, int32_t element) {
    OnnxBuilder b;
    b.Input("x", {2, 4}).Output("y", stated);
    b.Node("Relu", {"x"}, "y");
    auto tensor = [](pb::ValueInfoProto* value) {
      return value->mutable_type()->mutable_tensor_type();
    };
    tensor(b.graph().mutable_output(0))->set_elem_type(element);
    if (open)
      tensor(b.graph().mutable_input(0))->mutable_shape()->mutable_dim(0)->set_dim_param("n");
    ImportOptions options;
    if (open) options.shapes["n"] = {2};
    return support::Slug(ImportOnnx(b.Bytes(), options).status());
  };
  EXPECT_EQ(import(false, {2, 4}, pb::TensorProto::FLOAT), "");
  EXPECT_EQ(import(false, {2, 640}, pb::TensorProto::FLOAT), "graph.onnx.output_type");
  EXPECT_EQ(import(true, {7, 640}, pb::TensorProto::FLOAT), "");
  EXPECT_EQ(import(true, {2, 4, 1}, pb::TensorProto::FLOAT), "graph.onnx.output_type");
  EXPECT_EQ(import(true, {2, 4}, pb::TensorProto::INT64), "graph.onnx.output_type");
  // Exporters invent names for dimensions that they do not know, and too many of them.
  const auto named = [](const char* name) {
    OnnxBuilder b;
    b.Input("x", {2, 4}).Output("y", {2, 4, 1});
    b.Node("Relu", {"x"}, "y");
    const auto shape = [](pb::ValueInfoProto* value) {
      return value->mutable_type()->mutable_tensor_type()->mutable_shape();
    };
    shape(b.graph().mutable_input(0))->mutable_dim(0)->set_dim_param("n");
    for (int d = 0; d < 3; ++d)
      shape(b.graph().mutable_output(0))->mutable_dim(d)->set_dim_param(name);
    ImportOptions options;
    options.open["n"] = {1, 8};
    return std::string(support::Slug(ImportOnnx(b.Bytes(), options).status()));
  };
  EXPECT_EQ(named("Relu_y_dim"), "");
  EXPECT_EQ(named("n"), "graph.onnx.output_type") << "the model says what it is";
}

TEST(OnnxImport, SizesNamedWithAQuestionMarkAreNotOneSize) {
  OnnxBuilder b;
  b.Input("x", {2, 4}).Output("y", {2, 4});
  b.Node("Relu", {"x"}, "y");
  auto* type = b.graph().mutable_input(0)->mutable_type()->mutable_tensor_type();
  for (auto& dim : *type->mutable_shape()->mutable_dim()) dim.set_dim_param("?");
  ImportOptions options;
  options.shapes["x"] = {2, 4};
  const absl::StatusOr<Graph> graph = ImportOnnx(b.Bytes(), options);
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_EQ(op::ToText(graph->values[graph->outputs[0]].type), "f32[2,4]");
}

TEST(OnnxImport, SizesWithoutANameAreNamedAfterTheirAxis) {
  OnnxBuilder b;
  b.Input("x_1", {4}).Input("x", {2, 4}).Output("y", {2, 4});
  b.Node("Add", {"x", "x_1"}, "y");
  auto* type = b.graph().mutable_input(1)->mutable_type()->mutable_tensor_type();
  type->mutable_shape()->mutable_dim(0)->set_dim_value(-1);
  type->mutable_shape()->mutable_dim(1)->clear_value();  // "x_1" is the name of an input
  ImportOptions options;
  options.shapes["x_1_"] = {4};
  options.open["x_0"] = {1, 8};
  const absl::StatusOr<Graph> graph = ImportOnnx(b.Bytes(), options);
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_EQ(op::ToText(graph->values[graph->outputs[0]].type), "f32[x_0,4]");
}

// A small valid model with an initializer, changed into each kind of bad one.
OnnxBuilder Valid() {
  OnnxBuilder b;
  b.Input("x", {2, 4}).Weight("w", {3, 4}).Output("y", {2, 3});
  OnnxBuilder::Attr(b.Node("Gemm", {"x", "w"}, "g"), "transB", int64_t{1});
  b.Node("Relu", {"g"}, "y");
  return b;
}

TEST(OnnxImport, EachErrorOfABadModel) {
  auto slug = [](auto change) {
    OnnxBuilder b = Valid();
    change(b.model(), b.graph());
    return Slug(b);
  };
  using Model = pb::ModelProto;
  using G = pb::GraphProto;
  EXPECT_EQ(slug([](Model&, G&) {}), "");
  EXPECT_EQ(slug([](Model& m, G&) { m.clear_graph(); }), "graph.onnx.no_graph");
  EXPECT_EQ(slug([](Model& m, G&) { m.mutable_opset_import(0)->set_version(99); }),
            "graph.onnx.opset");
  EXPECT_EQ(slug([](Model& m, G&) { m.clear_opset_import(); }), "graph.onnx.opset");
  EXPECT_EQ(slug([](Model&, G& g) { g.mutable_node(0)->set_input(1, "nonesuch"); }),
            "graph.onnx.missing_input");
  EXPECT_EQ(slug([](Model&, G& g) { g.mutable_node(0)->mutable_input()->RemoveLast(); }),
            "graph.onnx.inputs");
  EXPECT_EQ(slug([](Model&, G& g) { g.mutable_node(0)->set_input(0, "y"); }), "graph.onnx.cycle");
  EXPECT_EQ(slug([](Model&, G& g) { g.mutable_node(1)->set_output(0, "g"); }),
            "graph.onnx.duplicate");
  EXPECT_EQ(slug([](Model&, G& g) { *g.add_initializer() = g.initializer(0); }),
            "graph.onnx.duplicate");
  EXPECT_EQ(slug([](Model&, G& g) { *g.add_input() = g.input(0); }), "graph.onnx.duplicate");
  EXPECT_EQ(slug([](Model&, G& g) { *g.add_output() = g.output(0); }), "graph.onnx.duplicate");
  EXPECT_EQ(slug([](Model&, G& g) { g.mutable_output(0)->set_name("nonesuch"); }),
            "graph.onnx.missing_input");
  EXPECT_EQ(slug([](Model&, G& g) {
              g.mutable_output(0)
                  ->mutable_type()
                  ->mutable_tensor_type()
                  ->mutable_shape()
                  ->mutable_dim(1)
                  ->set_dim_value(4);
            }),
            "graph.onnx.output_type");
  EXPECT_EQ(slug([](Model&, G& g) {
              g.mutable_output(0)->mutable_type()->mutable_tensor_type()->set_elem_type(
                  pb::TensorProto::INT64);
            }),
            "graph.onnx.output_type");
  EXPECT_EQ(slug([](Model&, G& g) { g.mutable_node(0)->clear_output(); }), "graph.onnx.outputs");
  EXPECT_EQ(slug([](Model&, G& g) {
              g.mutable_node(0)->mutable_attribute(0)->set_type(pb::AttributeProto::FLOAT);
            }),
            "graph.onnx.attribute");
  // Tensors.
  EXPECT_EQ(slug([](Model&, G& g) { g.mutable_initializer(0)->set_dims(0, -3); }),
            "graph.onnx.dimension");
  EXPECT_EQ(slug([](Model&, G& g) { g.mutable_initializer(0)->set_dims(0, 4); }),
            "graph.onnx.tensor_data");
  EXPECT_EQ(slug([](Model&, G& g) { g.mutable_initializer(0)->set_dims(0, int64_t{1} << 62); }),
            "graph.onnx.too_large");
  EXPECT_EQ(
      slug([](Model&, G& g) { g.mutable_initializer(0)->set_data_type(pb::TensorProto::STRING); }),
      "graph.onnx.element_type");
  EXPECT_EQ(slug([](Model&, G& g) {
              g.mutable_initializer(0)->set_data_location(pb::TensorProto::EXTERNAL);
            }),
            "graph.onnx.external_data");
  EXPECT_EQ(slug([](Model&, G& g) {
              auto* e = g.mutable_initializer(0)->add_external_data();
              e->set_key("location");
              e->set_value("../../etc/passwd");
            }),
            "graph.onnx.external_data");
  EXPECT_EQ(slug([](Model&, G& g) { g.mutable_initializer(0)->set_raw_data("abc"); }),
            "graph.onnx.tensor_data");
  EXPECT_EQ(slug([](Model&, G& g) {
              g.mutable_initializer(0)->clear_float_data();
              g.mutable_initializer(0)->set_dims(0, 0);
            }),
            "graph.onnx.output_type");
  // Shapes of inputs.
  auto input_dim = [&](int64_t value) {
    return slug([&](Model&, G& g) {
      g.mutable_input(0)
          ->mutable_type()
          ->mutable_tensor_type()
          ->mutable_shape()
          ->mutable_dim(0)
          ->set_dim_value(value);
    });
  };
  EXPECT_EQ(input_dim(0), "graph.onnx.output_type") << "no elements, the model states some";
  EXPECT_EQ(input_dim(-5), "graph.onnx.symbolic_shape");  // -1 is how Paddle writes it
  EXPECT_EQ(input_dim(INT64_MAX), "op.type.size");
  EXPECT_EQ(input_dim(int64_t{1} << 33), "graph.onnx.too_large");
  EXPECT_EQ(slug([](Model&, G& g) { g.mutable_input(0)->clear_type(); }), "graph.onnx.input_type");
  // Operators refuse with their own slugs; the node is named.
  OnnxBuilder mismatch = Valid();
  mismatch.graph().mutable_node(0)->mutable_attribute(0)->set_i(0);
  auto result = ImportOnnx(mismatch.Bytes());
  EXPECT_EQ(support::Slug(result.status()), "op.dense.shape");
  EXPECT_NE(std::string(result.status().message()).find("\"g\" (Gemm)"), std::string::npos);
}

TEST(OnnxImport, BytesThatAreNoModel) {
  const std::string good = Valid().Bytes();
  EXPECT_EQ(support::Slug(ImportOnnx("").status()), "graph.onnx.not_onnx");
  EXPECT_EQ(support::Slug(ImportOnnx("this is no model").status()), "graph.onnx.not_onnx");
  ImportOptions small;
  small.max_bytes = 10;
  EXPECT_EQ(support::Slug(ImportOnnx(good, small).status()), "graph.onnx.too_large");
  // Every prefix is refused: protobuf may accept some, the graph then lacks parts.
  for (size_t n = 0; n + 1 < good.size(); ++n) {
    EXPECT_FALSE(ImportOnnx(std::string_view(good).substr(0, n)).ok() && n < good.size() / 2) << n;
  }
}

OnnxBuilder Varied() {
  OnnxBuilder b;
  b.Input("x", {1, 4, 9, 8})
      .Weight("w", {4, 2, 3, 3})
      .Weight("wb", {4})
      .Ints("s", {1, -1})
      .Scalar("lo", -1);
  pb::NodeProto* conv = b.Node("Conv", {"x", "w", "wb"}, "c");
  OnnxBuilder::Attr(conv, "group", int64_t{2});
  OnnxBuilder::Attr(conv, "pads", Shape{1, 0, 0, 1});
  for (const char* p : {"gamma", "beta", "mean", "var"}) b.Weight(p, {4});
  b.Node("BatchNormalization", {"c", "gamma", "beta", "mean", "var"}, "bn");
  pb::NodeProto* pool = b.Node("MaxPool", {"bn"}, "p");
  OnnxBuilder::Attr(pool, "kernel_shape", Shape{2, 2});
  OnnxBuilder::Attr(pool, "strides", Shape{2, 2});
  b.Node("Clip", {"p", "lo"}, "k");
  b.Node("Reshape", {"k", "s"}, "f");
  b.Weight("m", {48, 5}).Weight("mb", {5});
  b.Node("Gemm", {"f", "m", "mb"}, "g");
  OnnxBuilder::Attr(b.Node("ReduceMean", {"g"}, "mean_of"), "axes", Shape{1});
  b.Node("Sub", {"g", "mean_of"}, "d");
  OnnxBuilder::Attr(b.Node("Softmax", {"d"}, "y"), "axis", int64_t{-1});
  b.Output("y", {1, 5});
  return b;
}

// An int8 model: layers between conversions, with zero points and biases, and ONNX's integer ones.
OnnxBuilder Quantized() {
  constexpr int kU8 = pb::TensorProto::UINT8, kI8 = pb::TensorProto::INT8;
  constexpr int kI32 = pb::TensorProto::INT32;
  OnnxBuilder b(21);
  b.Input("x", {1, 2, 4, 4}).Scalar("s", 0.5F).Small("z", kU8, {}, {3}).Small("iz", kI8, {}, {0});
  b.Small("w", kI8, {2, 2, 1, 1}, {1, -2, 3, -4}).Floats("ws", {0.5F, 0.25F});
  b.Small("wz", kI8, {2}, {0, 1}).Small("bias", kI32, {2}, {5, -6});
  b.Node("QuantizeLinear", {"x", "s", "z"}, "q");
  b.Node("DequantizeLinear", {"q", "s", "z"}, "d");
  OnnxBuilder::Attr(b.Node("DequantizeLinear", {"w", "ws", "wz"}, "wd"), "axis", int64_t{0});
  OnnxBuilder::Attr(b.Node("DequantizeLinear", {"bias", "ws"}, "bd"), "axis", int64_t{0});
  auto* conv = b.Node("Conv", {"d", "wd", "bd"}, "c");
  OnnxBuilder::Attr(conv, "pads", Shape{0, 0, 1, 1});
  b.Node("QuantizeLinear", {"c", "s", "z"}, "cq");
  b.Node("QLinearConv", {"cq", "s", "z", "w", "ws", "wz", "s", "z", "bias"}, "e");
  b.Node("ConvInteger", {"e", "w", "z", "wz"}, "i");
  b.Node("DequantizeLinear", {"i", "s"}, "y");
  b.Output("y", {1, 2, 5, 5});
  return b;
}

// What is computed from Shape decides about resizes, pads and the number of steps.
OnnxBuilder Sized() {
  OnnxBuilder b(17);
  b.Input("x", {2, 3, 6, 4}).Ints("zero", {0}).Ints("two", {2}).Ints("four", {4});
  b.Ints("three", {3}).Ints("none", {0, 0}).Ints("rest", {-1}).Ints("six", {6});
  b.Node("Shape", {"x"}, "s");
  b.Node("Gather", {"s", "zero"}, "n");
  b.Node("Slice", {"s", "two", "four"}, "hw");
  b.Node("Mul", {"hw", "two"}, "twice");
  OnnxBuilder::Attr(b.Node("Concat", {"n", "three", "twice"}, "sizes"), "axis", int64_t{0});
  OnnxBuilder::AttrText(b.Node("Resize", {"x", "", "", "sizes"}, "r"), "mode", "linear");
  b.Node("Sub", {"twice", "hw"}, "more");
  b.Node("Div", {"more", "two"}, "half");
  OnnxBuilder::Attr(b.Node("Concat", {"none", "half", "none", "half"}, "pads"), "axis", int64_t{0});
  b.Node("Pad", {"x", "pads"}, "p");
  b.Node("Add", {"r", "p"}, "a");
  b.Node("CumSum", {"a", "three"}, "c");
  b.Node("TopK", {"c", "two"}, "t")->add_output("places");
  OnnxBuilder::Attr(b.Node("Concat", {"n", "rest", "six"}, "rows"), "axis", int64_t{0});
  b.Node("Reshape", {"t", "rows"}, "list");
  OnnxBuilder::Attr(b.Node("Transpose", {"list"}, "steps"), "perm", Shape{1, 0, 2});
  b.Weight("w", {1, 8, 6}).Weight("u", {1, 8, 2});
  b.Node("LSTM", {"steps", "w", "u"}, "y");
  b.Output("y", {12, 1, 2, 2});
  return b;
}

TEST(OnnxImport, SizesDecideAboutOtherSizes) {
  const RefTensor x = tests::TensorOf({2, 3, 6, 4}, import_tests::Random(144, 1, 5));
  const std::vector<RefTensor> y = tests::EvaluateOnnx(Sized(), {x}, 1e-6);
  EXPECT_EQ(y[0].type.sizes(), (Shape{12, 1, 2, 2}));
  const std::set<std::string> open = tests::OperatorsWhenOpen(Sized());
  for (const char* row : {"pad", "counting", "gather", "recurrent"}) {
    EXPECT_TRUE(open.contains(row)) << row;
  }
}

// The model with open sizes: an error, or a graph that all passes take.
bool TakenWhenOpen(const std::string& bytes, ImportOptions options,
                   const GraphPassContext& context) {
  pb::ModelProto model;
  if (!model.ParseFromString(bytes)) return false;
  tests::OpenModel(&model, &options);
  const auto g = ImportOnnx(model.SerializeAsString(), options);
  if (!g.ok()) {
    EXPECT_FALSE(support::Slug(g.status()).empty()) << g.status();
    return false;
  }
  const auto fused = RunGraphPasses(*g, context);
  EXPECT_TRUE(fused.ok()) << fused.status() << "\n" << Print(*g);
  return fused.ok();
}

TEST(OnnxImport, SeededMutationsNeverCrash) {
  const std::string models[] = {Varied().Bytes(), Valid().Bytes(),
                                OnnxBuilder::Dqn(36, 2, 2, 2, 4).Bytes(), Quantized().Bytes(),
                                Sized().Bytes()};
  for (const std::string& model : models) {
    ASSERT_TRUE(ImportOnnx(model).ok()) << ImportOnnx(model).status();
  }
  ASSERT_TRUE(ImportOnnx(models[0]).ok()) << ImportOnnx(models[0]).status();
  Rng rng(tests::TestSeed());
  ImportOptions options;
  options.max_bytes = 1 << 20;
  GraphPassContext context;
  context.fold_max_flops = 1e6;
  context.fold_max_bytes = 1 << 16;
  const int64_t rounds = tests::TestRounds(24000);
  int64_t imported = 0, open = 0;
  for (int64_t round = 0; round < rounds; ++round) {
    std::string bytes = models[static_cast<size_t>(round) % std::size(models)];
    for (uint64_t edits = 1 + rng.Uniform(4); edits > 0 && !bytes.empty(); --edits) {
      const size_t at = rng.Uniform(bytes.size());
      switch (rng.Uniform(6)) {
        case 0:
          bytes.resize(at);
          break;
        case 1:
          bytes.erase(at, 1 + rng.Uniform(16));
          break;
        case 2:
          bytes.insert(at, bytes.substr(rng.Uniform(bytes.size()), rng.Uniform(64)));
          break;
        case 3:
          bytes[at] = static_cast<char>(rng.Uniform(256));
          break;
        default:
          bytes[at] = static_cast<char>(bytes[at] ^ (1 << rng.Uniform(8)));
      }
    }
    if (round % 3 == 0) open += TakenWhenOpen(bytes, options, context);
    ASSERT_FALSE(HasFailure()) << "round " << round;
    auto g = ImportOnnx(bytes, options);
    if (!g.ok()) {
      ASSERT_FALSE(support::Slug(g.status()).empty()) << g.status();
      continue;
    }
    ++imported;
    auto fused = RunGraphPasses(*g, context);
    ASSERT_TRUE(fused.ok()) << "round " << round << ": " << fused.status() << "\n" << Print(*g);
    ASSERT_TRUE(PlanMemory(*fused).ok());
  }
  std::printf("%lld of %lld mutated models still import, %lld with open sizes\n",
              static_cast<long long>(imported), static_cast<long long>(rounds),
              static_cast<long long>(open));
  EXPECT_GT(open, rounds / 600);
  EXPECT_GT(imported, rounds / 100);
  EXPECT_LT(imported, rounds);
}

}  // namespace
}  // namespace tilewright::graph
