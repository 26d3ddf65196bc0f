// Which kernel is to blame: planted faults in the values that a module is said to have computed.
#include "tuner_server/cli/layer_compare.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

namespace tilewright::cli {
namespace {

using op::RefTensor;

// x -> scaled = 2 x -> view -> moved = view + 1; and rounded = i8 of x.
graph::Graph Network() {
  auto g = graph::ParseGraph(R"(graph "net" {
  input %0 "x": f32[2,3]
  constant %1 "two": f32[] = hex:00000040
  constant %2 "one": f32[] = hex:0000803f
  %3 "scaled": f32[2,3] = mul(%0, %1) "scaled"
  %4 "view": f32[6] = reshape(%3) {shape=[6]} "view"
  %5 "moved": f32[6] = add(%4, %2) "moved"
  %6 "rounded": i8[2,3] = cast(%0) {dtype="i8"} "rounded"
  output %5, %6
})");
  EXPECT_TRUE(g.ok()) << g.status();
  return graph::ShowValues(*g);
}

const RefTensor kInput{{ir::kF32, {2, 3}}, {1, 2, 3, 4, 5, 100}};

struct Bytes {
  std::string scaled, moved, rounded;
};

Bytes Right() {
  const auto floats = [](std::vector<double> v, std::vector<int64_t> shape) {
    return op::ToBytes(RefTensor{{ir::kF32, std::move(shape)}, std::move(v)});
  };
  return {floats({2, 4, 6, 8, 10, 200}, {2, 3}), floats({3, 5, 7, 9, 11, 201}, {6}),
          op::ToBytes(RefTensor{{ir::kI8, {2, 3}}, {1, 2, 3, 4, 5, 100}})};
}

float* Floats(std::string* bytes) { return reinterpret_cast<float*>(bytes->data()); }

// "scaled:ok moved:ok rounded:ok"
std::string Verdicts(const Bytes& bytes, const Precision& precision = {}) {
  const graph::Graph g = Network();
  EXPECT_EQ(g.outputs, (std::vector<graph::ValueId>{5, 6, 3}));
  size_t steps = 0;
  const auto layers =
      CompareLayers(g, {}, {kInput}, {{3, bytes.scaled}, {5, bytes.moved}, {6, bytes.rounded}},
                    precision, [&](size_t done, size_t all) {
                      EXPECT_EQ(done, ++steps);
                      EXPECT_EQ(all, 4U);
                    });
  EXPECT_TRUE(layers.ok()) << layers.status();
  if (!layers.ok()) return "";
  std::string text;
  for (const LayerResult& layer : *layers) {
    const char* word = layer.verdict == LayerVerdict::kSame      ? "ok"
                       : layer.verdict == LayerVerdict::kDiffers ? "differs"
                                                                 : "inherits";
    text += (text.empty() ? "" : " ") + layer.kernel + ":" + word;
  }
  return text;
}

TEST(LayerCompare, WhatIsRightIsTheSame) {
  EXPECT_EQ(Verdicts(Right()), "scaled:ok moved:ok rounded:ok");
}

TEST(LayerCompare, BlamesTheFirstKernelAndNotItsReaders) {
  Bytes bytes = Right();
  Floats(&bytes.scaled)[1] = 5;
  Floats(&bytes.moved)[1] = 6;
  EXPECT_EQ(Verdicts(bytes), "scaled:differs moved:inherits rounded:ok");
  Floats(&bytes.moved)[1] = 5;  // right by chance, from a wrong operand
  EXPECT_EQ(Verdicts(bytes), "scaled:differs moved:ok rounded:ok");
  Floats(&bytes.moved)[1] = 7;  // wrong, and not because of its operand alone
  EXPECT_EQ(Verdicts(bytes), "scaled:differs moved:differs rounded:ok");
}

TEST(LayerCompare, AReaderMayBeTheFirst) {
  Bytes bytes = Right();
  Floats(&bytes.moved)[5] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(Verdicts(bytes), "scaled:ok moved:differs rounded:ok");
}

TEST(LayerCompare, TheLimitFollowsTheLargestNumber) {
  Bytes bytes = Right();
  Floats(&bytes.scaled)[0] = 2.19F;  // 0.001 of 200 is 0.2
  Floats(&bytes.moved)[0] = 3.19F;
  EXPECT_EQ(Verdicts(bytes), "scaled:ok moved:ok rounded:ok");
  EXPECT_EQ(Verdicts(bytes, {.rtol = 1e-4}), "scaled:differs moved:inherits rounded:ok");
}

TEST(LayerCompare, IntegersMayDifferByOne) {
  Bytes bytes = Right();
  bytes.rounded[5] = 99;
  EXPECT_EQ(Verdicts(bytes), "scaled:ok moved:ok rounded:ok");
  bytes.rounded[5] = 98;
  EXPECT_EQ(Verdicts(bytes), "scaled:ok moved:ok rounded:differs");
}

// A kernel that rounds to bf16 on its way to f32 may round to either side; one of f32 alone not.
TEST(LayerCompare, ValuesOf16BitsAreRoundedToEitherSide) {
  const auto verdict = [](const char* narrow, float found) {
    const auto g = graph::ParseGraph(std::string(R"(graph "net" {
  input %0 "x": f32[2]
  %1 "y": f32[2] = fused(%0) "y" graph "round" {
    input %0 "x": f32[2]
    %1 "n": )") + narrow + R"([2] = cast(%0) {dtype=")" +
                                     narrow + R"("} "n"
    %2 "w": f32[2] = cast(%1) {dtype="f32"} "w"
    output %2
  }
  output %1
})");
    EXPECT_TRUE(g.ok()) << g.status();
    const std::string bytes = op::ToBytes({{ir::kF32, {2}}, {1, found}});
    const auto layers = CompareLayers(*g, {}, {{{ir::kF32, {2}}, {1, 1.00390625}}}, {{1, bytes}},
                                      {}, [](size_t, size_t) {});
    EXPECT_TRUE(layers.ok()) << layers.status();
    return layers.ok() && layers->at(0).verdict == LayerVerdict::kSame;
  };
  EXPECT_TRUE(verdict("bf16", 1));
  EXPECT_TRUE(verdict("bf16", 1.0078125));
  EXPECT_FALSE(verdict("bf16", 1.015625));
  EXPECT_FALSE(verdict("f64", 1));
}

TEST(LayerCompare, AMissingValueIsAnError) {
  const Bytes bytes = Right();
  const auto layers =
      CompareLayers(Network(), {}, {kInput}, {{3, bytes.scaled}}, {}, [](size_t, size_t) {});
  EXPECT_EQ(support::Slug(layers.status()), "cli.compare.value");
}

// kept = as many of x as a check finds, at most N of them; twice = 2 kept.
TEST(LayerCompare, SizesAreThoseOfTheInputsAndOfTheReference) {
  const auto g = graph::ParseGraph(R"(graph "net" {
  input %0 "x": f32[N]
  constant %1 "two": f32[] = hex:00000040
  %2 "flags": bool[N] = greater(%0, %1) "flags"
  %3 "wide": i64[N] = cast(%2) {dtype="i64"} "wide"
  %4 "count": i64[1] = reduce(%3) {axes=[0], keepdims=1, kind="sum"} "count"
  %5 "kept": f32[K] = slice(%0) {sizes=[K], starts=[0], steps=[1]} "kept"
  %6 "twice": f32[K] = mul(%5, %1) "twice"
  output %5, %6, %4
  check [K] "choose"
})");
  ASSERT_TRUE(g.ok()) << g.status();
  const RefTensor x{{ir::kF32, {4}}, {1, 2, 3, 4}};
  const std::string flags("\0\0\1\1", 4);
  const std::string wide = op::ToBytes({{ir::kI64, {4}}, {0, 0, 1, 1}});
  const auto verdicts = [&](const std::vector<double>& kept, const std::vector<double>& twice) {
    const auto bytes = [](const std::vector<double>& v) {
      return op::ToBytes({{ir::kF32, {static_cast<int64_t>(v.size())}}, v});
    };
    const std::string a = bytes(kept), b = bytes(twice);
    const auto layers = CompareLayers(*g, {{"N", 4}}, {x}, {{2, flags}, {3, wide}, {5, a}, {6, b}},
                                      {}, [](size_t, size_t) {});
    EXPECT_TRUE(layers.ok()) << layers.status();
    std::string text;
    for (const LayerResult& layer : layers.value_or(std::vector<LayerResult>{})) {
      if (layer.kernel != "kept" && layer.kernel != "twice") continue;
      text += op::ToText(layer.type) + (layer.verdict == LayerVerdict::kSame      ? " ok "
                                        : layer.verdict == LayerVerdict::kDiffers ? " differs "
                                                                                  : " inherits ");
    }
    return text;
  };
  EXPECT_EQ(verdicts({1, 2}, {2, 4}), "f32[2] ok f32[2] ok ");
  EXPECT_EQ(verdicts({1, 2}, {2, 5}), "f32[2] ok f32[2] differs ");
  EXPECT_EQ(verdicts({1, 2, 3}, {2, 4, 6}), "f32[2] differs f32[2] inherits ");
}

}  // namespace
}  // namespace tilewright::cli
