// Every row of the operator table: its compute, run by the tensor IR's interpreter, against its
// plain reference, on random shapes; its types; what it refuses.
#include "compiler/op/op.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "compiler/ir/interp.h"
#include "compiler/ir/verify.h"
#include "compiler/op/winograd.h"
#include "deploy/support/rng.h"
#include "deploy/support/strings.h"
#include "tests/support/test_seed.h"

namespace tilewright::op {
namespace {

using support::Rng;
using support::StrCat;

uint64_t Seed() {
  static const uint64_t seed = tests::TestSeed();
  return seed;
}

struct Case {
  std::string op;
  std::vector<std::vector<int64_t>> shapes;
  Attrs attrs;
  double low = -2, high = 2;
  ir::DType dtype = ir::kF32;
  std::vector<ir::DType> dtypes = {};  // of single operands, where they differ
};

RefTensor RandomTensor(const TensorType& type, double low, double high, Rng* rng) {
  RefTensor tensor{type, std::vector<double>(type.elements())};
  for (double& v : tensor.values) {
    v = RoundToType(low + (high - low) * rng->UniformDouble(), type.dtype);
  }
  return tensor;
}

// The operator alone as a function of the tensor IR.
absl::StatusOr<ir::Function> AsFunction(const OpSpec& spec, const std::vector<TensorType>& inputs,
                                        const std::vector<TensorType>& outputs, const Attrs& attrs,
                                        std::string_view variant = "direct") {
  ir::FunctionBuilder b("test");
  std::vector<ir::Buffer> buffers;
  for (size_t i = 0; i < inputs.size(); ++i) {
    std::vector<ir::Expr> shape;
    for (int64_t dim : inputs[i].shape) shape.push_back(ir::Int(dim));
    buffers.push_back(b.Input(StrCat("x", i), inputs[i].dtype, shape));
  }
  auto results = ComputeVariant(spec, variant, b, "y", buffers, inputs, outputs, attrs);
  if (!results.ok()) return results.status();
  return b.Finish(*results);
}

void ExpectComputeMatchesReference(const Case& c, Rng* rng) {
  const OpSpec* spec = FindOp(c.op);
  ASSERT_NE(spec, nullptr) << c.op;
  std::vector<RefTensor> inputs;
  std::vector<TensorType> types;
  for (const auto& shape : c.shapes) {
    const size_t i = types.size();
    types.push_back({i < c.dtypes.size() ? c.dtypes[i] : c.dtype, shape});
    inputs.push_back(RandomTensor(types.back(), c.low, c.high, rng));
  }
  auto outputs = InferTypes(*spec, types, c.attrs);
  ASSERT_TRUE(outputs.ok()) << c.op << ": " << outputs.status();
  auto expected = Reference(*spec, inputs, c.attrs);
  ASSERT_TRUE(expected.ok()) << expected.status();
  ASSERT_EQ((*expected)[0].type, (*outputs)[0]);
  auto function = AsFunction(*spec, types, *outputs, c.attrs);
  ASSERT_TRUE(function.ok()) << function.status();
  ASSERT_TRUE(ir::Verify(*function).ok()) << c.op << ir::Verify(*function);

  std::vector<ir::TensorData> data(inputs.size() + 1);
  std::vector<ir::TensorData*> args;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const std::string bytes = ToBytes(inputs[i]);
    data[i].bytes.assign(bytes.begin(), bytes.end());
  }
  for (ir::TensorData& d : data) args.push_back(&d);
  ir::InterpOptions options;
  options.check_regions = true;
  absl::Status status = ir::Interpret(*function, {}, args, options);
  ASSERT_TRUE(status.ok()) << c.op << ": " << status;
  auto actual = FromBytes((*outputs)[0],
                          std::string_view(reinterpret_cast<const char*>(data.back().bytes.data()),
                                           data.back().bytes.size()));
  ASSERT_TRUE(actual.ok()) << actual.status();
  for (size_t i = 0; i < actual->values.size(); ++i) {
    const double a = actual->values[i], e = (*expected)[0].values[i];
    if (!c.dtype.is_float()) {
      ASSERT_EQ(a, e) << c.op << " at " << i;
      continue;
    }
    if (std::isnan(e)) {
      ASSERT_TRUE(std::isnan(a)) << c.op << " at " << i;
    } else {
      ASSERT_NEAR(a, e, 2e-5 * (1 + std::fabs(e)))
          << c.op << " at " << i << " of " << ToText((*outputs)[0]);
    }
  }
}

TEST(OpTable, NamesAreUniqueAndRowsComplete) {
  std::set<std::string_view> names;
  for (const OpSpec& spec : Operators()) {
    EXPECT_TRUE(names.insert(spec.name).second) << spec.name;
    EXPECT_EQ(FindOp(spec.name), &spec);
    const bool injective = spec.fusion == FusionClass::kInjective;
    if (spec.elementwise()) {
      EXPECT_TRUE(injective) << spec.name;
      EXPECT_NE(spec.scalar_reference != nullptr, spec.reference != nullptr) << spec.name;
    } else {
      EXPECT_TRUE(spec.infer != nullptr && spec.reference != nullptr) << spec.name;
      EXPECT_EQ(injective, spec.element != nullptr) << spec.name;
      EXPECT_EQ(injective, spec.compute == nullptr) << spec.name;
    }
  }
  EXPECT_EQ(FindOp("no_such_operator"), nullptr);
}

// Elementwise rows run over every broadcasting pattern; the domain keeps every function defined.
TEST(OpCompute, ElementwiseRowsMatchTheirReference) {
  Rng rng(Seed());
  for (const OpSpec& spec : Operators()) {
    // Rows with types of their own have tests of their own.
    if (!spec.elementwise() || spec.infer != nullptr) continue;
    const bool positive = spec.name == "log" || spec.name == "sqrt" || spec.name == "pow" ||
                          spec.name == "div" || spec.name == "reciprocal";
    const double low = positive ? 0.5 : -2.5;
    Case c{std::string(spec.name), {}, {}, low, 2.5, ir::kF32};
    if (spec.max_inputs == 1) {
      c.shapes = {{3, 1, 5}};
      ExpectComputeMatchesReference(c, &rng);
      c.shapes = {{}};
      ExpectComputeMatchesReference(c, &rng);
      continue;
    }
    for (const auto& shapes : std::vector<std::vector<std::vector<int64_t>>>{
             {{2, 3}, {2, 3}}, {{2, 3}, {3}}, {{1, 3}, {2, 1}}, {{}, {4}}, {{5, 1, 2}, {3, 1}}}) {
      c.shapes = shapes;
      ExpectComputeMatchesReference(c, &rng);
    }
  }
}

TEST(OpCompute, AttributesOfElementwiseRows) {
  Rng rng(Seed());
  ExpectComputeMatchesReference({"clip", {{4, 7}}, {{"min", -0.5}, {"max", 0.75}}}, &rng);
  ExpectComputeMatchesReference({"clip", {{4, 7}}, {{"max", 0.25}}}, &rng);
  ExpectComputeMatchesReference({"leaky_relu", {{9}}, {{"alpha", 0.3}}}, &rng);
  ExpectComputeMatchesReference({"elu", {{9}}, {{"alpha", 1.5}}}, &rng);
  ExpectComputeMatchesReference({"hard_sigmoid", {{9}}, {{"alpha", 0.3}, {"beta", 0.4}}}, &rng);
}

TEST(OpCompute, CastsBetweenAllTypes) {
  Rng rng(Seed());
  const ir::DType types[] = {ir::kF32, ir::kF64, ir::kI8, ir::kU8, ir::kI32, ir::kI64, ir::kBool};
  for (const ir::DType from : types) {
    for (const ir::DType to : types) {
      Case cast{"cast", {{3, 40}}, {{"dtype", ir::TypeName(to)}}};
      cast.dtype = from;
      cast.low = from == ir::kBool || from == ir::kU8 ? 0 : -300, cast.high = 300;  // some saturate
      ExpectComputeMatchesReference(cast, &rng);
      if (::testing::Test::HasFatalFailure()) FAIL() << ir::TypeName(from) << ir::TypeName(to);
    }
  }
}

TEST(OpCompute, QuantizeSaturatesAndRoundsToEven) {
  Rng rng(Seed());
  for (const ir::DType type : {ir::kU8, ir::kI8}) {
    for (const auto& parameter : std::vector<std::vector<int64_t>>{{}, {4}, {3, 1}}) {
      Case c{"quantize", {{2, 3, 4}, parameter, parameter}, {}, 0.5, 90};  // some saturate
      c.dtypes = {ir::kF32, ir::kF32, type};
      ExpectComputeMatchesReference(c, &rng);
      Case back{"dequantize", {{2, 3, 4}, parameter, parameter}, {}, 0, 100};
      back.dtypes = {type, ir::kF32, type};
      ExpectComputeMatchesReference(back, &rng);
    }
  }
  Case sums{"dequantize", {{2, 5}, {5}, {}}, {}, -1000, 1000};
  sums.dtypes = {ir::kI32, ir::kF32, ir::kI32};
  ExpectComputeMatchesReference(sums, &rng);

  const double nan = std::nan("");
  const RefTensor x{{ir::kF32, {8}}, {0.5, 1.5, 2.5, -0.5, -1.5, 1e30, -1e30, nan}};
  const RefTensor one{{ir::kF32, {}}, {1}};
  auto quantized = [&](ir::DType type, double zero) {
    const RefTensor point{{type, {}}, {zero}};
    auto result = Reference(*FindOp("quantize"), std::vector<RefTensor>{x, one, point}, {});
    return result.ok() ? (*result)[0].values : std::vector<double>{};
  };
  EXPECT_EQ(quantized(ir::kU8, 1), (std::vector<double>{1, 3, 3, 1, 0, 255, 0, 0}));
  EXPECT_EQ(quantized(ir::kI8, -1), (std::vector<double>{-1, 1, 1, -1, -3, 127, -128, 0}));
}

TEST(OpCompute, SoftsignOfLargeValuesStaysBelowOne) {
  Rng rng(Seed());
  ExpectComputeMatchesReference({"softsign", {{64}}, {}, -1e30, 1e30}, &rng);
  const RefTensor ends{{ir::kF32, {2}}, {-1e30, 1e30}};
  auto far = Reference(*FindOp("softsign"), std::vector<RefTensor>{ends}, {});
  ASSERT_TRUE(far.ok()) << far.status();
  EXPECT_EQ((*far)[0].values, (std::vector<double>{-1, 1}));
}

TEST(OpCompute, IntegerElementwise) {
  Rng rng(Seed());
  for (const char* name : {"add", "sub", "mul", "max", "min"}) {
    ExpectComputeMatchesReference({name, {{3, 4}, {4}}, {}, -50, 50, ir::kI32}, &rng);
  }
  for (const char* name : {"relu", "neg", "identity"}) {
    ExpectComputeMatchesReference({name, {{3, 4}}, {}, -50, 50, ir::kI64}, &rng);
  }
  const TensorType ints{ir::kI32, {2}};
  EXPECT_FALSE(InferTypes(*FindOp("exp"), std::vector{ints}, {}).ok());
  EXPECT_FALSE(InferTypes(*FindOp("div"), std::vector{ints, ints}, {}).ok());
}

Case RandomConv(Rng* rng) {
  const int64_t groups = rng->Choice(std::vector<int64_t>{1, 1, 2, 3});
  const bool depthwise = rng->Bernoulli(0.25);
  const int64_t group_in = depthwise ? 1 : rng->UniformInt(1, 3);
  const int64_t group_out = rng->Bernoulli(0.3) ? kWeightBlock : rng->UniformInt(1, 3);
  const int64_t kh = rng->UniformInt(1, 3), kw = rng->UniformInt(1, 4);
  std::vector<int64_t> strides = {rng->UniformInt(1, 3), rng->UniformInt(1, 2)};
  std::vector<int64_t> dilations = {rng->UniformInt(1, 2), rng->UniformInt(1, 3)};
  std::vector<int64_t> pads;
  for (int i = 0; i < 4; ++i) pads.push_back(rng->UniformInt(0, 2));
  const int64_t reach_h = (kh - 1) * dilations[0] + 1, reach_w = (kw - 1) * dilations[1] + 1;
  const int64_t h = std::max<int64_t>(1, reach_h - pads[0] - pads[2]) + rng->UniformInt(0, 4);
  const int64_t w = std::max<int64_t>(1, reach_w - pads[1] - pads[3]) + rng->UniformInt(0, 4);
  const int64_t oc = groups * group_out;
  const std::string layout = oc % kWeightBlock == 0 && groups == 1 && rng->Bernoulli(0.7)
                                 ? "OIHW16o"
                             : rng->Bernoulli(0.5) ? "IHWO"
                                                   : "OIHW";
  std::vector<int64_t> weight = {oc, group_in, kh, kw};
  if (layout == "IHWO") weight = {group_in, kh, kw, oc};
  if (layout == "OIHW16o") weight = {oc / kWeightBlock, group_in, kh, kw, kWeightBlock};
  Case c{"conv2d",
         {{rng->UniformInt(1, 2), groups * group_in, h, w}, weight},
         {{"strides", strides},
          {"pads", pads},
          {"dilations", dilations},
          {"groups", groups},
          {"weight_layout", layout}},
         -1,
         1};
  if (rng->Bernoulli(0.5)) c.shapes.push_back({oc});
  return c;
}

TEST(OpCompute, RandomConvolutions) {
  for (uint64_t i = 0; i < 60; ++i) {
    Rng rng = Rng(Seed()).Split(i);
    SCOPED_TRACE(StrCat("seed ", Seed(), " case ", i));
    ExpectComputeMatchesReference(RandomConv(&rng), &rng);
    if (::testing::Test::HasFatalFailure()) return;
  }
}

// Sums of integers are exact: whole numbers of i32, and bytes padded with a byte.
TEST(OpCompute, ConvolutionsOfIntegers) {
  for (uint64_t i = 0; i < 40; ++i) {
    Rng rng = Rng(Seed()).Split(700 + i);
    SCOPED_TRACE(StrCat("seed ", Seed(), " case ", i));
    Case c = RandomConv(&rng);
    const bool bytes = rng.Bernoulli(0.7);
    c.dtype = !bytes ? ir::kI32 : rng.Bernoulli(0.5) ? ir::kU8 : ir::kI8;
    c.dtypes = {c.dtype, bytes ? ir::kI8 : ir::kI32, ir::kI32};
    c.low = c.dtype == ir::kU8 ? 0 : -100, c.high = 100;
    if (bytes) c.attrs["pad_value"] = rng.UniformInt(0, 127);
    ExpectComputeMatchesReference(c, &rng);
    if (::testing::Test::HasFatalFailure()) return;
  }
}

TEST(OpReference, ConvolutionByHand) {
  const OpSpec* conv = FindOp("conv2d");
  const RefTensor x{{ir::kF32, {1, 1, 3, 3}}, {0, 1, 2, 3, 4, 5, 6, 7, 8}};
  const RefTensor w{{ir::kF32, {1, 1, 2, 2}}, {1, 0, 0, 2}};
  const RefTensor bias{{ir::kF32, {1}}, {100}};
  auto y = Reference(
      *conv, std::vector{x, w, bias},
      {{"pads", std::vector<int64_t>{1, 0, 0, 1}}, {"strides", std::vector<int64_t>{2, 1}}});
  ASSERT_TRUE(y.ok()) << y.status();
  EXPECT_EQ((*y)[0].type.shape, (std::vector<int64_t>{1, 1, 2, 3}));
  EXPECT_EQ((*y)[0].values, (std::vector<double>{102, 104, 100, 117, 120, 105}));
}

TEST(OpCompute, Contractions) {
  Rng rng(Seed());
  for (uint64_t i = 0; i < 20; ++i) {
    const int64_t m = rng.UniformInt(1, 5), n = rng.UniformInt(1, 6), k = rng.UniformInt(1, 9);
    ExpectComputeMatchesReference({"dense", {{m, k}, {n, k}}, {}}, &rng);
    ExpectComputeMatchesReference(
        {"dense", {{2, m, k}, {k, n}}, {{"weight_layout", std::string("KN")}}}, &rng);
    ExpectComputeMatchesReference(
        {"dense", {{m, k}, {n, k, kWeightBlock}}, {{"weight_layout", std::string("NK16n")}}}, &rng);
    const int64_t units = (n - 1) * kWeightBlock + rng.UniformInt(1, kWeightBlock);
    ExpectComputeMatchesReference({"dense",
                                   {{m, k}, {n, k, kWeightBlock}},
                                   {{"weight_layout", std::string("NK16n")}, {"units", units}}},
                                  &rng);
    ExpectComputeMatchesReference({"matmul", {{m, k}, {k, n}}, {}}, &rng);
    ExpectComputeMatchesReference({"matmul", {{2, 1, m, k}, {3, k, n}}, {}}, &rng);
    ExpectComputeMatchesReference({"matmul", {{2, m, k}, {1, k, n}}, {}}, &rng);
    Case bytes{"dense", {{m, 4 * k}, {n, k, kWeightBlock, 4}}, {}, 0, 100, ir::kU8};
    bytes.dtypes = {ir::kU8, ir::kI8};
    bytes.attrs = {{"weight_layout", std::string("NK16n4k")}, {"units", units}};
    ExpectComputeMatchesReference(bytes, &rng);
    bytes.shapes = {{m, k}, {n, k}}, bytes.attrs = {};
    ExpectComputeMatchesReference(bytes, &rng);
    ExpectComputeMatchesReference({"matmul", {{2, m, k}, {k, n}}, {}, -99, 99, ir::kI32}, &rng);
  }
}

TEST(OpCompute, Pooling) {
  for (uint64_t i = 0; i < 40; ++i) {
    Rng rng = Rng(Seed()).Split(1000 + i);
    SCOPED_TRACE(StrCat("case ", i));
    const int64_t kh = rng.UniformInt(1, 3), kw = rng.UniformInt(1, 3);
    const std::vector<int64_t> dilations = {rng.UniformInt(1, 2), rng.UniformInt(1, 2)};
    std::vector<int64_t> pads;
    for (int d = 0; d < 4; ++d) {
      pads.push_back(rng.UniformInt(0, ((d % 2 == 0 ? kh : kw) - 1) * dilations[d % 2]));
    }
    const bool average = rng.Bernoulli(0.5);
    Attrs attrs = {{"kind", std::string(average ? "avg" : "max")},
                   {"kernel", std::vector<int64_t>{kh, kw}},
                   {"strides", std::vector<int64_t>{rng.UniformInt(1, 3), rng.UniformInt(1, 2)}},
                   {"pads", pads},
                   {"dilations", dilations}};
    if (average) attrs["count_include_pad"] = rng.UniformInt(0, 1);
    const int64_t reach_h = (kh - 1) * dilations[0] + 1, reach_w = (kw - 1) * dilations[1] + 1;
    ExpectComputeMatchesReference(
        {"pool2d", {{1, 2, reach_h + rng.UniformInt(0, 4), reach_w + rng.UniformInt(0, 4)}}, attrs},
        &rng);
    if (::testing::Test::HasFatalFailure()) return;
  }
}

TEST(OpCompute, ReductionsAndSoftmax) {
  Rng rng(Seed());
  for (const char* kind : {"mean", "sum", "max", "min", "prod"}) {
    for (int64_t keep : {0, 1}) {
      for (const auto& axes : std::vector<std::vector<int64_t>>{{}, {0}, {-1}, {1, 2}, {0, 2}}) {
        ExpectComputeMatchesReference(
            {"reduce",
             {{2, 3, 4}},
             {{"kind", std::string(kind)}, {"axes", axes}, {"keepdims", keep}}},
            &rng);
      }
    }
  }
  for (int64_t axis : {-1, 0, 1}) {
    ExpectComputeMatchesReference({"softmax", {{3, 4, 5}}, {{"axis", axis}}, -30, 30}, &rng);
  }
}

TEST(OpCompute, ShapeOperators) {
  Rng rng(Seed());
  ExpectComputeMatchesReference(
      {"reshape", {{2, 3, 4}}, {{"shape", std::vector<int64_t>{6, 1, 4}}}}, &rng);
  ExpectComputeMatchesReference({"reshape", {{5, 7}}, {{"shape", std::vector<int64_t>{7, 5}}}},
                                &rng);
  ExpectComputeMatchesReference({"reshape", {{1, 1}}, {{"shape", std::vector<int64_t>{}}}}, &rng);
  ExpectComputeMatchesReference(
      {"transpose", {{2, 3, 4}}, {{"perm", std::vector<int64_t>{2, 0, 1}}}}, &rng);
  ExpectComputeMatchesReference(
      {"batch_norm", {{2, 3, 2, 2}, {3}, {3}, {3}, {3}}, {{"epsilon", 1e-3}}, 0.25, 2}, &rng);
}

TEST(OpCompute, IndexingOperators) {
  Rng rng(Seed());
  using V = std::vector<int64_t>;
  ExpectComputeMatchesReference({"concat", {{2, 3}, {2, 1}, {2, 4}}, {{"axis", int64_t{-1}}}},
                                &rng);
  ExpectComputeMatchesReference({"concat", {{1, 3}, {2, 3}}, {{"axis", int64_t{0}}}}, &rng);
  ExpectComputeMatchesReference({"concat", {{4}}, {}}, &rng);
  ExpectComputeMatchesReference(
      {"slice", {{5, 7}}, {{"starts", V{1, 6}}, {"steps", V{2, -3}}, {"sizes", V{2, 3}}}}, &rng);
  ExpectComputeMatchesReference({"pad", {{3, 4}}, {{"pads", V{1, 0, 2, 3}}, {"value", 0.5}}}, &rng);
  ExpectComputeMatchesReference({"pad", {{3, 4}}, {{"pads", V{-1, 2, 0, -1}}}}, &rng);
}

TEST(OpReference, GatherClampsAndCountsFromTheEnd) {
  const RefTensor data{{ir::kF32, {3, 2}}, {0, 1, 10, 11, 20, 21}};
  const RefTensor at{{ir::kI64, {4}}, {2, -3, 7, -9}};
  auto y = Reference(*FindOp("gather"), std::vector{data, at}, {{"axis", int64_t{0}}});
  ASSERT_TRUE(y.ok()) << y.status();
  EXPECT_EQ((*y)[0].values, (std::vector<double>{20, 21, 0, 1, 20, 21, 0, 1}));
  y = Reference(*FindOp("gather"), std::vector{data, at}, {{"axis", int64_t{1}}});
  EXPECT_EQ((*y)[0].type.shape, (std::vector<int64_t>{3, 4}));
}

TEST(OpCompute, TransposedConvolutions) {
  for (uint64_t i = 0; i < 60; ++i) {
    Rng rng = Rng(Seed()).Split(2000 + i);
    SCOPED_TRACE(StrCat("case ", i));
    const int64_t groups = rng.UniformInt(1, 2), in = groups * rng.UniformInt(1, 2);
    const bool blocked = groups == 1 && rng.Bernoulli(0.2);
    const int64_t out = blocked ? kWeightBlock : rng.UniformInt(1, 2);
    const int64_t kh = rng.UniformInt(1, 4), kw = rng.UniformInt(1, 4);
    const std::string layout = blocked ? "OHWI16o" : rng.Bernoulli(0.5) ? "IHWO" : "IOHW";
    std::vector<int64_t> weight = {in, out, kh, kw};
    if (layout == "IHWO") weight = {in, kh, kw, out};
    if (blocked) weight = {1, kh, kw, in, kWeightBlock};
    std::vector<int64_t> strides = {rng.UniformInt(1, 3), rng.UniformInt(1, 2)};
    Case c{"conv2d_transpose",
           {{rng.UniformInt(1, 2), in, rng.UniformInt(2, 4), rng.UniformInt(2, 4)}, weight},
           {{"strides", strides},
            {"weight_layout", layout},
            {"dilations", std::vector<int64_t>{rng.UniformInt(1, 2), 1}},
            {"pads", std::vector<int64_t>{rng.UniformInt(0, 1), rng.UniformInt(0, 1), 0,
                                          rng.UniformInt(0, 1)}},
            {"output_padding", std::vector<int64_t>{rng.UniformInt(0, strides[0] - 1), 0}},
            {"groups", groups}},
           -1,
           1};
    if (rng.Bernoulli(0.5)) c.shapes.push_back({groups * out});
    ExpectComputeMatchesReference(c, &rng);
    if (::testing::Test::HasFatalFailure()) return;
  }
}

TEST(OpCompute, BlockedConvolutionsAndPools) {
  for (uint64_t i = 0; i < 40; ++i) {
    Rng rng = Rng(Seed()).Split(3000 + i);
    SCOPED_TRACE(StrCat("case ", i));
    const int64_t b = rng.UniformInt(1, 4), in = rng.UniformInt(1, 3), out = rng.UniformInt(1, 3);
    const int64_t kh = rng.UniformInt(1, 3), kw = rng.UniformInt(1, 3);
    const std::vector<int64_t> x = {rng.UniformInt(1, 2), in, rng.UniformInt(3, 6),
                                    rng.UniformInt(3, 6), b};
    const Attrs window = {
        {"strides", std::vector<int64_t>{rng.UniformInt(1, 2), rng.UniformInt(1, 2)}},
        {"dilations", std::vector<int64_t>{1, rng.Bernoulli(0.2) && kw < 3 ? 2 : 1}},
        {"pads", std::vector<int64_t>{rng.UniformInt(0, kh - 1), 0, rng.UniformInt(0, kh - 1), 0}}};
    const bool depthwise = rng.Bernoulli(0.4);
    // Images of single channels give blocks, too.
    const int64_t out_block = rng.Bernoulli(0.5) ? b : rng.UniformInt(1, 4);
    Case conv{"conv2d_blocked",
              {x, depthwise ? std::vector<int64_t>{in, kh, kw, b}
                            : std::vector<int64_t>{out, in, kh, kw, b, out_block}},
              window};
    ExpectComputeMatchesReference(conv, &rng);
    Case bytes = conv;  // sums in i32; dense ones four channels at a time
    bytes.dtype = rng.Bernoulli(0.5) ? ir::kU8 : ir::kI8;
    bytes.dtypes = {bytes.dtype, ir::kI8};
    bytes.low = bytes.dtype == ir::kU8 ? 0 : -100, bytes.high = 100;
    bytes.attrs["pad_value"] = rng.UniformInt(0, 127);
    if (!depthwise) {
      bytes.shapes[0].back() = 4 * b;
      bytes.shapes[1] = {out, in, kh, kw, b, out_block, 4};
    }
    ExpectComputeMatchesReference(bytes, &rng);
    Case pool{"pool2d", {x}, window};
    pool.attrs["kernel"] = std::vector<int64_t>{kh, kw};
    pool.attrs["kind"] = std::string(rng.Bernoulli(0.5) ? "max" : "avg");
    ExpectComputeMatchesReference(pool, &rng);
    pool.attrs["kind"] = std::string("max");
    pool.dtype = bytes.dtype, pool.low = bytes.low, pool.high = bytes.high;
    ExpectComputeMatchesReference(pool, &rng);
    if (::testing::Test::HasFatalFailure()) return;
  }
}

struct Refusal {
  std::string op;
  std::vector<TensorType> inputs;
  Attrs attrs;
  std::string slug;
};

TEST(OpInfer, RefusesWithTheOperatorsName) {
  auto f32 = [](std::vector<int64_t> shape) { return TensorType{ir::kF32, std::move(shape)}; };
  const std::vector<int64_t> two = {2, 2};
  const Refusal refusals[] = {
      {"conv2d", {f32({1, 3, 8, 8})}, {}, "op.conv2d.inputs"},
      {"conv2d", {f32({1, 3, 8}), f32({4, 3, 3, 3})}, {}, "op.conv2d.shape"},
      {"conv2d", {f32({1, 3, 8, 8}), f32({4, 2, 3, 3})}, {}, "op.conv2d.channels"},
      {"conv2d",
       {f32({1, 4, 8, 8}), f32({3, 2, 3, 3})},
       {{"groups", int64_t{2}}},
       "op.conv2d.channels"},
      {"conv2d",
       {f32({1, 4, 8, 8}), f32({3, 4, 3, 3})},
       {{"groups", int64_t{0}}},
       "op.conv2d.channels"},
      {"conv2d", {f32({1, 3, 2, 2}), f32({4, 3, 3, 3})}, {}, "op.conv2d.kernel"},
      {"conv2d", {f32({1, 3, 8, 8}), f32({4, 3, 3, 3}), f32({3})}, {}, "op.conv2d.bias"},
      {"conv2d",
       {f32({1, 3, 8, 8}), f32({4, 3, 3, 3})},
       {{"strides", std::vector<int64_t>{0, 1}}},
       "op.conv2d.attribute"},
      {"conv2d",
       {f32({1, 3, 8, 8}), f32({4, 3, 3, 3})},
       {{"pads", std::vector<int64_t>{-1, 0, 0, 0}}},
       "op.conv2d.attribute"},
      {"conv2d",
       {f32({1, 3, 8, 8}), f32({4, 3, 3, 3})},
       {{"weight_layout", std::string("HWIO")}},
       "op.conv2d.attribute"},
      {"conv2d",
       {f32({1, 3, 8, 8}), f32({4, 3, 3, 3})},
       {{"pad_value", int64_t{1}}},
       "op.conv2d.attribute"},
      {"conv2d", {f32({1, 3, 8, 8}), TensorType{ir::kI8, {4, 3, 3, 3}}}, {}, "op.conv2d.type"},
      {"quantize", {f32({4}), f32({}), f32({})}, {}, "op.quantize.type"},
      {"quantize", {f32({4}), f32({3, 1}), TensorType{ir::kU8, {}}}, {}, "op.quantize.shape"},
      {"dequantize", {f32({4}), f32({}), f32({})}, {}, "op.dequantize.type"},
      {"dense", {f32({2, 3}), f32({4, 5})}, {}, "op.dense.shape"},
      {"dense", {f32({2, 3}), TensorType{ir::kI32, {4, 3}}}, {}, "op.dense.type"},
      {"matmul", {f32({2, 3}), f32({4, 5})}, {}, "op.matmul.shape"},
      {"add", {f32({2, 3}), f32({2, 4})}, {}, "op.add.shape"},
      {"add", {f32({2}), TensorType{ir::kI32, {2}}}, {}, "op.add.type"},
      {"reshape", {f32({2, 3})}, {{"shape", std::vector<int64_t>{5}}}, "op.reshape.shape"},
      {"transpose", {f32({2, 3})}, {{"perm", std::vector<int64_t>{0, 0}}}, "op.transpose.perm"},
      {"softmax", {f32({2, 3})}, {{"axis", int64_t{2}}}, "op.softmax.axis"},
      {"reduce", {f32({2, 3})}, {{"axes", std::vector<int64_t>{1, -1}}}, "op.reduce.axis"},
      {"reduce", {f32({2, 3})}, {{"kind", std::string("median")}}, "op.reduce.attribute"},
      {"pool2d", {f32({1, 1, 4, 4})}, {}, "op.pool2d.attribute"},
      {"pool2d",
       {TensorType{ir::kU8, {1, 1, 4, 4}}},
       {{"kernel", two}, {"kind", std::string("avg")}},
       "op.pool2d.type"},
      {"pool2d",
       {f32({1, 1, 4, 4})},
       {{"kernel", two}, {"pads", std::vector<int64_t>{2, 0, 0, 0}}},
       "op.pool2d.pads"},
      {"batch_norm",
       {f32({1, 3}), f32({3}), f32({3}), f32({3}), f32({4})},
       {},
       "op.batch_norm.shape"},
      {"concat", {f32({2, 3}), f32({3, 3})}, {{"axis", int64_t{1}}}, "op.concat.shape"},
      {"slice",
       {f32({4})},
       {{"starts", std::vector<int64_t>{2}},
        {"steps", std::vector<int64_t>{1}},
        {"sizes", std::vector<int64_t>{3}}},
       "op.slice.range"},
      {"gather", {f32({4}), f32({2})}, {}, "op.gather.type"},
      {"pad", {f32({4})}, {{"pads", std::vector<int64_t>{1}}}, "op.pad.attribute"},
      {"conv2d_transpose",
       {f32({1, 3, 4, 4}), f32({2, 2, 3, 3})},
       {},
       "op.conv2d_transpose.channels"},
      {"relu", {f32({0, 3})}, {}, "op.type.dimension"},
      {"relu", {f32({-1})}, {}, "op.type.dimension"},
      {"relu", {f32({int64_t{1} << 31, int64_t{1} << 31, 4})}, {}, "op.type.size"},
      {"add", {f32({int64_t{1} << 30, 1}), f32({1, int64_t{1} << 30})}, {}, "op.type.size"},
  };
  for (const Refusal& r : refusals) {
    auto result = InferTypes(*FindOp(r.op), r.inputs, r.attrs);
    ASSERT_FALSE(result.ok()) << r.op << " " << r.slug;
    EXPECT_EQ(support::Slug(result.status()), r.slug) << result.status();
    EXPECT_NE(std::string(result.status().message()).find("expected"), std::string::npos);
  }
}

TEST(OpCost, FlopsAndReductionLength) {
  const std::vector<TensorType> conv = {{ir::kF32, {1, 4, 84, 84}}, {ir::kF32, {32, 4, 8, 8}}};
  const Attrs attrs = {{"strides", std::vector<int64_t>{4, 4}}};
  const OpSpec* spec = FindOp("conv2d");
  auto out = InferTypes(*spec, conv, attrs);
  ASSERT_TRUE(out.ok());
  EXPECT_EQ((*out)[0].shape, (std::vector<int64_t>{1, 32, 20, 20}));
  EXPECT_EQ(Flops(*spec, conv, *out, attrs), 2.0 * 32 * 20 * 20 * 4 * 64);
  EXPECT_EQ(ReductionLength(*spec, conv, attrs), 256);
  EXPECT_EQ(OperandUses(*FindOp("add"), 0), 1);
  EXPECT_EQ(OperandUses(*FindOp("gelu"), 0), 2);
  EXPECT_EQ(OperandUses(*FindOp("pow"), 0), 2);
}

TEST(RefTensor, BytesRoundTripForEveryType) {
  for (ir::DType type :
       {ir::kF32, ir::kF64, ir::kF16, ir::kBF16, ir::kI8, ir::kU8, ir::kI32, ir::kI64, ir::kBool}) {
    RefTensor tensor{{type, {3}}, {0, 1, type.is_bool() ? 1.0 : 100}};
    auto back = FromBytes(tensor.type, ToBytes(tensor));
    ASSERT_TRUE(back.ok());
    EXPECT_EQ(back->values, tensor.values) << ir::TypeName(type);
  }
  EXPECT_FALSE(FromBytes({ir::kF32, {3}}, "short").ok());
  EXPECT_EQ(RoundToType(300, ir::kI8), 127);
  EXPECT_EQ(RoundToType(-1.7, ir::kI32), -1);
  EXPECT_EQ(RoundToType(1 + std::ldexp(1, -30), ir::kF32), 1);
}

// ------------------------------------------------------------------------------------------------
// variants

struct Winograd {
  std::vector<int64_t> x, w;
  Attrs attrs;
  bool bias = false;
};

// The variant against the reference, by the bound that the header states and by what it is in
// practice.
void CheckWinograd(const Winograd& c, Rng* rng, double* largest_error) {
  const OpSpec* spec = FindOp("conv2d");
  std::vector<TensorType> types = {{ir::kF32, c.x}, {ir::kF32, c.w}};
  const bool ihwo = GetString(c.attrs, "weight_layout", "OIHW") == "IHWO";
  if (c.bias) types.push_back({ir::kF32, {ihwo ? c.w[3] : c.w[0]}});
  EXPECT_EQ(VariantsOf(*spec, types, c.attrs), (std::vector<std::string>{"direct", "winograd"}));
  std::vector<RefTensor> inputs;
  for (const TensorType& type : types) inputs.push_back(RandomTensor(type, -1, 1, rng));
  auto outputs = InferTypes(*spec, types, c.attrs);
  ASSERT_TRUE(outputs.ok()) << outputs.status();
  auto expected = Reference(*spec, inputs, c.attrs);
  ASSERT_TRUE(expected.ok()) << expected.status();
  auto f = AsFunction(*spec, types, *outputs, c.attrs, "winograd");
  ASSERT_TRUE(f.ok()) << f.status();
  std::vector<ir::TensorData> data(inputs.size() + 1);
  std::vector<ir::TensorData*> args;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const std::string bytes = ToBytes(inputs[i]);
    data[i].bytes.assign(bytes.begin(), bytes.end());
  }
  for (ir::TensorData& d : data) args.push_back(&d);
  absl::Status ran = ir::Interpret(*f, {}, args, {.check_regions = true});
  ASSERT_TRUE(ran.ok()) << ran;
  std::string_view bytes(reinterpret_cast<const char*>(data.back().bytes.data()),
                         data.back().bytes.size());
  auto actual = FromBytes((*outputs)[0], bytes);
  ASSERT_TRUE(actual.ok()) << actual.status();
  double error = 0, size = 0;
  for (size_t i = 0; i < actual->values.size(); ++i) {
    error = std::max(error, std::fabs(actual->values[i] - (*expected)[0].values[i]));
    size = std::max(size, std::fabs((*expected)[0].values[i]));
  }
  EXPECT_LE(error, WinogradErrorBound(ihwo ? c.w[0] : c.w[1], 1, 1));
  *largest_error = std::max(*largest_error, error / size);
}

