// Node factories, numerics, visitors and the builder.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <optional>

#include "compiler/ir/bind_sizes.h"
#include "compiler/ir/build.h"
#include "compiler/ir/ir_text.h"
#include "compiler/ir/numeric.h"
#include "compiler/ir/structural.h"
#include "compiler/ir/type_rules.h"
#include "compiler/ir/verify.h"
#include "compiler/ir/visit.h"
#include "deploy/support/rng.h"
#include "tests/support/random_ir.h"

namespace tilewright::ir {
namespace {

TEST(TypeText, EveryTypeRoundTrips) {
  for (DType t : {kF32, kF64, kF16, kBF16, kI8, kI32, kI64, kU8, kBool}) {
    for (int lanes : {1, 2, 16, 65535}) {
      DType parsed;
      ASSERT_TRUE(ParseType(TypeName(t.WithLanes(lanes)), &parsed)) << TypeName(t);
      EXPECT_EQ(parsed, t.WithLanes(lanes));
    }
  }
  DType ignored;
  for (const char* bad : {"", "f", "f31", "i7", "f32x", "f32x1", "f32x0", "f32x01", "f32x65536",
                          "f32x4 ", "x4", "boolx4x4"}) {
    EXPECT_FALSE(ParseType(bad, &ignored)) << bad;
  }
}

TEST(Factories, FoldTwoConstants) {
  EXPECT_TRUE(IsInt(Int(7) + Int(5), 12));
  EXPECT_TRUE(IsInt(Int(-7) / Int(2), -3));
  EXPECT_TRUE(IsInt(Binary(ExprKind::kMod, Int(-7), Int(2)), -1));
  EXPECT_TRUE(IsInt(FloorDiv(Int(-7), Int(2)), -4));
  EXPECT_TRUE(IsInt(FloorMod(Int(-7), Int(2)), 1));
  EXPECT_TRUE(IsInt(FloorMod(Int(7), Int(-3)), -2));
  EXPECT_TRUE(IsInt(Int(1) < Int(2), 1));
  EXPECT_EQ((Int(1) < Int(2))->dtype, kBool);
  EXPECT_TRUE(IsInt(Int(127, kI8) + Int(1, kI8), -128));
  EXPECT_TRUE(IsInt(Int(255, kU8) + Int(1, kU8), 0));
  EXPECT_TRUE(IsInt(Binary(ExprKind::kSub, Int(0, kU8), Int(1, kU8)), 255));
  EXPECT_EQ((Float(1) / Float(3))->float_value, static_cast<double>(1.0f / 3.0f));
  EXPECT_TRUE(IsInt(Cast(kI8, Float(1000)), 127));
}

TEST(Factories, DivisionByZeroStaysInTheProgram) {
  Expr e = FloorDiv(Int(1), Int(0));
  EXPECT_EQ(e->kind, ExprKind::kFloorDiv);
}

TEST(Factories, OneVariableAndOneConstantStayAsWritten) {
  Var x = MakeVar("x");
  EXPECT_EQ((x + Int(0))->kind, ExprKind::kAdd);
  EXPECT_EQ((x * Int(0))->kind, ExprKind::kMul);
}

TEST(FactoriesDeathTest, TypeErrorsAreBugsOfTheCaller) {
  Var x = MakeVar("x"), f = MakeVar("f", kF32);
  Buffer b = MakeBuffer("b", kF32, {Int(4), Int(4)});
  EXPECT_DEATH(x + f, "operands of \\+: expected i64, found f32");
  EXPECT_DEATH(FloorDiv(f, f), "expected an integer, found f32");
  EXPECT_DEATH(Load(b, {x, x, x}), "indices of b: expected 2, found 3");
  EXPECT_DEATH(Load(b, {x, f}), "index of b: expected an integer, found f32");
  EXPECT_DEATH(Select(x, f, f), "condition of select: expected bool, found i64");
  EXPECT_DEATH(MakeStore(b, {x, x}, x), "value stored to b: expected f32, found i64");
  EXPECT_DEATH(MakeFor(x, Int(0, kI32), Int(4, kI32), MakeSeq({})), "over a range of i32");
}

TEST(Factories, VectorTypesFollowTheIndices) {
  Buffer b = MakeBuffer("b", kF32, {Int(4), Int(64)});
  Expr lanes = Ramp(Int(0), Int(1), 8);
  Expr load = Load(b, {Int(1), lanes});
  EXPECT_EQ(load->dtype, kF32.WithLanes(8));
  EXPECT_EQ((lanes < Broadcast(Int(3), 8))->dtype, kBool.WithLanes(8));
  EXPECT_EQ(Zero(kF32.WithLanes(4))->kind, ExprKind::kBroadcast);
}

TEST(Numeric, WrapMatchesNativeTypes) {
  support::Rng rng(3);
  for (int i = 0; i < 20'000; ++i) {
    int64_t v = static_cast<int64_t>(rng.NextU64()) >> rng.Uniform(60);
    EXPECT_EQ(WrapInt(v, kI8), static_cast<int8_t>(v));
    EXPECT_EQ(WrapInt(v, kU8), static_cast<uint8_t>(v));
    EXPECT_EQ(WrapInt(v, kI32), static_cast<int32_t>(v));
    EXPECT_EQ(WrapInt(v, DType{TypeCode::kUInt, 32, 1}), static_cast<uint32_t>(v));
    EXPECT_EQ(WrapInt(v, kI64), v);
  }
}

TEST(Numeric, FloorDivisionIsTheFloorOfTheQuotient) {
  for (int64_t a = -40; a <= 40; ++a) {
    for (int64_t b = -9; b <= 9; ++b) {
      if (b == 0) continue;
      EXPECT_EQ(FloorDivInt(a, b),
                static_cast<int64_t>(std::floor(static_cast<double>(a) / static_cast<double>(b))));
      EXPECT_EQ(FloorDivInt(a, b) * b + FloorModInt(a, b), a);
    }
  }
  int64_t out = 0;
  ASSERT_TRUE(EvalIntBinary(ExprKind::kDiv, kI64, std::numeric_limits<int64_t>::min(), -1, &out));
  EXPECT_EQ(out, std::numeric_limits<int64_t>::min());  // wraps
  EXPECT_FALSE(EvalIntBinary(ExprKind::kDiv, kI64, 1, 0, &out));
}

TEST(Numeric, CastsSaturateAndWrap) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  EXPECT_EQ(CastFloatToInt(300, kI8), 127);
  EXPECT_EQ(CastFloatToInt(-300, kI8), -128);
  EXPECT_EQ(CastFloatToInt(-1, kU8), 0);
  EXPECT_EQ(CastFloatToInt(std::nan(""), kI32), 0);
  EXPECT_EQ(CastFloatToInt(kInf, kI64), std::numeric_limits<int64_t>::max());
  EXPECT_EQ(CastFloatToInt(-kInf, kI64), std::numeric_limits<int64_t>::min());
  EXPECT_EQ(CastFloatToInt(-2.9, kI32), -2);
  EXPECT_EQ(CastIntToInt(300, kI8), 44);
  // 2^24 + 1 and beyond round half to even, from i64 straight to f32.
  EXPECT_EQ(CastIntToFloat(16777217, kI64, kF32), 16777216.0);
  EXPECT_EQ(CastIntToFloat(16777219, kI64, kF32), 16777220.0);
  // Through double, 2^53 + ... ties would round twice; the result must be that of one rounding.
  int64_t tricky = (int64_t{1} << 62) + (int64_t{1} << 54) + 1;  // just above a tie of bf16
  EXPECT_EQ(CastIntToFloat(tricky, kI64, kBF16), std::ldexp(1.0, 62) + std::ldexp(1.0, 55));
}

TEST(Numeric, HalfAndBfloatRoundTripEveryPattern) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    double h = HalfToFloat(static_cast<uint16_t>(bits)),
           b = BfloatToFloat(static_cast<uint16_t>(bits));
    if (!std::isnan(h)) {
      ASSERT_EQ(FloatToHalf(h), bits);
    }
    if (!std::isnan(b)) {
      ASSERT_EQ(FloatToBfloat(b), bits);
    }
    if (!std::isnan(h)) {
      ASSERT_EQ(RoundFloat(h, kF16), h);
    }
  }
  EXPECT_EQ(RoundFloat(65520, kF16), std::numeric_limits<double>::infinity());
  EXPECT_EQ(RoundFloat(65519.99, kF16), 65504);
  EXPECT_EQ(RoundFloat(1.00390625, kBF16), 1.0);  // a tie goes to even
}

