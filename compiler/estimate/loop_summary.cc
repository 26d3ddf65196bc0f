#include "compiler/estimate/loop_summary.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <variant>

#include "compiler/analysis/address.h"
#include "compiler/analysis/analyzer.h"
#include "compiler/ir/interp.h"
#include "compiler/ir/structural.h"
#include "compiler/ir/tensor_intrinsics.h"
#include "compiler/ir/type_rules.h"
#include "compiler/ir/visit.h"

namespace tilewright::estimate {
namespace {

using ir::Expr;
using ir::ExprKind;
using ir::kDotTerms;

constexpr int64_t kTermsBytes = 4;  // of the terms of one lane

// Groups that share out the iterations of a block loop (share_tiles); 0: each is a group.
int64_t SharingGroups(const ir::StmtNode& loop) {
  const auto mark = loop.annotations.find("groups");
  if (mark == loop.annotations.end() || !ir::IsBlockAxis(loop.for_kind)) return 0;
  const auto* groups = std::get_if<int64_t>(&mark->second);
  return groups == nullptr ? 0 : *groups;
}

int64_t ConstantExtent(const Expr& extent, const analysis::Analyzer& sizes) {
  if (const int64_t* value = ir::AsInt(extent)) return std::max<int64_t>(*value, 1);
  const analysis::Interval range = sizes.Values(extent);
  return range.is_bounded() && range.max < (int64_t{1} << 40) ? std::max<int64_t>(range.max, 1) : 1;
}

using Values = std::vector<std::pair<ir::Var, int64_t>>;

// With variables of these values: of a choice that they decide, only what is chosen costs anything.
void CountOps(const Expr& e, const Values& decided, double weight, OpCounts* ops) {
  ir::VisitExprs(e, [&](const Expr& x) {
    const bool floating = x->dtype.is_float();
    switch (x->kind) {
      case ExprKind::kLoad:
        return false;  // index arithmetic is the addressing's business
      case ExprKind::kAdd:
      case ExprKind::kSub:
        (floating ? ops->add : ops->integer) += weight;
        break;
      case ExprKind::kMul:
        (floating ? ops->mul : ops->integer) += weight;
        break;
      case ExprKind::kDiv:
      case ExprKind::kMod:
      case ExprKind::kFloorDiv:
      case ExprKind::kFloorMod:
        (floating ? ops->divide : ops->integer) += weight;
        break;
      case ExprKind::kMin:
      case ExprKind::kMax:
        (floating ? ops->compare : ops->integer) += weight;
        break;
      case ExprKind::kSelect:
        if (!decided.empty()) {
          if (const auto holds = ir::EvalIntExpr(x->args[0], decided); holds.ok()) {
            CountOps(x->args[*holds != 0 ? 1 : 2], decided, weight, ops);
            return false;
          }
        }
        ops->select += weight;
        break;
      case ExprKind::kCall:
        if (x->intrinsic == ir::Intrinsic::kFma) {
          ops->add += weight;
          ops->mul += weight;
        } else if (ir::IsIntegerStep(x->intrinsic)) {
          ops->integer += weight;
        } else {
          ops->special += weight;
        }
        break;
      default:
        break;
    }
    return true;
  });
}

// Of a visit, on average over the iterations of unrolled loops whose numbers decide choices: copies
// of the body have none of those, as the rows of Winograd's transforms.
OpCounts OpsOf(const Expr& value, const std::vector<LoopSummary>& loops) {
  constexpr size_t kMostCases = 256;
  std::vector<Expr> conditions;
  ir::VisitExprs(value, [&](const Expr& x) {
    if (x->kind == ExprKind::kSelect) conditions.push_back(x->args[0]);
    return x->kind != ExprKind::kLoad;
  });
  std::vector<Values> cases = {{}};
  for (const LoopSummary& loop : loops) {
    if (loop.kind != ir::ForKind::kUnrolled) continue;
    const bool decides = std::ranges::any_of(
        conditions, [&](const Expr& condition) { return ir::UsesVar(condition, loop.var); });
    if (!decides || cases.size() * static_cast<size_t>(loop.extent) > kMostCases) continue;
    std::vector<Values> more;
    for (const Values& known : cases) {
      for (int64_t i = 0; i < loop.extent; ++i) {
        more.push_back(known);
        more.back().emplace_back(loop.var, loop.min + i);
      }
    }
    cases = std::move(more);
  }
  OpCounts ops;
  for (const Values& known : cases)
    CountOps(value, known, 1.0 / static_cast<double>(cases.size()), &ops);
  return ops;
}

// Vector operations on integers that make an integer; those of conditions are not of vectors.
double WholeOps(const Expr& e) {
  double ops = 0;
  ir::VisitExprs(e, [&](const Expr& x) {
    if (x->kind == ExprKind::kLoad || !x->dtype.is_int()) return false;
    switch (x->kind) {
      case ExprKind::kMul:
        ops += 2;
        break;
      case ExprKind::kAdd:
      case ExprKind::kSub:
      case ExprKind::kMin:
      case ExprKind::kMax:
        ops += 1;
        break;
      default:
        if (x->kind == ExprKind::kCall && ir::IsIntegerStep(x->intrinsic)) ops += 1;
    }
    return true;
  });
  return ops;
}

// Whether the nest is of dot products of bytes, or only clears their sums.
bool IsDotNest(const ir::StmtNode& loop) {
  std::string_view name = ir::TensorNameOf(loop);
  if (name.empty()) return false;
  if (name.ends_with(ir::kResetSuffix))
    name.remove_suffix(std::string_view(ir::kResetSuffix).size());
  return std::any_of(ir::TensorIntrinsics().begin(), ir::TensorIntrinsics().end(),
                     [&](const ir::TensorIntrinsic& row) {
                       return row.name == name &&
                              (row.op == ir::TensorOp::kDot4 || row.op == ir::TensorOp::kDotTile);
                     });
}

// The loop of the nest from `nest` on, along which every operand lies term by term, or has all of
// them in a word; -1: none.
int TermsLoop(const StatementSummary& s, size_t nest) {
  for (size_t i = nest; i < s.loops.size(); ++i) {
    const int64_t extent = s.loops[i].extent;
    const bool terms =
        (extent == kDotTerms || extent == ir::kPairTerms) && !s.loops[i].moves_store &&
        std::all_of(s.accesses.begin() + 1, s.accesses.end(), [&](const auto& a) {
          return a.element_bytes == (a.strides[i] == 0 ? kTermsBytes : kTermsBytes / extent) &&
                 a.strides[i] <= 1;
        });
    if (terms && s.accesses.size() > 1) return static_cast<int>(i);
  }
  return -1;
}

// The terms of a word are one element.
void PackTerms(size_t loop, int64_t terms, AccessSummary* access) {
  const auto at = static_cast<std::ptrdiff_t>(loop);
  const bool packed = access->strides[loop] != 0;
  access->strides.erase(access->strides.begin() + at);
  access->unique.erase(access->unique.begin() + at + 1);
  if (!packed) return;
  access->element_bytes *= terms;
  for (int64_t& stride : access->strides) stride /= terms;
  for (double& unique : access->unique) unique = std::ceil(unique / static_cast<double>(terms));
}

// What one instruction does of the loops from `nest` on.
void MergeDotNest(size_t nest, StatementSummary* s) {
  for (size_t i = nest; i < s->loops.size(); ++i) {
    s->loops[i].kind = s->loops[i].moves_store ? ir::ForKind::kVectorized : ir::ForKind::kUnrolled;
  }
  const int terms = TermsLoop(*s, nest);
  if (terms < 0) return;  // sums that are cleared
  const auto at = static_cast<size_t>(terms);
  const int64_t of_word = s->loops[at].extent;
  for (AccessSummary& access : s->accesses) PackTerms(at, of_word, &access);
  s->loops.erase(s->loops.begin() + terms);
  s->iterations /= static_cast<double>(of_word);
  s->ops = {.dots = 1, .dot_terms = static_cast<double>(of_word)};
}

class Summarizer {
 public:
  explicit Summarizer(const ir::Function& f) : sizes_(f) {
    for (const ir::Buffer& param : f.params) out_.parameter_bytes += BufferBytes(param);
    if (f.body) Walk(f.body, false);
    for (size_t i = 1; i < out_.statements.size(); ++i) {
      const StatementSummary& best = out_.statements[out_.critical];
      const StatementSummary& s = out_.statements[i];
      if (s.flops() > best.flops() ||
          (s.flops() == best.flops() && s.iterations > best.iterations)) {
        out_.critical = i;
      }
    }
  }
  ProgramSummary Take() { return std::move(out_); }

