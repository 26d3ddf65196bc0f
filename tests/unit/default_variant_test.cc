// Which of an operator's algorithms is its default: what the estimate of the whole programs says,
// for fixed and for open sizes, and always a point of the space.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "compiler/driver/tasks.h"
#include "compiler/ir/bind_sizes.h"
#include "compiler/ir/structural.h"
#include "compiler/space/block_info.h"
#include "compiler/space/default_schedule.h"
#include "compiler/space/explain.h"
#include "compiler/space/run_loops.h"
#include "compiler/space/space.h"
#include "compiler/space/trace.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"
#include "tests/support/equivalence.h"

namespace tilewright::space {
namespace {

using support::StrCat;

target::Target Zen3(int threads) {
  return *target::ParseTarget(StrCat("cpu,arch=x86_64,cpu=znver3,threads=", threads));
}
target::Target Avx512() {
  return *target::ParseTarget("cpu,arch=x86_64,cpu=sapphirerapids,threads=1");
}

// A 3x3 convolution of blocks of channels, as a task of the driver; sizes may have names.
std::string Conv(const std::string& height, const std::string& width, int blocks, int block = 8) {
  const std::string type = StrCat("f32[1,", blocks, ",", height, ",", width, ",", block, "]");
  return StrCat("graph {\n  input %0: ", type, "\n  weight %1: f32[", blocks, ",", blocks, ",3,3,",
                block, ",", block, "]\n  %2: ", type, " = conv2d(%0, %1) {data_layout=\"NCHW",
                block, "c\", pads=[1,1,1,1], weight_layout=\"OIHW", block, "i", block,
                "o\"}\n  %3: ", type, " = relu(%2)\n  output %3\n}\n");
}

std::vector<schedule::Variant> VariantsOf(const std::string& text) {
  const auto task = driver::ParseTask(text);
  EXPECT_TRUE(task.ok()) << support::StatusText(task.status()) << text;
  auto variants = driver::TaskVariants(*task);
  EXPECT_TRUE(variants.ok()) << support::StatusText(variants.status()) << text;
  return *std::move(variants);
}

double NsOf(const schedule::Variant& variant, const target::Target& target,
            const Sizes& sizes = {}) {
  schedule::Schedule schedule(variant.function);
  ApplyDefaultSchedule(target, {}, &schedule, nullptr, sizes);
  const auto ns = EstimateRunNs(ir::BindSizes(schedule.function(), sizes), target);
  EXPECT_TRUE(ns.ok()) << support::StatusText(ns.status());
  return ns.value_or(0);
}

TEST(DefaultVariant, TheEstimateOfTheWholeProgramsDecides) {
  for (const int threads : {1, 2}) {
    const target::Target target = Zen3(threads);
    std::set<std::string> chosen;
    for (const auto& [size, blocks] :
         {std::pair{"56", 8}, {"28", 16}, {"14", 32}, {"7", 64}, {"3", 1}}) {
      const auto variants = VariantsOf(Conv(size, size, blocks));
      const size_t best = DefaultVariant(variants, target);
      for (const schedule::Variant& variant : variants) {
        // Tiles of five are too far from exact results to be anybody's default.
        if (variant.name == "winograd_5") continue;
        EXPECT_LE(NsOf(variants[best], target), NsOf(variant, target)) << size << variant.name;
      }
      EXPECT_NE(variants[best].name, "winograd_5");
      chosen.insert(variants[best].name);
    }
    // Layers of networks are worth a transformation; a tile of one block of channels is not.
    EXPECT_TRUE(chosen.contains("winograd")) << threads;
    EXPECT_TRUE(chosen.contains("direct")) << threads;
  }
}

// Measured on a Sapphire Rapids: of 7x7 pixels the direct form takes 1.4 ms and winograd_2, whose
// weights come from a slow last level, 1.9 ms; of 14x14 and 28x28 Winograd's forms are faster.
TEST(DefaultVariant, WeightsOfTheLastLevelCost) {
  const auto name_of = [](const std::string& size, int blocks) {
    const auto variants = VariantsOf(Conv(size, size, blocks, 16));
    return variants[DefaultVariant(variants, Avx512())].name;
  };
  EXPECT_EQ(name_of("4", 32), "direct");
  EXPECT_EQ(name_of("7", 32), "direct");
  EXPECT_NE(name_of("14", 16), "direct");
  EXPECT_EQ(name_of("28", 8), "winograd");
}

// The register tile of the products of Winograd's F(4×4): rows and columns of tiles, blocks.
std::vector<int64_t> WinogradTile(int blocks, const std::string& size,
                                  const target::Target& target) {
  std::vector<int64_t> tile;
  for (schedule::Variant& variant : VariantsOf(Conv(size, size, blocks, 16))) {
    if (variant.name != "winograd") continue;
    std::vector<schedule::Variant> only(1, std::move(variant));
    const auto space = Space::Create(std::move(only), target);
    EXPECT_TRUE(space.ok()) << support::StatusText(space.status());
    schedule::Schedule s((*space)->variants()[0].function);
    ApplyDefaultSchedule(target, {}, &s);
    const std::string steps = schedule::ToText(s.steps());
    const size_t at = steps.find("cache_write");
    for (size_t i = steps.find("[?,", at); tile.size() < 3; i = steps.find("[?,", i + 1)) {
      tile.push_back(std::stoll(steps.substr(i + 3)));
    }
    // Points of a tile are an odd number of lines apart: not all of them are in one set of a cache.
    const size_t first = steps.find("storage_align"), last = steps.rfind("storage_align");
    EXPECT_TRUE(first != std::string::npos && first != last) << steps;
  }
  EXPECT_EQ(tile.size(), 3U) << "no Winograd";
  return tile;
}

// Weights of Winograd's products that come from a slow last level are used by tiles of several
// rows; those that the second cache holds, and those of a machine whose levels are fast, are not.
TEST(DefaultSchedule, FarWeightsOfWinogradAreUsedOften) {
  const auto uses = [](int blocks, const std::string& size, const target::Target& target) {
    const std::vector<int64_t> tile = WinogradTile(blocks, size, target);
    return tile[0] * tile[1];
  };
  EXPECT_EQ(uses(8, "28", Avx512()), 28);
  EXPECT_LT(uses(4, "56", Avx512()), 20);  // 0.6 MB
  target::Target fast = Avx512();
  fast.machine.tile.far_uses = 0;
  EXPECT_EQ(uses(8, "28", fast), 7);
}

// A block of channels of four vectors takes four registers for each of a tile's points.
TEST(DefaultSchedule, BlocksOfSeveralVectorsFitTheRegisters) {
  const target::Target target = *target::ParseTarget("cpu,arch=aarch64,cpu=cortex-a76,threads=1");
  for (const auto& [blocks, size] : {std::pair(8, "28"), {16, "14"}, {32, "7"}}) {
    const std::vector<int64_t> tile = WinogradTile(blocks, size, target);
    EXPECT_LE((tile[0] * tile[1] + 1) * tile[2] * 4 + 1, 32) << size;
    const auto variants = VariantsOf(Conv(size, size, blocks, 16));
    EXPECT_NE(variants[DefaultVariant(variants, target)].name, "direct") << size;
  }
}

// A window of four taps has a body for each of them, which leaves out the products with padding; a
// larger one reads a padded copy.
TEST(DefaultSchedule, PaddingOfFewTapsIsLeftOut) {
  const auto blocks_of = [](const std::string& task, const target::Target& target = Avx512()) {
    const auto variants = VariantsOf(task);
    schedule::Schedule s(variants[0].function);
    ApplyDefaultSchedule(target, {}, &s);
    const std::vector<int64_t> sizes(variants[0].function.size_params.size(), 7);
    const absl::Status same =
        tests::SameResults(variants[0].function, s.function(), {.sizes = sizes});
    EXPECT_TRUE(same.ok()) << support::StatusText(same);
    return s.BlockNames();
  };
  // An image of open size may be larger than any cache: eight filters are no reason to keep it.
  const auto open = [](int filters) {
    return StrCat("graph {\n  input %0: f32[1,4,H,W]\n  weight %1: f32[4,3,3,", filters,
                  "]\n  %2: f32[1,", filters,
                  ",H,W] = conv2d(%0, %1) {pads=[1,1,1,1], weight_layout=\"IHWO\"}\n"
                  "  output %2\n}\n");
  };
  const auto is_pad = [](const std::string& name) { return name.find("_pad") != name.npos; };
  const std::string transposed =
      "graph {\n  input %0: f32[1,2,8,8,16]\n  weight %1: f32[2,4,4,2,16,16]\n"
      "  %2: f32[1,2,16,16,16] = conv2d_transpose(%0, %1) {data_layout=\"NCHW16c\", "
      "pads=[1,1,1,1], strides=[2,2], weight_layout=\"OHWI16i16o\"}\n  output %2\n}\n";
  EXPECT_TRUE(std::ranges::none_of(blocks_of(transposed), is_pad));
  // Where threads have no bodies of their own, and run in turn, DCGAN's took 1.06 times as long.
  EXPECT_TRUE(std::ranges::any_of(blocks_of(transposed, *target::ParseTarget("opencl")), is_pad));
  EXPECT_TRUE(std::ranges::any_of(blocks_of(Conv("8", "8", 2, 16)), is_pad));
  EXPECT_TRUE(std::ranges::none_of(blocks_of(open(8)), is_pad));
  EXPECT_TRUE(std::ranges::any_of(blocks_of(open(64)), is_pad));
}

// Rows of an image of open size share weights that do not stay near, and the program is right where
// the tile leaves rows and columns.
TEST(DefaultSchedule, TilesOfOpenImagesHaveSeveralRows) {
  const auto tile_of = [](int blocks) {
    return *Explain(VariantsOf(Conv("H", "W", blocks, 16)), Avx512(), {});
  };
  const auto tile_at = [](const Sizes& typical) {
    const auto variants = VariantsOf(Conv("H", "W", 4, 16));
    schedule::Schedule schedule(variants[0].function);
    Trace trace;
    ApplyDefaultSchedule(Avx512(), {}, &schedule, &trace, typical);
    return ToText(trace);
  };
  EXPECT_NE(tile_of(32).find("1 vectors x 4 of vow x 6 of voh"), std::string::npos) << tile_of(32);
  EXPECT_NE(tile_of(2).find(" of voc x "), std::string::npos) << tile_of(2);
  // Long rows need no others.
  const Sizes large = {{"H", 56}, {"W", 56}}, small = {{"H", 8}, {"W", 8}};
  EXPECT_EQ(tile_at(large).find(" of voh"), std::string::npos) << tile_at(large);
  EXPECT_NE(tile_at(small).find(" of voh"), std::string::npos) << tile_at(small);
  const auto variants = VariantsOf(Conv("H", "W", 3, 16));
  EXPECT_NE(tile_of(3).find(" of voh"), std::string::npos) << tile_of(3);
  schedule::Schedule schedule(variants[0].function);
  ApplyDefaultSchedule(Avx512(), {}, &schedule);
  for (const auto& [height, width] : {std::pair<int64_t, int64_t>{7, 5}, {3, 6}, {1, 1}}) {
    const absl::Status same =
        tests::SameResults(variants[0].function, schedule.function(), {.sizes = {height, width}});
    EXPECT_TRUE(same.ok()) << height << "x" << width << "\n" << support::StatusText(same);
  }
}

// Seven taps of twelve pixels share what they load, but 24 sums leave no registers to keep it in:
// written out, the first layer of ResNet-18 took 1.3 times as long.
TEST(DefaultSchedule, TapsAreNotWrittenOutWhereRegistersAreFew) {
  const std::string why =
      *Explain(VariantsOf("graph {\n  input %0: f32[1,3,24,24,1]\n  weight %1: f32[4,3,7,7,1,16]\n"
                          "  %2: f32[1,4,12,12,16] = conv2d(%0, %1) {data_layout=\"NCHW1c\", "
                          "out_layout=\"NCHW16c\", pads=[3,3,2,2], strides=[2,2], "
                          "weight_layout=\"OIHW1i16o\"}\n  output %2\n}\n"),
               Avx512(), {});
  EXPECT_NE(why.find("24 sums in 32 registers, 147 steps each"), std::string::npos) << why;
  EXPECT_EQ(why.find("steps written out"), std::string::npos) << why;
}

// One schedule has two makers: the default scheduler, and the space's point for it.
TEST(DefaultVariant, IsAPointOfTheSpaceAndComputesTheSame) {
  for (const int threads : {1, 2}) {
    const target::Target target = Zen3(threads);
    for (const auto& [height, width, blocks] : {std::tuple{"13", "9", 2}, {"6", "14", 1}}) {
      const auto variants = VariantsOf(Conv(height, width, blocks));
      for (const schedule::Variant& variant : variants) {
        schedule::Schedule schedule(variant.function);
        schedule.set_verify_each(true);
        ApplyDefaultSchedule(target, {}, &schedule);
        const absl::Status same = tests::SameResults(variant.function, schedule.function());
        EXPECT_TRUE(same.ok()) << variant.name << "\n" << support::StatusText(same);
      }
      const auto space = *Space::Create(variants, target);
      const std::optional<Point> point = space->DefaultPoint();
      ASSERT_TRUE(point.has_value());
      EXPECT_TRUE(space->Feasible(*point));
      EXPECT_EQ(schedule::ToText(space->Apply(*point)->steps()),
                schedule::ToText(DefaultSchedule(variants, target)));
    }
  }
}

TEST(DefaultVariant, OpenSizesAreJudgedAtTypicalOnes) {
  const target::Target target = Zen3(1);
  const auto variants = VariantsOf(Conv("H", "W", 4));
  // Without a size nothing can be estimated.
  EXPECT_EQ(DefaultVariant(variants, target), 0u);
  EXPECT_EQ(DefaultVariant(variants, target, {{"H", 56}}), 0u);
  const Sizes typical = {{"H", 56}, {"W", 56}};
  EXPECT_EQ(variants[DefaultVariant(variants, target, typical)].name, "winograd");
  const schedule::Steps steps = DefaultSchedule(variants, target, typical);
  const auto scheduled = schedule::Replay(variants, schedule::ToText(steps));
  ASSERT_TRUE(scheduled.ok()) << support::StatusText(scheduled.status());
  const auto space = *Space::Create(variants, target, typical);
  const std::optional<Point> point = space->DefaultPoint();
  ASSERT_TRUE(point.has_value());
  EXPECT_EQ(ir::ProgramHash(space->Apply(*point)->function()), ir::ProgramHash(*scheduled));
  const auto why = Explain(variants, target, typical);
  ASSERT_TRUE(why.ok()) << support::StatusText(why.status());
  EXPECT_NE(why->find(schedule::ToText(steps)), std::string::npos) << *why;
  EXPECT_NE(why->find(", one of them is the default"), std::string::npos) << *why;
  EXPECT_NE(why->find("\n  winograd: by_stage"), std::string::npos) << *why;
  // Of 32 channels the weights stay in the second cache: row by row, of any length.
  EXPECT_NE(why->find("\n  winograd: tile_rows 1, place_pad 1"), std::string::npos) << *why;
  EXPECT_NE(schedule::ToText(steps).find("[?,1,4]"), std::string::npos);
  const auto far = VariantsOf(Conv("H", "W", 32));
  EXPECT_EQ(Explain(far, target, typical)->find("tile_rows 1, place_pad 1"), std::string::npos);
  const auto estimates = EstimateVariants(variants, target, typical);
  ASSERT_EQ(estimates.size(), 3U);  // none of Winograd's tiles of five
  EXPECT_LT(estimates[1].ns, estimates[0].ns);
  EXPECT_NE(why->find("default schedules\n  winograd: "), std::string::npos) << *why;
  EXPECT_TRUE(EstimateVariants(variants, target, {{"H", 56}}).empty());
  // The program is right at all sizes, not only at those that it was chosen for.
  for (const auto& [height, width] : {std::pair<int64_t, int64_t>{6, 9}, {1, 3}}) {
    tests::EquivalenceOptions options;
    options.sizes = {height, width};
    const absl::Status same = tests::SameResults(variants[0].function, *scheduled, options);
    EXPECT_TRUE(same.ok()) << height << "x" << width << "\n" << support::StatusText(same);
  }
}

// What is made of weights alone runs once: it is no part of a run.
TEST(RunLoops, LeaveOutWhatDependsOnWeightsOnly) {
  const auto variants = VariantsOf(Conv("14", "14", 2));
  const auto loops = LowerRun(variants[1].function, Zen3(1));
  ASSERT_TRUE(loops.ok()) << support::StatusText(loops.status());
  EXPECT_EQ(loops->stage, ir::Stage::kLoops);
  EXPECT_FALSE(HasStage(*loops, "_filter_rows"));
  EXPECT_TRUE(HasStage(variants[1].function, "_filter_rows"));
  EXPECT_EQ(support::Slug(EstimateRunNs(*loops, Zen3(1)).status()).substr(0, 10), "transform.");
}

}  // namespace
}  // namespace tilewright::space
