// The simplifier: rules by example, values preserved, idempotent, quick.
#include "compiler/analysis/simplify.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <ctime>

#include "compiler/analysis/simplify_rules.h"
#include "compiler/ir/interp.h"
#include "compiler/ir/ir_text.h"
#include "compiler/ir/numeric.h"
#include "compiler/ir/structural.h"
#include "compiler/ir/verify.h"
#include "compiler/ir/visit.h"
#include "deploy/support/rng.h"
#include "tests/support/random_ir.h"
#include "tests/support/test_seed.h"

namespace tilewright::analysis {
namespace {

using ir::Expr;
using ir::ExprKind;
using ir::FloorDiv;
using ir::FloorMod;
using ir::Int;
using ir::MakeVar;
using ir::Var;

class Rules : public testing::Test {
 protected:
  Rules() {
    analyzer.Set(o, {0, 7});
    analyzer.Set(i, {0, 3});
    analyzer.Set(j, {0, 15});
    analyzer.Set(n, {1, Analyzer::kMaxSize});
  }
  std::string S(const Expr& e) { return ir::Print(Simplify(e, analyzer)); }
  const Var o = MakeVar("o"), i = MakeVar("i"), j = MakeVar("j"), n = MakeVar("n"),
            x = MakeVar("x");
  Analyzer analyzer;
};

TEST_F(Rules, Sums) {
  EXPECT_EQ(S(o + Int(0)), "o");
  EXPECT_EQ(S(o * Int(1) + i * Int(0)), "o");
  EXPECT_EQ(S(Int(3) + o + Int(4)), "o + 7");
  EXPECT_EQ(S(o - o), "0");
  EXPECT_EQ(S((o + i) * Int(4) - o * Int(4)), "i * 4");
  EXPECT_EQ(S(Int(0) - o + i), "i - o");
  EXPECT_EQ(S(Int(5) - o), "5 - o");
  EXPECT_EQ(S(o - Int(-3)), "o + 3");
  EXPECT_EQ(S(x * n - n * x + i), "i");
  EXPECT_EQ(S(x + x + x), "x * 3");
}

TEST_F(Rules, DivisionOfSplitIndices) {
  EXPECT_EQ(S(FloorDiv(o * Int(4) + i, Int(4))), "o");
  EXPECT_EQ(S(FloorMod(o * Int(4) + i, Int(4))), "i");
  EXPECT_EQ(S(FloorDiv(o * Int(4) + i, Int(8))), "floordiv(o, 2)");
  EXPECT_EQ(S(FloorMod(o * Int(4) + i, Int(8))), "floormod(o, 2) * 4 + i");
  EXPECT_EQ(S(FloorDiv(i, Int(4))), "0");
  EXPECT_EQ(S(FloorDiv(i + Int(8), Int(4))), "2");
  EXPECT_EQ(S(FloorMod(i + Int(8), Int(4))), "i");
  EXPECT_EQ(S(FloorDiv(Int(0) - i - Int(1), Int(4))), "-1");
  EXPECT_EQ(S(FloorDiv(FloorDiv(j, Int(2)), Int(3))), "floordiv(j, 6)");
  EXPECT_EQ(S(FloorMod(FloorMod(x, Int(12)), Int(4))), "floormod(x, 4)");
  EXPECT_EQ(S(o * Int(4) / Int(4)), "o");  // truncating, but never negative
  EXPECT_EQ(S(Binary(ExprKind::kMod, o * Int(4) + i, Int(4))), "i");
  EXPECT_EQ(S(x / Int(4)), "x / 4");                                 // may be negative
  EXPECT_EQ(S(FloorDiv(x * Int(4), Int(4))), "floordiv(x * 4, 4)");  // may wrap
}

TEST_F(Rules, FusedIndicesComeTogether) {
  EXPECT_EQ(S(FloorDiv(x, Int(4)) * Int(4) + FloorMod(x, Int(4))), "x");
  EXPECT_EQ(S(FloorDiv(j, Int(12)) * Int(12) + FloorMod(FloorDiv(j, Int(4)), Int(3)) * Int(4) +
              FloorMod(j, Int(4))),
            "j");
  EXPECT_EQ(S(FloorMod(j, Int(4)) * Int(8) + FloorDiv(j, Int(4)) * Int(32) + o), "j * 8 + o");
  EXPECT_EQ(S(FloorDiv(j, Int(4)) * Int(5) + FloorMod(j, Int(4))),
            "floordiv(j, 4) * 5 + floormod(j, 4)");
}

// Rows of an open length n.
TEST_F(Rules, RowsAndColumnsOfOpenLength) {
  const Expr f = o * Int(4) + i, rows = n * o;
  EXPECT_EQ(S(FloorDiv(f, n) * n + FloorMod(f, n)), "o * 4 + i");
  EXPECT_EQ(S((FloorDiv(f, n) - x) * n * Int(8) + FloorMod(f, n) * Int(8)),
            "o * 32 + i * 8 - x * n * 8");
  EXPECT_EQ(S(FloorDiv(f, n) * n * Int(8) + FloorMod(f, n)),
            "floordiv(o * 4 + i, n) * n * 8 + floormod(o * 4 + i, n)");
  EXPECT_EQ(S((o + x) * n - n * o), "x * n");
  EXPECT_EQ(S((o + x) * n - n * i), "(o + x) * n - n * i");
  EXPECT_EQ(S(FloorDiv(rows + n * Int(2) - Int(1), n)), "o + 1");
  EXPECT_EQ(S(FloorMod(rows * Int(3) + i, n)), "floormod(i, n)");
  EXPECT_EQ(S(FloorDiv(rows + x, n)), "floordiv(n * o + x, n)");  // may wrap
  EXPECT_EQ(S(FloorDiv(rows + f, n)), "o + floordiv(o * 4 + i, n)");
  EXPECT_EQ(S(FloorDiv(i * x, x)), "floordiv(i * x, x)");  // x may be negative, or large
}

TEST_F(Rules, Comparisons) {
  EXPECT_EQ(S(o < Int(8)), "true");
  EXPECT_EQ(S(o >= Int(8)), "false");
  EXPECT_EQ(S(o * Int(4) + i < Int(32)), "true");
  EXPECT_EQ(S(o * Int(4) + i < Int(16)), "o < 4");
  EXPECT_EQ(S(o * Int(4) + i < Int(30)), "o * 4 + i < 30");
  EXPECT_EQ(S(o * Int(4) <= Int(13)), "o < 4");
  EXPECT_EQ(S(o + i < i + Int(3)), "o < 3");
  EXPECT_EQ(S(Int(3) <= o), "2 < o");
  EXPECT_EQ(S(ir::Eq(o * Int(4), Int(6))), "false");
  EXPECT_EQ(S(ir::Eq(o * Int(4), Int(8))), "o == 2");
  EXPECT_EQ(S(ir::Not(o < Int(3))), "2 < o");
  EXPECT_EQ(S(x < x + Int(1)), "x < x + 1");  // wraps at the top
  EXPECT_EQ(S(n >= Int(1)), "true");
  EXPECT_EQ(S((o < Int(8)) && (i < Int(2))), "i < 2");
}

TEST_F(Rules, Choices) {
  EXPECT_EQ(S(ir::Min(o, Int(7))), "o");
  EXPECT_EQ(S(ir::Max(o + Int(1), o)), "o + 1");
  EXPECT_EQ(S(ir::Min(Int(16), Int(30) - o * Int(4))), "min(30 - o * 4, 16)");
  EXPECT_EQ(S(ir::Min(ir::Min(x, Int(9)), Int(4))), "min(x, 4)");
  EXPECT_EQ(S(ir::Select(o < Int(8), i, j)), "i");
  EXPECT_EQ(S(ir::Select(o < Int(4), i + Int(0), i)), "i");
}

TEST_F(Rules, VectorsAndFloats) {
  Expr lanes = ir::Ramp(o * Int(8), Int(1), 8);
  EXPECT_EQ(S(lanes + ir::Broadcast(i, 8)), "ramp(o * 8 + i, 1, 8)");
  EXPECT_EQ(S(lanes * ir::Broadcast(Int(4), 8)), "ramp(o * 32, 4, 8)");
  EXPECT_EQ(S(lanes < ir::Broadcast(Int(64), 8)), "broadcast(true, 8)");
  Expr f = MakeVar("f", ir::kF32);
  EXPECT_EQ(S(f * ir::Float(1)), "f");
  EXPECT_EQ(S(f + ir::Float(0)), "f + 0.0f32");  // not for -0
  EXPECT_EQ(S(f * ir::Float(0)), "f * 0.0f32");  // not for NaN
}

TEST_F(Rules, DivisionByZeroIsNotHidden) {
  Expr zero = FloorDiv(o, Int(0));
  EXPECT_EQ(S(zero), "floordiv(o, 0)");
}

TEST_F(Rules, UnchangedExpressionsKeepTheirIdentity) {
  for (const Expr& e :
       {o * Int(4) + i, ir::Min(Int(30) - o * Int(4), Int(16)), FloorDiv(x, Int(4)), o < Int(3)}) {
    EXPECT_EQ(Simplify(e, analyzer), e) << ir::Print(e);
  }
}

TEST_F(Rules, ProvesAndDifferences) {
  EXPECT_TRUE(Proves(o * Int(4) + i < Int(32), analyzer));
  EXPECT_FALSE(Proves(o < Int(7), analyzer));
  int64_t d = 0;
  EXPECT_TRUE(ConstantDifference(o * Int(4) + Int(9), (o + Int(1)) * Int(4), analyzer, &d));
  EXPECT_EQ(d, 5);
  EXPECT_FALSE(ConstantDifference(o, i, analyzer, &d));
}

TEST_F(Rules, CongruencesDecide) {
  const Var v = MakeVar("v"), w = MakeVar("w");
  analyzer.Set(v, {0, 96}, {4, 0});
  analyzer.Set(w, {0, 1000}, {8, 3});
  EXPECT_EQ(S(FloorMod(v, Int(4))), "0");
  EXPECT_EQ(S(FloorMod(v + Int(7), Int(4))), "3");
  EXPECT_EQ(S(FloorMod(w * Int(2) + v, Int(4))), "2");
  EXPECT_EQ(S(FloorDiv(v + Int(3), Int(4))), "floordiv(v, 4)");
  EXPECT_EQ(S(FloorDiv(v + Int(3), Int(8))), "floordiv(v, 8)");
  EXPECT_EQ(S(FloorMod(v + Int(1), Int(8))), "floormod(v, 8) + 1");
  EXPECT_EQ(S(FloorDiv(w + Int(4), Int(8))), "floordiv(w, 8)");
  EXPECT_EQ(S(FloorDiv(w + Int(5), Int(8))), "floordiv(w + 5, 8)");  // the next one
  EXPECT_EQ(S(v < Int(13)), "v < 16");
  EXPECT_EQ(S(v < Int(93)), "v < 96");
  EXPECT_EQ(S(v < Int(97)), "true");
  EXPECT_EQ(S(ir::Eq(v, Int(6))), "false");
  EXPECT_EQ(S(ir::Eq(v + w, Int(8))), "false");
  EXPECT_EQ(S(ir::Eq(v, Int(8))), "v == 8");
}

// ------------------------------------------------------------------------------------------------
// rule table

// A row's variables as random expressions over a, b, c (integers) that satisfy its condition.
bool BindRow(const RuleRow& row, support::Rng* rng, const std::vector<Var>& vars,
             RuleBinding* binding) {
  bool float_choice = rng->Bernoulli(0.2);
  for (size_t i = 0; i < kRuleVariables.size(); ++i) {
    char name = kRuleVariables[i];
    Expr e = tests::RandomIndexExpr(rng, vars, 1);
    if (name == 'c' || name == 'd') e = Int(rng->UniformInt(-4, 6), vars[0]->dtype);
    if (name == 'p' || name == 'q' || name == 'r') e = tests::RandomCondition(rng, vars, 1);
    if (name >= 'u' && name <= 'w' && float_choice) e = ir::Cast(ir::kF32, e);
    (*binding)[i] = e;
  }
  Expr condition = Instantiate(row.condition, *binding);
  return condition != nullptr && ir::IsInt(condition, 1);
}

// Integer values only: floats are compared through a cast that loses nothing here.
absl::StatusOr<int64_t> ValueOf(const Expr& e, const std::vector<std::pair<Var, int64_t>>& at) {
  return ir::EvalIntExpr(e->dtype.is_float() ? ir::Cast(ir::kI64, e) : e, at);
}

int64_t Nodes(const Expr& e) {
  int64_t n = 0;
  ir::VisitExprs(e, [&](const Expr&) { return ++n > 0; });
  return n;
}

TEST(RuleTable, EveryRowKeepsTheValueAndFires) {
  support::Rng rng(tests::TestSeed(97));
  for (const RuleRow& row : SimplifyRules()) {
    EXPECT_LT(Nodes(row.replacement), Nodes(row.pattern)) << row.name;
    int64_t tried = 0, fired = 0;
    for (int round = 0; round < 4000 && tried < 120; ++round) {
      std::vector<Var> vars;
      ir::DType type = rng.Bernoulli(0.7) ? ir::kI64 : ir::kI32;
      for (const char* name : {"a", "b", "c"}) vars.push_back(MakeVar(name, type));
      RuleBinding binding;
      if (!BindRow(row, &rng, vars, &binding)) continue;
      Expr pattern = Instantiate(row.pattern, binding),
           result = Instantiate(row.replacement, binding);
      ASSERT_TRUE(pattern != nullptr && result != nullptr) << row.name;
      ++tried;
      const RuleRow* used = nullptr;
      fired += RewriteByRule(pattern, &used) != nullptr && used->name == row.name;
      for (int k = 0; k < 30; ++k) {
        std::vector<std::pair<Var, int64_t>> at;
        for (const Var& v : vars) at.emplace_back(v, rng.UniformInt(-6, 8));
        auto before = ValueOf(pattern, at), after = ValueOf(result, at);
        ASSERT_TRUE(before.ok() && after.ok()) << before.status() << after.status();
        ASSERT_EQ(*before, *after)
            << row.name << ": " << ir::Print(pattern) << "\n-> " << ir::Print(result);
      }
    }
    EXPECT_GE(tried, 40) << row.name;
    EXPECT_GT(fired, 0) << row.name << ": another row always comes first, or it never matches";
  }
}

TEST_F(Rules, RowsApplyAfterNormalForms) {
  const Var p = MakeVar("p", ir::kBool), q = MakeVar("q", ir::kBool);
  EXPECT_EQ(S(ir::Max(ir::Min(x, j), x)), "x");
  EXPECT_EQ(S(ir::Min(ir::Max(Int(9), x), Int(4))), "4");
  EXPECT_EQ(S(ir::Select(x < n, x, n)), "min(x, n)");
  EXPECT_EQ(S(ir::Select(ir::Not(p), x, n)), "select(p, n, x)");
  EXPECT_EQ(S(ir::Select(p, ir::Select(p, x, n), j)), "select(p, x, j)");
  EXPECT_EQ(S((x < Int(3)) && (x < Int(7))), "x < 3");
  EXPECT_EQ(S((Int(7) < x) && (x < Int(3))), "false");
  EXPECT_EQ(S(ir::Eq(x, Int(3)) && (x < Int(2))), "false");
  EXPECT_EQ(S(p && ir::Not(p)), "false");
  EXPECT_EQ(S(ir::Binary(ExprKind::kOr, q && p, p && q)), "q && p");
}

// ------------------------------------------------------------------------------------------------
// fuzz

struct Scope {
  std::vector<Var> vars;
  Analyzer analyzer;
  std::vector<Interval> ranges;
  std::vector<Congruence> congruences;

