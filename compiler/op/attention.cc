// attention: softmax(scale * q kᵀ + mask) v in one kernel, which keeps no matrix of scores.
//   y[b,h,s,:] = Σ_t p[t] v[b,g,t,:] / Σ_t p[t],  p[t] = exp(x[t] - max x),
//   x[t] = cap(scale * q[b,h,s,:] · k[b,g,t,:]) + mask[b,h,s,t]
// Query head h reads key head g = h / n, where n query heads share a key head. Operands: q, k, v of
// four dimensions, in the order of the layouts q_layout, k_layout and v_layout (axes B: batch,
// H: heads, S: tokens, D: elements of a head; "BHSD" where absent), and maybe a mask that
// broadcasts to [b,h,s,t]. The result has y_layout. So keys are read where a cache has them.
// Attributes: scale; softcap c (x becomes c tanh(x / c)); causal (a token sees the keys up to its
// own, which is the last for the last token); dead_rows_zero (a token that sees no key gets zeros,
// not NaN); few_tokens (where their number is fixed; 1 where absent); and the tile: rows (queries)
// and keys.
//
// The kernel goes over blocks of keys with a running maximum and sum (online softmax):
//   for b, g, block of rows {  # rows: the queries that read key head g, token by token
//     m = lowest; l = 0; o = 0
//     for block of keys {
//       x = …; top = max(m, max x); a = exp(m - top); p = exp(x - top)
//       l = l a + Σ p;  o = o a + p v;  m = top
//     }
//     y = o / l
//   }
// Few tokens have lanes along the elements of a head (o is [row, d]). Many tokens have lanes along
// the rows: o and q are [d, row], so that keys and values are factors that all lanes share, and
// nothing of the cache is transposed (variant query_lanes). A block of keys is copied then.
#include "compiler/op/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "compiler/op/attention_problem.h"
#include "compiler/op/op_rows.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::op {

size_t TokenAxis(const Attrs& attrs) {
  return GetString(attrs, "q_layout", kAttentionAxes).find('S');
}

namespace {

using support::StrCat;

absl::Status BadAttention(std::string_view reason, std::string_view detail) {
  return OpError(kAttentionOp, reason, detail);
}

absl::Status ReadAttributes(const Attrs& attrs, AttentionProblem* p) {
  const std::pair<const char*, Layout*> layouts[] = {{"q_layout", &p->layouts.q},
                                                     {"k_layout", &p->layouts.k},
                                                     {"v_layout", &p->layouts.v},
                                                     {"y_layout", &p->layouts.y}};
  for (const auto& [name, layout] : layouts) {
    TW_ASSIGN(*layout, LayoutAttr(kAttentionOp, attrs, name, kAttentionAxes));
    if (layout->IsOrder()) continue;
    return BadAttention("attribute", StrCat("expected an order of the axes ", kAttentionAxes,
                                            " as ", name, ", found ", layout->ToText()));
  }
  p->scale = GetDouble(attrs, "scale", 1);
  p->softcap = GetDouble(attrs, "softcap", 0);
  p->causal = GetInt(attrs, "causal", 0) != 0;
  p->dead_rows_zero = GetInt(attrs, "dead_rows_zero", 0) != 0;
  p->tile_rows = GetInt(attrs, "rows", 32);
  p->tile_keys = GetInt(attrs, "keys", 64);
  p->few_tokens = GetInt(attrs, "few_tokens", 1);
  constexpr int64_t kMostTile = 1024;
  const bool tile = std::min(p->tile_rows, p->tile_keys) >= 1 &&
                    std::max(p->tile_rows, p->tile_keys) <= kMostTile;
  if (tile && p->softcap >= 0) return absl::OkStatus();
  return BadAttention("attribute", StrCat("expected rows and keys of 1 to ", kMostTile,
                                          " and a softcap of 0 or more, found ", p->tile_rows, ", ",
                                          p->tile_keys, " and ", p->softcap));
}

}  // namespace

