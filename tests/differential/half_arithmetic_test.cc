// Arithmetic in f16 where the machine has it (narrow_arithmetic and LLVM's half) against the
// interpreter, which widens, computes in f32 and rounds: the same bits, for each operation on pairs
// of hundreds of numbers and for random functions. On emulated AArch64 processors with fullfp16,
// and here with operations that LLVM makes of others. What x86 has is read in the assembly: no
// machine here has avx512fp16.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <iostream>
#include <iterator>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "compiler/driver/tasks.h"
#include "compiler/ir/build.h"
#include "compiler/ir/ir_text.h"
#include "compiler/ir/numeric.h"
#include "compiler/ir/type_rules.h"
#include "compiler/ir/visit.h"
#include "compiler/schedule/schedule.h"
#include "compiler/space/default_schedule.h"
#include "compiler/transform/passes.h"
#include "deploy/support/rng.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"
#include "tests/support/assembly.h"
#include "tests/support/equivalence.h"
#include "tests/support/run_compiled.h"
#include "tests/support/run_emulated.h"
#include "tests/support/test_seed.h"

namespace tilewright::tests {
namespace {

using ir::Expr;
using ir::ExprKind;
using ir::Intrinsic;
using support::StrCat;

Expr Wide(Expr half) { return ir::Cast(ir::kF32, std::move(half)); }
Expr Round(Expr wide) { return ir::Cast(ir::kF16, std::move(wide)); }

// Each processor of `targets` runs `f` and finds the interpreter's bits; of NaN any.
class HalfArithmetic : public testing::Test {
 protected:
  void SetUp() override {
    target::Target here = WidestTarget();
    here.machine.computes_f16 = true;
    targets_.push_back(here);
    for (const target::Target& target : EmulatedTargets()) {
      if (target.machine.computes_f16) targets_.push_back(target);
    }
  }

  static absl::Status Run(const ir::Function& f, const target::Target& target,
                          const std::vector<ir::TensorData*>& args) {
    return target.arch == "aarch64" ? RunEmulated(f, target, {}, args)
                                    : RunCompiled(f, target, 1, {}, args);
  }

  static void ExpectTheSame(const ir::Function& f, const ir::Function& scheduled,
                            const std::vector<ir::TensorData>& data, const target::Target& target) {
    std::vector<ir::TensorData> expected = data, found = data;
    std::vector<ir::TensorData*> expected_args, found_args;
    for (ir::TensorData& d : expected) expected_args.push_back(&d);
    for (ir::TensorData& d : found) found_args.push_back(&d);
    ASSERT_TRUE(ir::Interpret(f, {}, expected_args).ok());
    const absl::Status ran = Run(scheduled, target, found_args);
    ASSERT_TRUE(ran.ok()) << target.ToString() << support::StatusText(ran) << ir::Print(f);
    for (size_t p = 0; p < data.size(); ++p) {
      const bool half = f.params[p]->dtype == ir::kF16;
      half ? ExpectSameBits<uint16_t>(expected[p], found[p], target, f)
           : ExpectSameBits<float>(expected[p], found[p], target, f);
    }
  }

  template <typename T>
  static void ExpectSameBits(const ir::TensorData& expected, const ir::TensorData& found,
                             const target::Target& target, const ir::Function& f) {
    const auto is_nan = [](T v) {
      if constexpr (std::is_same_v<T, float>) return std::isnan(v);
      return std::isnan(ir::HalfToFloat(static_cast<uint16_t>(v)));
    };
    for (size_t i = 0; i < expected.bytes.size(); i += sizeof(T)) {
      if (std::memcmp(&expected.bytes[i], &found.bytes[i], sizeof(T)) == 0) continue;
      T e = 0, v = 0;
      std::memcpy(&e, &expected.bytes[i], sizeof e);
      std::memcpy(&v, &found.bytes[i], sizeof v);
      if (is_nan(e) && is_nan(v)) continue;
      FAIL() << target.ToString() << " at " << i / sizeof(T) << ": expected " << e << ", found "
             << v << "\n"
             << ir::Print(f);
    }
  }

