// A number of a module version never names other bytes, whatever happens to the state folder.
#include "tuner_server/modules/version_numbers.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <string>

#include "deploy/support/clock.h"
#include "deploy/support/file.h"
#include "deploy/support/strings.h"
#include "tuner_server/log/sqlite_log.h"

namespace tilewright::modules {
namespace {

template <typename T>
T Value(absl::StatusOr<T> result) {
  TW_CHECK(result.ok()) << support::StatusText(result.status());
  return *std::move(result);
}

// A tuner's state folder "state"; every call opens it as a start of the server does.
class VersionNumbersTest : public testing::Test {
 protected:
  VersionNumbersTest() { Sh("mkdir state"); }

  void Sh(const std::string& command) {
    const std::string line = support::StrCat("cd ", dir_.path(), " && ", command);
    TW_CHECK(std::system(line.c_str()) == 0) << line;
  }

  std::unique_ptr<log::TuningLog> OpenLog() {
    return Value(log::OpenSqliteLog(dir_.File("state/tuner.db")));
  }

  // The number that a new version of "dqn" with these bytes gets.
  int64_t Publish(const std::string& sha256, const std::string& module = "dqn") {
    const auto log = OpenLog();
    const auto numbers =
        Value(VersionNumbers::Open(dir_.File("state/module-numbers"), log.get(), &clock_));
    restarted_at_ = numbers->restarted_at();
    log::ModuleVersionRow row;
    row.module = module;
    row.sha256 = sha256;
    row.number = Value(numbers->Reserve(module, sha256));
    return Value(log->AddModuleVersion(row)).number;
  }

  support::TempDir dir_ = Value(support::TempDir::Create("version-numbers"));
  support::FakeClock clock_;
  int64_t restarted_at_ = 0;
};

TEST_F(VersionNumbersTest, RiseByOneThroughRestartsAndMovesOfTheFolder) {
  EXPECT_EQ(Publish("a"), 1);
  EXPECT_EQ(Publish("b"), 2);
  Sh("mv state moved && mkdir other && mv moved state && chmod -R go-rwx state");
  EXPECT_EQ(Publish("c"), 3);
  EXPECT_EQ(Publish("a", "other"), 1);
  EXPECT_EQ(restarted_at_, 0);
}

TEST_F(VersionNumbersTest, ALogCopiedBackByHandGoesOnAboveWhatItDoesNotKnow) {
  EXPECT_EQ(Publish("a"), 1);
  Sh("cp -p state/tuner.db old.db");
  EXPECT_EQ(Publish("b"), 2);
  EXPECT_EQ(Publish("c"), 3);
  Sh("rm state/tuner.db* && cp -p old.db state/tuner.db");
  EXPECT_EQ(Publish("d"), 4);
  EXPECT_EQ(restarted_at_, 0) << "the numbers were known";
}

TEST_F(VersionNumbersTest, ARestoredFolderStartsAtTheTimeForEveryModule) {
  EXPECT_EQ(Publish("a"), 1);
  Sh("cp -a state backup");
  EXPECT_EQ(Publish("b"), 2);
  EXPECT_EQ(Publish("b", "other"), 1);
  clock_.AdvanceNs(1'000'000'000);
  for (const char* restore : {"rm -r state && cp -a backup state",  // a new folder
                              "cp -p backup/* state/",              // over the old files
                              "rm -r state && cp -a backup state && rm state/module-numbers"}) {
    clock_.AdvanceNs(60'000'000'000);
    const int64_t now_s = clock_.WallMicros() / 1'000'000;
    Sh(restore);
    EXPECT_EQ(Publish("d"), now_s) << restore;
    EXPECT_EQ(restarted_at_, now_s);
    EXPECT_EQ(Publish("d", "other"), now_s) << "a module that the backup does not know";
    EXPECT_EQ(Publish("e"), now_s + 1) << "from there on by one";
    EXPECT_EQ(restarted_at_, 0) << "once";
  }
}

TEST_F(VersionNumbersTest, AnOlderServersLogGoesOnAndAStampOfARestoreDoesNot) {
  const auto add = [&] {
    log::ModuleVersionRow row;
    row.module = "dqn";
    Value(OpenLog()->AddModuleVersion(row));
  };
  add();
  add();
  EXPECT_EQ(Publish("c"), 3) << "the first start of a version that writes the file";
  Sh("rm -r state && mkdir state");
  add();
  Sh("echo restored > state/module-numbers");  // by 'backup restore'
  EXPECT_EQ(Publish("b"), clock_.WallMicros() / 1'000'000);
}

TEST_F(VersionNumbersTest, AnInterruptedPublicationGetsItsNumberAgain) {
  const auto log = OpenLog();
  const std::string path = dir_.File("state/module-numbers");
  auto numbers = Value(VersionNumbers::Open(path, log.get(), &clock_));
  EXPECT_EQ(Value(numbers->Reserve("dqn", "a")), 1);
  numbers = Value(VersionNumbers::Open(path, log.get(), &clock_));  // killed before the row
  EXPECT_EQ(Value(numbers->Reserve("dqn", "a")), 1);
  log::ModuleVersionRow row;
  row.module = "dqn";
  row.number = 1;
  Value(log->AddModuleVersion(row));
  EXPECT_EQ(Value(numbers->Reserve("dqn", "a")), 2) << "killed after the row";
  ASSERT_TRUE(numbers->Withdraw().ok());  // the job had published 1
  EXPECT_EQ(Value(numbers->Reserve("dqn", "b")), 2) << "no number was lost";
}

}  // namespace
}  // namespace tilewright::modules
