// MultiHeadAttention, Attention and EmbedLayerNormalization of com.microsoft, against their
// formulas in doubles; what they refuse.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "compiler/onnx/onnx_import.h"
#include "tests/unit/onnx_evaluate.h"

namespace tilewright::graph {
namespace {

using namespace import_tests;
constexpr int kI32 = pb::TensorProto::INT32;
constexpr int64_t kBatch = 2, kHeads = 2, kHead = 4, kWidth = kHeads * kHead;

RefTensor Floats(const Shape& shape, uint64_t seed) {
  int64_t count = 1;
  for (int64_t extent : shape) count *= extent;
  return TensorOf(shape, Random(count, 1, seed));
}

// Rows of [batch, length, width]: element (b, s, i).
using Rows = std::function<double(int64_t, int64_t, int64_t)>;
Rows Of(const RefTensor& x) {
  return [&x](int64_t b, int64_t s, int64_t i) {
    const Shape shape = x.type.sizes();
    return x.values[static_cast<size_t>((b * shape[1] + s) * shape[2] + i)];
  };
}
// Added to the score of head h, query s and key t.
using Mask = std::function<double(int64_t b, int64_t h, int64_t s, int64_t t)>;

Numbers Attend(const Rows& q, const Rows& k, const Rows& v, int64_t queries, int64_t keys,
               double scale, const Mask& mask) {
  Numbers y;
  for (int64_t b = 0; b < kBatch; ++b) {
    for (int64_t s = 0; s < queries; ++s) {
      for (int64_t i = 0; i < kWidth; ++i) {
        const int64_t h = i / kHead;
        double sum = 0, mixed = 0;
        for (int64_t t = 0; t < keys; ++t) {
          double score = 0;
          for (int64_t d = h * kHead; d < (h + 1) * kHead; ++d) score += q(b, s, d) * k(b, t, d);
          const double weight = std::exp(score * scale + mask(b, h, s, t));
          sum += weight;
          mixed += weight * v(b, t, i);
        }
        y.push_back(mixed / sum);
      }
    }
  }
  return y;
}

pb::NodeProto* Node(OnnxBuilder& b, const std::string& op, const Names& inputs) {
  pb::NodeProto* node = b.Node(op, inputs, "y");
  node->set_domain("com.microsoft");
  if (op != "EmbedLayerNormalization") OnnxBuilder::Attr(node, "num_heads", kHeads);
  return node;
}

constexpr int64_t kQueries = 3, kKeys = 5;

struct MaskForm {
  Shape shape;
  Numbers values;
  Mask mask;
};
// Lengths, first keys behind them, one number for each key, or for each query and key.
std::vector<MaskForm> Masks(double filter) {
  Numbers keys, pairs;
  for (int64_t i = 0; i < kBatch * kKeys; ++i) keys.push_back(i % 3 == 1 ? 0 : 1);
  for (int64_t i = 0; i < kBatch * kQueries * kKeys; ++i) pairs.push_back(i % 4 == 1 ? 0 : 1);
  return {
      {{2}, {3, 5}, [=](auto b, auto, auto, auto t) { return t < (b == 0 ? 3 : 5) ? 0 : filter; }},
      {{4},
       {3, 5, 1, 2},
       [=](auto b, auto, auto, auto t) {
         return t < (b == 0 ? 3 : 5) && t >= (b == 0 ? 1 : 2) ? 0 : filter;
       }},
      {{kBatch, kKeys},
       keys,
       [=](auto b, auto, auto, auto t) { return keys[b * kKeys + t] > 0 ? 0 : filter; }},
      {{kBatch, kQueries, kKeys},
       pairs,
       [=](auto b, auto, auto s, auto t) {
         return pairs[(b * kQueries + s) * kKeys + t] > 0 ? 0 : filter;
       }},
  };
}

TEST(OnnxEncoder, MultiHeadAttentionTakesMasksOfFourForms) {
  const RefTensor q = Floats({kBatch, kQueries, kWidth}, 1);
  const RefTensor k = Floats({kBatch, kKeys, kWidth}, 2), v = Floats({kBatch, kKeys, kWidth}, 3);
  for (const MaskForm& form : Masks(-2)) {
    OnnxBuilder b(17);
    b.Input("q", q.type.sizes()).Input("k", k.type.sizes()).Input("v", v.type.sizes());
    b.Input("mask", form.shape, kI32).Output("y", q.type.sizes());
    pb::NodeProto* node = Node(b, "MultiHeadAttention", {"q", "k", "v", "", "mask"});
    OnnxBuilder::AttrFloat(node, "mask_filter_value", -2);
    OnnxBuilder::AttrFloat(node, "scale", 0.75);
    const RefTensor mask = TensorOf(form.shape, form.values, ir::kI32);
    ExpectNear(tests::EvaluateOnnx(b, {q, k, v, mask}, 1e-5)[0], q.type.sizes(),
               Attend(Of(q), Of(k), Of(v), kQueries, kKeys, 0.75, form.mask), 1e-5);
  }
}

// Operands in one tensor, with a bias; a bias of the scores; causal behind a cache.
TEST(OnnxEncoder, MultiHeadAttentionTakesPackedOperandsBiasesAndACache) {
  constexpr int64_t kPast = 2, kTotal = kPast + kQueries;
  const RefTensor joint = Floats({kBatch, kQueries, kHeads, 3, kHead}, 4);
  const RefTensor past_k = Floats({kBatch, kHeads, kPast, kHead}, 5);
  const RefTensor past_v = Floats({kBatch, kHeads, kPast, kHead}, 6);
  const RefTensor scores = Floats({1, kHeads, kQueries, kTotal}, 7);
  OnnxBuilder b(17);
  b.Input("qkv", joint.type.sizes()).Input("scores", scores.type.sizes());
  b.Input("past_k", past_k.type.sizes()).Input("past_v", past_v.type.sizes());
  const Numbers bias = Random(3 * kWidth, 1, 8);
  b.Floats("bias", std::vector<float>(bias.begin(), bias.end()));
  pb::NodeProto* node =
      Node(b, "MultiHeadAttention", {"qkv", "", "", "bias", "", "scores", "past_k", "past_v"});
  node->add_output("k");
  OnnxBuilder::Attr(node, "unidirectional", int64_t{1});
  b.Output("y", {kBatch, kQueries, kWidth}).Output("k", {kBatch, kHeads, kTotal, kHead});
  const auto part = [&](int64_t which) -> Rows {
    return [&, which](int64_t n, int64_t s, int64_t i) {
      const int64_t place = ((n * kQueries + s) * kHeads + i / kHead) * 3 + which;
      return joint.values[place * kHead + i % kHead] + bias[which * kWidth + i];
    };
  };
  const auto behind = [&](const RefTensor& past, int64_t which) -> Rows {
    return [&, which](int64_t n, int64_t t, int64_t i) {
      if (t >= kPast) return part(which)(n, t - kPast, i);
      return past.values[((n * kHeads + i / kHead) * kPast + t) * kHead + i % kHead];
    };
  };
  const Mask mask = [&](int64_t, int64_t h, int64_t s, int64_t t) {
    return t > s + kPast ? -INFINITY : scores.values[(h * kQueries + s) * kTotal + t];
  };
  const auto out = tests::EvaluateOnnx(b, {joint, scores, past_k, past_v}, 1e-5);
  ExpectNear(out[0], {kBatch, kQueries, kWidth},
             Attend(part(0), behind(past_k, 1), behind(past_v, 2), kQueries, kTotal, 0.5, mask),
             1e-5);
  Numbers keys;
  for (int64_t i = 0; i < kBatch * kHeads * kTotal * kHead; ++i) {
    const int64_t h = i / kHead / kTotal % kHeads;
    keys.push_back(
        behind(past_k, 1)(i / kHead / kTotal / kHeads, i / kHead % kTotal, h * kHead + i % kHead));
  }
  ExpectNear(out[1], {kBatch, kHeads, kTotal, kHead}, keys, 1e-5);
}

// The projections of one operand, with a cache of keys and values in one tensor.
TEST(OnnxEncoder, AttentionProjectsItsOperand) {
  constexpr int64_t kIn = 6, kPast = 2, kTotal = kPast + kQueries;
  const RefTensor x = Floats({kBatch, kQueries, kIn}, 9);
  const RefTensor w = Floats({kIn, 3 * kWidth}, 10);
  const RefTensor past = Floats({2, kBatch, kHeads, kPast, kHead}, 11);
  const Numbers bias = Random(3 * kWidth, 1, 12);
  OnnxBuilder b(17);
  b.Input("x", x.type.sizes()).Input("w", w.type.sizes()).Input("past", past.type.sizes());
  b.Input("lengths", {kBatch}, kI32);
  b.Floats("bias", std::vector<float>(bias.begin(), bias.end()));
  pb::NodeProto* node = Node(b, "Attention", {"x", "w", "bias", "lengths", "past"});
  node->add_output("present");
  b.Output("y", {kBatch, kQueries, kWidth});
  b.Output("present", {2, kBatch, kHeads, kTotal, kHead});
  const auto behind = [&](int64_t which) -> Rows {  // 0 are the queries, without a cache
    return [&, which](int64_t n, int64_t t, int64_t i) {
      if (which > 0 && t < kPast) {
        const int64_t row = (((which - 1) * kBatch + n) * kHeads + i / kHead) * kPast + t;
        return past.values[row * kHead + i % kHead];
      }
      const int64_t s = which > 0 ? t - kPast : t, column = which * kWidth + i;
      double sum = bias[column];
      for (int64_t d = 0; d < kIn; ++d) {
        sum += Of(x)(n, s, d) * w.values[d * 3 * kWidth + column];
      }
      return sum;
    };
  };
  const Mask mask = [](int64_t n, int64_t, int64_t, int64_t t) {
    return t < (n == 0 ? 5 : 4) ? 0.0 : -10000.0;
  };
  const auto out = tests::EvaluateOnnx(b, {x, w, past, TensorOf({kBatch}, {5, 4}, ir::kI32)}, 1e-5);
  ExpectNear(out[0], {kBatch, kQueries, kWidth},
             Attend(behind(0), behind(1), behind(2), kQueries, kTotal, 0.5, mask), 1e-5);
  Numbers present;
  for (int64_t which : {1, 2}) {
    for (int64_t i = 0; i < kBatch * kHeads * kTotal * kHead; ++i) {
      const int64_t h = i / kHead / kTotal % kHeads;
      present.push_back(
          behind(which)(i / kHead / kTotal / kHeads, i / kHead % kTotal, h * kHead + i % kHead));
    }
  }
  ExpectNear(out[1], {2, kBatch, kHeads, kTotal, kHead}, present, 1e-5);
}

TEST(OnnxEncoder, NormOfThreeEmbeddings) {
  constexpr int64_t kLength = 3, kSize = 4;
  for (const bool all : {true, false}) {  // with segments, mask and places
    const RefTensor words = Floats({7, kSize}, 13), places = Floats({6, kSize}, 14);
    const RefTensor segments = Floats({2, kSize}, 15);
    const Numbers ids = {3, 0, 6, 2, 2, 5}, which = {0, 1, 1, 1, 0, 0};
    const Numbers mask = {1, 1, 0, 1, 0, 0}, at = {5, 4, 0, 1, 1, 2};
    OnnxBuilder b(17);
    b.Input("ids", {kBatch, kLength}, kI32).Input("which", {kBatch, kLength}, kI32);
    b.Input("mask", {kBatch, kLength}, kI32).Input("at", {kBatch, kLength}, kI32);
    b.Input("words", {7, kSize}).Input("places", {6, kSize}).Input("segments", {2, kSize});
    b.Floats("gamma", {1, 2, 3, 4}).Floats("beta", {0, 1, 0, -1});
    Names inputs = {"ids", all ? "which" : "", "words", "places", all ? "segments" : "", "gamma",
                    "beta"};
    if (all) inputs.insert(inputs.end(), {"mask", "at"});
    pb::NodeProto* node = Node(b, "EmbedLayerNormalization", inputs);
    node->add_output("count");
    node->add_output("sum");
    OnnxBuilder::AttrFloat(node, "epsilon", 0.25);
    b.Output("y", {kBatch, kLength, kSize}).Output("count", {kBatch}, kI32);
    b.Output("sum", {kBatch, kLength, kSize});
    Numbers sums, y;
    const double gamma[] = {1, 2, 3, 4}, beta[] = {0, 1, 0, -1};
    for (size_t i = 0; i < kBatch * kLength; ++i) {
      double mean = 0, variance = 0;
      const size_t place = all ? static_cast<size_t>(at[i]) : i % kLength;
      for (size_t d = 0; d < kSize; ++d) {
        double sum = words.values[static_cast<size_t>(ids[i]) * kSize + d] +
                     places.values[place * kSize + d];
        if (all) sum += segments.values[static_cast<size_t>(which[i]) * kSize + d];
        sums.push_back(sum);
        mean += sum / kSize;
      }
      const double* row = &sums[i * kSize];
      for (size_t d = 0; d < kSize; ++d) variance += std::pow(row[d] - mean, 2) / kSize;
      for (size_t d = 0; d < kSize; ++d) {
        y.push_back((row[d] - mean) / std::sqrt(variance + 0.25) * gamma[d] + beta[d]);
      }
    }
    const auto list = [](const Numbers& values) {
      return TensorOf({kBatch, kLength}, values, ir::kI32);
    };
    const auto out = tests::EvaluateOnnx(
        b, {list(ids), list(which), list(mask), list(at), words, places, segments}, 1e-5);
    ExpectNear(out[0], {kBatch, kLength, kSize}, y, 1e-5);
    ExpectNear(out[1], {kBatch}, all ? Numbers{2, 1} : Numbers{0, 0}, 0);
    ExpectNear(out[2], {kBatch, kLength, kSize}, sums, 1e-5);
  }
}

TEST(OnnxEncoder, OtherFormsAreRefusedByName) {
  const auto slug = [](const Names& inputs, const Shape& mask, int64_t heads) {
    OnnxBuilder b(17);
    b.Input("q", {kBatch, kQueries, kWidth}).Input("mask", mask, kI32);
    b.Output("y", {kBatch, kQueries, kWidth});
    pb::NodeProto* node = b.Node("MultiHeadAttention", inputs, "y");
    node->set_domain("com.microsoft");
    OnnxBuilder::Attr(node, "num_heads", heads);
    const absl::Status status = ImportOnnx(b.Bytes()).status();
    EXPECT_NE(status.message().find("MultiHeadAttention"), std::string::npos) << status;
    return std::string(support::Slug(status));
  };
  const Names masked = {"q", "q", "q", "", "mask"};
  EXPECT_EQ(slug(masked, {3 * kBatch + 2}, kHeads), "graph.onnx.shape");
  EXPECT_EQ(slug(masked, {kBatch}, 0), "graph.onnx.attribute");
  EXPECT_EQ(slug(masked, {kBatch}, 3), "graph.onnx.shape");  // no whole number of heads
  EXPECT_EQ(slug({"q", "", "", ""}, {kBatch}, kHeads), "graph.onnx.shape");
  EXPECT_EQ(slug({"q", "q", "q", "", "", "", "", "", "mask"}, {1}, kHeads), "graph.onnx.inputs");
}

}  // namespace
}  // namespace tilewright::graph
