// The tuner's real binary dies at every failpoint of its own, and at random moments, in the middle
// of jobs, and goes on with its state: every job ends with all its trials, each measured once and
// stored once, nothing that was stored is lost, and one module version comes of each job. The
// tracker and its agent live in this process and do not die; the compiler is a stand-in
// (fake_builder_main.cc).
#include <gtest/gtest.h>

#include <cstdio>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "deploy/support/failpoint.h"
#include "deploy/support/rng.h"
#include "deploy/support/strings.h"
#include "tests/fault/loopback_fleet.h"
#include "tests/fault/no_descriptors.h"
#include "tests/support/patience.h"
#include "tests/support/small_disk.h"
#include "tests/support/test_seed.h"
#include "tests/unit/mini_fleet.h"
#include "tilewright/v1/job.grpc.pb.h"
#include "tuner_server/log/sqlite_log.h"

namespace tilewright::tests {
namespace {

using support::StrCat;

constexpr int64_t kCallMs = 20'000;
constexpr int64_t kJobMs = 90'000;
constexpr int64_t kDeathMs = 10'000;     // to a death that must come
constexpr int64_t kLateDeathMs = 1'000;  // to one that may
constexpr int64_t kHurtMs = 2'000;
constexpr int64_t kVeryLateMs = 60'000;  // to what a job says about its wait
constexpr int64_t kLongHurtMs = 20'000;  // beyond the tries that a job makes in a row
constexpr int64_t kDiskBytes = 64 << 20;
constexpr int kTrials = 24;  // enough for a model to be trained
constexpr char kModel[] = "model bytes";

class TunerDeathTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto dir = support::TempDir::Create("tuner_death");
    ASSERT_TRUE(dir.ok()) << dir.status();
    dir_ = std::make_unique<support::TempDir>(*std::move(dir));
    fleet_ = std::make_unique<MiniFleet>(dir_->File("tracker"));
  }

  void StartTuner(const std::string& state_dir) {
    state_dir_ = state_dir;
    const auto builder = support::FindSibling("tilewright_fake_builder");
    ASSERT_TRUE(builder.ok()) << builder.status();
    tuner_ = std::make_unique<LoopbackDaemon>(
        "tilewright-tuner", state_dir,
        std::vector<std::string>{"--tracker", fleet_->address(), "--builder", *builder});
    if (host_faults_) {
      ASSERT_TRUE(tuner_->UseHostFaults().ok());
    }
    tuner_->Start({"--listen", "127.0.0.1:0"});
    ASSERT_TRUE(tuner_->Ready()) << tuner_->log();
    address_ = tuner_->Address();
    channel_ = daemon::MakeChannel(address_, {true});
    jobs_ = v1::JobService::NewStub(channel_);
    const auto artifacts = v1::ArtifactService::NewStub(channel_);
    const absl::Status sent = daemon::UploadArtifact(artifacts.get(), support::Sha256Hex(kModel),
                                                     kModel, Patiently(kCallMs));
    ASSERT_TRUE(sent.ok()) << sent;
  }

  void Restart(const std::vector<std::string>& more = {}) {
    tuner_->Kill9();
    std::vector<std::string> args = {"--listen", address_};
    args.insert(args.end(), more.begin(), more.end());
    tuner_->Start(args);
  }

  // A new job, whose creation is tried until somebody answers.
  void NewJob() {
    ++number_;
    request_ = v1::CreateJobRequest();
    request_.set_request_id(StrCat("request-", number_));
    v1::Job* job = request_.mutable_job();
    *job->mutable_model() = daemon::MakeDigest(support::Sha256Hex(kModel), sizeof(kModel) - 1);
    job->set_target("cpu,arch=x86_64,cpu=x86-64,threads=2");
    job->mutable_budget()->set_max_trials(kTrials);
    job->set_seed(number_);
    name_.clear();
    measured_before_ = fleet_->measured();
    stored_.clear();
  }

  // One look at the job, which is created when it is not known yet. True when it has ended.
  bool Look() {
    grpc::ClientContext context;
    daemon::SetTimeout(&context, Patiently(kCallMs));
    if (name_.empty()) {
      if (jobs_->CreateJob(&context, request_, &job_).ok()) name_ = job_.name();
      return false;
    }
    v1::GetJobRequest get;
    get.set_name(name_);
    const grpc::Status status = jobs_->GetJob(&context, get, &job_);
    EXPECT_NE(status.error_code(), grpc::StatusCode::NOT_FOUND) << "an acknowledged job was lost";
    return status.ok() && (job_.state() == v1::Job::SUCCEEDED || job_.state() == v1::Job::FAILED ||
                           job_.state() == v1::Job::CANCELLED);
  }

