// Depthwise convolutions of bytes as dot products: the form computes what the direct one does, to
// the bit, whatever schedule its rule makes and on every target that runs here.
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "compiler/driver/tasks.h"
#include "compiler/ir/verify.h"
#include "compiler/space/default_schedule.h"
#include "compiler/space/space.h"
#include "deploy/support/rng.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"
#include "tests/support/equivalence.h"
#include "tests/support/run_compiled.h"
#include "tests/support/test_seed.h"

namespace tilewright::space {
namespace {

using support::StrCat;

struct Case {
  int64_t height = 9, width = 11, kernel_h = 3, kernel_w = 3, stride = 1, pad = 1, block = 16;
  std::string type = "u8", more = {};  // further attributes
};

// Two blocks of channels, requantised, as a task of the driver.
std::string Task(const Case& c) {
  const auto out = [&](int64_t size, int64_t kernel) {
    return (size + 2 * c.pad - kernel) / c.stride + 1;
  };
  const std::string image =
      StrCat("[1,2,", out(c.height, c.kernel_h), ",", out(c.width, c.kernel_w), ",", c.block, "]");
  return StrCat("graph {\n  input %0: ", c.type, "[1,2,", c.height, ",", c.width, ",", c.block,
                "]\n  weight %1: i8[2,", c.kernel_h, ",", c.kernel_w, ",", c.block,
                "]\n  weight %2: f32[2,1,1,", c.block, "]\n  %3: i32", image,
                " = conv2d(%0, %1) {data_layout=\"NCHW", c.block, "c\", groups=", 2 * c.block, ", ",
                c.more, "pads=[", c.pad, ",", c.pad, ",", c.pad, ",", c.pad, "], strides=[",
                c.stride, ",", c.stride, "], weight_layout=\"OHW", c.block, "o\"}\n  %4: f32",
                image, " = cast(%3) {dtype=\"f32\"}\n  %5: f32", image, " = mul(%4, %2)\n  %6: f32",
                image, " = round(%5)\n  %7: u8", image,
                " = cast(%6) {dtype=\"u8\"}\n  output %7\n}\n");
}

std::vector<schedule::Variant> VariantsOf(const Case& c) {
  auto variants = driver::TaskVariants(Task(c));
  EXPECT_TRUE(variants.ok()) << support::StatusText(variants.status()) << Task(c);
  return variants.ok() ? *std::move(variants) : std::vector<schedule::Variant>();
}

// One and two results in a window, windows that stick out, padding that is not zero, none at all.
std::vector<Case> Cases() {
  return {{},
          {.height = 8, .width = 7, .stride = 2},
          {.kernel_w = 2, .pad = 0},
          {.width = 9, .kernel_h = 1, .kernel_w = 4, .stride = 3, .pad = 0},
          {.height = 7, .width = 7, .more = "pad_value=131, "},
          {.height = 7, .width = 10, .kernel_h = 5, .pad = 2, .block = 8}};
}

TEST(DepthwiseDots, EverySampledScheduleEqualsTheDirectForm) {
  support::Rng rng(tests::TestSeed(11));
  for (const Case& c : Cases()) {
    const auto variants = VariantsOf(c);
    ASSERT_EQ(variants.size(), 2u) << Task(c);
    EXPECT_EQ(variants[1].name, "dots");
    ASSERT_TRUE(ir::Verify(variants[1].function).ok());
    const absl::Status equal = tests::SameResults(variants[0].function, variants[1].function);
    ASSERT_TRUE(equal.ok()) << Task(c) << support::StatusText(equal);
    const target::Target wide = tests::WidestTarget();
    auto space =
        Space::Create(variants, *target::ParseTarget("cpu,arch=x86_64,cpu=x86-64-v4,threads=2"));
    ASSERT_TRUE(space.ok());
    int sampled = 0;
    for (int i = 0; i < 200 && sampled < tests::TestRounds(6); ++i) {
      Point point;
      ASSERT_TRUE((*space)->Sample(&rng, &point));
      if ((*space)->sketches()[static_cast<size_t>(point.sketch)]->name() != "depthwise_dots") {
        continue;
      }
      ++sampled;
      const auto schedule = (*space)->Apply(point);
      ASSERT_TRUE(schedule.ok()) << support::StatusText(schedule.status());
      const std::string steps = schedule::ToText(schedule->steps());
      EXPECT_NE(steps.find(StrCat("generic.dot4_lanes.", c.block)), std::string::npos) << steps;
      ASSERT_TRUE(ir::Verify(schedule->function()).ok()) << steps;
      tests::EquivalenceOptions options;
      const absl::Status same =
          tests::SameResults(variants[0].function, schedule->function(), options);
      ASSERT_TRUE(same.ok()) << steps << "\n" << support::StatusText(same);
      options.run_other = [&](const ir::Function& g, const std::vector<int64_t>& sizes,
                              std::vector<ir::TensorData*> args) {
        return tests::RunCompiled(g, wide, 2, sizes, std::move(args));
      };
      const absl::Status ran =
          tests::SameResults(variants[0].function, schedule->function(), options);
      ASSERT_TRUE(ran.ok()) << steps << "\n" << support::StatusText(ran);
    }
    EXPECT_GT(sampled, 0);
  }
}

// One schedule has two makers: the default scheduler, and the space's point for it.
TEST(DepthwiseDots, IsTheDefaultWhereBytesAreMultipliedFast) {
  const target::Target fast = *target::ParseTarget("cpu,arch=x86_64,cpu=cascadelake,threads=2");
  for (const Case& c : Cases()) {
    const auto variants = VariantsOf(c);
    EXPECT_EQ(variants[DefaultVariant(variants, fast)].name, "dots");
    for (const char* other : {"cpu,arch=x86_64,cpu=x86-64-v4", "opencl"}) {
      EXPECT_EQ(DefaultVariant(variants, *target::ParseTarget(other)), 0u) << other;
    }
    const std::string steps = schedule::ToText(DefaultSchedule(variants, fast));
    EXPECT_TRUE(steps.starts_with("variant dots;")) << steps;
    const auto scheduled = schedule::Replay(variants, steps);
    ASSERT_TRUE(scheduled.ok()) << support::StatusText(scheduled.status());
    const absl::Status same = tests::SameResults(variants[0].function, *scheduled);
    EXPECT_TRUE(same.ok()) << steps << "\n" << support::StatusText(same);
    const auto space = *Space::Create(variants, fast);
    const std::optional<Point> point = space->DefaultPoint();
    ASSERT_TRUE(point.has_value());
    EXPECT_EQ(schedule::ToText(space->Apply(*point)->steps()), steps);
  }
}

TEST(DepthwiseDots, OnlyWhatItIsFor) {
  // vpdpbusd and its like take one operand without a sign.
  EXPECT_EQ(VariantsOf({.type = "i8"}).size(), 1u);
  EXPECT_EQ(VariantsOf({.kernel_w = 5, .pad = 2}).size(), 1u);
  EXPECT_EQ(VariantsOf({.kernel_w = 1, .pad = 0}).size(), 1u);
}

}  // namespace
}  // namespace tilewright::space
