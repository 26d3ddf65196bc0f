// Submitting and watching jobs; the commands that print are in job_commands.cc.
#include <google/protobuf/util/time_util.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <thread>

#include "compiler/graph/graph.h"
#include "compiler/onnx/onnx_strip_weights.h"
#include "deploy/module/manifest.h"
#include "deploy/support/clock.h"
#include "deploy/support/file.h"
#include "deploy/support/hash.h"
#include "deploy/support/printable.h"
#include "deploy/support/strings.h"
#include "tuner_server/cli/job_commands.h"
#include "tuner_server/cli/native_target.h"
#include "tuner_server/cli/operator_files.h"
#include "tuner_server/cli/progress.h"
#include "tuner_server/cli/shape_flags.h"
#include "tuner_server/jobs/size_messages.h"

namespace tilewright::cli {
namespace {

constexpr int64_t kWatchStreamMs = 30'000;  // one stream; then it is resumed at its cursor
constexpr int64_t kInterruptPollMs = 20;

std::atomic<bool> g_interrupted{false};

void OnInterrupt(int) { g_interrupted.store(true); }

bool IsFinalState(v1::Job::State state) {
  return state == v1::Job::SUCCEEDED || state == v1::Job::FAILED || state == v1::Job::CANCELLED;
}

// Unique per process run and content: a retry of the same call finds the same job.
std::string RequestId(const JobRequest& request, const std::string& model_hex,
                      const log::ModelSizes& sizes) {
  static const std::string run =
      support::StrCat(support::SystemClock().WallMicros(), "-", getpid());
  return support::Sha256Hex(support::StrCat(run, "|", request.name, "|", model_hex, "|",
                                            request.target, "|", request.trials, "|", request.seed,
                                            "|", request.cost_model, "|", request.recall, "|",
                                            support::Join(request.search_parts, ","), "|",
                                            sizes.ToText()))
      .substr(0, 32);
}

// A server of an earlier version reads no open sizes and no states, and would tune another model
// than was asked for.
absl::Status CheckKnowsSizes(ServerClient& client, v1::CreateJobRequest create,
                             const log::ModelSizes& sizes) {
  log::ModelSizes fixed;
  fixed.shapes = sizes.shapes;
  if (sizes == fixed) return absl::OkStatus();
  create.set_validate_only(true);
  TW_ASSIGN(const v1::Job read,
            client.Call(client.jobs(), &v1::JobService::Stub::CreateJob, create));
  if (jobs::SizesOf(read) == sizes) return absl::OkStatus();
  return support::FailedPrecondition(
      "cli.server.sizes", "the server at " + client.address() +
                              " is of a version that tunes models of fixed sizes without state");
}

ProgressState ToProgress(const v1::Progress& progress, const v1::Job::State state) {
  ProgressState out;
  out.done = progress.measured();
  out.total = progress.trials_total();
  out.elapsed_s = Seconds(progress.elapsed());
  if (progress.has_eta()) out.eta_s = Seconds(progress.eta());
  if (progress.best_us() > 0) {
    out.best = "best " + ValueText(progress.best_us() * 1e3, UnitOf(progress.value_kind()));
    // A server of an earlier version states no gain.
    const std::string gain = progress.gain() > 0
                                 ? RatioText(progress.gain(), 1)
                                 : RatioText(progress.baseline_us(), progress.best_us());
    if (gain != "-") out.best += " (" + gain + ")";
  }
  out.running = state == v1::Job::RUNNING;
  out.note = out.running ? progress.current_task() : support::ToLower(v1::Job::State_Name(state));
  if (!progress.phase().empty()) out.note = progress.phase();
  return out;
}

// One stream of events until it ends; updates `job` and `cursor`. Returns OK when the job ended.
absl::Status FollowOnce(ServerClient& client, v1::Job* job, std::string* cursor,
                        ProgressPrinter* printer, int64_t* last_life_ns,
                        const std::function<bool()>& stopped) {
  support::SystemClock clock;
  grpc::ClientContext context;
  daemon::SetTimeout(&context, kWatchStreamMs);
  v1::WatchJobRequest request;
  request.set_name(job->name());
  request.set_cursor(*cursor);
  auto reader = client.jobs()->WatchJob(&context, request);
  // Read notices neither signals nor the passing of time: a second thread does.
  const std::jthread watcher([&](const std::stop_token& stop) {
    while (!stop.stop_requested() && !stopped()) {
      support::SleepMs(kInterruptPollMs);
      printer->Tick(support::SystemClock().NowNs());
    }
    if (!stop.stop_requested()) context.TryCancel();
  });
  v1::JobEvent event;
  while (reader->Read(&event)) {
    *last_life_ns = clock.NowNs();
    if (!event.cursor().empty()) *cursor = event.cursor();
    if (event.has_job()) *job = event.job();
    if (event.has_progress()) *job->mutable_progress() = event.progress();
    if (event.event_case() == v1::JobEvent::kLogLine) printer->Message("  " + event.log_line());
    printer->Update(ToProgress(job->progress(), job->state()), clock.NowNs());
    if (IsFinalState(job->state())) context.TryCancel();
  }
  const absl::Status status = client.Explain(daemon::FromGrpc(reader->Finish()));
  if (IsFinalState(job->state())) return absl::OkStatus();
  return status.ok() ? support::Unavailable("cli.watch.ended", "the stream ended") : status;
}

}  // namespace

void CatchInterrupts() {
  struct sigaction action{};
  action.sa_handler = OnInterrupt;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESETHAND;  // a second Ctrl-C ends the program at once
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

bool Interrupted() { return g_interrupted.load(); }

absl::StatusOr<v1::Job> SubmitJob(ServerClient& client, const JobRequest& request) {
  // Weights that are taken out again are not read.
  TW_ASSIGN(std::string model,
            ReadModel(request.model_path, request.operators, /*embed=*/!request.records_only));
  TW_ASSIGN(std::string target, ExpandMeasuredTarget(request.target));
  // A file may have any name, a job's is text.
  const std::string model_name = support::Printable(support::BaseName(request.model_path));
  v1::CreateJobRequest create;
  v1::Job* job = create.mutable_job();
  if (request.records_only) {
    TW_ASSIGN(graph::StrippedModel stripped, graph::StripWeights(model, request.seed));
    model = std::move(stripped.onnx);
    job->set_records_only(true);
    // A server of before that field publishes a module of it: nobody shall take that for the model.
    job->set_model_name(model_name + "-shapes-only");
    (*job->mutable_labels())["records_only"] = "true";
  }
  TW_ASSIGN(const log::ModelSizes sizes, ParseSizes(request.sizes));
  TW_TRY(log::CheckJobSizes(sizes));
  jobs::PutSizes(sizes, job);
  TW_ASSIGN(*job->mutable_model(), client.Upload(model));
  job->set_display_name(model_name);
  job->set_target(target);
  job->set_seed(request.seed);
  job->set_cost_model(request.cost_model);
  job->set_pool(request.pool);
  job->set_priority(request.priority);
  job->set_recall(request.recall);
  job->mutable_search_parts()->Assign(request.search_parts.begin(), request.search_parts.end());
  job->mutable_budget()->set_max_trials(request.trials);
  if (request.minutes > 0) {
    *job->mutable_budget()->mutable_max_wall() =
        google::protobuf::util::TimeUtil::NanosecondsToDuration(
            static_cast<int64_t>(request.minutes * 60e9));
  }
  create.set_parent("projects/default");
  create.set_job_id(request.name);
  create.set_request_id(RequestId(request, support::HexEncode(job->model().hash()), sizes));
  TW_TRY(CheckKnowsSizes(client, create, sizes));
  return client.Call(client.jobs(), &v1::JobService::Stub::CreateJob, create);
}

absl::StatusOr<v1::Job> WatchJob(ServerClient& client, const std::string& name, bool quiet,
                                 const AliveCheck& alive) {
  CatchInterrupts();
  support::SystemClock clock;
  ProgressPrinter printer(quiet);
  daemon::Backoff backoff(support::Rng(static_cast<uint64_t>(getpid())), 5'000);
  v1::Job job;
  job.set_name(JobName(name));
  std::string cursor;
  int64_t last_life_ns = clock.NowNs();
  while (true) {
    const int64_t before = last_life_ns;
    const absl::Status status =
        FollowOnce(client, &job, &cursor, &printer, &last_life_ns,
                   [&alive] { return Interrupted() || (alive != nullptr && !alive().ok()); });
    if (status.ok()) return job;
    if (Interrupted()) {
      return support::Cancelled("cli.interrupted", "stopped watching " + job.name());
    }
    if (alive != nullptr) TW_TRY(alive());
    if (!daemon::IsRetryable(status) && status.code() != absl::StatusCode::kCancelled) {
      return support::WithContext(status, "server " + client.address());
    }
    if (last_life_ns != before) backoff.Reset();
    if (clock.NowNs() - last_life_ns > kPatienceMs * 1'000'000) {
      return support::WithContext(status, "no sign of life from server " + client.address());
    }
    if (status.code() != absl::StatusCode::kDeadlineExceeded) support::SleepMs(backoff.NextMs());
  }
}

absl::StatusOr<std::vector<v1::Task>> FetchTasks(ServerClient& client, const std::string& job) {
  std::vector<v1::Task> tasks;
  v1::ListTasksRequest request;
  request.set_parent(JobName(job));
  do {
    TW_ASSIGN(v1::ListTasksResponse page,
              client.Call(client.jobs(), &v1::JobService::Stub::ListTasks, request));
    tasks.insert(tasks.end(), page.tasks().begin(), page.tasks().end());
    request.mutable_page()->set_page_token(page.next_page_token());
  } while (!request.page().page_token().empty());
  return tasks;
}

double FleetPeaks::Of(const std::string& data_type) const {
  if (data_type == "float32") return float32;
  if (data_type == "float64") return float32 / 2;  // half the lanes
  return data_type == "int8" ? int8 : 0;
}

FleetPeaks FindFleetPeaks(ServerClient& client, const std::string& target) {
  const auto page = client.Call(client.fleet(), &v1::FleetAdminService::Stub::ListDevices,
                                v1::ListDevicesRequest());
  FleetPeaks peaks;
  if (!page.ok()) return peaks;
  for (const v1::Device& device : page->devices()) {
    const auto& attributes = device.attributes();
    const auto cores = attributes.find("cores");
    if (cores == attributes.end() || cores->second.i() < 1) continue;
    const auto raise = [&](const char* name, double* peak) {
      const auto all = attributes.find(name);
      if (all == attributes.end()) return;
      const double of_one = all->second.d() / static_cast<double>(cores->second.i());
      *peak = std::max(*peak, of_one * module::TargetThreads(target));
    };
    raise("peak_gflops", &peaks.float32);
    raise("peak_int8_gops", &peaks.int8);
  }
  return peaks;
}

}  // namespace tilewright::cli
