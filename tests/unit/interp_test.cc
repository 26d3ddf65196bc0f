// The reference interpreter: values against plain C++, and each strict check.
#include "compiler/ir/interp.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "compiler/ir/build.h"
#include "compiler/ir/ir_text.h"
#include "compiler/ir/verify.h"
#include "deploy/support/rng.h"
#include "deploy/support/status.h"
#include "tests/support/random_ir.h"
#include "tests/support/test_seed.h"

namespace tilewright::ir {
namespace {

template <typename T>
TensorData Pack(const std::vector<T>& values) {
  TensorData t;
  t.bytes.resize(values.size() * sizeof(T));
  std::memcpy(t.bytes.data(), values.data(), t.bytes.size());
  return t;
}
template <typename T>
std::vector<T> Unpack(const TensorData& t) {
  std::vector<T> values(t.bytes.size() / sizeof(T));
  std::memcpy(values.data(), t.bytes.data(), t.bytes.size());
  return values;
}

Function Parse(const std::string& text) {
  absl::StatusOr<Function> f = ParseFunction(text);
  EXPECT_TRUE(f.ok()) << f.status() << "\n" << text;
  EXPECT_TRUE(Verify(*f).ok()) << Verify(*f);
  return *f;
}

// The program's only buffer is its i64 output.
absl::StatusOr<std::vector<int64_t>> RunInts(const std::string& text,
                                             const InterpOptions& options = {}) {
  Function f = Parse(text);
  TensorData out;
  TW_TRY(Interpret(f, {}, {&out}, options));
  return Unpack<int64_t>(out);
}
std::string Failure(const std::string& text, const InterpOptions& options = {}) {
  return support::Slug(RunInts(text, options).status());
}

TEST(Interp, ConvolutionMatchesPlainLoops) {
  constexpr int kIn = 3, kOut = 4, kSize = 7, kKernel = 3, kOutSize = 3, kStride = 2;
  FunctionBuilder b("conv");
  Buffer x = b.Input("x", kF32, {Int(kIn), Int(kSize), Int(kSize)});
  Buffer w = b.Constant("w", kF32, {Int(kOut), Int(kIn), Int(kKernel), Int(kKernel)});
  Axis c = b.ReduceAxis("c", Int(kIn)), ky = b.ReduceAxis("ky", Int(kKernel)),
       kx = b.ReduceAxis("kx", Int(kKernel));
  Buffer y = b.Reduce(
      "y", kF32, {Int(kOut), Int(kOutSize), Int(kOutSize)}, {}, {c, ky, kx}, Combiner::kSum,
      [&](const std::vector<Var>& v) {
        return Load(x, {c.var, v[1] * Int(kStride) + ky.var, v[2] * Int(kStride) + kx.var}) *
               Load(w, {v[0], c.var, ky.var, kx.var});
      });
  Function f = b.Finish({y});
  support::Rng rng(1);
  std::vector<float> xs(kIn * kSize * kSize), ws(kOut * kIn * kKernel * kKernel), expected;
  for (float& v : xs) v = static_cast<float>(rng.Normal());
  for (float& v : ws) v = static_cast<float>(rng.Normal());
  for (int o = 0; o < kOut; ++o) {
    for (int r = 0; r < kOutSize; ++r) {
      for (int q = 0; q < kOutSize; ++q) {
        float sum = 0;
        for (int i = 0; i < kIn; ++i) {
          for (int dy = 0; dy < kKernel; ++dy) {
            for (int dx = 0; dx < kKernel; ++dx) {
              float product = xs[(i * kSize + r * kStride + dy) * kSize + q * kStride + dx] *
                              ws[((o * kIn + i) * kKernel + dy) * kKernel + dx];
              sum = sum + product;
            }
          }
        }
        expected.push_back(sum);
      }
    }
  }
  TensorData tx = Pack(xs), tw = Pack(ws), ty;
  InterpOptions options;
  options.check_regions = true;
  absl::Status status = Interpret(f, {}, {&tx, &tw, &ty}, options);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(Unpack<float>(ty), expected);
}

TEST(Interp, SizesAreParameters) {
  Function f = Parse(R"(fn f(n: size, x: i32[n, 2] input, y: i32[n] output) {
    for i in 0..n { block b(v: spatial 0..n = i) { reads x[v:1, 0:2]; writes y[v:1]; y[v] = x[v, 0] + x[v, 1]; } } })");
  for (int64_t n : {1, 5}) {
    std::vector<int32_t> values;
    for (int i = 0; i < n * 2; ++i) values.push_back(i);
    TensorData x = Pack(values), y;
    ASSERT_TRUE(Interpret(f, {n}, {&x, &y}).ok());
    for (int i = 0; i < n; ++i) EXPECT_EQ(Unpack<int32_t>(y)[i], 4 * i + 1);
  }
  TensorData x = Pack(std::vector<int32_t>(3)), y;
  EXPECT_EQ(support::Slug(Interpret(f, {2}, {&x, &y})), "ir.interp.argument_size");
  EXPECT_EQ(support::Slug(Interpret(f, {0}, {&x, &y})), "ir.interp.sizes");
  EXPECT_EQ(support::Slug(Interpret(f, {}, {&x, &y})), "ir.interp.sizes");
  EXPECT_EQ(support::Slug(Interpret(f, {2}, {&x})), "ir.interp.arguments");
}

TEST(Interp, VectorsAndMasksTouchTheirLanesOnly) {
  absl::StatusOr<std::vector<int64_t>> out = RunInts(R"(fn f(y: i64[8] output) stage=flat {
    y[ramp(0, 1, 8)] = broadcast(7, 8);
    y[ramp(1, 2, 4)] masked(ramp(0, 1, 4) < broadcast(2, 4)) = ramp(100, 10, 4);
    y[ramp(4, 1, 4)] = y[ramp(3, -1, 4)] masked(ramp(0, 1, 4) < broadcast(3, 4)) + ramp(0, 1, 4);
  })");
  ASSERT_TRUE(out.ok()) << out.status();
  EXPECT_EQ(*out, (std::vector<int64_t>{7, 100, 7, 110, 110, 8, 102, 3}));
}

