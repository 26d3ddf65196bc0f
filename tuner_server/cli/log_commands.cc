#include "tuner_server/cli/log_commands.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>

#include "deploy/support/file.h"
#include "deploy/support/hash.h"
#include "deploy/support/strings.h"
#include "tuner_server/cli/cli_error.h"
#include "tuner_server/cli/log_jobs.h"
#include "tuner_server/cli/log_stats_text.h"
#include "tuner_server/cli/server_client.h"
#include "tuner_server/log/log_stats.h"
#include "tuner_server/log/schedule_rule.h"

namespace tilewright::cli {
namespace {

using support::StrCat;

struct BestRow {
  log::TaskRow task;
  log::RecordRow record;  // of the schedule that `compile --log` takes
  int64_t records = 0;    // usable ones
  double default_median = 0;
  log::Contenders contenders;
};

nlohmann::json BestJson(const BestRow& row) {
  return {{"task", row.task.name},
          {"task_hash", row.task.hash},
          {"description", row.task.description},
          {"target", row.record.key.target_key},
          {"threads", row.record.key.threads},
          {"device_class", row.record.key.device_class},
          {"toolchain", row.record.key.toolchain},
          {"records", row.records},
          {"default_median", row.default_median},
          {"median", row.record.median},
          {"value_kind", row.record.value_kind},
          {"measurement_id", row.record.measurement_id}};
}

// By (task hash, target, threads, class, toolchain).
absl::StatusOr<std::vector<BestRow>> BestRows(log::TuningLog* log, const std::string& task) {
  TW_ASSIGN(const std::vector<log::JobRow> jobs, AllJobs(log, ""));
  std::map<std::tuple<std::string, std::string, int64_t, std::string, std::string>, BestRow> best;
  for (const log::JobRow& job : jobs) {
    TW_ASSIGN(const std::vector<log::TaskRow> tasks, log->ListTasks(job.id));
    std::map<std::string, log::TaskRow> by_name;
    for (const log::TaskRow& row : tasks) by_name[row.name] = row;
    TW_ASSIGN(const std::vector<log::TrialRow> trials, AllTrials(log, job.id));
    for (const log::TrialRow& trial : trials) {
      if (trial.measurement_id.empty()) continue;
      const log::TaskRow& row = by_name[trial.task];
      if (!task.empty() && row.name != task && !row.hash.starts_with(task)) continue;
      TW_ASSIGN(log::RecordRow record, log->GetRecord(trial.measurement_id));
      const log::RecordKey& key = record.key;
      BestRow& slot =
          best[{key.task_hash, key.target_key, key.threads, key.device_class, key.toolchain}];
      slot.task = row;
      if (record.usable()) ++slot.records;
      if (record.usable() && trial.is_default) slot.default_median = record.median;
      slot.contenders.Add(trial, std::move(record));
    }
  }
  std::vector<BestRow> rows;
  for (auto& [key, row] : best) {
    const log::MeasuredTrial* choice = row.contenders.Choice();
    if (choice == nullptr) continue;
    row.record = choice->record;
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace

int LogBest(const LogPlace& flags, const std::string& task, OutputFormat format) {
  const auto show = [&]() -> absl::Status {
    TW_ASSIGN(const LogPlace place, ResolveLogPlace(flags));
    TW_ASSIGN(const std::unique_ptr<log::TuningLog> log, OpenLog(place, "", false));
    TW_ASSIGN(const std::vector<BestRow> rows, BestRows(log.get(), task));
    if (rows.empty() && !task.empty()) {
      return support::NotFound("log.task.not_found", "no usable record of task " + task);
    }
    Table table({{"task"},
                 {"what"},
                 {"hash"},
                 {"target"},
                 {"threads", true},
                 {"device class"},
                 {"toolchain"},
                 {"records", true},
                 {"default", true},
                 {"best", true},
                 {"gain", true},
                 {"measurement"}});
    nlohmann::json json = nlohmann::json::array();
    for (const BestRow& row : rows) {
      json.push_back(BestJson(row));
      table.AddRow({row.task.name, row.task.description, row.task.hash.substr(0, 8),
                    row.record.key.target_key, StrCat(row.record.key.threads),
                    row.record.key.device_class, row.record.key.toolchain, StrCat(row.records),
                    ValueText(row.default_median, row.record.value_kind),
                    ValueText(row.record.median, row.record.value_kind),
                    RatioText(row.default_median, row.record.median), row.record.measurement_id});
    }
    if (format == OutputFormat::kJson) {
      PrintJson(json);
    } else {
      PrintOut(table.Render());
    }
    return absl::OkStatus();
  };
  return Finish("log best", "cannot list the best records", show());
}

int LogExport(const LogExportOptions& options) {
  const auto write = [&]() -> absl::Status {
    TW_ASSIGN(const LogPlace place, ResolveLogPlace(options.place));
    if (options.output.empty()) {
      return StreamExport(place, options.request, [](std::string_view piece) {
        PrintBytes(piece);
        return StdoutStatus();  // no use in reading on when nobody listens
      });
    }
    std::string text;
    TW_TRY(StreamExport(place, options.request, [&text](std::string_view piece) {
      text.append(piece);
      return absl::OkStatus();
    }));
    TW_TRY(support::WriteFileAtomic(options.output, text));
    // As sha256sum -c reads it; `log import` checks it.
    TW_TRY(support::WriteFileAtomic(
        options.output + ".sha256",
        StrCat(support::Sha256Hex(text), "  ", support::BaseName(options.output), "\n")));
    PrintOut(StrCat("wrote ", options.output, "  ", std::count(text.begin(), text.end(), '\n'),
                    " lines"));
    return absl::OkStatus();
  };
  return Finish("log export", "cannot export the log", write());
}

int LogStats(const LogStatsOptions& options) {
  const auto show = [&]() -> absl::Status {
    TW_ASSIGN(const LogPlace place, ResolveLogPlace(options.place));
    TW_ASSIGN(const std::unique_ptr<log::TuningLog> log, OpenLog(place, options.job, true));
    TW_ASSIGN(const std::vector<log::JobRow> jobs, AllJobs(log.get(), options.job));
    nlohmann::json json = nlohmann::json::array();
    std::string text;
    for (const log::JobRow& job : jobs) {
      TW_ASSIGN(const log::JobStats stats, log::ComputeJobStats(log.get(), job.id));
      TW_ASSIGN(const std::vector<log::TrialRow> trials, AllTrials(log.get(), job.id));
      const std::vector<PickQuality> picks = ComputePickQuality(trials);
      json.push_back(StatsJson(stats, picks));
      text += StrCat(text.empty() ? "" : "\n", StatsText(stats));
      if (options.models) text += "\n" + ModelsText(stats, picks, !place.log_path.empty());
    }
    if (options.format == OutputFormat::kJson) {
      PrintJson(json);
    } else {
      PrintOut(text.empty() ? "the log has no jobs" : text);
    }
    return absl::OkStatus();
  };
  return Finish("log stats", "cannot show statistics", show());
}

int LogModel(const LogPlace& flags, const std::string& id, const std::string& job,
             const std::string& output) {
  const auto write = [&]() -> absl::Status {
    TW_ASSIGN(const LogPlace place, ResolveLogPlace(flags));
    if (place.log_path.empty()) {
      return support::InvalidArgument(
          "cli.usage.model",
          "models are read from a log file: expected --log FILE (the server's "
          "is STATE_DIR/tuner.db), found a server");
    }
    TW_ASSIGN(const std::unique_ptr<log::TuningLog> log, OpenLog(place, "", false));
    TW_ASSIGN(const log::ModelRow model, log->GetModel(LastPart(job), id));
    TW_TRY(support::WriteFileAtomic(output, model.bytes));
    PrintOut(StrCat("wrote ", output, "  ", model.bytes.size(), " bytes  sha256 ", model.sha256,
                    "  features ", model.features_schema));
    return absl::OkStatus();
  };
  return Finish("log model", "cannot write model " + id, write());
}

}  // namespace tilewright::cli
