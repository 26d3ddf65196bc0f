#include "tuner_server/service/job_api.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "deploy/daemon/wire.h"
#include "deploy/support/hash.h"
#include "deploy/support/printable.h"
#include "deploy/support/strings.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "tuner_server/jobs/job_times.h"
#include "tuner_server/jobs/size_messages.h"
#include "tuner_server/jobs/work_items.h"
#include "tuner_server/log/cost_models.h"
#include "tuner_server/log/model_sizes.h"
#include "tuner_server/log/target_text.h"
#include "tuner_server/modules/module_store.h"
#include "tuner_server/search/search_parts.h"
#include "tuner_server/service/job_messages.h"
#include "tuner_server/service/page_token.h"

namespace tilewright::service {
namespace {

using support::InvalidArgument;
using support::StrCat;

constexpr int32_t kMaxTrials = 1'000'000;
constexpr size_t kMaxIdBytes = 63;
constexpr size_t kMaxTextBytes = 4096;
constexpr int64_t kMaxImportBytes = int64_t{1} << 30;
constexpr int64_t kEventPage = 200;

absl::Status CheckId(const std::string& id) {
  const auto fits = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == '.';
  };
  if (id.empty()) return absl::OkStatus();
  const bool good = id.size() <= kMaxIdBytes && std::all_of(id.begin(), id.end(), fits) &&
                    id[0] != '-' && id[0] != '.';
  if (good) return absl::OkStatus();
  return InvalidArgument(
      "job.id.bad", "expected 1..63 letters, digits, '-', '_' or '.', found " + support::Quote(id));
}

absl::Status CheckBudget(const v1::Budget& budget) {
  const bool negative = budget.max_trials() < 0 || budget.max_wall().seconds() < 0 ||
                        budget.max_wall().nanos() < 0 || budget.max_device_time().seconds() < 0 ||
                        budget.max_device_time().nanos() < 0 || budget.patience_trials() < 0 ||
                        !(budget.stop_if_no_gain() >= 0);
  if (negative || budget.max_trials() > kMaxTrials) {
    return InvalidArgument("job.budget.bad",
                           StrCat("expected limits of at least 0 and at most ", kMaxTrials,
                                  " trials, found ", budget.ShortDebugString()));
  }
  const bool limited = budget.max_trials() > 0 || budget.max_wall().seconds() > 0 ||
                       budget.max_wall().nanos() > 0 || budget.max_device_time().seconds() > 0 ||
                       budget.max_device_time().nanos() > 0 ||
                       (budget.stop_if_no_gain() > 0 && budget.patience_trials() > 0);
  if (limited) return absl::OkStatus();
  return InvalidArgument("job.budget.missing", "expected a limit, found none");
}

std::string CostModel(const v1::Job& job) {
  return job.cost_model().empty() ? std::string(log::kCostModels.front()) : job.cost_model();
}

// The same bytes for the same message, maps included.
std::string StableBytes(const google::protobuf::Message& message) {
  std::string bytes;
  {
    google::protobuf::io::StringOutputStream stream(&bytes);
    google::protobuf::io::CodedOutputStream coded(&stream);
    coded.SetSerializationDeterministic(true);
    message.SerializeToCodedStream(&coded);
  }
  return bytes;
}

// Only what a client may set.
v1::Job InputFields(const v1::Job& job) {
  v1::Job input = job;
  input.clear_name();
  input.clear_uid();
  input.clear_created_by();
  input.clear_state();
  input.clear_state_reason();
  input.clear_conditions();
  input.clear_progress();
  input.clear_best_trial();
  input.clear_published_module();
  input.clear_create_time();
  input.clear_update_time();
  input.clear_end_time();
  input.clear_etag();
  return input;
}

}  // namespace

