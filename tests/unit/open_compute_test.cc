// Functions of tasks over size variables: one function computes at every size what the operator's
// reference says at that size.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "compiler/driver/tasks.h"
#include "compiler/graph/graph.h"
#include "compiler/ir/interp.h"
#include "compiler/ir/ir_text.h"
#include "compiler/schedule/schedule.h"
#include "compiler/space/default_schedule.h"
#include "compiler/space/space.h"
#include "deploy/support/rng.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"
#include "tests/support/assembly.h"
#include "tests/support/random_graph.h"
#include "tests/support/run_compiled.h"
#include "tests/support/test_seed.h"

namespace tilewright::driver {
namespace {

using graph::Graph;
using graph::Node;
using graph::ValueId;
using op::Dim;
using op::RefTensor;
using support::Rng;
using support::StrCat;

// Sizes of at least 2 become variables, equal sizes the same one.
class Opened {
 public:
  explicit Opened(Rng* rng) : rng_(rng) {}

  Dim Open(int64_t size) {
    if (size < 2) return size;
    const auto [it, added] = open_.emplace(size, false);
    if (added) it->second = rng_->Bernoulli(0.5);
    return it->second ? Dim::Variable(StrCat("N", size)) : Dim(size);
  }
  op::TensorType Open(const op::TensorType& type) {
    op::TensorType open{type.dtype, {}};
    for (const int64_t size : type.sizes()) open.shape.push_back(Open(size));
    return open;
  }

