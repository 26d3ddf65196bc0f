// The kernel of attention (attention.cc says what it computes): a nest over heads and blocks of
// rows, with a scan over blocks of keys.
#include <algorithm>
#include <cstdlib>
#include <functional>
#include <limits>

#include "compiler/op/attention_problem.h"
#include "compiler/op/op_rows.h"

namespace tilewright::op {
namespace {

using ir::Expr;
using ir::Var;

constexpr int64_t kMostRowsAlongHeads = 8;  // of a block with lanes along heads
// Keys of a block then: a block that hangs over the end computes all of its keys.
constexpr int64_t kKeysAlongHeads = 32;
constexpr int64_t kKeyRows = 8;         // of keys in a register tile
constexpr double kHalfTileCost = 1.15;  // time of half a tile's vectors for the same work

class Builder {
 public:
  Builder(const ComputeArgs& a, AttentionProblem problem, bool query_lanes)
      : b_(a.b), name_(a.name), in_(a.inputs), p_(std::move(problem)), query_lanes_(query_lanes) {
    tokens_ = SizeExpr(b_, p_.tokens);
    keys_ = SizeExpr(b_, p_.keys);
    rows_ = p_.shared() == 1 ? tokens_ : tokens_ * ir::Int(p_.shared());
    ChooseBlocks();
    whole_rows_ = p_.shared() % block_ == 0 ||
                  (p_.tokens.is_constant() && p_.tokens.value() * p_.shared() % block_ == 0);
    whole_keys_ = p_.keys.is_constant() && p_.keys.value() % block_keys_ == 0;
  }

  ir::Buffer Run() {
    b_.BeginNest({"b", "g", "rb"},
                 {SizeExpr(b_, p_.batch), ir::Int(p_.kv_heads), Blocks(rows_, block_)});
    AddStart();
    b_.BeginScan("t", Blocks(keys_, block_keys_),
                 p_.causal ? Turns() : ir::FunctionBuilder::NestExpr(), /*peel=*/!query_lanes_);
    AddStep();
    b_.EndScan();
    const ir::Buffer y = Result();
    b_.EndNest();
    return y;
  }

 private:
  // The tile of the attributes is for many rows and keys. Where their numbers are fixed, a tile of
  // about that size that computes the fewest others with them.
  void ChooseBlocks() {
    block_ = p_.tile_rows;
    block_keys_ = query_lanes_ ? p_.tile_keys : std::min(p_.tile_keys, kKeysAlongHeads);
    if (!query_lanes_) {
      for (block_ = std::min(kMostRowsAlongHeads, p_.shared()); p_.shared() % block_ != 0;)
        --block_;
    } else if (p_.tokens.is_constant() && block_ % 2 == 0) {
      const int64_t rows = p_.tokens.value() * p_.shared(), half = block_ / 2;
      const auto computed = [rows](int64_t block) { return (rows + block - 1) / block * block; };
      // A tile of half the vectors loads more for each product.
      if (static_cast<double>(computed(half)) * kHalfTileCost <
          static_cast<double>(computed(block_)))
        block_ = half;
    }
    if (!p_.keys.is_constant()) return;
    const int64_t keys = p_.keys.value(), step = query_lanes_ ? kKeyRows : 1;
    const auto computed = [keys](int64_t block) { return (keys + block - 1) / block * block; };
    int64_t best = block_keys_;
    for (int64_t block = step; block <= 2 * block_keys_; block += step) {
      if (2 * block < block_keys_) continue;
      const bool nearer = std::abs(block - block_keys_) < std::abs(best - block_keys_);
      if (computed(block) < computed(best) || (computed(block) == computed(best) && nearer))
        best = block;
    }
    block_keys_ = std::min(best, keys);
  }
  static Expr Blocks(const Expr& extent, int64_t block) {
    return block == 1 ? extent : ir::FloorDiv(extent + ir::Int(block - 1), ir::Int(block));
  }
  static Expr Number(double value) { return ir::Float(value, ir::kF32); }
  static Expr Exp(Expr x) { return ir::Call(ir::Intrinsic::kExp, {std::move(x)}); }

