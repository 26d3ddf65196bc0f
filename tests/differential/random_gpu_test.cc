// Random program × random schedule for threads × every pass of the GPU pipeline: scheduled, merged
// into one nest of threads and pruned of barriers it computes what the naive program does, by the
// interpreter, which reports every race between two threads. TILEWRIGHT_SEED repeats a run,
// TILEWRIGHT_ROUNDS makes it longer; what fails is printed as text.
#include <gtest/gtest.h>

#include <iostream>
#include <map>
#include <string>
#include <vector>

#include "compiler/codegen/host_device.h"
#include "compiler/ir/ir_text.h"
#include "compiler/ir/visit.h"
#include "compiler/schedule/schedule.h"
#include "compiler/targets/opencl/opencl_codegen.h"
#include "compiler/transform/passes.h"
#include "deploy/support/status.h"
#include "tests/support/equivalence.h"
#include "tests/support/random_bound.h"
#include "tests/support/test_seed.h"

namespace tilewright::tests {
namespace {

struct Tally {
  int64_t lowered = 0, barriers = 0, texts = 0;
  std::map<std::string, int64_t> refused, applied;
};

void CheckOne(uint64_t seed, Tally* tally) {
  const ir::Function program = GpuProgram(seed);
  const schedule::Schedule s = RandomBoundSchedule(program, seed);
  for (const schedule::Step& step : s.steps()) ++tally->applied[schedule::RowOf(step.kind).name];
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
  auto plan = codegen::SplitHostDevice(*lowered);
  ASSERT_TRUE(plan.ok()) << "seed " << seed << ": " << plan.status() << "\n" << ir::Print(*lowered);
  std::vector<ir::Function> kernels;
  for (const codegen::Launch& l : plan->launches) kernels.push_back(l.kernel);
  auto text = opencl::EmitOpenCl(kernels);
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
