// Attention with its masks and caches, and rotary position embeddings, as compositions.
#include <cmath>
#include <limits>
#include <numeric>

#include "compiler/onnx/onnx_composer.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::graph::onnx {
namespace {

using support::StrCat;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct AttentionAttrs {
  bool causal = false;
  double softcap = 0, scale = 0;
  int64_t output_mode = 0, left = -1, right = -1;
  std::optional<ir::DType> softmax_type;
};

absl::StatusOr<AttentionAttrs> ReadAttentionAttrs(NodeReader& n, int64_t head) {
  AttentionAttrs a;
  TW_ASSIGN(const int64_t causal, n.Int("is_causal", 0));
  a.causal = causal != 0;
  TW_ASSIGN(a.softcap, n.Float("softcap", 0));
  TW_ASSIGN(a.scale, n.Float("scale", 1 / std::sqrt(static_cast<double>(head))));
  TW_ASSIGN(a.output_mode, n.Int("qk_matmul_output_mode", 0));
  TW_ASSIGN(a.left, n.Int("left_window_size", -1));
  TW_ASSIGN(a.right, n.Int("right_window_size", -1));
  if (n.Find("softmax_precision") != nullptr) {
    TW_ASSIGN(const int64_t precision, n.Int("softmax_precision", 0));
    if (precision != 0) {
      TW_ASSIGN(a.softmax_type, ElementType(precision));
      if (!a.softmax_type->is_float()) return n.Error("attribute", "expected a float type");
    }
  }
  if (a.output_mode < 0 || a.output_mode > 3) {
    return n.Error("attribute", "expected qk_matmul_output_mode 0 to 3, found another");
  }
  return a;
}

// One Attention node. Query heads that share a key head are rows of one product: q is
// [batch, kv_heads, repeats * q_length, head].
class AttentionBuilder {
 public:
  explicit AttentionBuilder(NodeReader& n) : n_(n), c_(n) {}

  Result Run() {
    q_ = c_.Input(0), k_ = c_.Input(1), v_ = c_.Input(2);
    mask_ = c_.OptionalInput(3);
    TW_TRY(c_.status());
    type_ = c_.TypeOf(q_).dtype;
    TW_TRY(SplitHeads());
    TW_TRY(AddCache());
    TW_TRY(CheckShapes());
    TW_ASSIGN(attrs_, ReadAttentionAttrs(n_, q_shape()[3].value()));
    lengths_ = c_.OptionalInput(6);
    const ValueId bias = Bias();
    ValueId scores = Scores();
    const ValueId raw = scores;
    if (attrs_.softcap > 0) {
      const ValueId cap = c_.Scalar(attrs_.softcap, type_);
      scores = c_.Mul(c_.Op("tanh", {c_.Div(scores, cap)}), cap);
    }
    const ValueId capped = scores;
    if (bias != kNone) scores = c_.Add(scores, bias);
    const ValueId weights = Weights(scores, bias);
    const ValueId shown[] = {raw, capped, scores, weights};
    TW_TRY(c_.status());
    if (n_.HasOutput(1)) TW_TRY(n_.BindOutput(1, k_));
    if (n_.HasOutput(2)) TW_TRY(n_.BindOutput(2, v_));
    if (n_.HasOutput(3)) TW_TRY(n_.BindOutput(3, shown[attrs_.output_mode]));
    return c_.Done(Output(weights));
  }

 private:
  std::vector<op::Dim> q_shape() { return c_.Dims(q_); }
  op::Dim q_length() { return c_.Dims(q_)[2]; }
  op::Dim kv_length() { return c_.Dims(k_)[2]; }

  absl::Status SplitHeads() {
    const size_t rank = q_shape().size();
    flat_ = rank == 3;
    if ((rank != 3 && rank != 4) || c_.Dims(k_).size() != rank || c_.Dims(v_).size() != rank) {
      return n_.Error("rank", "expected Q, K and V of three or of four dimensions, found others");
    }
    if (!flat_) return absl::OkStatus();
    TW_ASSIGN(const int64_t q_heads, n_.Int("q_num_heads", 0));
    TW_ASSIGN(const int64_t kv_heads, n_.Int("kv_num_heads", 0));
    const auto divide = [&](int64_t heads, ValueId x) {
      return heads >= 1 && c_.Dims(x)[2].constant().value_or(0) % heads == 0;
    };
    if (!divide(q_heads, q_) || !divide(kv_heads, k_) || !divide(kv_heads, v_)) {
      return n_.Error("attribute", "expected numbers of heads that divide Q, K and V");
    }
    q_ = HeadsApart(c_, q_, q_heads);
    k_ = HeadsApart(c_, k_, kv_heads);
    v_ = HeadsApart(c_, v_, kv_heads);
    return c_.status();
  }

