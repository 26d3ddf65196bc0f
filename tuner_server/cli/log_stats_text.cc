#include "tuner_server/cli/log_stats_text.h"

#include <map>
#include <nlohmann/json.hpp>

#include "deploy/support/strings.h"
#include "tuner_server/cli/launch_text.h"
#include "tuner_server/cli/progress.h"
#include "tuner_server/cli/shape_flags.h"
#include "tuner_server/cli/table.h"

namespace tilewright::cli {
namespace {

using support::FormatFixed;
using support::StrCat;

std::string OutcomesText(const std::map<log::Outcome, int64_t>& outcomes) {
  std::string text;
  for (const auto& [outcome, count] : outcomes) {
    text += StrCat(text.empty() ? "" : ", ", count, " ", log::OutcomeName(outcome));
  }
  return text.empty() ? "none" : text;
}

// Kinds of work as people speak of them.
std::vector<std::pair<std::string, double>> Shares(const log::TimeShares& time) {
  return {{"search", time.search_s},
          {"features and model", time.features_s + time.model_s + time.train_s},
          {"build", time.lower_s + time.codegen_s + time.link_s},
          {"dispatch", time.fetch_s},
          {"measurement", time.load_s + time.run_s}};
}

nlohmann::json TaskJson(const log::TaskStats& task) {
  nlohmann::json outcomes = nlohmann::json::object();
  for (const auto& [outcome, count] : task.by_outcome) {
    outcomes[std::string(log::OutcomeName(outcome))] = count;
  }
  return {{"name", task.task.name},
          {"hash", task.task.hash},
          {"description", task.task.description},
          {"uses", task.task.weight},
          {"trials", task.ended},
          {"outcomes", outcomes},
          {"default_median", task.default_median},
          {"best_median", task.best_median},
          {"best_measurement_id", task.best_measurement_id},
          {"best_steps", task.best_steps}};
}

}  // namespace

std::vector<PickQuality> ComputePickQuality(const std::vector<log::TrialRow>& trials) {
  std::map<std::string, std::map<std::string, std::vector<const log::TrialRow*>>> groups;
  for (const log::TrialRow& trial : trials) {
    if (trial.median <= 0 || trial.is_default) continue;
    const std::string model = trial.model_id.empty() ? trial.proposed_by : trial.model_id;
    groups[model][trial.task].push_back(&trial);
  }
  std::vector<PickQuality> out;
  for (const auto& [model, tasks] : groups) {
    PickQuality quality{model};
    for (const auto& [task, rows] : tasks) {
      quality.measured += static_cast<int64_t>(rows.size());
      for (size_t i = 0; i < rows.size(); ++i) {
        for (size_t j = i + 1; j < rows.size(); ++j) {
          if (rows[i]->median == rows[j]->median) continue;
          ++quality.pairs;
          const bool first_faster = rows[i]->median < rows[j]->median;
          const bool first_predicted = rows[i]->predicted > rows[j]->predicted;
          if (first_faster == first_predicted) ++quality.right;
        }
      }
    }
    out.push_back(std::move(quality));
  }
  return out;
}

std::string StatsText(const log::JobStats& stats) {
  const log::ModelSizes sizes = SizesOfSpec(stats.job.spec_json);
  std::string text =
      StrCat("job       ", stats.job.id, " (", log::JobStateName(stats.job.state), ")\ntarget    ",
             stats.job.target, sizes.empty() ? "" : "\nsizes     " + sizes.Words(), "\ntrials    ",
             stats.counts.ended, " ended of ", stats.counts.proposed, ": ",
             OutcomesText(stats.counts.by_outcome),
             stats.counts.finals > 0 ? StrCat("; ", stats.counts.finals, " winners again") : "",
             "\nrecords   ", stats.records, ", ", stats.invalid_records, " of them invalid\n");
  if (stats.batches > 0) {
    text += StrCat("search    ", stats.batches, " batches, ", stats.considered, " drafts ranked");
    const double busy = stats.time.search_s + stats.time.features_s + stats.time.model_s;
    if (busy > 0) {
      text += StrCat(", ", CountText(static_cast<double>(stats.considered) / busy),
                     "drafts per second of search");
    }
    text += "\n";
  }
  if (stats.job.elapsed_s > 0) {
    text += StrCat("elapsed   ", DurationText(stats.job.elapsed_s), ", ",
                   FormatFixed(static_cast<double>(stats.counts.ended) / stats.job.elapsed_s, 2),
                   " trials per second\n");
  }
  double all = 0;
  for (const auto& [name, seconds] : Shares(stats.time)) all += seconds;
  Table where({{"time spent in"}, {"seconds", true}, {"share", true}});
  for (const auto& [name, seconds] : Shares(stats.time)) {
    where.AddRow(
        {name, FormatFixed(seconds, 2), all > 0 ? FormatFixed(100 * seconds / all, 1) + "%" : "-"});
  }
  Table tasks({{"task"},
               {"uses", true},
               {"trials", true},
               {"default", true},
               {"best", true},
               {"gain", true},
               {"outcomes"},
               {"launches (ONNX nodes)"}});
  for (const log::TaskStats& task : stats.tasks) {
    tasks.AddRow({task.task.name, StrCat(task.task.weight), StrCat(task.ended),
                  ValueText(task.default_median, stats.unit),
                  ValueText(task.best_median, stats.unit),
                  RatioText(task.default_median, task.best_median), OutcomesText(task.by_outcome),
                  LaunchesText(module::ParseLaunchNames(task.task.launch_names))});
  }
  return StrCat(text, "\n", where.Render(), "\n", tasks.Render(),
                "end to end (sum of kernels): default ",
                ValueText(stats.default_total(), stats.unit), ", best ",
                ValueText(stats.best_total(), stats.unit), ", gain ",
                RatioText(stats.default_total(), stats.best_total()), "\n");
}

std::string ModelsText(const log::JobStats& stats, const std::vector<PickQuality>& picks,
                       bool has_models) {
  std::string text;
  if (has_models) {
    Table models({{"trained model"},
                  {"rows", true},
                  {"held out", true},
                  {"pairs right", true},
                  {"recall@8", true},
                  {"of the prior", true},
                  {"of the previous", true},
                  {"seconds", true},
                  {"in use"}});
    for (const log::ModelRow& model : stats.models) {
      models.AddRow({model.id, StrCat(model.train_rows), StrCat(model.held_out_rows),
                     FormatFixed(model.pairwise_accuracy, 3), FormatFixed(model.recall_at_8, 3),
                     FormatFixed(model.prior_recall_at_8, 3),
                     FormatFixed(model.previous_recall_at_8, 3), FormatFixed(model.seconds, 3),
                     model.replaced ? "yes" : "no: " + model.reason});
    }
    text += models.Render() + "\n";
  } else {
    text += "held-out figures of trained models are in the server's log file only (--log)\n\n";
  }
  Table table({{"picked by"}, {"measured", true}, {"pairs", true}, {"pairs right", true}});
  for (const PickQuality& pick : picks) {
    table.AddRow({pick.model_id, StrCat(pick.measured), StrCat(pick.pairs),
                  pick.pairs > 0 ? FormatFixed(pick.accuracy(), 3) : "-"});
  }
  return text + table.Render();
}

nlohmann::json StatsJson(const log::JobStats& stats, const std::vector<PickQuality>& picks) {
  nlohmann::json out = {{"job", stats.job.id},
                        {"state", log::JobStateName(stats.job.state)},
                        {"target", stats.job.target},
                        {"sizes", SizesJson(SizesOfSpec(stats.job.spec_json))},
                        {"elapsed_s", stats.job.elapsed_s},
                        {"trials_proposed", stats.counts.proposed},
                        {"trials_ended", stats.counts.ended},
                        {"finals", stats.counts.finals},
                        {"records", stats.records},
                        {"invalid_records", stats.invalid_records},
                        {"batches", stats.batches},
                        {"considered", stats.considered},
                        {"default_total", stats.default_total()},
                        {"best_total", stats.best_total()}};
  for (const auto& [outcome, count] : stats.counts.by_outcome) {
    out["outcomes"][std::string(log::OutcomeName(outcome))] = count;
  }
  for (const auto& [name, seconds] : Shares(stats.time)) out["seconds"][name] = seconds;
  out["tasks"] = nlohmann::json::array();
  for (const log::TaskStats& task : stats.tasks) out["tasks"].push_back(TaskJson(task));
  out["models"] = nlohmann::json::array();
  for (const log::ModelRow& model : stats.models) {
    out["models"].push_back({{"id", model.id},
                             {"sha256", model.sha256},
                             {"train_rows", model.train_rows},
                             {"held_out_rows", model.held_out_rows},
                             {"pairwise_accuracy", model.pairwise_accuracy},
                             {"recall_at_8", model.recall_at_8},
                             {"previous_recall_at_8", model.previous_recall_at_8},
                             {"prior_recall_at_8", model.prior_recall_at_8},
                             {"rounds", model.rounds},
                             {"seconds", model.seconds},
                             {"replaced", model.replaced},
                             {"reason", model.reason}});
  }
  out["picks"] = nlohmann::json::array();
  for (const PickQuality& pick : picks) {
    out["picks"].push_back({{"picked_by", pick.model_id},
                            {"measured", pick.measured},
                            {"pairs", pick.pairs},
                            {"pairwise_accuracy", pick.accuracy()}});
  }
  return out;
}

}  // namespace tilewright::cli
