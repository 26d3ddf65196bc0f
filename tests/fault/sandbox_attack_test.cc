// What a candidate's code may not reach: files, memory, limits and signals of a process that stands
// for a daemon. By the real worker under both profiles, as root and as an ordinary user (whose
// candidates keep its user id), while code is loaded and when it runs.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "deploy/module/kernel_module.h"
#include "deploy/runtime/code_loader.h"
#include "deploy/support/file.h"
#include "deploy/support/process.h"
#include "deploy/support/sanitizers.h"
#include "deploy/support/strings.h"
#include "device_agent/supervisor.h"
#include "tests/support/measured_kernels.h"
#include "tests/support/sandbox_attacks.h"
#include "tests/support/staged_programs.h"

namespace tilewright::device_agent {
namespace {

using support::StrCat;

constexpr uid_t kOrdinaryUser = 12'321;
constexpr char kSecret[TW_ATTACK_SECRET_BYTES] = "secret-of-the-daemon";

// A process with a secret in its memory and another in its file; of the worker's user.
class Victim {
 public:
  explicit Victim(uid_t user) : folder_(*support::TempDir::Create("victim")) {
    file_ = folder_.File("key.pem");
    EXPECT_TRUE(support::WriteFileAtomic(file_, kSecret, 0600).ok());
    const bool given =
        chown(file_.c_str(), user, user) == 0 && chown(folder_.path().c_str(), user, user) == 0;
    EXPECT_TRUE(given);
    pid_ = fork();
    if (pid_ != 0) return;
    if (setresgid(user, user, user) != 0 || setresuid(user, user, user) != 0) _exit(1);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    support::ForbidInspection();
    while (true) pause();
  }
  ~Victim() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  bool alive() const { return waitpid(pid_, nullptr, WNOHANG) == 0; }
  pid_t pid() const { return pid_; }
  const std::string& file() const { return file_; }

 private:
  support::TempDir folder_;
  std::string file_;
  pid_t pid_ = -1;
};

struct Case {
  const char* attack;
  bool on_load;
  const char* profile;
  bool root;
};

void PrintTo(const Case& row, std::ostream* out) { *out << row.attack; }

class SandboxAttackTest : public ::testing::TestWithParam<Case> {
 protected:
  struct Host {
    std::unique_ptr<Supervisor> supervisor;
    std::unique_ptr<Victim> victim;
    v1::WorkerReady ready;
    std::string why_not;
  };

  // One worker of each user and profile for all cases, as an agent has.
  static Host& HostOf(const std::string& profile, bool root) {
    auto& host = hosts_[{profile, root}];
    if (host == nullptr) host = std::make_unique<Host>(Start(profile, root));
    return *host;
  }
  static void SetUpTestSuite() { umask(077); }  // as daemons do
  static void TearDownTestSuite() {
    hosts_.clear();
    programs_.reset();
  }

  static Host Start(const std::string& profile, bool root) {
    Host host;
    if (root && geteuid() != 0) {
      host.why_not = "this test runs as an ordinary user";
      return host;
    }
    SupervisorOptions options;
    options.worker_path = *support::FindSibling("tilewright-worker");
    options.sandbox_profile = profile;
    options.threads = 1;
    options.allow_weak_sandbox = true;  // then the test says what is missing
    const uid_t user = root || geteuid() != 0 ? geteuid() : kOrdinaryUser;
    if (user != geteuid()) {
      if (programs_ == nullptr) {
        programs_ =
            std::make_unique<tests::StagedPrograms>(std::vector<std::string>{"tilewright-worker"});
      }
      options.bridge = StrCat("exec setpriv --reuid=", user, " --regid=", user,
                              " --clear-groups -- ", programs_->Path("tilewright-worker"));
    }
    host.supervisor = std::make_unique<Supervisor>(options);
    const auto ready = host.supervisor->Start();
    if (!ready.ok()) {
      host.why_not = support::StatusText(ready.status());
      return host;
    }
    host.ready = *ready;
    host.victim = std::make_unique<Victim>(user);
    return host;
  }

  static std::string Module(const AttackPlan& plan) {
    auto code = support::ReadFile(TILEWRIGHT_TEST_SANDBOX_ATTACKS, 16 << 20);
    EXPECT_TRUE(code.ok()) << code.status();
    const size_t at = code->find(TW_ATTACK_MAGIC);
    EXPECT_NE(at, std::string::npos);
    memcpy(code->data() + at, &plan, sizeof(plan));
    module::KernelModule made;
    made.name = plan.attack;
    made.target = "cpu,arch=x86_64,cpu=x86-64,threads=1";
    made.format = runtime::NativeCodeFormat();
    made.code = *std::move(code);
    made.inputs = {{"x", {1024}}};
    made.outputs = {{"y", {1024}}};
    module::Launch& launch = made.launches.emplace_back();
    launch.symbol = "tw_kernel_attack";
    launch.sizes = {1024};
    const auto bytes = module::SerializeKernelModule(made);
    EXPECT_TRUE(bytes.ok()) << bytes.status();
    return *bytes;
  }

