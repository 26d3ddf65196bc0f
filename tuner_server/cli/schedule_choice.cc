#include "tuner_server/cli/schedule_choice.h"

#include <algorithm>
#include <set>
#include <utility>

#include "deploy/support/strings.h"
#include "tuner_server/log/schedule_rule.h"
#include "tuner_server/log/target_text.h"

namespace tilewright::cli {
namespace {

constexpr double kSlower = 0.1;  // than the best: no contender, however it was measured

// The best record of a task, and those that are hardly slower.
struct NearRecords {
  log::RecordRow best;
  std::vector<log::RecordRow> near;

  void Add(const log::RecordRow& record) {
    if (best.measurement_id.empty() || record.median < best.median) best = record;
    near.push_back(record);
    std::erase_if(
        near, [this](const log::RecordRow& r) { return best.median < r.median * (1 - kSlower); });
  }
};

// Why a record of a wanted task does not count; empty when it does.
std::string WhyNot(const log::RecordRow& record, const log::TargetText& target,
                   const std::string& toolchain) {
  const log::RecordKey& key = record.key;
  if (key.target_key != target.WithoutThreads()) return "measured for " + key.target_key;
  if (key.threads != target.threads()) {
    return support::StrCat("measured with ", key.threads, " threads");
  }
  if (key.toolchain != toolchain) return "measured with toolchain " + key.toolchain;
  if (!record.usable()) {
    return record.outcome == log::Outcome::kOk ? "the measurement is not valid"
                                               : std::string(log::OutcomeName(record.outcome));
  }
  return record.accepted ? "" : "an attempt that did not count";
}

// Calls `fn` with every record of the tasks, and why it does not count.
template <typename Fn>
absl::Status ForEachRecord(log::TuningLog* log, const ScheduleQuery& query, Fn fn) {
  TW_ASSIGN(const log::TargetText target, log::ParseTargetText(query.target));
  const std::set<std::string> tasks(query.task_hashes.begin(), query.task_hashes.end());
  log::RecordQuery page{.job = "", .after_seq = 0, .limit = log::kPageRows};
  while (true) {
    TW_ASSIGN(const std::vector<log::RecordRow> records, log->ListRecords(page));
    if (records.empty()) return absl::OkStatus();
    for (const log::RecordRow& record : records) {
      if (tasks.count(record.key.task_hash) == 0) continue;
      fn(record, WhyNot(record, target, query.toolchain));
    }
    page.after_seq = records.back().seq;
  }
}

// By the rule that jobs have, too.
absl::StatusOr<log::MeasuredTrial> Choose(log::TuningLog* log, const NearRecords& records) {
  log::Contenders contenders;
  for (const log::RecordRow& record : records.near) {
    TW_ASSIGN(log::TrialRow trial, log->GetTrial(record.job, record.trial));
    contenders.Add(std::move(trial), record);
  }
  return *contenders.Choice();
}

}  // namespace

absl::StatusOr<ScheduleChoice> ChooseSchedules(log::TuningLog* log, const ScheduleQuery& query) {
  std::map<std::string, std::map<std::string, NearRecords>> best;  // class -> task -> records
  std::map<std::string, std::set<std::string>> why_not;
  TW_TRY(ForEachRecord(log, query, [&](const log::RecordRow& record, const std::string& why) {
    if (why.empty()) {
      best[record.key.device_class][record.key.task_hash].Add(record);
    } else {
      why_not[record.key.task_hash].insert(why);
    }
  }));
  ScheduleChoice choice;
  choice.device_class = query.device_class;
  if (query.device_class.empty()) {
    size_t most = 0;
    for (const auto& [name, tasks] : best) {
      if (tasks.size() > most) {
        most = tasks.size();
        choice.device_class = name;
      }
    }
  }
  for (const auto& [name, tasks] : best) {
    if (name != choice.device_class) choice.other_classes.push_back(name);
  }
  for (const auto& [name, tasks] : best) {
    if (name == choice.device_class) continue;
    for (const auto& [hash, records] : tasks) why_not[hash].insert("measured on " + name);
  }
  for (const std::string& hash : query.task_hashes) {
    if (best[choice.device_class].count(hash) != 0) continue;
    const auto found = why_not.find(hash);
    choice.why_not[hash] =
        found == why_not.end() ? "no record" : support::Join(found->second, "; ");
  }
  for (const auto& [hash, records] : best[choice.device_class]) {
    TW_ASSIGN(const log::MeasuredTrial chosen, Choose(log, records));
    choice.by_task[hash] = {chosen.trial.steps, chosen.trial.program_hash,
                            chosen.record.measurement_id, chosen.record.median};
  }
  return choice;
}

}  // namespace tilewright::cli
