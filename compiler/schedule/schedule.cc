#include "compiler/schedule/schedule.h"

#include <algorithm>
#include <utility>

#include "compiler/ir/ir_text.h"
#include "compiler/ir/structural.h"
#include "compiler/ir/tensor_intrinsics.h"
#include "compiler/ir/verify.h"
#include "compiler/ir/visit.h"
#include "compiler/schedule/loop_tree.h"
#include "compiler/schedule/primitives.h"
#include "deploy/support/hash.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::schedule {
namespace {

using support::StrCat;

using ApplyFn = absl::Status (*)(Schedule&, const Step&);
constexpr ApplyFn kApply[] = {
#define TW_STEP(Name, text, operands, parameters) &Apply##Name,
#include "compiler/schedule/steps.def"
};

bool HasTensorMarks(const ir::Stmt& body) {
  bool found = false;
  ir::VisitStmts(body, [&](const ir::Stmt& s) {
    found = found || !ir::TensorNameOf(*s).empty();
    return !found;
  });
  return found;
}

// Every marked nest still is what its mark says.
absl::Status CheckTensorMarks(const Step& step, const ir::Stmt& body) {
  absl::Status status;
  ir::VisitStmts(body, [&](const ir::Stmt& s) {
    std::string_view name = ir::TensorNameOf(*s);
    if (name.empty() || !status.ok()) return status.ok();
    auto match = ir::MatchTensor(s, name);
    if (!match.ok()) {
      status = support::FailedPrecondition(
          StrCat("schedule.", RowOf(step.kind).name, ".tensor"),
          StrCat("expected tensorized loops to stay as they are, found a change: ",
                 support::StatusText(match.status())));
    }
    return false;
  });
  return status;
}

// Of what most steps differ in.
uint64_t HashOf(const Step& step) {
  support::Hasher64 hasher;
  hasher.Add(static_cast<int>(step.kind));
  for (const int handle : step.handles) hasher.Add(handle);
  for (const int64_t factor : step.factors) hasher.Add(factor);
  return hasher.Finish();
}

}  // namespace

Schedule::Schedule(ir::Function function) { Restart(std::move(function)); }

Schedule::Schedule(std::vector<Variant> variants)
    : variants_(std::make_shared<const std::vector<Variant>>(std::move(variants))) {
  TW_CHECK(!variants_->empty()) << "a schedule starts from a function";
  Restart(variants_->front().function);
}

const std::vector<Variant>& Schedule::variants() const {
  static const std::vector<Variant>* const kNone = new std::vector<Variant>();
  return variants_ == nullptr ? *kNone : *variants_;
}

void Schedule::Restart(ir::Function function) {
  State& now = mutable_state();
  now.function = std::move(function);
  now.handles.Own().clear();
  now.used_names.Own().clear();
  for (const ir::Var& v : now.function.size_params) Reserve(v->name);
  for (const ir::Buffer& b : now.function.params) Reserve(b->name);
  for (const ir::Buffer& b : now.function.allocs) Reserve(b->name);
  if (now.function.body != nullptr) {
    Number(now.function.body);
    now.tensorized = HasTensorMarks(now.function.body);
  }
  now.last_results.clear();
}

void Schedule::Number(const ir::Stmt& s) {
  switch (s->kind) {
    case ir::StmtKind::kFor:
      Reserve(s->var->name);
      AddLoop(s->var);
      Number(s->body);
      return;
    case ir::StmtKind::kSeq:
      for (const ir::Stmt& child : s->stmts) Number(child);
      return;
    case ir::StmtKind::kBlock:
      for (const ir::IterVar& iter : s->iters) Reserve(iter.var->name);
      Reserve(s->name);
      AddBlock(s->name);
      return;
    default:
      return;
  }
}

void Schedule::Reserve(std::string_view name) {
  mutable_state().used_names.Own().push_back(support::StableHash64(name));
}

std::string Schedule::UniqueName(std::string_view wanted) {
  auto taken = [&](std::string_view name) {
    uint64_t hash = support::StableHash64(name);
    const std::vector<uint64_t>& used = *state().used_names;
    return std::find(used.begin(), used.end(), hash) != used.end();
  };
  std::string name(wanted);
  for (int n = 1; taken(name); ++n) name = std::string(wanted) + "_r" + std::to_string(n);
  Reserve(name);
  return name;
}

void Schedule::RememberSteps() {
  if (at_ != nullptr) return;
  at_ = std::make_shared<Remembered>();
  at_->state = std::make_unique<const State>(std::exchange(state_, {}));
  at_->count = std::make_shared<size_t>(0);
  owns_state_ = false;
}