  static v1::ModuleMeasured Measure(Host& host, const std::string& attack, bool on_load) {
    AttackPlan plan{};
    strcpy(plan.magic, TW_ATTACK_MAGIC);
    attack.copy(plan.attack, sizeof(plan.attack) - 1);
    host.victim->file().copy(plan.path, sizeof(plan.path) - 1);
    plan.address = reinterpret_cast<uint64_t>(kSecret);
    plan.pid = host.victim->pid();
    plan.on_load = on_load ? 1 : 0;
    MeasureInput input;
    input.module = Module(plan);
    input.expected = tests::KernelExpected();
    *input.work.mutable_inputs() = tests::KernelInputs();
    input.work.mutable_tolerance()->set_rel(1e-6);
    input.work.mutable_wall_limit()->set_seconds(20);
    *input.work.mutable_plan() = tests::ShortPlan();
    return host.supervisor->Measure(input);
  }

 private:
  static std::map<std::pair<std::string, bool>, std::unique_ptr<Host>> hosts_;
  static std::unique_ptr<tests::StagedPrograms> programs_;  // for the ordinary user
};

std::unique_ptr<tests::StagedPrograms> SandboxAttackTest::programs_;

std::map<std::pair<std::string, bool>, std::unique_ptr<SandboxAttackTest::Host>>
    SandboxAttackTest::hosts_;

TEST_P(SandboxAttackTest, TakesNothing) {
  const Case& row = GetParam();
  Host& host = HostOf(row.profile, row.root);
  if (host.victim == nullptr && row.root && geteuid() != 0) {
    GTEST_SKIP() << "[SKIP] " << host.why_not;
  }
  ASSERT_NE(host.victim, nullptr) << host.why_not;
  if (!host.ready.sandbox_full()) {
    GTEST_SKIP() << "[SKIP] this machine or build has no whole sandbox: "
                 << host.ready.sandbox_missing();
  }
  const v1::ModuleMeasured measured = Measure(host, row.attack, row.on_load);
  const std::string text = measured.DebugString();
  EXPECT_EQ(text.find("TAKEN"), std::string::npos) << text;
  EXPECT_EQ(text.find("secret-of"), std::string::npos) << text;
  EXPECT_TRUE(measured.outcome() == v1::OK || measured.error_class() == "SANDBOX") << text;
  EXPECT_TRUE(host.victim->alive()) << text;
  const v1::ModuleMeasured good = Measure(host, "none", true);
  EXPECT_EQ(good.outcome(), v1::OK) << good.DebugString();
  EXPECT_EQ(host.supervisor->restarts(), 0);
}

std::vector<Case> AllCases() {
  std::vector<Case> cases;
  for (const char* attack :
       {"read_file", "read_memory", "read_memory_by_call", "see_process", "see_file",
        "limit_process", "kill_process", "kill_thread", "open_process", "move_process",
        "own_descriptor", "signal_of_descriptor", "async_descriptor", "grow_pipe", "filter_by_call",
        "filter_by_prctl", "many_threads"}) {
    for (const bool on_load : {true, false}) {
      for (const char* profile : {"strict", "driver"}) {
        for (const bool root : {true, false}) cases.push_back({attack, on_load, profile, root});
      }
    }
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Attacks, SandboxAttackTest, ::testing::ValuesIn(AllCases()),
                         [](const auto& info) {
                           const Case& row = info.param;
                           return StrCat(row.attack, row.on_load ? "_loading_" : "_running_",
                                         row.profile, row.root ? "_root" : "_user");
                         });

// A kernel that permits no namespaces: a user namespace that may have no other, without rights.
// Where there can be none, this machine is such a kernel already.
TEST(WeakSandbox, IsRefusedUnlessAllowedAndSaysWhatItLacks) {
  SupervisorOptions options;
  const std::string worker = *support::FindSibling("tilewright-worker");
  options.bridge = StrCat(
      "if unshare --user --map-root-user true 2>/dev/null; then "
      "exec unshare --user --map-root-user sh -c 'echo 0 >/proc/sys/user/max_user_namespaces && "
      "exec setpriv --bounding-set=-all --inh-caps=-all -- ",
      worker, "'; else exec setpriv --bounding-set=-all --inh-caps=-all -- ", worker, "; fi");
  if (support::kSanitizerBuild) GTEST_SKIP() << "[SKIP] a sanitizer build has no sandbox";
  const absl::Status refused = Supervisor(options).Start().status();
  EXPECT_EQ(support::Slug(refused), "agent.sandbox.weak") << refused;
  EXPECT_NE(refused.ToString().find("namespaces"), std::string::npos) << refused;
  EXPECT_NE(refused.ToString().find("--allow-weak-sandbox"), std::string::npos) << refused;

  options.allow_weak_sandbox = true;
  Supervisor supervisor(options);
  const auto ready = supervisor.Start();
  ASSERT_TRUE(ready.ok()) << ready.status();
  EXPECT_TRUE(ready->sandboxed());
  EXPECT_FALSE(ready->sandbox_full());
  const std::string missing = ready->attributes().at("sandbox_missing").s();
  EXPECT_NE(missing.find("namespaces"), std::string::npos);
  const bool landlock = missing.find("Landlock") == std::string::npos;
  const std::string detail = ready->attributes().at("sandbox_detail").s();
  EXPECT_EQ(detail.find("Landlock") != std::string::npos, landlock) << detail;
}

}  // namespace
}  // namespace tilewright::device_agent
