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

// A list of one tensor, to which each of as many trips as a run says appends two.
OnnxBuilder AppendedByARun() {
  OnnxBuilder b(17);
  b.Input("x", {2}).Input("trips", {}, kInt64);
  b.Node("SequenceConstruct", {"x"}, "one");
  pb::NodeProto* node = b.Node("Loop", {"trips", "", "x", "one"}, "last");
  node->add_output("all");
  AddBody(node, "body", {"i", "c", "v", "list"}, {"c", "next", "longest"}, [](OnnxBuilder& g) {
    g.Node("Add", {"v", "v"}, "next");
    g.Node("Neg", {"next"}, "less");
    g.Node("SequenceInsert", {"list", "next"}, "longer");
    g.Node("SequenceInsert", {"longer", "less"}, "longest");
  });
  return b;
}

TEST(OnnxSequence, ALoopThatARunEndsAppends) {
  OnnxBuilder b = AppendedByARun();
  for (const char* name : {"rows", "n", "end"}) b.graph().add_output()->set_name(name);
  pb::NodeProto* join = b.Node("ConcatFromSequence", {"all"}, "rows");
  OnnxBuilder::Attr(join, "axis", int64_t{1});
  OnnxBuilder::Attr(join, "new_axis", int64_t{1});
  b.Node("SequenceLength", {"all"}, "n");
  b.Ints("behind", {-2}).Node("SequenceAt", {"all", "behind"}, "end");
  ImportOptions options;
  options.open["all_0"] = {0, 4};  // trips
  const auto runs = [&](double trips, const Numbers& rows, const Numbers& end) {
    const Shape shape = {2, static_cast<int64_t>(rows.size()) / 2};
    ExpectRuns(b, options, {TensorOf({2}, {1, 3}), TensorOf({}, {trips}, ir::kI64)},
               {{shape, rows}, {{}, {2 * trips + 1}}, {{2}, end}});
  };
  runs(2, {1, 2, -2, 4, -4, 3, 6, -6, 12, -12}, {4, 12});
  runs(1, {1, 2, -2, 3, 6, -6}, {2, 6});
  const auto empty = Interpret(*ImportOnnx(b.Bytes(), options),
                               {TensorOf({2}, {1, 3}), TensorOf({}, {0}, ir::kI64)});
  EXPECT_EQ(support::Slug(empty.status()), "graph.interp.stated_shape") << "one tensor, not two";
}

TEST(OnnxSequence, JoinsAndAppendsBehindSuchALoop) {
  OnnxBuilder b = AppendedByARun();
  b.graph().add_output()->set_name("y");
  b.Node("SequenceInsert", {"all", "last"}, "more");
  AddBody(b.Node("SequenceMap", {"more", "x"}, "sums"), "body", {"item", "same"}, {"sum"},
          [](OnnxBuilder& g) { g.Node("Add", {"item", "same"}, "sum"); });
  OnnxBuilder::Attr(b.Node("ConcatFromSequence", {"sums"}, "y"), "axis", int64_t{0});
  ImportOptions options;
  options.open["all_0"] = {0, 4};
  ExpectRuns(b, options, {TensorOf({2}, {1, 3}), TensorOf({}, {1}, ir::kI64)},
             {{{8}, {2, 6, 3, 9, -1, -3, 3, 9}}});
  OnnxBuilder erased = AppendedByARun();
  erased.Output("n", {}, kInt64);
  erased.Node("SequenceErase", {"all"}, "fewer");
  erased.Node("SequenceLength", {"fewer"}, "n");
  const auto refused = ImportOnnx(erased.Bytes(), options);
  EXPECT_EQ(support::Slug(refused.status()), "graph.onnx.open_size");
}