TEST(Interp, MaskedOffLanesMayBeOutOfBounds) {
  absl::StatusOr<std::vector<int64_t>> out = RunInts(R"(fn f(y: i64[3] output) stage=flat {
    y[ramp(0, 1, 4)] masked(ramp(0, 1, 4) < broadcast(3, 4)) = ramp(5, 1, 4); })");
  ASSERT_TRUE(out.ok()) << out.status();
  EXPECT_EQ(*out, (std::vector<int64_t>{5, 6, 7}));
}

TEST(Interp, SelectEvaluatesTheChosenSideOnly) {
  absl::StatusOr<std::vector<int64_t>> out = RunInts(R"(fn f(y: i64[4] output) stage=flat {
    for i in 0..4 { y[i] = select(i >= 1, y[i - 1], 41) + 1; } })");
  ASSERT_TRUE(out.ok()) << out.status();
  EXPECT_EQ(*out, (std::vector<int64_t>{42, 43, 44, 45}));
}

TEST(Interp, ParallelAndVectorizedLoopsRunBackwards) {
  for (const char* kind : {"parallel", "vectorized", "virtual", "blockIdx.y", "threadIdx.x"}) {
    absl::StatusOr<std::vector<int64_t>> out =
        RunInts(std::string("fn f(y: i64[1] output) stage=loops { y[0] = 0; for i in 0..4 ") +
                kind + " { y[0] = y[0] * 10 + i; } }");
    ASSERT_TRUE(out.ok()) << out.status();
    EXPECT_EQ((*out)[0], 3210);
  }
}

// Four threads turn a buffer around through shared memory; `sync` stands between store and load.
std::string Turn(const std::string& sync, const std::string& last = "4") {
  return "fn f(y: i64[4] output) stage=flat { alloc s: i64[4] scope=shared { "
         "for t in 0..4 threadIdx.x { alloc r: i64[1] scope=local { r[0] = t * 10; s[t] = r[0]; " +
         sync + " if (t < " + last + ") { y[t] = s[3 - t] + r[0]; } } } } }";
}

