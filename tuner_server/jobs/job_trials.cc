// The part of JobCore that builds trials, hands them to the tracker and takes the results.
#include <algorithm>
#include <cmath>
#include <utility>

#include "deploy/daemon/fleet_contract.h"
#include "deploy/daemon/wire.h"
#include "deploy/support/file.h"
#include "deploy/support/strings.h"
#include "tuner_server/jobs/job_core.h"
#include "tuner_server/jobs/work_items.h"

namespace tilewright::jobs {
namespace {

using support::StrCat;

constexpr int64_t kSecondNs = 1'000'000'000;
constexpr int64_t kMissingRetryNs = 200'000'000;
constexpr int64_t kQuotaRetryNs = 2 * kSecondNs;
constexpr int64_t kLoadEveryNs = 2 * kSecondNs;
// Open items are named to the tracker again after so long without any news: a level, not an edge.
constexpr int64_t kResubmitNs = 60 * kSecondNs;
constexpr size_t kMaxSubmit = 100;
constexpr uint64_t kMaxArtifactBytes = uint64_t{1} << 30;
// Modules of candidates carry code only; a file for each would cost more than its link.
constexpr int64_t kInlineModuleBytes = int64_t{8} << 20;

log::TrialBuilt BuiltOf(const log::TrialRow& row) {
  return {row.number,    row.state,   row.artifact_sha256, row.artifact_size, row.work_item,
          row.work_spec, row.lower_s, row.codegen_s,       row.link_s,        row.resources};
}

constexpr char kTrackerCondition[] = "TRACKER_UNREACHABLE";
constexpr char kDeviceCondition[] = "NO_DEVICE";
constexpr char kQuotaCondition[] = "QUOTA";
constexpr char kBuildsWaitCondition[] = "BUILDS_WAIT";

}  // namespace

absl::Status JobCore::PumpBuilds() {
  // What a work item needs comes with the search child.
  if (!checked_ || job_.state != log::JobState::kRunning) return absl::OkStatus();
  if (build_wait_.TooEarly(env_.clock->NowNs())) return absl::OkStatus();
  for (auto& [number, trial] : open_) {
    if (building_ >= env_.builds->slots()) break;
    if (trial.phase != OpenTrial::Phase::kToBuild) continue;
    const TaskState* task = FindTask(trial.row.task);
    v1::Build build;
    build.set_task_canonical_text(task->row.text);
    build.set_steps(trial.row.steps);
    build.set_target(job_.target);
    build.set_output_path(support::PathJoin(options_.state_dir, StrCat("builds/", number, ".tw")));
    build.set_inline_limit(kInlineModuleBytes);
    build.set_expected_program_hash(trial.row.program_hash);
    trial.phase = OpenTrial::Phase::kBuilding;
    ++building_;
    env_.builds->Start(number, build);
  }
  return absl::OkStatus();
}

absl::Status JobCore::On(BuildEnded event) {
  --building_;
  const auto it = open_.find(event.trial);
  if (it == open_.end()) return absl::OkStatus();  // cancelled meanwhile
  OpenTrial& trial = it->second;
  if (WaitsToBuild(event, &trial)) return absl::OkStatus();
  if (event.outcome == log::Outcome::kOk) return TakeArtifact(&trial, event.built);
  const bool killed = event.shortage == support::Shortage::kKilled;  // and that too often
  if (event.crashed && !killed && ++trial.build_crashes < options_.max_build_crashes) {
    trial.phase = OpenTrial::Phase::kToBuild;
    return absl::OkStatus();
  }
  const log::TrialNews news =
      BuildFailureNews(trial.row, WorkItemName(job_.uid, trial.row.task, trial.row.number),
                       event.outcome, event.crashed ? "BUILDER_CRASH" : "", event.error,
                       KeyOf(job_, FindTask(trial.row.task)->row.hash), env_.clock->WallMicros());
  return Store({news});
}

// True if the trial is built again when the machine has again what it is short of.
bool JobCore::WaitsToBuild(const BuildEnded& event, OpenTrial* trial) {
  const bool killed = event.shortage == support::Shortage::kKilled;
  const bool too_often = killed && ++trial->build_kills >= options_.max_build_kills;
  if (event.shortage == support::Shortage::kNone || too_often) {
    EndBuildWait();
    return false;
  }
  trial->phase = OpenTrial::Phase::kToBuild;
  build_wait_.Failed(event.shortage, env_.clock->NowNs());
  SetCondition(kBuildsWaitCondition, StrCat("job.waits.", support::ShortageName(event.shortage)),
               StrCat("the builds of candidates wait for ", support::ShortageText(event.shortage),
                      ": ", event.error));
  return true;
}

void JobCore::EndBuildWait() {
  build_wait_.Over();
  ClearCondition(kBuildsWaitCondition);
}

// Moves the built module into the artifact store and decides on the work item's bytes.
absl::Status JobCore::TakeArtifact(OpenTrial* trial, const v1::Built& built) {
  const std::string path = support::PathJoin(options_.state_dir, built.artifact_path());
  const bool is_inline = !built.module().empty();
  const absl::StatusOr<std::string> bytes =
      is_inline ? built.module() : support::ReadFile(path, kMaxArtifactBytes);
  if (absl::IsNotFound(bytes.status())) {
    trial->phase = OpenTrial::Phase::kToBuild;
    return absl::OkStatus();
  }
  TW_TRY(bytes.status());
  TW_ASSIGN(const std::string hex, env_.blobs->Put(*bytes));
  if (!is_inline) TW_TRY(support::RemoveFile(path));
  log::TrialRow& row = trial->row;
  // A trial that was submitted before keeps its work item as long as its bytes are the same.
  if (row.work_spec.empty() || row.artifact_sha256 != hex) {
    const auto before = ParseWorkItemName(job_.uid, row.work_item);
    const int64_t generation = before ? before->generation + 1 : 0;
    const TaskState* task = FindTask(row.task);
    WorkItemSource source;
    source.job = &job_;
    source.spec = &spec_;
    source.task = &task->spec;
    source.name = WorkItemName(job_.uid, row.task, row.number, generation);
    source.steps = row.steps;
    source.artifact_sha256 = hex;
    source.artifact_size = static_cast<int64_t>(bytes->size());
    source.best_ns = task->best.median;
    source.counts_cycles = waves_.exact();
    source.best_wall_s = task->best_record.load_s + task->best_record.run_s;
    source.task_records = task->records;
    row.state = log::TrialState::kProposed;  // the log does not know these bytes yet
    row.work_item = source.name;
    row.work_spec = MakeWorkItem(source).SerializeAsString();
  }
  if (row.artifact_sha256.empty()) CountBuilt(row);
  row.artifact_sha256 = hex;
  row.artifact_size = static_cast<int64_t>(bytes->size());
  row.lower_s = built.lower_seconds();
  row.codegen_s = built.codegen_seconds();
  row.link_s = built.link_seconds();
  row.resources = ResourcesToJson(built.resources());
  trial->phase = OpenTrial::Phase::kToSubmit;
  return absl::OkStatus();
}

absl::Status JobCore::PumpSubmit() {
  if (submitting_ || env_.clock->NowNs() < submit_retry_ns_ || winding_down_) {
    return absl::OkStatus();
  }
  std::vector<Submission> items;
  std::vector<log::TrialBuilt> built;
  for (auto& [number, trial] : open_) {
    if (trial.phase != OpenTrial::Phase::kToSubmit) continue;
    if (items.size() == kMaxSubmit) break;
    Submission submission;
    submission.trial = number;
    if (!submission.item.ParseFromString(trial.row.work_spec)) {
      return support::DataLoss("job.trial.work_spec", StrCat(job_.id, " trial ", number));
    }
    submission.item.set_attempts_before(static_cast<int32_t>(trial.attempts));
    items.push_back(std::move(submission));
    trial.phase = OpenTrial::Phase::kSubmitting;
    // The log knows the bytes before the tracker can.
    if (trial.row.state == log::TrialState::kProposed) {
      trial.row.state = log::TrialState::kBuilt;
      built.push_back(BuiltOf(trial.row));
    }
  }
  if (items.empty()) return absl::OkStatus();
  if (!built.empty()) TW_TRY(env_.log->SetBuilt(job_.id, built));
  submitting_ = true;
  env_.dispatcher->Submit(std::move(items));
  return absl::OkStatus();
}

absl::Status JobCore::On(WorkSubmitted event) {
  submitting_ = false;
  if (!event.response.ok()) {
    submit_retry_ns_ = env_.clock->NowNs() + submit_backoff_.NextNs();
    SetCondition(kTrackerCondition, "job.tracker.unreachable",
                 support::StatusText(event.response.status()));
    for (const int64_t number : event.trials) {
      const auto it = open_.find(number);
      if (it != open_.end()) it->second.phase = OpenTrial::Phase::kToSubmit;
    }
    return absl::OkStatus();
  }
  submit_backoff_.Reset();
  ClearCondition(kTrackerCondition);
  ClearCondition(kQuotaCondition);
  Reconciled reconciled;
  for (size_t i = 0; i < event.trials.size() && !done_; ++i) {
    const auto it = open_.find(event.trials[i]);
    if (it == open_.end() || static_cast<int>(i) >= event.response->outcomes_size()) continue;
    const v1::SubmitOutcome& outcome = event.response->outcomes(static_cast<int>(i));
    TW_TRY(TakeOutcome(&it->second, outcome, &reconciled));
  }
  TellReconciled(reconciled);
  return done_ ? absl::OkStatus() : NoteQueued(event.trials);
}

// Writes down that the tracker has these, for people: nothing depends on it.
absl::Status JobCore::NoteQueued(const std::vector<int64_t>& trials) {
  std::vector<log::TrialBuilt> queued;
  for (const int64_t number : trials) {
    const auto it = open_.find(number);
    if (it == open_.end() || it->second.phase != OpenTrial::Phase::kAtTracker) continue;
    log::TrialRow& row = it->second.row;
    if (row.state == log::TrialState::kQueued) continue;
    row.state = log::TrialState::kQueued;
    queued.push_back(BuiltOf(row));
  }
  return queued.empty() ? absl::OkStatus() : env_.log->SetBuilt(job_.id, queued);
}

void JobCore::TellReconciled(const Reconciled& reconciled) const {
  if (!reconciled.empty() && env_.on_reconciled) env_.on_reconciled(reconciled);
}

absl::Status JobCore::TakeOutcome(OpenTrial* trial, const v1::SubmitOutcome& outcome,
                                  Reconciled* reconciled) {
  const bool was_queued = trial->row.state == log::TrialState::kQueued;
  switch (outcome.kind()) {
    case v1::SubmitOutcome::KIND_NO_DEVICE_NOW:
      SetCondition(kDeviceCondition, "job.pool.no_device", outcome.detail());
      [[fallthrough]];
    case v1::SubmitOutcome::KIND_ACCEPTED:
      if (was_queued) reconciled->unknown.push_back(trial->row.work_item);
      trial->phase = OpenTrial::Phase::kAtTracker;
      return absl::OkStatus();
    case v1::SubmitOutcome::KIND_EXISTS:
      if (outcome.delivered_again()) reconciled->ended.push_back(trial->row.work_item);
      trial->phase = OpenTrial::Phase::kAtTracker;
      return absl::OkStatus();
    case v1::SubmitOutcome::KIND_MISSING_ARTIFACT:
      // The store lost it, here or there: send it again, or make it again.
      trial->phase = env_.blobs->Contains(trial->row.artifact_sha256) ? OpenTrial::Phase::kToSubmit
                                                                      : OpenTrial::Phase::kToBuild;
      submit_retry_ns_ = env_.clock->NowNs() + kMissingRetryNs;
      return absl::OkStatus();
    case v1::SubmitOutcome::KIND_RETRY_LATER:
      SetCondition(kQuotaCondition, "job.tracker.quota", outcome.detail());
      trial->phase = OpenTrial::Phase::kToSubmit;
      submit_retry_ns_ = env_.clock->NowNs() + kQuotaRetryNs;
      return absl::OkStatus();
    case v1::SubmitOutcome::KIND_CONFLICT:
      // The name is taken by other bytes: another one, from a fresh build.
      trial->row.work_spec.clear();
      trial->row.state = log::TrialState::kProposed;
      trial->phase = OpenTrial::Phase::kToBuild;
      return absl::OkStatus();
    default:
      return Fail("the tracker refused a work item: " + outcome.detail());
  }
}

void JobCore::PumpTracker() {
  const int64_t now = env_.clock->NowNs();
  if (!pulling_ && now >= pull_retry_ns_) {
    pulling_ = true;
    env_.dispatcher->Pull(cursor_);
  }
  if (!load_asked_ && now >= load_next_ns_) {
    load_asked_ = true;
    env_.dispatcher->QueryLoad();
  }
  if (resubmit_ns_ == 0) resubmit_ns_ = now + kResubmitNs;
  if (now >= resubmit_ns_) ResubmitAll();
}

// Names every open item to the tracker again. It answers EXISTS for those that it has.
void JobCore::ResubmitAll() {
  resubmit_ns_ = env_.clock->NowNs() + kResubmitNs;
  for (auto& [number, trial] : open_) {
    if (trial.phase == OpenTrial::Phase::kAtTracker) trial.phase = OpenTrial::Phase::kToSubmit;
  }
}

absl::Status JobCore::On(ResultsPulled event) {
  pulling_ = false;
  const int64_t now = env_.clock->NowNs();
  if (!event.response.ok()) {
    pull_retry_ns_ = now + pull_backoff_.NextNs();
    cursor_.clear();  // whatever was not acknowledged comes again
    SetCondition(kTrackerCondition, "job.tracker.unreachable",
                 support::StatusText(event.response.status()));
    return absl::OkStatus();
  }
  const v1::PullResultsResponse& response = *event.response;
  const bool other_tracker = tracker_epoch_ != 0 && response.tracker_epoch() != tracker_epoch_;
  const bool was_away = pull_backoff_.failures() > 0;
  tracker_epoch_ = response.tracker_epoch();
  pull_backoff_.Reset();
  ClearCondition(kTrackerCondition);
  // A tracker that was started again may have lost what it had.
  if (other_tracker || was_away) ResubmitAll();
  if (other_tracker) cursor_.clear();
  TW_TRY(TakeUpdates(response));
  if (response.updates_size() > 0) {
    if (!other_tracker) cursor_ = response.cursor();
    env_.dispatcher->Acknowledge(response.cursor());
  }
  return absl::OkStatus();
}

absl::Status JobCore::TakeUpdates(const v1::PullResultsResponse& response) {
  std::vector<log::TrialNews> news;
  Reconciled reconciled;
  for (const v1::WorkUpdate& update : response.updates()) {
    TW_ASSIGN(std::optional<log::TrialNews> one, TakeUpdate(update));
    if (!one) {
      reconciled.foreign.push_back(update.work_item());
    } else if (one->record || one->final) {
      news.push_back(*std::move(one));
    }
  }
  TW_TRY(Store(news));
  TellReconciled(reconciled);
  return absl::OkStatus();
}

// What the update is to the log; nullopt when it belongs to no trial of it. A log that was restored
// from a backup gives numbers of trials again, perhaps to other programs: only the work item that
// the trial itself submitted speaks for it.
absl::StatusOr<std::optional<log::TrialNews>> JobCore::TakeUpdate(const v1::WorkUpdate& update) {
  const auto id = ParseWorkItemName(job_.uid, update.work_item());
  if (!id || id->trial < 1 || id->trial > last_trial_) return std::nullopt;
  TaskState* task = FindTask(id->task);
  if (task == nullptr) return std::nullopt;
  const auto open = open_.find(id->trial);
  const bool is_open = open != open_.end();
  log::TrialRow trial;
  if (is_open) {
    trial = open->second.row;
  } else {
    TW_ASSIGN(trial, env_.log->GetTrial(job_.id, id->trial));
  }
  if (!IsWorkOf(update, trial)) return std::nullopt;
  // Sent again at once, or made again where it is gone here, too.
  if (update.reason() == daemon::kArtifactMissingReason && is_open &&
      open->second.phase == OpenTrial::Phase::kAtTracker) {
    open->second.phase = OpenTrial::Phase::kToSubmit;
  }
  log::TrialNews news =
      NewsOf(update, trial, KeyOf(job_, task->row.hash), env_.clock->WallMicros());
  // A job whose work fits several classes of devices may meet a second unit.
  if (news.record && news.record->usable() && !task->best_record.value_kind.empty() &&
      news.record->value_kind != task->best_record.value_kind) {
    news.record->valid = false;
    news.record->invalid_reasons.push_back("tuner.unit.differs");
  }
  return news;
}

absl::Status JobCore::On(LoadKnown event) {
  load_asked_ = false;
  load_next_ns_ = env_.clock->NowNs() + kLoadEveryNs;
  if (!event.load.ok()) return absl::OkStatus();  // Pull tells about a tracker that is away
  devices_ = event.load->dispatchable();
  waves_.NoteClasses(event.load->device_classes());
  const std::string compilers = compiler_.Note(*event.load);
  if (!compilers.empty()) TW_TRY(AddText(compilers));
  if (devices_ > 0) {
    ClearCondition(kDeviceCondition);
  } else {
    SetCondition(kDeviceCondition, "job.pool.no_device",
                 StrCat("no device that satisfies ", job_.target,
                        " is ready: ", event.load->online(), " online"));
  }
  return absl::OkStatus();
}

// Commits news, then acts on them.
absl::Status JobCore::Store(const std::vector<log::TrialNews>& news) {
  if (news.empty()) return absl::OkStatus();
  const int64_t now_us = env_.clock->WallMicros();
  TW_ASSIGN(const std::vector<log::StoredNews> stored,
            env_.log->StoreNews(job_.id, news, elapsed_s(), now_us));
  for (size_t i = 0; i < news.size(); ++i) {
    if (stored[i].record_stored) device_s_ += news[i].record->run_s;
    // An old record that ends its trial only now is news to the others, too.
    if (news[i].record && (stored[i].record_stored || stored[i].trial_ended)) {
      TaskState* task = FindTask(news[i].record->task);
      if (task != nullptr) NoteOwnRecord(task);
    }
    const auto it = open_.find(news[i].number);
    if (it != open_.end() && news[i].record) {
      it->second.attempts = std::max(it->second.attempts, news[i].record->attempt);
    }
    if (!stored[i].trial_ended) continue;
    TW_CHECK(it != open_.end()) << job_.id << " trial " << news[i].number << " ended twice";
    log::TrialRow trial = std::move(it->second.row);
    open_.erase(it);
    --FindTask(trial.task)->open;
    trial.state = news[i].state;
    trial.outcome = news[i].outcome;
    if (news[i].record) {
      trial.measurement_id = news[i].record->measurement_id;
      if (news[i].record->usable()) trial.median = news[i].record->median;
    }
    EndTrial({std::move(trial), news[i].record});
  }
  return absl::OkStatus();
}

void JobCore::CountEnd(const log::TrialRow& trial) {
  if (trial.generated_by == log::kFinal) return;
  ++ended_;
  ++by_outcome_[trial.outcome];
}

// Takes an ended trial that is not among the open ones any more.
void JobCore::EndTrial(EndedTrial ended) {
  CountEnd(ended.trial);
  for (const EndedTrial& one : waves_.Add(std::move(ended), open_.empty())) {
    TakeEnd(one.trial, one.record.has_value() ? &*one.record : nullptr);
  }
}

// What a record of one of the task's programs changes.
void JobCore::TakeRecord(TaskState* task, const log::TrialRow& trial,
                         const log::RecordRow& record) {
  ++task->records;
  if (record.usable()) {
    ++ok_rows_;
    if (trial.is_default && task->standard.time <= 0) task->standard = TimeOf(record);
  }
  task->contenders.Add(trial, record);
  UpdateBest(task);
}

// While the job searches, its best is what it must beat; then it is what the module gets.
void JobCore::UpdateBest(TaskState* task) {
  const bool searches = job_.state == log::JobState::kRunning;
  const log::MeasuredTrial* choice =
      searches ? task->contenders.Leader() : task->contenders.Choice();
  if (choice == nullptr) {
    task->best = {};
    task->best_record = {};
    task->view.best = 0;
    return;
  }
  if (choice->record.measurement_id == task->best_record.measurement_id) return;
  task->best = choice->trial;
  task->best.median = choice->record.median;
  task->best_record = choice->record;
  task->view.best = choice->record.median;
}

// What an ended trial changes in memory, in addition to the counts.
void JobCore::TakeEnd(const log::TrialRow& trial, const log::RecordRow* record) {
  TaskState* task = FindTask(trial.task);
  if (trial.is_default && trial.outcome == log::Outcome::kWrongResult) task->default_wrong = true;
  const bool final = trial.generated_by == log::kFinal;
  if (record != nullptr) TakeRecord(task, trial, *record);
  if (final && record == nullptr && trial.outcome != log::Outcome::kCancelled) {
    task->contenders.Add(trial, log::RecordRow{});
    UpdateBest(task);
  }
  if (final) return;
  task->view.best_by_trial.push_back(task->view.best);
  double total = 0;
  for (const TaskState& one : tasks_) {
    if (one.view.best <= 0) {
      total = 0;
      break;
    }
    total += one.view.weight * one.view.best;
  }
  total_by_trial_.push_back(total);
  told_.push_back(ToldOf(trial, record));
}

}  // namespace tilewright::jobs
