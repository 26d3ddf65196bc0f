// State in graphs: what becomes a list that a module keeps, what is refused, and where it lies.
#include "compiler/graph/keep_state.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "compiler/graph/graph_passes.h"
#include "deploy/support/status.h"

namespace tilewright::graph {
namespace {

using Pairs = std::map<std::string, std::string>;

constexpr std::string_view kDecoder = R"(graph "decoder" {
  input %0 "x": f32[B,2,S,16]
  input %1 "past": f32[B,2,P - 1,16]
  %2: f32[B,2,S,16] = neg(%0) "fresh"
  %3 "present": f32[B,2,P + S - 1,16] = concat(%1, %2) {axis=2} "join"
  %4 "y": f32[B,2,1,16] = reduce(%3) {axes=[2], keepdims=1, kind="sum"} "sum"
  output %4, %3
}
)";

Graph Parsed(std::string_view text) {
  auto graph = ParseGraph(text);
  EXPECT_TRUE(graph.ok()) << graph.status();
  graph->size_ranges = {{"B", {1, 2}}, {"P", {1, 9, "past"}}, {"S", {1, 4}}};
  return *std::move(graph);
}

std::string Replaced(std::string_view from, std::string_view to) {
  std::string text(kDecoder);
  text.replace(text.find(from), from.size(), to);
  return text;
}

op::RefTensor Ramp(const std::vector<int64_t>& shape, double start) {
  op::RefTensor tensor{{ir::kF32, std::vector<op::Dim>(shape.begin(), shape.end())}, {}};
  for (int64_t i = 0; i < tensor.type.elements(); ++i) {
    tensor.values.push_back(start + static_cast<double>(i % 37) / 8);
  }
  return tensor;
}

TEST(KeepState, EntriesBecomeTheFirstDimension) {
  const auto kept = KeepState(Parsed(kDecoder), {{"past", "present"}});
  ASSERT_TRUE(kept.ok()) << kept.status();
  ASSERT_EQ(kept->outputs.size(), 1U);
  EXPECT_EQ(kept->values[kept->outputs[0]].name, "y");
  const auto append = std::find_if(kept->nodes.begin(), kept->nodes.end(), IsAppend);
  ASSERT_NE(append, kept->nodes.end());
  EXPECT_EQ(op::ToText(kept->values[append->inputs[0]].type), "f32[P - 1,B,2,16]");
  EXPECT_EQ(op::ToText(kept->values[append->inputs[1]].type), "f32[S,B,2,16]");
  EXPECT_EQ(op::ToText(kept->values[append->outputs[0]].type), "f32[P + S - 1,B,2,16]");
  EXPECT_TRUE(IsView(*append));
  // The text form has it, too.
  const auto again = ParseGraph(Print(*kept));
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_TRUE(StructuralEqual(*again, *kept));
}

TEST(KeepState, ComputesTheSame) {
  const op::Sizes sizes = {{"B", 2}, {"P", 4}, {"S", 2}};
  const auto plain = Specialize(Parsed(kDecoder), sizes);
  const auto kept = Specialize(*KeepState(Parsed(kDecoder), {{"past", "present"}}), sizes);
  ASSERT_TRUE(plain.ok() && kept.ok()) << plain.status() << kept.status();
  const op::RefTensor x = Ramp({2, 2, 2, 16}, 1), past = Ramp({2, 2, 3, 16}, -2);
  const op::Attrs first = {{"perm", std::vector<int64_t>{2, 0, 1, 3}}};
  const auto list = op::Reference(*op::FindOp("transpose"), {&past, 1}, first);
  const auto expected = Interpret(*plain, {x, past}), found = Interpret(*kept, {x, (*list)[0]});
  ASSERT_TRUE(expected.ok() && found.ok()) << expected.status() << found.status();
  EXPECT_EQ((*found)[0].values, (*expected)[0].values);
}

