// TRANSFORMATIONS of sum_in_blocks (kFlat → kFlat), for long sums of floats in a local buffer:
//   for k in 0..2048 { S[0] = S[0] + … }
//     → alloc total: f32[1] local {
//         total[0] = S[0];
//         for block in 0..4 {
//           S[0] = 0;
//           for k_1 in 0..512 { S[0] = S[0] + … (k = block·512 + k_1) }
//           total[0] = total[0] + S[0];
//         }
//         S[0] = total[0];
//       }
// Each addition rounds the sum so far: n terms one after the other are off by about √n roundings,
// blocks of b terms by √(n/b + b). Libraries of products sum in blocks, too, for caches' sake. Only
// where the loop does nothing with the buffer but add to it. What is left of whole blocks is a
// last, shorter one.
#include <algorithm>
#include <functional>
#include <optional>
#include <vector>

#include "compiler/ir/structural.h"
#include "compiler/transform/clone.h"
#include "compiler/transform/loop_sums.h"
#include "compiler/transform/passes.h"
#include "compiler/transform/stmt_rewriter.h"

namespace tilewright::transform {
namespace {

using ir::Buffer;
using ir::Expr;
using ir::ExprKind;
using ir::Stmt;
using ir::StmtKind;

bool IsLoadOf(const Expr& e, const Buffer& buffer, const Expr& place) {
  return e->kind == ExprKind::kLoad && e->buffer == buffer && e->mask == nullptr &&
         e->args.size() == 1 && ir::StructuralEqual(e->args[0], place);
}

// Whether the store adds to what is at its place. The term may read the buffer, too: AddedIn counts
// all loads.
bool IsAddition(const Stmt& store) {
  const Expr& value = store->value;
  const auto is_sum = [&](const Expr& e) { return IsLoadOf(e, store->buffer, store->indices[0]); };
  if (value->kind == ExprKind::kAdd) return std::ranges::any_of(value->args, is_sum);
  return value->kind == ExprKind::kCall && value->intrinsic == ir::Intrinsic::kFma &&
         is_sum(value->args[2]);
}

// What the loop adds to in `buffer`, if that is all that it does with it.
std::optional<LoopSums> AddedIn(const Stmt& loop, const Buffer& buffer) {
  LoopSums sums{buffer, {}};
  bool only_adds = true;
  int64_t additions = 0, loads = 0;
  std::vector<ir::Var> bound;
  ir::VisitStmts(loop, [&](const Stmt& s) {
    if (s->kind == StmtKind::kFor || s->kind == StmtKind::kLet) bound.push_back(s->var);
    only_adds = only_adds && s->kind != StmtKind::kCombine;
    if (s->kind != StmtKind::kStore || s->buffer != buffer) return only_adds;
    only_adds = only_adds && s->mask == nullptr && IsPlace(s->indices[0]) && IsAddition(s);
    ++additions;
    if (only_adds && !sums.Find(s->indices[0])) sums.places.push_back(s->indices[0]);
    return only_adds;
  });
  if (!only_adds || sums.places.empty()) return {};
  ir::VisitExprsIn(loop, [&](const Expr& e) {
    if (e->kind == ExprKind::kLoad && e->buffer == buffer) ++loads;
    return true;
  });
  for (const Expr& place : sums.places) {
    for (const ir::Var& var : bound) only_adds = only_adds && !ir::UsesVar(place, var);
    only_adds = only_adds && !ir::HasLoad(place);
  }
  // One load for each addition is that of its sum: no term reads the buffer.
  if (!only_adds || loads != additions) return {};
  return sums;
}

// How many terms `s` adds, one after the other, to the place of `buffer` that it adds most to. 0
// for those of open loops.
int64_t TermsInARow(const Stmt& s, const LoopSums& sums) {
  std::vector<int64_t> terms(sums.places.size());
  const std::function<void(const Stmt&, int64_t)> count = [&](const Stmt& part, int64_t times) {
    if (part->kind == StmtKind::kFor) {
      const int64_t* turns = ir::AsInt(part->range.extent);
      return count(part->body, turns == nullptr ? 0 : times * *turns);
    }
    if (part->kind == StmtKind::kSeq) {
      for (const Stmt& child : part->stmts) count(child, times);
    } else if (part->kind == StmtKind::kStore) {
      if (part->buffer == sums.buffer) terms[*sums.Find(part->indices[0])] += times;
    } else if (part->body != nullptr) {
      count(part->body, times);
      if (part->else_body != nullptr) count(part->else_body, times);
    }
  };
  count(s, 1);
  return *std::ranges::max_element(terms);
}

class BlockMaker : public ir::Rewriter {
 public:
  BlockMaker(const Function& f, int64_t block_terms) : cloner_(f), block_terms_(block_terms) {}

  Stmt RewriteStmt(const Stmt& s) override {
    if (s->kind == StmtKind::kAlloc && s->buffer->scope == ir::Scope::kLocal &&
        s->buffer->dtype.is_float()) {
      buffers_.push_back(s->buffer);
      const Stmt rewritten = RewriteChildren(s);
      buffers_.pop_back();
      return rewritten;
    }
    if (s->kind != StmtKind::kFor || s->for_kind != ir::ForKind::kSerial) return RewriteChildren(s);
    Stmt result = s;
    for (const Buffer& buffer : buffers_) {
      const std::optional<LoopSums> sums = AddedIn(result, buffer);
      if (sums) result = InBlocks(result, *sums);
    }
    return result == s ? RewriteChildren(s) : result;
  }

