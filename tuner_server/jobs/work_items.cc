#include "tuner_server/jobs/work_items.h"

#include <google/protobuf/util/json_util.h>
#include <google/protobuf/util/time_util.h>

#include <algorithm>
#include <cmath>

#include "deploy/daemon/fleet_contract.h"
#include "deploy/daemon/wire.h"
#include "deploy/daemon/work_spec.h"
#include "deploy/support/duration.h"
#include "deploy/support/measure_units.h"
#include "deploy/support/strings.h"
#include "tuner_server/jobs/row_enums.h"
#include "tuner_server/log/target_text.h"
#include "tuner_server/log/toolchain_text.h"

namespace tilewright::jobs {
namespace {

using google::protobuf::util::TimeUtil;
using support::StrCat;

constexpr double kMaxBaselineDrift = 0.3;  // where the job sets nothing
// A candidate this much slower than the best one is not worth its time on the device.
constexpr double kAbortFactor = 5;

// How long a work item may take in the worker: start, inputs, check, then the timed region and what
// one slow run may take.
constexpr int64_t kWallBaseNs = 5'000'000'000;
constexpr int64_t kWallUnknownNs = 15'000'000'000;
constexpr double kWallRuns = 100;
constexpr int64_t kMaxWallNs = 60'000'000'000;
// Where the device's driver compiles the code, it does so before the first run, and takes seconds.
constexpr int64_t kWallDriverNs = 20'000'000'000;
// A counter says nothing about the wall: an emulator takes thousands of times as long as what it
// counts. Only what hangs comes here: a limit that a slow host reaches would make results depend on
// the host. So a first trial has minutes. Later ones have what the best one took, many times: a
// candidate of so many more cycles cannot win, and no host is so much slower than another.
constexpr int64_t kWallCounterNs = 300'000'000'000;
constexpr int64_t kWallCounterBaseNs = 20'000'000'000;
constexpr double kWallCounterTimes = 100;

constexpr int kInvalidRetries = 2;
constexpr int64_t kFewRecords = 16;
constexpr int kSmallBatch = 4;
constexpr int kLargeBatch = 8;

double Seconds(const google::protobuf::Duration& duration) {
  return static_cast<double>(support::DurationNs(duration)) * 1e-9;
}

log::TrialState EndState(log::Outcome outcome) {
  switch (outcome) {
    case log::Outcome::kOk:
    case log::Outcome::kEarlyStopped:
      return log::TrialState::kSucceeded;
    case log::Outcome::kCancelled:
      return log::TrialState::kCancelled;
    case log::Outcome::kDeviceLost:
    case log::Outcome::kUnspecified:
      return log::TrialState::kFailed;
    default:
      return log::TrialState::kInfeasible;
  }
}

void CopyCounters(const v1::Telemetry& from, log::RecordRow* to) {
  to->voluntary_context_switches = from.voluntary_context_switches();
  to->involuntary_context_switches = from.involuntary_context_switches();
  to->steal_fraction = from.steal_fraction();
  to->load_average = from.load_average();
  to->clock_mhz = from.clock_mhz();
  to->temperature_celsius = from.temperature_celsius();
}

log::RecordRow RecordOf(const v1::MeasurementResult& result, const log::TrialRow& trial,
                        log::RecordKey key, int64_t now_us) {
  log::RecordRow record;
  const std::string wanted = key.toolchain;
  key.toolchain = log::WithCompiler(wanted, result.driver_compiler());
  key.device_class = result.device_class();
  record.key = std::move(key);
  record.measurement_id = result.measurement_id();
  record.job = trial.job;
  record.task = trial.task;
  record.trial = trial.number;
  record.attempt = result.attempt();
  record.outcome = FromProto(result.outcome());
  record.error_class = result.error_class();
  record.error_detail = result.error_detail();
  record.signal = result.signal();
  record.exit_code = result.exit_code();
  record.phase = result.phase();
  record.value_kind = daemon::ValueKindText(result.value_kind());
  record.samples.assign(result.samples().begin(), result.samples().end());
  record.inner_loops = result.inner_loops();
  record.median = result.median();
  record.mad = result.mad();
  record.ci_rel = result.ci_rel();
  record.baseline_before = result.baseline_before();
  record.baseline_after = result.baseline_after();
  // An OK without a positive finite time is no measurement, whatever the agent says.
  const bool timed = std::isfinite(result.median()) && result.median() > 0;
  record.valid = result.valid() && (record.outcome != log::Outcome::kOk || timed);
  record.invalid_reasons.assign(result.invalid_reasons().begin(), result.invalid_reasons().end());
  if (result.valid() && !record.valid) record.invalid_reasons.push_back("tuner.median.missing");
  // Records of one class are compared: an agent of another version may put a unit into a wrong one.
  const bool measured = record.outcome == log::Outcome::kOk && record.valid;
  if (measured && record.value_kind != support::UnitOfClass(record.key.device_class).name) {
    record.valid = false;
    record.invalid_reasons.push_back("tuner.unit.class");
  }
  // A device with another driver than those that the job began with.
  if (measured && !log::ToolchainFits(wanted, record.key.toolchain)) {
    record.valid = false;
    record.invalid_reasons.push_back("tuner.compiler.differs");
  }
  record.max_abs_error = result.max_abs_error();
  CopyCounters(result.telemetry(), &record);
  record.fetch_s = Seconds(result.fetch_time());
  record.load_s = Seconds(result.load_time());
  record.run_s = Seconds(result.run_time());
  record.device = result.device();
  record.device_fingerprint = result.device_fingerprint();
  record.agent = result.agent();
  record.agent_address = result.agent_address();
  record.agent_version = result.agent_version();
  record.boot_id = result.boot_id();
  record.lease = result.lease();
  record.fencing_token = result.fencing_token();
  record.started_us = support::UnixMicros(result.started_at());
  record.stored_us = now_us;
  return record;
}

int64_t CounterWallLimitNs(const WorkItemSource& source) {
  if (source.best_wall_s <= 0) return kWallCounterNs;
  const double wall_ns = std::min(kWallCounterTimes * source.best_wall_s * 1e9, 1e18);
  return std::min(kWallCounterBaseNs + static_cast<int64_t>(wall_ns), kWallCounterNs);
}

int64_t WallLimitNs(const WorkItemSource& source, const v1::MeasurementPlan& plan) {
  if (source.counts_cycles) return CounterWallLimitNs(source);
  const absl::StatusOr<log::TargetText> target = log::ParseTargetText(source.job->target);
  const int64_t load_ns = target.ok() && target->driver_compiles() ? kWallDriverNs : 0;
  if (source.best_ns <= 0) return kWallUnknownNs + load_ns;
  const double runs_ns = std::min(kWallRuns * source.best_ns, 1e18);
  const int64_t wall_ns = kWallBaseNs + load_ns + support::DurationNs(plan.budget_per_candidate()) +
                          static_cast<int64_t>(runs_ns);
  return std::min(wall_ns, kMaxWallNs);
}

// Another algorithm rounds differently: schedules that begin with `variant NAME` are allowed more.
v1::Tolerance ToleranceOf(const v1::BuilderTask& task, std::string_view steps) {
  v1::Tolerance tolerance = task.tolerance();
  for (const auto& [name, factor] : task.variant_tolerance()) {
    const std::string first = StrCat("variant ", name);
    if (steps != first && steps.substr(0, first.size() + 1) != first + ";") continue;
    tolerance.set_abs(tolerance.abs() * factor);
    tolerance.set_rel(tolerance.rel() * factor);
  }
  return tolerance;
}

}  // namespace

std::string WorkItemName(const std::string& job_uid, const std::string& task, int64_t trial,
                         int64_t generation) {
  return generation == 0 ? StrCat(job_uid, "/", task, "/", trial)
                         : StrCat(job_uid, "/", task, "/", trial, "+", generation);
}

std::optional<WorkItemId> ParseWorkItemName(std::string_view job_uid, std::string_view name) {
  if (name.substr(0, job_uid.size()) != job_uid) return std::nullopt;
  const std::vector<std::string> parts = support::Split(name.substr(job_uid.size()), '/');
  if (parts.size() != 3 || !parts[0].empty()) return std::nullopt;
  const size_t plus = parts[2].find('+');
  WorkItemId id;
  id.task = parts[1];
  const auto trial = support::ParseInt64(std::string_view(parts[2]).substr(0, plus));
  if (!trial) return std::nullopt;
  id.trial = *trial;
  if (plus != std::string::npos) {
    const auto generation = support::ParseInt64(std::string_view(parts[2]).substr(plus + 1));
    if (!generation) return std::nullopt;
    id.generation = *generation;
  }
  return id;
}

std::string ConsumerName(const std::string& job_uid) { return "jobs/" + job_uid; }

std::string UserName(const std::string& created_by) {
  const size_t colon = created_by.find(':');
  if (colon == std::string::npos) return created_by;
  const std::string scheme = created_by.substr(0, colon);
  if (scheme != "ipv4" && scheme != "ipv6") return created_by;
  return created_by.substr(colon + 1, created_by.rfind(':') - colon - 1);
}

static google::protobuf::util::Status ToJson(const google::protobuf::Message& message,
                                             std::string* json) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  return google::protobuf::util::MessageToJsonString(message, json, options);
}