// As PyTorch exports a loop over x.unbind(0).
TEST(OnnxSequence, ALoopReadsPartsOfAnOpenSize) {
  OnnxBuilder b(17);
  b.Input("x", {4, 2}).Ints("one", {1}).Output("y", {4, 2}).Output("n", {}, kInt64);
  AddNumber(b, "single", 1);
  OnnxBuilder::Attr(b.Node("SplitToSequence", {"x", "single"}, "parts"), "keepdims", int64_t{0});
  b.Node("SequenceLength", {"parts"}, "n");
  b.Node("SequenceEmpty", {}, "none");
  b.Ints("first", {0}).Node("SequenceAt", {"parts", "first"}, "begin");
  b.Node("Sub", {"n", "single"}, "before");  // a position that depends on the size
  b.Output("tail", {2}).Node("SequenceAt", {"parts", "before"}, "tail");
  pb::NodeProto* node = b.Node("Loop", {"n", "", "begin", "none", "parts"}, "last");
  for (const char* name : {"all", "same"}) node->add_output(name);
  AddBody(node, "body", {"i", "c", "h", "list", "kept"}, {"c", "next", "longer", "kept"},
          [](OnnxBuilder& g) {
            g.Node("SequenceAt", {"kept", "i"}, "part");
            g.Node("Add", {"h", "part"}, "next");
            g.Node("SequenceInsert", {"list", "next"}, "longer");
          });
  pb::NodeProto* join = b.Node("ConcatFromSequence", {"all"}, "y");
  OnnxBuilder::Attr(join, "axis", int64_t{0});
  OnnxBuilder::Attr(join, "new_axis", int64_t{1});
  const auto out = Evaluate(b, {TensorOf({4, 2}, {1, 2, 3, 4, 5, 6, 7, 8})});
  EXPECT_EQ(out[0].values, (Numbers{2, 4, 5, 8, 10, 14, 17, 22}));
  EXPECT_EQ(out[1].values, (Numbers{4}));
  EXPECT_EQ(out[2].values, (Numbers{7, 8}));
  EXPECT_TRUE(tests::OperatorsWhenOpen(b, {2}).contains("loop_end"));
}

// if (flag) the list with `yes` behind it, else with `no`, in each trip of a loop that a run ends.
OnnxBuilder AppendedByBranches(const char* then_op, bool both) {
  OnnxBuilder b(17);
  b.Input("x", {4, 2}).Input("trips", {}, kInt64);
  b.Node("SequenceEmpty", {}, "none");
  AddBody(b.Node("Loop", {"trips", "", "none"}, "all"), "body", {"i", "c", "list"}, {"c", "longer"},
          [&](OnnxBuilder& g) {
            AddNumber(g, "zero", 0);
            AddNumber(g, "two", 2);
            g.Node("Gather", {"x", "i"}, "row");
            g.Node("Mod", {"i", "two"}, "odd");
            g.Node("Equal", {"odd", "zero"}, "even");
            pb::NodeProto* node = g.Node("If", {"even"}, "longer");
            AddBody(node, "then_branch", {}, {"t"}, [&](OnnxBuilder& branch) {
              branch.Node(then_op, {"row"}, "made");
              branch.Node("SequenceInsert", {"list", "made"}, "t");
            });
            AddBody(node, "else_branch", {}, {both ? "e" : "list"}, [](OnnxBuilder& branch) {
              branch.Node("SequenceInsert", {"list", "row"}, "e");
            });
          });
  b.graph().add_output()->set_name("y");
  OnnxBuilder::Attr(b.Node("ConcatFromSequence", {"all"}, "y"), "axis", int64_t{0});
  return b;
}

TEST(OnnxSequence, BranchesMayAppend) {
  ImportOptions options;
  options.open["all_0"] = {0, 4};
  const OnnxBuilder b = AppendedByBranches("Neg", true);
  ExpectRuns(b, options, {TensorOf({4, 2}, {1, 2, 3, 4, 5, 6, 7, 8}), TensorOf({}, {3}, ir::kI64)},
             {{{6}, {-1, -2, 3, 4, -5, -6}}});
  // How many there are is data.
  ExpectRuns(AppendedByBranches("Neg", false), options,
             {TensorOf({4, 2}, {1, 2, 3, 4, 5, 6, 7, 8}), TensorOf({}, {3}, ir::kI64)},
             {{{4}, {-1, -2, -5, -6}}});
}

