#include "tuner_server/log/import_export.h"

#include <map>
#include <utility>

#include "deploy/support/measure_units.h"
#include "deploy/support/strings.h"
#include "tuner_server/log/import_conflicts.h"
#include "tuner_server/log/json_fields.h"
#include "tuner_server/log/row_fields.h"
#include "tuner_server/log/task_renames.h"

namespace tilewright::log {
namespace {

constexpr size_t kPieceBytes = 256 << 10;
constexpr size_t kMaxLineBytes = 16 << 20;

// A line's fields, the same list for both directions.

template <typename Device, typename F>
void DeviceFields(Device& r, F&& f) {
  f("name", r.device);
  f("fingerprint", r.device_fingerprint);
  f("address", r.agent_address);
  f("class", r.key.device_class);
  f("agent", r.agent);
  f("agent_version", r.agent_version);
  f("boot_id", r.boot_id);
  f("lease", r.lease);
  f("fencing_token", r.fencing_token);
}

bool IsDeviceField(std::string_view name) {
  for (const std::string_view field :
       {"device", "device_fingerprint", "agent_address", "device_class", "agent", "agent_version",
        "boot_id", "lease", "fencing_token"}) {
    if (field == name) return true;
  }
  return false;
}

template <typename Task, typename F>
void TaskFields(Task& t, F&& f) {
  f("task_index", t.index);
  f("task_text", t.text);
  f("task_description", t.description);
  f("weight", t.weight);
  f("flops", t.flops);
  f("default_steps", t.default_steps);
  f("default_program_hash", t.default_program_hash);
  f("data_type", t.data_type);
  f("launch_names", t.launch_names);
}

template <typename JobT, typename F>
void JobFields(JobT& j, F&& f) {
  f("target", j.target);
  f("model_name", j.model_name);
  f("model_sha256", j.model_sha256);
  f("cost_model", j.cost_model);
  f("seed", j.seed);
}

template <typename Trial, typename F>
void TrialFields(Trial& t, F&& f) {
  f("trial_state", t.state);
  f("steps", t.steps);
  f("program_hash", t.program_hash);
  f("generated_by", t.generated_by);
  f("proposed_by", t.proposed_by);
  f("batch_id", t.batch);
  f("rank", t.rank);
  f("considered", t.considered);
  f("predicted", t.predicted);
  f("model_id", t.model_id);
  f("features_hash", t.features_hash);
  f("point", t.point);
  f("is_default", t.is_default);
  f("artifact_sha256", t.artifact_sha256);
  f("artifact_size", t.artifact_size);
  f("lower_s", t.lower_s);
  f("codegen_s", t.codegen_s);
  f("link_s", t.link_s);
  f("resources", t.resources);
}

template <typename Batch, typename F>
void BatchFields(Batch& b, F&& f) {
  f("batch_id", b.id);
  f("job", b.job);
  f("task", b.task);
  f("model_id", b.model_id);
  f("asked", b.asked);
  f("considered", b.considered);
  f("exploration_share", b.exploration_share);
  f("invalid", b.invalid);
  f("search_s", b.search_s);
  f("features_s", b.features_s);
  f("model_s", b.model_s);
  f("told", b.told);
  f("created_us", b.created_us);
}

template <typename Draft, typename F>
void DraftFields(Draft& d, F&& f) {
  f("rank", d.rank);
  f("program_hash", d.program_hash);
  f("steps", d.steps);
  f("predicted", d.predicted);
  f("picked", d.picked);
  f("features_hash", d.features_hash);
}

// Collects lines and hands them on in large pieces.
class LineSink {
 public:
  explicit LineSink(const std::function<absl::Status(std::string_view)>& sink) : sink_(sink) {}

  absl::Status Add(const Json& line) {
    text_ += line.dump(-1, ' ', false, Json::error_handler_t::replace);
    text_ += '\n';
    return text_.size() < kPieceBytes ? absl::OkStatus() : Flush();
  }

  absl::Status Flush() {
    if (text_.empty()) return absl::OkStatus();
    TW_TRY(sink_(text_));
    text_.clear();
    return absl::OkStatus();
  }

 private:
  const std::function<absl::Status(std::string_view)>& sink_;
  std::string text_;
};

// Jobs and tasks of the log, each read once.
class Context {
 public:
  explicit Context(TuningLog* log) : log_(log) {}

  absl::StatusOr<const JobRow*> Job(const std::string& id) {
    const auto it = jobs_.find(id);
    if (it != jobs_.end()) return &it->second;
    TW_ASSIGN(const JobRow job, log_->GetJob(id));
    TW_ASSIGN(const std::vector<TaskRow> tasks, log_->ListTasks(id));
    for (const TaskRow& task : tasks) tasks_[{id, task.name}] = task;
    return &(jobs_[id] = job);
  }
  // REQUIRES: Job(job) was called.
  absl::StatusOr<const TaskRow*> Task(const std::string& job, const std::string& name) {
    const auto it = tasks_.find({job, name});
    if (it != tasks_.end()) return &it->second;
    return support::NotFound("log.task.not_found", support::StrCat(job, "/", name));
  }

