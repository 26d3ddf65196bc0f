// Structural matching of a loop nest against the description of a tensor intrinsic.
#include <algorithm>
#include <map>
#include <numeric>
#include <optional>

#include "compiler/ir/expr_parts.h"
#include "compiler/ir/ir_text.h"
#include "compiler/ir/numeric.h"
#include "compiler/ir/structural.h"
#include "compiler/ir/tensor_intrinsics.h"
#include "compiler/ir/text_words.h"
#include "compiler/ir/visit.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::ir {
namespace {

using support::StrCat;

struct Nest {
  std::vector<Stmt> loops;
  Stmt store;
};

Nest NestOf(const Stmt& s) {
  Nest nest;
  Stmt at = s;
  while (at != nullptr && at->kind == StmtKind::kFor) {
    nest.loops.push_back(at);
    at = at->body;
  }
  nest.store = at;
  return nest;
}

// Products with extents of buffers do not overflow.
bool IsSmallStep(int64_t step) { return std::abs(step) < (int64_t{1} << 31); }

bool Commutes(ExprKind kind) {
  return kind == ExprKind::kAdd || kind == ExprKind::kMul || kind == ExprKind::kMin ||
         kind == ExprKind::kMax;
}

// One attempt: the program's loops in a given order against the description's.
class Matcher {
 public:
  Matcher(const TensorIntrinsic& row, const Function& description)
      : row_(row), description_(description), pattern_(NestOf(description.body)) {}

  // Empty when it matches.
  std::string Match(const Nest& nest, const std::vector<size_t>& order) {
    vars_.clear();
    if (order.size() != pattern_.loops.size()) {
      return StrCat("expected ", pattern_.loops.size(), " loops, found ", order.size());
    }
    for (size_t l = 0; l < order.size(); ++l) {
      const StmtNode& loop = *nest.loops[order[l]];
      vars_.push_back(loop.var);
      std::string why = MatchLoop(*pattern_.loops[l], loop);
      if (!why.empty()) return why;
    }
    if (nest.store == nullptr || nest.store->kind != StmtKind::kStore ||
        nest.store->mask != nullptr) {
      return "expected one plain store inside the loops, found another statement";
    }
    State state;
    if (!UnifyAccess(pattern_.store->buffer, pattern_.store->indices, nest.store->buffer,
                     nest.store->indices, &state) ||
        !Unify(pattern_.store->value, nest.store->value, &state)) {
      return why_.empty() ? "expected another expression" : why_;
    }
    std::string why = CheckWrites(state);
    if (!why.empty()) return why;
    state_ = std::move(state);
    return "";
  }

  TensorMatch Take(bool reset) {
    TensorMatch match{.intrinsic = &row_, .reset = reset, .extents = extents_};
    for (const Buffer& b : description_.params) match.operands.push_back(state_.operands[b.get()]);
    for (const Var& size : description_.size_params) {
      auto it = state_.immediates.find(size.get());
      if (it != state_.immediates.end()) match.immediates.push_back(it->second);
    }
    return match;
  }

 private:
  struct State {
    std::map<const BufferNode*, TensorOperandMatch> operands;
    std::map<const BufferNode*, std::vector<Expr>> indices;
    std::map<const ExprNode*, int64_t> immediates;
  };

  bool Fail(std::string why) {
    if (why_.empty()) why_ = std::move(why);
    return false;
  }

  std::string MatchLoop(const StmtNode& pattern, const StmtNode& loop) {
    const int64_t* extent = AsInt(loop.range.extent);
    bool plain = loop.for_kind == ForKind::kSerial && IsInt(loop.range.min, 0) && extent != nullptr;
    if (!plain) {
      return StrCat("expected serial loops from 0 with constant extents, found ", loop.var->name,
                    " in ", Print(loop.range.min), " ..+ ", Print(loop.range.extent), " ",
                    ForKindText(loop.for_kind));
    }
    const int64_t* wanted = AsInt(pattern.range.extent);
    bool fits = wanted != nullptr ? *wanted == *extent : *extent >= 1 && *extent <= row_.max_extent;
    if (!fits) {
      return StrCat("loop ", pattern.var->name, ": expected an extent of ",
                    wanted != nullptr ? std::to_string(*wanted) : StrCat("1 to ", row_.max_extent),
                    ", found ", *extent, " (", loop.var->name, ")");
    }
    if (extents_.size() < pattern_.loops.size()) extents_.push_back(*extent);
    return "";
  }