  // Blocks of keys that the last row of a block sees.
  ir::FunctionBuilder::NestExpr Turns() const {
    return [this](const std::vector<Var>& nest) {
      const Expr last = ir::Min(nest[2] * ir::Int(block_) + ir::Int(block_), rows_) - ir::Int(1);
      const Expr seen = keys_ - tokens_ + TokenOf(last);
      return ir::Min(Blocks(keys_, block_keys_),
                     ir::FloorDiv(seen, ir::Int(block_keys_)) + ir::Int(1));
    };
  }
  Expr TokenOf(const Expr& row) const {
    return p_.shared() == 1 ? row : ir::FloorDiv(row, ir::Int(p_.shared()));
  }
  Expr HeadOf(const Expr& g, const Expr& row) const {
    if (p_.shared() == 1) return g;
    return g * ir::Int(p_.shared()) + ir::FloorMod(row, ir::Int(p_.shared()));
  }
  Expr RowOf(const std::vector<Var>& v, const Expr& r) const { return v[2] * ir::Int(block_) + r; }
  Expr KeyOf(const std::vector<Var>& v, const Expr& k) const {
    return v[3] * ir::Int(block_keys_) + k;
  }
  // Of a block that hangs over the end, keys behind it repeat the last one, or are zeros in a copy;
  // they weigh nothing.
  Expr KeyRead(const std::vector<Var>& v, const Expr& k) const {
    const Expr key = KeyOf(v, k);
    return whole_keys_ ? key : ir::Min(key, keys_ - ir::Int(1));
  }

  // A dimension pair in the order of the lanes: [rows, other], or [other, rows].
  template <typename T>
  std::vector<T> Ordered(const T& row, const T& other) const {
    return query_lanes_ ? std::vector<T>{other, row} : std::vector<T>{row, other};
  }
  std::vector<Expr> Tile(int64_t other) const { return Ordered(ir::Int(block_), ir::Int(other)); }
  std::vector<std::string> Names(const std::string& other) const {
    return Ordered(std::string("r"), other);
  }
  // The row and the other one of the last two variables.
  struct Point {
    Expr row, other;
  };
  Point PointOf(const std::vector<Var>& v) const {
    const Expr a = v[v.size() - 2], b = v.back();
    return query_lanes_ ? Point{b, a} : Point{a, b};
  }
  // An index of a buffer of the nest, or of the scan, at a tile's point.
  static std::vector<Expr> At(const std::vector<Var>& v, size_t outer, std::vector<Expr> own) {
    own.insert(own.begin(), v.begin(), v.begin() + static_cast<std::ptrdiff_t>(outer));
    return own;
  }
  static constexpr size_t kNest = 3, kStep = 4;  // dimensions in front

  void AddStart() {
    query_ = b_.Compute(
        name_ + "_q", ir::kF32, Tile(p_.head), Names("d"), [&](const std::vector<Var>& v) {
          const Point at = PointOf(v);
          const Expr row = RowOf(v, at.row);
          const Expr x = ir::Load(in_[0], InLayout<Expr>(p_.layouts.q, v[0], HeadOf(v[1], row),
                                                         TokenOf(row), at.other));
          const Expr scaled = p_.scale == 1 ? x : x * Number(p_.scale);
          return whole_rows_ ? scaled : ir::Select(row < rows_, scaled, Number(0));
        });
    if (p_.causal) {
      seen_ = b_.Compute(
          name_ + "_seen", ir::kI32, {ir::Int(block_)}, {"r"}, [&](const std::vector<Var>& v) {
            return ir::Cast(ir::kI32, keys_ - tokens_ + ir::Int(1) + TokenOf(RowOf(v, v[3])));
          });
    }
    const double lowest = -std::numeric_limits<float>::max();
    top_ = b_.Carried(name_ + "_top", ir::kF32, {ir::Int(block_)}, {"r"},
                      [&](const std::vector<Var>&) { return Number(lowest); });
    total_ = b_.Carried(name_ + "_total", ir::kF32, {ir::Int(block_)}, {"r"},
                        [&](const std::vector<Var>&) { return Number(0); });
    sum_ = b_.Carried(name_ + "_sum", ir::kF32, Tile(p_.value), Names("e"),
                      [&](const std::vector<Var>&) { return Number(0); });
  }