  absl::Status AddCache() {
    if (n_.HasInput(4) != n_.HasInput(5)) {
      return n_.Error("inputs", "expected past_key and past_value, found one of them");
    }
    if (!n_.HasInput(4)) return absl::OkStatus();
    const ValueId past_k = c_.Input(4), past_v = c_.Input(5);
    TW_TRY(c_.status());
    if (c_.Rank(past_k) != 4) return n_.Error("rank", "expected a past_key of four dimensions");
    offset_ = c_.Dims(past_k)[2];
    k_ = c_.Concat({past_k, k_}, 2);
    v_ = c_.Concat({past_v, v_}, 2);
    return c_.status();
  }

  absl::Status CheckShapes() {
    const std::vector<op::Dim> q = q_shape(), k = c_.Dims(k_), v = c_.Dims(v_);
    for (const op::Dim& dim : {q[1], k[1], v[1], q[3], k[3], v[3]}) {
      if (dim.is_constant()) continue;
      return n_.Error("open_size",
                      StrCat("expected fixed numbers of heads and sizes of them, found ",
                             op::ToText(c_.TypeOf(q_)), kGiveNumbers));
    }
    const auto differ = [](const op::Dim& a, const op::Dim& b) {
      return (a - b).constant().value_or(0) != 0;  // open sizes are settled with the graph
    };
    if (!differ(q[0], k[0]) && !differ(k[0], v[0]) && k[1] == v[1] &&
        q[1].value() % k[1].value() == 0 && !differ(k[2], v[2]) && q[3] == k[3]) {
      return absl::OkStatus();
    }
    return n_.Error("shape", StrCat("expected Q, K and V that belong together, found ",
                                    op::ToText(c_.TypeOf(q_)), ", ", op::ToText(c_.TypeOf(k_)),
                                    ", ", op::ToText(c_.TypeOf(v_))));
  }

  ValueId Scores() {
    const std::vector<op::Dim> q = q_shape(), k = c_.Dims(k_);
    if (!c_.ok()) return kNone;
    const ValueId scaled = c_.Mul(q_, c_.Scalar(attrs_.scale, type_));
    const op::Dim repeats = q[1].value() / k[1].value();
    const ValueId rows = c_.ReshapeTo(scaled, {q[0], k[1], repeats * q[2], q[3]});
    return c_.ReshapeTo(c_.MatMul(rows, c_.Transpose(k_, {0, 1, 3, 2})), {q[0], q[1], q[2], k[2]});
  }

  ValueId Barred(ValueId allowed) { return onnx::Barred(c_, allowed, type_); }
  void Join(ValueId* bias, ValueId part) { *bias = *bias == kNone ? part : c_.Add(*bias, part); }

  // What is added to the scores: the mask, the causal frontier, the window, the padding.
  ValueId Bias() {
    ValueId bias = kNone;
    if (mask_ != kNone) bias = Mask();
    ValueId offset = c_.SizeOf(offset_, ir::kI64);
    if (lengths_ != kNone) {
      lengths_ = c_.ReshapeTo(c_.Cast(lengths_, ir::kI64), {q_shape()[0], 1, 1, 1});
      offset = c_.Sub(lengths_, c_.SizeOf(q_length(), ir::kI64));
    }
    const ValueId row = c_.Counting(ir::kI64, q_length(), 0, 2);
    const ValueId column = c_.Counting(ir::kI64, kv_length(), 1, 2);
    const ValueId place = c_.Add(row, offset);  // of each query among the keys
    auto shifted = [&](int64_t by) {
      return c_.Add(place, c_.Scalar(static_cast<double>(by), ir::kI64));
    };
    if (attrs_.causal) Join(&bias, Barred(c_.Op("less_equal", {column, place})));
    if (attrs_.left >= 0) {
      Join(&bias, Barred(c_.Op("greater_equal", {column, shifted(-attrs_.left)})));
    }
    if (attrs_.right >= 0) {
      Join(&bias, Barred(c_.Op("less_equal", {column, shifted(attrs_.right)})));
    }
    if (lengths_ != kNone) Join(&bias, Barred(c_.Op("less", {column, lengths_})));
    return bias;
  }

