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

// Dimensions in front of what stages of the nest, and of the scan, make.
constexpr size_t kNest = 4, kStep = 5;

class Builder {
 public:
  Builder(const ComputeArgs& a, AttentionProblem problem, bool query_lanes)
      : b_(a.b), name_(a.name), in_(a.inputs), p_(std::move(problem)), query_lanes_(query_lanes) {
    tokens_ = SizeExpr(b_, p_.tokens);
    keys_ = SizeExpr(b_, p_.keys);
    ChooseRows();
    block_keys_ = KeysOfBlock(p_.tile_keys, p_.keys, query_lanes_);
    whole_tokens_ =
        block_tokens_ == 1 || (p_.tokens.is_constant() && p_.tokens.value() % block_tokens_ == 0);
    whole_keys_ = p_.keys.is_constant() && p_.keys.value() % block_keys_ == 0;
  }

  ir::Buffer Run() {
    b_.BeginNest({"b", "g", "hb", "tb"},
                 {SizeExpr(b_, p_.batch), ir::Int(p_.kv_heads), ir::Int(p_.shared() / block_heads_),
                  Blocks(tokens_, block_tokens_)});
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
  // A block of rows is `block_tokens_` tokens of each of `block_heads_` heads that share a key
  // head. Vectors lie along the tokens, so that all heads of the block use one vector of a mask.
  void ChooseRows() {
    int64_t most = p_.tile_rows;
    if (query_lanes_) {
      block_tokens_ = p_.shared() == 1 ? p_.tile_rows : (p_.tile_rows + 1) / 2;
      most = 2 * p_.tile_rows / block_tokens_;
    }
    block_heads_ = std::min(most, p_.shared());
    while (p_.shared() % block_heads_ != 0) --block_heads_;
    block_ = block_heads_ * block_tokens_;
  }

  static Expr Blocks(const Expr& extent, int64_t block) {
    return block == 1 ? extent : ir::FloorDiv(extent + ir::Int(block - 1), ir::Int(block));
  }
  static Expr Number(double value) { return ir::Float(value, ir::kF32); }
  static Expr Exp(Expr x) { return ir::Call(ir::Intrinsic::kExp, {std::move(x)}); }
  // e^x, and 0 where it would be no normal number: next to the largest weight, 1, that is nothing,
  // and processors take a hundred times as long for the others. NaN stays.
  static Expr Weight(const Expr& x) {
    const Expr least = Number(-87);
    return ir::Select(x < least, Number(0), Exp(ir::Max(least, x)));
  }

  // Blocks of keys that the last token of a block sees.
  ir::FunctionBuilder::NestExpr Turns() const {
    return [this](const std::vector<Var>& nest) {
      const Expr end = nest[3] * ir::Int(block_tokens_) + ir::Int(block_tokens_);
      const Expr last = ir::Min(end, tokens_) - ir::Int(1);
      return ir::Min(Blocks(keys_, block_keys_),
                     ir::FloorDiv(keys_ - tokens_ + last, ir::Int(block_keys_)) + ir::Int(1));
    };
  }
  // Of a row of a block: its token within the block, and both within the operands.
  Expr OwnToken(const Expr& row) const {
    if (block_heads_ == 1) return row;
    return block_tokens_ == 1 ? ir::Int(0) : ir::FloorMod(row, ir::Int(block_tokens_));
  }
  Expr TokenOf(const std::vector<Var>& v, const Expr& row) const {
    return v[3] * ir::Int(block_tokens_) + OwnToken(row);
  }
  Expr HeadOf(const std::vector<Var>& v, const Expr& own) const {
    if (p_.shared() == 1) return v[1];
    return v[1] * ir::Int(p_.shared()) + v[2] * ir::Int(block_heads_) + own;
  }
  Expr HeadOfRow(const std::vector<Var>& v, const Expr& row) const {
    return HeadOf(v, ir::FloorDiv(row, ir::Int(block_tokens_)));
  }
  // Rows behind the last token take 0.
  Expr IfToken(const std::vector<Var>& v, const Expr& row, Expr value) const {
    if (whole_tokens_) return value;
    return ir::Select(TokenOf(v, row) < tokens_, std::move(value), Number(0));
  }
  Expr KeyOf(const std::vector<Var>& v, const Expr& k) const {
    return v[kNest] * ir::Int(block_keys_) + k;
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

  void AddStart() {
    query_ = b_.Compute(
        name_ + "_q", ir::kF32, Tile(p_.head), Names("d"), [&](const std::vector<Var>& v) {
          const Point at = PointOf(v);
          const Expr x =
              ir::Load(in_[0], p_.layouts.q.Ordered<Expr>(
                                   {v[0], HeadOfRow(v, at.row), TokenOf(v, at.row), at.other}));
          return IfToken(v, at.row, p_.scale == 1 ? x : x * Number(p_.scale));
        });
    if (p_.causal) {
      seen_ = b_.Compute(name_ + "_seen", ir::kI32, {ir::Int(block_tokens_)}, {"s"},
                         [&](const std::vector<Var>& v) {
                           const Expr token = v[3] * ir::Int(block_tokens_) + v[kNest];
                           return ir::Cast(ir::kI32, keys_ - tokens_ + ir::Int(1) + token);
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

  // What the mask adds, a function of a row and a key of the block. A mask for all heads that
  // differs by token is turned once for a block: vectors of tokens are not contiguous in it. That
  // copy has minus infinity for keys behind the last one.
  std::function<Expr(const std::vector<Var>&, const Expr& row, const Expr& key)> Mask() {
    const auto direct = [this](const std::vector<Var>& v, const Expr& row, const Expr& key) {
      const std::vector<Expr> whole = {v[0], HeadOfRow(v, row), TokenOf(v, row), KeyRead(v, key)};
      return IfToken(v, row, ir::Load(in_[3], BroadcastIndex(whole, p_.mask)));
    };
    const auto differs = [&](size_t from_end) {
      return p_.mask.size() >= from_end && p_.mask[p_.mask.size() - from_end] != Dim(1);
    };
    if (p_.mask.empty() || !query_lanes_ || differs(3) || !differs(2)) return direct;
    const double none = -std::numeric_limits<double>::infinity();
    const ir::Buffer rows = b_.Compute(
        name_ + "_mask_rows", ir::kF32, {ir::Int(block_tokens_), ir::Int(block_keys_)}, {"s", "k"},
        [&](const std::vector<Var>& v) {
          const Expr token = v[3] * ir::Int(block_tokens_) + v[kStep];
          const Expr key = KeyOf(v, v[kStep + 1]);
          const std::vector<Expr> whole = {v[0], ir::Int(0), token, key};
          std::vector<Expr> given;
          if (!whole_tokens_) given.push_back(token < tokens_);
          if (!whole_keys_) given.push_back(key < keys_);
          return Guarded(given, ir::Load(in_[3], BroadcastIndex(whole, p_.mask)), Number(none));
        });
    const ir::Buffer turned =
        b_.Compute(name_ + "_mask", ir::kF32, {ir::Int(block_keys_), ir::Int(block_tokens_)},
                   {"k", "s"}, [&](const std::vector<Var>& v) {
                     return ir::Load(rows, At(v, kStep, {v[kStep + 1], v[kStep]}));
                   });
    mask_ends_keys_ = true;
    return [this, turned](const std::vector<Var>& v, const Expr& row, const Expr& key) {
      return ir::Load(turned, At(v, kStep, {key, OwnToken(row)}));
    };
  }

  // Keys or values of a block. Many rows read a copy of it, whose rows follow one another: in a
  // cache they may be far apart, and the copy has no rows behind the last key.
  std::function<Expr(const std::vector<Var>&, const Expr& key, const Expr& element)> Block(
      size_t operand, const Layout& layout, int64_t elements, const std::string& suffix) {
    if (!query_lanes_) {
      return [this, operand, layout](const std::vector<Var>& v, const Expr& key,
                                     const Expr& element) {
        return ir::Load(in_[operand], layout.Ordered<Expr>({v[0], v[1], KeyRead(v, key), element}));
      };
    }
    const ir::Buffer copy =
        b_.Compute(name_ + suffix, ir::kF32, {ir::Int(block_keys_), ir::Int(elements)}, {"k", "d"},
                   [&](const std::vector<Var>& v) {
                     const Expr key = KeyOf(v, v[kStep]);
                     const Expr x = ir::Load(in_[operand],
                                             layout.Ordered<Expr>({v[0], v[1], key, v[kStep + 1]}));
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
    const auto mask = Mask();
    return b_.Compute(
        name_ + "_scores", ir::kF32, Tile(block_keys_), Names("k"), [&](const std::vector<Var>& v) {
          const Point at = PointOf(v);
          Expr x = ir::Load(products, std::vector<Expr>(v.begin(), v.end()));
          if (p_.softcap > 0) {
            x = ir::Call(ir::Intrinsic::kTanh, {x / Number(p_.softcap)}) * Number(p_.softcap);
          }
          if (!p_.mask.empty()) x = x + mask(v, at.row, at.other);
          std::vector<Expr> seen;
          if (!whole_keys_ && !mask_ends_keys_) seen.push_back(KeyOf(v, at.other) < keys_);
          if (p_.causal) {
            seen.push_back(ir::Cast(ir::kI32, KeyOf(v, at.other)) <
                           ir::Load(seen_, At(v, kNest, {OwnToken(at.row)})));
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
                  [&](const std::vector<Var>& v) { return of_key(scores, v, v[kStep]); });
    const auto at_row = [&](const ir::Buffer& x, const std::vector<Var>& v, size_t outer,
                            const Expr& row) { return ir::Load(x, At(v, outer, {row})); };
    const ir::Buffer next =
        b_.Compute(name_ + "_next", ir::kF32, rows, {"r"}, [&](const std::vector<Var>& v) {
          return ir::Max(at_row(top_, v, kNest, v[kStep]), at_row(largest, v, kStep, v[kStep]));
        });
    const ir::Buffer fade =
        b_.Compute(name_ + "_fade", ir::kF32, rows, {"r"}, [&](const std::vector<Var>& v) {
          return Exp(at_row(top_, v, kNest, v[kStep]) - at_row(next, v, kStep, v[kStep]));
        });
    const ir::Buffer weights =
        b_.Compute(name_ + "_weights", ir::kF32, Tile(block_keys_), Names("k"),
                   [&](const std::vector<Var>& v) {
                     const Point at = PointOf(v);
                     return Weight(ir::Load(scores, std::vector<Expr>(v.begin(), v.end())) -
                                   at_row(next, v, kStep, at.row));
                   });
    const ir::Buffer added =
        b_.Reduce(name_ + "_added", ir::kF32, rows, {"r"}, {k}, ir::Combiner::kSum,
                  [&](const std::vector<Var>& v) { return of_key(weights, v, v[kStep]); });
    b_.Carry(total_, {"r"}, [&](const std::vector<Var>& v) {
      return at_row(total_, v, kNest, v[kStep]) * at_row(fade, v, kStep, v[kStep]) +
             at_row(added, v, kStep, v[kStep]);
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
      return ir::Load(sum_, At(v, kNest, {v[kStep], v[kStep + 1]})) *
                 at_row(fade, v, kStep, at.row) +
             ir::Load(mixed, std::vector<Expr>(v.begin(), v.end()));
    });
    b_.Carry(top_, {"r"},
             [&](const std::vector<Var>& v) { return at_row(next, v, kStep, v[kStep]); });
  }

  ir::Buffer Result() {
    ir::FunctionBuilder::RowResult result;
    result.shape = p_.layouts.y.Ordered<Expr>(
        {SizeExpr(b_, p_.batch), ir::Int(p_.heads), tokens_, ir::Int(p_.value)});
    result.block = block_tokens_;
    result.rows = tokens_;
    result.extents = {ir::Int(block_heads_), ir::Int(p_.value)};
    result.axis_names = {"i", "e"};
    result.place = [&](const std::vector<Var>& v) {  // b, g, hb, token, i, e
      return p_.layouts.y.Ordered<Expr>({v[0], HeadOf(v, v[4]), v[3], v[5]});
    };
    return b_.ComputeRows(name_, ir::kF32, result, [&](const std::vector<Var>& v) {
      const Expr block = ir::FloorDiv(v[3], ir::Int(block_tokens_));
      const Expr row = v[4] * ir::Int(block_tokens_) + ir::FloorMod(v[3], ir::Int(block_tokens_));
      std::vector<Expr> at = {v[0], v[1], v[2], block, row};
      Expr total = ir::Load(total_, at);
      if (p_.dead_rows_zero) total = ir::Select(Number(0) < total, total, Number(1));
      const std::vector<Expr> own = Ordered<Expr>(row, v[5]);
      at.pop_back();
      at.insert(at.end(), own.begin(), own.end());
      return ir::Load(sum_, at) / total;
    });
  }

  ir::FunctionBuilder& b_;
  const std::string& name_;
  const std::span<const ir::Buffer> in_;
  const AttentionProblem p_;
  const bool query_lanes_;
  Expr tokens_, keys_;
  int64_t block_heads_ = 1, block_tokens_ = 1, block_ = 1;  // block_: rows, heads by tokens
  int64_t block_keys_ = 1;
  bool whole_tokens_ = false, whole_keys_ = false, mask_ends_keys_ = false;
  ir::Buffer query_, seen_, top_, total_, sum_;
};

}  // namespace

int64_t KeysOfBlock(int64_t tile, const Dim& all, bool query_lanes) {
  if (!all.is_constant()) return tile;
  // Register tiles divide a quarter of the block.
  const int64_t quarter = std::max<int64_t>(tile / 4, 1);
  const int64_t keys = all.value(), step = query_lanes ? quarter : 1;
  const auto computed = [keys](int64_t block) { return (keys + block - 1) / block * block; };
  int64_t best = tile;
  for (int64_t block = step; block <= 2 * tile; block += step) {
    if (2 * block < tile) continue;
    const bool nearer = std::abs(block - tile) < std::abs(best - tile);
    if (computed(block) < computed(best) || (computed(block) == computed(best) && nearer))
      best = block;
  }
  return std::min(best, keys);
}

ir::Buffer AddAttention(const ComputeArgs& args, const AttentionProblem& problem,
                        bool query_lanes) {
  return Builder(args, problem, query_lanes).Run();
}

}  // namespace tilewright::op
