// Tasks whose blocks belong together, which GPUs run as one launch: norms and softmax of rows, and
// attention. Texts of tasks (driver::TaskFunction), and random ones with a random schedule.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "compiler/driver/tasks.h"
#include "compiler/space/space.h"
#include "deploy/support/rng.h"
#include "deploy/support/strings.h"

namespace tilewright::tests {

// Of `rows` rows of `length` elements: "layer" and "rms" norms with scale and bias, or "softmax".
inline std::string RowsTask(std::string_view kind, int64_t rows, int64_t length) {
  using support::StrCat;
  const std::string x = StrCat("f32[", rows, ",", length, "]"), row = StrCat("f32[", length, "]");
  if (kind == "softmax")
    return StrCat("graph {\n  input %0: ", x, "\n  %1: ", x, " = softmax(%0)\n  output %1\n}\n");
  return StrCat("graph {\n  input %0: ", x, "\n  weight %1: ", row, "\n  weight %2: ", row,
                "\n  %3: ", x, " = normalize(%0) {epsilon=0.001, kind=\"", kind, "\"}\n  %4: ", x,
                " = mul(%3, %1)\n  %5: ", x, " = add(%4, %2)\n  output %5\n}\n");
}

struct AttentionTask {
  int64_t batch = 1, key_heads = 2, shared = 1;  // query heads of a key head
  int64_t tokens = 16, keys = 16, head = 8, value = 8;
  int64_t block_rows = 8, block_keys = 8;
  std::string mask = "";        // its shape; "" for none
  std::string layout = "BHSD";  // of all operands
  bool causal = false, dead_rows_zero = false;
  double softcap = 0;
};

inline std::string TextOf(const AttentionTask& t) {
  using support::StrCat;
  const auto shape = [&](int64_t heads, int64_t tokens, int64_t elements) {
    return t.layout == "BSHD"
               ? StrCat("f32[", t.batch, ",", tokens, ",", heads, ",", elements, "]")
               : StrCat("f32[", t.batch, ",", heads, ",", tokens, ",", elements, "]");
  };
  const int64_t heads = t.key_heads * t.shared;
  std::string text = StrCat("graph {\n  input %0: ", shape(heads, t.tokens, t.head),
                            "\n  input %1: ", shape(t.key_heads, t.keys, t.head),
                            "\n  input %2: ", shape(t.key_heads, t.keys, t.value), "\n");
  if (!t.mask.empty()) text += StrCat("  input %3: f32", t.mask, "\n");
  const std::string layout = StrCat("_layout=\"", t.layout, "\", ");
  const std::string result = t.mask.empty() ? "%3" : "%4";
  text += StrCat("  ", result, ": ", shape(heads, t.tokens, t.value), " = attention(%0, %1, %2",
                 t.mask.empty() ? "" : ", %3", ") {");
  if (t.causal) text += "causal=1, ";
  if (t.dead_rows_zero) text += "dead_rows_zero=1, ";
  text += StrCat("few_tokens=0, k", layout, "keys=", t.block_keys, ", q", layout,
                 "rows=", t.block_rows, ", scale=0.5, ");
  if (t.softcap > 0) text += StrCat("softcap=", support::FormatDouble(t.softcap), ", ");
  return text + StrCat("v", layout, "y", layout.substr(0, layout.size() - 2), "}\n  output ",
                       result, "\n}\n");
}

inline std::string RandomStageTask(uint64_t seed) {
  support::Rng rng(seed);
  const auto of = [&](std::initializer_list<int64_t> menu) {
    return menu.begin()[rng.Uniform(menu.size())];
  };
  const uint64_t kind = rng.Uniform(6);
  if (kind < 3) {
    const char* kinds[] = {"layer", "rms", "softmax"};
    return RowsTask(kinds[kind], of({1, 3, 5}), of({16, 37, 48, 96, 100, 192, 250}));
  }
  AttentionTask t{.batch = of({1, 2}),
                  .key_heads = of({1, 2}),
                  .shared = of({1, 1, 2, 3}),
                  .tokens = of({8, 16, 19, 33}),
                  .head = of({4, 8, 12, 16}),
                  .value = of({4, 8, 12, 16}),
                  .block_rows = of({8, 16, 32}),
                  .block_keys = of({8, 16})};
  t.keys = t.tokens + of({0, 0, 5, 16});
  t.causal = rng.Uniform(3) == 0;
  if (rng.Uniform(2) == 0) t.layout = "BSHD";
  if (rng.Uniform(4) == 0) t.softcap = 5;
  const std::string tail = support::StrCat(t.tokens, ",", t.keys, "]");
  switch (rng.Uniform(5)) {
    case 0:
      t.mask = support::StrCat("[", t.batch, ",1,", tail);
      break;
    case 1:
      t.mask = support::StrCat("[", t.batch, ",", t.key_heads * t.shared, ",", tail);
      break;
    case 2:
      t.mask = support::StrCat("[1,1,1,", t.keys, "]");
      break;
    default:
      break;
  }
  t.dead_rows_zero = !t.mask.empty() && rng.Uniform(2) == 0;
  return TextOf(t);
}

// A random point of the rule that makes one launch of the random task, for a machine whose threads
// go in step.
struct StageCase {
  ir::Function program;
  schedule::Schedule scheduled;
};
inline StageCase RandomStageCase(uint64_t seed, const target::Target& target) {
  const std::string task = RandomStageTask(seed);
  ir::Function program = *driver::TaskFunction(task);
  const auto space = *space::Space::Create(program, target);
  space::Point point = *space->DefaultPoint();
  const space::Sketch& sketch = *space->sketches()[static_cast<size_t>(point.sketch)];
  EXPECT_NE(sketch.name(), "bound_default") << "seed " << seed << ": " << task;
  support::Rng rng(seed);
  do {
    for (size_t k = 0; k < point.choices.size(); ++k)
      point.choices[k] = static_cast<int>(rng.Uniform(sketch.knobs()[k].menu.size()));
  } while (!sketch.Feasible(point));
  auto scheduled = space->Apply(point);
  EXPECT_TRUE(scheduled.ok()) << "seed " << seed << ": " << scheduled.status() << task;
  return {std::move(program), *std::move(scheduled)};
}

}  // namespace tilewright::tests