static google::protobuf::util::Status FromJson(const std::string& json,
                                               google::protobuf::Message* message) {
  google::protobuf::util::JsonParseOptions options;
  options.ignore_unknown_fields = true;
  return google::protobuf::util::JsonStringToMessage(json, message, options);
}

absl::StatusOr<std::string> SpecToJson(const v1::Job& job) {
  std::string json;
  const auto status = ToJson(job, &json);
  if (!status.ok()) {
    return support::InvalidArgument(
        "job.spec.bad", "expected a job that can be kept, found: " + std::string(status.message()));
  }
  return json;
}

absl::StatusOr<v1::Job> SpecFromJson(const std::string& json) {
  v1::Job job;
  const auto status = FromJson(json, &job);
  if (!status.ok()) {
    return support::DataLoss("job.spec.bad",
                             "expected a job as JSON, found " + support::Quote(json));
  }
  return job;
}

std::string ResourcesToJson(const v1::ResourceReport& report) {
  std::string json;
  if (report.kernels_size() == 0 || !ToJson(report, &json).ok()) return "";
  return json;
}

v1::ResourceReport ResourcesFromJson(const std::string& json) {
  v1::ResourceReport report;
  if (json.empty() || !FromJson(json, &report).ok()) return {};
  return report;
}

v1::MeasurementPlan TrialPlan(const v1::MeasurementPlan& wanted, double best_ns) {
  v1::MeasurementPlan plan = wanted;
  if (plan.min_repeats() <= 0) plan.set_min_repeats(daemon::kMinRepeats);
  if (plan.max_repeats() <= 0) {
    plan.set_max_repeats(std::max(daemon::kMaxRepeats, plan.min_repeats()));
  }
  if (!plan.has_min_repeat_time()) {
    *plan.mutable_min_repeat_time() = TimeUtil::NanosecondsToDuration(daemon::kMinRepeatTimeNs);
  }
  if (!plan.has_budget_per_candidate()) {
    *plan.mutable_budget_per_candidate() =
        TimeUtil::NanosecondsToDuration(daemon::kCandidateBudgetNs);
  }
  if (!plan.has_warmup()) {
    *plan.mutable_warmup() = TimeUtil::NanosecondsToDuration(daemon::kWarmupNs);
  }
  if (plan.target_rel_ci() <= 0) plan.set_target_rel_ci(daemon::kTargetRelCi);
  if (plan.max_baseline_drift() <= 0) plan.set_max_baseline_drift(kMaxBaselineDrift);
  if (plan.compare_to_ns() <= 0) plan.set_compare_to_ns(best_ns);
  if (plan.abort_if_slower_than_ns() <= 0 && best_ns > 0) {
    plan.set_abort_if_slower_than_ns(kAbortFactor * best_ns);
  }
  return plan;
}

