// VTA programs: loops of tensor intrinsics become an instruction stream whose flags order every
// conflict and whose result, whatever module goes first, is that of the interpreter.
#include "compiler/targets/vta/vta_codegen.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "compiler/ir/interp.h"
#include "compiler/ir/ir_text.h"
#include "compiler/ir/verify.h"
#include "compiler/schedule/schedule.h"
#include "compiler/targets/backend.h"
#include "compiler/targets/vta/vta_tokens.h"
#include "compiler/targets/vta/vta_uops.h"
#include "compiler/transform/passes.h"
#include "deploy/support/file.h"
#include "deploy/support/rng.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"
#include "tests/support/equivalence.h"
#include "tests/support/golden.h"
#include "tests/support/vta_streams.h"
#include "vta/sim/functional_sim.h"
#include "vta/sim/token_check.h"

namespace tilewright::vta {
namespace {

using support::StrCat;
using tests::IsaOf;
using tests::MatchesGolden;

constexpr uint64_t kSeeds = 25;

ir::Function Parsed(const std::string& text) {
  auto f = ir::ParseFunction(text);
  EXPECT_TRUE(f.ok()) << f.status();
  EXPECT_TRUE(ir::Verify(*f).ok()) << ir::Verify(*f);
  return *f;
}

// The program of a function for a named configuration, read from the artifact's bytes.
absl::StatusOr<Program> Generated(const ir::Function& f, std::string_view config = "block16") {
  const target::Target target{.kind = "vta", .cpu = std::string(config)};
  const std::vector<ir::Function> functions = {f};
  TW_ASSIGN(const codegen::Artifact artifact, kBackend.generate({functions, target, {}}));
  TW_ASSIGN(const CodeObject code, ParseCode(artifact.bytes));
  EXPECT_EQ(code.config, *FindConfig(config));
  EXPECT_EQ(code.programs.size(), 1u);
  return code.programs.at(0);
}

// Fills the parameters with data, runs the stream under many orders of the modules and compares
// every output with the interpreter's of `base`.
void ExpectRuns(const ir::Function& base, const Program& program, const Config& config,
                std::vector<ir::TensorData> data) {
  const Isa isa = IsaOf(config);
  auto words = program.Encoded(isa);
  ASSERT_TRUE(words.ok()) << words.status();
  auto image = program.Image(isa);
  ASSERT_TRUE(image.ok()) << image.status();
  absl::Status tokens = CheckTokens(isa, *words, *image);
  ASSERT_TRUE(tokens.ok()) << tokens << "\n" << program.Listing();
  std::vector<ir::TensorData> expected = data;
  std::vector<ir::TensorData*> args;
  for (ir::TensorData& d : expected) args.push_back(&d);
  absl::Status interpreted = ir::Interpret(base, {}, args);
  ASSERT_TRUE(interpreted.ok()) << interpreted;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    std::vector<uint8_t> dram = *image;
    for (size_t i = 0; i < data.size(); ++i) {
      ASSERT_EQ(static_cast<int64_t>(data[i].bytes.size()), program.params[i].bytes);
      std::memcpy(dram.data() + program.params[i].offset, data[i].bytes.data(),
                  data[i].bytes.size());
    }
    absl::Status ran = RunFunctional(isa, *words, seed, &dram);
    ASSERT_TRUE(ran.ok()) << ran << "\n" << program.Listing();
    for (size_t i = 0; i < data.size(); ++i) {
      if (base.params[i]->role != ir::Role::kOutput) continue;
      ASSERT_EQ(std::memcmp(dram.data() + program.params[i].offset, expected[i].bytes.data(),
                            expected[i].bytes.size()),
                0)
          << base.params[i]->name << " differs, seed " << seed << "\n"
          << program.Listing();
    }
  }
}

void ExpectRuns(const ir::Function& base, const Program& program, const Config& config = {}) {
  ExpectRuns(base, program, config, tests::SeededArguments(base, {}, 5));
}

// Y = i8(min(max(floordiv(A x W, 32), -128), 127)): two halves of the rows of W side by side, each
// with slices of the memories of its own (what two virtual threads become).
constexpr char kTwoThreads[] = R"(
fn gemm(A: i8[6,3,16] input, W: i8[4,3,16,16] constant, Y: i8[6,4,16] output) stage=loops {
  for n in 0..2 {
    alloc C: i32[2,6,16] scope=vta.acc {
    alloc S: i32[2,6,16] scope=vta.acc {
    alloc X: i32[2,6,16] scope=vta.acc {
    alloc N: i32[2,6,16] scope=vta.acc {
    alloc AI: i8[2,6,16] scope=vta.inp {
    alloc WI: i8[2,16,16] scope=vta.wgt {
      for m in 0..6 { for o in 0..16 @{tensor="vta.gemm.reset"} { C[0,m,o] = 0i32; } }
      for m in 0..6 { for o in 0..16 @{tensor="vta.gemm.reset"} { C[1,m,o] = 0i32; } }
      for k in 0..3 {
        for y in 0..6 @{tensor="vta.load.inp"} { for x in 0..1 { for l in 0..16 {
          AI[0,y,l] = A[y,k + x,l]; } } }
        for y in 0..1 @{tensor="vta.load.wgt"} { for x in 0..1 { for o in 0..16 { for l in 0..16 {
          WI[x,o,l] = W[n * 2 + y,k,o,l]; } } } }
        for y in 0..6 @{tensor="vta.load.inp"} { for x in 0..1 { for l in 0..16 {
          AI[1,y,l] = A[y,k + x,l]; } } }
        for y in 0..1 @{tensor="vta.load.wgt"} { for x in 0..1 { for o in 0..16 { for l in 0..16 {
          WI[1 + x,o,l] = W[n * 2 + 1 + y,k,o,l]; } } } }
        for m in 0..6 { for o in 0..16 @{tensor="vta.gemm"} { for i in 0..16 {
          C[0,m,o] = C[0,m,o] + i32(AI[0,m,i]) * i32(WI[0,o,i]); } } }
        for m in 0..6 { for o in 0..16 @{tensor="vta.gemm"} { for i in 0..16 {
          C[1,m,o] = C[1,m,o] + i32(AI[1,m,i]) * i32(WI[1,o,i]); } } }
      }
      for t in 0..2 { for m in 0..6 { for l in 0..16 @{tensor="vta.alu.shr.imm"} {
        S[t,m,l] = floordiv(C[t,m,l], 32i32); } } }
      for t in 0..2 { for m in 0..6 { for l in 0..16 @{tensor="vta.alu.max.imm"} {
        X[t,m,l] = max(S[t,m,l], -128i32); } } }
      for t in 0..2 { for m in 0..6 { for l in 0..16 @{tensor="vta.alu.min.imm"} {
        N[t,m,l] = min(X[t,m,l], 127i32); } } }
      for t in 0..2 {
        for y in 0..6 @{tensor="vta.store"} { for x in 0..1 { for l in 0..16 {
          Y[y,n * 2 + t + x,l] = i8(N[t,y,l]); } } }
      }
    } } } } } }
  }
}
)";

