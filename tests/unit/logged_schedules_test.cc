// A fixed set of schedules out of tuning logs replays to the programs that were measured: a log, a
// store of known kernels and a shipped module's record stay of use. A change of primitives, of
// operators' programs or of their hash is seen here.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/driver/tasks.h"
#include "compiler/ir/structural.h"
#include "compiler/schedule/schedule.h"
#include "deploy/support/status.h"
#include "tests/support/golden.h"

namespace tilewright {
namespace {

constexpr char kFile[] = "logged_schedules.txt";

// Schedules that no longer give the program of then, each with the reason. A log knows them as
// stale, and does not use them.
const std::map<std::string_view, std::string_view> kStale = {};

struct Logged {
  std::string task, hash, steps;
};
struct LoggedTask {
  std::string name, text;
  std::vector<Logged> schedules;
};

std::vector<LoggedTask> ReadLogged() {
  std::vector<LoggedTask> tasks;
  std::ifstream file(tests::GoldenPath(kFile));
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line.starts_with('#')) continue;
    const size_t first = line.find(' '), second = line.find(' ', first + 1);
    if (line.substr(0, first) == "task") {
      LoggedTask& task = tasks.emplace_back();
      task.name = line.substr(first + 1, second - first - 1);
      task.text = line.substr(second + 1);
      std::replace(task.text.begin(), task.text.end(), '|', '\n');
    } else if (!tasks.empty()) {
      tasks.back().schedules.push_back(
          {tasks.back().name, line.substr(0, first), line.substr(first + 1)});
    }
  }
  return tasks;
}

TEST(LoggedSchedulesTest, ReplayToTheirPrograms) {
  const std::vector<LoggedTask> tasks = ReadLogged();
  ASSERT_GE(tasks.size(), 100u);
  size_t schedules = 0, stale = 0;
  for (const LoggedTask& task : tasks) {
    SCOPED_TRACE(task.name);
    const auto variants = driver::TaskVariants(task.text);
    ASSERT_TRUE(variants.ok()) << support::StatusText(variants.status());
    for (const Logged& logged : task.schedules) {
      SCOPED_TRACE(logged.hash + " " + logged.steps);
      ++schedules;
      const auto program = schedule::Replay(*variants, logged.steps);
      const bool same = program.ok() && ir::ProgramHash(*program) == logged.hash;
      const auto known = kStale.find(logged.hash);
      if (known != kStale.end()) {
        EXPECT_FALSE(same) << "not stale any more: take it off the list";
        ++stale;
      } else if (!program.ok()) {
        ADD_FAILURE() << support::StatusText(program.status());
      } else {
        EXPECT_TRUE(same) << "another program: " << ir::ProgramHash(*program);
      }
    }
  }
  EXPECT_GE(schedules, 4 * tasks.size() - 4);
  EXPECT_EQ(stale, kStale.size()) << "the list names schedules that are not in the file";
}

}  // namespace
}  // namespace tilewright