 private:
  double BufferBytes(const ir::Buffer& buffer) const {
    double bytes = buffer->dtype.bytes();
    if (buffer->scope == ir::Scope::kShared && !buffer->shape.empty()) {
      return bytes * DimStrides(buffer)[0] *
             static_cast<double>(ConstantExtent(buffer->shape[0], sizes_));
    }
    for (const Expr& extent : buffer->shape) {
      bytes *= static_cast<double>(ConstantExtent(extent, sizes_));
    }
    return bytes;
  }

  // Elements from one index of each dimension to the next.
  std::vector<double> DimStrides(const ir::Buffer& buffer) const {
    std::vector<double> strides(buffer->shape.size(), 1);
    for (size_t d = strides.size(); d-- > 1;) {
      strides[d - 1] = strides[d] * static_cast<double>(ConstantExtent(buffer->shape[d], sizes_));
      if (buffer->storage_align.has_value()) {
        const auto inside = static_cast<int64_t>(strides[d - 1]);
        strides[d - 1] = static_cast<double>(ir::AlignedStride(*buffer, d - 1, inside));
      }
    }
    return strides;
  }

  // Versions of what a pipeline's first stage writes for its last.
  static int64_t VersionsOf(const ir::Stmt& body) {
    int64_t last = 1;
    ir::VisitStmts(body, [&](const ir::Stmt& s) {
      const auto stage = s->annotations.find("pipeline_stage");
      if (stage == s->annotations.end()) return true;
      if (const int64_t* n = std::get_if<int64_t>(&stage->second)) last = std::max(last, *n);
      return false;
    });
    return last + 1;
  }

