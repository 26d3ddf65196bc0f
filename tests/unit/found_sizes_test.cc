// Sizes that a run finds, in the graph IR: text, order, and what the verifier refuses.
#include "compiler/graph/found_sizes.h"

#include <gtest/gtest.h>

#include <string>

#include "deploy/support/status.h"

namespace tilewright::graph {
namespace {

// As many of x as the check finds; what finds them comes first or last.
std::string Text(bool found_first) {
  const char* first = R"(  %1 "flags": bool[4] = greater(%0, %0) "flags"
  %2 "wide": i64[4] = cast(%1) {dtype="i64"} "wide"
  %3 "count": i64[1] = reduce(%2) {axes=[0], keepdims=1, kind="sum"} "count"
  %4 "part": f32[K] = slice(%0) {sizes=[K], starts=[0], steps=[1]} "part"
  output %4, %3
)";
  const char* last = R"(  %1 "part": f32[K] = slice(%0) {sizes=[K], starts=[0], steps=[1]} "part"
  %2 "flags": bool[4] = greater(%0, %0) "flags"
  %3 "wide": i64[4] = cast(%2) {dtype="i64"} "wide"
  %4 "count": i64[1] = reduce(%3) {axes=[0], keepdims=1, kind="sum"} "count"
  output %1, %4
)";
  return std::string("graph \"g\" {\n  input %0 \"x\": f32[4]\n") + (found_first ? first : last) +
         "  check [K] \"choose\"\n}\n";
}

TEST(FoundSizes, OrderFollowsWhatFindsThem) {
  EXPECT_EQ(support::Slug(ParseGraph(Text(false)).status()), "graph.verify.found_size");
  const auto g = ParseGraph(Text(true));
  ASSERT_TRUE(g.ok()) << g.status();
  EXPECT_EQ(Print(*g), Text(true));
  const auto found = FoundSizes(*g);
  ASSERT_EQ(found.size(), 1);
  EXPECT_EQ(found.at("K").check, 0);
  EXPECT_TRUE(InputVariables(*g).empty());
  Graph turned = *g;
  std::rotate(turned.nodes.begin(), turned.nodes.end() - 1, turned.nodes.end());
  EXPECT_EQ(support::Slug(Verify(turned)), "graph.verify.found_size");
  EXPECT_EQ(Print(OrderFound(turned)), Text(true));
}

TEST(FoundSizes, InterpretedAtWhatTheRunFinds) {
  auto g = ParseGraph(Text(true));
  ASSERT_TRUE(g.ok()) << g.status();
  g->nodes[0].op = "less_equal";  // all of them hold
  g->size_ranges["K"] = {1, 4};
  const op::RefTensor x{{ir::kF32, {4}}, {1, 2, 3, 4}};
  const auto out = Interpret(*g, {x});
  ASSERT_TRUE(out.ok()) << out.status();
  EXPECT_EQ((*out)[0].values, x.values);
  g->size_ranges["K"] = {1, 3};
  EXPECT_EQ(support::Slug(Interpret(*g, {x}).status()), "graph.interp.found_size");
}

// A number that an operator demands takes the place of the variable, and is checked then.
TEST(FoundSizes, DemandsBecomeChecks) {
  auto g = ParseGraph(Text(true));
  ASSERT_TRUE(g.ok()) << g.status();
  Node add;
  add.name = add.op = "add";
  add.inputs = {g->outputs[0], g->outputs[0]};
  const ValueId three = AddConstant(&*g, "three", {ir::kF32, {3}}, std::string(12, '\0'));
  add.inputs[1] = three;
  add.outputs = {AddValue(&*g, "sum", g->values[g->outputs[0]].type)};
  g->outputs[0] = add.outputs[0];
  g->nodes.push_back(add);
  const auto inferred = InferShapes(*g);
  ASSERT_TRUE(inferred.ok()) << inferred.status();
  EXPECT_FALSE(IsSymbolic(*inferred));
  EXPECT_EQ(inferred->checks[0].expected, std::vector<op::Dim>{3});
}

}  // namespace
}  // namespace tilewright::graph
