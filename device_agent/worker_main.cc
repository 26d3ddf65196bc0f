// tilewright-worker: the agent's measuring child. Reads requests from standard input, answers on
// standard output (frames of proto/tilewright/v1/worker.proto), measures each candidate in a
// process of its own.
#include <malloc.h>
#include <sched.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "deploy/peaks/fma_peak.h"
#include "deploy/runtime/cpu_info.h"
#include "deploy/runtime/device_loader.h"
#include "deploy/support/clock.h"
#include "deploy/support/file.h"
#include "deploy/support/frame_io.h"
#include "deploy/support/measure_units.h"
#include "deploy/support/process.h"
#include "deploy/support/protocol_revision.h"
#include "deploy/support/strings.h"
#include "deploy/support/version.h"
#include "device_agent/control_group.h"
#include "device_agent/cycle_counter.h"
#include "device_agent/device_facts.h"
#include "device_agent/device_probe.h"
#include "device_agent/driver_profile.h"
#include "device_agent/host_state.h"
#include "device_agent/measure_child.h"
#include "device_agent/output_judge.h"
#include "device_agent/quiet_reference.h"
#include "device_agent/sandbox.h"
#include "device_agent/sandboxed_run.h"
#include "device_agent/self_test.h"
#include "device_agent/self_test_module.h"
#include "tilewright/v1/worker.pb.h"

namespace tilewright::device_agent {
namespace {

constexpr size_t kMaxRequestBytes = size_t{2} << 30;
constexpr int kProbesAtStart = 500;
constexpr int kProbesPerJob = 10;
constexpr int64_t kPeakRoundMs = 40;
// Frames are read in pieces of this size; of larger ones copies are left.
constexpr size_t kManyBytes = size_t{4} << 20;
constexpr int kExitUsage = 64;
constexpr int kExitProtocol = 76;

class Worker {
 public:
  // `counter` is read in place of the processor's clocks; null: those.
  explicit Worker(std::optional<CycleCounter> counter) : counter_(counter) {}

  // The exit code.
  int Run() {
    while (true) {
      auto frame = support::ReadFrame(STDIN_FILENO, kMaxRequestBytes, -1);
      if (!frame.ok()) {
        if (absl::IsUnavailable(frame.status())) return 0;  // the agent closed the stream
        std::cerr << "error: " << support::StatusText(frame.status()) << "\n";
        return kExitProtocol;
      }
      v1::WorkerRequest request;
      if (!request.ParseFromString(*frame)) {
        std::cerr << "error: worker.request.invalid: expected a WorkerRequest\n";
        return kExitProtocol;
      }
      if (request.has_measure()) explicit_bzero(frame->data(), frame->size());
      frame->clear();
      frame->shrink_to_fit();
      id_ = request.id();
      if (request.has_quit()) return 0;
      if (request.has_measure()) {
        if (!MeasureSlot(request.mutable_measure())) return 0;
      } else if (!Send(Answer(&request))) {
        return 0;
      }
    }
  }

 private:
  bool Send(v1::WorkerReply reply) {
    reply.set_id(id_);
    return support::WriteFrame(STDOUT_FILENO, reply.SerializeAsString(), -1).ok();
  }

  v1::WorkerReply Answer(v1::WorkerRequest* request) {
    switch (request->request_case()) {
      case v1::WorkerRequest::kHello:
        return Hello(request->hello());
      case v1::WorkerRequest::kLoad:
        modules_[request->load().slot()] = std::move(*request->mutable_load()->mutable_module());
        return Loaded(request->load().slot());
      case v1::WorkerRequest::kUnload:
        modules_.erase(request->unload().slot());
        return Loaded(request->unload().slot());
      case v1::WorkerRequest::kRun:
        return Ran(request->run());
      default:
        return Error("worker.request.unknown",
                     "expected hello, load, measure, unload, run or quit");
    }
  }

  v1::WorkerReply Ran(const v1::RunModule& request) {
    const auto module = modules_.find(request.slot());
    if (module == modules_.end())
      return Error("worker.slot.empty", "expected a module in the slot");
    if (!sandboxed_ && !request.allow_unconfined()) {
      return Error("run.sandbox.unavailable", "the sandbox is not in force");
    }
    SandboxSpec sandbox = Sandbox();
    sandbox.limits.memory_bytes = memory_limit_bytes_;
    sandbox.limits.code_bytes = static_cast<int64_t>(module->second.size());
    auto ran = RunInSandbox(module->second, request, sandbox, sandboxed_,
                            counter_.has_value() ? &*counter_ : nullptr);
    if (!ran.ok()) return Error(support::Slug(ran.status()), support::Detail(ran.status()));
    v1::WorkerReply reply;
    *reply.mutable_ran() = *std::move(ran);
    return reply;
  }

