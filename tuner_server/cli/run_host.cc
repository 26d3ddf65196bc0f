#include "tuner_server/cli/run_host.h"

#include <algorithm>
#include <utility>

#include "deploy/runtime/device_code_cache.h"
#include "deploy/support/strings.h"

namespace tilewright::cli {
namespace {

class LocalHost final : public RunHost {
 public:
  LocalHost(std::shared_ptr<const runtime::LoadedModule> module,
            std::unique_ptr<runtime::Session> session)
      : module_(std::move(module)), session_(std::move(session)) {}

  const module::Manifest& manifest() const override { return module_->manifest(); }
  int num_threads() const override { return session_->num_threads(); }
  runtime::BoundTensors* tensors() override { return session_.get(); }
  absl::StatusOr<runtime::RunTimes> Execute(int repeat, bool per_launch) override {
    return runtime::TimeRuns(session_.get(), repeat, per_launch);
  }

 private:
  const std::shared_ptr<const runtime::LoadedModule> module_;
  const std::unique_ptr<runtime::Session> session_;
};

}  // namespace

int TargetThreads(const std::string& target) {
  for (const std::string& part : support::Split(target, ',')) {
    if (part.starts_with("threads=")) {
      return static_cast<int>(
          std::clamp<int64_t>(support::ParseInt64(part.substr(8)).value_or(1), 1, 1024));
    }
  }
  return 1;
}

absl::StatusOr<std::unique_ptr<RunHost>> LoadHere(module::ModuleFile file, int threads,
                                                  const std::string& device) {
  TW_ASSIGN(auto module, runtime::LoadedModule::Load(std::move(file)));
  runtime::SessionOptions options;
  options.num_threads = threads;
  options.code_cache = runtime::UserCodeCache();
  options.device = device;
  TW_ASSIGN(auto session, runtime::Session::Create(module, options));
  return std::make_unique<LocalHost>(std::move(module), std::move(session));
}

}  // namespace tilewright::cli
