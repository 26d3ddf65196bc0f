// Import of elementwise operators and of those that order elements, by attributes, element types
// and edge values: the graph, and the graph after its passes, give numbers worked out by hand.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/unit/onnx_evaluate.h"

namespace tilewright::graph {
namespace {

using namespace import_tests;
using Ints = std::vector<int64_t>;

constexpr int64_t kMax = std::numeric_limits<int64_t>::max();

std::vector<RefTensor> Evaluate(const OnnxBuilder& b, const std::vector<RefTensor>& inputs) {
  return tests::EvaluateOnnx(b, inputs, 0);
}
RefTensor Whole(const Ints& values, ir::DType type = ir::kI64) {
  return op::FromIntegers({type, {static_cast<int64_t>(values.size())}}, values);
}

TEST(OnnxElementwise, IntegersOf64BitsAreExact) {
  OnnxBuilder b(13);
  b.Input("x", {3}, pb::TensorProto::INT64).Input("y", {3}, pb::TensorProto::INT64);
  b.Ints("low", {kMax - 2});
  b.graph().mutable_initializer(0)->clear_dims();
  b.Node("Add", {"x", "y"}, "sum");
  b.Node("Less", {"x", "y"}, "less");
  b.Node("Clip", {"x", "low"}, "clipped");
  b.Node("Where", {"less", "x", "sum"}, "chosen");
  b.Output("sum", {3}, pb::TensorProto::INT64).Output("clipped", {3}, pb::TensorProto::INT64);
  b.Output("chosen", {3}, pb::TensorProto::INT64);
  const auto out = Evaluate(b, {Whole({kMax, kMax - 1, 5}), Whole({1, kMax, -7})});
  ASSERT_EQ(out.size(), 3u);
  EXPECT_EQ(op::IntegersOf(out[0]), (Ints{-kMax - 1, -3, -2}));
  EXPECT_EQ(op::IntegersOf(out[1]), (Ints{kMax, kMax - 1, kMax - 2}));
  EXPECT_EQ(op::IntegersOf(out[2]), (Ints{-kMax - 1, kMax - 1, -2}));
}

TEST(OnnxElementwise, FloatsOf16BitsRoundOncePerOperator) {
  for (const auto& [type, dtype, step] : {std::tuple(pb::TensorProto::FLOAT16, ir::kF16, 11),
                                          std::tuple(pb::TensorProto::BFLOAT16, ir::kBF16, 8)}) {
    OnnxBuilder b(13);
    b.Input("x", {2}, type).Input("y", {2}, type).Output("z", {2}, type);
    b.Node("Add", {"x", "y"}, "s");
    b.Node("Identity", {"s"}, "z");
    const double tie = std::ldexp(1, -step);  // half of what 1 is exact to
    const auto out =
        Evaluate(b, {TensorOf({2}, {1, 1}, dtype), TensorOf({2}, {tie, tie * 3}, dtype)});
    ASSERT_EQ(out.size(), 1u);
    EXPECT_EQ(out[0].type.dtype, dtype);
    EXPECT_EQ(out[0].values, (Numbers{1, 1 + 4 * tie})) << "half to even";
  }
}

// The attribute axis of opset 6: the second operand's dimensions begin at this one of the first's.
TEST(OnnxElementwise, AxisOfOldBroadcasting) {
  const auto sum = [](const char* op, Shape y, int64_t axis) {
    OnnxBuilder b(6);
    b.Input("x", {2, 2, 3}).Input("y", y).Output("z", {2, 2, 3});
    pb::NodeProto* node = b.Node(op, {"x", "y"}, "z");
    OnnxBuilder::Attr(node, "broadcast", int64_t{1});
    OnnxBuilder::Attr(node, "axis", axis);
    return b;
  };
  const RefTensor x = TensorOf({2, 2, 3}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
  const RefTensor two = TensorOf({2}, {10, 20});
  EXPECT_EQ(Evaluate(sum("Add", {2}, 1), {x, two})[0].values,
            (Numbers{10, 11, 12, 23, 24, 25, 16, 17, 18, 29, 30, 31}));
  EXPECT_EQ(Evaluate(sum("Sub", {2}, 0), {x, two})[0].values,
            (Numbers{-10, -9, -8, -7, -6, -5, -14, -13, -12, -11, -10, -9}));
  EXPECT_EQ(Evaluate(sum("Add", {2, 3}, -2), {x, TensorOf({2, 3}, {1, 2, 3, 4, 5, 6})})[0].values,
            (Numbers{1, 3, 5, 7, 9, 11, 7, 9, 11, 13, 15, 17}));
  EXPECT_EQ(Evaluate(sum("Pow", {2}, 1), {x, TensorOf({2}, {2, 1})})[0].values,
            (Numbers{0, 1, 4, 3, 4, 5, 36, 49, 64, 9, 10, 11}));
  EXPECT_EQ(Slug(sum("Add", {2, 3}, 2)), "graph.onnx.broadcast");
}

TEST(OnnxElementwise, PowersOfTwoTypes) {
  const auto power = [](int base, int exponent, const RefTensor& x, const RefTensor& y) {
    OnnxBuilder b(15);
    b.Input("x", x.type.sizes(), base).Input("y", y.type.sizes(), exponent);
    b.Output("z", x.type.sizes(), base).Node("Pow", {"x", "y"}, "z");
    return Evaluate(b, {x, y}).at(0);
  };
  EXPECT_EQ(power(pb::TensorProto::FLOAT, pb::TensorProto::INT64, TensorOf({3}, {2, -3, 4}),
                  Whole({-1, 3, 0}))
                .values,
            (Numbers{0.5, -27, 1}));
  EXPECT_EQ(power(pb::TensorProto::INT32, pb::TensorProto::FLOAT, Whole({2, 3, 9}, ir::kI32),
                  TensorOf({3}, {3, 2, 0.5}))
                .values,
            (Numbers{8, 9, 3}));
  for (const auto& [exponent, expected] :
       std::vector<std::pair<int, Ints>>{{0, {1, 1}}, {1, {3, -2}}, {5, {243, -32}}}) {
    OnnxBuilder b(15);
    b.Input("x", {2}, pb::TensorProto::INT64).Output("z", {2}, pb::TensorProto::INT64);
    b.Small("y", pb::TensorProto::INT32, {}, {exponent}).Node("Pow", {"x", "y"}, "z");
    EXPECT_EQ(op::IntegersOf(Evaluate(b, {Whole({3, -2})}).at(0)), expected);
  }
}

// By an exponent that is data: powers of -1 and 0 by large ones, whole parts of negative ones,
// products that wrap.
TEST(OnnxElementwise, PowersOfIntegersByData) {
  const auto power = [](int type, ir::DType dtype, const Ints& x, const Ints& y) {
    const auto count = static_cast<int64_t>(x.size());
    OnnxBuilder b(15);
    b.Input("x", {count}, type).Input("y", {count}, pb::TensorProto::INT64);
    b.Output("z", {count}, type).Node("Pow", {"x", "y"}, "z");
    return op::IntegersOf(Evaluate(b, {Whole(x, dtype), Whole(y)}).at(0));
  };
  EXPECT_EQ(
      power(pb::TensorProto::INT64, ir::kI64, {3, -2, 7, 0, 0, 2, -3}, {39, 63, 0, 0, 5, 64, 40}),
      (Ints{4052555153018976267, -kMax - 1, 1, 1, 0, 0, -6289078614652622815}));
  EXPECT_EQ(power(pb::TensorProto::INT64, ir::kI64, {-1, -1, 1, 0, 2, -5, -1, 1},
                  {1000000001, 1000000000, kMax, 64, -1, -3, -3, -2}),
            (Ints{-1, 1, 1, 0, 0, 0, -1, 1}));
  EXPECT_EQ(power(pb::TensorProto::INT32, ir::kI32, {-7, 46341, 2}, {3, 2, 31}),
            (Ints{-343, -2147479015, -2147483648}));
  EXPECT_EQ(power(pb::TensorProto::UINT8, ir::kU8, {255, 3, 1, 2}, {2, 5, -1, -1}),
            (Ints{1, 243, 1, 0}));
}

// The bits of the type, whatever the sign of a number: those that go out are lost, and a shift to
// the right fills with the sign.
TEST(OnnxElementwise, ShiftsOfSignedIntegers) {
  const auto shift = [](const char* direction, int type, ir::DType dtype, const Ints& x,
                        const Ints& y) {
    const auto count = static_cast<int64_t>(x.size());
    OnnxBuilder b(28);
    b.Input("x", {count}, type).Input("y", {count}, type).Output("z", {count}, type);
    OnnxBuilder::AttrText(b.Node("BitShift", {"x", "y"}, "z"), "direction", direction);
    return op::IntegersOf(Evaluate(b, {Whole(x, dtype), Whole(y, dtype)}).at(0));
  };
  EXPECT_EQ(shift("RIGHT", pb::TensorProto::INT8, ir::kI8, {-128, -1, 100, -5, -5, 5, 5},
                  {3, 7, 2, 8, -1, 9, -1}),
            (Ints{-16, -1, 25, -1, -1, 0, 0}));
  EXPECT_EQ(
      shift("LEFT", pb::TensorProto::INT8, ir::kI8, {-128, -1, 100, -5, 3, 3}, {1, 7, 1, 2, 8, -1}),
      (Ints{0, -128, -56, -20, 0, 0}));
  EXPECT_EQ(shift("RIGHT", pb::TensorProto::INT64, ir::kI64, {-kMax - 1, kMax}, {62, 62}),
            (Ints{-2, 1}));
  EXPECT_EQ(shift("LEFT", pb::TensorProto::INT64, ir::kI64, {1, -3}, {63, 62}),
            (Ints{-kMax - 1, int64_t{1} << 62}));
}

TEST(OnnxElementwise, RemaindersOfFloatsHaveTheSignOfTheDivisor) {
  const double inf = INFINITY, nan = std::nan("");
  const Numbers x = {-7, 7.5, -6, 6, 0, -0.0, -3, 3, 3, inf, 1, nan};
  const Numbers y = {3, -2, 3, -3, -2, 2, inf, inf, -inf, 2, 0, 1};
  const Numbers expected = {2, -0.5, 0, -0.0, -0.0, 0, inf, 3, -inf, nan, nan, nan};
  for (const auto& [type, dtype] :
       {std::pair(pb::TensorProto::FLOAT, ir::kF32), std::pair(pb::TensorProto::DOUBLE, ir::kF64),
        std::pair(pb::TensorProto::FLOAT16, ir::kF16)}) {
    OnnxBuilder b(28);
    b.Input("x", {12}, type).Input("y", {12}, type).Output("z", {12}, type);
    b.Node("Mod", {"x", "y"}, "z");
    const auto z = Evaluate(b, {TensorOf({12}, x, dtype), TensorOf({12}, y, dtype)}).at(0);
    for (size_t i = 0; i < x.size(); ++i) {
      if (std::isnan(expected[i])) {
        EXPECT_TRUE(std::isnan(z.values[i])) << i;
      } else {
        EXPECT_EQ(z.values[i], expected[i]) << i;
        EXPECT_EQ(std::signbit(z.values[i]), std::signbit(expected[i])) << i;
      }
    }
  }
}

TEST(OnnxElementwise, SwiGluIsAGateTimesItsOtherOperand) {
  OnnxBuilder b(28);
  b.Input("a", {3}).Input("b", {3}).Output("y", {3});
  OnnxBuilder::AttrFloat(b.Node("SwiGLU", {"a", "b"}, "y"), "alpha", 2);
  const Numbers a = {-1, 0, 1.5}, other = {2, 3, -4};
  const auto y = Evaluate(b, {TensorOf({3}, a), TensorOf({3}, other)}).at(0);
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_NEAR(y.values[i], a[i] / (1 + std::exp(-2 * a[i])) * other[i], 1e-6);
  }
}

TEST(OnnxElementwise, RefusesWhatHasNoMeaning) {
  OnnxBuilder shift(13);
  shift.Input("x", {2}, pb::TensorProto::INT32).Output("y", {2}, pb::TensorProto::INT32);
  OnnxBuilder::AttrText(shift.Node("BitShift", {"x", "x"}, "y"), "direction", "UP");
  EXPECT_EQ(Slug(shift), "graph.onnx.attribute");
  OnnxBuilder gelu(20);
  gelu.Input("x", {2}).Output("y", {2});
  OnnxBuilder::AttrText(gelu.Node("Gelu", {"x"}, "y"), "approximate", "sigmoid");
  EXPECT_EQ(Slug(gelu), "graph.onnx.attribute");
}

TEST(OnnxElementwise, BitCastKeepsTheBits) {
  const struct {
    int from, to;
    ir::DType type;
    Ints values, expected;
  } cases[] = {
      {pb::TensorProto::INT64, pb::TensorProto::UINT64, ir::kI64, {-1, kMax}, {-1, kMax}},
      {pb::TensorProto::UINT8, pb::TensorProto::INT8, ir::kU8, {255, 7}, {-1, 7}},
      {pb::TensorProto::INT32, pb::TensorProto::UINT32, ir::kI32, {-2, 3}, {4294967294, 3}},
      {pb::TensorProto::BOOL, pb::TensorProto::UINT8, ir::kBool, {1, 0}, {1, 0}},
      {pb::TensorProto::FLOAT,
       pb::TensorProto::INT32,
       ir::kF32,
       {1, -2},
       {0x3F800000, -0x40000000}},
      {pb::TensorProto::FLOAT16, pb::TensorProto::UINT16, ir::kF16, {1, -2}, {0x3C00, 0xC000}},
      {pb::TensorProto::BFLOAT16, pb::TensorProto::INT16, ir::kBF16, {1, -2}, {0x3F80, -0x4000}},
      {pb::TensorProto::DOUBLE, pb::TensorProto::INT64, ir::kF64, {2, 0}, {int64_t{1} << 62, 0}},
      {pb::TensorProto::INT32, pb::TensorProto::FLOAT, ir::kI32, {0x40400000, 0}, {3, 0}}};
  for (const auto& c : cases) {
    OnnxBuilder b(26);
    b.Input("x", {2}, c.from).Output("y", {2}, c.to);
    OnnxBuilder::Attr(b.Node("BitCast", {"x"}, "y"), "to", int64_t{c.to});
    EXPECT_EQ(op::IntegersOf(Evaluate(b, {Whole(c.values, c.type)}).at(0)), c.expected);
  }
  OnnxBuilder b(26);
  b.Floats("x", {1.0F, -2.0F}).Output("y", {2}, pb::TensorProto::INT32);
  OnnxBuilder::Attr(b.Node("BitCast", {"x"}, "y"), "to", int64_t{pb::TensorProto::INT32});
  EXPECT_EQ(op::IntegersOf(Evaluate(b, {}).at(0)), (Ints{0x3F800000, -0x40000000}));
  for (const int to : {pb::TensorProto::DOUBLE, pb::TensorProto::INT16, pb::TensorProto::BOOL}) {
    OnnxBuilder refused(26);
    refused.Input("x", {2}).Output("y", {2}, to);
    OnnxBuilder::Attr(refused.Node("BitCast", {"x"}, "y"), "to", int64_t{to});
    EXPECT_EQ(Slug(refused), "graph.onnx.type");
  }
}

Numbers Cumulative(const char* op, int64_t exclusive, int64_t reverse, int64_t axis,
                   const RefTensor& x) {
  OnnxBuilder b(op == std::string_view("CumSum") ? 14 : 26);
  b.Input("x", x.type.sizes()).Output("y", x.type.sizes()).Ints("axis", {axis});
  b.graph().mutable_initializer(0)->clear_dims();
  pb::NodeProto* node = b.Node(op, {"x", "axis"}, "y");
  OnnxBuilder::Attr(node, "exclusive", exclusive);
  OnnxBuilder::Attr(node, "reverse", reverse);
  return Evaluate(b, {x}).at(0).values;
}

TEST(OnnxOrdering, CumSumBothWays) {
  const RefTensor row = TensorOf({5}, {1, 2, 3, 4, 5}), grid = TensorOf({2, 3}, {1, 2, 3, 4, 5, 6});
  EXPECT_EQ(Cumulative("CumSum", 0, 0, 0, row), (Numbers{1, 3, 6, 10, 15}));
  EXPECT_EQ(Cumulative("CumSum", 1, 0, 0, row), (Numbers{0, 1, 3, 6, 10}));
  EXPECT_EQ(Cumulative("CumSum", 0, 1, -1, row), (Numbers{15, 14, 12, 9, 5}));
  EXPECT_EQ(Cumulative("CumSum", 1, 1, 0, row), (Numbers{14, 12, 9, 5, 0}));
  EXPECT_EQ(Cumulative("CumSum", 0, 0, 0, grid), (Numbers{1, 2, 3, 5, 7, 9}));
  EXPECT_EQ(Cumulative("CumSum", 1, 0, 0, TensorOf({1, 2}, {7, 8})), (Numbers{0, 0}));
}

TEST(OnnxOrdering, CumProdBothWays) {
  const RefTensor row = TensorOf({4}, {2, 3, -1, 5}), grid = TensorOf({2, 3}, {1, 2, 3, 4, 5, 0});
  EXPECT_EQ(Cumulative("CumProd", 0, 0, 0, row), (Numbers{2, 6, -6, -30}));
  EXPECT_EQ(Cumulative("CumProd", 1, 0, 0, row), (Numbers{1, 2, 6, -6}));
  EXPECT_EQ(Cumulative("CumProd", 0, 1, -1, row), (Numbers{-30, -15, -5, 5}));
  EXPECT_EQ(Cumulative("CumProd", 1, 1, 0, row), (Numbers{-15, -5, 5, 1}));
  EXPECT_EQ(Cumulative("CumProd", 0, 0, 0, grid), (Numbers{1, 2, 3, 4, 10, 0}));
  EXPECT_EQ(Cumulative("CumProd", 1, 0, 1, grid), (Numbers{1, 1, 2, 1, 4, 20}));
}

TEST(OnnxOrdering, TopKGivesValuesAndPositions) {
  OnnxBuilder b(11);
  b.Input("x", {2, 4}).Ints("k", {3});
  pb::NodeProto* node = b.Node("TopK", {"x", "k"}, "values");
  node->add_output("at");
  OnnxBuilder::Attr(node, "axis", int64_t{-1});
  b.Output("values", {2, 3}).Output("at", {2, 3}, pb::TensorProto::INT64);
  const auto out = Evaluate(b, {TensorOf({2, 4}, {1, 4, 4, 2, 0, -1, 0, 9})});
  ASSERT_EQ(out.size(), 2u);
  EXPECT_EQ(out[0].values, (Numbers{4, 4, 2, 9, 0, 0}));
  EXPECT_EQ(out[1].values, (Numbers{1, 2, 3, 3, 0, 2}));
}

TEST(OnnxOrdering, ArgMaxAndHardmaxTakeTheFirstOfEquals) {
  OnnxBuilder b(13);
  b.Input("x", {2, 3});
  pb::NodeProto* last = b.Node("ArgMax", {"x"}, "last");
  OnnxBuilder::Attr(last, "axis", int64_t{-1});
  OnnxBuilder::Attr(last, "select_last_index", int64_t{1});
  OnnxBuilder::Attr(last, "keepdims", int64_t{0});
  b.Node("ArgMin", {"x"}, "low");
  b.Node("Hardmax", {"x"}, "hard");
  b.Output("last", {2}, pb::TensorProto::INT64).Output("low", {1, 3}, pb::TensorProto::INT64);
  b.Output("hard", {2, 3});
  const auto out = Evaluate(b, {TensorOf({2, 3}, {5, 5, 1, 2, 7, 7})});
  ASSERT_EQ(out.size(), 3u);
  EXPECT_EQ(out[0].values, (Numbers{1, 2}));
  EXPECT_EQ(out[1].values, (Numbers{1, 0, 0}));
  EXPECT_EQ(out[2].values, (Numbers{1, 0, 0, 0, 1, 0}));
}

}  // namespace
}  // namespace tilewright::graph
