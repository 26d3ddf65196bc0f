// Sizes that each trip of a loop finds, states that trips append to or that grow, and how large
// sizes may be. Against numbers worked out by hand, before and after the graph passes.
#include <gtest/gtest.h>

#include <limits>
#include <utility>

#include "compiler/graph/graph_passes.h"
#include "compiler/onnx/onnx_import.h"
#include "tests/unit/onnx_evaluate.h"

namespace tilewright::graph {
namespace {

using namespace import_tests;

RefTensor Whole(Shape shape, Numbers values) {
  return TensorOf(std::move(shape), std::move(values), ir::kI64);
}

constexpr char kTrips[] = "trips";  // an input: a run decides

// For each of `sizes` the sum of the numbers below it, as a column behind those of `start`.
OnnxBuilder SumsBelow() {
  OnnxBuilder b(13);
  b.Input("sizes", {4}, kInt64).Input("start", {1, 2}).Input(kTrips, {}, kInt64);
  b.graph().add_output()->set_name("sums");
  AddBody(b.Node("Loop", {kTrips, "", "start"}, "sums"), "body", {"i", "c", "before"},
          {"c", "after"}, [](OnnxBuilder& g) {
            AddNumber(g, "zero", 0);
            AddNumber(g, "one", 1);
            g.Ints("square", {1, 1});
            g.Node("Gather", {"sizes", "i"}, "size");
            g.Node("Range", {"zero", "size", "one"}, "below");
            OnnxBuilder::Attr(g.Node("Cast", {"below"}, "numbers"), "to", int64_t{1});
            OnnxBuilder::Attr(g.Node("ReduceSum", {"numbers"}, "sum"), "keepdims", int64_t{1});
            g.Node("Reshape", {"sum", "square"}, "column");
            OnnxBuilder::Attr(g.Node("Cast", {"before"}, "same"), "to", int64_t{1});
            OnnxBuilder::Attr(g.Node("Concat", {"same", "column"}, "after"), "axis", int64_t{-1});
          });
  return b;
}

TEST(OnnxLoop, ATripFindsSizesOfItsOwn) {
  ImportOptions options;
  options.open["below_0"] = {0, 9};
  options.open["sums_0"] = {0, 4};  // trips
  const RefTensor sizes = Whole({4}, {3, 0, 9, 1}), start = TensorOf({1, 2}, {7, 8});
  const OnnxBuilder b = SumsBelow();
  ExpectRuns(b, options, {sizes, start, Whole({}, {0})}, {{{1, 2}, {7, 8}}});
  ExpectRuns(b, options, {sizes, start, Whole({}, {3})}, {{{1, 5}, {7, 8, 3, 0, 36}}});
  ExpectRuns(b, options, {sizes, start, Whole({}, {4})}, {{{1, 6}, {7, 8, 3, 0, 36, 0}}});
  const auto g = ImportOnnx(b.Bytes(), options);
  ASSERT_TRUE(g.ok()) << g.status();
  const auto slug = [&](const Numbers& numbers, double trips) {
    const auto out = Interpret(*g, {Whole({4}, numbers), start, Whole({}, {trips})});
    return std::string(support::Slug(out.status()));
  };
  EXPECT_EQ(slug({3, 10, 0, 0}, 1), "") << "no trip finds the large one";
  EXPECT_EQ(slug({3, 10, 0, 0}, 2), "graph.interp.found_size");
  EXPECT_EQ(slug({0, 0, 0, 0}, 5), "graph.interp.found_size");
}

TEST(OnnxLoop, WhatIsAppendedMayDifferInLength) {
  OnnxBuilder b(13);
  b.Input("sizes", {3}, kInt64).Input("start", {0}, kInt64).Input(kTrips, {}, kInt64);
  b.graph().add_output()->set_name("all");
  AddBody(b.Node("Loop", {kTrips, "", "start"}, "all"), "body", {"i", "c", "before"},
          {"c", "after"}, [](OnnxBuilder& g) {
            AddNumber(g, "zero", 0);
            AddNumber(g, "one", 1);
            g.Node("Gather", {"sizes", "i"}, "size");
            g.Node("Range", {"zero", "size", "one"}, "below");
            OnnxBuilder::Attr(g.Node("Concat", {"before", "below"}, "after"), "axis", int64_t{0});
          });
  ImportOptions options;
  options.open["below_0"] = {0, 4};
  options.open["all_0"] = {0, 9};
  const RefTensor sizes = Whole({3}, {2, 0, 3}), start = Whole({0}, {});
  ExpectRuns(b, options, {sizes, start, Whole({}, {0})}, {{{0}, {}}});
  ExpectRuns(b, options, {sizes, start, Whole({}, {3})}, {{{5}, {0, 1, 0, 1, 2}}});
}

// Each trip doubles the sum of all numbers before it.
TEST(OnnxLoop, StatesGrow) {
  OnnxBuilder b(13);
  b.Input("x", {1}).Input(kTrips, {}, kInt64);
  b.graph().add_output()->set_name("all");
  AddBody(b.Node("Loop", {kTrips, "", "x"}, "all"), "body", {"i", "c", "s"}, {"c", "t"},
          [](OnnxBuilder& g) {
            g.Ints("zero", {0});
            OnnxBuilder::Attr(g.Node("ReduceSum", {"s", "zero"}, "sum"), "keepdims", int64_t{1});
            g.Node("Add", {"sum", "sum"}, "twice");
            OnnxBuilder::Attr(g.Node("Concat", {"twice", "s"}, "t"), "axis", int64_t{0});
          });
  EXPECT_EQ(Slug(b), "graph.onnx.size_bound");
  ImportOptions options;
  options.open["all_0"] = {0, 5};
  const RefTensor x = TensorOf({1}, {1});
  ExpectRuns(b, options, {x, Whole({}, {0})}, {{{1}, {1}}});
  ExpectRuns(b, options, {x, Whole({}, {1})}, {{{2}, {2, 1}}});
  ExpectRuns(b, options, {x, Whole({}, {4})}, {{{5}, {54, 18, 6, 2, 1}}});
  const auto g = ImportOnnx(b.Bytes(), options);
  ASSERT_TRUE(g.ok()) << g.status();
  for (const double trips : {5.0, 9.0}) {
    EXPECT_EQ(support::Slug(Interpret(*g, {x, Whole({}, {trips})}).status()),
              "graph.interp.found_size");
  }
}

// Where the trips are bounded, and each adds as much, nobody has to say how large it gets.
TEST(OnnxLoop, BoundedStatesNeedNoRange) {
  OnnxBuilder b(13);
  b.Input("x", {0, 2}).Input("most", {2}).Ints("trips", {2000});
  b.graph().add_output()->set_name("all");
  AddBody(b.Node("Loop", {"trips", "", "x"}, "all"), "body", {"i", "c", "s"}, {"more", "t"},
          [](OnnxBuilder& g) {
            OnnxBuilder::Attr(g.Node("Cast", {"i"}, "number"), "to", int64_t{1});
            g.Ints("row", {1, 2}).Floats("limit", {6});
            g.Node("Add", {"most", "number"}, "both");
            g.Node("Reshape", {"both", "row"}, "last");
            OnnxBuilder::Attr(g.Node("Concat", {"s", "last"}, "t"), "axis", int64_t{0});
            OnnxBuilder::Attr(g.Node("ReduceMax", {"t"}, "largest"), "keepdims", int64_t{0});
            g.Node("Less", {"largest", "limit"}, "below");
            g.Node("Squeeze", {"below"}, "more");
          });
  ExpectRuns(b, {}, {TensorOf({0, 2}, {}), TensorOf({2}, {3, 4})}, {{{3, 2}, {3, 4, 4, 5, 5, 6}}});
  ExpectRuns(b, {}, {TensorOf({0, 2}, {}), TensorOf({2}, {1, 9})}, {{{1, 2}, {1, 9}}});
}

// Rows of the numbers that a condition picks, which differ from trip to trip if `differ`.
// As PyTorch exports a for loop with a break: a state counts, the number of trips is the largest
// integer.
TEST(OnnxLoop, StatesThatCountBoundTheTrips) {
  const auto counted = [](int64_t begin, int64_t step, const char* limit) {
    OnnxBuilder b(13);
    b.Input("x", {6}).Input("limit", {}, kInt64).Ints("axes", {0});
    AddNumber(b, "most", std::numeric_limits<int64_t>::max());
    AddNumber(b, "begin", begin);
    b.graph().add_output()->set_name("rows");
    pb::NodeProto* node = b.Node("Loop", {"most", "", "begin"}, "count");
    node->add_output("rows");
    AddBody(node, "body", {"i", "c", "k"}, {"more", "next", "row"}, [&](OnnxBuilder& g) {
      AddNumber(g, "step", step);
      AddNumber(g, "seven", 7);
      g.Floats("three", {3});
      g.Node("Gather", {"x", "i"}, "at");
      g.Node("Unsqueeze", {"at", "axes"}, "row");
      g.Node("Add", {"step", "k"}, "next");
      g.Node("Less", {"next", limit}, "below");
      g.Node("Less", {"row", "three"}, "small");
      g.Node("Squeeze", {"small"}, "holds");
      g.Node("And", {"below", "holds"}, "more");
    });
    return b;
  };
  const std::vector<RefTensor> breaks = {TensorOf({6}, {1, 2, 5, 1, 1, 1}), Whole({}, {9})};
  const std::vector<RefTensor> ends = {TensorOf({6}, {1, 2, 1, 1, 1, 1}), Whole({}, {9})};
  ExpectRuns(counted(1, 2, "seven"), {}, breaks, {{{3, 1}, {1, 2, 5}}});
  ExpectRuns(counted(2, 1, "seven"), {}, ends, {{{5, 1}, {1, 2, 1, 1, 1}}});
  ExpectRuns(counted(8, 1, "seven"), {}, ends, {{{1, 1}, {1}}});
  EXPECT_EQ(Slug(counted(1, 2, "limit")), "graph.onnx.size_bound") << "an input";
  EXPECT_EQ(Slug(counted(1, -2, "seven")), "graph.onnx.size_bound") << "it counts down";
}

TEST(OnnxLoop, StackedPartsHaveOneSize) {
  for (const bool differ : {false, true}) {
    OnnxBuilder b(13);
    b.Input("x", {3, 4}).Input("flags", {4}, kBool).Input(kTrips, {}, kInt64);
    b.graph().add_output()->set_name("rows");
    AddBody(b.Node("Loop", {kTrips, ""}, "rows"), "body", {"i", "c"}, {"c", "picked"},
            [&](OnnxBuilder& g) {
              g.Floats("nothing", {0});
              g.Node("Gather", {"x", "i"}, "row");
              if (differ) g.Node("Greater", {"row", "nothing"}, "flags_here");
              g.Node("Compress", {"row", differ ? "flags_here" : "flags"}, "picked");
            });
    ImportOptions options;
    options.open["rows_0"] = {0, 3};
    const RefTensor x = TensorOf({3, 4}, {1, 0, 3, 0, 5, 6, 0, 0, 9, 8, 7, 0});
    const RefTensor flags = TensorOf({4}, {1, 0, 1, 0}, ir::kBool);
    ExpectRuns(b, options, {x, flags, Whole({}, {1})}, {{{1, 2}, {1, 3}}});
    const Numbers two = differ ? Numbers{1, 3, 5, 6} : Numbers{1, 3, 5, 0};
    ExpectRuns(b, options, {x, flags, Whole({}, {2})}, {{{2, 2}, two}});
    const auto g = ImportOnnx(b.Bytes(), options);
    ASSERT_TRUE(g.ok()) << g.status();
    const auto out = Interpret(*g, {x, flags, Whole({}, {3})});
    EXPECT_EQ(support::Slug(out.status()), differ ? "graph.interp.stated_shape" : "");
    // Of no trip there is no row; how long one would be is known only where no trip changes it.
    const auto none = Interpret(*g, {x, flags, Whole({}, {0})});
    ASSERT_TRUE(none.ok()) << none.status();
    EXPECT_EQ((*none)[0].type.size(0), 0);
  }
}

TEST(OnnxLoop, WhatNobodyNeedsDoesNotRun) {
  OnnxBuilder b = SumsBelow();
  b.graph().mutable_output()->Clear();
  b.Node("Neg", {"start"}, "y");
  b.Output("y", {1, 2});
  ImportOptions options;
  options.open["below_0"] = {0, 9};
  options.open["sums_0"] = {0, 4};
  const auto g = ImportOnnx(b.Bytes(), options);
  ASSERT_TRUE(g.ok()) << g.status();
  EXPECT_EQ(g->nodes.size(), 1u) << Print(*g);
  EXPECT_TRUE(g->checks.empty());
}

// Bounds of sizes: boxes that are cut to an image, lists of which the first few are taken.
TEST(OnnxSelection, SizesAreAtMostWhatTheirNumbersAre) {
  OnnxBuilder b(13);
  b.Input("x", {2}).Floats("low", {0}).Floats("high", {96}).Floats("half", {0.5f});
  AddNumber(b, "zero", 0);
  AddNumber(b, "one", 1);
  b.Ints("five", {5});
  b.Ints("begin", {0}).Ints("last", {1});
  b.Node("Clip", {"x", "low", "high"}, "inside");
  b.Node("Mul", {"inside", "half"}, "center");
  OnnxBuilder::Attr(b.Node("Cast", {"center"}, "whole"), "to", int64_t{kInt64});
  b.Node("Gather", {"whole", "zero"}, "left");
  b.Node("Gather", {"whole", "one"}, "right");
  b.Node("Sub", {"right", "left"}, "width");
  b.Node("Add", {"width", "one"}, "count");
  b.Node("Range", {"zero", "count", "one"}, "pixels");
  b.Node("Slice", {"pixels", "begin", "five"}, "few");
  for (const char* name : {"pixels", "few"}) b.graph().add_output()->set_name(name);
  const auto g = ImportOnnx(b.Bytes());
  ASSERT_TRUE(g.ok()) << g.status();
  const auto most = [&](size_t output) {
    return *g->values[g->outputs[output]].type.shape[0].variables().begin();
  };
  EXPECT_EQ(g->size_ranges.at(most(0)).max - 1, 49);
  EXPECT_EQ(g->size_ranges.at(most(1)).max - 1, 5);
  const auto out = Interpret(*g, {TensorOf({2}, {-3, 1000})});
  ASSERT_TRUE(out.ok()) << out.status();
  EXPECT_EQ((*out)[0].type.sizes(), Shape{49});
  EXPECT_EQ((*out)[1].values, (Numbers{0, 1, 2, 3, 4}));
}

}  // namespace
}  // namespace tilewright::graph
