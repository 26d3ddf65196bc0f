// Operators of com.microsoft that exporters of language models write: attention of grouped queries
// with a cache, rotary embeddings. All sizes may be open.
#include <algorithm>
#include <cmath>

#include "compiler/onnx/onnx_composer.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::graph::onnx {
namespace {

using op::Dim;
using support::StrCat;

// One GroupQueryAttention node: P entries of the cache, then S new ones, T in all. Where the
// sequences of a batch may differ in length, seqlens_k says how many entries each has; its new ones
// lie behind these, and what is behind them counts for nothing. Else positions follow from the
// sizes, and seqlens_k must agree: with one sequence, or a cache that is state, to which all append
// at one place.
class GroupedAttention {
 public:
  explicit GroupedAttention(NodeReader& n) : n_(n), c_(n) {}

  Result Run() {
    TW_TRY(ReadAttributes());
    TW_TRY(ReadOperands());
    TW_TRY(ReadLengths());
    if (rotary_) TW_TRY(Turn());
    if (before_ != kNone) {
      k_ = Placed(past_k_, k_);
      v_ = Placed(past_v_, v_);
      q_ = c_.Transpose(q_, {0, 2, 1, 3});
    } else {
      for (ValueId* x : {&q_, &k_, &v_}) *x = c_.Transpose(*x, {0, 2, 1, 3});
      if (past_k_ != kNone) {
        k_ = c_.Concat({past_k_, k_}, 2);
        v_ = c_.Concat({past_v_, v_}, 2);
      }
    }
    TW_TRY(c_.status());
    if (n_.HasOutput(1)) TW_TRY(n_.BindOutput(1, k_));
    if (n_.HasOutput(2)) TW_TRY(n_.BindOutput(2, v_));
    return c_.Done(Attend());
  }

 private:
  absl::Status ReadAttributes() {
    TW_ASSIGN(heads_, n_.Int("num_heads", 0));
    TW_ASSIGN(kv_heads_, n_.Int("kv_num_heads", 0));
    TW_ASSIGN(scale_, n_.Float("scale", 0));
    TW_ASSIGN(softcap_, n_.Float("softcap", 0));
    TW_ASSIGN(window_, n_.Int("local_window_size", -1));
    TW_ASSIGN(const int64_t rotary, n_.Int("do_rotary", 0));
    TW_ASSIGN(const int64_t pairs, n_.Int("rotary_interleaved", 0));
    TW_ASSIGN(const int64_t smooth, n_.Int("smooth_softmax", 0));
    rotary_ = rotary != 0;
    pairs_ = pairs != 0;
    if (heads_ < 1 || kv_heads_ < 1 || heads_ % kv_heads_ != 0) {
      return n_.Error("attribute",
                      StrCat("expected num_heads as a multiple of kv_num_heads, found ", heads_,
                             " and ", kv_heads_));
    }
    smooth_ = smooth > 0 || n_.HasInput(11);
    if (!n_.HasOutput(3)) return absl::OkStatus();
    return n_.Error("outputs", "expected no output_qk, found one");
  }

  // Makes q, k and v of [batch, length, heads, head].
  absl::Status ReadOperands() {
    q_ = c_.Input(0), k_ = c_.OptionalInput(1), v_ = c_.OptionalInput(2);
    past_k_ = c_.OptionalInput(3), past_v_ = c_.OptionalInput(4);
    TW_TRY(c_.status());
    const op::TensorType query = c_.TypeOf(q_);
    const bool packed = k_ == kNone;
    const int64_t all = packed ? heads_ + 2 * kv_heads_ : heads_;
    const std::optional<int64_t> width =
        query.rank() == 3 ? query.shape[2].constant() : std::nullopt;
    if (query.rank() == 3 && !width) {
      return n_.Error("open_size",
                      StrCat("expected a fixed width, found ", op::ToText(query), kGiveNumbers));
    }
    if (!width || *width % all != 0 || packed != (v_ == kNone) ||
        (past_k_ == kNone) != (past_v_ == kNone)) {
      return n_.Error(
          "shape", StrCat("expected [batch,length,hidden] with a whole number of heads, keys with "
                          "values, and both caches or none, found ",
                          op::ToText(query)));
    }
    batch_ = query.shape[0], length_ = query.shape[1];
    head_ = *width / all;
    if (packed) {
      const ValueId joint = q_;
      const auto part = [&](int64_t from, int64_t count) {
        return c_.Slice(joint, 2, from * head_, count * head_);
      };
      q_ = part(0, heads_);
      k_ = part(heads_, kv_heads_);
      v_ = part(heads_ + kv_heads_, kv_heads_);
    }
    q_ = c_.ReshapeTo(q_, {batch_, length_, heads_, head_});
    k_ = c_.ReshapeTo(k_, {batch_, length_, kv_heads_, head_});
    v_ = c_.ReshapeTo(v_, {batch_, length_, kv_heads_, head_});
    if (past_k_ != kNone && c_.ok()) {
      if (c_.Rank(past_k_) != 4) return n_.Error("rank", "expected caches of four dimensions");
      past_ = c_.TypeOf(past_k_).shape[2];
    }
    return c_.status();
  }

