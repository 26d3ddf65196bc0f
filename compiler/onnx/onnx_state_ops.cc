// Operators that carry a state from one call to the next: attention that is linear in the number
// of tokens, and causal convolutions. The state is an operand and a result. All lengths may be
// open.
#include <cmath>

#include "compiler/onnx/onnx_composer.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::graph::onnx {
namespace {

using op::Dim;
using support::StrCat;

// One LinearAttention node: the row linear_attention with heads as a dimension, in f32 at least.
class LinearAttention {
 public:
  explicit LinearAttention(NodeReader& n) : n_(n), c_(n) {}

  Result Run() {
    TW_TRY(ReadAttributes());
    TW_TRY(ReadOperands());
    const ValueId rows =
        c_.Op("linear_attention", std::move(operands_),
              {{"scale", scale_}, {"decay", int64_t{decays_}}, {"beta", int64_t{corrects_}}});
    const Dim of_tokens = length_ * Dim(shared());
    const ValueId state = c_.Cast(c_.Slice(rows, 2, of_tokens, key_), state_type_);
    TW_TRY(c_.status());
    if (n_.HasOutput(1)) TW_TRY(n_.BindOutput(1, state));
    ValueId y = c_.Slice(rows, 2, 0, of_tokens);
    y = c_.ReshapeTo(y, {batch_, kv_heads_, length_, shared(), value_});
    y = c_.ReshapeTo(c_.Transpose(y, {0, 2, 1, 3, 4}), {batch_, length_, heads_ * value_});
    return c_.Done(c_.Cast(y, type_));
  }

 private:
  int64_t shared() const { return heads_ / kv_heads_; }

  absl::Status ReadAttributes() {
    TW_ASSIGN(heads_, n_.Int("q_num_heads", 0));
    TW_ASSIGN(kv_heads_, n_.Int("kv_num_heads", 0));
    TW_ASSIGN(scale_, n_.Float("scale", 0));
    TW_ASSIGN(const std::string rule, n_.String("update_rule", "gated_delta"));
    decays_ = rule == "gated" || rule == "gated_delta";
    corrects_ = rule == "delta" || rule == "gated_delta";
    if (!decays_ && !corrects_ && rule != "linear") {
      return n_.Error("attribute",
                      StrCat("expected update_rule linear, gated, delta or gated_delta, found ",
                             support::Quote(rule)));
    }
    if (heads_ < 1 || kv_heads_ < 1 || heads_ % kv_heads_ != 0) {
      return n_.Error("attribute", StrCat("expected q_num_heads as a multiple of kv_num_heads, "
                                          "found ",
                                          heads_, " and ", kv_heads_));
    }
    if (n_.HasInput(4) == decays_ && n_.HasInput(5) == corrects_) return absl::OkStatus();
    return n_.Error("inputs", StrCat("expected decay for the rules gated and gated_delta alone, "
                                     "and beta for delta and gated_delta alone, found others for ",
                                     rule));
  }

  // The size of a head of input `i`, [batch, length, heads * size].
  absl::StatusOr<int64_t> HeadSize(int i, int64_t heads) {
    const op::TensorType type = c_.TypeOf(c_.Input(i));
    TW_TRY(c_.status());
    const std::optional<int64_t> width = type.rank() == 3 ? type.shape[2].constant() : std::nullopt;
    if (type.rank() == 3 && !width) {
      return n_.Error("open_size",
                      StrCat("expected a fixed width, found ", op::ToText(type), kGiveNumbers));
    }
    if (width && *width % heads == 0 && *width > 0) return *width / heads;
    return n_.Error("shape", StrCat("expected [batch,length,width] with a width that ", heads,
                                    " heads divide, found ", op::ToText(type)));
  }

  absl::Status BadWidth(int i, int64_t size) {
    return n_.Error(
        "shape", StrCat("expected ", n_.node().input(i), " of 1 or ", size, " numbers for each of ",
                        kv_heads_, " heads, found ", op::ToText(c_.TypeOf(c_.Input(i)))));
  }

  ValueId Heads(int i, int64_t heads, int64_t size) {
    return c_.Cast(c_.ReshapeTo(c_.Input(i), {batch_, length_, heads, size}), wide_);
  }

