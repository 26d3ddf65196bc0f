// What the quantiser makes of models: which layers and tensors become integers, what stays in float
// and why, and what the written models compute: as plain loops of this test do with the integers.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "compiler/graph/graph.h"
#include "compiler/graph/graph_passes.h"
#include "compiler/onnx/onnx_import.h"
#include "compiler/quantize/parameters.h"
#include "compiler/quantize/quantize.h"
#include "deploy/support/rng.h"
#include "tests/unit/onnx_builder.h"
#include "tests/unit/onnx_evaluate.h"

namespace tilewright::quantize {
namespace {

using graph::import_tests::Numbers;
using graph::import_tests::Random;
using op::RefTensor;
using tests::OnnxBuilder;
using tests::TensorOf;
namespace pb = tests::pb;

FloatModel Read(const std::string& onnx, const QuantizeOptions& options = {}) {
  auto model = FloatModel::Read(onnx, options);
  EXPECT_TRUE(model.ok()) << model.status();
  return *std::move(model);
}

std::string SlugOf(const OnnxBuilder& b, const QuantizeOptions& options = {}) {
  return support::Slug(FloatModel::Read(b.Bytes(), options).status());
}

// The outputs of a model by name, as the graph's definition computes them.
std::map<std::string, RefTensor> Compute(const std::string& onnx, const RefTensor& input) {
  auto g = graph::ImportOnnx(onnx);
  EXPECT_TRUE(g.ok()) << g.status();
  auto results = graph::Interpret(*g, {input});
  EXPECT_TRUE(results.ok()) << results.status();
  std::map<std::string, RefTensor> named;
  for (size_t i = 0; i < g->outputs.size(); ++i) {
    named[g->values[static_cast<size_t>(g->outputs[i])].name] = (*results)[i];
  }
  named[g->values[static_cast<size_t>(g->inputs[0])].name] = input;
  return named;
}

// The ranges that the tensors have for these inputs.
Ranges Calibrate(const FloatModel& model, const std::vector<RefTensor>& inputs) {
  const ObservedModel observed = model.WithTensors();
  std::map<std::string, Histogram> histograms;
  for (const RefTensor& input : inputs) {
    const auto values = Compute(observed.onnx, input);
    for (size_t i = 0; i < observed.names.size(); ++i) {
      const RefTensor& tensor = values.at(observed.names[i]);
      histograms[model.tensors()[i]].Add(
          std::vector<float>(tensor.values.begin(), tensor.values.end()));
    }
  }
  Ranges ranges;
  for (const auto& [tensor, histogram] : histograms) {
    ranges[tensor] = ChooseRange(histogram, {RangeRule::kMinMax, 100});
  }
  return ranges;
}

pb::ModelProto Parse(const std::string& onnx) {
  pb::ModelProto model;
  EXPECT_TRUE(model.ParseFromString(onnx));
  return model;
}

std::set<std::string> NamesOf(const FloatModel& model) {
  return {model.tensors().begin(), model.tensors().end()};
}

void Pads(pb::NodeProto* node, int64_t size) {
  OnnxBuilder::Attr(node, "pads", std::vector<int64_t>(4, size));
}

// x -> conv1 -> bn -> relu1 -> conv2 -> add(relu1) -> relu2 -> mean -> flat -> gemm -> y
OnnxBuilder Residual() {
  OnnxBuilder b;
  b.Input("x", {1, 3, 6, 6}).Weight("w1", {4, 3, 3, 3}).Weight("w2", {4, 4, 3, 3}, 0.3);
  b.Floats("gamma", {1, 2, 0.5F, 1.5F}).Floats("beta", {0.1F, -0.2F, 0.3F, 0});
  b.Floats("mean", {0.1F, 0.2F, -0.3F, 0}).Floats("var", {1, 2, 0.5F, 4});
  Pads(b.Node("Conv", {"x", "w1"}, "conv1"), 1);
  b.Node("BatchNormalization", {"conv1", "gamma", "beta", "mean", "var"}, "bn");
  b.Node("Relu", {"bn"}, "relu1");
  Pads(b.Node("Conv", {"relu1", "w2"}, "conv2"), 1);
  b.Node("Add", {"conv2", "relu1"}, "sum");
  b.Node("Relu", {"sum"}, "relu2");
  b.Node("GlobalAveragePool", {"relu2"}, "pooled");
  b.Node("Flatten", {"pooled"}, "flat");
  b.Weight("w3", {5, 4}).Weight("b3", {5});
  OnnxBuilder::Attr(b.Node("Gemm", {"flat", "w3", "b3"}, "y"), "transB", int64_t{1});
  b.Output("y", {1, 5});
  return b;
}

std::vector<RefTensor> Images(int count) {
  std::vector<RefTensor> images;
  for (int i = 0; i < count; ++i) {
    images.push_back(TensorOf({1, 3, 6, 6}, Random(108, 2, static_cast<uint64_t>(i) + 1)));
  }
  return images;
}

TEST(QuantizeModel, AResidualNetworkStaysInIntegers) {
  const FloatModel model = Read(Residual().Bytes());
  EXPECT_EQ(model.num_folded_norms(), 1);
  ASSERT_EQ(model.layers().size(), 3U);
  EXPECT_EQ(model.layers()[0].node, "conv1");
  EXPECT_EQ(model.layers()[2].op, "Gemm");
  EXPECT_TRUE(model.float_layers().empty());
  // What is between a layer and its rectifier is not rounded; the result of the network neither.
  EXPECT_EQ(NamesOf(model),
            (std::set<std::string>{"x", "relu1", "conv2", "relu2", "pooled", "flat"}));
}

// x -> conv1 -> relu1 -> conv2 -> y, where conv1 is read by something else, too.
FloatModel WithSecondReader(const std::function<void(OnnxBuilder&)>& add_reader) {
  OnnxBuilder b;
  b.Input("x", {1, 2, 4, 4}).Weight("w1", {2, 2, 1, 1}).Weight("w2", {2, 2, 1, 1});
  b.Node("Conv", {"x", "w1"}, "conv1");
  b.Node("Relu", {"conv1"}, "relu1");
  b.Node("Conv", {"relu1", "w2"}, "conv2");
  b.Output("conv2", {1, 2, 4, 4});
  add_reader(b);
  return Read(b.Bytes());
}

TEST(QuantizeModel, ResultsWithOtherReadersAreNotPartOfAGroup) {
  const RefTensor x = TensorOf({1, 2, 4, 4}, Random(32, 2, 9));
  // An output of the network is what the layer computes, not what is left of it behind Relu.
  const FloatModel output =
      WithSecondReader([](OnnxBuilder& b) { b.Output("conv1", {1, 2, 4, 4}); });
  EXPECT_EQ(NamesOf(output), (std::set<std::string>{"conv1", "relu1", "x"}));
  const Ranges ranges = {{"x", {-2, 2}}, {"conv1", {-1, 1}}, {"relu1", {0, 1}}};
  const auto results = Compute(output.Quantized(ranges), x);
  EXPECT_LT(*std::ranges::min_element(results.at("conv1").values), -0.1);
  // Another layer reads it before the rectifier: integers of both signs.
  const FloatModel layer = WithSecondReader([](OnnxBuilder& b) {
    b.Weight("w3", {2, 2, 1, 1}).Node("Conv", {"conv1", "w3"}, "conv3");
    b.Output("conv3", {1, 2, 4, 4});
  });
  EXPECT_EQ(NamesOf(layer), (std::set<std::string>{"conv1", "relu1", "x"}));
}

TEST(QuantizeModel, WhatOnlyMovesDataKeepsScaleAndZeroPoint) {
  const FloatModel model = Read(Residual().Bytes());
  const pb::ModelProto written = Parse(model.Quantized(Calibrate(model, Images(4))));
  std::map<std::string, std::pair<float, int>> parameters;
  for (const pb::TensorProto& tensor : written.graph().initializer()) {
    if (tensor.raw_data().size() == 1) {
      parameters[tensor.name()].second = static_cast<uint8_t>(tensor.raw_data()[0]);
    } else if (tensor.dims_size() == 0) {
      std::memcpy(&parameters[tensor.name()].first, tensor.raw_data().data(), sizeof(float));
    }
  }
  EXPECT_EQ(parameters.at("flat_scale"), parameters.at("pooled_scale"));
  EXPECT_EQ(parameters.at("flat_zero_point"), parameters.at("pooled_zero_point"));
  EXPECT_NE(parameters.at("relu2_scale"), parameters.at("pooled_scale"));
  EXPECT_EQ(parameters.at("relu1_zero_point").second, 0) << "a rectified tensor begins at 0";
  EXPECT_GT(parameters.at("x_zero_point").second, 0);
}

TEST(QuantizeModel, EveryTensorHasOnePairAndLayersReadIntegers) {
  const FloatModel model = Read(Residual().Bytes());
  const std::string onnx = model.Quantized(Calibrate(model, Images(2)));
  const pb::ModelProto written = Parse(onnx);
  std::map<std::string, int> counts;
  for (const pb::NodeProto& node : written.graph().node()) ++counts[node.op_type()];
  EXPECT_EQ(counts["QuantizeLinear"], 6);
  EXPECT_EQ(counts["DequantizeLinear"], 6 + 3 + 2);  // weights, biases (the first of the norm)
  EXPECT_EQ(counts["BatchNormalization"], 0);
  for (const pb::TensorProto& tensor : written.graph().initializer()) {
    EXPECT_NE(tensor.name(), "w1") << "weights in float are gone";
  }
  // The compiler makes sums of bytes of all layers.
  auto g = graph::ImportOnnx(onnx);
  ASSERT_TRUE(g.ok()) << g.status();
  auto fused = graph::RunGraphPasses(*g);
  ASSERT_TRUE(fused.ok()) << fused.status();
  const std::string text = graph::Print(*fused);
  size_t layers = 0;
  for (const std::string op : {"= conv2d(", "= dense("}) {
    for (size_t at = text.find(op); at != std::string::npos; at = text.find(op, at + 1)) {
      const size_t line = text.rfind('\n', at);
      EXPECT_NE(text.substr(line, at - line).find(": i32["), std::string::npos);
      ++layers;
    }
  }
  EXPECT_EQ(layers, 3U);
}

TEST(QuantizeModel, SameArgumentsSameBytes) {
  const FloatModel a = Read(Residual().Bytes()), b = Read(Residual().Bytes());
  const Ranges ranges = Calibrate(a, Images(2));
  EXPECT_EQ(a.Quantized(ranges), b.Quantized(ranges));
  EXPECT_EQ(a.EachLayerAlone(ranges).onnx, b.EachLayerAlone(ranges).onnx);
}

TEST(QuantizeModel, KeptLayersAndWhatTheyReadStayInFloat) {
  FloatModel model = Read(Residual().Bytes(), {.keep = {"conv2"}});
  ASSERT_EQ(model.float_layers().size(), 1U);
  EXPECT_EQ(model.float_layers()[0].reason, "--keep");
  // The addition has an operand in float, so it is in float, too. relu2 is read in float only.
  EXPECT_EQ(NamesOf(model), (std::set<std::string>{"x", "flat"}));
  model = Read(Residual().Bytes(), {.keep = {"y"}});
  EXPECT_EQ(NamesOf(model), (std::set<std::string>{"x", "relu1"}));
  EXPECT_EQ(SlugOf(Residual(), {.keep = {"conv7"}}), "quantize.keep.unknown");
  EXPECT_EQ(SlugOf(Residual(), {.keep = {"conv1", "conv2", "y"}}), "quantize.layers.none");
}

TEST(QuantizeModel, WeightsOnlyHasNoTensors) {
  const FloatModel model = Read(Residual().Bytes(), {.weights_only = true});
  EXPECT_TRUE(model.tensors().empty());
  const std::string onnx = model.Quantized({});
  std::map<std::string, int> counts;
  const pb::ModelProto written = Parse(onnx);
  for (const pb::NodeProto& node : written.graph().node()) ++counts[node.op_type()];
  EXPECT_EQ(counts["QuantizeLinear"], 0);
  EXPECT_EQ(counts["DequantizeLinear"], 3);
  const RefTensor image = Images(1)[0];
  const Numbers exact = Compute(Residual().Bytes(), image).at("y").values;
  const Numbers rounded = Compute(onnx, image).at("y").values;
  double largest = 0, difference = 0;
  for (size_t i = 0; i < exact.size(); ++i) {
    largest = std::max(largest, std::fabs(exact[i]));
    difference = std::max(difference, std::fabs(exact[i] - rounded[i]));
  }
  EXPECT_GT(difference, 0);
  EXPECT_LT(difference, 0.02 * largest);
}

TEST(QuantizeModel, FoldedNormsChangeNothing) {
  const FloatModel model = Read(Residual().Bytes());
  const RefTensor image = Images(1)[0];
  const Numbers before = Compute(Residual().Bytes(), image).at("y").values;
  const Numbers after = Compute(model.WithTensors().onnx, image).at("y").values;
  for (size_t i = 0; i < before.size(); ++i) EXPECT_NEAR(before[i], after[i], 1e-5);
}

// ---- refusals

TEST(QuantizeModel, RefusesWithAReason) {
  OnnxBuilder done;
  done.Input("x", {1, 4}).Scalar("s", 1).Small("z", pb::TensorProto::UINT8, {}, {0});
  done.Node("QuantizeLinear", {"x", "s", "z"}, "y");
  done.Output("y", {1, 4}, pb::TensorProto::UINT8);
  EXPECT_EQ(SlugOf(done), "quantize.model.quantized");

  OnnxBuilder none;
  none.Input("x", {1, 4});
  none.Node("Relu", {"x"}, "y");
  none.Output("y", {1, 4});
  EXPECT_EQ(SlugOf(none), "quantize.layers.none");

  EXPECT_EQ(support::Slug(FloatModel::Read("no model", {}).status()), "graph.onnx.not_onnx");
}

TEST(QuantizeModel, SaysWhyALayerStaysInFloat) {
  OnnxBuilder b;
  b.Input("x", {2, 4}).Weight("w", {4, 4}).Weight("deep", {1, 4, 4}).Weight("c", {2, 1});
  b.Node("MatMul", {"x", "w"}, "good");
  b.Node("MatMul", {"good", "good2"}, "two");
  b.Node("MatMul", {"x", "w"}, "good2");
  b.Node("MatMul", {"w", "x2"}, "left");
  b.Node("Transpose", {"x"}, "x2");
  b.Node("MatMul", {"good", "deep"}, "stacked");
  OnnxBuilder::Attr(b.Node("Gemm", {"x2", "w"}, "turned"), "transA", int64_t{1});
  b.Node("Gemm", {"x", "w", "c"}, "odd_bias");
  b.Floats("bad", {1, 2, 3, std::numeric_limits<float>::infinity()});
  b.graph().mutable_initializer()->rbegin()->add_dims(1);
  b.Node("MatMul", {"good", "bad"}, "infinite");
  b.Output("two", {2, 2});
  std::map<std::string, std::string> reasons;
  const FloatModel model = Read(b.Bytes());
  for (const FloatLayer& layer : model.float_layers()) {
    reasons[layer.node] = layer.reason;
  }
  EXPECT_EQ(reasons, (std::map<std::string, std::string>{
                         {"two", "its weights are not a constant"},
                         {"left", "its first operand is a constant"},
                         {"stacked", "its weights have 3 dimensions instead of 2"},
                         {"turned", "it transposes its data"},
                         {"odd_bias", "its bias is not one finite float32 number for each output"},
                         {"infinite", "its weights are not finite float32 numbers"}}));
}

// ---- what the written models compute

// scale * (round(x / scale) + zero saturated - zero), as the ONNX definition has it.
double RoundTo(const Affine& a, double x) {
  const double least = a.is_signed ? -128 : 0;
  const double q = std::nearbyint(double{static_cast<float>(x) / a.scale}) + a.zero_point;
  return (std::clamp(q, least, least + 255) - a.zero_point) * a.scale;
}

// x[2,7] -> MatMul[7,4] + bias -> Clip(0, 3) -> Gemm(alpha 0.5, beta 2) -> y
TEST(QuantizeModel, ComputesWhatPlainLoopsDo) {
  OnnxBuilder b;
  b.Input("x", {2, 7}).Weight("w", {7, 4}).Weight("b", {4});
  b.Node("MatMul", {"x", "w"}, "product");
  b.Node("Add", {"b", "product"}, "biased");
  b.Scalar("low", 0).Scalar("high", 3);
  b.Node("Clip", {"biased", "low", "high"}, "clipped");
  b.Weight("w2", {3, 4}).Weight("b2", {1, 3});
  pb::NodeProto* gemm = b.Node("Gemm", {"clipped", "w2", "b2"}, "y");
  OnnxBuilder::Attr(gemm, "transB", int64_t{1});
  OnnxBuilder::AttrFloat(gemm, "alpha", 0.5F);
  OnnxBuilder::AttrFloat(gemm, "beta", 2);
  b.Output("y", {2, 3});
  for (const ByteForm form : {ByteForm::kUint8, ByteForm::kInt8, ByteForm::kSymmetricInt8}) {
    const FloatModel model = Read(b.Bytes(), {.data = form});
    ASSERT_EQ(NamesOf(model), (std::set<std::string>{"x", "clipped"}));
    const Ranges ranges = {{"x", {-1.5, 2}}, {"clipped", {0, 2.5}}};
    const std::string onnx = model.Quantized(ranges);

    const auto floats = [&](const std::string& name) {
      for (const pb::TensorProto& tensor : b.graph().initializer()) {
        if (tensor.name() == name) {
          return std::vector<float>(tensor.float_data().begin(), tensor.float_data().end());
        }
      }
      return std::vector<float>();
    };
    const Affine x = AffineOf({-1.5, 2}, form), mid = AffineOf({0, 2.5}, form);
    // Symmetric, with the largest weight of each column (row) at 127.
    const auto weights = [](std::vector<float> w, int rows, int columns, bool by_column) {
      for (int c = 0; c < (by_column ? columns : rows); ++c) {
        double largest = 0;
        const auto at = [&](int i) -> float& {
          return w[static_cast<size_t>(by_column ? i * columns + c : c * columns + i)];
        };
        const int length = by_column ? rows : columns;
        for (int i = 0; i < length; ++i) largest = std::max<double>(largest, std::fabs(at(i)));
        for (int i = 0; i < length; ++i) {
          const auto scale = static_cast<float>(largest / 127);
          at(i) = std::nearbyint(at(i) / scale) * scale;
        }
      }
      return w;
    };
    const std::vector<float> w = weights(floats("w"), 7, 4, true), bias = floats("b");
    std::vector<float> half = floats("w2"), bias2 = floats("b2");
    for (float& v : half) v *= 0.5F;
    const std::vector<float> w2 = weights(half, 3, 4, false);
    const Numbers input = Random(14, 2, 5);
    const RefTensor actual = Compute(onnx, TensorOf({2, 7}, input)).at("y");
    for (int i = 0; i < 2; ++i) {
      double hidden[4];
      for (int n = 0; n < 4; ++n) {
        double sum = bias[static_cast<size_t>(n)];
        for (int k = 0; k < 7; ++k) {
          sum +=
              RoundTo(x, input[static_cast<size_t>(i * 7 + k)]) * w[static_cast<size_t>(k * 4 + n)];
        }
        hidden[n] = RoundTo(mid, std::clamp(sum, 0.0, 3.0));
      }
      for (int n = 0; n < 3; ++n) {
        double sum = 2 * bias2[static_cast<size_t>(n)];
        for (int k = 0; k < 4; ++k) sum += hidden[k] * w2[static_cast<size_t>(n * 4 + k)];
        // Biases are rounded to steps of the sums: less than 1e-4 here.
        EXPECT_NEAR(actual.values[static_cast<size_t>(i * 3 + n)], sum, 3e-4) << i << "," << n;
      }
    }
  }
}

TEST(QuantizeModel, PassesKeepWhatTheModelComputes) {
  const FloatModel model = Read(Residual().Bytes());
  const std::vector<RefTensor> images = Images(6);
  const Ranges ranges = Calibrate(model, images);
  auto g = graph::ImportOnnx(model.Quantized(ranges));
  ASSERT_TRUE(g.ok()) << g.status();
  auto fused = graph::RunGraphPasses(*g);
  ASSERT_TRUE(fused.ok()) << fused.status();
  double noise = 0, signal = 0, passes = 0;
  for (const RefTensor& image : images) {
    const auto exact = Compute(Residual().Bytes(), image).at("y");
    const auto rounded = graph::Interpret(*g, {image});
    const auto integers = graph::Interpret(*fused, {image});
    ASSERT_TRUE(rounded.ok() && integers.ok()) << rounded.status() << integers.status();
    for (size_t i = 0; i < exact.values.size(); ++i) {
      signal += std::pow(exact.values[i], 2);
      noise += std::pow((*rounded)[0].values[i] - exact.values[i], 2);
      passes += std::pow((*rounded)[0].values[i] - (*integers)[0].values[i], 2);
    }
  }
  EXPECT_LT(noise, 1e-3 * signal) << "30 dB";
  EXPECT_GT(noise, 0);
  EXPECT_LE(passes, 0.2 * noise) << "sums on the edge between two integers may differ";
}

TEST(QuantizeModel, ReportModelsObserveEachLayer) {
  const FloatModel model = Read(Residual().Bytes());
  const std::vector<RefTensor> images = Images(4);
  const Ranges ranges = Calibrate(model, images);
  const ObservedModel alone = model.EachLayerAlone(ranges);
  const ObservedModel network = model.QuantizedWithLayers(ranges);
  ASSERT_EQ(alone.names.size(), 6U);
  ASSERT_EQ(network.names.size(), 3U);
  const auto a = Compute(alone.onnx, images[0]), n = Compute(network.onnx, images[0]);
  const auto exact = Compute(model.WithTensors().onnx, images[0]);
  const auto norm = [](const Numbers& x, const Numbers& y) {
    double sum = 0, whole = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      sum += std::pow(x[i] - y[i], 2);
      whole += x[i] * x[i];
    }
    return std::sqrt(sum / whole);
  };
  EXPECT_EQ(a.at(alone.names[0]).values, exact.at("relu1").values);
  EXPECT_EQ(a.at(alone.names[4]).values, exact.at("y").values);
  for (size_t i = 0; i < 3; ++i) {
    const Numbers& layer = a.at(alone.names[2 * i]).values;
    const double own = norm(layer, a.at(alone.names[2 * i + 1]).values);
    const double all = norm(layer, n.at(network.names[i]).values);
    EXPECT_GT(own, 0) << i;
    EXPECT_LT(own, 0.03) << i;
    EXPECT_LT(all, 0.06) << i;
    EXPECT_EQ(own == all, i == 0) << "nothing before the first layer is rounded";
  }
  // The network's own outputs are there, and as without the others.
  EXPECT_EQ(n.at("y").values, Compute(model.Quantized(ranges), images[0]).at("y").values);
}

TEST(QuantizeModel, TensorsOfAConcatShareTheirScale) {
  OnnxBuilder b;
  b.Input("x", {1, 2, 4, 4}).Weight("w1", {3, 2, 1, 1}).Weight("w2", {3, 2, 1, 1}, 5);
  b.Weight("w3", {2, 6, 1, 1});
  b.Node("Conv", {"x", "w1"}, "left");
  b.Node("Conv", {"x", "w2"}, "right");
  OnnxBuilder::Attr(b.Node("Concat", {"left", "right"}, "both"), "axis", int64_t{1});
  b.Node("Conv", {"both", "w3"}, "y");
  b.Output("y", {1, 2, 4, 4});
  const FloatModel model = Read(b.Bytes());
  EXPECT_EQ(NamesOf(model), (std::set<std::string>{"x", "left", "right", "both"}));
  const pb::ModelProto written = Parse(
      model.Quantized({{"x", {-1, 1}}, {"left", {-8, 8}}, {"right", {-1, 1}}, {"both", {-8, 7}}}));
  std::set<std::string> scales;
  for (const pb::TensorProto& tensor : written.graph().initializer()) {
    if (tensor.dims_size() == 0 && tensor.data_type() == pb::TensorProto::FLOAT &&
        tensor.name() != "x_scale") {
      scales.insert(tensor.raw_data());
    }
  }
  ASSERT_EQ(scales.size(), 1U);
  float scale = 0;
  std::memcpy(&scale, scales.begin()->data(), sizeof(scale));
  EXPECT_FLOAT_EQ(scale, 16.0F / 255) << "of the range that holds all of them";
}

}  // namespace
}  // namespace tilewright::quantize
