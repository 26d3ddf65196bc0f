// Random programs as CUDA C, HIP, Metal and OpenCL C on the emulated GPU against the interpreter:
// flat ones (vectors, masks, casts, integer types, lets, conditions), random schedules for groups
// of threads, and random points of the search's spaces. The same bits for integers, floats within
// rounding; no race, no access out of bounds, no read of what nothing has written.
// TILEWRIGHT_ROUNDS makes them more (tests/long/simt.py), TILEWRIGHT_SEED repeats a run.
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "compiler/codegen/host_device.h"
#include "compiler/driver/tasks.h"
#include "compiler/ir/ir_text.h"
#include "compiler/schedule/schedule.h"
#include "compiler/space/space.h"
#include "compiler/targets/cuda/cuda_codegen.h"
#include "compiler/targets/cuda/nvrtc.h"
#include "compiler/targets/hip/hip_codegen.h"
#include "compiler/targets/hip/hip_compiler.h"
#include "compiler/targets/metal/metal_codegen.h"
#include "compiler/targets/opencl/opencl_codegen.h"
#include "compiler/transform/passes.h"
#include "deploy/support/rng.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"
#include "tests/support/equivalence.h"
#include "tests/support/metal_types.h"
#include "tests/support/random_bound.h"
#include "tests/support/random_ir.h"
#include "tests/support/simt/simt_plan.h"
#include "tests/support/stage_tasks.h"
#include "tests/support/te_programs.h"
#include "tests/support/test_seed.h"

namespace tilewright::tests {
namespace {

using simt::Language;
using support::StrCat;

struct LanguageRow {
  Language language;
  const char* target;
  absl::StatusOr<std::string> (*emit)(const std::vector<ir::Function>&, bool sub_groups);
  const char* unsupported;
  // Of a machine whose texts differ from another row's in part: the products of four warps.
  bool only_four_warps = false;
};
constexpr LanguageRow kLanguages[] = {
    {Language::kCuda, "cuda,tf32=on", cuda::EmitCuda, "codegen.cuda.unsupported"},
    {Language::kCuda, "cuda,arch=sm_90a", cuda::EmitCuda, "codegen.cuda.unsupported", true},
    {Language::kHip, "hip,arch=gfx90a",
     [](const std::vector<ir::Function>& kernels, bool sub_groups) {
       return hip::EmitHip(kernels, sub_groups, 64);
     },
     "codegen.hip.unsupported"},
    {Language::kHip, "hip,arch=gfx1100",
     [](const std::vector<ir::Function>& kernels, bool sub_groups) {
       return hip::EmitHip(kernels, sub_groups, 32);
     },
     "codegen.hip.unsupported"},
    {Language::kMetal, "metal", metal::EmitMetal, "codegen.metal.unsupported"},
    {Language::kOpenCl, "opencl", opencl::EmitOpenCl, "codegen.opencl.unsupported"},
    {Language::kOpenCl, "opencl,config=adreno", opencl::EmitOpenCl, "codegen.opencl.unsupported"},
};

const LanguageRow& RowOf(std::string_view target) {
  return *std::find_if(std::begin(kLanguages), std::end(kLanguages),
                       [&](const LanguageRow& row) { return row.target == target; });
}

struct Case {
  std::string what;  // a seed, and the steps
  ir::Function program;
  simt::PlanText text;
};

class RandomSimtTest : public testing::TestWithParam<LanguageRow> {
 protected:
  target::Target Target() const { return *target::ParseTarget(GetParam().target); }

  // The text of a lowered function; nullopt where the language or the machine lacks something.
  std::optional<simt::PlanText> TextOf(const ir::Function& lowered, const std::string& what,
                                       bool sub_groups) const {
    auto plan = codegen::SplitHostDevice(lowered);
    if (!plan.ok()) {  // a global buffer inside of loops
      EXPECT_EQ(support::Slug(plan.status()), "codegen.split_host_device.global_alloc") << what;
      return std::nullopt;
    }
    if (!codegen::CheckLaunchLimits(*plan, Target().machine.launch).ok()) return std::nullopt;
    std::vector<ir::Function> kernels;
    for (const codegen::Launch& l : plan->launches) kernels.push_back(l.kernel);
    auto text = GetParam().emit(kernels, sub_groups);
    if (support::Slug(text.status()) == GetParam().unsupported) return std::nullopt;
    EXPECT_TRUE(text.ok()) << what << text.status();
    if (!text.ok()) return std::nullopt;
    return simt::PlanText{GetParam().language, *std::move(plan), *std::move(text),
                          static_cast<uint32_t>(Target().machine.launch.warp)};
  }

