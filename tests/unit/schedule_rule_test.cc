#include "tuner_server/log/schedule_rule.h"

#include <gtest/gtest.h>

#include <string>

#include "deploy/support/strings.h"

namespace tilewright::log {
namespace {

using support::StrCat;

// Adds records of programs as a log has them.
class Measured {
 public:
  void Add(const std::string& program, double median, Outcome outcome = Outcome::kOk) {
    TrialRow trial;
    trial.program_hash = program;
    trial.is_default = program == "default";
    trial.generated_by = generated_by;
    trial.job = job;
    RecordRow record;
    record.measurement_id = StrCat("m", ++count_);
    record.accepted = true;
    record.valid = valid;
    record.outcome = outcome;
    record.median = median;
    record.ci_rel = 0.01;
    contenders_.Add(std::move(trial), std::move(record));
  }
  std::string Choice() const { return Name(contenders_.Choice()); }
  std::string Leader() const { return Name(contenders_.Leader()); }
  std::string Unconfirmed() const { return Name(contenders_.Unconfirmed()); }
  double time() const { return contenders_.Choice()->record.median; }

  // A final of the program. Not OK: without a time.
  void AddFinal(const std::string& program, double median, Outcome outcome = Outcome::kOk) {
    generated_by = std::string(kFinal);
    Add(program, median, outcome);
    generated_by.clear();
  }

  std::string generated_by;
  std::string job = "job1";
  bool valid = true;

 private:
  static std::string Name(const MeasuredTrial* row) {
    return row == nullptr ? "none" : row->trial.program_hash;
  }
  Contenders contenders_;
  int count_ = 0;
};

TEST(ScheduleRule, TheFastestIsChosenAndIsUnconfirmedUntilItIsMeasuredAgain) {
  Measured all;
  EXPECT_EQ(all.Choice(), "none");
  EXPECT_EQ(all.Unconfirmed(), "none");
  all.Add("a", 100);
  all.Add("b", 90);
  EXPECT_EQ(all.Choice(), "b");
  EXPECT_EQ(all.Unconfirmed(), "b");
  all.Add("b", 91);
  EXPECT_EQ(all.Choice(), "b");
  EXPECT_EQ(all.time(), 90) << "the two agree";
  EXPECT_EQ(all.Unconfirmed(), "none");
}

TEST(ScheduleRule, OfTwoTimesThatDifferTheSlowerCountsAndOfThreeTheMedian) {
  Measured all;
  all.Add("lucky", 50);
  all.Add("steady", 90);
  all.Add("lucky", 100);
  EXPECT_EQ(all.Choice(), "steady");
  all.Add("lucky", 51);
  EXPECT_EQ(all.Choice(), "lucky");
  EXPECT_EQ(all.time(), 51);
}

TEST(ScheduleRule, OneWrongResultOrTwoFailedFinalsRefuteAProgram) {
  Measured all;
  all.Add("a", 100);
  all.Add("crashes", 60);
  all.Add("crashes", 0, Outcome::kRunCrash);
  all.Add("wrong", 50);
  all.Add("wrong", 1, Outcome::kWrongResult);
  all.Add("wrong", 50);
  EXPECT_EQ(all.Choice(), "crashes") << "a device may have been the reason";
  all.AddFinal("crashes", 0, Outcome::kRunCrash);
  EXPECT_EQ(all.Choice(), "crashes") << "once";
  EXPECT_EQ(all.Unconfirmed(), "crashes");
  all.AddFinal("crashes", 61);
  EXPECT_EQ(all.Choice(), "crashes");
  EXPECT_EQ(all.Unconfirmed(), "none");
  all.AddFinal("crashes", 0, Outcome::kRunTimeout);
  EXPECT_EQ(all.Choice(), "a") << "twice";
  all.AddFinal("a", 0, Outcome::kWrongResult);
  EXPECT_EQ(all.Choice(), "none");
}

TEST(ScheduleRule, AProgramWhoseFinalsGiveNoTimeIsOut) {
  Measured all;
  all.Add("a", 100);
  all.Add("lost", 60);
  all.AddFinal("lost", 0, Outcome::kDeviceLost);
  EXPECT_EQ(all.Unconfirmed(), "lost");
  all.valid = false;
  all.AddFinal("lost", 61);  // noise
  all.valid = true;
  EXPECT_EQ(all.Choice(), "a");
  EXPECT_EQ(all.Leader(), "a");
  all.Add("lost", 62);
  EXPECT_EQ(all.Choice(), "lost") << "it has been measured twice now";
}

TEST(ScheduleRule, WhereAJobUsedUpItsFinalsOnlyConfirmedProgramsCount) {
  Measured all;
  all.Add("default", 200);
  for (int i = 0; i < kFinalsOfTask; ++i) {
    all.Add(StrCat("lie", i), 10 + i);
    all.job = StrCat("job", i);
    all.AddFinal(StrCat("lie", i), i == 0 ? 150 : 1000);
  }
  all.Add("seventh", 30);
  EXPECT_EQ(all.Choice(), "seventh") << "no job measured more than one";
  all.job = "job7";
  for (int i = 0; i < kFinalsOfTask; ++i) all.AddFinal("lie1", 1000);
  EXPECT_EQ(all.Choice(), "lie0");
  EXPECT_EQ(all.Leader(), "seventh");
  EXPECT_EQ(all.Unconfirmed(), "seventh") << "another job may confirm it";
  all.AddFinal("lie0", 0, Outcome::kWrongResult);
  EXPECT_EQ(all.Choice(), "default");
  all.AddFinal("seventh", 31);
  EXPECT_EQ(all.Choice(), "seventh");
}

TEST(ScheduleRule, TheDefaultStaysUnlessBeatenBeyondNoise) {
  Measured all;
  all.Add("default", 100);
  all.Add("a", 99);
  EXPECT_EQ(all.Choice(), "default");
  EXPECT_EQ(all.Unconfirmed(), "none") << "nothing claims that it is fast";
  all.Add("b", 90);
  EXPECT_EQ(all.Choice(), "b");
}

// Thousands of slow programs are forgotten; what was refuted or measured again is not.
TEST(ScheduleRule, ALongSearchForgetsOnlyWhatIsSlow) {
  Measured all;
  all.Add("default", 5000);
  all.Add("lie", 1);
  all.Add("lie", 4000);
  all.Add("wrong", 2);
  all.Add("wrong", 2, Outcome::kWrongResult);
  for (int i = 0; i < 5000; ++i) all.Add(StrCat("p", i), 1000 + (i * 7919) % 5000);
  EXPECT_EQ(all.time(), 1000);
  all.Add("lie", 4000);
  all.Add("wrong", 2);
  EXPECT_EQ(all.time(), 1000);
}

}  // namespace
}  // namespace tilewright::log