TEST(OnnxSequence, ARunChoosesASequence) {
  OnnxBuilder b = TwoTensors();
  b.Input("c", {}, kBool).Output("r", {4});
  pb::NodeProto* node = b.Node("If", {"c"}, "chosen");
  AddBody(node, "then_branch", {}, {"s"}, [](OnnxBuilder&) {});
  AddBody(node, "else_branch", {}, {"turned"},
          [](OnnxBuilder& g) { g.Node("SequenceConstruct", {"y", "x"}, "turned"); });
  OnnxBuilder::Attr(b.Node("ConcatFromSequence", {"chosen"}, "r"), "axis", int64_t{0});
  for (const double c : {0.0, 1.0}) {
    std::vector<RefTensor> inputs = TwoInputs();
    inputs.push_back(TensorOf({}, {c}, ir::kBool));
    EXPECT_EQ(Evaluate(b, inputs)[0].values,
              c == 1 ? (Numbers{1, 2, 3, 4}) : (Numbers{3, 4, 1, 2}));
  }
}

TEST(OnnxSequence, WaysMayMakeListsOfOtherLengths) {
  OnnxBuilder b = TwoTensors();
  b.Input("c", {}, kBool).Output("n", {}, kInt64);
  b.graph().add_output()->set_name("r");
  pb::NodeProto* node = b.Node("If", {"c"}, "chosen");
  AddBody(node, "then_branch", {}, {"longer"}, [](OnnxBuilder& g) {
    g.Node("SequenceInsert", {"s", "x"}, "more");
    g.Node("SequenceInsert", {"more", "y"}, "longer");
  });
  AddBody(node, "else_branch", {}, {"none"},
          [](OnnxBuilder& g) { g.Node("SequenceErase", {"s"}, "none"); });
  b.Node("SequenceLength", {"chosen"}, "n");
  OnnxBuilder::Attr(b.Node("ConcatFromSequence", {"chosen"}, "r"), "axis", int64_t{0});
  for (const bool c : {false, true}) {
    const auto g = ImportOnnx(b.Bytes());
    ASSERT_TRUE(g.ok()) << g.status();
    std::vector<RefTensor> inputs = TwoInputs();
    inputs.push_back(TensorOf({}, {c ? 1.0 : 0.0}, ir::kBool));
    const auto out = Interpret(*g, inputs);
    ASSERT_TRUE(out.ok()) << out.status();
    EXPECT_EQ((*out)[0].values, (Numbers{c ? 4.0 : 1.0}));
    EXPECT_EQ((*out)[1].values, c ? (Numbers{1, 2, 3, 4, 1, 2, 3, 4}) : (Numbers{1, 2}));
  }
}

TEST(OnnxSequence, ARunChoosesATensor) {
  OnnxBuilder b = TwoTensors();
  b.Input("i", {}, kInt64).Output("r", {2}).Node("SequenceAt", {"s", "i"}, "r");
  for (const double i : {0.0, 1.0, -2.0}) {
    std::vector<RefTensor> inputs = TwoInputs();
    inputs.push_back(TensorOf({}, {i}, ir::kI64));
    EXPECT_EQ(Evaluate(b, inputs)[0].values, i == 1 ? (Numbers{3, 4}) : (Numbers{1, 2})) << i;
  }
}

// What a body takes from a sequence is not known to have been appended.
TEST(OnnxSequence, ALoopThatARunEndsDoesNotErase) {
  OnnxBuilder b(17);
  b.Input("x", {2}).Input("trips", {}, kInt64).Output("n", {}, kInt64);
  b.Node("SequenceConstruct", {"x", "x"}, "two");
  AddBody(b.Node("Loop", {"trips", "", "two"}, "all"), "body", {"i", "c", "list"}, {"c", "less"},
          [](OnnxBuilder& g) { g.Node("SequenceErase", {"list"}, "less"); });
  b.Node("SequenceLength", {"all"}, "n");
  EXPECT_EQ(Slug(b), "graph.onnx.type");
}

// Makes the sequence type of what was stated as a tensor's.
void StateSequence(pb::ValueInfoProto* value) {
  const pb::TypeProto of = value->type();
  *value->mutable_type()->mutable_sequence_type()->mutable_elem_type() = of;
}