TEST(Numeric, FmaRoundsOnce) {
  support::Rng rng(5);
  for (int i = 0; i < 50'000; ++i) {
    float a = static_cast<float>(rng.Normal()), b = static_cast<float>(rng.Normal());
    float c = static_cast<float>(rng.Normal()) *
              std::ldexp(1.0f, static_cast<int>(rng.UniformInt(-40, 20)));
    EXPECT_EQ(static_cast<float>(EvalFloatIntrinsic(Intrinsic::kFma, kF32, a, b, c)),
              std::fmaf(a, b, c));
  }
}

// Against numbers of 128 bits, at the ends of each type, too.
TEST(Numeric, RoundingShiftsAndWideningProductsAreExact) {
  support::Rng rng(11);
  for (const DType t : {kI8, kI16, kI32, kI64}) {
    for (int i = 0; i < 4000; ++i) {
      int64_t a = WrapInt(static_cast<int64_t>(rng.NextU64()) >> rng.Uniform(64), t);
      if (i < 2) a = i == 0 ? MinInt(t) : MaxInt(t);
      const int64_t count = static_cast<int64_t>(rng.Uniform(70));
      const __int128 power = static_cast<__int128>(1) << count;
      const __int128 doubled = static_cast<__int128>(a) * 2 + power;  // over 2 * power
      const __int128 rest = (doubled % (2 * power) + 2 * power) % (2 * power);
      EXPECT_EQ(EvalIntIntrinsic(Intrinsic::kRoundingShiftRight, t, a, count),
                static_cast<int64_t>((doubled - rest) / (2 * power)))
          << TypeName(t) << " " << a << " " << count;
    }
  }
  EXPECT_EQ(EvalIntIntrinsic(Intrinsic::kWideningMul, kI64, MinInt(kI32), MinInt(kI32)),
            int64_t{1} << 62);
  EXPECT_EQ(EvalIntIntrinsic(Intrinsic::kWideningMul, kU64, MaxInt(kU32), MaxInt(kU32)),
            static_cast<int64_t>(uint64_t{0xFFFFFFFE00000001}));
  EXPECT_EQ(EvalIntIntrinsic(Intrinsic::kWideningMul, kI16, -128, 127), -16256);
}

