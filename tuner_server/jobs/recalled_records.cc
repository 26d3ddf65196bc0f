#include "tuner_server/jobs/recalled_records.h"

#include <limits>
#include <map>
#include <string>

#include "tuner_server/jobs/most_frequent.h"
#include "tuner_server/jobs/work_items.h"

namespace tilewright::jobs {
namespace {

// Times of different device classes do not compare: the class with most records. What failed to
// build has none.
std::string MostFrequentClass(const std::vector<std::vector<log::RecordRow>>& records) {
  std::map<std::string, int> counts;
  for (const std::vector<log::RecordRow>& of_task : records) {
    for (const log::RecordRow& record : of_task) {
      if (!record.key.device_class.empty()) ++counts[record.key.device_class];
    }
  }
  return MostFrequent(counts);
}

}  // namespace

absl::StatusOr<std::vector<std::vector<log::RecordRow>>> RecalledRecords(
    log::TuningLog* log, const log::JobRow& job, const v1::Job& spec,
    const std::vector<log::TaskRow>& tasks) {
  std::vector<std::vector<log::RecordRow>> records(tasks.size());
  if (!spec.recall()) return records;
  const int64_t before_us =
      log::IsFinal(job.state) ? job.ended_us : std::numeric_limits<int64_t>::max();
  for (size_t i = 0; i < tasks.size(); ++i) {
    log::RecordKey key = KeyOf(job, tasks[i].hash);
    key.device_class = spec.pool();
    TW_ASSIGN(records[i], log->KnownRecords(key, before_us, 0));
  }
  const std::string device_class = MostFrequentClass(records);
  for (std::vector<log::RecordRow>& of_task : records) {
    std::erase_if(of_task, [&](const log::RecordRow& record) {
      const std::string& measured_on = record.key.device_class;
      return (!measured_on.empty() && measured_on != device_class) || record.job == job.id;
    });
  }
  return records;
}

}  // namespace tilewright::jobs