  std::vector<target::Target> targets_;
};

ir::TensorData Data(const std::vector<uint16_t>& bits) {
  ir::TensorData data;
  data.bytes.resize(bits.size() * sizeof(uint16_t));
  std::memcpy(data.bytes.data(), bits.data(), data.bytes.size());
  return data;
}

// The ends of the ranges, what lies next to them, and numbers of all sizes. NaN is quiet: LLVM
// takes no notice of whether a NaN signals.
std::vector<uint16_t> Numbers(support::Rng* rng) {
  std::vector<uint16_t> numbers;
  for (const uint16_t sign : {0, 0x8000}) {
    for (const uint16_t size :
         {0x0000, 0x0001, 0x0002, 0x0003, 0x01ff, 0x0200, 0x03fe, 0x03ff, 0x0400, 0x0401, 0x07ff,
          0x0800, 0x3bff, 0x3c00, 0x3c01, 0x4200, 0x63ff, 0x6400, 0x7bfe, 0x7bff, 0x7c00, 0x7e00}) {
      numbers.push_back(sign | size);
    }
  }
  while (numbers.size() < 256) {
    const auto bits = static_cast<uint16_t>(rng->Uniform(1 << 16));
    numbers.push_back(std::isnan(ir::HalfToFloat(bits)) ? bits | 0x0200 : bits);
  }
  return numbers;
}

ir::Function Vectorized(const ir::Function& f, int lanes) {
  schedule::Schedule schedule(f);
  for (const std::string& text :
       {StrCat("split %0 [?,", lanes, "]"), std::string("vectorize %3")}) {
    const auto step = schedule::ParseStep(text);
    TW_CHECK(step.ok() && schedule.Apply(*step).ok()) << text;
  }
  return schedule.function();
}

using Operation = std::function<Expr(const Expr& x, const Expr& y)>;

// Z[i] = f16(operation(f32(X[i]), f32(Y[i]))).
ir::Function Pairwise(const std::string& name, int64_t n, const Operation& operation) {
  ir::FunctionBuilder b(name);
  const ir::Buffer x = b.Input("X", ir::kF16, {ir::Int(n)});
  const ir::Buffer y = b.Input("Y", ir::kF16, {ir::Int(n)});
  return b.Finish({b.Compute("Z", ir::kF16, {ir::Int(n)}, {"i"}, [&](const auto& v) {
    return Round(operation(Wide(ir::Load(x, {v[0]})), Wide(ir::Load(y, {v[0]}))));
  })});
}

std::vector<std::pair<std::string, Operation>> Operations() {
  std::vector<std::pair<std::string, Operation>> all;
  for (const ExprKind kind : {ExprKind::kAdd, ExprKind::kSub, ExprKind::kMul, ExprKind::kDiv,
                              ExprKind::kMin, ExprKind::kMax}) {
    all.emplace_back(StrCat("op_", static_cast<int>(kind)),
                     [kind](const Expr& x, const Expr& y) { return ir::Binary(kind, x, y); });
  }
  for (const ExprKind kind :
       {ExprKind::kEq, ExprKind::kNe, ExprKind::kLt, ExprKind::kLe, ExprKind::kGt, ExprKind::kGe}) {
    all.emplace_back(StrCat("order_", static_cast<int>(kind)),
                     [kind](const Expr& x, const Expr& y) {
                       return ir::Select(ir::Binary(kind, x, y), x, ir::Float(0.5));
                     });
  }
  for (const Intrinsic call : {Intrinsic::kSqrt, Intrinsic::kAbs, Intrinsic::kFloor,
                               Intrinsic::kCeil, Intrinsic::kRoundEven}) {
    all.emplace_back(std::string(ir::IntrinsicText(call)),
                     [call](const Expr& x, const Expr&) { return ir::Call(call, {x}); });
  }
  return all;
}

bool ComputesInF32(const ir::Function& f) {
  bool wide = false;
  ir::VisitStmts(f.body, [&](const ir::Stmt& s) {
    ir::VisitExprsIn(s, [&](const Expr& e) {
      wide = wide || e->dtype.Element() == ir::kF32;
      return true;
    });
    return true;
  });
  return wide;
}

TEST_F(HalfArithmetic, OperationsGiveTheBitsOfF32RoundedForAllPairs) {
  support::Rng rng(TestSeed(16));
  const std::vector<uint16_t> numbers = Numbers(&rng);
  std::vector<uint16_t> x, y;
  for (const uint16_t a : numbers) {
    for (const uint16_t b : numbers) {
      x.push_back(a);
      y.push_back(b);
    }
  }
  for (const auto& [name, operation] : Operations()) {
    const ir::Function f = Pairwise(name, static_cast<int64_t>(x.size()), operation);
    std::vector<ir::TensorData> data = {Data(x), Data(y), Data(x)};
    for (const target::Target& target : targets_) {
      transform::PassContext context;
      context.target = target;
      const auto narrow = transform::NarrowArithmetic(f, context);
      ASSERT_TRUE(narrow.ok());
      EXPECT_FALSE(ComputesInF32(*narrow)) << ir::Print(*narrow);
      for (const int lanes : {1, 8, 32}) {
        ExpectTheSame(f, lanes == 1 ? f : Vectorized(f, lanes), data, target);
      }
    }
  }
}

// Expressions of f16 that round each result, as imports make them, and some that must not be done
// in f16: constants that it lacks, multiply-adds.
class RandomHalves {
 public:
  RandomHalves(uint64_t seed, int64_t n) : rng_(seed), n_(n) {}