// A text that is written for 16 lanes, with others.
std::string WithLanes(std::string text, int64_t lanes) {
  for (size_t at = 0; (at = text.find("16", at)) != std::string::npos; ++at)
    text.replace(at, 2, std::to_string(lanes));
  return text;
}

TEST(VtaCodegenTest, EveryConfigurationRunsItsOwnBlocks) {
  for (const NamedConfig& hardware : NamedConfigs()) {
    for (const NamedConfig& code : NamedConfigs()) {
      SCOPED_TRACE(StrCat(code.name, " on ", hardware.name));
      const ir::Function f = Parsed(WithLanes(kTwoThreads, code.config.block));
      auto program = Generated(f, hardware.name);
      if (&hardware == &code) {
        ASSERT_TRUE(program.ok()) << program.status();
        ExpectRuns(f, *program, hardware.config);
      } else {
        EXPECT_EQ(support::Slug(program.status()), "codegen.vta.block");
      }
    }
  }
  EXPECT_EQ(support::Slug(Generated(Parsed(kTwoThreads), "block7").status()), "vta.config.name");
}

TEST(VtaCodegenTest, MatrixProductOfTwoThreads) {
  ir::Function f = Parsed(kTwoThreads);
  auto program = Generated(f);
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_TRUE(MatchesGolden("codegen/vta_two_threads.txt", program->Listing()));
  ExpectRuns(f, *program);
  // Products begin their sums: nothing clears them.
  for (const Instruction& i : program->stream) EXPECT_EQ(i.reset, 0) << Disassemble(i);
  // The chain of ALU operations works in place: one accumulator per thread and row.
  for (const vta::MicroOp& u : program->uops) EXPECT_LT(u.dst, 12);
}