  std::optional<Case> Scheduled(const ir::Function& program, const schedule::Schedule& scheduled,
                                uint64_t seed) const {
    const std::string what =
        StrCat("seed ", seed, ": ", schedule::ToText(scheduled.steps()), "\n", ir::Print(program));
    transform::PassContext context;
    context.target = Target();
    auto lowered = transform::RunPipeline(scheduled.function(), transform::GpuPipeline(), context);
    if (!lowered.ok()) {
      EXPECT_TRUE(support::Slug(lowered.status()).starts_with("transform.merge_threads."))
          << what << lowered.status();
      return std::nullopt;
    }
    auto text = TextOf(*lowered, what, context.target.machine.launch.sub_groups);
    if (!text.has_value()) return std::nullopt;
    return Case{what, program, *std::move(text)};
  }

  void RunAll(const std::vector<Case>& cases) const {
    constexpr size_t kOneCompilation = 64;
    for (size_t first = 0; first < cases.size() && !HasFailure(); first += kOneCompilation) {
      const size_t end = std::min(cases.size(), first + kOneCompilation);
      std::vector<simt::PlanText> texts;
      for (size_t i = first; i < end; ++i) texts.push_back(cases[i].text);
      auto compiled = simt::CompilePlans(texts);
      ASSERT_TRUE(compiled.ok()) << compiled.status();
      for (size_t i = first; i < end && !HasFailure(); ++i) Run(cases[i], (*compiled)[i - first]);
    }
    std::cout << "counts: programs=" << cases.size() << "\n";
  }