TEST(Interp, ThreadsGoTogetherFromBarrierToBarrier) {
  absl::StatusOr<std::vector<int64_t>> out = RunInts(Turn("sync barrier;"));
  ASSERT_TRUE(out.ok()) << out.status();
  EXPECT_EQ(*out, (std::vector<int64_t>{30, 30, 30, 30}));
  // Without the barrier the program is one of loops: thread 3 runs first and reads what is not
  // there.
  EXPECT_EQ(Failure(Turn("")), "ir.interp.uninitialised");
  // A barrier elsewhere does not help.
  EXPECT_EQ(
      Failure("fn f(y: i64[4] output) stage=flat { alloc s: i64[4] scope=shared { for t in 0..4 "
              "threadIdx.x { s[t] = 0; sync barrier; s[t] = t; y[t] = s[3 - t]; } } }"),
      "ir.interp.race");
  EXPECT_EQ(
      Failure("fn f(y: i64[1] output) stage=flat { for t in 0..4 threadIdx.x { y[0] = t; sync "
              "barrier; } }"),
      "ir.interp.race");
  EXPECT_EQ(Failure(Turn("if (t < 2) { sync barrier; }")), "ir.interp.divergent");
  EXPECT_EQ(Failure(Turn("for k in 0..t { sync barrier; }")), "ir.interp.divergent");
}

TEST(Interp, AsynchronousStoresLandWithTheirGroup) {
  auto program = [](const std::string& middle) {
    return "fn f(y: i64[2] output) stage=flat { alloc s: i64[2] scope=shared { "
           "async { s[0] = 1; } sync commit; async { s[1] = 2; } sync commit; " +
           middle + " y[0] = s[0]; sync wait 0; y[1] = s[1]; } }";
  };
  absl::StatusOr<std::vector<int64_t>> out = RunInts(program("sync wait 1;"));
  ASSERT_TRUE(out.ok()) << out.status();
  EXPECT_EQ(*out, (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(Failure(program("sync wait 2;")), "ir.interp.in_flight");
  EXPECT_EQ(Failure(program("s[1] = 3; sync wait 1;")), "ir.interp.in_flight");
  EXPECT_EQ(Failure("fn f(y: i64[1] output) stage=flat { async { y[0] = 1; } sync commit; }"),
            "ir.interp.in_flight");
  // Each thread waits for its own.
  EXPECT_EQ(
      Failure("fn f(y: i64[2] output) stage=flat { alloc s: i64[2] scope=shared { for t in 0..2 "
              "threadIdx.x { async { s[t] = t; } sync commit; if (t < 1) { sync wait 0; } sync "
              "barrier; y[t] = s[1 - t]; sync wait 0; } } }"),
      "ir.interp.in_flight");
}

TEST(Interp, StatementsMeanWhatTheySay) {
  absl::StatusOr<std::vector<int64_t>> out = RunInts(R"(fn f(y: i64[3] output) stage=flat {
    y[0] = 0; y[1] = 0; y[2] = 0;
    for i in 2..6 { if (i == 3) { y[0] = y[0] + 100; } else { y[0] = y[0] + i; } }
    let v = 6 * 7 { y[1] = v; }
    for q in 0..3 { alloc t: i64[2] scope=local { t[0] = q; t[1] = 10; y[2] = y[2] + t[0] * t[1]; } }
    eval prefetch(y[1000]);
  })");
  ASSERT_TRUE(out.ok()) << out.status();
  EXPECT_EQ(*out, (std::vector<int64_t>{111, 42, 30}));
}

TEST(Interp, NumbersRoundInTheirOwnType) {
  Function f = Parse(
      R"(fn f(h: f16[2] input, b: bf16[2] input, u: u8[2] input, y: f32[4] output, q: i8[2] output) stage=flat {
    y[0] = f32(h[0] + h[1]); y[1] = f32(b[0] + b[1]); y[2] = f32(u[0] + u[1]); y[3] = f32(u[0]) + f32(u[1]);
    q[0] = i8(1000.0f32); q[1] = i8(i32(u[0])); })");
  TensorData h = Pack(std::vector<uint16_t>{0x6800, 0x3c00});  // 2048 and 1: f16 has 11 bits
  TensorData b = Pack(std::vector<uint16_t>{0x4380, 0x3f80});  // 256 and 1: bf16 has 8
  TensorData u = Pack(std::vector<uint8_t>{200, 100}), y, q;
  absl::Status status = Interpret(f, {}, {&h, &b, &u, &y, &q});
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(Unpack<float>(y), (std::vector<float>{2048, 256, 44, 300}));
  EXPECT_EQ(Unpack<int8_t>(q), (std::vector<int8_t>{127, -56}));
}