 private:
  Rng* rng_;
  std::map<int64_t, bool> open_;
};

// One node of a graph as a graph of its own, some of its sizes open.
Graph OpenNode(const Graph& g, const Node& node, Rng* rng) {
  Opened opened(rng);
  Graph one;
  one.name = node.op;
  Node copy = node;
  for (ValueId& id : copy.inputs) {
    id = AddValue(&one, g.values[id].name, opened.Open(g.values[id].type));
    one.inputs.push_back(id);
  }
  const std::string sizes(op::FindOp(node.op)->sizes_attr);
  if (auto it = copy.attrs.find(sizes); it != copy.attrs.end()) {
    std::vector<Dim> dims = op::GetDims(copy.attrs, sizes);
    for (Dim& dim : dims) dim = opened.Open(dim.value());
    it->second = op::ShapeAttr(dims);
  }
  for (ValueId& id : copy.outputs) {
    id = AddValue(&one, g.values[id].name, g.values[id].type);
    one.outputs.push_back(id);
  }
  one.nodes.push_back(std::move(copy));
  return one;
}

void ExpectNear(const RefTensor& actual, const RefTensor& expected, const std::string& what) {
  ASSERT_EQ(actual.values.size(), expected.values.size()) << what;
  for (size_t i = 0; i < expected.values.size(); ++i) {
    const double a = actual.values[i], e = expected.values[i];
    if (std::isnan(e) && std::isnan(a)) continue;
    ASSERT_TRUE(a == e || std::fabs(a - e) <= 1e-4 * (1 + std::fabs(e)))
        << what << " at " << i << ": expected " << e << ", found " << a;
  }
}

using Runner =
    std::function<absl::Status(const ir::Function& function, const std::vector<int64_t>& sizes,
                               std::vector<ir::TensorData*> args)>;

absl::Status Interpreted(const ir::Function& function, const std::vector<int64_t>& sizes,
                         std::vector<ir::TensorData*> args) {
  return ir::Interpret(function, sizes, std::move(args), {.check_regions = true});
}

// By its default schedule.
absl::Status Compiled(const ir::Function& function, const std::vector<int64_t>& sizes,
                      std::vector<ir::TensorData*> args) {
  static const target::Target target = tests::WidestTarget();
  TW_ASSIGN(const ir::Function scheduled,
            schedule::Replay({{"direct", function}},
                             schedule::ToText(space::DefaultSchedule(function, target))));
  return tests::RunCompiled(scheduled, target, 2, sizes, std::move(args));
}

// By a point of the space of its typical sizes; interpreted where it finds none. Counts what it
// drew.
struct Points {
  int applied = 0, refused = 0;
};
absl::Status ByPoints(const std::vector<schedule::Variant>& variants,
                      const std::vector<int64_t>& sizes, const std::vector<ir::TensorData*>& args,
                      Rng* rng, Points* points) {
  static const target::Target target = tests::WidestTarget();
  std::map<std::string, int64_t> typical;
  for (const ir::Var& size : variants[0].function.size_params) {
    typical[size->name] = rng->UniformInt(2, 16);
  }
  TW_ASSIGN(const auto space, space::Space::Create(variants, target, typical));
  for (int draw = 0; draw < 4; ++draw) {
    space::Point point;
    if (!space->Sample(rng, &point)) break;
    const auto schedule = space->Apply(point);
    ++(schedule.ok() ? points->applied : points->refused);
    if (!schedule.ok()) continue;
    return support::WithContext(tests::RunCompiled(schedule->function(), target, 2, sizes, args),
                                StrCat(space->VariantOf(static_cast<size_t>(point.sketch)), "\n",
                                       schedule::ToText(schedule->steps())));
  }
  return Interpreted(variants[0].function, sizes, args);
}

// Runs the function at the sizes of `fixed`, which is its graph at these sizes.
void ExpectComputes(const ir::Function& function, const Graph& fixed, const op::Sizes& sizes,
                    uint64_t seed, const Runner& run) {
  std::vector<RefTensor> inputs = tests::RandomGraphInputs(fixed, seed);
  for (RefTensor& input : inputs) {  // of random graphs, only results are bools
    for (double& v : input.values) v = op::RoundToType(v, input.type.dtype);
  }
  const auto expected = graph::Interpret(fixed, inputs);
  ASSERT_TRUE(expected.ok()) << expected.status();
  std::vector<int64_t> values;
  for (const ir::Var& size : function.size_params) values.push_back(sizes.at(size->name));
  std::vector<ir::TensorData> data(inputs.size() + 1);
  std::vector<ir::TensorData*> args;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const std::string bytes = op::ToBytes(inputs[i]);
    data[i].bytes.assign(bytes.begin(), bytes.end());
  }
  for (ir::TensorData& d : data) args.push_back(&d);
  const std::string what = graph::Print(fixed);
  const absl::Status status = run(function, values, args);
  ASSERT_TRUE(status.ok()) << what << status;
  const std::vector<uint8_t>& bytes = data.back().bytes;
  const auto actual = op::FromBytes((*expected)[0].type,
                                    {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  ASSERT_TRUE(actual.ok()) << actual.status() << what;
  ExpectNear(*actual, (*expected)[0], what);
}

// Whether no kernel computes the row.
bool IsAlwaysView(const op::OpSpec& spec) { return spec.alias && spec.element == nullptr; }

// Every node of random graphs, at its own sizes and at others.
// Counts the comparisons by operator.
void ExpectAllComputeAtAllSizes(int64_t rounds, const Runner& run,
                                std::map<std::string, int>* compared) {
  // Numbers of channels decide which loops a convolution has.
  const std::set<std::string> refused = {"op.conv2d.symbolic", "op.conv2d_transpose.symbolic"};
  const uint64_t seed = tests::TestSeed();
  for (int64_t i = 0; i < rounds; ++i) {
    Rng rng = Rng(seed).Split(static_cast<uint64_t>(i));
    const Graph g = tests::RandomGraph(&rng);
    for (const Node& node : g.nodes) {
      if (node.outputs.size() != 1 || g.values[node.outputs[0]].type.elements() > 4000) continue;
      if (IsAlwaysView(*op::FindOp(node.op))) continue;
      const auto open = graph::InferShapes(OpenNode(g, node, &rng));
      if (!open.ok() || !graph::IsSymbolic(*open)) continue;
      const auto function = TaskFunction(*open);
      if (!function.ok()) {
        const std::string slug(support::Slug(function.status()));
        EXPECT_TRUE(refused.contains(slug)) << function.status() << graph::Print(*open);
        continue;
      }
      for (int round = 0; round < 3; ++round) {
        op::Sizes sizes;
        for (const std::string& name : graph::SizeVariables(*open)) {
          const int64_t own = *support::ParseInt64(name.substr(1));
          sizes[name] = round == 0 ? own : rng.UniformInt(1, 12);
        }
        const auto fixed = graph::Specialize(*open, sizes);
        ASSERT_TRUE(round > 0 || fixed.ok()) << fixed.status();
        if (!fixed.ok()) continue;
        ExpectComputes(*function, *fixed, sizes, seed, run);
        if (testing::Test::HasFatalFailure()) FAIL() << graph::Print(*open);
        ++(*compared)[node.op];
      }
    }
  }
}

TEST(OpenCompute, OneFunctionComputesAtAllSizes) {
  std::map<std::string, int> compared;
  ExpectAllComputeAtAllSizes(tests::TestRounds(400), Interpreted, &compared);
  std::set<std::string> left_out;
  for (const auto& [name, reason] : tests::OperatorsLeftOut()) left_out.insert(name);
  for (const op::OpSpec& spec : op::Operators()) {
    const std::string name(spec.name);
    EXPECT_TRUE(compared.contains(name) || left_out.contains(name) || IsAlwaysView(spec)) << name;
  }
}

TEST(OpenCompute, AViewIsNoTask) {
  const auto g = graph::ParseGraph(
      "graph \"bits\" {\n input %0 \"x\": f32[4]\n %1: i32[4] = bitcast(%0) {dtype=\"i32\"} "
      "\"y\"\n output %1\n}\n");
  ASSERT_TRUE(g.ok()) << g.status();
  EXPECT_EQ(support::Slug(TaskFunction(*g).status()), "op.bitcast.compute");
}

// A variable may be in an attribute alone.
TEST(OpenCompute, AttributesMayBeExpressions) {
  const std::string texts[] = {
      R"(graph "pad" {
  input %0 "x": f32[N,4]
  %1: f32[2*N + 1,M + 4] = pad(%0) {pads=[N - 1,M,2,0], value=0.5} "pad"
  output %1
})",
      R"(graph "slice" {
  input %0 "x": f32[2*N + 3,4]
  %1: f32[3,4] = slice(%0) {sizes=[3,4], starts=[N + M,0], steps=[1,1]} "slice"
  output %1
})",
      R"(graph "counting" {
  input %0 "x": f32[4]
  %1: i64[4] = counting() {shape=[4], start=[3*N], step=-2} "counting"
  %2: f32[4] = cast(%1) {dtype="f32"} "cast"
  %3: f32[4] = mul(%0, %2) "mul"
  output %3
})"};
  for (const std::string& text : texts) {
    const auto open = graph::ParseGraph(text);
    ASSERT_TRUE(open.ok()) << open.status();
    EXPECT_TRUE(graph::IsSymbolic(*open)) << text;
    const auto function = TaskFunction(*open);
    ASSERT_TRUE(function.ok()) << function.status();
    for (const int64_t n : {1, 2, 5}) {
      op::Sizes sizes;
      for (const std::string& name : graph::SizeVariables(*open)) {
        sizes[name] = name == "N" ? n : 1;
      }
      EXPECT_EQ(sizes.size(), function->size_params.size());
      const auto fixed = graph::Specialize(*open, sizes);
      ASSERT_TRUE(fixed.ok()) << fixed.status();
      EXPECT_FALSE(graph::IsSymbolic(*fixed)) << graph::Print(*fixed);
      ExpectComputes(*function, *fixed, sizes, 3, Interpreted);
      ExpectComputes(*function, *fixed, sizes, 3, Compiled);
    }
  }
}