 private:
  static void Run(const Case& c, const simt::CompiledPlan& compiled) {
    EquivalenceOptions options;
    options.max_steps = 100'000'000;  // the largest products of four warps
    options.run_other = [&](const ir::Function&, const std::vector<int64_t>& sizes,
                            std::vector<ir::TensorData*> args) {
      return simt::RunPlan(compiled, sizes, args);
    };
    const absl::Status same = SameResults(c.program, c.program, options);
    EXPECT_TRUE(same.ok()) << c.what << same << "\n" << c.text.text;
  }
};

TEST_P(RandomSimtTest, FlatPrograms) {
  if (GetParam().target == std::string("hip,arch=gfx1100") ||
      GetParam().target == std::string("opencl,config=adreno") || GetParam().only_four_warps)
    GTEST_SKIP() << "[SKIP] the texts of other warps, but for their size";
  const uint64_t first = 1000 * TestSeed(2718);
  const int64_t rounds = TestRounds(24);
  std::vector<Case> cases;
  for (uint64_t seed = first; seed < first + static_cast<uint64_t>(rounds); ++seed) {
    const ir::Function f = RandomFlat(seed);
    const std::string what = StrCat("seed ", seed, ": ", ir::Print(f));
    auto text = TextOf(f, what, /*sub_groups=*/false);
    if (text.has_value()) cases.push_back({what, f, *std::move(text)});
  }
  RunAll(cases);
  EXPECT_GE(static_cast<int64_t>(cases.size()), rounds / 4);
}

TEST_P(RandomSimtTest, RandomSchedules) {
  if (GetParam().only_four_warps) GTEST_SKIP() << "[SKIP] as for another machine";
  const uint64_t first = 1000 * TestSeed(31415);
  const auto rounds = static_cast<size_t>(TestRounds(24));
  std::vector<Case> cases;
  for (uint64_t seed = first; cases.size() < rounds && !HasFailure(); ++seed) {
    ASSERT_LT(seed, first + 4 * rounds) << "most schedules are refused";
    const ir::Function program = GpuProgram(seed);
    auto made = Scheduled(program, RandomBoundSchedule(program, seed), seed);
    if (made.has_value()) cases.push_back(*std::move(made));
  }
  RunAll(cases);
}

TEST_P(RandomSimtTest, PointsOfTheSearch) {
  if (GetParam().only_four_warps) GTEST_SKIP() << "[SKIP] as for another machine";
  const uint64_t first = 1000 * TestSeed(1618);
  const auto rounds = static_cast<size_t>(TestRounds(16));
  std::vector<Case> cases;
  for (uint64_t seed = first; cases.size() < rounds && !HasFailure(); ++seed) {
    ASSERT_LT(seed, first + 4 * rounds) << "most spaces are empty";
    const ir::Function program = SpaceProgram(seed);
    auto space = space::Space::Create(program, Target());
    ASSERT_TRUE(space.ok()) << space.status();
    support::Rng rng(seed);
    space::Point point;
    if (!(*space)->Sample(&rng, &point)) continue;
    auto scheduled = (*space)->Apply(point);
    ASSERT_TRUE(scheduled.ok()) << "seed " << seed << ": " << scheduled.status();
    auto made = Scheduled(program, *scheduled, seed);
    if (made.has_value()) cases.push_back(*std::move(made));
  }
  RunAll(cases);
}

// Rows and attention, each in one launch where the machine's threads go in step.
TEST_P(RandomSimtTest, StagesOfOneLaunch) {
  if (GetParam().only_four_warps) GTEST_SKIP() << "[SKIP] as for another machine";
  if (Target().machine.launch.warp < 2) GTEST_SKIP() << "[SKIP] its threads run in turn";
  const uint64_t first = 1000 * TestSeed(1414);
  const auto rounds = static_cast<size_t>(TestRounds(12));
  std::vector<Case> cases;
  for (uint64_t seed = first; cases.size() < rounds && !HasFailure(); ++seed) {
    const StageCase stages = RandomStageCase(seed, Target());
    if (HasFailure()) return;
    auto made = Scheduled(stages.program, stages.scheduled, seed);
    ASSERT_TRUE(made.has_value()) << "seed " << seed << ": " << ir::Print(stages.program);
    EXPECT_EQ(made->text.plan.launches.size(), 1U) << made->what;
    cases.push_back(*std::move(made));
  }
  RunAll(cases);
}

// A product for tensor cores: of one of its types, operands lying either way, alone, of a batch, or
// with what follows it. `four_warps`: of a size for these, and of no bytes. `waves`: whole tiles,
// more rows, longer sums.
ir::Function TensorProgram(uint64_t seed, bool four_warps, bool waves = false) {
  support::Rng rng(seed);
  struct Types {
    const char *a, *b, *sum, *zero;
    int64_t terms;
  };
  static constexpr Types kTypes[] = {{"f16", "f16", "f32", "0.0f32", 16},
                                     {"bf16", "bf16", "f32", "0.0f32", 16},
                                     {"i8", "i8", "i32", "0i32", 32},
                                     {"u8", "i8", "i32", "0i32", 32},
                                     {"f32", "f32", "f32", "0.0f32", 8}};
  const Types& t = kTypes[rng.Uniform(four_warps ? 2 : 5)];
  const auto times = [&](int64_t unit, uint64_t most) {
    return unit * static_cast<int64_t>(1 + rng.Uniform(most));
  };
  int64_t m = times(16, 4), n = times(8, 6), k = times(t.terms, 3);
  if (four_warps) m = times(64, 2), n = times(64, 4), k = times(64, 3);
  if (waves) {
    m = four_warps ? times(64, 5) : times(16, 10);
    k = (four_warps ? 64 : t.terms) * (rng.Uniform(2) == 0 ? 4 : 8);
  } else if (rng.Uniform(3) == 0) {  // no whole fragments
    m += rng.UniformInt(-5, 5), n += rng.UniformInt(-3, 6), k += rng.UniformInt(-7, 9);
    k = std::max(k, t.terms / 2);  // more padding than terms: no such product
  }
  const bool batch = !waves && rng.Uniform(3) == 0, shared_b = batch && rng.Uniform(2) == 0;
  const bool follows = rng.Uniform(2) == 0, halves = std::string_view(t.sum) == "f32";
  const std::string front = batch ? "2, " : "", index = batch ? "vb, " : "";
  const std::string b_front = shared_b ? "" : front, b_index = shared_b ? "" : index;
  const bool turned_a = rng.Uniform(3) == 0, turned_b = rng.Uniform(2) == 0;
  const auto pair = [](bool turned, const auto& x, const auto& y) {
    return turned ? StrCat(y, ", ", x) : StrCat(x, ", ", y);
  };
  const std::string result = follows && halves ? t.a : t.sum;
  const std::string made = follows ? "P" : "C", shape = StrCat("[", front, m, ", ", n, "]");
  const std::string value =
      halves ? StrCat(t.a, "(max(P[@] + D[vj], 0.0f32))") : "max(P[@] + D[vj], 0i32)";
  const auto loops = [&](bool terms) {
    return StrCat(batch ? "for b in 0..2 { " : "", "for i in 0..", m, " { for j in 0..", n, " { ",
                  terms ? StrCat("for k in 0..", k, " { ") : "");
  };
  const std::string iters = StrCat(batch ? "vb: spatial 0..2 = b, " : "", "vi: spatial 0..", m,
                                   " = i, vj: spatial 0..", n, " = j");
  const std::string at = index + "vi, vj", box = StrCat(batch ? "vb:1, " : "", "vi:1, vj:1");
  std::string text = StrCat(
      "fn product(A: ", t.a, "[", front, pair(turned_a, m, k), "] input, B: ", t.b, "[", b_front,
      pair(turned_b, k, n), "] input, D: ", t.sum, "[", n, "] input, C: ", result, shape,
      " output) stage=scheduled { ", follows ? StrCat("alloc P: ", t.sum, shape, "; ") : "",
      loops(true), "block ", made, "(", iters, ", vk: reduce 0..", k, " = k) { reads A[",
      batch ? "vb:1, " : "", pair(turned_a, "vi:1", "vk:1"), "], B[",
      batch && !shared_b ? "vb:1, " : "", pair(turned_b, "vk:1", "vj:1"), "]; writes ", made, "[",
      box, "]; init { ", made, "[", at, "] = ", t.zero, "; } ", made, "[", at, "] = ", made, "[",
      at, "] + ", t.sum, "(A[", index, pair(turned_a, "vi", "vk"), "]) * ", t.sum, "(B[", b_index,
      pair(turned_b, "vk", "vj"), "]); } } } }", batch ? " } " : " ");
  if (follows) {
    const size_t place = value.find('@');
    text += StrCat(loops(false), "block C(", iters, ") { reads P[", box, "], D[vj:1]; writes C[",
                   box, "]; C[", at, "] = ", value.substr(0, place), at, value.substr(place + 1),
                   "; } } }", batch ? " }" : "");
  }
  auto f = ir::ParseFunction(text + " }");
  EXPECT_TRUE(f.ok()) << f.status() << text;
  return *f;
}

// Points of the rule for tensor cores: each runs on the emulator, and NVRTC compiles it.
TEST_P(RandomSimtTest, ProductsOnTensorCores) {
  const bool four_warps = GetParam().only_four_warps;
  if (GetParam().language != Language::kCuda) GTEST_SKIP() << "[SKIP] no tensor cores";
  const uint64_t first = 1000 * TestSeed(3301);
  const auto rounds = static_cast<size_t>(TestRounds(four_warps ? 3 : 12));
  std::vector<Case> cases;
  for (uint64_t seed = first; cases.size() < rounds && !HasFailure(); ++seed) {
    ASSERT_LT(seed, first + 4 * rounds) << "most spaces have no such point";
    const ir::Function program = TensorProgram(seed, four_warps);
    auto space = space::Space::Create(program, Target());
    ASSERT_TRUE(space.ok()) << space.status();
    ASSERT_EQ((*space)->sketches()[0]->name(), "tensor_tiles") << ir::Print(program);
    support::Rng rng(seed);
    space::Point point;
    const auto wanted = [&] {
      const std::string name = (*space)->sketches()[static_cast<size_t>(point.sketch)]->name();
      return four_warps ? name.starts_with("tensor_tiles_") : name == "tensor_tiles";
    };
    for (int tries = 0; tries < 400; ++tries) {
      if ((*space)->Sample(&rng, &point) && wanted()) break;
    }
    if (!wanted() || !(*space)->Contains(point)) continue;
    auto scheduled = (*space)->Apply(point);
    ASSERT_TRUE(scheduled.ok()) << "seed " << seed << ": " << scheduled.status() << "\n"
                                << ir::Print(program);
    auto made = Scheduled(program, *scheduled, seed);
    ASSERT_TRUE(made.has_value()) << "seed " << seed << ": " << schedule::ToText(scheduled->steps())
                                  << "\n"
                                  << ir::Print(program);
    const char* product = four_warps ? "TW_PRODUCTS_BEGIN();" : "tw_cuda_mma_";
    EXPECT_NE(made->text.text.find(product), std::string::npos);
    cases.push_back(*std::move(made));
  }
  RunAll(cases);
  if (cuda::NvrtcName() == "nvrtc-none") GTEST_SKIP() << "[SKIP] no NVRTC";
  for (size_t i = 0; i < cases.size(); i += four_warps ? 1 : 6) {
    const auto cubin = cuda::CompileText(cases[i].text.text, "sm_90a");
    ASSERT_TRUE(cubin.ok()) << cubin.status() << "\n" << cases[i].text.text;
    for (const codegen::KernelResources& kernel : cubin->kernels)
      EXPECT_TRUE(!four_warps || kernel.spill_bytes == 0) << cases[i].what;
  }
}

// The machine with a few small units of one group each: small programs have several waves there.
target::Target WithFewUnits(target::Target target, int64_t units) {
  target.machine.launch.units = units;
  target.machine.launch.unit_threads = 256;
  target.machine.launch.unit_groups = 1;
  return target;
}

// Sets a knob of the point to a value that shares out work, at random: one of 0 and less, or with
// `above_one` any but 1. Returns false where the sketch has no such knob, or no such value is
// feasible.
bool SetShares(const space::Space& space, std::string_view name, support::Rng* rng,
               space::Point* point, bool above_one = false) {
  const space::Sketch& sketch = *space.sketches()[static_cast<size_t>(point->sketch)];
  std::vector<space::Point> shares;
  for (size_t k = 0; k < sketch.knobs().size(); ++k) {
    const space::Knob& knob = sketch.knobs()[k];
    for (size_t i = 0; i < knob.menu.size() && knob.name == name; ++i) {
      space::Point changed = *point;
      changed.choices[k] = static_cast<int>(i);
      const bool wanted = knob.menu[i] <= 0 || (above_one && knob.menu[i] > 1);
      if (wanted && space.Feasible(changed)) shares.push_back(std::move(changed));
    }
  }
  if (!shares.empty()) *point = rng->Choice(shares);
  return !shares.empty();
}

void SetIfFeasible(const space::Space& space, std::string_view name, int choice,
                   space::Point* point) {
  const auto& knobs = space.sketches()[static_cast<size_t>(point->sketch)]->knobs();
  const auto at = std::ranges::find(knobs, name, &space::Knob::name);
  if (at == knobs.end()) return;
  space::Point changed = *point;
  changed.choices[static_cast<size_t>(at - knobs.begin())] = choice;
  if (space.Feasible(changed)) *point = std::move(changed);
}

// Groups that do their share of the tiles, and sums in parts of the last wave's tiles.
TEST_P(RandomSimtTest, SharesOfWork) {
  if (Target().machine.launch.warp < 2) GTEST_SKIP() << "[SKIP] its threads run in turn";
  const bool tensors = GetParam().language == Language::kCuda;
  const uint64_t first = 1000 * TestSeed(5772);
  const auto rounds = static_cast<size_t>(TestRounds(GetParam().only_four_warps ? 3 : 12));
  std::vector<Case> cases;
  size_t divided = 0, shared = 0;
  for (uint64_t seed = first; cases.size() < rounds && !HasFailure(); ++seed) {
    ASSERT_LT(seed, first + 20 * rounds) << "most spaces have no such point";
    const bool parts = tensors && seed % 2 != 0;
    const ir::Function program = GetParam().only_four_warps || (tensors && seed % 4 != 0)
                                     ? TensorProgram(seed, GetParam().only_four_warps, parts)
                                     : SpaceProgram(seed);
    auto space =
        space::Space::Create(program, WithFewUnits(Target(), 2 + static_cast<int64_t>(seed % 3)));
    ASSERT_TRUE(space.ok()) << space.status();
    support::Rng rng(seed);
    space::Point point;
    bool shares = false;
    for (int tries = 0; tries < 200 && !shares; ++tries) {
      shares = (*space)->Sample(&rng, &point) &&
               SetShares(**space, parts ? "parts" : "tiles_of_group", &rng, &point);
    }
    if (!shares) continue;
    if (parts) SetShares(**space, "tiles_of_group", &rng, &point);
    auto scheduled = (*space)->Apply(point);
    ASSERT_TRUE(scheduled.ok()) << "seed " << seed << ": " << scheduled.status() << "\n"
                                << ir::Print(program);
    auto made = Scheduled(program, *scheduled, seed);
    ASSERT_TRUE(made.has_value()) << "seed " << seed << ": "
                                  << schedule::ToText(scheduled->steps());
    const std::string steps = schedule::ToText(scheduled->steps());
    divided += steps.find("divide") != std::string::npos;
    shared += steps.find("groups=") != std::string::npos;
    cases.push_back(*std::move(made));
  }
  RunAll(cases);
  std::cout << "counts: parts_of_a_wave=" << divided << " shares_of_groups=" << shared << "\n";
  if (!tensors) return;
  // The test says something only while there are both.
  EXPECT_TRUE(GetParam().only_four_warps || (divided > 0 && shared > 0));
  if (cuda::NvrtcName() == "nvrtc-none") GTEST_SKIP() << "[SKIP] no NVRTC";
  for (size_t i = 0; i < cases.size(); i += 6) {
    const auto cubin = cuda::CompileText(cases[i].text.text, "sm_90a");
    ASSERT_TRUE(cubin.ok()) << cubin.status() << "\n" << cases[i].text.text;
  }
}

// A product or a convolution of plain numbers, of a random size: few results, longer sums.
ir::Function LongSums(uint64_t seed) {
  support::Rng rng(seed);
  const auto times = [&](int64_t unit, uint64_t most) {
    return unit * static_cast<int64_t>(1 + rng.Uniform(most));
  };
  const int64_t m = times(2, 8), n = times(4, 6), k = times(16, 8);
  switch (rng.Uniform(4)) {
    case 0:
      return MatmulProgram(m, n, k);
    case 1:
      return DenseReluProgram(m, n, k);
    case 2:
      return PackedInt8ConvProgram(times(2, 2), 2 + m, 8);
    default:
      return ConvProgram({.channels_in = times(4, 4),
                          .height = 2 + times(2, 3),
                          .width = 2 + times(4, 2),
                          .channels_out = times(4, 4),
                          .kernel = rng.Uniform(2) == 0 ? 1 : 3});
  }
}

// Sums of plain numbers in parts: of all tiles, and of the last wave's.
TEST_P(RandomSimtTest, SumsInParts) {
  if (Target().machine.launch.warp < 2) GTEST_SKIP() << "[SKIP] its threads run in turn";
  if (GetParam().only_four_warps) GTEST_SKIP() << "[SKIP] as for another machine";
  const uint64_t first = 1000 * TestSeed(6022);
  const auto rounds = static_cast<size_t>(TestRounds(16));
  std::vector<Case> cases;
  size_t divided = 0, by_threads = 0;
  for (uint64_t seed = first; cases.size() < rounds && !HasFailure(); ++seed) {
    ASSERT_LT(seed, first + 20 * rounds) << "most spaces have no such point";
    const ir::Function program = LongSums(seed);
    auto space =
        space::Space::Create(program, WithFewUnits(Target(), 2 + static_cast<int64_t>(seed % 7)));
    ASSERT_TRUE(space.ok()) << space.status();
    support::Rng rng(seed);
    space::Point point;
    const auto tiles = [&] {
      return (*space)->sketches()[static_cast<size_t>(point.sketch)]->name() == "thread_tiles";
    };
    bool shares = false;
    for (int tries = 0; tries < 400 && !shares; ++tries) {
      shares = (*space)->Sample(&rng, &point) && tiles() &&
               SetShares(**space, "parts", &rng, &point, /*above_one=*/seed % 2 == 0);
    }
    if (!shares) continue;
    if (seed % 4 < 2) SetShares(**space, "tiles_of_group", &rng, &point);
    if (seed % 8 < 6) SetIfFeasible(**space, "parts_by_threads", 1, &point);
    auto scheduled = (*space)->Apply(point);
    ASSERT_TRUE(scheduled.ok()) << "seed " << seed << ": " << scheduled.status() << "\n"
                                << ir::Print(program);
    const std::string steps = schedule::ToText(scheduled->steps());
    EXPECT_NE(steps.find("rfactor"), std::string::npos) << steps;
    auto made = Scheduled(program, *scheduled, seed);
    if (!made.has_value()) continue;
    divided += steps.find("divide") != std::string::npos;
    by_threads += steps.find("transform_layout") != std::string::npos;
    cases.push_back(*std::move(made));
  }
  RunAll(cases);
  std::cout << "counts: parts_of_a_wave=" << divided << " parts_by_threads=" << by_threads << "\n";
  // The test says something only while there are all kinds.
  EXPECT_GT(divided, 0u);
  EXPECT_GT(by_threads, 0u);
  EXPECT_LT(divided, cases.size());
  if (GetParam().language != Language::kCuda) return;
  if (cuda::NvrtcName() == "nvrtc-none") GTEST_SKIP() << "[SKIP] no NVRTC";
  for (size_t i = 0; i < cases.size(); i += 4) {
    const auto cubin = cuda::CompileText(cases[i].text.text, "sm_90");
    ASSERT_TRUE(cubin.ok()) << cubin.status() << "\n" << cases[i].text.text;
    for (const codegen::KernelResources& kernel : cubin->kernels)
      EXPECT_EQ(kernel.spill_bytes, 0) << cases[i].what;
  }
}

// What the search offers lowers: a refused point costs a trial and teaches nothing.
TEST_P(RandomSimtTest, PointsOfTheSearchLower) {
  if (GetParam().only_four_warps) GTEST_SKIP() << "[SKIP] as for another machine";
  const uint64_t first = 1000 * TestSeed(2502);
  // One whose barriers were simulated without end, one whose threads own no boxes.
  std::vector<uint64_t> seeds = {2502018, 2502194};
  for (int i = 0; i < TestRounds(16); ++i) seeds.push_back(first + static_cast<uint64_t>(i));
  std::map<std::string, int> lowered;
  for (const uint64_t seed : seeds) {
    if (HasFailure()) break;
    const ir::Function program = seed % 2 == 0 ? LongSums(seed) : SpaceProgram(seed / 2);
    transform::PassContext context;
    context.target =
        seed % 3 == 0 ? Target() : WithFewUnits(Target(), 2 + static_cast<int64_t>(seed % 7));
    auto space = space::Space::Create(program, context.target);
    ASSERT_TRUE(space.ok()) << space.status();
    support::Rng rng(seed);
    for (int i = 0; i < 8; ++i) {
      space::Point point;
      for (int tries = 0; tries < 40; ++tries) {  // most points of small programs are no tiles
        if (!(*space)->Sample(&rng, &point)) break;
        if ((*space)->sketches()[static_cast<size_t>(point.sketch)]->name() == "thread_tiles")
          break;
      }
      if (!(*space)->Contains(point)) continue;
      if (i % 2 != 0) SetShares(**space, "parts", &rng, &point, /*above_one=*/true);
      if (i % 4 == 3) SetShares(**space, "tiles_of_group", &rng, &point);
      const auto scheduled = (*space)->Apply(point);
      const std::string name = (*space)->sketches()[static_cast<size_t>(point.sketch)]->name();
      ASSERT_TRUE(scheduled.ok()) << "seed " << seed << ", " << name << ": " << scheduled.status();
      const auto made =
          transform::RunPipeline(scheduled->function(), transform::GpuPipeline(), context);
      EXPECT_TRUE(made.ok()) << "seed " << seed << ", " << name << ": "
                             << schedule::ToText(scheduled->steps()) << "\n"
                             << made.status() << "\n"
                             << ir::Print(program);
      lowered[name] += made.ok();
    }
  }
  for (const auto& [name, n] : lowered) std::cout << "counts: " << name << "=" << n << "\n";
}

constexpr char kHalves[] =
    R"(fn halves(X: f16[64] input, Y: f32[64] input, Z: f16[64] output) stage=flat {
  for b in 0..2 blockIdx.x {
    for t in 0..32 threadIdx.x {
      Z[b * 32 + t] = f16(f32(X[b * 32 + t]) * Y[b * 32 + t]);
    }
  }
}
)";