TEST(Interp, StrictChecksName) {
  EXPECT_EQ(Failure("fn f(y: i64[4] output) stage=flat { y[4] = 1; }"), "ir.interp.out_of_bounds");
  EXPECT_EQ(Failure("fn f(y: i64[2, 2] output) stage=loops { y[0, 2] = 1; }"),
            "ir.interp.out_of_bounds");
  EXPECT_EQ(Failure("fn f(y: i64[2, 2] output) stage=flat { y[-1] = 1; }"),
            "ir.interp.out_of_bounds");
  EXPECT_EQ(Failure("fn f(y: i64[4] output) stage=flat { y[ramp(2, 1, 4)] = broadcast(1, 4); }"),
            "ir.interp.out_of_bounds");
  EXPECT_EQ(Failure("fn f(y: i64[2] output) stage=flat { y[0] = y[1]; }"),
            "ir.interp.uninitialised");
  EXPECT_EQ(Failure("fn f(y: i64[2] output) stage=flat { y[0] = 1; }"),
            "ir.interp.unwritten_output");
  EXPECT_EQ(
      Failure("fn f(y: i64[1] output) stage=flat { for i in 0..1 { y[0] = floordiv(3, i); } }"),
      "ir.interp.division_by_zero");
  EXPECT_EQ(Failure("fn f(y: i64[1] output) stage=flat { for i in 0..1000000 { y[0] = i; } }",
                    {.max_steps = 1000}),
            "ir.interp.step_limit");
  EXPECT_EQ(Failure("fn f(y: i64[1] output) stage=flat { alloc t: i64[1000000, 1000000] "
                    "scope=global { y[0] = 1; } }"),
            "ir.interp.size");
  EXPECT_EQ(Failure("fn f(y: i64[9] output) { for i in 0..9 { block b(v: spatial 0..8 = i) { "
                    "writes y[v:1]; y[v] = 1; } } }"),
            "ir.interp.domain");
  // The local buffer is new in every iteration.
  EXPECT_EQ(Failure("fn f(y: i64[4] output) stage=flat { for i in 0..4 { alloc t: i64[1] "
                    "scope=local { if (i == 0) { t[0] = 1; } y[i] = t[0]; } } }"),
            "ir.interp.uninitialised");
}

TEST(Interp, InitMustComeFirst) {
  // Reduce outermost and backwards: the first visit of a point is not the one that initialises it.
  std::string wrong = R"(fn f(y: i64[2] output) { for k in 0..3 parallel { for i in 0..2 {
    block b(v: spatial 0..2 = i, r: reduce 0..3 = k) { writes y[v:1]; init { y[v] = 0; } y[v] = y[v] + r; } } } })";
  EXPECT_EQ(Failure(wrong), "ir.interp.init_order");
  std::string right = wrong;
  right.replace(right.find(" parallel"), 9, "");
  absl::StatusOr<std::vector<int64_t>> out = RunInts(right);
  ASSERT_TRUE(out.ok()) << out.status();
  EXPECT_EQ(*out, (std::vector<int64_t>{3, 3}));
}