absl::StatusOr<AttentionProblem> AttentionProblemOf(std::span<const TensorType> inputs,
                                                    const Attrs& attrs, DimEqualities* equal) {
  AttentionProblem p;
  TW_TRY(ReadAttributes(attrs, &p));
  for (size_t i = 0; i < 3; ++i) {
    if (inputs[i].shape.size() == 4 && inputs[i].dtype == ir::kF32) continue;
    return BadAttention("shape", StrCat("expected q, k and v of f32 with four dimensions, found ",
                                        ToText(inputs[i])));
  }
  const auto dim = [&](size_t i, const Layout& layout, char axis) -> const Dim& {
    return inputs[i].shape[layout.Dimension(axis)];
  };
  const AttentionLayouts& l = p.layouts;
  TW_ASSIGN(p.heads, Fixed(kAttentionOp, dim(0, l.q, 'H')));
  TW_ASSIGN(p.kv_heads, Fixed(kAttentionOp, dim(1, l.k, 'H')));
  TW_ASSIGN(p.head, Fixed(kAttentionOp, dim(0, l.q, 'D')));
  TW_ASSIGN(p.value, Fixed(kAttentionOp, dim(2, l.v, 'D')));
  p.batch = dim(0, l.q, 'B');
  p.tokens = dim(0, l.q, 'S');
  p.keys = dim(1, l.k, 'S');
  bool fits =
      MayEqual(p.batch, dim(1, l.k, 'B'), equal) && MayEqual(p.batch, dim(2, l.v, 'B'), equal) &&
      MayEqual(p.keys, dim(2, l.v, 'S'), equal) && MayEqual(p.head, dim(1, l.k, 'D'), equal) &&
      MayEqual(p.kv_heads, dim(2, l.v, 'H'), equal) && p.heads % p.kv_heads == 0;
  fits = fits && !(p.causal && SurelyBelow(p.keys, p.tokens));
  if (inputs.size() > 3) {
    p.mask = inputs[3].shape;
    std::vector<Dim> whole = {p.batch, p.heads, p.tokens, p.keys}, out;
    fits = fits && inputs[3].dtype == ir::kF32 && p.mask.size() <= 4 &&
           BroadcastDims(whole, p.mask, equal, &out) && out == whole;
  }
  if (fits) return p;
  return BadAttention(
      "shape", StrCat("expected q, k, v and a mask that belong together, found ", ToText(inputs[0]),
                      ", ", ToText(inputs[1]), ", ", ToText(inputs[2]),
                      inputs.size() > 3 ? " and " + ToText(inputs[3]) : ""));
}

namespace {

absl::StatusOr<TensorTypes> Infer(std::span<const TensorType> inputs, const Attrs& attrs,
                                  DimEqualities* equal) {
  TW_ASSIGN(const AttentionProblem p, AttentionProblemOf(inputs, attrs, equal));
  return TensorTypes{{ir::kF32, p.layouts.y.Ordered<Dim>({p.batch, p.heads, p.tokens, p.value})}};
}

// ------------------------------------------------------------ compute

bool TokensAreOpen(std::span<const TensorType> inputs, const Attrs& attrs) {
  return !inputs[0].shape[TokenAxis(attrs)].is_constant();
}

absl::StatusOr<std::vector<ir::Buffer>> Build(const ComputeArgs& a) {
  DimEqualities equal;
  TW_ASSIGN(const AttentionProblem p, AttentionProblemOf(a.input_types, a.attrs, &equal));
  const bool many = p.tokens.is_constant() && p.tokens.value() > p.few_tokens;
  return std::vector<ir::Buffer>{AddAttention(a, p, many)};
}

absl::StatusOr<std::vector<ir::Buffer>> BuildQueryLanes(const ComputeArgs& a) {
  DimEqualities equal;
  TW_ASSIGN(const AttentionProblem p, AttentionProblemOf(a.input_types, a.attrs, &equal));
  return std::vector<ir::Buffer>{AddAttention(a, p, true)};
}

// ------------------------------------------------------------ reference

// Elements of a tensor in a layout.
class View {
 public:
  View(const RefTensor& x, const Layout& layout) : x_(x) {
    const std::vector<int64_t> strides = RowMajorStrides(x.type.sizes());
    for (size_t i = 0; i < 4; ++i) strides_[i] = strides[layout.Dimension(kAttentionAxes[i])];
  }
  int64_t At(int64_t b, int64_t h, int64_t s, int64_t d) const {
    return b * strides_[0] + h * strides_[1] + s * strides_[2] + d * strides_[3];
  }
  double operator()(int64_t b, int64_t h, int64_t s, int64_t d) const {
    return x_.values[static_cast<size_t>(At(b, h, s, d))];
  }

