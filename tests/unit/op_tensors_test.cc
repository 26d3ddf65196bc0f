// Operators that look beyond one element (convolutions, products, windows, reductions, shapes,
// indices): their compute, run by the tensor IR's interpreter, against their plain reference, on
// random shapes.
#include <gtest/gtest.h>

#include <cmath>

#include "compiler/op/op.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"
#include "tests/unit/op_case.h"

namespace tilewright::op {
namespace {

using support::Rng;
using support::StrCat;

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
  EXPECT_EQ((*y)[0].type.sizes(), (std::vector<int64_t>{1, 1, 2, 3}));
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

TEST(OpCompute, Norms) {
  Rng rng(Seed());
  for (const char* kind : {"layer", "rms"}) {
    for (const auto& shape : std::vector<std::vector<int64_t>>{{5}, {3, 1}, {3, 40}, {2, 3, 7}}) {
      ExpectComputeMatchesReference(
          {"normalize", {shape}, {{"kind", std::string(kind)}, {"epsilon", 1e-3}}}, &rng);
    }
  }
  ExpectComputeMatchesReference({"normalize", {{3, 8}}, {}, -2, 2, ir::kF64}, &rng);
}

TEST(OpCompute, NormsThatAreNone) {
  const OpSpec& spec = *FindOp("normalize");
  const auto slug = [&](const TensorType& type, const Attrs& attrs) {
    return support::Slug(InferTypes(spec, std::vector<TensorType>{type}, attrs).status());
  };
  EXPECT_EQ(slug({ir::kF32, {2, 3}}, {{"epsilon", -1.0}}), "op.normalize.attribute");
  EXPECT_EQ(slug({ir::kF32, {}}, {}), "op.normalize.shape");
}

// The mean of squares minus the square of the mean would be off by 10 % here.
TEST(OpCompute, NormsOfRowsFarFromZero) {
  Rng rng(Seed());
  const OpSpec& spec = *FindOp("normalize");
  const TensorType type{ir::kF32, {4, 96}};
  const RefTensor x = RandomTensor(type, 1000, 1001, &rng);
  const auto expected = Reference(spec, std::vector<RefTensor>{x}, {});
  ASSERT_TRUE(expected.ok()) << expected.status();
  const auto function = AsFunction(spec, {type}, {type}, {});
  ASSERT_TRUE(function.ok()) << function.status();
  const auto actual = Interpreted(*function, {x}, type);
  ASSERT_TRUE(actual.ok()) << actual.status();
  for (size_t i = 0; i < actual->values.size(); ++i) {
    EXPECT_NEAR(actual->values[i], (*expected)[0].values[i], 2e-3) << i;
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
  for (const ir::DType type : {ir::kBool, ir::kI32}) {  // the value as one of the type
    Case whole = {"pad", {{3, 4}}, {{"pads", V{1, 0, 2, 3}}, {"value", 0.5}}};
    whole.dtype = type;
    ExpectComputeMatchesReference(whole, &rng);
  }
}

TEST(OpReference, GatherClampsAndCountsFromTheEnd) {
  const RefTensor data{{ir::kF32, {3, 2}}, {0, 1, 10, 11, 20, 21}};
  const RefTensor at{{ir::kI64, {4}}, {2, -3, 7, -9}};
  auto y = Reference(*FindOp("gather"), std::vector{data, at}, {{"axis", int64_t{0}}});
  ASSERT_TRUE(y.ok()) << y.status();
  EXPECT_EQ((*y)[0].values, (std::vector<double>{20, 21, 0, 1, 20, 21, 0, 1}));
  y = Reference(*FindOp("gather"), std::vector{data, at}, {{"axis", int64_t{1}}});
  EXPECT_EQ((*y)[0].type.sizes(), (std::vector<int64_t>{3, 4}));
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
    // The same window on blocks of channels.
    const int64_t b = rng.UniformInt(1, 4), out_block = rng.UniformInt(1, 4);
    Case image = c;
    image.attrs["groups"] = int64_t{1};
    image.attrs["data_layout"] = StrCat("NCHW", b, "c");
    image.attrs["weight_layout"] = StrCat("OIHW", b, "i", out_block, "o");
    image.shapes[0].push_back(b);
    image.shapes[1] = {out, in, kh, kw, b, out_block};
    if (image.shapes.size() > 2) image.shapes[2] = {out * out_block};
    ExpectComputeMatchesReference(image, &rng);
    if (::testing::Test::HasFatalFailure()) return;
  }
}

TEST(OpCompute, BlockedConvolutionsAndPools) {
  for (uint64_t i = 0; i < 40; ++i) {
    Rng rng = Rng(Seed()).Split(3000 + i);
    SCOPED_TRACE(StrCat("case ", i));
    const int64_t b = rng.UniformInt(1, 4), in = rng.UniformInt(1, 3), out = rng.UniformInt(1, 3);
    const int64_t kh = rng.UniformInt(1, 3), kw = rng.UniformInt(1, 3);
    std::vector<int64_t> x = {rng.UniformInt(1, 2), in, rng.UniformInt(3, 6), rng.UniformInt(3, 6),
                              b};
    const Attrs window = {
        {"strides", std::vector<int64_t>{rng.UniformInt(1, 2), rng.UniformInt(1, 2)}},
        {"dilations", std::vector<int64_t>{1, rng.Bernoulli(0.2) && kw < 3 ? 2 : 1}},
        {"pads", std::vector<int64_t>{rng.UniformInt(0, kh - 1), 0, rng.UniformInt(0, kh - 1), 0}}};
    const bool depthwise = rng.Bernoulli(0.4);
    // Images of single channels give blocks, too.
    const int64_t out_block = rng.Bernoulli(0.5) ? b : rng.UniformInt(1, 4);
    Case conv{"conv2d",
              {x, depthwise ? std::vector<int64_t>{in, kh, kw, b}
                            : std::vector<int64_t>{out, in, kh, kw, b, out_block}},
              window};
    conv.attrs["data_layout"] = StrCat("NCHW", b, "c");
    conv.attrs["weight_layout"] =
        depthwise ? StrCat("OHW", b, "o") : StrCat("OIHW", b, "i", out_block, "o");
    if (depthwise) conv.attrs["groups"] = in * b;
    ExpectComputeMatchesReference(conv, &rng);
    Case bytes = conv;  // sums in i32; dense ones four channels at a time
    bytes.dtype = rng.Bernoulli(0.5) ? ir::kU8 : ir::kI8;
    bytes.dtypes = {bytes.dtype, ir::kI8};
    bytes.low = bytes.dtype == ir::kU8 ? 0 : -100, bytes.high = 100;
    bytes.attrs["pad_value"] = rng.UniformInt(0, 127);
    if (!depthwise) {
      bytes.shapes[0].back() = 4 * b;
      bytes.shapes[1] = {out, in, kh, kw, b, out_block, 4};
      bytes.attrs["data_layout"] = StrCat("NCHW", 4 * b, "c");
      bytes.attrs["weight_layout"] = StrCat("OIHW", b, "i", out_block, "o4i");
    }
    ExpectComputeMatchesReference(bytes, &rng);
    if (rng.Bernoulli(0.3)) x.push_back(2);  // windows take what lies behind the image along
    Case pool{"pool2d", {x}, window};
    pool.attrs["kernel"] = std::vector<int64_t>{kh, kw};
    pool.attrs["kind"] = std::string(rng.Bernoulli(0.5) ? "max" : "avg");
    ExpectComputeMatchesReference(pool, &rng);
    pool.attrs["kind"] = std::string("max");
    pool.dtype = bytes.dtype, pool.low = bytes.low, pool.high = bytes.high;
    ExpectComputeMatchesReference(pool, &rng);
    pool.attrs["staged"] = int64_t{1};  // padding is zeros
    pool.dtype = ir::kI8, pool.low = -100, pool.high = 100;
    ExpectComputeMatchesReference(pool, &rng);
    if (::testing::Test::HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace tilewright::op