  ir::Function Make() {
    ir::FunctionBuilder b("halves");
    x_ = b.Input("X", ir::kF16, {ir::Int(n_)});
    y_ = b.Input("Y", ir::kF16, {ir::Int(n_)});
    return b.Finish({b.Compute("Z", ir::kF16, {ir::Int(n_)}, {"i"}, [&](const auto& v) {
      at_ = v[0];
      return Half(4);
    })});
  }

 private:
  Expr Half(int depth) {
    if (depth > 0) return Round(Computed(depth - 1));
    switch (rng_.Uniform(4)) {
      case 0:
        return ir::Load(x_, {at_});
      case 1:
        return ir::Load(y_, {at_});
      case 2:
        return ir::Load(x_,
                        {ir::Int(static_cast<int64_t>(rng_.Uniform(static_cast<uint64_t>(n_))))});
      default:
        return ir::Float(ir::RoundFloat(rng_.UniformDouble(), ir::kF16), ir::kF16);
    }
  }
  // Of f32, a number of f16 most of the time.
  Expr Operand(int depth) {
    switch (rng_.Uniform(8)) {
      case 0:
        return ir::Float(0.1);
      case 1:
        return ir::Float(0.25);
      case 2:
        return ir::Max(Operand(depth - 1), ir::Float(0));
      default:
        return Wide(Half(std::max(depth, 0)));
    }
  }
  Expr Computed(int depth) {
    constexpr ExprKind kBinary[] = {ExprKind::kAdd, ExprKind::kSub, ExprKind::kMul,
                                    ExprKind::kDiv, ExprKind::kMin, ExprKind::kMax};
    constexpr Intrinsic kUnary[] = {Intrinsic::kSqrt, Intrinsic::kAbs, Intrinsic::kFloor,
                                    Intrinsic::kCeil, Intrinsic::kRoundEven};
    switch (rng_.Uniform(8)) {
      case 0:
        return ir::Call(kUnary[rng_.Uniform(std::size(kUnary))], {Operand(depth)});
      case 1:
        return ir::Select(Operand(depth) < Operand(depth), Computed(depth - 1), Operand(depth));
      case 2:
        return ir::Call(Intrinsic::kFma, {Operand(depth), Operand(depth), Operand(depth)});
      default:
        if (depth < 0) return Operand(0);
        return ir::Binary(kBinary[rng_.Uniform(std::size(kBinary))], Operand(depth),
                          Operand(depth));
    }
  }