  Expr MaskAt(const std::vector<Var>& v, const Expr& row, const Expr& key) const {
    const std::vector<Expr> whole = {v[0], HeadOf(v[1], row), TokenOf(row), key};
    Expr masked = ir::Load(in_[3], BroadcastIndex(whole, p_.mask));
    // Rows behind the last one have no mask.
    return whole_rows_ ? masked : ir::Select(row < rows_, masked, Number(0));
  }

  // Keys or values of a block. Many rows read a copy of it, whose rows follow one another: in a
  // cache they may be far apart, and the copy has no rows behind the last key.
  std::function<Expr(const std::vector<Var>&, const Expr& key, const Expr& element)> Block(
      size_t operand, const std::string& layout, int64_t elements, const std::string& suffix) {
    if (!query_lanes_) {
      return [this, operand, layout](const std::vector<Var>& v, const Expr& key,
                                     const Expr& element) {
        return ir::Load(in_[operand], InLayout<Expr>(layout, v[0], v[1], KeyRead(v, key), element));
      };
    }
    const ir::Buffer copy = b_.Compute(
        name_ + suffix, ir::kF32, {ir::Int(block_keys_), ir::Int(elements)}, {"k", "d"},
        [&](const std::vector<Var>& v) {
          const Expr key = KeyOf(v, v[4]);
          const Expr x = ir::Load(in_[operand], InLayout<Expr>(layout, v[0], v[1], key, v[5]));
          return whole_keys_ ? x : ir::Select(key < keys_, x, Number(0));
        });
    return [copy](const std::vector<Var>& v, const Expr& key, const Expr& element) {
      return ir::Load(copy, At(v, kStep, {key, element}));
    };
  }

  ir::Buffer Scores() {
    const auto keys = Block(1, p_.layouts.k, p_.head, "_keys");
    const ir::Axis d = b_.ReduceAxis("d", ir::Int(p_.head));
    const ir::Buffer products =
        b_.Reduce(name_ + "_products", ir::kF32, Tile(block_keys_), Names("k"), {d},
                  ir::Combiner::kSum, [&](const std::vector<Var>& v) {
                    const Point at = PointOf(v);
                    return ir::Load(query_, At(v, kNest, Ordered<Expr>(at.row, d.var))) *
                           keys(v, at.other, d.var);
                  });
    return b_.Compute(
        name_ + "_scores", ir::kF32, Tile(block_keys_), Names("k"), [&](const std::vector<Var>& v) {
          const Point at = PointOf(v);
          Expr x = ir::Load(products, std::vector<Expr>(v.begin(), v.end()));
          if (p_.softcap > 0) {
            x = ir::Call(ir::Intrinsic::kTanh, {x / Number(p_.softcap)}) * Number(p_.softcap);
          }
          if (!p_.mask.empty()) {
            x = x + MaskAt(v, RowOf(v, at.row), KeyRead(v, at.other));
          }
          std::vector<Expr> seen;
          if (!whole_keys_) seen.push_back(KeyOf(v, at.other) < keys_);
          if (p_.causal) {
            seen.push_back(ir::Cast(ir::kI32, KeyOf(v, at.other)) <
                           ir::Load(seen_, At(v, kNest, {at.row})));
          }
          return Guarded(seen, x, Number(-std::numeric_limits<double>::infinity()));
        });
  }

