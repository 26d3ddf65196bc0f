// Programs of one task, ranked by what the emulated GPU counts.
#include "tests/support/emulated_counts.h"

#include <string>

#include "deploy/support/status.h"
#include "gtest/gtest.h"

namespace tilewright::tests {
namespace {

// A thread for each row: neighbours are 1,024 bytes apart at both ends.
constexpr char kRelu[] =
    "graph {\n  input %0: f32[256,256]\n  %1: f32[256,256] = relu(%0)\n  output %1\n}\n";
constexpr char kRowPerThread[] = "split %0 [?,32]; bind %3 blockIdx.x; bind %4 threadIdx.x";
constexpr char kThreadsAlongRows[] = "bind %0 blockIdx.x; split %1 [?,32]; bind %4 threadIdx.x";

const target::Target& Gpu() {
  static const target::Target target = *target::ParseTarget("cuda,arch=sm_90");
  return target;
}

CountedProgram Counted(const char* task, const char* steps) {
  auto program = CountProgram(task, steps, Gpu());
  EXPECT_TRUE(program.ok()) << support::StatusText(program.status());
  return program.ok() ? *std::move(program) : CountedProgram();
}

double Sectors(const CountedProgram& program) {
  double sectors = 0;
  for (const CountedLaunch& l : program.launches)
    sectors += l.OfAllGroups(simt::Sum(l.parts).global_sectors);
  return sectors;
}

TEST(EmulatedCounts, CountAllGroupsByAFew) {
  const CountedProgram rows = Counted(kRelu, kThreadsAlongRows);
  ASSERT_EQ(rows.launches.size(), 1u);
  EXPECT_EQ(rows.launches[0].shape.groups, 256);
  EXPECT_EQ(Sectors(rows), 2 * 256 * 256 * 4 / 32) << "read once and written once";
}

TEST(EmulatedCounts, RankProgramsByWhatTheyMove) {
  const CountedProgram rows = Counted(kRelu, kThreadsAlongRows);
  const CountedProgram columns = Counted(kRelu, kRowPerThread);
  EXPECT_EQ(Sectors(columns), 8 * Sectors(rows)) << "a sector for each float";
  EXPECT_GT(columns.CountedNs(Gpu().machine), rows.CountedNs(Gpu().machine));
  EXPECT_GT(rows.CountedNs(Gpu().machine), 0);
}

TEST(EmulatedCounts, SayWhatIsWrongWithSteps) {
  const auto program = CountProgram(kRelu, "bind %9 blockIdx.x", Gpu());
  EXPECT_EQ(support::Slug(program.status()).substr(0, 9), "schedule.") << program.status();
}

}  // namespace
}  // namespace tilewright::tests
