// Attention of com.microsoft with as many key heads as query heads (MultiHeadAttention, and
// Attention, which has the projections inside), and the norm of the sums of embeddings. All sizes
// but those of heads may be open.
#include <cmath>

#include "compiler/onnx/onnx_composer.h"
#include "compiler/onnx/onnx_norm_ops.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::graph::onnx {
namespace {

using op::Dim;
using support::StrCat;

// One node: P entries of the cache, then L new ones, T in all, for S queries.
class HeadsAttention {
 public:
  explicit HeadsAttention(NodeReader& n) : n_(n), c_(n) {}

  // Operands apart, or several in one tensor of five dimensions.
  Result Apart() {
    TW_TRY(ReadAttributes());
    if (n_.HasInput(8) || n_.HasInput(9) || n_.HasOutput(3)) {
      return n_.Error("inputs",
                      "expected no past_sequence_length, cache_indirection and output qk, found "
                      "one; export the model with a cache of exactly the past entries");
    }
    if (n_.HasInput(6) != n_.HasInput(7)) {
      return n_.Error("inputs", "expected past_key and past_value, found one of them");
    }
    TW_TRY(ReadOperands());
    TW_TRY(AddCache(c_.OptionalInput(6), c_.OptionalInput(7)));
    if (n_.HasOutput(1)) TW_TRY(n_.BindOutput(1, k_));
    if (n_.HasOutput(2)) TW_TRY(n_.BindOutput(2, v_));
    TW_TRY(ReadMask(4));
    if (n_.HasInput(5)) Join(c_.Input(5));
    return c_.Done(Attend());
  }

  // Projections of one operand; the cache has keys and values in one tensor.
  Result Projected() {
    TW_TRY(ReadAttributes());
    TW_ASSIGN(const int64_t rotary, n_.Int("do_rotary", 0));
    TW_ASSIGN(const int64_t shared, n_.Int("past_present_share_buffer", 0));
    if (rotary != 0 || shared != 0 || n_.HasInput(6)) {
      return n_.Error("attribute",
                      "expected no do_rotary, past_present_share_buffer and past_sequence_length, "
                      "found one; export the model with a cache of exactly the past entries");
    }
    TW_TRY(Project());
    const ValueId past = c_.OptionalInput(4);
    const auto half = [&](int64_t which) {
      std::vector<Dim> shape = c_.Dims(past);
      shape.erase(shape.begin());
      return c_.ReshapeTo(c_.Slice(past, 0, which, 1), shape);
    };
    if (past != kNone && c_.ok() && c_.Rank(past) != 5) {
      return n_.Error("rank", StrCat("expected a past of five dimensions, found ",
                                     op::ToText(c_.TypeOf(past))));
    }
    TW_TRY(past == kNone ? AddCache(kNone, kNone) : AddCache(half(0), half(1)));
    if (n_.HasOutput(1)) {
      TW_TRY(n_.BindOutput(1, c_.Concat({InFront(k_), InFront(v_)}, 0)));
    }
    TW_TRY(ReadMask(3));
    if (n_.HasInput(5)) Join(c_.Input(5));
    return c_.Done(Attend());
  }

 private:
  absl::Status ReadAttributes() {
    TW_ASSIGN(heads_, n_.Int("num_heads", 0));
    TW_ASSIGN(scale_, n_.Float("scale", 0));
    TW_ASSIGN(filter_, n_.Float("mask_filter_value", -10000));
    TW_ASSIGN(const int64_t causal, n_.Int("unidirectional", 0));
    causal_ = causal != 0;
    if (heads_ >= 1) return absl::OkStatus();
    return n_.Error("attribute", StrCat("expected num_heads of at least 1, found ", heads_));
  }

  // The width of [batch, length, width], which is a whole number of heads.
  absl::StatusOr<int64_t> Width(ValueId x) {
    TW_TRY(c_.status());
    const op::TensorType type = c_.TypeOf(x);
    if (type.rank() == 3 && !type.shape[2].is_constant()) {
      return n_.Error("open_size",
                      StrCat("expected a fixed width, found ", op::ToText(type), kGiveNumbers));
    }
    if (type.rank() == 3 && type.shape[2].value() % heads_ == 0) return type.shape[2].value();
    return n_.Error("shape", StrCat("expected [batch,length,width] with ", heads_,
                                    " heads in the width, found ", op::ToText(type)));
  }

  // [batch, length, width] → [batch, heads, length, head], plus the bias from `first` on.
  Result Split(ValueId x, ValueId bias, int64_t first) {
    TW_ASSIGN(const int64_t width, Width(x));
    if (bias != kNone) x = c_.Add(x, c_.Slice(bias, 0, first, width));
    return c_.Done(HeadsApart(c_, x, heads_));
  }

  // Part `which` of [batch, length, heads, parts, head] as [batch, length, heads * head].
  ValueId Unpacked(ValueId x, int64_t which) {
    const std::vector<Dim> s = c_.Dims(x);
    return c_.ReshapeTo(c_.Slice(x, 3, which, 1), {s[0], s[1], s[2] * s[4]});
  }