  // The job says that it waits for this. Looks anew.
  bool WaitsFor(const std::string& reason) {
    if (Look()) return false;
    for (const v1::Condition& condition : job_.conditions()) {
      if (condition.reason() == reason) return true;
    }
    return false;
  }

  // Until the job has ended or the tuner has died. False when neither happens.
  bool Work() {
    return WaitFor([&] { return tuner_->Dead() || Look(); }, kJobMs);
  }

  // A new job, a share of whose trials is measured when its agent stands still: what happens now
  // happens in mid-job, however fast this machine is.
  void StopInMidJob() {
    NewJob();
    fleet_->most = measured_before_ + kTrials / 4;
    ASSERT_TRUE(WaitFor([&] { return Look() || fleet_->measured() >= fleet_->most; }, kJobMs));
    ASSERT_LT(fleet_->measured(), measured_before_ + kTrials);
  }
  void GoOn() { fleet_->most = INT64_MAX; }
  // The tuner's disk becomes full while a job is under way.
  void FillInMidJob(SmallDisk* disk) {
    ASSERT_NO_FATAL_FAILURE(StartTuner(disk->path()));
    ASSERT_NO_FATAL_FAILURE(StopInMidJob());
    disk->Fill();
    GoOn();
  }

  // What is in the log now, which must be more than before. Between a death and the next start.
  void CheckStored() {
    auto log = log::OpenSqliteLog(StrCat(state_dir_, "/tuner.db"), {});
    ASSERT_TRUE(log.ok()) << log.status();
    const auto records = (*log)->ListRecords({.limit = 1'000'000});
    ASSERT_TRUE(records.ok()) << records.status();
    std::set<std::string> now;
    for (const log::RecordRow& record : *records) {
      EXPECT_TRUE(now.insert(record.measurement_id).second) << record.measurement_id << " twice";
    }
    for (const std::string& id : stored_) EXPECT_TRUE(now.count(id)) << id << " was lost";
    stored_ = std::move(now);
  }

  // The job has ended as if nothing had happened.
  void CheckJob() {
    EXPECT_EQ(v1::Job::State_Name(job_.state()), "SUCCEEDED") << job_.state_reason();
    EXPECT_EQ(job_.progress().measured(), kTrials);
    EXPECT_EQ(job_.published_module(),
              StrCat("projects/default/modules/fake-net/versions/", number_));
    v1::ListTrialsRequest list;
    list.set_parent(name_);
    list.mutable_page()->set_page_size(2 * kTrials);
    v1::ListTrialsResponse trials;
    grpc::ClientContext context;
    daemon::SetTimeout(&context, Patiently(kCallMs));
    ASSERT_TRUE(jobs_->ListTrials(&context, list, &trials).ok());
    int finals = 0;  // winners measured again
    for (const v1::Trial& trial : trials.trials()) {
      finals += trial.winner_again() ? 1 : 0;
      EXPECT_EQ(trial.state(), v1::Trial::SUCCEEDED) << trial.ShortDebugString();
      EXPECT_EQ(trial.measurements_size(), 1) << trial.ShortDebugString();
    }
    EXPECT_EQ(trials.trials_size() - finals, kTrials);
    // The agent counts when it has heard that its report arrived: the job may end before.
    const int64_t wanted = measured_before_ + trials.trials_size();
    WaitFor([&] { return fleet_->measured() >= wanted; });
    EXPECT_EQ(fleet_->measured(), wanted) << "measured, but lost or repeated";
  }

  std::unique_ptr<support::TempDir> dir_;
  std::unique_ptr<MiniFleet> fleet_;
  std::string state_dir_;
  std::unique_ptr<LoopbackDaemon> tuner_;
  std::string address_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::JobService::Stub> jobs_;
  int number_ = 0;
  v1::CreateJobRequest request_;
  std::string name_;
  v1::Job job_;
  int64_t measured_before_ = 0;
  std::set<std::string> stored_;
  bool host_faults_ = false;  // of the next start
};