  // What runs iterations before its use writes to another version of its buffer.
  static bool IsAhead(const ir::StmtNode& loop) {
    const auto stage = loop.annotations.find("pipeline_stage");
    if (stage == loop.annotations.end()) return false;
    const int64_t* number = std::get_if<int64_t>(&stage->second);
    return number != nullptr && *number == 0;
  }

  void Walk(const ir::Stmt& s, bool guarded) {
    const bool host = s->kind == ir::StmtKind::kSeq ||
                      (s->kind == ir::StmtKind::kAlloc &&
                       ir::StorageRankOf(s->buffer->scope) == ir::StorageRank::kDevice);
    if (in_launch_ || host) return WalkPart(s, guarded);
    out_.launches.push_back({.with_next = s->annotations.contains("with_next")});
    in_launch_ = true;
    WalkPart(s, guarded);
    in_launch_ = false;
  }

  void WalkPart(const ir::Stmt& s, bool guarded) {
    switch (s->kind) {
      case ir::StmtKind::kFor: {
        const analysis::Interval min = sizes_.Values(s->range.min);
        const bool peel = s->annotations.count("tail") > 0;
        loops_.push_back({s->var, min.is_bounded() ? min.min : 0,
                          ConstantExtent(s->range.extent, sizes_), s->for_kind, false, false, 1,
                          s->annotations.contains("sub_group"), SharingGroups(*s)});
        peels_.push_back(peel);
        peeled_loops_ += peel;
        const bool bulk = s->annotations.contains(ir::kBulkCopyKey);
        bulk_loops_ += bulk;
        const bool ahead = IsAhead(*s);
        loops_ahead_ += ahead;
        const int64_t around_versions = versions_;
        const bool around_async = async_;
        if (s->annotations.contains("pipeline")) {
          versions_ = VersionsOf(s->body);
          async_ = s->annotations.contains("pipeline_async");
        }
        const std::optional<size_t> around = dot_nest_;
        if (IsDotNest(*s)) dot_nest_ = loops_.size() - 1;
        Walk(s->body, guarded);
        dot_nest_ = around;
        loops_ahead_ -= ahead;
        versions_ = around_versions;
        async_ = around_async;
        peeled_loops_ -= peel;
        bulk_loops_ -= bulk;
        loops_.pop_back();
        peels_.pop_back();
        break;
      }
      case ir::StmtKind::kSeq:
        for (const ir::Stmt& child : s->stmts) Walk(child, guarded);
        break;
      case ir::StmtKind::kIf:
        conditions_.push_back(s->condition);
        Walk(s->body, true);
        conditions_.pop_back();
        if (s->else_body) Walk(s->else_body, true);
        break;
      case ir::StmtKind::kAlloc: {
        if (s->buffer->scope == ir::Scope::kShared && in_launch_) {
          out_.launches.back().shared_bytes += static_cast<int64_t>(BufferBytes(s->buffer));
        } else {
          const bool own = ir::StorageRankOf(s->buffer->scope) == ir::StorageRank::kThread;
          (own ? out_.local_bytes : out_.global_alloc_bytes) += BufferBytes(s->buffer);
        }
        Walk(s->body, guarded);
        break;
      }
      case ir::StmtKind::kLet:
        Walk(s->body, guarded);
        break;
      case ir::StmtKind::kStore:
        AddStore(*s, guarded);
        break;
      default:
        break;
    }
  }