  static v1::WorkerReply Loaded(const std::string& slot) {
    v1::WorkerReply reply;
    reply.mutable_loaded()->set_slot(slot);
    return reply;
  }

  static v1::WorkerReply Error(const std::string& slug, const std::string& detail) {
    v1::WorkerReply reply;
    reply.mutable_error()->set_slug(slug);
    reply.mutable_error()->set_detail(detail);
    return reply;
  }

  v1::WorkerReply Hello(const v1::WorkerHello& hello) {
    const absl::Status chosen = Choose(hello);
    if (!chosen.ok()) return Error("worker.device.refused", support::StatusText(chosen));
    memory_limit_bytes_ = hello.memory_limit_bytes();
    if (!confined_) {
      group_ = WorkerGroup::Enter();
      RaiseOomScore(kWorkerOomScore);
    }
    const bool bounded = group_.has_value() && group_->Limit(memory_limit_bytes_);
    if (!Pin(hello)) return Error("worker.cores.refused", "the cores cannot be used");
    const runtime::CpuInfo cpu = runtime::DetectCpu();  // sees the cores it is pinned to
    threads_ = hello.threads() > 0 ? hello.threads() : cpu.cores_usable;
    if (hello.describe() && !device_.has_value() && !confined_) {  // with threads of its own
      peaks_.gflops = peaks::MeasureFmaPeak(cpu, cpu.cores_usable, kPeakRoundMs);
      peaks_.int8_gops = peaks::MeasureInt8Peak(cpu, cpu.cores_usable, kPeakRoundMs);
    }
    if (hello.describe() || device_.has_value()) {
      absl::StatusOr<std::string> self_test =
          device_.has_value() ? SelfTestModule(plugin_->table()) : SelfTestModule();
      if (!self_test.ok())
        return Error("worker.self_test", support::StatusText(self_test.status()));
      modules_[kSelfTestSlot] = *std::move(self_test);
    }
    Probe(kProbesAtStart);
    const absl::Status scratch = Confine();
    if (!scratch.ok()) return Error("worker.scratch", support::StatusText(scratch));
    SandboxProbe probe = ProbeSandbox(profile_, jail_);
    if (bounded) probe.detail += ", control group";
    sandboxed_ = probe.sandboxed;
    landlock_ = probe.landlock;
    v1::WorkerReply reply;
    v1::WorkerReady* ready = reply.mutable_ready();
    ready->set_protocol_revision(support::kProtocolRevision);
    ready->set_software_version(support::Version());
    ready->set_sandboxed(probe.sandboxed);
    ready->set_sandbox_detail(probe.detail);
    ready->set_sandbox_full(probe.missing.empty());
    ready->set_sandbox_missing(probe.missing);
    if (!device_.has_value()) {
      *ready->mutable_attributes() = CpuAttributes(cpu, ReadHostFacts(), peaks_);
      if (counter_.has_value()) (*ready->mutable_attributes())["unit"].set_s("virtual_cycles");
    } else {
      auto found = ProbeDevice(*device_, Sandbox(), ScratchParent(), sandboxed_);
      if (!found.ok()) return Error("worker.device.broken", support::StatusText(found.status()));
      *ready->mutable_attributes() = *std::move(found);
      if (runtime::SelfTestOf(plugin_->table()) == nullptr)
        (*ready->mutable_attributes())[kSelfTestAttribute].set_s(kWholeNumbers);
    }
    const absl::Status known = TakeUnit(ready->attributes());
    if (!known.ok()) return Error("worker.unit.unknown", support::StatusText(known));
    (*ready->mutable_attributes())["sandbox"].set_s(std::string(SandboxProfileName(profile_)));
    (*ready->mutable_attributes())["sandboxed"].set_b(probe.sandboxed);
    (*ready->mutable_attributes())["sandbox_detail"].set_s(probe.detail);
    if (!probe.missing.empty()) {
      (*ready->mutable_attributes())["sandbox_missing"].set_s(probe.missing);
    }
    return reply;
  }

