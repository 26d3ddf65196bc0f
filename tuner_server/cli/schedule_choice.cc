#include "tuner_server/cli/schedule_choice.h"

#include <set>

#include "tuner_server/log/target_text.h"

namespace tilewright::cli {
namespace {

constexpr int64_t kPageRows = 500;

// Calls `fn` with every usable record of the tasks for this target and toolchain.
template <typename Fn>
absl::Status ForEachFitting(log::TuningLog* log, const ScheduleQuery& query, Fn fn) {
  TW_ASSIGN(const log::TargetText target, log::ParseTargetText(query.target));
  const std::set<std::string> tasks(query.task_hashes.begin(), query.task_hashes.end());
  log::RecordQuery page{.job = "", .after_seq = 0, .limit = kPageRows};
  while (true) {
    TW_ASSIGN(const std::vector<log::RecordRow> records, log->ListRecords(page));
    if (records.empty()) return absl::OkStatus();
    for (const log::RecordRow& record : records) {
      const log::RecordKey& key = record.key;
      if (record.accepted && record.usable() && tasks.count(key.task_hash) > 0 &&
          key.target_key == target.WithoutThreads() && key.threads == target.threads() &&
          key.toolchain == query.toolchain) {
        fn(record);
      }
    }
    page.after_seq = records.back().seq;
  }
}

}  // namespace

absl::StatusOr<ScheduleChoice> ChooseSchedules(log::TuningLog* log, const ScheduleQuery& query) {
  std::map<std::string, std::map<std::string, log::RecordRow>> best;  // class -> task -> record
  TW_TRY(ForEachFitting(log, query, [&best](const log::RecordRow& record) {
    auto& slot = best[record.key.device_class][record.key.task_hash];
    if (slot.measurement_id.empty() || record.median < slot.median) slot = record;
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
  for (const auto& [hash, record] : best[choice.device_class]) {
    TW_ASSIGN(const log::TrialRow trial, log->GetTrial(record.job, record.trial));
    choice.by_task[hash] = {trial.steps, trial.program_hash, record.measurement_id, record.median};
  }
  return choice;
}

}  // namespace tilewright::cli