// Sums whose first product is a part of one instruction's loops: those that stay at one sum are
// micro-ops, or one or both of the instruction's own.
constexpr char kLoopsOfSums[] = R"(
fn sums(A: i8[60,16] input, W: i8[60,16,16] constant, Y: i8[$m,16] output) stage=loops {
  alloc C: i32[$m,16] scope=vta.acc {
  alloc S: i32[$m,16] scope=vta.acc {
  alloc AI: i8[60,16] scope=vta.inp {
  alloc WI: i8[60,16,16] scope=vta.wgt {
    for m in 0..$m { for o in 0..16 @{tensor="vta.gemm.reset"} { C[m,o] = 0i32; } }
    for x in 0..60 @{tensor="vta.load.inp"} { for l in 0..16 { AI[x,l] = A[x,l]; } }
    for x in 0..60 @{tensor="vta.load.wgt"} { for o in 0..16 { for l in 0..16 {
      WI[x,o,l] = W[x,o,l]; } } }
    for a in 0..$a { for b in 0..$b { for m in 0..$m { for c in 0..$c {
      for o in 0..16 @{tensor="vta.gemm"} { for i in 0..16 {
        C[m,o] = C[m,o] + i32(AI[a * 12 + b * 6 + c,i]) * i32(WI[c * 10 + b * 5 + a,o,i]);
      } } } } } }
    for m in 0..$m { for l in 0..16 @{tensor="vta.alu.shr.imm"} {
      S[m,l] = floordiv(C[m,l], 64i32); } }
    for x in 0..$m @{tensor="vta.store"} { for l in 0..16 { Y[x,l] = i8(S[x,l]); } }
  } } } }
}
)";
TEST(VtaCodegenTest, FirstProductsBeginTheirSums) {
  struct Case {
    int64_t m, a, b, c;
    int64_t products;  // instructions, at least
  };
  for (const Case& row :
       {Case{12, 2, 2, 6, 3}, {3, 5, 2, 6, 4}, {7, 2, 2, 2, 3}, {1, 1, 1, 1, 1}, {2, 1, 1, 6, 2}}) {
    SCOPED_TRACE(StrCat(row.m, " ", row.a, " ", row.b, " ", row.c));
    std::string text = kLoopsOfSums;
    for (const auto& [name, size] :
         {std::pair("$m", row.m), {"$a", row.a}, {"$b", row.b}, {"$c", row.c}}) {
      for (size_t at = 0; (at = text.find(name, at)) != std::string::npos;)
        text.replace(at, 2, StrCat(size));
    }
    const ir::Function f = Parsed(text);
    auto program = Generated(f);
    ASSERT_TRUE(program.ok()) << program.status();
    int64_t products = 0, begun = 0, all = 0;
    for (const Instruction& i : program->stream) {
      if (i.op != Opcode::kGemm) continue;
      const int64_t points = i.iter_out * i.iter_in * (i.uop_end - i.uop_begin);
      ++products;
      all += points;
      begun += i.overwrite != 0 ? points : 0;
      EXPECT_EQ(i.reset, 0);
    }
    // The first one may be in parts.
    EXPECT_GE(products, row.products);
    EXPECT_EQ(begun, row.m);
    EXPECT_EQ(all, row.m * row.a * row.b * row.c);
    ExpectRuns(f, *program);
  }
}

