// The import that does not stop at the first error: each kind of problem with its places, what
// hides behind one, and that it finds something exactly where the import fails.
#include "compiler/onnx/onnx_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "compiler/graph/graph.h"
#include "compiler/onnx/onnx_import.h"
#include "deploy/support/status.h"
#include "tests/unit/onnx_builder.h"

namespace tilewright::graph {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using tests::OnnxBuilder;
namespace pb = ::tilewright_onnx;

ImportCheck Check(const OnnxBuilder& b, const ImportOptions& options = {}) {
  auto check = CheckOnnx(b.Bytes(), options);
  EXPECT_TRUE(check.ok()) << check.status();
  // It finds a problem exactly where the import does.
  EXPECT_EQ(check->problems.empty(), ImportOnnx(b.Bytes(), options).ok());
  return check.ok() ? *std::move(check) : ImportCheck();
}

std::vector<std::string> Slugs(const ImportCheck& check) {
  std::vector<std::string> slugs;
  for (const ImportProblem& problem : check.problems) slugs.push_back(problem.slug);
  return slugs;
}

pb::TensorShapeProto::Dimension* Dim(OnnxBuilder& b, int input, int d) {
  auto* type = b.graph().mutable_input(input)->mutable_type()->mutable_tensor_type();
  return type->mutable_shape()->mutable_dim(d);
}

void State(OnnxBuilder& b, const std::string& name, const std::vector<int64_t>& shape, int type) {
  pb::ValueInfoProto* info = b.graph().add_value_info();
  info->set_name(name);
  auto* tensor = info->mutable_type()->mutable_tensor_type();
  tensor->set_elem_type(type);
  for (const int64_t dim : shape) tensor->mutable_shape()->add_dim()->set_dim_value(dim);
}

TEST(OnnxCheck, AGoodModelHasNoProblems) {
  const ImportCheck check = Check(OnnxBuilder::Dqn(36, 8, 8, 8, 16));
  EXPECT_THAT(check.problems, IsEmpty());
  EXPECT_EQ(check.opset, 13);
  EXPECT_EQ(check.operators.at("Conv"), 3);
  EXPECT_EQ(check.unchecked_nodes, 0);
}

TEST(OnnxCheck, UnsupportedOperatorsWithTheirNodesAndCounts) {
  OnnxBuilder b;
  b.Input("x", {1, 4}).Output("y", {1, 4});
  b.Node("StringNormalizer", {"x"}, "e1");
  b.Node("StringNormalizer", {"e1"}, "e2");
  b.Node("Relu", {"e2"}, "r");
  b.Node("Thing", {"r"}, "y")->set_domain("com.example");
  const ImportCheck check = Check(b);
  ASSERT_THAT(Slugs(check),
              ElementsAre("graph.onnx.unsupported_operator", "graph.onnx.unsupported_operator"));
  EXPECT_EQ(check.problems[0].what, "StringNormalizer");
  EXPECT_THAT(check.problems[0].where,
              ElementsAre("node \"e1\" (StringNormalizer)", "node \"e2\" (StringNormalizer)"));
  EXPECT_EQ(check.problems[1].what, "Thing of com.example");
  EXPECT_EQ(check.unchecked_nodes, 1) << "the type of Relu's operand is not known";
}

TEST(OnnxCheck, WhatTheModelStatesOfAValueLetsTheRestBeChecked) {
  OnnxBuilder b;
  b.Input("x", {1, 4}).Output("y", {1, 4});
  b.Node("StringNormalizer", {"x"}, "e");
  OnnxBuilder::AttrText(b.Node("Gelu", {"e"}, "y"), "approximate", "fast");
  EXPECT_THAT(Slugs(Check(b)), ElementsAre("graph.onnx.unsupported_operator"));
  State(b, "e", {1, 4}, pb::TensorProto::FLOAT);
  const ImportCheck check = Check(b);
  EXPECT_THAT(Slugs(check), ElementsAre("graph.onnx.unsupported_operator", "graph.onnx.attribute"));
  EXPECT_EQ(check.problems[1].what, "Gelu");
  EXPECT_THAT(check.problems[1].detail, HasSubstr("found fast"));
  EXPECT_THAT(check.problems[1].detail, Not(HasSubstr("node"))) << "the place is in `where`";
  EXPECT_EQ(check.unchecked_nodes, 0);
}

TEST(OnnxCheck, AllDynamicInputsWithTheFlagsToGive) {
  OnnxBuilder b;
  b.Input("ids", {1, 7}).Input("mask", {1, 7}).Input("image", {1, 3, 8, 8}).Output("y", {1, 7});
  for (const int input : {0, 1}) {
    Dim(b, input, 0)->set_dim_param("batch");
    Dim(b, input, 1)->set_dim_param("my seq");
  }
  Dim(b, 2, 0)->set_dim_value(-1);  // as Paddle writes it
  Dim(b, 2, 2)->clear_dim_value();
  b.Node("Add", {"ids", "mask"}, "y");
  const ImportCheck check = Check(b);
  ASSERT_THAT(Slugs(check), ElementsAre("graph.onnx.symbolic_shape"));
  EXPECT_EQ(check.problems[0].what,
            "--shape batch=N --shape image_0=N --shape image_2=N --shape 'my seq=N'");
  EXPECT_THAT(check.problems[0].where,
              ElementsAre("\"ids\" [batch,my?seq]", "\"mask\" [batch,my?seq]",
                          "\"image\" [image_0,3,image_2,8]"));
  EXPECT_EQ(check.unchecked_nodes, 1);
  // The import says the same, of all of them.
  const std::string text(ImportOnnx(b.Bytes()).status().message());
  EXPECT_THAT(text, HasSubstr("3 others"));
  EXPECT_THAT(text, HasSubstr(check.problems[0].what));
  ImportOptions options;
  options.shapes = {{"batch", {2}}, {"my seq", {7}}, {"image", {2, 3, 8, 8}}};
  b.graph().mutable_output(0)->mutable_type()->mutable_tensor_type()->clear_shape();
  EXPECT_THAT(Check(b, options).problems, IsEmpty());
}

TEST(OnnxCheck, AnOutputMayStateThatItsSizesAreOpen) {
  OnnxBuilder b;
  b.Input("x", {-1, 4}).Output("y", {-1, 4});
  b.Node("Relu", {"x"}, "y");
  EXPECT_THAT(Slugs(Check(b)), ElementsAre("graph.onnx.symbolic_shape"));
  ImportOptions options;
  options.shapes["x"] = {3, 4};
  EXPECT_THAT(Check(b, options).problems, IsEmpty());
}

TEST(OnnxCheck, ExternalDataByFile) {
  OnnxBuilder b;
  b.Input("x", {1, 64}).Output("y", {1, 8}).Weight("w", {64, 8}).Weight("k", {8}).Weight("z", {9});
  for (int i = 0; i < 3; ++i) {
    pb::TensorProto* tensor = b.graph().mutable_initializer(i);
    tensor->clear_float_data();
    tensor->set_data_location(pb::TensorProto::EXTERNAL);
    auto* entry = tensor->add_external_data();
    entry->set_key("location");
    entry->set_value("w.bin");
  }
  b.Node("MatMul", {"x", "w"}, "m");
  b.Node("StringNormalizer", {"m"}, "e");
  b.Node("Add", {"e", "k"}, "y");
  const ImportCheck check = Check(b);
  ASSERT_THAT(Slugs(check),
              ElementsAre("graph.onnx.external_data", "graph.onnx.unsupported_operator"));
  EXPECT_EQ(check.problems[0].what, "w.bin");
  EXPECT_THAT(check.problems[0].where, ElementsAre("\"w\"", "\"k\"")) << "nothing reads z";
  // The large one has a type, so that the product is checked; the small one might be a shape.
  EXPECT_EQ(check.unchecked_nodes, 1);
  b.graph().mutable_node(0)->set_input(0, "w");
  EXPECT_THAT(Slugs(Check(b)), ElementsAre("graph.onnx.external_data",
                                           "graph.onnx.unsupported_operator", "op.dense.shape"));
}

TEST(OnnxCheck, OtherTypesOpsetAndOptions) {
  OnnxBuilder b(99);
  b.Input("x", {1, 4}).Input("s", {1}, pb::TensorProto::STRING).Output("y", {1, 4});
  b.Node("Relu", {"x"}, "y");
  ImportOptions options;
  options.shapes["nonesuch"] = {1};
  const ImportCheck check = Check(b, options);
  ASSERT_THAT(Slugs(check), ElementsAre("graph.onnx.opset", "graph.onnx.shape_override",
                                        "graph.onnx.element_type"));
  EXPECT_EQ(check.problems[2].what, "string");
  EXPECT_THAT(check.problems[2].detail, HasSubstr("found string"));
  EXPECT_THAT(check.problems[2].where, ElementsAre("\"s\""));
}

TEST(OnnxCheck, BytesThatAreNoModelAreAnError) {
  EXPECT_EQ(support::Slug(CheckOnnx("no model").status()), "graph.onnx.not_onnx");
}

TEST(OnnxSupport, HasTheRowsOfTheTables) {
  const OnnxSupport support = SupportedOnnx();
  const auto has = [&](const std::string& name, const std::string& domain) {
    for (const SupportedOperator& row : support.operators) {
      if (row.name == name && row.domain == domain) return true;
    }
    return false;
  };
  EXPECT_TRUE(has("Conv", ""));
  EXPECT_TRUE(has("Relu", "")) << "an elementwise row";
  EXPECT_TRUE(has("QLinearAdd", "com.microsoft"));
  EXPECT_FALSE(has("StringNormalizer", ""));
  EXPECT_THAT(support.element_types,
              ElementsAre("float", "double", "int8", "uint8", "int16", "uint16", "int32", "int64",
                          "uint32", "uint64", "float16", "bfloat16", "bool"));
}

}  // namespace
}  // namespace tilewright::graph
