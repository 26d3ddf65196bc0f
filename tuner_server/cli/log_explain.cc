#include "tuner_server/cli/log_explain.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "deploy/support/strings.h"
#include "tuner_server/cli/cli_error.h"
#include "tuner_server/cli/launch_text.h"
#include "tuner_server/cli/server_client.h"
#include "tuner_server/log/schedule_rule.h"

namespace tilewright::cli {
namespace {

using nlohmann::json;
using support::StrCat;

// What was tried for the task in its job.
struct Tried {
  int64_t finals = 0;  // winners measured again; the others are without them
  int64_t trials = 0;
  int64_t batches = 0;
  int64_t considered = 0;                      // candidates that were ranked for it
  std::map<std::string, int64_t> by_outcome;   // of ended trials
  std::map<std::string, int64_t> by_proposer;  // model, prior, random, default
  std::map<std::string, int64_t> by_rule;      // of the space
};

struct Explanation {
  log::TaskRow task;
  log::JobRow job;
  Tried tried;
  std::vector<Measured> usable;  // of the chosen device class, the fastest first
  Measured chosen;
  double default_median = 0;
  std::string rule;  // why this one
  std::string device_class;
  std::string toolchain;
  std::vector<std::string> other_classes;
};

absl::StatusOr<Tried> CountTried(log::TuningLog* log, const log::TaskRow& task) {
  Tried tried;
  log::TrialQuery query{.job = task.job, .task = task.name, .limit = log::kPageRows};
  while (true) {
    TW_ASSIGN(const std::vector<log::TrialRow> page, log->ListTrials(query));
    if (page.empty()) break;
    for (const log::TrialRow& trial : page) {
      if (trial.generated_by == log::kFinal) {
        ++tried.finals;
        continue;
      }
      ++tried.trials;
      ++tried.by_proposer[trial.proposed_by];
      ++tried.by_rule[trial.generated_by];
      ++tried.by_outcome[log::IsFinal(trial.state) ? std::string(log::OutcomeName(trial.outcome))
                                                   : "not ended"];
    }
    query.after_number = page.back().number;
  }
  log::BatchQuery batches{task.job, 0, log::kPageRows};
  while (true) {
    TW_ASSIGN(const log::BatchPage page, log->ListBatches(batches));
    if (page.batches.empty()) return tried;
    for (const log::BatchRow& batch : page.batches) {
      if (batch.task != task.name) continue;
      ++tried.batches;
      tried.considered += batch.considered;
    }
    batches.after_seq = page.last_seq;
  }
}

// The rule that chose between the default schedule and the fastest pick, in words.
std::string RuleText(const Explanation& e) {
  if (e.usable.empty()) {
    return "nothing usable was measured: the default schedule, without a time";
  }
  const Measured& fastest = e.usable.front();
  if (!e.chosen.trial.is_default) {
    if (e.default_median <= 0) return "the fastest; the default schedule has no usable record";
    if (fastest.trial.program_hash != e.chosen.trial.program_hash) {
      return StrCat("the fastest that further measurements confirm; they do not confirm ",
                    fastest.record.measurement_id, ", ",
                    ValueText(fastest.record.median, fastest.record.value_kind));
    }
    return "the fastest, faster than the default schedule beyond what both measurements can be off";
  }
  if (fastest.trial.is_default) return "the default schedule is the fastest of all";
  return StrCat("the default schedule stays: the fastest pick (", fastest.record.measurement_id,
                ", ", ValueText(fastest.record.median, fastest.record.value_kind),
                ") does not beat it by more than both measurements can be off");
}

absl::StatusOr<Explanation> Explain(log::TuningLog* log, const LogExplainOptions& options) {
  Explanation e;
  TW_ASSIGN(e.task, FindTask(log, options.task));
  TW_ASSIGN(e.job, log->GetJob(e.task.job));
  TW_ASSIGN(e.tried, CountTried(log, e.task));
  TW_ASSIGN(const std::vector<Measured> all, MeasuredTrials(log, e.task));
  // By the rule of `compile --log` itself, over the whole log: its answer, not a copy of it.
  TW_ASSIGN(TaskSchedule schedule, ChooseSchedule(log, e.task, all));
  e.chosen = std::move(schedule.chosen);
  e.device_class = schedule.choice.device_class;
  e.toolchain = schedule.choice.toolchain;
  e.other_classes = schedule.choice.other_classes;
  for (const Measured& one : all) {
    if (!one.record.usable() || one.record.key.device_class != e.device_class) continue;
    if (one.record.key.toolchain != e.toolchain) continue;
    e.usable.push_back(one);
    if (one.trial.is_default && e.default_median == 0) e.default_median = one.record.median;
  }
  e.rule = RuleText(e);
  return e;
}

std::string TimeOfDay(int64_t micros) {
  google::protobuf::Timestamp timestamp;
  timestamp.set_seconds(micros / 1'000'000);
  return TimestampText(timestamp);
}

std::string RankText(const log::TrialRow& trial) {
  if (trial.considered <= 0) return "-";
  return StrCat(trial.rank, " of ", trial.considered);
}

json MeasuredJson(const Measured& one) {
  return {{"measurement_id", one.record.measurement_id},
          {"median", one.record.median},
          {"ci_rel", one.record.ci_rel},
          {"value_kind", one.record.value_kind},
          {"device", one.record.device},
          {"device_class", one.record.key.device_class},
          {"device_fingerprint", one.record.device_fingerprint},
          {"agent", one.record.agent},
          {"toolchain", one.record.key.toolchain},
          {"measured", TimeOfDay(one.record.started_us)},
          {"is_default", one.trial.is_default},
          {"proposed_by", one.trial.proposed_by},
          {"generated_by", one.trial.generated_by},
          {"rank", one.trial.rank},
          {"considered", one.trial.considered},
          {"predicted", one.trial.predicted},
          {"model_id", one.trial.model_id},
          {"steps", one.trial.steps}};
}

json ExplanationJson(const Explanation& e, int runner_ups) {
  json out = {{"task", e.task.name},
              {"hash", e.task.hash},
              {"job", e.task.job},
              {"description", e.task.description},
              {"launches", LaunchesJson(module::ParseLaunchNames(e.task.launch_names))},
              {"target", e.job.target},
              {"device_class", e.device_class},
              {"other_classes", e.other_classes},
              {"why", e.rule},
              {"default_median", e.default_median},
              {"chosen", MeasuredJson(e.chosen)},
              {"tried",
               {{"trials", e.tried.trials},
                {"finals", e.tried.finals},
                {"batches", e.tried.batches},
                {"considered", e.tried.considered},
                {"by_outcome", e.tried.by_outcome},
                {"by_proposer", e.tried.by_proposer},
                {"by_rule", e.tried.by_rule}}}};
  out["runner_ups"] = json::array();
  for (const Measured& one : e.usable) {
    if (one.record.measurement_id == e.chosen.record.measurement_id) continue;
    if (static_cast<int>(out["runner_ups"].size()) == runner_ups) break;
    out["runner_ups"].push_back(MeasuredJson(one));
  }
  return out;
}

std::string CountsText(const std::map<std::string, int64_t>& counts) {
  std::string text;
  for (const auto& [name, count] : counts) {
    text += StrCat(text.empty() ? "" : ", ", count, " ", name.empty() ? "?" : name);
  }
  return text.empty() ? "nothing" : text;
}

std::string RunnerUps(const Explanation& e, int limit) {
  Table table({{"runner-up"},
               {"median", true},
               {"slower", true},
               {"proposed by"},
               {"made by"},
               {"rank", true},
               {"device"}});
  for (const Measured& one : e.usable) {
    if (one.record.measurement_id == e.chosen.record.measurement_id) continue;
    if (static_cast<int>(table.rows()) == limit) break;
    const double slower = 100 * (one.record.median / e.chosen.record.median - 1);
    table.AddRow({one.record.measurement_id, ValueText(one.record.median, one.record.value_kind),
                  support::FormatFixed(slower, 1) + "%", one.trial.proposed_by,
                  one.trial.generated_by, RankText(one.trial), LastPart(one.record.device)});
  }
  return table.rows() == 0 ? "no runner-up\n" : table.Render();
}

void PrintExplanation(const Explanation& e, int runner_ups) {
  const Measured& chosen = e.chosen;
  std::string text =
      StrCat("task      ", e.task.name, "  ", e.task.description, "\nlaunches  ",
             LaunchesText(module::ParseLaunchNames(e.task.launch_names)), "\njob       ",
             e.task.job, ", target ", e.job.target, "\nschedule  ",
             chosen.record.measurement_id.empty() ? "default" : chosen.record.measurement_id,
             chosen.trial.is_default ? " (the default)" : "", "\nwhy       ", e.rule);
  if (!chosen.record.measurement_id.empty()) {
    text += StrCat(
        "\ntime      ", ValueText(chosen.record.median, chosen.record.value_kind), " ± ",
        support::FormatFixed(100 * chosen.record.ci_rel, 1), "%, default ",
        ValueText(e.default_median, chosen.record.value_kind), ", gain ",
        RatioText(e.default_median, chosen.record.median), "\nmeasured  ",
        TimeOfDay(chosen.record.started_us), " UTC on ", LastPart(chosen.record.device), " (class ",
        chosen.record.key.device_class, "), toolchain ", chosen.record.key.toolchain,
        "\nmodel     ",
        chosen.trial.considered > 0
            ? StrCat("ranked it ", RankText(chosen.trial), " (made by ", chosen.trial.generated_by,
                     ", proposed by ", chosen.trial.proposed_by, ", model ",
                     chosen.trial.model_id.empty() ? "none yet" : chosen.trial.model_id, ")")
            : std::string("was not asked: each task's first trial is its default"));
  }
  text += StrCat("\ntried     ", e.tried.trials, " trials in ", e.tried.batches, " batches, of ",
                 e.tried.considered,
                 " candidates ranked\n          winners measured again: ", e.tried.finals,
                 "\n          outcomes: ", CountsText(e.tried.by_outcome),
                 "\n          proposed by: ", CountsText(e.tried.by_proposer),
                 "\n          made by: ", CountsText(e.tried.by_rule));
  if (!e.other_classes.empty()) {
    text += "\nnot used  records of device class " + support::Join(e.other_classes, ", ");
  }
  PrintOut(text);
  PrintOut("\n" + RunnerUps(e, runner_ups));
  PrintOut("\nsteps\n" + chosen.trial.steps);
}

absl::Status Run(const LogExplainOptions& options) {
  TW_ASSIGN(const LogPlace place, ResolveLogPlace(options.place));
  TW_ASSIGN(const std::unique_ptr<log::TuningLog> log, OpenLog(place, "", /*drafts=*/true));
  TW_ASSIGN(const Explanation e, Explain(log.get(), options));
  if (options.format == OutputFormat::kJson) {
    PrintJson(ExplanationJson(e, options.runner_ups));
  } else {
    PrintExplanation(e, options.runner_ups);
  }
  return absl::OkStatus();
}

}  // namespace

int LogExplain(const LogExplainOptions& options) {
  return Finish("log explain", "cannot explain task " + options.task.word, Run(options));
}

}  // namespace tilewright::cli