TEST_F(TunerDeathTest, DyingAtEveryFailpointLosesNothingAndRepeatsNothing) {
  ASSERT_NO_FATAL_FAILURE(StartTuner(dir_->File("tuner")));
  const int64_t rounds = TestRounds(1);
  int deaths = 0;
  for (int64_t round = 0; round < rounds; ++round) {
    for (const std::string_view point : support::kFailpointNames) {
      if (!point.starts_with("tuner.")) continue;
      SCOPED_TRACE(StrCat(point, " ", round));
      NewJob();
      Restart({"--test-failpoint", StrCat(point, "=", 1 + round % 3)});
      const bool early = !tuner_->Ready();
      if (!early) {
        ASSERT_TRUE(Work()) << tuner_->log();
      }
      // What happens after the end of a job happens soon.
      const bool died =
          early || tuner_->Dead(round == 0 ? Patiently(kDeathMs) : Patiently(kLateDeathMs));
      // Later hits may not come in a short job; the first one must.
      if (round == 0) {
        EXPECT_TRUE(died) << "not reached";
      }
      if (died) {
        ++deaths;
        EXPECT_EQ(tuner_->End(0).signal, SIGKILL) << tuner_->log();
        CheckStored();
        Restart();
        ASSERT_TRUE(tuner_->Ready()) << tuner_->log();
        ASSERT_TRUE(Work() && !tuner_->Dead()) << tuner_->log();
      }
      CheckJob();
      if (HasFatalFailure()) return;
    }
  }
  EXPECT_EQ(tuner_->End().exit_code, 0) << tuner_->log();
  CheckStored();
  std::printf("counts: deaths=%d jobs=%d measurements=%lld\n", deaths, number_,
              static_cast<long long>(fleet_->measured()));
}

TEST_F(TunerDeathTest, DyingAtAnyMomentLosesNothingAndRepeatsNothing) {
  ASSERT_NO_FATAL_FAILURE(StartTuner(dir_->File("tuner")));
  support::Rng rng(TestSeed(1));
  const int64_t wanted = TestRounds(40);
  int64_t deaths = 0;
  while (deaths < wanted) {
    NewJob();
    bool ended = false;
    while (!ended) {
      // Some long enough to get somewhere even on a busy machine.
      const int64_t life_ms =
          rng.Bernoulli(0.3) ? rng.UniformInt(500, 2500) : rng.UniformInt(20, 400);
      ended = WaitFor([&] { return Look(); }, life_ms);
      if (ended || deaths == wanted) continue;
      ++deaths;
      tuner_->Kill9();
      CheckStored();
      Restart();
      ASSERT_TRUE(tuner_->Ready()) << tuner_->log();
    }
    CheckJob();
    if (HasFailure()) break;
  }
  EXPECT_EQ(tuner_->End().exit_code, 0) << tuner_->log();
  CheckStored();
  std::printf("counts: deaths=%lld jobs=%d measurements=%lld\n", static_cast<long long>(deaths),
              number_, static_cast<long long>(fleet_->measured()));
}

TEST_F(TunerDeathTest, AFullDiskInMidJobLosesNothing) {
  const auto disk = SmallDisk::Mount(kDiskBytes);
  if (disk == nullptr) GTEST_SKIP() << kNoMountSkip;
  ASSERT_NO_FATAL_FAILURE(FillInMidJob(disk.get()));
  support::SleepMs(kHurtMs);
  v1::CreateJobRequest another = request_;
  another.set_request_id("another");
  v1::Job refused;
  grpc::ClientContext context;
  daemon::SetTimeout(&context, Patiently(kCallMs));
  const absl::Status status = daemon::FromGrpc(jobs_->CreateJob(&context, another, &refused));
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_FALSE(tuner_->Dead()) << tuner_->log();
  disk->Free();
  ASSERT_TRUE(Work() && !tuner_->Dead()) << tuner_->log();
  CheckJob();
}

// The tuner, its search child and its build children write to this disk. While it is full the job
// says what it waits for.
TEST_F(TunerDeathTest, AJobWaitsForAFullDiskForAsLongAsItTakes) {
  const auto disk = SmallDisk::Mount(kDiskBytes);
  if (disk == nullptr) GTEST_SKIP() << kNoMountSkip;
  ASSERT_NO_FATAL_FAILURE(FillInMidJob(disk.get()));
  EXPECT_TRUE(WaitFor([&] { return WaitsFor("job.waits.disk_full"); }, kVeryLateMs))
      << job_.ShortDebugString();
  support::SleepMs(kLongHurtMs);
  EXPECT_FALSE(Look()) << "ended: " << job_.state_reason();
  // Now and then it tries again, and waits again.
  EXPECT_TRUE(WaitFor(
      [&] {
        return WaitsFor("job.waits.disk_full") &&
               job_.progress().phase() == "waiting for room on the disk";
      },
      kVeryLateMs))
      << job_.ShortDebugString();
  disk->Free();
  ASSERT_TRUE(Work() && !tuner_->Dead()) << tuner_->log();
  CheckJob();
  EXPECT_NE(tuner_->log().find("job.waits"), std::string::npos) << tuner_->log();
}

