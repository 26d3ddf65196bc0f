// `tilewright jobs …` and what `tune --server` shares with them: submitting, watching with live
// progress through restarts of the server, the closing table. Blocking; one thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "deploy/support/status.h"
#include "tuner_server/cli/server_client.h"
#include "tuner_server/cli/table.h"

namespace tilewright::cli {

struct JobRequest {
  std::string model_path;
  std::string target;  // "native" is expanded before it is sent
  int trials = 0;
  double minutes = 0;
  uint64_t seed = 0;
  std::string cost_model = "xgboost";
  std::string name;  // job id; empty = the server chooses
  std::string pool;
  std::vector<std::string> shapes;  // NAME=1x3x224x224
  int priority = 3;
};

// Uploads the model and creates the job; safe to repeat (one request id per process run).
absl::StatusOr<v1::Job> SubmitJob(ServerClient& client, const JobRequest& request);

// Follows the job to its final state, drawing progress; reconnects with back-off for kPatienceMs
// after the last sign of life. Ends early with cancelled (cli.interrupted) on SIGINT / SIGTERM.
absl::StatusOr<v1::Job> WatchJob(ServerClient& client, const std::string& name, bool quiet);

// All tasks of the job.
absl::StatusOr<std::vector<v1::Task>> FetchTasks(ServerClient& client, const std::string& job);

// task, uses, default, tuned, gain, GFLOP/s, share of peak, trials; then the end-to-end line.
// `peak_gflops` 0 = unknown.
std::string TasksTable(const std::vector<v1::Task>& tasks, double peak_gflops);
nlohmann::json TasksJson(const std::vector<v1::Task>& tasks, double peak_gflops);
// Highest measured peak among the fleet's devices (attribute peak_gflops); 0 when nobody says.
double FleetPeakGflops(ServerClient& client);

// Sets the flag that ends WatchJob on SIGINT and SIGTERM. Idempotent.
void CatchInterrupts();
bool Interrupted();

int JobsSubmit(const std::string& server, const JobRequest& request, OutputFormat format);
int JobsList(const std::string& server, OutputFormat format);
int JobsGet(const std::string& server, const std::string& job, OutputFormat format);
int JobsWatch(const std::string& server, const std::string& job);
int JobsCancel(const std::string& server, const std::string& job, OutputFormat format);

}  // namespace tilewright::cli
