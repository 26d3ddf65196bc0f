// The estimate and the features of programs on devices of groups and threads: hand-computed values.
#include "compiler/estimate/group_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "compiler/ir/ir_text.h"
#include "compiler/schedule/schedule.h"
#include "compiler/space/space.h"
#include "compiler/transform/passes.h"
#include "cost_model/features.h"
#include "cost_model/model.h"
#include "cost_model/reported_registers.h"
#include "cost_model/shipped_model.h"
#include "deploy/support/rng.h"
#include "deploy/support/status.h"
#include "tests/support/te_programs.h"

namespace tilewright::cost_model {
namespace {

using estimate::AccessSummary;
using estimate::AnalyzeLaunch;
using estimate::AnalyzeStep;
using estimate::EstimateGroups;
using estimate::EstimateTime;
using estimate::GroupEstimate;
using estimate::LaunchShape;
using estimate::Overlapped;
using estimate::ProgramSummary;
using estimate::StatementSummary;
using estimate::StepAccess;
using estimate::Summarize;

// Eight units at 1 GHz that begin four multiply-adds of a warp in a cycle, and one access.
const target::Target& Gpu() {
  static const target::Target* const gpu = [] {
    auto* target = new target::Target(*target::ParseTarget("opencl"));
    target::Machine& m = target->machine;
    m.clock_ghz = 1;
    m.fma_per_cycle = 4, m.fma_latency = 4, m.loads_per_cycle = 1;
    m.launch = {.group_threads = 1024,
                .shared_bytes = 48 << 10,
                .registers = 255,
                .usual_threads = 256,
                .warp = 32,
                .unit_threads = 2048,
                .unit_shared_bytes = 96 << 10,
                .unit_registers = 64 << 10,
                .units = 8,
                .busy_threads = 8 * 2048,
                .thread_bytes = 4,
                .transaction_bytes = 128,
                .launch_ns = 5000,
                .group_ns = 10,
                .barrier_cycles = 20};
    return target;
  }();
  return *gpu;
}

ProgramSummary Summary(const ir::Function& function, const std::string& steps) {
  auto scheduled = schedule::Replay(function, steps);
  TW_CHECK(scheduled.ok()) << support::StatusText(scheduled.status());
  transform::PassContext context;
  context.target = Gpu();
  auto loops = transform::LowerToLoops(*scheduled, context);
  TW_CHECK(loops.ok()) << support::StatusText(loops.status());
  return Summarize(*loops);
}

ProgramSummary Matmul(const std::string& steps, int64_t m = 64) {
  return Summary(tests::MatmulProgram(m, 64, 64), steps);
}

// Y[i,j] += A[i,k] * B[k,j]: a thread for each column, or for each row.
constexpr char kColumns[] = "bind %0 blockIdx.x; bind %1 threadIdx.x";
constexpr char kRows[] = "reorder %1 %0 %2; bind %1 blockIdx.x; bind %0 threadIdx.x";
// Rows of A through shared memory, 16 terms at a time.
constexpr char kShared[] =
    "cache_read %3 read=0 scope=shared; split %2 [?,16]; reorder %1 %7 %0 %8; bind %1 blockIdx.x; "
    "bind %0 threadIdx.x; compute_at %4 %7; bind %9 threadIdx.x";

const StatementSummary& Critical(const ProgramSummary& program) {
  return program.statements[program.critical];
}
const AccessSummary& AccessOf(const StatementSummary& s, std::string_view buffer) {
  for (const AccessSummary& access : s.accesses) {
    if (access.buffer->name == buffer) return access;
  }
  ADD_FAILURE() << "no access of " << buffer;
  return s.accesses[0];
}
StepAccess Step(const ProgramSummary& program, std::string_view buffer) {
  const StatementSummary& s = Critical(program);
  return AnalyzeStep(s, AccessOf(s, buffer), Gpu().machine.launch, 32);
}

TEST(GroupModel, AccessesCoalesceByTheStrideOfTheThreads) {
  const ProgramSummary columns = Matmul(kColumns), rows = Matmul(kRows);
  EXPECT_EQ(Step(columns, "B").transactions, 1);  // 32 floats next to each other: 128 bytes
  EXPECT_EQ(Step(columns, "B").coalesced, 1);
  EXPECT_EQ(Step(columns, "A").transactions, 1);  // one float for all
  EXPECT_EQ(Step(columns, "A").coalesced, 1);
  EXPECT_EQ(Step(rows, "A").transactions, 32);  // rows of 256 bytes
  EXPECT_DOUBLE_EQ(Step(rows, "A").coalesced, 1.0 / 32);
  EXPECT_EQ(Step(rows, "B").transactions, 1);
  // Each second float: twice the bytes.
  const ProgramSummary seconds =
      Matmul("split %1 [?,2]; reorder %0 %4 %2 %5; bind %0 blockIdx.x; bind %4 threadIdx.x");
  EXPECT_EQ(Step(seconds, "B").transactions, 2);
  EXPECT_DOUBLE_EQ(Step(seconds, "B").coalesced, 0.5);
  // As vectors, both floats are used.
  const ProgramSummary vectors = Matmul(
      "split %1 [?,2]; reorder %0 %4 %2 %5; bind %0 blockIdx.x; bind %4 threadIdx.x; vectorize %5");
  EXPECT_EQ(Step(vectors, "B").transactions, 2);
  EXPECT_DOUBLE_EQ(Step(vectors, "B").coalesced, 1);
}

target::LaunchLimits WithWideLoads(int64_t transaction_bytes) {
  target::LaunchLimits limits = Gpu().machine.launch;
  limits.load_bytes = 16;
  limits.transaction_bytes = transaction_bytes;
  return limits;
}

// A vector of eight floats is two accesses of four, with gaps between the threads in each.
TEST(GroupModel, LongVectorsAreSeveralAccesses) {
  const ProgramSummary program = Matmul(
      "split %1 [?,8]; reorder %0 %4 %2 %5; bind %0 blockIdx.x; bind %4 threadIdx.x; vectorize %5");
  const StatementSummary& s = Critical(program);
  const StepAccess step = AnalyzeStep(s, AccessOf(s, "B"), WithWideLoads(32), 32);
  EXPECT_EQ(step.accesses, 2);
  EXPECT_EQ(step.transactions, 2 * 8);  // of each of the 8 threads' halves
  EXPECT_EQ(step.coalesced, 0.5);
  // The banks: eight threads, of 16 bytes each, in one turn, if none of them met another.
  EXPECT_EQ(step.bank_cycles, 2 * 2);
  EXPECT_EQ(step.conflicts, 2);
}

// Rows of 33 floats begin anywhere in a transaction. A second warp has one thread.
TEST(GroupModel, AccessesThatBeginAnywhereTakeMoreTransactions) {
  const ProgramSummary program =
      Summary(tests::MatmulProgram(64, 33, 64), "bind %0 blockIdx.x; bind %1 threadIdx.x");
  const StatementSummary& s = Critical(program);
  const StepAccess step = AnalyzeStep(s, AccessOf(s, "B"), WithWideLoads(32), 32);
  EXPECT_EQ(step.transactions, (4 + 7.0 / 8 + 1) / 2);
  EXPECT_DOUBLE_EQ(step.coalesced, (4 + 1) / (4 + 7.0 / 8 + 1));
  EXPECT_EQ(AnalyzeStep(s, AccessOf(s, "A"), WithWideLoads(32), 32).transactions, 1);
}

// Threads in step read a column of A for each term, not a row for each thread.
TEST(GroupModel, ThreadsInStepShareWhatTheyTouch) {
  const StatementSummary step = InStep(Critical(Matmul(kRows)));
  ASSERT_EQ(step.loops.size(), 3u);
  EXPECT_EQ(step.loops[1].kind, ir::ForKind::kSerial);
  EXPECT_EQ(step.loops[2].kind, ir::ForKind::kThreadX);
  const AccessSummary& a = AccessOf(step, "A");
  EXPECT_EQ(a.strides, (std::vector<int64_t>{0, 1, 64}));
  EXPECT_EQ(a.unique, (std::vector<double>{64 * 64, 64 * 64, 64, 1}));
  EXPECT_EQ(AccessOf(step, "B").unique, (std::vector<double>{64 * 64, 64, 1, 1}));
}

// A sum takes registers that cost no group; a large body keeps only some of what it loads.
TEST(GroupModel, CountsTheRegistersOfAThread) {
  EXPECT_EQ(AnalyzeLaunch(Matmul(kColumns), 0, Gpu()).registers, 32);  // 64 K / 2048 threads
  target::Target places = Gpu();
  places.machine.launch.unit_groups = 16;
  EXPECT_EQ(AnalyzeLaunch(Matmul(kColumns), 0, places).registers, 2 * (1 + 3 + 16));
  const ProgramSummary large =
      Matmul("split %2 [?,32]; bind %0 blockIdx.x; bind %1 threadIdx.x; unroll %5");
  EXPECT_EQ(AnalyzeLaunch(large, 0, Gpu()).registers, 1 + 16 + 16);
}

// 8 rows of 1024 terms, by 256 threads each; the last 256 sums by every thread or, where the
// machine has them, by the threads of a sub-group in turn.
TEST(GroupModel, SubGroupsShareOutASum) {
  const ProgramSummary program = Summary(
      tests::MatmulProgram(8, 1, 1024),
      "split %2 [?,256]; reorder %0 %1 %5 %4; rfactor %3 %5; set_scope %6 shared; cache_write %3; "
      "bind %11 blockIdx.x; compute_at %3 %11; compute_at %6 %11; bind %16 threadIdx.x; "
      "annotate %15 sub_group=1");
  target::Target shared = Gpu();
  shared.machine.launch.sub_groups = true;
  EXPECT_LT(EstimateGroups(program, shared).time.total_ns,
            EstimateGroups(program, Gpu()).time.total_ns);
}

TEST(GroupModel, ColumnsOfSharedTilesMeetBanksUnlessRowsArePadded) {
  // Rows of 16 words: 32 of them are in two of the 32 banks.
  const StepAccess plain = Step(Matmul(kShared), "A_shared");
  EXPECT_EQ(plain.bank_cycles, 16);
  EXPECT_EQ(plain.conflicts, 16);
  const ProgramSummary padded =
      Matmul(std::string(kShared) + "; storage_align %4 factor=32 offset=1");
  EXPECT_EQ(Step(padded, "A_shared").bank_cycles, 1);
  EXPECT_EQ(Step(padded, "A_shared").conflicts, 1);
  EXPECT_EQ(padded.launches[0].shared_bytes, 64 * 33 * 4);
  EXPECT_LT(EstimateGroups(padded, Gpu()).time.total_ns,
            EstimateGroups(Matmul(kShared), Gpu()).time.total_ns);
}

TEST(GroupModel, DescribesALaunch) {
  const ProgramSummary program = Matmul(kShared);
  EXPECT_EQ(program.global_alloc_bytes, 0) << "shared memory is no global memory";
  const LaunchShape shape = AnalyzeLaunch(program, 0, Gpu());
  EXPECT_EQ(shape.groups, 64);
  EXPECT_EQ(shape.threads, 64);
  EXPECT_EQ(shape.shared_bytes, 64 * 16 * 4);
  EXPECT_EQ(shape.barriers, 2 * 4);  // before and behind each of four fetches
  // Threads allow 32 groups, 96 KiB of shared memory 24, registers more; there are 8 for each unit.
  EXPECT_EQ(shape.groups_per_unit, 24);
  EXPECT_DOUBLE_EQ(shape.occupancy, 24.0 * 64 / 2048);
  EXPECT_EQ(shape.waves, 1);
  EXPECT_EQ(shape.tail, 1);
}

// Both operands come through shared memory in four steps, one of them by half of the threads in two
// rounds.
TEST(GroupModel, CopiesOfAStepMeetTogether) {
  const ProgramSummary program = Matmul(
      "cache_read %3 read=0 scope=shared; cache_read %3 read=1 scope=shared; split %2 [?,16]; "
      "reorder %1 %10 %0 %11; bind %1 blockIdx.x; bind %0 threadIdx.x; compute_at %4 %10; "
      "split %12 [?,32]; bind %15 threadIdx.x; compute_at %7 %10; bind %16 threadIdx.x");
  EXPECT_EQ(AnalyzeLaunch(program, 0, Gpu()).barriers, 2 * 4);
}

TEST(GroupModel, WhatIsFetchedAheadTakesItsMemoryTwice) {
  const ProgramSummary twice = Matmul(std::string(kShared) + "; double_buffer %4");
  EXPECT_EQ(twice.launches[0].shared_bytes, 2 * 64 * 16 * 4);
}

TEST(GroupModel, TheLastWaveIsNotFull) {
  // 68 groups on 8 units: nine at a time on a unit make one wave of 72.
  const LaunchShape shape = AnalyzeLaunch(Matmul(kColumns, 68), 0, Gpu());
  EXPECT_EQ(shape.waves, 1);
  EXPECT_DOUBLE_EQ(shape.tail, 72.0 / 68);
  // Where a unit takes 32 groups at most, 260 are two waves of 256.
  const LaunchShape two = AnalyzeLaunch(Matmul(kColumns, 260), 0, Gpu());
  EXPECT_EQ(two.waves, 2);
  EXPECT_DOUBLE_EQ(two.tail, 512.0 / 260);
}

TEST(GroupModel, CountsTheCyclesOfAUnit) {
  // A warp's step: three accesses of one transaction and a multiply-add (a quarter of a cycle).
  // Eight groups of two warps hide its latency. 64 steps, two cycles of control each, and two for
  // the thread. The start of the sum: one access, half an operation.
  const double step = 3 + 0.3 * 0.25, start = 1 + 0.3 * 0.125;
  const double cycles = 2 * (64 * step + 2 * 64 + 2) + 2 * (start + 2);
  const GroupEstimate estimate = EstimateGroups(Matmul(kColumns), Gpu());
  EXPECT_NEAR(estimate.time.compute_ns, 8 * cycles, 1e-6);
  EXPECT_EQ(estimate.launch_ns, 5000 + 8 * 10);
  EXPECT_EQ(estimate.barrier_ns, 0);
  EXPECT_EQ(EstimateTime(Matmul(kColumns), Gpu()).total_ns, estimate.time.total_ns);
  // Four fetches, two barriers each, of two warps.
  EXPECT_EQ(EstimateGroups(Matmul(kShared), Gpu()).barrier_ns, 8.0 * 4 * 2 * 2 * 20);
}

TEST(GroupModel, PrefersWhatCoalesces) {
  EXPECT_LT(2 * EstimateGroups(Matmul(kColumns), Gpu()).time.total_ns,
            EstimateGroups(Matmul(kRows), Gpu()).time.total_ns);
}

TEST(GroupModel, TransactionsThatNobodyNeedsCostTime) {
  const auto over_parts = [](const char* steps) {
    const GroupEstimate e = EstimateGroups(Matmul(steps), Gpu());
    return (e.time.total_ns - e.launch_ns) /
           (Overlapped(e.time, Gpu().machine.traffic_share) + e.barrier_ns);
  };
  EXPECT_DOUBLE_EQ(over_parts(kColumns), 1);
  EXPECT_GT(over_parts(kRows), 1.5);
}

// Threads that run alone gain by vectors, and put their sums away at barriers.
TEST(GroupModel, ThreadsOneAfterTheOther) {
  const target::Target processor = *target::ParseTarget("opencl");
  const auto ns = [&](const std::string& steps) {
    return EstimateGroups(Matmul(steps), processor).time.total_ns;
  };
  EXPECT_LT(ns("split %1 [?,16]; reorder %0 %4 %2 %5; bind %0 blockIdx.x; bind %4 threadIdx.x; "
               "vectorize %5"),
            ns(kColumns));
  const LaunchShape shape = AnalyzeLaunch(Matmul(kColumns), 0, processor);
  EXPECT_EQ(shape.groups_per_unit, 1);
  EXPECT_EQ(shape.occupancy, 1);
  EXPECT_EQ(shape.waves, 32);  // of 64 groups on two units
}

TEST(GroupFeatures, HaveASchemaOfTheirOwn) {
  const std::vector<std::string>& names = FeatureNames(FeatureSet::kGroups);
  EXPECT_EQ(std::set<std::string>(names.begin(), names.end()).size(), names.size());
  EXPECT_EQ(names.back(), "prior.score");
  EXPECT_EQ(FeatureNames().back(), "prior.score");
  EXPECT_NE(names.size(), FeatureNames().size());
  EXPECT_NE(SchemaHash(FeatureSet::kGroups), SchemaHash());
}

FeatureVector Features(const std::string& steps) {
  auto scheduled = schedule::Replay(tests::MatmulProgram(64, 64, 64), steps);
  TW_CHECK(scheduled.ok()) << support::StatusText(scheduled.status());
  transform::PassContext context;
  context.target = Gpu();
  auto loops = transform::LowerToLoops(*scheduled, context);
  TW_CHECK(loops.ok()) << support::StatusText(loops.status());
  auto row = ComputeFeatures(*loops, 2.0 * 64 * 64 * 64, Gpu());
  TW_CHECK(row.ok()) << support::StatusText(row.status());
  return *row;
}

TEST(GroupFeatures, SayWhatTheLaunchIs) {
  const FeatureVector row = Features(kShared);
  const auto column = [&](std::string_view name) {
    return row[FeatureIndex(name, FeatureSet::kGroups)];
  };
  ASSERT_EQ(row.size(), FeatureNames(FeatureSet::kGroups).size());
  for (const float value : row) EXPECT_TRUE(std::isfinite(value));
  EXPECT_EQ(column("group.groups"), std::log2(65.0F));
  EXPECT_EQ(column("group.threads"), std::log2(65.0F));
  EXPECT_EQ(column("group.thread_work"), std::log2(65.0F));
  EXPECT_EQ(column("group.shared_bytes"), std::log2(4097.0F));
  EXPECT_EQ(column("group.barriers"), std::log2(9.0F));
  EXPECT_EQ(column("group.per_unit"), std::log2(25.0F));
  EXPECT_EQ(column("group.occupancy"), 0.75F);
  EXPECT_EQ(column("group.tail"), 1);
  EXPECT_EQ(column("group.launches"), 1);
  EXPECT_EQ(column("load1.shared") + column("load2.shared"), 1);
  EXPECT_EQ(std::max(column("load1.conflicts"), column("load2.conflicts")), std::log2(17.0F));
  EXPECT_NEAR(EstimatedNs(row), EstimateGroups(Matmul(kShared), Gpu()).time.total_ns,
              1e-3 * EstimatedNs(row));
}

float GroupColumn(const FeatureVector& row, std::string_view name) {
  return row[FeatureIndex(name, FeatureSet::kGroups)];
}

// 64 threads with 4 KB: a unit has 64 K registers, 96 KB and 2048 threads.
TEST(ReportedRegisters, SayHowFullAUnitIs) {
  FeatureVector row = Features(kShared);
  const FeatureVector before = row;
  SetRegisters(128, Gpu().machine.launch, &row);
  EXPECT_EQ(GroupColumn(row, "group.registers"), std::log2(129.0F));
  EXPECT_EQ(GroupColumn(row, "group.per_unit"), std::log2(9.0F)) << "8 groups, of 8 K registers";
  EXPECT_EQ(GroupColumn(row, "group.occupancy"), 0.25F);
  for (const double nonsense : {-1e18, 0.0, 1e18}) {
    FeatureVector other = before;
    SetRegisters(nonsense, Gpu().machine.launch, &other);
    EXPECT_GE(GroupColumn(other, "group.registers"), 1);
    EXPECT_LE(GroupColumn(other, "group.registers"), 17);
  }
  size_t changed = 0;
  for (size_t i = 0; i < row.size(); ++i) changed += row[i] != before[i];
  EXPECT_EQ(changed, 3U);
}

TEST(ReportedRegisters, CorrectTheEstimateOfOtherPrograms) {
  const target::LaunchLimits& limits = Gpu().machine.launch;
  const auto estimated = [&](double registers) {
    FeatureVector row = Features(kShared);
    SetRegisters(registers, limits, &row);
    return row;
  };
  const auto corrected = [&](const RegisterCalibration& calibration, double registers) {
    const FeatureVector row = calibration.Apply(estimated(registers), limits);
    return std::exp2(static_cast<double>(GroupColumn(row, "group.registers"))) - 1;
  };
  RegisterCalibration calibration;
  EXPECT_EQ(calibration.Apply(estimated(64), limits), estimated(64)) << "nothing is known";
  calibration.Add(estimated(31), 63);
  EXPECT_NEAR(corrected(calibration, 31), 44.3, 0.1) << "half of the way, by one report";
  for (int i = 0; i < 30; ++i) {
    calibration.Add(estimated(31), 63);
    calibration.Add(estimated(63), 95);
  }
  EXPECT_NEAR(corrected(calibration, 31), 63, 3);
  EXPECT_NEAR(corrected(calibration, 63), 95, 3);
  const FeatureVector row = calibration.Apply(estimated(63), limits);
  EXPECT_LT(GroupColumn(row, "group.occupancy"), GroupColumn(estimated(63), "group.occupancy"));
}

// Models of one schema refuse rows and stored models of the other.
TEST(GroupFeatures, ModelsOfProcessorsAreRefused) {
  auto model = MakeXgbModel(1, "", FeatureSet::kGroups);
  EXPECT_EQ(support::Slug(model->Load(ShippedModel())), "cost_model.load.schema");
  Dataset data;
  for (int i = 0; i < 20; ++i) data.rows.push_back({Features(kColumns), 0, 100.0 + i});
  ASSERT_TRUE(model->Fit(data).ok());
  EXPECT_TRUE(model->Predict({Features(kRows)}).ok());
  EXPECT_EQ(support::Slug(model->Predict({FeatureVector(FeatureNames().size())}).status()),
            "cost_model.columns");
  EXPECT_EQ(support::Slug(MakeXgbModel(1)->Load(*model->Save())), "cost_model.load.schema");
  const auto based = MakeXgbModel(1, std::string(ShippedModel()), FeatureSet::kGroups)->Fit(data);
  EXPECT_EQ(support::Slug(based), "cost_model.load.schema");
  EXPECT_EQ(support::Slug(MakePriorModel(FeatureSet::kGroups)->Load(SchemaHash())),
            "cost_model.load.schema");
}

// A unit that wants 2048 threads is not left to a few, unless the task has no more.
TEST(GroupSpace, OccupancyBoundsIt) {
  const auto thread_tiles = [](const space::Space& space) {
    for (size_t i = 0; i < space.sketches().size(); ++i) {
      if (space.sketches()[i]->name() == "thread_tiles") return static_cast<int>(i);
    }
    return -1;
  };
  // The first point with one knob at another value.
  const auto with = [&](const space::Space& space, int sketch, const std::string& name,
                        int64_t value) {
    const std::vector<space::Knob>& knobs = space.sketches()[static_cast<size_t>(sketch)]->knobs();
    space::Point point{sketch, std::vector<int>(knobs.size(), 0)};
    for (size_t k = 0; k < knobs.size(); ++k) {
      const auto at = std::find(knobs[k].menu.begin(), knobs[k].menu.end(), value);
      if (knobs[k].name == name && at != knobs[k].menu.end())
        point.choices[k] = static_cast<int>(at - knobs[k].menu.begin());
    }
    return point;
  };
  auto space = space::Space::Create(tests::MatmulProgram(64, 64, 64), Gpu());
  ASSERT_TRUE(space.ok()) << space.status();
  const int sketch = thread_tiles(**space);
  ASSERT_GE(sketch, 0);
  const space::Point one = with(**space, sketch, "threads_vj", 1);
  EXPECT_FALSE((*space)->Feasible(one)) << "64 warps of one thread: 64 of 2048";
  EXPECT_TRUE((*space)->Feasible(with(**space, sketch, "threads_vj", 16)));
  support::Rng rng(3);
  for (int i = 0; i < 50; ++i) {
    space::Point point;
    ASSERT_TRUE((*space)->Sample(&rng, &point));
    EXPECT_TRUE((*space)->Apply(point).ok());
  }
  // A task with two results has no more than two threads.
  auto small = space::Space::Create(tests::MatmulProgram(1, 2, 64), Gpu());
  ASSERT_TRUE(small.ok()) << small.status();
  const int its = thread_tiles(**small);
  ASSERT_GE(its, 0);
  EXPECT_TRUE((*small)->Feasible(with(**small, its, "threads_vj", 2)));
  // Threads one after the other are all the same to a processor.
  auto processor =
      space::Space::Create(tests::MatmulProgram(64, 64, 64), *target::ParseTarget("opencl"));
  ASSERT_TRUE(processor.ok()) << processor.status();
  EXPECT_TRUE((*processor)->Feasible(one));
}

// A product of square matrices, with sums f32.
ir::Function Square(const std::string& type, int64_t n) {
  const std::string e = std::to_string(n), shape = type + "[" + e + ", " + e + "]";
  return *ir::ParseFunction(
      "fn product(A: " + shape + " input, B: " + shape + " input, C: f32[" + e + ", " + e +
      "] output) stage=scheduled { for i in 0.." + e + " { for j in 0.." + e + " { for k in 0.." +
      e + " { block C(vi: spatial 0.." + e + " = i, vj: spatial 0.." + e + " = j, vk: reduce 0.." +
      e +
      " = k) { reads A[vi:1, vk:1], B[vk:1, vj:1]; writes C[vi:1, vj:1]; init { C[vi, vj] = "
      "0.0f32; } C[vi, vj] = C[vi, vj] + f32(A[vi, vk]) * f32(B[vk, vj]); } } } } }");
}

// The best of so many random points by the estimate, for each sketch, in ns.
std::map<std::string, double> BestOfSketches(const ir::Function& product,
                                             const transform::PassContext& context, int points) {
  auto space = space::Space::Create(product, context.target);
  EXPECT_TRUE(space.ok()) << space.status();
  support::Rng rng(7);
  std::map<std::string, double> best;
  for (int n = 0; n < points; ++n) {
    space::Point point;
    EXPECT_TRUE((*space)->Sample(&rng, &point));
    const auto scheduled = (*space)->Apply(point);
    EXPECT_TRUE(scheduled.ok()) << scheduled.status();
    const auto loops = transform::LowerToLoops(scheduled->function(), context);
    EXPECT_TRUE(loops.ok()) << loops.status();
    const double ns = EstimateGroups(Summarize(*loops), context.target).time.total_ns;
    const auto [at, fresh] =
        best.emplace((*space)->sketches()[static_cast<size_t>(point.sketch)]->name(), ns);
    at->second = std::min(at->second, ns);
  }
  return best;
}

// Products of rounded factors are faster than exact ones, and slower than those of 16-bit floats.
TEST(GroupModel, RoundedProductsAreBetweenFloatsAndHalves) {
  transform::PassContext context;
  context.target = *target::ParseTarget("cuda,arch=sm_80,tf32=on");
  auto best = BestOfSketches(Square("f32", 1024), context, 300);
  auto halves = BestOfSketches(Square("f16", 1024), context, 300);
  ASSERT_TRUE(best.contains("tensor_tiles") && best.contains("thread_tiles"));
  EXPECT_LT(best["tensor_tiles"], best["thread_tiles"]);
  EXPECT_GT(best["tensor_tiles"], halves["tensor_tiles"]);
  const target::Machine& machine = context.target.machine;
  EXPECT_GT(best["tensor_tiles"], 1024.0 * 1024 * 1024 / machine.fragments.rounded_products /
                                      static_cast<double>(machine.launch.units) /
                                      machine.clock_ghz);
}

// A product of 16-bit floats is faster on tensor cores than anything else is, and the whole device
// at its rate is the least that it takes.
TEST(GroupModel, TensorCoresAreTheFastestForProductsOfHalves) {
  transform::PassContext context;
  context.target = *target::ParseTarget("cuda,arch=sm_90");
  auto best = BestOfSketches(Square("f16", 1024), context, 300);
  const target::Machine machine = context.target.machine;
  const double least = 1024.0 * 1024 * 1024 / machine.fragments.half_products /
                       static_cast<double>(machine.launch.units) / machine.clock_ghz;
  ASSERT_TRUE(best.contains("tensor_tiles") && best.contains("thread_tiles"));
  EXPECT_GT(best["tensor_tiles"], least);
  EXPECT_LT(best["tensor_tiles"], 12 * least);
  EXPECT_LT(3 * best["tensor_tiles"], best["thread_tiles"]);
  // Those of four warps are faster still.
  context.target = *target::ParseTarget("cuda,arch=sm_90a");
  best = BestOfSketches(Square("f16", 4096), context, 400);
  EXPECT_LT(best["tensor_tiles_64x256"], best["tensor_tiles"]);
  EXPECT_GT(best["tensor_tiles_64x256"], 64 * least * machine.fragments.half_products /
                                             context.target.machine.fragments.shared_half_products);
}

}  // namespace
}  // namespace tilewright::cost_model
