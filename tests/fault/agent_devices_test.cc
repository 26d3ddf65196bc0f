// One agent with several devices, and devices behind a bridge: a command whose standard streams
// lead to a worker that is no descendant of the agent. Real tracker, agent and workers; the place
// of ssh or adb is taken by named pipes to a "device" of this test, in a process tree of its own.
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "deploy/support/file.h"
#include "deploy/support/process.h"
#include "deploy/support/strings.h"
#include "device_agent/supervisor.h"
#include "tests/fault/loopback_fleet.h"

namespace tilewright::device_agent {
namespace {

using support::StrCat;
using tests::LoopbackConsumer;
using tests::LoopbackDaemon;
using tests::WaitFor;

std::vector<int> UsableCoreNumbers() {
  cpu_set_t set;
  CPU_ZERO(&set);
  sched_getaffinity(0, sizeof(set), &set);
  std::vector<int> cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &set)) cores.push_back(core);
  }
  return cores;
}

// Processor time of the children of a process, those that ended not counted.
double ChildSeconds(pid_t parent) {
  double ticks = 0;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", error)) {
    const std::string path = support::PathJoin(entry.path().string(), "stat");
    const std::string text = support::ReadFile(path, 4096).value_or("");
    const size_t name_end = text.rfind(')');  // the name may hold anything
    if (name_end == std::string::npos) continue;
    std::istringstream fields(text.substr(name_end + 1));
    std::string state, skipped;
    pid_t of = 0;
    fields >> state >> of;
    for (int i = 0; i < 9; ++i) fields >> skipped;  // group .. cmajflt
    double user = 0, system = 0;
    fields >> user >> system;
    if (of == parent) ticks += user + system;
  }
  return ticks / static_cast<double>(sysconf(_SC_CLK_TCK));
}

// A machine beyond a bridge: whoever announces two pipes to its door gets a worker on them. Like
// sshd's, its processes are not the agent's.
class FarDevice {
 public:
  FarDevice(const support::TempDir& dir, const std::string& name)
      : door_(dir.File(name + ".door")), pid_file_(dir.File(name)) {
    EXPECT_EQ(mkfifo(door_.c_str(), 0600), 0);
    const std::string worker = support::FindSibling("tilewright-worker").value();
    support::ChildOptions options;
    options.program = "/bin/sh";
    options.args = {
        "-c", StrCat("exec 5<> ", door_, "; while read pipe <&5; do sh -c 'echo $$ > ", pid_file_,
                     "; exec ", worker, "' < $pipe.in > $pipe.out 5<&-; echo gone >> ", pid_file_,
                     ".ends; done")};
    auto child = support::Child::Start(options);
    EXPECT_TRUE(child.ok()) << child.status();
    child_ = *std::move(child);
  }

  // What stands after "bridge=".
  std::string bridge() const {
    return StrCat("pipe=", door_, ".$$; mkfifo $pipe.in $pipe.out; echo $pipe > ", door_,
                  "; exec 3> $pipe.in; exec 4<&0; cat <&4 >&3 & exec 3>&-; exec cat < $pipe.out");
  }