  support::Rng rng_;
  int64_t n_;
  ir::Buffer x_, y_;
  Expr at_;
};

TEST_F(HalfArithmetic, RandomFunctionsGiveTheBitsOfTheInterpreter) {
  constexpr int kLanes[] = {1, 4, 5, 8, 16, 32};
  const uint64_t first = TestSeed(17);
  for (int64_t round = 0; round < TestRounds(80); ++round) {
    const uint64_t seed = first + static_cast<uint64_t>(round);
    SCOPED_TRACE(seed);
    support::Rng rng(seed);
    std::vector<uint16_t> x = Numbers(&rng), y = x;
    rng.Shuffle(&x);
    rng.Shuffle(&y);
    const ir::Function f = RandomHalves(seed, static_cast<int64_t>(x.size())).Make();
    const int lanes = kLanes[rng.Uniform(std::size(kLanes))];
    ExpectTheSame(f, lanes == 1 ? f : Vectorized(f, lanes), {Data(x), Data(y), Data(x)},
                  targets_[static_cast<size_t>(round) % targets_.size()]);
    if (HasFatalFailure()) return;
  }
}

std::string AssemblyFor(const ir::Function& f, const std::string& target) {
  return AssemblyOf(f, *target::ParseTarget(target));
}

// relu(x * y + y), each result rounded.
Expr ScaledRelu(const Expr& x, const Expr& y) {
  return ir::Max(Wide(Round(Wide(Round(x * y)) + y)), ir::Float(0));
}

TEST(HalfAssembly, ComputesInFullRegistersWithoutConversions) {
  const ir::Function f = Pairwise("relu", 64, ScaledRelu);
  const std::string arm = AssemblyFor(Vectorized(f, 8), "cpu,arch=aarch64,cpu=cortex-a76");
  EXPECT_THAT(arm, testing::ContainsRegex("fmul\tv[0-9]+\\.8h"));
  EXPECT_THAT(arm, testing::ContainsRegex("fadd\tv[0-9]+\\.8h"));
  EXPECT_THAT(arm, testing::Not(testing::HasSubstr("fcvt")));
  EXPECT_THAT(arm, testing::Not(testing::HasSubstr("fmla")));  // it would round once
  const std::string sve = AssemblyFor(Vectorized(f, 32), "cpu,arch=aarch64,cpu=a64fx");
  EXPECT_THAT(sve, testing::ContainsRegex("fmul\tz[0-9]+\\.h"));
  EXPECT_THAT(sve, testing::Not(testing::HasSubstr("fcvt")));
  const std::string x86 = AssemblyFor(Vectorized(f, 32), "cpu,arch=x86_64,cpu=sapphirerapids");
  EXPECT_THAT(x86, testing::ContainsRegex("vmulph\t.*%zmm"));
  EXPECT_THAT(x86, testing::ContainsRegex("vaddph\t.*%zmm"));
  EXPECT_THAT(x86, testing::Not(testing::HasSubstr("vcvt")));
}

// Z = fma(f32(A), f32(B), C), `lanes` at a time.
ir::Function WideSums(size_t n, int lanes) {
  const std::string at = StrCat("[", lanes, "*i + l]");
  const auto f = ir::ParseFunction(StrCat(
      "fn sums(A: f16[", n, "] input, B: f16[", n, "] input, C: f32[", n, "] input, Z: f32[", n,
      "] output) stage=scheduled { for i in 0..", n / static_cast<size_t>(lanes), " { for l in 0..",
      lanes, " vectorized { Z", at, " = fma(f32(A", at, "), f32(B", at, "), C", at, "); } } }"));
  TW_CHECK(f.ok()) << support::StatusText(f.status());
  return *f;
}

// fmlal and fmlal2 round once, as the multiply-add of widened factors does.
TEST_F(HalfArithmetic, ProductsAddedToF32GiveTheBitsOfFma) {
  support::Rng rng(TestSeed(18));
  const std::vector<uint16_t> numbers = Numbers(&rng);
  std::vector<uint16_t> x, y;
  ir::TensorData sums;
  for (const uint16_t a : numbers) {
    for (const uint16_t b : numbers) {
      x.push_back(a);
      y.push_back(b);
      // About as large as the product, so that both are rounded together.
      const double size = ir::HalfToFloat(a) * ir::HalfToFloat(b);
      const double sum = std::isfinite(size) ? size * (8 * rng.UniformDouble() - 4) : 1;
      const auto word = static_cast<float>(sum);
      const auto* bytes = reinterpret_cast<const uint8_t*>(&word);
      sums.bytes.insert(sums.bytes.end(), bytes, bytes + sizeof word);
    }
  }
  for (const target::Target& target : targets_) {
    for (const int lanes : {4, 8, 16}) {
      const ir::Function f = WideSums(x.size(), lanes);
      ExpectTheSame(f, f, {Data(x), Data(y), sums, sums}, target);
    }
  }
}

TEST(HalfAssembly, ProductsAddedToF32AreOneInstruction) {
  const std::string eight = AssemblyFor(WideSums(64, 8), "cpu,arch=aarch64,cpu=neoverse-v1");
  EXPECT_THAT(eight, testing::HasSubstr("fmlal\t"));
  EXPECT_THAT(eight, testing::HasSubstr("fmlal2\t"));
  const std::string four = AssemblyFor(WideSums(64, 4), "cpu,arch=aarch64,cpu=neoverse-v1");
  EXPECT_THAT(four, testing::HasSubstr("fmlal\t"));
  for (const std::string& text : {eight, four}) {
    EXPECT_THAT(text, testing::Not(testing::HasSubstr("fcvt")));
  }
  EXPECT_THAT(AssemblyFor(WideSums(64, 8), "cpu,arch=aarch64,cpu=cortex-a76"),
              testing::HasSubstr("fmla\t"));
}

int64_t InstructionsOf(const ir::Function& f, const target::Target& target) {
  std::vector<ir::TensorData> args = SeededArguments(f, {}, 1);
  std::vector<ir::TensorData*> pointers;
  for (ir::TensorData& arg : args) pointers.push_back(&arg);
  const auto cost = CountEmulated(f, target, {}, pointers);
  TW_CHECK(cost.ok()) << support::StatusText(cost.status());
  return cost->instructions;
}

// Against the same processor when it widens.
TEST(HalfCounts, ElementwiseOperationsTakeLessThanHalfOfTheInstructions) {
  if (EmulatedTargets().empty()) GTEST_SKIP() << "no emulator of AArch64 here";
  const ir::Function f = Pairwise("relu", 4096, ScaledRelu);
  target::Target target = *target::ParseTarget("cpu,arch=aarch64,cpu=cortex-a76,threads=1");
  schedule::Schedule s(f);
  space::ApplyDefaultSchedule(target, {}, &s);
  const int64_t with = InstructionsOf(s.function(), target);
  target.machine.computes_f16 = false;
  const int64_t without = InstructionsOf(s.function(), target);
  std::cout << "instructions " << without << " in f32, " << with << " in f16\n";
  EXPECT_LT(2 * with, without);
}

// A dense layer whose factors have 16 bits: by its default schedule, and how many instructions.
TEST(HalfProducts, DenseLayersReadBothFactorsAsTheyAre) {
  if (EmulatedTargets().empty()) GTEST_SKIP() << "no emulator of AArch64 here";
  for (const int64_t rows : {1, 12}) {
    const std::string shape = StrCat("[", rows, ",64]");
    const auto variants = driver::TaskVariants(
        StrCat("graph {\n  input %0: f16[", rows, ",256]\n  weight %1: f16[4,256,16]\n  %2: f32",
               shape, " = dense(%0, %1) {weight_layout=\"NK16n\"}\n  %3: f16", shape,
               " = cast(%2) {dtype=\"f16\"}\n  output %3\n}\n"));
    ASSERT_TRUE(variants.ok()) << support::StatusText(variants.status());
    int64_t instructions[2];
    for (const bool has : {false, true}) {
      target::Target target = *target::ParseTarget("cpu,arch=aarch64,cpu=neoverse-v1,threads=1");
      target.machine.multiplies_f16 = has;
      schedule::Schedule s((*variants)[0].function);
      space::ApplyDefaultSchedule(target, {}, &s);
      EquivalenceOptions options;
      options.run_other = [&](const ir::Function& g, const std::vector<int64_t>& sizes,
                              std::vector<ir::TensorData*> args) {
        return RunEmulated(g, target, sizes, std::move(args));
      };
      const absl::Status same = SameResults((*variants)[0].function, s.function(), options);
      EXPECT_TRUE(same.ok()) << support::StatusText(same);
      instructions[has ? 1 : 0] = InstructionsOf(s.function(), target);
    }
    std::cout << rows << " rows: instructions " << instructions[0] << " without fmlal, "
              << instructions[1] << " with it\n";
    EXPECT_LT(instructions[1], instructions[0]);
  }
}

// Processors that only convert do as before.
TEST(HalfAssembly, OthersComputeInF32) {
  const ir::Function f = Vectorized(Pairwise("relu", 64, ScaledRelu), 8);
  EXPECT_THAT(AssemblyFor(f, "cpu,arch=aarch64,cpu=cortex-a72"), testing::HasSubstr("fcvtl"));
  EXPECT_THAT(AssemblyFor(f, "cpu,arch=x86_64,cpu=znver4"), testing::HasSubstr("vcvtph2ps"));
}

}  // namespace
}  // namespace tilewright::tests