TEST(TypeRules, OfIntegerSteps) {
  const auto node = [](Intrinsic intrinsic, DType type, DType a, DType b) {
    ExprNode n{.kind = ExprKind::kCall, .dtype = type};
    n.intrinsic = intrinsic;
    n.args = {MakeVar("a", a), MakeVar("b", b)};
    return TypeErrorOf(n);
  };
  EXPECT_EQ(node(Intrinsic::kWideningMul, kI64, kI32, kI32), "");
  EXPECT_EQ(node(Intrinsic::kWideningMul, kU16.WithLanes(8), kU8.WithLanes(8), kU8.WithLanes(8)),
            "");
  EXPECT_NE(node(Intrinsic::kWideningMul, kI32, kI32, kI32), "");
  EXPECT_NE(node(Intrinsic::kWideningMul, kI64, kI32, kI16), "");
  EXPECT_NE(node(Intrinsic::kWideningMul, kI64, kU32, kU32), "");
  EXPECT_NE(node(Intrinsic::kWideningMul, kF64, kF32, kF32), "");
  EXPECT_NE(node(Intrinsic::kWideningMul, kI64, kI64, kI64), "");
  EXPECT_EQ(node(Intrinsic::kRoundingShiftRight, kI64, kI64, kI64), "");
  EXPECT_NE(node(Intrinsic::kRoundingShiftRight, kU32, kU32, kU32), "");
  EXPECT_NE(node(Intrinsic::kRoundingShiftRight, kF32, kF32, kF32), "");
  EXPECT_NE(node(Intrinsic::kRoundingShiftRight, kI64, kI64, kI32), "");
}

TEST(Numeric, MinAndMaxWithNanGiveTheSecondOperand) {
  double nan = std::nan(""), out = 0;
  EvalFloatArith(ExprKind::kMin, kF32, nan, 2, &out);
  EXPECT_EQ(out, 2);
  EvalFloatArith(ExprKind::kMax, kF32, 2, nan, &out);
  EXPECT_TRUE(std::isnan(out));
}

TEST(Visit, RewritersKeepUnchangedNodes) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    Function f = tests::RandomTe(seed).function;
    EXPECT_EQ(Rewriter().RewriteStmt(f.body), f.body);
    EXPECT_EQ(Substitute(f.body, {{MakeVar("other").get(), Int(1)}}), f.body);
  }
}

TEST(Visit, SubstituteReplacesUsesOnly) {
  Buffer b = MakeBuffer("b", kI64, {Int(8)}, Role::kOutput);
  Var i = MakeVar("i"), j = MakeVar("j");
  Stmt loop = MakeFor(i, Int(0), j, MakeStore(b, {i}, i + j));
  EXPECT_TRUE(UsesVar(loop, j));
  Stmt done = Substitute(loop, {{j.get(), Int(8)}});
  EXPECT_FALSE(UsesVar(done, j));
  EXPECT_TRUE(IsInt(done->range.extent, 8));
  EXPECT_EQ(done->var, i);
  EXPECT_TRUE(UsesVar(done, i));
}

TEST(Visit, SequencesStayFlatWhenAChildBecomesOne) {
  Buffer b = MakeBuffer("b", kI64, {Int(8)}, Role::kOutput);
  Stmt store = MakeStore(b, {Int(0)}, Int(1));
  struct Doubler : Rewriter {
    Stmt RewriteStmt(const Stmt& s) override {
      return s->kind == StmtKind::kStore ? MakeSeq({s, s}) : RewriteChildren(s);
    }
  } doubler;
  Stmt seq = doubler.RewriteStmt(MakeSeq({store, store}));
  ASSERT_EQ(seq->kind, StmtKind::kSeq);
  EXPECT_EQ(seq->stmts.size(), 4u);
}

