#include "compiler/onnx/onnx_strip_weights.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "compiler/driver/tasks.h"
#include "compiler/graph/graph.h"
#include "compiler/graph/graph_passes.h"
#include "compiler/onnx/onnx_import.h"
#include "deploy/support/rng.h"
#include "deploy/support/strings.h"
#include "tests/unit/onnx_builder.h"

namespace tilewright::graph {
namespace {

using tests::OnnxBuilder;
namespace pb = ::tilewright_onnx;

StrippedModel Strip(const std::string& onnx, uint64_t seed = 1) {
  auto stripped = StripWeights(onnx, seed);
  TW_CHECK(stripped.ok()) << support::StatusText(stripped.status());
  return *std::move(stripped);
}

// Whether any four neighbouring values of the weight's bytes stand anywhere in `text`.
bool HoldsPartOf(const std::string& text, const pb::TensorProto& weight) {
  std::string bytes;
  for (const float value : weight.float_data()) {
    bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  for (size_t at = 0; at + 16 <= bytes.size(); at += 4) {
    if (text.find(bytes.substr(at, 16)) != std::string::npos) return true;
  }
  return false;
}

TEST(OnnxStripWeights, NoPartOfAWeightIsLeftAndTheGraphIsTheSame) {
  OnnxBuilder model;
  model.Input("x", {1, 3, 8, 8}).Output("y", {1, 3, 16, 16});
  model.Weight("w", {3, 3, 3, 3}).Weight("scales", {4}).Scalar("one", 1.5f);
  model.Ints("shape", {1, 3, 16, 16});
  model.Node("Conv", {"x", "w"}, "c");
  model.Node("Resize", {"c", "", "scales"}, "y");
  pb::TensorProto* constant = model.Node("Constant", {}, "k")->add_attribute()->mutable_t();
  *constant = model.graph().initializer(0);
  model.model().set_doc_string("secret");
  const std::string before = model.Bytes();
  const StrippedModel stripped = Strip(before);
  EXPECT_TRUE(HoldsPartOf(before, model.graph().initializer(0)));
  EXPECT_FALSE(HoldsPartOf(stripped.onnx, model.graph().initializer(0)));
  EXPECT_EQ(stripped.onnx.find("secret"), std::string::npos);
  EXPECT_EQ(stripped.replaced_tensors, 2);
  EXPECT_EQ(stripped.replaced_values, 2 * 81);

  pb::ModelProto read;
  ASSERT_TRUE(read.ParseFromString(stripped.onnx));
  ASSERT_EQ(read.graph().initializer_size(), 4);
  const pb::TensorProto& weight = read.graph().initializer(0);
  EXPECT_EQ(weight.dims_size(), 4);
  ASSERT_EQ(weight.raw_data().size(), 81 * sizeof(float));
  for (size_t i = 0; i < 81; ++i) {
    float value = 0;
    std::memcpy(&value, weight.raw_data().data() + i * sizeof value, sizeof value);
    EXPECT_TRUE(value > 0 && value < 1) << value;
  }
  // What decides about shapes, and single numbers, stay as they are.
  for (int i = 1; i < 4; ++i) {
    EXPECT_EQ(read.graph().initializer(i).SerializeAsString(),
              model.graph().initializer(i).SerializeAsString());
  }
  EXPECT_EQ(read.graph().node_size(), model.graph().node_size());
  EXPECT_EQ(Strip(before).onnx, stripped.onnx) << "reproducible";
  EXPECT_NE(Strip(before, 2).onnx, stripped.onnx);
}

TEST(OnnxStripWeights, EightBitWeightsTablesAndOtherFilesGoToo) {
  OnnxBuilder model;
  model.Input("x", {4}).Output("y", {4});
  model.Weight("f", {100}).Weight("outside", {100});
  pb::TensorProto* bytes = model.graph().add_initializer();
  bytes->set_name("q");
  bytes->set_data_type(pb::TensorProto::INT8);
  bytes->add_dims(5);
  bytes->set_raw_data("abcde");
  std::vector<int64_t> table(65, 7);
  model.Ints("table", table);
  pb::TensorProto* outside = model.graph().mutable_initializer(1);
  outside->clear_float_data();
  outside->set_data_location(pb::TensorProto::EXTERNAL);
  outside->add_external_data()->set_key("location");
  const StrippedModel stripped = Strip(model.Bytes());
  EXPECT_EQ(stripped.replaced_tensors, 4);
  EXPECT_EQ(stripped.onnx.find("abcde"), std::string::npos);
  pb::ModelProto read;
  ASSERT_TRUE(read.ParseFromString(stripped.onnx));
  EXPECT_EQ(read.graph().initializer(1).data_location(), pb::TensorProto::DEFAULT);
  EXPECT_EQ(read.graph().initializer(1).raw_data().size(), 400U);
  ASSERT_EQ(read.graph().initializer(2).raw_data().size(), 5U);
  for (const char byte : read.graph().initializer(2).raw_data()) EXPECT_GT(byte, 0);
  EXPECT_EQ(read.graph().initializer(3).raw_data(), std::string(65 * 8, '\0'));
}

// A stripped int8 model has the tasks of the model: what decides about them is no number that goes.
TEST(OnnxStripWeights, QuantizedModelsKeepTheirTasks) {
  constexpr int kI8 = pb::TensorProto::INT8, kU8 = pb::TensorProto::UINT8;
  support::Rng rng(3);
  auto numbers = [&](int64_t count, int64_t limit) {
    std::vector<int64_t> values;
    for (int64_t i = 0; i < count; ++i) values.push_back(rng.UniformInt(-limit, limit));
    return values;
  };
  const int64_t c = 80;
  OnnxBuilder b;
  b.Input("x", {1, 16, 6, 6}).Output("y", {1, c, 6, 6});
  b.Scalar("s", 0.25F).Small("z", kU8, {}, {7});
  b.Small("w", kI8, {c, 16, 1, 1}, numbers(c * 16, 127)).Weight("ws", {c});
  b.Small("wz", kI8, {c}, std::vector<int64_t>(c, 0));
  b.Small("bias", pb::TensorProto::INT32, {c}, numbers(c, 1000)).Weight("bs", {c});
  b.Node("QuantizeLinear", {"x", "s", "z"}, "q");
  b.Node("DequantizeLinear", {"q", "s", "z"}, "d");
  OnnxBuilder::Attr(b.Node("DequantizeLinear", {"w", "ws", "wz"}, "wd"), "axis", int64_t{0});
  OnnxBuilder::Attr(b.Node("DequantizeLinear", {"bias", "bs"}, "bd"), "axis", int64_t{0});
  b.Node("Conv", {"d", "wd", "bd"}, "c");
  b.Node("QuantizeLinear", {"c", "s", "z"}, "cq");
  b.Node("DequantizeLinear", {"cq", "s", "z"}, "y");
  auto kernels = [](const std::string& onnx) {
    auto g = ImportOnnx(onnx);
    TW_CHECK(g.ok()) << support::StatusText(g.status());
    GraphPassContext context;
    context.enabled = {"block_layouts"};
    auto fused = RunGraphPasses(*g, context);
    TW_CHECK(fused.ok()) << support::StatusText(fused.status());
    std::vector<std::string> texts;
    for (const Node& node : fused->nodes) {
      if (node.body != nullptr) texts.push_back(CanonicalText(*node.body));
    }
    return texts;
  };
  const std::vector<std::string> own = kernels(b.Bytes());
  EXPECT_EQ(kernels(Strip(b.Bytes()).onnx), own);
  EXPECT_NE(support::Join(own, "\n").find("data_layout="), std::string::npos);
}

// Which weights come from memory follows from sizes and uses alone: the tasks that a server tunes
// without the weights are those of the client, hash by hash.
TEST(OnnxStripWeights, TasksAndTheirFarWeightsStayTheSame) {
  OnnxBuilder b;
  b.Input("x", {1, 64}).Output("y", {1, 64});
  b.Weight("twice", {64, 64})
      .Weight("once", {64, 64})
      .Weight("small", {64})
      .Weight("last", {64, 64});
  // The same numbers under another name: what is left of them are others.
  b.Weight("copy", {64, 64});
  *b.graph().mutable_initializer(4)->mutable_float_data() = b.graph().initializer(1).float_data();
  b.Node("MatMul", {"x", "twice"}, "a");
  b.Node("Relu", {"a"}, "b");
  b.Node("MatMul", {"b", "once"}, "c");
  b.Node("Add", {"c", "small"}, "d");
  b.Node("MatMul", {"d", "copy"}, "e");
  b.Node("Tanh", {"e"}, "f");
  b.Node("MatMul", {"f", "twice"}, "g");
  b.Node("Sigmoid", {"g"}, "h");
  b.Node("MatMul", {"h", "last"}, "y");
  const auto tasks = [](const std::string& onnx, int64_t cold_weights_bytes) {
    auto g = ImportOnnx(onnx);
    TW_CHECK(g.ok()) << support::StatusText(g.status());
    GraphPassContext context;
    context.cold_weights_bytes = cold_weights_bytes;
    auto fused = RunGraphPasses(*g, context);
    TW_CHECK(fused.ok()) << support::StatusText(fused.status());
    auto found = driver::ExtractTasks(*fused);
    TW_CHECK(found.ok()) << support::StatusText(found.status());
    std::vector<std::string> texts;
    for (const driver::Task& task : *found) {
      texts.push_back(support::StrCat(task.hash, " x", task.weight, "\n", task.text));
    }
    return texts;
  };
  const auto cold_marks = [](const std::vector<std::string>& texts) {
    int count = 0;
    for (const std::string& text : texts) count += text.find("cold_weight") != std::string::npos;
    return count;
  };
  const std::string whole = b.Bytes();
  const std::string stripped = Strip(whole).onnx;
  for (const int64_t cache : {int64_t{0}, int64_t{1} << 14, int64_t{1} << 40}) {
    const std::vector<std::string> own = tasks(whole, cache);
    EXPECT_EQ(tasks(stripped, cache), own) << cache;
    EXPECT_EQ(cold_marks(own) > 0, cache == 1 << 14) << cache;
  }
}

// Positions that follow each other make a scatter a concat, however many there are.
TEST(OnnxStripWeights, PositionsInEqualStepsStay) {
  constexpr int64_t kRows = 200;
  OnnxBuilder b(16);
  std::vector<int64_t> rows;
  for (int64_t i = 1; i < kRows; ++i) rows.push_back(i);
  b.Input("x", {kRows, 2}).Input("u", {kRows - 1, 2}).Output("y", {kRows, 2});
  b.Ints("rows", rows).Ints("axis", {1}).Node("Unsqueeze", {"rows", "axis"}, "i");
  b.Node("ScatterND", {"x", "i", "u"}, "y");
  const auto g = ImportOnnx(Strip(b.Bytes()).onnx), whole = ImportOnnx(b.Bytes());
  ASSERT_TRUE(g.ok() && whole.ok()) << g.status() << whole.status();
  EXPECT_EQ(Print(*g), Print(*whole));
  EXPECT_EQ(g->nodes.back().op, "concat");
}

TEST(OnnxStripWeights, EqualTensorsStayEqualAndOthersStayDifferent) {
  for (const int type : {pb::TensorProto::FLOAT, pb::TensorProto::DOUBLE, pb::TensorProto::FLOAT16,
                         pb::TensorProto::BFLOAT16, pb::TensorProto::INT8}) {
    const size_t width = type == pb::TensorProto::DOUBLE  ? 8
                         : type == pb::TensorProto::FLOAT ? 4
                         : type == pb::TensorProto::INT8  ? 1
                                                          : 2;
    OnnxBuilder model;
    model.Input("x", {4}).Output("y", {4});
    // Two equal ones, one of other numbers, one of the same numbers in another shape.
    for (const auto& [byte, rows] : {std::pair(7, 4), std::pair(7, 4), std::pair(9, 4), {7, 8}}) {
      pb::TensorProto* t = model.graph().add_initializer();
      t->set_name(support::StrCat("w", model.graph().initializer_size()));
      t->set_data_type(type);
      t->add_dims(rows);
      t->add_dims(32 / rows);
      t->set_raw_data(std::string(32 * width, static_cast<char>(byte)));
    }
    pb::ModelProto read;
    ASSERT_TRUE(read.ParseFromString(Strip(model.Bytes()).onnx));
    const auto bytes = [&read](int i) { return read.graph().initializer(i).raw_data(); };
    EXPECT_EQ(bytes(0), bytes(1)) << type;
    EXPECT_NE(bytes(0), bytes(2)) << type;
    EXPECT_NE(bytes(0), bytes(3)) << type;
    EXPECT_EQ(bytes(0).size(), 32 * width) << type;
  }
}

TEST(OnnxStripWeights, WhatItCannotReadIsRefused) {
  EXPECT_EQ(support::Slug(StripWeights("\xff\xff nonsense", 1).status()), "graph.onnx.parse");
  EXPECT_EQ(support::Slug(StripWeights("", 1).status()), "graph.onnx.parse");
  OnnxBuilder model;
  model.Input("x", {4}).Output("y", {4}).Weight("w", {4});
  model.graph().mutable_initializer(0)->set_dims(0, -4);
  EXPECT_EQ(support::Slug(StripWeights(model.Bytes(), 1).status()), "graph.onnx.strip");
  OnnxBuilder sparse;
  sparse.graph().add_sparse_initializer();
  EXPECT_EQ(support::Slug(StripWeights(sparse.Bytes(), 1).status()), "graph.onnx.strip");
}

}  // namespace
}  // namespace tilewright::graph
