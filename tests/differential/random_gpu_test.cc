// Random program × random schedule for threads × every pass of the GPU pipeline: scheduled, merged
// into one nest of threads and pruned of barriers it computes what the naive program does, by the
// interpreter, which reports every race between two threads. TILEWRIGHT_SEED repeats a run,
// TILEWRIGHT_ROUNDS makes it longer; what fails is printed as text.
#include <gtest/gtest.h>

#include <iostream>
#include <map>
#include <string>
#include <vector>

#include "compiler/codegen/c_like.h"
#include "compiler/ir/ir_text.h"
#include "compiler/ir/visit.h"
#include "compiler/schedule/schedule.h"
#include "compiler/transform/host_device.h"
#include "compiler/transform/passes.h"
#include "deploy/support/rng.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"
#include "tests/support/equivalence.h"
#include "tests/support/random_ir.h"
#include "tests/support/te_programs.h"
#include "tests/support/test_seed.h"

namespace tilewright::tests {
namespace {

using schedule::Handle;
using schedule::Schedule;
using schedule::Step;
using schedule::StepKind;
using support::Rng;
using support::StrCat;

ir::Function ProgramOf(uint64_t seed) {
  switch (seed % 5) {
    case 0:
      return MatmulProgram(6, 8, 7);
    case 1:
      return DenseReluProgram(5, 7, 6);
    case 2:
      return SoftmaxProgram(4, 6);
    case 3:
      return StencilProgram(11);
    default:
      return RandomTe(seed, {.max_elements = 200, .max_work = 600, .symbolic = false}).function;
  }
}

int AnyHandle(const Schedule& s, Handle::Kind kind, Rng* rng) {
  std::vector<int> live;
  for (size_t i = 0; i < s.handles().size(); ++i) {
    if (!s.handles()[i].dead && s.handles()[i].kind == kind) live.push_back(static_cast<int>(i));
  }
  return live.empty() ? -1 : rng->Choice(live);
}

// Block axes for the outermost loop of a nest, where a launch has them; seldom elsewhere.
std::string AnyAxis(const Schedule& s, int loop, Rng* rng) {
  const ir::Stmt& body = s.function().body;
  ir::Stmt stmt = s.StmtOf(loop);
  bool outermost = body == stmt;
  for (const ir::Stmt& top : body->stmts) outermost = outermost || top == stmt;
  bool block = rng->Bernoulli(outermost ? 0.7 : 0.01);
  return StrCat(block ? "blockIdx." : "threadIdx.", std::string(1, "xyz"[rng->Uniform(3)]));
}

Step RandomStep(const Schedule& s, Rng* rng) {
  static const std::vector<StepKind> kKinds = {
      StepKind::kSplit,         StepKind::kReorder,
      StepKind::kComputeAt,     StepKind::kReverseComputeAt,
      StepKind::kCacheWrite,    StepKind::kSetScope,
      StepKind::kBind,          StepKind::kBind,
      StepKind::kBind,          StepKind::kDoubleBuffer,
      StepKind::kVirtualThread, StepKind::kSoftwarePipeline};
  Step step{.kind = rng->Choice(kKinds)};
  const schedule::StepRow& row = schedule::RowOf(step.kind);
  for (char operand : row.operands)
    step.handles.push_back(
        AnyHandle(s, operand == 'b' ? Handle::Kind::kBlock : Handle::Kind::kLoop, rng));
  if (step.kind == StepKind::kReorder)
    step.handles.push_back(AnyHandle(s, Handle::Kind::kLoop, rng));
  if (step.kind == StepKind::kSplit) step.factors = {schedule::kInfer, rng->UniformInt(2, 4)};
  if (step.kind == StepKind::kSoftwarePipeline) {
    ir::Stmt loop = s.StmtOf(step.handles[0]);
    size_t parts =
        loop != nullptr && loop->body->kind == ir::StmtKind::kSeq ? loop->body->stmts.size() : 2;
    for (size_t i = 0; i < parts && i < 8; ++i)
      step.factors.push_back(i == 0 ? 1 : step.factors.back() + rng->UniformInt(0, 1));
  }
  if (step.kind == StepKind::kSetScope) step.word = rng->Bernoulli(0.7) ? "shared" : "local";
  if (step.kind == StepKind::kBind) step.word = AnyAxis(s, step.handles[0], rng);
  for (const schedule::StepOption& o : row.options) {
    const std::string& value = rng->Choice(o.values);
    if (value != o.values.front()) step.options[o.key] = value;
  }
  return step;
}

struct Tally {
  int64_t lowered = 0, barriers = 0, texts = 0;
  std::map<std::string, int64_t> refused, applied;
};

void CheckOne(uint64_t seed, Tally* tally) {
  ir::Function program = ProgramOf(seed);
  Rng rng = Rng(seed).Split("gpu");
  Schedule s(program);
  for (int i = 0; i < 40; ++i) {
    Step step = RandomStep(s, &rng);
    if (s.Apply(step).ok()) ++tally->applied[schedule::RowOf(step.kind).name];
  }
  transform::PassContext ctx;
  ctx.verify_each = true;
  auto lowered = transform::RunPipeline(s.function(), transform::GpuPipeline(), ctx);
  if (!lowered.ok()) {
    std::string slug = support::Slug(lowered.status());
    ASSERT_TRUE(slug.starts_with("transform.merge_threads."))
        << "seed " << seed << ": " << lowered.status() << "\n"
        << s.Describe();
    ++tally->refused[slug];
    return;
  }
  absl::Status same = SameResults(program, *lowered, {.seed = seed, .max_steps = 2'000'000});
  if (support::StatusText(same).find("step_limit") != std::string::npos) return;
  ASSERT_TRUE(same.ok()) << "seed " << seed << ": " << same
                         << "\nsteps: " << schedule::ToText(s.steps()) << "\n"
                         << ir::Print(program) << ir::Print(s.function()) << ir::Print(*lowered);
  ++tally->lowered;
  ir::VisitStmts(lowered->body, [&](const ir::Stmt& x) {
    tally->barriers += x->kind == ir::StmtKind::kSync && x->sync == ir::SyncKind::kBarrier;
    return true;
  });
  auto plan = transform::SplitHostDevice(*lowered);
  ASSERT_TRUE(plan.ok()) << "seed " << seed << ": " << plan.status() << "\n" << ir::Print(*lowered);
  std::vector<ir::Function> kernels;
  for (const transform::Launch& l : plan->launches) kernels.push_back(l.kernel);
  auto text = codegen::EmitOpenCl(kernels);
  ASSERT_TRUE(text.ok()) << "seed " << seed << ": " << text.status();
  ++tally->texts;
}

TEST(RandomGpuTest, ThreadsComputeTheSame) {
  Tally tally;
  uint64_t seed = TestSeed(4711);
  int64_t rounds = TestRounds(400);
  for (int64_t i = 0; i < rounds; ++i) {
    CheckOne(seed + static_cast<uint64_t>(i), &tally);
    ASSERT_FALSE(HasFailure());
  }
  std::cout << rounds << " pairs, " << tally.lowered << " lowered and equal, " << tally.barriers
            << " barriers, " << tally.texts << " texts\n";
  for (const auto& [slug, n] : tally.refused) std::cout << "  " << slug << ": " << n << "\n";
  for (const auto& [name, n] : tally.applied) std::cout << "  " << name << ": " << n << "\n";
  if (rounds < 400) return;
  EXPECT_GE(tally.lowered, rounds / 2);
  EXPECT_GE(tally.barriers, rounds / 20);
}

}  // namespace
}  // namespace tilewright::tests
