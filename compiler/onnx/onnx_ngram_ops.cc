// TfIdfVectorizer of integers: how often each n-gram of a list comes in each row, weighted. Every
// place of a row is compared with every n-gram of the list.
#include <algorithm>
#include <set>

#include "compiler/onnx/onnx_composer.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::graph::onnx {
namespace {

using support::StrCat;
using Ints = std::vector<int64_t>;

constexpr int64_t kMostComparisons = int64_t{1} << 24;  // in a row

// The n-grams of one length.
struct Grams {
  int64_t length = 0, first = 0;  // the number of the first of them among all
  Ints items;                     // [grams, length]
  int64_t count() const { return static_cast<int64_t>(items.size()) / length; }
};

struct GramList {
  std::vector<Grams> by_length;  // those that are looked for
  Ints places;                   // of all n-grams in the result
  std::vector<double> weights;   // one for each, or none
  int64_t skips = 0;
  bool caps = false;  // counts above 1 are 1
};

absl::StatusOr<GramList> ReadGrams(NodeReader& n) {
  GramList list;
  if (n.Find("pool_strings") != nullptr) {
    return n.Error("element_type", "expected pool_int64s, found strings");
  }
  TW_ASSIGN(const Ints pool, n.Ints("pool_int64s", {}));
  TW_ASSIGN(const Ints begins, n.Ints("ngram_counts", {}));
  TW_ASSIGN(list.places, n.Ints("ngram_indexes", {}));
  TW_ASSIGN(const int64_t least, n.Int("min_gram_length", 1));
  TW_ASSIGN(const int64_t most, n.Int("max_gram_length", 1));
  TW_ASSIGN(list.skips, n.Int("max_skip_count", 0));
  TW_ASSIGN(const std::string mode, n.String("mode", ""));
  const auto size = static_cast<int64_t>(pool.size());
  bool good = least >= 1 && most >= least && list.skips >= 0 && !begins.empty() && begins[0] == 0 &&
              (mode == "TF" || mode == "IDF" || mode == "TFIDF");
  int64_t number = 0;
  for (size_t i = 0; good && i < begins.size(); ++i) {
    const auto length = static_cast<int64_t>(i) + 1;
    const int64_t end = i + 1 < begins.size() ? begins[i + 1] : size;
    good = begins[i] >= 0 && begins[i] <= end && end <= size && (end - begins[i]) % length == 0;
    if (!good) break;
    Grams grams{length, number, Ints(pool.begin() + begins[i], pool.begin() + end)};
    number += grams.count();
    if (length >= least && length <= most && grams.count() > 0) {
      list.by_length.push_back(std::move(grams));
    }
  }
  const std::set<int64_t> places(list.places.begin(), list.places.end());
  good = good && number > 0 && number == static_cast<int64_t>(list.places.size()) &&
         places.size() == list.places.size() && *places.begin() >= 0 &&
         *places.rbegin() < kMostComparisons;
  list.caps = mode == "IDF";
  if (const pb::AttributeProto* weights = n.Find("weights"); weights != nullptr && mode != "TF") {
    list.weights.assign(weights->floats().begin(), weights->floats().end());
    good = good && list.weights.size() == list.places.size();
  }
  if (good) return list;
  return n.Error("attribute",
                 "expected lengths from 1 on, mode TF, IDF or TFIDF, a list of n-grams with a "
                 "place of its own for each, and as many weights, found others");
}

// How often each of them is in each row of x [rows, items], with the same skip between its items.
ValueId CountsOf(Composer& c, ValueId x, const Grams& grams, int64_t skips) {
  const int64_t items = c.TypeOf(x).size(1), count = grams.count();
  ValueId counts = kNone;
  // One item has nothing to skip.
  for (int64_t step = 1; step <= (grams.length == 1 ? 1 : skips + 1); ++step) {
    const int64_t places = items - (grams.length - 1) * step;
    if (places <= 0) break;
    ValueId equal = kNone;
    for (int64_t k = 0; k < grams.length; ++k) {
      Ints own;
      for (int64_t g = 0; g < count; ++g) own.push_back(grams.items[g * grams.length + k]);
      const ValueId item = c.Slice(x, 1, k * step, places);
      const ValueId same = c.Op(
          "equal", {c.ReshapeTo(item, {c.Dims(x)[0], 1, places}), c.Integers({count, 1}, own)});
      equal = equal == kNone ? same : c.Op("and", {equal, same});
    }
    const ValueId found = c.Reduce("sum", c.Cast(equal, ir::kF32), {2}, /*keepdims=*/false);
    counts = counts == kNone ? found : c.Add(counts, found);
  }
  if (counts != kNone) return counts;
  return c.BroadcastTo(c.Scalar(0, ir::kF32), {c.Dims(x)[0], count});
}

}  // namespace

Result ImportTfIdf(NodeReader& n) {
  Composer c(n);
  TW_ASSIGN(GramList list, ReadGrams(n));
  ValueId x = c.Input(0);
  TW_TRY(c.status());
  const int64_t rank = c.Rank(x);
  if ((rank != 1 && rank != 2) || !c.TypeOf(x).dtype.is_int()) {
    return n.Error("type", StrCat("expected integers in one or two dimensions, found ",
                                  op::ToText(c.TypeOf(x))));
  }
  const std::vector<op::Dim> shape = c.Dims(x);
  const op::Dim rows = rank == 1 ? op::Dim(1) : shape[0];
  if (!shape.back().is_constant()) {
    return n.Error("open_size", StrCat("expected rows of a fixed length", kGiveNumbers));
  }
  list.skips = std::min(list.skips, shape.back().value());
  if (shape.back().value() * (list.skips + 1) * static_cast<int64_t>(list.places.size()) >
      kMostComparisons) {
    return n.Error("shape", StrCat("expected at most ", kMostComparisons,
                                   " comparisons of places with n-grams, found more"));
  }
  x = c.Cast(c.ReshapeTo(x, {rows, shape.back()}), ir::kI64);
  // The n-grams that are looked for, one after the other; zeros where the result has no other.
  std::vector<ValueId> parts;
  const int64_t width = *std::ranges::max_element(list.places) + 1;
  Ints from(static_cast<size_t>(width), -1);
  std::vector<double> weights;
  int64_t column = 0;
  for (const Grams& grams : list.by_length) {
    parts.push_back(CountsOf(c, x, grams, list.skips));
    for (int64_t g = grams.first; g < grams.first + grams.count(); ++g) {
      from[static_cast<size_t>(list.places[static_cast<size_t>(g)])] = column++;
      if (!list.weights.empty()) weights.push_back(list.weights[static_cast<size_t>(g)]);
    }
  }
  parts.push_back(c.BroadcastTo(c.Scalar(0, ir::kF32), {rows, 1}));
  for (int64_t& place : from) place = place < 0 ? column : place;
  ValueId counts = c.Concat(std::move(parts), 1);
  if (list.caps) counts = c.Op("min", {counts, c.Scalar(1, ir::kF32)});
  if (!weights.empty()) {
    weights.push_back(0);
    counts = c.Mul(counts, c.Constant(ir::kF32, {column + 1}, std::move(weights)));
  }
  const ValueId y = c.Op("gather", {counts, c.Integers({width}, from)}, {{"axis", int64_t{1}}});
  return c.Done(rank == 1 ? c.ReshapeTo(y, {width}) : y);
}

}  // namespace tilewright::graph::onnx
