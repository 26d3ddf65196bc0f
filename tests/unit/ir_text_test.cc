// Printer and parser: exact inverses, and no text can do harm.
#include "compiler/ir/ir_text.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "compiler/ir/structural.h"
#include "compiler/ir/verify.h"
#include "deploy/support/rng.h"
#include "deploy/support/status.h"
#include "tests/support/random_ir.h"
#include "tests/support/test_seed.h"

namespace tilewright::ir {
namespace {

void ExpectRoundTrip(const Function& f) {
  std::string text = Print(f);
  absl::StatusOr<Function> parsed = ParseFunction(text);
  ASSERT_TRUE(parsed.ok()) << parsed.status() << "\n" << text;
  EXPECT_EQ(Print(*parsed), text);
  EXPECT_TRUE(StructuralEqual(*parsed, f)) << text;
  EXPECT_EQ(StructuralHash(*parsed), StructuralHash(f));
  EXPECT_TRUE(Verify(*parsed).ok()) << Verify(*parsed) << "\n" << text;
}

TEST(IrText, RandomProgramsRoundTrip) {
  uint64_t base = tests::TestSeed();
  for (int i = 0; i < tests::TestRounds(500); ++i) {
    SCOPED_TRACE("seed " + std::to_string(base + i));
    ExpectRoundTrip(tests::RandomTe(base + i).function);
    ExpectRoundTrip(tests::RandomFlat(base + i));
    if (testing::Test::HasFailure()) return;
  }
}

TEST(IrText, RandomExpressionsRoundTrip) {
  support::Rng rng(tests::TestSeed(11));
  std::vector<Var> vars = {MakeVar("i"), MakeVar("j"), MakeVar("i")};
  Buffer out = MakeBuffer("y", kI64, {Int(1)}, Role::kOutput);
  for (int i = 0; i < 3000; ++i) {
    Function f;
    f.name = "e";
    f.stage = Stage::kFlat;
    f.size_params = vars;
    f.params = {out};
    Expr value = tests::RandomIndexExpr(&rng, vars, 5);
    f.body = MakeIf(tests::RandomCondition(&rng, vars, 3), MakeStore(out, {Int(0)}, value));
    ExpectRoundTrip(f);
    if (testing::Test::HasFailure()) return;
  }
}

Function OneStore(const Buffer& out, Expr value) {
  Function f;
  f.name = "one";
  f.stage = Stage::kFlat;
  f.params = {out};
  f.body = MakeStore(out, {Int(0)}, std::move(value));
  return f;
}

TEST(IrText, ConstantsKeepEveryBit) {
  support::Rng rng(4);
  constexpr double kInf = std::numeric_limits<double>::infinity();
  std::vector<double> values = {0.0,
                                -0.0,
                                1,
                                -1,
                                0.1,
                                1e-45,
                                3.4028234663852886e38,
                                5e-324,
                                1.7976931348623157e308,
                                kInf,
                                -kInf,
                                std::nan("")};
  for (int i = 0; i < 3000; ++i)
    values.push_back(rng.Normal() * std::ldexp(1.0, static_cast<int>(rng.UniformInt(-200, 200))));
  for (DType t : {kF32, kF64, kF16, kBF16}) {
    Buffer out = MakeBuffer("y", t, {Int(1)}, Role::kOutput);
    for (double v : values) {
      ExpectRoundTrip(OneStore(out, Float(v, t)));
      if (testing::Test::HasFailure()) return;
    }
  }
  for (DType t :
       {kI8, kI32, kI64, kU8, DType{TypeCode::kUInt, 64, 1}, DType{TypeCode::kInt, 16, 1}}) {
    Buffer out = MakeBuffer("y", t, {Int(1)}, Role::kOutput);
    for (int64_t v : {int64_t{0}, int64_t{1}, int64_t{-1}, std::numeric_limits<int64_t>::min(),
                      std::numeric_limits<int64_t>::max()}) {
      ExpectRoundTrip(OneStore(out, Int(v, t)));
    }
  }
  Buffer flag = MakeBuffer("y", kBool, {Int(1)}, Role::kOutput);
  ExpectRoundTrip(OneStore(flag, Bool(true)));
}

TEST(IrText, NamesThatCollideOrAreNoWordsStillParse) {
  Buffer out = MakeBuffer("for", kI64, {Int(8), Int(8)}, Role::kOutput);
  Buffer in = MakeBuffer("layer1/conv:0", kI64, {Int(8)}, Role::kInput);
  Var a = MakeVar("min"), b = MakeVar("for");
  Function f;
  f.name = "odd";
  f.stage = Stage::kLoops;
  f.params = {in, out};
  f.body = MakeFor(a, Int(0), Int(8),
                   MakeFor(b, Int(0), Int(8), MakeStore(out, {a, b}, Load(in, {a}) * b)));
  ExpectRoundTrip(f);
}

TEST(IrText, EveryFeatureIsWrittenAsTheGrammarSays) {
  const std::string text =
      R"(fn all(n: size, X: f32[n, 64] input, W: f32[64] constant align=256, Y: f32[n, 64] output) stage=scheduled attrs {op="conv", version=3} {
  alloc C: f32[n, 64] scope=local;
  for i in 0..n parallel @{grain=4, note="a\"b\\\x0a"} {
    for j in 0..64 vectorized {
      block c(vi: spatial 0..n = i, vj: spatial 0..64 = j) where (i * 64 + j < n * 64 && !(j == 63)) @{tile=1} {
        reads X[vi:1, 0:64];
        writes C[vi:1, vj:1];
        C[vi, vj] = select(vj >= 1, X[vi, vj - 1], 0.0f32) + -1.5f32;
      }
    }
  }
  for i in 0..n {
    for k in 2..10 unrolled {
      for q in i ..+ 3 {
        block s(vi: spatial 0..n = i, vk: reduce 2..10 = k, vq: opaque i ..+ 3 = q) {
          reads C[vi:1, vk:1];
          writes Y[vi:1, 0:64];
          init {
            Y[vi, 0] = -inf(f32);
          }
          Y[vi, 0] = max(Y[vi, 0], C[vi, vk]) * f32(i32(vk)) / exp(nan(f32));
        }
      }
    }
  }
}
)";
  absl::StatusOr<Function> f = ParseFunction(text);
  ASSERT_TRUE(f.ok()) << f.status();
  // The printed form of a range with a variable minimum.
  std::string expected = text;
  for (size_t at; (at = expected.find("i ..+ 3")) != std::string::npos;)
    expected.replace(at, 7, "i..+3");
  EXPECT_EQ(Print(*f), expected);
}

