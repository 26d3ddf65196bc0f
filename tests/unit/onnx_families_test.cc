// ONNX operators that become several rows: each family against numbers worked out by its
// definition, before and after the graph passes; attributes, versions, and refusals by slug.
#include <gtest/gtest.h>

#include <cmath>

#include "compiler/onnx/onnx_import.h"
#include "tests/unit/onnx_evaluate.h"

namespace tilewright::graph {
namespace {

using namespace import_tests;

Numbers Ramp(int64_t n, double start = 0) {
  Numbers values;
  for (int64_t i = 0; i < n; ++i) values.push_back(start + static_cast<double>(i));
  return values;
}
std::vector<RefTensor> Evaluate(const OnnxBuilder& b, const std::vector<RefTensor>& inputs) {
  return tests::EvaluateOnnx(b, inputs, 1e-5);
}
void ExpectNear(const RefTensor& actual, const Shape& shape, const Numbers& expected) {
  import_tests::ExpectNear(actual, shape, expected, 1e-5);
}

TEST(OnnxReductions, NormsAndLogarithms) {
  const struct {
    const char* op;
    Numbers expected;
  } cases[] = {{"ReduceL1", {3, 7}},
               {"ReduceL2", {std::sqrt(5.0), 5}},
               {"ReduceSumSquare", {5, 25}},
               {"ReduceLogSumExp",
                {std::log(std::exp(1.0) + std::exp(-2.0)), 4 + std::log1p(std::exp(-1.0))}}};
  for (const auto& c : cases) {
    for (const int64_t opset : {13, 18}) {
      OnnxBuilder b(opset);
      b.Input("x", {2, 2}).Output("y", {2}).Ints("axes", {-1});
      pb::NodeProto* node =
          opset < 18 ? b.Node(c.op, {"x"}, "y") : b.Node(c.op, {"x", "axes"}, "y");
      if (opset < 18) OnnxBuilder::Attr(node, "axes", Shape{1});
      OnnxBuilder::Attr(node, "keepdims", int64_t{0});
      ExpectNear(Evaluate(b, {TensorOf({2, 2}, {1, -2, 3, 4})})[0], {2}, c.expected);
    }
  }
}

TEST(OnnxReductions, LogSumExpOfInfinitiesIsNoNan) {
  OnnxBuilder b(18);
  b.Input("x", {2, 2}).Output("y", {2, 1}).Ints("axes", {1});
  b.Node("ReduceLogSumExp", {"x", "axes"}, "y");
  auto g = ImportOnnx(b.Bytes());
  ASSERT_TRUE(g.ok()) << g.status();
  auto y = Interpret(*g, {TensorOf({2, 2}, {-INFINITY, -INFINITY, INFINITY, 1})});
  ASSERT_TRUE(y.ok()) << y.status();
  EXPECT_EQ((*y)[0].values, (Numbers{-INFINITY, INFINITY}));
}

TEST(OnnxReductions, NoAxesAreAllOrNone) {
  for (const int64_t noop : {0, 1}) {
    OnnxBuilder b(18);
    b.Input("x", {2, 2}).Output("y", noop != 0 ? Shape{2, 2} : Shape{1, 1});
    OnnxBuilder::Attr(b.Node("ReduceSumSquare", {"x"}, "y"), "noop_with_empty_axes", noop);
    EXPECT_EQ(Evaluate(b, {TensorOf({2, 2}, {1, 2, 3, 4})})[0].values,
              (noop != 0 ? Numbers{1, 4, 9, 16} : Numbers{30}));
  }
}

// Axes that are an input of the model follow from the shape of the result; where several sets of
// them give it, the module chooses.
TEST(OnnxReductions, AxesFromTheStatedShape) {
  const auto model = [](const char* op, Shape x, Shape y, int64_t axes, int64_t keepdims) {
    OnnxBuilder b(18);
    b.Input("x", x).Input("axes", {axes}, pb::TensorProto::INT64).Output("y", y);
    OnnxBuilder::Attr(b.Node(op, {"x", "axes"}, "y"), "keepdims", keepdims);
    return b;
  };
  const auto axes = [](Numbers values) {
    const int64_t count = static_cast<int64_t>(values.size());
    return TensorOf({count}, std::move(values), ir::kI64);
  };
  const RefTensor six = TensorOf({2, 3}, Ramp(6)), four = TensorOf({2, 2}, Ramp(4));
  EXPECT_EQ(Evaluate(model("ReduceMax", {2, 3}, {2}, 1, 0), {six, axes({1})})[0].values,
            (Numbers{2, 5}));
  const OnnxBuilder square = model("ReduceMax", {2, 2}, {2}, 1, 0);
  EXPECT_EQ(Evaluate(square, {four, axes({0})})[0].values, (Numbers{2, 3}));
  EXPECT_EQ(Evaluate(square, {four, axes({-1})})[0].values, (Numbers{1, 3}));
  const OnnxBuilder cube = model("ReduceLogSumExp", {2, 2, 2}, {2}, 2, 0);
  const RefTensor zeros = TensorOf({2, 2, 2}, Numbers(8, 0));
  ExpectNear(Evaluate(cube, {zeros, axes({2, 0})})[0], {2}, {std::log(4.0), std::log(4.0)});
  const RefTensor eight = TensorOf({2, 2, 2}, Ramp(8));
  const OnnxBuilder sums = model("ReduceSum", {2, 2, 2}, {2}, 2, 0);
  EXPECT_EQ(Evaluate(sums, {eight, axes({2, 0})})[0].values, (Numbers{10, 18}));
  EXPECT_EQ(Evaluate(sums, {eight, axes({-1, 1})})[0].values, (Numbers{6, 22}));
  EXPECT_EQ(Slug(model("ReduceMax", {2, 3}, {4}, 1, 0)), "graph.onnx.dynamic");
}

TEST(OnnxReductions, IntegersAndBools) {
  OnnxBuilder b(20);
  b.Input("x", {2, 2}, pb::TensorProto::INT32).Output("y", {2, 1}, pb::TensorProto::INT32);
  b.Input("f", {2, 2}, pb::TensorProto::BOOL).Output("any", {2, 1}, pb::TensorProto::BOOL);
  b.Ints("axes", {1});
  b.Node("ReduceSum", {"x", "axes"}, "y");
  b.Node("ReduceMax", {"f", "axes"}, "any");
  const auto y = Evaluate(b, {TensorOf({2, 2}, {1, 2, 2147483647, 1}, ir::kI32),
                              TensorOf({2, 2}, {0, 1, 0, 0}, ir::kBool)});
  EXPECT_EQ(y[0].values, (Numbers{3, -2147483648.0}));
  EXPECT_EQ(y[1].values, (Numbers{1, 0}));
}

// Statistics of each element of an image, as opsets 1 to 8 have it.
TEST(OnnxNorms, BatchNormOfElements) {
  OnnxBuilder b(7);
  b.Input("x", {2, 1, 2}).Output("y", {2, 1, 2});
  for (const char* name : {"scale", "bias", "mean", "variance"}) b.Input(name, {1, 2});
  pb::NodeProto* node =
      b.Node("BatchNormalization", {"x", "scale", "bias", "mean", "variance"}, "y");
  OnnxBuilder::Attr(node, "spatial", int64_t{0});
  OnnxBuilder::AttrFloat(node, "epsilon", 0);
  const auto y = Evaluate(
      b, {TensorOf({2, 1, 2}, {1, 2, 3, 4}), TensorOf({1, 2}, {2, 3}), TensorOf({1, 2}, {10, 20}),
          TensorOf({1, 2}, {1, 0}), TensorOf({1, 2}, {4, 0.25})});
  ExpectNear(y[0], {2, 1, 2}, {10, 32, 12, 44});
}

// Before opset 7 a node that is trained has more results and does not say is_test.
TEST(OnnxNorms, BatchNormThatTrainsIsRefused) {
  const auto model = [](int64_t opset, const char* attribute, int64_t value, bool results) {
    OnnxBuilder b(opset);
    b.Input("x", {2, 2}).Output("y", {2, 2});
    for (const char* name : {"s", "b", "m", "v"}) b.Weight(name, {2});
    pb::NodeProto* node = b.Node("BatchNormalization", {"x", "s", "b", "m", "v"}, "y");
    if (results) node->add_output("mean");
    OnnxBuilder::Attr(node, attribute, value);
    return Slug(b);
  };
  EXPECT_EQ(model(6, "is_test", 1, true), "");
  EXPECT_EQ(model(6, "is_test", 0, false), "");
  EXPECT_EQ(model(6, "is_test", 0, true), "graph.onnx.attribute");
  EXPECT_EQ(model(14, "training_mode", 1, true), "");
}

TEST(OnnxNorms, BatchNormByTheStatisticsOfItsOperand) {
  OnnxBuilder b(15);
  b.Input("x", {2, 2, 2}).Floats("s", {2, 1}).Floats("o", {0, 5}).Floats("m", {10, 0});
  b.Floats("v", {0, 1}).Output("y", {2, 2, 2}).Output("mean", {2}).Output("variance", {2});
  pb::NodeProto* node = b.Node("BatchNormalization", {"x", "s", "o", "m", "v"}, "y");
  node->add_output("mean");
  node->add_output("variance");
  OnnxBuilder::Attr(node, "training_mode", int64_t{1});
  OnnxBuilder::AttrFloat(node, "momentum", 0.5);
  OnnxBuilder::AttrFloat(node, "epsilon", 0);
  // Channel 0: 1, 3, 1, 3; channel 1: -4, 4, 4, -4.
  const auto out = Evaluate(b, {TensorOf({2, 2, 2}, {1, 3, -4, 4, 1, 3, 4, -4})});
  ExpectNear(out[0], {2, 2, 2}, {-2, 2, 4, 6, -2, 2, 6, 4});
  ExpectNear(out[1], {2}, {6, 0});
  ExpectNear(out[2], {2}, {0.5, 8.5});
}

TEST(OnnxNorms, LayerNormHasThreeResults) {
  OnnxBuilder b(17);
  b.Input("x", {2, 2}).Floats("s", {1, 2}).Floats("o", {0, 1});
  pb::NodeProto* node = b.Node("LayerNormalization", {"x", "s", "o"}, "y");
  node->add_output("mean");
  node->add_output("inverse");
  OnnxBuilder::AttrFloat(node, "epsilon", 0);
  b.Output("y", {2, 2}).Output("mean", {2, 1}).Output("inverse", {2, 1});
  const auto y = Evaluate(b, {TensorOf({2, 2}, {1, 3, 0, 8})});
  ExpectNear(y[0], {2, 2}, {-1, 3, -1, 3});
  ExpectNear(y[1], {2, 1}, {2, 4});
  ExpectNear(y[2], {2, 1}, {1, 0.25});
}

TEST(OnnxNorms, GroupNormParametersByVersion) {
  for (const int64_t opset : {18, 21}) {
    OnnxBuilder b(opset);
    b.Input("x", {1, 4, 1}).Output("y", {1, 4, 1});
    b.Floats("s", opset < 21 ? std::vector<float>{1, 2} : std::vector<float>{1, 1, 2, 2});
    b.Floats("o", opset < 21 ? std::vector<float>{0, 5} : std::vector<float>{0, 0, 5, 5});
    pb::NodeProto* node = b.Node("GroupNormalization", {"x", "s", "o"}, "y");
    OnnxBuilder::Attr(node, "num_groups", int64_t{2});
    OnnxBuilder::AttrFloat(node, "epsilon", 0);
    ExpectNear(Evaluate(b, {TensorOf({1, 4, 1}, {1, 3, 10, 30})})[0], {1, 4, 1}, {-1, 1, 3, 7});
    node->mutable_attribute(0)->set_i(3);
    EXPECT_EQ(Slug(b), "graph.onnx.attribute");
  }
}

TEST(OnnxNorms, LpNormOfZerosIsZero) {
  OnnxBuilder b;
  b.Input("x", {2, 2}).Output("y", {2, 2});
  OnnxBuilder::Attr(b.Node("LpNormalization", {"x"}, "y"), "axis", int64_t{1});
  ExpectNear(Evaluate(b, {TensorOf({2, 2}, {0, 0, 3, 4})})[0], {2, 2}, {0, 0, 0.6, 0.8});
}

TEST(OnnxLayout, ExpandTileTriluOneHot) {
  OnnxBuilder b(14);
  b.Input("x", {2, 1}).Ints("shape", {3, 1, 2}).Ints("repeats", {1, 1, 2}).Ints("k", {-1});
  b.Node("Expand", {"x", "shape"}, "e");
  b.Node("Tile", {"e", "repeats"}, "t");
  OnnxBuilder::Attr(b.Node("Trilu", {"t", "k"}, "y"), "upper", int64_t{0});
  b.Output("y", {3, 2, 4});
  EXPECT_EQ(Evaluate(b, {TensorOf({2, 1}, {1, 2})})[0].values,
            (Numbers{0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0}));
  OnnxBuilder h;
  h.Input("i", {3}, pb::TensorProto::INT64).Ints("depth", {3}).Floats("values", {2, 5});
  OnnxBuilder::Attr(h.Node("OneHot", {"i", "depth", "values"}, "y"), "axis", int64_t{0});
  h.Output("y", {3, 3});
  // 7 is no class, -1 the last one.
  EXPECT_EQ(Evaluate(h, {TensorOf({3}, {0, -1, 7}, ir::kI64)})[0].values,
            (Numbers{5, 2, 2, 2, 2, 2, 2, 5, 2}));
}

TEST(OnnxLayout, PadModes) {
  const struct {
    const char* mode;
    Numbers expected;
  } cases[] = {{"reflect", {2, 1, 0, 1, 2, 1, 0}},
               {"edge", {0, 0, 0, 1, 2, 2, 2}},
               {"wrap", {1, 2, 0, 1, 2, 0, 1}}};
  for (const auto& c : cases) {
    OnnxBuilder b(19);
    b.Input("x", {1, 3}).Output("y", {1, 7}).Ints("pads", {2, 2}).Ints("axes", {-1});
    OnnxBuilder::AttrText(b.Node("Pad", {"x", "pads", "", "axes"}, "y"), "mode", c.mode);
    EXPECT_EQ(Evaluate(b, {TensorOf({1, 3}, {0, 1, 2})})[0].values, c.expected) << c.mode;
  }
}

TEST(OnnxLayout, SliceOfOperandsKnownAtRunTime) {
  OnnxBuilder b;
  for (const char* name : {"starts", "ends", "axes", "steps"}) {
    b.Input(name, {1}, pb::TensorProto::INT64);
  }
  b.Input("x", {2, 4});
  b.Node("Slice", {"x", "starts", "ends", "axes", "steps"}, "y");
  b.Output("y", {2, 2});
  auto one = [](double v) { return TensorOf({1}, {v}, ir::kI64); };
  EXPECT_EQ(
      Evaluate(b, {one(-1), one(-100), one(-1), one(-2), TensorOf({2, 4}, Ramp(8))})[0].values,
      (Numbers{3, 1, 7, 5}));
  EXPECT_EQ(Evaluate(b, {one(1), one(3), one(1), one(1), TensorOf({2, 4}, Ramp(8))})[0].values,
            (Numbers{1, 2, 5, 6}));
}

// The arithmetic on shapes that exporters write is done at import.
TEST(OnnxLayout, ShapeArithmeticIsFolded) {
  OnnxBuilder b;
  b.Input("x", {2, 3, 4}).Ints("zero", {0}).Ints("one", {1}).Ints("end", {INT64_MAX});
  b.Ints("none", {0});
  b.Node("Shape", {"x"}, "shape");
  b.Node("Slice", {"shape", "zero", "one"}, "first");
  b.Node("Slice", {"shape", "one", "end"}, "rest");
  b.Node("Slice", {"shape", "zero", "none"}, "empty");
  OnnxBuilder::Attr(b.Node("ReduceProd", {"rest"}, "inner"), "keepdims", int64_t{1});
  OnnxBuilder::Attr(b.Node("Concat", {"empty", "inner", "first"}, "to"), "axis", int64_t{0});
  b.Node("Reshape", {"x", "to"}, "y");
  b.Output("y", {12, 2});
  auto g = ImportOnnx(b.Bytes());
  ASSERT_TRUE(g.ok()) << g.status();
  EXPECT_EQ(g->nodes.size(), 1u);
}

TEST(OnnxResize, LinearAndNearest) {
  const struct {
    const char *mode, *coordinates;
    Numbers expected;
  } cases[] = {{"nearest", "asymmetric", {1, 1, 3, 3}},
               {"linear", "half_pixel", {1, 1.5, 2.5, 3}},
               {"linear", "align_corners", {1, 1 + 2.0 / 3, 1 + 4.0 / 3, 3}},
               {"linear", "asymmetric", {1, 2, 3, 3}}};
  for (const auto& c : cases) {
    for (const bool constant : {true, false}) {
      OnnxBuilder b;
      b.Input("x", {1, 2}).Output("y", {1, 4});
      if (constant) b.Floats("s", {1, 2});
      if (!constant) b.Input("s", {2});
      pb::NodeProto* node = b.Node("Resize", {"x", "", "s"}, "y");
      OnnxBuilder::AttrText(node, "mode", c.mode);
      OnnxBuilder::AttrText(node, "coordinate_transformation_mode", c.coordinates);
      OnnxBuilder::AttrText(node, "nearest_mode", "floor");
      std::vector<RefTensor> inputs = {TensorOf({1, 2}, {1, 3})};
      if (!constant) inputs.push_back(TensorOf({2}, {1, 2}));
      ExpectNear(Evaluate(b, inputs)[0], {1, 4}, c.expected);
    }
  }
}

TEST(OnnxScatter, DuplicatesAndReductions) {
  const struct {
    const char* reduction;
    Numbers expected;
  } cases[] = {{"none", {1, 7, 3}},
               {"add", {1, 14, 3}},
               {"mul", {1, 70, 3}},
               {"max", {1, 7, 3}},
               {"min", {1, 2, 3}}};
  for (const auto& c : cases) {
    OnnxBuilder b(18);
    b.Input("x", {3}).Input("i", {2}, pb::TensorProto::INT64).Input("u", {2}).Output("y", {3});
    OnnxBuilder::AttrText(b.Node("ScatterElements", {"x", "i", "u"}, "y"), "reduction",
                          c.reduction);
    EXPECT_EQ(Evaluate(b, {TensorOf({3}, {1, 2, 3}), TensorOf({2}, {1, -2}, ir::kI64),
                           TensorOf({2}, {5, 7})})[0]
                  .values,
              c.expected)
        << c.reduction;
    OnnxBuilder nd(18);
    nd.Input("x", {3}).Input("i", {2, 1}, pb::TensorProto::INT64).Input("u", {2}).Output("y", {3});
    OnnxBuilder::AttrText(nd.Node("ScatterND", {"x", "i", "u"}, "y"), "reduction", c.reduction);
    EXPECT_EQ(Evaluate(nd, {TensorOf({3}, {1, 2, 3}), TensorOf({2, 1}, {1, -2}, ir::kI64),
                            TensorOf({2}, {5, 7})})[0]
                  .values,
              c.expected)
        << c.reduction;
  }
}

// As PyTorch exports index_put: an index of slices, repeated along them. It is looked for once for
// a slice, not once for an element.
TEST(OnnxScatter, IndicesOfSlicesThatExpandRepeats) {
  for (const char* reduction : {"none", "add"}) {
    for (const int64_t axis : {int64_t{0}, int64_t{1}}) {
      const Shape shape = axis == 0 ? Shape{3, 2} : Shape{2, 3};
      OnnxBuilder b(18);
      b.Input("x", shape).Input("i", {2}, kInt64).Input("u", {2, 2}).Output("y", shape);
      b.Ints("one", {1 - axis}).Ints("all", {2, 2}).Node("Unsqueeze", {"i", "one"}, "column");
      b.Node("Expand", {"column", "all"}, "places");
      pb::NodeProto* node = b.Node("ScatterElements", {"x", "places", "u"}, "y");
      OnnxBuilder::Attr(node, "axis", axis);
      OnnxBuilder::AttrText(node, "reduction", reduction);
      const auto run = [&](const Numbers& places) {
        return Evaluate(b, {TensorOf(shape, Ramp(6)), TensorOf({2}, places, ir::kI64),
                            TensorOf({2, 2}, {10, 20, 30, 40})})[0]
            .values;
      };
      const bool adds = std::string(reduction) == "add";
      if (axis == 0) {
        EXPECT_EQ(run({-1, 0}),
                  adds ? (Numbers{30, 41, 2, 3, 14, 25}) : (Numbers{30, 40, 2, 3, 10, 20}));
        EXPECT_EQ(run({1, 1}),
                  adds ? (Numbers{0, 1, 42, 63, 4, 5}) : (Numbers{0, 1, 30, 40, 4, 5}));
      } else {
        EXPECT_EQ(run({-1, 0}),
                  adds ? (Numbers{20, 1, 12, 43, 4, 35}) : (Numbers{20, 1, 10, 40, 4, 30}));
      }
      const auto g = ImportOnnx(b.Bytes());
      ASSERT_TRUE(g.ok()) << g.status();
      for (const Node& reduce : g->nodes) {
        if (reduce.op != "reduce" || adds) continue;
        EXPECT_EQ(g->values[reduce.outputs[0]].type.elements(), 3) << Print(*g);
      }
    }
  }
}

// Updates may cover a part of the other dimensions; the rest of the data stays.
TEST(OnnxScatter, UpdatesOfAPart) {
  OnnxBuilder b(18);
  b.Input("x", {3, 3}).Input("i", {1, 2}, pb::TensorProto::INT64).Input("u", {1, 2});
  b.Output("y", {3, 3});
  b.Node("ScatterElements", {"x", "i", "u"}, "y");
  EXPECT_EQ(Evaluate(b, {TensorOf({3, 3}, Ramp(9)), TensorOf({1, 2}, {2, 0}, ir::kI64),
                         TensorOf({1, 2}, {-1, -2})})[0]
                .values,
            (Numbers{0, -2, 2, 3, 4, 5, -1, 7, 8}));
}

TEST(OnnxScatter, GatherNdWithBatches) {
  OnnxBuilder b;
  b.Input("x", {2, 2, 2}).Input("i", {2, 1}, pb::TensorProto::INT64).Output("y", {2, 2});
  OnnxBuilder::Attr(b.Node("GatherND", {"x", "i"}, "y"), "batch_dims", int64_t{1});
  EXPECT_EQ(
      Evaluate(b, {TensorOf({2, 2, 2}, Ramp(8)), TensorOf({2, 1}, {1, -2}, ir::kI64)})[0].values,
      (Numbers{2, 3, 4, 5}));
}

// Positions in equal steps are a slice; others stay a gather.
TEST(OnnxGather, ConstantPositionsInEqualStepsAreSlices) {
  const struct {
    Shape of_positions;
    std::vector<int64_t> at;
    Numbers expected;  // of rows 0 1 2, 3 4 5
    bool slice;
  } cases[] = {{{}, {1}, {1, 4}, true},
               {{}, {-1}, {2, 5}, true},
               {{1, 1}, {0}, {0, 3}, true},
               {{2}, {0, 2}, {0, 2, 3, 5}, true},
               {{3}, {-1, 1, 0}, {2, 1, 0, 5, 4, 3}, true},
               {{3}, {0, 1, 0}, {0, 1, 0, 3, 4, 3}, false},
               {{2}, {1, 1}, {1, 1, 4, 4}, false}};
  for (const auto& c : cases) {
    OnnxBuilder b;
    Shape shape = {2};
    shape.insert(shape.end(), c.of_positions.begin(), c.of_positions.end());
    b.Input("x", {2, 3}).Small("i", pb::TensorProto::INT32, c.of_positions, c.at);
    OnnxBuilder::Attr(b.Node("Gather", {"x", "i"}, "y"), "axis", int64_t{1});
    b.Output("y", shape);
    const RefTensor y = Evaluate(b, {TensorOf({2, 3}, Ramp(6))})[0];
    EXPECT_EQ(y.type.sizes(), shape);
    EXPECT_EQ(y.values, c.expected);
    const std::string text = Print(*ImportOnnx(b.Bytes()));
    EXPECT_EQ(text.find("gather") == std::string::npos, c.slice) << text;
  }
}

TEST(OnnxEinsum, ProductsDiagonalsAndEllipses) {
  auto evaluate = [](const std::string& equation, const std::vector<RefTensor>& inputs,
                     const Shape& shape) {
    OnnxBuilder b;
    std::vector<std::string> names;
    for (const RefTensor& in : inputs) {
      names.push_back("x" + std::to_string(names.size()));
      b.Input(names.back(), in.type.sizes());
    }
    OnnxBuilder::AttrText(b.Node("Einsum", names, "y"), "equation", equation);
    b.Output("y", shape);
    const bool diagonal = equation.find("ii") != std::string::npos;
    EXPECT_TRUE(diagonal || !tests::OperatorsWhenOpen(b).empty()) << equation;
    return Evaluate(b, inputs)[0].values;
  };
  const RefTensor square = TensorOf({2, 2}, {1, 2, 3, 4}), row = TensorOf({2}, {5, 6});
  EXPECT_EQ(evaluate("ij,jk->ik", {square, square}, {2, 2}), (Numbers{7, 10, 15, 22}));
  EXPECT_EQ(evaluate("ij,jk", {square, square}, {2, 2}), (Numbers{7, 10, 15, 22}));
  EXPECT_EQ(evaluate("ii->i", {square}, {2}), (Numbers{1, 4}));
  EXPECT_EQ(evaluate("ii", {square}, {}), (Numbers{5}));
  EXPECT_EQ(evaluate("i,j->ji", {row, row}, {2, 2}), (Numbers{25, 30, 30, 36}));
  EXPECT_EQ(evaluate("...j,j->...", {square, row}, {2}), (Numbers{17, 39}));
  EXPECT_EQ(evaluate("ij,j,ik->k", {square, row, square}, {2}), (Numbers{134, 190}));
}

// A float mask of -inf for each key of a row: zeros, not NaN.
TEST(OnnxAttention, MaskedRowsAreZero) {
  OnnxBuilder b(23);
  b.Input("q", {1, 1, 2, 1}).Input("k", {1, 1, 2, 1}).Input("v", {1, 1, 2, 1});
  b.Input("m", {2, 2}, pb::TensorProto::BOOL).Output("y", {1, 1, 2, 1});
  b.Node("Attention", {"q", "k", "v", "m"}, "y");
  const RefTensor zeros = TensorOf({1, 1, 2, 1}, {0, 0});
  EXPECT_EQ(Evaluate(b, {zeros, zeros, TensorOf({1, 1, 2, 1}, {2, 4}),
                         TensorOf({2, 2}, {1, 1, 0, 0}, ir::kBool)})[0]
                .values,
            (Numbers{3, 0}));
}

TEST(OnnxAttention, CausalWithSharedKeyHeads) {
  OnnxBuilder b(23);
  b.Input("q", {1, 2, 2, 1}).Input("k", {1, 1, 2, 1}).Input("v", {1, 1, 2, 1});
  b.Output("y", {1, 2, 2, 1});
  OnnxBuilder::Attr(b.Node("Attention", {"q", "k", "v"}, "y"), "is_causal", int64_t{1});
  EXPECT_EQ(Evaluate(b, {TensorOf({1, 2, 2, 1}, {0, 0, 0, 0}), TensorOf({1, 1, 2, 1}, {1, 2}),
                         TensorOf({1, 1, 2, 1}, {2, 4})})[0]
                .values,
            (Numbers{2, 3, 2, 3}));
}

// Found by the fuzzer: what follows an unknown input read dimensions of a value that is not there.
TEST(OnnxAttention, AnUnknownInputIsAnErrorAndNothingElse) {
  OnnxBuilder b(24);
  b.Input("q", {2, 3, 4, 8}).Input("k", {2, 3, 6, 8}).Input("v", {2, 3, 6, 10});
  b.Output("y", {2, 3, 4, 10});
  b.Node("Attention", {"q", "k", "v", "", "", "", "lengths"}, "y");
  EXPECT_EQ(Slug(b), "graph.onnx.missing_input");
}

// Batch and lengths are open: heads and their sizes are not.
TEST(OnnxAttention, OpenBatchAndLengths) {
  for (const bool causal : {false, true}) {
    OnnxBuilder b(23);
    b.Input("q", {2, 5, 12}).Input("k", {2, 7, 12}).Input("v", {2, 7, 12});
    b.Input("m", {5, 7}, kBool).Output("y", {2, 5, 12});
    pb::NodeProto* node = b.Node("Attention", {"q", "k", "v", "m"}, "y");
    OnnxBuilder::Attr(node, "q_num_heads", int64_t{3});
    OnnxBuilder::Attr(node, "kv_num_heads", int64_t{3});
    OnnxBuilder::Attr(node, "is_causal", int64_t{causal});
    const RefTensor x = TensorOf({2, 7, 12}, Random(168, 1, 3));
    Numbers flags(35, 1);
    flags[3] = flags[12] = 0;
    const std::vector<RefTensor> inputs = {TensorOf({2, 5, 12}, Random(120, 1, 4)), x, x,
                                           TensorOf({5, 7}, flags, ir::kBool)};
    const auto y = Evaluate(b, inputs);
    EXPECT_TRUE(tests::OperatorsWhenOpen(b, {12}).contains("softmax"));
    tests::ExpectSameWhenOpen(b, inputs, y, {12});
  }
  OnnxBuilder b(23);
  b.Input("x", {2, 5, 12}).Input("c", {50, 2}).Input("s", {50, 2});
  b.Input("p", {2, 5}, kInt64).Output("y", {2, 5, 12});
  OnnxBuilder::Attr(b.Node("RotaryEmbedding", {"x", "c", "s", "p"}, "y"), "num_heads", int64_t{3});
  const std::vector<RefTensor> inputs = {
      TensorOf({2, 5, 12}, Random(120, 1, 4)), TensorOf({50, 2}, Random(100, 1, 5)),
      TensorOf({50, 2}, Random(100, 1, 6)),
      TensorOf({2, 5}, {0, 1, 2, 3, 4, 9, 8, 7, 6, 49}, ir::kI64)};
  const auto y = Evaluate(b, inputs);
  EXPECT_TRUE(tests::OperatorsWhenOpen(b, {12}).contains("gather"));
  tests::ExpectSameWhenOpen(b, inputs, y, {12});
}

// One unit, all weights 1, of the input and of the state.
TEST(OnnxRecurrent, DirectionsLengthsAndLayout) {
  const double a = std::tanh(1.0), ab = std::tanh(2 + a), last = std::tanh(2.0);
  const double back = std::tanh(1 + last);
  for (const bool batch_first : {false, true}) {
    OnnxBuilder b(14);
    const Shape x_shape = batch_first ? Shape{1, 2, 1} : Shape{2, 1, 1};
    b.Input("x", x_shape).Input("w", {2, 1, 1}).Input("r", {2, 1, 1});
    pb::NodeProto* node = b.Node("RNN", {"x", "w", "r"}, "y");
    OnnxBuilder::AttrText(node, "direction", "bidirectional");
    OnnxBuilder::Attr(node, "layout", int64_t{batch_first});
    b.Output("y", batch_first ? Shape{1, 2, 2, 1} : Shape{2, 2, 1, 1});
    const auto y = Evaluate(
        b, {TensorOf(x_shape, {1, 2}), TensorOf({2, 1, 1}, {1, 1}), TensorOf({2, 1, 1}, {1, 1})});
    ExpectNear(y[0], y[0].type.sizes(), {a, back, ab, last});
  }
}

TEST(OnnxRecurrent, OutputsBehindTheEndAreZero) {
  OnnxBuilder b(14);
  b.Input("x", {2, 1, 1}).Input("w", {1, 1, 1}).Input("r", {1, 1, 1});
  b.Input("n", {1}, pb::TensorProto::INT32);
  pb::NodeProto* node = b.Node("RNN", {"x", "w", "r", "", "n"}, "y");
  node->add_output("h");
  OnnxBuilder::AttrText(node, "direction", "forward");
  b.Output("y", {2, 1, 1, 1}).Output("h", {1, 1, 1});
  const RefTensor one = TensorOf({1, 1, 1}, {1});
  const auto y = Evaluate(b, {TensorOf({2, 1, 1}, {1, 2}), one, one, TensorOf({1}, {1}, ir::kI32)});
  ExpectNear(y[0], {2, 1, 1, 1}, {std::tanh(1.0), 0});
  ExpectNear(y[1], {1, 1, 1}, {std::tanh(1.0)});
  OnnxBuilder::AttrText(node, "direction", "sideways");
  node->mutable_attribute()->DeleteSubrange(0, 1);
  EXPECT_EQ(Slug(b), "graph.onnx.attribute");
}

// A loop over time gives what the steps one by one give, to the last bit (ExpectSameWhenOpen).
TEST(OnnxRecurrent, AnOpenNumberOfStepsIsALoop) {
  struct Form {
    const char* op;
    int64_t gates;
    const char* attribute;  // set to 1
  };
  const Form forms[] = {{"RNN", 1, ""},
                        {"GRU", 3, ""},
                        {"GRU", 3, "linear_before_reset"},
                        {"LSTM", 4, ""},
                        {"LSTM", 4, "input_forget"}};
  for (const Form& form : forms) {
    for (const char* direction : {"forward", "reverse", "bidirectional"}) {
      for (const bool lengths : {false, true}) {
        const int64_t hidden = 3, inputs = 4,
                      both = std::string(direction) == "bidirectional" ? 2 : 1;
        OnnxBuilder b(14, 7);
        b.Input("x", {5, 2, inputs}).Weight("w", {both, form.gates * hidden, inputs});
        b.Weight("r", {both, form.gates * hidden, hidden});
        b.Weight("b", {both, 2 * form.gates * hidden});
        if (lengths) b.Small("n", pb::TensorProto::INT32, {2}, {2, 5});
        pb::NodeProto* node = b.Node(form.op, {"x", "w", "r", "b"}, "y");
        if (lengths) node->add_input("n");
        node->add_output("h");
        OnnxBuilder::AttrText(node, "direction", direction);
        if (*form.attribute != 0) OnnxBuilder::Attr(node, form.attribute, int64_t{1});
        b.Output("y", {5, both, 2, hidden}).Output("h", {both, 2, hidden});
        SCOPED_TRACE(std::string(form.op) + form.attribute + direction + (lengths ? "n" : ""));
        Evaluate(b, {TensorOf({5, 2, inputs}, Random(40, 1, 3))});
        EXPECT_TRUE(tests::OperatorsWhenOpen(b).contains("recurrent"));
      }
    }
  }
}

// Padding that depends on a size is a node of its own where the size is open.
TEST(OnnxWindows, PaddingOfOpenImages) {
  for (const char* mode : {"SAME_UPPER", "SAME_LOWER"}) {
    OnnxBuilder b;
    b.Input("x", {1, 1, 7, 10}).Weight("w", {1, 1, 3, 5});
    for (const char* op : {"Conv", "MaxPool", "ConvTranspose"}) {
      const bool pool = std::string(op) == "MaxPool";
      pb::NodeProto* node = b.Node(op, pool ? Names{"x"} : Names{"x", "w"}, op);
      OnnxBuilder::AttrText(node, "auto_pad", mode);
      OnnxBuilder::Attr(node, "strides", Shape{2, 3});
      if (pool) OnnxBuilder::Attr(node, "kernel_shape", Shape{3, 4});
    }
    b.Output("Conv", {1, 1, 4, 4}).Output("MaxPool", {1, 1, 4, 4});
    b.Output("ConvTranspose", {1, 1, 14, 30});
    Evaluate(b, {TensorOf({1, 1, 7, 10}, Random(70, 1, 3))});
    EXPECT_TRUE(tests::OperatorsWhenOpen(b).contains("pad"));
  }
  for (const char* op : {"MaxPool", "AveragePool", "LpPool"}) {
    OnnxBuilder b(22);
    b.Input("x", {1, 1, 7, 10}).Output("y", {1, 1, 3, 4});
    pb::NodeProto* node = b.Node(op, {"x"}, "y");
    OnnxBuilder::Attr(node, "ceil_mode", int64_t{1});
    OnnxBuilder::Attr(node, "kernel_shape", Shape{3, 4});
    OnnxBuilder::Attr(node, "strides", Shape{2, 3});
    OnnxBuilder::Attr(node, "pads", Shape{0, 1, 0, 1});
    SCOPED_TRACE(op);
    Evaluate(b, {TensorOf({1, 1, 7, 10}, Random(70, 1, 3))});
    EXPECT_TRUE(tests::OperatorsWhenOpen(b).contains("pool2d"));
  }
}

// A window that would begin in the padding at the end is none, whether padding counts or not.
TEST(OnnxWindows, NoWindowBeginsBehindTheImage) {
  for (const int64_t include : {0, 1}) {
    OnnxBuilder b(22);
    b.Input("x", {1, 1, 2}).Output("y", {1, 1, 1});
    pb::NodeProto* node = b.Node("AveragePool", {"x"}, "y");
    OnnxBuilder::Attr(node, "kernel_shape", Shape{3});
    OnnxBuilder::Attr(node, "strides", Shape{3});
    OnnxBuilder::Attr(node, "pads", Shape{1, 1});
    OnnxBuilder::Attr(node, "ceil_mode", int64_t{1});
    OnnxBuilder::Attr(node, "count_include_pad", include);
    ExpectNear(Evaluate(b, {TensorOf({1, 1, 2}, {6, 12})})[0], {1, 1, 1},
               {include != 0 ? 6.0 : 9.0});
  }
}

TEST(OnnxWindows, ThreeDimensions) {
  OnnxBuilder b;
  b.Input("x", {1, 1, 2, 2, 2}).Weight("w", {1, 1, 2, 2, 2}, 0);
  for (int i = 0; i < 8; ++i) b.graph().mutable_initializer(0)->set_float_data(i, 1);
  OnnxBuilder::Attr(b.Node("Conv", {"x", "w"}, "c"), "pads", Shape{0, 0, 0, 1, 0, 0});
  b.Node("ConvTranspose", {"c", "w"}, "t");
  OnnxBuilder::Attr(b.Node("MaxPool", {"x"}, "m"), "kernel_shape", Shape{2, 1, 2});
  OnnxBuilder::Attr(b.Node("AveragePool", {"x"}, "a"), "kernel_shape", Shape{2, 2, 2});
  b.Output("c", {1, 1, 2, 1, 1}).Output("t", {1, 1, 3, 2, 2});
  b.Output("m", {1, 1, 1, 2, 1}).Output("a", {1, 1, 1, 1, 1});
  const auto y = Evaluate(b, {TensorOf({1, 1, 2, 2, 2}, Ramp(8))});
  EXPECT_EQ(y[0].values, (Numbers{28, 22}));
  EXPECT_EQ(y[1].values, (Numbers{28, 28, 28, 28, 50, 50, 50, 50, 22, 22, 22, 22}));
  EXPECT_EQ(y[2].values, (Numbers{5, 7}));
  EXPECT_EQ(y[3].values, (Numbers{3.5}));
}

// Of a window that hangs over the end, the padding counts, and what is beyond the padding does not.
TEST(OnnxWindows, MeansOfWindowsAtTheEnd) {
  OnnxBuilder b(22);
  b.Input("x", {1, 1, 4}).Output("y", {1, 1, 3});
  pb::NodeProto* node = b.Node("AveragePool", {"x"}, "y");
  OnnxBuilder::Attr(node, "ceil_mode", int64_t{1});
  OnnxBuilder::Attr(node, "count_include_pad", int64_t{1});
  OnnxBuilder::Attr(node, "kernel_shape", Shape{3});
  OnnxBuilder::Attr(node, "strides", Shape{2});
  OnnxBuilder::Attr(node, "pads", Shape{1, 1});
  ExpectNear(Evaluate(b, {TensorOf({1, 1, 4}, {1, 2, 3, 4})})[0], {1, 1, 3}, {1, 3, 2});
}

TEST(OnnxWindows, LpPool) {
  OnnxBuilder b;
  b.Input("x", {1, 1, 3}).Output("y", {1, 1, 2});
  OnnxBuilder::Attr(b.Node("LpPool", {"x"}, "y"), "kernel_shape", Shape{2});
  ExpectNear(Evaluate(b, {TensorOf({1, 1, 3}, {3, -4, 3})})[0], {1, 1, 2}, {5, 5});
}

TEST(OnnxWindows, TransposedToAStatedShape) {
  OnnxBuilder b;
  b.Input("x", {1, 1, 2}).Weight("w", {1, 1, 3}, 0).Output("y", {1, 1, 4});
  for (int i = 0; i < 3; ++i) b.graph().mutable_initializer(0)->set_float_data(i, 1);
  pb::NodeProto* node = b.Node("ConvTranspose", {"x", "w"}, "y");
  OnnxBuilder::Attr(node, "strides", Shape{2});
  OnnxBuilder::AttrText(node, "auto_pad", "SAME_UPPER");
  // Full: 1 1 3 2 2, one element too long: it is cut at the end.
  EXPECT_EQ(Evaluate(b, {TensorOf({1, 1, 2}, {1, 2})})[0].values, (Numbers{1, 1, 3, 2}));
}

// Numbers by numpy.linalg.det. The second matrix needs its rows exchanged, the third is singular.
TEST(OnnxMatrices, DeterminantsOfABatch) {
  OnnxBuilder b(22);
  b.Input("x", {4, 3, 3}).Output("y", {4});
  b.Node("Det", {"x"}, "y");
  const Numbers x = {2, -1, 0, 1, 3, 4, 5, -2, 1, 0, 1, 0, 0, 0, 1, 1, 0, 0,
                     1, 2,  3, 2, 4, 6, 7, 8,  9, 0, 0, 2, 3, 1, 0, 4, 5, 1};
  const auto out = Evaluate(b, {TensorOf({4, 3, 3}, x)});
  ExpectNear(out[0], {4}, {3, 1, 0, 22});
  OnnxBuilder one(22);
  one.Input("x", {1, 1}).Output("y", {});
  one.Node("Det", {"x"}, "y");
  EXPECT_EQ(Evaluate(one, {TensorOf({1, 1}, {-7})})[0].values, (Numbers{-7}));
  OnnxBuilder oblong(22);
  oblong.Input("x", {2, 3}).Output("y", {});
  oblong.Node("Det", {"x"}, "y");
  EXPECT_EQ(Slug(oblong), "graph.onnx.shape");
}

// Two spatial dimensions whose sizes follow from auto_pad: stride times the input's.
TEST(OnnxConvTranspose, SamePaddingInTwoDimensions) {
  for (const auto& [mode, expected] :
       {std::pair("SAME_UPPER", Numbers{1, 1, 3, 2, 1, 1, 3, 2, 4, 4, 10, 6, 3, 3, 7, 4}),
        std::pair("SAME_LOWER", Numbers{1, 3, 2, 2, 4, 10, 6, 6, 3, 7, 4, 4, 3, 7, 4, 4})}) {
    OnnxBuilder b(11);
    b.Input("x", {1, 1, 2, 2}).Input("w", {1, 1, 3, 3}).Output("y", {1, 1, 4, 4});
    pb::NodeProto* node = b.Node("ConvTranspose", {"x", "w"}, "y");
    OnnxBuilder::AttrText(node, "auto_pad", mode);
    OnnxBuilder::Attr(node, "strides", Shape{2, 2});
    const auto out = Evaluate(
        b, {TensorOf({1, 1, 2, 2}, {1, 2, 3, 4}), TensorOf({1, 1, 3, 3}, Numbers(9, 1.0))});
    ExpectNear(out[0], {1, 1, 4, 4}, expected);
  }
}

// Two images of 2 places, 3 classes. Probabilities are 1/2, 1/4 and 1/8: logarithms to base 2 but
// for a factor.
TEST(OnnxLoss, WeighsAndIgnoresTargets) {
  const double k = std::log(2);
  const RefTensor scores = TensorOf({2, 3, 2}, {-k, -3 * k, -2 * k, -2 * k, -3 * k, -k,  //
                                                -2 * k, -k, -k, -2 * k, -3 * k, -3 * k});
  const RefTensor target = TensorOf({2, 2}, {0, 2, 1, 0}, ir::kI64);
  // -scores of the targets: 1, 1, 1 and 1; of the others below 1, 2, 3 and 2.
  const RefTensor other = TensorOf({2, 2}, {0, 1, 2, 1}, ir::kI64);
  const auto loss = [&](const RefTensor& of, const char* reduction, bool weights, bool ignores) {
    OnnxBuilder b(13);
    b.Input("x", {2, 3, 2}).Input("t", {2, 2}, pb::TensorProto::INT64);
    b.graph().add_output()->set_name("y");
    if (weights) b.Floats("w", {1, 2, 4});
    pb::NodeProto* node =
        b.Node("NegativeLogLikelihoodLoss", weights ? Names{"x", "t", "w"} : Names{"x", "t"}, "y");
    OnnxBuilder::AttrText(node, "reduction", reduction);
    if (ignores) OnnxBuilder::Attr(node, "ignore_index", int64_t{1});
    Numbers found = tests::EvaluateOnnx(b, {scores, of}, 1e-6)[0].values;
    for (double& value : found) value /= k;
    return found;
  };
  const auto near = [](const Numbers& found, const Numbers& expected) {
    ASSERT_EQ(found.size(), expected.size());
    for (size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-5) << i;
  };
  near(loss(target, "none", false, false), {1, 1, 1, 1});
  near(loss(other, "none", false, false), {1, 2, 3, 2});
  near(loss(other, "sum", false, false), {8});
  near(loss(other, "mean", false, false), {2});
  near(loss(other, "none", true, false), {1, 4, 12, 4});
  near(loss(other, "mean", true, false), {21.0 / 9});
  near(loss(other, "none", false, true), {1, 0, 3, 0});
  near(loss(other, "mean", false, true), {2});
  near(loss(other, "mean", true, true), {13.0 / 5});
}

TEST(OnnxLoss, CrossEntropyIsThatOfTheSoftmax) {
  OnnxBuilder b(13);
  b.Input("x", {2, 3}).Input("t", {2}, pb::TensorProto::INT32).Output("log", {2, 3});
  b.graph().add_output()->set_name("y");
  pb::NodeProto* node = b.Node("SoftmaxCrossEntropyLoss", {"x", "t"}, "y");
  node->add_output("log");
  OnnxBuilder::AttrText(node, "reduction", "none");
  const Numbers x = {1, 2, 3, -1, 0, 100};
  const auto out =
      tests::EvaluateOnnx(b, {TensorOf({2, 3}, x), TensorOf({2}, {0, 2}, ir::kI32)}, 1e-6);
  for (size_t row = 0; row < 2; ++row) {
    double sum = 0;
    for (size_t i = 0; i < 3; ++i) sum += std::exp(x[row * 3 + i] - x[row * 3 + 2]);
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_NEAR(out[0].values[row * 3 + i], x[row * 3 + i] - x[row * 3 + 2] - std::log(sum),
                  1e-4);
    }
    EXPECT_NEAR(out[1].values[row], -out[0].values[row * 3 + (row == 0 ? 0 : 2)], 1e-6);
  }
  OnnxBuilder flat(13);
  flat.Input("x", {3}).Input("t", {}, pb::TensorProto::INT64).Output("y", {});
  flat.Node("SoftmaxCrossEntropyLoss", {"x", "t"}, "y");
  EXPECT_EQ(Slug(flat), "graph.onnx.shape");
}

}  // namespace
}  // namespace tilewright::graph