 private:
  TuningLog* log_;
  std::map<std::string, JobRow> jobs_;
  std::map<std::pair<std::string, std::string>, TaskRow> tasks_;
};

absl::StatusOr<Json> RecordLine(TuningLog* log, Context* context, const RecordRow& record,
                                bool features) {
  TW_ASSIGN(const JobRow* job, context->Job(record.job));
  TW_ASSIGN(const TaskRow* task, context->Task(record.job, record.task));
  TW_ASSIGN(const TrialRow trial, log->GetTrial(record.job, record.trial));
  Json line;
  line["schema"] = kExportSchema;
  line["kind"] = "record";
  JsonWriter put(&line);
  ForEachField(record, [&put](std::string_view name, const auto& value) {
    if (!IsDeviceField(name)) put(name, value);
  });
  line["baseline"] = (record.baseline_before + record.baseline_after) / 2;
  Json device;
  DeviceFields(record, JsonWriter(&device));
  line["device"] = std::move(device);
  TrialFields(trial, put);
  TaskFields(*task, put);
  JobFields(*job, put);
  if (features) line["features"] = trial.features;
  return line;
}

absl::Status ExportRecords(TuningLog* log, const ExportOptions& options, LineSink* sink) {
  Context context(log);
  RecordQuery query{options.job, 0, kPageRows};
  for (;;) {
    TW_ASSIGN(const std::vector<RecordRow> records, log->ListRecords(query));
    if (records.empty()) return absl::OkStatus();
    for (const RecordRow& record : records) {
      const auto line = RecordLine(log, &context, record, options.features);
      if (options.skip_incomplete && absl::IsNotFound(line.status())) continue;
      TW_TRY(line.status());
      TW_TRY(sink->Add(*line));
    }
    query.after_seq = records.back().seq;
  }
}

absl::Status ExportDrafts(TuningLog* log, const ExportOptions& options, LineSink* sink) {
  BatchQuery query{options.job, 0, kPageRows};
  for (;;) {
    TW_ASSIGN(const BatchPage page, log->ListBatches(query));
    if (page.batches.empty()) return absl::OkStatus();
    for (const BatchRow& batch : page.batches) {
      TW_ASSIGN(const std::vector<DraftRow> drafts, log->ListDrafts(batch.id));
      for (const DraftRow& draft : drafts) {
        Json line;
        line["schema"] = kExportSchema;
        line["kind"] = "draft";
        JsonWriter put(&line);
        BatchFields(batch, put);
        DraftFields(draft, put);
        if (options.features) line["features"] = draft.features;
        TW_TRY(sink->Add(line));
      }
    }
    query.after_seq = page.last_seq;
  }
}

// What is wrong with the unit of a record; empty if nothing is. Records of one class are compared,
// so one that counts is in the unit of its class. Old devices say no unit: they have clocks.
std::string UnitProblem(const RecordRow& record) {
  const support::MeasureUnit& wanted = support::UnitOfClass(record.key.device_class);
  const std::string& found = record.value_kind;
  const bool unsaid = found.empty() || found == "unspecified";
  if (!record.usable() || found == wanted.name) return "";
  if (unsaid && wanted.name == support::MeasureUnits()[0].name) return "";
  return support::StrCat("value_kind: expected ", wanted.name, ", the unit of device class ",
                         support::Quote(record.key.device_class, 100), ", found ",
                         support::Quote(found, 40));
}

// Gathers the rows that lines tell of; each job, task, trial and batch once.
class Gatherer {
 public:
  // The name of a field that does not fit, and what is wrong if that is not plain; empty when the
  // line is fine.
  std::string AddRecord(const Json& line) {
    RecordRow record;
    JsonReader get(line);
    ForEachField(record, [&get](std::string_view name, auto& value) {
      if (!IsDeviceField(name)) get(name, value);
    });
    const auto device = line.find("device");
    if (device == line.end() || !device->is_object()) return "device";
    JsonReader get_device(*device);
    DeviceFields(record, get_device);
    if (!get_device.bad_field().empty()) return "device." + get_device.bad_field();
    if (record.measurement_id.empty()) return "measurement_id";
    if (record.job.empty() || record.task.empty() || record.trial <= 0) return "job, task, trial";
    if (std::string problem = UnitProblem(record); !problem.empty()) return problem;

    JobRow job = NewJob(record.job);
    job.toolchain = record.key.toolchain;
    JobFields(job, get);
    TaskRow task;
    task.job = record.job;
    task.name = record.task;
    task.hash = record.key.task_hash;
    TaskFields(task, get);
    UpgradeTask(&task.text, &task.hash);
    record.key.task_hash = task.hash;
    TrialRow trial;
    trial.job = record.job;
    trial.task = record.task;
    trial.number = record.trial;
    TrialFields(trial, get);
    get("features", trial.features);
    if (!get.bad_field().empty()) return get.bad_field();
    if (record.accepted) {
      trial.outcome = record.outcome;
      trial.measurement_id = record.measurement_id;
      trial.median = record.usable() ? record.median : 0;
      trial.ended_us = record.stored_us;
    }
    jobs_.insert_or_assign(job.id, std::move(job));
    tasks_.emplace(std::pair(task.job, task.name), std::move(task));
    const std::pair<std::string, int64_t> trial_key(trial.job, trial.number);
    if (record.accepted) {
      trials_.insert_or_assign(trial_key, std::move(trial));
    } else {
      trials_.emplace(trial_key, std::move(trial));
    }
    rows_.records.push_back(std::move(record));
    return "";
  }

