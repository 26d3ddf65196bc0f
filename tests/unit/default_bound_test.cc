// The default schedule of devices of groups and threads, and the space around it: for every kind of
// program and at random points the kernels compute what the program does (by the interpreter, which
// reports races), fit the kind's limits, and one thread computes the tile that was asked for.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <iostream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "compiler/codegen/host_device.h"
#include "compiler/ir/ir_text.h"
#include "compiler/space/default_schedule.h"
#include "compiler/space/space.h"
#include "compiler/transform/passes.h"
#include "compiler/transform/split_prepare.h"
#include "deploy/support/rng.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"
#include "gtest/gtest.h"
#include "tests/support/equivalence.h"
#include "tests/support/random_ir.h"
#include "tests/support/run_plan.h"
#include "tests/support/te_programs.h"
#include "tests/support/test_seed.h"

namespace tilewright {
namespace {

const target::Target& OpenCl() {
  static const target::Target target = *target::ParseTarget("opencl");
  return target;
}

std::vector<ir::Function> Programs() {
  std::vector<ir::Function> programs = {tests::MatmulProgram(6, 80, 7),
                                        tests::DenseReluProgram(5, 70, 6),
                                        tests::ConvProgram({}),
                                        tests::StencilProgram(90),
                                        tests::SoftmaxProgram(4, 6),
                                        tests::MeanProgram(70, 5),
                                        tests::MaxPoolProgram(3, 12, 3, 2),
                                        tests::QuantizedDenseProgram(3, 5, 8),
                                        tests::PackedInt8DenseProgram(3, 2, 8, 5),
                                        tests::PackedInt8ConvProgram(2, 4, 4)};
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    programs.push_back(
        tests::RandomTe(seed, {.max_elements = 300, .max_work = 2000, .symbolic = false}).function);
  }
  return programs;
}

// The launches of a scheduled program, after they computed the same as the program.
absl::StatusOr<codegen::HostPlan> Checked(const ir::Function& program,
                                          const schedule::Schedule& scheduled) {
  transform::PassContext context;
  context.target = OpenCl();
  TW_ASSIGN(const ir::Function lowered,
            transform::RunPipeline(scheduled.function(), transform::GpuPipeline(), context));
  TW_ASSIGN(codegen::HostPlan plan, codegen::SplitHostDevice(lowered));
  TW_TRY(codegen::CheckLaunchLimits(plan, target::ParseTarget("opencl")->machine.launch));
  TW_TRY(tests::SameResults(program, lowered));
  return plan;
}

TEST(DefaultBound, EveryProgramIsLaunchesThatComputeTheSame) {
  for (const ir::Function& program : Programs()) {
    schedule::Schedule scheduled(program);
    space::ApplyDefaultSchedule(OpenCl(), {}, &scheduled);
    auto plan = Checked(program, scheduled);
    ASSERT_TRUE(plan.ok()) << plan.status() << "\n"
                           << schedule::ToText(scheduled.steps()) << "\n"
                           << ir::Print(program);
  }
}

TEST(DefaultBound, AReductionIsComputedInTheThreadOfItsResults) {
  const ir::Function program = tests::DenseReluProgram(16, 64, 32);
  schedule::Schedule scheduled(program);
  space::ApplyDefaultSchedule(OpenCl(), {{"Y", {.vectors = 4, .rows = 2, .threads = 32}}},
                              &scheduled);
  auto plan = Checked(program, scheduled);
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_EQ(plan->launches.size(), 1u);
  EXPECT_EQ(plan->buffers.size(), plan->num_params) << "the sums stay in the thread";
  EXPECT_TRUE(ir::IsInt(plan->launches[0].group[0], 32));
  EXPECT_TRUE(ir::IsInt(plan->launches[0].grid[0], 16 * 64 / (2 * 4) / 32));
}

// Where products are rounded before they are added, a long sum is one of parts.
TEST(DefaultBound, LongSumsAreInPartsWhereProductsAreRounded) {
  target::Target rounding = OpenCl();
  rounding.machine.launch.summed_terms = 64;
  const struct {
    ir::Function program;
    bool in_parts;
    std::string_view step;  // that cuts the sum
  } cases[] = {
      {tests::DenseReluProgram(4, 8, 65), true, "rfactor"},
      {tests::DenseReluProgram(4, 8, 67), false, "rfactor"},  // a prime
      {tests::DenseReluProgram(4, 8, 256), true, "[?,16]"},
      {tests::DenseReluProgram(4, 8, 64), false, "rfactor"},
      {tests::MatmulProgram(6, 80, 130), true, "[?,10]"},
      {tests::QuantizedDenseProgram(3, 5, 256), false, "rfactor"},
      {tests::MaxPoolProgram(2, 20, 9, 2), false, "rfactor"},  // 81 numbers, none is rounded
  };
  for (const auto& [program, in_parts, step] : cases) {
    schedule::Schedule scheduled(program);
    space::ApplyDefaultSchedule(rounding, {}, &scheduled);
    const std::string steps = schedule::ToText(scheduled.steps());
    EXPECT_EQ(steps.find(step) != std::string::npos, in_parts) << steps << "\n"
                                                               << ir::Print(program);
    auto plan = Checked(program, scheduled);
    ASSERT_TRUE(plan.ok()) << plan.status() << "\n" << steps;
    if (in_parts) {
      EXPECT_EQ(plan->buffers.size(), plan->num_params) << "sums stay in the thread: " << steps;
    }
  }
}

// So many terms, that no search for parts may take long.
TEST(DefaultBound, SumsOfMillionsAreCutInNoTime) {
  target::Target rounding = OpenCl();
  rounding.machine.launch.summed_terms = 1024;
  for (const int64_t terms : {int64_t{1} << 22, int64_t{3'000'000}}) {
    schedule::Schedule scheduled(tests::MatmulProgram(1, 1, terms));
    space::ApplyDefaultSchedule(rounding, {}, &scheduled);
    EXPECT_NE(schedule::ToText(scheduled.steps()).find("rfactor"), std::string::npos);
  }
}

// 65,536 products of numbers between 0 and 1 round with 2^-10 near the end, where they are one sum.
TEST(DefaultBound, SumsInPartsAreMoreExact) {
  constexpr int64_t kTerms = 65536;
  const ir::Function program = tests::MatmulProgram(1, 1, kTerms);
  std::vector<float> a(kTerms), b(kTerms);
  support::Rng rng(5);
  double exact = 0;
  for (size_t k = 0; k < a.size(); ++k) {
    a[k] = static_cast<float>(rng.UniformDouble());
    b[k] = static_cast<float>(rng.UniformDouble());
    exact += static_cast<double>(a[k]) * b[k];
  }
  const auto bytes = [](const std::vector<float>& values) {
    const auto* first = reinterpret_cast<const uint8_t*>(values.data());
    return ir::TensorData{{first, first + values.size() * sizeof(float)}};
  };
  const auto error = [&](int64_t summed_terms) {
    target::Target device = OpenCl();
    device.machine.launch.summed_terms = summed_terms;
    schedule::Schedule scheduled(program);
    space::ApplyDefaultSchedule(device, {}, &scheduled);
    transform::PassContext context;
    context.target = device;
    const auto lowered =
        transform::RunPipeline(scheduled.function(), transform::GpuPipeline(), context);
    EXPECT_TRUE(lowered.ok()) << lowered.status();
    std::vector<ir::TensorData> data = {bytes(a), bytes(b), {}};
    EXPECT_TRUE(ir::Interpret(*lowered, {}, {&data[0], &data[1], &data[2]}).ok());
    float sum = 0;
    std::memcpy(&sum, data[2].bytes.data(), sizeof(sum));
    return std::abs(sum - exact) / exact;
  };
  EXPECT_LT(error(1024) * 4, error(0));
  EXPECT_LT(error(1024), 1e-6);
}

// 64 threads are neither rows of 24 results nor planes of 192, of which three groups make one.
TEST(DefaultBound, AGroupNeedNotHoldWholeRows) {
  const ir::Function program = tests::ConvProgram({.height = 8, .width = 24});
  schedule::Schedule scheduled(program);
  space::ApplyDefaultSchedule(OpenCl(), {}, &scheduled);
  auto plan = Checked(program, scheduled);
  ASSERT_TRUE(plan.ok()) << plan.status();
  for (const codegen::Launch& launch : plan->launches) {
    EXPECT_TRUE(ir::IsInt(launch.group[0], 64)) << schedule::ToText(scheduled.steps());
  }
}

// Blocks of 4 channels: 64 threads are more than a row of 14 blocks, and less than two.
TEST(DefaultBound, GroupsOfBlockedImagesAreBound) {
  const auto program = ir::ParseFunction(R"(
fn relu(x: f32[8,14,14,4] input, y: f32[8,14,14,4] output) stage=scheduled {
  for c in 0..8 { for h in 0..14 { for w in 0..14 { for b in 0..4 {
    block y(vc: spatial 0..8 = c, vh: spatial 0..14 = h, vw: spatial 0..14 = w, vb: spatial 0..4 = b) {
      reads x[vc:1, vh:1, vw:1, vb:1];
      writes y[vc:1, vh:1, vw:1, vb:1];
      y[vc, vh, vw, vb] = max(0.0f32, x[vc, vh, vw, vb]);
    }
  } } } }
})");
  ASSERT_TRUE(program.ok()) << program.status();
  schedule::Schedule scheduled(*program);
  space::ApplyDefaultSchedule(OpenCl(), {}, &scheduled);
  auto plan = Checked(*program, scheduled);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_TRUE(ir::IsInt(plan->launches[0].group[0], 64)) << schedule::ToText(scheduled.steps());
}

bool HasDots(const schedule::Schedule& scheduled) {
  return schedule::ToText(scheduled.steps()).find("intrin=generic.dot4.") != std::string::npos;
}

TEST(DefaultBound, SumsOfBytesAreDotProducts) {
  for (const ir::Function& program :
       {tests::PackedInt8DenseProgram(3, 2, 8, 5), tests::PackedInt8ConvProgram(2, 4, 4)}) {
    schedule::Schedule scheduled(program);
    space::ApplyDefaultSchedule(OpenCl(), {}, &scheduled);
    EXPECT_TRUE(HasDots(scheduled)) << schedule::ToText(scheduled.steps());
    auto plan = Checked(program, scheduled);
    EXPECT_TRUE(plan.ok()) << plan.status();
  }
}

// C[i, j] = A[i, k] * B[j, k] of bytes, with weights in rows of terms, as fragments want them.
ir::Function RowsOfBytes(int64_t m, int64_t n, int64_t k, const std::string& data,
                         const std::string& role) {
  auto f = ir::ParseFunction(support::StrCat(
      "fn rows(A: ", data, "[", m, ", ", k, "] input, B: i8[", n, ", ", k, "] ", role, ", C: i32[",
      m, ", ", n, "] output) stage=scheduled { alloc S: i32[", m, ", ", n, "]; for i in 0..", m,
      " { for j in 0..", n, " { for k in 0..", k, " { block S(vi: spatial 0..", m,
      " = i, vj: spatial 0..", n, " = j, vk: reduce 0..", k,
      " = k) { reads A[vi:1, vk:1], B[vj:1, vk:1]; writes S[vi:1, vj:1]; init { S[vi, vj] = 0i32; "
      "} S[vi, vj] = S[vi, vj] + i32(A[vi, vk]) * i32(B[vj, vk]); } } } } for i in 0..",
      m, " { for j in 0..", n, " { block C(vi: spatial 0..", m, " = i, vj: spatial 0..", n,
      " = j) { reads S[vi:1, vj:1]; writes C[vi:1, vj:1]; C[vi, vj] = max(S[vi, vj], -9i32); } } } "
      "}"));
  EXPECT_TRUE(f.ok()) << f.status();
  return *f;
}

// Large layers of bytes were sums of single products on machines that multiply matrices of bytes.
TEST(DefaultBound, WeightsInRowsOfTermsArePackedForDotProducts) {
  for (const std::string data : {"u8", "i8"}) {
    for (const auto& [n, k] : {std::pair{8, 8}, std::pair{36, 20}}) {
      const ir::Function program = RowsOfBytes(5, n, k, data, "constant");
      schedule::Schedule scheduled(program);
      space::ApplyDefaultSchedule(OpenCl(), {}, &scheduled);
      const std::string steps = schedule::ToText(scheduled.steps());
      EXPECT_NE(steps.find(data == "u8" ? "generic.dot4.4" : "generic.dot4_s8.4"),
                std::string::npos)
          << steps;
      auto plan = Checked(program, scheduled);
      ASSERT_TRUE(plan.ok()) << plan.status() << steps;
      // The copy is made once, before the first run.
      auto split = transform::SplitPrepare(scheduled.function());
      ASSERT_TRUE(split.ok()) << split.status();
      ASSERT_TRUE(split->prepare.has_value()) << steps;
      auto main = Checked(split->main, schedule::Schedule(split->main));
      ASSERT_TRUE(main.ok()) << main.status() << steps;
      EXPECT_EQ(main->launches.size(), 1u) << steps;
    }
  }
  // Eight results of a thread, or two, of which no dot products are made.
  for (const int64_t vectors : {8, 2}) {
    const ir::Function program = RowsOfBytes(3, 16, 8, "u8", "constant");
    schedule::Schedule scheduled(program);
    space::ApplyDefaultSchedule(OpenCl(), {{"S", {.vectors = vectors}}}, &scheduled);
    const std::string steps = schedule::ToText(scheduled.steps());
    EXPECT_EQ(steps.find("generic.dot4.8") != std::string::npos, vectors == 8) << steps;
    EXPECT_EQ(steps.find("transform_layout") != std::string::npos, vectors == 8) << steps;
    EXPECT_TRUE(Checked(program, scheduled).ok()) << steps;
  }
}

TEST(DefaultBound, OtherSumsOfBytesStayAsTheyAre) {
  struct Other {
    const char* what;
    ir::Function program;
  };
  for (const Other& other :
       {Other{"weights of this run", RowsOfBytes(5, 8, 8, "u8", "input")},
        Other{"columns that are no words", RowsOfBytes(5, 6, 8, "u8", "constant")},
        Other{"terms that are no words", RowsOfBytes(5, 8, 6, "u8", "constant")},
        Other{"a zero point", tests::QuantizedDenseProgram(3, 8, 8)}}) {
    schedule::Schedule scheduled(other.program);
    space::ApplyDefaultSchedule(OpenCl(), {}, &scheduled);
    const std::string steps = schedule::ToText(scheduled.steps());
    EXPECT_EQ(steps.find("cache_read"), std::string::npos) << other.what << steps;
    EXPECT_EQ(steps.find("tensorize"), std::string::npos) << other.what << steps;
    auto plan = Checked(other.program, scheduled);
    EXPECT_TRUE(plan.ok()) << other.what << plan.status();
  }
}

// What the rules say of every program: points of each sketch, the default among them.
TEST(BoundSpace, EveryPointOfEverySketchComputesTheSame) {
  std::map<std::string, int> points;
  support::Rng rng(tests::TestSeed(17));
  std::vector<ir::Function> programs = Programs();
  programs.push_back(tests::MatmulProgram(12, 64, 16));
  programs.push_back(RowsOfBytes(4, 32, 12, "i8", "constant"));
  programs.push_back(tests::SoftmaxProgram(3, 96));
  programs.push_back(tests::MeanProgram(2, 64));
  programs.push_back(tests::ConvProgram(
      {.channels_in = 4, .height = 6, .width = 8, .channels_out = 16, .kernel = 3}));
  for (const ir::Function& program : programs) {
    auto space = space::Space::Create(program, OpenCl());
    ASSERT_TRUE(space.ok()) << space.status();
    for (size_t i = 0; i < (*space)->sketches().size(); ++i) {
      const space::Sketch& sketch = *(*space)->sketches()[i];
      for (int64_t n = 0; n < tests::TestRounds(16); ++n) {
        space::Point point{static_cast<int>(i), std::vector<int>(sketch.knobs().size(), 0)};
        for (size_t k = 0; n > 0 && k < point.choices.size(); ++k)
          point.choices[k] = static_cast<int>(rng.Uniform(sketch.knobs()[k].menu.size()));
        if (!(*space)->Repair(&rng, &point)) continue;
        auto scheduled = (*space)->Apply(point);
        ASSERT_TRUE(scheduled.ok()) << sketch.name() << ": " << scheduled.status();
        auto plan = Checked(program, *scheduled);
        ASSERT_TRUE(plan.ok()) << plan.status() << "\n"
                               << schedule::ToText(scheduled->steps()) << "\n"
                               << ir::Print(program);
        const bool shares =
            std::any_of(plan->launches.begin(), plan->launches.end(),
                        [](const codegen::Launch& launch) { return launch.shared_bytes > 0; });
        ++points[sketch.name() + (shares ? " through shared memory" : "")];
      }
    }
  }
  for (const auto& [name, n] : points) std::cout << n << " points of " << name << "\n";
  EXPECT_GT(points["bound_default"], 100);
  EXPECT_GT(points["tree_reduction through shared memory"], 10);
  EXPECT_GT(points["thread_tiles"], 10);
  EXPECT_GT(points["thread_tiles through shared memory"], 10);
}

// A block that reads a square result turned is no element-wise part of its tiles.
TEST(BoundSpace, ATurnedReaderHasItsOwnTiles) {
  const auto program = ir::ParseFunction(
      "fn turned(A: i32[8, 8] input, B: i32[8, 8] input, T: i32[8, 8] output) stage=scheduled {\n"
      "alloc P: i32[8, 8] scope=global;\n"
      "for i in 0..8 { for j in 0..8 { for k in 0..8 { block P(vi: spatial 0..8 = i, vj: spatial "
      "0..8 = j, vk: reduce 0..8 = k) { reads A[vi:1, vk:1], B[vk:1, vj:1]; writes P[vi:1, vj:1]; "
      "init { P[vi, vj] = 0i32; } P[vi, vj] = P[vi, vj] + A[vi, vk] * B[vk, vj]; } } } }\n"
      "for i in 0..8 { for j in 0..8 { block T(vi: spatial 0..8 = i, vj: spatial 0..8 = j) { reads "
      "P[vj:1, vi:1]; writes T[vi:1, vj:1]; T[vi, vj] = max(P[vj, vi], 0i32); } } }\n}\n");
  ASSERT_TRUE(program.ok()) << program.status();
  for (const char* target : {"opencl", "cuda", "cpu,arch=x86_64,cpu=znver4"}) {
    auto space = space::Space::Create(*program, *target::ParseTarget(target));
    ASSERT_TRUE(space.ok()) << space.status();
    support::Rng rng(3);
    for (int i = 0; i < 60; ++i) {
      space::Point point;
      ASSERT_TRUE((*space)->Sample(&rng, &point));
      const auto scheduled = (*space)->Apply(point);
      EXPECT_TRUE(scheduled.ok()) << target << ": " << scheduled.status();
    }
  }
}

// Behind one barrier; without sub-groups the tree has no such end.
TEST(BoundSpace, ATreeEndsInSubGroupsWhereTheMachineHasThem) {
  const ir::Function program = tests::SoftmaxProgram(3, 96);
  for (const bool has : {false, true}) {
    target::Target target = OpenCl();
    target.machine.launch.sub_groups = has;
    auto space = space::Space::Create(program, target);
    ASSERT_TRUE(space.ok()) << space.status();
    for (size_t i = 0; i < (*space)->sketches().size(); ++i) {
      const space::Sketch& sketch = *(*space)->sketches()[i];
      if (sketch.name() != "tree_reduction") continue;
      space::Point point{static_cast<int>(i), std::vector<int>(sketch.knobs().size(), 0)};
      for (size_t k = 0; k < point.choices.size(); ++k) {
        if (sketch.knobs()[k].name.starts_with("fan_in_"))
          point.choices[k] = static_cast<int>(sketch.knobs()[k].menu.size()) - 1;
      }
      auto scheduled = (*space)->Apply(point);
      ASSERT_TRUE(scheduled.ok()) << scheduled.status();
      const std::string steps = schedule::ToText(scheduled->steps());
      EXPECT_EQ(steps.find("sub_group=1") != std::string::npos, has) << steps;
      auto plan = Checked(program, *scheduled);
      ASSERT_TRUE(plan.ok()) << plan.status() << "\n" << steps;
    }
  }
}

// Points of thread_tiles with the knobs of these names at these choices.
std::vector<space::Point> PointsWith(const space::Space& space, support::Rng* rng,
                                     const std::map<std::string, int>& wanted) {
  std::vector<space::Point> points;
  for (int i = 0; i < 20'000 && points.size() < 6; ++i) {
    space::Point point;
    EXPECT_TRUE(space.Sample(rng, &point));
    const space::Sketch& sketch = *space.sketches()[static_cast<size_t>(point.sketch)];
    if (sketch.name() != "thread_tiles") continue;
    for (size_t k = 0; k < sketch.knobs().size(); ++k) {
      const auto found = wanted.find(sketch.knobs()[k].name);
      if (found != wanted.end()) point.choices[k] = found->second;
    }
    if (space.Feasible(point)) points.push_back(point);
  }
  EXPECT_EQ(points.size(), 6u);
  return points;
}

space::Point With(const space::Space& space, space::Point point, const std::string& knob,
                  int choice) {
  const std::vector<space::Knob>& knobs =
      space.sketches()[static_cast<size_t>(point.sketch)]->knobs();
  for (size_t k = 0; k < knobs.size(); ++k) {
    if (knobs[k].name == knob) point.choices[k] = choice;
  }
  return point;
}

int64_t SharedBytes(const space::Space& space, const ir::Function& program,
                    const space::Point& point) {
  auto scheduled = space.Apply(point);
  EXPECT_TRUE(scheduled.ok()) << scheduled.status();
  auto plan = Checked(program, *scheduled);
  EXPECT_TRUE(plan.ok()) << plan.status() << "\n" << schedule::ToText(scheduled->steps());
  return plan.ok() ? plan->launches.back().shared_bytes : 0;
}

// Every point of thread_tiles with the knob at its second choice has these words in its steps, and
// computes what the program does.
void ExpectSteps(const ir::Function& program, const std::map<std::string, int>& wanted,
                 const std::string& words) {
  auto space = space::Space::Create(program, OpenCl());
  ASSERT_TRUE(space.ok()) << space.status();
  support::Rng rng(tests::TestSeed(37));
  for (const space::Point& point : PointsWith(**space, &rng, wanted)) {
    auto scheduled = (*space)->Apply(point);
    ASSERT_TRUE(scheduled.ok()) << scheduled.status();
    const std::string steps = schedule::ToText(scheduled->steps());
    EXPECT_NE(steps.find(words), std::string::npos) << steps;
    auto plan = Checked(program, *scheduled);
    EXPECT_TRUE(plan.ok()) << plan.status() << "\n" << steps;
  }
}

TEST(BoundSpace, VectorsAGroupApartAreVirtualThreads) {
  const ir::Function product = tests::MatmulProgram(12, 64, 16);
  for (const int shared : {0, 1}) {
    ExpectSteps(product, {{"virtual_threads", 1}, {"fetch_A", shared}, {"fetch_B", shared}},
                "virtual_thread ");
  }
  ExpectSteps(tests::PackedInt8ConvProgram(2, 4, 16), {{"virtual_threads", 1}, {"dots", 1}},
              "virtual_thread ");
}

TEST(BoundSpace, RowsOfSharedTilesAreTurned) {
  ExpectSteps(tests::MatmulProgram(16, 64, 32),
              {{"fetch_A", 1}, {"fetch_B", 1}, {"row_padding", 3}}, "swizzle ");
}

TEST(BoundSpace, SumsOfBytesAreDotProducts) {
  const ir::Function conv = tests::PackedInt8ConvProgram(2, 4, 8);
  for (const int place : {0, 1, 2})
    ExpectSteps(conv, {{"dots", 1}, {"place_padded", place}}, "intrin=generic.dot4.");
  ExpectSteps(conv, {{"dots", 1}, {"place_padded", 1}, {"fetch_W", 1}}, "intrin=generic.dot4.");
  // Nothing else has such sums.
  auto space = space::Space::Create(tests::MatmulProgram(12, 64, 16), OpenCl());
  ASSERT_TRUE(space.ok()) << space.status();
  for (const auto& sketch : (*space)->sketches()) {
    for (const space::Knob& knob : sketch->knobs()) {
      if (knob.name == "dots") {
        EXPECT_EQ(knob.menu.size(), 1u);
      }
    }
  }
}

TEST(BoundSpace, ADoubleBufferHasTwoVersionsOfWhatIsFetched) {
  const ir::Function program = tests::MatmulProgram(12, 64, 16);
  auto space = space::Space::Create(program, OpenCl());
  ASSERT_TRUE(space.ok()) << space.status();
  support::Rng rng(tests::TestSeed(23));
  const std::map<std::string, int> wanted = {
      {"fetch_A", 1}, {"fetch_B", 1}, {"double_buffer", 1}, {"row_padding", 0}};
  for (const space::Point& point : PointsWith(**space, &rng, wanted)) {
    const int64_t once = SharedBytes(**space, program, With(**space, point, "double_buffer", 0));
    EXPECT_EQ(SharedBytes(**space, program, point), 2 * once);
  }
}

TEST(BoundSpace, PaddedRowsBeginAtOtherBanks) {
  const ir::Function program = tests::MatmulProgram(12, 64, 16);
  auto space = space::Space::Create(program, OpenCl());
  ASSERT_TRUE(space.ok()) << space.status();
  support::Rng rng(tests::TestSeed(29));
  for (const int padding : {1, 2}) {
    const std::map<std::string, int> wanted = {
        {"fetch_A", 1}, {"fetch_B", 1}, {"double_buffer", 0}, {"row_padding", padding}};
    for (const space::Point& point : PointsWith(**space, &rng, wanted)) {
      const space::Point plain = With(**space, point, "row_padding", 0);
      EXPECT_GT(SharedBytes(**space, program, point), SharedBytes(**space, program, plain));
    }
  }
}

}  // namespace
}  // namespace tilewright
