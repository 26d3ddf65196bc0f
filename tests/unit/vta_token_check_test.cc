// The check of dependence flags: it accepts legal streams, whatever they do, and finds every
// missing order; and the parts that it is made of.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "deploy/support/clock.h"
#include "deploy/support/rng.h"
#include "deploy/support/status.h"
#include "tests/support/patience.h"
#include "tests/support/test_seed.h"
#include "tests/support/vta_random_stream.h"
#include "tests/support/vta_streams.h"
#include "vta/sim/accesses.h"
#include "vta/sim/functional_sim.h"
#include "vta/sim/range_max.h"
#include "vta/sim/token_check.h"
#include "vta/sim/tokens.h"

namespace tilewright::vta {
namespace {

using tests::IsaOf;
using tests::Move;
using tests::Once;
using tests::VtaCase;

using Flag = int64_t Instruction::*;
constexpr Flag kFlags[] = {&Instruction::pop_prev, &Instruction::pop_next, &Instruction::push_prev,
                           &Instruction::push_next};

absl::Status Check(const Isa& isa, const VtaCase& c) {
  return CheckTokens(isa, tests::Encoded(isa, c.stream), c.dram);
}

// The image after a run; empty when the run failed.
std::vector<uint8_t> ImageOf(const Isa& isa, const VtaCase& c, uint64_t seed) {
  std::vector<uint8_t> dram = c.dram;
  const absl::Status ran = RunFunctional(isa, tests::Encoded(isa, c.stream), seed, &dram);
  return ran.ok() ? dram : std::vector<uint8_t>();
}

// Whether the order of the modules changes nothing.
bool AllOrdersAgree(const Isa& isa, const VtaCase& c, const std::vector<uint8_t>& expected) {
  for (uint64_t seed = 0; seed < 12; ++seed) {
    if (ImageOf(isa, c, seed) != expected) return false;
  }
  return true;
}

class VtaTokenCheck : public testing::TestWithParam<NamedConfig> {
 protected:
  const Isa isa_ = IsaOf(GetParam().config);
};
INSTANTIATE_TEST_SUITE_P(Configs, VtaTokenCheck, testing::ValuesIn(NamedConfigs()),
                         [](const auto& row) { return std::string(row.param.name); });

// The k-th push of a queue and the pop that waits for it.
struct Token {
  size_t push, pop;
  Flag push_flag, pop_flag;
};
std::vector<Token> TokensOf(const std::vector<Instruction>& stream) {
  std::vector<Token> tokens;
  for (size_t q = 0; q < kNumTokenQueues; ++q) {
    const bool down = kTokenQueues[q].from < kTokenQueues[q].to;
    std::vector<size_t> pushes, pops;
    for (size_t i = 0; i < stream.size(); ++i) {
      if (PushesOf(stream[i])[q]) pushes.push_back(i);
      if (PopsOf(stream[i])[q]) pops.push_back(i);
    }
    EXPECT_EQ(pushes.size(), pops.size());
    for (size_t k = 0; k < pushes.size(); ++k) {
      tokens.push_back({pushes[k], pops[k],
                        down ? &Instruction::push_next : &Instruction::push_prev,
                        down ? &Instruction::pop_prev : &Instruction::pop_next});
    }
  }
  return tokens;
}

// The same lanes and fields with memories that take no time to fill.
Config Small(Config config) {
  config.uop = 64;
  config.wgt = config.inp = config.acc = 32;
  return config;
}

// Removes every flag alone, and every token (a push with its pop). What the check accepts must
// change nothing, in any order of the modules.
TEST_P(VtaTokenCheck, NoFlagThatMattersCanBeRemoved) {
  const Isa isa = IsaOf(Small(isa_.config()));
  support::Rng rng(tests::TestSeed(5));
  for (tests::VtaStreamKind kind : tests::kVtaStreamKinds) {
    SCOPED_TRACE(tests::VtaStreamKindText(kind));
    int rejected = 0, needless = 0, wrong = 0;
    for (int64_t round = 0; round < tests::TestRounds(40); ++round) {
      VtaCase c = tests::RandomStream(isa, kind, 24, &rng);
      ASSERT_TRUE(Check(isa, c).ok()) << Check(isa, c);
      const std::vector<uint8_t> expected = ImageOf(isa, c, 99);
      ASSERT_TRUE(AllOrdersAgree(isa, c, expected));
      for (Instruction& i : c.stream) {
        for (Flag flag : kFlags) {
          if (i.*flag == 0) continue;
          i.*flag = 0;
          EXPECT_FALSE(Check(isa, c).ok()) << Disassemble(i);
          i.*flag = 1;
        }
      }
      for (const Token& token : TokensOf(c.stream)) {
        c.stream[token.push].*token.push_flag = c.stream[token.pop].*token.pop_flag = 0;
        if (Check(isa, c).ok()) {
          ++needless;
          ASSERT_TRUE(AllOrdersAgree(isa, c, expected)) << token.push << " to " << token.pop;
        } else {
          ++rejected;
          wrong += AllOrdersAgree(isa, c, expected) ? 0 : 1;
        }
        c.stream[token.push].*token.push_flag = c.stream[token.pop].*token.pop_flag = 1;
      }
    }
    // Both kinds of tokens are there, and most of the others show in some order of the modules.
    EXPECT_GT(rejected, 200);
    EXPECT_GT(needless, 20);
    EXPECT_GT(wrong, rejected / 3);
    RecordProperty(std::string(tests::VtaStreamKindText(kind)) + "_rejected", rejected);
    RecordProperty(std::string(tests::VtaStreamKindText(kind)) + "_needless", needless);
  }
}

TEST_P(VtaTokenCheck, ALongStreamTakesASecond) {
  const VtaCase c =
      tests::ThreadedProduct(isa_, {.threads = 2, .tiles = 1000, .steps = 16, .rows = 64});
  ASSERT_GE(c.stream.size(), 100000u);
  const std::vector<Word128> words = tests::Encoded(isa_, c.stream);
  // Of its own processor time: other tests run meanwhile.
  const int64_t start = support::ReadClockNs(CLOCK_THREAD_CPUTIME_ID);
  const absl::Status checked = CheckTokens(isa_, words, c.dram);
  const int64_t elapsed_ns = support::ReadClockNs(CLOCK_THREAD_CPUTIME_ID) - start;
  EXPECT_TRUE(checked.ok()) << checked;
  RecordProperty("milliseconds", static_cast<int>(elapsed_ns / 1'000'000));
  EXPECT_LT(elapsed_ns, tests::Patiently(1000) * 1'000'000);
}

// Accumulators of one tile are stored and loaded again: load and store modules are no neighbours.
VtaCase StoreThenLoad(const Isa& isa, bool relayed) {
  VtaCase c;
  c.dram.resize(static_cast<size_t>(4 * isa.config().block), 1);
  Instruction uop = Move(Opcode::kLoad, Memory::kUop, 0, 0, 1);
  Instruction clear = Once(Opcode::kGemm);
  clear.reset = 1, clear.push_next = 1;
  Instruction store = Move(Opcode::kStore, Memory::kOut, 0, 2, 1);
  store.pop_prev = store.push_prev = 1;
  Instruction relay = Move(Opcode::kLoad, Memory::kUop, 0, 0, 0);
  relay.pop_next = 1, relay.push_prev = relayed ? 1 : 0;
  Instruction load = Move(Opcode::kLoad, Memory::kInp, 0, 2, 1);
  load.pop_next = relayed ? 1 : 0, load.push_next = 1;
  Instruction finish{.op = Opcode::kFinish};
  finish.pop_prev = 1;
  c.stream = {uop, clear, store, relay, load, finish};
  return c;
}

TEST_P(VtaTokenCheck, LoadsWaitForStoresOfTheSameBytes) {
  EXPECT_TRUE(Check(isa_, StoreThenLoad(isa_, true)).ok())
      << Check(isa_, StoreThenLoad(isa_, true));
  VtaCase c = StoreThenLoad(isa_, false);
  EXPECT_EQ(support::Slug(Check(isa_, c)), "vta.tokens.race");
  EXPECT_THAT(support::StatusText(Check(isa_, c)), testing::HasSubstr("between 2 and 4"));
  EXPECT_THAT(support::StatusText(Check(isa_, c)), testing::HasSubstr("share dram"));
  c.stream[4].dram_base = 3;  // the bytes after them
  EXPECT_TRUE(Check(isa_, c).ok()) << Check(isa_, c);
}

// Which accumulators an instruction touches is known only if the micro-ops are those of the image.
TEST_P(VtaTokenCheck, StoredMicroOpsAreRefused) {
  VtaCase c = StoreThenLoad(isa_, true);
  c.stream[4] = Move(Opcode::kLoad, Memory::kUop, 0, 2 * isa_.config().block / 4, 1);
  c.stream[3].push_prev = c.stream[5].pop_prev = 0;
  EXPECT_EQ(support::Slug(Check(isa_, c)), "vta.tokens.uops");
  c.stream[4].dram_base = 0;
  EXPECT_TRUE(Check(isa_, c).ok()) << Check(isa_, c);
}

// Rows of micro-ops with gaps in DRAM and padding between them.
TEST_P(VtaTokenCheck, MicroOpsAreLoadedLikeEverythingElse) {
  VtaCase c;
  c.dram.resize(static_cast<size_t>(32 + isa_.config().block));
  tests::PutUops(isa_, {{.dst = 1}, {.dst = 2}, {.dst = 3}, {.dst = 4}}, 0, &c.dram);
  Instruction uops = Move(Opcode::kLoad, Memory::kUop, 0, 0, 1);
  uops.y_size = 2, uops.x_stride = 3, uops.x_pad_1 = 1;  // 1, 0, 4, 0
  Instruction clear = Once(Opcode::kGemm);
  clear.reset = 1, clear.uop_begin = 2, clear.uop_end = 3;
  Instruction store = Move(Opcode::kStore, Memory::kOut, 4, 32 / isa_.config().block, 1);
  store.push_prev = 1;
  Instruction finish{.op = Opcode::kFinish};
  finish.pop_next = 1;
  c.stream = {uops, clear, store, finish};
  EXPECT_EQ(support::Slug(Check(isa_, c)), "vta.tokens.race");  // both touch out[4]
  for (int64_t other : {0, 1, 2, 3}) {
    c.stream[2].sram_base = other;
    EXPECT_TRUE(Check(isa_, c).ok()) << other;
  }
}

// What the loops of one instruction touch, element by element.
std::set<std::pair<int, int64_t>> Touched(const std::vector<Access>& accesses, bool is_write) {
  std::set<std::pair<int, int64_t>> touched;
  for (const Access& a : accesses) {
    EXPECT_LT(a.begin, a.end);
    if (a.is_write != is_write || a.memory == static_cast<int>(Memory::kUop)) continue;
    for (int64_t e = a.begin; e < a.end; ++e) touched.emplace(a.memory, e);
  }
  return touched;
}

TEST_P(VtaTokenCheck, LoopsTouchWhatTheyEnumerate) {
  support::Rng rng(tests::TestSeed(6));
  const Config& c = isa_.config();
  std::vector<MicroOp> uops(static_cast<size_t>(c.uop));
  for (int round = 0; round < 200; ++round) {
    Instruction i = Once(rng.Bernoulli(0.5) ? Opcode::kGemm : Opcode::kAlu, rng.UniformInt(0, 3));
    i.iter_out = rng.UniformInt(0, 9), i.iter_in = rng.UniformInt(0, 9);
    for (int64_t Instruction::* factor :
         {&Instruction::dst_factor_out, &Instruction::dst_factor_in, &Instruction::src_factor_out,
          &Instruction::src_factor_in}) {
      i.*factor = rng.UniformInt(0, rng.Bernoulli(0.5) ? 70 : c.acc - 1);
    }
    if (i.op == Opcode::kGemm) i.wgt_factor_in = rng.UniformInt(0, 90);
    for (size_t u = 0; u < 3; ++u) {
      uops[u] = {rng.UniformInt(0, c.acc - 1), rng.UniformInt(0, c.inp - 1),
                 rng.UniformInt(0, c.wgt - 1)};
    }
    std::set<std::pair<int, int64_t>> reads, writes;
    const auto add = [&](Memory memory, int64_t element, std::set<std::pair<int, int64_t>>* to) {
      if (element < isa_.InfoOf(memory).elements) to->emplace(static_cast<int>(memory), element);
    };
    for (int64_t o = 0; o < i.iter_out; ++o) {
      for (int64_t n = 0; n < i.iter_in; ++n) {
        for (size_t u = 0; u < static_cast<size_t>(i.uop_end); ++u) {
          const int64_t dst = uops[u].dst + o * i.dst_factor_out + n * i.dst_factor_in;
          const int64_t src = uops[u].src + o * i.src_factor_out + n * i.src_factor_in;
          add(Memory::kAcc, dst, &writes);
          add(Memory::kOut, dst, &writes);
          add(i.op == Opcode::kGemm ? Memory::kInp : Memory::kAcc, src, &reads);
          if (i.op == Opcode::kGemm) add(Memory::kWgt, uops[u].wgt + n * i.wgt_factor_in, &reads);
        }
      }
    }
    const std::vector<Access> accesses = AccessesOf(isa_, i, uops);
    EXPECT_EQ(Touched(accesses, false), reads) << Disassemble(i);
    EXPECT_EQ(Touched(accesses, true), writes) << Disassemble(i);
  }
}

TEST(VtaRangeMaxTest, IsThatOfAnArray) {
  support::Rng rng(tests::TestSeed(7));
  for (size_t size : {1u, 2u, 7u, 64u, 100u}) {
    RangeMax tree(size);
    std::vector<int64_t> array(size, 0);
    for (int round = 0; round < 500; ++round) {
      const size_t begin = rng.Uniform(size + 1), end = rng.Uniform(size + 1);
      if (rng.Bernoulli(0.3)) {
        const int64_t value = rng.UniformInt(0, 1000);
        tree.Raise(begin, end, value);
        for (size_t i = begin; i < end; ++i) array[i] = std::max(array[i], value);
      }
      const size_t from = rng.Uniform(size + 1), to = rng.Uniform(size + 1);
      int64_t expected = 0;
      for (size_t i = from; i < to; ++i) expected = std::max(expected, array[i]);
      ASSERT_EQ(tree.Max(from, to), expected) << size;
    }
  }
}

}  // namespace
}  // namespace tilewright::vta