v1::WorkItem MakeWorkItem(const WorkItemSource& source) {
  v1::WorkItem item;
  item.set_name(source.name);
  item.set_pool(source.spec->pool());
  item.set_target(source.job->target);
  item.set_selector(source.spec->selector());
  item.set_job(source.job->uid);
  item.set_priority(source.spec->priority());
  item.set_user(UserName(source.job->created_by));
  item.set_max_batch(source.task_records < kFewRecords ? kSmallBatch : kLargeBatch);
  item.set_invalid_retries(kInvalidRetries);
  v1::Work* work = item.mutable_work();
  work->set_work_item(source.name);
  *work->mutable_artifact() = daemon::MakeDigest(source.artifact_sha256, source.artifact_size);
  *work->mutable_inputs() = source.task->inputs();
  *work->mutable_expected_output() = source.task->expected_output();
  *work->mutable_tolerance() = ToleranceOf(*source.task, source.steps);
  *work->mutable_plan() = TrialPlan(source.spec->plan(), source.best_ns);
  *work->mutable_wall_limit() = TimeUtil::NanosecondsToDuration(WallLimitNs(source, work->plan()));
  work->set_job(source.job->uid);
  work->set_target(source.job->target);
  work->set_flops(source.task->flops());
  return item;
}

log::RecordKey KeyOf(const log::JobRow& job, const std::string& task_hash) {
  log::RecordKey key;
  key.task_hash = task_hash;
  key.target_key = job.target;
  const auto target = log::ParseTargetText(job.target);
  if (target.ok()) {
    key.target_key = target->WithoutThreads();
    key.threads = target->threads();
  }
  key.toolchain = job.toolchain;
  return key;
}

