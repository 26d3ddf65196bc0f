// The RTL of the accelerator against the simulators: images of the functional one, cycles of the
// cycle model; what it says about wrong streams; how fast it is simulated.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <time.h>

#include <algorithm>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "deploy/support/clock.h"
#include "deploy/support/rng.h"
#include "deploy/support/status.h"
#include "tests/support/test_seed.h"
#include "tests/support/vta_random_stream.h"
#include "tests/support/vta_random_transfers.h"
#include "tests/support/vta_streams.h"
#include "vta/rtl/rtl_sim.h"
#include "vta/sim/cycle_model.h"
#include "vta/sim/functional_sim.h"
#include "vta/sim/token_check.h"

namespace tilewright::vta {
namespace {

using tests::IsaOf;
using tests::Move;
using tests::Once;
using tests::VtaCase;

// The first difference of the images, and the stream.
std::string DifferenceOf(const VtaCase& c, const std::vector<uint8_t>& expected,
                         const std::vector<uint8_t>& found) {
  const auto at = std::mismatch(expected.begin(), expected.end(), found.begin()).first;
  std::string text = "first different byte: " + std::to_string(at - expected.begin()) + "\n";
  for (const Instruction& i : c.stream) text += Disassemble(i) + "\n";
  return text;
}

// Of processor time: other work on the machine counts less.
double ProcessorSeconds() {
  return static_cast<double>(support::ReadClockNs(CLOCK_PROCESS_CPUTIME_ID)) * 1e-9;
}

class VtaRtl : public testing::TestWithParam<NamedConfig> {
 protected:
  void SetUp() override {
    auto made = RtlSim::Make(isa_.config(), tests::TestSeed(1));
    ASSERT_TRUE(made.ok()) << made.status();
    rtl_ = *std::move(made);
  }

  std::vector<Word128> Encoded(const VtaCase& c) { return tests::Encoded(isa_, c.stream); }

  // Runs a legal stream on both simulators and on the RTL, which must agree in everything.
  void ExpectSame(const VtaCase& c, int64_t latency) {
    const std::vector<Word128> words = Encoded(c);
    std::vector<uint8_t> expected = c.dram, timed = c.dram, found = c.dram;
    const absl::Status ran = RunFunctional(isa_, words, 1, &expected);
    ASSERT_TRUE(ran.ok()) << ran;
    CycleTiming timing;
    timing.dram_latency = latency;
    auto model = RunCycles(isa_, words, timing, 1, &timed);
    ASSERT_TRUE(model.ok()) << model.status();
    auto rtl = rtl_->Run(words, {.dram_latency = latency}, &found);
    ASSERT_TRUE(rtl.ok()) << rtl.status();
    ASSERT_TRUE(found == expected) << DifferenceOf(c, expected, found);
    EXPECT_EQ(rtl->cycles, model->cycles) << DifferenceOf(c, expected, found);
    EXPECT_EQ(rtl->busy, model->busy);
    EXPECT_EQ(rtl->read_beats, model->read_beats);
    EXPECT_EQ(rtl->write_beats, model->write_beats);
    ++streams_;
    cycles_ += rtl->cycles;
  }

  void PrintCounts(const char* what) const {
    std::cout << "counts: " << what << "_streams=" << streams_ << " " << what
              << "_cycles=" << cycles_ << std::endl;
  }