// The function of a task over open sizes, which is right at these, interpreted and compiled.
ir::Function ExpectComputesAt(const std::string& text, const std::vector<op::Sizes>& at) {
  const auto open = graph::ParseGraph(text);
  EXPECT_TRUE(open.ok()) << open.status();
  const auto function = TaskFunction(*open);
  EXPECT_TRUE(function.ok()) << function.status();
  for (const op::Sizes& sizes : at) {
    const auto fixed = graph::Specialize(*open, sizes);
    EXPECT_TRUE(fixed.ok()) << fixed.status();
    ExpectComputes(*function, *fixed, sizes, 3, Interpreted);
    ExpectComputes(*function, *fixed, sizes, 3, Compiled);
  }
  return *function;
}

// A loop over time, of as many steps as a size says.
TEST(OpenCompute, RecurrentLayers) {
  const auto text = [](const char* inputs, const char* operands, int values, const char* attrs,
                       int states) {
    return StrCat("graph \"layer\" {\n", inputs, "  %", values, ": f32[T + 1,", states,
                  ",N,20] = recurrent(", operands, ") {", attrs, "} \"layer\"\n  output %", values,
                  "\n}");
  };
  const std::string texts[] = {
      text(R"(  input %0 "x": f32[T,N,80]
  input %1 "r": f32[20,4,20]
  input %2 "h": f32[N,20]
  input %3 "c": f32[N,20]
  input %4 "counts": bool[T,N]
)",
           "%0, %1, %2, %3, %4", 5,
           R"(activations="sigmoid tanh tanh", alphas=f[0.0,0.0,0.0], betas=f[0.0,0.0,0.0], )"
           R"(cell="lstm", masked=1)",
           2),
      text(R"(  input %0 "x": f32[T,N,60]
  input %1 "r": f32[20,3,20]
  input %2 "h": f32[N,20]
)",
           "%0, %1, %2", 3,
           R"(activations="sigmoid tanh", alphas=f[0.0,0.0], betas=f[0.0,0.0], cell="gru")", 1),
      text(R"(  input %0 "x": f32[T,N,60]
  input %1 "r": f32[3,2,20,16]
  input %2 "h": f32[N,20]
)",
           "%0, %1, %2", 3,
           R"(activations="sigmoid tanh", alphas=f[0.0,0.0], betas=f[0.0,0.0], cell="gru", )"
           R"(weight_layout="GUK16u")",
           1)};
  for (const std::string& layer : texts) {
    ExpectComputesAt(layer, {{{"N", 1}, {"T", 1}}, {{"N", 3}, {"T", 7}}});
  }
}