void Schedule::OwnState() {
  if (owns_state_) return;
  state_ = *at_->state;
  owns_state_ = true;
}

Schedule::State& Schedule::mutable_state() {
  OwnState();
  at_ = nullptr;  // what becomes of it now is nobody's step
  return state_;
}

std::string Schedule::ProgramHash() const {
  if (at_ == nullptr) return ir::ProgramHash(function());
  if (at_->program_hash.empty()) at_->program_hash = ir::ProgramHash(function());
  return at_->program_hash;
}

absl::Status Schedule::Apply(const Step& step) {
  absl::Status status = at_ == nullptr ? ApplyNow(step) : ApplyRemembered(step);
  if (status.ok()) steps_.push_back(step);
  return status;
}

absl::Status Schedule::ApplyRemembered(const Step& step) {
  const uint64_t hash = HashOf(step);
  const auto known = std::find_if(at_->next.begin(), at_->next.end(), [&](const auto& next) {
    return next->hash == hash && next->step == step;
  });
  std::shared_ptr<Remembered> to = known == at_->next.end() ? nullptr : *known;
  if (to != nullptr && !to->status.ok()) return to->status;
  if (to != nullptr && to->state != nullptr) {
    at_ = std::move(to);
    if (owns_state_) state_ = {};
    owns_state_ = false;
    return absl::OkStatus();
  }
  OwnState();
  const std::shared_ptr<Remembered> from = std::exchange(at_, nullptr);
  const absl::Status status = ApplyNow(step);
  if (to == nullptr) {
    to = std::make_shared<Remembered>(Remembered{step, hash, status, nullptr, "", {}, from->count});
    ++*to->count;
    from->next.push_back(to);
  } else if (status.ok()) {
    to->state = std::make_unique<const State>(std::exchange(state_, {}));
    owns_state_ = false;
  }
  at_ = status.ok() ? std::move(to) : from;
  return status;
}

// The step itself; not yet in the list of steps.
absl::Status Schedule::ApplyNow(const Step& step) {
  TW_TRY(CheckStep(step));
  if (!verify_each_ && !state_.tensorized) {
    std::vector<int> before = std::exchange(state_.last_results, {});
    absl::Status status = kApply[static_cast<size_t>(step.kind)](*this, step);
    if (!status.ok()) state_.last_results = std::move(before);
    state_.tensorized = state_.tensorized || (status.ok() && step.kind == StepKind::kTensorize);
    return status;
  }
  State before = state_;
  state_.last_results.clear();
  absl::Status status = kApply[static_cast<size_t>(step.kind)](*this, step);
  if (status.ok() && state_.tensorized) status = CheckTensorMarks(step, function().body);
  if (status.ok() && verify_each_) {
    absl::Status verified = ir::Verify(function());
    if (!verified.ok()) {
      status =
          support::Internal(StrCat("schedule.", RowOf(step.kind).name, ".verify"),
                            StrCat(support::StatusText(verified), "\n", ir::Print(function())));
    }
  }
  if (!status.ok()) {
    state_ = std::move(before);
    return status;
  }
  state_.tensorized = state_.tensorized || step.kind == StepKind::kTensorize;
  return status;
}

absl::Status Schedule::ApplyAll(const Steps& steps) {
  for (const Step& step : steps) {
    absl::Status status = Apply(step);
    if (!status.ok()) {
      return support::WithContext(status, StrCat("step ", steps_.size(), " `", ToText(step), "`"));
    }
  }
  return absl::OkStatus();
}

int Schedule::BlockHandle(std::string_view block) const {
  const std::vector<Handle>& all = handles();
  for (size_t i = all.size(); i-- > 0;) {
    const Handle& h = all[i];
    if (h.kind == Handle::Kind::kBlock && !h.dead && h.block == block) return static_cast<int>(i);
  }
  return -1;
}

int Schedule::LoopHandle(const ir::Var& var) const {
  const std::vector<Handle>& all = handles();
  for (size_t i = all.size(); i-- > 0;) {
    const Handle& h = all[i];
    if (h.kind == Handle::Kind::kLoop && !h.dead && h.loop == var) return static_cast<int>(i);
  }
  return -1;
}

std::vector<int> Schedule::LoopsOf(int block_handle) const {
  absl::StatusOr<std::string> name = Block(block_handle);
  std::vector<int> loops;
  if (!name.ok()) return loops;
  for (const ir::Stmt& loop : schedule::LoopsOf(FindBlock(function().body, *name))) {
    loops.push_back(LoopHandle(loop->var));
  }
  return loops;
}

