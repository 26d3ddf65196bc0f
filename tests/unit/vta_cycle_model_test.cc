// The cycle model: the same images as the functional simulator, and the cycles that its rules give.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <map>
#include <string>
#include <vector>

#include "deploy/support/rng.h"
#include "deploy/support/status.h"
#include "tests/support/test_seed.h"
#include "tests/support/vta_random_stream.h"
#include "tests/support/vta_streams.h"
#include "vta/sim/cycle_model.h"
#include "vta/sim/functional_sim.h"
#include "vta/sim/tokens.h"

namespace tilewright::vta {
namespace {

using tests::IsaOf;
using tests::Move;
using tests::Once;
using tests::VtaCase;

constexpr Instruction kFinish{.op = Opcode::kFinish};
const CycleTiming kTiming;

absl::StatusOr<CycleReport> Cycles(const Isa& isa, const VtaCase& c, const CycleTiming& timing,
                                   std::vector<uint8_t>* image = nullptr) {
  std::vector<uint8_t> dram = c.dram;
  auto report = RunCycles(isa, tests::Encoded(isa, c.stream), timing, 1, &dram);
  if (image != nullptr) *image = std::move(dram);
  return report;
}

int64_t TotalOf(const Isa& isa, const VtaCase& c, const CycleTiming& timing) {
  auto report = Cycles(isa, c, timing);
  EXPECT_TRUE(report.ok()) << report.status();
  return report.ok() ? report->cycles : -1;
}

// Spans by instruction.
std::map<size_t, StageSpan> SpansOf(const CycleReport& report) {
  std::map<size_t, StageSpan> spans;
  for (const StageSpan& span : report.trace) spans[span.instruction] = span;
  return spans;
}

// How long the first instruction of a short stream takes, when nothing else uses the DRAM.
int64_t LengthOf(const Isa& isa, const Instruction& i, const CycleTiming& timing) {
  VtaCase c;
  c.dram.resize(1 << 16);
  c.stream = {i, kFinish};
  const auto module = ModuleOf(i);
  if (module == Module::kLoad) c.stream[0].push_next = c.stream[1].pop_prev = 1;
  if (module == Module::kStore) c.stream[0].push_prev = c.stream[1].pop_next = 1;
  auto report = Cycles(isa, c, timing);
  EXPECT_TRUE(report.ok()) << report.status();
  const StageSpan span = SpansOf(*report)[0];
  return span.end - span.start;
}

class VtaCycleModel : public testing::TestWithParam<NamedConfig> {
 protected:
  const Isa isa_ = IsaOf(GetParam().config);
};
INSTANTIATE_TEST_SUITE_P(Configs, VtaCycleModel, testing::ValuesIn(NamedConfigs()),
                         [](const auto& row) { return std::string(row.param.name); });

CycleTiming RandomTiming(support::Rng* rng) {
  CycleTiming t;
  t.dram_latency = rng->UniformInt(0, 200);
  t.bytes_per_beat = int64_t{1} << rng->UniformInt(0, 6);
  t.outstanding = rng->UniformInt(1, 16);
  t.burst_beats = rng->UniformInt(1, 64);
  t.fetch_burst = rng->UniformInt(1, 16);
  t.fetch_queue = t.fetch_burst + rng->UniformInt(0, 40);
  t.pipeline_depth = rng->UniformInt(0, 8);
  return t;
}

// Each module runs its own instructions in order, one at a time, and after the tokens that they
// wait for.
void ExpectOrdered(const std::vector<Instruction>& stream, const CycleReport& report) {
  const std::map<size_t, StageSpan> spans = SpansOf(report);
  ASSERT_EQ(spans.size(), stream.size());
  std::array<int64_t, kModules> end = {}, busy = {};
  std::array<std::vector<int64_t>, kNumTokenQueues> given;
  for (const auto& [index, span] : spans) {
    const auto module = static_cast<size_t>(ModuleOf(stream[index]));
    EXPECT_EQ(static_cast<size_t>(span.module), module);
    EXPECT_GE(span.start, end[module]);
    EXPECT_GT(span.end, span.start);
    end[module] = span.end;
    busy[module] += span.end - span.start;
    for (size_t q = 0; q < kNumTokenQueues; ++q) {
      if (PushesOf(stream[index])[q]) given[q].push_back(span.end);
    }
  }
  EXPECT_EQ(busy, report.busy);
  EXPECT_EQ(report.cycles, spans.rbegin()->second.end);
  std::array<size_t, kNumTokenQueues> taken = {};
  for (const auto& [index, span] : spans) {
    for (size_t q = 0; q < kNumTokenQueues; ++q) {
      if (!PopsOf(stream[index])[q]) continue;
      EXPECT_GE(span.start, given[q][taken[q]++]);
    }
  }
}

// With 3 configurations and 3 kinds: 2,070 streams.
TEST_P(VtaCycleModel, ImagesAreThoseOfTheFunctionalSimulator) {
  support::Rng rng(tests::TestSeed(11));
  for (tests::VtaStreamKind kind : tests::kVtaStreamKinds) {
    SCOPED_TRACE(tests::VtaStreamKindText(kind));
    for (int64_t round = 0; round < tests::TestRounds(230); ++round) {
      const VtaCase c = tests::RandomStream(isa_, kind, 20, &rng);
      std::vector<uint8_t> expected = c.dram, found;
      SimCounters counters;
      const absl::Status ran =
          RunFunctional(isa_, tests::Encoded(isa_, c.stream), rng.NextU64(), &expected, &counters);
      ASSERT_TRUE(ran.ok()) << ran;
      auto report = Cycles(isa_, c, RandomTiming(&rng), &found);
      ASSERT_TRUE(report.ok()) << report.status();
      ASSERT_EQ(found, expected);
      ASSERT_EQ(report->counters, counters);
      ExpectOrdered(c.stream, *report);
    }
  }
}

TEST_P(VtaCycleModel, MoreLatencyNeverHelps) {
  support::Rng rng(tests::TestSeed(12));
  std::vector<VtaCase> cases;
  for (int64_t threads : {1, 2}) {
    cases.push_back(
        tests::ThreadedProduct(isa_, {.threads = threads, .tiles = 3, .steps = 5, .rows = 40}));
  }
  for (tests::VtaStreamKind kind : tests::kVtaStreamKinds)
    cases.push_back(tests::RandomStream(isa_, kind, 60, &rng));
  for (const VtaCase& c : cases) {
    int64_t before = 0;
    for (int64_t latency : {0, 1, 2, 8, 33, 64, 200, 1000}) {
      CycleTiming timing;
      timing.dram_latency = latency;
      const int64_t cycles = TotalOf(isa_, c, timing);
      EXPECT_GT(cycles, before) << latency;
      before = cycles;
    }
  }
}

// Eight products of 128 rows, each after a load of its inputs (128 beats) and of its weights (16
// beats): with 20 cycles of latency, 149 + 37 cycles of loads and 133 of gemm.
//
// One thread waits for each in turn. The first micro-op arrives in cycle 53, behind 32 fetched
// instructions; inputs run 24 to 181, weights to 218, the product to 351. Three more take 319 each:
// 1308. Shift to 1441, store to 1590. The second tile's loads start at 1308, but its accumulators
// are cleared after the store, until 1723. Its products end at 1856 + 3 * 319 = 2813, shift and
// store at 2946 and 3095, and the finish takes a cycle.
//
// Two threads: inputs run 25 to 182, weights to 219; accumulators are cleared until 320, the first
// two products end at 453 and 586. A thread's inputs are loaded when its product is done, in 453
// and 639; from then on the loads never wait: 186 a product. Loads end at 639 + 5 * 186 = 1569, the
// last product at 1702, its shift at 1968; the second store, after the first, at 2133.
TEST(VtaCycleTest, VirtualThreadsHideLatency) {
  const Isa isa = IsaOf(Config{});
  CycleTiming timing;
  timing.dram_latency = 20;
  timing.bytes_per_beat = 16;
  const VtaCase one =
      tests::ThreadedProduct(isa, {.threads = 1, .tiles = 2, .steps = 4, .rows = 128});
  const VtaCase two =
      tests::ThreadedProduct(isa, {.threads = 2, .tiles = 1, .steps = 4, .rows = 128});
  auto serial = Cycles(isa, one, timing);
  auto hidden = Cycles(isa, two, timing);
  ASSERT_TRUE(serial.ok() && hidden.ok());
  EXPECT_EQ(serial->cycles, 3096);
  EXPECT_EQ(hidden->cycles, 2134);
  EXPECT_EQ(serial->busy[0], 8 * (149 + 37) + 8);  // the first one waits behind the fetch
  std::map<size_t, StageSpan> spans = SpansOf(*serial);
  EXPECT_EQ(spans[2], (StageSpan{2, Module::kLoad, 24, 181}));
  EXPECT_EQ(spans[3], (StageSpan{3, Module::kLoad, 181, 218}));
  EXPECT_EQ(spans[4], (StageSpan{4, Module::kCompute, 218, 351}));
  EXPECT_EQ(spans[14], (StageSpan{14, Module::kCompute, 1308, 1441}));
  EXPECT_EQ(spans[15], (StageSpan{15, Module::kStore, 1441, 1590}));
  spans = SpansOf(*hidden);
  EXPECT_EQ(spans[8], (StageSpan{8, Module::kCompute, 453, 586}));
  EXPECT_EQ(spans[9], (StageSpan{9, Module::kLoad, 453, 602}));
  EXPECT_EQ(spans[26], (StageSpan{26, Module::kCompute, 1569, 1702}));
}

TEST(VtaCycleTest, LoopsTakeACycleForEachMicroOp) {
  const Isa isa = IsaOf(Config{});
  Instruction i = Once(Opcode::kGemm, 3);
  i.iter_out = 4, i.iter_in = 5;
  EXPECT_EQ(LengthOf(isa, i, kTiming), 1 + 60 + 4);
  i.reset = 1;
  EXPECT_EQ(LengthOf(isa, i, kTiming), 1 + 60 + 4);
  i.iter_in = 0;
  EXPECT_EQ(LengthOf(isa, i, kTiming), 1);
  Instruction alu = Once(Opcode::kAlu, 3);
  alu.iter_in = 7, alu.operation = static_cast<int64_t>(AluOp::kAdd);
  EXPECT_EQ(LengthOf(isa, alu, kTiming), 1 + 2 * 21 + 4);  // both operands from acc
  alu.use_imm = 1;
  EXPECT_EQ(LengthOf(isa, alu, kTiming), 1 + 21 + 4);
  alu.use_imm = 0, alu.operation = static_cast<int64_t>(AluOp::kRequantise);
  EXPECT_EQ(LengthOf(isa, alu, kTiming), 1 + 2 * 21 + 4);
}

TEST(VtaCycleTest, TransfersTakeLatencyAndBeats) {
  const Isa isa = IsaOf(Config{});  // 16 bytes of inp and out are two beats
  Instruction load = Move(Opcode::kLoad, Memory::kInp, 0, 0, 10);
  EXPECT_EQ(LengthOf(isa, load, kTiming), 1 + 64 + 20);
  load.y_size = 3, load.x_stride = 100;  // requests follow each other, latency is paid once
  EXPECT_EQ(LengthOf(isa, load, kTiming), 1 + 64 + 60);
  load.y_pad_0 = 10, load.x_pad_1 = 2;  // 126 zeros are written in cycles without a beat
  EXPECT_EQ(LengthOf(isa, load, kTiming), 1 + 126 + 60);
  EXPECT_EQ(LengthOf(isa, Move(Opcode::kLoad, Memory::kInp, 0, 0, 0), kTiming), 1);
  // Micro-ops of four bytes: beats are whole, so three from the second on lie in two.
  EXPECT_EQ(LengthOf(isa, Move(Opcode::kLoad, Memory::kUop, 0, 1, 3), kTiming), 1 + 64 + 2);
  EXPECT_EQ(LengthOf(isa, Move(Opcode::kStore, Memory::kOut, 0, 0, 10), kTiming), 1 + 20 + 64);
  // Rows of two beats with one request on its way: each waits for the one before.
  CycleTiming narrow;
  narrow.outstanding = 1;
  load = Move(Opcode::kLoad, Memory::kInp, 0, 0, 1);
  load.y_size = load.x_stride = 5;
  EXPECT_EQ(LengthOf(isa, load, narrow), 1 + 5 * (64 + 2));
  // One row of 20 beats in bursts of 8.
  narrow.burst_beats = 8;
  EXPECT_EQ(LengthOf(isa, Move(Opcode::kLoad, Memory::kInp, 0, 0, 10), narrow), 1 + 3 * 64 + 20);
}

// A load of 50 rows does not keep one of 4 rows from the port: they take turns.
TEST(VtaCycleTest, LoadsShareThePort) {
  const Isa isa = IsaOf(Config{});
  VtaCase c;
  c.dram.resize(1 << 13);
  Instruction inp = Move(Opcode::kLoad, Memory::kInp, 0, 0, 1);
  inp.y_size = 50, inp.x_stride = 2, inp.push_next = 1;
  Instruction acc = Move(Opcode::kLoad, Memory::kAcc, 0, 0, 1);
  acc.y_size = 4, acc.x_stride = 2;
  Instruction finish = kFinish;
  finish.pop_prev = 1;
  c.stream = {inp, acc, finish};
  CycleTiming timing;
  timing.outstanding = 1;  // requests of 64 + 2 and of 64 + 8 cycles
  auto report = Cycles(isa, c, timing);
  ASSERT_TRUE(report.ok()) << report.status();
  std::map<size_t, StageSpan> spans = SpansOf(*report);
  EXPECT_LE(spans[1].end - spans[1].start, 5 * 66 + 4 * 72);
  EXPECT_GE(spans[0].end - spans[0].start, 50 * 66 + 4 * 72);
}

// Instructions of one cycle each: fetched at two beats an instruction, seen one cycle after they
// arrive, done one after.
TEST(VtaCycleTest, FetchLimitsShortInstructions) {
  const Isa isa = IsaOf(Config{});
  VtaCase c;
  c.stream.assign(199, Move(Opcode::kLoad, Memory::kUop, 0, 0, 0));
  c.stream.push_back(kFinish);
  EXPECT_EQ(TotalOf(isa, c, kTiming), 64 + 2 * 200 + 2);
  CycleTiming wide;
  wide.bytes_per_beat = 64;  // four instructions a beat: one a cycle is dispatched
  wide.fetch_queue = 128;    // as many as arrive in the latency, and the bursts
  EXPECT_EQ(TotalOf(isa, c, wide), 64 + 200 + 2);
  CycleTiming single;  // one instruction at a time: its latency is never hidden
  single.fetch_burst = single.fetch_queue = 1;
  EXPECT_EQ(TotalOf(isa, c, single), 200 * (64 + 2 + 1) + 1);
}

// Both modules give two tokens before they take one.
TEST(VtaCycleTest, AFullTokenQueueStopsTheGiver) {
  const Isa isa = IsaOf(Config{});
  const Instruction load = Move(Opcode::kLoad, Memory::kInp, 0, 0, 0);
  const Instruction compute = Move(Opcode::kLoad, Memory::kUop, 0, 0, 0);
  VtaCase c;
  c.stream = {load, load, compute, compute, load, load, compute, compute, kFinish};
  for (size_t i : {0u, 1u}) c.stream[i].push_next = 1;
  for (size_t i : {2u, 3u}) c.stream[i].push_prev = 1;
  for (size_t i : {4u, 5u}) c.stream[i].pop_next = 1;
  for (size_t i : {6u, 7u}) c.stream[i].pop_prev = 1;
  CycleTiming timing;
  timing.token_depth = 2;
  EXPECT_GT(TotalOf(isa, c, timing), 0);
  timing.token_depth = 1;
  EXPECT_EQ(support::Slug(Cycles(isa, c, timing).status()), "vta.sim.deadlock");
  // The taker comes late: the giver's second token waits for the first to be taken.
  Instruction busy = Once(Opcode::kGemm);
  busy.reset = 1, busy.iter_in = 500;
  Instruction take = compute;
  take.pop_prev = 1;
  c.stream = {load, load, busy, take, take, kFinish};
  c.stream[0].push_next = c.stream[1].push_next = 1;
  c.dram.resize(4);
  auto report = Cycles(isa, c, timing);
  ASSERT_TRUE(report.ok()) << report.status();
  std::map<size_t, StageSpan> spans = SpansOf(*report);
  EXPECT_EQ(spans[3].start, spans[2].end);
  EXPECT_EQ(spans[4].start, spans[3].end);
  EXPECT_EQ(spans[1].end, spans[3].start + 1);  // the giver's last cycle
  EXPECT_EQ(report->trace[1].instruction, 2u);  // the second load gives its token after the gemm
}

// Instructions behind a full queue wait, also those of other modules.
TEST(VtaCycleTest, AFullModuleQueueStopsTheFetch) {
  const Isa isa = IsaOf(Config{});
  Instruction busy = Once(Opcode::kGemm);
  busy.reset = 1, busy.iter_in = 500;
  Instruction load = Move(Opcode::kLoad, Memory::kInp, 0, 0, 0);
  load.push_next = 1;
  Instruction finish = kFinish;
  finish.pop_prev = 1;
  VtaCase c;
  c.dram.resize(4);
  c.stream = {busy, busy, busy, load, finish};
  CycleTiming timing;
  EXPECT_LT(SpansOf(*Cycles(isa, c, timing))[3].end, 200);
  timing.module_queue = 1;  // the third is dispatched when the second starts, the load after it
  std::map<size_t, StageSpan> spans = SpansOf(*Cycles(isa, c, timing));
  EXPECT_EQ(spans[3].start, spans[1].start + 2);
}

TEST(VtaCycleTest, WrongStreamsAndTimingsAreNamed) {
  const Isa isa = IsaOf(Config{});
  VtaCase c;
  c.dram.resize(1 << 10);
  Instruction store = Move(Opcode::kStore, Memory::kOut, 0, 0, 4);
  c.stream = {store, Once(Opcode::kGemm), kFinish};
  EXPECT_EQ(support::Slug(Cycles(isa, c, kTiming).status()), "vta.sim.finish");
  c.stream[0].push_prev = 1;
  c.stream[2].pop_next = 1;
  EXPECT_TRUE(Cycles(isa, c, kTiming).ok()) << Cycles(isa, c, kTiming).status();
  c.stream[2].pop_next = 0;
  c.stream[1].iter_in = 900;
  EXPECT_EQ(support::Slug(Cycles(isa, c, kTiming).status()), "vta.sim.tokens");
  c.stream[1].pop_prev = 1;
  EXPECT_EQ(support::Slug(Cycles(isa, c, kTiming).status()), "vta.sim.deadlock");
  c.stream[0].dram_base = 1 << 20;
  EXPECT_EQ(support::Slug(Cycles(isa, c, kTiming).status()), "vta.sim.bounds");
  CycleTiming timing;
  timing.fetch_queue = 15;
  EXPECT_THAT(support::StatusText(CheckTiming(timing)),
              testing::HasSubstr("fetch_queue: expected at least 16, found 15"));
  for (int64_t CycleTiming::* member :
       {&CycleTiming::dram_latency, &CycleTiming::bytes_per_beat, &CycleTiming::outstanding,
        &CycleTiming::burst_beats, &CycleTiming::fetch_burst, &CycleTiming::fetch_queue,
        &CycleTiming::module_queue, &CycleTiming::token_depth, &CycleTiming::pipeline_depth}) {
    timing = {};
    timing.*member = -1;
    EXPECT_EQ(support::Slug(Cycles(isa, c, timing).status()), "vta.sim.timing");
  }
}

}  // namespace
}  // namespace tilewright::vta