// Between planes and blocks of channels: rows of planes are stored whole, also where they are
// shorter than what is stored at once.
TEST(OpenCompute, BlocksOfChannels) {
  const char* const texts[] = {R"(graph "planes" {
  input %0 "x": f32[1,2,H,W,8]
  %1: f32[1,2,8,H,W] = transpose(%0) {perm=[0,1,4,2,3]} "y"
  output %1
})",
                               R"(graph "blocks" {
  input %0 "x": f32[1,2,8,H,W]
  %1: f32[1,2,H,W,8] = transpose(%0) {perm=[0,1,3,4,2]} "y"
  output %1
})"};
  std::vector<op::Sizes> at;
  for (const auto& [h, w] :
       {std::pair<int64_t, int64_t>{1, 1}, {1, 3}, {3, 1}, {1, 4}, {2, 2}, {5, 9}, {7, 31}}) {
    at.push_back({{"H", h}, {"W", w}});
  }
  for (const std::string text : texts) {
    const ir::Function function = ExpectComputesAt(text, at);
    // Four rows at once, whose vectors meet in registers.
    const target::Target target = *target::ParseTarget("cpu,arch=x86_64,cpu=haswell");
    schedule::Schedule schedule(function);
    space::ApplyDefaultSchedule(target, {}, &schedule);
    const std::string scheduled = ir::Print(schedule.function());
    EXPECT_NE(scheduled.find("in 0..4 unrolled"), std::string::npos) << scheduled;
    if (text.find("planes") == std::string::npos) continue;
    const std::string assembly = tests::AssemblyOf(schedule.function(), target);
    EXPECT_NE(assembly.find("vunpcklp"), std::string::npos) << assembly;
  }
}