TEST_P(RandomSimtTest, BfloatsAreCast) {
  const bool can = GetParam().language == Language::kCuda || GetParam().language == Language::kHip;
  if (!can) GTEST_SKIP() << "[SKIP] no bf16 in these languages";
  std::string program = kHalves;
  for (size_t at = 0; (at = program.find("f16", at)) != std::string::npos; at += 4)
    program.insert(at, "b");
  auto f = ir::ParseFunction(program);
  ASSERT_TRUE(f.ok()) << f.status();
  auto text = TextOf(*f, "bfloats", /*sub_groups=*/false);
  ASSERT_TRUE(text.has_value());
  RunAll({{"bfloats", *f, *text}});
  if (GetParam().language == Language::kHip && hip::ClangName() != "clang-none") {
    const auto code = hip::CompileText(text->text, Target().cpu);
    EXPECT_TRUE(code.ok()) << code.status();
  }
  if (GetParam().language == Language::kCuda && cuda::NvrtcName() != "nvrtc-none") {
    const auto cubin = cuda::CompileText(text->text, "sm_90");
    EXPECT_TRUE(cubin.ok()) << cubin.status();
  }
}

TEST_P(RandomSimtTest, HalvesAreCast) {
  if (GetParam().language == Language::kOpenCl)
    GTEST_SKIP() << "[SKIP] no halves in g++'s OpenCL C";
  auto f = ir::ParseFunction(kHalves);
  ASSERT_TRUE(f.ok()) << f.status();
  auto text = TextOf(*f, "halves", /*sub_groups=*/false);
  ASSERT_TRUE(text.has_value());
  RunAll({{"halves", *f, *text}});
  if (GetParam().language != Language::kCuda) return;
  if (cuda::NvrtcName() == "nvrtc-none") GTEST_SKIP() << "[SKIP] no NVRTC";
  const auto cubin = cuda::CompileText(text->text, "sm_90");
  EXPECT_TRUE(cubin.ok()) << cubin.status();
}