TEST(OpVariants, WinogradComputesTheConvolution) {
  Rng rng(Seed());
  double error = 0;
  const std::vector<int64_t> same = {1, 1, 1, 1};
  const std::vector<Winograd> cases = {
      {{1, 3, 8, 8}, {4, 3, 3, 3}, {{"pads", same}}, true},
      {{2, 5, 7, 9}, {3, 5, 3, 3}, {{"pads", same}}},
      {{1, 2, 6, 6}, {2, 2, 3, 3}, {}},  // one whole tile, nothing padded
      {{1, 1, 3, 3}, {1, 1, 3, 3}, {}},  // one output
      {{1, 2, 5, 11}, {3, 2, 3, 3}, {{"pads", std::vector<int64_t>{2, 0, 1, 3}}}, true},
      {{1, 16, 9, 6}, {16, 3, 3, 5}, {{"weight_layout", std::string("IHWO")}, {"pads", same}}},
  };
  for (Winograd c : cases) {
    if (GetString(c.attrs, "weight_layout", "") == "IHWO") c.w = {16, 3, 3, 5};
    CheckWinograd(c, &rng, &error);
  }
  EXPECT_LE(error, 1e-5);
  std::printf("winograd: largest error %.2g of the largest output\n", error);
}

// Channel blocks: all sizes of tile, tiles that stick out, several blocks and images; tiles of five
// only where they save products.
TEST(OpVariants, WinogradOnChannelBlocks) {
  const OpSpec* spec = FindOp("conv2d_blocked");
  Rng rng(Seed());
  const Attrs attrs = {{"pads", std::vector<int64_t>{1, 1, 1, 1}}};
  for (const std::vector<int64_t>& x :
       {std::vector<int64_t>{1, 2, 8, 8, 4}, {2, 1, 7, 6, 4}, {1, 1, 14, 9, 4}}) {
    const std::vector<TensorType> types = {{ir::kF32, x}, {ir::kF32, {3, x[1], 3, 3, 4, 4}}};
    std::vector<std::string> variants = {"direct", "winograd", "winograd_2"};
    if (x[2] == 14) variants.push_back("winograd_5");
    ASSERT_EQ(VariantsOf(*spec, types, attrs), variants);
    std::vector<RefTensor> inputs;
    for (const TensorType& type : types) inputs.push_back(RandomTensor(type, -1, 1, &rng));
    const auto outputs = InferTypes(*spec, types, attrs);
    ASSERT_TRUE(outputs.ok()) << outputs.status();
    const auto expected = Reference(*spec, inputs, attrs);
    ASSERT_TRUE(expected.ok()) << expected.status();
    for (const std::string& variant : variants) {
      const auto f = AsFunction(*spec, types, *outputs, attrs, variant);
      ASSERT_TRUE(f.ok()) << f.status();
      std::vector<ir::TensorData> data(3);
      for (size_t i = 0; i < inputs.size(); ++i) {
        const std::string bytes = ToBytes(inputs[i]);
        data[i].bytes.assign(bytes.begin(), bytes.end());
      }
      ASSERT_TRUE(
          ir::Interpret(*f, {}, {&data[0], &data[1], &data[2]}, {.check_regions = true}).ok());
      const auto actual =
          FromBytes((*outputs)[0],
                    {reinterpret_cast<const char*>(data[2].bytes.data()), data[2].bytes.size()});
      ASSERT_TRUE(actual.ok()) << actual.status();
      for (size_t i = 0; i < actual->values.size(); ++i) {
        ASSERT_NEAR(actual->values[i], (*expected)[0].values[i], 1e-4) << variant << " at " << i;
      }
    }
  }
}