  // Rows of the tables of angles, of the positions of the new entries.
  ValueId Angles(int input) {
    const ValueId table = c_.Input(input);
    if (!c_.ok()) return kNone;
    if (c_.Rank(table) == 0) return c_.Fail("shape", "expected a table of angles");
    const Dim half = c_.TypeOf(table).shape.back();
    if (!n_.HasInput(9) && before_ != kNone) {
      const ValueId rows = c_.Op("gather", {table, Positions()}, {{"axis", int64_t{0}}});
      return c_.ReshapeTo(rows, {batch_, length_, 1, half});
    }
    if (!n_.HasInput(9)) {
      return c_.ReshapeTo(c_.Slice(table, 0, past_, length_), {1, length_, 1, half});
    }
    const ValueId rows = c_.Op("gather", {table, c_.Input(9)}, {{"axis", int64_t{0}}});
    return c_.ReshapeTo(rows, {batch_, length_, 1, half});
  }

  absl::Status Turn() {
    const ValueId cosine = Angles(7), sine = Angles(8);
    for (ValueId* x : {&q_, &k_}) *x = RotaryTurn(c_, *x, cosine, sine, pairs_);
    return c_.status();
  }

  // Sets the entries before the new ones of each sequence, i64 [batch, 1], where they may differ.
  // Else refuses runs whose seqlens_k is not T - 1 for each sequence.
  absl::Status ReadLengths() {
    if (!n_.HasInput(5)) return absl::OkStatus();
    const ValueId lengths = c_.Cast(c_.ReshapeTo(c_.Input(5), {batch_}), ir::kI64);
    const ValueId last = c_.CountingFrom(past_ + length_ - 1, 1);
    const bool apart = batch_ != Dim(1) && !n_.importer().keeps_state() && !AllOneLength();
    if (apart) {
      const ValueId entries = c_.Sub(lengths, c_.SizeOf(length_ - 1, ir::kI64));
      before_ = c_.ReshapeTo(c_.Op("max", {entries, c_.Number(0)}), {batch_, 1});
    }
    const std::string same = StrCat("seqlens_k ", c_.Input(5));
    if (!n_.importer().CheckOnce(same)) return c_.status();
    const std::string what = StrCat(
        "seqlens_k of ", n_.label(), ", less the length of the cache",
        n_.importer().keeps_state() ? " (sequences of a cache that is state have one length)" : "");
    ValueId off = c_.Sub(lengths, last);
    // Shorter ones have one entry at least.
    off = apart ? c_.Add(c_.Op("max", {off, c_.Number(0)}),
                         c_.Op("max", {c_.Op("neg", {lengths}), c_.Number(0)}))
                : c_.Op("abs", {off});
    c_.ExpectSizes(c_.Reduce("max", off, {0}), {0}, what);
    return c_.status();
  }

  // Whether the model itself says that all sequences have T entries.
  bool AllOneLength() {
    const Dim last = past_ + length_ - 1;
    const auto known = c_.ok() ? n_.importer().ConstantInts(c_.Input(5)) : std::nullopt;
    return known && last.is_constant() &&
           std::all_of(known->begin(), known->end(),
                       [&](int64_t length) { return length == last.value(); });
  }

  // Of the new entries, i64 [batch, length].
  ValueId Positions() {
    return c_.Add(before_, c_.ReshapeTo(c_.CountingFrom(0, length_), {1, length_}));
  }

  // The cache [batch, heads, P, head] with the new entries [batch, length, heads, head] of each
  // sequence behind its own; the last of them again behind these.
  ValueId Placed(ValueId past, ValueId fresh) {
    const Dim total = past_ + length_;
    if (past == kNone) return c_.Transpose(fresh, {0, 2, 1, 3});  // nothing is before them
    const ValueId column = c_.ReshapeTo(c_.CountingFrom(0, total), {1, total});
    ValueId place = c_.Op("max", {c_.Sub(column, before_), c_.Number(0)});
    place = c_.Op("min", {place, c_.SizeOf(length_ - 1, ir::kI64)});
    const ValueId first =
        c_.Mul(c_.ReshapeTo(c_.CountingFrom(0, batch_), {batch_, 1}), c_.SizeOf(length_, ir::kI64));
    const ValueId rows = c_.ReshapeTo(fresh, {batch_ * length_, kv_heads_, head_});
    const ValueId there = c_.Op("gather", {rows, c_.Add(place, first)}, {{"axis", int64_t{0}}});
    const ValueId whole = c_.Concat({past, c_.Transpose(fresh, {0, 2, 1, 3})}, 2);
    const ValueId old = c_.ReshapeTo(c_.Op("less", {column, before_}), {batch_, 1, total, 1});
    return c_.Op("where", {old, whole, c_.Transpose(there, {0, 2, 1, 3})});
  }

