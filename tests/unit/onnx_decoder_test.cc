// Operators of com.microsoft in language models, against ONNX's own operators: other conversions of
// the same function. Runs that they refuse.
#include <gtest/gtest.h>

#include <cmath>

#include "compiler/onnx/onnx_import.h"
#include "tests/unit/onnx_evaluate.h"

namespace tilewright::graph {
namespace {

using namespace import_tests;
using tests::OnnxBuilder;

constexpr int64_t kHeads = 4, kShared = 2, kHead = 8, kLength = 3, kBatch = 2;

Numbers Random(int64_t n, uint64_t seed) {
  support::Rng rng(seed);
  Numbers values;
  for (int64_t i = 0; i < n; ++i) {
    values.push_back(static_cast<float>(2 * rng.UniformDouble() - 1));
  }
  return values;
}
RefTensor RandomTensor(const Shape& shape, uint64_t seed) {
  int64_t n = 1;
  for (int64_t extent : shape) n *= extent;
  return TensorOf(shape, Random(n, seed));
}

// Query, keys and values, and a cache of `past` entries.
struct Operands {
  explicit Operands(int64_t past)
      : values{RandomTensor({kBatch, kLength, kHeads * kHead}, 1),
               RandomTensor({kBatch, kLength, kShared * kHead}, 2),
               RandomTensor({kBatch, kLength, kShared * kHead}, 3)} {
    if (past == 0) return;
    values.push_back(RandomTensor({kBatch, kShared, past, kHead}, 4));
    values.push_back(RandomTensor({kBatch, kShared, past, kHead}, 5));
  }
  std::vector<RefTensor> values;
};

void AddInputs(OnnxBuilder* b, int64_t past) {
  b->Input("q", {kBatch, kLength, kHeads * kHead})
      .Input("k", {kBatch, kLength, kShared * kHead})
      .Input("v", {kBatch, kLength, kShared * kHead});
  if (past > 0) {
    b->Input("past_k", {kBatch, kShared, past, kHead})
        .Input("past_v", {kBatch, kShared, past, kHead});
  }
  b->Output("y", {kBatch, kLength, kHeads * kHead});
  b->Output("present_k", {kBatch, kShared, past + kLength, kHead});
  b->Output("present_v", {kBatch, kShared, past + kLength, kHead});
}

// ONNX's Attention of the same operands, in a window of `left` keys where that is not negative.
std::vector<RefTensor> Attention(int64_t past, int64_t left, double softcap) {
  OnnxBuilder b(24);
  AddInputs(&b, past);
  std::vector<std::string> inputs = {"q", "k", "v"};
  if (past > 0) inputs.insert(inputs.end(), {"", "past_k", "past_v"});
  pb::NodeProto* node = b.Node("Attention", inputs, "y");
  node->add_output("present_k");
  node->add_output("present_v");
  OnnxBuilder::Attr(node, "q_num_heads", kHeads);
  OnnxBuilder::Attr(node, "kv_num_heads", kShared);
  OnnxBuilder::Attr(node, "is_causal", int64_t{1});
  if (left >= 0) OnnxBuilder::Attr(node, "left_window_size", left);
  if (softcap > 0) OnnxBuilder::AttrFloat(node, "softcap", static_cast<float>(softcap));
  return tests::EvaluateOnnx(b, Operands(past).values, 1e-5);
}

// GroupQueryAttention; `lengths` are seqlens_k.
OnnxBuilder Grouped(int64_t past, const std::vector<int64_t>& lengths) {
  OnnxBuilder b(17);
  AddInputs(&b, past);
  b.Small("lengths", pb::TensorProto::INT32, {kBatch}, lengths)
      .Small("total", pb::TensorProto::INT32, {}, {past + kLength});
  pb::NodeProto* node = b.Node(
      "GroupQueryAttention",
      {"q", "k", "v", past > 0 ? "past_k" : "", past > 0 ? "past_v" : "", "lengths", "total"}, "y");
  node->set_domain("com.microsoft");
  node->add_output("present_k");
  node->add_output("present_v");
  OnnxBuilder::Attr(node, "num_heads", kHeads);
  OnnxBuilder::Attr(node, "kv_num_heads", kShared);
  return b;
}

pb::NodeProto* FirstNode(OnnxBuilder* b) { return b->graph().mutable_node(0); }

TEST(OnnxDecoder, GroupQueryAttentionIsAttention) {
  for (const int64_t past : {0, 5}) {
    for (const auto& [window, softcap] :
         {std::pair{-1, 0.0}, std::pair{2, 0.0}, std::pair{-1, 3.0}}) {
      const int64_t last = past + kLength - 1;
      OnnxBuilder b = Grouped(past, {last, last});
      if (window > 0) OnnxBuilder::Attr(FirstNode(&b), "local_window_size", int64_t{window});
      if (softcap > 0)
        OnnxBuilder::AttrFloat(FirstNode(&b), "softcap", static_cast<float>(softcap));
      const auto found = tests::EvaluateOnnx(b, Operands(past).values, 1e-5);
      // A window of two keys has the query's own.
      const auto expected = Attention(past, window > 0 ? window - 1 : -1, softcap);
      for (size_t i = 0; i < 3; ++i) {
        ExpectNear(found[i], expected[i].type.sizes(), expected[i].values, 1e-5);
      }
    }
  }
}

// A bias of the scores is the mask of ONNX's Attention.
TEST(OnnxDecoder, GroupQueryAttentionAddsABias) {
  constexpr int64_t kPast = 2, kTotal = kPast + kLength;
  const RefTensor bias = RandomTensor({1, kHeads, kLength, kTotal}, 9);
  OnnxBuilder b = Grouped(kPast, {kTotal - 1, kTotal - 1});
  b.Input("bias", bias.type.sizes());
  for (const char* input : {"", "", "", "bias"}) FirstNode(&b)->add_input(input);
  std::vector<RefTensor> operands = Operands(kPast).values;
  operands.push_back(bias);
  const auto found = tests::EvaluateOnnx(b, operands, 1e-5);
  OnnxBuilder onnx(24);
  AddInputs(&onnx, kPast);
  onnx.Input("bias", bias.type.sizes());
  pb::NodeProto* node = onnx.Node("Attention", {"q", "k", "v", "bias", "past_k", "past_v"}, "y");
  node->add_output("present_k");
  node->add_output("present_v");
  OnnxBuilder::Attr(node, "q_num_heads", kHeads);
  OnnxBuilder::Attr(node, "kv_num_heads", kShared);
  OnnxBuilder::Attr(node, "is_causal", int64_t{1});
  const auto expected = tests::EvaluateOnnx(onnx, operands, 1e-5);
  ExpectNear(found[0], expected[0].type.sizes(), expected[0].values, 1e-5);
}

// A sink is a key of which only the score counts: its weight is lost, so that the result is that
// of plain attention times the share of the other keys.
TEST(OnnxDecoder, GroupQueryAttentionWithASink) {
  const Operands operands(0);
  const Numbers &q = operands.values[0].values, &k = operands.values[1].values;
  const Numbers plain = Attention(0, -1, 0)[0].values, own = {-1, 0.5, 2, 0};
  for (const bool given : {true, false}) {
    OnnxBuilder b = Grouped(0, {kLength - 1, kLength - 1});
    if (given) {
      b.Floats("sink", {-1, 0.5F, 2, 0});
      for (const char* input : {"", "", "", "", "sink"}) FirstNode(&b)->add_input(input);
    } else {
      OnnxBuilder::Attr(FirstNode(&b), "smooth_softmax", int64_t{1});
    }
    Numbers expected;
    for (size_t i = 0; i < plain.size(); ++i) {
      const int64_t at = static_cast<int64_t>(i), row = at / (kHeads * kHead);
      const int64_t head = at / kHead % kHeads, first = row / kLength * kLength;
      double sum = 0;
      for (int64_t key = first; key <= row; ++key) {
        double score = 0;
        for (int64_t d = 0; d < kHead; ++d) {
          score += q[(row * kHeads + head) * kHead + d] *
                   k[(key * kShared + head / (kHeads / kShared)) * kHead + d];
        }
        sum += std::exp(score / std::sqrt(static_cast<double>(kHead)));
      }
      expected.push_back(plain[i] * sum / (sum + std::exp(given ? own[head] : 0.0)));
    }
    const auto found = tests::EvaluateOnnx(b, operands.values, 1e-5);
    ExpectNear(found[0], {kBatch, kLength, kHeads * kHead}, expected, 1e-5);
  }
}

TEST(OnnxDecoder, GroupQueryAttentionTakesPackedOperands) {
  OnnxBuilder b = Grouped(0, {kLength - 1, kLength - 1});
  constexpr int64_t kAll = (kHeads + 2 * kShared) * kHead;
  b.graph().mutable_input()->DeleteSubrange(0, 3);
  b.Input("qkv", {kBatch, kLength, kAll});
  FirstNode(&b)->set_input(0, "qkv");
  FirstNode(&b)->set_input(1, "");
  FirstNode(&b)->set_input(2, "");
  const Operands apart(0);
  Numbers packed;
  for (int64_t row = 0; row < kBatch * kLength; ++row) {
    for (const RefTensor& part : apart.values) {
      const int64_t width = part.type.size(-1);
      packed.insert(packed.end(), part.values.begin() + row * width,
                    part.values.begin() + (row + 1) * width);
    }
  }
  const auto found = tests::EvaluateOnnx(b, {TensorOf({kBatch, kLength, kAll}, packed)}, 1e-5);
  const auto expected = Attention(0, -1, 0);
  ExpectNear(found[0], expected[0].type.sizes(), expected[0].values, 1e-5);
}

// One sequence of the batch alone: `entries` of its cache, then the new ones.
std::vector<RefTensor> Alone(const std::vector<RefTensor>& all, int64_t sequence, int64_t entries) {
  std::vector<RefTensor> one;
  for (const RefTensor& x : all) {
    const int64_t size = x.type.elements() / kBatch;
    RefTensor part{x.type,
                   {x.values.begin() + sequence * size, x.values.begin() + (sequence + 1) * size}};
    part.type.shape[0] = 1;
    one.push_back(std::move(part));
  }
  for (size_t i = 3; i < one.size(); ++i) {  // caches [1, heads, past, head]
    const int64_t past = one[i].type.size(2);
    std::vector<double> kept;
    for (int64_t row = 0; row < kShared * past; ++row) {
      if (row % past >= entries) continue;
      kept.insert(kept.end(), one[i].values.begin() + row * kHead,
                  one[i].values.begin() + (row + 1) * kHead);
    }
    one[i].values = kept;
    one[i].type.shape[2] = entries;
  }
  return one;
}

// Attention of a sequence with so many entries of the cache.
RefTensor AttentionAlone(const std::vector<RefTensor>& operands, int64_t entries) {
  OnnxBuilder b(24);
  b.Input("q", {1, kLength, kHeads * kHead})
      .Input("k", {1, kLength, kShared * kHead})
      .Input("v", {1, kLength, kShared * kHead})
      .Input("past_k", {1, kShared, entries, kHead})
      .Input("past_v", {1, kShared, entries, kHead});
  b.Output("y", {1, kLength, kHeads * kHead});
  pb::NodeProto* node = b.Node("Attention", {"q", "k", "v", "", "past_k", "past_v"}, "y");
  OnnxBuilder::Attr(node, "q_num_heads", kHeads);
  OnnxBuilder::Attr(node, "kv_num_heads", kShared);
  OnnxBuilder::Attr(node, "is_causal", int64_t{1});
  return tests::EvaluateOnnx(b, operands, 1e-5)[0];
}

OnnxBuilder GroupedWithLengths(int64_t past) {
  OnnxBuilder b = Grouped(past, {past + kLength - 1, past + kLength - 1});
  b.graph().mutable_initializer()->DeleteSubrange(0, 1);
  b.Input("lengths", {kBatch}, pb::TensorProto::INT32);
  return b;
}

// Each sequence has entries of its own number; what the cache has behind them does not count.
TEST(OnnxDecoder, SequencesOfABatchMayDifferInLength) {
  constexpr int64_t kPast = 5;
  const auto graph = ImportOnnx(GroupedWithLengths(kPast).Bytes(), {});
  ASSERT_TRUE(graph.ok()) << graph.status();
  for (const auto& [a, b] : {std::pair{5, 5}, std::pair{5, 2}, std::pair{1, 4}}) {
    std::vector<RefTensor> inputs = Operands(kPast).values;
    inputs.push_back(
        {{ir::kI32, {kBatch}},
         {static_cast<double>(a + kLength - 1), static_cast<double>(b + kLength - 1)}});
    const auto found = Interpret(*graph, inputs);
    ASSERT_TRUE(found.ok()) << found.status();
    inputs.pop_back();
    for (int64_t sequence = 0; sequence < kBatch; ++sequence) {
      const int64_t entries = sequence == 0 ? a : b;
      const std::vector<RefTensor> alone = Alone(inputs, sequence, entries);
      const RefTensor expected = AttentionAlone(alone, entries);
      const int64_t size = kLength * kHeads * kHead;
      for (int64_t i = 0; i < size; ++i) {
        EXPECT_NEAR((*found)[0].values[sequence * size + i], expected.values[i], 1e-5);
      }
      // The cache has the new entries behind the sequence's own.
      const int64_t total = kPast + kLength, d = 3;
      const RefTensor& keys = (*found)[1];
      for (int64_t t = 0; t < kLength; ++t) {
        const double fresh = inputs[1].values[((sequence * kLength + t) * kShared + 1) * kHead + d];
        EXPECT_EQ(keys.values[((sequence * kShared + 1) * total + entries + t) * kHead + d], fresh);
      }
    }
  }
}

TEST(OnnxDecoder, LengthsThatNoCacheHasAreRefusedWhenTheyRun) {
  const OnnxBuilder constant = Grouped(5, {8, 7});  // known at import
  EXPECT_EQ(support::Slug(ImportOnnx(constant.Bytes(), {}).status()), "graph.onnx.stated_shape");
  const auto graph = ImportOnnx(GroupedWithLengths(5).Bytes(), {});
  ASSERT_TRUE(graph.ok()) << graph.status();
  std::vector<RefTensor> inputs = Operands(5).values;
  inputs.push_back({{ir::kI32, {kBatch}}, {7, 7}});
  EXPECT_TRUE(Interpret(*graph, inputs).ok());
  for (const std::vector<double>& lengths : {std::vector<double>{7, 8}, {-1, 7}}) {
    inputs.back().values = lengths;
    const auto refused = Interpret(*graph, inputs);
    EXPECT_EQ(support::Slug(refused.status()), "graph.interp.stated_shape");
    EXPECT_NE(refused.status().message().find("seqlens_k"), std::string::npos) << refused.status();
  }
}

TEST(OnnxDecoder, OtherFormsAreRefusedByName) {
  const auto refused = [](const std::function<void(pb::NodeProto*)>& change) {
    OnnxBuilder b = Grouped(5, {7, 7});
    change(FirstNode(&b));
    return std::string(support::Slug(ImportOnnx(b.Bytes(), {}).status()));
  };
  const auto set = [](const char* name, int64_t value) {
    return [=](pb::NodeProto* node) {
      for (auto& a : *node->mutable_attribute()) {
        if (a.name() == name) return a.set_i(value);
      }
      OnnxBuilder::Attr(node, name, value);
    };
  };
  EXPECT_EQ(refused(set("kv_num_heads", 3)), "graph.onnx.attribute");
  EXPECT_EQ(refused(set("num_heads", 0)), "graph.onnx.attribute");
  EXPECT_EQ(refused(set("num_heads", 12)), "graph.onnx.shape");
  EXPECT_EQ(refused([](pb::NodeProto* node) { node->add_output("qk"); }), "graph.onnx.outputs");
  EXPECT_EQ(refused([](pb::NodeProto* node) { node->set_input(4, ""); }), "graph.onnx.shape");
  EXPECT_EQ(refused([](pb::NodeProto* node) { node->set_input(2, ""); }), "graph.onnx.shape");
}

TEST(OnnxDecoder, RotaryEmbeddingIsOnnxs) {
  constexpr int64_t kRows = 10;
  for (const int64_t pairs : {0, 1}) {
    for (const bool one_offset : {false, true}) {
      const auto model = [&](bool microsoft) {
        OnnxBuilder b(23);
        b.Input("x", {kBatch, kLength, kHeads * kHead})
            .Output("y", {kBatch, kLength, kHeads * kHead});
        b.Input("cosine", {kRows, kHead / 2}).Input("sine", {kRows, kHead / 2});
        const bool offset = microsoft && one_offset;
        b.Input("at", offset ? Shape{1} : Shape{kBatch, kLength}, pb::TensorProto::INT64);
        pb::NodeProto* node = microsoft
                                  ? b.Node("RotaryEmbedding", {"x", "at", "cosine", "sine"}, "y")
                                  : b.Node("RotaryEmbedding", {"x", "cosine", "sine", "at"}, "y");
        if (microsoft) node->set_domain("com.microsoft");
        if (!microsoft) OnnxBuilder::Attr(node, "num_heads", kHeads);
        OnnxBuilder::Attr(node, "interleaved", pairs);
        return b;
      };
      const std::vector<RefTensor> operands = {RandomTensor({kBatch, kLength, kHeads * kHead}, 1),
                                               RandomTensor({kRows, kHead / 2}, 2),
                                               RandomTensor({kRows, kHead / 2}, 3)};
      std::vector<RefTensor> inputs = operands, ours = operands;
      inputs.push_back({{ir::kI64, {kBatch, kLength}}, {4, 5, 6, 4, 5, 6}});
      ours.push_back(one_offset ? RefTensor{{ir::kI64, {1}}, {4}} : inputs.back());
      const auto expected = tests::EvaluateOnnx(model(false), inputs, 1e-5);
      const auto found = tests::EvaluateOnnx(model(true), ours, 1e-5);
      ExpectNear(found[0], expected[0].type.sizes(), expected[0].values, 1e-5);
    }
  }
}

TEST(OnnxDecoder, NormOfASumGivesTheSumToo) {
  OnnxBuilder b(17);
  b.Input("x", {2, 2}).Input("skip", {2, 2}).Output("y", {2, 2}).Output("sum", {2, 2});
  b.Floats("scale", {1, 2});
  pb::NodeProto* node = b.Node("SkipSimplifiedLayerNormalization", {"x", "skip", "scale"}, "y");
  node->set_domain("com.microsoft");
  for (const char* name : {"", "", "sum"}) node->add_output(name);
  OnnxBuilder::AttrFloat(node, "epsilon", 0);
  const auto found = tests::EvaluateOnnx(
      b, {TensorOf({2, 2}, {1, 2, 3, -4}), TensorOf({2, 2}, {2, 2, 0, 0})}, 1e-5);
  const double first = std::sqrt(12.5);  // of 3 and 4, and of 3 and -4
  ExpectNear(found[0], {2, 2}, {3 / first, 8 / first, 3 / first, -8 / first}, 1e-5);
  ExpectNear(found[1], {2, 2}, {3, 4, 3, -4}, 1e-5);
}

// The epsilon that a node leaves out is 1e-12: small numbers are normalised, too.
TEST(OnnxDecoder, NormOfASumOfSmallNumbers) {
  OnnxBuilder b(17);
  b.Input("x", {1, 2}).Input("skip", {1, 2}).Output("y", {1, 2}).Floats("scale", {1, 2});
  b.Node("SkipSimplifiedLayerNormalization", {"x", "skip", "scale"}, "y")
      ->set_domain("com.microsoft");
  const auto found = tests::EvaluateOnnx(
      b, {TensorOf({1, 2}, {1e-4, 2e-4}), TensorOf({1, 2}, {2e-4, 2e-4})}, 1e-5);
  const double rms = std::sqrt(12.5);
  ExpectNear(found[0], {1, 2}, {3 / rms, 8 / rms}, 1e-3);
}

}  // namespace
}  // namespace tilewright::graph