TEST(IrText, ThreadsScopesAndSyncsAreWrittenAsTheGrammarSays) {
  const std::string text =
      R"(fn gpu(X: i8[16] input, Y: i8[16] output) stage=flat {
  for b in 0..2 blockIdx.z {
    alloc S: i8[16] scope=vta.inp {
      for v in 0..2 virtual {
        for t in 0..4 threadIdx.y {
          async {
            S[v * 8 + b * 4 + t] = X[v * 8 + b * 4 + t];
          }
          sync commit;
          sync wait 3;
          sync barrier;
          sync wait 0;
        }
      }
    }
  }
}
)";
  absl::StatusOr<Function> f = ParseFunction(text);
  ASSERT_TRUE(f.ok()) << f.status();
  EXPECT_EQ(Print(*f), text);
  EXPECT_EQ(EngineOf(f->body->body->buffer->scope), "load");
}

TEST(IrText, ErrorsSayWhere) {
  struct Row {
    const char *text, *slug, *where;
  };
  const Row rows[] = {
      {"", "ir.parse.syntax", "1:1"},
      {"fn f() {\n  y[0] = 1;\n}", "ir.parse.undeclared", "2:3"},
      {"fn f(y: f32[4] output) {\n  y[0] = 1;\n}", "ir.parse.type", "2:3"},
      {"fn f(y: f32[4] output) {\n  y[0] = z;\n}", "ir.parse.undeclared", "2:10"},
      {"fn f(y: f32[4] output) {\n  y[0] = 1.0f32 +;\n}", "ir.parse.syntax", "2:18"},
      {"fn f(y: f31[4] output) { }", "ir.parse.type", "1:9"},
      {"fn f(y: i8[4] output) { y[0] = 300i8; }", "ir.parse.number", "1:32"},
      {"fn f(y: f32[4] output) { y[0] = 1e99f32; }", "ir.parse.number", "1:33"},
      {"fn f(y: f32[4] output) { for for in 0..4 { } }", "ir.parse.name", "1:30"},
      {"fn f(y: f32[4] output) { for i in 0..4 sideways { } }", "ir.parse.loop_kind", "1:40"},
      {"fn f(y: i64[4] output) { y[0] = 1 < 2 < 3; }", "ir.parse.syntax", "1:39"},
      {"fn f() { } trailing", "ir.parse.syntax", "1:12"},
      {"fn f() stage=lost { }", "ir.parse.stage", "1:14"},
      {"fn f() attrs {a=1, a=2} { }", "ir.parse.annotation", "1:20"},
      {"fn f() { \x01 }", "ir.parse.character", "1:10"},
      {"fn f() { if (1) { } }", "ir.parse.type", "1:10"},
  };
  for (const Row& row : rows) {
    absl::StatusOr<Function> f = ParseFunction(row.text);
    ASSERT_FALSE(f.ok()) << row.text;
    EXPECT_EQ(support::Slug(f.status()), row.slug) << f.status() << "\n" << row.text;
    EXPECT_EQ(support::Detail(f.status()).substr(0, std::string(row.where).size() + 1),
              std::string(row.where) + ":")
        << f.status() << "\n"
        << row.text;
  }
}

