// The attacks of tests/support/attacks.def, by the real worker binary, under both profiles of the
// sandbox, while the code is loaded and when it runs. Each must end as an outcome of the protocol;
// nothing that belongs to others may be read, changed or ended; the next candidate is measured as
// if nothing had happened. A dozen by default; all with TILEWRIGHT_ATTACKS=all
// (tests/long/attacks.py, which reads the lines that begin with "attack:").
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "deploy/support/clock.h"
#include "deploy/support/file.h"
#include "deploy/support/hash.h"
#include "deploy/support/process.h"
#include "deploy/support/strings.h"
#include "device_agent/control_group.h"
#include "device_agent/supervisor.h"
#include "tests/support/measured_kernels.h"
#include "tests/support/staged_programs.h"

namespace tilewright::device_agent {
namespace {

using support::StrCat;

constexpr int64_t kMemoryLimit = int64_t{512} << 20;
constexpr int64_t kMostGrowthBytes = int64_t{200} << 20;
constexpr char kMarkFile[] = "/tmp/tilewright_attack";

constexpr std::array kAttacks = {
#define ATTACK(attack) #attack,
#include "tests/support/attacks.def"
#undef ATTACK
};

// What CI proves each time: one of each way.
constexpr std::array<std::string_view, 12> kQuick = {
    "read_shadow",    "kill_parent",      "kill_by_pidfd", "trace_parent",
    "peek_at_parent", "exec_shell",       "fork_away",     "use_network",
    "remove_secret",  "many_descriptors", "speak_first",   "terminal_words"};

constexpr std::array kAttacksInGroup = {
#define ATTACK(attack)
#define ATTACK_IN_GROUP(attack) #attack,
#include "tests/support/attacks.def"
#undef ATTACK
};

bool Wanted(std::string_view attack) {
  const char* which = getenv("TILEWRIGHT_ATTACKS");
  if (which == nullptr) return std::find(kQuick.begin(), kQuick.end(), attack) != kQuick.end();
  return std::string_view(which) == "all" || which == attack;
}

// Resident memory of the processes that this one started.
int64_t WorkersBytes() {
  int64_t pages = 0;
  const auto children =
      support::ReadFile(StrCat("/proc/self/task/", getpid(), "/children"), 1 << 16);
  for (const std::string& pid : support::Split(children.value_or(""), ' ')) {
    const auto statm = support::ReadFile(StrCat("/proc/", pid, "/statm"), 4096);
    const std::vector<std::string> words = support::Split(statm.value_or(""), ' ');
    if (words.size() > 1) pages += support::ParseInt64(words[1]).value_or(0);
  }
  return pages * sysconf(_SC_PAGESIZE);
}

// What an attack is after: a file of this user's, and a process of this user's.
class Prey {
 public:
  Prey() {
    auto folder = support::TempDir::Create("tw_prey");
    TW_CHECK(folder.ok()) << support::StatusText(folder.status());
    folder_ = std::make_unique<support::TempDir>(*std::move(folder));
    secret_ = "SECRET-" + support::Sha256Hex(StrCat(getpid(), support::SystemClock().NowNs()));
    TW_CHECK(support::WriteFileAtomic(file(), secret_, 0600).ok());
    support::ChildOptions options;
    options.program = "/bin/sleep";
    options.args = {"3600"};
    options.env = {{"TW_SECRET", secret_}};
    auto victim = support::Child::Start(options);
    TW_CHECK(victim.ok()) << support::StatusText(victim.status());
    victim_ = *std::move(victim);
    placed_ = Placed();
  }
  ~Prey() {
    victim_->Kill(SIGKILL);
    (void)victim_->Wait(5000);
  }
  std::string file() const { return folder_->File("secret"); }
  int64_t victim() const { return victim_->pid(); }
  // The part that an answer must not contain.
  std::string marks() const { return secret_.substr(0, 24); }

