// The golden schedules of the design: programs with their schedules as text, replayed, and run. A
// file of tests/golden/programs/ is IR text; its comments that begin with `#:` say what to do:
//   #: steps STEPS      applied one after the other (several lines are one list)
//   #: sizes N …        one run for these size parameters (several lines: several runs)
//   #: hash HEX         the program hash of the scheduled function
//   #: tolerance X      of floats, relative to the largest (default 1e-5)
//   #: compiled no      the interpreter runs it only (code for devices that are not here)
// The scheduled function must verify after every step, have the hash, and compute what the
// unscheduled one does, interpreted and compiled for every x86-64 level of this machine. With
// TILEWRIGHT_UPDATE_GOLDEN=1 the hash lines are rewritten.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "compiler/ir/ir_text.h"
#include "compiler/ir/structural.h"
#include "compiler/ir/verify.h"
#include "compiler/schedule/schedule.h"
#include "deploy/support/env.h"
#include "deploy/support/file.h"
#include "deploy/support/strings.h"
#include "tests/support/equivalence.h"
#include "tests/support/golden.h"
#include "tests/support/race_check.h"
#include "tests/support/run_compiled.h"

namespace tilewright::tests {
namespace {

// One row per file; a file without a row fails, and so does a row without its file.
const std::vector<std::string> kGoldens = {
    "argmax",  // a tuple reduction
    "attention_online_softmax",
    "conv2d_nchw16c",
    "conv2d_tails",
    "dense_symbolic_batch",
    "dense_u8s8_vnni",
    "depthwise_relu6",
    "depthwise_u8s8_dots",
    "lstm_over_time",
    "vta_gemm",
    "winograd_f43",
};

constexpr int64_t kMaxAccesses = 20'000'000;  // of one race check

struct Golden {
  std::string text, steps, hash;
  std::vector<std::vector<int64_t>> sizes;
  double tolerance = 1e-5;
  bool compiled = true;
};

Golden ReadGolden(const std::string& path) {
  Golden golden;
  auto text = support::ReadFile(path, 1 << 20);
  EXPECT_TRUE(text.ok()) << text.status();
  if (!text.ok()) return golden;
  golden.text = *text;
  for (const std::string& line : support::Split(*text, '\n')) {
    if (!line.starts_with("#: ")) continue;
    size_t blank = line.find(' ', 3);
    std::string key = line.substr(3, blank - 3), value = line.substr(blank + 1);
    if (key == "steps") {
      golden.steps += (golden.steps.empty() ? "" : "; ") + value;
    } else if (key == "sizes") {
      golden.sizes.emplace_back();
      for (const std::string& word : support::Split(value, ' ')) {
        golden.sizes.back().push_back(std::stoll(word));
      }
    } else if (key == "hash") {
      golden.hash = value;
    } else if (key == "tolerance") {
      golden.tolerance = std::stod(value);
    } else if (key == "compiled") {
      golden.compiled = value != "no";
    } else {
      ADD_FAILURE() << path << ": unknown directive " << key;
    }
  }
  if (golden.sizes.empty()) golden.sizes.emplace_back();
  return golden;
}

void UpdateHash(const std::string& path, const Golden& golden, const std::string& hash) {
  std::string text = golden.text, line = "#: hash " + golden.hash;
  size_t at = text.find(line);
  ASSERT_NE(at, std::string::npos) << path << ": expected a line '#: hash …'";
  text.replace(at, line.size(), "#: hash " + hash);
  ASSERT_TRUE(support::WriteFileAtomic(path, text).ok());
}

class GoldenSchedules : public testing::TestWithParam<std::string> {};

TEST_P(GoldenSchedules, ReplayAndCompute) {
  const std::string path = GoldenPath("programs/" + GetParam() + ".tir");
  Golden golden = ReadGolden(path);
  auto program = ir::ParseFunction(golden.text);
  ASSERT_TRUE(program.ok()) << program.status();
  ASSERT_TRUE(ir::Verify(*program).ok()) << ir::Verify(*program);
  auto steps = schedule::ParseSteps(golden.steps);
  ASSERT_TRUE(steps.ok()) << steps.status();
  schedule::Schedule scheduled(*program);
  scheduled.set_verify_each(true);
  absl::Status applied = scheduled.ApplyAll(*steps);
  ASSERT_TRUE(applied.ok()) << applied << "\n" << scheduled.Describe();
  const ir::Function& f = scheduled.function();
  const std::string hash = ir::ProgramHash(f);
  if (support::GetEnv("TILEWRIGHT_UPDATE_GOLDEN") == "1") {
    UpdateHash(path, golden, hash);
  } else {
    EXPECT_EQ(hash, golden.hash) << "the scheduled program is another one now:\n" << ir::Print(f);
  }
  auto again = ir::ParseFunction(ir::Print(f));
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(ir::ProgramHash(*again), hash) << "its text does not come back";
  for (const std::vector<int64_t>& sizes : golden.sizes) {
    EquivalenceOptions options;
    options.sizes = sizes;
    options.tolerance = golden.tolerance;
    absl::Status same = SameResults(*program, f, options);
    ASSERT_TRUE(same.ok()) << same << "\n" << ir::Print(f);
    absl::Status races = CheckRaces(f, sizes, kMaxAccesses);
    EXPECT_TRUE(races.ok()) << races;
    if (!golden.compiled) continue;
    for (const target::Target& target : RunnableTargets()) {
      for (int threads : {1, 2}) {
        options.run_other = [&](const ir::Function& g, const std::vector<int64_t>& n,
                                std::vector<ir::TensorData*> args) {
          return RunCompiled(g, target, threads, n, std::move(args));
        };
        same = SameResults(*program, f, options);
        ASSERT_TRUE(same.ok()) << target.ToString() << ": " << same << "\n" << ir::Print(f);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Designed, GoldenSchedules, testing::ValuesIn(kGoldens),
                         [](const auto& row) { return row.param; });

TEST(GoldenScheduleFiles, EveryOneHasARow) {
  std::vector<std::string> found;
  for (const auto& entry : std::filesystem::directory_iterator(GoldenPath("programs"))) {
    const std::string name = entry.path().stem().string();
    const bool elsewhere = name.starts_with("gpu_");  // gpu_schedules_test has the rows
    if (entry.path().extension() == ".tir" && !elsewhere) found.push_back(name);
  }
  std::sort(found.begin(), found.end());
  EXPECT_EQ(found, kGoldens);
}

}  // namespace
}  // namespace tilewright::tests
