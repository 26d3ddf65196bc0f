// Disks that are full, read-only or damaged, clocks that jump, and no descriptors left, under the
// real daemons: errors are typed, nothing is lost or counted twice, nothing is overwritten that
// cannot be read, and all goes on when there is room again.
// Promises R14 and R15 of tests/README.md.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "deploy/support/clock.h"
#include "deploy/support/file.h"
#include "deploy/support/strings.h"
#include "tests/fault/busy_fleet.h"
#include "tests/fault/no_descriptors.h"
#include "tests/support/small_disk.h"

namespace tilewright::tests {
namespace {

constexpr int64_t kDiskBytes = 64 << 20;
constexpr int64_t kHurtMs = 2'000;
constexpr int64_t kPatienceMs = 60'000;
constexpr int64_t kHourMs = 3'600'000;
constexpr size_t kPageBytes = 4096;

// What a new client hears that submits an item with artifacts of its own.
absl::Status TryWork(const std::string& address, int64_t call_ms = Patiently(20'000)) {
  const auto channel = daemon::MakeChannel(address, {true});
  const auto artifacts = v1::ArtifactService::NewStub(channel);
  static int number = 0;
  const std::string bytes = support::StrCat("artifact ", ++number);
  return daemon::UploadArtifact(artifacts.get(), support::Sha256Hex(bytes), bytes, call_ms);
}

bool IsTypedAndRetryable(const absl::Status& status) {
  return !status.ok() && daemon::IsRetryable(status);
}

// Lets the fleet work (which reads the logs before they grow out of their tails) until it has ended
// more items than that.
bool WaitForMore(BusyFleet* fleet, size_t finals) {
  return WaitFor(
      [&] {
        fleet->RunFor(1);
        return fleet->finals() > finals;
      },
      kPatienceMs);
}

void Finish(BusyFleet* fleet, size_t before) {
  support::SystemClock clock;
  const int64_t healed_ns = clock.NowNs();
  ASSERT_TRUE(WaitForMore(fleet, before)) << fleet->Logs();
  std::printf("counts: recovery_ms=%lld\n",
              static_cast<long long>((clock.NowNs() - healed_ns) / 1'000'000));
  ASSERT_TRUE(fleet->Finish(kPatienceMs)) << fleet->Logs();
  fleet->CheckEveryMeasurement();
}

TEST(DaemonFaultsTest, AFullDiskUnderTrackerAndAgentsLosesNothing) {
  const auto disk = SmallDisk::Mount(kDiskBytes);
  if (disk == nullptr) GTEST_SKIP() << kNoMountSkip;
  BusyFleetOptions options;
  options.state_dir = disk->path();
  BusyFleet fleet(options);
  ASSERT_NO_FATAL_FAILURE(fleet.StartTracker());
  ASSERT_NO_FATAL_FAILURE(fleet.StartWork(fleet.address(), fleet.address()));
  ASSERT_TRUE(WaitForMore(&fleet, 5)) << fleet.Logs();
  for (int round = 0; round < 3; ++round) {
    disk->Fill();
    fleet.RunFor(kHurtMs);
    const absl::Status refused = TryWork(fleet.address());
    EXPECT_TRUE(IsTypedAndRetryable(refused)) << refused;
    EXPECT_FALSE(fleet.tracker()->Dead()) << fleet.tracker()->log();
    disk->Free();
    fleet.RunFor(500);
  }
  Finish(&fleet, fleet.finals());
}

TEST(DaemonFaultsTest, NoDescriptorsLeftLosesNothing) {
  BusyFleet fleet;
  ASSERT_NO_FATAL_FAILURE(fleet.StartTracker());
  ASSERT_NO_FATAL_FAILURE(fleet.StartWork(fleet.address(), fleet.address()));
  ASSERT_TRUE(WaitForMore(&fleet, 5)) << fleet.Logs();
  for (LoopbackDaemon* victim : {fleet.tracker(), fleet.agent(0), fleet.agent(1)}) {
    {
      const NoDescriptors none(victim->pid());
      fleet.RunFor(kHurtMs);
      if (victim == fleet.tracker()) {
        EXPECT_TRUE(IsTypedAndRetryable(TryWork(fleet.address(), 3'000)));
      }
      EXPECT_FALSE(victim->Dead()) << victim->log();
    }
    fleet.RunFor(500);
  }
  Finish(&fleet, fleet.finals());
}

TEST(DaemonFaultsTest, ADiskThatBecomesReadOnlyUnderTrackerAndAgentsLosesNothing) {
  const auto probe = HostFaults::Create();
  if (!probe.ok()) GTEST_SKIP() << "[SKIP] " << probe.status();
  // A device that nobody else of the test writes to.
  if (!support::IsDirectory("/dev/shm")) GTEST_SKIP() << "[SKIP] no /dev/shm";
  const auto folder = support::TempDir::Create("daemon-faults", "/dev/shm");
  ASSERT_TRUE(folder.ok()) << folder.status();
  BusyFleetOptions options;
  options.state_dir = folder->path();
  options.host_faults = true;
  BusyFleet fleet(options);
  ASSERT_NO_FATAL_FAILURE(fleet.StartTracker());
  ASSERT_NO_FATAL_FAILURE(fleet.StartWork(fleet.address(), fleet.address()));
  ASSERT_TRUE(WaitForMore(&fleet, 5)) << fleet.Logs();
  for (LoopbackDaemon* victim : {fleet.tracker(), fleet.agent(0), fleet.agent(1)}) {
    victim->host()->SetReadOnly(folder->path());
    fleet.RunFor(kHurtMs);
    if (victim == fleet.tracker()) {
      const absl::Status refused = TryWork(fleet.address());
      EXPECT_TRUE(IsTypedAndRetryable(refused)) << refused;
      EXPECT_THAT(std::string(refused.message()), ::testing::HasSubstr("Read-only file system"));
    }
    EXPECT_FALSE(victim->Dead()) << victim->log();
    victim->host()->SetWritable();
    fleet.RunFor(500);
  }
  Finish(&fleet, fleet.finals());
}

TEST(DaemonFaultsTest, ClocksThatJumpAnHourEndNoLeaseAndLoseNothing) {
  const auto probe = HostFaults::Create();
  if (!probe.ok()) GTEST_SKIP() << "[SKIP] " << probe.status();
  BusyFleetOptions options;
  options.host_faults = true;
  options.lease_ttl_ms = 30'000;
  BusyFleet fleet(options);
  ASSERT_NO_FATAL_FAILURE(fleet.StartTracker());
  ASSERT_NO_FATAL_FAILURE(fleet.StartWork(fleet.address(), fleet.address()));
  ASSERT_TRUE(WaitForMore(&fleet, 5)) << fleet.Logs();
  for (LoopbackDaemon* victim : {fleet.tracker(), fleet.agent(0), fleet.agent(1)}) {
    for (const int64_t ms : {kHourMs, int64_t{0}, -kHourMs, int64_t{0}}) {
      victim->host()->SetClockOffset(ms);
      const size_t before = fleet.finals();
      fleet.RunFor(200);
      EXPECT_TRUE(WaitForMore(&fleet, before + 5))
          << "work stands still after a jump to " << ms << " ms\n"
          << fleet.Logs();
      EXPECT_FALSE(victim->Dead()) << victim->log();
      // The agents write enough to show that they see the jump: as soon as each had its share.
      EXPECT_TRUE(victim == fleet.tracker() || WaitFor([&] {
                    fleet.RunFor(1);
                    return SeesOffset(*victim, ms);
                  }))
          << victim->log();
    }
  }
  fleet.agent(0)->host()->SetClockOffset(kHourMs);  // and all apart
  fleet.agent(1)->host()->SetClockOffset(-kHourMs);
  fleet.RunFor(kHurtMs);
  Finish(&fleet, fleet.finals());
  EXPECT_TRUE(fleet.again().empty()) << fleet.again().front();
}

// The exit code of a daemon that cannot start, which must say why.
int ExitOf(LoopbackDaemon* daemon, const std::vector<std::string>& args, const char* slug) {
  daemon->Start(args);
  EXPECT_FALSE(daemon->Ready());
  const support::ExitStatus status = daemon->End(0);
  EXPECT_EQ(status.signal, 0) << daemon->log();
  EXPECT_THAT(daemon->log(), ::testing::HasSubstr(slug));
  return status.exit_code;
}

class StartFaultTest : public ::testing::TestWithParam<const char*> {
 protected:
  // A tracker and the daemon under test (which may be that tracker), each once at work.
  void SetUp() override {
    disk_ = SmallDisk::Mount(kDiskBytes);
    if (disk_ == nullptr) GTEST_SKIP() << kNoMountSkip;
    const std::string name = GetParam();
    ASSERT_NO_FATAL_FAILURE(fleet_.StartTracker());
    std::vector<std::string> args;
    if (name == "tilewright-tracker") args = {"--listen", "127.0.0.1:0"};
    if (name == "tilewright-agent") {
      args = {"--tracker", fleet_.address(), "--device", "cpu", "--name", "a"};
    }
    if (name == "tilewright-tuner") {
      args = {"--tracker", fleet_.address(), "--listen", "127.0.0.1:0"};
    }
    state_ = disk_->path();
    daemon_ = std::make_unique<LoopbackDaemon>(name, state_, args);
    daemon_->Start();
    ASSERT_TRUE(daemon_->Ready()) << daemon_->log();
    EXPECT_EQ(daemon_->End().exit_code, 0);
    file_ = support::PathJoin(state_, name == "tilewright-tracker" ? "tracker.db"
                                      : name == "tilewright-tuner" ? "tuner.db"
                                                                   : "spool");
  }

  void ExpectItStarts() {
    daemon_->Start();
    EXPECT_TRUE(daemon_->Ready()) << daemon_->log();
    EXPECT_EQ(daemon_->End().exit_code, 0) << daemon_->log();
  }

  std::unique_ptr<SmallDisk> disk_;
  BusyFleet fleet_;  // of which only the tracker runs
  std::string state_;
  std::string file_;
  std::unique_ptr<LoopbackDaemon> daemon_;
};

TEST_P(StartFaultTest, AReadOnlyDiskIsSaidAndLeftAlone) {
  disk_->SetReadOnly(true);
  EXPECT_NE(ExitOf(daemon_.get(), {}, "daemon.failed"), 0);
  disk_->SetReadOnly(false);
  ExpectItStarts();
}

TEST_P(StartFaultTest, ADamagedPageIsSaidAndLeftAlone) {
  const auto whole = support::ReadFile(file_, kDiskBytes);
  ASSERT_TRUE(whole.ok()) << whole.status();
  std::string damaged = *whole;
  const bool pages = damaged.size() > 2 * kPageBytes;
  // A page in the middle, or of a file without pages the begin.
  const size_t at = pages ? damaged.size() / 2 / kPageBytes * kPageBytes : 0;
  for (size_t i = at; i < std::min(damaged.size(), at + kPageBytes); ++i) damaged[i] ^= 0x5a;
  ASSERT_TRUE(support::WriteFileAtomic(file_, damaged).ok());
  EXPECT_EQ(ExitOf(daemon_.get(), {}, "DATA_LOSS"), 65) << daemon_->log();
  EXPECT_EQ(support::ReadFile(file_, kDiskBytes).value_or(""), damaged) << "not overwritten";
  ASSERT_TRUE(support::WriteFileAtomic(file_, *whole).ok());
  ExpectItStarts();
}

INSTANTIATE_TEST_SUITE_P(Daemons, StartFaultTest,
                         ::testing::Values("tilewright-tracker", "tilewright-agent",
                                           "tilewright-tuner"),
                         [](const auto& info) { return std::string(info.param).substr(11); });

}  // namespace
}  // namespace tilewright::tests