  // Empty, or what has happened to it.
  std::string Harm() const {
    if (victim_->Wait(0).ok()) return "the victim was ended";
    const auto limits = support::ReadFile(StrCat("/proc/", victim(), "/limits"), 1 << 16);
    for (const char* name : {"Max cpu time", "Max address space"}) {
      const size_t at = limits.value_or("").find(name);
      if (at == std::string::npos) return "the victim is gone";
      if (limits->substr(at, 40).find(" 0 ") != std::string::npos) return "the victim was limited";
    }
    if (Placed() != placed_) return "the victim was slowed down or moved";
    if (support::ReadFile(file(), 4096).value_or("") != secret_) return "the secret was changed";
    if (support::FileExists(kMarkFile)) return "a file was written";
    return "";
  }

 private:
  // Niceness and number of cores of the victim.
  std::pair<int, int> Placed() const {
    cpu_set_t cores;
    CPU_ZERO(&cores);
    sched_getaffinity(static_cast<pid_t>(victim()), sizeof(cores), &cores);
    return {getpriority(PRIO_PROCESS, static_cast<id_t>(victim())), CPU_COUNT(&cores)};
  }

  std::unique_ptr<support::TempDir> folder_;
  std::string secret_;
  std::shared_ptr<support::Child> victim_;
  std::pair<int, int> placed_;
};

class AttackCorpus : public ::testing::TestWithParam<const char*> {
 protected:
  void Start() {
    const auto path = support::FindSibling("tilewright-worker");
    ASSERT_TRUE(path.ok()) << path.status();
    SupervisorOptions options;
    options.worker_path = *path;
    options.allow_weak_sandbox = true;  // what a container permits is tested
    options.memory_limit_bytes = kMemoryLimit;
    options.threads = 2;
    options.sandbox_profile = GetParam();
    worker_ = std::make_unique<Supervisor>(options);
    const auto ready = worker_->Start();
    ASSERT_TRUE(ready.ok()) << ready.status();
    if (!ready->sandboxed()) {
      GTEST_SKIP() << "[SKIP] no sandbox in this machine or build: " << ready->sandbox_detail();
    }
    prey_ = std::make_unique<Prey>();
  }

  v1::ModuleMeasured Measure(const std::string& code) {
    MeasureInput input;
    tests::KernelOptions options;
    options.code = code;
    input.module = tests::KernelModule(code.empty() ? "honest" : "attack", options);
    input.expected = tests::KernelExpected();
    *input.work.mutable_inputs() = tests::KernelInputs();
    input.work.mutable_tolerance()->set_rel(1e-6);
    input.work.mutable_wall_limit()->set_seconds(code.empty() ? 20 : 4);
    *input.work.mutable_plan() = tests::ShortPlan();
    return worker_->Measure(input);
  }

  // Empty, or what is wrong with the answer or with what is left.
  std::string Wrong(const v1::ModuleMeasured& answer, int64_t bytes_before) {
    const std::string text = answer.DebugString();
    if (text.find("LOOT") != std::string::npos || text.find(prey_->marks()) != std::string::npos) {
      return "it got hold of something: " + answer.error_detail();
    }
    if (answer.outcome() == v1::OUTCOME_UNSPECIFIED || answer.outcome() == v1::CANCELLED ||
        answer.outcome() == v1::DEVICE_LOST) {
      return "no outcome of a candidate";
    }
    for (const char c : answer.error_detail()) {
      if (c != '\n' && (c < ' ' || c > '~')) return "control characters in the answer";
    }
    const std::string harm = prey_->Harm();
    if (!harm.empty()) return harm;
    const v1::ModuleMeasured honest = Measure("");
    if (honest.outcome() != v1::OK) return "the next one fails: " + honest.ShortDebugString();
    if (worker_->restarts() > 0) return "the worker did not survive";
    const int64_t grown = WorkersBytes() - bytes_before;
    return grown > kMostGrowthBytes ? StrCat("the worker has grown by ", grown) : "";
  }