// The log cannot say that the job is to end; it stops all the same, and ends when it can.
TEST_F(TunerDeathTest, AJobIsCancelledWhileTheDiskIsFull) {
  const auto disk = SmallDisk::Mount(kDiskBytes);
  if (disk == nullptr) GTEST_SKIP() << kNoMountSkip;
  ASSERT_NO_FATAL_FAILURE(FillInMidJob(disk.get()));
  ASSERT_TRUE(WaitFor([&] { return WaitsFor("job.waits.disk_full"); }, kVeryLateMs));
  disk->Fill();  // what the children gave back
  v1::CancelJobRequest cancel;
  cancel.set_name(name_);
  v1::Job asked;
  grpc::ClientContext context;
  daemon::SetTimeout(&context, Patiently(kCallMs));
  const absl::Status status = daemon::FromGrpc(jobs_->CancelJob(&context, cancel, &asked));
  ASSERT_TRUE(status.ok()) << status;
  const bool waits = asked.state() == v1::Job::RUNNING;
  EXPECT_TRUE(waits || asked.state() == v1::Job::CANCELLING) << asked.ShortDebugString();
  if (waits) {
    ASSERT_EQ(asked.conditions_size(), 1) << asked.ShortDebugString();
    EXPECT_EQ(asked.conditions(0).type(), "CANCEL_WAITS");
  }
  disk->Free();
  ASSERT_TRUE(Work() && !tuner_->Dead()) << tuner_->log();
  EXPECT_EQ(v1::Job::State_Name(job_.state()), "CANCELLED") << job_.state_reason();
}

TEST_F(TunerDeathTest, ADiskThatBecomesReadOnlyInMidJobLosesNothing) {
  const auto probe = HostFaults::Create();
  if (!probe.ok()) GTEST_SKIP() << "[SKIP] " << probe.status();
  if (!support::IsDirectory("/dev/shm")) GTEST_SKIP() << "[SKIP] no /dev/shm";
  const auto folder = support::TempDir::Create("tuner-read-only", "/dev/shm");
  ASSERT_TRUE(folder.ok()) << folder.status();
  host_faults_ = true;
  ASSERT_NO_FATAL_FAILURE(StartTuner(folder->path()));
  ASSERT_NO_FATAL_FAILURE(StopInMidJob());
  tuner_->host()->SetReadOnly(folder->path());
  GoOn();
  support::SleepMs(kLongHurtMs);
  v1::CreateJobRequest another = request_;
  another.set_request_id("another");
  v1::Job refused;
  grpc::ClientContext context;
  daemon::SetTimeout(&context, Patiently(kCallMs));
  const absl::Status status = daemon::FromGrpc(jobs_->CreateJob(&context, another, &refused));
  EXPECT_TRUE(daemon::IsRetryable(status)) << status;
  EXPECT_FALSE(tuner_->Dead()) << tuner_->log();
  tuner_->host()->SetWritable();
  ASSERT_TRUE(Work() && !tuner_->Dead()) << tuner_->log();
  CheckJob();
}

TEST_F(TunerDeathTest, AClockThatJumpsAnHourInMidJobChangesNothing) {
  const auto probe = HostFaults::Create();
  if (!probe.ok()) GTEST_SKIP() << "[SKIP] " << probe.status();
  host_faults_ = true;
  ASSERT_NO_FATAL_FAILURE(StartTuner(dir_->File("tuner")));
  constexpr int64_t kHourMs = 3'600'000;  // far more than SeesOffset's tolerance
  for (const int64_t ms : {kHourMs, -kHourMs}) {
    ASSERT_NO_FATAL_FAILURE(StopInMidJob());
    tuner_->host()->SetClockOffset(ms);
    GoOn();
    ASSERT_TRUE(Work() && !tuner_->Dead()) << tuner_->log();
    CheckJob();
    EXPECT_TRUE(WaitFor([&] { return SeesOffset(*tuner_, ms); }))
        << "the tuner has not seen the jump\n"
        << tuner_->log();
  }
}

TEST_F(TunerDeathTest, NoDescriptorsLeftInMidJobLosesNothing) {
  ASSERT_NO_FATAL_FAILURE(StartTuner(dir_->File("tuner")));
  ASSERT_NO_FATAL_FAILURE(StopInMidJob());
  {
    const NoDescriptors none(tuner_->pid());
    GoOn();
    support::SleepMs(kHurtMs);
    EXPECT_FALSE(tuner_->Dead()) << tuner_->log();
  }
  ASSERT_TRUE(Work() && !tuner_->Dead()) << tuner_->log();
  CheckJob();
}

}  // namespace
}  // namespace tilewright::tests
