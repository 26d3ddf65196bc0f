#include "tuner_server/cli/tune_command.h"

#include <nlohmann/json.hpp>
#include <vector>

#include "deploy/support/env.h"
#include "deploy/support/file.h"
#include "deploy/support/hash.h"
#include "deploy/support/strings.h"
#include "tuner_server/cli/cli_error.h"
#include "tuner_server/cli/compile_command.h"
#include "tuner_server/cli/local_tuning.h"
#include "tuner_server/cli/log_source.h"
#include "tuner_server/cli/model_compiler.h"
#include "tuner_server/cli/module_fetch.h"
#include "tuner_server/cli/native_target.h"
#include "tuner_server/cli/shape_flags.h"
#include "tuner_server/cli/tune_failure.h"

namespace tilewright::cli {
namespace {

using support::StrCat;

void Say(const std::string& text) { PrintErr(text + "\n"); }

class Tuner {
 public:
  explicit Tuner(const TuneOptions& options)
      : options_(options),
        output_(options.output.empty() ? DefaultOutput(options.job.model_path) : options.output) {}

  absl::Status Run() {
    TW_ASSIGN(target_, ExpandMeasuredTarget(options_.job.target));
    TW_TRY(support::FileSize(options_.job.model_path).status());
    TW_ASSIGN(sizes_, ParseSizes(options_.job.sizes));
    TW_TRY(log::CheckJobSizes(sizes_));
    if (!options_.detach) TW_TRY(CheckWritable(output_));
    const bool local_wanted = !options_.log_path.empty() || !options_.state_dir.empty() ||
                              !options_.device.empty() || !options_.bridge.empty();
    const bool has_env = support::GetEnv("TILEWRIGHT_SERVER").has_value();
    if (!options_.server.address.empty() && local_wanted) {
      return support::InvalidArgument(
          "cli.usage.server",
          "--log, --state-dir, --device and --bridge are for tuning without --server");
    }
    CatchInterrupts();
    return !options_.server.address.empty() || (has_env && !local_wanted) ? RunOnServer()
                                                                          : RunHere();
  }

 private:
  absl::Status RunOnServer() {
    TW_ASSIGN(ServerClient client, ServerClient::Connect(options_.server));
    const std::string& address = client.address();
    TW_ASSIGN(v1::Job job,
              Patiently(kSubmitPatienceMs, [&] { return SubmitJob(client, options_.job); }));
    const std::string watch =
        StrCat("tilewright jobs watch ", LastPart(job.name()), " ", client.Flags());
    if (options_.detach) {
      if (options_.format == OutputFormat::kJson) {
        PrintJson(JobJson(job));
      } else {
        PrintOut(StrCat(job.name(), "\nwatch it with: ", watch));
      }
      return absl::OkStatus();
    }
    Say(StrCat("job ", job.name(), " on ", address, ", target ", job.target()));
    auto watched = WatchJob(client, job.name(), false);
    if (!watched.ok() && Interrupted()) {
      Say(StrCat("the job continues; watch it with: ", watch, "\nor end it with: tilewright jobs ",
                 "cancel ", LastPart(job.name()), " ", client.Flags()));
    }
    TW_TRY(watched.status());
    return Conclude(client, *watched);
  }

  absl::Status RunHere() {
    if (options_.detach) {
      return support::InvalidArgument("cli.usage.detach", "--detach needs --server");
    }
    TW_ASSIGN(const auto here, LocalTuning::Start({options_.state_dir, options_.log_path, target_,
                                                   options_.device, options_.bridge}));
    Say(StrCat("tuning on this machine, target ", target_, "; tuning log ", here->log_path()));
    TW_ASSIGN(const v1::Job job, here->Run(options_.job));
    return ExplainEmbedded(Conclude(here->client(), job), job.name(), here->log_path(),
                           here->state_dir());
  }

  // The weights never left: the module is compiled here, of the job's records.
  absl::Status ConcludeHere(ServerClient& client, const v1::Job& job,
                            const std::vector<v1::Task>& tasks, const FleetPeaks& peaks) {
    LogPlace place;
    place.server = options_.server;
    place.server.address = client.address();
    // With recall the best record may be an earlier job's.
    const std::string from = options_.job.recall ? "" : job.name();
    TW_ASSIGN(const std::unique_ptr<log::TuningLog> log, OpenLog(place, from, false));
    TW_ASSIGN(ModelCompiler compiler, ModelCompiler::Open({.model_path = options_.job.model_path,
                                                           .target = job.target(),
                                                           .sizes = sizes_,
                                                           .operators = options_.job.operators,
                                                           .disabled = {},
                                                           .enabled = {}}));
    v1::CompileModule request;
    request.set_job(job.uid());
    request.set_predict_open_tasks(true);
    TW_ASSIGN(const ScheduleChoice choice,
              UseRecords(log.get(), job.target(), "", compiler.opened(), &request));
    // The same graph and shapes have the same tasks; a server of another version may see others.
    for (const auto& [hash, why] : choice.why_not) Say(StrCat("not tuned: task ", hash, ": ", why));
    if (choice.by_task.empty()) {
      return support::FailedPrecondition("cli.records_only.none",
                                         "none of the job's records is about a task of this model");
    }
    TW_ASSIGN(const v1::ModuleCompiled compiled, compiler.CompileFile(std::move(request)));
    TW_TRY(support::MoveFile(compiled.path(), output_));
    PrintResult(job, tasks, peaks, "compiled here", support::HexEncode(compiled.digest().hash()));
    return absl::OkStatus();
  }

  // The job has ended: table, module.
  absl::Status Conclude(ServerClient& client, const v1::Job& job) {
    TW_ASSIGN(const std::vector<v1::Task> tasks,
              Patiently(kPatienceMs, [&] { return FetchTasks(client, job.name()); }));
    const FleetPeaks peaks = FindFleetPeaks(client, job.target());
    const absl::Status succeeded = CauseOf(job);
    if (!succeeded.ok()) {
      if (!tasks.empty() && options_.format == OutputFormat::kTable) {
        PrintOut(TasksTable(tasks, peaks));
      }
      return succeeded;
    }
    if (options_.job.records_only) return ConcludeHere(client, job, tasks, peaks);
    TW_ASSIGN(const v1::ModuleVersion version,
              Patiently(kPatienceMs, [&] { return FindModule(client, job.published_module()); }));
    TW_TRY(Patiently(kPatienceMs, [&] { return FetchModule(client, version, output_); }).status());
    PrintResult(job, tasks, peaks, version.name(),
                support::HexEncode(version.files(0).digest().hash()));
    return absl::OkStatus();
  }

  void PrintResult(const v1::Job& job, const std::vector<v1::Task>& tasks, const FleetPeaks& peaks,
                   const std::string& origin, const std::string& digest) const {
    if (options_.format == OutputFormat::kJson) {
      nlohmann::json out = JobJson(job);
      out.update(TasksJson(tasks, peaks));
      out["output"] = output_;
      out["sha256"] = digest;
      PrintJson(out);
    } else {
      PrintOut(TasksTable(tasks, peaks));
      PrintOut(StrCat("wrote ", output_, "  ", origin, "  sha256 ", digest));
      if (!job.state_reason().empty()) PrintOut("note: " + job.state_reason());
    }
  }

  const TuneOptions& options_;
  std::string output_;
  std::string target_;
  log::ModelSizes sizes_;
};

}  // namespace

int TuneModel(const TuneOptions& options) {
  return Finish("tune", "cannot tune " + options.job.model_path, Tuner(options).Run());
}

}  // namespace tilewright::cli