TEST(Interp, PointsComputedAgainStartAgain) {
  absl::StatusOr<std::vector<int64_t>> out =
      RunInts(R"(fn f(y: i64[2] output) { for again in 0..3 { for i in 0..2 { for k in 0..4 {
    block b(v: spatial 0..2 = i, r: reduce 0..4 = k) { writes y[v:1]; init { y[v] = 0; } y[v] = y[v] + r; } } } } })");
  ASSERT_TRUE(out.ok()) << out.status();
  EXPECT_EQ(*out, (std::vector<int64_t>{6, 6}));
}

TEST(Interp, PredicatesGuardWholeBlocks) {
  absl::StatusOr<std::vector<int64_t>> out =
      RunInts(R"(fn f(y: i64[5] output) { for o in 0..2 { for i in 0..3 {
    block b(v: spatial 0..5 = o * 3 + i) where (o * 3 + i < 5) { writes y[v:1]; y[v] = v * v; } } } })");
  ASSERT_TRUE(out.ok()) << out.status();
  EXPECT_EQ(*out, (std::vector<int64_t>{0, 1, 4, 9, 16}));
}

TEST(Interp, AccessesOutsideDeclaredRegionsShow) {
  InterpOptions check;
  check.check_regions = true;
  const std::string text =
      R"(fn f(y: i64[4] output) { for i in 0..4 { block b(v: spatial 0..4 = i) { writes y[v:1]; y[v] = 1; } } })";
  EXPECT_EQ(Failure(text, check), "");
  std::string wrong = text;
  wrong.replace(wrong.find("y[v:1]"), 6, "y[0:3]");
  EXPECT_EQ(Failure(wrong, check), "ir.interp.region");
  std::string read = R"(fn f(y: i64[4] output) { for i in 0..4 { block b(v: spatial 0..4 = i) {
    reads y[v:1]; writes y[v:1]; y[v] = select(v >= 1, y[v - 1], 0); } } })";
  EXPECT_EQ(Failure(read, check), "ir.interp.region");
}

TEST(Interp, RandomProgramsRunStrictly) {
  InterpOptions options;
  options.check_regions = true;
  uint64_t base = tests::TestSeed(100);
  for (int i = 0; i < tests::TestRounds(150); ++i) {
    tests::RandomProgram p = tests::RandomTe(base + i);
    auto out = tests::RunProgram(p.function, p.sizes, base + i, options);
    ASSERT_TRUE(out.ok()) << "seed " << base + i << " " << out.status() << "\n" << p.Describe();
    Function flat = tests::RandomFlat(base + i);
    auto flat_out = tests::RunProgram(flat, {}, base + i);
    ASSERT_TRUE(flat_out.ok()) << "seed " << base + i << " " << flat_out.status() << "\n"
                               << Print(flat);
  }
}

TEST(Interp, IntegerExpressionsUnderAnAssignment) {
  Var x = MakeVar("x");
  EXPECT_EQ(*EvalIntExpr(FloorDiv(x * Int(3), Int(4)), {{x, 9}}), 6);
  EXPECT_EQ(*EvalIntExpr(x < Int(3), {{x, 9}}), 0);
  EXPECT_EQ(support::Slug(EvalIntExpr(FloorMod(Int(3), x), {{x, 0}}).status()),
            "ir.interp.division_by_zero");
  EXPECT_EQ(support::Slug(EvalIntExpr(x, {}).status()), "ir.interp.undeclared");
  EXPECT_EQ(support::Slug(EvalIntExpr(Float(1), {}).status()), "ir.interp.type");
}

TEST(RandomIr, ShrinksToTheSmallestFailingProgram) {
  tests::RandomIrOptions options;
  auto has_reduction = [](const tests::RandomProgram& p) {
    return Print(p.function).find("reduce") != std::string::npos;
  };
  for (uint64_t seed = 0; seed < 30; ++seed) {
    tests::RandomProgram p = tests::RandomTe(seed, options);
    if (!has_reduction(p)) continue;
    tests::RandomProgram small = tests::Shrink(seed, options, has_reduction);
    EXPECT_TRUE(has_reduction(small));
    EXPECT_LE(Print(small.function).size(), Print(p.function).size() + 1);
  }
}

}  // namespace
}  // namespace tilewright::ir