  // Of the worker that runs now; 0 before the first.
  pid_t worker() const {
    const std::string text(support::Trim(support::ReadFile(pid_file_, 100).value_or("")));
    return static_cast<pid_t>(support::ParseInt64(text).value_or(0));
  }
  // How many workers have ended.
  size_t ends() const {
    return support::Split(support::ReadFile(pid_file_ + ".ends", 100'000).value_or(""), '\n')
               .size() -
           1;
  }

 private:
  std::string door_;
  std::string pid_file_;
  std::unique_ptr<support::Child> child_;
};

MeasureInput InputOf(const std::string& kernel) {
  MeasureInput input;
  input.module = tests::KernelModule(kernel);
  input.expected = tests::KernelExpected();
  *input.work.mutable_inputs() = tests::KernelInputs();
  input.work.mutable_tolerance()->set_rel(1e-6);
  input.work.mutable_wall_limit()->set_seconds(20);
  *input.work.mutable_plan() = tests::ShortPlan();
  return input;
}

class BridgeTest : public ::testing::Test {
 protected:
  BridgeTest() : dir_(*support::TempDir::Create("bridge")) {}

  static SupervisorOptions Behind(const std::string& bridge) {
    SupervisorOptions options;
    options.worker_path = "/nonexistent/worker";  // only the bridge leads to one
    options.device = "devices/far";
    options.allow_weak_sandbox = true;  // what a container permits is tested
    options.bridge = bridge;
    return options;
  }

  support::TempDir dir_;
};

TEST_F(BridgeTest, AWorkerElsewhereMeasures) {
  const FarDevice far(dir_, "far");
  Supervisor supervisor(Behind(far.bridge()));
  const auto ready = supervisor.Start();
  ASSERT_TRUE(ready.ok()) << ready.status();
  EXPECT_EQ(ready->attributes().at("kind").s(), "cpu");
  EXPECT_GT(ready->attributes().at("peak_gflops").d(), 1);
  EXPECT_EQ(supervisor.Measure(InputOf("honest")).outcome(), v1::OK);
  EXPECT_EQ(supervisor.Measure(InputOf("wrong")).outcome(), v1::WRONG_RESULT);
  EXPECT_EQ(supervisor.Measure(InputOf("crash")).outcome(), v1::RUN_CRASH);
  const v1::ModuleMeasured measured = supervisor.Measure(InputOf("honest"));
  EXPECT_EQ(measured.outcome(), v1::OK) << measured.DebugString();
  EXPECT_GT(measured.telemetry().load_average() + measured.telemetry().clock_mhz(), 0)
      << "the far host's state, told by its worker";
  EXPECT_EQ(supervisor.restarts(), 0);
}

TEST_F(BridgeTest, ADeadFarSideIsTheDevicesFaultAndTheNextOneIsUsed) {
  const FarDevice far(dir_, "far");
  Supervisor supervisor(Behind(far.bridge()));
  ASSERT_TRUE(supervisor.Start().ok());
  ASSERT_EQ(supervisor.Measure(InputOf("honest")).outcome(), v1::OK);
  const pid_t first = far.worker();
  ASSERT_GT(first, 0);
  MeasureInput hanging = InputOf("hang");
  hanging.work.mutable_wall_limit()->set_seconds(tests::Patiently(120));
  // Preparing takes less: what has computed for so long is the candidate itself.
  std::thread killer([first] {
    EXPECT_TRUE(WaitFor([first] { return ChildSeconds(first) > 0.5; }, 60'000));
    kill(first, SIGKILL);
  });
  const v1::ModuleMeasured lost = supervisor.Measure(hanging);
  killer.join();
  EXPECT_EQ(lost.outcome(), v1::DEVICE_LOST) << lost.DebugString();
  EXPECT_EQ(lost.error_class(), "BRIDGE");
  EXPECT_EQ(lost.phase(), v1::WORKER_PHASE_FIRST_RUN) << "a candidate ran: the tracker weighs it";
  EXPECT_TRUE(supervisor.broken());
  EXPECT_EQ(support::Slug(supervisor.trouble()), "agent.bridge.failed");
  EXPECT_EQ(supervisor.Measure(InputOf("honest")).outcome(), v1::OK);
  EXPECT_NE(far.worker(), first);
}

TEST_F(BridgeTest, TheFarWorkerEndsWithItsAgent) {
  const FarDevice far(dir_, "far");
  auto supervisor = std::make_unique<Supervisor>(Behind(far.bridge()));
  ASSERT_TRUE(supervisor->Start().ok());
  ASSERT_EQ(supervisor->Measure(InputOf("honest")).outcome(), v1::OK);
  EXPECT_EQ(far.ends(), 0u);
  supervisor.reset();
  EXPECT_TRUE(WaitFor([&] { return far.ends() == 1; }));
}

TEST_F(BridgeTest, FailuresOfTheCommandSayWhatToDo) {
  const auto failure = [](const std::string& bridge) {
    Supervisor supervisor(Behind(bridge));
    return supervisor.Start().status();
  };
  const absl::Status ended = failure("echo 'no route to host' >&2; exit 3");
  EXPECT_EQ(support::Slug(ended), "agent.bridge.failed");
  EXPECT_NE(ended.ToString().find("exit code 3"), std::string::npos) << ended;
  EXPECT_NE(ended.ToString().find("no route to host"), std::string::npos) << ended;
  const absl::Status greeted = failure("echo 'Welcome to bench-3, last login Monday'; cat");
  EXPECT_EQ(support::Slug(greeted), "agent.bridge.garbled") << greeted;
  const absl::Status unnamed = failure("test \"$DEVICE\" = devices/far && echo named >&2; exit 1");
  EXPECT_NE(unnamed.ToString().find("named"), std::string::npos) << unnamed;
}

TEST_F(BridgeTest, AnotherDeviceAtTheEndOfTheBridgeGetsNoWorkByMistake) {
  // The same far side, but pinned to one core once the file is there: another fingerprint.
  const std::vector<int> cores = UsableCoreNumbers();
  if (cores.size() < 2) GTEST_SKIP() << "[SKIP] one core: nothing to tell two devices apart by";
  const std::string swapped = dir_.File("swapped");
  const std::string worker = support::FindSibling("tilewright-worker").value();
  Supervisor supervisor(Behind(StrCat("if [ -e ", swapped, " ]; then exec taskset -c ", cores[0],
                                      " ", worker, "; else exec ", worker, "; fi")));
  const auto before = supervisor.Start();
  ASSERT_TRUE(before.ok()) << before.status();
  ASSERT_TRUE(support::WriteFileAtomic(swapped, "").ok());
  MeasureInput input = InputOf("honest");
  supervisor.Abort();  // the next measurement needs a new worker
  EXPECT_EQ(supervisor.Measure(input).outcome(), v1::CANCELLED);
  const v1::ModuleMeasured other = supervisor.Measure(input);
  EXPECT_EQ(other.outcome(), v1::DEVICE_LOST) << other.DebugString();
  EXPECT_NE(other.error_detail().find("another device"), std::string::npos) << other.error_detail();
  EXPECT_TRUE(supervisor.broken());
  const auto after = supervisor.Start();  // as the agent does, which then reports what it found
  ASSERT_TRUE(after.ok()) << after.status();
  EXPECT_EQ(after->attributes().at("cores").i(), 1);
  EXPECT_EQ(supervisor.Measure(input).outcome(), v1::OK);
}

class AgentDevicesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    dir_ = std::make_unique<support::TempDir>(*support::TempDir::Create("agent_devices"));
    tracker_ = std::make_unique<LoopbackDaemon>(
        "tilewright-tracker", dir_->File("tracker"),
        std::vector<std::string>{"--lease-ttl-ms", "3000", "--recovery-ms", "1000"});
    tracker_->Start({"--listen", "127.0.0.1:0"});
    ASSERT_TRUE(tracker_->Ready()) << tracker_->log();
    consumer_.Connect(tracker_->Address());
  }

  std::unique_ptr<LoopbackDaemon> MakeAgent(const std::vector<std::string>& devices) {
    std::vector<std::string> args = {"--tracker", tracker_->Address(), "--name",
                                     "many",      "--sync-hold-ms",    "1000"};
    for (const std::string& device : devices) {
      args.push_back("--device");
      args.push_back(device);
    }
    return std::make_unique<LoopbackDaemon>("tilewright-agent", dir_->File("many"), args);
  }

  // Runs `count` honest candidates that want the label `side=NAME`.
  void SubmitFor(const std::string& name, int count) {
    std::vector<v1::WorkItem> items;
    for (int i = 0; i < count; ++i) {
      items.push_back(consumer_.Item(StrCat("w-", name, "-", i), "honest"));
      items.back().set_selector("side=" + name);
    }
    consumer_.Submit(items);
  }

  std::unique_ptr<support::TempDir> dir_;
  std::unique_ptr<LoopbackDaemon> tracker_;
  LoopbackConsumer consumer_;
};

TEST_F(AgentDevicesTest, EachHasItsOwnFingerprintAndLeasesAndABrokenOneStopsNobody) {
  const std::vector<int> cores = UsableCoreNumbers();
  if (cores.size() < 2) GTEST_SKIP() << "[SKIP] two pinned devices need two cores";
  const FarDevice far(*dir_, "far");
  const std::string cable = dir_->File("cable");  // plugged in later
  const std::string worker = support::FindSibling("tilewright-worker").value();
  auto agent =
      MakeAgent({StrCat("cpu,name=left,cores=", cores[0], ",label.side=left"),
                 StrCat("cpu,name=right,cores=", cores[1], ",pool=special,label.side=right"),
                 StrCat("cpu,name=far,label.side=far,bridge=", far.bridge()),
                 StrCat("cpu,name=loose,label.side=loose,bridge=test -e ", cable,
                        " || { echo 'no such device' >&2; exit 1; }; exec ", worker)});
  agent->Start();
  ASSERT_TRUE(agent->Ready()) << agent->log();

  const v1::Device left = consumer_.Device("devices/many-left");
  const v1::Device right = consumer_.Device("devices/many-right");
  EXPECT_EQ(left.attributes().at("cores").i(), 1);
  EXPECT_EQ(left.fingerprint(), right.fingerprint()) << "equal cores share measurements";
  EXPECT_NE(left.fingerprint(), consumer_.Device("devices/many-far").fingerprint())
      << "more cores are another device";
  EXPECT_EQ(right.pool(), "special");
  const v1::Device loose = consumer_.Device("devices/many-loose");
  EXPECT_EQ(loose.health(), v1::HEALTH_DEGRADED);
  ASSERT_EQ(loose.conditions_size() > 0, true) << loose.DebugString();
  EXPECT_NE(loose.DebugString().find("no such device"), std::string::npos) << loose.DebugString();

  for (const char* name : {"left", "right", "far", "loose"}) SubmitFor(name, 4);
  ASSERT_TRUE(consumer_.PullUntil(12)) << agent->log();
  std::map<std::string, int> by_device;
  for (const auto& [name, update] : consumer_.finals()) {
    EXPECT_EQ(update.result().outcome(), v1::OK) << update.DebugString();
    ++by_device[update.result().device()];
  }
  EXPECT_EQ(by_device,
            (std::map<std::string, int>{
                {"devices/many-left", 4}, {"devices/many-right", 4}, {"devices/many-far", 4}}));

  ASSERT_TRUE(support::WriteFileAtomic(cable, "").ok());
  ASSERT_TRUE(consumer_.PullUntil(16)) << agent->log();
  EXPECT_EQ(consumer_.Device("devices/many-loose").health(), v1::HEALTH_GOOD);

  // A far side that dies is found out, comes back by itself, and costs its work one more attempt.
  kill(far.worker(), SIGKILL);
  std::vector<v1::WorkItem> more;
  for (int i = 0; i < 3; ++i) {
    more.push_back(consumer_.Item(StrCat("again-", i), "honest"));
    more.back().set_selector("device=many-far");
  }
  consumer_.Submit(more);
  ASSERT_TRUE(consumer_.PullUntil(19)) << agent->log();
  for (int i = 0; i < 3; ++i) {
    const v1::WorkUpdate& update = consumer_.finals().at(StrCat("again-", i));
    EXPECT_EQ(update.result().outcome(), v1::OK) << update.DebugString();
  }
  const size_t ends = far.ends();
  EXPECT_EQ(agent->End().exit_code, 0) << agent->log();
  EXPECT_TRUE(WaitFor([&] { return far.ends() == ends + 1; })) << "its worker ends with it";
}

TEST_F(AgentDevicesTest, AnAgentWithoutAnyWorkingDeviceEndsAndSaysWhy) {
  auto agent = MakeAgent({"cpu,bridge=echo 'no cable' >&2; exit 1"});
  agent->Start();
  EXPECT_EQ(agent->End(0).exit_code, 69) << "unavailable: systemd starts it again";
  EXPECT_NE(agent->log().find("no cable"), std::string::npos) << agent->log();
}

}  // namespace
}  // namespace tilewright::device_agent
