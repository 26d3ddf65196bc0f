// Import of TfIdfVectorizer: counts of n-grams against plain loops over rows.
#include <gtest/gtest.h>

#include <algorithm>

#include "deploy/support/rng.h"
#include "tests/support/test_seed.h"
#include "tests/unit/onnx_evaluate.h"

namespace tilewright::graph {
namespace {

using namespace import_tests;
using Ints = std::vector<int64_t>;

struct Vectorizer {
  std::string mode = "TF";
  int64_t least = 1, most = 2, skips = 0;
  Ints begins = {0, 3}, pool = {1, 2, 0, 1, 2, 2, 1, 0, 0};  // 1, 2, 0, (1 2), (2 1), (0 0)
  Ints places = {5, 0, 1, 3, 7, 2};                          // 4 and 6 are of no n-gram
  std::vector<float> weights = {};
};

pb::NodeProto* AddTo(OnnxBuilder* b, const Vectorizer& v) {
  pb::NodeProto* node = b->Node("TfIdfVectorizer", {"x"}, "y");
  OnnxBuilder::AttrText(node, "mode", v.mode);
  OnnxBuilder::Attr(node, "min_gram_length", v.least);
  OnnxBuilder::Attr(node, "max_gram_length", v.most);
  OnnxBuilder::Attr(node, "max_skip_count", v.skips);
  OnnxBuilder::Attr(node, "ngram_counts", v.begins);
  OnnxBuilder::Attr(node, "ngram_indexes", v.places);
  OnnxBuilder::Attr(node, "pool_int64s", v.pool);
  if (v.weights.empty()) return node;
  pb::AttributeProto* weights = node->add_attribute();
  weights->set_name("weights");
  weights->set_type(pb::AttributeProto::FLOATS);
  weights->mutable_floats()->Assign(v.weights.begin(), v.weights.end());
  return node;
}

// What ONNX defines, of one row.
Numbers CountsOf(const Vectorizer& v, const Ints& row) {
  Numbers y(8, 0);
  size_t number = 0;
  for (size_t i = 0; i < v.begins.size(); ++i) {
    const int64_t length = static_cast<int64_t>(i) + 1;
    const int64_t end =
        i + 1 < v.begins.size() ? v.begins[i + 1] : static_cast<int64_t>(v.pool.size());
    for (int64_t at = v.begins[i]; at < end; at += length, ++number) {
      if (length < v.least || length > v.most) continue;
      double count = 0;
      for (int64_t skip = 0; skip <= (length == 1 ? 0 : v.skips); ++skip) {
        const int64_t step = skip + 1;
        for (int64_t p = 0; p + (length - 1) * step < static_cast<int64_t>(row.size()); ++p) {
          bool same = true;
          for (int64_t k = 0; k < length; ++k) {
            same = same &&
                   row[static_cast<size_t>(p + k * step)] == v.pool[static_cast<size_t>(at + k)];
          }
          count += same ? 1 : 0;
        }
      }
      if (v.mode == "IDF") count = std::min(count, 1.0);
      const bool weighted = v.mode != "TF" && !v.weights.empty();
      y[static_cast<size_t>(v.places[number])] = count * (weighted ? v.weights[number] : 1.0F);
    }
  }
  return y;
}

TEST(OnnxNgrams, CountsAreThoseOfPlainLoops) {
  support::Rng rng(tests::TestSeed(3));
  const std::vector<float> weights = {0.5F, 2, 1, 4, 8, 0.25F};
  for (const Vectorizer& v :
       {Vectorizer{}, Vectorizer{.skips = 3}, Vectorizer{.least = 2, .skips = 20},
        Vectorizer{.most = 1}, Vectorizer{.mode = "IDF", .skips = 1, .weights = weights},
        Vectorizer{.mode = "TFIDF", .skips = 2, .weights = weights}, Vectorizer{.mode = "TFIDF"}}) {
    for (const int64_t length : {1, 2, 9}) {
      Ints x;
      for (int64_t i = 0; i < 3 * length; ++i) x.push_back(static_cast<int64_t>(rng.Uniform(4)));
      OnnxBuilder b(9);
      b.Input("x", {3, length}, pb::TensorProto::INT32).Output("y", {3, 8});
      AddTo(&b, v);
      const auto y =
          tests::EvaluateOnnx(b, {op::FromIntegers({ir::kI32, {3, length}}, x)}, 0).at(0);
      for (int64_t r = 0; r < 3; ++r) {
        const Ints row(x.begin() + r * length, x.begin() + (r + 1) * length);
        const Numbers found(y.values.begin() + r * 8, y.values.begin() + (r + 1) * 8);
        EXPECT_EQ(found, CountsOf(v, row)) << v.mode << " row " << r << " of " << length;
      }
    }
  }
}

TEST(OnnxNgrams, OneRowWithoutItsDimension) {
  OnnxBuilder b(9);
  b.Input("x", {4}, pb::TensorProto::INT64).Output("y", {8});
  AddTo(&b, {});
  const Ints x = {1, 2, 1, 2};
  const auto y = tests::EvaluateOnnx(b, {op::FromIntegers({ir::kI64, {4}}, x)}, 0).at(0);
  EXPECT_EQ(y.values, CountsOf({}, x));
}

TEST(OnnxNgrams, RefusesListsThatAreNone) {
  for (const Vectorizer& v :
       {Vectorizer{.mode = "NONE"}, Vectorizer{.least = 3}, Vectorizer{.begins = {0, 4}},
        Vectorizer{.begins = {}}, Vectorizer{.begins = {0, 30}}, Vectorizer{.skips = -1},
        Vectorizer{.places = {5, 0, 1, 3, 7, 5}}, Vectorizer{.places = {0, 1}},
        Vectorizer{.places = {5, 0, 1, 3, 7, -2}}, Vectorizer{.mode = "IDF", .weights = {1, 2}}}) {
    OnnxBuilder b(9);
    b.Input("x", {2, 4}, pb::TensorProto::INT64).Output("y", {2, 8});
    AddTo(&b, v);
    EXPECT_EQ(support::Slug(ImportOnnx(b.Bytes()).status()), "graph.onnx.attribute");
  }
}

}  // namespace
}  // namespace tilewright::graph
