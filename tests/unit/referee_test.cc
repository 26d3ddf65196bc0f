// What a worker believes of a measuring process: the honest order of reports, and what foreign code
// may write in between.
#include "device_agent/referee.h"

#include <gtest/gtest.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "deploy/support/strings.h"
#include "device_agent/output_judge.h"

namespace tilewright::device_agent {
namespace {

constexpr int kElements = 1024;
constexpr int64_t kMs = 1'000'000;

std::string Floats(float first) {
  std::vector<float> values(kElements, first);
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

v1::OutputList List(int64_t bytes = kElements * 4, const std::string& dtype = "float32") {
  v1::OutputList list;
  list.add_dtypes(dtype);
  list.add_bytes(bytes);
  return list;
}

v1::ModuleMeasured Result(double ns = 10'000) {
  v1::ModuleMeasured measured;
  measured.set_outcome(v1::OK);
  for (int i = 0; i < 5; ++i) measured.add_samples(ns);
  measured.set_inner_loops(10);
  measured.set_baseline_before(50);
  measured.set_baseline_after(51);
  measured.set_clock("thread_cpu");
  return measured;
}

class RefereeTest : public ::testing::Test {
 protected:
  using Next = Referee::Next;

  RefereeTest() {
    std::string expected = Floats(3);
    EXPECT_TRUE(judge_.Expect(&expected).ok());
    EXPECT_TRUE(expected.empty());
  }

  Next Phase(v1::WorkerPhase phase) {
    v1::MeasuringReport report;
    report.set_phase(phase);
    return Take(report);
  }
  Next Outputs(const v1::OutputList& outputs) {
    v1::MeasuringReport report;
    *report.mutable_outputs() = outputs;
    return Take(report);
  }
  Next Say(const v1::ModuleMeasured& measured) {
    v1::MeasuringReport report;
    *report.mutable_measured() = measured;
    return Take(report);
  }
  Next Take(const v1::MeasuringReport& report) {
    now_.wall_ns += kMs;
    now_.cpu_ns += cpu_step_ns_;
    return referee_.Take(report);
  }
  void Show(const std::string& bytes) { memcpy(judge_.window(), bytes.data(), bytes.size()); }

  // Up to the first check, which passes.
  void RunOnce() {
    EXPECT_EQ(Phase(v1::WORKER_PHASE_LOAD), Next::kListen);
    EXPECT_EQ(Outputs(List()), Next::kListen);
    for (const auto phase :
         {v1::WORKER_PHASE_INPUTS, v1::WORKER_PHASE_PREPARE, v1::WORKER_PHASE_FIRST_RUN}) {
      EXPECT_EQ(Phase(phase), Next::kListen);
    }
    Show(Floats(3));
    EXPECT_EQ(Phase(v1::WORKER_PHASE_CHECK), Next::kGo);
  }
  // Up to the result.
  void Time() {
    for (const auto phase : {v1::WORKER_PHASE_BASELINE, v1::WORKER_PHASE_WARMUP,
                             v1::WORKER_PHASE_TIMED, v1::WORKER_PHASE_BASELINE}) {
      EXPECT_EQ(Phase(phase), Next::kListen);
    }
  }

  std::string Found() const {
    const v1::ModuleMeasured& answer = referee_.answer();
    return v1::Outcome_Name(answer.outcome()) + " " + answer.error_class();
  }

  OutputJudge judge_;
  Observed now_;
  int64_t cpu_step_ns_ = kMs;
  Referee referee_{{{}, 1, false}, &judge_, [this] { return now_; }};
};

TEST_F(RefereeTest, AnHonestMeasurementIsBelieved) {
  RunOnce();
  Time();
  cpu_step_ns_ = 10'000;
  EXPECT_EQ(Say(Result()), Next::kGo);
  EXPECT_FALSE(referee_.done());
  EXPECT_EQ(static_cast<unsigned char>(judge_.window()[0]), 0xFF) << "cleared before the last run";
  Show(Floats(3));
  EXPECT_EQ(Phase(v1::WORKER_PHASE_LAST_CHECK), Next::kDone);
  EXPECT_EQ(Found(), "OK ");
  EXPECT_EQ(referee_.answer().samples_size(), 5);
}

TEST_F(RefereeTest, ResultsBeforeTheyAreMeasuredAreForged) {
  EXPECT_EQ(Say(Result()), Next::kDone) << "the first thing that it says";
  EXPECT_EQ(Found(), "RUN_CRASH SANDBOX");
}

TEST_F(RefereeTest, AResultAfterTheFirstCheckIsForged) {
  RunOnce();
  EXPECT_EQ(Say(Result()), Next::kDone);
  EXPECT_EQ(Found(), "RUN_CRASH SANDBOX");
}

TEST_F(RefereeTest, StepsInAnotherOrderAreForged) {
  Phase(v1::WORKER_PHASE_LOAD);
  Outputs(List());
  EXPECT_EQ(Phase(v1::WORKER_PHASE_CHECK), Next::kDone);
  EXPECT_EQ(Found(), "RUN_CRASH SANDBOX");
}

TEST_F(RefereeTest, ASecondListOfOutputsIsForged) {
  Phase(v1::WORKER_PHASE_LOAD);
  Outputs(List());
  EXPECT_EQ(Outputs(List(kElements * 4, "int32")), Next::kDone) << "another type, other tolerance";
  EXPECT_EQ(Found(), "RUN_CRASH SANDBOX");
}

TEST_F(RefereeTest, AModuleOfOtherSizesIsRefused) {
  Phase(v1::WORKER_PHASE_LOAD);
  EXPECT_EQ(Outputs(List(kElements)), Next::kDone);
  EXPECT_EQ(Found(), "BUILD_ERROR LOAD_REFUSED");
}

TEST_F(RefereeTest, ListsThatMakeNoSenseAreForged) {
  Phase(v1::WORKER_PHASE_LOAD);
  EXPECT_EQ(Outputs(List(kElements * 4, "float33")), Next::kDone);
  EXPECT_EQ(Found(), "RUN_CRASH SANDBOX");
}

TEST_F(RefereeTest, WrongOutputsOfTheFirstRunEndIt) {
  Phase(v1::WORKER_PHASE_LOAD);
  Outputs(List());
  for (const auto phase :
       {v1::WORKER_PHASE_INPUTS, v1::WORKER_PHASE_PREPARE, v1::WORKER_PHASE_FIRST_RUN}) {
    Phase(phase);
  }
  Show(Floats(4));
  EXPECT_EQ(Phase(v1::WORKER_PHASE_CHECK), Next::kDone);
  EXPECT_EQ(Found(), "WRONG_RESULT FIRST_RUN");
  EXPECT_EQ(referee_.answer().max_abs_error(), 1);
  EXPECT_EQ(referee_.answer().phase(), v1::WORKER_PHASE_CHECK);
}

TEST_F(RefereeTest, OutputsThatWereNotComputedAgainEndIt) {
  RunOnce();
  Time();
  EXPECT_EQ(Say(Result()), Next::kGo);
  EXPECT_EQ(Phase(v1::WORKER_PHASE_LAST_CHECK), Next::kDone);
  EXPECT_EQ(Found(), "WRONG_RESULT LAST_RUN");
}

TEST_F(RefereeTest, ALastRunIsThereOnlyAfterAResult) {
  RunOnce();
  Time();
  EXPECT_EQ(Phase(v1::WORKER_PHASE_LAST_CHECK), Next::kDone);
  EXPECT_EQ(Found(), "RUN_CRASH SANDBOX");
}

TEST_F(RefereeTest, TimesThatTheRunOfItsOwnContradictsAreForged) {
  RunOnce();
  Time();
  cpu_step_ns_ = 50 * kMs;  // a run; its samples say 10 microseconds
  EXPECT_EQ(Say(Result()), Next::kGo);
  Show(Floats(3));
  EXPECT_EQ(Phase(v1::WORKER_PHASE_LAST_CHECK), Next::kGo) << "one may have been disturbed";
  Show(Floats(3));
  EXPECT_EQ(Phase(v1::WORKER_PHASE_LAST_CHECK), Next::kGo);
  Show(Floats(3));
  EXPECT_EQ(Phase(v1::WORKER_PHASE_LAST_CHECK), Next::kDone);
  EXPECT_EQ(Found(), "RUN_CRASH SANDBOX");
}

TEST_F(RefereeTest, ADisturbedRunIsNoProof) {
  RunOnce();
  Time();
  cpu_step_ns_ = 50 * kMs;
  EXPECT_EQ(Say(Result()), Next::kGo);
  Show(Floats(3));
  EXPECT_EQ(Phase(v1::WORKER_PHASE_LAST_CHECK), Next::kGo);
  cpu_step_ns_ = 10'000;
  Show(Floats(3));
  EXPECT_EQ(Phase(v1::WORKER_PHASE_LAST_CHECK), Next::kDone);
  EXPECT_EQ(Found(), "OK ");
}

TEST_F(RefereeTest, TimesBelowThoseOfTheOutputsAloneAreForged) {
  RunOnce();
  Time();
  v1::ModuleMeasured result = Result(3);  // 4 KiB in 3 ns
  EXPECT_EQ(Say(result), Next::kDone);
  EXPECT_EQ(Found(), "RUN_CRASH SANDBOX");
}

TEST_F(RefereeTest, AnotherClockDoesNotHelp) {
  RunOnce();
  Time();
  v1::ModuleMeasured result = Result();
  result.set_clock("device");
  EXPECT_EQ(Say(result), Next::kDone);
  EXPECT_EQ(Found(), "RUN_CRASH SANDBOX");
}

// It would be measured again and again.
TEST_F(RefereeTest, CodeForTheProcessorCannotLoseTheDevice) {
  RunOnce();
  v1::ModuleMeasured lost;
  lost.set_outcome(v1::DEVICE_LOST);
  lost.set_error_class("AGENT");
  EXPECT_EQ(Say(lost), Next::kDone);
  EXPECT_EQ(Found(), "RUN_CRASH SANDBOX");
}

TEST_F(RefereeTest, ALostDeviceHasThePhaseInWhichItWasLost) {
  Referee driver({{}, 1, true}, &judge_, [this] { return now_; });
  v1::MeasuringReport report;
  report.set_phase(v1::WORKER_PHASE_LOAD);
  driver.Take(report);
  report.mutable_measured()->set_outcome(v1::DEVICE_LOST);
  EXPECT_EQ(driver.Take(report), Next::kDone);
  EXPECT_EQ(driver.answer().outcome(), v1::DEVICE_LOST);
  EXPECT_EQ(driver.answer().phase(), v1::WORKER_PHASE_LOAD) << "a suspect, not infrastructure";
}

TEST_F(RefereeTest, ASandboxThatCannotBeHadIsNotTheCandidatesFault) {
  v1::ModuleMeasured lost;
  lost.set_outcome(v1::DEVICE_LOST);
  EXPECT_EQ(Say(lost), Next::kDone) << "before anything foreign was loaded";
  EXPECT_EQ(Found(), "DEVICE_LOST ");
}

TEST_F(RefereeTest, NothingCountsAfterTheAnswer) {
  Say(Result());
  EXPECT_EQ(Phase(v1::WORKER_PHASE_LOAD), Next::kDone);
  EXPECT_EQ(referee_.Garbled(), Next::kDone);
  EXPECT_NE(referee_.answer().error_detail().find("before it was measured"), std::string::npos);
}

TEST_F(RefereeTest, ARefusedProcessIsNotBelieved) {
  RunOnce();
  EXPECT_EQ(referee_.Refuse(support::DataLoss("sandbox.seal.missing", "none")), Next::kDone);
  EXPECT_EQ(Found(), "RUN_CRASH SANDBOX");
}

// Forked processes have neither the expected outputs nor what an earlier candidate computed.
TEST(OutputJudge, ExpectedOutputsStayInTheWorker) {
  OutputJudge judge;
  std::string expected = Floats(3);
  char* const old = expected.data();
  ASSERT_TRUE(judge.Expect(&expected).ok());
  EXPECT_EQ(std::string(old, 8).find_first_not_of('\0'), std::string::npos) << "overwritten";
  memset(judge.window(), 7, judge.size());
  expected = Floats(3);
  ASSERT_TRUE(judge.Expect(&expected).ok());
  EXPECT_EQ(static_cast<unsigned char>(judge.window()[17]), 0xFF);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const std::string right = Floats(3);
    memcpy(judge.window(), right.data(), right.size());
    (void)judge.Compare(List(), {});  // reads the expected outputs
    _exit(0);
  }
  int raw = 0;
  ASSERT_EQ(waitpid(child, &raw, 0), child);
  EXPECT_FALSE(WIFEXITED(raw) && WEXITSTATUS(raw) == 0) << "the child could read them";
  const auto verdict = judge.Compare(List(), {});
  ASSERT_TRUE(verdict.ok()) << verdict.status();
  EXPECT_TRUE(verdict->ok) << "what the child wrote came over";
}

}  // namespace
}  // namespace tilewright::device_agent
