// The operator `attention` by both of its algorithms, interpreted and compiled, against its plain
// reference: random shapes, groups of heads, layouts, masks and tiles; open sizes; rows that see
// nothing; scores that a softmax without its maximum would overflow on.
#include "compiler/op/attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "compiler/driver/tasks.h"
#include "compiler/graph/graph.h"
#include "compiler/ir/interp.h"
#include "compiler/schedule/schedule.h"
#include "compiler/space/default_schedule.h"
#include "compiler/space/trace.h"
#include "deploy/support/rng.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"
#include "tests/support/equivalence.h"
#include "tests/support/random_graph.h"
#include "tests/support/run_compiled.h"
#include "tests/support/test_seed.h"

namespace tilewright::driver {
namespace {

using graph::Graph;
using op::RefTensor;
using support::Rng;
using support::StrCat;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Problem {
  int64_t batch = 1, kv_heads = 1, shared = 1, tokens = 1, keys = 1, head = 4, value = 4;
  std::string q = "BHSD", k = "BHSD", v = "BHSD", y = "BHSD", mask = "", attrs = "";
  bool open = false;  // tokens and keys

  std::string Size(char letter, bool of_queries, int64_t d) const {
    if (letter == 'B') return StrCat(batch);
    if (letter == 'H') return StrCat(of_queries ? kv_heads * shared : kv_heads);
    if (letter == 'D') return StrCat(d);
    if (of_queries) return open ? "S" : StrCat(tokens);
    return open ? "P + S" : StrCat(keys);
  }
  std::string Type(const std::string& layout, bool of_queries, int64_t d) const {
    std::string type = "f32[";
    for (char letter : layout) {
      type += StrCat(type.back() == '[' ? "" : ",", Size(letter, of_queries, d));
    }
    return type + "]";
  }
  std::string Text() const {
    const std::string masked = mask.empty() ? "" : StrCat("  input %3 \"mask\": f32", mask, "\n");
    const int y_id = mask.empty() ? 3 : 4;
    return StrCat("graph \"attention\" {\n  input %0 \"q\": ", Type(q, true, head),
                  "\n  input %1 \"k\": ", Type(k, false, head),
                  "\n  input %2 \"v\": ", Type(v, false, value), "\n", masked, "  %", y_id,
                  " \"y\": ", Type(y, true, value), " = attention(%0, %1, %2",
                  mask.empty() ? "" : ", %3", ") {", attrs, "k_layout=\"", k, "\", q_layout=\"", q,
                  "\", v_layout=\"", v, "\", y_layout=\"", y, "\"} \"y\"\n  output %", y_id, "\n}");
  }
};

Graph Parsed(const Problem& p) {
  auto g = graph::ParseGraph(p.Text());
  EXPECT_TRUE(g.ok()) << g.status() << p.Text();
  return g.ok() ? *std::move(g) : Graph();
}

// Masks hide some keys from some tokens, all of them from token 0 where `dead`.
std::vector<RefTensor> Inputs(const Graph& g, uint64_t seed, double scale, bool dead) {
  std::vector<RefTensor> inputs = tests::RandomGraphInputs(g, seed);
  for (double& x : inputs[0].values) x = op::RoundToType(x * scale, ir::kF32);
  if (inputs.size() < 4) return inputs;
  RefTensor& mask = inputs[3];
  const int64_t columns = mask.type.size(-1);
  Rng rng(seed);
  for (size_t i = 0; i < mask.values.size(); ++i) {
    const int64_t row = static_cast<int64_t>(i) / columns,
                  column = static_cast<int64_t>(i) % columns;
    const bool kept = column == row % columns;  // each row sees one key at least
    if (!kept && rng.Bernoulli(0.4)) mask.values[i] = -kInfinity;
    if (dead && row == 0) mask.values[i] = -kInfinity;
  }
  return inputs;
}

void ExpectNear(const RefTensor& actual, const RefTensor& expected, const std::string& what) {
  ASSERT_EQ(actual.values.size(), expected.values.size()) << what;
  for (size_t i = 0; i < expected.values.size(); ++i) {
    const double a = actual.values[i], e = expected.values[i];
    if (std::isnan(e) && std::isnan(a)) continue;
    ASSERT_LE(std::fabs(a - e), 2e-5 * (1 + std::fabs(e)))
        << what << " at " << i << ": expected " << e << ", found " << a;
  }
}

// One algorithm at some sizes, by the interpreter, or compiled by its default schedule.
void ExpectComputes(const schedule::Variant& variant, const Graph& fixed, const op::Sizes& sizes,
                    const std::vector<RefTensor>& inputs, bool compiled) {
  const auto expected = graph::Interpret(fixed, inputs);
  ASSERT_TRUE(expected.ok()) << expected.status();
  std::vector<int64_t> values;
  for (const ir::Var& size : variant.function.size_params) values.push_back(sizes.at(size->name));
  std::vector<ir::TensorData> data(inputs.size() + 1);
  for (size_t i = 0; i < inputs.size(); ++i) {
    const std::string bytes = op::ToBytes(inputs[i]);
    data[i].bytes.assign(bytes.begin(), bytes.end());
  }
  std::vector<ir::TensorData*> args;
  for (ir::TensorData& d : data) args.push_back(&d);
  const std::string what = StrCat(variant.name, compiled ? " compiled " : " ", graph::Print(fixed));
  if (compiled) {
    static const target::Target target = tests::WidestTarget();
    const auto scheduled =
        schedule::Replay({{"direct", variant.function}},
                         schedule::ToText(space::DefaultSchedule(variant.function, target)));
    ASSERT_TRUE(scheduled.ok()) << scheduled.status() << what;
    const absl::Status run = tests::RunCompiled(*scheduled, target, 2, values, args);
    ASSERT_TRUE(run.ok()) << run << what;
  } else {
    const absl::Status run = ir::Interpret(variant.function, values, args, {.check_regions = true});
    ASSERT_TRUE(run.ok()) << run << what;
  }
  const std::vector<uint8_t>& bytes = data.back().bytes;
  const auto actual = op::FromBytes((*expected)[0].type,
                                    {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  ASSERT_TRUE(actual.ok()) << actual.status() << what;
  ExpectNear(*actual, (*expected)[0], what);
}

// All algorithms of the problem at the given sizes of S and P.
void ExpectAttention(const Problem& p, const std::vector<op::Sizes>& at, uint64_t seed,
                     double scale = 1, bool dead = false) {
  const Graph g = Parsed(p);
  const auto variants = TaskVariants(g);
  ASSERT_TRUE(variants.ok()) << variants.status() << p.Text();
  EXPECT_EQ(variants->size(), p.open ? 2U : 1U);
  for (const op::Sizes& sizes : at) {
    const auto fixed = p.open ? graph::Specialize(g, sizes) : absl::StatusOr<Graph>(g);
    ASSERT_TRUE(fixed.ok()) << fixed.status();
    const std::vector<RefTensor> inputs = Inputs(*fixed, seed, scale, dead);
    for (const schedule::Variant& variant : *variants) {
      for (const bool compiled : {false, true}) {
        ExpectComputes(variant, *fixed, sizes, inputs, compiled);
        if (testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

std::string RandomLayout(Rng* rng) {
  static const std::string layouts[] = {"BHSD", "BSHD", "SBHD", "HBSD", "BHDS"};
  return layouts[rng->Uniform(5)];
}

Problem RandomProblem(Rng* rng) {
  Problem p;
  p.batch = rng->UniformInt(1, 2);
  p.kv_heads = rng->UniformInt(1, 3);
  p.shared = rng->UniformInt(1, 11);
  p.open = rng->Bernoulli(0.5);
  p.tokens = rng->UniformInt(1, 9);
  p.keys = p.tokens + rng->UniformInt(0, 40);
  p.head = rng->UniformInt(1, 40);
  p.value = rng->UniformInt(1, 40);
  p.q = RandomLayout(rng), p.k = RandomLayout(rng), p.v = RandomLayout(rng),
  p.y = RandomLayout(rng);
  const int64_t kind = rng->UniformInt(0, 3);
  if (kind == 1) p.attrs = "causal=1, ";
  const std::string plane = StrCat(p.Size('s', true, 0), ",", p.Size('s', false, 0), "]");
  if (kind == 2) p.mask = StrCat("[", plane);
  if (kind == 3) p.mask = StrCat("[", p.batch, ",", p.kv_heads * p.shared, ",", plane);
  p.attrs +=
      StrCat("keys=", rng->UniformInt(1, 24), ", rows=", rng->UniformInt(1, 20), ", scale=0.5, ");
  if (rng->Bernoulli(0.3)) p.attrs += "softcap=1.5, ";
  return p;
}

TEST(Attention, ComputesWhatItsReferenceSays) {
  const uint64_t seed = tests::TestSeed();
  const int64_t rounds = tests::TestRounds(12);
  for (int64_t i = 0; i < rounds; ++i) {
    Rng rng = Rng(seed).Split(static_cast<uint64_t>(i));
    const Problem p = RandomProblem(&rng);
    std::vector<op::Sizes> at = {{{"S", p.tokens}, {"P", p.keys - p.tokens + 1}}};
    if (p.open) at.push_back({{"S", 1}, {"P", rng.UniformInt(1, 60)}});
    ExpectAttention(p, at, seed);
    ASSERT_FALSE(HasFatalFailure()) << "round " << i;
  }
}

// The form of a decoder: a cache with tokens first, grouped heads, one token or a prompt.
TEST(Attention, DecodesAndReadsPrompts) {
  Problem p{.kv_heads = 2, .shared = 4, .head = 16, .value = 16};
  p.open = true;
  p.q = p.y = "BSHD";
  p.k = p.v = "SBHD";
  p.attrs = "causal=1, scale=0.125, ";
  ExpectAttention(p,
                  {{{"S", 1}, {"P", 1}},
                   {{"S", 1}, {"P", 64}},
                   {{"S", 1}, {"P", 133}},
                   {{"S", 63}, {"P", 1}},
                   {{"S", 5}, {"P", 129}}},
                  5);
}

TEST(Attention, LargeScoresDoNotOverflow) {
  Problem p{.tokens = 3, .keys = 50, .head = 8, .value = 5};
  p.attrs = "keys=8, rows=4, scale=100.0, ";
  ExpectAttention(p, {{}}, 3, /*scale=*/20);
}

// A token that sees no key: NaN as the operators have it, or zeros where the model wants them.
TEST(Attention, RowsThatSeeNoKey) {
  Problem p{.shared = 3, .tokens = 4, .keys = 21, .head = 8, .value = 5};
  p.mask = "[4,21]";
  for (const char* attrs : {"keys=8, rows=4, ", "dead_rows_zero=1, keys=8, rows=4, "}) {
    p.attrs = attrs;
    const Graph g = Parsed(p);
    const auto y = graph::Interpret(g, Inputs(g, 3, 1, /*dead=*/true));
    ASSERT_TRUE(y.ok()) << y.status();
    const bool zero = p.attrs.starts_with("dead");
    EXPECT_EQ(std::isnan((*y)[0].values[0]), !zero);
    EXPECT_TRUE(!zero || (*y)[0].values[0] == 0);
    ExpectAttention(p, {{}}, 3, 1, /*dead=*/true);
  }
}

TEST(Attention, RefusesWhatDoesNotBelongTogether) {
  const std::pair<const char*, const char*> cases[] = {
      {"f32[1,3,2,8]", ", q_layout=\"BHS\""},  // no layout
      {"f32[1,3,2,8]", ", rows=0"},            // no tile
      {"f32[1,3,2,8]", ", softcap=-1.0"},      // no bound
      {"f32[1,3,2,8]", ""},                    // 3 heads of 2
      {"f32[1,4,2,6]", ""},                    // other heads
      {"f32[4,2,8]", ""},                      // other rank
      {"f32[1,4,9,8]", ", causal=1"},          // tokens without a key
  };
  const op::OpSpec& spec = *op::FindOp(op::kAttentionOp);
  for (const auto& [q, attrs] : cases) {
    const std::string text = StrCat("graph \"g\" {\n  input %0 \"q\": ", q,
                                    "\n  input %1 \"k\": f32[1,2,7,8]\n  %2 \"y\": f32[1,4,2,8] = "
                                    "attention(%0, %1, %1) {keys=4",
                                    attrs, "} \"y\"\n  output %2\n}");
    const auto g = graph::ParseGraph(text);
    EXPECT_FALSE(g.ok()) << text;
    EXPECT_NE(support::StatusText(g.status()).find("op.attention."), std::string::npos)
        << g.status();
  }
  EXPECT_EQ(spec.variants.size(), 1U);
}

// With lanes along the tokens queries and results are turned a few rows together: by gathers and
// single stores 100 tokens of bert_small's heads took 1.4 times as long (Zen 5).
TEST(Attention, QueriesAndResultsAreTurnedInRows) {
  Problem p{.kv_heads = 2, .tokens = 40, .keys = 40, .head = 32, .value = 32};
  p.q = p.y = "BSHD";
  const auto variants = TaskVariants(Parsed(p));
  ASSERT_TRUE(variants.ok()) << support::StatusText(variants.status());
  for (const char* cpu : {"x86-64-v4", "x86-64-v3"}) {
    const target::Target target = *target::ParseTarget(StrCat("cpu,arch=x86_64,cpu=", cpu));
    schedule::Schedule schedule((*variants)[0].function);
    space::Trace trace;
    space::ApplyDefaultSchedule(target, {}, &schedule, &trace);
    std::vector<std::string> turned;
    for (const space::Trace::Entry& entry : trace.entries())
      if (entry.reason == "it turns what it reads") turned.push_back(entry.block);
    EXPECT_EQ(turned, (std::vector<std::string>{"attention_q", "attention"})) << cpu;
    const absl::Status same = tests::SameResults((*variants)[0].function, schedule.function());
    EXPECT_TRUE(same.ok()) << support::StatusText(same);
  }
}

// The reductions of a scan inside of shared loops: none is left to scalar steps.
TEST(LinearAttention, EveryStageOfItsScanHasLanes) {
  const auto variants = TaskVariants(
      "graph {\n  input %0: f32[1,3,2,32]\n  input %1: f32[1,3,2,32]\n  input %2: f32[1,3,2,48]\n"
      "  input %3: f32[1,2,32,48]\n  input %4: f32[1,3,2,1]\n  input %5: f32[1,3,2,1]\n"
      "  %6: f32[1,2,35,48] = linear_attention(%0, %1, %2, %3, %4, %5) {beta=1, decay=1}\n"
      "  output %6\n}\n");
  ASSERT_TRUE(variants.ok()) << support::StatusText(variants.status());
  const target::Target target = *target::ParseTarget("cpu,arch=x86_64,cpu=x86-64-v4");
  schedule::Schedule schedule((*variants)[0].function);
  space::ApplyDefaultSchedule(target, {}, &schedule);
  int lanes = 0;  // of the start, what is known, what is fresh, the next state, y, the result
  for (const schedule::Step& step : schedule.steps()) {
    lanes += step.kind == schedule::StepKind::kVectorize ? 1 : 0;
  }
  EXPECT_EQ(lanes, 6) << schedule::ToText(schedule.steps());
  const absl::Status same = tests::SameResults((*variants)[0].function, schedule.function());
  EXPECT_TRUE(same.ok()) << support::StatusText(same);
}

}  // namespace
}  // namespace tilewright::driver