constexpr char kHalfSums[] =
    R"(fn sums(X: f16[64] input, Y: f16[64] input, Z: f16[64] output) stage=flat {
  for b in 0..2 blockIdx.x {
    for t in 0..32 threadIdx.x {
      Z[b * 32 + t] = exp(X[b * 32 + t] * Y[b * 32 + t]) - max(X[b * 32 + t], Y[b * 32 + t]) / 3.0f16;
    }
  }
}
)";

// Arithmetic of 16-bit floats, each operation rounded.
TEST_P(RandomSimtTest, HalvesAreAddedUp) {
  if (GetParam().language == Language::kOpenCl)
    GTEST_SKIP() << "[SKIP] no halves in g++'s OpenCL C";
  auto f = ir::ParseFunction(kHalfSums);
  ASSERT_TRUE(f.ok()) << f.status();
  auto text = TextOf(*f, "sums", /*sub_groups=*/false);
  ASSERT_TRUE(text.has_value());
  RunAll({{"sums", *f, *text}});
  if (GetParam().language != Language::kCuda || cuda::NvrtcName() == "nvrtc-none") return;
  const auto cubin = cuda::CompileText(text->text, "sm_90");
  EXPECT_TRUE(cubin.ok()) << cubin.status();
}

// Programs that widen, compute and round become such arithmetic by the pipeline of machines that
// have it, with the same results.
TEST_P(RandomSimtTest, RoundedHalvesAreComputedInHalves) {
  if (GetParam().language == Language::kOpenCl)
    GTEST_SKIP() << "[SKIP] no halves in g++'s OpenCL C";
  auto f = ir::ParseFunction(
      R"(fn rounded(X: f16[64] input, Y: f16[64] input, Z: f16[64] output) stage=scheduled {
  for b in 0..2 blockIdx.x {
    for t in 0..32 threadIdx.x {
      Z[b * 32 + t] = f16(f32(f16(f32(f16(f32(X[b * 32 + t]) * f32(Y[b * 32 + t]))) + 0.5f32)) / max(f32(X[b * 32 + t]), 0.25f32) - f32(Y[b * 32 + t]));
    }
  }
}
)");
  ASSERT_TRUE(f.ok()) << f.status();
  transform::PassContext context;
  context.target = Target();
  auto lowered = transform::RunPipeline(*f, transform::GpuPipeline(), context);
  ASSERT_TRUE(lowered.ok()) << lowered.status();
  auto text = TextOf(*lowered, "rounded", /*sub_groups=*/false);
  ASSERT_TRUE(text.has_value());
  const bool in_halves = text->text.find("(half)0.5f") != std::string::npos;
  EXPECT_EQ(in_halves, context.target.machine.computes_f16) << text->text;
  RunAll({{"rounded", *f, *text}});
}