TEST(OpenCompute, LinearAttention) {
  const char* const texts[] = {R"(graph "gated" {
  input %0 "q": f32[N,T,6,20]
  input %1 "k": f32[N,T,3,20]
  input %2 "v": f32[N,T,3,24]
  input %3 "s": f32[N,3,20,24]
  input %4 "decay": f32[N,T,3,20]
  input %5 "beta": f32[N,T,3,1]
  %6: f32[N,3,2*T + 20,24] = linear_attention(%0, %1, %2, %3, %4, %5) {beta=1, decay=1, scale=0.25} "y"
  output %6
})",
                               R"(graph "linear" {
  input %0 "q": f32[N,T,2,16]
  input %1 "k": f32[N,T,2,16]
  input %2 "v": f32[N,T,2,7]
  input %3 "s": f32[N,2,16,7]
  %4: f32[N,2,T + 16,7] = linear_attention(%0, %1, %2, %3) {scale=1.5} "y"
  output %4
})"};
  for (const char* text : texts) {
    ExpectComputesAt(text, {{{"N", 1}, {"T", 1}}, {{"N", 3}, {"T", 7}}});
  }
}

TEST(OpenCompute, CompiledCodeComputesAtAllSizes) {
  std::map<std::string, int> compared;
  ExpectAllComputeAtAllSizes(tests::TestRounds(40), Compiled, &compared);
  EXPECT_GT(compared.size(), 20U);
}

// Decisions for some sizes are right at all others, where they give a program at all.
TEST(OpenCompute, PointsOfTypicalSizesComputeAtAllSizes) {
  std::map<std::string, int> compared;
  Points points;
  Rng rng = Rng(tests::TestSeed()).Split("points");
  const Runner run = [&](const ir::Function& function, const std::vector<int64_t>& sizes,
                         std::vector<ir::TensorData*> args) {
    return ByPoints({{"direct", function}}, sizes, args, &rng, &points);
  };
  ExpectAllComputeAtAllSizes(tests::TestRounds(5), run, &compared);
  EXPECT_GT(compared.size(), 15U);
  EXPECT_GT(points.applied, 3 * points.refused) << points.applied << ", " << points.refused;
}

// A convolution on channel blocks of an open batch and an open image, by all of its algorithms.
TEST(OpenCompute, AlgorithmsOfConvolutionsComputeAtAllSizes) {
  const auto open = graph::ParseGraph(R"(graph "conv" {
  input %0 "x": f32[N,2,H,W,16]
  weight %1 "w": f32[2,2,3,3,16,16]
  %2: f32[N,2,H,W,16] = conv2d(%0, %1) {data_layout="NCHW16c", pads=[1,1,1,1], weight_layout="OIHW16i16o"} "conv"
  %3: f32[N,2,H,W,16] = relu(%2) "relu"
  output %3
})");
  ASSERT_TRUE(open.ok()) << open.status();
  const auto variants = TaskVariants(*open);
  ASSERT_TRUE(variants.ok()) << variants.status();
  ASSERT_GT(variants->size(), 2U);  // direct and two forms of Winograd
  Points points;
  Rng rng = Rng(tests::TestSeed()).Split("convolutions");
  const Runner run = [&](const ir::Function&, const std::vector<int64_t>& sizes,
                         const std::vector<ir::TensorData*>& args) {
    return ByPoints(*variants, sizes, args, &rng, &points);
  };
  for (const op::Sizes& sizes :
       {op::Sizes{{"N", 1}, {"H", 7}, {"W", 4}}, op::Sizes{{"N", 3}, {"H", 1}, {"W", 9}}}) {
    const auto fixed = graph::Specialize(*open, sizes);
    ASSERT_TRUE(fixed.ok()) << fixed.status();
    for (const schedule::Variant& variant : *variants) {
      ExpectComputes(variant.function, *fixed, sizes, 3, Interpreted);
    }
    for (int round = 0; round < 6; ++round) {
      ExpectComputes(variants->front().function, *fixed, sizes, 3, run);
    }
  }
  EXPECT_GT(points.applied, 10);
}

}  // namespace
}  // namespace tilewright::driver