  // Keys that a shorter mask does not reach are masked.
  ValueId Mask() {
    ValueId mask = mask_;
    if (c_.TypeOf(mask).dtype.is_bool()) mask = Barred(mask);
    std::vector<op::Dim> shape = c_.Dims(mask);
    if (!c_.ok() || shape.empty()) return mask;
    const op::Dim missing = kv_length() - shape.back();
    // A mask of one column broadcasts. With open sizes, others have all columns.
    if (missing.constant().value_or(0) <= 0 || shape.back() == op::Dim(1)) return mask;
    shape.back() = missing;
    const ValueId rest = c_.BroadcastTo(c_.Scalar(-kInfinity, type_), shape);
    return c_.Concat({mask, rest}, static_cast<int64_t>(shape.size()) - 1);
  }

  // Rows without any key that is allowed are zeros, not NaN.
  ValueId Weights(ValueId scores, ValueId bias) {
    const ir::DType wide = attrs_.softmax_type.value_or(type_);
    ValueId weights = c_.Op("softmax", {c_.Cast(scores, wide)}, {{"axis", int64_t{3}}});
    const bool each_row_has_a_key =
        mask_ == kNone && lengths_ == kNone && attrs_.left < 0 && attrs_.right < 0;
    if (bias != kNone && !each_row_has_a_key && c_.ok()) {
      const ValueId best = c_.Reduce("max", bias, {c_.Rank(bias) - 1});
      const ValueId none = c_.Op("equal", {best, c_.Scalar(-kInfinity, type_)});
      weights = c_.Op("where", {none, c_.Scalar(0, wide), weights});
    }
    return c_.Cast(weights, type_);
  }

  ValueId Output(ValueId weights) {
    if (!c_.ok()) return kNone;
    const std::vector<op::Dim> w = c_.Dims(weights), v = c_.Dims(v_);
    const op::Dim repeats = w[1].value() / v[1].value();
    const ValueId rows = c_.ReshapeTo(weights, {w[0], v[1], repeats * w[2], w[3]});
    const ValueId y = c_.ReshapeTo(c_.MatMul(rows, c_.Cast(v_, type_)), {w[0], w[1], w[2], v[3]});
    return flat_ ? HeadsJoined(c_, y) : y;
  }

  NodeReader& n_;
  Composer c_;
  AttentionAttrs attrs_;
  ValueId q_ = kNone, k_ = kNone, v_ = kNone, mask_ = kNone, lengths_ = kNone;
  ir::DType type_ = ir::kF32;
  bool flat_ = false;
  op::Dim offset_;  // keys in front of the first query
};

}  // namespace

ValueId HeadsApart(Composer& c, ValueId x, int64_t heads) {
  const std::vector<op::Dim> s = c.Dims(x);
  return c.Transpose(c.ReshapeTo(x, {s[0], s[1], heads, s[2].FloorDiv(heads)}), {0, 2, 1, 3});
}

ValueId HeadsJoined(Composer& c, ValueId x) {
  const std::vector<op::Dim> s = c.Dims(x);
  return c.ReshapeTo(c.Transpose(x, {0, 2, 1, 3}), {s[0], s[2], s[1] * s[3]});
}

ValueId Barred(Composer& c, ValueId allowed, ir::DType type) {
  return c.Op("where", {allowed, c.Scalar(0, type), c.Scalar(-kInfinity, type)});
}

Result ImportAttention(NodeReader& n) { return AttentionBuilder(n).Run(); }

// Pairs of elements turned by the angle of their position: the halves of a head, or neighbours. `x`
// is [batch, length, heads, head]; the tables broadcast to [batch, length, 1, half]. What is behind
// twice the half stays.
ValueId RotaryTurn(Composer& c, ValueId x, ValueId cosine, ValueId sine, bool pairs) {
  if (!c.ok()) return kNone;
  const std::vector<op::Dim> shape = c.TypeOf(x).shape;
  if (c.Rank(cosine) == 0) return c.Fail("shape", "expected tables of angles, found a number");
  const std::optional<int64_t> head = shape[3].constant();
  const std::optional<int64_t> half = c.TypeOf(cosine).shape.back().constant();
  if (!head || !half) {
    return c.Fail("open_size", StrCat("expected heads of fixed size, found ",
                                      op::ToText(c.TypeOf(x)), kGiveNumbers));
  }
  if (2 * *half > *head || c.TypeOf(sine).shape != c.TypeOf(cosine).shape) {
    return c.Fail("shape", StrCat("expected equal tables of angles for at most a head, found ",
                                  op::ToText(c.TypeOf(cosine)), " and ", op::ToText(c.TypeOf(sine)),
                                  " for ", op::ToText(c.TypeOf(x))));
  }
  const auto part = [&](int64_t start, int64_t step) {
    Result id =
        Sliced(c.node(), x, 3, start, *half == 1 ? 1 : step, *half, PartName(c.node(), "_half"));
    return id.ok() ? *id : c.Fail("shape", support::StatusText(id.status()));
  };
  const ValueId a = part(0, pairs ? 2 : 1), b = part(pairs ? 1 : *half, pairs ? 2 : 1);
  ValueId real = c.Sub(c.Mul(cosine, a), c.Mul(sine, b));
  ValueId imaginary = c.Add(c.Mul(sine, a), c.Mul(cosine, b));
  if (pairs) {
    const std::vector<op::Dim> single = {shape[0], shape[1], shape[2], *half, 1};
    real = c.ReshapeTo(real, single);
    imaginary = c.ReshapeTo(imaginary, single);
  }
  ValueId y = c.Concat({real, imaginary}, pairs ? 4 : 3);
  const int64_t turned = 2 * *half;
  y = c.ReshapeTo(y, {shape[0], shape[1], shape[2], turned});
  return turned < *head ? c.Concat({y, c.Slice(x, 3, turned, *head - turned)}, 3) : y;
}

