#include "tuner_server/cli/schedule_choice.h"

#include <algorithm>
#include <set>
#include <utility>

#include "deploy/support/strings.h"
#include "tuner_server/log/schedule_rule.h"
#include "tuner_server/log/target_text.h"

namespace tilewright::cli {
namespace {

// Why a record of a wanted task is not about the wanted code; empty when it is.
std::string WhyOther(const log::RecordRow& record, const log::TargetText& target,
                     const std::string& toolchain) {
  const log::RecordKey& key = record.key;
  if (key.target_key != target.WithoutThreads()) return "measured for " + key.target_key;
  if (key.threads != target.threads()) {
    return support::StrCat("measured with ", key.threads, " threads");
  }
  return key.toolchain == toolchain ? "" : "measured with toolchain " + key.toolchain;
}

// Why its time does not count; empty when it does.
std::string WhyUnusable(const log::RecordRow& record) {
  if (!record.usable()) {
    return record.outcome == log::Outcome::kOk ? "the measurement is not valid"
                                               : std::string(log::OutcomeName(record.outcome));
  }
  return record.accepted ? "" : "an attempt that did not count";
}

// What the log knows about the wanted tasks.
struct Known {
  // By device class, then by task. Those without a choice have records that do not count.
  std::map<std::string, std::map<std::string, log::Contenders>> contenders;
  std::map<std::string, std::set<std::string>> why_not;  // by task
};

absl::Status Take(log::TuningLog* log, const log::RecordRow& record, Known* known) {
  const std::string& task = record.key.task_hash;
  const std::string why = WhyUnusable(record);
  if (!why.empty()) known->why_not[task].insert(why);
  if (!record.accepted) return absl::OkStatus();
  TW_ASSIGN(log::TrialRow trial, log->GetTrial(record.job, record.trial));
  known->contenders[record.key.device_class][task].Add(std::move(trial), record);
  return absl::OkStatus();
}

absl::StatusOr<Known> ReadKnown(log::TuningLog* log, const ScheduleQuery& query) {
  TW_ASSIGN(const log::TargetText target, log::ParseTargetText(query.target));
  const std::set<std::string> tasks(query.task_hashes.begin(), query.task_hashes.end());
  Known known;
  log::RecordQuery page{.job = "", .after_seq = 0, .limit = log::kPageRows};
  while (true) {
    TW_ASSIGN(const std::vector<log::RecordRow> records, log->ListRecords(page));
    if (records.empty()) return known;
    for (const log::RecordRow& record : records) {
      if (tasks.count(record.key.task_hash) == 0) continue;
      const std::string other = WhyOther(record, target, query.toolchain);
      if (other.empty()) {
        TW_TRY(Take(log, record, &known));
      } else {
        known.why_not[record.key.task_hash].insert(other);
      }
    }
    page.after_seq = records.back().seq;
  }
}

// The class with schedules for most tasks.
std::string MostKnownClass(const Known& known) {
  std::string most_known;
  size_t most = 0;
  for (const auto& [name, tasks] : known.contenders) {
    if (tasks.size() <= most) continue;
    most = tasks.size();
    most_known = name;
  }
  return most_known;
}

}  // namespace

absl::StatusOr<ScheduleChoice> ChooseSchedules(log::TuningLog* log, const ScheduleQuery& query) {
  TW_ASSIGN(Known known, ReadKnown(log, query));
  for (auto& [name, tasks] : known.contenders) {
    std::erase_if(tasks, [](const auto& task) { return task.second.Choice() == nullptr; });
  }
  std::erase_if(known.contenders, [](const auto& one) { return one.second.empty(); });
  ScheduleChoice choice;
  choice.device_class = query.device_class.empty() ? MostKnownClass(known) : query.device_class;
  for (const auto& [name, tasks] : known.contenders) {
    if (name == choice.device_class) continue;
    choice.other_classes.push_back(name);
    for (const auto& [hash, contenders] : tasks) known.why_not[hash].insert("measured on " + name);
  }
  const auto& chosen = known.contenders[choice.device_class];
  for (const std::string& hash : query.task_hashes) {
    const auto found = chosen.find(hash);
    if (found == chosen.end()) {
      const std::set<std::string>& reasons = known.why_not[hash];
      choice.why_not[hash] = reasons.empty() ? "no record" : support::Join(reasons, "; ");
      continue;
    }
    const log::MeasuredTrial& best = *found->second.Choice();
    choice.by_task[hash] = {best.trial.steps, best.trial.program_hash, best.record.measurement_id,
                            best.record.median};
  }
  return choice;
}

}  // namespace tilewright::cli
