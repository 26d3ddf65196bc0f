// Programs for a matrix unit: every point of the space lowers to a stream that the driver accepts,
// and both simulators compute what the interpreter does. The estimate ranks as the cycle model.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <iostream>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "compiler/driver/tasks.h"
#include "compiler/ir/interp.h"
#include "compiler/space/default_schedule.h"
#include "compiler/space/matrix_tiles.h"
#include "compiler/space/space.h"
#include "compiler/targets/backend.h"
#include "compiler/targets/vta/vta_codegen.h"
#include "compiler/transform/passes.h"
#include "deploy/support/rng.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"
#include "tests/support/equivalence.h"
#include "tests/support/matrix_tasks.h"
#include "tests/support/test_seed.h"
#include "vta/driver/simulated_backends.h"
#include "vta/driver/vta_device.h"
#include "vta/isa/code_object.h"

namespace tilewright::space {
namespace {

using support::StrCat;

target::Target TargetOf(const std::string& config) {
  auto target = target::ParseTarget("vta,config=" + config);
  TW_CHECK(target.ok()) << support::StatusText(target.status());
  return *target;
}

struct Product {
  int64_t rows, columns, depth;  // columns and depth in blocks
  bool bias = false, relu = false;
  int64_t outer = 0;  // 0: data of rank 2
};

// A quantised product as a task of the driver.
ir::Function FunctionOf(const Product& p, int64_t block) {
  const int64_t k = p.depth * block, n = p.columns * block;
  const std::string lead = p.outer > 0 ? StrCat(p.outer, ",", p.rows) : StrCat(p.rows);
  std::string text = StrCat("graph {\n  input %0: i8[", lead, ",", k, "]\n  weight %1: i8[",
                            p.columns, ",", p.depth, ",", block, ",", block, "]\n");
  int next = 2;
  const int multiplier = p.bias ? 3 : 2;
  if (p.bias) text += StrCat("  weight %", next++, ": i32[", n, "]\n");
  text += StrCat("  weight %", next++, ": i32[", n, "]\n");
  const auto node = [&](const std::string& type, const std::string& rest) {
    text += StrCat("  %", next, ": ", type, "[", lead, ",", n, "] = ", rest, "\n");
    return next++;
  };
  int last = node("i32", StrCat("dense(%0, %1) {weight_layout=\"NK", block, "n", block, "k\"}"));
  if (p.bias) last = node("i32", StrCat("add(%", last, ", %2)"));
  if (p.relu) last = node("i32", StrCat("relu(%", last, ")"));
  last = node("i32", StrCat("requantize(%", last, ", %", multiplier, ") {shift=8}"));
  last = node("i8", StrCat("cast(%", last, ") {dtype=\"i8\"}"));
  auto function = driver::TaskFunction(StrCat(text, "  output %", last, "\n}\n"));
  TW_CHECK(function.ok()) << support::StatusText(function.status()) << text;
  return *std::move(function);
}

using Convolution = tests::ConvolutionTask;
using tests::FunctionOf;

struct Addition {
  int64_t columns, height, width;
  bool relu = true;
};

// The sum of two quantised images as a task of the driver.
ir::Function FunctionOf(const Addition& a, int64_t block) {
  const std::string image = StrCat("[1,", a.columns, ",", a.height, ",", a.width, ",", block, "]");
  const std::string channels = StrCat("i32[", a.columns, ",1,1,", block, "]\n");
  std::string text =
      StrCat("graph {\n  input %0: i8", image, "\n  input %1: i8", image,
             "\n  weight %2: ", channels, "  weight %3: ", channels, "  weight %4: ", channels);
  int next = 5;
  const auto node = [&](const std::string& type, const std::string& rest) {
    text += StrCat("  %", next, ": ", type, image, " = ", rest, "\n");
    return next++;
  };
  const int first = node("i32", "cast(%0) {dtype=\"i32\"}");
  const int part = node("i32", StrCat("mul(%", first, ", %2)"));
  const int second = node("i32", "cast(%1) {dtype=\"i32\"}");
  int last = node("i32", StrCat("mul(%", second, ", %3)"));
  last = node("i32", StrCat("add(%", part, ", %", last, ")"));
  if (a.relu) last = node("i32", StrCat("relu(%", last, ")"));
  last = node("i32", StrCat("requantize(%", last, ", %4) {shift=12}"));
  last = node("i8", StrCat("cast(%", last, ") {dtype=\"i8\"}"));
  auto function = driver::TaskFunction(StrCat(text, "  output %", last, "\n}\n"));
  TW_CHECK(function.ok()) << support::StatusText(function.status()) << text;
  return *std::move(function);
}

struct Pool {
  int64_t columns, height, width, taps, stride, pad = 0, dilation = 1;
};

// Maxima of windows of a quantised image as a task of the driver.
ir::Function FunctionOf(const Pool& p, int64_t block) {
  const auto out = [&](int64_t in) {
    return (in + 2 * p.pad - (p.taps - 1) * p.dilation - 1) / p.stride + 1;
  };
  const auto image = [&](int64_t height, int64_t width) {
    return StrCat("i8[1,", p.columns, ",", height, ",", width, ",", block, "]");
  };
  const auto twice = [](int64_t n) { return StrCat("[", n, ",", n, "]"); };
  auto function = driver::TaskFunction(
      StrCat("graph {\n  input %0: ", image(p.height, p.width), "\n  %1: ",
             image(out(p.height), out(p.width)), " = pool2d(%0) {dilations=", twice(p.dilation),
             ", kernel=", twice(p.taps), ", kind=\"max\", pads=[", p.pad, ",", p.pad, ",", p.pad,
             ",", p.pad, "], staged=1, strides=", twice(p.stride), "}\n  output %1\n}\n"));
  TW_CHECK(function.ok()) << support::StatusText(function.status());
  return *std::move(function);
}

absl::StatusOr<std::vector<ir::Function>> Lowered(const ir::Function& scheduled,
                                                  const target::Target& target) {
  transform::PassContext context;
  context.target = target;
  context.verify_each = true;
  TW_ASSIGN(ir::Function lowered,
            transform::RunPipeline(scheduled, targets::BackendOf(target).pipeline(), context));
  return std::vector<ir::Function>{std::move(lowered)};
}

absl::StatusOr<std::string> CodeOf(const ir::Function& scheduled, const target::Target& target) {
  TW_ASSIGN(const std::vector<ir::Function> functions, Lowered(scheduled, target));
  TW_ASSIGN(codegen::Artifact artifact,
            targets::BackendOf(target).generate({functions, target, {}}));
  return std::move(artifact.bytes);
}

// All bytes, and biases and multipliers with which results are all bytes, too.
std::vector<ir::TensorData> DataFor(const ir::Function& f) {
  support::Rng rng(5);
  std::vector<ir::TensorData> data = tests::SeededArguments(f, {}, 5);
  for (size_t p = 0; p < data.size(); ++p) {
    const bool wide = f.params[p]->dtype == ir::kI32;
    for (size_t at = 0; at < data[p].bytes.size(); at += wide ? sizeof(int32_t) : 1) {
      const auto value = static_cast<int32_t>(rng.Uniform(wide ? 40 : 256));
      std::memcpy(data[p].bytes.data() + at, &value, wide ? sizeof(int32_t) : 1);
    }
  }
  return data;
}

// A function with operands, and its result by the interpreter.
struct Sample {
  std::string name;
  std::vector<ir::TensorData> operands;
  std::vector<uint8_t> result;
};
Sample SampleOf(const ir::Function& f) {
  Sample sample{f.name, DataFor(f), {}};
  std::vector<ir::TensorData> data = sample.operands;
  std::vector<ir::TensorData*> arguments;
  for (ir::TensorData& d : data) arguments.push_back(&d);
  const absl::Status ran = ir::Interpret(f, {}, arguments);
  TW_CHECK(ran.ok()) << support::StatusText(ran);
  sample.result = data.back().bytes;
  const std::set<uint8_t> values(sample.result.begin(), sample.result.end());
  EXPECT_GE(values.size(), 3u) << "results that say little";
  return sample;
}

// Runs code on a device, and returns its cycles. INTERNAL if the result is another.
absl::StatusOr<int64_t> RunOn(std::unique_ptr<vta::Backend> backend, const std::string& code,
                              const Sample& sample) {
  vta::VtaDevice device(std::move(backend));
  TW_ASSIGN(const std::unique_ptr<vta::VtaCode> loaded, device.Load(code));
  std::vector<vta::DramRange> operands;
  for (const ir::TensorData& d : sample.operands) {
    TW_ASSIGN(const vta::DramRange range, device.Allocate(static_cast<int64_t>(d.bytes.size())));
    std::memcpy(device.Bytes(range).data(), d.bytes.data(), d.bytes.size());
    operands.push_back(range);
  }
  TW_TRY(device.Launch(loaded->Find(sample.name), operands));
  const std::span<uint8_t> result = device.Bytes(operands.back());
  if (!std::equal(result.begin(), result.end(), sample.result.begin(), sample.result.end()))
    return support::Internal("test.result", "expected the interpreter's bytes, found others");
  return device.cycles();
}

absl::StatusOr<int64_t> Cycles(const Sample& sample, const ir::Function& scheduled,
                               const target::Target& target, uint64_t seed) {
  TW_ASSIGN(const std::string code, CodeOf(scheduled, target));
  TW_TRY(RunOn(vta::MakeFunctionalSimulator(seed), code, sample).status());
  return RunOn(vta::MakeCycleModel(), code, sample);
}

constexpr Product kProducts[] = {
    {.rows = 6, .columns = 4, .depth = 3},
    {.rows = 1, .columns = 1, .depth = 1},
    {.rows = 5, .columns = 2, .depth = 4, .bias = true},
    {.rows = 4, .columns = 6, .depth = 2, .bias = true, .relu = true},
    {.rows = 4, .columns = 2, .depth = 2, .relu = true, .outer = 3},
};

constexpr Convolution kConvolutions[] = {
    {.inputs = 2, .columns = 2, .height = 6, .width = 6},
    {.inputs = 2, .columns = 4, .height = 8, .width = 8, .stride = 2},
    {.inputs = 4, .columns = 2, .height = 6, .width = 5, .taps = 1, .pad = 0, .relu = false},
    {.inputs = 2, .columns = 4, .height = 8, .width = 8, .taps = 1, .stride = 2, .pad = 0},
    {.inputs = 3, .columns = 2, .height = 9, .width = 7, .taps = 1, .stride = 3, .pad = 0},
    {.inputs = 1, .columns = 1, .height = 5, .width = 9, .taps = 3, .pad = 0, .bias = false},
    {.inputs = 1, .columns = 3, .height = 7, .width = 7, .taps = 5, .pad = 2, .images = 2},
    {.inputs = 1, .columns = 2, .height = 9, .width = 8, .pad = 2, .dilation = 2},
    {.inputs = 1, .columns = 2, .height = 4, .width = 6, .taps = 1, .pad = 0},
    {.inputs = 4, .columns = 4, .height = 8, .width = 6, .apart = true},
    {.inputs = 3, .columns = 3, .height = 9, .width = 9, .stride = 2, .apart = true},
};

constexpr Addition kAdditions[] = {{.columns = 2, .height = 6, .width = 5},
                                   {.columns = 3, .height = 1, .width = 4, .relu = false}};

constexpr Pool kPools[] = {
    {.columns = 2, .height = 8, .width = 8, .taps = 2, .stride = 2},
    {.columns = 2, .height = 9, .width = 7, .taps = 3, .stride = 2, .pad = 1},
    {.columns = 1, .height = 6, .width = 6, .taps = 3, .stride = 1, .pad = 1},
    {.columns = 3, .height = 9, .width = 8, .taps = 3, .stride = 1, .dilation = 2},
};

template <typename Problem>
void ExpectDefaults(std::span<const Problem> problems) {
  for (const char* config : {"block8", "block16", "block32"}) {
    const target::Target target = TargetOf(config);
    for (size_t p = 0; p < problems.size(); ++p) {
      SCOPED_TRACE(StrCat(config, " ", p));
      const ir::Function function = FunctionOf(problems[p], target.machine.matrix.block);
      schedule::Schedule s(function);
      s.set_verify_each(true);
      space::ApplyDefaultSchedule(target, {}, &s);
      const auto cycles = Cycles(SampleOf(function), s.function(), target, 7 + p);
      EXPECT_TRUE(cycles.ok()) << cycles.status() << "\n" << s.Describe();
    }
  }
}

TEST(MatrixUnitTest, DefaultsComputeTheSameInEveryConfiguration) {
  ExpectDefaults<Product>(kProducts);
}
TEST(MatrixUnitTest, ConvolutionsComputeTheSameInEveryConfiguration) {
  ExpectDefaults<Convolution>(kConvolutions);
}
TEST(MatrixUnitTest, AdditionsComputeTheSameInEveryConfiguration) {
  ExpectDefaults<Addition>(kAdditions);
}

TEST(MatrixUnitTest, MaximaComputeTheSameInEveryConfiguration) { ExpectDefaults<Pool>(kPools); }

// No point is invalid, and random ones compute the same.
template <typename Problem>
void ExpectPoints(std::span<const Problem> problems) {
  support::Rng rng(tests::TestSeed());
  const target::Target target = TargetOf("block16");
  for (const Problem& p : problems) {
    const ir::Function function = FunctionOf(p, 16);
    auto space = Space::Create(function, target);
    ASSERT_TRUE(space.ok()) << space.status();
    ASSERT_EQ((*space)->sketches().size(), 1u);
    EXPECT_TRUE((*space)->DefaultPoint().has_value());
    const Sample sample = SampleOf(function);
    for (int64_t round = 0; round < tests::TestRounds(12); ++round) {
      Point point;
      ASSERT_TRUE((*space)->Sample(&rng, &point));
      auto schedule = (*space)->Apply(point);
      ASSERT_TRUE(schedule.ok()) << schedule.status();
      const auto cycles = Cycles(sample, schedule->function(), target, rng.NextU64());
      ASSERT_TRUE(cycles.ok()) << cycles.status() << "\n" << schedule->Describe();
    }
  }
}

TEST(MatrixUnitTest, EveryPointOfTheSpaceComputesTheSame) { ExpectPoints<Product>(kProducts); }
TEST(MatrixUnitTest, EveryPointOfAConvolutionComputesTheSame) {
  ExpectPoints<Convolution>(kConvolutions);
}
TEST(MatrixUnitTest, EveryPointOfAnAdditionComputesTheSame) { ExpectPoints<Addition>(kAdditions); }
TEST(MatrixUnitTest, EveryPointOfMaximaComputesTheSame) { ExpectPoints<Pool>(kPools); }

// Layers of ResNet-18 at their size: tiles near every limit of the hardware become programs.
TEST(MatrixUnitTest, EveryPointOfANetworksLayersBecomesCode) {
  support::Rng rng(tests::TestSeed());
  for (const char* config : {"block8", "block16", "block32"}) {
    const target::Target target = TargetOf(config);
    const int64_t block = target.machine.matrix.block;
    const Convolution layers[] = {
        {.inputs = 64 / block, .columns = 64 / block, .height = 56, .width = 56},
        {.inputs = 64 / block,
         .columns = 128 / block,
         .height = 56,
         .width = 56,
         .taps = 1,
         .stride = 2,
         .pad = 0},
        {.inputs = 512 / block, .columns = 512 / block, .height = 7, .width = 7}};
    for (const Convolution& layer : layers) {
      auto space = Space::Create(FunctionOf(layer, block), target);
      ASSERT_TRUE(space.ok()) << space.status();
      for (int64_t round = 0; round < tests::TestRounds(2); ++round) {
        Point point;
        ASSERT_TRUE((*space)->Sample(&rng, &point));
        auto schedule = (*space)->Apply(point);
        ASSERT_TRUE(schedule.ok()) << schedule.status();
        const auto code = CodeOf(schedule->function(), target);
        ASSERT_TRUE(code.ok()) << config << ": " << code.status();
      }
    }
  }
}

// Hardware with room for a few micro-ops at a time, in every block size: instructions with more
// become several, and programs load them again and again.
TEST(MatrixUnitTest, MicroOpsThatDoNotFitAreLoadedAgain) {
  support::Rng rng(tests::TestSeed());
  constexpr int64_t kMicroOps = 8;
  int64_t reloading = 0;
  for (const vta::NamedConfig& named : vta::NamedConfigs()) {
    vta::Config config = named.config;
    config.uop = kMicroOps;
    target::Target target = TargetOf(std::string(named.name));
    target.machine.matrix.micro_ops = kMicroOps;
    for (const Convolution& convolution : kConvolutions) {
      const ir::Function function = FunctionOf(convolution, config.block);
      auto space = Space::Create(function, target);
      ASSERT_TRUE(space.ok()) << space.status();
      const Sample sample = SampleOf(function);
      for (int64_t round = 0; round < tests::TestRounds(2); ++round) {
        Point point = *(*space)->DefaultPoint();
        if (round > 0) {
          ASSERT_TRUE((*space)->Sample(&rng, &point));
        }
        auto schedule = (*space)->Apply(point);
        ASSERT_TRUE(schedule.ok()) << schedule.status();
        auto lowered = Lowered(schedule->function(), target);
        ASSERT_TRUE(lowered.ok()) << lowered.status();
        auto artifact = vta::GenerateFor(config, {*lowered, target, {}});
        ASSERT_TRUE(artifact.ok()) << artifact.status() << "\n" << schedule->Describe();
        const auto code = vta::ParseCode(artifact->bytes);
        ASSERT_TRUE(code.ok()) << code.status();
        reloading += code->programs[0].uops.size() > kMicroOps ? 1 : 0;
        for (const auto& make : {+[] { return vta::MakeFunctionalSimulator(); },
                                 +[] { return vta::MakeCycleModel(); }}) {
          const auto cycles = RunOn(make(), artifact->bytes, sample);
          ASSERT_TRUE(cycles.ok()) << named.name << ": " << cycles.status() << "\n"
                                   << schedule->Describe();
        }
      }
    }
  }
  EXPECT_GE(reloading, 25) << "programs that fit say nothing";
}

// What does not fit the memories is no point: here the sums, the weights and the inputs of tiles.
TEST(MatrixUnitTest, TilesFitTheMemoriesExactly) {
  const target::MatrixUnit unit = {.name = "vta",
                                   .block = 16,
                                   .inputs = 64,
                                   .weights = 32,
                                   .sums = 40,
                                   .micro_ops = 1024,
                                   .instructions = 1 << 16};
  const MatrixProblem p{.product = "p",
                        .last = "y",
                        .staging = {},
                        .stages = {},
                        .rows = 64,
                        .columns = 64,
                        .steps = 64,
                        .operands = 1};
  EXPECT_TRUE(Fits(unit, p, {.rows = 4, .columns = 8, .steps = 4}));
  EXPECT_FALSE(Fits(unit, p, {.rows = 8, .columns = 8, .steps = 4})) << "72 sums";
  EXPECT_FALSE(Fits(unit, p, {.rows = 4, .columns = 8, .steps = 8})) << "64 weights";
  EXPECT_FALSE(Fits(unit, p, {.rows = 16, .columns = 2, .steps = 8})) << "128 inputs";
  EXPECT_TRUE(Fits(unit, p, {.rows = 4, .columns = 4, .steps = 4, .threads = 2}));
  EXPECT_FALSE(Fits(unit, p, {.rows = 4, .columns = 8, .steps = 4, .threads = 2}));
  EXPECT_FALSE(Fits(unit, p, {.rows = 3, .columns = 4, .steps = 4})) << "3 does not divide 64";
  EXPECT_FALSE(Fits(unit, p, {.rows = 4, .columns = 32, .steps = 1, .threads = 4}));
}

TEST(MatrixUnitTest, SaysWhyAFunctionRunsElsewhere) {
  const target::MatrixUnit& unit = TargetOf("block32").machine.matrix;
  const auto why = [&](const std::string& text) {
    auto function = driver::TaskFunction(text);
    EXPECT_TRUE(function.ok()) << function.status();
    return WhyNotOnUnit(*function, unit);
  };
  EXPECT_THAT(
      why("graph {\n  input %0: u8[4]\n  %1: i8[4] = cast(%0) {dtype=\"i8\"}\n  output %1\n}\n"),
      testing::HasSubstr("it has u8"));
  EXPECT_THAT(why("graph {\n  input %0: i8[4]\n  %1: i8[4] = relu(%0)\n  output %1\n}\n"),
              testing::HasSubstr("no product"));
  // A product, but its result is no bytes: no point of a space, either.
  const std::string dense =
      "graph {\n  input %0: i8[2,32]\n  weight %1: i8[1,1,32,32]\n  weight %2: f32[]\n  weight %3: "
      "i32[]\n  %4: i32[2,32] = dense(%0, %1) {weight_layout=\"NK32n32k\"}\n  %5: f32[2,32] = "
      "dequantize(%4, %2, %3)\n  output %5\n}\n";
  EXPECT_THAT(why(dense), testing::HasSubstr("it has f32"));
  EXPECT_FALSE(MatrixProblemOf(*driver::TaskFunction(dense), unit).has_value());
  const Convolution wide = {
      .inputs = 1, .columns = 1, .height = 20, .width = 20, .taps = 17, .pad = 8};
  EXPECT_THAT(WhyNotOnUnit(FunctionOf(wide, unit.block), unit), testing::HasSubstr("no tile"));
}

// The default is one of the best of the space.
void ExpectNearOptimum(const ir::Function& function) {
  const target::Target target = TargetOf("block16");
  auto space = Space::Create(function, target);
  ASSERT_TRUE(space.ok()) << space.status();
  int64_t best = INT64_MAX, of_default = 0;
  const Point first = *(*space)->DefaultPoint();
  support::Rng rng(3);
  const Sample sample = SampleOf(function);
  for (int i = 0; i < 20; ++i) {
    Point point = first;
    if (i > 0) {
      ASSERT_TRUE((*space)->Sample(&rng, &point));
    }
    auto schedule = (*space)->Apply(point);
    ASSERT_TRUE(schedule.ok()) << schedule.status();
    const auto code = CodeOf(schedule->function(), target);
    ASSERT_TRUE(code.ok()) << code.status();
    const auto cycles = RunOn(vta::MakeCycleModel(), *code, sample);
    ASSERT_TRUE(cycles.ok()) << cycles.status();
    if (i == 0) of_default = *cycles;
    best = std::min(best, *cycles);
  }
  EXPECT_LE(static_cast<double>(of_default), 1.15 * static_cast<double>(best));
  std::cout << "cycles of the default " << of_default << ", best of 20 " << best << "\n";
}

TEST(MatrixUnitTest, TheDefaultIsNearTheOptimum) {
  ExpectNearOptimum(FunctionOf(Product{.rows = 32, .columns = 8, .depth = 16}, 16));
  ExpectNearOptimum(FunctionOf(Product{.rows = 48, .columns = 4, .depth = 4, .bias = true}, 16));
  ExpectNearOptimum(
      FunctionOf(Convolution{.inputs = 2, .columns = 4, .height = 14, .width = 14}, 16));
  ExpectNearOptimum(FunctionOf(
      Convolution{
          .inputs = 2, .columns = 4, .height = 14, .width = 14, .taps = 1, .stride = 2, .pad = 0},
      16));
}

// A sum of one product is reset and begun in the same loops. Both are loops of instructions anyway.
TEST(MatrixUnitTest, SumsOfOneProductAreFewInstructions) {
  const target::Target target = TargetOf("block16");
  const ir::Function function = FunctionOf(
      Convolution{.inputs = 1, .columns = 2, .height = 12, .width = 12, .taps = 1, .pad = 0}, 16);
  schedule::Schedule scheduled(function);
  ApplyDefaultSchedule(target, {}, &scheduled);
  const auto code = CodeOf(scheduled.function(), target);
  ASSERT_TRUE(code.ok()) << code.status();
  const auto parsed = vta::ParseCode(*code);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_LT(parsed->programs.at(0).stream.size(), 60U);  // 288 sums
  EXPECT_TRUE(RunOn(vta::MakeCycleModel(), *code, SampleOf(function)).ok());
}

// With few products the last thread's next sums would wait until the results before them are
// stored. Slices avoid it, also in a tile whose whole stores take longer than its products, and the
// estimate knows.
TEST(MatrixUnitTest, NothingWaitsForStoresOfFewProducts) {
  const target::Target target = TargetOf("block16");
  const target::MatrixUnit& unit = target.machine.matrix;
  const ir::Function function = FunctionOf(
      Convolution{
          .inputs = 4, .columns = 8, .height = 56, .width = 56, .taps = 1, .stride = 2, .pad = 0},
      16);
  const auto problem = MatrixProblemOf(function, unit);
  ASSERT_TRUE(problem.has_value());
  const Sample sample = SampleOf(function);
  const MatrixTile long_stores{.rows = 14, .columns = 8, .steps = 1, .threads = 2, .width = 7};
  const auto chosen = BestTile(unit, *problem, {0, 0, 0, 0, 0});
  ASSERT_TRUE(chosen.has_value());
  std::vector<int64_t> cycles;
  for (const MatrixTile& tile : {long_stores, *chosen}) {
    Choices choices;
    BlockChoice& choice = choices[problem->key()];
    choice.rows = tile.rows;
    choice.planes = tile.width;
    choice.vectors = tile.columns;
    choice.unroll = tile.steps;
    choice.threads = tile.threads;
    schedule::Schedule scheduled(function);
    ApplyDefaultSchedule(target, choices, &scheduled);
    const auto code = CodeOf(scheduled.function(), target);
    ASSERT_TRUE(code.ok()) << code.status();
    const auto ran = RunOn(vta::MakeCycleModel(), *code, sample);
    ASSERT_TRUE(ran.ok()) << ran.status();
    cycles.push_back(*ran);
    EXPECT_NEAR(TileCycles(unit, *problem, tile) / static_cast<double>(*ran), 1, 0.05);
  }
  EXPECT_NEAR(static_cast<double>(cycles[0]) / static_cast<double>(cycles[1]), 1, 0.02);
}

// A function that the unit does not compute gets no steps, and the generator names what it found.
TEST(MatrixUnitTest, OtherFunctionsAreRefusedByTheGenerator) {
  const target::Target target = TargetOf("block16");
  auto function = driver::TaskFunction(
      "graph {\n  input %0: f32[2,3]\n  %1: f32[2,3] = relu(%0)\n  output %1\n}\n");
  ASSERT_TRUE(function.ok()) << function.status();
  EXPECT_TRUE(DefaultSchedule(*function, target).empty());
  EXPECT_EQ(support::Slug(CodeOf(*function, target).status()), "codegen.vta.form");
  auto space = Space::Create(*function, target);
  ASSERT_TRUE(space.ok()) << space.status();
  EXPECT_TRUE((*space)->sketches().empty());
}

// Sums over the windows of an image have the form of maxima.
TEST(MatrixUnitTest, OnlyMaximaArePooled) {
  const target::Target target = TargetOf("block16");
  EXPECT_TRUE(MatrixProblemOf(FunctionOf(kPools[0], 16), target.machine.matrix).has_value());
  const std::string image = "[1,2,4,4,16]", result = "[1,2,1,1,16]";
  for (const std::string type : {"i32", "f32"}) {
    for (const std::string kind : {"sum", "max"}) {
      auto function = driver::TaskFunction(StrCat(
          "graph {\n  input %0: i8", image, "\n  %1: ", type, image, " = cast(%0) {dtype=\"", type,
          "\"}\n  %2: ", type, result, " = reduce(%1) {axes=[2,3], keepdims=1, kind=\"", kind,
          "\"}\n  %3: i8", result, " = cast(%2) {dtype=\"i8\"}\n  output %3\n}\n"));
      ASSERT_TRUE(function.ok()) << function.status();
      EXPECT_EQ(MatrixProblemOf(*function, target.machine.matrix).has_value(),
                type == "i32" && kind == "max");
    }
  }
}

}  // namespace
}  // namespace tilewright::space
