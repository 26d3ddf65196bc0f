// Tensor intrinsics: descriptions that run, matching, blockize and tensorize (accepted programs
// keep their meaning by interpreter, golden text and compiled code; refusals by slug), and the
// vector code that marked nests become.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <iostream>
#include <limits>
#include <string>

#include "compiler/ir/ir_text.h"
#include "compiler/ir/structural.h"
#include "compiler/ir/tensor_intrinsics.h"
#include "compiler/ir/verify.h"
#include "compiler/ir/visit.h"
#include "compiler/schedule/schedule.h"
#include "compiler/transform/passes.h"
#include "deploy/support/rng.h"
#include "deploy/support/status.h"
#include "tests/support/assembly.h"
#include "tests/support/count_text.h"
#include "tests/support/equivalence.h"
#include "tests/support/run_compiled.h"
#include "tests/support/schedule_case.h"
#include "tests/support/te_programs.h"

namespace tilewright::schedule {
namespace {

using tests::Applied;
using tests::ExpectGolden;
using tests::ExpectRefused;
using tests::MatmulProgram;
using tests::PackedInt8DenseProgram;
using tests::SameResults;

// Interpreted, and compiled for every x86-64 level of this machine.
Schedule Checked(const ir::Function& f, std::string_view steps) {
  Schedule s = Applied(f, steps);
  absl::Status same = SameResults(f, s.function());
  EXPECT_TRUE(same.ok()) << same << "\n" << s.Describe();
  for (const target::Target& target : tests::RunnableTargets()) {
    tests::EquivalenceOptions options;
    options.run_other = [&](const ir::Function& g, const std::vector<int64_t>& sizes,
                            std::vector<ir::TensorData*> args) {
      return tests::RunCompiled(g, target, 1, sizes, std::move(args));
    };
    same = SameResults(f, s.function(), options);
    EXPECT_TRUE(same.ok()) << target.ToString() << ": " << same << "\n" << s.Describe();
  }
  return s;
}

// Body of the first loop, of a text with one nest.
ir::Stmt NestOf(const std::string& text) {
  auto f = ir::ParseFunction(text);
  EXPECT_TRUE(f.ok()) << f.status();
  return f.ok() ? f->body : nullptr;
}

// ------------------------------------------------------------------------------- the table

TEST(TensorIntrinsicTest, EveryDescriptionVerifiesAndMatchesItself) {
  ASSERT_GE(ir::TensorIntrinsics().size(), 10u);
  for (const ir::TensorIntrinsic& row : ir::TensorIntrinsics()) {
    SCOPED_TRACE(row.name);
    ASSERT_EQ(row.operands.size(), row.update.params.size());
    for (bool reset : {false, true}) {
      const ir::Function& f = reset ? row.reset : row.update;
      if (f.body == nullptr) continue;
      absl::Status valid = ir::Verify(f);
      EXPECT_TRUE(valid.ok()) << valid;
      // A description is data-parallel but for one reduction, or several of integers: loops may
      // change places.
      int reductions = 0;
      ir::Stmt at = f.body;
      for (; at->kind == ir::StmtKind::kFor; at = at->body) {
        bool writes = false;
        ir::Stmt store = at;
        while (store->kind == ir::StmtKind::kFor) store = store->body;
        for (const ir::Expr& i : store->indices) writes = writes || ir::UsesVar(i, at->var);
        reductions += writes ? 0 : 1;
      }
      EXPECT_LE(reductions, row.update.params[0]->dtype.is_float() ? 1 : 2);
      if (!f.size_params.empty()) continue;
      auto match = ir::MatchTensor(f.body, row.name + (reset ? ".reset" : ""));
      // Scopes of accelerators are demanded of programs, not of the description's parameters.
      bool scoped = false;
      for (const ir::TensorOperand& o : row.operands) scoped = scoped || !o.scope.empty();
      EXPECT_EQ(match.ok(), !scoped) << match.status();
    }
  }
}

TEST(TensorIntrinsicTest, MatchFindsStridesBasesAndOrder) {
  // Loops and factors in another order, strided rows, constants in the indices.
  ir::Stmt nest = NestOf(R"(
fn f(C: i32[5,32] output, A: u8[9,64] input, B: i8[3,4,16,4] input) stage=loops {
  for k in 0..4 { for j in 0..16 {
    C[2, j + 8] = i32(B[1, 2, j, k]) * i32(A[3, k + 20]) + C[2, j + 8];
  } }
})");
  auto match = ir::MatchTensor(nest, "generic.dot4.16");
  ASSERT_TRUE(match.ok()) << match.status();
  EXPECT_EQ(match->extents, (std::vector<int64_t>{16, 4}));
  ASSERT_EQ(match->operands.size(), 3u);
  EXPECT_EQ(match->operands[0].strides, (std::vector<int64_t>{1, 0}));
  EXPECT_EQ(match->operands[1].strides, (std::vector<int64_t>{0, 1}));
  EXPECT_EQ(match->operands[2].strides, (std::vector<int64_t>{4, 1}));
  EXPECT_EQ(*ir::AsInt(match->operands[0].base), 2 * 32 + 8);
  EXPECT_EQ(*ir::AsInt(match->operands[1].base), 3 * 64 + 20);
  EXPECT_EQ(*ir::AsInt(match->operands[2].base), (4 + 2) * 64);
}

// The padding of an image: a factor that is read only where a condition holds for the whole nest,
// and what is left of it where the condition is known.
TEST(TensorIntrinsicTest, FactorsOfDotProductsMayBeGuarded) {
  const auto match = [](const std::string& a) {
    return ir::MatchTensor(
        NestOf("fn f(w: size, C: i32[16] output, A: u8[64] input, B: i8[16,4] input) stage=loops {"
               " for j in 0..16 { for k in 0..4 { C[j] = C[j] + " +
               a + " * i32(B[j, k]); } } }"),
        "generic.dot4.16");
  };
  const auto guarded = match("i32(select(w < 3, A[w * 4 + k], 7u8))");
  ASSERT_TRUE(guarded.ok()) << guarded.status();
  ASSERT_NE(guarded->operands[1].guard, nullptr);
  EXPECT_EQ(*ir::AsInt(guarded->operands[1].otherwise), 7);
  const auto outside = match("131i32");
  ASSERT_TRUE(outside.ok()) << outside.status();
  EXPECT_EQ(outside->operands[1].buffer, nullptr);
  EXPECT_EQ(*ir::AsInt(outside->operands[1].otherwise), 131);
  // Not the same for all of the nest; no byte.
  EXPECT_FALSE(match("i32(select(j < 3, A[k], 7u8))").ok());
  EXPECT_FALSE(match("256i32").ok());
}

TEST(TensorIntrinsicTest, MismatchesAreNamed) {
  struct Case {
    const char* body;
    const char* name;
    const char* says;
  };
  const Case cases[] = {
      {"for j in 0..16 { for k in 0..3 { C[j] = C[j] + i32(A[k]) * i32(B[4*j + k]); } }",
       "generic.dot4.16", "expected an extent of 4, found 3"},
      {"for j in 0..16 { for k in 0..4 { C[j] = C[j] - i32(A[k]) * i32(B[4*j + k]); } }",
       "generic.dot4.16", "expected C[j] + "},
      {"for j in 0..16 { for k in 0..4 { C[j] = C[j] + i32(A[k]) * i32(B[16*k + j]); } }",
       "generic.dot4.16", "expected stride 1 along k, found 16"},
      {"for j in 0..16 { for k in 0..4 { C[j] = C[j] + i32(A[k]) * i32(A[4*j + k]); } }",
       "generic.dot4.16", "expected i8, found u8"},
      {"for j in 0..16 { for k in 0..4 { C[j] = C[j + 1] + i32(A[k]) * i32(B[4*j + k]); } }",
       "generic.dot4.16", "expected the same element"},
      {"for j in 0..16 { for k in 0..4 { C[j] = C[j] + i32(A[k + j]) * i32(B[4*j + k]); } }",
       "generic.dot4.16", "expected no step along j"},
      {"for j in 0..16 { for k in 0..4 { C[j] = C[j] + i32(A[k]) * i32(B[j*j + k]); } }",
       "generic.dot4.16", "linear in the loops"},
      {"for j in 0..16 { for k in 0..4 unrolled { C[j] = C[j] + i32(A[k]) * i32(B[4*j+k]); } }",
       "generic.dot4.16", "expected serial loops"},
      {"for j in 0..16 { C[j] = C[j] + 1i32; }", "generic.dot4.16", "expected 2 loops, found 1"},
      {"for j in 0..16 { C[j] = 1i32; }", "generic.dot4.16.reset", "expected 0i32, found 1i32"},
      {"for j in 0..16 { C[j] = 0i32; }", "generic.dot9", "expected a tensor intrinsic"},
  };
  for (const Case& c : cases) {
    ir::Stmt nest = NestOf(std::string("fn f(C: i32[64] output, A: u8[64] input, B: i8[256] input)"
                                       " stage=loops { ") +
                           c.body + " }");
    auto match = ir::MatchTensor(nest, c.name);
    EXPECT_FALSE(match.ok()) << c.body;
    EXPECT_THAT(support::StatusText(match.status()), testing::HasSubstr(c.says)) << c.body;
  }
}

TEST(TensorIntrinsicTest, VerifierHoldsMarksToTheirDescription) {
  const std::string head = "fn f(C: i32[16] output) stage=loops { for j in 0..16 @{tensor=";
  auto good = ir::ParseFunction(head + "\"generic.dot4.16.reset\"} { C[j] = 0i32; } }");
  ASSERT_TRUE(good.ok()) << good.status();
  EXPECT_TRUE(ir::Verify(*good).ok()) << ir::Verify(*good);
  EXPECT_EQ(ir::Print(*ir::ParseFunction(ir::Print(*good))), ir::Print(*good));
  for (const char* bad :
       {"\"generic.dot4.16\"} { C[j] = 0i32; } }", "\"generic.dot4.16.reset\"} { C[j] = 3i32; } }",
        "7} { C[j] = 0i32; } }"}) {
    auto f = ir::ParseFunction(head + bad);
    ASSERT_TRUE(f.ok()) << f.status();
    EXPECT_EQ(support::Slug(ir::Verify(*f)), "ir.verify.tensor") << bad;
    EXPECT_FALSE(ir::StructuralEqual(*f, *good));
  }
}

// ----------------------------------------------------------------------------- blockize, tensorize

TEST(BlockizeTest, TileOfAReduction) {
  // i j k Y: tiles of 4 x 8, the reduction in steps of 2.
  ExpectGolden(Checked(MatmulProgram(8, 16, 6),
                       "split %0 [?,4]; split %1 [?,8]; split %2 [?,2]; reorder %4 %6 %8 %5 %7 %9;"
                       "blockize %5"),
               "blockize");
  // The whole reduction inside: the init stands in the body.
  Checked(MatmulProgram(6, 4, 5), "blockize %0");
  Checked(MatmulProgram(6, 4, 5), "blockize %2");
  // Tiles may be driven by several threads.
  Checked(MatmulProgram(8, 4, 5), "split %0 [?,4]; blockize %5; parallel %4");
}

TEST(BlockizeTest, Refusals) {
  ir::Function f = MatmulProgram(8, 16, 6);
  ExpectRefused(f, "split %0 [?,3]; reorder %4 %1 %2 %5; blockize %5",
                "schedule.blockize.predicate");
  ExpectRefused(f, "vectorize %1; reorder %2 %0; blockize %1", "schedule.blockize.not_serial");
  ExpectRefused(f, "parallel %0; blockize %0", "schedule.blockize.not_serial");
  ExpectRefused(f, "split %1 [?,8]; reorder %2 %5; vectorize %5; blockize %5",
                "schedule.blockize.not_serial");
  ExpectRefused(f, "blockize %2; blockize %1", "schedule.blockize.body_form");
  ExpectRefused(f, "fuse %0 %1; blockize %4", "schedule.blockize.binding");
  ExpectRefused(tests::DenseReluProgram(4, 4, 4), "compute_at %3 %4; blockize %4",
                "schedule.blockize.not_perfect");
  // A blockized block is no longer taken apart.
  ExpectRefused(f, "blockize %2; decompose_reduction %3 %1",
                "schedule.decompose_reduction.no_init");
  ExpectRefused(f, "split %1 [?,8]; blockize %5; vectorize %4", "schedule.vectorize.conflict");
}

TEST(TensorizeTest, FmaTileRunsOnEveryMachine) {
  ExpectGolden(Checked(MatmulProgram(8, 16, 6),
                       "split %0 [?,4]; split %1 [?,8]; split %2 [?,2]; reorder %4 %6 %8 %5 %7 %9;"
                       "tensorize %5 intrin=generic.fma_tile"),
               "tensorize");
  // Rows that are no whole vectors; other orders; a blockized block.
  Checked(MatmulProgram(5, 13, 7), "tensorize %0 intrin=generic.fma_tile");
  Checked(MatmulProgram(5, 13, 7), "reorder %2 %1 %0; tensorize %2 intrin=generic.fma_tile");
  Checked(MatmulProgram(4, 8, 3), "blockize %0; tensorize %3 intrin=generic.fma_tile");
  // Init and update as blocks of their own, each tensorized.
  Checked(MatmulProgram(4, 8, 6),
          "split %2 [?,2]; reorder %4 %0 %1 %5; decompose_reduction %3 %4;"
          "tensorize %0 intrin=generic.fma_tile; tensorize %7 intrin=generic.fma_tile");
}

TEST(TensorizeTest, Refusals) {
  ir::Function f = MatmulProgram(8, 16, 6);
  ExpectRefused(f, "tensorize %3 intrin=generic.fma_tile", "schedule.tensorize.not_blockized");
  ExpectRefused(f, "tensorize %2 intrin=generic.fma_tile", "schedule.tensorize.mismatch",
                "expected 3 loops, found 1");
  ExpectRefused(f, "tensorize %0 intrin=generic.dot4.16", "schedule.tensorize.mismatch",
                "expected 2 loops, found 3");
  ExpectRefused(f, "split %0 [?,3]; reorder %4 %1 %2 %5; tensorize %1 intrin=generic.fma_tile",
                "schedule.tensorize.predicate");
  ExpectRefused(MatmulProgram(65, 2, 2), "tensorize %0 intrin=generic.fma_tile",
                "schedule.tensorize.mismatch", "expected an extent of 1 to 64, found 65");
  // Marked loops stay as they are: a producer of what they read is not inlined into them.
  ir::Function stencil = tests::ConvProgram({});
  EXPECT_EQ(support::Slug(ParseStep("tensorize %1").status()), "schedule.step.option");
  EXPECT_EQ(support::Slug(ParseStep("tensorize %1 intrin=nothing").status()),
            "schedule.step.option");
}

// ------------------------------------------------------------------------------ u8 x i8 dot
// products

// Producers that follow each other into one nest, and what consumes them behind: the accumulator
// was once read before it was written.
TEST(PackedInt8Test, MovedProducersComeBeforeTheirUse) {
  Checked(PackedInt8DenseProgram(2, 2, 4, 2),
          "fuse %12 %13; compute_at %10 %15; compute_at %5 %11; reverse_compute_at %14 %17");
}

constexpr char kDotSteps[] =
    // acc: i jo ji ko ki; the lanes and a group of four inside.
    "cache_write %5; reorder %3 %2; tensorize %2 intrin=";

TEST(TensorizeTest, QuantizedDenseMatchesTheInterpreter) {
  for (int64_t lanes : {4, 8, 16}) {
    ir::Function f = PackedInt8DenseProgram(3, 2, lanes, 5);
    Schedule s = Checked(f, kDotSteps + ("generic.dot4." + std::to_string(lanes)));
    if (lanes == 16) ExpectGolden(s, "tensorize_dot4");
  }
}

// Extreme values: what saturates in 16 bits must not. The first factor shared by all lanes, or each
// lane's own.
TEST(TensorizeTest, Dot4IsExactAtTheEndsOfItsTypes) {
  struct Form {
    std::string name, type;
    bool shared;
  };
  for (const Form& form :
       {Form{"dot4", "u8", true}, Form{"dot4_s8", "i8", true}, Form{"dot4_lanes", "u8", false}}) {
    for (int lanes : {4, 8, 16}) {
      const int terms = form.shared ? 4 : 4 * lanes;
      const std::string n = std::to_string(lanes);
      const std::string mark = "@{tensor=\"generic." + form.name + "." + n;
      auto f =
          ir::ParseFunction("fn dots(A: " + form.type + "[" + std::to_string(terms) +
                            "] input, B: i8[" + std::to_string(4 * lanes) + "] input, C: i32[" + n +
                            "] output) stage=scheduled { for j in 0.." + n + " " + mark +
                            ".reset\"} { C[j] = 0i32; } for j in 0.." + n + " " + mark +
                            "\"} { for k in 0..4 { C[j] = C[j] + i32(A[" +
                            (form.shared ? "k" : "4*j + k") + "]) * i32(B[4*j + k]); } } }");
      ASSERT_TRUE(f.ok()) << f.status();
      ASSERT_TRUE(ir::Verify(*f).ok()) << ir::Verify(*f);
      const uint8_t largest = form.type == "u8" ? 0xff : 0x7f;
      for (int pattern = 0; pattern < 4; ++pattern) {
        ir::TensorData x{std::vector<uint8_t>(terms, pattern & 1 ? 0x80 : largest)};
        ir::TensorData w{std::vector<uint8_t>(4 * lanes, pattern & 2 ? 0x80 : 0x7f)};
        // So that a lane's own is told from its neighbour's.
        for (size_t i = 0; i < x.bytes.size(); i += 5) x.bytes[i] = static_cast<uint8_t>(i);
        ir::TensorData expected, found;
        ASSERT_TRUE(ir::Interpret(*f, {}, {&x, &w, &expected}).ok());
        for (const target::Target& target : tests::RunnableDotTargets()) {
          absl::Status ran = tests::RunCompiled(*f, target, 1, {}, {&x, &w, &found});
          ASSERT_TRUE(ran.ok()) << ran;
          EXPECT_EQ(found.bytes, expected.bytes)
              << target.ToString() << " " << form.name << " " << lanes;
        }
      }
    }
  }
}

// C[j] += A[0] * B[j,0] + A[1] * B[j,1], from 0.
ir::Function PairsProgram(const std::string& intrinsic, int lanes) {
  const std::string n = std::to_string(lanes), terms = std::to_string(2 * lanes);
  const std::string loop = "for j in 0.." + n + " @{tensor=\"" + intrinsic + n;
  auto f = ir::ParseFunction("fn dots(A: bf16[2] input, B: bf16[" + terms + "] input, C: f32[" + n +
                             "] output) stage=scheduled { " + loop +
                             ".reset\"} { C[j] = 0.0f32; } " + loop +
                             "\"} { for k in 0..2 {"
                             " C[j] = C[j] + f32(A[k]) * f32(B[2*j + k]); } } }");
  TW_CHECK(f.ok()) << f.status();
  const absl::Status valid = ir::Verify(*f);
  TW_CHECK(valid.ok()) << valid;
  return *std::move(f);
}

// These sums are the same in any order, and whether numbers below the normal ones count or not.
TEST(TensorizeTest, PairsOfBFloatsAreSummedInF32) {
  const auto bytes = [](const std::vector<float>& values) {
    ir::TensorData data;
    for (const float value : values) {
      const uint32_t bits = std::bit_cast<uint32_t>(value);
      data.bytes.push_back(static_cast<uint8_t>(bits >> 16));
      data.bytes.push_back(static_cast<uint8_t>(bits >> 24));
    }
    return data;
  };
  for (const int lanes : {4, 8, 16}) {
    const ir::Function f = PairsProgram("generic.dot2_bf16.", lanes);
    std::vector<float> weights;
    for (int i = 0; i < 2 * lanes; ++i) {
      weights.push_back(i % 7 == 6 ? 0x1p-130F : 3.0F * static_cast<float>(i) - 17);
    }
    for (const std::vector<float>& data : {std::vector<float>{255, -254}, {0x1p100F, 1}}) {
      ir::TensorData x = bytes(data), w = bytes(weights), expected, found;
      ASSERT_TRUE(ir::Interpret(f, {}, {&x, &w, &expected}).ok());
      for (const target::Target& target : tests::RunnableDotTargets()) {
        absl::Status ran = tests::RunCompiled(f, target, 1, {}, {&x, &w, &found});
        ASSERT_TRUE(ran.ok()) << ran;
        EXPECT_EQ(found.bytes, expected.bytes) << target.ToString() << " " << lanes;
      }
    }
  }
}

std::string AssemblyFor(const ir::Function& f, const std::string& cpu) {
  return tests::AssemblyOf(f, *target::ParseTarget("cpu,arch=x86_64,cpu=" + cpu));
}

// Fields of words as factors: all bits of the words, and bytes at the ends of their type.
TEST(TensorizeTest, FieldsOfWordsAreFactors) {
  support::Rng rng(7);
  for (const bool nibbles : {true, false}) {
    for (int lanes : {4, 8, 16}) {
      const std::string n = std::to_string(lanes);
      const std::string mark =
          std::string("@{tensor=\"generic.dot4_") + (nibbles ? "nibbles." : "bytes.") + n;
      const std::string term =
          nibbles ? "{ for p in 0..2 { for k in 0..4 { C[j] = C[j] + i32(A[4 * p + k]) * "
                    "bit_and(shift_right(shift_right(W[j], i32(p * 4)), i32(k * 8)), 15i32); } } }"
                  : "{ for k in 0..4 { C[j] = C[j] + i32(A[k]) * "
                    "bit_and(shift_right(W[j], i32(k * 8)), 255i32); } }";
      auto f = ir::ParseFunction("fn fields(A: i8[8] input, W: i32[" + n + "] input, C: i32[" + n +
                                 "] output) stage=scheduled { for j in 0.." + n + " " + mark +
                                 ".reset\"} { C[j] = 0i32; } for j in 0.." + n + " " + mark +
                                 "\"} " + term + " }");
      ASSERT_TRUE(f.ok()) << f.status();
      ASSERT_TRUE(ir::Verify(*f).ok()) << ir::Verify(*f);
      for (int round = 0; round < 4; ++round) {
        ir::TensorData x{std::vector<uint8_t>(8)}, w{std::vector<uint8_t>(4 * lanes)};
        for (uint8_t& b : x.bytes) b = round == 0 ? 0x80 : static_cast<uint8_t>(rng.Uniform(256));
        for (uint8_t& b : w.bytes) b = round == 0 ? 0xff : static_cast<uint8_t>(rng.Uniform(256));
        ir::TensorData expected, found;
        ASSERT_TRUE(ir::Interpret(*f, {}, {&x, &w, &expected}).ok());
        for (const target::Target& target : tests::RunnableDotTargets()) {
          absl::Status ran = tests::RunCompiled(*f, target, 1, {}, {&x, &w, &found});
          ASSERT_TRUE(ran.ok()) << ran;
          EXPECT_EQ(found.bytes, expected.bytes) << target.ToString() << " " << mark;
        }
      }
      const std::string text = AssemblyFor(*f, lanes == 16 ? "cascadelake" : "alderlake");
      EXPECT_THAT(text, testing::HasSubstr("vpdpbusd"));
    }
  }
}

// Sums of nine words in registers, at the ends of their types: more products than 16 bits hold.
TEST(TensorizeTest, SumsOfFieldsStayIn16BitsAsLongAsTheyFit) {
  support::Rng rng(11);
  constexpr int kWords = 9;
  for (int lanes : {4, 8, 16}) {
    const std::string n = std::to_string(lanes), all = std::to_string(kWords * lanes);
    const std::string loop = "for j in 0.." + n + " @{tensor=\"generic.dot4_nibbles." + n;
    std::string body = loop + ".reset\"} { S[j] = 0i32; } ";
    for (int w = 0; w < kWords; ++w) {
      body += loop + "\"} { for p in 0..2 { for k in 0..4 { S[j] = S[j] + i32(A[4 * p + k + " +
              std::to_string(8 * w) + "]) * bit_and(shift_right(shift_right(W[j + " +
              std::to_string(w * lanes) + "], i32(p * 4)), i32(k * 8)), 15i32); } } } ";
    }
    auto f =
        ir::ParseFunction("fn sums(A: i8[72] input, W: i32[" + all + "] input, C: i32[" + n +
                          "] output) stage=scheduled { alloc S: i32[" + n + "] scope=local { " +
                          body + "for j in 0.." + n + " vectorized { C[j] = S[j]; } } }");
    ASSERT_TRUE(f.ok()) << f.status();
    ASSERT_TRUE(ir::Verify(*f).ok()) << ir::Verify(*f);
    for (int round = 0; round < 4; ++round) {
      ir::TensorData x{std::vector<uint8_t>(8 * kWords)};
      ir::TensorData w{std::vector<uint8_t>(static_cast<size_t>(4 * kWords * lanes), 0xff)};
      for (uint8_t& b : x.bytes) {
        b = round == 0 ? 0x80 : round == 1 ? 0x7f : static_cast<uint8_t>(rng.Uniform(256));
      }
      if (round == 3) {
        for (uint8_t& b : w.bytes) b = static_cast<uint8_t>(rng.Uniform(256));
      }
      ir::TensorData expected, found;
      ASSERT_TRUE(ir::Interpret(*f, {}, {&x, &w, &expected}).ok());
      for (const target::Target& target : tests::RunnableDotTargets()) {
        absl::Status ran = tests::RunCompiled(*f, target, 1, {}, {&x, &w, &found});
        ASSERT_TRUE(ran.ok()) << ran;
        EXPECT_EQ(found.bytes, expected.bytes) << target.ToString() << " " << lanes;
      }
    }
    const std::string text = AssemblyFor(*f, "x86-64-v4");
    EXPECT_EQ(tests::CountOf(text, "vpmaddubsw"), 2 * kWords) << text;
    EXPECT_EQ(tests::CountOf(text, "vpmaddwd"), (2 * kWords + 7) / 8)
        << text;  // 8 * 2 * 128 * 15 < 2^15
  }
}

// A convolution in bytes with guarded padding, its rows tiled: interpreted, and compiled after
// loops were cut at the borders. Padding of zeros leaves products out, any other does not.
TEST(TensorizeTest, GuardedFactorsMatchTheInterpreter) {
  for (const char* outside : {"0u8", "131u8"}) {
    auto f = ir::ParseFunction(
        std::string("fn rows(X: u8[6,4] input, W: i8[3,16,4] constant, Y: i32[6,16] output)"
                    " stage=scheduled { for i in 0..3 {"
                    " for r in 0..2 unrolled { for j in 0..16 @{tensor=\"generic.dot4.16.reset\"}"
                    " { Y[i * 2 + r, j] = 0i32; } }"
                    " for t in 0..3 { for r in 0..2 unrolled {"
                    " for j in 0..16 @{tensor=\"generic.dot4.16\"} { for k in 0..4 {"
                    " Y[i * 2 + r, j] = Y[i * 2 + r, j] + i32(select(0 <= i * 2 + r + t - 1 &&"
                    " i * 2 + r + t - 1 < 6, X[i * 2 + r + t - 1, k], ") +
        outside + ")) * i32(W[t, j, k]); } } } } } }");
    ASSERT_TRUE(f.ok()) << f.status();
    ASSERT_TRUE(ir::Verify(*f).ok()) << ir::Verify(*f);
    for (const target::Target& target : tests::RunnableDotTargets()) {
      tests::EquivalenceOptions options;
      options.run_other = [&](const ir::Function& g, const std::vector<int64_t>& sizes,
                              std::vector<ir::TensorData*> args) {
        return tests::RunCompiled(g, target, 1, sizes, std::move(args));
      };
      const absl::Status same = SameResults(*f, *f, options);
      EXPECT_TRUE(same.ok()) << target.ToString() << " " << outside << ": " << same;
    }
  }
}

TEST(TensorizeTest, VnniTargetsGetTheirInstruction) {
  for (int64_t lanes : {4, 8, 16}) {
    ir::Function f = PackedInt8DenseProgram(3, 2, lanes, 5);
    std::string name = "x86.vpdpbusd." + std::to_string(lanes);
    Schedule s = Applied(f, kDotSteps + name);
    std::string vnni = AssemblyFor(s.function(), "cascadelake");
    const char* registers[] = {"%xmm", "%ymm", "%zmm"};
    const char* wanted = registers[lanes == 4 ? 0 : lanes == 8 ? 1 : 2];
    size_t at = vnni.find("vpdpbusd");
    ASSERT_NE(at, std::string::npos) << vnni;
    EXPECT_THAT(vnni.substr(at, vnni.find('\n', at) - at), testing::HasSubstr(wanted));
    if (lanes <= 8) {
      Schedule generic = Applied(f, kDotSteps + ("generic.dot4." + std::to_string(lanes)));
      EXPECT_THAT(AssemblyFor(generic.function(), "alderlake"), testing::HasSubstr("vpdpbusd"));
    }
    // Without VNNI the name is refused, the portable one becomes exact 16-bit products.
    target::Target avx2 = *target::ParseTarget("cpu,arch=x86_64,cpu=x86-64-v3");
    auto refused = tests::LowerChecked(s.function(), avx2);
    EXPECT_EQ(support::Slug(refused.status()), "transform.lower_tensor_nests.missing_feature");
    Schedule portable = Applied(f, kDotSteps + ("generic.dot4." + std::to_string(lanes)));
    std::string plain = AssemblyFor(portable.function(), "x86-64-v3");
    EXPECT_THAT(plain, testing::HasSubstr("vpmaddwd"));
    EXPECT_THAT(plain, testing::Not(testing::HasSubstr("vpmaddubsw")));
    EXPECT_THAT(plain, testing::Not(testing::HasSubstr("vphaddd")));
  }
}

TEST(TensorizeTest, PairsOfBFloatsAreOneInstruction) {
  const target::Target older = *target::ParseTarget("cpu,arch=x86_64,cpu=cascadelake");
  for (const int lanes : {4, 8, 16}) {
    const ir::Function named = PairsProgram("x86.vdpbf16ps.", lanes);
    const ir::Function generic = PairsProgram("generic.dot2_bf16.", lanes);
    for (const ir::Function& f : {named, generic}) {
      EXPECT_THAT(AssemblyFor(f, "znver4"), testing::HasSubstr("vdpbf16ps"));
    }
    EXPECT_EQ(support::Slug(tests::LowerChecked(named, older).status()),
              "transform.lower_tensor_nests.missing_feature");
    EXPECT_THAT(AssemblyFor(generic, "cascadelake"), testing::Not(testing::HasSubstr("vdpbf16ps")));
  }
}

// Bytes in fours are one permutation of what one load has, not a store for each byte.
TEST(TensorizeTest, BytesInFoursAreStoredWhole) {
  for (const int lanes : {8, 16}) {
    const std::string n = std::to_string(lanes), n4 = std::to_string(4 * lanes);
    auto f = ir::ParseFunction("fn fours(X: u8[" + n4 + "] input, Y: u8[" + n4 +
                               "] output) stage=scheduled { for k in 0..4 unrolled { for b in 0.." +
                               n + " vectorized { Y[4*b + k] = X[" + n + "*k + b]; } } }");
    ASSERT_TRUE(f.ok()) << f.status();
    for (const target::Target& target : tests::RunnableTargets()) {
      tests::EquivalenceOptions options;
      options.run_other = [&](const ir::Function& g, const std::vector<int64_t>& sizes,
                              std::vector<ir::TensorData*> args) {
        return tests::RunCompiled(g, target, 1, sizes, std::move(args));
      };
      const absl::Status same = SameResults(*f, *f, options);
      EXPECT_TRUE(same.ok()) << target.ToString() << ": " << same;
    }
    if (lanes == 8) continue;
    const std::string text = AssemblyFor(*f, "znver4");
    EXPECT_THAT(text, testing::HasSubstr("vpermb"));
    EXPECT_THAT(text, testing::Not(testing::HasSubstr("vpunpck")));
  }
}

// To the nearest, ties to even, saturating, NaN as 0: in one conversion where vectors have one.
TEST(TensorizeTest, RoundedBytesAreOneConversion) {
  auto f = ir::ParseFunction(
      "fn bytes(X: f32[16] input, Y: u8[16] output) stage=scheduled {"
      " for i in 0..16 vectorized { Y[i] = u8(round_even(X[i])); } }");
  ASSERT_TRUE(f.ok()) << f.status();
  const float values[16] = {0.5F,  1.5F,   2.5F,   -0.5F,   -1,     254.5F, 255.5F, 256,
                            1e10F, -1e10F, 127.5F, 128.49F, 253.5F, 0.49F,  NAN,    INFINITY};
  ir::TensorData x, expected, found;
  x.bytes.resize(sizeof(values));
  std::memcpy(x.bytes.data(), values, sizeof(values));
  ASSERT_TRUE(ir::Interpret(*f, {}, {&x, &expected}).ok());
  EXPECT_EQ(expected.bytes,
            (std::vector<uint8_t>{0, 2, 2, 0, 0, 254, 255, 255, 255, 0, 128, 128, 254, 0, 0, 255}));
  for (const target::Target& target : tests::RunnableTargets()) {
    const absl::Status ran = tests::RunCompiled(*f, target, 1, {}, {&x, &found});
    ASSERT_TRUE(ran.ok()) << ran;
    EXPECT_EQ(found.bytes, expected.bytes) << target.ToString();
  }
  const std::string text = AssemblyFor(*f, "x86-64-v4");
  EXPECT_THAT(text, testing::HasSubstr("vcvtps2dq"));
  EXPECT_THAT(text, testing::Not(testing::HasSubstr("vrndscale")));
}

// Towards zero, saturating, NaN as 0, in vectors.
TEST(TensorizeTest, FloatsBecomeWordsInVectors) {
  auto f = ir::ParseFunction(
      "fn words(X: f32[16] input, Y: i32[16] output) stage=scheduled {"
      " for i in 0..16 vectorized { Y[i] = i32(X[i]); } }");
  ASSERT_TRUE(f.ok()) << f.status();
  const float values[16] = {
      0.5F, -1.5F, 2147483520.0F, 2147483648.0F, -2147483648.0F, -2147483904.0F, 1e20F, -1e20F,
      NAN,  -NAN,  INFINITY,      -INFINITY,     -0.0F,          8388607.5F,     -3,    1e-40F};
  const int32_t most = std::numeric_limits<int32_t>::max();
  const int32_t least = std::numeric_limits<int32_t>::min();
  const int32_t words[16] = {0, -1, 2147483520, most,  least, least,   most, least,
                             0, 0,  most,       least, 0,     8388607, -3,   0};
  ir::TensorData x{std::vector<uint8_t>(64)}, expected{std::vector<uint8_t>(64)}, interpreted;
  std::memcpy(x.bytes.data(), values, 64);
  std::memcpy(expected.bytes.data(), words, 64);
  ASSERT_TRUE(ir::Interpret(*f, {}, {&x, &interpreted}).ok());
  EXPECT_EQ(interpreted.bytes, expected.bytes);
  for (const target::Target& target : tests::RunnableTargets()) {
    ir::TensorData found;
    const absl::Status ran = tests::RunCompiled(*f, target, 1, {}, {&x, &found});
    ASSERT_TRUE(ran.ok()) << ran;
    EXPECT_EQ(found.bytes, expected.bytes) << target.ToString();
  }
  const std::string text = AssemblyFor(*f, "x86-64-v4");
  EXPECT_THAT(text, testing::HasSubstr("vcvttps2dq"));
  EXPECT_THAT(text, testing::Not(testing::HasSubstr("vcvttss2si")));
}

TEST(TensorizeTest, VnniRunsWhereTheMachineHasIt) {
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx512vnni")) {
    std::cout << "[SKIP] this machine has no AVX512-VNNI: vpdpbusd is generated, not run\n";
    GTEST_SKIP() << "this machine has no AVX512-VNNI";
  }
  const target::Target target = *target::ParseTarget("cpu,arch=x86_64,cpu=cascadelake");
  ir::Function f = PackedInt8DenseProgram(3, 2, 16, 5);
  Schedule s = Applied(f, std::string(kDotSteps) + "x86.vpdpbusd.16");
  tests::EquivalenceOptions options;
  options.run_other = [&](const ir::Function& g, const std::vector<int64_t>& sizes,
                          std::vector<ir::TensorData*> args) {
    return tests::RunCompiled(g, target, 1, sizes, std::move(args));
  };
  absl::Status same = SameResults(f, s.function(), options);
  EXPECT_TRUE(same.ok()) << same;
}

}  // namespace
}  // namespace tilewright::schedule