// Of six sums, three have a product. The others are cleared when they are read; those that nobody
// reads, never.
TEST(VtaCodegenTest, SumsWithoutAProductAreCleared) {
  const ir::Function f = Parsed(R"(
fn some(A: i8[3,16] input, W: i8[1,16,16] constant, Y: i8[6,16] output) stage=loops {
  alloc D: i32[6,16] scope=vta.acc {
  alloc C: i32[6,16] scope=vta.acc {
  alloc S: i32[6,16] scope=vta.acc {
  alloc AI: i8[3,16] scope=vta.inp {
  alloc WI: i8[1,16,16] scope=vta.wgt {
    for m in 0..6 { for o in 0..16 @{tensor="vta.gemm.reset"} { C[m,o] = 0i32; } }
    for x in 0..3 @{tensor="vta.load.inp"} { for l in 0..16 { AI[x,l] = A[x,l]; } }
    for x in 0..1 @{tensor="vta.load.wgt"} { for o in 0..16 { for l in 0..16 {
      WI[x,o,l] = W[x,o,l]; } } }
    for m in 0..3 { for o in 0..16 @{tensor="vta.gemm"} { for i in 0..16 {
      C[m * 2,o] = C[m * 2,o] + i32(AI[m,i]) * i32(WI[0,o,i]); } } }
    for m in 0..6 { for l in 0..16 @{tensor="vta.alu.shr.imm"} {
      S[m,l] = floordiv(C[m,l], 64i32); } }
    for x in 0..6 @{tensor="vta.store"} { for l in 0..16 { Y[x,l] = i8(S[x,l]); } }
    for m in 0..6 { for o in 0..16 @{tensor="vta.gemm.reset"} { D[m,o] = 0i32; } }
  } } } } }
}
)");
  auto program = Generated(f);
  ASSERT_TRUE(program.ok()) << program.status();
  int64_t cleared = 0;
  for (const Instruction& i : program->stream) cleared += i.reset * i.iter_in;
  EXPECT_EQ(cleared, 3);
  ExpectRuns(f, *program);
}

// Planes that are further apart than an instruction can say, and rows that are longer: each is an
// instruction, or two.
TEST(VtaCodegenTest, LargeTransfersAreSeveral) {
  const ir::Function apart = Parsed(R"(
fn apart(V: i32[2,4098,32] input, Y: i8[2,4098,32] output) stage=loops {
  for t in 0..3 {
  alloc C: i32[2,1366,32] scope=vta.acc {
  alloc N: i32[2,1366,32] scope=vta.acc {
    for c in 0..2 { for x in 0..1366 @{tensor="vta.load.acc"} { for l in 0..32 {
      C[c,x,l] = V[c,t * 1366 + x,l]; } } }
    for c in 0..2 { for x in 0..1366 { for l in 0..32 @{tensor="vta.alu.max.imm"} {
      N[c,x,l] = max(C[c,x,l], -8i32); } } }
    for c in 0..2 { for x in 0..1366 @{tensor="vta.store"} { for l in 0..32 {
      Y[c,t * 1366 + x,l] = i8(N[c,x,l]); } } }
  } } }
}
)");
  const ir::Function longer = Parsed(R"(
fn longer(V: i32[4096,32] input, Y: i8[4096,32] output) stage=loops {
  alloc C: i32[4096,32] scope=vta.acc {
  alloc N: i32[4096,32] scope=vta.acc {
    for x in 0..4096 { for l in 0..32 @{tensor="vta.load.acc"} { C[x,l] = V[x,l]; } }
    for m in 0..2 { for n in 0..2048 { for l in 0..32 @{tensor="vta.alu.max.imm"} {
      N[m * 2048 + n,l] = max(C[m * 2048 + n,l], -8i32); } } }
    for x in 0..4096 { for l in 0..32 @{tensor="vta.store"} { Y[x,l] = i8(N[x,l]); } }
  } }
}
)");
  for (const auto& [f, loads] : {std::pair(&apart, 6), {&longer, 1}}) {
    SCOPED_TRACE(f->name);
    auto program = Generated(*f, "block32");
    ASSERT_TRUE(program.ok()) << program.status();
    int found = 0;
    for (const Instruction& i : program->stream)
      found += i.op == Opcode::kLoad && i.memory == static_cast<int64_t>(Memory::kAcc);
    EXPECT_EQ(found, loads);
    ExpectRuns(*f, *program, FindConfig("block32").value());
  }
}

