// `tilewright explore`: what its rows say of tuned tasks, which targets are worth building, and the
// forms in which it prints them. tests/e2e/vta.py runs the command.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "deploy/support/file.h"
#include "deploy/support/status.h"
#include "tuner_server/cli/explore_command.h"
#include "tuner_server/cli/explore_synthesis.h"

namespace tilewright::cli {
namespace {

using testing::HasSubstr;
using testing::Not;

v1::Task TaskOf(int weight, double default_us, double best_us) {
  v1::Task task;
  task.set_weight(weight);
  task.set_trials(5);
  task.set_default_us(default_us);
  task.set_best_us(best_us);
  task.set_value_kind(v1::VALUE_KIND_SIMULATED_CYCLES);
  return task;
}

ExploredTarget RowOf(const std::string& target, int64_t bytes, double tuned, int64_t kernels = 4) {
  return {.target = target,
          .on_chip_bytes = bytes,
          .kernels = kernels,
          .default_value = 2 * tuned,
          .tuned_value = tuned,
          .unit = "simulated_cycles"};
}

TEST(ExploreTest, ARowSumsTheLaunchesOfTheModel) {
  const auto row =
      ExploredOf("vta,config=block16", {TaskOf(3, 20, 10), TaskOf(1, 5, 4), TaskOf(2, 7, 0)});
  ASSERT_TRUE(row.ok()) << row.status();
  EXPECT_EQ(row->kernels, 6);
  EXPECT_EQ(row->unmeasured, 2);
  EXPECT_DOUBLE_EQ(row->default_value, 65e3);  // 3 of 20 k, 1 of 5 k
  EXPECT_DOUBLE_EQ(row->tuned_value, 34e3);
  EXPECT_EQ(row->unit, "simulated_cycles");
  EXPECT_EQ(row->trials, 15);
  // 2048 inputs, 1024 matrices, 2048 sums with their bytes, 8192 micro-ops.
  EXPECT_EQ(row->on_chip_bytes, 2048 * 16 + 1024 * 256 + 2048 * 16 * 5 + 8192 * 4);
  EXPECT_EQ(ExploredOf("cpu,arch=x86_64", {})->on_chip_bytes, 0);
  EXPECT_FALSE(ExploredOf("nothing", {}).ok());
}

TEST(ExploreTest, MemoriesOfOtherSizesAreAnotherConfiguration) {
  EXPECT_EQ(ConfigurationOf("vta"), "block16");
  EXPECT_EQ(ConfigurationOf("vta,config=block8"), "block8");
  const std::string small = "vta,config=block16,inputs=4KiB";
  EXPECT_EQ(ConfigurationOf(small), "config=block16,inputs=4KiB");
  EXPECT_EQ(ExploredOf(small, {})->on_chip_bytes,
            ExploredOf("vta", {})->on_chip_bytes - (28 << 10));
  // The cells of the one say nothing about the other.
  std::vector<ExploredTarget> rows = {RowOf("vta", 2, 1), RowOf(small, 1, 2)};
  ASSERT_TRUE(AddCells(R"({"block16": {"cells": 7}})", "file", &rows).ok());
  EXPECT_EQ(rows[0].cells, 7);
  EXPECT_EQ(rows[1].cells, std::nullopt);
}

TEST(ExploreTest, TheBestAreThoseThatNoOtherBeats) {
  std::vector<ExploredTarget> rows = {RowOf("a", 100, 50), RowOf("b", 200, 20), RowOf("c", 200, 30),
                                      RowOf("d", 300, 20), RowOf("e", 50, 90)};
  // Fewer kernels on the device: its cycles say nothing about the others.
  rows.push_back(RowOf("f", 400, 5, 2));
  rows.push_back(RowOf("g", 40, 5));
  rows.back().unmeasured = 1;
  MarkBest(&rows);
  std::string best;
  for (const ExploredTarget& row : rows) best += row.is_best ? row.target : "";
  EXPECT_EQ(best, "abef");
}

TEST(ExploreTest, CellsComeFromWhatSynthesisSays) {
  std::vector<ExploredTarget> rows = {RowOf("vta,config=block8", 100, 50),
                                      RowOf("vta,config=block16", 200, 20)};
  const absl::Status added =
      AddCells(R"({"lane": "x", "synthesis": {"block8": {"cells": 22190, "block_ram": 30.5}}})",
               "lane.json", &rows);
  ASSERT_TRUE(added.ok()) << added;
  EXPECT_EQ(rows[0].cells_from, "lane.json");
  EXPECT_EQ(rows[0].cells, 22190);
  EXPECT_EQ(rows[0].block_ram, 30.5);
  EXPECT_FALSE(rows[1].cells.has_value());
  ASSERT_TRUE(AddCells(R"({"block16": {"cells": 7}, "block8": {"cells": 1}})", "b", &rows).ok());
  EXPECT_EQ(rows[0].cells, 22190);  // it has some
  EXPECT_EQ(rows[1].cells, 7);
  std::vector<ExploredTarget> bare = {RowOf("vta,config=block8", 100, 50)};
  for (const char* bad : {"", "[]", R"({"block8": 7})", R"({"block8": {"cells": "many"}})"})
    EXPECT_EQ(support::Slug(AddCells(bad, "b", &bare)), "cli.explore.cells") << bad;
}

// A program that synthesises: what it says, what it says instead, and one that takes too long.
TEST(ExploreTest, AProgramSynthesises) {
  const auto folder = support::TempDir::Create();
  ASSERT_TRUE(folder.ok()) << folder.status();
  const std::string program = folder->path() + "/synthesise";
  const std::string script =
      "#!/bin/sh\n[ \"$1\" = --json ] || exit 2\ncase $2 in\n"
      "block8) echo '{\"cells\": 5, \"block_ram\": 1.5}';;\n"
      "block16) echo '{\"error\": \"no licence\"}'; exit 1;;\n"
      "block32) sleep 60;;\n*) echo nothing; exit 3;;\nesac\n";
  ASSERT_TRUE(support::WriteFileAtomic(program, script).ok());
  ASSERT_EQ(chmod(program.c_str(), 0700), 0);
  std::vector<ExploredTarget> rows;
  for (const char* config : {"block8", "block16", "block32"})
    rows.push_back(RowOf(std::string("vta,config=") + config, 100, 50));
  rows.push_back(RowOf("other", 100, 50));
  rows[1].cells = 9;
  const absl::Status ran = Synthesise({program, 1000}, &rows);
  ASSERT_TRUE(ran.ok()) << ran;
  EXPECT_EQ(rows[0].cells, 5);
  EXPECT_EQ(rows[0].block_ram, 1.5);
  EXPECT_EQ(rows[1].cells, 9);
  EXPECT_EQ(rows[1].cells_note, "no licence");
  EXPECT_EQ(rows[2].cells_note, "not synthesised within 1 s");
  EXPECT_THAT(rows[3].cells_note, HasSubstr("exit code 3"));
  const std::string table = ExploreTable(rows);
  EXPECT_THAT(table, HasSubstr("cells of block8: by " + program));
  EXPECT_THAT(table, HasSubstr("cells of block32: none (not synthesised within 1 s)"));
  EXPECT_EQ(ExploreJson(rows)["targets"][1]["cells_note"], "no licence");
  EXPECT_EQ(support::Slug(Synthesise({"/no/such/program", 1000}, &rows)), "process.start.exec");
}

TEST(ExploreTest, PrintsATableJsonAndAPicture) {
  std::vector<ExploredTarget> rows = {RowOf("vta,config=block8", 92 << 10, 5e6),
                                      RowOf("vta,config=block16", 480 << 10, 2e6)};
  rows[1].cells = 61000;
  rows[1].unmeasured = 1;
  MarkBest(&rows);
  const std::string table = ExploreTable(rows);
  EXPECT_THAT(table, HasSubstr("vta,config=block8"));
  EXPECT_THAT(table, HasSubstr("5.00 Mcycles"));
  EXPECT_THAT(table, HasSubstr("480 KiB"));
  EXPECT_THAT(table, HasSubstr("2.00x"));
  EXPECT_THAT(table, HasSubstr("4 (1 without a value)"));
  EXPECT_THAT(table, HasSubstr("cells"));
  rows[1].cells.reset();
  EXPECT_THAT(ExploreTable(rows), Not(HasSubstr("cells")));

  const nlohmann::json json = ExploreJson(rows)["targets"];
  ASSERT_EQ(json.size(), 2U);
  EXPECT_EQ(json[0]["tuned"], 5e6);
  EXPECT_EQ(json[0]["default"], 1e7);
  EXPECT_EQ(json[0]["on_chip_bytes"], 92 << 10);
  EXPECT_EQ(json[0]["best"], true);
  EXPECT_EQ(json[1]["unmeasured"], 1);
  EXPECT_FALSE(json[1].contains("cells"));

  const std::string svg = ExploreSvg(rows);
  EXPECT_TRUE(svg.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\"")) << svg;
  EXPECT_THAT(svg, HasSubstr(">block8</text>"));
  EXPECT_THAT(svg, HasSubstr("<title>vta,config=block16: 2.00 Mcycles</title>"));
  EXPECT_THAT(svg, HasSubstr(">cycles</text>"));
  EXPECT_THAT(svg, HasSubstr(">tuned</text>"));
  EXPECT_THAT(svg, Not(HasSubstr(">cells</text>")));
  rows[0].cells = 22190;
  const std::string both = ExploreSvg(rows);
  EXPECT_THAT(both, HasSubstr(">on-chip memory, KiB</text>"));
  EXPECT_THAT(both, HasSubstr(">cells</text>"));
  EXPECT_TRUE(both.ends_with("</svg></svg>\n")) << both;
  EXPECT_TRUE(svg.ends_with("</svg>\n"));
}

}  // namespace
}  // namespace tilewright::cli