bool IsWorkOf(const v1::WorkUpdate& update, const log::TrialRow& trial) {
  if (update.work_item() != trial.work_item) return false;
  v1::WorkItem item;
  // Trackers of older versions do not say what was submitted.
  if (update.spec_hash() == 0 || !item.ParseFromString(trial.work_spec)) return true;
  return daemon::WorkSpecHash(item) == update.spec_hash();
}

log::TrialNews NewsOf(const v1::WorkUpdate& update, const log::TrialRow& trial,
                      const log::RecordKey& key, int64_t now_us) {
  log::TrialNews news;
  news.number = trial.number;
  if (update.has_result()) news.record = RecordOf(update.result(), trial, key, now_us);
  news.reason = update.reason();
  if (news.record && !news.record->error_detail.empty()) {
    news.reason = news.record->error_detail.substr(0, 500);
  }
  switch (update.state()) {
    case v1::WORK_STATE_DONE:
      news.final = true;
      news.outcome = news.record ? news.record->outcome : log::Outcome::kUnspecified;
      news.state = EndState(news.outcome);
      break;
    case v1::WORK_STATE_QUARANTINED:
      news.final = true;
      news.outcome = log::Outcome::kDeviceLost;
      news.state = log::TrialState::kQuarantined;
      break;
    case v1::WORK_STATE_FAILED:
      news.final = true;
      news.outcome = log::Outcome::kDeviceLost;
      news.state = log::TrialState::kFailed;
      break;
    case v1::WORK_STATE_CANCELLED:
      news.final = true;
      news.outcome = log::Outcome::kCancelled;
      news.state = log::TrialState::kCancelled;
      break;
    default:
      break;  // an attempt that did not end the item
  }
  return news;
}

log::TrialNews BuildFailureNews(const log::TrialRow& trial, const std::string& work_item,
                                log::Outcome outcome, const std::string& error_class,
                                const std::string& error, const log::RecordKey& key,
                                int64_t now_us) {
  log::TrialNews news;
  news.number = trial.number;
  news.final = true;
  news.state = EndState(outcome);
  news.outcome = outcome;
  news.reason = error.substr(0, 500);
  log::RecordRow record;
  record.measurement_id = work_item + "/0";
  record.job = trial.job;
  record.task = trial.task;
  record.trial = trial.number;
  record.key = key;
  record.outcome = outcome;
  record.error_class = error_class;
  record.error_detail = error;
  record.value_kind = daemon::ValueKindText(v1::VALUE_KIND_UNSPECIFIED);
  record.valid = true;
  record.stored_us = now_us;
  news.record = std::move(record);
  return news;
}

log::TrialNews CancelledNews(int64_t trial, const std::string& reason) {
  log::TrialNews news;
  news.number = trial;
  news.final = true;
  news.state = log::TrialState::kCancelled;
  news.outcome = log::Outcome::kCancelled;
  news.reason = reason;
  return news;
}

}  // namespace tilewright::jobs
