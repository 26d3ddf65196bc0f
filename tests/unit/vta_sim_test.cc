// What single instructions do in the functional simulator, for every named configuration, and what
// simulator and token check say about wrong streams.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "deploy/support/rng.h"
#include "deploy/support/status.h"
#include "tests/support/test_seed.h"
#include "tests/support/vta_streams.h"
#include "vta/isa/code_object.h"
#include "vta/isa/isa.h"
#include "vta/sim/accesses.h"
#include "vta/sim/functional_sim.h"
#include "vta/sim/token_check.h"

namespace tilewright::vta {
namespace {

using tests::IsaOf;
using tests::Move;
using tests::Once;
using tests::OneProduct;
using tests::VtaCase;

class VtaSim : public testing::TestWithParam<NamedConfig> {
 protected:
  std::vector<Word128> Encoded(const std::vector<Instruction>& stream) {
    return tests::Encoded(isa_, stream);
  }

  const Isa isa_ = IsaOf(GetParam().config);
};
INSTANTIATE_TEST_SUITE_P(Configs, VtaSim, testing::ValuesIn(NamedConfigs()),
                         [](const auto& row) { return std::string(row.param.name); });

TEST_P(VtaSim, OneMatrixProduct) {
  OneProduct p(isa_.config().block);
  EXPECT_TRUE(CheckTokens(isa_, Encoded(p.stream), p.dram).ok());
  for (uint64_t seed = 0; seed < 20; ++seed) {
    std::vector<uint8_t> dram = p.dram;
    SimCounters counters;
    absl::Status ran = RunFunctional(isa_, Encoded(p.stream), seed, &dram, &counters);
    ASSERT_TRUE(ran.ok()) << ran;
    EXPECT_TRUE(p.IsIn(dram));
    EXPECT_EQ(counters.instructions, 8);
    EXPECT_EQ(counters.gemm_iterations, 2);
    EXPECT_EQ(counters.bytes_loaded, static_cast<int64_t>(4 + p.n + p.n * p.n));
    EXPECT_EQ(counters.bytes_stored, static_cast<int64_t>(p.n));
  }
}

// What the accumulator held before does not matter.
TEST_P(VtaSim, AProductThatOverwritesBeginsTheSum) {
  OneProduct p(isa_.config().block);
  ASSERT_EQ(p.stream[3].reset, 1);
  p.stream[4].overwrite = 1;
  for (const bool cleared : {true, false}) {
    if (!cleared) p.stream.erase(p.stream.begin() + 3);
    for (uint64_t seed = 0; seed < 4; ++seed) {
      std::vector<uint8_t> dram = p.dram;
      const absl::Status ran = RunFunctional(isa_, Encoded(p.stream), seed, &dram);
      ASSERT_TRUE(ran.ok()) << ran;
      EXPECT_TRUE(p.IsIn(dram));
    }
    EXPECT_EQ(support::Slug(CheckTokens(isa_, Encoded(p.stream), p.dram)), "");
  }
}

TEST_P(VtaSim, PaddingIsZeros) {
  VtaCase c = tests::PaddedLoad(isa_);
  const auto n = static_cast<size_t>(isa_.config().block);
  absl::Status ran = RunFunctional(isa_, Encoded(c.stream), 1, &c.dram);
  ASSERT_TRUE(ran.ok()) << ran;
  const int expected[9] = {0, 0, 0, 0, 1, 2, 0, 4, 5};
  for (size_t e = 0; e < 9; ++e) EXPECT_EQ(c.dram[(24 + e) * n], expected[e]) << e;
}

TEST_P(VtaSim, WrongStreamsAreNamed) {
  struct Case {
    const char* what;
    void (*change)(OneProduct*);
    const char* sim;     // what the simulator says for some seed
    const char* tokens;  // what the check says
  };
  const Case cases[] = {
      {"gemm does not wait", [](OneProduct* p) { p->stream[4].pop_prev = 0; }, "vta.sim.tokens",
       "vta.tokens.balance"},
      {"nobody loads", [](OneProduct* p) { p->stream[2].push_next = 0; }, "vta.sim.deadlock",
       "vta.tokens.deadlock"},
      {"the store does not wait",
       [](OneProduct* p) { p->stream[6].pop_prev = p->stream[5].push_next = 0; }, "",
       "vta.tokens.race"},
      {"the weights are not waited for",
       [](OneProduct* p) { std::swap(p->stream[1].push_next, p->stream[2].push_next); }, "",
       "vta.tokens.race"},
      {"finish does not wait",
       [](OneProduct* p) { p->stream[7].pop_next = p->stream[6].push_prev = 0; }, "vta.sim.finish",
       "vta.tokens.finish"},
      {"outside of a memory", [](OneProduct* p) { p->stream[1].sram_base = 4095; },
       "vta.sim.bounds", ""},
      {"outside of DRAM", [](OneProduct* p) { p->stream[6].dram_base += 1; }, "vta.sim.bounds", ""},
      {"no such neighbour", [](OneProduct* p) { p->stream[1].pop_prev = 1; }, "vta.sim.illegal",
       "vta.sim.illegal"},
      {"two beginnings of a sum", [](OneProduct* p) { p->stream[3].overwrite = 1; },
       "vta.sim.illegal", ""},
      {"an operation that overwrites", [](OneProduct* p) { p->stream[5].overwrite = 1; },
       "vta.sim.illegal", ""},
      {"no finish", [](OneProduct* p) { p->stream.pop_back(); }, "vta.sim.finish",
       "vta.sim.finish"},
      {"two finishes", [](OneProduct* p) { p->stream.push_back(p->stream.back()); },
       "vta.sim.finish", "vta.sim.finish"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.what);
    OneProduct p(isa_.config().block);
    c.change(&p);
    bool shown = false, wrong = false;
    for (uint64_t seed = 0; seed < 40; ++seed) {
      std::vector<uint8_t> dram = p.dram;
      absl::Status ran = RunFunctional(isa_, Encoded(p.stream), seed, &dram);
      shown = shown || support::Slug(ran) == c.sim;
      wrong = wrong || (ran.ok() && !p.IsIn(dram));
    }
    // A missing dependence shows as another result under some order of the modules.
    EXPECT_TRUE(c.sim[0] == '\0' ? wrong : shown);
    EXPECT_EQ(support::Slug(CheckTokens(isa_, Encoded(p.stream), p.dram)), c.tokens);
  }
}

// Code for one configuration does not run on hardware of another.
TEST_P(VtaSim, CodeOfAnotherConfigurationIsRefused) {
  OneProduct p(isa_.config().block);
  Program program;
  program.stream = p.stream;
  for (const NamedConfig& named : NamedConfigs()) {
    const Isa hardware = IsaOf(named.config);
    std::vector<uint8_t> dram = p.dram;
    const absl::Status ran =
        RunFunctional(hardware, {isa_.config(), {program}}, 0, /*seed=*/1, &dram);
    if (named.config == isa_.config()) {
      EXPECT_TRUE(ran.ok()) << ran;
      EXPECT_TRUE(p.IsIn(dram));
      continue;
    }
    EXPECT_EQ(support::Slug(ran), "vta.config.other");
    EXPECT_THAT(support::StatusText(ran),
                testing::AllOf(testing::HasSubstr(hardware.config().ToString()),
                               testing::HasSubstr(isa_.config().ToString())));
    EXPECT_EQ(dram, p.dram);
  }
}

// One requantisation of every lane: acc[0] by the multipliers of acc[1]. Returns out[0].
std::vector<int8_t> Requantise(const Isa& isa, const std::vector<int32_t>& values,
                               const std::vector<int32_t>& multipliers, int64_t shift) {
  VtaCase c = tests::Requantisation(isa, values, multipliers, shift);
  const std::vector<Word128> words = tests::Encoded(isa, c.stream);
  EXPECT_TRUE(CheckTokens(isa, words, c.dram).ok());
  const absl::Status ran = RunFunctional(isa, words, 1, &c.dram);
  EXPECT_TRUE(ran.ok()) << ran;
  const auto n = static_cast<size_t>(isa.config().block);
  std::vector<int8_t> result(n);
  std::memcpy(result.data(), c.dram.data() + 8 * n, n);
  return result;
}

TEST_P(VtaSim, RequantiseRoundsHalvesUpAndSaturates) {
  struct Case {
    int32_t value, multiplier;
    int64_t shift;
    int8_t expected;
  };
  constexpr int32_t kLeast = INT32_MIN, kMost = INT32_MAX;
  const Case cases[] = {
      {7, 3, 0, 21},
      {43, 3, 0, 127},
      {-43, 3, 0, -128},
      {5, 1, 1, 3},      // 2.5
      {-5, 1, 1, -2},    // -2.5
      {-6, 1, 2, -1},    // -1.5
      {-7, 1, 2, -2},    // -1.75
      {255, 1, 1, 127},  // 127.5
      {253, 1, 1, 127},  // 126.5
      {-257, 1, 1, -128},
      {-255, 1, 1, -127},  // -127.5
      {1 << 20, 1 << 30, 44, 64},
      {kMost, kMost, 62, 1},  // 1 - 2^-30
      {kLeast, kLeast, 62, 1},
      {kLeast, kMost, 62, -1},
      {kLeast, kLeast, 0, 127},
      {kLeast, kMost, 0, -128},
      {1, 1, 62, 0},
  };
  const auto n = static_cast<size_t>(isa_.config().block);
  for (const Case& c : cases) {
    EXPECT_THAT(Requantise(isa_, std::vector<int32_t>(n, c.value),
                           std::vector<int32_t>(n, c.multiplier), c.shift),
                testing::Each(c.expected))
        << c.value << " * " << c.multiplier << " >> " << c.shift;
  }
}

// Each lane has its multiplier; the definition with 128 bits and a remainder.
TEST_P(VtaSim, RequantiseIsExact) {
  support::Rng rng(tests::TestSeed(8));
  const auto n = static_cast<size_t>(isa_.config().block);
  const auto number = [&] { return static_cast<int32_t>(rng.NextU64() >> rng.Uniform(32)); };
  for (int round = 0; round < 200; ++round) {
    std::vector<int32_t> values(n), multipliers(n);
    for (size_t l = 0; l < n; ++l) values[l] = number(), multipliers[l] = number();
    const int64_t shift = rng.UniformInt(0, 62);
    const std::vector<int8_t> found = Requantise(isa_, values, multipliers, shift);
    for (size_t l = 0; l < n; ++l) {
      const __int128 scale = __int128{1} << shift;
      const __int128 twice = 2 * __int128{values[l]} * multipliers[l] + scale;  // / (2 * scale)
      __int128 rounded = twice / (2 * scale);
      if (twice < 0 && twice % (2 * scale) != 0) --rounded;
      const __int128 cut = rounded < -128 ? -128 : rounded > 127 ? 127 : rounded;
      ASSERT_EQ(found[l], static_cast<int8_t>(cut))
          << values[l] << " * " << multipliers[l] << " >> " << shift;
    }
  }
}

TEST_P(VtaSim, RequantiseNeedsAMultiplierAndAShift) {
  Instruction scale = Once(Opcode::kAlu);
  scale.operation = static_cast<int64_t>(AluOp::kRequantise);
  const auto run = [&](int64_t use_imm, int64_t shift) {
    scale.use_imm = use_imm, scale.imm = shift;
    std::vector<uint8_t> dram(4);
    const Instruction uop = Move(Opcode::kLoad, Memory::kUop, 0, 0, 1);
    return support::Slug(
        RunFunctional(isa_, Encoded({uop, scale, Instruction{.op = Opcode::kFinish}}), 1, &dram));
  };
  EXPECT_EQ(run(0, 0), "");
  EXPECT_EQ(run(0, 62), "");
  EXPECT_EQ(run(0, 63), "vta.sim.illegal");
  EXPECT_EQ(run(0, -1), "vta.sim.illegal");
  EXPECT_EQ(run(1, 0), "vta.sim.illegal");
}

// Micro-ops beyond the memory are not read: the simulator reports the instruction.
TEST_P(VtaSim, MicroOpsBeyondTheMemoryTouchNothing) {
  const auto size = static_cast<size_t>(isa_.config().uop);
  std::vector<MicroOp> uops(size, MicroOp{.dst = 1});
  uops.resize(size + 4, MicroOp{.dst = 7});
  Instruction clear = Once(Opcode::kGemm, static_cast<int64_t>(size) + 4);
  clear.reset = 1;
  for (const Access& a : AccessesOf(isa_, clear, std::span(uops).first(size))) {
    if (a.memory == static_cast<int>(Memory::kUop)) continue;
    EXPECT_EQ(a.begin, 1);
    EXPECT_EQ(a.end, 2);
  }
  std::vector<uint8_t> dram(4);
  const absl::Status ran =
      RunFunctional(isa_, Encoded({clear, Instruction{.op = Opcode::kFinish}}), 1, &dram);
  EXPECT_EQ(support::Slug(ran), "vta.sim.bounds");
}

}  // namespace
}  // namespace tilewright::vta
