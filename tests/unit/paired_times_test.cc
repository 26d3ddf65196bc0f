// The statistics of `tilewright bench diff`, and how it pairs kernels.
#include "tuner_server/cli/paired_times.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "deploy/module/launch_names.h"
#include "deploy/support/rng.h"
#include "tuner_server/cli/launch_pairs.h"

namespace tilewright::cli {
namespace {

using testing::HasSubstr;

TEST(PairedTimes, TheMedianOfTheRatiosAndNotTheRatioOfTheMedians) {
  // A neighbour made three rounds ten times slower, for both.
  std::vector<Pair> pairs(8, {120, 100});
  for (size_t i = 0; i < 3; ++i) pairs.push_back({1200, 1000});
  const SpeedRatio ratio = RatioOf(pairs);
  EXPECT_DOUBLE_EQ(ratio.median, 1.2);
  EXPECT_DOUBLE_EQ(ratio.low, 1.2);
  EXPECT_DOUBLE_EQ(ratio.high, 1.2);
}

TEST(PairedTimes, TheIntervalHoldsTheTrueMedianNineteenTimesOfTwenty) {
  support::Rng rng(7);
  constexpr int kRaces = 2000;
  constexpr double kTrue = 1.05;
  int held = 0;
  for (int race = 0; race < kRaces; ++race) {
    std::vector<Pair> pairs;
    for (int i = 0; i < 40; ++i) {
      // Skewed noise whose median is 1: half of the time quick, else slower by up to half.
      const double noise =
          rng.UniformDouble() < .5 ? 1 - .02 * rng.UniformDouble() : 1 + .5 * rng.UniformDouble();
      pairs.push_back({kTrue * 100 * noise, 100});
    }
    const SpeedRatio ratio = RatioOf(pairs);
    held += ratio.low <= kTrue && kTrue <= ratio.high;
  }
  EXPECT_GE(held, .94 * kRaces);
  EXPECT_LE(held, .99 * kRaces) << "no wider than it has to be";
}

TEST(PairedTimes, OnlyADifferenceThatIsSureIsToldAsOne) {
  EXPECT_EQ(SpeedText({1.1184, 1.113, 1.121}), "1.118x as fast (1.113 to 1.121)");
  EXPECT_EQ(SpeedText({.95, .94, .96}), "0.950x as fast (0.940 to 0.960)");
  EXPECT_EQ(SpeedText({1.01, .99, 1.02}), "no difference (0.990 to 1.020)");
}

module::Manifest Module(const std::vector<module::LaunchNames>& names) {
  module::Manifest manifest;
  module::Function& main = manifest.functions.emplace_back();
  main.name = "main";
  for (const module::LaunchNames& of : names) main.launches.emplace_back().name = of.launch;
  manifest.provenance[module::LaunchNamesKey("main")] = module::LaunchNamesText(names);
  return manifest;
}

TEST(LaunchPairs, AreTheLaunchesThatDoTheSameNodes) {
  const module::Manifest a =
      Module({{"", "conv", {"Conv_0", "Relu_1"}}, {"", "pool", {"Pool_2"}}, {"", "copy", {}}});
  // The same convolution as two launches; the pool fused with what follows.
  const module::Manifest b = Module({{"", "transform", {"Relu_1", "Conv_0"}},
                                     {"", "product", {"Conv_0", "Relu_1"}},
                                     {"", "pool", {"Pool_2", "Add_3"}},
                                     {"", "copy", {}}});
  const std::vector<double> a_ns = {60, 10, 1}, b_ns = {10, 20, 9, 2};
  const std::vector<LaunchPair> pairs =
      PairLaunches({a, a.functions[0], a_ns}, {b, b.functions[0], b_ns});
  ASSERT_EQ(pairs.size(), 4u);
  EXPECT_EQ(pairs[0].name, "conv");
  EXPECT_EQ(pairs[0].a_ns, 60);
  EXPECT_EQ(pairs[0].b_ns, 30);
  EXPECT_EQ(pairs[1].b_ns, 0) << "B has no kernel for the pool alone";
  EXPECT_EQ(pairs[2].name, "copy");
  EXPECT_EQ(pairs[2].b_ns, 2) << "without nodes, by its name";
  EXPECT_EQ(pairs[3].a_ns, 0);
  const std::string table = LaunchPairsTable(pairs);
  EXPECT_THAT(table, HasSubstr("conv    60.0 ns  30.0 ns        2.00x  Conv_0, Relu_1"));
  const nlohmann::json json = LaunchPairsJson(pairs);
  EXPECT_FALSE(json[1].contains("b_us"));
  EXPECT_EQ(json[3]["b_us"], .009);
}

}  // namespace
}  // namespace tilewright::cli
