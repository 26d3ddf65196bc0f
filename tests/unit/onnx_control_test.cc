// Import of what decides about other values or shapes: branches, loops, tensors without elements,
// and operators whose result has as many elements as a condition holds for. Against numbers worked
// out by hand, before and after the graph passes, and refusals by slug.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "compiler/onnx/onnx_import.h"
#include "tests/unit/onnx_evaluate.h"

namespace tilewright::graph {
namespace {

using namespace import_tests;

std::vector<RefTensor> Evaluate(const OnnxBuilder& b, const std::vector<RefTensor>& inputs) {
  return tests::EvaluateOnnx(b, inputs, 0);
}
RefTensor Flag(bool value) { return TensorOf({}, {value ? 1.0 : 0.0}, ir::kBool); }
RefTensor Whole(Shape shape, Numbers values) {
  return TensorOf(std::move(shape), std::move(values), ir::kI64);
}

// if (condition) x + x else -x, by names of the graph around.
OnnxBuilder Branches(bool constant, const char* other = "Neg") {
  OnnxBuilder b(13);
  b.Input("x", {2}).Output("y", {2});
  if (constant) b.Small("c", kBool, {1}, {0});
  if (!constant) b.Input("c", {}, kBool);
  pb::NodeProto* node = b.Node("If", {"c"}, "y");
  AddBody(node, "then_branch", {}, {"t"}, [](OnnxBuilder& g) { g.Node("Add", {"x", "x"}, "t"); });
  AddBody(node, "else_branch", {}, {"e"}, [&](OnnxBuilder& g) { g.Node(other, {"x"}, "e"); });
  return b;
}

TEST(OnnxIf, TakesABranch) {
  const RefTensor x = TensorOf({2}, {1, 2});
  EXPECT_EQ(Evaluate(Branches(true), {x})[0].values, (Numbers{-1, -2}));
  EXPECT_EQ(Evaluate(Branches(false), {x, Flag(true)})[0].values, (Numbers{2, 4}));
  EXPECT_EQ(Evaluate(Branches(false), {x, Flag(false)})[0].values, (Numbers{-1, -2}));
}

// if (condition) what `then` makes else x [2,1]. The output's shape is `stated`, or none.
OnnxBuilder OfOtherSizes(const std::function<void(OnnxBuilder&)>& then, const Shape& stated) {
  OnnxBuilder b(13);
  b.Input("x", {2, 1}).Input("c", {}, kBool);
  pb::NodeProto* node = b.Node("If", {"c"}, "y");
  AddBody(node, "then_branch", {}, {"t"}, then);
  AddBody(node, "else_branch", {}, {"x"}, [](OnnxBuilder&) {});
  if (stated.empty()) b.graph().add_output()->set_name("y");
  if (!stated.empty()) b.Output("y", stated);
  return b;
}

// As torchvision writes it: no boxes, or those that suppression leaves.
TEST(OnnxIf, BranchesOfOtherSizesAreAsLongAsARunFinds) {
  const auto wide = [](OnnxBuilder& g) { g.Node("Transpose", {"x"}, "t"); };
  const auto nothing = [](OnnxBuilder& g) {
    g.Small("none", pb::TensorProto::FLOAT, {0, 1}, {});
    g.Node("Identity", {"none"}, "t");
  };
  const RefTensor x = TensorOf({2, 1}, {1, 2});
  for (const auto& [then, size] :
       {std::pair<std::function<void(OnnxBuilder&)>, Shape>(wide, {1, 2}),
        std::pair<std::function<void(OnnxBuilder&)>, Shape>(nothing, {0, 1})}) {
    const auto g = ImportOnnx(OfOtherSizes(then, {}).Bytes());
    ASSERT_TRUE(g.ok()) << g.status();
    for (const bool flag : {true, false}) {
      const auto y = Interpret(*g, {x, Flag(flag)});
      ASSERT_TRUE(y.ok()) << y.status();
      EXPECT_EQ((*y)[0].type.sizes(), flag ? size : (Shape{2, 1}));
      EXPECT_EQ((*y)[0].values, flag && size[0] == 0 ? Numbers{} : x.values);
    }
  }
  // A run that makes another shape than the model states has no result.
  const auto stated = ImportOnnx(OfOtherSizes(wide, {2, 1}).Bytes());
  ASSERT_TRUE(stated.ok()) << stated.status();
  EXPECT_EQ(Interpret(*stated, {x, Flag(false)})->at(0).values, x.values);
  EXPECT_EQ(support::Slug(Interpret(*stated, {x, Flag(true)}).status()),
            "graph.interp.stated_shape");
}

// A node may ask for fewer results than its branches have: of the others only a run knows the size.
TEST(OnnxIf, ANodeMayLeaveOutResultsOfItsBranches) {
  OnnxBuilder b(13);
  b.Input("x", {2, 1}).Input("c", {}, kBool).Output("y", {2, 1});
  pb::NodeProto* node = b.Node("If", {"c"}, "y");
  AddBody(node, "then_branch", {}, {"t", "other"}, [](OnnxBuilder& g) {
    g.Node("Add", {"x", "x"}, "t");
    g.Node("Transpose", {"x"}, "other");
  });
  AddBody(node, "else_branch", {}, {"e", "x"}, [](OnnxBuilder& g) { g.Node("Neg", {"x"}, "e"); });
  const RefTensor x = TensorOf({2, 1}, {1, 2});
  EXPECT_EQ(Evaluate(b, {x, Flag(true)})[0].values, (Numbers{2, 4}));
  EXPECT_EQ(Evaluate(b, {x, Flag(false)})[0].values, (Numbers{-1, -2}));
}

// if (condition) { relu(x) * w * w } else { x * w }, and z, which one way makes and one reads.
OnnxBuilder Products(int64_t size, bool other_sizes) {
  OnnxBuilder b(13);
  b.Input("x", {size, size}).Input("c", {}, kBool).Output("y", {}).Output("z", {size, size});
  b.graph().mutable_output(0)->clear_type();
  b.Floats("two", {2}).Node("Mul", {"x", "two"}, "around");
  pb::NodeProto* node = b.Node("If", {"c"}, "y");
  node->add_output("z");
  AddBody(node, "then_branch", {}, {"t", "around"}, [](OnnxBuilder& g) {
    g.Node("MatMul", {"around", "x"}, "once");
    g.Node("MatMul", {"once", "x"}, "t");
  });
  AddBody(node, "else_branch", {}, {"e", "once"}, [&](OnnxBuilder& g) {
    g.Node("MatMul", {"x", "around"}, "once");
    g.Ints("first", {0}).Ints("one", {1}).Ints("axis", {1});
    if (other_sizes) g.Node("Slice", {"once", "first", "one", "axis"}, "e");
    if (!other_sizes) g.Node("Identity", {"once"}, "e");
  });
  return b;
}

TEST(OnnxIf, ARunComputesTheWayThatItTakes) {
  for (const bool other_sizes : {false, true}) {
    constexpr int64_t kSize = 64;
    RefTensor x = TensorOf({kSize, kSize}, Numbers(kSize * kSize));
    for (size_t i = 0; i < x.values.size(); ++i) x.values[i] = static_cast<double>(i % 5) - 2;
    const OnnxBuilder b = Products(kSize, other_sizes);
    ImportOptions both;
    both.loops = false;
    const auto g = ImportOnnx(b.Bytes()), expected = ImportOnnx(b.Bytes(), both);
    ASSERT_TRUE(g.ok() && expected.ok()) << g.status() << expected.status();
    const auto passed = RunGraphPasses(*g);
    ASSERT_TRUE(passed.ok()) << passed.status();
    const std::string text = Print(*g);
    EXPECT_NE(text.find("loop_end"), std::string::npos);
    EXPECT_EQ(Print(*expected).find("loop_end"), std::string::npos);
    for (const bool flag : {true, false}) {
      const auto wanted = Interpret(*expected, {x, Flag(flag)});
      for (const Graph* graph : {&*g, &*passed}) {
        const auto found = Interpret(*graph, {x, Flag(flag)});
        ASSERT_TRUE(found.ok() && wanted.ok()) << found.status() << wanted.status();
        for (size_t o = 0; o < 2; ++o) {
          EXPECT_EQ((*found)[o].type, (*wanted)[o].type);
          EXPECT_EQ((*found)[o].values, (*wanted)[o].values) << text;
        }
      }
    }
  }
  const auto small = ImportOnnx(Products(4, false).Bytes());
  ASSERT_TRUE(small.ok()) << small.status();
  EXPECT_EQ(Print(*small).find("loop_end"), std::string::npos) << "cheaper than a loop";
}

TEST(OnnxIf, RefusesWhatItCannotChoose) {
  const auto flat = [](OnnxBuilder& g) { g.Node("Squeeze", {"x"}, "t"); };
  EXPECT_EQ(Slug(OfOtherSizes(flat, {2, 1})), "graph.onnx.shape") << "another rank";
  EXPECT_EQ(Slug(Branches(true, "NoSuchOperator")), "graph.onnx.unsupported_operator");
  OnnxBuilder none(13);
  none.Input("c", {}, kBool).Output("y", {});
  none.Node("If", {"c"}, "y");
  EXPECT_EQ(Slug(none), "graph.onnx.attribute");
}

// total += x * number of the trip, while total < limit; each total is a row of the second result.
OnnxBuilder Totals(int64_t trips, bool scans, Shape rows = {}) {
  OnnxBuilder b(13);
  b.Input("x", {2}).Floats("limit", {40}).Floats("start", {0, 0}).Small("go", kBool, {}, {1});
  b.Ints("trips", {trips});
  b.Output("total", {2});
  pb::NodeProto* node = b.Node("Loop", {"trips", "go", "start"}, "total");
  if (scans) {
    node->add_output("rows");
    b.Output("rows", rows);
  }
  AddBody(node, "body", {"i", "going", "before"},
          scans ? Names{"more", "after", "copy"} : Names{"more", "after"}, [](OnnxBuilder& g) {
            OnnxBuilder::Attr(g.Node("Cast", {"i"}, "number"), "to", int64_t{1});
            g.Node("Mul", {"x", "number"}, "part");
            g.Node("Add", {"before", "part"}, "after");
            g.Node("Identity", {"after"}, "copy");
            g.Node("ReduceMax", {"after"}, "largest");
            g.Node("Less", {"largest", "limit"}, "below");
            g.Node("Squeeze", {"below"}, "more");
          });
  return b;
}

TEST(OnnxLoop, RunsAsOftenAsItsConditionSays) {
  // 10, 30, 60: the trip that reaches the limit is the last.
  const RefTensor x = TensorOf({2}, {1, 10});
  EXPECT_EQ(Evaluate(Totals(3, false), {x})[0].values, (Numbers{3, 30}));
  EXPECT_EQ(Evaluate(Totals(9, false), {x})[0].values, (Numbers{6, 60}));
  const auto rows = Evaluate(Totals(9, true, {4, 2}), {x});
  EXPECT_EQ(rows[1].values, (Numbers{0, 0, 1, 10, 3, 30, 6, 60}));
  EXPECT_EQ(Evaluate(Totals(int64_t{1} << 40, false), {x})[0].values, (Numbers{6, 60}));
}

// while (count < 3) { count += 1; a row x * count }, whose first trip is all of constants.
TEST(OnnxLoop, AConditionOfTheFirstTripIsNotThatOfAll) {
  for (const bool bounded : {true, false}) {
    OnnxBuilder b(13);
    b.Input("x", {2}).Small("go", kBool, {}, {1}).Ints("trips", {5000});
    AddNumber(b, "none", 0);
    b.graph().add_output()->set_name("rows");
    pb::NodeProto* node = b.Node("Loop", {bounded ? "trips" : "", "go", "none"}, "count");
    node->add_output("rows");
    AddBody(node, "body", {"i", "going", "before"}, {"more", "after", "row"}, [](OnnxBuilder& g) {
      AddNumber(g, "one", 1);
      AddNumber(g, "three", 3);
      g.Node("Add", {"before", "one"}, "after");
      g.Node("Less", {"after", "three"}, "more");
      OnnxBuilder::Attr(g.Node("Cast", {"after"}, "number"), "to", int64_t{1});
      g.Node("Mul", {"x", "number"}, "row");
    });
    for (const bool loops : {true, false}) {
      ImportOptions options;
      options.loops = loops;
      const auto g = ImportOnnx(b.Bytes(), options);
      if (bounded && !loops) continue;  // 5000 trips are no nodes
      ASSERT_TRUE(g.ok()) << g.status();
      const auto rows = Interpret(*g, {TensorOf({2}, {1, 10})});
      ASSERT_TRUE(rows.ok()) << rows.status();
      EXPECT_EQ((*rows)[0].type.sizes(), (Shape{3, 2}));
      EXPECT_EQ((*rows)[0].values, (Numbers{1, 10, 2, 20, 3, 30}));
    }
  }
}

TEST(OnnxLoop, NamesOfATripAreItsOwn) {
  OnnxBuilder b(13);
  b.Input("x", {2}).Ints("trips", {3}).Output("y", {2}).Output("hidden", {2});
  b.Node("Neg", {"x"}, "hidden");
  pb::NodeProto* node = b.Node("Loop", {"trips", "", "x"}, "y");
  AddBody(node, "body", {"i", "c", "hidden"}, {"c", "next"}, [](OnnxBuilder& g) {
    g.Floats("two", {2});
    g.Node("Mul", {"hidden", "two"}, "next");
  });
  const auto out = Evaluate(b, {TensorOf({2}, {1, 3})});
  EXPECT_EQ(out[0].values, (Numbers{8, 24}));
  EXPECT_EQ(out[1].values, (Numbers{-1, -3})) << "the graph's own value of that name";
  EXPECT_TRUE(tests::OperatorsWhenOpen(b).contains("mul")) << "states may have open sizes";
  OnnxBuilder result(13);  // the name of the loop's result
  result.Input("x", {2}).Ints("trips", {3}).Output("y", {2});
  AddBody(result.Node("Loop", {"trips", "", "x"}, "y"), "body", {"i", "c", "y"}, {"c", "next"},
          [](OnnxBuilder& g) { g.Node("Add", {"y", "y"}, "next"); });
  EXPECT_EQ(Evaluate(result, {TensorOf({2}, {1, 3})})[0].values, (Numbers{8, 24}));
}

TEST(OnnxLoop, WithoutTripsKeepsItsStateAndGivesNoRows) {
  OnnxBuilder b(13);
  b.Input("x", {2}).Ints("trips", {0}).Output("y", {2}).Output("rows", {0, 2});
  pb::NodeProto* node = b.Node("Loop", {"trips", "", "x"}, "y");
  node->add_output("rows");
  AddBody(node, "body", {"i", "c", "s"}, {"c", "t", "r"}, [](OnnxBuilder& g) {
    g.Node("Neg", {"s"}, "t");
    g.Node("Abs", {"s"}, "r");
  });
  const auto out = Evaluate(b, {TensorOf({2}, {1, 3})});
  EXPECT_EQ(out[0].values, (Numbers{1, 3}));
  EXPECT_EQ(out[1].type.sizes(), (Shape{0, 2}));
}

// Each trip makes a table of 64 KB for its transform of 64 points.
TEST(OnnxLoop, ConstantsOfAllTripsAreBounded) {
  ImportOptions options;
  options.max_bytes = int64_t{1} << 20;
  for (const auto& [trips, slug] : {std::pair(4, ""), std::pair(32, "graph.onnx.too_large")}) {
    OnnxBuilder b(17);
    b.Input("x", {1, 64, 2}).Ints("trips", {trips}).Output("y", {1, 64, 2});
    AddBody(b.Node("Loop", {"trips", "", "x"}, "y"), "body", {"i", "c", "s"}, {"c", "t"},
            [](OnnxBuilder& g) { g.Node("DFT", {"s"}, "t"); });
    EXPECT_TRUE(ImportOnnx(b.Bytes()).ok());
    const absl::Status status = ImportOnnx(b.Bytes(), options).status();
    EXPECT_EQ(support::Slug(status), slug) << status;
    EXPECT_EQ(status.message().find("constants of at most") == std::string::npos, status.ok());
  }
}

TEST(OnnxScan, AxesAndDirections) {
  OnnxBuilder b(11);
  b.Input("start", {2}).Input("x", {2, 3}).Output("sum", {2}).Output("all", {2, 3});
  pb::NodeProto* node = b.Node("Scan", {"start", "x"}, "sum");
  node->add_output("all");
  OnnxBuilder::Attr(node, "num_scan_inputs", int64_t{1});
  OnnxBuilder::Attr(node, "scan_input_axes", Shape{-1});
  OnnxBuilder::Attr(node, "scan_output_axes", Shape{1});
  OnnxBuilder::Attr(node, "scan_input_directions", Shape{1});
  AddBody(node, "body", {"s", "e"}, {"t", "u"}, [](OnnxBuilder& g) {
    g.Node("Add", {"s", "e"}, "t");
    g.Node("Identity", {"t"}, "u");
  });
  const auto out = Evaluate(b, {TensorOf({2}, {0, 100}), TensorOf({2, 3}, {1, 2, 3, 4, 5, 6})});
  EXPECT_EQ(out[0].values, (Numbers{6, 115}));
  EXPECT_EQ(out[1].values, (Numbers{3, 5, 6, 106, 111, 115}));
}

// ------------------------------------------------------------ no elements

TEST(OnnxEmpty, ReductionsGiveWhatChangesNothing) {
  const struct {
    const char* op;
    double expected;
  } cases[] = {{"ReduceSum", 0},
               {"ReduceProd", 1},
               {"ReduceMax", -HUGE_VAL},
               {"ReduceMin", HUGE_VAL},
               {"ReduceL2", 0},
               {"ReduceLogSum", -HUGE_VAL},
               {"ReduceLogSumExp", -HUGE_VAL}};
  for (const auto& c : cases) {
    OnnxBuilder b(18);
    b.Input("x", {2, 0}).Ints("axes", {1}).Output("y", {2, 1});
    b.Node(c.op, {"x", "axes"}, "y");
    EXPECT_EQ(Evaluate(b, {TensorOf({2, 0}, {})})[0].values, (Numbers{c.expected, c.expected}))
        << c.op;
  }
  OnnxBuilder whole(18);
  whole.Input("x", {0}, pb::TensorProto::INT8).Output("y", {1}, pb::TensorProto::INT8);
  whole.Node("ReduceMax", {"x"}, "y");
  EXPECT_EQ(Evaluate(whole, {TensorOf({0}, {}, ir::kI8)})[0].values, (Numbers{-128}));
}

TEST(OnnxEmpty, OperatorsKeepTheShape) {
  OnnxBuilder b(18);
  b.Input("x", {0, 3}).Weight("w", {3, 4}).Input("z", {2, 0}).Input("v", {0, 3});
  b.Node("MatMul", {"x", "w"}, "product");
  b.Node("Relu", {"product"}, "relu");
  b.Node("Softmax", {"relu"}, "rows");
  b.Node("MatMul", {"z", "v"}, "sums");
  OnnxBuilder::Attr(b.Node("Concat", {"x", "w2", "x"}, "joined"), "axis", int64_t{0});
  b.Weight("w2", {1, 3});
  b.Output("rows", {0, 4}).Output("sums", {2, 3}).Output("joined", {1, 3});
  const auto out = Evaluate(b, {TensorOf({0, 3}, {}), TensorOf({2, 0}, {}), TensorOf({0, 3}, {})});
  EXPECT_EQ(out[0].type.sizes(), (Shape{0, 4}));
  EXPECT_EQ(out[1].values, Numbers(6, 0)) << "sums of nothing";
  EXPECT_EQ(out[2].values.size(), 3u);
}

TEST(OnnxEmpty, InputsAndOutputsThatNothingTouches) {
  OnnxBuilder b(14);
  b.Input("x", {0, 2}).Input("y", {1}).Output("same", {0, 2}).Output("turned", {2, 0});
  b.Node("Identity", {"x"}, "same");
  b.Node("Transpose", {"x"}, "turned");
  const auto out = Evaluate(b, {TensorOf({0, 2}, {}), TensorOf({1}, {1})});
  EXPECT_EQ(out[0].type.sizes(), (Shape{0, 2}));
  EXPECT_EQ(out[1].type.sizes(), (Shape{2, 0}));
}

TEST(OnnxEmpty, TextIsReadBack) {
  OnnxBuilder b(14);
  b.Input("x", {0, 2}).Output("y", {2, 0});
  b.Node("Transpose", {"x"}, "y");
  auto g = ImportOnnx(b.Bytes());
  ASSERT_TRUE(g.ok()) << g.status();
  auto again = ParseGraph(Print(*g));
  ASSERT_TRUE(again.ok()) << again.status() << Print(*g);
  EXPECT_EQ(Print(*again), Print(*g));
}

TEST(OnnxEmpty, WhatNeedsAnElementIsRefused) {
  OnnxBuilder taken(13);
  taken.Input("x", {0, 2}).Ints("i", {0}).Output("y", {1, 2});
  OnnxBuilder::Attr(taken.Node("Gather", {"x", "i"}, "y"), "axis", int64_t{0});
  EXPECT_EQ(Slug(taken), "op.gather.empty");
  OnnxBuilder picked(13);
  picked.Input("x", {3, 2}).Input("i", {0, 1}, kInt64).Input("all", {4, 2}).Output("y", {4, 2});
  picked.Node("GatherND", {"x", "i"}, "none");
  OnnxBuilder::Attr(picked.Node("Concat", {"none", "all"}, "y"), "axis", int64_t{0});
  EXPECT_EQ(Slug(picked), "");
  OnnxBuilder unsure(17);
  unsure.Input("x", {0, 2}).Weight("s", {2}).Output("y", {0, 2});
  unsure.Node("LayerNormalization", {"x", "s"}, "y");
  EXPECT_EQ(Slug(unsure), "graph.onnx.empty_tensor");
  OnnxBuilder hostile(13);
  hostile.Input("x", {0, int64_t{1} << 62, int64_t{1} << 62}).Output("y", {0});
  hostile.Node("Relu", {"x"}, "y");
  EXPECT_EQ(Slug(hostile), "op.type.size");
  OnnxBuilder shape(14);
  shape.Input("x", {0, 3}).Ints("s", {0, -1}).Output("y", {0, 3});
  OnnxBuilder::Attr(shape.Node("Reshape", {"x", "s"}, "y"), "allowzero", int64_t{1});
  EXPECT_EQ(Slug(shape), "graph.onnx.shape");
}

// Of a shape of which a run knows a part, what is certain is known at import.
TEST(OnnxReshape, ARunFindsOnlyWhatIsNotCertain) {
  for (const auto& [rest, known] :
       {std::pair<Shape, Shape>({12}, {2, 12}), std::pair<Shape, Shape>({3, 4}, {2, 3, 4}),
        std::pair<Shape, Shape>({0, -1}, {-1, 3, -1}),
        std::pair<Shape, Shape>({-1, 4}, {-1, -1, 4})}) {
    OnnxBuilder b(13);
    b.Input("x", {2, 3, 4}).Input("rows", {1}, kInt64).Ints("rest", rest);
    b.graph().add_output()->set_name("y");
    OnnxBuilder::Attr(b.Node("Concat", {"rows", "rest"}, "shape"), "axis", int64_t{0});
    b.Node("Reshape", {"x", "shape"}, "y");
    const auto g = ImportOnnx(b.Bytes());
    ASSERT_TRUE(g.ok()) << g.status();
    const op::TensorType& type = g->values[g->outputs[0]].type;
    ASSERT_EQ(type.shape.size(), known.size());
    for (size_t d = 0; d < known.size(); ++d) {
      EXPECT_EQ(type.shape[d].is_constant(), known[d] >= 0) << d;
      if (known[d] < 0) continue;
      EXPECT_EQ(type.shape[d], op::Dim(known[d])) << d;
    }
    const RefTensor x = TensorOf({2, 3, 4}, Numbers(24, 1));
    const auto y = Interpret(*g, {x, Whole({1}, {2})});
    ASSERT_TRUE(y.ok()) << y.status();
    EXPECT_EQ((*y)[0].type.elements(), 24);
    EXPECT_FALSE(Interpret(*g, {x, Whole({1}, {5})}).ok());
  }
}

// As many slices as a run finds, for as many places: both are counts of the same, or the run is
// refused.
TEST(OnnxScatter, AssignmentToAPart) {
  for (const auto& [indices, parts] :
       {std::pair<Shape, size_t>({1, 2}, 3), {{0, 1}, 2}, {{-2, -1}, 2}, {{2, 1}, 0}}) {
    OnnxBuilder b(16);
    b.Input("x", {4, 2}).Input("u", {2, 2}).Output("y", {4, 2});
    b.Ints("list", indices).Ints("axis", {1}).Node("Unsqueeze", {"list", "axis"}, "i");
    b.Node("ScatterND", {"x", "i", "u"}, "y");
    const RefTensor x = TensorOf({4, 2}, Numbers(8)), u = TensorOf({2, 2}, {1, 2, 3, 4});
    Numbers expected(8);
    for (size_t i = 0; i < 2; ++i) {
      const size_t row = static_cast<size_t>((indices[i] + 4) % 4);
      for (size_t k = 0; k < 2; ++k) expected[2 * row + k] = u.values[2 * i + k];
    }
    EXPECT_EQ(Evaluate(b, {x, u})[0].values, expected);
    const auto g = ImportOnnx(b.Bytes());
    ASSERT_TRUE(g.ok()) << g.status();
    const Node& last = g->nodes.back();
    EXPECT_EQ(last.op == "concat" ? last.inputs.size() : 0, parts) << Print(*g);
  }
}

TEST(OnnxScatter, CountsThatARunFinds) {
  OnnxBuilder b(13);
  b.Input("x", {4}).Input("where", {4}).Input("which", {4}).Output("y", {4});
  b.Node("NonZero", {"where"}, "columns");
  b.Node("Transpose", {"columns"}, "places");
  b.Node("NonZero", {"which"}, "others");
  b.Ints("flat", {-1}).Node("Reshape", {"others", "flat"}, "count");
  OnnxBuilder::Attr(b.Node("Cast", {"count"}, "updates"), "to", int64_t{1});
  b.Node("ScatterND", {"x", "places", "updates"}, "y");
  const auto g = ImportOnnx(b.Bytes());
  ASSERT_TRUE(g.ok()) << g.status();
  const RefTensor x = TensorOf({4}, {9, 9, 9, 9});
  const auto y = Interpret(*g, {x, TensorOf({4}, {1, 0, 1, 0}), TensorOf({4}, {0, 1, 0, 1})});
  ASSERT_TRUE(y.ok()) << y.status();
  EXPECT_EQ((*y)[0].values, (Numbers{1, 9, 3, 9}));
  EXPECT_FALSE(Interpret(*g, {x, TensorOf({4}, {1, 1, 1, 0}), TensorOf({4}, {0, 1, 0, 1})}).ok());
}

// ------------------------------------------------------------ counts

TEST(OnnxSelection, CompressByAStatedShape) {
  OnnxBuilder b(11);
  b.Input("x", {3, 2}).Input("c", {3}, kBool).Output("y", {2, 2});
  OnnxBuilder::Attr(b.Node("Compress", {"x", "c"}, "y"), "axis", int64_t{0});
  const RefTensor x = TensorOf({3, 2}, {1, 2, 3, 4, 5, 6});
  EXPECT_EQ(Evaluate(b, {x, TensorOf({3}, {0, 1, 1}, ir::kBool)})[0].values, (Numbers{3, 4, 5, 6}));
  EXPECT_EQ(Evaluate(b, {x, TensorOf({3}, {1, 0, 1}, ir::kBool)})[0].values, (Numbers{1, 2, 5, 6}));
}

TEST(OnnxSelection, NonZero) {
  OnnxBuilder stated(13);
  stated.Input("x", {2, 2, 2}).Output("y", {3, 3}, kInt64);
  stated.Node("NonZero", {"x"}, "y");
  EXPECT_EQ(Evaluate(stated, {TensorOf({2, 2, 2}, {0, 1, 0, 0, -1, 0, 0, NAN})})[0].values,
            (Numbers{0, 1, 1, 0, 0, 1, 1, 0, 1}));
  OnnxBuilder constant(13);
  constant.Input("x", {4}).Ints("c", {0, 7, 0, -2}).Output("z", {2});
  constant.Node("NonZero", {"c"}, "y");
  constant.Node("Squeeze", {"y"}, "i");
  constant.Node("Gather", {"x", "i"}, "z");
  EXPECT_EQ(Evaluate(constant, {TensorOf({4}, {1, 2, 3, 4})})[0].values, (Numbers{2, 4}));
  OnnxBuilder found(13);
  found.Input("x", {4}).Output("z", {1, 1}, kInt64);
  found.Node("NonZero", {"x"}, "y");
  found.Node("ReduceMax", {"y"}, "z");
  EXPECT_EQ(Evaluate(found, {TensorOf({4}, {1, 2, 3, 0})})[0].values, (Numbers{2}));
  EXPECT_EQ(Evaluate(found, {TensorOf({4}, {1, 0, 0, 0})})[0].values, (Numbers{0}));
}

TEST(OnnxSelection, UniqueOfConstants) {
  OnnxBuilder b(11);
  b.Ints("c", {5, -1, 5, 2}).Output("y", {3}, kInt64).Output("first", {3}, kInt64);
  b.Output("which", {4}, kInt64).Output("count", {3}, kInt64);
  pb::NodeProto* node = b.Node("Unique", {"c"}, "y");
  for (const char* name : {"first", "which", "count"}) node->add_output(name);
  const auto out = Evaluate(b, {});
  EXPECT_EQ(out[0].values, (Numbers{-1, 2, 5}));
  EXPECT_EQ(out[1].values, (Numbers{1, 3, 0}));
  EXPECT_EQ(out[2].values, (Numbers{2, 0, 2, 1}));
  EXPECT_EQ(out[3].values, (Numbers{1, 1, 2}));
}

// Two classes over three boxes, of which the first two overlap by 0.6.
TEST(OnnxSelection, NonMaxSuppressionPicksTheBestOfEachClass) {
  for (const int64_t most : {int64_t{1}, int64_t{3}, INT64_MAX}) {  // torchvision writes the last
    OnnxBuilder b(11);
    const int64_t rows = most == 1 ? 2 : 3;
    b.Input("boxes", {1, 3, 4}).Input("scores", {1, 2, 3}).Ints("most", {most});
    b.Floats("iou", {0.5f}).Floats("least", {0.15f}).Output("y", {rows, 3}, kInt64);
    b.Node("NonMaxSuppression", {"boxes", "scores", "most", "iou", "least"}, "y");
    const auto out = Evaluate(b, {TensorOf({1, 3, 4}, {0, 0, 1, 1, 1.25, 1, 0.25, 0, 5, 5, 6, 6}),
                                  TensorOf({1, 2, 3}, {0.2, 0.9, 0.3, 0.9, 0.9, 0.1})});
    EXPECT_EQ(out[0].values,
              (most == 1 ? Numbers{0, 0, 1, 0, 1, 0} : Numbers{0, 0, 1, 0, 0, 2, 0, 1, 0}));
  }
}

// The best min(3, all) of what passes a threshold: at most 3, whatever passes, and the first two.
TEST(OnnxSelection, TheBestOfThoseThatPass) {
  OnnxBuilder b(13);
  b.Input("x", {8}).Floats("zero", {0}).Ints("three", {3}).Ints("from", {0}).Ints("two", {2});
  b.Node("Greater", {"x", "zero"}, "flags");
  b.Node("NonZero", {"flags"}, "places");
  b.Node("Transpose", {"places"}, "rows");
  b.Node("GatherND", {"x", "rows"}, "kept");
  b.Node("Shape", {"kept"}, "size");
  pb::NodeProto* join = b.Node("Concat", {"size", "three"}, "both");
  OnnxBuilder::Attr(join, "axis", int64_t{0});
  OnnxBuilder::Attr(b.Node("ReduceMin", {"both"}, "least"), "keepdims", int64_t{0});
  b.Ints("one", {-1});
  b.Node("Reshape", {"least", "one"}, "k");
  b.Node("TopK", {"kept", "k"}, "best")->add_output("best_places");
  b.Node("Slice", {"best", "from", "two"}, "first");
  b.graph().add_output()->set_name("best");
  b.graph().add_output()->set_name("first");
  const auto g = ImportOnnx(b.Bytes());
  ASSERT_TRUE(g.ok()) << g.status();
  int64_t of_best = 0;
  for (const auto& [name, range] : g->size_ranges) {
    if (name.find("best") != std::string::npos) of_best = range.max - 1;
  }
  EXPECT_EQ(of_best, 3) << "not all 8";
  for (const Numbers& x : {Numbers{1, -1, 5, 2, -3, 4, 0, 3}, Numbers{-1, -2, -3, -4, 0, 0, 0, 7},
                           Numbers{-1, -2, -3, -4, 0, 0, 0, 0}}) {
    Numbers best;
    for (const double value : x) {
      if (value > 0) best.push_back(value);
    }
    std::sort(best.rbegin(), best.rend());
    best.resize(std::min<size_t>(best.size(), 3));
    const auto y = Interpret(*g, {TensorOf({8}, x)});
    ASSERT_TRUE(y.ok()) << y.status();
    EXPECT_EQ((*y)[0].values, best);
    best.resize(std::min<size_t>(best.size(), 2));
    EXPECT_EQ((*y)[1].values, best);
  }
}

TEST(OnnxSelection, TopKAndSumsByInputs) {
  OnnxBuilder b(14);
  b.Input("x", {2, 3}).Input("k", {1}, kInt64).Input("axis", {}, kInt64);
  b.Output("best", {2, 2}).Output("at", {2, 2}, kInt64).Output("sums", {2, 3});
  b.Node("TopK", {"x", "k"}, "best")->add_output("at");
  OnnxBuilder::Attr(b.Node("CumSum", {"x", "axis"}, "sums"), "reverse", int64_t{1});
  const RefTensor x = TensorOf({2, 3}, {1, 3, 2, 6, 4, 5});
  const auto rows = Evaluate(b, {x, Whole({1}, {2}), Whole({}, {1})});
  EXPECT_EQ(rows[0].values, (Numbers{3, 2, 6, 5}));
  EXPECT_EQ(rows[2].values, (Numbers{6, 5, 2, 15, 9, 5}));
  const auto columns = Evaluate(b, {x, Whole({1}, {2}), Whole({}, {-2})});
  EXPECT_EQ(columns[2].values, (Numbers{7, 7, 7, 6, 4, 5}));
}

// What makes such numbers has their range: casts wrap, quantisation saturates. Where a value only
// moves, its type stays.
TEST(OnnxInt4, ResultsStayInTheRangeOfTheType) {
  constexpr int kUint4 = 21, kInt4 = 22, kUint2 = 25, kInt2 = 26;
  const RefTensor x = TensorOf({4}, {-9, 5.9, 8, -1.5});
  const struct {
    int type;
    Numbers wrapped, saturated;
  } cases[] = {{kInt4, {7, 5, -8, -1}, {-8, 6, 7, -2}},
               {kUint4, {7, 5, 8, 15}, {0, 6, 8, 0}},
               {kInt2, {-1, 1, 0, -1}, {-2, 1, 1, -2}},
               {kUint2, {3, 1, 0, 3}, {0, 3, 3, 0}}};
  for (const auto& c : cases) {
    SCOPED_TRACE(c.type);
    OnnxBuilder b(26);
    b.Input("x", {4}).Input("like", {1, 1}, c.type).Ints("flat", {1});
    b.Scalar("one", 1);
    OnnxBuilder::Attr(b.Node("Cast", {"x"}, "cast"), "to", int64_t{c.type});
    b.Node("Reshape", {"like", "flat"}, "moved");
    b.Node("CastLike", {"x", "moved"}, "cast_like");
    OnnxBuilder::Attr(b.Node("QuantizeLinear", {"x", "one"}, "q"), "output_dtype", int64_t{c.type});
    b.Node("QuantizeLinear", {"x", "one", "zero"}, "q_like");
    pb::TensorProto* zero = b.graph().add_initializer();
    zero->set_name("zero");
    zero->set_data_type(c.type);
    zero->add_int32_data(0);
    for (const char* name : {"cast", "cast_like", "q", "q_like"}) b.Output(name, {4}, c.type);
    const bool with_sign = c.type == kInt4 || c.type == kInt2;
    const auto out =
        tests::EvaluateOnnx(b, {x, TensorOf({1, 1}, {1}, with_sign ? ir::kI8 : ir::kU8)}, 0);
    EXPECT_EQ(out[0].type.dtype, with_sign ? ir::kI8 : ir::kU8);
    for (const size_t i : {0, 1}) EXPECT_EQ(out[i].values, c.wrapped) << i;
    for (const size_t i : {2, 3}) EXPECT_EQ(out[i].values, c.saturated) << i;
  }
}

TEST(OnnxInt4, OtherTypesThanTheStatedOneAreRefused) {
  const auto cast = [](int64_t to, int stated) {
    OnnxBuilder b(26);
    b.Input("x", {2}).Output("y", {2}, stated);
    OnnxBuilder::Attr(b.Node("Cast", {"x"}, "y"), "to", to);
    return b;
  };
  EXPECT_EQ(Slug(cast(22, 22)), "");
  EXPECT_EQ(Slug(cast(22, pb::TensorProto::INT8)), "graph.onnx.output_type");
  EXPECT_EQ(Slug(cast(pb::TensorProto::INT8, 22)), "graph.onnx.output_type");
  const absl::Status float8 = ImportOnnx(cast(17, 17).Bytes()).status();
  EXPECT_EQ(support::Slug(float8), "graph.onnx.element_type");
  EXPECT_NE(float8.message().find("float8e4m3fn"), std::string::npos) << float8;
}

TEST(OnnxInt4, TensorsOfTheModelBecomeBytes) {
  for (const bool with_sign : {true, false}) {
    OnnxBuilder b(21);
    pb::TensorProto* t = b.graph().add_initializer();
    t->set_name("w");
    t->set_data_type(with_sign ? 22 : 21);
    t->add_dims(3);
    t->set_raw_data(std::string("\xf1\x08", 2));  // 1, 15 or -1, 8 or -8
    b.Floats("scale", {0.5f}).Input("x", {3}).Output("y", {3});
    b.graph().mutable_initializer(1)->clear_dims();
    b.Node("DequantizeLinear", {"w", "scale"}, "d");
    b.Node("Add", {"x", "d"}, "y");
    EXPECT_EQ(Evaluate(b, {TensorOf({3}, {0, 0, 0})})[0].values,
              (with_sign ? Numbers{0.5, -0.5, -4} : Numbers{0.5, 7.5, 4}));
    t->set_raw_data("abc");
    EXPECT_EQ(Slug(b), "graph.onnx.tensor_data");
  }
}

}  // namespace
}  // namespace tilewright::graph