// What g++ takes for CUDA C is what NVRTC takes: the texts of flat programs (types, casts,
// functions) and of points of the spaces.
// The text of a random flat program, or of a point of a space; nullopt where there is none.
std::optional<std::string> RandomText(
    uint64_t seed, const target::Target& target,
    absl::StatusOr<std::string> (*emit)(const std::vector<ir::Function>&, bool sub_groups)) {
  ir::Function f = RandomFlat(seed);
  if (seed % 2 == 0) {
    auto space = space::Space::Create(SpaceProgram(seed / 2), target);
    EXPECT_TRUE(space.ok()) << space.status();
    support::Rng rng(seed);
    space::Point point;
    if (!space.ok() || !(*space)->Sample(&rng, &point)) return std::nullopt;
    transform::PassContext context;
    context.target = target;
    f = *transform::RunPipeline((*space)->Apply(point)->function(), transform::GpuPipeline(),
                                context);
  }
  auto plan = codegen::SplitHostDevice(f);
  if (!plan.ok()) return std::nullopt;
  std::vector<ir::Function> kernels;
  for (const codegen::Launch& l : plan->launches) kernels.push_back(l.kernel);
  auto text = emit(kernels, true);
  if (support::Slug(text.status()).ends_with(".unsupported")) return std::nullopt;
  EXPECT_TRUE(text.ok()) << text.status();
  return text.ok() ? std::optional(*text) : std::nullopt;
}