// The program of the golden schedules with its steps (`#: steps` lines), scheduled.
struct GoldenProgram {
  ir::Function program, scheduled;
};
GoldenProgram ReadGolden(const std::string& name) {
  auto text = support::ReadFile(tests::GoldenPath("programs/" + name + ".tir"), 1 << 20);
  EXPECT_TRUE(text.ok()) << text.status();
  std::string steps;
  for (const std::string& line : support::Split(*text, '\n')) {
    if (line.starts_with("#: steps ")) steps += line.substr(9) + "; ";
  }
  GoldenProgram golden;
  golden.program = Parsed(*text);
  schedule::Schedule s(golden.program);
  s.set_verify_each(true);
  absl::Status applied = s.ApplyAll(*schedule::ParseSteps(steps));
  EXPECT_TRUE(applied.ok()) << applied << "\n" << s.Describe();
  golden.scheduled = s.function();
  return golden;
}

TEST(VtaCodegenTest, ScheduledMatrixProduct) {
  GoldenProgram golden = ReadGolden("vta_gemm");
  absl::Status same = tests::SameResults(golden.program, golden.scheduled);
  ASSERT_TRUE(same.ok()) << same;
  transform::PassContext ctx;
  ctx.verify_each = true;
  auto lowered = transform::RunPipeline(golden.scheduled, kBackend.pipeline(), ctx);
  ASSERT_TRUE(lowered.ok()) << lowered.status();
  auto program = Generated(*lowered);
  ASSERT_TRUE(program.ok()) << program.status() << "\n" << ir::Print(*lowered);
  EXPECT_TRUE(MatchesGolden("codegen/vta_gemm.txt", program->Listing())) << ir::Print(*lowered);
  ExpectRuns(golden.program, *program);
}

// Without any one flag the stream is wrong, and the check knows.
TEST(VtaCodegenTest, EveryFlagIsNeeded) {
  auto program = Generated(Parsed(kTwoThreads));
  ASSERT_TRUE(program.ok()) << program.status();
  const Isa isa = IsaOf(Config{});
  auto image = program->Image(isa);
  ASSERT_TRUE(image.ok());
  int flags = 0;
  int64_t vta::Instruction::* const kFlags[] = {
      &vta::Instruction::pop_prev, &vta::Instruction::pop_next, &vta::Instruction::push_prev,
      &vta::Instruction::push_next};
  for (vta::Instruction& i : program->stream) {
    for (auto flag : kFlags) {
      if (i.*flag == 0) continue;
      ++flags;
      i.*flag = 0;
      absl::Status checked = CheckTokens(isa, *program->Encoded(isa), *image);
      EXPECT_FALSE(checked.ok()) << vta::Disassemble(i);
      i.*flag = 1;
    }
  }
  EXPECT_GE(flags, 40);
}

// The threads overlap: the second thread's loads wait for nothing that the first one computes.
TEST(VtaCodegenTest, LoadsRunAhead) {
  auto program = Generated(Parsed(kTwoThreads));
  ASSERT_TRUE(program.ok());
  int waits = 0, loads = 0;
  for (const vta::Instruction& i : program->stream) {
    if (vta::ModuleOf(i) != vta::Module::kLoad) continue;
    ++loads;
    waits += i.pop_next != 0;
  }
  EXPECT_EQ(loads, 2 * 3 * 4);
  // Once per reuse of a thread's slices (five of six rounds), never for the other thread's.
  EXPECT_LE(waits, 2 * 5);
}