  // Added to the scores: minus infinity for keys that a query does not see.
  ValueId Mask() {
    const Dim total = past_ + length_;
    const bool apart = before_ != kNone;
    const ValueId row = apart ? c_.ReshapeTo(Positions(), {batch_, 1, length_, 1})
                              : c_.ReshapeTo(c_.CountingFrom(past_, length_), {length_, 1});
    const ValueId column = c_.ReshapeTo(c_.CountingFrom(0, total), {1, total});
    ValueId seen = c_.Op("less_equal", {column, row});
    if (window_ > 0) {
      const ValueId first = c_.Sub(row, c_.Number(window_));
      seen = c_.Op("and", {seen, c_.Op("less", {first, column})});
    }
    return Barred(c_, seen, c_.TypeOf(q_).dtype);
  }

  // Weights of keys whose sum is less than 1: next to the keys stands a sink, which takes the rest.
  // Its score is a number for each head, or 0.
  ValueId Weights(ValueId scores) {
    const op::Attrs last = {{"axis", int64_t{3}}};
    if (!smooth_) return c_.Op("softmax", {scores}, last);
    const ir::DType type = c_.TypeOf(q_).dtype;
    ValueId sink = c_.Scalar(0, type);
    if (n_.HasInput(11)) sink = c_.ReshapeTo(c_.Cast(c_.Input(11), type), {1, heads_, 1, 1});
    sink = c_.BroadcastTo(sink, {batch_, heads_, length_, 1});
    const ValueId all = c_.Op("softmax", {c_.Concat({scores, sink}, 3)}, last);
    return c_.Slice(all, 3, 0, past_ + length_);
  }

  // Query heads that share a key head are rows of one product.
  ValueId Attend() {
    const Dim total = past_ + length_;
    const int64_t shared = heads_ / kv_heads_;
    const Dim rows = Dim(shared) * length_;
    const ir::DType type = c_.TypeOf(q_).dtype;
    const double scale = scale_ != 0 ? scale_ : 1 / std::sqrt(static_cast<double>(head_));
    const ValueId query =
        c_.ReshapeTo(c_.Mul(q_, c_.Scalar(scale, type)), {batch_, kv_heads_, rows, head_});
    ValueId scores = c_.ReshapeTo(c_.MatMul(query, c_.Transpose(k_, {0, 1, 3, 2})),
                                  {batch_, heads_, length_, total});
    if (softcap_ > 0) {
      const ValueId cap = c_.Scalar(softcap_, type);
      scores = c_.Mul(c_.Op("tanh", {c_.Div(scores, cap)}), cap);
    }
    if (n_.HasInput(10)) scores = c_.Add(scores, c_.Cast(c_.Input(10), type));
    const ValueId weights = Weights(c_.Add(scores, Mask()));
    const ValueId mixed = c_.MatMul(c_.ReshapeTo(weights, {batch_, kv_heads_, rows, total}), v_);
    return HeadsJoined(c_, c_.ReshapeTo(mixed, {batch_, heads_, length_, head_}));
  }

  NodeReader& n_;
  Composer c_;
  int64_t heads_ = 0, kv_heads_ = 0, head_ = 0, window_ = -1;
  double scale_ = 0, softcap_ = 0;
  bool rotary_ = false, pairs_ = false, smooth_ = false;
  ValueId q_ = kNone, k_ = kNone, v_ = kNone, past_k_ = kNone, past_v_ = kNone;
  ValueId before_ = kNone;  // entries of each sequence before the new ones; none: P of all
  Dim batch_, length_, past_;
};

}  // namespace

Result ImportGroupQueryAttention(NodeReader& n) { return GroupedAttention(n).Run(); }

// As ONNX's operator, with other places of the operands. Positions may be one offset for all.
Result ImportMicrosoftRotaryEmbedding(NodeReader& n) {
  Composer c(n);
  ValueId positions = c.Input(1);
  TW_TRY(c.status());
  if (c.TypeOf(positions).fixed() && c.TypeOf(positions).elements() == 1) {
    const op::TensorType x = c.TypeOf(c.Input(0));
    const Dim length = x.rank() == 4 ? x.shape[2] : x.shape[x.rank() - 2];
    positions = c.Add(c.ReshapeTo(c.Cast(positions, ir::kI64), {}), c.CountingFrom(0, length));
    positions = c.ReshapeTo(positions, {1, length});
  }
  TW_ASSIGN(const double scale, n.Float("scale", 1));
  if (scale != 1) return n.Error("attribute", StrCat("expected scale 1, found ", scale));
  return RotaryEmbedding(c, c.Input(0), c.Input(2), c.Input(3), positions);
}

}  // namespace tilewright::graph::onnx
