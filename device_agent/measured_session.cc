#include "device_agent/measured_session.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "deploy/runtime/device_loader.h"
#include "deploy/runtime/device_session.h"
#include "deploy/support/clock.h"
#include "deploy/support/strings.h"

namespace tilewright::device_agent {
namespace {

// The one asked for, else the only one, else "main".
std::string FunctionOf(const module::Manifest& manifest, const std::string& entry_point) {
  if (!entry_point.empty()) return entry_point;
  return manifest.functions.size() == 1 ? manifest.functions[0].name : "main";
}

class HostSession final : public MeasuredSession {
 public:
  HostSession(std::unique_ptr<runtime::Session> session, const CycleCounter* counter)
      : session_(std::move(session)),
        counter_(counter),
        // One thread: its own processor time, which other processes on the core do not add to.
        clock_(session_->num_threads() == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC) {}

  const module::Manifest& manifest() const override { return session_->module().manifest(); }
  runtime::BoundTensors* tensors() override { return session_.get(); }
  absl::Status Prepare() override { return session_->Prepare(); }
  absl::Status Run() override { return session_->Run(); }

  // One after the other, as a whole; but where cold weights leave the caches before each, one by
  // one.
  absl::StatusOr<int64_t> Time(int runs) override {
    if (counter_ != nullptr) return Count(runs);
    const bool evicts = session_->has_cold();
    int64_t elapsed = 0;
    for (int done = 0; done < runs;) {
      session_->EvictFar();
      const int together = evicts ? 1 : runs;
      const int64_t start = support::ReadClockNs(clock_);
      for (int k = 0; k < together; ++k) TW_TRY(session_->Run());
      elapsed += support::ReadClockNs(clock_) - start;
      done += together;
    }
    return elapsed;
  }

  absl::Status Poison(uint8_t byte) override {
    session_->Poison(byte);
    return absl::OkStatus();
  }
  absl::Status Collect() override { return session_->CheckGuards(); }
  std::string_view clock() const override {
    if (counter_ != nullptr) return "counter";
    return clock_ == CLOCK_MONOTONIC ? "monotonic" : "thread_cpu";
  }
  clockid_t host_clock() const override { return clock_; }
  bool on_host() const override { return counter_ == nullptr; }

 private:
  // A count must not depend on what ran before: the board's caches are empty (cold inputs), or hold
  // what a run leaves, with all that counting it touches.
  absl::StatusOr<int64_t> Count(int runs) {
    int64_t cycles = 0;
    for (int run = 0; run < runs; ++run) {
      counter_->EmptyCaches();
      int64_t last = 0;
      for (int pass = session_->has_cold() ? 1 : 0; pass < 2; ++pass) {
        const int64_t start = counter_->Now();
        TW_TRY(session_->Run());
        last = counter_->Now() - start;
      }
      cycles += last;
    }
    return cycles;
  }

  std::unique_ptr<runtime::Session> session_;
  const CycleCounter* const counter_;
  const clockid_t clock_;
};

// A driver and its device, open until the process ends: what a driver started is not taken down
// while its own threads may still be at work.
struct OpenDevice {
  runtime::DevicePlugin plugin;
  TwDevice* device = nullptr;
};

class PluginSession final : public MeasuredSession {
 public:
  explicit PluginSession(std::unique_ptr<runtime::DeviceSession> session)
      : session_(std::move(session)) {}

  const module::Manifest& manifest() const override { return session_->manifest(); }
  runtime::BoundTensors* tensors() override { return session_.get(); }
  absl::Status Prepare() override { return session_->Prepare(); }
  absl::Status Run() override { return session_->Run(); }
  absl::StatusOr<int64_t> Time(int runs) override { return session_->Time(runs); }
  absl::Status Poison(uint8_t byte) override { return session_->Poison(byte); }
  absl::Status Collect() override { return session_->Collect(); }
  std::string_view clock() const override {
    return session_->device_timer() ? "device" : "monotonic";
  }
  clockid_t host_clock() const override { return CLOCK_MONOTONIC; }
  bool on_host() const override { return false; }

 private:
  std::unique_ptr<runtime::DeviceSession> session_;
};

// The same one for candidate and baseline: they share a queue, as they share the device.
absl::StatusOr<OpenDevice*> DeviceOf(const DeviceTarget& target) {
  static OpenDevice* open = nullptr;
  if (open != nullptr) return open;
  const auto broken = [&](const std::string& why) {
    return support::Unavailable("runtime.device.broken",
                                support::StrCat(target.kind, " device ", target.index, ": ", why));
  };
  auto plugin = runtime::DevicePlugin::Open(target.plugin);
  if (!plugin.ok()) return broken(support::StatusText(plugin.status()));
  char why[512] = {};
  TwDevice* device = nullptr;
  if (plugin->table().open(target.index, &device, why, sizeof(why)) != TW_DEVICE_OK) {
    return broken(why);
  }
  open = new OpenDevice{*std::move(plugin), device};
  return open;
}

}  // namespace

const module::Function* MeasuredFunction(const module::Manifest& manifest,
                                         const std::string& entry_point) {
  return manifest.FindFunction(FunctionOf(manifest, entry_point));
}

absl::StatusOr<std::unique_ptr<MeasuredSession>> LoadOnHost(module::ModuleFile file,
                                                            const std::string& entry_point,
                                                            int max_threads,
                                                            const CycleCounter* counter) {
  TW_ASSIGN(const auto module, runtime::LoadedModule::Load(std::move(file)));
  runtime::SessionOptions options;
  options.guard_pages = true;
  options.pin_threads = true;
  options.num_threads = std::min(module::TargetThreads(module->manifest().target), max_threads);
  options.function = FunctionOf(module->manifest(), entry_point);
  TW_ASSIGN(auto session, runtime::Session::Create(module, options));
  return std::make_unique<HostSession>(std::move(session), counter);
}

absl::StatusOr<std::unique_ptr<MeasuredSession>> LoadOnDevice(module::ModuleFile file,
                                                              const std::string& entry_point,
                                                              const DeviceTarget& target) {
  TW_ASSIGN(OpenDevice * open, DeviceOf(target));
  const std::string function = FunctionOf(file.manifest(), entry_point);
  TW_ASSIGN(auto session, runtime::DeviceSession::Create(std::move(file), open->plugin.table(),
                                                         open->device, function));
  TW_TRY(session->Prepare());
  TW_TRY(session->Run());
  return std::make_unique<PluginSession>(std::move(session));
}

}  // namespace tilewright::device_agent
