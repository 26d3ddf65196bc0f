#include "tuner_server/cli/run_host.h"

#include <utility>

#include "deploy/runtime/device_code_cache.h"

namespace tilewright::cli {
namespace {

class LocalHost final : public RunHost {
 public:
  explicit LocalHost(LocalSession local) : local_(std::move(local)) {}

  const module::Manifest& manifest() const override { return local_.module->manifest(); }
  int num_threads() const override { return local_->num_threads(); }
  runtime::BoundTensors* tensors() override { return local_.session.get(); }
  absl::StatusOr<runtime::RunTimes> Execute(int repeat, bool per_launch) override {
    return runtime::TimeRuns(local_.session.get(), repeat, per_launch);
  }

 private:
  const LocalSession local_;
};

}  // namespace

absl::StatusOr<LocalSession> LoadSession(module::ModuleFile file, int threads,
                                         const std::string& device) {
  TW_ASSIGN(auto module, runtime::LoadedModule::Load(std::move(file)));
  runtime::SessionOptions options;
  options.num_threads = threads;
  options.code_cache = runtime::UserCodeCache();
  options.device = device;
  TW_ASSIGN(auto session, runtime::Session::Create(module, options));
  return LocalSession{std::move(module), std::move(session)};
}

absl::StatusOr<std::unique_ptr<RunHost>> LoadHere(module::ModuleFile file, int threads,
                                                  const std::string& device) {
  TW_ASSIGN(LocalSession local, LoadSession(std::move(file), threads, device));
  return std::make_unique<LocalHost>(std::move(local));
}

}  // namespace tilewright::cli
