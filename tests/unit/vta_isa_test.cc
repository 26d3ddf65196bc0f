// The instruction set table: bits that do not collide, values that survive encoding, values that
// are refused; and what single instructions do in the functional simulator and the token check.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "deploy/support/rng.h"
#include "deploy/support/status.h"
#include "vta/isa/code_object.h"
#include "vta/isa/isa.h"
#include "vta/sim/functional_sim.h"
#include "vta/sim/token_check.h"

namespace tilewright::vta {
namespace {

constexpr Opcode kOpcodes[] = {
#define TW_VTA_OPCODE(Name, text, value, Format) Opcode::k##Name,
#include "vta/isa/isa.def"
};

bool Has(Opcode op, const FieldInfo& field) {
  Format format = FormatOf(op);
  bool loops = format == Format::Gemm || format == Format::Alu;
  return field.format == Format::Common || field.format == format ||
         (field.format == Format::Loops && loops);
}

TEST(VtaIsaTest, FieldsOfAnInstructionDoNotOverlap) {
  for (Opcode op : kOpcodes) {
    std::vector<bool> taken(128, false);
    taken[0] = taken[1] = taken[2] = true;
    for (const FieldInfo& field : Fields()) {
      if (!Has(op, field)) continue;
      EXPECT_EQ(field.lsb / 64, (field.lsb + field.width - 1) / 64) << field.name << " straddles";
      for (int bit = field.lsb; bit < field.lsb + field.width; ++bit) {
        EXPECT_FALSE(taken[static_cast<size_t>(bit)]) << OpcodeText(op) << " " << field.name;
        taken[static_cast<size_t>(bit)] = true;
      }
    }
  }
}

// Words put together by hand from the published format.
TEST(VtaIsaTest, BitsAreWhereTheFormatHasThem) {
  Instruction load{.op = Opcode::kLoad};
  load.pop_next = load.push_next = 1;
  load.memory = static_cast<int64_t>(Memory::kInp);
  load.sram_base = 3, load.dram_base = 0x12345678;
  load.y_size = 5, load.x_size = 7, load.x_stride = 9;
  load.y_pad_0 = 1, load.y_pad_1 = 2, load.x_pad_0 = 3, load.x_pad_1 = 4;
  auto word = Encode(load);
  ASSERT_TRUE(word.ok()) << word.status();
  EXPECT_EQ(word->low, 0u | 1u << 4 | 1u << 6 | 2u << 7 | 3u << 10 | uint64_t{0x12345678} << 26);
  EXPECT_EQ(word->high, uint64_t{5} | uint64_t{7} << 16 | uint64_t{9} << 32 | uint64_t{1} << 48 |
                            uint64_t{2} << 52 | uint64_t{3} << 56 | uint64_t{4} << 60);
  Instruction alu{.op = Opcode::kAlu};
  alu.uop_begin = 1, alu.uop_end = 2, alu.iter_out = 3, alu.iter_in = 4;
  alu.dst_factor_in = 5, alu.src_factor_in = 6;
  alu.operation = static_cast<int64_t>(AluOp::kShr), alu.use_imm = 1, alu.imm = -2;
  word = Encode(alu);
  ASSERT_TRUE(word.ok()) << word.status();
  EXPECT_EQ(word->low, uint64_t{4} | uint64_t{1} << 8 | uint64_t{2} << 21 | uint64_t{3} << 35 |
                           uint64_t{4} << 49);
  EXPECT_EQ(word->high, uint64_t{5} << 11 | uint64_t{6} << 33 | uint64_t{3} << 44 |
                            uint64_t{1} << 47 | uint64_t{0xfffe} << 48);
  EXPECT_EQ(Disassemble(alu),
            "alu uop_begin=1 uop_end=2 iter_out=3 iter_in=4 dst_factor_in=5 src_factor_in=6 "
            "operation=shr use_imm=1 imm=-2");
  EXPECT_EQ(Disassemble(load),
            "load memory=inp sram_base=3 dram_base=305419896 y_size=5 x_size=7 x_stride=9 "
            "y_pad_0=1 y_pad_1=2 x_pad_0=3 x_pad_1=4 | pop_next push_next");
}

TEST(VtaIsaTest, RandomInstructionsRoundTrip) {
  support::Rng rng(11);
  int decoded = 0;
  for (int i = 0; i < 20000; ++i) {
    Word128 word{rng.NextU64(), rng.NextU64()};
    auto instruction = Decode(word);
    if (!instruction.ok()) continue;
    ++decoded;
    auto again = Encode(*instruction);
    ASSERT_TRUE(again.ok()) << again.status() << " " << Disassemble(*instruction);
    ASSERT_EQ(*Decode(*again), *instruction);
  }
  EXPECT_GT(decoded, 5000);
  for (int i = 0; i < 1000; ++i) {
    uint32_t word = static_cast<uint32_t>(rng.NextU64());
    ASSERT_EQ(*EncodeUop(DecodeUop(word)), word);
  }
}

TEST(VtaIsaTest, ValuesThatDoNotFitAreRefused) {
  Instruction load{.op = Opcode::kLoad};
  load.x_size = 1 << 16;
  EXPECT_EQ(support::Slug(Encode(load).status()), "vta.isa.field");
  EXPECT_THAT(support::StatusText(Encode(load).status()),
              testing::HasSubstr("load x_size: expected 16 bits, found 65536"));
  load.x_size = -1;
  EXPECT_EQ(support::Slug(Encode(load).status()), "vta.isa.field");
  Instruction alu{.op = Opcode::kAlu};
  alu.imm = 32768;
  EXPECT_EQ(support::Slug(Encode(alu).status()), "vta.isa.field");
  alu.imm = -32768;
  EXPECT_TRUE(Encode(alu).ok());
  alu.wgt_factor_in = 1;  // not a field of alu
  EXPECT_EQ(support::Slug(Encode(alu).status()), "vta.isa.field");
  EXPECT_EQ(support::Slug(EncodeUop({.dst = 2048}).status()), "vta.isa.field");
  EXPECT_EQ(support::Slug(Decode({7, 0}).status()), "vta.isa.opcode");
  EXPECT_EQ(support::Slug(Decode({7u << 7, 0}).status()), "vta.isa.memory");
  EXPECT_EQ(support::Slug(Decode({4, uint64_t{7} << 44}).status()), "vta.isa.operation");
}

// -------------------------------------------------------------------------- the simulator

std::vector<Word128> Encoded(const std::vector<Instruction>& stream) {
  std::vector<Word128> words;
  for (const Instruction& i : stream) {
    auto word = Encode(i);
    EXPECT_TRUE(word.ok()) << word.status();
    words.push_back(word.ok() ? *word : Word128{});
  }
  return words;
}

Instruction Move(Opcode op, Memory memory, int64_t sram, int64_t dram, int64_t count) {
  Instruction i{.op = op};
  i.memory = static_cast<int64_t>(memory);
  i.sram_base = sram, i.dram_base = dram;
  i.y_size = 1, i.x_size = i.x_stride = count;
  return i;
}

// One micro-op at DRAM 0, one input at 16, its weights at 256, the result at 512.
struct OneProduct {
  std::vector<Instruction> stream;
  std::vector<uint8_t> dram = std::vector<uint8_t>(1024, 0);