TEST(VtaCodegenTest, ResidualAddNeedsBothOperands) {
  // D = max(A + B, 0) from two accumulator loads; the sum goes to a buffer of its own.
  ir::Function f = Parsed(R"(
fn residual(A: i32[5,16] input, B: i32[5,16] input, Y: i8[5,16] output) stage=loops {
  alloc P: i32[5,16] scope=vta.acc {
  alloc Q: i32[5,16] scope=vta.acc {
  alloc D: i32[5,16] scope=vta.acc {
  alloc R: i32[5,16] scope=vta.acc {
    for y in 0..1 @{tensor="vta.load.acc"} { for x in 0..5 { for l in 0..16 {
      P[y + x,l] = A[x,l]; } } }
    for y in 0..1 @{tensor="vta.load.acc"} { for x in 0..5 { for l in 0..16 {
      Q[y + x,l] = B[x,l]; } } }
    for m in 0..5 { for l in 0..16 @{tensor="vta.alu.add"} { D[m,l] = P[m,l] + Q[m,l]; } }
    for m in 0..5 { for l in 0..16 @{tensor="vta.alu.mul"} { R[m,l] = D[m,l] * P[m,l]; } }
    for y in 0..1 @{tensor="vta.store"} { for x in 0..5 { for l in 0..16 {
      Y[y + x,l] = i8(R[x,l]); } } }
  } } } }
})");
  auto program = Generated(f);
  ASSERT_TRUE(program.ok()) << program.status();
  ExpectRuns(f, *program);
}

// Accumulators with a multiplier for each channel (lane): V * M / SCALE, rounded and cut to 8 bits.
constexpr char kRequantise[] = R"(
fn requantise(V: i32[6,16] input, M: i32[1,16] constant, Y: i8[6,16] output) stage=loops {
  alloc C: i32[6,16] scope=vta.acc {
  alloc T: i32[1,16] scope=vta.acc {
  alloc Q: i32[6,16] scope=vta.acc {
    for x in 0..6 @{tensor="vta.load.acc"} { for l in 0..16 { C[x,l] = V[x,l]; } }
    for x in 0..1 @{tensor="vta.load.acc"} { for l in 0..16 { T[x,l] = M[x,l]; } }
    for m in 0..6 { for l in 0..16 @{tensor="vta.alu.requantise"} {
      Q[m,l] = i32(max(min(rounding_shift_right(widening_mul(C[m,l], T[0,l]), SHIFT), 127i64), -128i64));
    } }
    for x in 0..6 @{tensor="vta.store"} { for l in 0..16 { Y[x,l] = i8(Q[x,l]); } }
  } } }
}
)";
ir::Function Requantising(int64_t lanes, int64_t shift) {
  std::string text = WithLanes(kRequantise, lanes);
  text.replace(text.find("SHIFT"), 5, StrCat(shift, "i64"));
  return Parsed(text);
}

// The interpreter and the accelerator agree on all of 32 bits: what the IR says with a widening
// product and a rounding shift is one instruction.
TEST(VtaCodegenTest, RequantisationIsOneInstruction) {
  support::Rng rng(9);
  for (const NamedConfig& named : NamedConfigs()) {
    for (int shift : {0, 1, 9, 31, 36, 62}) {
      SCOPED_TRACE(StrCat(named.name, " ", shift));
      const ir::Function f = Requantising(named.config.block, shift);
      auto program = Generated(f, named.name);
      ASSERT_TRUE(program.ok()) << program.status();
      int alus = 0;
      for (const Instruction& i : program->stream) {
        if (i.op != Opcode::kAlu) continue;
        ++alus;
        EXPECT_EQ(Disassemble(i).substr(0, Disassemble(i).find('|')),
                  StrCat("alu uop_end=1 iter_out=1 iter_in=6 dst_factor_in=1 operation=requantise",
                         shift == 0 ? "" : StrCat(" imm=", shift), " "));
      }
      EXPECT_EQ(alus, 1);
      std::vector<ir::TensorData> data = tests::SeededArguments(f, {}, 5);
      for (size_t param : {0u, 1u}) {
        for (size_t at = 0; at < data[param].bytes.size(); at += sizeof(int32_t)) {
          const auto value = static_cast<int32_t>(rng.NextU64() >> (32 + rng.Uniform(32)));
          std::memcpy(data[param].bytes.data() + at, &value, sizeof value);
        }
      }
      ExpectRuns(f, *program, named.config, std::move(data));
    }
  }
}

