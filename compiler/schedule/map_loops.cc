// vectorize, unroll, parallel, annotate: how a loop runs, not what it does.
#include <algorithm>

#include "compiler/schedule/legality.h"
#include "compiler/schedule/primitives.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::schedule {
namespace {

using ir::ForKind;
using ir::Stmt;
using support::StrCat;

constexpr int64_t kMaxLanes = 64;
constexpr int64_t kMaxUnroll = 256;

absl::Status CheckConstantExtent(const Step& step, const Stmt& loop, int64_t lo, int64_t hi) {
  const int64_t* extent = ir::AsInt(loop->range.extent);
  if (extent != nullptr && *extent >= lo && *extent <= hi) return absl::OkStatus();
  return Refuse(step, "extent",
                StrCat("expected a constant extent in ", lo, "..", hi, ", found ",
                       extent == nullptr ? "an expression" : std::to_string(*extent)),
                loop);
}

bool HasConcurrent(const std::vector<Stmt>& loops) {
  return std::any_of(loops.begin(), loops.end(),
                     [](const Stmt& l) { return ir::IsConcurrent(l->for_kind); });
}
bool HasBound(const std::vector<Stmt>& loops) {
  return std::any_of(loops.begin(), loops.end(),
                     [](const Stmt& l) { return ir::IsBound(l->for_kind); });
}

}  // namespace

absl::Status ApplyVectorize(Schedule& s, const Step& step) {
  TW_ASSIGN(Path path, LoopPath(s, step, 0));
  const Stmt& loop = path.back();
  TW_TRY(CheckSerial(step, loop));
  TW_TRY(CheckConstantExtent(step, loop, 2, kMaxLanes));
  std::vector<Stmt> below = LoopsBelow(loop);
  if (HasLoopOfKind(LoopsOf(path, path.size() - 1), ForKind::kVectorized) || HasConcurrent(below)) {
    return Refuse(
        step, "nested",
        "expected no vectorised loop around and no parallel, vectorised, bound or virtual "
        "loop below, found one",
        path[0]);
  }
  for (const Stmt& inner : below) {
    if (ir::AsInt(inner->range.min) == nullptr || ir::AsInt(inner->range.extent) == nullptr) {
      return Refuse(step, "inner_range",
                    StrCat("expected constant ranges below, found that of ", inner->var->name),
                    loop);
    }
  }
  std::string why = WhyNotConcurrent(s.function(), path, /*vector=*/true);
  if (!why.empty()) return Refuse(step, "conflict", why, loop);
  SetKind(s, path, ForKind::kVectorized);
  return absl::OkStatus();
}

absl::Status ApplyUnroll(Schedule& s, const Step& step) {
  TW_ASSIGN(Path path, LoopPath(s, step, 0));
  TW_TRY(CheckSerial(step, path.back()));
  TW_TRY(CheckConstantExtent(step, path.back(), 1, kMaxUnroll));
  SetKind(s, path, ForKind::kUnrolled);
  return absl::OkStatus();
}

absl::Status ApplyParallel(Schedule& s, const Step& step) {
  TW_ASSIGN(Path path, LoopPath(s, step, 0));
  const Stmt& loop = path.back();
  TW_TRY(CheckSerial(step, loop));
  std::vector<Stmt> around = LoopsOf(path, path.size() - 1);
  if (HasLoopOfKind(around, ForKind::kParallel) || HasLoopOfKind(around, ForKind::kVectorized) ||
      HasLoopOfKind(LoopsBelow(loop), ForKind::kParallel) || HasBound(around) ||
      HasBound(LoopsBelow(loop))) {
    return Refuse(
        step, "nested",
        "expected no parallel or bound loop around or below and no vectorised loop around, "
        "found one",
        path[0]);
  }
  std::string why = WhyNotConcurrent(s.function(), path, /*vector=*/false);
  if (!why.empty()) return Refuse(step, "conflict", why, loop);
  SetKind(s, path, ForKind::kParallel);
  return absl::OkStatus();
}

absl::Status ApplyAnnotate(Schedule& s, const Step& step) {
  int handle = step.handles[0];
  bool on_block = handle >= 0 && handle < static_cast<int>(s.handles().size()) &&
                  s.handles()[static_cast<size_t>(handle)].kind == Handle::Kind::kBlock;
  Path path;
  if (on_block) {
    TW_ASSIGN(path, BlockPath(s, step, 0));
  } else {
    TW_ASSIGN(path, LoopPath(s, step, 0));
  }
  auto node = std::make_shared<ir::StmtNode>(*path.back());
  for (const auto& [key, value] : step.options) {
    auto rows = AnnotationRows();
    auto row = std::find_if(rows.begin(), rows.end(),
                            [&](const AnnotationRow& r) { return r.key == key; });
    if (row == rows.end()) {
      return Refuse(step, "unknown_key", StrCat("expected a known annotation, found ", key),
                    nullptr);
    }
    if (row->on != 'h' && (row->on == 'b') != on_block) {
      return Refuse(step, "wrong_kind",
                    StrCat("expected a ", row->on == 'b' ? "block" : "loop", " for ", key,
                           ", found the other"),
                    path.back());
    }
    auto number = support::ParseInt64(value);
    if (!number.has_value() || *number < row->min || *number > row->max) {
      return Refuse(step, "value",
                    StrCat("expected ", key, " in ", row->min, "..", row->max, ", found ",
                           support::Quote(value)),
                    nullptr);
    }
    node->annotations[key] = *number;
  }
  s.SetBody(ReplaceAt(path, path.size() - 1, std::move(node)));
  return absl::OkStatus();
}

}  // namespace tilewright::schedule