absl::Status JobApi::Check(const v1::CreateJobRequest& request) {
  TW_TRY(CheckProject(request.parent()));
  TW_TRY(CheckId(request.job_id()));
  const v1::Job& job = request.job();
  TW_TRY(log::ParseTargetText(job.target()).status());
  TW_TRY(CheckBudget(job.budget()));
  TW_TRY(log::CheckJobSizes(jobs::SizesOf(job)));
  const std::string cost_model = CostModel(job);
  if (!log::IsCostModel(cost_model)) {
    return InvalidArgument("job.cost_model.unknown",
                           StrCat("expected one of ", support::Join(log::kCostModels, ", "),
                                  ", found ", support::Quote(cost_model)));
  }
  TW_TRY(search::ParseSearchParts({job.search_parts().begin(), job.search_parts().end()}).status());
  if (job.priority() < 0 || job.priority() > 5) {
    return InvalidArgument("job.priority.bad", StrCat("expected 0..5, found ", job.priority()));
  }
  for (const std::string* text : {&job.display_name(), &job.pool(), &job.selector(),
                                  &job.model_name(), &request.request_id()}) {
    if (text->size() > kMaxTextBytes) return InvalidArgument("job.text.too_long", "a field");
    TW_TRY(support::CheckPrintable(*text, "job.name.unprintable", "a name or text of the job"));
  }
  TW_ASSIGN(const std::string model, daemon::DigestToHex(job.model()));
  const auto size = blobs_->Size(model);
  if (!size.ok()) {
    return support::FailedPrecondition(
        "job.model.missing",
        StrCat("expected the model as an artifact of this server, found none with sha256 ", model));
  }
  if (job.model().size_bytes() != 0 && job.model().size_bytes() != *size) {
    return InvalidArgument("job.model.size",
                           StrCat("expected ", *size, " bytes, found ", job.model().size_bytes()));
  }
  return absl::OkStatus();
}

// Eight hexadecimal digits that no other job of any server is likely to have.
std::string JobApi::NewSuffix() {
  const uint64_t hash = support::Hasher64()
                            .Add(clock_->WallMicros())
                            .Add(clock_->NowNs())
                            .Add(static_cast<int64_t>(getpid()))
                            .Add(created_.fetch_add(1))
                            .Finish();
  return support::Hex64(hash).substr(0, 8);
}

absl::StatusOr<log::JobRow> JobApi::NewRow(const v1::CreateJobRequest& request,
                                           const std::string& caller) {
  v1::Job input = InputFields(request.job());
  log::JobRow row;
  const std::string suffix = NewSuffix();
  row.id = request.job_id();
  if (row.id.empty()) {
    std::string base = input.display_name().empty() ? input.model_name() : input.display_name();
    base = modules::ModuleName(base.empty() ? "job" : base);
    const size_t extension = base.rfind(".onnx");
    if (extension != std::string::npos && extension > 0) base.resize(extension);
    row.id = base.substr(0, 40) + "-" + suffix;
  }
  row.uid = row.id + "." + suffix;
  row.request_id = request.request_id();
  row.request_hash = support::Sha256Hex(StableBytes(input) + "|" + request.job_id());
  const std::string model = *daemon::DigestToHex(input.model());
  const auto size = blobs_->Size(model);
  *input.mutable_model() = daemon::MakeDigest(model, size.ok() ? *size : 0);
  const auto target = log::ParseTargetText(input.target());
  row.target = target->ToString();
  row.cost_model = CostModel(input);
  row.model_sha256 = model;
  if (!input.model_name().empty()) row.model_name = modules::ModuleName(input.model_name());
  row.seed = input.seed();
  row.created_by = caller;
  row.created_us = clock_->WallMicros();
  row.updated_us = row.created_us;
  TW_ASSIGN(row.spec_json, jobs::SpecToJson(input));
  return row;
}

absl::StatusOr<v1::Job> JobApi::Create(const v1::CreateJobRequest& request,
                                       const std::string& caller) {
  TW_TRY(Check(request));
  TW_ASSIGN(const log::JobRow row, NewRow(request, caller));
  if (request.validate_only()) {
    TW_ASSIGN(const v1::Job stored, jobs::SpecFromJson(row.spec_json));
    return JobMessage(row, stored, {});
  }
  TW_ASSIGN(const log::CreatedJob created, manager_->Create(row));
  return Message(created.job);
}

absl::StatusOr<v1::Job> JobApi::Message(const log::JobRow& row) {
  TW_ASSIGN(const v1::Job stored, jobs::SpecFromJson(row.spec_json));
  TW_ASSIGN(const jobs::JobSnapshot snapshot, manager_->Snapshot(row));
  return JobMessage(row, stored, snapshot);
}

absl::StatusOr<v1::Trial> JobApi::Message(const log::TrialRow& row) {
  TW_ASSIGN(const std::vector<std::string> measurements,
            log_->ListMeasurementIds(row.job, row.number));
  std::string device;
  if (!row.measurement_id.empty()) {
    TW_ASSIGN(const log::RecordRow record, log_->GetRecord(row.measurement_id));
    device = record.device;
  }
  return TrialMessage(row, measurements, device);
}

absl::StatusOr<v1::Job> JobApi::Get(const std::string& name) {
  TW_ASSIGN(const JobPath path, ParseJobPath(name));
  TW_ASSIGN(const log::JobRow row, log_->GetJob(path.job));
  return Message(row);
}