// A shift that the instruction has not, and the form that the passes leave behind: shifts of 55 and
// more leave no cut to 8 bits, so requantize_sums makes none.
TEST(VtaCodegenTest, RequantisationShiftsByUpTo62Bits) {
  for (const int64_t shift : {-1, 63, 64}) {
    SCOPED_TRACE(shift);
    EXPECT_EQ(support::Slug(Generated(Requantising(16, shift)).status()), "codegen.vta.immediate");
  }
  for (const int64_t shift : {0, 4, 52}) {
    auto simplified = transform::SimplifyFunction(Requantising(16, shift), {});
    ASSERT_TRUE(simplified.ok()) << simplified.status();
    EXPECT_TRUE(Generated(*simplified).ok()) << ir::Print(*simplified);
  }
}

TEST(VtaCodegenTest, Refusals) {
  struct Case {
    const char* text;
    const char* slug;
  };
  const Case cases[] = {
      {"fn f(A: i8[16] input, Y: i8[16] output) stage=loops { for i in 0..16 { Y[i] = A[i]; } }",
       "codegen.vta.form"},
      {"fn f(Y: i8[1,16] output) stage=loops { alloc T: i32[1,16] scope=global {"
       " for m in 0..1 { for l in 0..16 @{tensor=\"generic.dot4.16.reset\"} { T[m,l] = 0i32; } } } "
       "}",
       "codegen.vta.memory"},
      {"fn f(n: size, Y: i8[n,16] output) stage=loops { eval 1; }", "codegen.vta.extent"},
      {"fn f(Y: i8[1,16] output) stage=loops { alloc T: i32[4096,16] scope=vta.acc {"
       " for m in 0..1 { for l in 0..16 @{tensor=\"vta.gemm.reset\"} { T[m,l] = 0i32; } } } }",
       "codegen.vta.memory"},
      {"fn f(Y: i8[1,16] output) stage=loops { alloc T: i32[4,16] scope=vta.acc {"
       " alloc U: i32[4,16] scope=vta.acc { for m in 0..4 { for l in 0..16"
       " @{tensor=\"vta.alu.shr.imm\"} { U[m,l] = floordiv(T[m,l], 3i32); } } } } }",
       "codegen.vta.immediate"},
      {"fn f(Y: i8[1,20] output) stage=loops { alloc T: i32[20] scope=vta.acc {"
       " for m in 0..2 { for l in 0..16 @{tensor=\"vta.gemm.reset\"} { T[m * 4 + l] = 0i32; } } } "
       "}",
       "codegen.vta.alignment"},
  };
  for (const Case& c : cases) {
    auto f = ir::ParseFunction(c.text);
    ASSERT_TRUE(f.ok()) << f.status() << c.text;
    auto program = Generated(*f);
    EXPECT_EQ(support::Slug(program.status()), c.slug) << program.status();
  }
}

// As every generator does: format, bytes, a program of calls for each function, and its text where
// the request wants it.
TEST(VtaCodegenTest, AnArtifactHasACallForEachFunction) {
  std::vector<ir::Function> functions = {Parsed(kTwoThreads), Parsed(kTwoThreads)};
  functions[1].name = "again";
  const target::Target target{.kind = "vta"};
  codegen::CodegenOptions options;
  options.dump_dir = testing::TempDir() + "/vta_artifact";
  auto artifact = kBackend.generate({functions, target, options});
  ASSERT_TRUE(artifact.ok()) << artifact.status();
  EXPECT_EQ(artifact->format, kCodeFormat);
  EXPECT_TRUE(artifact->required_features.empty());
  ASSERT_EQ(artifact->programs.size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    const codegen::Program& program = artifact->programs[i];
    ASSERT_EQ(program.calls.size(), 1u);
    EXPECT_EQ(program.calls[0].symbol, "tw_kernel_" + functions[i].name);
    EXPECT_EQ(program.calls[0].grid, (std::array<int64_t, 3>{}));  // it holds all its loops
    EXPECT_EQ(program.calls[0].group, (std::array<int64_t, 3>{}));
    EXPECT_EQ(program.calls[0].buffers, (std::vector<int>{0, 1, 2}));
    EXPECT_EQ(program.calls[0].num_outputs, 1);
    EXPECT_TRUE(program.temporaries.empty());
  }
  auto code = ParseCode(artifact->bytes);
  ASSERT_TRUE(code.ok()) << code.status();
  const std::vector<Program>& programs = code->programs;
  ASSERT_EQ(programs.size(), 2u);
  EXPECT_EQ(programs[0].name, "gemm");
  EXPECT_EQ(programs[1].name, "again");
  EXPECT_EQ(programs[0].stream, programs[1].stream);
  auto text = support::ReadFile(options.dump_dir + "/gemm.vta", 1 << 20);
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_EQ(*text, programs[0].Listing() + programs[1].Listing());
  EXPECT_EQ(support::Slug(kBackend.generate({{}, target, {}}).status()), "codegen.function.none");
}

