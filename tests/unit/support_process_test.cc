#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "deploy/support/build_id.h"
#include "deploy/support/clock.h"
#include "deploy/support/env.h"
#include "deploy/support/file.h"
#include "deploy/support/frame_io.h"
#include "deploy/support/process.h"
#include "deploy/support/strings.h"

namespace tilewright::support {
namespace {

using testing::HasSubstr;

constexpr int64_t kLongMs = 60'000;

ChildOptions Shell(const std::string& script) {
  ChildOptions options;
  options.program = "/bin/sh";
  options.args = {"-c", script};
  return options;
}

bool ProcessExists(pid_t pid) { return kill(pid, 0) == 0; }

// A killed process is gone when its parent (or init) has reaped it: soon, but not at once.
bool GoneSoon(pid_t pid) {
  for (int i = 0; i < 10'000; ++i) {
    if (!ProcessExists(pid)) return true;
    absl::StatusOr<std::string> stat = ReadFile(StrCat("/proc/", pid, "/stat"), 4096);
    if (stat.ok() && stat->find(") Z ") != std::string::npos) return true;  // dead, not yet reaped
    SleepMs(1);
  }
  return false;
}

TEST(ProcessTest, RunsACommandWithInputAndOutput) {
  absl::StatusOr<CommandResult> result =
      RunCommand(Shell("cat; echo oops >&2; exit 3"), "hello", kLongMs);
  ASSERT_TRUE(result.ok()) << StatusText(result.status());
  EXPECT_EQ(result->stdout_text, "hello");
  EXPECT_EQ(result->stderr_text, "oops\n");
  EXPECT_EQ(result->status.exit_code, 3);
  EXPECT_FALSE(result->status.ok());
  EXPECT_EQ(result->status.ToString(), "exit code 3");
}

TEST(ProcessTest, FeedsAChildThatHasClosedItsOutput) {
  const std::string big(3 << 20, 'x');
  const auto read_all =
      RunCommand(Shell("exec >&-; [ $(wc -c) -eq 3145728 ] && exit 7"), big, kLongMs);
  ASSERT_TRUE(read_all.ok()) << read_all.status();
  EXPECT_EQ(read_all->status.exit_code, 7);
  // Somebody else keeps the input open and reads nothing.
  const auto left = RunCommand(Shell("sleep 60 >&- 2>&- & exec >&-; exit 5"), big, kLongMs);
  ASSERT_TRUE(left.ok()) << left.status();
  EXPECT_EQ(left->status.exit_code, 5);
}

TEST(ProcessTest, MovesMoreThanAPipeHolds) {
  const std::string big(3 << 20, 'x');
  absl::StatusOr<CommandResult> result = RunCommand(Shell("cat"), big, kLongMs);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->stdout_text, big);
  // A child that reads nothing is no error either.
  EXPECT_TRUE(RunCommand(Shell("exit 0"), big, kLongMs)->status.ok());
  EXPECT_EQ(Slug(RunCommand(Shell("cat"), big, kLongMs, 1 << 20).status()),
            "process.run.output_too_large");
}

TEST(ProcessTest, MissingProgramIsAnErrorAtStart) {
  ChildOptions options;
  options.program = "/nonexistent/program";
  const absl::Status missing = Child::Start(options).status();
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(Slug(missing), "process.start.exec");
  options.program = "/etc/passwd";
  EXPECT_EQ(Child::Start(options).status().code(), absl::StatusCode::kPermissionDenied);
  ChildOptions no_folder = Shell("true");
  no_folder.cwd = "/nonexistent";
  EXPECT_THAT(StatusText(Child::Start(no_folder).status()), HasSubstr("chdir"));
}

TEST(ProcessTest, TimeoutKillsTheWholeGroupAndKeepsLastWords) {
  TempDir dir = *TempDir::Create("process-test");
  const std::string pid_file = dir.File("pid");
  // The grandchild would keep standard output open for ever.
  ChildOptions options =
      Shell("echo last words >&2; sleep 1000 & echo $! > " + pid_file + "; wait");
  SystemClock clock;
  std::optional<int64_t> grandchild;
  // On a busy machine a shell may need longer to come that far.
  for (int64_t limit_ms = 300; !grandchild.has_value() && limit_ms < kLongMs; limit_ms *= 4) {
    const int64_t start_ns = clock.NowNs();
    const absl::Status timeout = RunCommand(options, "", limit_ms).status();
    ASSERT_EQ(Slug(timeout), "process.run.timeout");
    EXPECT_LT(clock.NowNs() - start_ns, (limit_ms + 30'000) * 1'000'000);
    grandchild = ParseInt64(Trim(ReadFile(pid_file, 100).value_or("")));
    if (!grandchild.has_value()) continue;
    EXPECT_THAT(StatusText(timeout), HasSubstr("last words"));
  }
  ASSERT_TRUE(grandchild.has_value());
  EXPECT_TRUE(GoneSoon(static_cast<pid_t>(*grandchild)));
}

TEST(ProcessTest, WaitTimesOutWithoutKillingAndKillEnds) {
  auto child = *Child::Start(Shell("exec sleep 1000"));
  EXPECT_EQ(Slug(child->Wait(20).status()), "process.wait.timeout");
  EXPECT_TRUE(ProcessExists(child->pid()));
  child->Kill(SIGTERM);
  absl::StatusOr<ExitStatus> status = child->Wait(kLongMs);
  ASSERT_TRUE(status.ok());
  EXPECT_EQ(status->signal, SIGTERM);
  EXPECT_THAT(status->ToString(), HasSubstr("Terminated"));
  EXPECT_EQ(child->Wait(0)->signal, SIGTERM);
  child->Kill();  // no effect on a reaped child
}

TEST(ProcessTest, DestructionKillsAndReaps) {
  pid_t pid = 0;
  {
    auto child = *Child::Start(Shell("exec sleep 1000"));
    pid = child->pid();
  }
  EXPECT_FALSE(ProcessExists(pid));
}

TEST(ProcessTest, ChildIsKilledWhenItsParentDies) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "[SKIP] the thread sanitizer allows no threads after a fork";
#endif
  // The middle process starts a child of its own and is killed without a chance to clean up.
  int report[2];
  ASSERT_EQ(pipe(report), 0);
  const pid_t middle = fork();
  if (middle == 0) {
    auto child = Child::Start(Shell("exec sleep 1000"));
    const pid_t pid = child.ok() ? (*child)->pid() : 0;
    if (write(report[1], &pid, sizeof(pid)) < 0) _exit(1);
    while (true) pause();
  }
  close(report[1]);
  pid_t grandchild = 0;
  ASSERT_EQ(read(report[0], &grandchild, sizeof(grandchild)),
            static_cast<ssize_t>(sizeof(grandchild)));
  ASSERT_GT(grandchild, 0);
  EXPECT_TRUE(ProcessExists(grandchild));
  kill(middle, SIGKILL);
  waitpid(middle, nullptr, 0);
  EXPECT_TRUE(GoneSoon(grandchild));
  close(report[0]);
}

TEST(ProcessTest, ChildOutlivesTheThreadThatStartedIt) {
  std::unique_ptr<Child> child;
  std::thread([&] { child = *Child::Start(Shell("exec sleep 1000")); }).join();
  EXPECT_EQ(Slug(child->Wait(50).status()), "process.wait.timeout");
}

TEST(ProcessTest, LimitsBite) {
  ChildOptions options = Shell("while :; do :; done");
  options.limits.cpu_s = 1;
  EXPECT_EQ(RunCommand(options, "", kLongMs)->status.signal, SIGXCPU);

  TempDir dir = *TempDir::Create("process-test");
  options = Shell("dd if=/dev/zero of=big bs=1024 count=100 2>/dev/null; echo $?");
  options.cwd = dir.path();
  options.limits = Limits();
  options.limits.file_size_bytes = 10 << 10;
  EXPECT_NE(RunCommand(options, "", kLongMs)->stdout_text, "0\n");
  EXPECT_EQ(*FileSize(dir.File("big")), 10u << 10);

  options = Shell("ulimit -v; ulimit -n; ulimit -c");
  options.limits = Limits();
  options.limits.address_space_bytes = int64_t{1} << 30;
  options.limits.open_files = 77;
  EXPECT_EQ(RunCommand(options, "", kLongMs)->stdout_text, "1048576\n77\n0\n");
}

TEST(ProcessTest, EnvironmentIsInheritedReplacedOrCleared) {
  ASSERT_TRUE(GetEnv("PATH").has_value());
  EXPECT_FALSE(GetEnv("TILEWRIGHT_NO_SUCH_VARIABLE").has_value());
  ChildOptions options = Shell("echo \"$A-$PATH\"");
  options.env = {{"A", "1"}, {"PATH", "replaced"}};
  EXPECT_EQ(RunCommand(options, "", kLongMs)->stdout_text, "1-replaced\n");
  ChildOptions clear;
  clear.program = "/usr/bin/env";
  clear.clear_env = true;
  clear.env = {{"ONLY", "x=y"}};
  EXPECT_EQ(RunCommand(clear, "", kLongMs)->stdout_text, "ONLY=x=y\n");
}

TEST(ProcessTest, BackgroundChildrenAreNicerAndLeadASession) {
  ChildOptions options =
      Shell("cut -d' ' -f1,6,19 /proc/self/stat; cat /proc/self/autogroup || true");
  options.background = true;
  auto result = RunCommand(options, "", kLongMs);
  ASSERT_TRUE(result.ok()) << result.status();
  int pid = 0, session = 0, niceness = 0;
  ASSERT_EQ(sscanf(result->stdout_text.c_str(), "%d %d %d", &pid, &session, &niceness), 3)
      << result->stdout_text;
  EXPECT_EQ(niceness, std::min(19, getpriority(PRIO_PROCESS, 0) + 10));
  EXPECT_NE(session, getsid(0));
  EXPECT_GE(pid, session);
  // The kernel lets only root set this more often than ten times a second, all processes together.
  const auto group_niceness = [&] {
    const size_t group = result->stdout_text.find("nice ");
    return group == std::string::npos ? "" : result->stdout_text.substr(group);
  };
  for (int i = 0; i < 50 && geteuid() != 0 && group_niceness() == "nice 0\n"; ++i) {
    SleepMs(150);
    result = RunCommand(options, "", kLongMs);
    ASSERT_TRUE(result.ok()) << result.status();
  }
  EXPECT_THAT(group_niceness(), testing::AnyOf("", "nice 10\n"));
}

TEST(ProcessTest, NoStrayDescriptorsAndDefaultSignals) {
  // Without O_CLOEXEC, as some library would open it; a number that the shell does not use.
  constexpr int kLeaked = 200;
  ASSERT_EQ(dup2(STDERR_FILENO, kLeaked), kLeaked);
  absl::StatusOr<CommandResult> fds = RunCommand(Shell("echo /proc/$$/fd/*"), "", kLongMs);
  // Not through a shell, which blocks signals of its own while it waits.
  ChildOptions grep;
  grep.program = "/bin/grep";
  grep.args = {"-E", "SigIgn|SigBlk", "/proc/self/status"};
  absl::StatusOr<CommandResult> signals = RunCommand(grep, "", kLongMs);
  close(kLeaked);
  EXPECT_THAT(fds->stdout_text, testing::Not(HasSubstr("/fd/200")));
  EXPECT_THAT(fds->stdout_text, testing::ContainsRegex("/fd/2\\b"));
  EXPECT_THAT(signals->stdout_text, HasSubstr("SigBlk:\t0000000000000000"));
  EXPECT_THAT(signals->stdout_text, HasSubstr("SigIgn:\t0000000000000000"));
}

TEST(ProcessTest, StderrTailKeepsTheEnd) {
  absl::StatusOr<CommandResult> result = RunCommand(
      Shell("i=0; while [ $i -lt 30000 ]; do echo line $i; i=$((i+1)); done >&2"), "", kLongMs);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->stderr_text.size(), kStderrTailBytes);
  EXPECT_THAT(result->stderr_text, testing::EndsWith("line 29999\n"));
}

TEST(ProcessTest, UsageIsReported) {
  absl::StatusOr<CommandResult> result =
      RunCommand(Shell("i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done"), "", kLongMs);
  EXPECT_GT(result->status.user_s + result->status.system_s, 0.0);
  EXPECT_GT(result->status.max_rss_bytes, 100 << 10);
}

class FrameTest : public testing::Test {
 protected:
  FrameTest() {
    if (pipe(ends_) != 0) ends_[0] = ends_[1] = -1;
  }
  ~FrameTest() override {
    CloseReader();
    CloseWriter();
  }
  void CloseReader() {
    if (ends_[0] >= 0) close(ends_[0]);
    ends_[0] = -1;
  }
  void CloseWriter() {
    if (ends_[1] >= 0) close(ends_[1]);
    ends_[1] = -1;
  }
  void WriteRaw(std::string_view bytes) {
    ASSERT_EQ(write(ends_[1], bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  }
  int ends_[2] = {-1, -1};
};

TEST_F(FrameTest, FramesKeepTheirBorders) {
  const std::vector<std::string> frames = {"", "a", std::string("\0\n", 2), std::string(5000, 'x'),
                                           std::string(300'000, 'y')};
  std::thread writer([&] {
    for (const std::string& frame : frames) EXPECT_TRUE(WriteFrame(ends_[1], frame).ok());
    CloseWriter();
  });
  for (const std::string& frame : frames) EXPECT_EQ(*ReadFrame(ends_[0], 1 << 20), frame);
  const absl::Status end = ReadFrame(ends_[0], 1 << 20).status();
  EXPECT_EQ(Slug(end), "frame.read.closed");
  EXPECT_EQ(end.code(), absl::StatusCode::kUnavailable);
  writer.join();
}

TEST_F(FrameTest, TruncationAnywhereIsDataLoss) {
  const std::string whole("\x05\0\0\0hello", 9);
  for (size_t size = 1; size < whole.size(); ++size) {
    ASSERT_EQ(pipe(ends_), 0);
    WriteRaw(whole.substr(0, size));
    CloseWriter();
    EXPECT_EQ(Slug(ReadFrame(ends_[0], 100).status()), "frame.read.truncated") << size;
    CloseReader();
  }
}

TEST_F(FrameTest, HugeLengthIsRefusedWithoutReading) {
  WriteRaw(std::string("\xff\xff\xff\xff", 4));
  EXPECT_EQ(Slug(ReadFrame(ends_[0], 100).status()), "frame.read.too_large");
}

TEST_F(FrameTest, SilenceAndHalfAFrameTimeOut) {
  EXPECT_EQ(Slug(ReadFrame(ends_[0], 100, 10).status()), "frame.read.timeout");
  WriteRaw(std::string("\x05\0\0\0he", 6));
  const absl::Status late = ReadFrame(ends_[0], 100, 10).status();
  EXPECT_EQ(Slug(late), "frame.read.timeout");
  EXPECT_EQ(late.code(), absl::StatusCode::kDeadlineExceeded);
}

TEST_F(FrameTest, WriterLearnsThatTheReaderIsGone) {
  CloseReader();
  EXPECT_EQ(Slug(WriteFrame(ends_[1], "x")), "frame.write.closed");
}

TEST_F(FrameTest, TalksToAChildAndWriteTimesOutWhenItHangs) {
  ChildOptions options = Shell("exec cat");
  options.stdin_mode = Stdio::kPipe;
  options.stdout_mode = Stdio::kPipe;
  auto child = *Child::Start(options);
  for (int i = 0; i < 100; ++i) {
    const std::string message = StrCat("message ", i);
    ASSERT_TRUE(WriteFrame(child->stdin_fd(), message, kLongMs).ok());
    EXPECT_EQ(*ReadFrame(child->stdout_fd(), 100, kLongMs), message);
  }
  child->Kill(SIGSTOP);
  EXPECT_EQ(Slug(WriteFrame(child->stdin_fd(), std::string(1 << 20, 'x'), 50)),
            "frame.write.timeout");
  child->Kill(SIGKILL);
  EXPECT_EQ(child->Wait(kLongMs)->signal, SIGKILL);
  EXPECT_EQ(Slug(WriteFrame(child->stdin_fd(), "x")), "frame.write.closed");
}

// As `readelf -n` prints it: 40 digits of this program, whatever else is loaded.
TEST(BuildIdTest, IsTheNoteOfTheLinker) {
  const std::string id = BuildId();
  if (id.empty()) GTEST_SKIP() << "linked without a build ID";
  EXPECT_GE(id.size(), 16U);
  EXPECT_EQ(id, BuildId());
  const auto program = ReadFile("/proc/self/exe", uint64_t{1} << 30);
  ASSERT_TRUE(program.ok());
  std::string bytes;
  for (size_t i = 0; i < id.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(id.substr(i, 2), nullptr, 16));
  }
  EXPECT_NE(program->find(std::string("GNU\0", 4) + bytes), std::string::npos);
}

}  // namespace
}  // namespace tilewright::support
