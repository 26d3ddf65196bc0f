// `tilewright log show`: one task, its records, and the program of one of them.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "compiler/driver/tasks.h"
#include "compiler/ir/ir_text.h"
#include "compiler/ir/structural.h"
#include "compiler/schedule/schedule.h"
#include "deploy/support/strings.h"
#include "tuner_server/cli/cli_error.h"
#include "tuner_server/cli/launch_text.h"
#include "tuner_server/cli/log_commands.h"
#include "tuner_server/cli/log_task.h"
#include "tuner_server/cli/server_client.h"
#include "tuner_server/jobs/work_items.h"

namespace tilewright::cli {
namespace {

using support::StrCat;

// The record that is shown in full.
absl::StatusOr<Measured> ChooseRecord(log::TuningLog* log, const LogShowOptions& options,
                                      const log::TaskRow& task,
                                      const std::vector<Measured>& measured) {
  if (options.record.empty()) {
    TW_ASSIGN(TaskSchedule schedule, ChooseSchedule(log, task, measured));
    return std::move(schedule.chosen);
  }
  Measured chosen;
  TW_ASSIGN(chosen.record, log->GetRecord(options.record));
  if (chosen.record.job != task.job || chosen.record.task != task.name) {
    return support::NotFound("log.record.not_found",
                             StrCat(options.record, " is a record of another task"));
  }
  TW_ASSIGN(chosen.trial, log->GetTrial(chosen.record.job, chosen.record.trial));
  return chosen;
}

// The program's text; the first line says whether it is the one that was measured.
absl::StatusOr<std::string> ProgramText(const log::TaskRow& task, const log::TrialRow& trial) {
  TW_ASSIGN(const auto variants, driver::TaskVariants(task.text));
  TW_ASSIGN(const ir::Function scheduled, schedule::Replay(variants, trial.steps));
  const std::string hash = ir::ProgramHash(scheduled);
  const std::string note =
      hash == trial.program_hash
          ? StrCat("program ", hash, " (the measured one)\n")
          : StrCat("program ", hash, " is STALE: ", trial.program_hash, " was measured\n");
  return note + ir::Print(scheduled);
}

nlohmann::json KernelsJson(const log::TrialRow& trial) {
  nlohmann::json list = nlohmann::json::array();
  const v1::ResourceReport report = jobs::ResourcesFromJson(trial.resources);
  for (const v1::KernelResources& kernel : report.kernels()) {
    list.push_back({{"name", kernel.name()},
                    {"registers", kernel.registers()},
                    {"spill_bytes", kernel.spill_bytes()},
                    {"stack_bytes", kernel.stack_bytes()},
                    {"shared_bytes", kernel.shared_bytes()}});
  }
  return list;
}

std::string KernelsText(const log::TrialRow& trial) {
  std::string text;
  const v1::ResourceReport report = jobs::ResourcesFromJson(trial.resources);
  for (const v1::KernelResources& kernel : report.kernels()) {
    text += StrCat("\nkernel  ", kernel.name(), ": ", kernel.registers(), " registers, ",
                   kernel.shared_bytes(), " bytes shared, ", kernel.spill_bytes(), " spilled");
  }
  return text;
}

nlohmann::json RecordJson(const Measured& row) {
  return {{"measurement_id", row.record.measurement_id},
          {"outcome", log::OutcomeName(row.record.outcome)},
          {"valid", row.record.valid},
          {"median", row.record.median},
          {"ci_rel", row.record.ci_rel},
          {"value_kind", row.record.value_kind},
          {"proposed_by", row.trial.proposed_by},
          {"generated_by", row.trial.generated_by},
          {"predicted", row.trial.predicted},
          {"rank", row.trial.rank},
          {"considered", row.trial.considered},
          {"model_id", row.trial.model_id},
          {"device", row.record.device},
          {"program_hash", row.trial.program_hash},
          {"error", row.record.error_detail},
          {"kernels", KernelsJson(row.trial)},
          {"steps", row.trial.steps}};
}

std::string RecordsTable(const std::vector<Measured>& rows, int limit) {
  Table table({{"measurement"},
               {"outcome"},
               {"median", true},
               {"± (95 %)", true},
               {"proposed by"},
               {"made by"},
               {"rank", true},
               {"device"}});
  for (const Measured& row : rows) {
    if (static_cast<int>(table.rows()) >= limit) break;
    const bool ok = row.record.outcome == log::Outcome::kOk;
    table.AddRow(
        {row.record.measurement_id,
         StrCat(log::OutcomeName(row.record.outcome), ok && !row.record.valid ? " (invalid)" : ""),
         ValueText(row.record.median, row.record.value_kind),
         row.record.median > 0 ? support::FormatFixed(100 * row.record.ci_rel, 1) + "%" : "-",
         row.trial.proposed_by, row.trial.generated_by,
         row.trial.considered > 0 ? StrCat(row.trial.rank, "/", row.trial.considered) : "-",
         LastPart(row.record.device)});
  }
  std::string text = table.Render();
  if (static_cast<int>(rows.size()) > limit) {
    text += StrCat("... and ", static_cast<int>(rows.size()) - limit, " more (--limit)\n");
  }
  return text;
}

absl::Status Show(const LogShowOptions& options) {
  TW_ASSIGN(const LogPlace place, ResolveLogPlace(options.place));
  TW_ASSIGN(const std::unique_ptr<log::TuningLog> log, OpenLog(place, options.task.job, false));
  TW_ASSIGN(const log::TaskRow task, FindTask(log.get(), options.task));
  TW_ASSIGN(const std::vector<Measured> rows, MeasuredTrials(log.get(), task));
  TW_ASSIGN(const Measured chosen, ChooseRecord(log.get(), options, task, rows));
  std::string program;
  if (options.show_ir) {
    TW_ASSIGN(program, ProgramText(task, chosen.trial));
  }
  if (options.format == OutputFormat::kJson) {
    nlohmann::json out = {{"task", task.name},
                          {"hash", task.hash},
                          {"job", task.job},
                          {"description", task.description},
                          {"launches", LaunchesJson(module::ParseLaunchNames(task.launch_names))},
                          {"uses", task.weight},
                          {"flops", task.flops},
                          {"text", task.text},
                          {"default_steps", task.default_steps},
                          {"chosen", RecordJson(chosen)}};
    out["records"] = nlohmann::json::array();
    for (const Measured& row : rows) out["records"].push_back(RecordJson(row));
    if (options.show_ir) out["program"] = program;
    PrintJson(out);
    return absl::OkStatus();
  }
  if (options.show_ir) {
    PrintOut(program);
    return absl::OkStatus();
  }
  PrintOut(StrCat("task    ", task.name, "  ", task.description, "\nhash    ", task.hash,
                  "\nlaunch  ", LaunchesText(module::ParseLaunchNames(task.launch_names)),
                  "\njob     ", task.job, ", used ", task.weight, " times, ",
                  support::FormatFixed(task.flops / 1e6, 3), " MFLOP\n\n", task.text));
  PrintOut("\n" + RecordsTable(rows, options.limit));
  PrintOut(StrCat(
      "\nsteps of ",
      chosen.record.measurement_id.empty() ? "the default schedule" : chosen.record.measurement_id,
      " (program ", chosen.trial.program_hash, ")\n", chosen.trial.steps,
      KernelsText(chosen.trial)));
  if (!chosen.record.error_detail.empty()) {
    PrintOut("\nerror   " + chosen.record.error_class + ": " + chosen.record.error_detail);
  }
  return absl::OkStatus();
}

}  // namespace

int LogShow(const LogShowOptions& options) {
  return Finish("log show", "cannot show task " + options.task.word, Show(options));
}

}  // namespace tilewright::cli