  void AddStore(const ir::StmtNode& store, bool guarded) {
    StatementSummary summary;
    summary.loops = loops_;
    summary.launch = out_.launches.size() - 1;
    if (store.buffer->scope == ir::Scope::kShared && loops_ahead_ > 0 &&
        ahead_.insert(store.buffer).second) {
      out_.launches.back().shared_bytes +=
          (versions_ - 1) * static_cast<int64_t>(BufferBytes(store.buffer));
    }
    if (loops_ahead_ > 0 && async_) summary.ahead = versions_ - 1;
    summary.bulk = bulk_loops_ > 0 && summary.ahead > 0;
    summary.guarded = guarded || store.mask != nullptr;
    summary.peeled = peeled_loops_ > 0;
    summary.ops = OpsOf(store.value, summary.loops);
    summary.ops.whole = WholeOps(store.value);
    AddAccess(store.buffer, store.indices, true, &summary);
    ir::VisitExprs(store.value, [&](const Expr& x) {
      if (x->kind == ExprKind::kLoad) {
        if (x->buffer == store.buffer) summary.accumulates = true;
        AddAccess(x->buffer, x->args, false, &summary);
      }
      return true;
    });
    for (size_t i = 0; i < summary.loops.size(); ++i) {
      const LoopSummary& loop = summary.loops[i];
      summary.iterations *= static_cast<double>(loop.extent);
      if (peels_[i]) summary.loops[i].last_share = LastShare(i, store.mask);
      summary.loops[i].moves_store =
          std::any_of(store.indices.begin(), store.indices.end(),
                      [&](const Expr& index) { return ir::UsesVar(index, loop.var); });
    }
    MarkReductions(store.buffer, &summary);
    if (dot_nest_.has_value()) MergeDotNest(*dot_nest_, &summary);
    summary.fragments = std::any_of(
        summary.accesses.begin(), summary.accesses.end(),
        [](const AccessSummary& access) { return ir::IsFragmentScope(access.buffer->scope); });
    out_.statements.push_back(std::move(summary));
  }