  OneProduct() {
    for (int i = 0; i < 16; ++i) dram[16 + i] = static_cast<uint8_t>(i - 8);
    for (int i = 0; i < 256; ++i) dram[256 + i] = static_cast<uint8_t>(i * 7);
    Instruction uop = Move(Opcode::kLoad, Memory::kUop, 0, 0, 1);
    Instruction inp = Move(Opcode::kLoad, Memory::kInp, 0, 1, 1);
    Instruction wgt = Move(Opcode::kLoad, Memory::kWgt, 0, 1, 1);
    wgt.push_next = 1;
    Instruction reset{.op = Opcode::kGemm};
    reset.reset = 1, reset.uop_end = reset.iter_out = reset.iter_in = 1;
    Instruction gemm = reset;
    gemm.reset = 0, gemm.pop_prev = 1;
    Instruction shift{.op = Opcode::kAlu};
    shift.uop_end = shift.iter_out = shift.iter_in = 1;
    shift.operation = static_cast<int64_t>(AluOp::kShr), shift.use_imm = 1, shift.imm = 3;
    shift.push_next = 1;
    Instruction store = Move(Opcode::kStore, Memory::kOut, 0, 32, 1);
    store.pop_prev = store.push_prev = 1;
    Instruction finish{.op = Opcode::kFinish};
    finish.pop_next = 1;
    stream = {uop, inp, wgt, reset, gemm, shift, store, finish};
  }
  int8_t Expected(int out) const {
    int32_t sum = 0;
    for (int in = 0; in < 16; ++in) {
      sum += static_cast<int8_t>(dram[16 + in]) * static_cast<int8_t>(dram[256 + 16 * out + in]);
    }
    return static_cast<int8_t>(sum >> 3);
  }
};

TEST(VtaSimTest, OneMatrixProduct) {
  OneProduct p;
  EXPECT_TRUE(CheckTokens(Encoded(p.stream), p.dram).ok());
  for (uint64_t seed = 0; seed < 20; ++seed) {
    std::vector<uint8_t> dram = p.dram;
    SimCounters counters;
    absl::Status ran = RunFunctional(Encoded(p.stream), seed, &dram, &counters);
    ASSERT_TRUE(ran.ok()) << ran;
    for (int o = 0; o < 16; ++o) EXPECT_EQ(static_cast<int8_t>(dram[512 + o]), p.Expected(o)) << o;
    EXPECT_EQ(counters.instructions, 8);
    EXPECT_EQ(counters.gemm_iterations, 2);
    EXPECT_EQ(counters.bytes_loaded, 4 + 16 + 256);
    EXPECT_EQ(counters.bytes_stored, 16);
  }
}

TEST(VtaSimTest, PaddingIsZeros) {
  // 2 x 2 inputs with a border of one above and to the left.
  Instruction load = Move(Opcode::kLoad, Memory::kAcc, 0, 0, 2);
  load.y_size = 2, load.x_stride = 3, load.y_pad_0 = load.x_pad_0 = 1;
  Instruction touch{.op = Opcode::kAlu};  // acc + 0 over nine elements, so that out has them too
  touch.uop_end = touch.iter_out = 1, touch.iter_in = 9, touch.dst_factor_in = 1;
  touch.operation = static_cast<int64_t>(AluOp::kAdd), touch.use_imm = 1, touch.push_next = 1;
  Instruction store = Move(Opcode::kStore, Memory::kOut, 0, 64, 9);
  store.pop_prev = store.push_prev = 1;
  Instruction finish{.op = Opcode::kFinish};
  finish.pop_next = 1;
  Instruction uop = Move(Opcode::kLoad, Memory::kUop, 0, 255, 1);
  std::vector<uint8_t> dram(2048, 0);
  for (int e = 0; e < 6; ++e) {
    for (int l = 0; l < 16; ++l)
      dram[static_cast<size_t>(e * 64 + 4 * l)] = static_cast<uint8_t>(e + 1);
  }
  absl::Status ran = RunFunctional(Encoded({uop, load, touch, store, finish}), 1, &dram);
  ASSERT_TRUE(ran.ok()) << ran;
  const int expected[9] = {0, 0, 0, 0, 1, 2, 0, 4, 5};
  for (int e = 0; e < 9; ++e) EXPECT_EQ(dram[static_cast<size_t>(1024 + 16 * e)], expected[e]) << e;
}

TEST(VtaSimTest, WrongStreamsAreNamed) {
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
       ""},
      {"outside of a memory", [](OneProduct* p) { p->stream[1].sram_base = 2048; },
       "vta.sim.bounds", ""},
      {"outside of DRAM", [](OneProduct* p) { p->stream[6].dram_base = 64; }, "vta.sim.bounds", ""},
      {"no such neighbour", [](OneProduct* p) { p->stream[1].pop_prev = 1; }, "vta.sim.illegal",
       "-"},
      {"no finish", [](OneProduct* p) { p->stream.pop_back(); }, "vta.sim.finish", "-"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.what);
    OneProduct p;
    c.change(&p);
    bool shown = false, wrong = false;
    for (uint64_t seed = 0; seed < 40; ++seed) {
      std::vector<uint8_t> dram = p.dram;
      absl::Status ran = RunFunctional(Encoded(p.stream), seed, &dram);
      shown = shown || support::Slug(ran) == c.sim;
      for (int o = 0; ran.ok() && o < 16; ++o) {
        wrong = wrong || static_cast<int8_t>(dram[512 + o]) != p.Expected(o);
      }
    }
    // A missing dependence shows as another result under some order of the modules.
    EXPECT_TRUE(c.sim[0] == '\0' ? wrong : shown);
    if (c.tokens[0] == '-') continue;
    EXPECT_EQ(support::Slug(CheckTokens(Encoded(p.stream), p.dram)), c.tokens);
  }
}

