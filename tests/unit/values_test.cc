// Intervals, congruences, affine forms and access regions, against exhaustive
// evaluation.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <set>

#include "compiler/analysis/access_region.h"
#include "compiler/analysis/address.h"
#include "compiler/analysis/affine.h"
#include "compiler/analysis/analyzer.h"
#include "compiler/analysis/simplify.h"
#include "compiler/ir/expr_parts.h"
#include "compiler/ir/interp.h"
#include "compiler/ir/ir_text.h"
#include "compiler/ir/numeric.h"
#include "compiler/ir/visit.h"
#include "deploy/support/rng.h"
#include "tests/support/random_ir.h"
#include "tests/support/test_seed.h"

namespace tilewright::analysis {
namespace {

using ir::DType;
using ir::Expr;
using ir::ExprKind;
using ir::Int;
using ir::MakeVar;
using ir::Var;

// Every operator on small intervals holds exactly what can happen; the interval may be larger,
// never smaller.
TEST(Interval, OperatorsContainEveryResult) {
  constexpr DType kSmall = ir::kI8;
  const ExprKind kinds[] = {
      ExprKind::kAdd,      ExprKind::kSub,      ExprKind::kMul, ExprKind::kDiv, ExprKind::kMod,
      ExprKind::kFloorDiv, ExprKind::kFloorMod, ExprKind::kMin, ExprKind::kMax, ExprKind::kEq,
      ExprKind::kNe,       ExprKind::kLt,       ExprKind::kLe,  ExprKind::kGt,  ExprKind::kGe};
  const int64_t ends[] = {-128, -127, -20, -3, -1, 0, 1, 2, 7, 12, 100, 126, 127};
  int64_t tight = 0, all = 0;
  for (ExprKind kind : kinds) {
    support::Rng rng(static_cast<uint64_t>(kind));
    for (int round = 0; round < 150; ++round) {
      Interval a{ends[rng.Uniform(13)], ends[rng.Uniform(13)]},
          b{ends[rng.Uniform(13)], ends[rng.Uniform(13)]};
      if (a.min > a.max) std::swap(a.min, a.max);
      if (b.min > b.max) std::swap(b.min, b.max);
      Interval r = BinaryInterval(kind, kSmall, a, b), seen{1000, -1000};
      for (int64_t x = a.min; x <= a.max; ++x) {
        for (int64_t y = b.min; y <= b.max; ++y) {
          int64_t v = 0;
          if (!ir::EvalIntBinary(kind, kSmall, x, y, &v)) continue;
          seen = {std::min(seen.min, v), std::max(seen.max, v)};
        }
      }
      if (seen.min > seen.max) continue;
      ASSERT_TRUE(seen.Within(r)) << static_cast<int>(kind) << " [" << a.min << "," << a.max
                                  << "] [" << b.min << "," << b.max << "] gave [" << r.min << ","
                                  << r.max << "], seen [" << seen.min << "," << seen.max << "]";
      tight += seen == r;
      ++all;
    }
  }
  EXPECT_GT(tight * 10, all * 6);  // and it says something
}

struct Scope {
  std::vector<Var> vars;
  Analyzer analyzer;
  std::vector<std::pair<Var, int64_t>> Sample(support::Rng* rng) const {
    std::vector<std::pair<Var, int64_t>> values;
    for (const Var& v : vars) {
      Interval range = analyzer.Values(v);
      Congruence c = analyzer.CongruenceOf(v);
      int64_t x = rng->UniformInt(range.min, range.max);
      if (c.modulus > 1)
        x = std::min(range.max,
                     std::max(range.min, x - ir::FloorModInt(x - c.remainder, c.modulus)));
      if (c.modulus > 1 && ir::FloorModInt(x - c.remainder, c.modulus) != 0)
        x += c.modulus - ir::FloorModInt(x - c.remainder, c.modulus);
      values.emplace_back(v, x);
    }
    return values;
  }
};

Scope MakeScope() {
  Scope s;
  s.vars = {MakeVar("a"), MakeVar("b"), MakeVar("c"), MakeVar("d")};
  s.analyzer.Set(s.vars[0], {0, 31});
  s.analyzer.Set(s.vars[1], {0, 3});
  s.analyzer.Set(s.vars[2], {-10, 20});
  s.analyzer.Set(s.vars[3], {0, 96}, {8, 0});
  return s;
}

TEST(Interval, ExpressionsStayInTheirIntervalAndCongruence) {
  Scope scope = MakeScope();
  support::Rng rng(tests::TestSeed(7));
  int64_t bounded = 0, congruent = 0;
  for (int i = 0; i < 4000; ++i) {
    Expr e = tests::RandomIndexExpr(&rng, scope.vars, 4);
    Interval range = scope.analyzer.Values(e);
    Congruence c = scope.analyzer.CongruenceOf(e);
    bounded += range.is_bounded();
    congruent += c.modulus != 1;
    for (int k = 0; k < 10; ++k) {
      auto values = scope.Sample(&rng);
      absl::StatusOr<int64_t> v = ir::EvalIntExpr(e, values);
      ASSERT_TRUE(v.ok()) << v.status();
      ASSERT_TRUE(range.Contains(*v))
          << ir::Print(e) << " = " << *v << " outside [" << range.min << ", " << range.max << "]";
      bool holds =
          c.modulus == 0 ? *v == c.remainder : ir::FloorModInt(*v, c.modulus) == c.remainder;
      ASSERT_TRUE(holds) << ir::Print(e) << " = " << *v << " is not " << c.remainder << " mod "
                         << c.modulus;
    }
  }
  EXPECT_GT(bounded, 3000);
  EXPECT_GT(congruent, 400);
}

// What wraps keeps no congruence, except what the width itself divides.
TEST(Interval, CongruencesSurviveWrappingSoundly) {
  Var x = MakeVar("x", ir::kI8);
  Analyzer analyzer;
  for (int64_t factor = 1; factor < 40; ++factor) {
    for (int64_t offset : {0, 1, 100}) {
      Expr e = x * Int(factor, ir::kI8) + Int(offset, ir::kI8);
      Congruence c = analyzer.CongruenceOf(e);
      for (int64_t v = -128; v < 128; ++v) {
        int64_t value = *ir::EvalIntExpr(e, {{x, v}});
        ASSERT_TRUE(c.modulus == 0 ? value == c.remainder
                                   : ir::FloorModInt(value, c.modulus) == c.remainder)
            << ir::Print(e) << " at " << v << " = " << value << " is not " << c.remainder << " mod "
            << c.modulus;
      }
    }
  }
  analyzer.Set(x, {0, 9});
  EXPECT_EQ(analyzer.CongruenceOf(x * Int(12, ir::kI8) + Int(5, ir::kI8)), (Congruence{12, 5}));
}

TEST(Interval, AssumptionsNarrowSoundly) {
  support::Rng rng(tests::TestSeed(9));
  int64_t narrowed = 0;
  for (int i = 0; i < 4000; ++i) {
    Scope scope = MakeScope();
    Expr condition = tests::RandomCondition(&rng, scope.vars, 3);
    Analyzer assumed = scope.analyzer;
    assumed.Assume(condition);
    for (const Var& v : scope.vars) narrowed += assumed.Values(v) != scope.analyzer.Values(v);
    for (int k = 0; k < 10; ++k) {
      auto values = scope.Sample(&rng);
      if (*ir::EvalIntExpr(condition, values) == 0) continue;
      for (const auto& [v, x] : values) {
        ASSERT_TRUE(assumed.Values(v).Contains(x))
            << ir::Print(condition) << " with " << v->name << " = " << x;
      }
    }
  }
  EXPECT_GT(narrowed, 300);
  Scope scope = MakeScope();
  scope.analyzer.Assume(scope.vars[0] * Int(4) + scope.vars[1] < Int(30));
  EXPECT_EQ(scope.analyzer.Values(scope.vars[0]), (Interval{0, 7}));
}

// A random sum over i and j, with products, divisions and choices of what `vars` holds.
Expr RandomSum(support::Rng* rng, const std::vector<Var>& vars, int depth) {
  if (depth == 0) {
    return rng->Bernoulli(0.3) ? Int(rng->UniformInt(-9, 9)) : rng->Choice(vars);
  }
  const Expr a = RandomSum(rng, vars, depth - 1), b = RandomSum(rng, vars, depth - 1);
  switch (rng->Uniform(8)) {
    case 0:
      return a * rng->Choice(vars);
    case 1:
      return ir::FloorDiv(a, Int(rng->UniformInt(1, 5)));
    case 2:
      return ir::Min(a, b);
    case 3:
      return a * Int(rng->UniformInt(-4, 4));
    case 4:
      return a - b;
    default:
      return a + b;
  }
}

// The terms of a sum have its value everywhere; coefficients are differences between neighbours.
TEST(Affine, TermsAndCoefficientsAreThoseOfTheValue) {
  support::Rng rng(tests::TestSeed(21));
  const Var i = MakeVar("i"), j = MakeVar("j"), n = MakeVar("n");
  int affine = 0, other = 0;
  for (int64_t round = 0; round < tests::TestRounds(2000); ++round) {
    const Expr e = RandomSum(&rng, {i, j, n}, rng.UniformInt(1, 3));
    const std::vector<std::pair<Var, int64_t>> at = {
        {i, rng.UniformInt(-20, 20)}, {j, rng.UniformInt(-20, 20)}, {n, rng.UniformInt(-20, 20)}};
    auto value = [](const Expr& x, const auto& point) { return *ir::EvalIntExpr(x, point); };
    const ir::SumTerms terms = ir::TermsOf(e);
    int64_t sum = terms.constant;
    for (const ir::SumTerm& t : terms.terms) sum += t.coefficient * value(*t.atom, at);
    ASSERT_EQ(sum, value(e, at)) << ir::Print(e);

    const std::vector<Var> vars = {i, j};
    const auto coefficients = ir::CoefficientsOf(e, vars);
    EXPECT_EQ(StrideOf(e, i).has_value() && StrideOf(e, j).has_value(), coefficients.has_value());
    (coefficients.has_value() ? affine : other) += 1;
    for (size_t v = 0; v < vars.size() && coefficients.has_value(); ++v) {
      auto next = at;
      next[v].second += 1;
      ASSERT_EQ(value(e, next) - value(e, at), (*coefficients)[v]) << ir::Print(e);
      ASSERT_EQ(StrideOf(e, vars[v]), (*coefficients)[v]) << ir::Print(e);
    }
  }
  EXPECT_GT(affine, 200);
  EXPECT_GT(other, 200);
}

TEST(Affine, TakesSumsApart) {
  Var i = MakeVar("i"), j = MakeVar("j"), n = MakeVar("n");
  auto c = ir::CoefficientsOf((i * Int(4) + j) * Int(3) - j + n + Int(7), std::vector<Var>{i, j});
  ASSERT_TRUE(c);
  EXPECT_EQ(*c, (std::vector<int64_t>{12, 2}));
  EXPECT_EQ(ir::TermsOf(Int(7) - (n - Int(2)) * Int(3)).constant, 13);
  EXPECT_FALSE(StrideOf(i * j, i));
  EXPECT_EQ(StrideOf(i * j, n), 0);
  EXPECT_EQ(StrideOf(j * Int(20) + i * Int(400), i), 400);
  EXPECT_EQ(StrideOf(ir::FloorMod(i, Int(4)), i), std::nullopt);
  // Coefficients are those of arithmetic that wraps.
  Var k = MakeVar("k", ir::kI32);
  EXPECT_EQ(StrideOf(k * Int(65536, ir::kI32) * Int(65536, ir::kI32), k), 0);
}

// The step of each variable is what evaluation at two points gives, through divisions and choices,
// too.
TEST(Address, FirstStepsAreDifferencesOfAddresses) {
  support::Rng rng(tests::TestSeed(23));
  const std::vector<Var> vars = {MakeVar("i"), MakeVar("j"), MakeVar("k")};
  int moved = 0;
  for (int64_t round = 0; round < tests::TestRounds(1000); ++round) {
    std::vector<Expr> indices;
    for (int d = 0; d < 2; ++d) {
      const Expr e = RandomSum(&rng, vars, static_cast<int>(rng.UniformInt(1, 3)));
      indices.push_back(
          rng.Bernoulli(0.3) ? ir::Select(vars[0] < Int(rng.UniformInt(-3, 3)), e, vars[1]) : e);
    }
    const std::vector<double> dim_strides = {static_cast<double>(rng.UniformInt(1, 50)), 1};
    std::vector<FirstValue> first;
    for (const Var& v : vars) first.push_back({v, rng.UniformInt(-3, 3)});
    auto address = [&](size_t moving) {
      std::vector<std::pair<Var, int64_t>> at;
      for (size_t v = 0; v < first.size(); ++v) {
        at.emplace_back(first[v].var, first[v].value + (v == moving ? 1 : 0));
      }
      return *ir::EvalIntExpr(indices[0], at) * static_cast<int64_t>(dim_strides[0]) +
             *ir::EvalIntExpr(indices[1], at);
    };
    const std::vector<int64_t> steps = FirstSteps(indices, dim_strides, first, {});
    ASSERT_EQ(steps.size(), vars.size());
    for (size_t v = 0; v < vars.size(); ++v) {
      ASSERT_EQ(steps[v], address(v) - address(vars.size()))
          << ir::Print(indices[0]) << ", " << ir::Print(indices[1]);
      moved += steps[v] != 0 ? 1 : 0;
    }
  }
  EXPECT_GT(moved, 500);
  // What is not known does not move.
  const Var n = MakeVar("n");
  EXPECT_EQ(FirstSteps({vars[0] + n, vars[0] * Int(4)}, {100, 1}, {{vars[0], 0}}, {}),
            std::vector<int64_t>{4});
}

TEST(IndexInterval, ArithmeticHoldsEveryValue) {
  support::Rng rng(tests::TestSeed(22));
  auto interval = [&] {
    Interval r;
    if (rng.Bernoulli(0.8)) r.min = rng.UniformInt(-30, 30);
    if (rng.Bernoulli(0.8)) r.max = std::max<int64_t>(r.min, -40) + rng.UniformInt(0, 20);
    return r;
  };
  auto inside = [&](const Interval& r) {
    return rng.UniformInt(std::max<int64_t>(r.min, -100), std::min<int64_t>(r.max, 100));
  };
  for (int64_t round = 0; round < tests::TestRounds(20000); ++round) {
    const Interval a = interval(), b = interval();
    const int64_t x = inside(a), y = inside(b);
    const int64_t factor = rng.UniformInt(-5, 5), divisor = rng.UniformInt(1, 6);
    ASSERT_TRUE(AddIndices(a, b).Contains(x + y));
    ASSERT_TRUE(ScaleIndices(a, factor).Contains(x * factor));
    ASSERT_TRUE(FloorDivIndices(a, divisor).Contains(ir::FloorDivInt(x, divisor)));
    ASSERT_EQ(WidthOf(a) < kIndexLimit, a.has_both_ends());
  }
  // Known ends stay exact; at the limit an end is not known any more.
  EXPECT_EQ(AddIndices({1, 2}, {3, 5}), (Interval{4, 7}));
  EXPECT_EQ(ScaleIndices({1, 2}, -3), (Interval{-6, -3}));
  EXPECT_EQ(ScaleIndices({1, kIndexLimit / 2}, 2), (Interval{2, Interval::kMost}));
  EXPECT_EQ(ScaleIndices({1, Interval::kMost}, -1), (Interval{Interval::kLeast, -1}));
  EXPECT_EQ(FloorDivIndices({1, Interval::kMost}, 4), (Interval{0, Interval::kMost}));
}

// ------------------------------------------------------------------------------------------------
// regions

struct LoopSpec {
  Var var;
  int64_t extent;
};

// The touched values of `index` for one setting of the fixed variables, compared with the region's
// claim.
void CheckRegion(const Expr& index, const std::vector<LoopSpec>& inner,
                 const std::vector<LoopSpec>& outer, bool exact) {
  Analyzer analyzer;
  std::vector<LoopRange> ranges;
  for (const LoopSpec& l : outer) analyzer.SetRange(l.var, {Int(0), Int(l.extent)});
  for (const LoopSpec& l : inner) ranges.push_back({l.var, {Int(0), Int(l.extent)}});
  ir::Buffer buffer = ir::MakeBuffer("b", ir::kF32, {Int(1 << 20)});
  ir::BufferRegion region =
      RegionOf(buffer, std::vector<std::vector<Expr>>{{index}}, ranges, analyzer);
  std::vector<std::pair<Var, int64_t>> values;
  std::function<void(const std::vector<LoopSpec>&, size_t, const std::function<void()>&)> each =
      [&](const std::vector<LoopSpec>& loops, size_t k, const std::function<void()>& body) {
        if (k == loops.size()) return body();
        for (int64_t x = 0; x < loops[k].extent; ++x) {
          values.emplace_back(loops[k].var, x);
          each(loops, k + 1, body);
          values.pop_back();
        }
      };
  each(outer, 0, [&] {
    absl::StatusOr<int64_t> min = ir::EvalIntExpr(region.region[0].min, values),
                            extent = ir::EvalIntExpr(region.region[0].extent, values);
    ASSERT_TRUE(min.ok() && extent.ok())
        << min.status() << extent.status() << ir::Print(region.region[0].min);
    int64_t lo = INT64_MAX, hi = INT64_MIN;
    each(inner, 0, [&] {
      int64_t v = *ir::EvalIntExpr(index, values);
      lo = std::min(lo, v);
      hi = std::max(hi, v);
    });
    ASSERT_LE(*min, lo) << ir::Print(index) << " region " << ir::Print(region.region[0].min);
    ASSERT_GE(*min + *extent, hi + 1) << ir::Print(index);
    if (exact) {
      ASSERT_EQ(*min, lo) << ir::Print(index);
      ASSERT_EQ(*extent, hi - lo + 1)
          << ir::Print(index) << " extent " << ir::Print(region.region[0].extent);
    }
  });
}

TEST(Region, SplitAndFusedIndicesAreExact) {
  Var o = MakeVar("o"), i = MakeVar("i"), k = MakeVar("k"), f = MakeVar("f");
  const LoopSpec outer{o, 5}, inner{i, 4}, taps{k, 3};
  CheckRegion(o * Int(4) + i, {inner}, {outer}, true);
  CheckRegion(o * Int(4) + i, {outer}, {inner}, true);
  CheckRegion((o * Int(4) + i) * Int(2) + k, {inner, taps}, {outer}, true);
  CheckRegion(Int(40) - (o * Int(4) + i), {inner}, {outer}, true);
  CheckRegion(o * Int(4) + i - k, {inner, taps}, {outer}, true);
  // Fused loop o * 4 + i in one variable, taken apart again.
  CheckRegion(ir::FloorDiv(o * Int(4) + i, Int(4)), {inner}, {outer}, true);
  CheckRegion(ir::FloorMod(o * Int(4) + i, Int(4)), {inner}, {outer}, true);
  CheckRegion(ir::FloorDiv(o * Int(4) + i, Int(8)), {inner}, {outer}, true);
  CheckRegion(ir::FloorMod(o * Int(4) + i, Int(8)), {inner}, {outer}, true);
  CheckRegion(ir::FloorDiv(f, Int(6)) * Int(6) + ir::FloorMod(f, Int(6)), {{f, 24}}, {outer}, true);
}

TEST(Region, AwkwardIndicesAreCovered) {
  Var o = MakeVar("o"), i = MakeVar("i"), k = MakeVar("k");
  const LoopSpec outer{o, 5}, inner{i, 4}, taps{k, 3};
  CheckRegion(ir::FloorDiv(o * Int(3) + i, Int(4)), {inner}, {outer}, false);
  CheckRegion(ir::FloorMod(o * Int(3) + i, Int(5)), {inner}, {outer}, false);
  CheckRegion(ir::Min(o * Int(4) + i, Int(11)), {inner}, {outer}, false);
  CheckRegion(ir::Max(i - o, Int(0)), {inner}, {outer}, false);
  CheckRegion(ir::Select(i < Int(2), o, o + k), {inner, taps}, {outer}, false);
  CheckRegion(i * k + o, {inner, taps}, {outer}, false);
  support::Rng rng(tests::TestSeed(31));
  for (int n = 0; n < 400; ++n) {
    CheckRegion(tests::RandomIndexExpr(&rng, {o, i, k}, 3), {inner, taps}, {outer}, false);
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST(Region, UnionOfStencilTapsAndWholeDimension) {
  Var o = MakeVar("o"), i = MakeVar("i");
  Analyzer analyzer;
  analyzer.SetRange(o, {Int(0), Int(4)});
  ir::Buffer b = ir::MakeBuffer("b", ir::kF32, {Int(16)});
  std::vector<LoopRange> inner = {{i, {Int(0), Int(4)}}};
  Expr at = o * Int(4) + i;
  ir::BufferRegion r = RegionOf(
      b, std::vector<std::vector<Expr>>{{at - Int(1)}, {at}, {at + Int(1)}}, inner, analyzer);
  EXPECT_EQ(ir::Print(r.region[0].min), "o * 4 - 1");
  EXPECT_TRUE(ir::IsInt(r.region[0].extent, 6));
  RegionOptions clamp;
  clamp.clamp_to_shape = true;
  r = RegionOf(b, std::vector<std::vector<Expr>>{{at - Int(1)}, {at + Int(1)}}, inner, analyzer,
               clamp);
  EXPECT_EQ(ir::Print(r.region[0].min), "max(o * 4 - 1, 0)");
  r = RegionOf(
      b, std::vector<std::vector<Expr>>{{ir::Load(ir::MakeBuffer("idx", ir::kI64, {Int(4)}), {i})}},
      inner, analyzer);
  EXPECT_TRUE(ir::IsInt(r.region[0].min, 0));
  EXPECT_TRUE(ir::IsInt(r.region[0].extent, 16));
}

TEST(Region, SymbolicExtentsStaySymbolic) {
  Var n = MakeVar("n"), i = MakeVar("i");
  Analyzer analyzer;
  analyzer.Set(n, {1, Analyzer::kMaxSize});
  ir::Buffer b = ir::MakeBuffer("b", ir::kF32, {n * Int(2) + Int(8)});
  ir::BufferRegion r =
      RegionOf(b, std::vector<std::vector<Expr>>{{i + Int(3)}}, {{i, {Int(0), n}}}, analyzer);
  EXPECT_TRUE(ir::IsInt(r.region[0].min, 3));
  EXPECT_EQ(ir::Print(r.region[0].extent), "n");
}

TEST(Region, OfStatementsThroughBlocksAndLets) {
  ir::Function f = *ir::ParseFunction(R"(fn f(x: f32[64] input, y: f32[16] output) {
    for o in 0..4 { for i in 0..4 { block b(v: spatial 0..16 = o * 4 + i) { reads x[v * 4:3]; writes y[v:1];
      y[v] = x[v * 4] + x[v * 4 + 2]; } } } })");
  Analyzer analyzer;
  analyzer.SetRange(f.body->var, f.body->range);
  ir::BufferRegion reads = *ReadRegion(f.body->body, f.params[0], analyzer),
                   writes = *WriteRegion(f.body->body, f.params[1], analyzer);
  EXPECT_EQ(ir::Print(reads.region[0].min), "o * 16");
  EXPECT_TRUE(ir::IsInt(reads.region[0].extent, 15));
  EXPECT_EQ(ir::Print(writes.region[0].min), "o * 4");
  EXPECT_TRUE(ir::IsInt(writes.region[0].extent, 4));
  EXPECT_FALSE(ReadRegion(f.body, f.params[1], analyzer).has_value());
}

TEST(Region, OfABufferWithoutDimensions) {
  ir::Function f = *ir::ParseFunction(R"(fn f(x: f32[] input, y: f32[] output) stage=loops {
    for i in 0..4 { y[] = x[]; } })");
  EXPECT_TRUE(ReadRegion(f.body, f.params[0], {}).has_value());
  EXPECT_FALSE(WriteRegion(f.body, f.params[0], {}).has_value());
  EXPECT_FALSE(ReadRegion(f.body, f.params[1], {}).has_value());
  EXPECT_TRUE(WriteRegion(f.body, f.params[1], {}).has_value());
}

}  // namespace
}  // namespace tilewright::analysis
