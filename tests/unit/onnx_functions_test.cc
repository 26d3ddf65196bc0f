// Functions that a model brings with it: their bodies take the place of the calls, and compute what
// was worked out by hand.
#include <gtest/gtest.h>

#include <string>

#include "tests/unit/onnx_evaluate.h"

namespace tilewright::graph {
namespace {

using namespace import_tests;

pb::FunctionProto* AddFunction(OnnxBuilder* b, const std::string& name,
                               const std::vector<std::string>& inputs,
                               const std::vector<std::string>& outputs) {
  pb::FunctionProto* function = b->model().add_functions();
  function->set_name(name);
  function->set_domain("local");
  for (const std::string& input : inputs) function->add_input(input);
  for (const std::string& output : outputs) function->add_output(output);
  return function;
}

pb::NodeProto* AddNode(pb::FunctionProto* function, const std::string& op,
                       const std::vector<std::string>& inputs, const std::string& output,
                       const std::string& domain = "") {
  pb::NodeProto* node = function->add_node();
  node->set_op_type(op);
  node->set_domain(domain);
  for (const std::string& input : inputs) node->add_input(input);
  node->add_output(output);
  return node;
}

pb::NodeProto* Call(OnnxBuilder* b, const std::string& function,
                    const std::vector<std::string>& inputs, const std::string& output) {
  pb::NodeProto* node = b->Node(function, inputs, output);
  node->set_domain("local");
  return node;
}

// y = x * w + bias; the bias is an attribute of the call.
void AddAffine(OnnxBuilder* b) {
  pb::FunctionProto* affine = AddFunction(b, "Affine", {"x", "w"}, {"y"});
  AddNode(affine, "Mul", {"x", "w"}, "t");
  pb::AttributeProto* value = AddNode(affine, "Constant", {}, "c")->add_attribute();
  value->set_name("value_float");
  value->set_type(pb::AttributeProto::FLOAT);
  value->set_ref_attr_name("bias");
  AddNode(affine, "Add", {"t", "c"}, "y");
}

void SetBias(pb::NodeProto* node, float bias) { OnnxBuilder::AttrFloat(node, "bias", bias); }

OnnxBuilder Model() {
  OnnxBuilder b(13);
  b.Input("x", {2}).Input("w", {2}).Output("y", {2});
  return b;
}

Numbers Computed(const OnnxBuilder& b) {
  return tests::EvaluateOnnx(b, {TensorOf({2}, {1, 2}), TensorOf({2}, {3, 5})}, 0)[0].values;
}

TEST(OnnxFunctions, BodiesTakeThePlaceOfCalls) {
  OnnxBuilder b = Model();
  AddAffine(&b);
  SetBias(Call(&b, "Affine", {"x", "w"}, "a"), 1);  // 4, 11
  SetBias(Call(&b, "Affine", {"a", "x"}, "y"), -2);
  EXPECT_EQ(Computed(b), (Numbers{2, 20}));
}

TEST(OnnxFunctions, CallOthersAndPassInputsOn) {
  OnnxBuilder b = Model();
  AddAffine(&b);
  pb::FunctionProto* twice = AddFunction(&b, "Twice", {"p", "q"}, {"r", "p"});
  SetBias(AddNode(twice, "Affine", {"p", "q"}, "t", "local"), 1);
  SetBias(AddNode(twice, "Affine", {"t", "q"}, "r", "local"), 1);
  Call(&b, "Twice", {"x", "w"}, "r")->add_output("same");
  b.Node("Sub", {"r", "same"}, "y");
  EXPECT_EQ(Computed(b), (Numbers{4 * 3 + 1 - 1, 11 * 5 + 1 - 2}));
}

TEST(OnnxFunctions, OptionalOperandsMayBeLeftOut) {
  OnnxBuilder b = Model();
  pb::FunctionProto* bound = AddFunction(&b, "Bound", {"v", "low", "high"}, {"o"});
  AddNode(bound, "Clip", {"v", "low", "high"}, "o");
  b.Scalar("four", 4);
  Call(&b, "Bound", {"w", "", "four"}, "y");
  EXPECT_EQ(Computed(b), (Numbers{3, 4}));
  OnnxBuilder fewer = Model();
  *fewer.model().add_functions() = *bound;
  Call(&fewer, "Bound", {"w"}, "y");
  EXPECT_EQ(Computed(fewer), (Numbers{3, 5}));
}

TEST(OnnxFunctions, SubgraphsReadTheBodyAround) {
  OnnxBuilder b = Model();
  pb::FunctionProto* choose = AddFunction(&b, "Choose", {"c", "v"}, {"o"});
  AddNode(choose, "Neg", {"v"}, "minus");
  pb::NodeProto* node = AddNode(choose, "If", {"c"}, "o");
  AddBody(node, "then_branch", {}, {"t"}, [](OnnxBuilder& g) { g.Node("Add", {"v", "v"}, "t"); });
  AddBody(node, "else_branch", {}, {"e"},
          [](OnnxBuilder& g) { g.Node("Mul", {"minus", "v"}, "e"); });
  b.Small("no", kBool, {1}, {0}).Small("yes", kBool, {1}, {1});
  Call(&b, "Choose", {"no", "x"}, "a");
  Call(&b, "Choose", {"yes", "w"}, "d");
  b.Node("Add", {"a", "d"}, "y");
  EXPECT_EQ(Computed(b), (Numbers{-1 + 6, -4 + 10}));
}

// attribute_proto, a field of newer versions of the format.
TEST(OnnxFunctions, AttributesHaveDefaults) {
  OnnxBuilder b = Model();
  AddAffine(&b);
  pb::NodeProto bias;
  SetBias(&bias, 7);
  pb::FunctionProto* affine = b.model().mutable_functions(0);
  affine->GetReflection()->MutableUnknownFields(affine)->AddLengthDelimited(
      11, bias.attribute(0).SerializeAsString());
  Call(&b, "Affine", {"x", "w"}, "y");
  EXPECT_EQ(Computed(b), (Numbers{10, 17}));
}

TEST(OnnxFunctions, KnownOperatorsAreOurs) {
  OnnxBuilder b = Model();
  pb::FunctionProto* relu = AddFunction(&b, "Relu", {"v"}, {"o"});
  relu->set_domain("");
  AddNode(relu, "Neg", {"v"}, "o");
  b.Node("Relu", {"x"}, "y");
  EXPECT_EQ(Computed(b), (Numbers{1, 2}));
}

TEST(OnnxFunctions, RefusesRecursionOtherOpsetsAndBombs) {
  OnnxBuilder recursion = Model();
  AddNode(AddFunction(&recursion, "Self", {"v"}, {"o"}), "Self", {"v"}, "o", "local");
  Call(&recursion, "Self", {"x"}, "y");
  EXPECT_EQ(Slug(recursion), "graph.onnx.function");

  OnnxBuilder old = Model();
  AddAffine(&old);
  old.model().mutable_functions(0)->add_opset_import()->set_version(9);
  SetBias(Call(&old, "Affine", {"x", "w"}, "y"), 1);
  EXPECT_EQ(Slug(old), "graph.onnx.function");

  OnnxBuilder bomb = Model();
  for (int level = 0; level < 40; ++level) {
    const std::string name = "f" + std::to_string(level), next = "f" + std::to_string(level + 1);
    pb::FunctionProto* function = AddFunction(&bomb, name, {"v"}, {"o"});
    AddNode(function, next, {"v"}, "t", "local");
    AddNode(function, next, {"t"}, "o", "local");
  }
  AddNode(AddFunction(&bomb, "f40", {"v"}, {"o"}), "Neg", {"v"}, "o");
  Call(&bomb, "f0", {"x"}, "y");
  EXPECT_EQ(Slug(bomb), "graph.onnx.function");

  // A long name that many operands of a body become.
  OnnxBuilder names = Model();
  pb::NodeProto* many = AddNode(AddFunction(&names, "Many", {"v"}, {"o"}), "Sum", {}, "o");
  for (int i = 0; i < 100000; ++i) many->add_input("v");
  Call(&names, "Many", {std::string(100000, 'x')}, "y");
  EXPECT_EQ(Slug(names), "graph.onnx.function");
}

}  // namespace
}  // namespace tilewright::graph