  // A value that a variable may have.
  int64_t Draw(size_t v, support::Rng* rng) const {
    int64_t lo = ranges[v].min, hi = ranges[v].max;
    int64_t x = rng->Bernoulli(0.2) ? (rng->Bernoulli(0.5) ? lo : hi) : rng->UniformInt(lo, hi);
    const Congruence& c = congruences[v];
    if (c.modulus <= 1) return x;
    x -= ir::FloorModInt(x - c.remainder, c.modulus);
    return x < lo ? x + c.modulus : x;
  }
};

Scope MakeScope(support::Rng* rng, ir::DType type) {
  Scope s;
  for (const char* name : {"a", "b", "c"}) {
    s.vars.push_back(MakeVar(name, type));
    Interval range{0, rng->UniformInt(0, 40)};
    if (rng->Bernoulli(0.2)) range.min = rng->UniformInt(-20, 0);
    if (rng->Bernoulli(0.1)) range = TypeInterval(type);
    Congruence congruence;
    if (rng->Bernoulli(0.3) && range.max < 1000) {
      congruence.modulus = rng->UniformInt(2, 12);
      congruence.remainder = rng->UniformInt(0, congruence.modulus - 1);
      range.max += congruence.modulus;  // some value is there
    }
    s.ranges.push_back(range);
    s.congruences.push_back(congruence);
    s.analyzer.Set(s.vars.back(), range, congruence);
  }
  return s;
}

TEST(SimplifyFuzz, PreservesValuesAndIsIdempotent) {
  support::Rng rng(tests::TestSeed(41));
  constexpr int kEnvironments = 4;
  int64_t evaluations = 0, changed = 0;
  const int64_t rounds = tests::TestRounds(100'000);
  for (int64_t round = 0; round < rounds; ++round) {
    Scope scope = MakeScope(&rng, rng.Bernoulli(0.8) ? ir::kI64 : ir::kI32);
    bool condition = rng.Bernoulli(0.3);
    Expr e = condition ? tests::RandomCondition(&rng, scope.vars, 4)
                       : tests::RandomIndexExpr(&rng, scope.vars, 5);
    Expr s = Simplify(e, scope.analyzer);
    changed += s != e;
    ASSERT_EQ(s->dtype, e->dtype);
    Expr again = Simplify(s, scope.analyzer);
    ASSERT_TRUE(ir::StructuralEqual(again, s))
        << ir::Print(e) << "\n-> " << ir::Print(s) << "\n-> " << ir::Print(again);
    ASSERT_EQ(again, s) << "identity: " << ir::Print(s);
    for (int k = 0; k < kEnvironments; ++k) {
      std::vector<std::pair<Var, int64_t>> values;
      for (size_t v = 0; v < scope.vars.size(); ++v) {
        values.emplace_back(scope.vars[v], scope.Draw(v, &rng));
      }
      absl::StatusOr<int64_t> before = ir::EvalIntExpr(e, values),
                              after = ir::EvalIntExpr(s, values);
      ASSERT_TRUE(before.ok() && after.ok()) << before.status() << after.status();
      ++evaluations;
      if (*before == *after) continue;
      std::string at;
      for (const auto& [v, x] : values) at += v->name + "=" + std::to_string(x) + " ";
      FAIL() << ir::Print(e) << "\n-> " << ir::Print(s) << "\nat " << at << ": expected " << *before
             << ", found " << *after;
    }
  }
  EXPECT_GE(evaluations, rounds * kEnvironments);
  EXPECT_GT(changed, rounds / 2);
}

// Indices into rows of an open length: sums of products with it, quotients and remainders by it.
TEST(SimplifyFuzz, OpenRowsKeepTheirValues) {
  support::Rng rng(tests::TestSeed(43));
  const int64_t rounds = tests::TestRounds(20'000);
  int64_t changed = 0;
  for (int64_t round = 0; round < rounds; ++round) {
    const Var n = MakeVar("n"), m = MakeVar("m");
    Analyzer analyzer;
    std::vector<Var> loops;
    for (const char* name : {"a", "b"}) loops.push_back(MakeVar(name));
    for (const Var& v : loops) analyzer.Set(v, {0, 40});
    for (const Var& v : {n, m}) analyzer.Set(v, {rng.Bernoulli(0.5) ? 0 : 1, 1000});
    const auto draw = [&](auto&& self, int depth) -> Expr {
      const Expr& size = rng.Bernoulli(0.7) ? n : m;
      if (depth == 0) return rng.Bernoulli(0.8) ? loops[rng.Uniform(2)] : size;
      const Expr a = self(self, depth - 1), b = self(self, depth - 1);
      switch (rng.Uniform(6)) {
        case 0:
          return a - b;
        case 1:
          return a * size;
        case 2:
          return a * Int(rng.UniformInt(-3, 5));
        case 3:
          return FloorDiv(a, size);
        case 4:
          return FloorDiv(a, size) * size + FloorMod(a, size);
        default:
          return a + b;
      }
    };
    const Expr e = draw(draw, 4), s = Simplify(e, analyzer);
    changed += s != e;
    ASSERT_EQ(Simplify(s, analyzer), s) << ir::Print(e) << " -> " << ir::Print(s);
    for (int k = 0; k < 4; ++k) {
      const std::vector<std::pair<Var, int64_t>> values = {{n, rng.UniformInt(1, 9)},
                                                           {m, rng.UniformInt(1, 9)},
                                                           {loops[0], rng.UniformInt(0, 40)},
                                                           {loops[1], rng.UniformInt(0, 40)}};
      const auto before = ir::EvalIntExpr(e, values), after = ir::EvalIntExpr(s, values);
      ASSERT_TRUE(before.ok() && after.ok()) << before.status() << after.status();
      ASSERT_EQ(*before, *after) << ir::Print(e) << " -> " << ir::Print(s);
    }
  }
  EXPECT_GT(changed, rounds / 2);
}

TEST(SimplifyFuzz, StatementsKeepTheirMeaning) {
  uint64_t base = tests::TestSeed(500);
  SimplifyOptions unit;
  unit.remove_unit_loops = true;
  for (int i = 0; i < tests::TestRounds(150); ++i) {
    ir::Function flat = tests::RandomFlat(base + i);
    auto expected = tests::RunProgram(flat, {}, 1);
    ASSERT_TRUE(expected.ok()) << expected.status();
    for (const SimplifyOptions& options : {SimplifyOptions{}, unit}) {
      ir::Function s = Simplify(flat, options);
      ASSERT_TRUE(ir::Verify(s).ok()) << ir::Verify(s) << ir::Print(s);
      auto found = tests::RunProgram(s, {}, 1);
      ASSERT_TRUE(found.ok()) << found.status() << ir::Print(flat) << ir::Print(s);
      ASSERT_EQ(*found, *expected) << "seed " << base + i << "\n"
                                   << ir::Print(flat) << ir::Print(s);
      ASSERT_TRUE(ir::StructuralEqual(Simplify(s, options), s))
          << ir::Print(s) << ir::Print(Simplify(s, options));
    }
    tests::RandomProgram p = tests::RandomTe(base + i);
    auto te_expected = tests::RunProgram(p.function, p.sizes, 1);
    ir::Function s = Simplify(p.function);
    ASSERT_TRUE(ir::Verify(s).ok()) << ir::Verify(s) << ir::Print(s);
    auto te_found = tests::RunProgram(s, p.sizes, 1);
    ASSERT_TRUE(te_expected.ok() && te_found.ok())
        << te_expected.status() << te_found.status() << ir::Print(s);
    ASSERT_EQ(*te_found, *te_expected) << p.Describe() << ir::Print(s);
  }
}

std::string SimplifiedBody(const std::string& text, const SimplifyOptions& options = {}) {
  absl::StatusOr<ir::Function> f = ir::ParseFunction(text);
  EXPECT_TRUE(f.ok()) << f.status();
  return ir::Print(Simplify(*f, options).body);
}

TEST(SimplifyStmt, ConditionsAreDecidedByLoops) {
  EXPECT_EQ(SimplifiedBody("fn f(y: i64[8] output) stage=flat { for i in 0..8 { if (i < 8) { y[i] "
                           "= 1; } else { y[i] = 2; } } }"),
            "for i in 0..8 {\n  y[i] = 1;\n}\n");
  EXPECT_EQ(SimplifiedBody("fn f(y: i64[8] output) stage=flat { for i in 0..8 { if (i < 4) { if (i "
                           "< 6) { y[i] = 1; } } else { if (i < 3) { y[i] = 2; } } } }"),
            "for i in 0..8 {\n  if (i < 4) {\n    y[i] = 1;\n  }\n}\n");
  // The same condition again, though no range follows from it.
  EXPECT_EQ(SimplifiedBody("fn f(x: i64[8] input, y: i64[8] output) stage=flat { for i in 0..8 { "
                           "if (x[i] == 3) { if (x[i] == 3) { y[i] = 1; } } } }"),
            "for i in 0..8 {\n  if (x[i] == 3) {\n    y[i] = 1;\n  }\n}\n");
  EXPECT_EQ(SimplifiedBody("fn f(y: i64[8] output) stage=flat { for i in 0..0 { y[i] = 1; } for j "
                           "in 0..8 { if (j < 0) { y[j] = 1; } } }"),
            "");
  EXPECT_EQ(SimplifiedBody(
                "fn f(y: i64[8] output) stage=flat { for i in 3..4 { let v = i { y[v] = v; } } }",
                {.remove_unit_loops = true}),
            "y[3] = 3;\n");
  EXPECT_EQ(SimplifiedBody("fn f(y: i64[8] output) stage=flat { y[ramp(0, 1, 8)] masked(ramp(0, 1, "
                           "8) < broadcast(8, 8)) = ramp(0, 1, 8); }"),
            "y[ramp(0, 1, 8)] = ramp(0, 1, 8);\n");
  EXPECT_EQ(SimplifiedBody("fn f(y: i64[30] output) { for o in 0..8 { for i in 0..4 { block b(v: "
                           "spatial 0..32 = o * 4 + i) where (o * 4 + i < 32) "
                           "{ writes y[v:1]; y[v] = 1; } } } }"),
            R"(for o in 0..8 {
  for i in 0..4 {
    block b(v: spatial 0..32 = o * 4 + i) {
      writes y[v:1];
      y[v] = 1;
    }
  }
}
)");
}

// The search simplifies thousands of programs: this guards against an accidental square, not
// against slow machines.
TEST(SimplifySpeed, ManyNodesPerMillisecond) {
  support::Rng rng(1);
  Scope scope = MakeScope(&rng, ir::kI64);
  std::vector<Expr> exprs;
  int64_t nodes = 0;
  for (int i = 0; i < 3000; ++i) {
    exprs.push_back(tests::RandomIndexExpr(&rng, scope.vars, 4));
    ir::VisitExprs(exprs.back(), [&](const Expr&) { return ++nodes > 0; });
  }
  std::clock_t start = std::clock();  // of this process: other work on the machine does not count
  for (const Expr& e : exprs) Simplify(e, scope.analyzer);
  double ms = static_cast<double>(std::clock() - start + 1) * 1000 / CLOCKS_PER_SEC;
  std::printf("simplify: %.0f nodes per ms\n", static_cast<double>(nodes) / ms);
  EXPECT_GT(static_cast<double>(nodes) / ms, 20);
}

}  // namespace
}  // namespace tilewright::analysis
