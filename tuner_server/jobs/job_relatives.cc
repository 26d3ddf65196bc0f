#include "tuner_server/jobs/job_relatives.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "tuner_server/jobs/most_frequent.h"
#include "tuner_server/jobs/work_items.h"
#include "tuner_server/search/task_kind.h"

namespace tilewright::jobs {
namespace {

using search::TaskKind;

struct KnownTask {
  log::TaskRow row;
  TaskKind kind;
};

// Positions of the tasks that are relatives of `kind`, the nearest first.
std::vector<size_t> Nearest(const std::vector<KnownTask>& known, const log::TaskRow& task) {
  const TaskKind kind = search::KindOf(task.text);
  std::vector<std::pair<double, size_t>> near;
  for (size_t i = 0; i < known.size(); ++i) {
    if (known[i].row.hash == task.hash) continue;
    const auto distance = search::KindDistance(kind, known[i].kind);
    if (distance.has_value()) near.emplace_back(*distance, i);
  }
  std::sort(near.begin(), near.end());
  std::vector<size_t> order;
  for (const auto& [distance, i] : near) order.push_back(i);
  return order;
}

// The fastest programs of records that have a point, each once, none much slower than the best.
absl::Status AddPrograms(log::TuningLog* log, std::vector<log::RecordRow> records,
                         const log::TaskRow& relative, const std::string& task_hash,
                         std::vector<v1::RelativeProgram>* out) {
  std::map<std::string, int> counts;
  for (const log::RecordRow& record : records) {
    if (record.usable()) ++counts[record.key.device_class];
  }
  const std::string device_class = MostFrequent(counts);
  std::erase_if(records, [&](const log::RecordRow& record) {
    return !record.usable() || record.key.device_class != device_class;
  });
  std::stable_sort(records.begin(), records.end(),
                   [](const auto& a, const auto& b) { return a.median < b.median; });
  std::set<std::string> programs;
  for (const log::RecordRow& record : records) {
    if (programs.size() == search::kProgramsOfRelative) break;
    if (record.median > search::kGoodEnough * records.front().median) break;
    TW_ASSIGN(const log::TrialRow trial, log->GetTrial(record.job, record.trial));
    if (trial.point.empty() || !programs.insert(trial.program_hash).second) continue;
    v1::RelativeProgram& program = out->emplace_back();
    program.set_task(task_hash);
    program.set_canonical_text(relative.text);
    program.set_program_hash(trial.program_hash);
    program.set_point(trial.point);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<v1::RelativeProgram>> RelativesOf(
    log::TuningLog* log, const log::JobRow& job, const v1::Job& spec,
    const std::vector<log::TaskRow>& tasks) {
  std::vector<v1::RelativeProgram> out;
  if (!spec.recall()) return out;
  TW_ASSIGN(std::vector<log::TaskRow> rows, log->DistinctTasks(job.created_us));
  std::vector<KnownTask> known;
  for (log::TaskRow& row : rows) {
    TaskKind kind = search::KindOf(row.text);
    known.push_back({std::move(row), std::move(kind)});
  }
  for (const log::TaskRow& task : tasks) {
    size_t relatives = 0;
    for (const size_t i : Nearest(known, task)) {
      if (relatives == search::kMaxRelatives) break;
      log::RecordKey key = KeyOf(job, known[i].row.hash);
      key.device_class = spec.pool();
      TW_ASSIGN(std::vector<log::RecordRow> records, log->KnownRecords(key, job.created_us, 0));
      const size_t before = out.size();
      TW_TRY(AddPrograms(log, std::move(records), known[i].row, task.hash, &out));
      relatives += out.size() > before;
    }
  }
  return out;
}

}  // namespace tilewright::jobs