  std::string AddDraft(const Json& line) {
    JsonReader get(line);
    BatchRow batch;
    BatchFields(batch, get);
    DraftRow draft;
    DraftFields(draft, get);
    get("features", draft.features);
    if (!get.bad_field().empty()) return get.bad_field();
    if (batch.id.empty() || batch.job.empty()) return "batch_id, job";
    draft.batch = batch.id;
    jobs_.emplace(batch.job, NewJob(batch.job));
    batches_.emplace(batch.id, std::move(batch));
    rows_.drafts.push_back(std::move(draft));
    return "";
  }

  TuningLog::Import Take() {
    for (auto& [key, job] : jobs_) rows_.jobs.push_back(std::move(job));
    for (auto& [key, task] : tasks_) rows_.tasks.push_back(std::move(task));
    for (auto& [key, batch] : batches_) rows_.batches.push_back(std::move(batch));
    for (auto& [key, trial] : trials_) rows_.trials.push_back(std::move(trial));
    return std::move(rows_);
  }

 private:
  static JobRow NewJob(const std::string& id) {
    JobRow job;
    job.id = id;
    job.uid = "imported-" + id;
    job.spec_json = "{}";
    job.state = JobState::kSucceeded;
    job.state_reason = "imported";
    return job;
  }

  std::map<std::string, JobRow> jobs_;
  std::map<std::pair<std::string, std::string>, TaskRow> tasks_;
  std::map<std::string, BatchRow> batches_;
  std::map<std::pair<std::string, int64_t>, TrialRow> trials_;
  TuningLog::Import rows_;
};

void AddPrefix(const std::string& prefix, TuningLog::Import* rows) {
  for (JobRow& job : rows->jobs) {
    job.id = prefix + job.id;
    job.uid = "imported-" + job.id;
  }
  const auto rename = [&prefix](auto& list) {
    for (auto& row : list) row.job = prefix + row.job;
  };
  rename(rows->tasks);
  rename(rows->batches);
  rename(rows->trials);
  rename(rows->records);
}

// Why the line is not one of ours; empty when it was added.
std::string AddLine(std::string_view text, Gatherer* gatherer) {
  if (text.size() > kMaxLineBytes) return "the line is too long";
  const Json line = Json::parse(text, nullptr, false);
  if (!line.is_object()) return "it is not a JSON object";
  if (line.value("schema", Json()) != Json(kExportSchema)) {
    return support::StrCat("expected schema ", kExportSchema, ", found ",
                           line.value("schema", Json()).dump());
  }
  const Json kind = line.value("kind", Json());
  std::string bad;
  if (kind == Json("record")) {
    bad = gatherer->AddRecord(line);
  } else if (kind == Json("draft")) {
    bad = gatherer->AddDraft(line);
  } else {
    return "expected kind record or draft, found " + kind.dump();
  }
  return bad.empty() ? "" : "field " + bad;
}

}  // namespace

absl::Status ExportLog(TuningLog* log, const ExportOptions& options,
                       const std::function<absl::Status(std::string_view)>& sink) {
  if (!options.job.empty()) TW_TRY(log->GetJob(options.job).status());
  LineSink lines(sink);
  TW_TRY(options.drafts ? ExportDrafts(log, options, &lines) : ExportRecords(log, options, &lines));
  return lines.Flush();
}

absl::StatusOr<ImportReport> ImportLog(TuningLog* log, std::string_view text,
                                       const ImportOptions& options) {
  Gatherer gatherer;
  ImportReport report;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    const std::string_view line = support::Trim(text.substr(0, end));
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
    ++report.lines;
    if (line.empty()) continue;
    const std::string problem = AddLine(line, &gatherer);
    if (!problem.empty()) {
      return support::InvalidArgument("log.import.bad_line",
                                      support::StrCat("line ", report.lines, ": ", problem));
    }
  }
  TuningLog::Import rows = gatherer.Take();
  if (!options.job_prefix.empty()) AddPrefix(options.job_prefix, &rows);
  TW_TRY(DropConflicts(log, &rows, &report));
  TW_ASSIGN(report.new_records, log->AddImported(rows));
  return report;
}

}  // namespace tilewright::log