absl::StatusOr<v1::ListJobsResponse> JobApi::List(const v1::ListJobsRequest& request) {
  TW_TRY(CheckProject(request.parent()));
  TW_ASSIGN(const PageRequest page, ReadPage(request.page(), "jobs"));
  TW_ASSIGN(std::vector<log::JobRow> rows,
            log_->ListJobs({.before_number = page.position, .limit = page.size + 1}));
  v1::ListJobsResponse response;
  if (static_cast<int64_t>(rows.size()) > page.size) {
    rows.pop_back();
    response.set_next_page_token(PageToken("jobs", rows.back().number));
  }
  for (const log::JobRow& row : rows) {
    TW_ASSIGN(*response.add_jobs(), Message(row));
  }
  return response;
}

absl::StatusOr<v1::Job> JobApi::Cancel(const v1::CancelJobRequest& request) {
  TW_ASSIGN(const JobPath path, ParseJobPath(request.name()));
  const std::string reason = request.reason().empty() ? "cancelled by request" : request.reason();
  TW_ASSIGN(const log::JobRow row, manager_->Cancel(path.job, reason.substr(0, kMaxTextBytes)));
  TW_ASSIGN(const v1::Job stored, jobs::SpecFromJson(row.spec_json));
  // The row last: a job that waited for the log may have moved meanwhile, and then waits no more.
  TW_ASSIGN(const jobs::JobSnapshot snapshot, manager_->Snapshot(row));
  TW_ASSIGN(const log::JobRow now, log_->GetJob(path.job));
  return JobMessage(now, stored, snapshot);
}

absl::StatusOr<v1::ListTasksResponse> JobApi::ListTasks(const v1::ListTasksRequest& request) {
  TW_ASSIGN(const JobPath path, ParseJobPath(request.parent()));
  TW_ASSIGN(const log::JobRow job, log_->GetJob(path.job));
  TW_ASSIGN(const v1::Job spec, jobs::SpecFromJson(job.spec_json));
  const std::string list = "tasks of " + request.parent();
  TW_ASSIGN(const PageRequest page, ReadPage(request.page(), list));
  TW_ASSIGN(const jobs::JobTimes times, jobs::ReadJobTimes(log_, job, spec));
  v1::ListTasksResponse response;
  const auto count = static_cast<int64_t>(times.rows.size());
  const int64_t end = std::min(count, page.position + page.size);
  for (int64_t i = page.position; i < end; ++i) {
    const auto index = static_cast<size_t>(i);
    *response.add_tasks() = TaskMessage(times.rows[index], times.tasks[index]);
  }
  if (end < count) response.set_next_page_token(PageToken(list, end));
  return response;
}

absl::StatusOr<v1::ListTrialsResponse> JobApi::ListTrials(const v1::ListTrialsRequest& request) {
  TW_ASSIGN(const JobPath path, ParseJobPath(request.parent()));
  TW_TRY(log_->GetJob(path.job).status());
  const std::string list = "trials of " + request.parent();
  TW_ASSIGN(const PageRequest page, ReadPage(request.page(), list));
  TW_ASSIGN(std::vector<log::TrialRow> rows, log_->ListTrials({.job = path.job,
                                                               .task = path.task,
                                                               .after_number = page.position,
                                                               .limit = page.size + 1}));
  v1::ListTrialsResponse response;
  if (static_cast<int64_t>(rows.size()) > page.size) {
    rows.pop_back();
    response.set_next_page_token(PageToken(list, rows.back().number));
  }
  for (const log::TrialRow& row : rows) {
    TW_ASSIGN(*response.add_trials(), Message(row));
  }
  return response;
}

absl::StatusOr<log::ExportOptions> JobApi::ExportOptionsOf(const v1::ExportLogRequest& request) {
  if (!request.format().empty() && request.format() != "jsonl") {
    return InvalidArgument("job.export.format",
                           "expected jsonl, found " + support::Quote(request.format()));
  }
  log::ExportOptions options;
  options.features = request.features();
  options.drafts = request.drafts();
  if (!request.name().empty()) {
    TW_ASSIGN(const JobPath path, ParseJobPath(request.name()));
    options.job = path.job;
  }
  return options;
}

