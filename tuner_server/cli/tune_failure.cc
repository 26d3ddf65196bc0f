#include "tuner_server/cli/tune_failure.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "deploy/support/file.h"
#include "deploy/support/strings.h"
#include "tuner_server/cli/job_commands.h"
#include "tuner_server/cli/server_client.h"
#include "tuner_server/log/sqlite_log.h"

namespace tilewright::cli {
namespace {

using support::StrCat;

constexpr size_t kMaxKinds = 3;
constexpr size_t kMaxExample = 200;  // bytes

bool IsOfTheModel(const std::string& slug) {
  return slug.starts_with("graph.") || slug.starts_with("op.") ||
         slug.starts_with("job.specialise") || slug.starts_with("driver.specialise");
}

// Texts of a service, joined where it has nothing to add: "run.crashed: signal 11".
std::string Example(const log::TrialRow& trial, const log::RecordRow* record) {
  std::string text = trial.reason;
  if (record != nullptr && !record->error_class.empty()) {
    text = record->error_class + ": " + record->error_detail;
  }
  return text.substr(0, kMaxExample);
}

}  // namespace

absl::Status CauseOf(const v1::Job& job) {
  const std::string& reason = job.state_reason();
  const size_t colon = reason.find(": ");
  if (job.state() == v1::Job::FAILED && colon != std::string::npos &&
      IsOfTheModel(reason.substr(0, colon))) {
    return support::InvalidArgument(reason.substr(0, colon), reason.substr(colon + 2));
  }
  return CheckSucceeded(job);
}

absl::StatusOr<std::string> TrialErrors(log::TuningLog* log, const std::string& job) {
  struct Kind {
    int64_t count = 0;
    std::string example;
  };
  std::map<std::string, Kind> kinds;
  log::TrialQuery query{.job = job, .limit = log::kPageRows};
  while (true) {
    TW_ASSIGN(const std::vector<log::TrialRow> page, log->ListTrials(query));
    if (page.empty()) break;
    for (const log::TrialRow& trial : page) {
      const bool fine = trial.outcome == log::Outcome::kOk ||
                        trial.outcome == log::Outcome::kEarlyStopped ||
                        trial.outcome == log::Outcome::kCancelled;
      if (!log::IsFinal(trial.state) || fine) continue;
      Kind& kind = kinds[std::string(log::OutcomeName(trial.outcome))];
      ++kind.count;
      if (!kind.example.empty()) continue;
      absl::StatusOr<log::RecordRow> record = log::RecordRow();
      if (!trial.measurement_id.empty()) record = log->GetRecord(trial.measurement_id);
      kind.example = Example(trial, record.ok() ? &*record : nullptr);
    }
    query.after_number = page.back().number;
  }
  std::vector<std::pair<std::string, Kind>> sorted(kinds.begin(), kinds.end());
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.second.count > b.second.count; });
  if (sorted.size() > kMaxKinds) sorted.resize(kMaxKinds);
  std::vector<std::string> texts;
  for (const auto& [name, kind] : sorted) {
    texts.push_back(
        StrCat(kind.count, " ", name, kind.example.empty() ? "" : StrCat(" (", kind.example, ")")));
  }
  return support::Join(texts, ", ");
}

absl::Status ExplainEmbedded(const absl::Status& failure, const std::string& job,
                             const std::string& log_path, const std::string& state_dir) {
  if (support::Slug(failure) != "job.failed") return failure;
  std::string text = support::Detail(failure);
  if (auto log = log::OpenSqliteLog(log_path, {.read_only = true}); log.ok()) {
    const auto errors = TrialErrors(log->get(), LastPart(job));
    if (errors.ok()) text += StrCat("; failed trials: ", errors->empty() ? "none" : *errors);
  }
  text +=
      StrCat("; tuning log ", log_path, "; log files ", support::PathJoin(state_dir, "tuner.log"),
             ", agent.log and tracker.log next to it");
  return support::FailedPrecondition("cli.embedded.job", text);
}

}  // namespace tilewright::cli
