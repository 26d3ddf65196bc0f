// Jobs on a fleet of this machine (embedded.h): what commands share that tune without a server.
// Prints notes about the device on standard error. Blocking; one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "deploy/support/status.h"
#include "tuner_server/cli/embedded.h"
#include "tuner_server/cli/job_commands.h"
#include "tuner_server/cli/server_client.h"

namespace tilewright::cli {

// How long a command tries to submit a job to a server that does not answer.
inline constexpr int64_t kSubmitPatienceMs = 2'000;

class LocalTuning {
 public:
  // Starts the fleet and ends jobs that an earlier command left behind. Errors: CheckRunsHere,
  // EmbeddedFleet::Start.
  static absl::StatusOr<std::unique_ptr<LocalTuning>> Start(const EmbeddedOptions& options);

  // Runs a job to its final state, with progress on standard error. cancelled after an interrupt:
  // the job is then cancelled, too. unavailable (DevicePatience): no device, or none that is well.
  absl::StatusOr<v1::Job> Run(const JobRequest& request);

  ServerClient& client() { return client_; }
  const std::string& state_dir() const { return fleet_->state_dir(); }
  const std::string& log_path() const { return log_path_; }

 private:
  LocalTuning(std::unique_ptr<EmbeddedFleet> fleet, std::string log_path);
  absl::Status Cancel(const std::string& name, const std::string& reason);
  absl::Status CancelLeftOvers();

  std::unique_ptr<EmbeddedFleet> fleet_;
  std::string log_path_;
  ServerClient client_;
};

}  // namespace tilewright::cli
