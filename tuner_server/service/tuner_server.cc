#include "tuner_server/service/tuner_server.h"

#include <utility>

#include "deploy/daemon/artifact_service.h"
#include "deploy/daemon/daemon_log.h"
#include "deploy/daemon/wire.h"
#include "deploy/support/file.h"
#include "tuner_server/jobs/build_farm.h"
#include "tuner_server/jobs/job_manager.h"
#include "tuner_server/log/sqlite_log.h"
#include "tuner_server/modules/module_releases.h"
#include "tuner_server/modules/module_store.h"
#include "tuner_server/service/fleet_forwarder.h"
#include "tuner_server/service/job_api.h"
#include "tuner_server/service/job_service.h"
#include "tuner_server/service/module_service.h"

namespace tilewright::service {
namespace {

void TellOfNumbers(const modules::VersionNumbers& numbers) {
  if (numbers.restarted_at() == 0) return;
  daemon::LogWarning("modules.numbers.restarted",
                     {{"first", numbers.restarted_at()},
                      {"message",
                       "the state folder is a restored or copied one: which numbers of "
                       "module versions were used after it is not known"}});
}

}  // namespace

// In order of construction: each part uses the ones before it.
struct TunerServer::Parts {
  support::SystemClock clock;
  std::unique_ptr<log::TuningLog> log;
  std::unique_ptr<daemon::BlobStore> blobs;
  std::unique_ptr<security::ModuleSigner> signer;
  std::unique_ptr<modules::VersionNumbers> numbers;
  std::unique_ptr<modules::ModuleStore> modules;
  std::unique_ptr<modules::ModuleReleases> releases;
  std::unique_ptr<jobs::BuildFarm> farm;
  std::unique_ptr<jobs::JobManager> manager;
  std::unique_ptr<JobApi> api;
  std::unique_ptr<daemon::ArtifactServiceImpl> artifact_service;
  std::unique_ptr<JobServiceImpl> job_service;
  std::unique_ptr<ModuleServiceImpl> module_service;
  std::unique_ptr<FleetForwarder> fleet_service;
  std::unique_ptr<daemon::ServerHost> host;
  bool stopped = false;
};

TunerServer::TunerServer(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
TunerServer::~TunerServer() { Stop(); }

const std::string& TunerServer::address() const { return parts_->host->address(); }

absl::StatusOr<std::unique_ptr<TunerServer>> TunerServer::Start(const TunerOptions& options) {
  auto parts = std::make_unique<Parts>();
  const std::string jobs_dir = support::PathJoin(options.state_dir, "jobs");
  TW_TRY(support::MakeDirs(jobs_dir));
  log::SqliteLogOptions log_options;
  log_options.quick_check = true;
  TW_ASSIGN(parts->log,
            log::OpenSqliteLog(support::PathJoin(options.state_dir, "tuner.db"), log_options));
  TW_ASSIGN(parts->blobs,
            daemon::BlobStore::Open(support::PathJoin(options.state_dir, "artifacts")));
  if (!options.module_key.empty()) {
    TW_ASSIGN(parts->signer, security::ModuleSigner::Load(options.module_key));
  }
  TW_ASSIGN(parts->numbers, modules::VersionNumbers::Open(
                                support::PathJoin(options.state_dir, modules::kNumbersFile),
                                parts->log.get(), &parts->clock));
  TellOfNumbers(*parts->numbers);
  parts->modules = std::make_unique<modules::ModuleStore>(parts->log.get(), parts->blobs.get(),
                                                          parts->numbers.get());
  parts->releases =
      std::make_unique<modules::ModuleReleases>(parts->log.get(), parts->signer.get());
  TW_TRY(parts->releases->RegisterOwnKey(parts->clock.WallMicros()));

  jobs::BuildFarmOptions farm;
  farm.builder.program = options.builder;
  farm.builder.args = options.builder_args;
  farm.children = options.build_children;
  farm.timeout_ms = options.build_timeout_ms;
  parts->farm = std::make_unique<jobs::BuildFarm>(farm);

  jobs::ServerEnvironment environment;
  environment.log = parts->log.get();
  environment.modules = parts->modules.get();
  environment.blobs = parts->blobs.get();
  environment.clock = &parts->clock;
  environment.builds = parts->farm.get();
  environment.tracker = daemon::MakeChannel(options.tracker, {false, options.tracker_credentials});
  environment.builder = farm.builder;
  environment.jobs_dir = jobs_dir;
  environment.core = options.core;
  environment.retention = options.retention;
  environment.keep_search_jobs = options.keep_search_jobs;
  environment.metrics = options.metrics;
  parts->manager = std::make_unique<jobs::JobManager>(environment, options.running_jobs,
                                                      options.artifact_cache_bytes);
  parts->api = std::make_unique<JobApi>(parts->manager.get(), parts->log.get(), parts->blobs.get(),
                                        &parts->clock);

  daemon::ArtifactServiceOptions artifact_options;
  artifact_options.metrics = options.metrics;
  parts->artifact_service =
      std::make_unique<daemon::ArtifactServiceImpl>(parts->blobs.get(), artifact_options);
  parts->job_service =
      std::make_unique<JobServiceImpl>(parts->api.get(), parts->log.get(), options.host.security);
  parts->module_service = std::make_unique<ModuleServiceImpl>(
      parts->modules.get(), parts->releases.get(), &parts->clock, options.host.security);
  parts->fleet_service =
      std::make_unique<FleetForwarder>(environment.tracker, options.host.security);
  parts->host = std::make_unique<daemon::ServerHost>(options.host);
  parts->host->AddService(parts->job_service.get(), kJobServiceName);
  parts->host->AddService(parts->module_service.get(), kModuleServiceName);
  parts->host->AddService(parts->artifact_service.get(), daemon::kArtifactServiceName);
  parts->host->AddService(parts->fleet_service.get(), kFleetAdminServiceName);
  parts->manager->Start();
  std::unique_ptr<TunerServer> server(new TunerServer(std::move(parts)));
  TW_TRY(server->parts_->host->Start());
  return server;
}

void TunerServer::Stop() {
  if (parts_->stopped) return;
  parts_->stopped = true;
  parts_->job_service->Drain();
  parts_->host->Stop();
  parts_->manager->Stop();
}

}  // namespace tilewright::service
