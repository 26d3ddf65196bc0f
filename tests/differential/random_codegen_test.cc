// Random programs: compiled code against the interpreter. The seed is printed; TILEWRIGHT_SEED and
// TILEWRIGHT_ROUNDS replay and extend.
#include <gtest/gtest.h>

#include <string>

#include "compiler/ir/ir_text.h"
#include "deploy/support/status.h"
#include "tests/support/equivalence.h"
#include "tests/support/random_ir.h"
#include "tests/support/run_compiled.h"
#include "tests/support/test_seed.h"

namespace tilewright::tests {
namespace {

EquivalenceOptions Compiled(const target::Target& target, int threads, uint64_t seed) {
  EquivalenceOptions options;
  options.seed = seed;
  options.run_other = [target, threads](const ir::Function& f, const std::vector<int64_t>& sizes,
                                        std::vector<ir::TensorData*> args) {
    return RunCompiled(f, target, threads, sizes, std::move(args));
  };
  return options;
}

TEST(RandomCodegen, FlatPrograms) {
  uint64_t first = TestSeed();
  int64_t rounds = TestRounds(200);
  std::vector<target::Target> targets = RunnableTargets();
  for (int64_t i = 0; i < rounds; ++i) {
    uint64_t seed = first + i;
    ir::Function f = RandomFlat(seed);
    const target::Target& target = targets[i % targets.size()];
    absl::Status same = SameResults(f, f, Compiled(target, 1 + i % 2, seed));
    ASSERT_TRUE(same.ok()) << "seed " << seed << " on " << target.cpu << ": "
                           << support::StatusText(same) << "\n"
                           << ir::Print(f);
  }
}

TEST(RandomCodegen, NaivePrograms) {
  uint64_t first = TestSeed();
  int64_t rounds = TestRounds(150);
  std::vector<target::Target> targets = RunnableTargets();
  for (int64_t i = 0; i < rounds; ++i) {
    uint64_t seed = first + i;
    RandomProgram program = RandomTe(seed);
    const target::Target& target = targets[i % targets.size()];
    EquivalenceOptions options = Compiled(target, 1, seed);
    options.sizes = program.sizes;
    absl::Status same = SameResults(program.function, program.function, options);
    ASSERT_TRUE(same.ok()) << "seed " << seed << " on " << target.cpu << ": "
                           << support::StatusText(same) << "\n"
                           << program.Describe();
  }
}

}  // namespace
}  // namespace tilewright::tests