  absl::Status CheckPacked(ValueId x, int64_t parts) {
    const op::TensorType type = c_.TypeOf(x);
    for (int64_t d = 2; type.rank() == 5 && d < 5; ++d) {
      if (type.shape[d].is_constant()) continue;
      return n_.Error("open_size",
                      StrCat("expected fixed numbers of heads and sizes of them, found ",
                             op::ToText(type), kGiveNumbers));
    }
    if (type.rank() == 5 && type.shape[2] == Dim(heads_) && type.shape[3] == Dim(parts)) {
      return absl::OkStatus();
    }
    return n_.Error("shape",
                    StrCat("expected [batch,length,", heads_, ",", parts,
                           ",head] where operands are in one tensor, found ", op::ToText(type)));
  }

  absl::Status ReadOperands() {
    ValueId q = c_.Input(0), k = c_.OptionalInput(1), v = c_.OptionalInput(2);
    const ValueId bias = c_.OptionalInput(3);
    TW_TRY(c_.status());
    if (k == kNone) {
      TW_TRY(CheckPacked(q, 3));
      const ValueId joint = q;
      q = Unpacked(joint, 0), k = Unpacked(joint, 1), v = Unpacked(joint, 2);
    } else if (v == kNone) {
      TW_TRY(CheckPacked(k, 2));
      const ValueId joint = k;
      k = Unpacked(joint, 0), v = Unpacked(joint, 1);
    }
    TW_ASSIGN(const int64_t width, Width(q));
    TW_ASSIGN(q_, Split(q, bias, 0));
    if (c_.Rank(k) == 4) {  // by heads already, and with their bias
      k_ = k, v_ = v;
      return c_.status();
    }
    TW_ASSIGN(k_, Split(k, bias, width));
    TW_ASSIGN(v_, Split(v, bias, 2 * width));
    return absl::OkStatus();
  }

  absl::Status Project() {
    ValueId all = c_.MatMul(c_.Input(0), c_.Input(1));
    if (n_.HasInput(2)) all = c_.Add(all, c_.Input(2));
    TW_ASSIGN(const int64_t width, Width(all));
    TW_ASSIGN(const std::vector<int64_t> sizes,
              n_.Ints("qkv_hidden_sizes", {width / 3, width / 3, width / 3}));
    if (sizes.size() != 3 || sizes[0] != sizes[1] || sizes[0] + sizes[1] + sizes[2] != width ||
        sizes[0] % heads_ != 0 || sizes[2] % heads_ != 0) {
      return n_.Error("attribute",
                      StrCat("expected qkv_hidden_sizes of ", heads_, " heads each whose sum is ",
                             width, ", the first two equal, found others"));
    }
    TW_ASSIGN(q_, Split(c_.Slice(all, 2, 0, sizes[0]), kNone, 0));
    TW_ASSIGN(k_, Split(c_.Slice(all, 2, sizes[0], sizes[1]), kNone, 0));
    TW_ASSIGN(v_, Split(c_.Slice(all, 2, 2 * sizes[0], sizes[2]), kNone, 0));
    return absl::OkStatus();
  }

  absl::Status AddCache(ValueId past_k, ValueId past_v) {
    TW_TRY(c_.status());
    if (past_k != kNone) {
      if (c_.Rank(past_k) != 4) return n_.Error("rank", "expected caches of four dimensions");
      past_ = c_.Dims(past_k)[2];
      k_ = c_.Concat({past_k, k_}, 2);
      v_ = c_.Concat({past_v, v_}, 2);
      TW_TRY(c_.status());
    }
    batch_ = c_.Dims(q_)[0], length_ = c_.Dims(q_)[2], total_ = c_.Dims(k_)[2];
    return absl::OkStatus();
  }

  ValueId InFront(ValueId x) {
    std::vector<Dim> shape = c_.Dims(x);
    shape.insert(shape.begin(), 1);
    return c_.ReshapeTo(x, shape);
  }

  void Join(ValueId part) { bias_ = bias_ == kNone ? part : c_.Add(bias_, part); }

