// Loops in the graph IR: text, order, interpretation, memory, and what the verifier refuses.
#include "compiler/graph/loops.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "compiler/graph/graph_passes.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::graph {
namespace {

using support::StrCat;

// x doubles as long as it is below the limit; `square` is computed before the loop.
constexpr char kDoubling[] = R"(graph "doubling" {
  input %0 "x": f32[]
  input %1 "limit": f32[]
  %2 "square": f32[] = mul(%1, %1) "square"
  %3 "below": bool[] = less(%0, %2) "below"
  %4 "going": bool[] = loop_value(%3) {index=0, loop=0} "going"
  %5 "v": f32[] = loop_value(%0) {index=1, loop=0} "v"
  %6 "next": f32[] = add(%5, %5) "next"
  %7 "more": bool[] = less(%6, %2) "more"
  %8 "end": bool[] = loop_end(%7, %6, %4, %5, %5) {carried=2, loop=0} "end"
  %9 "last": f32[] = loop_result(%8, %5) "last"
  %10 "all": f32[6] = loop_stack(%8, %5) {sizes=[6]} "all"
  output %9, %10
}
)";

op::RefTensor Number(double value) { return {{ir::kF32, std::vector<int64_t>{}}, {value}}; }

Graph Doubling() {
  auto g = ParseGraph(kDoubling);
  EXPECT_TRUE(g.ok()) << g.status();
  return *g;
}

TEST(Loops, RunAsLongAsTheConditionHolds) {
  const Graph g = Doubling();
  EXPECT_EQ(Print(g), kDoubling);
  for (const Graph& form : {g, *RunGraphPasses(g)}) {
    auto out = Interpret(form, {Number(3), Number(5)});
    ASSERT_TRUE(out.ok()) << out.status();
    EXPECT_EQ((*out)[0].values, std::vector<double>{48});
    EXPECT_EQ((*out)[1].values, (std::vector<double>{3, 6, 12, 24, 0, 0}));
    out = Interpret(form, {Number(30), Number(5)});
    ASSERT_TRUE(out.ok()) << out.status();
    EXPECT_EQ((*out)[0].values, std::vector<double>{30}) << "no trip";
    EXPECT_EQ(support::Slug(Interpret(form, {Number(1), Number(16)}).status()),
              "graph.interp.trips");
  }
}

TEST(Loops, WhatNoTripChangesComesBefore) {
  Graph late = Doubling();
  // Behind the values: computed in each trip, which is right but slow.
  Node other = late.nodes[0];
  other.name = "other";
  other.outputs = {AddValue(&late, "other", late.values[2].type)};
  late.nodes.insert(late.nodes.begin() + 4, other);
  late.nodes[5].inputs[1] = other.outputs[0];
  ASSERT_EQ(Verify(late), absl::OkStatus());
  EXPECT_TRUE(LoopsOf(late)[0].Holds(4));
  const Graph ordered = OrderLoops(late);
  ASSERT_EQ(Verify(ordered), absl::OkStatus());
  const Loop loop = LoopsOf(ordered)[0];
  for (size_t n = 0; n < ordered.nodes.size(); ++n) {
    const std::string& name = ordered.nodes[n].name;
    EXPECT_EQ(loop.Holds(n), name == "next" || name == "more") << name;
  }
  EXPECT_EQ(Print(OrderLoops(Doubling())), kDoubling);
}

TEST(Loops, TheVerifierWantsThemWhole) {
  const auto slug = [](std::string_view from, std::string_view to) {
    std::string text = kDoubling;
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    text.replace(at, from.size(), to);
    return std::string(support::Slug(ParseGraph(text).status()));
  };
  EXPECT_EQ(slug("loop_value(%0) {index=1, loop=0}", "loop_value(%0) {index=1, loop=1}"),
            "graph.verify.loop");
  EXPECT_EQ(slug("loop_end(%7, %6, %4, %5, %5)", "loop_end(%7, %6, %4, %4, %5)"),
            "op.loop_end.type");
  EXPECT_EQ(slug("loop_end(%7, %6, %4, %5, %5)", "loop_end(%7, %6, %4, %0, %5)"),
            "graph.verify.loop");
  EXPECT_EQ(slug("carried=2, loop=0", "carried=3, loop=0"), "op.loop_end.carried");
  EXPECT_EQ(slug("loop_result(%8, %5)", "loop_result(%8, %6)"), "graph.verify.loop");
  EXPECT_EQ(slug("loop_result(%8, %5)", "loop_result(%7, %5)"), "graph.verify.loop");
  EXPECT_EQ(slug("loop_stack(%8, %5) {sizes=[6]}", "loop_stack(%8, %0) {sizes=[6]}"),
            "graph.verify.loop");
  EXPECT_EQ(slug("loop_stack(%8, %5) {sizes=[6]}", "loop_stack(%8, %5) {sizes=[-1]}"),
            "op.loop_stack.sizes");
  EXPECT_EQ(slug("output %9, %10", "output %9, %6"), "graph.verify.loop")
      << "what a trip makes leaves the loop by its results";
}

// Memory of what a body reads, and of what it carries, is not used for anything else in the loop.
TEST(Loops, MemoryOfAllTripsIsKept) {
  const auto fused = RunGraphPasses(*ParseGraph(R"(graph "kept" {
  input %0 "x": f32[64]
  input %1 "n": i64[]
  %2 "before": f32[64] = tanh(%0) "before"
  constant %3 "zero": i64[] = hex:0000000000000000
  constant %4 "one": i64[] = hex:0100000000000000
  %5 "some": bool[] = less(%3, %1) "some"
  %6 "going": bool[] = loop_value(%5) {index=0, loop=0} "going"
  %7 "i": i64[] = loop_value(%3) {index=1, loop=0} "i"
  %8 "v": f32[64] = loop_value(%0) {index=2, loop=0} "v"
  %9 "a": f32[64] = softmax(%8) {axis=0} "a"
  %10 "b": f32[64] = mul(%9, %2) "b"
  %11 "c": f32[64] = softmax(%10) {axis=0} "c"
  %12 "j": i64[] = add(%7, %4) "j"
  %13 "more": bool[] = less(%12, %1) "more"
  %14 "end": bool[] = loop_end(%13, %12, %11, %6, %7, %8) {carried=3, loop=0} "end"
  %15 "last": f32[64] = loop_result(%14, %8) "last"
  output %15
}
)"));
  ASSERT_TRUE(fused.ok()) << fused.status();
  const auto plan = PlanMemory(*fused, {}, 64);
  ASSERT_TRUE(plan.ok()) << plan.status();
  const auto place = [&](std::string_view name) {
    for (size_t id = 0; id < fused->values.size(); ++id) {
      if (fused->values[id].name == name) return plan->offset[id];
    }
    ADD_FAILURE() << "no value " << name << Print(*fused);
    return int64_t{-1};
  };
  for (const char* inside : {"b", "c", "a"}) {
    const bool there =
        std::ranges::any_of(fused->values, [&](const Value& v) { return v.name == inside; });
    if (!there) continue;  // fused into its reader
    EXPECT_NE(place(inside), place("v")) << inside;
    EXPECT_NE(place(inside), place("before")) << inside;
  }
}

}  // namespace
}  // namespace tilewright::graph