 private:
  // The loop in which one turn adds less than a block and all of them more: `loop` or the one loop
  // inside that adds.
  Stmt LoopToCut(const Stmt& loop, const LoopSums& sums) const {
    Stmt s = loop;
    for (;;) {
      if (s->kind == StmtKind::kSeq) {
        Stmt adding;
        for (const Stmt& child : s->stmts) {
          if (!ir::Touches(child, sums.buffer.get())) continue;
          if (adding != nullptr) return nullptr;
          adding = child;
        }
        s = adding;
      } else if (s->kind == StmtKind::kFor && s->for_kind == ir::ForKind::kSerial) {
        const int64_t terms = TermsInARow(s->body, sums);
        if (2 * terms <= block_terms_) return s;
        s = s->body;
      } else {
        return nullptr;
      }
    }
  }

  Stmt InBlocks(const Stmt& loop, const LoopSums& sums) {
    if (TermsInARow(loop, sums) < 2 * block_terms_ || !sums.AreApart()) return loop;
    const Stmt cut = LoopToCut(loop, sums);
    if (cut == nullptr) return loop;
    const int64_t* turns = ir::AsInt(cut->range.extent);
    const int64_t terms = TermsInARow(cut->body, sums);
    if (turns == nullptr || terms == 0) return loop;
    const int64_t length = BlockLength(*turns, terms);
    const Buffer total = sums.MakeCopy(cloner_.UnusedName(sums.buffer->name + "_total"));
    const ir::Var block = ir::MakeVar(cut->var->name + "_block", cut->var->dtype);
    const auto constant = [&](int64_t value) { return ir::Int(value, cut->var->dtype); };
    const auto from = [&](Expr turn) {
      return ir::IsInt(cut->range.min, 0) ? turn : cut->range.min + turn;
    };
    Stmt blocks = ir::MakeFor(block, constant(0), constant(*turns / length),
                              Block(cut, from(block * constant(length)), length, sums, total));
    if (*turns % length != 0) {
      const Expr begin = from(constant(*turns / length * length));
      blocks =
          ir::MakeSeq({blocks, cloner_.Clone(Block(cut, begin, *turns % length, sums, total))});
    }
    std::vector<Stmt> stmts, after;
    for (size_t i = 0; i < sums.places.size(); ++i) {
      const Expr& place = sums.places[i];
      stmts.push_back(ir::MakeStore(total, {sums.InCopy(i)}, ir::Load(sums.buffer, {place})));
      after.push_back(ir::MakeStore(sums.buffer, {place}, ir::Load(total, {sums.InCopy(i)})));
    }
    stmts.push_back(Replaced(loop, cut, blocks));
    stmts.insert(stmts.end(), after.begin(), after.end());
    return ir::MakeAlloc(total, ir::MakeSeq(std::move(stmts)));
  }

  // The number of turns of a block, each of so many terms: near block_terms_, and without a rest
  // where half as many to half as many more can be.
  int64_t BlockLength(int64_t turns, int64_t terms) const {
    const auto off = [&](int64_t length) { return std::abs(length * terms - block_terms_); };
    int64_t best = 0;
    for (int64_t length = 1; length <= turns && 2 * length * terms <= 3 * block_terms_; ++length) {
      const bool better = best == 0 || off(length) <= off(best);
      if (better && turns % length == 0 && 2 * off(length) <= block_terms_) best = length;
    }
    return best > 0 ? best : std::min(turns, block_terms_ / terms);
  }

  // `length` turns of the loop, from `begin`, summed for themselves.
  Stmt Block(const Stmt& loop, const Expr& begin, int64_t length, const LoopSums& sums,
             const Buffer& total) {
    const ir::Var turn = ir::MakeVar(loop->var->name, loop->var->dtype);
    std::vector<Stmt> stmts, after;
    for (size_t i = 0; i < sums.places.size(); ++i) {
      const Expr& place = sums.places[i];
      const Expr in_total = sums.InCopy(i);
      const Expr sum = ir::Load(sums.buffer, {place});
      stmts.push_back(ir::MakeStore(sums.buffer, {place}, ir::Zero(sum->dtype)));
      after.push_back(ir::MakeStore(total, {in_total}, ir::Load(total, {in_total}) + sum));
    }
    stmts.push_back(ir::MakeFor(turn, ir::Int(0, turn->dtype), ir::Int(length, turn->dtype),
                                ir::Substitute(loop->body, {{loop->var.get(), begin + turn}}),
                                loop->for_kind, loop->annotations));
    stmts.insert(stmts.end(), after.begin(), after.end());
    return ir::MakeSeq(std::move(stmts));
  }

  static Stmt Replaced(const Stmt& in, const Stmt& old, const Stmt& by) {
    class Replacer : public StmtRewriter {
     public:
      Replacer(Stmt old, Stmt by) : old_(std::move(old)), by_(std::move(by)) {}
      Stmt RewriteStmt(const Stmt& s) override { return s == old_ ? by_ : RewriteChildren(s); }

     private:
      const Stmt old_, by_;
    };
    return Replacer(old, by).RewriteStmt(in);
  }

  Cloner cloner_;
  const int64_t block_terms_;
  std::vector<Buffer> buffers_;  // local ones around
};

}  // namespace

absl::StatusOr<Function> SumInBlocks(const Function& f, const PassContext& ctx) {
  Function result = f;
  result.body = BlockMaker(f, ctx.block_terms).RewriteStmt(f.body);
  return result;
}

}  // namespace tilewright::transform
