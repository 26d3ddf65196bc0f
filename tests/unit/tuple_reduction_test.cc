// Tuple reductions and scans: the laws of the combiners, their text, their meaning, their lowering,
// and the one view of reduction blocks.
#include "compiler/ir/tuple_reduction.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "compiler/ir/build.h"
#include "compiler/ir/interp.h"
#include "compiler/ir/ir_text.h"
#include "compiler/ir/numeric.h"
#include "compiler/ir/structural.h"
#include "compiler/ir/verify.h"
#include "compiler/transform/passes.h"
#include "deploy/support/rng.h"
#include "tests/support/te_programs.h"

namespace tilewright::ir {
namespace {

using Tuple = std::vector<double>;

TensorData Pack(const Buffer& b, const std::vector<double>& values) {
  TensorData data;
  for (double v : values) {
    float f = static_cast<float>(v);
    int64_t i = v >= 0x1p63 ? INT64_MAX : static_cast<int64_t>(v);
    const void* from = b->dtype.is_float() ? static_cast<const void*>(&f) : &i;
    size_t at = data.bytes.size(), width = static_cast<size_t>(b->dtype.bytes());
    data.bytes.resize(at + width);
    std::memcpy(data.bytes.data() + at, from, width);
  }
  return data;
}

std::vector<double> Unpack(const Buffer& b, const TensorData& data) {
  std::vector<double> values;
  size_t width = static_cast<size_t>(b->dtype.bytes());
  for (size_t at = 0; at < data.bytes.size(); at += width) {
    float f = 0;
    int64_t i = 0;
    std::memcpy(b->dtype.is_float() ? static_cast<void*>(&f) : &i, data.bytes.data() + at, width);
    values.push_back(b->dtype.is_float() ? f : static_cast<double>(WrapInt(i, b->dtype)));
  }
  return values;
}

// Results of a function of constant shapes, inputs given in parameter order.
std::vector<std::vector<double>> RunFunction(const Function& f,
                                             const std::vector<std::vector<double>>& inputs) {
  std::vector<TensorData> data(f.params.size());
  std::vector<TensorData*> args;
  for (size_t i = 0, next = 0; i < f.params.size(); ++i) {
    if (f.params[i]->role != Role::kOutput) data[i] = Pack(f.params[i], inputs[next++]);
    args.push_back(&data[i]);
  }
  absl::Status status = Interpret(f, {}, args, {.check_regions = true});
  EXPECT_TRUE(status.ok()) << status << "\n" << Print(f);
  std::vector<std::vector<double>> outputs;
  for (size_t i = 0; i < f.params.size(); ++i) {
    if (f.params[i]->role == Role::kOutput) outputs.push_back(Unpack(f.params[i], data[i]));
  }
  return outputs;
}

// combine(a, b), as the interpreter sees it: a reduction over two given tuples, started from `a`.
class Law {
 public:
  Law(const TupleReduction& reduction, std::vector<DType> types)
      : reduction_(reduction), types_(std::move(types)) {}

  Tuple Combined(const Tuple& a, const Tuple& b) const {
    Function f;
    f.name = "combined";
    StmtNode block{.kind = StmtKind::kBlock};
    block.name = "both";
    Var k = MakeVar("k"), vk = MakeVar("vk");
    block.iters.push_back({vk, {Int(0), Int(1)}, IterType::kReduce, k});
    std::vector<Stmt> inits, stores;
    std::vector<Buffer> outs;
    std::vector<std::vector<double>> inputs;
    for (size_t i = 0; i < types_.size(); ++i) {
      std::string n = std::to_string(i);
      Buffer left = MakeBuffer("l" + n, types_[i], {}, Role::kInput);
      Buffer right = MakeBuffer("r" + n, types_[i], {}, Role::kInput);
      outs.push_back(MakeBuffer("o" + n, types_[i], {}, Role::kOutput));
      f.params.insert(f.params.end(), {left, right});
      inits.push_back(MakeStore(outs[i], {}, Load(left, {})));
      stores.push_back(MakeStore(outs[i], {}, Load(right, {})));
      for (const Buffer& in : {left, right}) block.reads.push_back({in, {}});
      block.writes.push_back({outs[i], {}});
      inputs.insert(inputs.end(), {{a[i]}, {b[i]}});
    }
    f.params.insert(f.params.end(), outs.begin(), outs.end());
    block.init = MakeSeq(inits);
    block.body = MakeCombine(reduction_.combiner, stores);
    f.body = MakeFor(k, Int(0), Int(1), MakeBlock(block));
    EXPECT_TRUE(Verify(f).ok()) << Verify(f);
    Tuple result;
    for (const std::vector<double>& out : RunFunction(f, inputs)) result.push_back(out[0]);
    return result;
  }
  Tuple Identity() const {
    Tuple t;
    for (const Expr& e : reduction_.identity) {
      t.push_back(e->dtype.is_float() ? e->float_value : static_cast<double>(e->int_value));
    }
    return t;
  }