  const Isa isa_ = IsaOf(GetParam().config);
  std::unique_ptr<RtlSim> rtl_;
  int64_t streams_ = 0, cycles_ = 0;
};
INSTANTIATE_TEST_SUITE_P(Configs, VtaRtl, testing::ValuesIn(NamedConfigs()),
                         [](const auto& row) { return std::string(row.param.name); });

// With 3 configurations and 3 kinds: 2,250 streams.
TEST_P(VtaRtl, RandomStreams) {
  support::Rng rng(tests::TestSeed(21));
  for (tests::VtaStreamKind kind : tests::kVtaStreamKinds) {
    SCOPED_TRACE(tests::VtaStreamKindText(kind));
    for (int64_t round = 0; round < tests::TestRounds(250); ++round) {
      ExpectSame(tests::RandomStream(isa_, kind, 20, &rng), rng.UniformInt(1, 200));
      if (HasFailure()) return;
    }
  }
  PrintCounts("random");
}

TEST_P(VtaRtl, RandomTransfers) {
  support::Rng rng(tests::TestSeed(22));
  for (int64_t round = 0; round < tests::TestRounds(60); ++round) {
    ExpectSame(tests::RandomTransfers(isa_, 12, &rng), rng.UniformInt(1, 100));
    if (HasFailure()) return;
  }
  PrintCounts("transfer");
}

TEST_P(VtaRtl, StreamsOfTheSimulatorsTests) {
  ExpectSame(tests::OneProduct(isa_.config().block), 64);
  ExpectSame(tests::PaddedLoad(isa_), 64);
  for (int64_t threads : {1, 2}) {
    ExpectSame(
        tests::ThreadedProduct(isa_, {.threads = threads, .tiles = 3, .steps = 5, .rows = 40}), 64);
  }
}

// Products with 64 bits, rounding and saturation, lane by lane.
TEST_P(VtaRtl, Requantisations) {
  support::Rng rng(tests::TestSeed(23));
  const auto n = static_cast<size_t>(isa_.config().block);
  const auto number = [&]() -> int32_t {
    constexpr int32_t kEnds[] = {INT32_MIN, INT32_MAX, -1, 0, 1, 255, -257};
    if (rng.Uniform(4) == 0) return kEnds[rng.Uniform(std::size(kEnds))];
    return static_cast<int32_t>(rng.NextU64()) >> rng.Uniform(32);
  };
  for (int round = 0; round < 100; ++round) {
    std::vector<int32_t> values(n), multipliers(n);
    const int64_t shift = rng.UniformInt(0, round % 2 == 0 ? 62 : 8);
    for (size_t l = 0; l < n; ++l) {
      values[l] = number(), multipliers[l] = number();
      if (shift == 0 || shift > 31 || l % 2 == 0) continue;
      // A number and a half, near the ends.
      const int64_t end = rng.Uniform(2) == 0 ? -128 : 127;
      values[l] = static_cast<int32_t>(2 * (end + rng.UniformInt(-4, 4)) + 1);
      multipliers[l] = int32_t{1} << (shift - 1) % 31;
    }
    ExpectSame(tests::Requantisation(isa_, values, multipliers, shift), 8);
    if (HasFailure()) return;
  }
}

// More tokens than a queue holds, and more instructions than the queue of a module.
TEST_P(VtaRtl, FullQueuesStopThoseBefore) {
  VtaCase c;
  c.dram.resize(64);
  Instruction uop = Move(Opcode::kLoad, Memory::kUop, 0, 0, 1);
  Instruction busy = Once(Opcode::kGemm);
  busy.reset = 1, busy.iter_out = 4, busy.iter_in = 1000;
  c.stream = {uop, busy};
  for (int i = 0; i < 700; ++i) {
    Instruction give = Move(Opcode::kLoad, Memory::kInp, 0, 0, 0);
    give.push_next = 1;
    Instruction take = Move(Opcode::kLoad, Memory::kUop, 0, 0, 0);
    take.pop_prev = 1;
    c.stream.insert(c.stream.end(), {give, take});
  }
  c.stream.push_back({.op = Opcode::kFinish});
  for (int64_t latency : {1, 64}) ExpectSame(c, latency);
  // Tokens first: the load module is in front of a full queue when compute begins to take.
  VtaCase tokens;
  tokens.dram = c.dram;
  tokens.stream = {uop, busy};
  for (const Opcode op : {Opcode::kGemm, Opcode::kAlu}) {  // first the givers, then the takers
    for (int i = 0; i < 300; ++i) {
      Instruction move =
          Move(Opcode::kLoad, op == Opcode::kGemm ? Memory::kInp : Memory::kUop, 0, 0, 0);
      (op == Opcode::kGemm ? move.push_next : move.pop_prev) = 1;
      tokens.stream.push_back(move);
    }
  }
  tokens.stream.push_back({.op = Opcode::kFinish});
  for (int64_t latency : {1, 64}) ExpectSame(tokens, latency);
}

// Load, compute and fetch ask for rows at the same time, more than may be on their way.
TEST_P(VtaRtl, RequestersTakeTurns) {
  VtaCase c;
  c.dram.resize(static_cast<size_t>(256 * isa_.config().block));
  for (int i = 0; i < 30; ++i) {
    Instruction inp = Move(Opcode::kLoad, Memory::kInp, 0, 0, 1);
    inp.y_size = 40, inp.x_stride = 3;
    Instruction acc = Move(Opcode::kLoad, Memory::kAcc, 0, 0, 1 + i % 2);
    acc.y_size = 15 + i % 7, acc.x_stride = 2;
    c.stream.insert(c.stream.end(), {inp, acc});
    c.stream.insert(c.stream.end(), 3, Move(Opcode::kLoad, Memory::kWgt, 0, 0, 0));
  }
  c.stream.back().push_next = 1;
  Instruction finish{.op = Opcode::kFinish};
  finish.pop_prev = 1;
  c.stream.push_back(finish);
  for (int64_t latency : {1, 10, 64, 200}) ExpectSame(c, latency);
}

// Load and compute ask in the same cycle for the first time. Who goes first does not depend on who
// was last in the stream before.
TEST_P(VtaRtl, EveryStreamBeginsWithTheSameTurns) {
  // Runs until both loads are in their queues. It clears some accumulator.
  Instruction give = Once(Opcode::kGemm);
  give.reset = give.push_prev = 1, give.iter_in = 50;
  Instruction inp = Move(Opcode::kLoad, Memory::kInp, 0, 0, 1);
  inp.pop_next = inp.push_next = 1;
  Instruction finish{.op = Opcode::kFinish};
  finish.pop_prev = 1;
  VtaCase c;
  c.dram.resize(256);
  c.stream = {give, inp, Move(Opcode::kLoad, Memory::kAcc, 0, 0, 1), finish};
  ExpectSame(c, 20);
  ExpectSame(tests::OneProduct(isa_.config().block), 20);
  ExpectSame(c, 20);
}

TEST_P(VtaRtl, SaysWhichConfigurationItHas) {
  EXPECT_EQ(rtl_->ReadRegister(Register::kIdentity), isa_.config().Identity());
  EXPECT_EQ(rtl_->ReadRegister(Register::kClockKhz), 0U);  // nobody set the parameter of vta_core
  for (const NamedConfig& other : NamedConfigs())
    EXPECT_EQ(other.config.Identity() == isa_.config().Identity(), other.config == isa_.config());
}

// The device takes the next stream after each of them.
TEST_P(VtaRtl, WrongStreamsAreNamed) {
  const tests::OneProduct good(isa_.config().block);
  struct Case {
    const char* slug;
    void (*change)(VtaCase*);
  };
  const Case cases[] = {
      {"vta.rtl.deadlock", [](VtaCase* c) { c->stream[2].push_next = 0; }},
      {"vta.rtl.unfinished", [](VtaCase* c) { c->stream[4].pop_prev = 0; }},
      {"vta.rtl.unfinished",
       [](VtaCase* c) { c->stream[7].pop_next = c->stream[6].push_prev = 0; }},
      {"vta.rtl.unfinished",
       [](VtaCase* c) { c->stream.insert(c->stream.end(), 3, Instruction{.op = Opcode::kAlu}); }},
      {"vta.rtl.bounds", [](VtaCase* c) { c->stream[6].dram_base += 1; }},
      {"vta.rtl.bounds", [](VtaCase* c) { c->stream[1].dram_base = 1 << 20; }},
      {"vta.rtl.illegal", [](VtaCase* c) { c->stream[1].pop_prev = 1; }},
      {"vta.rtl.illegal", [](VtaCase* c) { c->stream[6].x_pad_0 = 1; }},
      {"vta.rtl.illegal", [](VtaCase* c) { c->stream[0].memory = 4; }},
      {"vta.rtl.illegal", [](VtaCase* c) { c->stream[5].operation = 5; }},
      {"vta.rtl.illegal", [](VtaCase* c) { c->stream[5].overwrite = 1; }},
      {"vta.rtl.illegal", [](VtaCase* c) { c->stream[3].overwrite = c->stream[3].reset = 1; }},
  };
  for (const Case& row : cases) {
    VtaCase c = good;
    row.change(&c);
    std::vector<uint8_t> dram = c.dram;
    EXPECT_EQ(support::Slug(rtl_->Run(Encoded(c), {}, &dram).status()), row.slug);
    ExpectSame(good, 20);
    ASSERT_FALSE(HasFailure()) << row.slug;
  }
  std::vector<uint8_t> dram = good.dram;
  EXPECT_EQ(support::Slug(rtl_->Run(Encoded(good), {.max_cycles = 100}, &dram).status()),
            "vta.rtl.hang");
  EXPECT_EQ(support::Slug(rtl_->Run(Encoded(good), {.dram_latency = 0}, &dram).status()),
            "vta.rtl.options");
  ExpectSame(good, 20);
}

TEST(VtaRtlTest, OtherConfigurationsHaveNoModel) {
  EXPECT_EQ(support::Slug(RtlSim::Make({.uop = 64}, 1).status()), "vta.rtl.config");
}

// Products in nearly every cycle, which are what takes time. Printed, not judged: machines differ.
TEST_P(VtaRtl, CyclesPerSecond) {
  VtaCase c = tests::ThreadedProduct(isa_, {.threads = 2, .tiles = 2, .steps = 10, .rows = 200});
  for (Instruction& i : c.stream) {
    if (i.op == Opcode::kGemm && i.reset == 0) i.iter_out = 60;
  }
  const std::vector<Word128> words = Encoded(c);
  std::vector<uint8_t> dram = c.dram;
  const double start = ProcessorSeconds();
  auto ran = rtl_->Run(words, {}, &dram);
  ASSERT_TRUE(ran.ok()) << ran.status();
  const double seconds = ProcessorSeconds() - start;
  const double busy = static_cast<double>(ran->busy[1]) / static_cast<double>(ran->cycles);
  std::cout << "speed: " << GetParam().name << " "
            << static_cast<int64_t>(static_cast<double>(ran->cycles) / seconds)
            << " cycles per second, " << ran->cycles << " cycles, compute busy in "
            << static_cast<int>(100 * busy) << " %" << std::endl;
}

}  // namespace
}  // namespace tilewright::vta