TEST(RandomCudaTest, NvrtcCompilesTheTexts) {
  if (cuda::NvrtcName() == "nvrtc-none") GTEST_SKIP() << "[SKIP] no NVRTC";
  const uint64_t first = 1000 * TestSeed(577);
  const int64_t rounds = TestRounds(24);
  const target::Target target = *target::ParseTarget("cuda,arch=sm_90a");
  int64_t ran = 0;
  for (uint64_t seed = first; seed < first + static_cast<uint64_t>(rounds); ++seed) {
    const auto text = RandomText(seed, target, cuda::EmitCuda);
    if (!text.has_value()) continue;
    const auto cubin = cuda::CompileText(*text, target.cpu);
    ASSERT_TRUE(cubin.ok()) << "seed " << seed << ": " << cubin.status() << "\n" << *text;
    ++ran;
  }
  std::cout << "counts: compiled=" << ran << "\n";
  EXPECT_GE(ran, rounds / 2);
}

// The same of Metal and what clang can check of it: types and address spaces.
TEST(RandomMetalTest, ClangChecksTheTypes) {
  const uint64_t first = 1000 * TestSeed(613);
  const int64_t rounds = TestRounds(24);
  const target::Target target = *target::ParseTarget("metal");
  int64_t ran = 0;
  for (uint64_t seed = first; seed < first + static_cast<uint64_t>(rounds); ++seed) {
    const auto text = RandomText(seed, target, metal::EmitMetal);
    if (!text.has_value()) continue;
    const absl::Status types = CheckMetalTypes(*text);
    if (support::Slug(types) == "test.metal_types.no_clang") GTEST_SKIP() << "[SKIP] no clang";
    ASSERT_TRUE(types.ok()) << "seed " << seed << ": " << types << "\n" << *text;
    ++ran;
  }
  std::cout << "counts: checked=" << ran << "\n";
  EXPECT_GE(ran, rounds / 2);
}

