// Which optional passes run: those with which a model's tasks are predicted to take less time.
#include "tuner_server/search/pass_choice.h"

#include <gtest/gtest.h>

#include <string>

#include "compiler/driver/tasks.h"
#include "compiler/graph/graph.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::search {
namespace {

using graph::Graph;
using graph::GraphPassContext;
using support::StrCat;

target::Target Machine() {
  return *target::ParseTarget("cpu,arch=x86_64,cpu=sapphirerapids,threads=1");
}

// Convolutions one after the other, each with weights of its own.
Graph Chain(int convolutions, const std::string& batch, int channels, int size, int window) {
  Graph g;
  g.name = "chain";
  const auto image = graph::ParseGraph(StrCat("graph {\n  input %0: f32[", batch, ",", channels,
                                              ",", size, ",", size, "]\n  output %0\n}\n"));
  EXPECT_TRUE(image.ok()) << image.status();
  const op::TensorType type = image->values[0].type;
  graph::ValueId x = graph::AddValue(&g, "x", type);
  g.inputs = {x};
  const op::TensorType weights(ir::kF32, {channels, channels, window, window});
  for (int i = 0; i < convolutions; ++i) {
    const std::string bytes(static_cast<size_t>(weights.bytes()), static_cast<char>(i + 1));
    graph::Node node;
    node.name = StrCat("c", i);
    node.op = "conv2d";
    const int64_t pad = window / 2;
    node.attrs["pads"] = std::vector<int64_t>{pad, pad, pad, pad};
    node.inputs = {x, graph::AddConstant(&g, StrCat("w", i), weights, bytes)};
    node.outputs = {graph::AddValue(&g, StrCat("y", i), type)};
    x = node.outputs[0];
    g.nodes.push_back(node);
  }
  g.outputs = {x};
  if (image->values[0].type.fixed()) return g;
  g.size_ranges["N"] = {1, 8};
  return g;
}

Graph ByteLayer(int channels, int size) {
  Graph g;
  g.inputs = {graph::AddValue(&g, "x", {ir::kU8, {1, channels, size, size}})};
  g.outputs = {graph::AddValue(&g, "y", {ir::kI32, {1, channels, size, size}})};
  const op::TensorType weights(ir::kI8, {channels, channels, 3, 3});
  const std::string bytes(static_cast<size_t>(weights.bytes()), 1);
  graph::Node node;
  node.name = "c";
  node.op = "conv2d";
  node.attrs["pads"] = std::vector<int64_t>{1, 1, 1, 1};
  node.inputs = {g.inputs[0], graph::AddConstant(&g, "w", weights, bytes)};
  node.outputs = g.outputs;
  g.nodes.push_back(node);
  return g;
}

bool InBlocks(const Graph& g, const GraphPassContext& context = driver::PassContext(Machine())) {
  const auto fused = RunPassesThatPay(g, Machine(), context);
  EXPECT_TRUE(fused.ok()) << fused.status();
  return fused.ok() && graph::Print(*fused).find("data_layout=") != std::string::npos;
}

// Blocks make each of these 3x3 convolutions faster, the transforms are at the ends alone.
TEST(PassChoiceTest, ManyConvolutionsAreWorthTwoTransforms) {
  EXPECT_TRUE(InBlocks(Chain(6, "1", 64, 28, 3)));
}

// Few channels fill the last block: 8 of 736. On a Zen 4 these are 2.2 times as fast in blocks.
TEST(PassChoiceTest, ChannelsThatFillTheLastBlockPay) {
  EXPECT_TRUE(InBlocks(Chain(6, "1", 728, 6, 1)));
}

// Nothing is computed that could make up for moving the image.
TEST(PassChoiceTest, ASinglePixelWiseLayerIsNot) {
  EXPECT_FALSE(InBlocks(Chain(1, "1", 16, 64, 1)));
}

// What the model is wrong about in networks holds less where an image is moved before and behind a
// layer: ResNet-18's 3x3 layers of stride 2 alone are slower in blocks by a tenth on a Zen 5.
TEST(PassChoiceTest, ASingleLayerOfStrideTwoIsNotOnZen5) {
  Graph layer = Chain(1, "1", 256, 14, 3);
  layer.nodes[0].attrs["strides"] = std::vector<int64_t>{2, 2};
  layer.values[static_cast<size_t>(layer.outputs[0])].type = {ir::kF32, {1, 256, 7, 7}};
  const auto zen5 = target::ParseTarget("cpu,arch=x86_64,cpu=znver5,threads=1");
  ASSERT_TRUE(zen5.ok()) << zen5.status();
  const auto fused = RunPassesThatPay(layer, *zen5, driver::PassContext(*zen5));
  ASSERT_TRUE(fused.ok()) << fused.status();
  EXPECT_EQ(graph::Print(*fused).find("data_layout="), std::string::npos);
}

TEST(PassChoiceTest, OpenSizesAreJudgedAtTypicalOnes) {
  EXPECT_TRUE(InBlocks(Chain(6, "N", 64, 28, 3)));
  EXPECT_FALSE(InBlocks(Chain(1, "N", 16, 64, 1)));
}

TEST(PassChoiceTest, WhatIsNamedIsNotJudged) {
  GraphPassContext context = driver::PassContext(Machine());
  context.disabled = {"block_layouts"};
  EXPECT_FALSE(InBlocks(Chain(6, "1", 64, 28, 3), context));
  context = driver::PassContext(Machine());
  context.enabled = {"block_layouts"};
  EXPECT_TRUE(InBlocks(Chain(1, "1", 16, 64, 1), context));
}

// Blocks of bytes are dot products. Without an instruction for them, two products of pairs of
// 16-bit numbers still are several times as fast as products of 32 bits.
void ExpectBytesInBlocks(const std::string& name, int channels, int size) {
  const auto target = target::ParseTarget(name);
  ASSERT_TRUE(target.ok()) << target.status();
  const auto fused =
      RunPassesThatPay(ByteLayer(channels, size), *target, driver::PassContext(*target));
  ASSERT_TRUE(fused.ok()) << fused.status();
  EXPECT_NE(graph::Print(*fused).find("data_layout="), std::string::npos) << name;
}

TEST(PassChoiceTest, BytesAreInBlocksOnEveryProcessor) {
  for (const char* machine :
       {"x86_64,cpu=x86-64", "x86_64,cpu=haswell", "x86_64,cpu=znver4", "aarch64,cpu=cortex-a53",
        "aarch64,cpu=cortex-a76", "wasm,cpu=simd128", "wasm,cpu=relaxed_simd"}) {
    ExpectBytesInBlocks(StrCat("cpu,arch=", machine, ",threads=1"), 64, 28);
  }
}

// Also where the layer is small: PoCL runs a network of such layers 1.12 times as fast in blocks.
TEST(PassChoiceTest, BytesAreInBlocksOnGpus) {
  for (const char* device : {"opencl", "vulkan", "cuda,arch=sm_80", "cuda,arch=sm_90",
                             "hip,arch=gfx90a", "metal,arch=apple7"}) {
    ExpectBytesInBlocks(device, 64, 14);
  }
}

// A matrix unit computes nothing else, so there is no choice.
TEST(PassChoiceTest, AMatrixUnitAlwaysHasBlocks) {
  const auto unit = target::ParseTarget("vta");
  ASSERT_TRUE(unit.ok()) << unit.status();
  EXPECT_EQ(driver::PassContext(*unit).enabled, std::vector<std::string>{"block_layouts"});
}

TEST(PassChoiceTest, AnUnknownPassIsRefused) {
  GraphPassContext context = driver::PassContext(Machine());
  context.enabled = {"nonesuch"};
  const auto fused = RunPassesThatPay(Chain(1, "1", 16, 8, 1), Machine(), context);
  EXPECT_EQ(support::Slug(fused.status()), "graph.pass.unknown");
}

}  // namespace
}  // namespace tilewright::search