TEST(Visit, FreshCopiesShareNoBoundVariable) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    Function f = tests::RandomTe(seed).function;
    Stmt copy = CloneWithFreshVars(f.body);
    EXPECT_TRUE(StructuralEqual(f.body, copy));
    VisitStmts(f.body, [&](const Stmt& s) {
      if (s->kind == StmtKind::kFor) {
        EXPECT_FALSE(UsesVar(copy, s->var));
      }
      for (const IterVar& iter : s->iters) EXPECT_FALSE(UsesVar(copy, iter.var));
      return true;
    });
  }
}

TEST(Builder, ReductionIsOneBlockUnderAPerfectNest) {
  FunctionBuilder builder("dense");
  Buffer x = builder.Input("x", kF32, {Int(2), Int(3)});
  Buffer w = builder.Constant("w", kF32, {Int(3), Int(4)});
  Axis k = builder.ReduceAxis("k", Int(3));
  Buffer y = builder.Reduce(
      "y", kF32, {Int(2), Int(4)}, {"m", "n"}, {k}, Combiner::kSum,
      [&](const std::vector<Var>& v) { return Load(x, {v[0], k.var}) * Load(w, {k.var, v[1]}); });
  Function f = builder.Finish({y});
  EXPECT_EQ(
      Print(f),
      R"(fn dense(x: f32[2, 3] input, w: f32[3, 4] constant, y: f32[2, 4] output) stage=scheduled {
  for m in 0..2 {
    for n in 0..4 {
      for k in 0..3 {
        block y(vm: spatial 0..2 = m, vn: spatial 0..4 = n, vk: reduce 0..3 = k) {
          reads x[vm:1, vk:1], w[vk:1, vn:1];
          writes y[vm:1, vn:1];
          init {
            y[vm, vn] = 0.0f32;
          }
          y[vm, vn] = y[vm, vn] + x[vm, vk] * w[vk, vn];
        }
      }
    }
  }
}
)");
}

TEST(Builder, OneAxisServesSeveralReductions) {
  FunctionBuilder builder("twice");
  Buffer x = builder.Input("x", kI32, {Int(5)});
  Axis k = builder.ReduceAxis("k", Int(5));
  auto value = [&](const std::vector<Var>&) { return Load(x, {k.var}); };
  Buffer a = builder.Reduce("s", kI32, {}, {}, {k}, Combiner::kSum, value);
  Buffer b = builder.Reduce("s", kI32, {}, {}, {k}, Combiner::kMax, value);
  EXPECT_NE(a->name, b->name);
  Function f = builder.Finish({a, b});
  EXPECT_TRUE(Verify(f).ok()) << Verify(f);
  ASSERT_EQ(f.params.size(), 3u);
  EXPECT_EQ(f.params[1]->role, Role::kOutput);
}

// The same function as one that is built at these sizes.
TEST(BindSizes, NumbersTakeThePlaceOfSizeParameters) {
  const auto build = [](std::optional<int64_t> rows) {
    FunctionBuilder b("rows");
    const Expr n = rows ? Int(*rows) : Expr(b.SizeParam("n"));
    const Buffer x = b.Input("X", kF32, {n, Int(3)});
    const Buffer half = b.Compute("half", kF32, {n, Int(3)}, {"i", "j"}, [&](const auto& v) {
      return Load(x, {v[0], v[1]}) * Float(0.5);
    });
    return b.Finish({b.Compute("Y", kF32, {n, Int(3)}, {"i", "j"}, [&](const auto& v) {
      return Load(half, {n - Int(1) - v[0], v[1]});
    })});
  };
  const Function open = build(std::nullopt), bound = BindSizes(open, {{"n", 4}, {"other", 2}});
  EXPECT_TRUE(StructuralEqual(bound, build(4))) << Print(bound);
  EXPECT_TRUE(Verify(bound).ok()) << Verify(bound);
  EXPECT_TRUE(StructuralEqual(BindSizes(open, {{"other", 2}}), open));
  // Those of another function: nothing is left of its own.
  const Function other = build(std::nullopt), renamed = WithSizeParams(open, other.size_params);
  EXPECT_TRUE(Verify(renamed).ok()) << Verify(renamed);
  EXPECT_TRUE(StructuralEqual(renamed, open)) << Print(renamed);
  EXPECT_TRUE(UsesVar(renamed.allocs[0]->shape[0], other.size_params[0]));
  EXPECT_FALSE(UsesVar(renamed.body, open.size_params[0]));
}

}  // namespace
}  // namespace tilewright::ir
