// Kernels of open sizes that choose by the rows of a call.
#include "compiler/driver/row_versions.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "compiler/driver/tasks.h"
#include "compiler/ir/ir_text.h"
#include "compiler/space/default_schedule.h"
#include "compiler/transform/passes.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"
#include "tests/support/equivalence.h"

namespace tilewright::driver {
namespace {

target::Target Zen3() { return *target::ParseTarget("cpu,arch=x86_64,cpu=znver3"); }

graph::Graph Layer(const std::string& data, int64_t columns) {
  const std::string text = support::StrCat(
      "graph \"layer\" {\n  input %0 \"x\": f32[", data, ",128]\n  weight %1 \"w\": f32[",
      columns / 16, ",128,16]\n  %2: f32[", data, ",", columns,
      "] = dense(%0, %1) {weight_layout=\"NK16n\"} \"y\"\n  output %2\n}");
  const auto parsed = graph::ParseGraph(text);
  EXPECT_TRUE(parsed.ok()) << parsed.status();
  return *parsed;
}

std::vector<RowVersion> VersionsOf(const graph::Graph& task, bool given = false) {
  const auto variants = TaskVariants(task);
  EXPECT_TRUE(variants.ok()) << variants.status();
  const auto versions = RowVersions(task, *variants, Zen3(), given);
  EXPECT_TRUE(versions.ok()) << versions.status();
  return *versions;
}

ir::Function Lowered(const ir::Function& scheduled) {
  transform::PassContext context;
  context.target = Zen3();
  const auto lowered = transform::RunPipeline(scheduled, transform::CpuPipeline(), context);
  EXPECT_TRUE(lowered.ok()) << lowered.status();
  return *lowered;
}

TEST(RowVersions, LargeLayersOfAnOpenNumberOfRows) {
  EXPECT_TRUE(VersionsOf(Layer("3", 2048)).empty());  // known
  EXPECT_TRUE(VersionsOf(Layer("N", 512)).empty());   // a cache holds the weights
  for (const bool given : {false, true}) {
    const std::vector<RowVersion> versions = VersionsOf(Layer("N,M", 2048), given);
    ASSERT_EQ(versions.size(), 1U);
    EXPECT_EQ(versions[0].name, "few_rows");
    EXPECT_EQ(ir::Print(versions[0].count), "N * M");
    EXPECT_EQ(versions[0].most, 2);
    EXPECT_TRUE(versions[0].few);
  }
}

TEST(RowVersions, TheCallChooses) {
  const graph::Graph layer = Layer("N", 2048);
  const auto variants = TaskVariants(layer);
  ASSERT_TRUE(variants.ok()) << variants.status();
  const ir::Function& function = (*variants)[0].function;
  const std::vector<RowVersion> versions = VersionsOf(layer);
  ASSERT_EQ(versions.size(), 1U);
  schedule::Schedule main(function);
  space::ApplyDefaultSchedule(Zen3(), {}, &main);
  const ir::Function many = Lowered(main.function()), few = Lowered(versions[0].scheduled);
  const ir::Function both = ChooseByRows(versions[0], many, few);
  ASSERT_EQ(both.body->kind, ir::StmtKind::kIf);
  EXPECT_EQ(ir::Print(both.body->condition), "N <= 2");
  // Another tile, and each right at all sizes.
  EXPECT_NE(ir::Print(both.body->body), ir::Print(both.body->else_body));
  for (const ir::Function* version : {&many, &few, &both}) {
    for (const int64_t rows : {1, 2, 3, 5}) {
      const absl::Status same = tests::SameResults(function, *version, {.sizes = {rows}});
      EXPECT_TRUE(same.ok()) << rows << " " << support::StatusText(same);
    }
  }
}

}  // namespace
}  // namespace tilewright::driver
