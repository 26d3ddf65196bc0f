// tilewright-tuner: the daemon that owns jobs, trials, records, models and modules.
#include <algorithm>
#include <memory>
#include <string>
#include <thread>

#include "deploy/daemon/daemon_main.h"
#include "deploy/daemon/systemd.h"
#include "deploy/security/module_signature.h"
#include "deploy/support/file.h"
#include "tuner_server/service/tuner_server.h"

namespace tilewright::service {
namespace {

struct TunerFlags {
  int64_t build_children = 0;  // 0: one less than there are cores
  std::string builder;
  std::vector<std::string> builder_args;
  int64_t build_timeout_ms = 20'000;
  int64_t running_jobs = 4;
  int64_t artifact_cache_bytes = int64_t{20} << 30;
  std::string module_key;
  int64_t keep_module_versions = 0;
  int64_t keep_search_jobs = 100;
  int64_t max_module_bytes = 0;
};

absl::Status Check(const TunerFlags& flags, const daemon::DaemonContext& context) {
  if (flags.build_children < 0 || flags.build_children > 1024 || flags.running_jobs < 1 ||
      flags.build_timeout_ms < 100 || flags.artifact_cache_bytes < 0) {
    return support::InvalidArgument(
        "tuner.flags.invalid",
        "expected 0..1024 build children, at least 1 running job and a timeout of 100 ms or more");
  }
  if (flags.keep_module_versions < 0 || flags.max_module_bytes < 0) {
    return support::InvalidArgument("tuner.flags.invalid",
                                    "expected limits of modules of 0 (none) or more");
  }
  if (flags.keep_search_jobs < 0) {
    return support::InvalidArgument("tuner.flags.invalid",
                                    "expected --keep-search-jobs of 0 (all) or more");
  }
  if (!flags.module_key.empty()) {
    TW_TRY(security::ModuleSigner::Load(flags.module_key).status());
  }
  if (flags.builder.empty()) TW_TRY(support::FindSibling("tilewright-builder").status());
  if (context.flags.tracker.empty()) {
    return support::InvalidArgument("tuner.flags.tracker", "expected --tracker HOST:PORT");
  }
  return daemon::ParseHostPort(context.flags.tracker, "tuner.flags.tracker").status();
}

absl::Status Serve(const TunerFlags& flags, daemon::DaemonContext& context) {
  TunerOptions options;
  options.state_dir = context.flags.state_dir;
  options.tracker = context.flags.tracker;
  options.tracker_credentials = context.credentials;
  options.host = context.host_options();
  options.builder = flags.builder;
  options.builder_args = flags.builder_args;
  const auto cores = static_cast<int64_t>(std::thread::hardware_concurrency());
  options.build_children =
      flags.build_children > 0 ? flags.build_children : std::max<int64_t>(1, cores - 1);
  options.build_timeout_ms = flags.build_timeout_ms;
  options.running_jobs = flags.running_jobs;
  options.artifact_cache_bytes = flags.artifact_cache_bytes;
  options.module_key = flags.module_key;
  options.keep_search_jobs = flags.keep_search_jobs;
  options.retention = {flags.keep_module_versions, flags.max_module_bytes};
  options.metrics = context.metrics;
  TW_ASSIGN(const std::unique_ptr<TunerServer> server, TunerServer::Start(options));
  daemon::LogInfo("tuner.serving", {{"address", server->address()},
                                    {"tracker", options.tracker},
                                    {"build_children", options.build_children}});
  daemon::NotifySystemd("READY=1");
  context.stop->Wait(-1);
  daemon::NotifySystemd("STOPPING=1");
  server->Stop();
  return absl::OkStatus();
}

}  // namespace
}  // namespace tilewright::service

int main(int argc, char** argv) {
  tilewright::service::TunerFlags flags;
  tilewright::daemon::DaemonSpec spec;
  spec.name = "tilewright-tuner";
  spec.description = "Tunes models on the fleet and keeps the log, the cost models and the modules";
  spec.has_listen = true;
  spec.listener = tilewright::security::Listener::kTuner;
  spec.has_tracker = true;
  const auto add_flags = [&](CLI::App& app) {
    app.add_option("--build-children", flags.build_children,
                   "child processes that build candidates; 0: one less than there are cores")
        ->capture_default_str();
    app.add_option("--builder", flags.builder,
                   "the tilewright-builder to use; default: the one next to this program");
    app.add_option("--builder-arg", flags.builder_args,
                   "one more argument for each builder, as in --builder-arg=--flag; repeatable")
        ->allow_extra_args(false);
    app.add_option("--build-timeout-ms", flags.build_timeout_ms, "limit of one build")
        ->capture_default_str();
    app.add_option("--running-jobs", flags.running_jobs, "jobs that run at a time; others wait")
        ->capture_default_str();
    app.add_option("--artifact-cache-bytes", flags.artifact_cache_bytes,
                   "artifacts that nothing names are dropped beyond this size")
        ->capture_default_str();
    app.add_option("--module-key", flags.module_key,
                   "private key with which the server signs a module that an engineer releases "
                   "('tilewright modules release dqn/3'); 'tilewright modules keygen' makes one");
    app.add_option("--keep-search-jobs", flags.keep_search_jobs,
                   "jobs that ended last keep the drafts of their batches and all their cost "
                   "models (about 0.1 MB a trial); others what was measured and their last model; "
                   "0: all keep all")
        ->capture_default_str();
    app.add_option("--keep-module-versions", flags.keep_module_versions,
                   "after each job, drop all but so many of the newest versions of each module, "
                   "never one that an alias names; 0: keep all")
        ->capture_default_str();
    app.add_option("--max-module-bytes", flags.max_module_bytes,
                   "after each job, drop the oldest versions until all modules fit, never the "
                   "newest of a module or one that an alias names; 0: no limit")
        ->capture_default_str();
  };
  return tilewright::daemon::DaemonMain(
      argc, argv, spec, add_flags,
      [&](const tilewright::daemon::DaemonContext& context) {
        return tilewright::service::Check(flags, context);
      },
      [&](tilewright::daemon::DaemonContext& context) {
        return tilewright::service::Serve(flags, context);
      });
}
