// `tilewright jobs …` and what `tune --server` shares with them: submitting, watching with live
// progress through restarts of the server, the closing table. Blocking; one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "deploy/support/status.h"
#include "tuner_server/cli/server_client.h"
#include "tuner_server/cli/shape_flags.h"
#include "tuner_server/cli/table.h"
#include "tuner_server/log/cost_models.h"

namespace tilewright::cli {

struct JobRequest {
  std::string model_path;
  std::string target;  // "native" is expanded before it is sent
  int trials = 0;
  double minutes = 0;
  uint64_t seed = 0;
  std::string cost_model{log::kCostModels.front()};
  std::string name;  // job id; empty = the server chooses
  std::string pool;
  SizeFlags sizes;
  std::vector<std::string> operators;  // files with definitions; the model that is sent has them
  int priority = 3;
  std::vector<std::string> search_parts;  // PART=on or PART=off
  bool recall = false;                    // continue from what earlier jobs measured
  bool records_only = false;  // the weights stay here: a model with made-up ones is sent
};

// Uploads the model and creates the job; safe to repeat (one request id per process run).
absl::StatusOr<v1::Job> SubmitJob(ServerClient& client, const JobRequest& request);

// Called many times a second from another thread; its error ends the wait.
using AliveCheck = std::function<absl::Status()>;

// Follows the job to its final state, drawing progress; reconnects with back-off for kPatienceMs
// after the last sign of life. Ends early with cancelled (cli.interrupted) on SIGINT / SIGTERM.
absl::StatusOr<v1::Job> WatchJob(ServerClient& client, const std::string& name, bool quiet,
                                 const AliveCheck& alive = nullptr);

// All tasks of the job.
absl::StatusOr<std::vector<v1::Task>> FetchTasks(ServerClient& client, const std::string& job);

// Operations per nanosecond that the job's threads can reach together; 0: unknown.
struct FleetPeaks {
  double float32 = 0;
  double int8 = 0;  // with dot products of bytes
  // The peak for products of this type (Task.data_type); 0: unknown.
  double Of(const std::string& data_type) const;
};
// The peaks of the fleet's fastest device, for as many cores as the job's target has threads.
// Agents measure them (attributes peak_gflops, peak_int8_gops and cores).
FleetPeaks FindFleetPeaks(ServerClient& client, const std::string& target);
// task, uses, default, tuned, gain, GFLOP/s, share of the peak of its data type, trials, launches
// with ONNX nodes; then the end-to-end line.
std::string TasksTable(const std::vector<v1::Task>& tasks, const FleetPeaks& peaks);
nlohmann::json TasksJson(const std::vector<v1::Task>& tasks, const FleetPeaks& peaks);

// A job as JSON: state, progress, published module.
nlohmann::json JobJson(const v1::Job& job);
// failed_precondition (job.failed, job.cancelled) unless the job succeeded.
absl::Status CheckSucceeded(const v1::Job& job);

// Sets the flag that ends WatchJob on SIGINT and SIGTERM. Idempotent.
void CatchInterrupts();
bool Interrupted();

int JobsSubmit(const ServerPlace& server, const JobRequest& request, OutputFormat format);
int JobsList(const ServerPlace& server, OutputFormat format);
int JobsGet(const ServerPlace& server, const std::string& job, OutputFormat format);
int JobsWatch(const ServerPlace& server, const std::string& job);
int JobsCancel(const ServerPlace& server, const std::string& job, OutputFormat format);

}  // namespace tilewright::cli