  // Strides of the program's access along the loops, in description order.
  bool StridesOf(const Buffer& buffer, const std::vector<Expr>& indices,
                 TensorOperandMatch* operand) {
    operand->strides.assign(vars_.size(), 0);
    VarMap at_zero;
    for (const Var& v : vars_) at_zero[v.get()] = Int(0, v->dtype);
    int64_t stride = 1;  // 0 when it is not constant
    Expr step = Int(1);
    for (size_t d = indices.size(); d-- > 0;) {
      const std::optional<std::vector<int64_t>> linear = CoefficientsOf(indices[d], vars_);
      if (!linear.has_value() || !std::all_of(linear->begin(), linear->end(), IsSmallStep)) {
        return Fail(StrCat("expected indices of ", buffer->name, " linear in the loops, found ",
                           Print(indices[d])));
      }
      for (size_t l = 0; l < vars_.size(); ++l) {
        if ((*linear)[l] != 0 && stride == 0) {
          return Fail(StrCat("expected a constant stride of ", buffer->name, ", found ",
                             Print(step), " along ", vars_[l]->name));
        }
        operand->strides[l] += (*linear)[l] * stride;
      }
      Expr term = Cast(kI64, Substitute(indices[d], at_zero));
      if (!IsInt(step, 1)) term = term * step;
      operand->base = operand->base == nullptr ? term : term + operand->base;
      if (indices.size() == 1) break;
      const int64_t* extent = AsInt(buffer->shape[d]);
      stride = extent == nullptr ? 0 : stride * *extent;
      step = IsInt(step, 1) ? buffer->shape[d] : buffer->shape[d] * step;
    }
    if (operand->base == nullptr) operand->base = Int(0);
    return true;
  }

  bool UnifyAccess(const Buffer& pattern, const std::vector<Expr>& pattern_indices,
                   const Buffer& buffer, const std::vector<Expr>& indices, State* state) {
    size_t p = static_cast<size_t>(
        std::find(description_.params.begin(), description_.params.end(), pattern) -
        description_.params.begin());
    const TensorOperand& operand = row_.operands[p];
    auto seen = state->operands.find(pattern.get());
    if (seen != state->operands.end()) {
      bool same =
          seen->second.buffer == buffer && state->indices[pattern.get()].size() == indices.size();
      for (size_t d = 0; same && d < indices.size(); ++d) {
        same = StructuralEqual(state->indices[pattern.get()][d], indices[d]);
      }
      return same || Fail(StrCat(operand.name, ": expected the same element of one buffer, found ",
                                 seen->second.buffer->name, " and ", Print(Load(buffer, indices))));
    }
    if (buffer->dtype != pattern->dtype) {
      return Fail(StrCat(operand.name, ": expected ", TypeName(pattern->dtype), ", found ",
                         TypeName(buffer->dtype), " (", buffer->name, ")"));
    }
    if (!operand.scope.empty() && operand.scope != ScopeText(buffer->scope)) {
      return Fail(StrCat(operand.name, ": expected scope ", operand.scope, ", found ",
                         ScopeText(buffer->scope), " (", buffer->name, ")"));
    }
    for (const auto& [other, match] : state->operands) {
      if (match.buffer == buffer) {
        return Fail(
            StrCat(operand.name, ": expected a buffer of its own, found ", buffer->name, " again"));
      }
    }
    TensorOperandMatch match{.buffer = buffer};
    if (!StridesOf(buffer, indices, &match)) return false;
    if (!CheckStrides(operand, pattern_indices, match)) return false;
    state->operands[pattern.get()] = std::move(match);
    state->indices[pattern.get()] = indices;
    return true;
  }