  void Try(const char* attack, char when) {
    const int64_t before = WorkersBytes();
    const v1::ModuleMeasured answer =
        Measure(tests::AttackCode(attack, when, prey_->file(), prey_->victim()));
    const std::string wrong = Wrong(answer, before);
    std::printf("attack: %s %c %s uid=%d %s %s %s\n", attack, when, GetParam(), getuid(),
                v1::Outcome_Name(answer.outcome()).c_str(),
                answer.error_class().empty() ? "-" : answer.error_class().c_str(),
                wrong.empty() ? "ok" : ("FAILED " + support::Quote(wrong, 400)).c_str());
    std::fflush(stdout);
    EXPECT_EQ(wrong, "") << attack << " " << when;
    if (wrong.empty()) return;
    worker_.reset();  // what is broken is not held against the next one
    (void)support::RemoveFile(kMarkFile);
    Start();
  }

  std::unique_ptr<Supervisor> worker_;
  std::unique_ptr<Prey> prey_;
};

TEST_P(AttackCorpus, EndsTypedAndHarmsNobody) {
  (void)support::RemoveFile(kMarkFile);
  Start();
  if (IsSkipped() || HasFatalFailure()) return;
  for (const char* attack : kAttacks) {
    if (!Wanted(attack)) continue;
    for (const char when : {'L', 'K'}) {
      Try(attack, when);
      if (HasFatalFailure()) return;
    }
  }
}

// By the group's account, most of what its processes ever had.
int64_t PeakOfGroup() {
  const auto own = support::ReadFile("/proc/self/cgroup", 4096);
  const std::string path = own->substr(own->find("0::") + 3);
  int64_t most = 0;
  const std::string folder = "/sys/fs/cgroup" + support::DirName(std::string(support::Trim(path)));
  for (const std::string& name : *support::ListDir(folder)) {
    if (!name.starts_with("worker-")) continue;
    const auto text = support::ReadFile(StrCat(folder, "/", name, "/memory.peak"), 4096);
    most = std::max(most, support::ParseInt64(support::Trim(text.value_or(""))).value_or(0));
  }
  return most;
}

TEST_P(AttackCorpus, AControlGroupBoundsAllProcessesTogether) {
  const auto divided = DivideControlGroup();
  ASSERT_TRUE(divided.ok()) << divided.status();
  if (!*divided) GTEST_SKIP() << "[SKIP] no control group was delegated (see tests/long/units.py)";
  Start();
  if (IsSkipped() || HasFatalFailure()) return;
  for (const char* attack : kAttacksInGroup) Try(attack, 'L');
  EXPECT_EQ(worker_->restarts(), 0);
  EXPECT_LE(PeakOfGroup(), 2 * kMemoryLimit + (int64_t{512} << 20));
  EXPECT_GT(PeakOfGroup(), 0);
}

INSTANTIATE_TEST_SUITE_P(Profiles, AttackCorpus, ::testing::Values("strict", "driver"),
                         [](const auto& info) { return std::string(info.param); });

// The same by an ordinary user, as whom the packaged units run the agent.
TEST(AttackCorpusOfAUser, EndsTypedAndHarmsNobody) {
  if (geteuid() != 0) GTEST_SKIP() << "[SKIP] this is an ordinary user already";
  const tests::StagedPrograms programs({"attack_corpus_test", "tilewright-worker"});
  support::ChildOptions options;
  options.program = "/usr/bin/setpriv";
  options.args = {"--reuid=65534", "--regid=65534", "--clear-groups",
                  programs.Path("attack_corpus_test"), "--gtest_filter=*AttackCorpus.*"};
  options.env = {{"HOME", "/tmp"}};
  if (!support::FileExists(options.program)) GTEST_SKIP() << "[SKIP] there is no setpriv";
  const auto child = support::Child::Start(options);
  ASSERT_TRUE(child.ok()) << child.status();
  const auto ended = (*child)->Wait(30 * 60 * 1000);
  ASSERT_TRUE(ended.ok()) << ended.status();
  EXPECT_TRUE(ended->ok()) << ended->ToString() << (*child)->stderr_tail();
}

}  // namespace
}  // namespace tilewright::device_agent
