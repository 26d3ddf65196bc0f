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
#include "compiler/ir/ir_text.h"
#include "compiler/space/space.h"
#include "compiler/targets/cuda/cuda_codegen.h"
#include "compiler/targets/cuda/nvrtc.h"
#include "compiler/transform/passes.h"
#include "cost_model/group_model.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"
#include "tests/support/equivalence.h"
#include "tests/support/simt/simt_plan.h"

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
std::optional<double> Estimated(const ir::Function& program, const Knobs& knobs) {
  const target::Target target = Gpu("sm_90a");
  const auto space = Space::Create(program, target);
  EXPECT_TRUE(space.ok()) << StatusText(space.status());
  const Point point = PointOf(**space, "tensor_tiles_64x128", knobs);
  if (!(*space)->Feasible(point)) return std::nullopt;
  const auto scheduled = (*space)->Apply(point);
  EXPECT_TRUE(scheduled.ok()) << StatusText(scheduled.status());
  transform::PassContext context;
  context.target = target;
  const auto loops = transform::LowerToLoops(scheduled->function(), context);
  EXPECT_TRUE(loops.ok()) << StatusText(loops.status());
  return cost_model::EstimateGroups(cost_model::Summarize(*loops), target).time.total_ns;
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

TEST(WorkShares, GroupsThatShareOutStartOnce) {
  const Knobs share = With(kTile, {{"tiles_of_group", kItsShare}});
  const ir::Function idle = Layer(2304, 2304, 2304, "f16");
  const double plain = *Estimated(idle, kTile), shared = *Estimated(idle, share);
  EXPECT_LT(shared, plain);
  EXPECT_GT(shared, plain * 0.999);  // each group has as many tiles in turn as before
  EXPECT_FALSE(Estimated(Layer(1024, 1024, 8192, "f16"), share).has_value());  // one wave
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
  const auto thread = Space::Create(ragged, *target::ParseTarget("opencl"));
  ASSERT_TRUE(thread.ok()) << StatusText(thread.status());
  for (const auto& sketch : (*thread)->sketches()) {
    for (const Knob& knob : sketch->knobs()) {  // threads one after the other
      const bool shares = std::count(knob.menu.begin(), knob.menu.end(), kItsShare) > 0;
      EXPECT_FALSE(knob.name == "tiles_of_group" && shares);
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
  if (cuda::NvrtcName() == "nvrtc-none") GTEST_SKIP() << "[SKIP] no NVRTC";
  for (const simt::PlanText& text : texts) {
    const auto cubin = cuda::CompileText(text.text, "sm_90a");
    ASSERT_TRUE(cubin.ok()) << StatusText(cubin.status()) << "\n" << text.text;
    for (const codegen::KernelResources& kernel : cubin->kernels)
      EXPECT_EQ(kernel.spill_bytes + kernel.stack_bytes, 0) << kernel.registers;
  }
}

}  // namespace
}  // namespace tilewright::space