// A kernel writes the entries behind the list: neither is in the arena, and the kernel exists even
// where nothing is computed.
TEST(KeepState, ListsAndEntriesLieOutsideOfTheArena) {
  for (const bool computed : {true, false}) {
    const std::string text = computed ? std::string(kDecoder) : Replaced("(%1, %2)", "(%1, %0)");
    const auto kept = KeepState(Parsed(text), {{"past", "present"}});
    ASSERT_TRUE(kept.ok()) << kept.status();
    const auto fused = RunGraphPasses(*kept, {});
    ASSERT_TRUE(fused.ok()) << fused.status();
    const auto append = std::find_if(fused->nodes.begin(), fused->nodes.end(), IsAppend);
    ASSERT_NE(append, fused->nodes.end());
    const std::vector<Storage> storage = StorageOf(*fused);
    const ValueId entries = storage[append->inputs[1]].root, list = append->outputs[0];
    EXPECT_EQ(storage[list].root, list);
    EXPECT_TRUE(std::any_of(fused->nodes.begin(), fused->nodes.end(), [&](const Node& node) {
      return !IsView(node) && node.outputs[0] == entries;
    })) << Print(*fused);
    const auto plan = PlanMemory(*fused, {}, 64, {{"B", 2}, {"P", 9}, {"S", 4}});
    ASSERT_TRUE(plan.ok()) << plan.status();
    EXPECT_EQ(plan->offset[entries], -1);
    EXPECT_EQ(plan->offset[list], -1);
  }
}

TEST(KeepState, OneValueMayExtendTwoLists) {
  Graph graph = Parsed(R"(graph "twins" {
  input %0 "x": f32[B,2,S,16]
  input %1 "a": f32[B,2,P - 1,16]
  input %2 "b": f32[B,2,P - 1,16]
  %3 "c": f32[B,2,P + S - 1,16] = concat(%1, %0) {axis=2} "join"
  %4 "d": f32[B,2,P + S - 1,16] = concat(%2, %0) {axis=2} "join_2"
  %5: f32[B,2,P + S - 1,16] = add(%3, %4) "both"
  %6 "y": f32[B,2,1,16] = reduce(%5) {axes=[2], keepdims=1, kind="sum"} "sum"
  output %6, %3, %4
}
)");
  const auto fused = RunGraphPasses(*KeepState(std::move(graph), {{"a", "c"}, {"b", "d"}}), {});
  ASSERT_TRUE(fused.ok()) << fused.status();
  const std::vector<Storage> storage = StorageOf(*fused);
  std::set<ValueId> roots;
  for (ValueId id : StateValues(*fused)) roots.insert(storage[id].root);
  EXPECT_EQ(roots.size(), 4U) << "each list and its entries";
}

TEST(KeepState, RefusesOtherForms) {
  std::string narrow(kDecoder);
  for (size_t at = narrow.find(",16]"); at != std::string::npos; at = narrow.find(",16]")) {
    narrow.replace(at, 4, ",3]");
  }
  const auto with = [](const std::string& node) {
    return Replaced("  output %4, %3", "  %5 \"z\": " + node + "\n  output %4, %3, %5");
  };
  const std::string second_reader = with("f32[B,2,P - 1,16] = neg(%1) \"reads\"");
  const std::string long_output = with("f32[B,2,P + S - 1,16] = neg(%3) \"n\"");
  const struct {
    const char* reason;
    std::string text;
    Pairs pairs;
  } cases[] = {
      {"name", std::string(kDecoder), {{"past", "future"}}},
      {"name", std::string(kDecoder), {{"present", "past"}}},
      {"form", std::string(kDecoder), {{"past", "y"}}},
      {"form", std::string(kDecoder), {{"x", "present"}}},
      {"form", Replaced("concat(%1, %2)", "concat(%2, %1)"), {{"past", "present"}}},
      {"form", second_reader, {{"past", "present"}}},
      {"entry", narrow, {{"past", "present"}}},
      {"output", long_output, {{"past", "present"}}},
  };
  for (const auto& c : cases) {
    const auto kept = KeepState(Parsed(c.text), c.pairs);
    EXPECT_EQ(support::Slug(kept.status()), std::string("graph.state.") + c.reason)
        << c.text << kept.status();
  }
  Graph from_one = Parsed(kDecoder);
  from_one.size_ranges["P"].size = "";
  EXPECT_EQ(support::Slug(KeepState(from_one, {{"past", "present"}}).status()),
            "graph.state.length");
}

TEST(KeepState, KnowsTheNamesOfExporters) {
  Graph graph = Parsed(R"(graph "g" {
  input %0 "past_key_values.0.key": f32[1]
  input %1 "past_key_values.0.value": f32[1]
  input %2 "past_key_3": f32[1]
  input %3 "other": f32[1]
  %4 "present.0.key": f32[1] = neg(%0) "a"
  %5 "present_key_3": f32[1] = neg(%2) "b"
  output %4, %5
}
)");
  EXPECT_EQ(KnownStates(graph),
            (Pairs{{"past_key_values.0.key", "present.0.key"}, {"past_key_3", "present_key_3"}}));
}

}  // namespace
}  // namespace tilewright::graph
