// What a schedule of open sizes costs at other sizes than the typical ones.
#include "compiler/space/open_cost.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/ir/ir_text.h"
#include "compiler/schedule/schedule.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::space {
namespace {

constexpr int64_t kTypical = 64;
constexpr double kSizes[] = {32, 45, 58, 64, 80, 102, 128};  // half of it to twice as much

// Y[i] = `value` for each i, by these steps.
double CostOf(std::string_view value, std::string_view steps) {
  const auto function = ir::ParseFunction(support::StrCat(
      "fn f(n: size, X: f32[n] input, I: i64[n] input, Y: f32[n] output) stage=scheduled {\n"
      "  for i in 0..n {\n    block Y(v: spatial 0..n = i) {\n"
      "      reads X[v:1], I[v:1];\n      writes Y[v:1];\n      Y[v] = ",
      value, ";\n    }\n  }\n}\n"));
  EXPECT_TRUE(function.ok()) << support::StatusText(function.status());
  const auto scheduled = schedule::Replay(*function, steps);
  EXPECT_TRUE(scheduled.ok()) << support::StatusText(scheduled.status());
  const auto cost =
      OpenCost(*scheduled, *target::ParseTarget("cpu,arch=x86_64,cpu=sapphirerapids,threads=1"),
               {{"n", kTypical}});
  EXPECT_TRUE(cost.ok()) << support::StatusText(cost.status());
  return cost.value_or(std::nan(""));
}

// By the stores of a run at a size, and those at the typical size that no condition holds up.
double Expected(const std::function<double(double n)>& stores, double at_typical) {
  double sum = 0;
  for (const double n : kSizes) sum += std::log2(1 + stores(n));
  return sum / std::size(kSizes) - std::log2(1 + at_typical);
}

TEST(OpenCost, CountsTheStoresAroundTheTypicalSize) {
  EXPECT_NEAR(CostOf("X[v]", ""), Expected([](double n) { return n; }, kTypical), 1e-9);
}

// A remainder is one more vector, and of one number a scalar.
TEST(OpenCost, RemaindersAreVectorsOfTheirOwn) {
  EXPECT_NEAR(CostOf("X[v]", "split %0 [?,16]; vectorize %3"),
              Expected([](double n) { return std::ceil(n / 16); }, kTypical / 16.0), 1e-9);
}

// What a tile leaves is as much as there is; behind the first element a condition says so.
TEST(OpenCost, PeeledTilesDoNothingInVain) {
  EXPECT_NEAR(
      CostOf("X[v]", "split %0 [?,4] tail=peel; unroll %3"),
      Expected([](double n) { return n + 2 * std::max(0.0, std::fmod(n, 4) - 1); }, kTypical),
      1e-9);
}

// No loop can be cut by what memory holds: each store waits.
TEST(OpenCost, ConditionsThatStayCostMore) {
  EXPECT_NEAR(CostOf("select(I[v] < 3, X[v], 0.0f32)", ""),
              Expected([](double n) { return 3 * n; }, kTypical), 1e-9);
}

TEST(OpenCost, MasksOfVectorsCostLess) {
  EXPECT_NEAR(CostOf("select(I[v] < 3, X[v], 0.0f32)", "split %0 [?,16]; vectorize %3"),
              Expected([](double n) { return 2 * std::ceil(n / 16); }, kTypical / 16.0), 1e-9);
}

}  // namespace
}  // namespace tilewright::space