Program OneProgram() {
  Program program;
  program.name = "kernel";
  program.stream = OneProduct().stream;
  program.uops = {{.dst = 1, .src = 2, .wgt = 3}, {}};
  program.params = {{"A", 0, 48}, {"", 256, 256}};
  program.uop_offset = 512;
  program.image_bytes = 520;
  return program;
}

TEST(VtaCodeObjectTest, ProgramsSurviveTheirBytes) {
  Program other = OneProgram();
  other.name = "other";
  other.uops.clear();
  other.image_bytes = other.uop_offset;
  const std::vector<Program> programs = {OneProgram(), Program{}, other};
  auto bytes = SerializeCode(programs);
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  auto read = ParseCode(*bytes);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*read, programs);
  EXPECT_TRUE(ParseCode(*SerializeCode({}))->empty());
  Program wide = OneProgram();
  wide.uops[0].dst = 1 << 20;
  EXPECT_EQ(support::Slug(SerializeCode({&wide, 1}).status()), "vta.isa.field");
}

TEST(VtaCodeObjectTest, DamagedBytesAreRefused) {
  const Program program = OneProgram();
  const std::string bytes = *SerializeCode({&program, 1});
  for (size_t n = 0; n < bytes.size(); ++n)
    EXPECT_EQ(support::Slug(ParseCode(bytes.substr(0, n)).status()), "vta.code.format") << n;
  EXPECT_EQ(support::Slug(ParseCode(bytes + "x").status()), "vta.code.format");
  Program outside = program;
  outside.params[1].bytes = 257;
  EXPECT_EQ(support::Slug(ParseCode(*SerializeCode({&outside, 1})).status()), "vta.code.format");
  // Whatever the bytes say, nothing is read outside of them, and what is read fits its image.
  support::Rng rng(1);
  for (int round = 0; round < 2000; ++round) {
    std::string damaged = bytes;
    for (int i = 0; i < 3; ++i)
      damaged[rng.Uniform(damaged.size())] = static_cast<char>(rng.Uniform(256));
    auto read = ParseCode(damaged);
    if (!read.ok()) continue;
    for (const Program& p : *read) EXPECT_TRUE(p.image_bytes > (1 << 20) || p.Image().ok());
  }
}

}  // namespace
}  // namespace tilewright::vta