  bool CheckStrides(const TensorOperand& operand, const std::vector<Expr>& pattern_indices,
                    const TensorOperandMatch& match) {
    std::vector<int> loop_of;  // of each dimension; -1 for a constant index
    for (const Expr& index : pattern_indices) {
      loop_of.push_back(-1);
      for (size_t l = 0; l < pattern_.loops.size(); ++l) {
        if (pattern_.loops[l]->var == index) loop_of.back() = static_cast<int>(l);
      }
    }
    int64_t dense = 1;
    for (size_t d = loop_of.size(); d-- > 0;) {
      size_t l = static_cast<size_t>(loop_of[d]);
      int from_last = static_cast<int>(loop_of.size() - d);
      // The stride of a loop of one iteration is never used.
      if (from_last <= operand.dense && match.strides[l] != dense && extents_[l] > 1) {
        return Fail(StrCat(operand.name, ": expected stride ", dense, " along ",
                           pattern_.loops[l]->var->name, ", found ", match.strides[l], " (",
                           match.buffer->name, ")"));
      }
      if (match.strides[l] < 0) {
        return Fail(StrCat(operand.name, ": expected strides of at least 0, found ",
                           match.strides[l], " (", match.buffer->name, ")"));
      }
      dense *= extents_[l];
    }
    for (size_t l = 0; l < match.strides.size(); ++l) {
      bool used = std::find(loop_of.begin(), loop_of.end(), static_cast<int>(l)) != loop_of.end();
      if (!used && match.strides[l] != 0 && extents_[l] > 1) {
        return Fail(StrCat(operand.name, ": expected no step along ", pattern_.loops[l]->var->name,
                           ", found ", match.strides[l], " (", match.buffer->name, ")"));
      }
    }
    return true;
  }

  // Elements written are distinct: the instruction may keep them in registers.
  std::string CheckWrites(const State& state) {
    const TensorOperandMatch& out = state.operands.at(pattern_.store->buffer.get());
    std::vector<std::pair<int64_t, int64_t>> steps;  // stride, extent
    for (const Expr& index : pattern_.store->indices) {
      for (size_t l = 0; l < pattern_.loops.size(); ++l) {
        if (pattern_.loops[l]->var == index && extents_[l] > 1)
          steps.emplace_back(out.strides[l], extents_[l]);
      }
    }
    std::sort(steps.begin(), steps.end());
    int64_t covered = 1;
    for (const auto& [stride, extent] : steps) {
      if (stride < covered) {
        return StrCat("expected that every iteration writes its own element of ", out.buffer->name,
                      ", found a stride of ", stride);
      }
      covered = stride * extent;
    }
    return "";
  }

  // The size parameter that is a value of the description, which has it as it is or cast to a type;
  // null if the pattern is something else.
  const ExprNode* ImmediateOf(const Expr& pattern) const {
    const Expr& size = pattern->kind == ExprKind::kCast ? pattern->args[0] : pattern;
    const std::vector<Var>& sizes = description_.size_params;
    return std::find(sizes.begin(), sizes.end(), size) == sizes.end() ? nullptr : size.get();
  }

  // Whether two variables are those of corresponding loops.
  bool IsSameLoop(const Expr& pattern, const Expr& e) const {
    for (size_t l = 0; l < vars_.size(); ++l) {
      if (pattern_.loops[l]->var == pattern) return vars_[l] == e;
    }
    return false;
  }

  // select(condition, X[..], constant), the same condition for all of the nest, where the
  // description reads an operand of a dot product, or with zeros what a load brings.
  bool IsGuarded(const Expr& pattern, const Expr& e) const {
    const bool loads = row_.op == TensorOp::kLoad;
    if ((row_.op != TensorOp::kDot4 && !loads) || pattern->kind != ExprKind::kLoad ||
        e->kind != ExprKind::kSelect || pattern->buffer == pattern_.store->buffer) {
      return false;
    }
    return e->args[1]->kind == ExprKind::kLoad && e->args[1]->mask == nullptr &&
           (loads ? IsInt(e->args[2], 0) : IsImmediate(e->args[2])) &&
           !e->args[0]->dtype.is_vector() &&
           std::none_of(vars_.begin(), vars_.end(),
                        [&](const Var& v) { return UsesVar(e->args[0], v); });
  }

  static bool IsImmediate(const Expr& e) {
    return e->kind == ExprKind::kIntImm || e->kind == ExprKind::kFloatImm;
  }

  // A constant where the description reads and widens a factor of a dot product: what is left of a
  // guarded one that is known to lie outside.
  bool IsConstantFactor(const Expr& pattern, const Expr& e) const {
    if (row_.op != TensorOp::kDot4 || pattern->kind != ExprKind::kCast ||
        pattern->args[0]->kind != ExprKind::kLoad || !IsImmediate(e)) {
      return false;
    }
    const DType narrow = pattern->args[0]->dtype;
    return e->dtype == pattern->dtype &&
           (e->kind == ExprKind::kIntImm ? e->int_value == WrapInt(e->int_value, narrow)
                                         : e->float_value == RoundFloat(e->float_value, narrow));
  }

