// Import of sequences and optionals, which exist at import only: what is built, split, joined, and
// carried through loops, against numbers worked out by hand; refusals by slug.
#include <gtest/gtest.h>

#include "tests/unit/onnx_evaluate.h"

namespace tilewright::graph {
namespace {

using namespace import_tests;

std::vector<RefTensor> Evaluate(const OnnxBuilder& b, const std::vector<RefTensor>& inputs) {
  return tests::EvaluateOnnx(b, inputs, 0);
}

OnnxBuilder TwoTensors() {
  OnnxBuilder b(17);
  b.Input("x", {2}).Input("y", {2});
  b.Node("SequenceConstruct", {"x", "y"}, "s");
  return b;
}
const std::vector<RefTensor>& TwoInputs() {
  static const auto* const inputs =
      new std::vector<RefTensor>{TensorOf({2}, {1, 2}), TensorOf({2}, {3, 4})};
  return *inputs;
}

TEST(OnnxSequence, InsertEraseAtAndLength) {
  OnnxBuilder b = TwoTensors();
  b.Ints("first", {0}).Ints("last", {-1}).Output("a", {2}).Output("e", {2}).Output("n", {}, kInt64);
  b.Node("Neg", {"x"}, "z");
  b.Node("SequenceInsert", {"s", "z", "first"}, "three");  // -x, x, y
  b.Node("SequenceInsert", {"three", "z"}, "four");        // -x, x, y, -x
  b.Node("SequenceErase", {"four", "first"}, "left");      // x, y, -x
  b.Node("SequenceErase", {"left"}, "two");                // x, y
  b.Node("SequenceAt", {"left", "last"}, "a");
  b.Node("SequenceAt", {"two", "last"}, "e");
  b.Node("SequenceLength", {"four"}, "n");
  const auto out = Evaluate(b, TwoInputs());
  EXPECT_EQ(out[0].values, (Numbers{-1, -2}));
  EXPECT_EQ(out[1].values, (Numbers{3, 4}));
  EXPECT_EQ(out[2].values, (Numbers{4}));
}

// The tensor is the same in each turn, the other sequence gives one for each.
TEST(OnnxSequence, MapRunsASubgraphForEachTensor) {
  OnnxBuilder b = TwoTensors();
  b.Output("sums", {4}).Output("products", {2, 2}).Output("lengths", {2}, kInt64);
  b.Node("SequenceConstruct", {"y", "x"}, "other");
  pb::NodeProto* node = b.Node("SequenceMap", {"s", "x", "other"}, "added");
  node->add_output("multiplied");
  node->add_output("shapes");
  AddBody(node, "body", {"one", "same", "two"}, {"a", "m", "l"}, [](OnnxBuilder& body) {
    body.Node("Add", {"one", "same"}, "a");
    body.Node("Mul", {"one", "two"}, "m");
    body.Node("Shape", {"one"}, "l");
  });
  const auto join = [&](const std::string& list, const std::string& name, int64_t stack) {
    pb::NodeProto* joined = b.Node("ConcatFromSequence", {list}, name);
    OnnxBuilder::Attr(joined, "axis", int64_t{0});
    OnnxBuilder::Attr(joined, "new_axis", stack);
  };
  join("added", "sums", 0);
  join("multiplied", "products", 1);
  join("shapes", "lengths", 0);
  const auto out = Evaluate(b, TwoInputs());
  EXPECT_EQ(out[0].values, (Numbers{2, 4, 4, 6}));
  EXPECT_EQ(out[1].values, (Numbers{3, 8, 3, 8}));
  EXPECT_EQ(out[2].values, (Numbers{2, 2}));
}

TEST(OnnxSequence, MapRefusesOtherOperands) {
  const auto model = [](const std::vector<std::string>& inputs) {
    OnnxBuilder b = TwoTensors();
    b.Output("n", {}, kInt64);
    b.Node("SequenceConstruct", {"x"}, "short");
    pb::NodeProto* node = b.Node("SequenceMap", inputs, "r");
    AddBody(node, "body", {"one", "two"}, {"a"},
            [](OnnxBuilder& body) { body.Node("Add", {"one", "two"}, "a"); });
    b.Node("SequenceLength", {"r"}, "n");
    return b;
  };
  EXPECT_EQ(Slug(model({"s", "x"})), "");
  EXPECT_EQ(Slug(model({"x", "x"})), "graph.onnx.type");
  EXPECT_EQ(Slug(model({"s", "short"})), "graph.onnx.shape");
  EXPECT_EQ(Slug(model({"s"})), "graph.onnx.inputs");
}

TEST(OnnxSequence, ConcatenatesAndStacks) {
  for (const auto& [stack, axis, shape, expected] :
       {std::tuple(0, 0, Shape{4}, Numbers{1, 2, 3, 4}),
        std::tuple(1, 0, Shape{2, 2}, Numbers{1, 2, 3, 4}),
        std::tuple(1, -1, Shape{2, 2}, Numbers{1, 3, 2, 4})}) {
    OnnxBuilder b = TwoTensors();
    b.Output("r", shape);
    pb::NodeProto* node = b.Node("ConcatFromSequence", {"s"}, "r");
    OnnxBuilder::Attr(node, "axis", int64_t{axis});
    OnnxBuilder::Attr(node, "new_axis", int64_t{stack});
    const auto out = Evaluate(b, TwoInputs());
    EXPECT_EQ(out[0].type.sizes(), shape);
    EXPECT_EQ(out[0].values, expected);
  }
}

// The part at `position` of x [2,5] split along its second dimension.
RefTensor Part(const std::vector<int64_t>& sizes, bool list, int64_t keepdims, int64_t position,
               const Shape& shape) {
  OnnxBuilder b(17);
  b.Input("x", {2, 5}).Ints("position", {position}).Output("y", shape);
  b.Ints("sizes", sizes);
  if (!list) b.graph().mutable_initializer(1)->clear_dims();
  pb::NodeProto* node = b.Node("SplitToSequence", {"x"}, "s");
  if (!sizes.empty()) node->add_input("sizes");
  OnnxBuilder::Attr(node, "axis", int64_t{1});
  OnnxBuilder::Attr(node, "keepdims", keepdims);
  b.Node("SequenceAt", {"s", "position"}, "y");
  return Evaluate(b, {TensorOf({2, 5}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9})})[0];
}

TEST(OnnxSequence, SplitsByListSizeAndOnes) {
  EXPECT_EQ(Part({1, 4}, true, 1, 1, {2, 4}).values, (Numbers{1, 2, 3, 4, 6, 7, 8, 9}));
  EXPECT_EQ(Part({2}, false, 1, 2, {2, 1}).values, (Numbers{4, 9}));
  EXPECT_EQ(Part({2}, false, 0, 0, {2, 2}).values, (Numbers{0, 1, 5, 6}));
  EXPECT_EQ(Part({}, true, 0, -2, {2}).values, (Numbers{3, 8}));
  EXPECT_EQ(Part({}, true, 1, 3, {2, 1}).values, (Numbers{3, 8}));
  EXPECT_EQ(Part({5}, true, 1, 0, {2, 5}).type.sizes(), (Shape{2, 5}));
}

// As PyTorch exports a list that a loop appends to.
TEST(OnnxSequence, ALoopAppends) {
  OnnxBuilder b(17);
  b.Input("x", {2}).Ints("trips", {3}).Output("y", {3, 2});
  b.Node("SequenceEmpty", {}, "none");
  pb::NodeProto* node = b.Node("Loop", {"trips", "", "x", "none"}, "last");
  node->add_output("all");
  OnnxBuilder body;
  for (const char* name : {"i", "c", "v", "list"}) body.graph().add_input()->set_name(name);
  body.Node("Add", {"v", "v"}, "next");
  body.Node("SequenceInsert", {"list", "next"}, "longer");
  for (const char* name : {"c", "next", "longer"}) body.graph().add_output()->set_name(name);
  pb::AttributeProto* attribute = node->add_attribute();
  attribute->set_name("body");
  attribute->set_type(pb::AttributeProto::GRAPH);
  *attribute->mutable_g() = body.graph();
  pb::NodeProto* join = b.Node("ConcatFromSequence", {"all"}, "y");
  OnnxBuilder::Attr(join, "axis", int64_t{0});
  OnnxBuilder::Attr(join, "new_axis", int64_t{1});
  EXPECT_EQ(Evaluate(b, {TensorOf({2}, {1, 3})})[0].values, (Numbers{2, 6, 4, 12, 8, 24}));
}

TEST(OnnxOptional, HasAndGivesItsElement) {
  OnnxBuilder b(18);
  b.Input("x", {2}).Output("y", {2}).Output("some", {}, kBool).Output("none", {}, kBool);
  b.Node("Optional", {"x"}, "o");
  b.Node("Optional", {}, "empty");
  b.Node("Identity", {"empty"}, "same");
  b.Node("OptionalGetElement", {"o"}, "e");
  b.Node("Neg", {"e"}, "y");
  b.Node("OptionalHasElement", {"o"}, "some");
  b.Node("OptionalHasElement", {"same"}, "none");
  const auto out = Evaluate(b, {TensorOf({2}, {1, 3})});
  EXPECT_EQ(out[0].values, (Numbers{-1, -3}));
  EXPECT_EQ(out[1].values, (Numbers{1}));
  EXPECT_EQ(out[2].values, (Numbers{0}));
  OnnxBuilder nothing(18);
  nothing.Node("Optional", {}, "empty");
  nothing.Node("OptionalGetElement", {"empty"}, "y");
  nothing.Output("y", {2});
  EXPECT_EQ(Slug(nothing), "graph.onnx.inputs");
}

TEST(OnnxSequence, Refusals) {
  OnnxBuilder tensor = TwoTensors();  // an operator that takes tensors
  tensor.Node("Relu", {"s"}, "r");
  tensor.Output("r", {2});
  EXPECT_EQ(Slug(tensor), "graph.onnx.type");
  OnnxBuilder output = TwoTensors();
  output.graph().add_output()->set_name("s");
  EXPECT_EQ(Slug(output), "graph.onnx.output_type");
  OnnxBuilder nested = TwoTensors();
  nested.Node("SequenceInsert", {"s", "s"}, "t");
  nested.Node("SequenceLength", {"t"}, "n");
  nested.Output("n", {}, kInt64);
  EXPECT_EQ(Slug(nested), "graph.onnx.type");
  OnnxBuilder far = TwoTensors();
  far.Ints("two", {2}).Node("SequenceAt", {"s", "two"}, "r");
  far.Output("r", {2});
  EXPECT_EQ(Slug(far), "graph.onnx.position");
  OnnxBuilder dynamic = TwoTensors();
  dynamic.Input("i", {}, kInt64).Node("SequenceAt", {"s", "i"}, "r");
  dynamic.Output("r", {2});
  EXPECT_EQ(Slug(dynamic), "graph.onnx.dynamic");
  OnnxBuilder sizes(17);
  sizes.Input("x", {4}).Ints("sizes", {1, 2}).Output("n", {}, kInt64);
  sizes.Node("SplitToSequence", {"x", "sizes"}, "s");
  sizes.Node("SequenceLength", {"s"}, "n");
  EXPECT_EQ(Slug(sizes), "graph.onnx.shape");
}

}  // namespace
}  // namespace tilewright::graph
