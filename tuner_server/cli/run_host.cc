#include "tuner_server/cli/run_host.h"

#include <utility>

#include "deploy/runtime/device_code_cache.h"

namespace tilewright::cli {
namespace {

class LocalHost final : public RunHost {
 public:
  explicit LocalHost(std::unique_ptr<runtime::Session> session) : session_(std::move(session)) {}

  const module::Manifest& manifest() const override { return session_->module().manifest(); }
  int num_threads() const override { return session_->num_threads(); }
  runtime::BoundTensors* tensors() override { return session_.get(); }
  absl::StatusOr<runtime::RunTimes> Execute(int repeat, bool per_launch) override {
    return runtime::TimeRuns(session_.get(), repeat, per_launch);
  }
  absl::StatusOr<std::vector<runtime::LaunchTrace>> Trace() override {
    TW_TRY(session_->ResetState());
    return session_->RunTraced();
  }

 private:
  const std::unique_ptr<runtime::Session> session_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<runtime::Session>> LoadSession(
    module::ModuleFile file, int threads, const std::string& device,
    const std::vector<std::string>& libraries) {
  TW_ASSIGN(auto module, runtime::LoadedModule::Load(std::move(file), {libraries}));
  runtime::SessionOptions options;
  options.num_threads = threads;
  options.code_cache = runtime::UserCodeCache();
  options.device = device;
  return runtime::Session::Create(std::move(module), options);
}

absl::StatusOr<std::unique_ptr<RunHost>> LoadHere(module::ModuleFile file, int threads,
                                                  const std::string& device,
                                                  const std::vector<std::string>& libraries) {
  TW_ASSIGN(auto session, LoadSession(std::move(file), threads, device, libraries));
  return std::make_unique<LocalHost>(std::move(session));
}

}  // namespace tilewright::cli