  absl::Status TakeUnit(const Attributes& attributes) {
    const auto it = attributes.find("unit");
    if (it == attributes.end()) return absl::OkStatus();
    const support::MeasureUnit* unit = support::FindMeasureUnit(it->second.s());
    if (unit == nullptr) {
      return support::InvalidArgument("worker.unit.unknown",
                                      "expected a unit of this version, found " + it->second.s());
    }
    unit_ = *unit;
    return absl::OkStatus();
  }

  // Before the first measurement: the namespaces of all of them. Nothing that runs in them may look
  // into this process from then on.
  absl::Status Confine() {
    if (confined_) return absl::OkStatus();
    confined_ = true;
    if (profile_ == SandboxProfile::kDriver) {
      TW_ASSIGN(scratch_, MakeScratch());
    }
    SandboxSpec sandbox = Sandbox();
    sandbox.driver.scratch = ScratchParent();
    jail_ = MakeJail(sandbox);
    filter_ = MakeFilter(profile_).value_or(FilterProgram());
    support::ForbidInspection();
    return absl::OkStatus();
  }

  std::string ScratchParent() const { return scratch_.has_value() ? scratch_->path() : ""; }

  // Of every process that runs foreign code, but for its limits.
  SandboxSpec Sandbox() const {
    SandboxSpec sandbox;
    sandbox.profile = profile_;
    sandbox.driver.nodes = device_nodes_;
    if (device_.has_value()) sandbox.driver.libraries = {device_->plugin};
    sandbox.jail = jail_.ok() ? jail_->get() : nullptr;
    sandbox.landlock = landlock_;
    sandbox.filter = filter_.empty() ? nullptr : &filter_;
    return sandbox;
  }

  // Which device, and how what runs on it is confined.
  absl::Status Choose(const v1::WorkerHello& hello) {
    TW_ASSIGN(profile_, ParseSandboxProfile(
                            hello.sandbox_profile().empty() ? "strict" : hello.sandbox_profile()));
    device_nodes_ = {hello.device_nodes().begin(), hello.device_nodes().end()};
    if (profile_ == SandboxProfile::kDriver) {
      SweepScratch();
      if (device_nodes_.empty()) device_nodes_ = KnownDeviceNodes();
    }
    device_.reset();
    if (hello.device_kind() == "cpu") return absl::OkStatus();
    if (profile_ != SandboxProfile::kDriver) {
      return support::InvalidArgument("worker.profile.needed",
                                      "a device behind a driver needs the profile driver");
    }
    TW_ASSIGN(const std::string plugin, runtime::FindDevicePlugin(hello.device_kind()));
    // Children whose user may not even enter the folder (/root of a fresh Debian) find it loaded.
    TW_ASSIGN(auto loaded, runtime::DevicePlugin::Open(plugin));
    plugin_.emplace(std::move(loaded));
    device_ = DeviceTarget{hello.device_kind(), plugin, hello.device_index()};
    return absl::OkStatus();
  }

  // Taken here, not in the measuring processes: those are new each time and may have a neighbour
  // all their life.
  void Probe(int rounds) {
    for (int i = 0; i < rounds; ++i) quiet_.Add(ProbeNs());
  }

  static bool Pin(const v1::WorkerHello& hello) {
    if (hello.cores().empty()) return true;
    cpu_set_t set;
    CPU_ZERO(&set);
    for (const int core : hello.cores()) {
      if (core < 0 || core >= CPU_SETSIZE) return false;
      CPU_SET(core, &set);
    }
    return sched_setaffinity(0, sizeof(set), &set) == 0;
  }

  // What is expected stays out of the measuring processes, and so does what was freed of it.
  absl::Status Withhold(std::string* expected) {
    const size_t bytes = expected->size();
    TW_TRY(judge_.Expect(expected));
    if (bytes >= kManyBytes) malloc_trim(0);
    return absl::OkStatus();
  }