  absl::Status ReadOperands() {
    TW_ASSIGN(key_, HeadSize(0, heads_));
    TW_ASSIGN(const int64_t key, HeadSize(1, kv_heads_));
    TW_ASSIGN(value_, HeadSize(2, kv_heads_));
    const op::TensorType query = c_.TypeOf(c_.Input(0));
    if (key != key_ || !query.dtype.is_float()) {
      return n_.Error("shape",
                      StrCat("expected floats, and queries and keys of one size, found ",
                             op::ToText(query), " and ", op::ToText(c_.TypeOf(c_.Input(1)))));
    }
    batch_ = query.shape[0], length_ = query.shape[1];
    type_ = state_type_ = query.dtype;
    wide_ = type_.bits < 32 ? ir::kF32 : type_;
    if (scale_ == 0) scale_ = 1 / std::sqrt(static_cast<double>(key_));
    operands_ = {Heads(0, heads_, key_), Heads(1, kv_heads_, key_), Heads(2, kv_heads_, value_),
                 State()};
    if (decays_) {
      TW_ASSIGN(const int64_t width, HeadSize(4, kv_heads_));
      if (width != 1 && width != key_) return BadWidth(4, key_);
      operands_.push_back(Heads(4, kv_heads_, width));
    }
    if (corrects_) {
      TW_ASSIGN(const int64_t width, HeadSize(5, 1));
      if (width != 1 && width != kv_heads_) return BadWidth(5, 1);
      const int64_t own = width == 1 ? 1 : kv_heads_;  // one for all heads, or one for each
      operands_.push_back(c_.BroadcastTo(Heads(5, own, 1), {batch_, length_, kv_heads_, 1}));
    }
    return c_.status();
  }

  ValueId State() {
    const std::vector<Dim> shape = {batch_, kv_heads_, key_, value_};
    if (!n_.HasInput(3)) return c_.BroadcastTo(c_.Scalar(0, wide_), shape);
    const ValueId past = c_.Input(3);
    if (c_.ok()) state_type_ = c_.TypeOf(past).dtype;
    return c_.Cast(past, wide_);
  }

  NodeReader& n_;
  Composer c_;
  int64_t heads_ = 0, kv_heads_ = 0, key_ = 0, value_ = 0;
  double scale_ = 0;
  bool decays_ = false, corrects_ = false;
  Dim batch_, length_;
  ir::DType type_ = ir::kF32, state_type_ = ir::kF32, wide_ = ir::kF32;
  std::vector<ValueId> operands_;
};

}  // namespace

Result ImportLinearAttention(NodeReader& n) { return LinearAttention(n).Run(); }

// A window of each channel over the elements before it: those of the state, zeros without one, lie
// in front of the first. The state after it is the last elements of both.
Result ImportCausalConvWithState(NodeReader& n) {
  Composer c(n);
  const ValueId x = c.Input(0), weight = c.Input(1), bias = c.OptionalInput(2);
  ValueId past = c.OptionalInput(3);
  TW_ASSIGN(const std::string activation, n.String("activation", "none"));
  TW_TRY(c.status());
  const op::TensorType type = c.TypeOf(x);
  const std::vector<int64_t> w = c.Shape(weight);
  TW_TRY(c.status());
  if (activation != "none" && activation != "silu" && activation != "swish") {
    return n.Error("attribute", StrCat("expected activation silu, swish or none, found ",
                                       support::Quote(activation)));
  }
  if (type.rank() != 3 || w.size() != 3 || type.shape[1].constant().value_or(w[0]) != w[0] ||
      w[1] != 1 || w[2] < 1) {
    return n.Error("shape", StrCat("expected [batch,channels,length] and weights "
                                   "[channels,1,window], found ",
                                   op::ToText(type), " and ", op::ToText(c.TypeOf(weight))));
  }
  const Dim batch = type.shape[0], channels = type.shape[1], length = type.shape[2];
  const int64_t kept = w[2] - 1;
  ValueId whole = x;
  if (kept > 0) {
    if (past == kNone) past = c.BroadcastTo(c.Scalar(0, type.dtype), {batch, channels, kept});
    whole = c.Concat({past, x}, 2);
  }
  if (n.HasOutput(1)) {
    const ValueId state = c.Slice(whole, 2, length, kept);
    TW_TRY(c.status());
    TW_TRY(n.BindOutput(1, state));
  }
  std::vector<ValueId> operands = {c.ReshapeTo(whole, {batch, channels, 1, length + Dim(kept)}),
                                   c.Reshape(weight, {w[0], 1, 1, w[2]})};
  if (bias != kNone) operands.push_back(bias);
  const ValueId sums = c.Op("conv2d", std::move(operands),
                            {{"groups", w[0]}, {"weight_layout", std::string("OIHW")}});
  ValueId y = c.ReshapeTo(sums, type.shape);
  if (activation != "none") y = c.Op("swish", {y});
  return c.Done(y);
}

}  // namespace tilewright::graph::onnx