  bool Unify(const Expr& pattern, const Expr& e, State* state) {
    auto mismatch = [&] { return Fail(StrCat("expected ", Print(pattern), ", found ", Print(e))); };
    if (const ExprNode* immediate = ImmediateOf(pattern); immediate != nullptr) {
      if (e->kind != ExprKind::kIntImm || e->dtype != pattern->dtype) return mismatch();
      state->immediates[immediate] = e->int_value;
      return true;
    }
    if (pattern->kind == ExprKind::kLoad && e->kind == ExprKind::kLoad && e->mask == nullptr) {
      return UnifyAccess(pattern->buffer, pattern->args, e->buffer, e->args, state);
    }
    if (IsConstantFactor(pattern, e)) {
      const Buffer& factor = pattern->args[0]->buffer;
      state->operands[factor.get()].otherwise = e->kind == ExprKind::kIntImm
                                                    ? Int(e->int_value, factor->dtype)
                                                    : Float(e->float_value, factor->dtype);
      return true;
    }
    if (IsGuarded(pattern, e)) {
      if (!UnifyAccess(pattern->buffer, pattern->args, e->args[1]->buffer, e->args[1]->args, state))
        return false;
      TensorOperandMatch& operand = state->operands[pattern->buffer.get()];
      operand.guard = e->args[0];
      operand.otherwise = e->args[2];
      return true;
    }
    if (pattern->kind != e->kind || pattern->dtype != e->dtype ||
        pattern->intrinsic != e->intrinsic || pattern->args.size() != e->args.size() ||
        e->mask != nullptr) {
      return mismatch();
    }
    switch (pattern->kind) {
      case ExprKind::kVar:
        return IsSameLoop(pattern, e) || mismatch();
      case ExprKind::kIntImm:
      case ExprKind::kFloatImm:
        return StructuralEqual(pattern, e) || mismatch();
      default:
        break;
    }
    for (bool swapped : {false, true}) {
      if (swapped && (!Commutes(pattern->kind) || pattern->args.size() != 2)) break;
      State attempt = *state;
      bool same = true;
      for (size_t i = 0; same && i < e->args.size(); ++i) {
        same = Unify(pattern->args[i], e->args[swapped ? 1 - i : i], &attempt);
      }
      if (!same) continue;
      *state = std::move(attempt);
      return true;
    }
    return false;
  }

  const TensorIntrinsic& row_;
  const Function& description_;
  const Nest pattern_;
  std::vector<Var> vars_;
  std::vector<int64_t> extents_;
  State state_;
  std::string why_;
};

// Tries the loops in every order; the error of the first attempt is the one that is told.
std::optional<TensorMatch> TryRow(const TensorIntrinsic& row, bool reset, const Nest& nest,
                                  std::string* why) {
  const Function& description = reset ? row.reset : row.update;
  if (description.body == nullptr) {
    *why = "expected an intrinsic with a reset, found one without";
    return std::nullopt;
  }
  std::vector<size_t> order(nest.loops.size());
  std::iota(order.begin(), order.end(), 0);
  constexpr size_t kMaxLoops = 5;  // 120 orders
  std::string first;
  do {
    Matcher matcher(row, description);
    std::string error = matcher.Match(nest, order);
    if (error.empty()) return matcher.Take(reset);
    if (first.empty()) first = std::move(error);
  } while (nest.loops.size() <= kMaxLoops && std::next_permutation(order.begin(), order.end()));
  *why = StrCat(first, "; the description is\n", Print(description.body));
  return std::nullopt;
}

}  // namespace

absl::StatusOr<TensorMatch> MatchTensor(const Stmt& nest, std::string_view name) {
  bool reset = name.ends_with(kResetSuffix);
  std::string_view row_name = name;
  if (reset) row_name.remove_suffix(sizeof kResetSuffix - 1);
  if (!IsTensorIntrinsic(row_name)) {
    return support::InvalidArgument(
        "ir.tensor.unknown", StrCat("expected a tensor intrinsic, found ", support::Quote(name)));
  }
  Nest found = NestOf(nest);
  std::string first;
  for (const TensorIntrinsic& row : TensorIntrinsics()) {
    if (row.name != row_name) continue;
    std::string why;
    std::optional<TensorMatch> match = TryRow(row, reset, found, &why);
    if (match.has_value()) return *std::move(match);
    if (first.empty()) first = std::move(why);
  }
  return support::FailedPrecondition("ir.tensor.mismatch",
                                     StrCat(name, ": ", first, "found\n", Print(nest)));
}

}  // namespace tilewright::ir
