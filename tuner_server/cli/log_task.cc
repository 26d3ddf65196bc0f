#include "tuner_server/cli/log_task.h"

#include <algorithm>

#include "deploy/module/module_file.h"
#include "deploy/support/strings.h"
#include "tuner_server/cli/launch_text.h"
#include "tuner_server/cli/server_client.h"
#include "tuner_server/log/schedule_rule.h"

namespace tilewright::cli {

namespace {

using support::StrCat;

bool IsTask(const log::TaskRow& task, const std::string& word) {
  return task.name == word || (word.size() >= 4 && task.hash.starts_with(word));
}

bool Launches(const log::TaskRow& task, const std::string& word) {
  const auto launches = module::ParseLaunchNames(task.launch_names);
  return std::any_of(launches.begin(), launches.end(),
                     [&](const module::LaunchNames& launch) { return Names(launch, word); });
}

// The hash of the task that a module's launch runs.
absl::StatusOr<std::string> TaskOfModule(const std::string& path, const std::string& word) {
  TW_ASSIGN(const module::ModuleFile file,
            module::ModuleFile::Open(path, {.verify_constants = false}));
  const std::vector<module::LaunchNames> names = NamesOf(file.manifest());
  std::vector<std::string> known;
  for (size_t i = 0; i < names.size(); ++i) {
    const module::Launch& launch = file.manifest().FindFunction("main")->launches[i];
    if (Names(names[i], word) || names[i].task == word) return launch.task;
    known.push_back(launch.name);
  }
  return support::NotFound("log.task.not_found",
                           StrCat("no launch ", support::Quote(word), " in ", path,
                                  "; it has: ", support::Join(known, ", ")));
}

}  // namespace

absl::StatusOr<std::vector<Measured>> MeasuredTrials(log::TuningLog* log,
                                                     const log::TaskRow& task) {
  std::vector<Measured> out;
  log::TrialQuery query{.job = task.job, .task = task.name, .limit = log::kPageRows};
  while (true) {
    TW_ASSIGN(const std::vector<log::TrialRow> page, log->ListTrials(query));
    if (page.empty()) break;
    for (const log::TrialRow& trial : page) {
      if (trial.measurement_id.empty()) continue;
      TW_ASSIGN(log::RecordRow record, log->GetRecord(trial.measurement_id));
      out.push_back({trial, std::move(record)});
    }
    query.after_number = page.back().number;
  }
  std::stable_sort(out.begin(), out.end(), [](const Measured& a, const Measured& b) {
    if (a.record.usable() != b.record.usable()) return a.record.usable();
    return a.record.usable() && a.record.median < b.record.median;
  });
  return out;
}

absl::StatusOr<TaskSchedule> ChooseSchedule(log::TuningLog* log, const log::TaskRow& task,
                                            const std::vector<Measured>& measured) {
  TW_ASSIGN(const log::JobRow job, log->GetJob(task.job));
  TaskSchedule out;
  TW_ASSIGN(out.choice, ChooseSchedules(log, {job.target, job.toolchain, "", {task.hash}}));
  const auto row = out.choice.by_task.find(task.hash);
  if (row == out.choice.by_task.end()) {
    out.chosen.trial.steps = task.default_steps;
    out.chosen.trial.program_hash = task.default_program_hash;
    out.chosen.trial.is_default = true;
    out.chosen.trial.generated_by = "default";
    return out;
  }
  TW_ASSIGN(out.chosen.record, log->GetRecord(row->second.measurement_id));
  TW_ASSIGN(out.chosen.trial, log->GetTrial(out.chosen.record.job, out.chosen.record.trial));
  if (out.chosen.trial.generated_by != log::kFinal) return out;
  for (const Measured& one : measured) {  // who proposed it
    if (one.trial.generated_by == log::kFinal) continue;
    if (one.trial.program_hash == out.chosen.trial.program_hash) out.chosen.trial = one.trial;
  }
  return out;
}

absl::StatusOr<log::TaskRow> FindTask(log::TuningLog* log, const TaskQuery& query) {
  std::string wanted = query.word;
  if (!query.module_path.empty()) {
    TW_ASSIGN(wanted, TaskOfModule(query.module_path, query.word));
  }
  std::string known;
  log::JobQuery page{.before_number = 0, .limit = log::kPageRows};
  while (true) {
    TW_ASSIGN(const std::vector<log::JobRow> jobs, log->ListJobs(page));
    if (jobs.empty()) break;
    for (const log::JobRow& job : jobs) {
      if (!query.job.empty() && job.id != LastPart(query.job)) continue;
      TW_ASSIGN(const std::vector<log::TaskRow> tasks, log->ListTasks(job.id));
      for (const auto matches : {IsTask, Launches}) {
        const auto task = std::find_if(tasks.begin(), tasks.end(), [&](const log::TaskRow& row) {
          return matches(row, wanted);
        });
        if (task != tasks.end()) return *task;
      }
      for (const log::TaskRow& task : tasks) {
        if (known.size() < 1000) known += StrCat(known.empty() ? "" : ", ", task.name);
      }
    }
    page.before_number = jobs.back().number;
  }
  return support::NotFound("log.task.not_found",
                           StrCat("no task, launch or ONNX node ", support::Quote(wanted),
                                  "; the log has the tasks: ", known.empty() ? "none" : known));
}

}  // namespace tilewright::cli
