#include "tests/unit/lowered_schedule.h"

#include <gtest/gtest.h>

#include <utility>

#include "compiler/transform/passes.h"
#include "deploy/support/status.h"
#include "tests/support/equivalence.h"
#include "tests/support/schedule_case.h"

namespace tilewright::schedule {
namespace {

// The passes place buffers inside loops: what an iteration leaves undefined shows only then.
absl::Status RunLowered(const ir::Function& f, const std::vector<int64_t>& sizes,
                        std::vector<ir::TensorData*> args) {
  transform::PassContext context;
  TW_ASSIGN(context.target, target::ParseTarget("cpu,arch=x86_64,cpu=x86-64-v3"));
  context.verify_each = true;
  context.block_terms = 2;  // the sums of tests are short
  TW_ASSIGN(ir::Function flat, transform::RunPipeline(f, transform::CpuPipeline(), context));
  return ir::Interpret(flat, sizes, std::move(args));
}

}  // namespace

Schedule Scheduled(const ir::Function& f, std::string_view steps, std::vector<int64_t> sizes) {
  tests::EquivalenceOptions options;
  options.sizes = std::move(sizes);
  Schedule s = tests::Scheduled(f, steps, options);
  options.run_other = RunLowered;
  absl::Status same = tests::SameResults(f, s.function(), options);
  EXPECT_TRUE(same.ok()) << "lowered: " << same << "\n" << s.Describe();
  return s;
}

}  // namespace tilewright::schedule
