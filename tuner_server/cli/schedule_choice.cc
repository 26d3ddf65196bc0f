#include "tuner_server/cli/schedule_choice.h"

#include <algorithm>
#include <set>

#include "deploy/support/strings.h"
#include "tuner_server/log/target_text.h"

namespace tilewright::cli {
namespace {

// As the job decides (tuner_server/jobs): the default schedule stays where nothing beats it by more
// than the two measurements can be off.
constexpr double kMinNoise = 0.01, kMaxNoise = 0.1;

// The best record of a task, and those that are hardly slower.
struct Contenders {
  log::RecordRow best;
  std::vector<log::RecordRow> near;

  void Add(const log::RecordRow& record) {
    if (best.measurement_id.empty() || record.median < best.median) best = record;
    near.push_back(record);
    std::erase_if(
        near, [this](const log::RecordRow& r) { return best.median < r.median * (1 - kMaxNoise); });
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

absl::StatusOr<log::RecordRow> DefaultOrBest(log::TuningLog* log, const Contenders& contenders) {
  const log::RecordRow& best = contenders.best;
  for (const log::RecordRow& record : contenders.near) {
    const double noise = std::clamp(record.ci_rel + best.ci_rel, kMinNoise, kMaxNoise);
    if (best.median < record.median * (1 - noise)) continue;
    TW_ASSIGN(const log::TrialRow trial, log->GetTrial(record.job, record.trial));
    if (trial.is_default) return record;
  }
  return best;
}

}  // namespace

absl::StatusOr<ScheduleChoice> ChooseSchedules(log::TuningLog* log, const ScheduleQuery& query) {
  std::map<std::string, std::map<std::string, Contenders>> best;  // class -> task -> records
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
    for (const auto& [hash, contenders] : tasks) why_not[hash].insert("measured on " + name);
  }
  for (const std::string& hash : query.task_hashes) {
    if (best[choice.device_class].count(hash) != 0) continue;
    const auto found = why_not.find(hash);
    choice.why_not[hash] =
        found == why_not.end() ? "no record" : support::Join(found->second, "; ");
  }
  for (const auto& [hash, contenders] : best[choice.device_class]) {
    TW_ASSIGN(const log::RecordRow record, DefaultOrBest(log, contenders));
    TW_ASSIGN(const log::TrialRow trial, log->GetTrial(record.job, record.trial));
    choice.by_task[hash] = {trial.steps, trial.program_hash, record.measurement_id, record.median};
  }
  return choice;
}

}  // namespace tilewright::cli
