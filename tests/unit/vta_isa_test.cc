// The instruction set table for every named configuration: bits that do not collide, values that
// survive encoding, values that are refused; configurations as texts; the manual; code objects.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "deploy/support/rng.h"
#include "deploy/support/status.h"
#include "tests/support/golden.h"
#include "tests/support/vta_streams.h"
#include "vta/isa/code_object.h"
#include "vta/isa/config.h"
#include "vta/isa/isa.h"
#include "vta/isa/manual.h"
#include "vta/isa/rtl_package.h"

namespace tilewright::vta {
namespace {

using tests::IsaOf;

constexpr Opcode kOpcodes[] = {
#define TW_VTA_OPCODE(Name, text, value, Format, what) Opcode::k##Name,
#include "vta/isa/isa.def"
};

class VtaIsa : public testing::TestWithParam<NamedConfig> {
 protected:
  const Isa isa_ = IsaOf(GetParam().config);
};
INSTANTIATE_TEST_SUITE_P(Configs, VtaIsa, testing::ValuesIn(NamedConfigs()),
                         [](const auto& row) { return std::string(row.param.name); });

TEST_P(VtaIsa, FieldsOfAnInstructionDoNotOverlap) {
  for (Opcode op : kOpcodes) {
    std::vector<bool> taken(128, false);
    taken[0] = taken[1] = taken[2] = true;
    for (const FieldInfo& field : isa_.Fields()) {
      if (!HasFields(FormatOf(op), field.format)) continue;
      EXPECT_EQ(field.lsb / 64, (field.lsb + field.width - 1) / 64) << field.name << " straddles";
      for (int bit = field.lsb; bit < field.lsb + field.width; ++bit) {
        EXPECT_FALSE(taken[static_cast<size_t>(bit)]) << OpcodeText(op) << " " << field.name;
        taken[static_cast<size_t>(bit)] = true;
      }
    }
  }
}

TEST_P(VtaIsa, RandomInstructionsRoundTrip) {
  support::Rng rng(11);
  int decoded = 0;
  for (int i = 0; i < 20000; ++i) {
    Word128 word{rng.NextU64(), rng.NextU64()};
    auto instruction = isa_.Decode(word);
    if (!instruction.ok()) continue;
    ++decoded;
    auto again = isa_.Encode(*instruction);
    ASSERT_TRUE(again.ok()) << again.status() << " " << Disassemble(*instruction);
    ASSERT_EQ(*isa_.Decode(*again), *instruction);
  }
  EXPECT_GT(decoded, 5000);
  for (int i = 0; i < 1000; ++i) {
    MicroOp uop;
    for (const UopFieldInfo& field : isa_.UopFields())
      uop.*field.member = rng.UniformInt(0, (1 << field.width) - 1);
    auto word = isa_.EncodeUop(uop);
    ASSERT_TRUE(word.ok()) << word.status();
    ASSERT_EQ(isa_.DecodeUop(*word), uop);
  }
}

// The last element of every memory can be named, and nothing beyond it in a micro-op.
TEST_P(VtaIsa, MicroOpsReachTheWholeMemories) {
  const Config& c = isa_.config();
  const MicroOp last{.dst = c.acc - 1, .src = std::max(c.inp, c.acc) - 1, .wgt = c.wgt - 1};
  EXPECT_TRUE(isa_.EncodeUop(last).ok());
  for (int64_t MicroOp::* member : {&MicroOp::dst, &MicroOp::src, &MicroOp::wgt}) {
    MicroOp beyond = last;
    ++(beyond.*member);
    EXPECT_EQ(support::Slug(isa_.EncodeUop(beyond).status()), "vta.isa.field");
  }
}

TEST_P(VtaIsa, ConfigurationsSurviveTheirText) {
  const Config& c = isa_.config();
  auto read = ParseConfig(c.ToString());
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*read, c);
  EXPECT_EQ(read->Id(), c.Id());
  auto named = FindConfig(GetParam().name);
  ASSERT_TRUE(named.ok()) << named.status();
  EXPECT_EQ(*named, c);
  Config other = c;
  other.iter_bits -= 1;
  EXPECT_NE(other.Id(), c.Id());
  EXPECT_TRUE(CheckSameConfig(c, *read).ok());
  EXPECT_EQ(support::Slug(CheckSameConfig(c, other)), "vta.config.other");
}

TEST(VtaConfigTest, BlocksAreThePowersOfTwoOfTheTable) {
  EXPECT_THAT(BlockSizes(), testing::ElementsAre(16, 8, 32));
}

// The identifier is in stored names: it never changes.
TEST(VtaConfigTest, TheDefaultIsThePublishedOne) {
  const Config c;
  EXPECT_EQ(c, NamedConfigs()[0].config);
  EXPECT_EQ(c.ToString(),
            "block=16,uop=8192,wgt=1024,inp=2048,acc=2048,sram_bits=16,dram_bits=32,size_bits=16,"
            "pad_bits=4,iter_bits=14,imm_bits=16");
  EXPECT_EQ(c.Id(), "b16-27b74ddb18e4b421");
  EXPECT_EQ(ParseConfig("block=8,wgt=512")->wgt, 512);
}

TEST(VtaConfigTest, ImpossibleConfigurationsAreRefused) {
  struct Case {
    const char* text;
    const char* slug;
    const char* says;
  };
  const Case cases[] = {
      {"", "vta.config.text", "found \"\""},
      {"block", "vta.config.text", "block"},
      {"lanes=16", "vta.config.text", "lanes=16"},
      {"block=x", "vta.config.text", "block=x"},
      {"block=16,block=16", "vta.config.text", "block twice"},
      {"block=24", "vta.config.value", "block: expected a power of two from 8 to 32, found 24"},
      {"block=64", "vta.config.value", "found 64"},
      {"pad_bits=9", "vta.config.value", "pad_bits: expected 1 to 4, found 9"},
      {"acc=4096", "vta.config.bits", "64 bits"},
      {"acc=1024,inp=1024,wgt=65536,imm_bits=8", "vta.config.bits", "64 bits"},
      {"acc=16,inp=16,sram_bits=12", "vta.config.bits", "sram_bits: expected at least 13"},
      {"dram_bits=40,sram_bits=24", "vta.config.bits", "dram_base that ends at 74"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.text);
    const absl::Status status = ParseConfig(c.text).status();
    EXPECT_EQ(support::Slug(status), c.slug);
    EXPECT_THAT(support::StatusText(status), testing::HasSubstr(c.says));
  }
  EXPECT_EQ(support::Slug(Isa::Make({.block = 5}).status()), "vta.config.value");
  EXPECT_EQ(support::Slug(FindConfig("block5").status()), "vta.config.name");
}

TEST(VtaIsaTest, TheManualIsThatOfTheTable) {
  EXPECT_TRUE(tests::MatchesGolden("../../vta/isa/MANUAL.md", ManualText()));
}

TEST(VtaIsaTest, TheRtlPackageIsThatOfTheTable) {
  EXPECT_TRUE(tests::MatchesGolden("../../vta/isa/vta_isa.sv", RtlPackageText(NamedConfigs())));
}

// A configuration without a name has a package of its own.
TEST(VtaIsaTest, TheRtlPackageHasTheBitsOfTheConfiguration) {
  const NamedConfig small[] = {{"small", {.block = 8, .uop = 64, .inp = 32, .acc = 32}}};
  const std::string text = RtlPackageText(small);
  EXPECT_THAT(text, testing::HasSubstr("UOP_ELEMENTS = 64;"));
  EXPECT_THAT(text, testing::HasSubstr("WGT_BYTES = 64;"));
  EXPECT_THAT(text, testing::HasSubstr("logic [6:0] uop_end;"));
  EXPECT_THAT(text, testing::HasSubstr("logic signed [15:0] imm;"));
  EXPECT_THAT(text, testing::Not(testing::HasSubstr("VTA_CONFIG_small")));
}

// Words put together by hand from the published format.
TEST(VtaIsaTest, BitsAreWhereTheFormatHasThem) {
  const Isa isa = IsaOf(Config{});
  Instruction load{.op = Opcode::kLoad};
  load.pop_next = load.push_next = 1;
  load.memory = static_cast<int64_t>(Memory::kInp);
  load.sram_base = 3, load.dram_base = 0x12345678;
  load.y_size = 5, load.x_size = 7, load.x_stride = 9;
  load.y_pad_0 = 1, load.y_pad_1 = 2, load.x_pad_0 = 3, load.x_pad_1 = 4;
  auto word = isa.Encode(load);
  ASSERT_TRUE(word.ok()) << word.status();
  EXPECT_EQ(word->low, 0u | 1u << 4 | 1u << 6 | 2u << 7 | 3u << 10 | uint64_t{0x12345678} << 26);
  EXPECT_EQ(word->high, uint64_t{5} | uint64_t{7} << 16 | uint64_t{9} << 32 | uint64_t{1} << 48 |
                            uint64_t{2} << 52 | uint64_t{3} << 56 | uint64_t{4} << 60);
  Instruction alu{.op = Opcode::kAlu};
  alu.uop_begin = 1, alu.uop_end = 2, alu.iter_out = 3, alu.iter_in = 4;
  alu.dst_factor_in = 5, alu.src_factor_in = 6;
  alu.operation = static_cast<int64_t>(AluOp::kShr), alu.use_imm = 1, alu.imm = -2;
  word = isa.Encode(alu);
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

TEST(VtaIsaTest, ValuesThatDoNotFitAreRefused) {
  const Isa isa = IsaOf(Config{});
  Instruction load{.op = Opcode::kLoad};
  load.x_size = 1 << 16;
  EXPECT_EQ(support::Slug(isa.Encode(load).status()), "vta.isa.field");
  EXPECT_THAT(support::StatusText(isa.Encode(load).status()),
              testing::HasSubstr("load x_size: expected 16 bits, found 65536"));
  load.x_size = -1;
  EXPECT_EQ(support::Slug(isa.Encode(load).status()), "vta.isa.field");
  Instruction alu{.op = Opcode::kAlu};
  alu.imm = 32768;
  EXPECT_EQ(support::Slug(isa.Encode(alu).status()), "vta.isa.field");
  alu.imm = -32768;
  EXPECT_TRUE(isa.Encode(alu).ok());
  alu.wgt_factor_in = 1;  // not a field of alu
  EXPECT_EQ(support::Slug(isa.Encode(alu).status()), "vta.isa.field");
  EXPECT_EQ(support::Slug(isa.EncodeUop({.dst = 2048}).status()), "vta.isa.field");
  EXPECT_EQ(support::Slug(isa.Decode({7, 0}).status()), "vta.isa.opcode");
  EXPECT_EQ(support::Slug(isa.Decode({7u << 7, 0}).status()), "vta.isa.memory");
  EXPECT_EQ(support::Slug(isa.Decode({4, uint64_t{7} << 44}).status()), "vta.isa.operation");
}

Program OneProgram() {
  Instruction load{.op = Opcode::kLoad};
  load.x_size = load.x_stride = load.y_size = load.push_next = 1;
  Instruction gemm{.op = Opcode::kGemm};
  gemm.uop_end = 2, gemm.iter_out = gemm.iter_in = 1, gemm.pop_prev = 1;
  Program program;
  program.name = "kernel";
  program.stream = {load, gemm, Instruction{.op = Opcode::kFinish}};
  program.uops = {{.dst = 1, .src = 2, .wgt = 3}, {}};
  program.params = {{"A", 0, 48}, {"", 256, 256}};
  program.uop_offset = 512;
  program.image_bytes = 520;
  return program;
}

TEST_P(VtaIsa, ProgramsSurviveTheirBytes) {
  Program other = OneProgram();
  other.name = "other";
  other.uops.clear();
  other.image_bytes = other.uop_offset;
  const CodeObject code{isa_.config(), {OneProgram(), Program{}, other}};
  auto bytes = SerializeCode(code);
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  auto read = ParseCode(*bytes);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*read, code);
  EXPECT_TRUE(ParseCode(*SerializeCode({}))->programs.empty());
  Program wide = OneProgram();
  wide.uops[0].dst = 1 << 20;
  EXPECT_EQ(support::Slug(SerializeCode({isa_.config(), {wide}}).status()), "vta.isa.field");
  EXPECT_EQ(support::Slug(SerializeCode({{.block = 5}, {}}).status()), "vta.config.value");
}

TEST(VtaCodeObjectTest, DamagedBytesAreRefused) {
  const Program program = OneProgram();
  const std::string bytes = *SerializeCode({Config{}, {program}});
  for (size_t n = 0; n < bytes.size(); ++n)
    EXPECT_EQ(support::Slug(ParseCode(bytes.substr(0, n)).status()), "vta.code.format") << n;
  EXPECT_EQ(support::Slug(ParseCode(bytes + "x").status()), "vta.code.format");
  Program outside = program;
  outside.params[1].bytes = 257;
  EXPECT_EQ(support::Slug(ParseCode(*SerializeCode({Config{}, {outside}})).status()),
            "vta.code.format");
  // Whatever the bytes say, nothing is read outside of them, and what is read fits its image.
  support::Rng rng(1);
  for (int round = 0; round < 2000; ++round) {
    std::string damaged = bytes;
    for (int i = 0; i < 3; ++i)
      damaged[rng.Uniform(damaged.size())] = static_cast<char>(rng.Uniform(256));
    auto read = ParseCode(damaged);
    if (!read.ok()) continue;
    const Isa isa = IsaOf(read->config);
    for (const Program& p : read->programs)
      EXPECT_TRUE(p.image_bytes > (1 << 20) || p.Image(isa).ok());
  }
}

}  // namespace
}  // namespace tilewright::vta
