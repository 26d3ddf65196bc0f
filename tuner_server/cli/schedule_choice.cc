#include "tuner_server/cli/schedule_choice.h"

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>

#include "deploy/support/strings.h"
#include "tuner_server/log/schedule_rule.h"
#include "tuner_server/log/target_text.h"
#include "tuner_server/log/toolchain_text.h"

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
  return log::ToolchainFits(toolchain, key.toolchain) ? ""
                                                      : "measured with toolchain " + key.toolchain;
}

// Why its time does not count; empty when it does.
std::string WhyUnusable(const log::RecordRow& record) {
  if (!record.usable()) {
    return record.outcome == log::Outcome::kOk ? "the measurement is not valid"
                                               : std::string(log::OutcomeName(record.outcome));
  }
  return record.accepted ? "" : "an attempt that did not count";
}

// What times must have in common to be compared: device class and toolchain.
using Setting = std::pair<std::string, std::string>;

// What the log knows about the wanted tasks.
struct Known {
  // By setting, then by task. Those without a choice have records that do not count.
  std::map<Setting, std::map<std::string, log::Contenders>> contenders;
  std::map<Setting, int64_t> last_seq;                   // of the newest record
  std::map<std::string, std::set<std::string>> why_not;  // by task
};

absl::Status Take(log::TuningLog* log, const log::RecordRow& record, Known* known) {
  const std::string& task = record.key.task_hash;
  const std::string why = WhyUnusable(record);
  if (!why.empty()) known->why_not[task].insert(why);
  if (!record.accepted) return absl::OkStatus();
  TW_ASSIGN(log::TrialRow trial, log->GetTrial(record.job, record.trial));
  const Setting setting = {record.key.device_class, record.key.toolchain};
  known->contenders[setting][task].Add(std::move(trial), record);
  known->last_seq[setting] = record.seq;
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

// The setting with schedules for most tasks, of `device_class` unless that is empty. Of two
// compilers of one class with as many tasks, that of the newest record.
Setting MostKnownSetting(const Known& known, const std::string& device_class) {
  Setting most_known = {device_class, ""};
  size_t most = 0;
  for (const auto& [setting, tasks] : known.contenders) {
    if (!device_class.empty() && setting.first != device_class) continue;
    const bool newer = tasks.size() == most && setting.first == most_known.first &&
                       known.last_seq.at(setting) > known.last_seq.at(most_known);
    if (tasks.size() <= most && !newer) continue;
    most = tasks.size();
    most_known = setting;
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
  const Setting wanted = MostKnownSetting(known, query.device_class);
  std::tie(choice.device_class, choice.toolchain) = wanted;
  std::set<std::string> other_classes;
  for (const auto& [setting, tasks] : known.contenders) {
    if (setting == wanted) continue;
    const auto& [name, toolchain] = setting;
    const bool same_class = name == choice.device_class;
    if (same_class) choice.other_toolchains.push_back(toolchain);
    if (!same_class) other_classes.insert(name);
    const std::string why = same_class ? "with toolchain " + toolchain : "on " + name;
    for (const auto& [hash, contenders] : tasks) known.why_not[hash].insert("measured " + why);
  }
  choice.other_classes.assign(other_classes.begin(), other_classes.end());
  const auto& chosen = known.contenders[wanted];
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
