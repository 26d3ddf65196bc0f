// The normal forms of index expressions against brute force: values, ranges, swept boxes, decided
// conditions, and which loops a tuple of values determines.
#include "compiler/analysis/analyzer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <set>

#include "compiler/analysis/footprint.h"
#include "compiler/analysis/injective.h"
#include "compiler/analysis/simplify.h"
#include "compiler/ir/interp.h"
#include "compiler/ir/ir_text.h"
#include "compiler/ir/numeric.h"
#include "deploy/support/rng.h"
#include "tests/support/random_ir.h"
#include "tests/support/test_seed.h"

namespace tilewright::analysis {
namespace {

using ir::Expr;
using ir::Int;
using ir::Var;
using Point = std::vector<std::pair<Var, int64_t>>;

int64_t Eval(const Expr& e, const Point& point) {
  auto value = ir::EvalIntExpr(e, point);
  EXPECT_TRUE(value.ok()) << value.status() << " " << ir::Print(e);
  return value.ok() ? *value : 0;
}

// Loops 0..extent with all their points.
struct Loops {
  std::vector<Var> vars;
  std::vector<int64_t> extents;
  Analyzer analyzer;

  explicit Loops(std::vector<int64_t> e) : extents(std::move(e)) {
    for (size_t i = 0; i < extents.size(); ++i) {
      vars.push_back(ir::MakeVar("v" + std::to_string(i)));
      analyzer.SetRange(vars[i], {Int(0), Int(extents[i])});
    }
  }
  void ForEachPoint(const std::function<void(const Point&)>& f) const {
    Point point;
    std::function<void(size_t)> run = [&](size_t i) {
      if (i == vars.size()) return f(point);
      for (int64_t v = 0; v < extents[i]; ++v) {
        point.emplace_back(vars[i], v);
        run(i + 1);
        point.pop_back();
      }
    };
    run(0);
  }
};

Loops RandomLoops(support::Rng* rng) {
  std::vector<int64_t> extents;
  for (uint64_t n = 2 + rng->Uniform(2); n > 0; --n) extents.push_back(rng->UniformInt(1, 7));
  return Loops(extents);
}

// What split and fuse make of indices: sums of multiples, divided and taken modulo.
Expr RandomBinding(support::Rng* rng, const std::vector<Var>& vars) {
  Expr sum = Int(rng->UniformInt(0, 2));
  for (const Var& v : vars) {
    if (rng->Bernoulli(0.7)) sum = sum + v * Int(rng->UniformInt(1, 8));
  }
  if (rng->Bernoulli(0.3)) sum = ir::FloorDiv(sum, Int(rng->UniformInt(1, 6)));
  if (rng->Bernoulli(0.3)) sum = ir::FloorMod(sum, Int(rng->UniformInt(1, 9)));
  if (rng->Bernoulli(0.2)) sum = sum + rng->Choice(vars);
  return sum;
}

TEST(AnalyzerTest, NormalFormsKeepTheValueAndTheirRangesHoldIt) {
  support::Rng rng(tests::TestSeed(3));
  for (int64_t round = 0; round < tests::TestRounds(2000); ++round) {
    Loops loops = RandomLoops(&rng);
    Expr e = rng.Bernoulli(0.5) ? tests::RandomIndexExpr(&rng, loops.vars, 3)
                                : RandomBinding(&rng, loops.vars);
    if (e->dtype != ir::kI64) continue;
    Expr simple = loops.analyzer.Normal(e);
    EXPECT_EQ(ir::Print(loops.analyzer.Normal(simple)), ir::Print(simple)) << ir::Print(e);
    Interval range = loops.analyzer.Range(e);
    loops.ForEachPoint([&](const Point& p) {
      int64_t value = Eval(e, p);
      ASSERT_EQ(Eval(simple, p), value) << ir::Print(e) << " -> " << ir::Print(simple);
      ASSERT_LE(range.min, value) << ir::Print(e);
      ASSERT_GE(range.max, value) << ir::Print(e);
    });
    ASSERT_FALSE(HasFailure());
  }
}

// A requantisation: its intervals hold its values.
TEST(AnalyzerTest, IntervalsOfIntegerSteps) {
  support::Rng rng(tests::TestSeed(4));
  for (int64_t round = 0; round < tests::TestRounds(500); ++round) {
    Loops loops = RandomLoops(&rng);
    const auto narrow = [&] {
      const Expr v = loops.vars[static_cast<size_t>(
          rng.UniformInt(0, static_cast<int64_t>(loops.vars.size()) - 1))];
      return ir::Cast(ir::kI32, v * Int(rng.UniformInt(-5, 5)) + Int(rng.UniformInt(-9, 9)));
    };
    const Expr product = ir::Call(ir::Intrinsic::kWideningMul, {narrow(), narrow()});
    const Expr e =
        ir::Call(ir::Intrinsic::kRoundingShiftRight, {product, Int(rng.UniformInt(0, 66))});
    for (const Expr& x : {product, e}) {
      const Interval values = loops.analyzer.Values(x);
      int64_t least = Interval::kMost, most = Interval::kLeast;
      loops.ForEachPoint([&](const Point& p) {
        least = std::min(least, Eval(x, p));
        most = std::max(most, Eval(x, p));
      });
      ASSERT_LE(values.min, least) << ir::Print(x);
      ASSERT_GE(values.max, most) << ir::Print(x);
    }
    // Monotone: as sharp as what is known of the product.
    const Interval of_product = loops.analyzer.Values(product);
    const auto shifted = [&](int64_t end) {
      return ir::EvalIntIntrinsic(ir::Intrinsic::kRoundingShiftRight, ir::kI64, end,
                                  e->args[1]->int_value);
    };
    EXPECT_EQ(loops.analyzer.Values(e),
              (Interval{shifted(of_product.min), shifted(of_product.max)}));
  }
}

TEST(AnalyzerTest, DefinitionsAreReplaced) {
  Loops loops({3, 4});
  Var i = ir::MakeVar("i");
  loops.analyzer.Define(i, loops.vars[0] * Int(4) + loops.vars[1]);
  EXPECT_EQ(ir::Print(loops.analyzer.Normal(ir::FloorDiv(i, Int(4)))), "v0");
  EXPECT_EQ(ir::Print(loops.analyzer.Normal(ir::FloorMod(i, Int(4)) + Int(1))), "v1 + 1");
  EXPECT_EQ(ir::Print(loops.analyzer.Normal(ir::FloorDiv(i, Int(8)))), "floordiv(v0, 2)");
  Expr joined = ir::FloorDiv(i, Int(5)) * Int(5) + ir::FloorMod(i, Int(5));
  EXPECT_EQ(ir::Print(loops.analyzer.Normal(joined)), "v0 * 4 + v1");
  EXPECT_EQ(loops.analyzer.NormalPredicate(i < Int(12)), nullptr);
  EXPECT_EQ(ir::Print(loops.analyzer.NormalPredicate(i < Int(12) && i < Int(11))),
            "v0 * 4 + v1 < 11");
}

TEST(AnalyzerTest, DecidedConditionsHold) {
  support::Rng rng(tests::TestSeed(5));
  int decided = 0;
  for (int64_t round = 0; round < tests::TestRounds(2000); ++round) {
    Loops loops = RandomLoops(&rng);
    Expr c = RandomBinding(&rng, loops.vars) < Int(rng.UniformInt(-1, 40));
    if (rng.Bernoulli(0.3)) c = c && loops.vars[0] >= Int(rng.UniformInt(-1, 2));
    int verdict = loops.analyzer.Decide(c);
    decided += verdict != 0 ? 1 : 0;
    Expr simple = loops.analyzer.NormalPredicate(c);
    loops.ForEachPoint([&](const Point& p) {
      int64_t value = Eval(c, p);
      if (verdict != 0) {
        ASSERT_EQ(value != 0, verdict > 0) << ir::Print(c);
      }
      ASSERT_EQ(simple == nullptr ? 1 : Eval(simple, p), value) << ir::Print(c);
    });
    ASSERT_FALSE(HasFailure());
  }
  EXPECT_GT(decided, 200);
}

// One store: what a condition says serves affine forms, decisions and the simplifier alike.
TEST(AnalyzerTest, AssumptionsServeEveryQuestion) {
  support::Rng rng(tests::TestSeed(11));
  int decided = 0;
  for (int64_t round = 0; round < tests::TestRounds(2000); ++round) {
    Loops loops = RandomLoops(&rng);
    const Analyzer before = loops.analyzer;
    const Expr known = RandomBinding(&rng, loops.vars) < Int(rng.UniformInt(1, 30));
    loops.analyzer.Assume(known);
    const Expr e = RandomBinding(&rng, loops.vars), c = e < Int(rng.UniformInt(0, 30));
    const Interval values = loops.analyzer.Values(e), range = loops.analyzer.Range(e);
    const Expr normal = loops.analyzer.Normal(e), simple = Simplify(c, loops.analyzer);
    const int verdict = loops.analyzer.Decide(c);
    decided += verdict != before.Decide(c) ? 1 : 0;
    loops.ForEachPoint([&](const Point& p) {
      if (Eval(known, p) == 0) return;
      const int64_t value = Eval(e, p);
      ASSERT_TRUE(values.Contains(value) && range.Contains(value)) << ir::Print(e);
      ASSERT_EQ(Eval(normal, p), value) << ir::Print(e) << " where " << ir::Print(known);
      ASSERT_EQ(Eval(simple, p), Eval(c, p)) << ir::Print(c) << " where " << ir::Print(known);
      if (verdict != 0) {
        ASSERT_EQ(Eval(c, p) != 0, verdict > 0) << ir::Print(c) << " where " << ir::Print(known);
      }
    });
    ASSERT_FALSE(HasFailure());
  }
  EXPECT_GT(decided, 20);
}

// The last tile of a ragged split is shorter: ends that depend on outer loops, or on definitions.
TEST(AnalyzerTest, RangesOfLoopsWithEndsThatMove) {
  support::Rng rng(tests::TestSeed(13));
  int64_t tight = 0;
  for (int64_t round = 0; round < tests::TestRounds(1000); ++round) {
    Loops loops = RandomLoops(&rng);
    const Var outer = ir::MakeVar("outer"), inner = ir::MakeVar("inner");
    const Expr binding = RandomBinding(&rng, loops.vars);
    loops.analyzer.Define(outer, binding);
    Expr extent = Int(rng.UniformInt(5, 30)) - outer;
    if (rng.Bernoulli(0.5)) extent = ir::Min(extent, Int(rng.UniformInt(1, 6)));
    if (rng.Bernoulli(0.3)) extent = ir::Select(outer < Int(3), Int(2), extent);
    const Expr min = rng.Bernoulli(0.5) ? Int(0) : ir::Max(outer - Int(3), Int(0));
    loops.analyzer.SetRange(inner, {min, extent});
    const Interval range = loops.analyzer.Values(inner);
    Interval seen{Interval::kMost, Interval::kLeast};
    loops.ForEachPoint([&](Point p) {
      p.emplace_back(outer, Eval(binding, p));
      const int64_t first = Eval(min, p), last = first + std::max<int64_t>(Eval(extent, p), 1) - 1;
      seen = {std::min(seen.min, first), std::max(seen.max, last)};
    });
    ASSERT_TRUE(seen.Within(range)) << ir::Print(min) << " + " << ir::Print(extent);
    tight += seen == range ? 1 : 0;
  }
  EXPECT_GT(tight, 100);
}

// A box holds every value that the inner loops reach; an exact one has no others, also where a
// bound among the inner loops cuts it.
TEST(AnalyzerTest, FootprintsHoldTheValues) {
  support::Rng rng(tests::TestSeed(7));
  int exact = 0;
  for (int64_t round = 0; round < tests::TestRounds(2000); ++round) {
    Loops loops = RandomLoops(&rng);
    std::vector<Var> inner(loops.vars.begin() + 1, loops.vars.end());
    Expr e = RandomBinding(&rng, loops.vars);
    Expr bound;
    if (rng.Bernoulli(0.4)) {
      Expr sum = Int(0);
      for (size_t i = 1; i < loops.vars.size(); ++i) {
        sum = sum + loops.vars[i] * Int(rng.UniformInt(1, 3));
      }
      if (rng.Bernoulli(0.7)) e = sum + loops.vars[0] * Int(rng.UniformInt(0, 9));
      bound = loops.analyzer.NormalPredicate(sum < Int(rng.UniformInt(1, 12)));
    }
    std::vector<UpperBound> bounds = UpperBounds(loops.analyzer, bound);
    AffineSum plain = loops.analyzer.Affine(e);
    AffineSum cut = TightenByBounds(plain, bounds);
    Footprint sweep = FootprintOf(cut, inner, loops.analyzer);
    ASSERT_LT(sweep.width, kIndexLimit);
    Expr min = ToExpr(sweep.min);
    std::map<int64_t, std::set<int64_t>> reached;  // per outer iteration
    loops.ForEachPoint([&](const Point& p) {
      if (bound != nullptr && Eval(bound, p) == 0) return;
      int64_t at = Eval(e, p) - Eval(min, p);
      ASSERT_GE(at, 0) << ir::Print(e) << " from " << ir::Print(min);
      ASSERT_LE(at, sweep.width) << ir::Print(e) << " from " << ir::Print(min);
      reached[p[0].second].insert(at);
    });
    ASSERT_FALSE(HasFailure());
    // A bound that did not shrink the box may still thin it out: exactness is about the others.
    bool used = RangeOf(cut).max < RangeOf(plain).max;
    if (!sweep.exact || (bound != nullptr && !used)) continue;
    ++exact;
    for (const auto& [outer, values] : reached) {
      ASSERT_EQ(static_cast<int64_t>(values.size()), sweep.width + 1)
          << ir::Print(e) << " where " << (bound == nullptr ? "true" : ir::Print(bound));
    }
  }
  EXPECT_GT(exact, 100);
}

// Where a loop counts as determined, no two points with different values of it agree in all sums.
TEST(AnalyzerTest, InjectiveLoopsAreDetermined) {
  support::Rng rng(tests::TestSeed(9));
  int determined = 0;
  for (int64_t round = 0; round < tests::TestRounds(4000); ++round) {
    Loops loops = RandomLoops(&rng);
    std::vector<Expr> exprs;
    for (uint64_t n = 1 + rng.Uniform(2); n > 0; --n) {
      exprs.push_back(RandomBinding(&rng, loops.vars));
    }
    if (rng.Bernoulli(0.4)) {  // both halves of a division
      Expr fused = RandomBinding(&rng, loops.vars);
      Expr by = Int(rng.UniformInt(1, 7));
      exprs = {ir::FloorDiv(fused, by), ir::FloorMod(fused, by)};
    }
    Expr bound;
    if (rng.Bernoulli(0.4)) {
      bound = loops.vars[0] * Int(rng.UniformInt(1, 4)) + loops.vars[1] < Int(rng.UniformInt(1, 9));
    }
    std::vector<AffineSum> sums;
    for (const Expr& e : exprs) sums.push_back(loops.analyzer.Affine(e));
    std::vector<bool> known =
        InjectiveIn(sums, loops.vars, UpperBounds(loops.analyzer, bound), loops.analyzer);
    std::map<std::vector<int64_t>, std::vector<int64_t>> seen;
    loops.ForEachPoint([&](const Point& p) {
      if (bound != nullptr && Eval(bound, p) == 0) return;
      std::vector<int64_t> values, at;
      for (const Expr& e : exprs) values.push_back(Eval(e, p));
      for (const auto& [var, value] : p) at.push_back(value);
      auto [it, first] = seen.emplace(values, at);
      for (size_t i = 0; i < known.size() && !first; ++i) {
        if (known[i]) {
          ASSERT_EQ(it->second[i], at[i]) << ir::Print(exprs[0]);
        }
      }
    });
    ASSERT_FALSE(HasFailure());
    for (bool k : known) determined += k ? 1 : 0;
  }
  EXPECT_GT(determined, 1000);
}

// The quotient and the remainder of a fused loop tell its iterations, however many there may be.
TEST(AnalyzerTest, DigitsOfAnOpenLoopAreDetermined) {
  const Var size = ir::MakeVar("N", ir::kI64), fused = ir::MakeVar("f", ir::kI64);
  Analyzer analyzer;
  analyzer.Set(size, {1, Analyzer::kMaxSize});
  analyzer.SetRange(fused, {Int(0), size * Int(19)});
  const AffineSum row = analyzer.Affine(ir::FloorDiv(fused, Int(19)));
  const AffineSum column = analyzer.Affine(ir::FloorMod(fused, Int(19)));
  const std::vector<Var> vars = {fused};
  const auto determined = [&](const std::vector<AffineSum>& sums) -> bool {
    return InjectiveIn(sums, vars, {}, analyzer)[0];
  };
  EXPECT_TRUE(determined({row, column}));
  EXPECT_FALSE(determined({row}));
  EXPECT_FALSE(determined({column})) << "the same in each row";
  const AffineSum other = analyzer.Affine(ir::FloorMod(fused, Int(18)));
  EXPECT_FALSE(determined({row, other})) << "two of a row's 19 columns have the remainder 0";
}

}  // namespace
}  // namespace tilewright::analysis
