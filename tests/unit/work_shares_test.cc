// How groups share out tiles, and sums in parts of the last wave's tiles: what is feasible, what
// the estimate prefers, and that the points are right on the emulated GPU.
#include "compiler/space/rules/work_shares.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "compiler/codegen/host_device.h"
#include "compiler/estimate/group_model.h"
#include "compiler/ir/ir_text.h"
#include "compiler/space/space.h"
#include "compiler/targets/cuda/cuda_codegen.h"
#include "compiler/targets/cuda/nvrtc.h"
#include "compiler/transform/passes.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"
#include "tests/support/equivalence.h"
#include "tests/support/simt/simt_plan.h"
#include "tests/support/te_programs.h"

namespace tilewright::space {
namespace {

using support::StatusText;
using support::StrCat;
using Knobs = std::map<std::string, int64_t>;

// D[m, n] = relu(A[m, k] * B[n, k] + bias[n]), with sums f32.
ir::Function Layer(int64_t m, int64_t n, int64_t k, const std::string& type) {
  auto f = ir::ParseFunction(StrCat(
      "fn layer(A: ", type, "[", m, ", ", k, "] input, B: ", type, "[", n, ", ", k,
      "] input, bias: f32[", n, "] input, D: ", type, "[", m, ", ", n,
      "] output) stage=scheduled { alloc C: f32[", m, ", ", n, "]; for i in 0..", m,
      " { for j in 0..", n, " { for k in 0..", k, " { block C(vi: spatial 0..", m,
      " = i, vj: spatial 0..", n, " = j, vk: reduce 0..", k,
      " = k) { reads A[vi:1, vk:1], B[vj:1, vk:1]; writes C[vi:1, vj:1]; init { C[vi, vj] = "
      "0.0f32; } C[vi, vj] = C[vi, vj] + f32(A[vi, vk]) * f32(B[vj, vk]); } } } } for i in 0..",
      m, " { for j in 0..", n, " { block D(vi: spatial 0..", m, " = i, vj: spatial 0..", n,
      " = j) { reads C[vi:1, vj:1], bias[vj:1]; writes D[vi:1, vj:1]; D[vi, vj] = ", type,
      "(max(C[vi, vj] + bias[vj], 0.0f32)); } } } }"));
  EXPECT_TRUE(f.ok()) << StatusText(f.status());
  return *f;
}

target::Target Gpu(const std::string& arch) { return *target::ParseTarget("cuda,arch=" + arch); }
// Three units of one small group each.
target::Target SmallGpu(const std::string& arch) {
  target::Target target = Gpu(arch);
  target.machine.launch.units = 3;
  target.machine.launch.unit_threads = 256;
  target.machine.launch.unit_groups = 1;
  return target;
}

// The point of a sketch with these knobs, others at their first value.
Point PointOf(const Space& space, const std::string& sketch, const Knobs& chosen) {
  Point point;
  while (space.sketches()[static_cast<size_t>(point.sketch)]->name() != sketch) ++point.sketch;
  size_t found = 0;
  for (const Knob& knob : space.sketches()[static_cast<size_t>(point.sketch)]->knobs()) {
    const auto value = chosen.find(knob.name);
    found += value != chosen.end();
    const auto at = value == chosen.end()
                        ? knob.menu.begin()
                        : std::find(knob.menu.begin(), knob.menu.end(), value->second);
    EXPECT_NE(at, knob.menu.end()) << knob.name;
    point.choices.push_back(static_cast<int>(at - knob.menu.begin()));
  }
  EXPECT_EQ(found, chosen.size());
  return point;
}

Knobs With(Knobs knobs, const Knobs& more) {
  for (const auto& [name, value] : more) knobs[name] = value;
  return knobs;
}

TEST(WorkShares, WholeWavesAreRowsOfTiles) {
  EXPECT_EQ(WholeWaveRows(18, 18, 132), 14);  // of 324 tiles two waves, 252 in whole rows
  EXPECT_EQ(WholeWaveRows(18, 9, 132), 14);
  EXPECT_EQ(WholeWaveRows(8, 8, 132), 0);    // one wave
  EXPECT_EQ(WholeWaveRows(22, 12, 132), 0);  // nothing is left
  EXPECT_EQ(WholeWaveRows(3, 140, 132), 2);
  EXPECT_EQ(WholeWaveRows(4, 4, 0), 0);
  EXPECT_TRUE(CanShareOut(7, kItsShare, 3));
  EXPECT_FALSE(CanShareOut(3, kItsShare, 3));
  EXPECT_FALSE(CanShareOut(7, 2, 3));
  EXPECT_TRUE(CanShareOut(8, 2, 3));
}

// Tiles of 128x128, of which a unit of an H100 has one at a time: two groups of four warps, each
// with 64 rows.
const Knobs kTile = {{"fragments_rows", 1}, {"warps_rows", 2}, {"stages", 4}};

// Of the point's program, in ns; nullopt where the point is not feasible.
std::optional<double> Estimated(const ir::Function& program, const Knobs& knobs,
                                const std::string& sketch = "tensor_tiles_64x128") {
  const target::Target target = Gpu("sm_90a");
  const auto space = Space::Create(program, target);
  EXPECT_TRUE(space.ok()) << StatusText(space.status());
  const Point point = PointOf(**space, sketch, knobs);
  if (!(*space)->Feasible(point)) return std::nullopt;
  const auto scheduled = (*space)->Apply(point);
  EXPECT_TRUE(scheduled.ok()) << StatusText(scheduled.status());
  transform::PassContext context;
  context.target = target;
  const auto loops = transform::LowerToLoops(scheduled->function(), context);
  EXPECT_TRUE(loops.ok()) << StatusText(loops.status());
  return estimate::EstimateGroups(estimate::Summarize(*loops), target).time.total_ns;
}

std::optional<double> WithParts(const ir::Function& program, int64_t parts) {
  return Estimated(program, With(kTile, {{"parts", parts}}));
}

TEST(WorkShares, TheEstimatePrefersPartsWhereAWaveIsIdle) {
  // 64 tiles on 132 units are one wave: parts of all sums, and nothing else is feasible.
  const ir::Function one_wave = Layer(1024, 1024, 8192, "f16");
  EXPECT_LT(*WithParts(one_wave, 2), *WithParts(one_wave, 1) * 0.7);
  EXPECT_FALSE(WithParts(one_wave, -2).has_value());
  // 324 tiles are two waves and 60 tiles: parts of the last rows' sums.
  const ir::Function idle = Layer(2304, 2304, 8192, "f16");
  EXPECT_LT(*WithParts(idle, -2), *WithParts(idle, 1) * 0.95);
  for (const int64_t parts : {2, 4, 8}) EXPECT_LT(*WithParts(idle, -2), *WithParts(idle, parts));
  // The longer the sum, the more it pays: launches and what the parts write are paid once.
  const ir::Function short_sum = Layer(2304, 2304, 512, "f16");
  EXPECT_GT(*WithParts(short_sum, -2), *WithParts(short_sum, 1));
  // 264 tiles are two whole waves.
  const ir::Function whole = Layer(2816, 1536, 8192, "f16");
  EXPECT_FALSE(WithParts(whole, -2).has_value());
  for (const int64_t parts : {2, 4, 8}) EXPECT_GT(*WithParts(whole, parts), *WithParts(whole, 1));
}

// Tiles of 64x64 plain numbers in groups of 128 threads.
const Knobs kPlainTile = {{"lanes", 4},   {"threads_vj", 16}, {"threads_vi", 8},
                          {"rows_vi", 8}, {"step_vk", 16},    {"fetch_A", 1},
                          {"fetch_B", 1}, {"row_padding", 4}};

// Of 128x128.
const Knobs kWidePlainTile = With(kPlainTile, {{"vectors", 2}, {"threads_vi", 16}});

std::optional<double> PlainWithParts(const ir::Function& program, int64_t parts) {
  return Estimated(program, With(kPlainTile, {{"parts", parts}}), "thread_tiles");
}

TEST(WorkShares, TheEstimatePrefersPartsOfPlainSumsWhereUnitsAreIdle) {
  // One tile, and four: the more parts, the more units work, as long as there are units.
  const ir::Function one = Layer(64, 64, 8192, "f32"), four = Layer(64, 256, 8192, "f32");
  for (const ir::Function& few : {one, four}) {
    EXPECT_LT(*PlainWithParts(few, 4), *PlainWithParts(few, 1) * 0.3);
    EXPECT_LT(*PlainWithParts(few, 16), *PlainWithParts(few, 4) * 0.3);
    EXPECT_FALSE(PlainWithParts(few, -2).has_value());
  }
  EXPECT_LT(*PlainWithParts(one, 64), *PlainWithParts(one, 32) * 0.8);
  EXPECT_GT(*PlainWithParts(four, 64), *PlainWithParts(four, 32));
  // Short sums do not pay for a launch that adds them up, nor for what it reads.
  const ir::Function short_sum = Layer(512, 1024, 32, "f32");
  EXPECT_GT(*PlainWithParts(short_sum, 2), *PlainWithParts(short_sum, 1));
  // 324 tiles of 128x128, of which 264 run at a time: only the last rows' sums are in parts.
  const ir::Function idle = Layer(2304, 2304, 8192, "f32");
  const auto wide = [&](int64_t parts) {
    return Estimated(idle, With(kWidePlainTile, {{"parts", parts}}), "thread_tiles");
  };
  EXPECT_LT(*wide(-4), *wide(1) * 0.7);
  EXPECT_LT(*wide(-2), *wide(1) * 0.8);
  for (const int64_t parts : {2, 4, 64}) EXPECT_FALSE(wide(parts).has_value());
}

TEST(WorkShares, GroupsThatShareOutStartOnce) {
  const Knobs share = With(kTile, {{"tiles_of_group", kItsShare}});
  const ir::Function idle = Layer(2304, 2304, 2304, "f16");
  const double plain = *Estimated(idle, kTile), shared = *Estimated(idle, share);
  EXPECT_LT(shared, plain);
  EXPECT_GT(shared, plain * 0.999);  // each group has as many tiles in turn as before
  EXPECT_FALSE(Estimated(Layer(1024, 1024, 8192, "f16"), share).has_value());  // one wave
}

// The menu of the knob `parts` of plain tiles.
std::vector<int64_t> PartsOfPlain(const ir::Function& program) {
  const auto space = Space::Create(program, Gpu("sm_90"));
  EXPECT_TRUE(space.ok()) << StatusText(space.status());
  for (const auto& sketch : (*space)->sketches()) {
    for (const Knob& knob : sketch->knobs()) {
      if (sketch->name() == "thread_tiles" && knob.name == "parts") return knob.menu;
    }
  }
  return {};
}

// Knobs without effect have one value.
TEST(WorkShares, WhatHasNoEffectIsInfeasible) {
  const ir::Function ragged = Layer(2300, 2304, 2304, "f16");
  const auto space = Space::Create(ragged, Gpu("sm_90"));
  ASSERT_TRUE(space.ok()) << StatusText(space.status());
  const Knobs tile = {
      {"warps_rows", 2}, {"warps_columns", 2}, {"fragments_rows", 4}, {"fragments_columns", 4}};
  const auto feasible = [&](const Knobs& more) {
    return (*space)->Feasible(PointOf(**space, "tensor_tiles", With(tile, more)));
  };
  EXPECT_TRUE(feasible({}));
  EXPECT_TRUE(feasible({{"tiles_of_group", kItsShare}}));
  EXPECT_FALSE(feasible({{"parts", 2}}));  // padded
  EXPECT_FALSE(feasible({{"parts", -2}}));
  const auto plain = [](const ir::Function& program, const Knobs& more) {
    const auto space = Space::Create(program, Gpu("sm_90"));
    EXPECT_TRUE(space.ok()) << StatusText(space.status());
    return (*space)->Feasible(PointOf(**space, "thread_tiles", With(kPlainTile, more)));
  };
  const ir::Function few = Layer(64, 64, 2048, "f32");
  EXPECT_TRUE(plain(few, {{"parts", 64}}));
  EXPECT_FALSE(plain(few, {{"parts", 64}, {"step_vk", 64}}));  // a part is half a step
  EXPECT_FALSE(plain(few, {{"parts", -2}}));                   // no wave is whole
  const ir::Function many = Layer(4096, 4096, 2048, "f32");
  EXPECT_FALSE(plain(many, {{"parts", 2}}));  // every unit has work
  EXPECT_TRUE(plain(many, {{"parts", -2}}));
  EXPECT_FALSE(plain(many, {{"parts", -2}, {"tiles_of_group", 2}}));
  // What is no sum is not cut, nor are sums of one term in each part.
  EXPECT_EQ(PartsOfPlain(Layer(64, 64, 16, "f32")), (std::vector<int64_t>{1, 2, 4, 8, -2, -4, -8}));
  EXPECT_EQ(PartsOfPlain(Layer(64, 64, 6, "f32")), (std::vector<int64_t>{1, 2, -2}));
  EXPECT_EQ(PartsOfPlain(tests::MaxPoolProgram(8, 32, 2, 2)), std::vector<int64_t>{1});
  const auto thread = Space::Create(ragged, *target::ParseTarget("opencl"));
  ASSERT_TRUE(thread.ok()) << StatusText(thread.status());
  for (const auto& sketch : (*thread)->sketches()) {
    for (const Knob& knob : sketch->knobs()) {  // threads one after the other
      const bool shares = std::count(knob.menu.begin(), knob.menu.end(), kItsShare) > 0;
      EXPECT_FALSE(knob.name == "tiles_of_group" && shares);
      EXPECT_TRUE(knob.name != "parts" || knob.menu.size() == 1);
    }
  }
}

struct Row {
  ir::Function program;
  const char* sketch;
  Knobs knobs;
  size_t launches;
};

// The point's launches as CUDA.
std::optional<simt::PlanText> TextOf(const ir::Function& program, const target::Target& target,
                                     const std::string& sketch, const Knobs& knobs) {
  const auto space = Space::Create(program, target);
  EXPECT_TRUE(space.ok()) << StatusText(space.status());
  const Point point = PointOf(**space, sketch, knobs);
  EXPECT_TRUE((*space)->Feasible(point));
  const auto scheduled = (*space)->Apply(point);
  EXPECT_TRUE(scheduled.ok()) << StatusText(scheduled.status());
  if (!scheduled.ok()) return std::nullopt;
  transform::PassContext context;
  context.target = target;
  const auto lowered =
      transform::RunPipeline(scheduled->function(), transform::GpuPipeline(), context);
  EXPECT_TRUE(lowered.ok()) << StatusText(lowered.status());
  if (!lowered.ok()) return std::nullopt;
  const auto plan = codegen::SplitHostDevice(*lowered);
  EXPECT_TRUE(plan.ok()) << StatusText(plan.status());
  if (!plan.ok()) return std::nullopt;
  std::vector<ir::Function> kernels;
  for (const codegen::Launch& launch : plan->launches) kernels.push_back(launch.kernel);
  const auto text = cuda::EmitCuda(kernels);
  EXPECT_TRUE(text.ok()) << StatusText(text.status());
  if (!text.ok()) return std::nullopt;
  return simt::PlanText{simt::Language::kCuda, *plan, *text};
}

void ExpectRight(const std::vector<Row>& rows, const target::Target& target) {
  std::vector<simt::PlanText> texts;
  for (const Row& row : rows) {
    const auto text = TextOf(row.program, target, row.sketch, row.knobs);
    ASSERT_TRUE(text.has_value()) << texts.size();
    EXPECT_EQ(text->plan.launches.size(), row.launches) << texts.size();
    if (row.knobs.contains("tiles_of_group")) {
      const ir::Expr& groups = text->plan.launches[0].grid[0];
      EXPECT_TRUE(ir::IsInt(groups, 3)) << ir::Print(groups);
    }
    texts.push_back(*text);
  }
  const auto compiled = simt::CompilePlans(texts);
  ASSERT_TRUE(compiled.ok()) << StatusText(compiled.status());
  for (size_t i = 0; i < rows.size(); ++i) {
    tests::EquivalenceOptions options;
    options.max_steps = 200'000'000;
    options.run_other = [&](const ir::Function&, const std::vector<int64_t>& sizes,
                            std::vector<ir::TensorData*> args) {
      return simt::RunPlan((*compiled)[i], sizes, args);
    };
    const absl::Status same = tests::SameResults(rows[i].program, rows[i].program, options);
    EXPECT_TRUE(same.ok()) << StatusText(same) << "\n" << texts[i].text;
  }
}

// Rows of eight results of a thread: what threads write at a time is apart, or in one piece.
TEST(WorkShares, PartsOfNeighboursMayBeNeighbours) {
  const ir::Function program = Layer(64, 64, 512, "f32");
  const Knobs tile = {{"threads_vi", 32}, {"vectors", 8}, {"parts", 16}};
  std::vector<simt::PlanText> texts;
  for (const int64_t by_threads : {0, 1}) {
    const auto text = TextOf(program, Gpu("sm_90"), "thread_tiles",
                             With(tile, {{"parts_by_threads", by_threads}}));
    ASSERT_TRUE(text.has_value());
    texts.push_back(*text);
  }
  const auto compiled = simt::CompilePlans(texts);
  ASSERT_TRUE(compiled.ok()) << StatusText(compiled.status());
  std::vector<int64_t> written;
  for (const simt::CompiledPlan& plan : *compiled) {
    const auto counts = simt::CountPlan(plan, 4);
    ASSERT_TRUE(counts.ok()) << StatusText(counts.status());
    int64_t sectors = 0, least = 0;
    for (const auto& [array, traffic] : (*counts)[0]) {
      if (!array.second) continue;
      sectors += static_cast<int64_t>(traffic.global_sectors);
      least += static_cast<int64_t>(traffic.global_ideal_sectors);
    }
    written.push_back(sectors);
    EXPECT_EQ(sectors, written.size() == 1 ? 8 * least : least);
  }
  // The launch that adds them up reads whole sectors, and its writes are a sixteenth.
  const auto estimate = [&](int64_t by_threads) {
    return *Estimated(program, With(tile, {{"parts_by_threads", by_threads}}), "thread_tiles");
  };
  EXPECT_LT(estimate(1), estimate(0));
  // Knobs without effect have one value.
  const auto space = Space::Create(program, Gpu("sm_90"));
  for (const Knobs& same :
       {Knobs{{"threads_vi", 32}, {"vectors", 8}},
        Knobs{{"parts", 16}, {"threads_vj", 32}, {"threads_vi", 2}},
        Knobs{{"parts", 16}, {"threads_vj", 16}, {"lanes", 4}, {"threads_vi", 4}},
        Knobs{{"parts", 16},
              {"threads_vj", 32},
              {"vectors", 2},
              {"virtual_threads", 1},
              {"threads_vi", 2}}}) {
    EXPECT_TRUE((*space)->Feasible(PointOf(**space, "thread_tiles", same)));
    EXPECT_FALSE((*space)->Feasible(
        PointOf(**space, "thread_tiles", With(same, {{"parts_by_threads", 1}}))));
  }
}

TEST(WorkShares, PointsAreRight) {
  const target::Target target = SmallGpu("sm_90a");
  const std::vector<Row> rows = {
      // Tiles that three groups do not divide, of whole and of padded matrices.
      {Layer(128, 80, 96, "f16"),
       "tensor_tiles",
       {{"tiles_of_group", kItsShare}, {"warps_rows", 2}, {"stages", 3}},
       1},
      {Layer(125, 81, 90, "f16"),
       "tensor_tiles",
       {{"tiles_of_group", kItsShare},
        {"warps_rows", 2},
        {"fragments_columns", 2},
        {"swap_groups", 1}},
       1},
      {Layer(320, 128, 192, "f16"),
       "tensor_tiles_64x64",
       {{"tiles_of_group", kItsShare}, {"stages", 3}},
       1},
      {Layer(96, 96, 40, "f32"),
       "thread_tiles",
       {{"tiles_of_group", kItsShare},
        {"lanes", 4},
        {"threads_vj", 8},
        {"threads_vi", 8},
        {"rows_vi", 2},
        {"fetch_A", 1},
        {"fetch_B", 1},
        {"step_vk", 8},
        {"double_buffer", 1}},
       1},
      // Sums of plain numbers in parts: a tile of each part, and several tiles of a group.
      {Layer(16, 32, 96, "f32"),
       "thread_tiles",
       {{"parts", 4},
        {"lanes", 4},
        {"threads_vj", 8},
        {"threads_vi", 8},
        {"rows_vi", 2},
        {"fetch_A", 1},
        {"fetch_B", 1},
        {"step_vk", 8},
        {"double_buffer", 1}},
       2},
      {Layer(8, 64, 128, "f32"),
       "thread_tiles",
       {{"parts", 32},
        {"lanes", 2},
        {"vectors", 2},
        {"virtual_threads", 1},
        {"threads_vj", 8},
        {"threads_vi", 8},
        {"fetch_B", 1},
        {"step_vk", 4},
        {"row_padding", 1},
        {"unroll", 1},
        {"tiles_of_group", kItsShare}},
       2},
      // Eight rows of tiles, of which six are whole waves, and seven of two each, six.
      {Layer(64, 32, 64, "f32"),
       "thread_tiles",
       {{"parts", -4},
        {"lanes", 4},
        {"threads_vj", 8},
        {"threads_vi", 8},
        {"fetch_A", 1},
        {"step_vk", 8}},
       2},
      {Layer(56, 64, 64, "f32"),
       "thread_tiles",
       {{"parts", -8},
        {"lanes", 4},
        {"threads_vj", 8},
        {"threads_vi", 8},
        {"swap_groups", 1},
        {"tiles_of_group", kItsShare}},
       2},
      // Five rows of tiles, of which three are whole waves; sums of two rows in parts.
      {Layer(320, 128, 256, "f16"), "tensor_tiles_64x128", {{"parts", -4}}, 2},
      {Layer(160, 48, 256, "f16"),
       "tensor_tiles",
       {{"parts", -2}, {"warps_rows", 2}, {"fragments_columns", 3}, {"stages", 4}},
       2},
      {Layer(160, 64, 256, "f16"),
       "tensor_tiles",
       {{"parts", -8},
        {"warps_rows", 2},
        {"fragments_columns", 4},
        {"swap_groups", 1},
        {"tiles_of_group", kItsShare}},
       2},
  };
  ExpectRight(rows, target);
}

// Parts that lie as threads have them.
TEST(WorkShares, PartsByThreadsAreRight) {
  ExpectRight({{Layer(16, 32, 96, "f32"),
                "thread_tiles",
                {{"parts", 4},
                 {"parts_by_threads", 1},
                 {"lanes", 4},
                 {"vectors", 2},
                 {"threads_vj", 4},
                 {"threads_vi", 8},
                 {"rows_vi", 2},
                 {"fetch_A", 1},
                 {"step_vk", 8}},
                2},
               {Layer(16, 24, 96, "f32"),
                "thread_tiles",
                {{"parts", 8},
                 {"parts_by_threads", 1},
                 {"vectors", 3},
                 {"threads_vj", 4},
                 {"threads_vi", 8},
                 {"rows_vi", 2}},
                2}},
              SmallGpu("sm_90a"));
}

void ExpectNoSpills(const std::vector<simt::PlanText>& texts, const std::string& arch) {
  if (cuda::NvrtcName() == "nvrtc-none") GTEST_SKIP() << "[SKIP] no NVRTC";
  for (const simt::PlanText& text : texts) {
    const auto cubin = cuda::CompileText(text.text, arch);
    ASSERT_TRUE(cubin.ok()) << StatusText(cubin.status()) << "\n" << text.text;
    for (const codegen::KernelResources& kernel : cubin->kernels)
      EXPECT_EQ(kernel.spill_bytes + kernel.stack_bytes, 0) << kernel.registers;
  }
}

// Plain sums in parts spill nothing, and a launch for whole sums and parts has the memory of one.
TEST(WorkShares, PlainSumsInPartsSpillNothing) {
  const ir::Function idle = Layer(2304, 2304, 8192, "f32");
  std::vector<simt::PlanText> texts;
  for (const Knobs& more : {Knobs{}, Knobs{{"parts", -4}}, Knobs{{"tiles_of_group", kItsShare}}}) {
    const auto text = TextOf(idle, Gpu("sm_90"), "thread_tiles", With(kWidePlainTile, more));
    ASSERT_TRUE(text.has_value());
    texts.push_back(*text);
    EXPECT_EQ(text->plan.launches[0].shared_bytes, texts[0].plan.launches[0].shared_bytes);
  }
  EXPECT_TRUE(ir::IsInt(texts[0].plan.launches[0].grid[0], 324));
  EXPECT_TRUE(ir::IsInt(texts[1].plan.launches[0].grid[0], 252 + 4 * 72));
  EXPECT_TRUE(ir::IsInt(texts[2].plan.launches[0].grid[0], 264));
  const auto few = TextOf(Layer(64, 64, 8192, "f32"), Gpu("sm_90"), "thread_tiles",
                          With(kPlainTile, {{"parts", 64}}));
  ASSERT_TRUE(few.has_value());
  EXPECT_TRUE(ir::IsInt(few->plan.launches[0].grid[0], 64));
  texts.push_back(*few);
  ExpectNoSpills(texts, "sm_90");
}

// One launch for whole sums and parts has no more of a group's shared memory, and spills nothing.
TEST(WorkShares, OneLaunchForBothHasTheMemoryOfOne) {
  const ir::Function program = Layer(2304, 2304, 8192, "f16");
  std::vector<simt::PlanText> texts;
  for (const Knobs& more : {Knobs{}, Knobs{{"parts", -2}}, Knobs{{"tiles_of_group", kItsShare}},
                            Knobs{{"parts", -2}, {"tiles_of_group", kItsShare}}}) {
    const auto text = TextOf(program, Gpu("sm_90a"), "tensor_tiles_64x128", With(kTile, more));
    ASSERT_TRUE(text.has_value());
    texts.push_back(*text);
    EXPECT_EQ(text->plan.launches[0].shared_bytes, texts[0].plan.launches[0].shared_bytes);
  }
  EXPECT_TRUE(ir::IsInt(texts[0].plan.launches[0].grid[0], 324));
  EXPECT_TRUE(ir::IsInt(texts[1].plan.launches[0].grid[0], 252 + 2 * 72));
  EXPECT_TRUE(ir::IsInt(texts[2].plan.launches[0].grid[0], 132));
  EXPECT_TRUE(ir::IsInt(texts[3].plan.launches[0].grid[0], 132));
  ExpectNoSpills(texts, "sm_90a");
}

}  // namespace
}  // namespace tilewright::space