 private:
  TupleReduction reduction_;
  std::vector<DType> types_;
};

void ExpectNear(const Tuple& a, const Tuple& b, const char* what) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_LE(std::abs(a[i] - b[i]), 1e-5 * std::max(1.0, std::abs(a[i]))) << what << ", " << i;
  }
}

TEST(Combiners, AreAssociativeCommutativeAndLeaveTheirIdentityAlone) {
  support::Rng rng(7);
  auto number = [&] { return static_cast<double>(rng.UniformInt(-12, 12)) / 4; };
  struct Row {
    TupleReduction reduction;
    std::vector<DType> types;
    std::function<Tuple()> draw;
  };
  std::vector<Row> rows = {
      {ArgMax(kF32, kI64), {kF32, kI64}, [&] { return Tuple{number(), double(rng.Uniform(9))}; }},
      {ArgMin(kI32, kI32),
       {kI32, kI32},
       [&] { return Tuple{double(rng.UniformInt(-3, 3)), double(rng.Uniform(9))}; }},
      {OnlineSoftmax(kF32), {kF32, kF32}, [&] { return Tuple{number(), 1 + number() / 4}; }},
      {OnlineAttention(kF32),
       {kF32, kF32, kF32},
       [&] { return Tuple{number(), 2 + number() / 4, number()}; }},
      {Welford(kF32), {kF32, kF32, kF32}, [&] {
         return Tuple{double(1 + rng.Uniform(5)), number(), double(rng.Uniform(4))};
       }}};
  for (const Row& row : rows) {
    Law law(row.reduction, row.types);
    for (int round = 0; round < 25; ++round) {
      Tuple a = row.draw(), b = row.draw(), c = row.draw();
      ExpectNear(law.Combined(a, law.Combined(b, c)), law.Combined(law.Combined(a, b), c),
                 "associative");
      ExpectNear(law.Combined(a, b), law.Combined(b, a), "commutative");
      EXPECT_EQ(law.Combined(law.Identity(), a), a);
      EXPECT_EQ(law.Combined(a, law.Identity()), a);
    }
    EXPECT_EQ(law.Combined(law.Identity(), law.Identity()), law.Identity());
  }
}

TEST(Tuples, ArgMaxTakesTheFirstOfEquals) {
  Function f = tests::ArgMaxProgram(3, 4);
  auto out = RunFunction(f, {{1, 5, 2, 5, -3, -3, -9, -4, 0, 0, 0, 7}});
  EXPECT_EQ(out[0], (std::vector<double>{5, -3, 7}));
  EXPECT_EQ(out[1], (std::vector<double>{1, 0, 3}));
}

TEST(Tuples, OnlineAttentionIsAttention) {
  constexpr int64_t kRows = 3, kKeys = 5, kWidth = 2;
  Function f = tests::AttentionProgram(kRows, kKeys, kWidth, kWidth);
  support::Rng rng(3);
  std::vector<std::vector<double>> in(3);
  size_t sizes[] = {kRows * kWidth, kKeys * kWidth, kKeys * kWidth};
  for (size_t t = 0; t < 3; ++t) {
    for (size_t i = 0; i < sizes[t]; ++i) {
      in[t].push_back(static_cast<double>(rng.UniformInt(-8, 8)) / 4);
    }
  }
  std::vector<double> out = RunFunction(f, in)[0];
  for (int64_t i = 0; i < kRows; ++i) {
    std::vector<double> p(kKeys);
    double total = 0;
    for (int64_t j = 0; j < kKeys; ++j) {
      double score = 0;
      for (int64_t k = 0; k < kWidth; ++k) score += in[0][i * kWidth + k] * in[1][j * kWidth + k];
      total += p[j] = std::exp(score / std::sqrt(static_cast<double>(kWidth)));
    }
    for (int64_t d = 0; d < kWidth; ++d) {
      double expected = 0;
      for (int64_t j = 0; j < kKeys; ++j) expected += p[j] / total * in[2][j * kWidth + d];
      EXPECT_NEAR(out[i * kWidth + d], expected, 1e-5);
    }
  }
}