// Instructions that run micro-ops [begin, end) of the program.
std::vector<VtaEvent> UsesOf(const std::vector<std::pair<int64_t, int64_t>>& ranges) {
  std::vector<VtaEvent> events;
  for (const auto& [begin, end] : ranges) {
    VtaEvent event{.instruction = tests::Once(Opcode::kGemm, 0), .regions = {}};
    event.instruction.uop_begin = begin;
    event.instruction.uop_end = end;
    events.push_back(event);
  }
  return events;
}

// "L place<-from+count" for loads, "U begin-end" for their users.
std::string PlacesOf(const std::vector<VtaEvent>& events) {
  std::vector<std::string> words;
  for (const VtaEvent& event : events) {
    const Instruction& i = event.instruction;
    words.push_back(i.op == Opcode::kLoad
                        ? StrCat("L", i.sram_base, "<-", i.dram_base, "+", i.x_size)
                        : StrCat("U", i.uop_begin, "-", i.uop_end));
  }
  return support::Join(words, " ");
}

TEST(VtaUopsTest, AllAtTheStartIfTheyFit) {
  std::vector<VtaEvent> events = UsesOf({{0, 3}, {5, 8}});
  PlaceMicroOps(IsaOf({.uop = 8}), 100, 8, &events);
  EXPECT_EQ(PlacesOf(events), "L0<-100+8 U0-3 U5-8");
}

TEST(VtaUopsTest, ALoadOverwritesWhatIsNeededLast) {
  // Three of four; the third takes the place of the second, which is needed after the first.
  std::vector<VtaEvent> events = UsesOf({{0, 4}, {4, 8}, {8, 12}, {0, 4}, {1, 3}, {4, 8}, {8, 12}});
  PlaceMicroOps(IsaOf({.uop = 8}), 100, 12, &events);
  EXPECT_EQ(PlacesOf(events),
            "L0<-100+4 U0-4 L4<-104+4 U4-8 L4<-108+4 U4-8 U0-4 U1-3 L0<-104+4 U0-4 U4-8");
  // One that takes the places of two.
  events = UsesOf({{0, 4}, {4, 8}, {8, 16}, {0, 4}});
  PlaceMicroOps(IsaOf({.uop = 8}), 0, 16, &events);
  EXPECT_EQ(PlacesOf(events), "L0<-0+4 U0-4 L4<-4+4 U4-8 L0<-8+8 U0-8 L0<-0+4 U0-4");
}

// A load of what the same stream stored would need modules that are no neighbours to wait.
TEST(VtaTokensTest, LoadsOfStoredResultsAreRefused) {
  vta::Instruction store{.op = vta::Opcode::kStore}, load{.op = vta::Opcode::kLoad};
  store.memory = static_cast<int64_t>(vta::Memory::kOut);
  load.memory = static_cast<int64_t>(vta::Memory::kInp);
  std::vector<VtaEvent> events = {{store, {{-1, 0, 64, true}}}, {load, {{-1, 32, 48, false}}}};
  EXPECT_EQ(support::Slug(DeriveVtaTokens(&events)), "codegen.vta.dram_hazard");
  events[1].regions[0].begin = events[1].regions[0].end = 64;
  EXPECT_TRUE(DeriveVtaTokens(&events).ok());
}

}  // namespace
}  // namespace tilewright::vta