  // Loops that do not move an accumulator are those of the sum, or around all of it where a local
  // accumulator is used again: the latter contain its start, too.
  void MarkReductions(const ir::Buffer& accumulator, StatementSummary* summary) {
    if (!summary->accumulates) {
      started_[accumulator] = loops_;
      return;
    }
    const auto start = started_.find(accumulator);
    if (start == started_.end()) return;
    for (LoopSummary& loop : summary->loops) {
      const bool around = std::any_of(start->second.begin(), start->second.end(),
                                      [&](const LoopSummary& l) { return l.var == loop.var; });
      loop.reduces = !loop.moves_store && !around;
    }
  }

  // How much of the last iteration of loop `at` the conditions around a store (and its mask) admit.
  double LastShare(size_t at, const Expr& mask) const {
    double share = 1;
    for (const Expr& condition : conditions_) share = std::min(share, Admitted(condition, at));
    if (mask != nullptr) share = std::min(share, Admitted(mask, at));
    return share;
  }

  // a < b over the loops inside `at`, that one at its last iteration and the others outside at
  // their first: the share of a's range that is below b.
  double Admitted(const Expr& condition, size_t at) const {
    if (condition->kind == ExprKind::kAnd) {
      return std::min(Admitted(condition->args[0], at), Admitted(condition->args[1], at));
    }
    if (condition->kind != ExprKind::kLt || !ir::UsesVar(condition, loops_[at].var)) return 1;
    analysis::Analyzer analyzer = sizes_;
    for (size_t i = 0; i < loops_.size(); ++i) {
      const LoopSummary& loop = loops_[i];
      const int64_t last = loop.min + loop.extent - 1;
      analyzer.Set(loop.var, i < at    ? analysis::Interval::Point(loop.min)
                             : i == at ? analysis::Interval::Point(last)
                                       : analysis::Interval{loop.min, last});
    }
    const analysis::Interval left = analyzer.Values(condition->args[0]);
    const analysis::Interval right = analyzer.Values(condition->args[1]);
    if (!left.is_bounded() || !right.is_bounded()) return 1;
    const double width = static_cast<double>(left.max - left.min + 1);
    // A vector that is cut takes as long as a whole one.
    double step = 1;
    for (const LoopSummary& loop : loops_) {
      if (loop.kind == ir::ForKind::kVectorized && ir::UsesVar(condition, loop.var)) {
        step *= static_cast<double>(loop.extent);
      }
    }
    const double admitted = std::ceil(static_cast<double>(right.max - left.min) / step) * step;
    return std::clamp(admitted / width, 1 / width, 1.0);
  }

  void AddAccess(const ir::Buffer& buffer, const std::vector<Expr>& indices, bool is_write,
                 StatementSummary* summary) {
    for (const AccessSummary& seen : summary->accesses) {
      if (seen.buffer == buffer && (seen.is_write || ir::StructuralEqual(seen.indices, indices)))
        return;
    }
    AccessSummary access{buffer, indices, buffer->dtype.bytes(), is_write, {}, {}, {}, 0};
    const std::vector<double> dim_stride = DimStrides(buffer);
    std::vector<analysis::FirstValue> first;
    for (const LoopSummary& loop : loops_) first.push_back({loop.var, loop.min});
    access.strides = analysis::FirstSteps(indices, dim_stride, first, sizes_);
    FillThreadOffsets(dim_stride, &access);
    FillUnique(&access);
    summary->accesses.push_back(std::move(access));
  }