TEST(Tuples, WelfordIsMeanAndVariance) {
  FunctionBuilder b("welford");
  Buffer x = b.Input("x", kF32, {Int(8)});
  Axis k = b.ReduceAxis("k", Int(8));
  auto out = b.ReduceTuple({"n", "mean", "m2"}, {kF32, kF32, kF32}, {}, {}, {k}, Welford(kF32),
                           [&](const std::vector<Var>&) {
                             return std::vector<Expr>{Float(1), Load(x, {k.var}), Float(0)};
                           });
  auto got = RunFunction(b.Finish(out), {{1, 2, 3, 4, 5, 6, 7, 12}});
  EXPECT_EQ(got[0][0], 8);
  EXPECT_NEAR(got[1][0], 5, 1e-5);
  EXPECT_NEAR(got[2][0], 84, 1e-4);
}

TEST(Tuples, EverythingIsReadBeforeAnythingIsStored) {
  // (a, b) ⊕ (x, y) = (b + x, a + y): each element needs the other's old value.
  const char* text = R"(fn swap(x: i64[3] input, p: i64[1] output, q: i64[1] output) {
  for k in 0..3 {
    block both(vk: reduce 0..3 = k) {
      reads x[vk:1];
      writes p[0:1], q[0:1];
      init { p[0] = 1; q[0] = 10; }
      combine ordered (p[0], q[0]) with (x[vk], 0) by (a, b), (c, d) = (b + c, a + d);
    }
  }
})";
  absl::StatusOr<Function> f = ParseFunction(text);
  ASSERT_TRUE(f.ok()) << f.status();
  ASSERT_TRUE(Verify(*f).ok()) << Verify(*f);
  auto out = RunFunction(*f, {{100, 200, 400}});
  EXPECT_EQ(out[0], std::vector<double>{510});  // 110, 1; 201, 110; 510, 201
  EXPECT_EQ(out[1], std::vector<double>{201});
}

TEST(Tuples, TextComesBack) {
  for (const Function& f : {tests::ArgMaxProgram(3, 4), tests::AttentionProgram(2, 3, 4, 5),
                            tests::LstmProgram(3, 2, 4)}) {
    absl::StatusOr<Function> again = ParseFunction(Print(f));
    ASSERT_TRUE(again.ok()) << again.status() << Print(f);
    EXPECT_TRUE(StructuralEqual(f, *again)) << Print(f);
    EXPECT_EQ(StructuralHash(f), StructuralHash(*again));
    EXPECT_EQ(Print(*again), Print(f));
  }
}

TEST(Tuples, TheCombinerIsPartOfTheHash) {
  std::string text = Print(tests::ArgMaxProgram(3, 4)), other = text;
  size_t at = other.find("combine (");
  ASSERT_NE(at, std::string::npos);
  other.replace(at, 9, "combine ordered (");
  EXPECT_FALSE(StructuralEqual(*ParseFunction(text), *ParseFunction(other)));
}

struct Refused {
  const char *slug, *combine;
};
TEST(Tuples, MalformedOnesAreRefused) {
  const Refused rows[] = {
      {"ir.parse.combiner", "combine (p[0], q[0]) with (x[vk]) by (a, b), (c, d) = (a, b);"},
      {"ir.parse.type", "combine (p[0], q[0]) with (x[vk], 0) by (a, b), (c, d) = (a);"},
      {"ir.parse.type", "combine (p[0], p[0]) with (x[vk], 0) by (a, b), (c, d) = (a, b);"},
      {"ir.parse.type", "combine (p[0], q[0]) with (x[vk], 0) by (a, b), (c, d) = (a, 1.0f32);"},
      {"ir.parse.combiner", "combine (p[0]) with (x[vk]) by (a, b), (c, d) = (a);"},
      {"ir.verify.var_scope", "combine (p[0], q[0]) with (x[vk], 0) by (a, b), (c, d) = (a, vk);"},
      {"ir.verify.load_position",
       "combine (p[0], q[0]) with (x[vk], 0) by (a, b), (c, d) = (a, x[0]);"},
  };
  for (const Refused& row : rows) {
    std::string text =
        std::string(
            "fn f(x: i64[3] input, p: i64[1] output, q: i64[1] output) { for k in 0..3 { "
            "block both(vk: reduce 0..3 = k) { reads x[vk:1]; writes p[0:1], q[0:1]; init "
            "{ p[0] = 1; q[0] = 10; } ") +
        row.combine + " } } }";
    absl::StatusOr<Function> f = ParseFunction(text);
    absl::Status status = f.ok() ? Verify(*f) : f.status();
    EXPECT_NE(status.ToString().find(row.slug), std::string::npos) << status << row.combine;
  }
}

