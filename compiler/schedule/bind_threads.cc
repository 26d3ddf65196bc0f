// bind, virtual_thread: which axis of a launch, or which virtual thread, an iteration is.
#include <algorithm>

#include "compiler/ir/text_words.h"
#include "compiler/schedule/legality.h"
#include "compiler/schedule/primitives.h"
#include "compiler/target/machine.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::schedule {
namespace {

using ir::ForKind;
using ir::Stmt;
using support::StrCat;

constexpr int64_t kMaxVirtualThreads = 16;  // each copies the buffers and the code below it

bool AnyKind(const std::vector<Stmt>& loops, bool (*test)(ForKind)) {
  return std::any_of(loops.begin(), loops.end(), [&](const Stmt& l) { return test(l->for_kind); });
}
bool RunsElsewhere(ForKind k) { return k == ForKind::kParallel || k == ForKind::kVectorized; }
bool IsParallel(ForKind k) { return k == ForKind::kParallel; }

// Why an axis may not stand between the loops around and below; empty when it may.
std::string WhyNotThere(ForKind axis, const std::vector<Stmt>& around,
                        const std::vector<Stmt>& below) {
  if (AnyKind(around, RunsElsewhere)) return "no parallel or vectorised loop around, found one";
  if (AnyKind(below, IsParallel)) return "no parallel loop below, found one";
  if (HasLoopOfKind(around, axis) || HasLoopOfKind(below, axis))
    return "each axis once on a path, found it twice";
  if (ir::IsBlockAxis(axis) && AnyKind(around, ir::IsThreadAxis))
    return "block axes around thread axes, found a thread axis around";
  if (ir::IsThreadAxis(axis) && AnyKind(below, ir::IsBlockAxis))
    return "block axes around thread axes, found a block axis below";
  return "";
}

absl::Status CheckRange(const Step& step, const Stmt& loop, bool constant, int64_t most) {
  const int64_t* extent = ir::AsInt(loop->range.extent);
  if (!ir::IsInt(loop->range.min, 0) || (constant && extent == nullptr)) {
    return Refuse(step, "range",
                  StrCat("expected a range from 0", constant ? " with a constant end" : "",
                         ", found that of ", loop->var->name),
                  loop);
  }
  if (!constant || *extent <= most) return absl::OkStatus();
  return Refuse(step, "extent", StrCat("expected at most ", most, " threads, found ", *extent),
                loop);
}

}  // namespace

absl::Status ApplyBind(Schedule& s, const Step& step) {
  TW_ASSIGN(Path path, LoopPath(s, step, 0));
  const Stmt& loop = path.back();
  TW_TRY(CheckSerial(step, loop));
  ForKind axis = *ir::ParseForKind(step.word);
  TW_TRY(CheckRange(step, loop, ir::IsThreadAxis(axis), target::kMostGroupThreads));
  std::string why = WhyNotThere(axis, LoopsOf(path, path.size() - 1), LoopsBelow(loop));
  if (!why.empty()) return Refuse(step, "nested", StrCat("expected ", why), path[0]);
  why = WhyNotConcurrent(s.function(), path, /*vector=*/false);
  if (!why.empty()) {
    return Refuse(step, "conflict",
                  StrCat(why,
                         "; rfactor makes a loop of a reduction one of partial results, which "
                         "threads may share out"),
                  loop);
  }
  SetKind(s, path, axis);
  return absl::OkStatus();
}

absl::Status ApplyVirtualThread(Schedule& s, const Step& step) {
  TW_ASSIGN(Path path, LoopPath(s, step, 0));
  const Stmt& loop = path.back();
  TW_TRY(CheckSerial(step, loop));
  TW_TRY(CheckRange(step, loop, /*constant=*/true, kMaxVirtualThreads));
  if (HasLoopOfKind(LoopsOf(path, path.size() - 1), ForKind::kVectorized) ||
      HasLoopOfKind(LoopsBelow(loop), ForKind::kParallel)) {
    return Refuse(step, "nested",
                  "expected no vectorised loop around and no parallel loop below, found one",
                  path[0]);
  }
  std::string why = WhyNotConcurrent(s.function(), path, /*vector=*/false);
  if (!why.empty()) return Refuse(step, "conflict", why, loop);
  SetKind(s, path, ForKind::kVirtual);
  return absl::OkStatus();
}

}  // namespace tilewright::schedule