TEST(OnnxSequence, AnInputIsATensorOfRows) {
  OnnxBuilder b(17);
  b.Input("s", {2}).Output("last", {2}).Output("n", {}, kInt64).Output("longer", {});
  StateSequence(b.graph().mutable_input(0));
  b.graph().mutable_output(2)->clear_type();
  b.graph().mutable_output(2)->mutable_type()->mutable_sequence_type();
  b.Ints("end", {-1});
  b.Node("SequenceAt", {"s", "end"}, "last");
  b.Node("SequenceLength", {"s"}, "n");
  b.Node("SequenceInsert", {"s", "last"}, "longer");
  const std::vector<RefTensor> inputs = {TensorOf({3, 2}, {1, 2, 3, 4, 5, 6})};
  for (const bool open : {false, true}) {
    ImportOptions options;
    if (open) options.open["s_0"] = {1, 8};
    if (!open) options.shapes["s"] = {3, 2};
    absl::StatusOr<Graph> g = ImportOnnx(b.Bytes(), options);
    ASSERT_TRUE(g.ok()) << g.status();
    if (open) g = Specialize(*g, {{"s_0", 3}});
    const auto out = Interpret(*g, inputs);
    ASSERT_TRUE(out.ok()) << out.status();
    ASSERT_EQ(out->size(), open ? 3u : 6u);
    EXPECT_EQ((*out)[0].values, (Numbers{5, 6}));
    EXPECT_EQ((*out)[1].values, (Numbers{3}));
    const Numbers rows = {1, 2, 3, 4, 5, 6, 5, 6};
    EXPECT_EQ((*out)[2].values, open ? rows : Numbers({1, 2}));
    EXPECT_EQ(out->back().values, open ? rows : Numbers({5, 6}));
  }
}

TEST(OnnxSequence, AnOutputIsATensorForEach) {
  OnnxBuilder b = TwoTensors();
  b.Output("s", {2});
  StateSequence(b.graph().mutable_output(0));
  const absl::StatusOr<Graph> g = ImportOnnx(b.Bytes());
  ASSERT_TRUE(g.ok()) << g.status();
  ASSERT_EQ(g->outputs.size(), 2U);
  EXPECT_EQ(g->values[g->outputs[0]].name, "s.0");
  EXPECT_EQ(g->values[g->outputs[1]].name, "s.1");
  const auto out = Evaluate(b, TwoInputs());
  EXPECT_EQ(out[1].values, (Numbers{3, 4}));
  b.graph()
      .mutable_output(0)
      ->mutable_type()
      ->mutable_sequence_type()
      ->mutable_elem_type()
      ->mutable_tensor_type()
      ->set_elem_type(pb::TensorProto::DOUBLE);
  EXPECT_EQ(Slug(b), "graph.onnx.output_type");
}

TEST(OnnxOptional, AnInputIsItsElement) {
  OnnxBuilder b(18);
  b.Input("x", {2}).Output("y", {2}).Output("has", {}, kBool);
  const pb::TypeProto of = b.graph().input(0).type();
  *b.graph().mutable_input(0)->mutable_type()->mutable_optional_type()->mutable_elem_type() = of;
  b.Node("OptionalGetElement", {"x"}, "y");
  b.Node("OptionalHasElement", {"x"}, "has");
  const auto out = Evaluate(b, {TensorOf({2}, {1, 3})});
  EXPECT_EQ(out[0].values, (Numbers{1, 3}));
  EXPECT_EQ(out[1].values, (Numbers{1}));
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
  OnnxBuilder differs(17);  // a run chooses one of them
  differs.Input("x", {2}).Input("y", {3}).Input("i", {}, kInt64).Output("r", {2});
  differs.Node("SequenceConstruct", {"x", "y"}, "s");
  differs.Node("SequenceAt", {"s", "i"}, "r");
  EXPECT_EQ(Slug(differs), "graph.onnx.shape");
  OnnxBuilder sizes(17);
  sizes.Input("x", {4}).Ints("sizes", {1, 2}).Output("n", {}, kInt64);
  sizes.Node("SplitToSequence", {"x", "sizes"}, "s");
  sizes.Node("SequenceLength", {"s"}, "n");
  EXPECT_EQ(Slug(sizes), "graph.onnx.shape");
}

}  // namespace
}  // namespace tilewright::graph