// `positions` [batch, length] choose rows of the tables; without them the tables are of [batch,
// length, half].
Result RotaryEmbedding(Composer& c, ValueId x, ValueId cosine, ValueId sine, ValueId positions) {
  NodeReader& n = c.node();
  TW_TRY(c.status());
  TW_ASSIGN(const int64_t interleaved, n.Int("interleaved", 0));
  TW_ASSIGN(const int64_t given, n.Int("rotary_embedding_dim", 0));
  TW_ASSIGN(int64_t heads, n.Int("num_heads", 0));
  const std::vector<op::Dim> shape = c.TypeOf(x).shape;
  if (shape.empty() || c.Rank(cosine) == 0) {
    return n.Error("shape", "expected heads and a table of angles, found single numbers");
  }
  const int64_t table = c.TypeOf(cosine).shape.back().constant().value_or(0);
  const int64_t width = shape.back().constant().value_or(0);
  if (width == 0) {
    return n.Error("open_size", StrCat("expected heads of fixed size, found ",
                                       op::ToText(c.TypeOf(x)), kGiveNumbers));
  }
  // com.microsoft leaves the number of heads out where whole heads turn.
  if (shape.size() == 3 && heads == 0 && given == 0 && table > 0 && !n.domain().empty()) {
    heads = width / (2 * table);
  }
  if (shape.size() == 4) {
    x = c.Transpose(x, {0, 2, 1, 3});
  } else if (shape.size() == 3 && heads > 0 && width > 0 && width % heads == 0) {
    x = c.ReshapeTo(x, {shape[0], shape[1], heads, width / heads});
  } else {
    return n.Error("shape", "expected four dimensions, or three and a number of heads that fits");
  }
  TW_TRY(c.status());
  const std::vector<op::Dim> s = c.TypeOf(x).shape;  // [batch, length, heads, head]
  const int64_t head = s[3].constant().value_or(0), turned = given == 0 ? head : given;
  if (turned < 2 || turned > head || turned % 2 != 0) {
    return n.Error("attribute", StrCat("expected an even rotary_embedding_dim, found ", turned));
  }
  const int64_t half = turned / 2;
  for (ValueId* cache : {&cosine, &sine}) {
    if (positions != kNone) *cache = c.Op("gather", {*cache, positions}, {{"axis", int64_t{0}}});
    const std::vector<op::Dim> found = c.TypeOf(*cache).shape;
    const bool rows =
        found.size() == 3 && (found[0] == s[0] || found[0] == op::Dim(1) || !s[0].is_constant());
    if (c.ok() && (!rows || (found[2].is_constant() && found[2] != op::Dim(half)))) {
      c.Fail("shape",
             StrCat("expected tables of angles of ", op::DimsText({s[0], s[1], op::Dim(half)}),
                    ", found ", op::ToText(c.TypeOf(*cache))));
    }
    if (c.ok()) *cache = c.ReshapeTo(*cache, {found[0], found[1], 1, half});
  }
  const ValueId y = RotaryTurn(c, x, cosine, sine, interleaved != 0);
  if (shape.size() == 4) return c.Done(c.Transpose(y, {0, 2, 1, 3}));
  return c.Done(c.ReshapeTo(y, shape));
}

Result ImportRotaryEmbedding(NodeReader& n) {
  Composer c(n);
  const ValueId x = c.Input(0), cosine = c.Input(1), sine = c.Input(2);
  return RotaryEmbedding(c, x, cosine, sine, c.OptionalInput(3));
}

}  // namespace tilewright::graph::onnx