// The same of HIP and clang, for each size of warps. Functions of ROCm's device libraries need
// those.
TEST(RandomHipTest, ClangCompilesTheTexts) {
  if (hip::ClangName() == "clang-none") GTEST_SKIP() << "[SKIP] no clang for amdgcn";
  const uint64_t first = 1000 * TestSeed(811);
  const int64_t rounds = TestRounds(12);
  const target::Target wide = *target::ParseTarget("hip,arch=gfx90a");
  const target::Target narrow = *target::ParseTarget("hip,arch=gfx1100");
  int64_t ran = 0, without = 0;
  for (uint64_t seed = first; seed < first + static_cast<uint64_t>(rounds); ++seed) {
    const bool is_wide = seed % 4 < 2;
    const target::Target& target = is_wide ? wide : narrow;
    const auto text =
        RandomText(seed, target, RowOf(is_wide ? "hip,arch=gfx90a" : "hip,arch=gfx1100").emit);
    if (!text.has_value()) continue;
    const auto code = hip::CompileText(*text, target.cpu);
    if (support::Slug(code.status()) == "codegen.device_library.missing") {
      ++without;
      continue;
    }
    ASSERT_TRUE(code.ok()) << "seed " << seed << ": " << code.status() << "\n" << *text;
    ++ran;
  }
  std::cout << "counts: compiled=" << ran << " without_libraries=" << without << "\n";
  EXPECT_GE(ran, rounds / 3);
}

INSTANTIATE_TEST_SUITE_P(
    Languages, RandomSimtTest, testing::ValuesIn(kLanguages), [](const auto& row) {
      std::string name = row.param.target;
      std::replace_if(name.begin(), name.end(), [](char c) { return c == ',' || c == '='; }, '_');
      return name;
    });

}  // namespace
}  // namespace tilewright::tests
