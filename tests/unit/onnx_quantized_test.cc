// Import of quantised operators: what they compute, by hand, before and after the graph passes.
#include <gtest/gtest.h>

#include "compiler/graph/graph.h"
#include "compiler/graph/graph_passes.h"
#include "compiler/onnx/onnx_import.h"
#include "deploy/support/status.h"
#include "tests/unit/onnx_evaluate.h"

namespace tilewright::graph {
namespace {

using op::RefTensor;
using tests::OnnxBuilder;
using Shape = std::vector<int64_t>;
namespace pb = tests::pb;
constexpr int kU8 = pb::TensorProto::UINT8, kI8 = pb::TensorProto::INT8;
constexpr int kI32 = pb::TensorProto::INT32;

RefTensor Tensor(ir::DType type, Shape shape, std::vector<double> values) {
  return {{type, std::move(shape)}, std::move(values)};
}

// The outputs of the model, before and after the passes the same.
std::vector<RefTensor> Evaluate(const OnnxBuilder& b, const std::vector<RefTensor>& inputs) {
  auto g = ImportOnnx(b.Bytes());
  EXPECT_TRUE(g.ok()) << g.status();
  if (!g.ok()) return {};
  auto out = Interpret(*g, inputs);
  if (out.ok()) tests::ExpectSameWhenOpen(b, inputs, *out);
  GraphPassContext context;
  context.enabled = {"block_layouts"};
  context.packed_weight_rows = 2;
  auto fused = RunGraphPasses(*g, context);
  EXPECT_TRUE(out.ok() && fused.ok()) << out.status() << fused.status();
  if (!out.ok() || !fused.ok()) return {};
  auto again = Interpret(*fused, inputs);
  EXPECT_TRUE(again.ok()) << again.status();
  for (size_t o = 0; again.ok() && o < out->size(); ++o) {
    EXPECT_EQ((*out)[o].type, (*again)[o].type);
    EXPECT_EQ((*out)[o].values, (*again)[o].values);
  }
  return *out;
}

TEST(OnnxQuantized, QuantizeAndDequantizeByChannel) {
  OnnxBuilder b;
  b.Input("x", {1, 2, 3}).Floats("s", {0.5F, 2}).Small("z", kI8, {2}, {-1, 10});
  b.Node("QuantizeLinear", {"x", "s", "z"}, "q");
  b.Node("DequantizeLinear", {"q", "s", "z"}, "y");
  b.Output("q", {1, 2, 3}, kI8).Output("y", {1, 2, 3});
  const auto out = Evaluate(b, {Tensor(ir::kF32, {1, 2, 3}, {0.25, -100, 1.25, 1, 300, 3})});
  ASSERT_EQ(out.size(), 2u);
  EXPECT_EQ(out[0].values, (std::vector<double>{-1, -128, 1, 10, 127, 12}));
  EXPECT_EQ(out[1].values, (std::vector<double>{0, -63.5, 1, 0, 234, 4}));
}

TEST(OnnxQuantized, WithoutZeroPointsAndOfOtherIntegers) {
  OnnxBuilder b;
  b.Input("x", {3}).Input("i", {2}, kI32).Scalar("s", 0.5F);
  b.Node("QuantizeLinear", {"x", "s"}, "q");  // u8
  b.Node("DequantizeLinear", {"i", "s"}, "y");
  b.Node("QuantizeLinear", {"i", "s"}, "k");
  b.Output("q", {3}, kU8).Output("y", {2}).Output("k", {2}, kU8);
  const auto out =
      Evaluate(b, {Tensor(ir::kF32, {3}, {-1, 0.75, 1000}), Tensor(ir::kI32, {2}, {-7, 9})});
  ASSERT_EQ(out.size(), 3u);
  EXPECT_EQ(out[0].values, (std::vector<double>{0, 2, 255}));
  EXPECT_EQ(out[1].values, (std::vector<double>{-3.5, 4.5}));
  EXPECT_EQ(out[2].values, (std::vector<double>{0, 18}));
}

TEST(OnnxQuantized, BlocksHaveTheirOwnScales) {
  OnnxBuilder b(21);
  b.Input("x", {2, 4}, kU8).Input("s", {2, 2});
  OnnxBuilder::Attr(b.Node("DequantizeLinear", {"x", "s"}, "y"), "block_size", int64_t{2});
  b.Output("y", {2, 4});
  const auto out = Evaluate(b, {Tensor(ir::kU8, {2, 4}, {1, 2, 3, 4, 5, 6, 7, 8}),
                                Tensor(ir::kF32, {2, 2}, {1, 10, 100, 1000})});
  ASSERT_EQ(out.size(), 1u);
  EXPECT_EQ(out[0].values, (std::vector<double>{1, 2, 30, 40, 500, 600, 7000, 8000}));
  OnnxBuilder odd(21);
  odd.Input("x", {2, 3}, kU8).Input("s", {2, 2}).Output("y", {2, 3});
  OnnxBuilder::Attr(odd.Node("DequantizeLinear", {"x", "s"}, "y"), "block_size", int64_t{2});
  EXPECT_EQ(support::Slug(ImportOnnx(odd.Bytes()).status()), "graph.onnx.attribute");
}

// y[n] = sum of x * scale * (q - zero); two blocks of 16 for each of two columns.
TEST(OnnxQuantized, ProductsWithPackedWeights) {
  for (const int64_t bits : {4, 8}) {
    for (const bool zeros : {false, true}) {
      std::vector<int64_t> packed, points = zeros ? std::vector<int64_t>{2, 5, 7, 1}
                                                  : std::vector<int64_t>(4, 1 << (bits - 1));
      const auto q = [&](int64_t n, int64_t k) { return (5 * k + 3 * n) % (1 << bits); };
      const auto pack = [&](int64_t count, const auto& value) {
        const int64_t fields = 8 / bits;
        std::vector<int64_t> bytes(static_cast<size_t>(count / fields), 0);
        for (int64_t i = 0; i < count; ++i) {
          bytes[static_cast<size_t>(i / fields)] |= value(i) << (i % fields * bits);
        }
        return bytes;
      };
      packed = pack(64, [&](int64_t i) { return q(i / 32, i % 32); });
      OnnxBuilder b;
      b.Input("x", {1, 32}).Floats("s", {0.5F, 1, 2, 0.25F}).Floats("bias", {100, 200});
      b.Small("w", kU8, {2, 2, 2 * bits}, packed);
      std::vector<std::string> inputs = {"x", "w", "s"};
      inputs.push_back(zeros ? "z" : "");
      if (zeros) b.Small("z", kU8, {4 * bits / 8}, pack(4, [&](int64_t i) { return points[i]; }));
      inputs.insert(inputs.end(), {"", "bias"});
      auto* node = b.Node("MatMulNBits", inputs, "y");
      node->set_domain("com.microsoft");
      OnnxBuilder::Attr(node, "K", int64_t{32});
      OnnxBuilder::Attr(node, "N", int64_t{2});
      OnnxBuilder::Attr(node, "bits", bits);
      OnnxBuilder::Attr(node, "block_size", int64_t{16});
      b.Output("y", {1, 2});
      RefTensor x = Tensor(ir::kF32, {1, 32}, {});
      for (int64_t k = 0; k < 32; ++k) x.values.push_back(static_cast<double>(k % 7 - 3));
      std::vector<double> expected = {100, 200};
      const double scale[] = {0.5, 1, 2, 0.25};
      for (int64_t n = 0; n < 2; ++n) {
        for (int64_t k = 0; k < 32; ++k) {
          const int64_t g = 2 * n + k / 16;
          expected[n] += x.values[k] * scale[g] * static_cast<double>(q(n, k) - points[g]);
        }
      }
      const auto out = Evaluate(b, {x});
      ASSERT_EQ(out.size(), 1u);
      EXPECT_EQ(out[0].values, expected) << bits << zeros;
    }
  }
}

// Scales and data of 16 bits; zero points between the integers; a last group that hangs over the
// end; groups in an order of their own.
TEST(OnnxQuantized, ProductsWithPackedWeightsOfOtherForms) {
  enum Form { kHalves, kFloatZeros, kShort, kTwoBits, kOrder };
  for (const Form form : {kHalves, kFloatZeros, kShort, kTwoBits, kOrder}) {
    SCOPED_TRACE(form);
    const int64_t bits = form == kTwoBits ? 2 : 4, fields = 8 / bits;
    const int64_t size = form == kShort ? 27 : 32;
    const ir::DType type = form == kHalves ? ir::kF16 : ir::kF32;
    const int onnx = form == kHalves ? pb::TensorProto::FLOAT16 : pb::TensorProto::FLOAT;
    const double scale[] = {0.5, 1, 2, 0.25};
    const double zero[] = {1.5, 2.5, 0.5, 3};
    const auto q = [&](int64_t n, int64_t k) { return (5 * k + 3 * n) % (1 << bits); };
    const auto group = [&](int64_t k) { return form == kOrder ? k % 2 : k / 16; };
    std::vector<int64_t> packed(static_cast<size_t>(64 / fields), 0);
    for (int64_t i = 0; i < 64; ++i) {
      packed[static_cast<size_t>(i / fields)] |= q(i / 32, i % 32) << (i % fields * bits);
    }
    OnnxBuilder b;
    b.Input("x", {1, size}, onnx).Output("y", {1, 2}, onnx);
    b.Small("w", kU8, {2, 2, 16 / fields}, packed);
    if (form == kHalves) {
      b.Small("s", onnx, {4}, {0x3800, 0x3c00, 0x4000, 0x3400});
    } else {
      b.Floats("s", {0.5F, 1, 2, 0.25F});
    }
    std::vector<std::string> inputs = {"x", "w", "s"};
    if (form == kFloatZeros) {
      b.Floats("z", {1.5F, 2.5F, 0.5F, 3});
      inputs.push_back("z");
    }
    if (form == kOrder) {
      std::vector<int64_t> own;
      for (int64_t k = 0; k < size; ++k) own.push_back(group(k));
      b.Small("g", pb::TensorProto::INT32, {size}, own);
      inputs.insert(inputs.end(), {"", "g"});
    }
    auto* node = b.Node("MatMulNBits", inputs, "y");
    node->set_domain("com.microsoft");
    OnnxBuilder::Attr(node, "K", size);
    OnnxBuilder::Attr(node, "N", int64_t{2});
    OnnxBuilder::Attr(node, "bits", bits);
    OnnxBuilder::Attr(node, "block_size", int64_t{16});
    RefTensor x = Tensor(type, {1, size}, {});
    std::vector<double> expected(2, 0);
    for (int64_t k = 0; k < size; ++k) {
      x.values.push_back(static_cast<double>(k % 7 - 3) / 4);
      for (int64_t n = 0; n < 2; ++n) {
        const int64_t g = 2 * n + group(k);
        const double middle = form == kFloatZeros ? zero[g] : 1 << (bits - 1);
        expected[n] += x.values.back() * scale[g] * (static_cast<double>(q(n, k)) - middle);
      }
    }
    const auto out = Evaluate(b, {x});
    ASSERT_EQ(out.size(), 1u);
    EXPECT_EQ(out[0].type.dtype, type);
    EXPECT_EQ(out[0].values, expected);
  }
}

TEST(OnnxQuantized, DynamicRangeHoldsZero) {
  OnnxBuilder b;
  b.Input("x", {3});
  auto* node = b.Node("DynamicQuantizeLinear", {"x"}, "q");
  node->add_output("s");
  node->add_output("z");
  b.Output("q", {3}, kU8).Output("s", {}).Output("z", {}, kU8);
  auto out = Evaluate(b, {Tensor(ir::kF32, {3}, {-51, 102, 204})});
  ASSERT_EQ(out.size(), 3u);
  EXPECT_EQ(out[0].values, (std::vector<double>{0, 153, 255}));
  EXPECT_EQ(out[1].values, (std::vector<double>{1}));
  EXPECT_EQ(out[2].values, (std::vector<double>{51}));
  out = Evaluate(b, {Tensor(ir::kF32, {3}, {51, 102, 255})});  // 0 is below all of them
  ASSERT_EQ(out.size(), 3u);
  EXPECT_EQ(out[0].values, (std::vector<double>{51, 102, 255}));
  out = Evaluate(b, {Tensor(ir::kF32, {3}, {0, 0, 0})});
  ASSERT_EQ(out.size(), 3u);
  EXPECT_EQ(out[0].values, (std::vector<double>{0, 0, 0}));
}

TEST(OnnxQuantized, ProductsOfIntegersAreExact) {
  OnnxBuilder b;
  b.Input("a", {2, 3}, kU8).Input("c", {3, 2}, kI8);
  b.Small("az", kU8, {}, {12}).Small("cz", kI8, {2}, {0, -3});
  b.Node("MatMulInteger", {"a", "c", "az", "cz"}, "y");
  b.Output("y", {2, 2}, kI32);
  const auto out = Evaluate(b, {Tensor(ir::kU8, {2, 3}, {255, 0, 12, 13, 11, 12}),
                                Tensor(ir::kI8, {3, 2}, {-128, 127, 1, 2, 5, 6})});
  ASSERT_EQ(out.size(), 1u);
  EXPECT_EQ(out[0].values, (std::vector<double>{243 * -128 - 12, 243 * 130 - 60, -129, 125}));
}

// Padding is the zero point: nothing.
TEST(OnnxQuantized, ConvolutionsOfIntegersPadWithNothing) {
  OnnxBuilder b;
  b.Input("x", {1, 1, 2, 2}, kU8).Small("w", kU8, {1, 1, 2, 2}, {1, 2, 3, 4});
  b.Small("xz", kU8, {}, {10}).Small("wz", kU8, {}, {2});
  auto* conv = b.Node("ConvInteger", {"x", "w", "xz", "wz"}, "y");
  OnnxBuilder::Attr(conv, "pads", Shape{0, 0, 1, 1});
  b.Output("y", {1, 1, 2, 2}, kI32);
  const auto out = Evaluate(b, {Tensor(ir::kU8, {1, 1, 2, 2}, {11, 12, 13, 14})});
  ASSERT_EQ(out.size(), 1u);
  // Weights are -1 0 1 2, data 1 2 3 4.
  EXPECT_EQ(out[0].values, (std::vector<double>{-1 + 3 + 8, -2 + 4, -3, -4}));
}

TEST(OnnxQuantized, QLinearConvAndMatMulRequantize) {
  OnnxBuilder b;
  b.Input("x", {1, 1, 1, 3}, kU8).Scalar("xs", 0.5F).Small("xz", kU8, {}, {2});
  b.Small("w", kI8, {2, 1, 1, 1}, {3, -4}).Floats("ws", {1, 0.25F}).Small("wz", kI8, {2}, {0, 0});
  b.Small("bias", kI32, {2}, {1, -8}).Scalar("ys", 0.25F).Small("yz", kU8, {}, {100});
  b.Node("QLinearConv", {"x", "xs", "xz", "w", "ws", "wz", "ys", "yz", "bias"}, "c");
  b.Output("c", {1, 2, 1, 3}, kU8);
  b.Input("a", {1, 2}, kI8).Small("az", kI8, {}, {-1}).Small("m", kI8, {2, 1}, {2, 7});
  b.Small("mz", kI8, {}, {1}).Small("pz", kI8, {}, {5});
  b.Node("QLinearMatMul", {"a", "xs", "az", "m", "ys", "mz", "xs", "pz"}, "p");
  b.Output("p", {1, 1}, kI8);
  const auto out =
      Evaluate(b, {Tensor(ir::kU8, {1, 1, 1, 3}, {2, 0, 250}), Tensor(ir::kI8, {1, 2}, {3, -6})});
  ASSERT_EQ(out.size(), 2u);
  // (1 + 3 (x - 2)) * 2 + 100 and (-8 - 4 (x - 2)) / 2 + 100.
  EXPECT_EQ(out[0].values, (std::vector<double>{102, 90, 255, 96, 100, 0}));
  EXPECT_EQ(out[1].values, (std::vector<double>{(4 * 1 - 5 * 6) / 4.0 + 5 + 0.5}));  // half to even
}

// Quantisers saturate the biases of channels that are nearly dead.
TEST(OnnxQuantized, BiasesAsLargeAsTheirType) {
  OnnxBuilder b;
  b.Input("x", {1, 1, 1, 2}, kU8).Scalar("s", 1).Small("z", kU8, {}, {0});
  b.Small("w", kI8, {2, 1, 1, 1}, {1, -1}).Small("wz", kI8, {}, {0});
  b.Small("bias", kI32, {2}, {2147483640, -2147483640}).Scalar("ys", 1 << 24);
  b.Node("QLinearConv", {"x", "s", "z", "w", "s", "wz", "ys", "z", "bias"}, "y");
  b.Output("y", {1, 2, 1, 2}, kU8);
  const auto out = Evaluate(b, {Tensor(ir::kU8, {1, 1, 1, 2}, {0, 4})});
  ASSERT_EQ(out.size(), 1u);
  EXPECT_EQ(out[0].values, (std::vector<double>{128, 128, 0, 0}));
}

// Channels in whole blocks, weights that i8 does not hold without their zero point: sums stay i32.
TEST(OnnxQuantized, WeightsThatBytesDoNotHold) {
  OnnxBuilder b;
  b.Input("x", {1, 8, 1, 1}, kU8).Small("wz", kU8, {}, {3});
  std::vector<int64_t> weights(64, 4);
  weights[9] = 255;
  b.Small("w", kU8, {8, 8, 1, 1}, weights);
  b.Node("ConvInteger", {"x", "w", "", "wz"}, "y");
  b.Output("y", {1, 8, 1, 1}, kI32);
  const auto out = Evaluate(b, {Tensor(ir::kU8, {1, 8, 1, 1}, {1, 2, 3, 4, 5, 6, 7, 8})});
  ASSERT_EQ(out.size(), 1u);
  EXPECT_EQ(out[0].values, (std::vector<double>{36, 36 + 2 * 251, 36, 36, 36, 36, 36, 36}));
}

TEST(OnnxQuantized, OnnxRuntimesAddition) {
  OnnxBuilder b;
  b.Input("x", {2}, kU8).Input("z", {2}, kU8).Scalar("s", 0.5F).Small("o", kU8, {}, {1});
  b.Node("QLinearAdd", {"x", "s", "o", "z", "s", "o", "s", "o"}, "y")->set_domain("com.microsoft");
  b.Output("y", {2}, kU8);
  const auto out = Evaluate(b, {Tensor(ir::kU8, {2}, {3, 200}), Tensor(ir::kU8, {2}, {5, 100})});
  ASSERT_EQ(out.size(), 1u);
  EXPECT_EQ(out[0].values, (std::vector<double>{7, 255}));
  EXPECT_TRUE(tests::OperatorsWhenOpen(b).contains("quantize"));
}

}  // namespace
}  // namespace tilewright::graph