  // Answers itself, before the measuring process is gone. False when nobody listens.
  bool MeasureSlot(v1::MeasureModule* wanted) {
    const absl::Status kept = Withhold(wanted->mutable_expected_output());
    if (!kept.ok()) return Send(Error("worker.memory", support::StatusText(kept)));
    const v1::MeasureModule& request = *wanted;
    const auto module = modules_.find(request.slot());
    const auto baseline = modules_.find(request.baseline_slot());
    if (module == modules_.end() ||
        (!request.baseline_slot().empty() && baseline == modules_.end())) {
      return Send(Error("worker.slot.empty", "expected a module in the slots named"));
    }
    ChildJob job;
    job.measure.module = module->second;
    if (!request.baseline_slot().empty()) job.measure.baseline = baseline->second;
    job.measure.request = &request;
    job.measure.max_threads = threads_;
    if (device_.has_value()) {
      job.measure.device = &*device_;
      // The host's own loop says nothing about the device.
      const auto known = modules_.find(kSelfTestSlot);
      const bool borrow = job.measure.baseline.empty() && known != modules_.end();
      if (borrow) job.measure.baseline = known->second;
    }
    job.measure.unit = unit_;
    job.measure.counter = counter_.has_value() && !device_.has_value() ? &*counter_ : nullptr;
    job.profile = profile_;
    job.device_nodes = device_nodes_;
    job.jail = jail_.ok() ? jail_->get() : nullptr;
    job.landlock = landlock_;
    job.filter = filter_.empty() ? nullptr : &filter_;
    job.scratch_parent = ScratchParent();
    inputs_.Prepare(request.inputs());
    job.measure.inputs = &inputs_;
    if (unit_.time) Probe(kProbesPerJob);
    job.measure.quiet_probe_ns = quiet_.ns();
    job.memory_limit_bytes = memory_limit_bytes_;
    job.sandboxed = sandboxed_;
    job.judge = &judge_;
    job.stop_fd = STDIN_FILENO;
    host_.Begin();
    const auto announce = [this](v1::WorkerPhase phase) {
      v1::WorkerReply note;
      note.mutable_phase()->set_phase(phase);
      note.mutable_phase()->set_monotonic_ns(support::SystemClock().NowNs());
      Send(note);
    };
    bool heard = false;
    MeasureInChild(job, announce, [&](v1::ModuleMeasured measured) {
      v1::WorkerReply reply;
      *reply.mutable_measured() = std::move(measured);
      host_.Finish(reply.mutable_measured()->mutable_telemetry());
      heard = Send(std::move(reply));
    });
    return heard;
  }

  uint64_t id_ = 0;
  QuietReference quiet_;
  HostState host_;
  CpuPeaks peaks_;
  InputCache inputs_;
  OutputJudge judge_;
  std::map<std::string, std::string> modules_;
  int64_t memory_limit_bytes_ = 0;
  int threads_ = 1;
  bool confined_ = false;
  std::optional<WorkerGroup> group_;
  std::optional<support::TempDir> scratch_;  // of profile driver: the folder of scratch folders
  absl::StatusOr<std::unique_ptr<Jail>> jail_ =
      support::Unavailable("sandbox.namespace.refused", "not tried");
  FilterProgram filter_;  // of all measurements; empty: none could be made
  bool sandboxed_ = false;
  bool landlock_ = true;
  SandboxProfile profile_ = SandboxProfile::kStrict;
  std::vector<std::string> device_nodes_;
  std::optional<DeviceTarget> device_;  // none: the processor
  std::optional<CycleCounter> counter_;
  support::MeasureUnit unit_ = support::MeasureUnits().front();
  std::optional<runtime::DevicePlugin> plugin_;
};

}  // namespace
}  // namespace tilewright::device_agent

int main(int argc, char** argv) {
  constexpr std::string_view kCounter = "--cycle-counter=";
  std::string_view argument = argc > 1 ? argv[1] : "";
  std::optional<tilewright::device_agent::CycleCounter> counter;
  if (argument.starts_with(kCounter)) {
    const auto opened =
        tilewright::device_agent::CycleCounter::At(argument.substr(kCounter.size()));
    if (!opened.ok()) {
      std::cerr << "error: " << tilewright::support::StatusText(opened.status()) << "\n";
      return tilewright::device_agent::kExitUsage;
    }
    counter = *opened;
    argument = "";
  }
  if (argument == "--version") {
    std::cout << tilewright::support::Version() << "\n";
    return 0;
  }
  if (!argument.empty()) {
    std::cerr << "usage: tilewright-worker [--version | --cycle-counter=ADDRESS]; started by "
                 "tilewright-agent, speaks frames on standard input and output. --cycle-counter "
                 "reads the counter of qemu_board.c in place of a clock, e.g. "
                 "--cycle-counter=0x545743000000\n";
    return argument == "--help" ? 0 : tilewright::device_agent::kExitUsage;
  }
  tilewright::support::IgnoreSigpipe();
  return tilewright::device_agent::Worker(counter).Run();
}
