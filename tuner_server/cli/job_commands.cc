#include "tuner_server/cli/job_commands.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "deploy/support/strings.h"
#include "tuner_server/cli/cli_error.h"
#include "tuner_server/cli/launch_text.h"
#include "tuner_server/jobs/size_messages.h"

namespace tilewright::cli {
namespace {

using support::FormatFixed;
using support::StrCat;

double Gflops(const v1::Task& task) {
  if (!UnitOf(task.value_kind()).time) return 0;
  return task.best_us() > 0 ? task.flops() / (task.best_us() * 1e3) : 0;
}

std::vector<module::LaunchNames> LaunchesOf(const v1::Task& task) {
  std::vector<module::LaunchNames> names;
  for (const auto& launch : task.launches()) {
    names.push_back({LastPart(task.name()),
                     launch.name(),
                     {launch.onnx_nodes().begin(), launch.onnx_nodes().end()}});
  }
  return names;
}

// Sum over tasks of weight x time; 0 as long as one has none.
double Total(const std::vector<v1::Task>& tasks, double (v1::Task::*time)() const) {
  double total = 0;
  for (const v1::Task& task : tasks) {
    if (!((task.*time)() > 0)) return 0;
    total += task.weight() * (task.*time)();
  }
  return total;
}

// The tasks whose default and best schedules were both measured.
struct Timed {
  size_t tasks = 0;
  double default_us = 0, best_us = 0;  // sums of weight x time
};
Timed TimedOf(const std::vector<v1::Task>& tasks) {
  Timed timed;
  for (const v1::Task& task : tasks) {
    if (!(task.default_us() > 0) || !(task.best_us() > 0)) continue;
    ++timed.tasks;
    timed.default_us += task.weight() * task.default_us();
    timed.best_us += task.weight() * task.best_us();
  }
  return timed;
}

constexpr char kFromLog[] = "*";  // behind a time that another job measured

std::string MarkedTime(double us, v1::ValueKind unit, const std::string& job) {
  return ValueText(us * 1e3, UnitOf(unit)) + (us > 0 && !job.empty() ? kFromLog : "");
}

// Lines below the table: what its marks mean, and why a time is missing.
std::string Notes(const std::vector<v1::Task>& tasks) {
  std::set<std::string> jobs;
  std::string text;
  for (const v1::Task& task : tasks) {
    if (!task.default_job().empty()) jobs.insert(LastPart(task.default_job()));
    if (!task.best_job().empty()) jobs.insert(LastPart(task.best_job()));
    if (task.default_us() > 0 || task.why_no_default().empty()) continue;
    text += StrCat("no default time of ", LastPart(task.name()), ": ", task.why_no_default(), "\n");
  }
  if (jobs.empty()) return text;
  return StrCat(kFromLog, " from the log: measured by job ", support::Join(jobs, ", "), "\n", text);
}

std::string GainText(const v1::Progress& progress) {
  if (!(progress.gain() > 0)) return RatioText(progress.baseline_us(), progress.best_us());
  std::string text = RatioText(progress.gain(), 1);
  if (progress.timed_tasks() < progress.tasks()) {
    text += StrCat(" on ", progress.timed_tasks(), " of ", progress.tasks(), " tasks");
  }
  return text;
}

std::string StateText(const v1::Job& job) {
  return support::ToLower(v1::Job::State_Name(job.state()));
}

// A line for each thing that holds the job back.
std::string WaitingText(const v1::Job& job) {
  std::string text;
  for (const v1::Condition& condition : job.conditions()) {
    text += StrCat("\nwaiting   ", condition.reason(), ": ", condition.message());
  }
  return text;
}

void PrintJob(const v1::Job& job) {
  std::string text = StrCat("job       ", job.name(), "\nmodel     ", job.display_name(),
                            "\ntarget    ", job.target(), "\nstate     ", StateText(job));
  if (!job.state_reason().empty()) text += " (" + job.state_reason() + ")";
  text += StrCat("\ntrials    ", job.progress().measured(), " of ", job.progress().trials_total());
  for (const auto& [kind, count] : job.progress().failed_by_kind()) {
    text += StrCat(", ", count, " ", kind);
  }
  const support::MeasureUnit& unit = UnitOf(job.progress().value_kind());
  text += StrCat("\nend to end ", ValueText(job.progress().best_us() * 1e3, unit), ", default ",
                 ValueText(job.progress().baseline_us() * 1e3, unit), " (",
                 GainText(job.progress()), ")");
  const log::ModelSizes sizes = jobs::SizesOf(job);
  if (!sizes.empty()) text += "\nsizes     " + sizes.Words();
  if (!job.published_module().empty()) text += "\nmodule    " + job.published_module();
  if (!job.progress().phase().empty()) text += "\nphase     " + job.progress().phase();
  PrintOut(text + WaitingText(job));
}

}  // namespace

nlohmann::json JobJson(const v1::Job& job) {
  nlohmann::json failed = nlohmann::json::object();
  for (const auto& [kind, count] : job.progress().failed_by_kind()) failed[kind] = count;
  nlohmann::json conditions = nlohmann::json::array();
  for (const v1::Condition& c : job.conditions()) {
    conditions.push_back({{"type", c.type()}, {"reason", c.reason()}, {"message", c.message()}});
  }
  return {{"name", job.name()},
          {"display_name", job.display_name()},
          {"state", v1::Job::State_Name(job.state())},
          {"state_reason", job.state_reason()},
          {"conditions", conditions},
          {"target", job.target()},
          {"seed", job.seed()},
          {"cost_model", job.cost_model()},
          {"sizes", SizesJson(jobs::SizesOf(job))},
          {"published_module", job.published_module()},
          {"create_time", TimestampText(job.create_time())},
          {"progress",
           {{"proposed", job.progress().proposed()},
            {"built", job.progress().built()},
            {"measured", job.progress().measured()},
            {"cached", job.progress().cached()},
            {"trials_total", job.progress().trials_total()},
            {"best_us", job.progress().best_us()},
            {"baseline_us", job.progress().baseline_us()},
            {"unit", UnitOf(job.progress().value_kind()).name},
            {"gain", job.progress().gain()},
            {"tasks", job.progress().tasks()},
            {"timed_tasks", job.progress().timed_tasks()},
            {"elapsed_s", Seconds(job.progress().elapsed())},
            {"retrainings", job.progress().retrainings()},
            {"phase", job.progress().phase()},
            {"failed_by_kind", failed}}}};
}

absl::Status CheckSucceeded(const v1::Job& job) {
  if (job.state() == v1::Job::SUCCEEDED) return absl::OkStatus();
  const bool cancelled = job.state() == v1::Job::CANCELLED;
  return support::FailedPrecondition(
      cancelled ? "job.cancelled" : "job.failed",
      StrCat(job.name(), " is ", StateText(job), ": ",
             job.state_reason().empty() ? "no reason given" : job.state_reason()));
}

std::string TasksTable(const std::vector<v1::Task>& tasks, const FleetPeaks& peaks) {
  Table table({{"task"},
               {"what"},
               {"uses", true},
               {"default", true},
               {"tuned", true},
               {"gain", true},
               {"GFLOP/s", true},
               {"of peak", true},
               {"trials", true},
               {"ONNX nodes"}});
  for (const v1::Task& task : tasks) {
    const double gflops = Gflops(task), peak = peaks.Of(task.data_type());
    table.AddRow({LastPart(task.name()), task.description(), StrCat(task.weight()),
                  MarkedTime(task.default_us(), task.value_kind(), task.default_job()),
                  MarkedTime(task.best_us(), task.value_kind(), task.best_job()),
                  RatioText(task.default_us(), task.best_us()),
                  gflops > 0 ? FormatFixed(gflops, 1) : "-",
                  gflops > 0 && peak > 0 ? FormatFixed(100 * gflops / peak, 1) + "%" : "-",
                  StrCat(task.trials()), LaunchesText(LaunchesOf(task))});
  }
  const Timed timed = TimedOf(tasks);
  const support::MeasureUnit& unit =
      UnitOf(tasks.empty() ? v1::VALUE_KIND_UNSPECIFIED : tasks.front().value_kind());
  const bool all = timed.tasks == tasks.size();
  return StrCat(table.Render(), "end to end (sum of kernels",
                all ? "" : StrCat(", ", timed.tasks, " of ", tasks.size(), " tasks"), "): default ",
                ValueText(timed.default_us * 1e3, unit), ", tuned ",
                ValueText(timed.best_us * 1e3, unit), ", gain ",
                RatioText(timed.default_us, timed.best_us), "\n", Notes(tasks));
}

nlohmann::json TasksJson(const std::vector<v1::Task>& tasks, const FleetPeaks& peaks) {
  nlohmann::json rows = nlohmann::json::array();
  for (const v1::Task& task : tasks) {
    const double peak = peaks.Of(task.data_type());
    rows.push_back({{"name", task.name()},
                    {"description", task.description()},
                    {"launches", LaunchesJson(LaunchesOf(task))},
                    {"uses", task.weight()},
                    {"default_us", task.default_us()},
                    {"tuned_us", task.best_us()},
                    {"default_from_log", LastPart(task.default_job())},
                    {"tuned_from_log", LastPart(task.best_job())},
                    {"why_no_default", task.why_no_default()},
                    {"unit", UnitOf(task.value_kind()).name},
                    {"gflops", Gflops(task)},
                    {"data_type", task.data_type()},
                    {"share_of_peak", peak > 0 ? Gflops(task) / peak : 0.0},
                    {"trials", task.trials()},
                    {"best_steps", task.best_steps()}});
  }
  const Timed timed = TimedOf(tasks);
  return {{"tasks", rows},
          {"timed_tasks", timed.tasks},
          {"gain", timed.best_us > 0 ? timed.default_us / timed.best_us : 0.0},
          {"default_us", Total(tasks, &v1::Task::default_us)},
          {"tuned_us", Total(tasks, &v1::Task::best_us)}};
}

int JobsSubmit(const ServerPlace& server, const JobRequest& request, OutputFormat format) {
  const auto submit = [&]() -> absl::Status {
    TW_ASSIGN(ServerClient client, ServerClient::Connect(server));
    TW_ASSIGN(v1::Job job, SubmitJob(client, request));
    if (format == OutputFormat::kJson) {
      PrintJson(JobJson(job));
    } else {
      PrintOut(StrCat(job.name(), "\nwatch it with: tilewright jobs watch ", LastPart(job.name()),
                      " ", client.Flags()));
    }
    return absl::OkStatus();
  };
  return Finish("jobs submit", "cannot submit the job", submit());
}

int JobsList(const ServerPlace& server, OutputFormat format) {
  const auto list = [&]() -> absl::Status {
    TW_ASSIGN(ServerClient client, ServerClient::Connect(server));
    Table table(
        {{"job"}, {"model"}, {"state"}, {"trials", true}, {"gain", true}, {"created (UTC)"}});
    nlohmann::json rows = nlohmann::json::array();
    v1::ListJobsRequest request;
    request.set_parent("projects/default");
    do {
      TW_ASSIGN(v1::ListJobsResponse page,
                client.Call(client.jobs(), &v1::JobService::Stub::ListJobs, request));
      for (const v1::Job& job : page.jobs()) {
        rows.push_back(JobJson(job));
        table.AddRow({LastPart(job.name()), job.display_name(), StateText(job),
                      StrCat(job.progress().measured(), "/", job.progress().trials_total()),
                      GainText(job.progress()), TimestampText(job.create_time())});
      }
      request.mutable_page()->set_page_token(page.next_page_token());
    } while (!request.page().page_token().empty());
    if (format == OutputFormat::kJson) {
      PrintJson(rows);
    } else {
      PrintOut(table.Render());
    }
    return absl::OkStatus();
  };
  return Finish("jobs list", "cannot list jobs", list());
}

int JobsGet(const ServerPlace& server, const std::string& name, OutputFormat format) {
  const auto get = [&]() -> absl::Status {
    TW_ASSIGN(ServerClient client, ServerClient::Connect(server));
    v1::GetJobRequest request;
    request.set_name(JobName(name));
    TW_ASSIGN(v1::Job job, client.Call(client.jobs(), &v1::JobService::Stub::GetJob, request));
    TW_ASSIGN(std::vector<v1::Task> tasks, FetchTasks(client, job.name()));
    const FleetPeaks peaks = FindFleetPeaks(client, job.target());
    if (format == OutputFormat::kJson) {
      nlohmann::json out = JobJson(job);
      out.update(TasksJson(tasks, peaks));
      PrintJson(out);
    } else {
      PrintJob(job);
      if (!tasks.empty()) PrintOut("\n" + TasksTable(tasks, peaks));
    }
    return absl::OkStatus();
  };
  return Finish("jobs get", "cannot show job " + name, get());
}

int JobsWatch(const ServerPlace& server, const std::string& name) {
  const auto watch = [&]() -> absl::Status {
    TW_ASSIGN(ServerClient client, ServerClient::Connect(server));
    TW_ASSIGN(v1::Job job, WatchJob(client, name, false));
    TW_ASSIGN(std::vector<v1::Task> tasks, FetchTasks(client, job.name()));
    PrintJob(job);
    PrintOut("\n" + TasksTable(tasks, FindFleetPeaks(client, job.target())));
    return CheckSucceeded(job);
  };
  return Finish("jobs watch", "stopped watching " + name, watch());
}

int JobsCancel(const ServerPlace& server, const std::string& name, OutputFormat format) {
  const auto cancel = [&]() -> absl::Status {
    TW_ASSIGN(ServerClient client, ServerClient::Connect(server));
    v1::CancelJobRequest request;
    request.set_name(JobName(name));
    request.set_reason("cancelled from the command line");
    TW_ASSIGN(v1::Job job, client.Call(client.jobs(), &v1::JobService::Stub::CancelJob, request));
    if (format == OutputFormat::kJson) {
      PrintJson(JobJson(job));
    } else {
      PrintOut(job.name() + " is " + StateText(job) + WaitingText(job));
    }
    return absl::OkStatus();
  };
  return Finish("jobs cancel", "cannot cancel " + name, cancel());
}

}  // namespace tilewright::cli