  // Threads count along x first. Every other loop is at its first iteration.
  void FillThreadOffsets(const std::vector<double>& dim_stride, AccessSummary* access) const {
    std::vector<const LoopSummary*> axes;
    for (const LoopSummary& loop : loops_) {
      if (ir::IsThreadAxis(loop.kind)) axes.push_back(&loop);
    }
    if (axes.empty()) return;
    std::sort(axes.begin(), axes.end(), [](const LoopSummary* a, const LoopSummary* b) {
      return ir::AxisOf(a->kind) < ir::AxisOf(b->kind);
    });
    int64_t threads = 1;
    for (const LoopSummary* axis : axes) threads *= axis->extent;
    analysis::Analyzer analyzer = sizes_;
    for (const LoopSummary& loop : loops_) {
      analyzer.Set(loop.var, analysis::Interval::Point(loop.min));
    }
    double first = 0;
    for (int64_t thread = 0; thread < std::min(threads, kSeenThreads); ++thread) {
      int64_t rest = thread;
      for (const LoopSummary* axis : axes) {
        analyzer.Set(axis->var, analysis::Interval::Point(axis->min + rest % axis->extent));
        rest /= axis->extent;
      }
      const double flat = analysis::FlatAddress(access->indices, dim_stride, analyzer);
      if (thread == 0) first = flat;
      access->thread_offsets.push_back(static_cast<int64_t>(flat - first));
    }
    access->first = static_cast<int64_t>(first);
  }

  void FillUnique(AccessSummary* access) const {
    access->unique.assign(loops_.size() + 1, 1);
    analysis::Analyzer analyzer = sizes_;
    for (const LoopSummary& loop : loops_) {
      analyzer.Set(loop.var, analysis::Interval::Point(loop.min));
    }
    for (size_t i = loops_.size(); i-- > 0;) {
      analyzer.Set(loops_[i].var, {loops_[i].min, loops_[i].min + loops_[i].extent - 1});
      double unique = 1;
      for (size_t d = 0; d < access->indices.size(); ++d) {
        const double extent = static_cast<double>(ConstantExtent(access->buffer->shape[d], sizes_));
        const analysis::Interval range = analyzer.Values(access->indices[d]);
        const double span =
            range.is_bounded() ? static_cast<double>(range.max - range.min + 1) : extent;
        unique *= std::clamp(span, 1.0, extent);
      }
      access->unique[i] = unique;
    }
  }

  analysis::Analyzer sizes_;
  std::vector<LoopSummary> loops_;
  std::vector<bool> peels_;         // of loops_
  std::vector<Expr> conditions_;    // of the ifs around
  std::optional<size_t> dot_nest_;  // the first of loops_ that an instruction runs
  int peeled_loops_ = 0, loops_ahead_ = 0, bulk_loops_ = 0;
  bool in_launch_ = false;
  std::unordered_set<ir::Buffer> ahead_;  // shared buffers with several versions
  int64_t versions_ = 1;                  // of what the pipeline around fetches ahead
  bool async_ = false;                    // no thread waits for those copies
  std::unordered_map<ir::Buffer, std::vector<LoopSummary>> started_;  // loops around first stores
  ProgramSummary out_;
};

}  // namespace

double OpCounts::flops() const {
  return add + mul + divide + special + compare + 2 * dot_terms * dots;
}

double StatementSummary::Product(ir::ForKind kind) const {
  double product = 1;
  for (const LoopSummary& loop : loops) {
    if (loop.kind == kind) product *= static_cast<double>(loop.extent);
  }
  return product;
}

double StatementSummary::Groups() const {
  double product = 1;
  for (const LoopSummary& loop : loops) {
    if (ir::IsBlockAxis(loop.kind)) product *= static_cast<double>(loop.extent);
  }
  return product;
}

double StatementSummary::LaunchedGroups() const {
  double product = 1;
  for (const LoopSummary& loop : loops) {
    if (!ir::IsBlockAxis(loop.kind)) continue;
    product *=
        static_cast<double>(loop.groups > 0 ? std::min(loop.groups, loop.extent) : loop.extent);
  }
  return product;
}

double StatementSummary::Threads() const {
  double product = 1;
  for (const LoopSummary& loop : loops) {
    if (ir::IsThreadAxis(loop.kind)) product *= static_cast<double>(loop.extent);
  }
  return product;
}

ProgramSummary Summarize(const ir::Function& loops) { return Summarizer(loops).Take(); }

}  // namespace tilewright::estimate
