// The tuner daemon as an object: storage, jobs, services, listener, wired together. main owns one;
// tests make them in-process. Used from one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "deploy/daemon/server_host.h"
#include "deploy/support/clock.h"
#include "deploy/support/status.h"
#include "tuner_server/jobs/job_core.h"

namespace tilewright::service {

struct TunerOptions {
  std::string state_dir;  // exists; one server per folder (the daemon locks it)
  std::string tracker;    // HOST:PORT
  std::shared_ptr<grpc::ChannelCredentials> tracker_credentials;  // null = plain text
  daemon::HostOptions host;
  std::string builder;                    // program; empty: tilewright-builder next to this one
  std::vector<std::string> builder_args;  // for search and build children alike
  int64_t build_children = 1;
  int64_t build_timeout_ms = 20'000;
  int64_t running_jobs = 4;
  int64_t artifact_cache_bytes = int64_t{20} << 30;
  std::string module_key;              // the key of ReleaseModule (module_signature.h); empty: none
  modules::RetentionPolicy retention;  // of published modules
  int64_t keep_search_jobs = 100;      // ended jobs that keep drafts and models; 0: all
  jobs::JobCoreOptions core;
  daemon::Metrics* metrics = nullptr;  // not owned
};

class TunerServer {
 public:
  // Opens the storage and listens. Open jobs continue.
  static absl::StatusOr<std::unique_ptr<TunerServer>> Start(const TunerOptions& options);
  // Stops.
  ~TunerServer();

  const std::string& address() const;
  // Ends streams, stops jobs (they stay open in the log), stops listening. Idempotent.
  void Stop();

 private:
  struct Parts;
  explicit TunerServer(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

}  // namespace tilewright::service