std::vector<std::string> Schedule::BlockNames() const {
  std::vector<std::string> names;
  for (const BlockSite& site : BlocksIn(function().body)) names.push_back(site.block->name);
  return names;
}

ir::Stmt Schedule::StmtOf(int handle) const {
  if (handle < 0 || handle >= static_cast<int>(handles().size())) return nullptr;
  const Handle& h = handles()[static_cast<size_t>(handle)];
  if (h.dead) return nullptr;
  Path path = h.kind == Handle::Kind::kLoop ? FindLoop(function().body, h.loop)
                                            : FindBlock(function().body, h.block);
  return path.empty() ? nullptr : path.back();
}

std::string Schedule::Describe() const {
  std::string text = ir::Print(function());
  for (size_t i = 0; i < handles().size(); ++i) {
    const Handle& h = handles()[i];
    if (h.dead) continue;
    text += h.kind == Handle::Kind::kLoop ? StrCat("# %", i, " loop ", h.loop->name, "\n")
                                          : StrCat("# %", i, " block ", h.block, "\n");
  }
  return text;
}

void Schedule::SetBody(ir::Stmt body) { mutable_state().function.body = std::move(body); }

int Schedule::AddLoop(const ir::Var& var) { return Add({Handle::Kind::kLoop, var, "", false}); }

int Schedule::AddBlock(const std::string& name) {
  return Add({Handle::Kind::kBlock, nullptr, name, false});
}

int Schedule::Add(Handle handle) {
  std::vector<Handle>& all = mutable_state().handles.Own();
  all.push_back(std::move(handle));
  state_.last_results.push_back(static_cast<int>(all.size()) - 1);
  return state_.last_results.back();
}

void Schedule::KillLoop(const ir::Var& var) { Kill(LoopHandle(var)); }

void Schedule::KillBlock(std::string_view name) { Kill(BlockHandle(name)); }

void Schedule::Kill(int handle) {
  if (handle >= 0) mutable_state().handles.Own()[static_cast<size_t>(handle)].dead = true;
}

namespace {

absl::StatusOr<const Handle*> Live(const std::vector<Handle>& handles, int handle,
                                   Handle::Kind kind) {
  if (handle < 0 || handle >= static_cast<int>(handles.size())) {
    return support::InvalidArgument(
        "schedule.handle.unknown",
        StrCat("expected a handle below %", handles.size(), ", found %", handle));
  }
  const Handle& h = handles[static_cast<size_t>(handle)];
  if (h.kind != kind) {
    bool want_loop = kind == Handle::Kind::kLoop;
    return support::InvalidArgument("schedule.handle.kind",
                                    StrCat("expected a ", want_loop ? "loop" : "block", ", found %",
                                           handle, ", a ", want_loop ? "block" : "loop"));
  }
  if (h.dead) {
    return support::FailedPrecondition(
        "schedule.handle.dead",
        StrCat("expected a live handle, found %", handle, ", replaced by an earlier step"));
  }
  return &h;
}

}  // namespace

absl::StatusOr<ir::Var> Schedule::Loop(int handle) const {
  TW_ASSIGN(const Handle* h, Live(handles(), handle, Handle::Kind::kLoop));
  return h->loop;
}

absl::StatusOr<std::string> Schedule::Block(int handle) const {
  TW_ASSIGN(const Handle* h, Live(handles(), handle, Handle::Kind::kBlock));
  return h->block;
}

absl::Status ApplyVariant(Schedule& s, const Step& step) {
  if (!s.steps().empty()) {
    return support::FailedPrecondition(
        "schedule.variant.not_first",
        StrCat("expected variant as the first step, found ", s.steps().size(), " before it"));
  }
  std::string names;
  for (const Variant& v : s.variants()) {
    names += " " + v.name;
    if (v.name != step.word) continue;
    s.Restart(v.function);
    return absl::OkStatus();
  }
  return support::FailedPrecondition("schedule.variant.unknown",
                                     StrCat("expected one of", names.empty() ? " none" : names,
                                            ", found ", step.word, "\n", ir::Print(s.function())));
}

absl::StatusOr<ir::Function> Replay(const ir::Function& function, std::string_view steps) {
  return Replay({{"direct", function}}, steps);
}

absl::StatusOr<ir::Function> Replay(std::vector<Variant> variants, std::string_view steps) {
  TW_ASSIGN(Steps parsed, ParseSteps(steps));
  Schedule schedule(std::move(variants));
  TW_TRY(schedule.ApplyAll(parsed));
  return schedule.function();
}

}  // namespace tilewright::schedule
