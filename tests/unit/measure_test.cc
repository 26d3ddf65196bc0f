// Parts of a measurement that need no process: statistics, validity, plausibility, classes of
// deaths, faults on purpose.
#include "device_agent/measure.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "deploy/runtime/input_gen.h"
#include "deploy/support/strings.h"
#include "device_agent/input_cache.h"
#include "device_agent/measure_child.h"
#include "device_agent/measure_names.h"
#include "device_agent/measured_result.h"
#include "device_agent/quiet_reference.h"
#include "device_agent/referee.h"
#include "device_agent/sample_stats.h"
#include "device_agent/test_faults.h"

namespace tilewright::device_agent {
namespace {

TEST(SampleStats, MedianAndDeviation) {
  EXPECT_EQ(Median({}), 0);
  EXPECT_EQ(Median({3, 1, 2}), 2);
  EXPECT_EQ(Median({4, 1, 2, 3}), 2.5);
  const SampleStats calm = ComputeStats({100, 101, 99, 100, 102, 98, 100});
  EXPECT_EQ(calm.median, 100);
  EXPECT_EQ(calm.mad, 0.5) << "102 is more than 3 % from the first quartile";
  EXPECT_GE(calm.kept, 6);
  EXPECT_EQ(ComputeStats({5}).ci_rel, 1);
  EXPECT_EQ(ComputeStats({5}).median, 5);
  EXPECT_EQ(ComputeStats({5, 5, 5}).ci_rel, 0);
  EXPECT_EQ(ComputeStats({}).median, 0);
}

TEST(SampleStats, ANeighbourOnTheCoreChangesNothing) {
  // Two modes, as with a busy sibling thread: the fast one counts, also when it is the rarer one.
  std::vector<double> samples;
  for (int i = 0; i < 30; ++i) samples.push_back(i % 3 == 0 ? 650 + i % 2 : 1560 + i);
  const SampleStats stats = ComputeStats(samples);
  EXPECT_NEAR(stats.median, 650.5, 0.6);
  EXPECT_EQ(stats.kept, 10);
  EXPECT_LT(stats.ci_rel, 0.01);
  // A single slow one in a calm row.
  EXPECT_NEAR(ComputeStats({100, 101, 99, 100, 102, 98, 1000}).median, 100, 0.6);
}

TEST(SampleStats, TheIntervalShrinksWithTheRootOfTheNumber) {
  std::vector<double> few;
  std::vector<double> many;
  for (int i = 0; i < 10; ++i) few.push_back(100 + i % 3);
  for (int i = 0; i < 1000; ++i) many.push_back(100 + i % 3);
  EXPECT_NEAR(ComputeStats(few).ci_rel / ComputeStats(many).ci_rel, 10, 0.5);
}

TEST(SampleStats, OnlyACloseAndUncertainCandidateIsLookedAtLonger) {
  const SampleStats rough{.median = 1020, .mad = 5, .ci_rel = 0.01, .kept = 5};
  EXPECT_TRUE(OrderIsOpen(rough, 1000));
  EXPECT_TRUE(OrderIsOpen(rough, 1060));
  EXPECT_FALSE(OrderIsOpen(rough, 900)) << "plainly slower";
  EXPECT_FALSE(OrderIsOpen(rough, 1200)) << "plainly faster";
  EXPECT_FALSE(OrderIsOpen(rough, 0)) << "nothing to compare with";
  EXPECT_FALSE(OrderIsOpen({.median = 1020, .mad = 1, .ci_rel = 0.001, .kept = 30}, 1000));
}

TEST(SampleStats, RunsOfASampleFollowTheClockThatMoves) {
  EXPECT_EQ(RunsPerSample(1000, 1100, 100'000, 1 << 20), 100);
  EXPECT_EQ(RunsPerSample(1000, 4000, 100'000, 1 << 20), 100) << "disturbed";
  EXPECT_EQ(RunsPerSample(300'000, 300'000, 100'000, 1 << 20), 1);
  EXPECT_EQ(RunsPerSample(0, 0, 100'000, 50), 50) << "nothing is known";
  // A run of 2 ms that took no processor time, by a counter of ticks: 100,000 runs take 200 s.
  EXPECT_EQ(RunsPerSample(0, 2'000'000, 100'000, 1 << 20), 1);
  EXPECT_EQ(RunsPerSample(0, 80'000, 100'000, 1 << 20), 10);
}

TEST(QuietReference, OneImpossiblyFastProbeIsNoReference) {
  QuietReference quiet;
  EXPECT_EQ(quiet.ns(), 0);
  for (int i = 0; i < 1000; ++i) quiet.Add(i % 200 == 7 ? 4300 : 7500 + i % 50);
  EXPECT_GE(quiet.ns(), 7500) << "0.5 % of the probes are glitches of the clock";
  EXPECT_LT(quiet.ns(), 7510);
}

TEST(QuietReference, ARareQuietStateCountsAndAGoneOneIsForgotten) {
  QuietReference quiet;
  for (int i = 0; i < 1000; ++i) quiet.Add(i % 10 == 0 ? 4300 : 7500);
  EXPECT_EQ(quiet.ns(), 4300) << "a neighbour nine tenths of the time";
  for (size_t i = 0; i < QuietReference::kWindow; ++i) quiet.Add(7500);
  EXPECT_EQ(quiet.ns(), 7500);
}

v1::InputSpec Inputs(std::vector<std::pair<int64_t, uint64_t>> counts_and_seeds) {
  v1::InputSpec inputs;
  for (const auto& [count, seed] : counts_and_seeds) {
    v1::TensorSpec* tensor = inputs.add_tensors();
    tensor->set_dtype("f32");
    tensor->add_shape(2);
    tensor->add_shape(count / 2);
    tensor->set_seed(seed);
    tensor->mutable_distribution()->mutable_uniform()->set_low(-1);
    tensor->mutable_distribution()->mutable_uniform()->set_high(1);
  }
  return inputs;
}

TEST(InputCache, GivesTheBytesThatAMeasurementWouldMake) {
  InputCache cache;
  cache.Prepare(Inputs({{64, 7}, {64, 8}}));
  const module::Distribution law{module::Distribution::Kind::kUniform, -1, 1};
  std::vector<float> made(64);
  for (const uint64_t seed : {7, 8}) {
    ASSERT_TRUE(runtime::GenerateInput(module::DType::kFloat32, 64, law, seed, made.data()).ok());
    const std::string_view bytes = cache.Find(module::DType::kFloat32, 64, law, seed);
    ASSERT_EQ(bytes.size(), 256U);
    EXPECT_EQ(memcmp(bytes.data(), made.data(), bytes.size()), 0);
  }
  EXPECT_TRUE(cache.Find(module::DType::kFloat32, 64, law, 9).empty());
  EXPECT_TRUE(cache.Find(module::DType::kInt32, 64, law, 7).empty());
  EXPECT_TRUE(cache.Find(module::DType::kFloat32, 32, law, 7).empty());
  EXPECT_TRUE(cache.Find(module::DType::kFloat32, 64, {law.kind, -1, 2}, 7).empty());
}

TEST(InputCache, KeepsToItsSizeAndForgetsEarlierTasksFirst) {
  InputCache cache(1000);
  const module::Distribution law{module::Distribution::Kind::kUniform, -1, 1};
  const auto has = [&](int64_t count, uint64_t seed) {
    return !cache.Find(module::DType::kFloat32, count, law, seed).empty();
  };
  cache.Prepare(Inputs({{100, 1}, {100, 2}}));
  EXPECT_TRUE(has(100, 1) && has(100, 2));
  cache.Prepare(Inputs({{100, 2}, {100, 3}}));
  EXPECT_TRUE(has(100, 2) && has(100, 3)) << "the one not asked for went";
  EXPECT_FALSE(has(100, 1));
  cache.Prepare(Inputs({{200, 4}, {100, 5}, {1000, 6}, {int64_t{1} << 62, 7}}));
  EXPECT_TRUE(has(200, 4)) << "tensors of one request do not push each other out";
  EXPECT_FALSE(has(100, 5) || has(1000, 6));
  v1::InputSpec nonsense = Inputs({{8, 1}});
  nonsense.mutable_tensors(0)->set_dtype("f99");
  cache.Prepare(nonsense);
}

v1::ModuleMeasured Good() {
  v1::ModuleMeasured measured;
  measured.set_outcome(v1::OK);
  for (int i = 0; i < 10; ++i) measured.add_samples(1000);
  measured.set_inner_loops(100);
  measured.set_baseline_before(50);
  measured.set_baseline_after(51);
  return measured;
}

TEST(MeasuredResult, ValidityFollowsThePlan) {
  v1::MeasurementPlan plan;
  EXPECT_TRUE(ResultFrom(Good(), plan).valid()) << "no limit, no check";
  plan.set_max_baseline_drift(0.03);
  EXPECT_TRUE(ResultFrom(Good(), plan).valid());
  v1::ModuleMeasured drifted = Good();
  drifted.set_baseline_after(55);
  v1::MeasurementResult result = ResultFrom(drifted, plan);
  EXPECT_FALSE(result.valid());
  ASSERT_EQ(result.invalid_reasons_size(), 1);
  EXPECT_EQ(result.invalid_reasons(0), "measure.baseline.drift");
  v1::ModuleMeasured noisy = Good();
  for (int i = 0; i < 3; ++i) noisy.set_samples(i, 9000);
  EXPECT_TRUE(ResultFrom(noisy, plan).valid()) << "the others agree";
  for (int i = 0; i < 10; ++i) noisy.set_samples(i, 100 << i);
  noisy.mutable_samples()->Truncate(4);
  result = ResultFrom(noisy, plan);
  EXPECT_TRUE(result.valid()) << "the fastest of few";
  noisy.mutable_samples()->Truncate(0);
  for (const double ns : {100.0, 300.0, 310.0, 600.0, 900.0}) noisy.add_samples(ns);
  result = ResultFrom(noisy, plan);
  EXPECT_FALSE(result.valid());
  EXPECT_EQ(result.invalid_reasons(0), "measure.samples.scattered");
}

TEST(MeasuredResult, FailuresOfTheCandidateAreValidFindings) {
  v1::ModuleMeasured crash;
  crash.set_outcome(v1::RUN_CRASH);
  crash.set_signal(SIGSEGV);
  crash.set_error_class("SIGNAL");
  crash.set_phase(v1::WORKER_PHASE_FIRST_RUN);
  const v1::MeasurementResult result = ResultFrom(crash, {});
  EXPECT_TRUE(result.valid());
  EXPECT_EQ(result.signal(), SIGSEGV);
  EXPECT_EQ(result.phase(), "first_run");
  EXPECT_EQ(result.error_class(), "SIGNAL");
  v1::ModuleMeasured lost;
  lost.set_outcome(v1::DEVICE_LOST);
  EXPECT_FALSE(ResultFrom(lost, {}).valid());
  EXPECT_EQ(ResultFrom(lost, {}).phase(), "");
}

TEST(Plausible, HonestReportsPass) {
  // 10 samples of 100 runs of 1000 ns: one millisecond.
  EXPECT_TRUE(CheckPlausible(Good(), 5'000'000, 3'000'000).ok());
  EXPECT_TRUE(CheckPlausible(Good(), 60'000'000'000, 50'000'000).ok()) << "a starved machine";
  v1::ModuleMeasured threads = Good();
  threads.set_clock("monotonic");
  for (int i = 0; i < 10; ++i) threads.set_samples(i, 100'000);
  EXPECT_TRUE(CheckPlausible(threads, 200'000'000, 10'000'000).ok()) << "waiting is no computing";
  v1::ModuleMeasured crash;
  crash.set_outcome(v1::RUN_CRASH);
  EXPECT_TRUE(CheckPlausible(crash, 1, 1).ok());
}

// 1e9 cycles need not take a second, or any time that the worker's clocks know.
TEST(Plausible, ClocksBoundNoCounter) {
  const support::MeasureUnit& cycles = *support::FindMeasureUnit("virtual_cycles");
  v1::ModuleMeasured measured = Good();
  measured.set_samples(0, 1e9);
  EXPECT_TRUE(CheckPlausible(measured, 5'000'000, 4'000'000, cycles).ok());
  EXPECT_TRUE(CheckPlausible(Good(), 600'000'000'000, 500'000'000'000, cycles).ok());
  measured.set_samples(0, 0);
  EXPECT_EQ(support::Slug(CheckPlausible(measured, 5'000'000, 4'000'000, cycles)),
            "measure.samples.forged");
}

TEST(MeasuredResult, OneSampleOfACounterIsExact) {
  v1::ModuleMeasured measured = Good();
  measured.mutable_samples()->Truncate(1);
  EXPECT_EQ(ResultFrom(measured, {}).ci_rel(), 1) << "one time leaves the interval unknown";
  measured.set_value_kind(v1::VALUE_KIND_VIRTUAL_CYCLES);
  const v1::MeasurementResult result = ResultFrom(measured, {});
  EXPECT_EQ(result.ci_rel(), 0);
  EXPECT_TRUE(result.valid());
  EXPECT_EQ(result.value_kind(), v1::VALUE_KIND_VIRTUAL_CYCLES);
}

TEST(Plausible, ForgedReportsAreSeen) {
  const auto forged = [](const v1::ModuleMeasured& measured, int64_t lifetime_ns, int64_t cpu_ns) {
    return support::Slug(CheckPlausible(measured, lifetime_ns, cpu_ns));
  };
  const std::string slug = "measure.samples.forged";
  v1::ModuleMeasured measured = Good();
  measured.set_samples(0, 1e9);  // more time than the process lived
  EXPECT_EQ(forged(measured, 5'000'000, 4'000'000), slug);
  EXPECT_EQ(forged(measured, 500'000'000'000, 4'000'000), slug) << "more than it computed";
  for (const double bad : {0.001, 0.0, -1.0, std::numeric_limits<double>::quiet_NaN(),
                           std::numeric_limits<double>::infinity()}) {
    measured.set_samples(0, bad);
    EXPECT_EQ(forged(measured, 5'000'000, 4'000'000), slug) << bad;
  }
  EXPECT_EQ(forged(Good(), 600'000'000'000, 500'000'000'000), slug) << "500 s for a millisecond";
  measured = Good();
  measured.clear_samples();
  EXPECT_EQ(forged(measured, 5'000'000, 4'000'000), slug);
  measured = Good();
  measured.set_inner_loops(0);
  EXPECT_EQ(forged(measured, 5'000'000, 4'000'000), slug);
}

// What foreign code can write in the child's place.
TEST(Plausible, AnswersThatNoMeasurementGivesAreSeen) {
  const auto slug = [](const v1::ModuleMeasured& measured) {
    return support::Slug(CheckPlausible(measured, 5'000'000, 4'000'000));
  };
  v1::ModuleMeasured measured;
  EXPECT_EQ(slug(measured), "measure.answer.forged") << "nothing at all";
  for (const int outcome : {int{v1::CANCELLED}, int{v1::BUILD_TIMEOUT}, 77, -1}) {
    measured.set_outcome(static_cast<v1::Outcome>(outcome));
    EXPECT_EQ(slug(measured), "measure.answer.forged") << outcome;
  }
  measured.set_outcome(v1::RUN_CRASH);
  EXPECT_EQ(slug(measured), "");
  measured.set_error_detail(std::string(1 << 20, 'x'));
  EXPECT_EQ(slug(measured), "measure.answer.forged") << "fills the agent's reports";
  measured = Good();
  measured.set_baseline_after(std::numeric_limits<double>::quiet_NaN());
  EXPECT_EQ(slug(measured), "measure.answer.forged") << "drift could not be told";
  measured = Good();
  measured.mutable_samples()->Resize(kMaxSamples + 1, 1.0);
  EXPECT_EQ(slug(measured), "measure.answer.forged");
}

TEST(MeasuredResult, TimesBelowWhatTheDeviceCanDoAreRefused) {
  v1::Work work;
  v1::DeviceReport device;
  (*device.mutable_attributes())["peak_gflops"].set_d(100);
  (*device.mutable_attributes())["peak_int8_gops"].set_d(400);
  const auto outcome = [&](double flops) {
    work.set_flops(flops);
    v1::ModuleMeasured measured = Good();  // 1000 ns
    RefuseImpossible(work, device, &measured);
    return measured.outcome();
  };
  EXPECT_EQ(outcome(0), v1::OK) << "not known";
  EXPECT_EQ(outcome(1e5), v1::OK) << "at the peak";
  EXPECT_EQ(outcome(16e5), v1::OK) << "Winograd on integers";
  EXPECT_EQ(outcome(8e6), v1::RUN_CRASH);
  (*device.mutable_attributes())["unit"].set_s("virtual_cycles");
  EXPECT_EQ(outcome(8e6), v1::OK) << "cycles are no nanoseconds";
  device.clear_attributes();
  EXPECT_EQ(outcome(8e6), v1::OK) << "a device without a peak";
}

TEST(Plan, DefaultsFillWhatIsMissingAndKeepWhatIsThere) {
  const v1::MeasurementPlan full = CompletePlan({});
  EXPECT_GT(full.min_repeats(), 0);
  EXPECT_GE(full.max_repeats(), full.min_repeats());
  EXPECT_GT(full.min_repeat_time().nanos(), 0);
  EXPECT_GT(full.budget_per_candidate().nanos(), 0);
  v1::MeasurementPlan given;
  given.set_min_repeats(50);
  given.mutable_warmup();
  EXPECT_EQ(CompletePlan(given).min_repeats(), 50);
  EXPECT_GE(CompletePlan(given).max_repeats(), 50);
  EXPECT_EQ(CompletePlan(given).warmup().nanos(), 0) << "no warm-up was asked for";
  given.set_min_repeats(INT32_MAX);
  EXPECT_EQ(CompletePlan(given).min_repeats(), kMaxSamples);
  EXPECT_EQ(CompletePlan(given).max_repeats(), kMaxSamples);
}

TEST(Death, EveryEndHasItsClass) {
  const auto of_signal = [](int signal) { return signal; };          // wait status of a signal
  const auto of_exit = [](int code) { return (code & 0xff) << 8; };  // and of an exit
  struct Row {
    int raw;
    bool timed_out;
    v1::Outcome outcome;
    std::string error_class;
  };
  const std::vector<Row> rows = {
      {of_signal(SIGKILL), true, v1::RUN_TIMEOUT, "WALL_LIMIT"},
      {of_signal(SIGKILL), false, v1::OUT_OF_MEMORY, "KILLED"},
      {of_signal(SIGSEGV), false, v1::RUN_CRASH, "SIGNAL"},
      {of_signal(SIGILL), false, v1::RUN_CRASH, "SIGNAL"},
      {of_signal(SIGSYS), false, v1::RUN_CRASH, "SANDBOX"},
      {of_signal(SIGXFSZ), false, v1::RUN_CRASH, "SANDBOX"},
      {of_signal(SIGXCPU), false, v1::RUN_TIMEOUT, "CPU_LIMIT"},
      {of_exit(0), false, v1::RUN_CRASH, "EXITED"},
      {of_exit(3), false, v1::RUN_CRASH, "EXITED"},
      {of_exit(kExitOutOfMemory), false, v1::OUT_OF_MEMORY, "ALLOCATION"},
  };
  for (const Row& row : rows) {
    v1::ModuleMeasured measured;
    ClassifyDeath(row.raw, row.timed_out, &measured);
    EXPECT_EQ(measured.outcome(), row.outcome) << row.raw;
    EXPECT_EQ(measured.error_class(), row.error_class) << row.raw;
    EXPECT_FALSE(measured.error_detail().empty());
  }
}

TEST(Faults, TextIsCheckedAndTheSharesHold) {
  for (const char* bad : {"", "wrong", "wrong=2", "wrong=-1", "wrong=.6,crash=.6", "seed=x",
                          "sedd=1", "wrong=nan", "noisy=2", "noisy="}) {
    EXPECT_EQ(support::Slug(ParseTestFaults(bad).status()), "agent.test_faults.invalid") << bad;
  }
  const auto faults = ParseTestFaults("seed=9,wrong=.1,crash=.2,hang=.05");
  ASSERT_TRUE(faults.ok()) << faults.status();
  std::map<v1::InjectedFault, int> seen;
  constexpr int kDraws = 20'000;
  for (int i = 0; i < kDraws; ++i) {
    const std::string id = support::StrCat("job/task/", i, "/1");
    ++seen[faults->Choose(id)];
    EXPECT_EQ(faults->Choose(id), faults->Choose(id));
  }
  EXPECT_NEAR(seen[v1::INJECTED_FAULT_WRONG], 0.1 * kDraws, 200);
  EXPECT_NEAR(seen[v1::INJECTED_FAULT_CRASH], 0.2 * kDraws, 250);
  EXPECT_NEAR(seen[v1::INJECTED_FAULT_HANG], 0.05 * kDraws, 150);
  EXPECT_FALSE(TestFaults().any());
  EXPECT_EQ(TestFaults().Choose("x"), v1::INJECTED_FAULT_UNSPECIFIED);
}

TEST(Faults, OnlyTheOutcomeThatWasAskedForIsMarked) {
  v1::ModuleMeasured measured;
  measured.set_outcome(v1::RUN_CRASH);
  measured.set_error_class("SIGNAL");
  MarkTestFault(v1::INJECTED_FAULT_WRONG, &measured);
  EXPECT_EQ(measured.error_class(), "SIGNAL") << "the candidate's own crash";
  MarkTestFault(v1::INJECTED_FAULT_CRASH, &measured);
  EXPECT_EQ(measured.error_class(), "TEST_FAULT");
  EXPECT_NE(measured.error_detail().find("SIGNAL"), std::string::npos);
}

TEST(Faults, DisturbedMeasurementsAreFoundByTheOrdinaryCheck) {
  const auto faults = ParseTestFaults("seed=9,wrong=1,noisy=.4");  // a share of its own
  ASSERT_TRUE(faults.ok()) << faults.status();
  constexpr int kDraws = 20'000;
  int disturbed = 0;
  int again = 0;
  for (int i = 0; i < kDraws; ++i) {
    const bool first = faults->Disturbs(support::StrCat("job/task/", i, "/1"));
    disturbed += first ? 1 : 0;
    again += first && faults->Disturbs(support::StrCat("job/task/", i, "/2")) ? 1 : 0;
  }
  EXPECT_NEAR(disturbed, 0.4 * kDraws, 350);
  EXPECT_NEAR(again, 0.16 * kDraws, 300) << "attempts are drawn apart";
  EXPECT_FALSE(TestFaults().Disturbs("x"));

  v1::MeasurementPlan plan;
  plan.set_max_baseline_drift(0.3);
  v1::ModuleMeasured measured;
  measured.set_outcome(v1::OK);
  measured.add_samples(5);
  measured.set_baseline_before(100);
  measured.set_baseline_after(101);
  EXPECT_TRUE(ResultFrom(measured, plan).valid());
  Disturb(&measured);
  const v1::MeasurementResult result = ResultFrom(measured, plan);
  EXPECT_FALSE(result.valid());
  EXPECT_EQ(result.outcome(), v1::OK);
  measured.set_outcome(v1::WRONG_RESULT);
  measured.set_baseline_after(0);
  Disturb(&measured);
  EXPECT_EQ(measured.baseline_after(), 0) << "only good measurements are disturbed";
}

TEST(Names, PhasesAreLowerCaseWords) {
  EXPECT_EQ(PhaseText(v1::WORKER_PHASE_FIRST_RUN), "first_run");
  EXPECT_EQ(PhaseText(v1::WORKER_PHASE_LAST_CHECK), "last_check");
  EXPECT_EQ(PhaseText(v1::WORKER_PHASE_UNSPECIFIED), "");
  EXPECT_EQ(PhaseText(static_cast<v1::WorkerPhase>(99)), "");
}

}  // namespace
}  // namespace tilewright::device_agent