  // Keys that the mask leaves out get the filter value. The mask says the number of keys of each
  // sequence, or behind these numbers the first keys; or 1 for each key that counts.
  absl::Status ReadMask(int input) {
    if (!n_.HasInput(input)) return absl::OkStatus();
    ValueId mask = c_.Input(input);
    TW_TRY(c_.status());
    const std::vector<Dim> shape = c_.Dims(mask);
    ValueId seen = kNone;
    const auto same = [](const Dim& a, const Dim& b) {
      return (a - b).constant().value_or(0) == 0;  // open sizes are settled with the graph
    };
    if (shape.size() == 1 && (shape[0] == batch_ || shape[0] == batch_ * 2)) {
      const ValueId column = c_.CountingFrom(0, total_);
      const auto bound = [&](const Dim& from) {
        const ValueId part = c_.Slice(mask, 0, from, batch_);
        return c_.ReshapeTo(c_.Cast(part, ir::kI64), {batch_, 1, 1, 1});
      };
      seen = c_.Op("less", {column, bound(0)});
      if (shape[0] != batch_) {
        seen = c_.Op("and", {seen, c_.Op("greater_equal", {column, bound(batch_)})});
      }
    } else if (shape.size() == 2 && shape[1] == Dim(1) && total_ != Dim(1)) {
      return absl::OkStatus();  // a mask of one column stands for none
    } else if (shape.size() == 2 && same(shape[1], total_)) {
      mask = c_.ReshapeTo(mask, {batch_, 1, 1, total_});
    } else if (shape.size() == 3 && same(shape[1], length_) && same(shape[2], total_)) {
      mask = c_.ReshapeTo(mask, {batch_, 1, length_, total_});
    } else {
      return n_.Error("shape",
                      StrCat("expected a mask of [batch], [2*batch], [batch,keys] or "
                             "[batch,queries,keys], found ",
                             op::ToText(c_.TypeOf(mask)), "; export the model with one of these"));
    }
    if (seen == kNone) seen = c_.Op("greater", {mask, c_.Scalar(0, c_.TypeOf(mask).dtype)});
    const ir::DType type = c_.TypeOf(q_).dtype;
    Join(c_.Op("where", {seen, c_.Scalar(0, type), c_.Scalar(filter_, type)}));
    return c_.status();
  }

  // Minus infinity for keys behind a query's own.
  void AddCausal() {
    const ValueId row = c_.ReshapeTo(c_.CountingFrom(past_, length_), {length_, 1});
    const ValueId column = c_.ReshapeTo(c_.CountingFrom(0, total_), {1, total_});
    Join(Barred(c_, c_.Op("less_equal", {column, row}), c_.TypeOf(q_).dtype));
  }

  ValueId Attend() {
    if (!c_.ok()) return kNone;
    if (causal_) AddCausal();
    const Dim head = c_.Dims(q_)[3];
    const double scale = scale_ != 0 ? scale_ : 1 / std::sqrt(static_cast<double>(head.value()));
    const ValueId query = c_.Mul(q_, c_.Scalar(scale, c_.TypeOf(q_).dtype));
    ValueId scores = c_.MatMul(query, c_.Transpose(k_, {0, 1, 3, 2}));
    if (bias_ != kNone) scores = c_.Add(scores, bias_);
    const ValueId mixed = c_.MatMul(c_.Op("softmax", {scores}, {{"axis", int64_t{3}}}), v_);
    return HeadsJoined(c_, mixed);
  }

  NodeReader& n_;
  Composer c_;
  int64_t heads_ = 0;
  double scale_ = 0, filter_ = 0;
  bool causal_ = false;
  ValueId q_ = kNone, k_ = kNone, v_ = kNone;  // [batch, heads, length, head]
  ValueId bias_ = kNone;                       // added to the scores
  Dim batch_, length_, total_, past_;
};

}  // namespace

Result ImportMultiHeadAttention(NodeReader& n) { return HeadsAttention(n).Apart(); }
Result ImportMicrosoftAttention(NodeReader& n) { return HeadsAttention(n).Projected(); }

// The norm of the sum of three rows: of the word, of its place, of its segment. The second output
// has the number of words of each sequence, or zeros where there is no mask; the third one the sum.
Result ImportEmbedLayerNorm(NodeReader& n) {
  Composer c(n);
  const ValueId words = c.Input(0);
  TW_ASSIGN(const double epsilon, n.Float("epsilon", 1e-12));
  const auto rows = [&](int table, ValueId which) {
    return c.Op("gather", {c.Input(table), which}, {{"axis", int64_t{0}}});
  };
  TW_TRY(c.status());
  if (c.Rank(words) != 2) {
    return n.Error("rank", StrCat("expected input_ids of [batch,length], found ",
                                  op::ToText(c.TypeOf(words))));
  }
  const std::vector<Dim> shape = c.Dims(words);
  const ValueId places = n.HasInput(8) ? rows(3, c.Input(8)) : c.Slice(c.Input(3), 0, 0, shape[1]);
  ValueId sum = c.Add(rows(2, words), places);
  if (n.HasInput(1) != n.HasInput(4)) {
    return n.Error("inputs", "expected segment_ids and segment_embedding, found one of them");
  }
  if (n.HasInput(1)) sum = c.Add(sum, rows(4, c.Input(1)));
  TW_TRY(c.status());
  const Standard s = StandardizeRows(c, sum, epsilon);
  const ValueId y = c.Add(c.Mul(s.normalized, c.Input(5)), c.Input(6));
  ValueId count = kNone;
  if (n.HasOutput(1) && n.HasInput(7)) {
    const ValueId mask = c.Input(7);
    const ValueId one = c.Op("equal", {mask, c.Scalar(1, c.TypeOf(mask).dtype)});
    count = c.Reduce("sum", c.Cast(one, ir::kI32), {1}, false);
  } else if (n.HasOutput(1)) {
    count = c.BroadcastTo(c.Scalar(0, ir::kI32), {shape[0]});
  }
  TW_TRY(c.status());
  if (count != kNone) TW_TRY(n.BindOutput(1, count));
  if (n.HasOutput(2)) TW_TRY(n.BindOutput(2, sum));
  return c.Done(y);
}

}  // namespace tilewright::graph::onnx