TEST(OpVariants, OnlyWhatTheyAreFor) {
  const OpSpec* spec = FindOp("conv2d");
  auto f32 = [](std::vector<int64_t> shape) { return TensorType{ir::kF32, std::move(shape)}; };
  auto names = [&](std::vector<int64_t> w, Attrs attrs) {
    std::vector<TensorType> types = {f32({1, 4, 12, 12}), f32(std::move(w))};
    return VariantsOf(*spec, types, attrs).size();
  };
  EXPECT_EQ(names({4, 4, 3, 3}, {}), 2u);
  EXPECT_EQ(names({4, 4, 5, 5}, {}), 1u);
  EXPECT_EQ(names({4, 4, 3, 3}, {{"strides", std::vector<int64_t>{2, 2}}}), 1u);
  EXPECT_EQ(names({4, 4, 3, 3}, {{"dilations", std::vector<int64_t>{1, 2}}}), 1u);
  EXPECT_EQ(names({4, 2, 3, 3}, {{"groups", int64_t{2}}}), 1u);
  std::vector<TensorType> types = {f32({1, 4, 12, 12}), f32({4, 4, 5, 5})};
  auto outputs = InferTypes(*spec, types, {});
  ASSERT_TRUE(outputs.ok());
  EXPECT_EQ(support::Slug(AsFunction(*spec, types, *outputs, {}, "winograd").status()),
            "op.conv2d.variant");
}

}  // namespace
}  // namespace tilewright::op