TEST(Tuples, LoweringReadsBeforeItStores) {
  Function f = tests::ArgMaxProgram(3, 4);
  absl::StatusOr<Function> lowered = transform::LowerBlocks(f, {});
  ASSERT_TRUE(lowered.ok()) << lowered.status();
  ASSERT_TRUE(Verify(*lowered).ok()) << Verify(*lowered) << Print(*lowered);
  std::vector<std::vector<double>> in = {{1, 5, 2, 5, -3, -3, -9, -4, 0, 0, 0, 7}};
  EXPECT_EQ(RunFunction(*lowered, in), RunFunction(f, in));
  EXPECT_EQ(Print(*lowered).find("combine"), std::string::npos);
}

TEST(ReductionForms, BothWaysOfWriting) {
  auto form = [](const std::string& body) {
    static std::vector<Function> kept;
    absl::StatusOr<Function> f = ParseFunction(
        "fn f(x: f32[3] input, y: f32[1] output) { for k in 0..3 { block b(vk: reduce 0..3 = k) { "
        "reads x[vk:1]; writes y[0:1]; " +
        body + " } } }");
    EXPECT_TRUE(f.ok()) << f.status();
    kept.push_back(*f);
    return ReductionOf(*f->body->body);
  };
  auto sum = form("init { y[0] = 0.0f32; } y[0] = x[vk] * 2.0f32 + y[0];");
  ASSERT_TRUE(sum.has_value());
  EXPECT_TRUE(sum->neutral);
  EXPECT_EQ(Print(sum->targets[0]->value), "x[vk] * 2.0f32");
  EXPECT_EQ(Print(sum->combiner->results[0]), "a0 + b0");
  auto max = form("init { y[0] = 0.0f32; } y[0] = max(y[0], x[vk]);");
  ASSERT_TRUE(max.has_value());
  EXPECT_FALSE(max->neutral);  // combining with 0 is a relu, not nothing
  EXPECT_FALSE(form("y[0] = y[0] + x[vk];").has_value());
  EXPECT_FALSE(form("init { y[0] = 0.0f32; } y[0] = x[vk] - y[0];").has_value());
  EXPECT_FALSE(form("init { y[0] = 0.0f32; } y[0] = y[0] + y[0] * x[vk];").has_value());
  Function f = tests::ArgMaxProgram(3, 4);
  auto tuple = ReductionOf(*f.body->body->body);
  ASSERT_TRUE(tuple.has_value());
  EXPECT_TRUE(tuple->neutral);
  EXPECT_EQ(tuple->targets.size(), 2u);
}

TEST(Scans, StateIsCarriedInOrder) {
  FunctionBuilder b("running_sum");
  Buffer x = b.Input("x", kI64, {Int(5), Int(2)});
  Buffer s = b.State("s", kI64, Int(5), {Int(2)}, {"i"},
                     [](const std::vector<Var>& v) { return v[0] * Int(100); });
  b.BeginScan("t", Int(5));
  Buffer doubled = b.Compute("doubled", kI64, {Int(2)}, {"i"}, [&](const std::vector<Var>& v) {
    return Load(x, {v[0], v[1]}) * Int(2);
  });
  b.Next(s, {"i"}, [&](const std::vector<Var>& v) {
    return Load(s, {v[0], v[1]}) + Load(doubled, {v[0], v[1]});
  });
  b.EndScan();
  Function f = b.Finish({s});
  auto out = RunFunction(f, {{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}});
  EXPECT_EQ(out[0], (std::vector<double>{0, 100, 2, 104, 8, 112, 18, 124, 32, 140, 50, 160}));
  // Backwards it is another program, and says so.
  std::string text = Print(f);
  size_t at = text.find("for t in 0..5");
  ASSERT_NE(at, std::string::npos);
  text.insert(at + 13, " parallel");
  absl::StatusOr<Function> wrong = ParseFunction(text);
  ASSERT_TRUE(wrong.ok()) << wrong.status();
  std::vector<TensorData> data = {Pack(f.params[0], {1, 2, 3, 4, 5, 6, 7, 8, 9, 10}), {}};
  absl::Status status = Interpret(*wrong, {}, {&data[0], &data[1]}, {.check_uninitialised = false});
  EXPECT_NE(status.ToString().find("ir.interp.sequence_order"), std::string::npos) << status;
}

}  // namespace
}  // namespace tilewright::ir