absl::StatusOr<v1::ImportLogResponse> JobApi::ImportLog(const v1::ImportLogRequest& request) {
  TW_TRY(CheckId(request.job_prefix()));
  TW_ASSIGN(const std::string hex, daemon::DigestToHex(request.lines()));
  const auto size = blobs_->Size(hex);
  if (!size.ok()) {
    return support::FailedPrecondition("log.import.missing",
                                       "expected the lines in the artifact store: " + hex);
  }
  if (*size > kMaxImportBytes) {
    return InvalidArgument(
        "log.import.too_large",
        StrCat("expected at most ", kMaxImportBytes, " bytes, found ", *size, "; import in parts"));
  }
  TW_ASSIGN(const std::string lines, blobs_->Get(hex));
  TW_ASSIGN(const log::ImportReport report,
            log::ImportLog(log_, lines, {.job_prefix = request.job_prefix()}));
  v1::ImportLogResponse response;
  response.set_new_records(report.new_records);
  response.set_known(report.known);
  response.set_conflicts(report.conflicts);
  for (const std::string& example : report.examples) response.add_examples(example);
  return response;
}

absl::StatusOr<JobApi::Watch> JobApi::StartWatch(const v1::WatchJobRequest& request) {
  TW_ASSIGN(const JobPath path, ParseJobPath(request.name()));
  TW_TRY(log_->GetJob(path.job).status());
  Watch watch;
  watch.job = path.job;
  if (!request.cursor().empty()) {
    const auto seq = support::ParseInt64(request.cursor());
    if (!seq || *seq < 0) {
      return InvalidArgument("job.cursor.bad", "expected a cursor of this job, found " +
                                                   support::Quote(request.cursor()));
    }
    watch.seq = *seq;
    return watch;
  }
  // From the present state on: what happened before is not told.
  for (;;) {
    TW_ASSIGN(const std::vector<log::EventRow> events,
              log_->ListEvents(path.job, watch.seq, kEventPage));
    if (events.empty()) return watch;
    watch.seq = events.back().seq;
  }
}

absl::StatusOr<std::vector<v1::JobEvent>> JobApi::NextEvents(Watch* watch) {
  std::vector<v1::JobEvent> messages;
  const int64_t version = manager_->Version(watch->job);
  TW_ASSIGN(const log::JobRow job, log_->GetJob(watch->job));
  if (!watch->greeted) {
    v1::JobEvent present;
    present.set_cursor(StrCat(watch->seq));
    *present.mutable_at() = Timestamp(clock_->WallMicros());
    TW_ASSIGN(*present.mutable_job(), Message(job));
    messages.push_back(std::move(present));
    watch->greeted = true;
  }
  TW_ASSIGN(const std::vector<log::EventRow> events,
            log_->ListEvents(watch->job, watch->seq, kEventPage));
  for (const log::EventRow& event : events) {
    TW_ASSIGN(v1::JobEvent message, EventMessage(job, event));
    messages.push_back(std::move(message));
    watch->seq = event.seq;
  }
  if (static_cast<int64_t>(events.size()) == kEventPage) return messages;  // there may be more
  watch->version = version;
  TW_ASSIGN(const jobs::JobSnapshot snapshot, manager_->Snapshot(job));
  v1::Progress known;
  if (known.ParseFromString(watch->progress) && snapshot.progress.measured() == known.measured() &&
      snapshot.progress.proposed() == known.proposed() &&
      snapshot.progress.built() == known.built() &&
      snapshot.progress.retrainings() == known.retrainings() &&
      snapshot.progress.phase() == known.phase()) {
    watch->ended = log::IsFinal(job.state);
    return messages;
  }
  v1::JobEvent progress;
  progress.set_cursor(StrCat(watch->seq));
  *progress.mutable_at() = Timestamp(clock_->WallMicros());
  *progress.mutable_progress() = snapshot.progress;
  watch->progress = snapshot.progress.SerializeAsString();
  messages.push_back(std::move(progress));
  watch->ended = log::IsFinal(job.state);
  return messages;
}

absl::StatusOr<v1::JobEvent> JobApi::EventMessage(const log::JobRow& job,
                                                  const log::EventRow& event) {
  v1::JobEvent message;
  message.set_cursor(StrCat(event.seq));
  *message.mutable_at() = Timestamp(event.at_us);
  switch (event.kind) {
    case log::EventRow::Kind::kState: {
      log::JobRow then = job;
      then.state = event.state;
      then.state_reason = event.text;
      TW_ASSIGN(*message.mutable_job(), Message(then));
      break;
    }
    case log::EventRow::Kind::kTrial: {
      TW_ASSIGN(const log::TrialRow trial, log_->GetTrial(job.id, event.trial));
      TW_ASSIGN(*message.mutable_trial(), Message(trial));
      break;
    }
    case log::EventRow::Kind::kText:
      message.set_log_line(event.text);
      break;
  }
  return message;
}

}  // namespace tilewright::service