 private:
  const RefTensor& x_;
  int64_t strides_[4] = {};
};

absl::StatusOr<std::vector<RefTensor>> Plain(std::span<const RefTensor> inputs,
                                             std::span<const TensorType> outputs,
                                             const Attrs& attrs) {
  const TensorTypes types = TypesOf(inputs);
  DimEqualities equal;
  TW_ASSIGN(const AttentionProblem p, AttentionProblemOf(types, attrs, &equal));
  const View q(inputs[0], p.layouts.q), k(inputs[1], p.layouts.k), v(inputs[2], p.layouts.v);
  RefTensor y{outputs[0], std::vector<double>(outputs[0].elements(), 0)};
  const View place(y, p.layouts.y);
  const int64_t batch = p.batch.value(), tokens = p.tokens.value(), keys = p.keys.value();
  // The mask as [b,h,s,t], with a step of 0 where it broadcasts.
  int64_t steps[4] = {};
  if (!p.mask.empty()) {
    const std::vector<int64_t> own = RowMajorStrides(inputs[3].type.sizes());
    for (size_t d = 0; d < own.size(); ++d) {
      if (inputs[3].type.size(static_cast<int64_t>(d)) > 1) steps[4 - own.size() + d] = own[d];
    }
  }
  std::vector<double> weights(static_cast<size_t>(keys));
  for (int64_t b = 0; b < batch; ++b) {
    for (int64_t h = 0; h < p.heads; ++h) {
      const int64_t g = h / p.shared();
      for (int64_t s = 0; s < tokens; ++s) {
        double top = -std::numeric_limits<double>::infinity();
        for (int64_t t = 0; t < keys; ++t) {
          double x = 0;
          for (int64_t d = 0; d < p.head; ++d) x += p.scale * q(b, h, s, d) * k(b, g, t, d);
          if (p.softcap > 0) x = p.softcap * std::tanh(x / p.softcap);
          const bool seen = !p.causal || t <= keys - tokens + s;
          if (inputs.size() > 3) {
            const int64_t at = b * steps[0] + h * steps[1] + s * steps[2] + t * steps[3];
            x = RoundToType(x + inputs[3].values[static_cast<size_t>(at)], ir::kF32);
          }
          weights[static_cast<size_t>(t)] = seen ? x : -std::numeric_limits<double>::infinity();
          top = std::max(top, weights[static_cast<size_t>(t)]);
        }
        double total = 0;
        const bool dead = p.dead_rows_zero && std::isinf(top) && top < 0;
        for (double& w : weights) total += w = dead ? 0 : std::exp(w - top);
        for (int64_t d = 0; d < p.value; ++d) {
          double sum = 0;
          for (int64_t t = 0; t < keys; ++t) sum += weights[static_cast<size_t>(t)] * v(b, g, t, d);
          y.values[static_cast<size_t>(place.At(b, h, s, d))] = dead ? 0 : sum / total;
        }
      }
    }
  }
  return std::vector<RefTensor>{std::move(y)};
}

double Flops(std::span<const TensorType> inputs, std::span<const TensorType>, const Attrs& attrs) {
  DimEqualities equal;
  const absl::StatusOr<AttentionProblem> p = AttentionProblemOf(inputs, attrs, &equal);
  if (!p.ok()) return 0;
  double products = static_cast<double>(p->batch.value()) * static_cast<double>(p->heads) *
                    static_cast<double>(p->tokens.value()) * static_cast<double>(p->keys.value());
  return 2 * products * static_cast<double>(p->head + p->value);
}

}  // namespace

std::vector<OpSpec> AttentionRows() {
  OpSpec row;
  row.name = kAttentionOp;
  row.min_inputs = 3;
  row.max_inputs = 4;
  row.types = kFloats;
  row.infer = Infer;
  row.compute = Build;
  row.flops = Flops;
  row.reduction_length = [](std::span<const TensorType> inputs, const Attrs& attrs) {
    DimEqualities equal;
    const absl::StatusOr<AttentionProblem> p = AttentionProblemOf(inputs, attrs, &equal);
    return p.ok() ? static_cast<double>(p->head + p->keys.value()) : 1;
  };
  row.reference = Plain;
  row.variants = {{kQueryLanes, TokensAreOpen, BuildQueryLanes}};
  return {row};
}

}  // namespace tilewright::op