  void AddStep() {
    const ir::Buffer scores = Scores();
    const ir::Axis k = b_.ReduceAxis("k", ir::Int(block_keys_));
    const auto of_key = [&](const ir::Buffer& x, const std::vector<Var>& v, const Expr& row) {
      return ir::Load(x, At(v, kStep, Ordered<Expr>(row, k.var)));
    };
    const std::vector<Expr> rows = {ir::Int(block_)};
    const ir::Buffer largest =
        b_.Reduce(name_ + "_largest", ir::kF32, rows, {"r"}, {k}, ir::Combiner::kMax,
                  [&](const std::vector<Var>& v) { return of_key(scores, v, v[4]); });
    const auto at_row = [&](const ir::Buffer& x, const std::vector<Var>& v, size_t outer,
                            const Expr& row) { return ir::Load(x, At(v, outer, {row})); };
    const ir::Buffer next =
        b_.Compute(name_ + "_next", ir::kF32, rows, {"r"}, [&](const std::vector<Var>& v) {
          return ir::Max(at_row(top_, v, kNest, v[4]), at_row(largest, v, kStep, v[4]));
        });
    const ir::Buffer fade =
        b_.Compute(name_ + "_fade", ir::kF32, rows, {"r"}, [&](const std::vector<Var>& v) {
          return Exp(at_row(top_, v, kNest, v[4]) - at_row(next, v, kStep, v[4]));
        });
    const ir::Buffer weights =
        b_.Compute(name_ + "_weights", ir::kF32, Tile(block_keys_), Names("k"),
                   [&](const std::vector<Var>& v) {
                     const Point at = PointOf(v);
                     return Exp(ir::Load(scores, std::vector<Expr>(v.begin(), v.end())) -
                                at_row(next, v, kStep, at.row));
                   });
    const ir::Buffer added =
        b_.Reduce(name_ + "_added", ir::kF32, rows, {"r"}, {k}, ir::Combiner::kSum,
                  [&](const std::vector<Var>& v) { return of_key(weights, v, v[4]); });
    b_.Carry(total_, {"r"}, [&](const std::vector<Var>& v) {
      return at_row(total_, v, kNest, v[4]) * at_row(fade, v, kStep, v[4]) +
             at_row(added, v, kStep, v[4]);
    });
    const auto values = Block(2, p_.layouts.v, p_.value, "_values");
    const ir::Buffer mixed =
        b_.Reduce(name_ + "_mixed", ir::kF32, Tile(p_.value), Names("e"), {k}, ir::Combiner::kSum,
                  [&](const std::vector<Var>& v) {
                    const Point at = PointOf(v);
                    return of_key(weights, v, at.row) * values(v, k.var, at.other);
                  });
    b_.Carry(sum_, Names("e"), [&](const std::vector<Var>& v) {
      const Point at = PointOf(v);
      return ir::Load(sum_, At(v, kNest, {v[4], v[5]})) * at_row(fade, v, kStep, at.row) +
             ir::Load(mixed, std::vector<Expr>(v.begin(), v.end()));
    });
    b_.Carry(top_, {"r"}, [&](const std::vector<Var>& v) { return at_row(next, v, kStep, v[4]); });
  }

  ir::Buffer Result() {
    ir::FunctionBuilder::RowResult result;
    result.shape = InLayout<Expr>(p_.layouts.y, SizeExpr(b_, p_.batch), ir::Int(p_.heads), tokens_,
                                  ir::Int(p_.value));
    result.block = block_;
    result.rows = rows_;
    result.extents = {ir::Int(p_.value)};
    result.axis_names = {"e"};
    result.place = [&](const std::vector<Var>& v) {  // b, g, row, e
      return InLayout<Expr>(p_.layouts.y, v[0], HeadOf(v[1], v[2]), TokenOf(v[2]), v[3]);
    };
    return b_.ComputeRows(name_, ir::kF32, result, [&](const std::vector<Var>& v) {
      const Expr block = ir::FloorDiv(v[2], ir::Int(block_)),
                 r = ir::FloorMod(v[2], ir::Int(block_));
      std::vector<Expr> at = {v[0], v[1], block};
      Expr total = ir::Load(total_, {v[0], v[1], block, r});
      if (p_.dead_rows_zero) total = ir::Select(Number(0) < total, total, Number(1));
      const std::vector<Expr> own = Ordered<Expr>(r, v[3]);
      at.insert(at.end(), own.begin(), own.end());
      return ir::Load(sum_, at) / total;
    });
  }

  ir::FunctionBuilder& b_;
  const std::string& name_;
  const std::span<const ir::Buffer> in_;
  const AttentionProblem p_;
  const bool query_lanes_;
  Expr tokens_, keys_, rows_;
  int64_t block_ = 1, block_keys_ = 1;  // of rows, of keys
  bool whole_rows_ = false, whole_keys_ = false;
  ir::Buffer query_, seen_, top_, total_, sum_;
};

}  // namespace

ir::Buffer AddAttention(const ComputeArgs& args, const AttentionProblem& problem,
                        bool query_lanes) {
  return Builder(args, problem, query_lanes).Run();
}

}  // namespace tilewright::op