TEST(IrText, DeepNestingIsRefusedNotOverflowed) {
  std::string parentheses = "fn f(y: i64[1] output) { y[0] = ", sums = parentheses,
              blocks = "fn f() { ", nots = "fn f() { if (";
  for (int i = 0; i < 200'000; ++i) {
    parentheses += "(";
    sums += "1+";
    blocks += "if (true) { ";
    nots += "!";
  }
  for (const std::string& text :
       {parentheses, sums + "1; }", blocks, nots, std::string(1'000'000, '[')}) {
    EXPECT_FALSE(ParseFunction(text).ok());
  }
  // Long sums that real programs have are fine.
  std::string fine = "fn f(y: i64[1] output) stage=flat { y[0] = 1";
  for (int i = 0; i < 900; ++i) fine += " + 1";
  EXPECT_TRUE(ParseFunction(fine + "; }").ok());
}

// Texts near valid ones reach deeper than noise does.
TEST(IrText, MutatedTextsNeverCrash) {
  support::Rng rng(tests::TestSeed(21));
  static const std::vector<std::string> kWords = {"for",
                                                  "block",
                                                  "in",
                                                  "..",
                                                  "..+",
                                                  "[",
                                                  "]",
                                                  "(",
                                                  ")",
                                                  "{",
                                                  "}",
                                                  "f32",
                                                  "i8",
                                                  "masked",
                                                  "1.5f32",
                                                  "-",
                                                  "ramp",
                                                  "select",
                                                  "reads",
                                                  "writes",
                                                  "init",
                                                  "0",
                                                  "9223372036854775807",
                                                  "\"",
                                                  ";",
                                                  ",",
                                                  "=",
                                                  ":",
                                                  "stage=flat",
                                                  "size",
                                                  "alloc",
                                                  "inf(f32)",
                                                  "where",
                                                  "@{",
                                                  "broadcast(1, 70000)"};
  int64_t parsed = 0, verified = 0;
  const int64_t rounds = tests::TestRounds(20'000);
  std::string text;
  for (int64_t i = 0; i < rounds; ++i) {
    if (i % 50 == 0)
      text = rng.Bernoulli(0.5) ? Print(tests::RandomTe(rng.NextU64()).function)
                                : Print(tests::RandomFlat(rng.NextU64()));
    std::string mutant = text;
    for (uint64_t n = rng.Uniform(3) + 1; n > 0; --n) {
      size_t at = rng.Uniform(mutant.size());
      switch (rng.Uniform(5)) {
        case 0:
          mutant[at] = static_cast<char>(rng.Uniform(256));
          break;
        case 1:
          mutant.erase(at, rng.Uniform(12) + 1);
          break;
        case 2:
          mutant.insert(at, " " + rng.Choice(kWords) + " ");
          break;
        case 3:
          mutant.insert(at, mutant.substr(rng.Uniform(mutant.size()), rng.Uniform(40)));
          break;
        default:
          mutant.resize(at);
          break;
      }
      if (mutant.empty()) mutant = "fn";
    }
    absl::StatusOr<Function> f = ParseFunction(mutant);
    if (!f.ok()) continue;
    ++parsed;
    verified += Verify(*f).ok();
    absl::StatusOr<Function> again = ParseFunction(Print(*f));
    ASSERT_TRUE(again.ok()) << again.status() << "\n" << Print(*f);
    EXPECT_EQ(Print(*again), Print(*f));
  }
  EXPECT_GT(parsed, rounds / 200);  // the mutations do reach the inside
  EXPECT_GT(verified, 0);
}

}  // namespace
}  // namespace tilewright::ir
