// The part of JobCore that talks with the search child.
#include <algorithm>
#include <utility>

#include "deploy/daemon/wire.h"
#include "deploy/support/file.h"
#include "deploy/support/hash.h"
#include "deploy/support/strings.h"
#include "tuner_server/jobs/job_core.h"
#include "tuner_server/jobs/row_enums.h"
#include "tuner_server/jobs/size_messages.h"
#include "tuner_server/jobs/work_items.h"
#include "tuner_server/log/cost_models.h"
#include "tuner_server/log/toolchain_text.h"
#include "tuner_server/search/builder_client.h"
#include "tuner_server/search/builder_error.h"

namespace tilewright::jobs {
namespace {

using support::StrCat;

constexpr int64_t kSecondMs = 1000;
constexpr int64_t kOpenTimeoutMs = 900 * kSecondMs;  // expected outputs of large models take time
constexpr int64_t kTellTimeoutMs = 300 * kSecondMs;  // a restarted child replays the whole log
constexpr int64_t kModelTimeoutMs = 120 * kSecondMs;
constexpr int64_t kAskTimeoutMs = 120 * kSecondMs;
constexpr int64_t kCompileTimeoutMs = 900 * kSecondMs;

constexpr size_t kTellRecords = 2000;
constexpr size_t kMaxReasonBytes = 2000;

constexpr char kDefault[] = "default";
constexpr int64_t kNoLimit = int64_t{1} << 40;  // trials of a job whose budget is time
constexpr char kSearchCondition[] = "SEARCH_RESTARTING";
constexpr char kSearchWaitsCondition[] = "SEARCH_WAITS";

std::string NoTasks(const v1::Job& spec) {
  if (spec.open_sizes().empty()) return "job.model.no_tasks: the model has nothing to tune";
  return StrCat("job.specialise.missing: nothing to tune but kernels of open sizes (",
                SizesOf(spec).Words(), "): the job measures kernels of fixed sizes");
}

}  // namespace

// Chooses what to ask next: the child first learns, then trains, then proposes.
absl::Status JobCore::PumpSearch() {
  const int64_t now_ns = env_.clock->NowNs();
  if (search_step_ != SearchStep::kNone || now_ns < search_retry_ns_ ||
      search_wait_.TooEarly(now_ns)) {
    return absl::OkStatus();
  }
  const bool running = job_.state == log::JobState::kRunning;
  const bool compiling = job_.state == log::JobState::kFinishing && open_.empty();
  if (!running && !compiling) return absl::OkStatus();
  if (compiling && spec_.records_only()) return FinishWithRecords();
  if (!opened_) {
    if (compiler_.known() || compiling) AskOpen();
  } else if (compiling && training_out_) {
    AskTake();
  } else if (compiling) {
    return AskCompile();
  } else if (!checked_) {
    AskChecks();
  } else if (search_ended_) {
    return absl::OkStatus();
  } else if (!pending_told_ || told_upto_ < told_.size()) {
    AskTell();
  } else if (!model_loaded_) {
    return AskLoadModel();
  } else if (TrainDue()) {
    AskTrain();
  } else {
    return AskPicks();
  }
  return absl::OkStatus();
}

void JobCore::Ask(SearchStep step, const v1::BuilderRequest& request, int64_t timeout_ms) {
  search_step_ = step;
  env_.search->Send(request, timeout_ms);
}

void JobCore::AskOpen() {
  v1::BuilderRequest request;
  v1::OpenJob* open = request.mutable_open_job();
  open->set_model_path(support::PathJoin(options_.state_dir, "model.onnx"));
  open->set_target(job_.target);
  open->set_seed(job_.seed);
  open->set_cost_model(job_.cost_model);
  open->set_state_dir(options_.state_dir);
  open->set_exploration_share(options_.exploration_share);
  *open->mutable_search_parts() = spec_.search_parts();
  PutSizes(SizesOf(spec_), open);
  search_request_ = "OpenJob";
  Ask(SearchStep::kOpen, request, kOpenTimeoutMs);
}

// One task at a time: people see that it goes on, and what is made stays made if the child dies.
void JobCore::AskChecks() {
  v1::BuilderRequest request;
  request.mutable_make_checks()->add_tasks(tasks_[checks_made_].row.hash);
  search_request_ = StrCat("MakeChecks of ", tasks_[checks_made_].row.name);
  Ask(SearchStep::kChecks, request, kOpenTimeoutMs);
}

v1::ToldRecord JobCore::ToldOf(const log::TrialRow& trial, const log::RecordRow* record) {
  v1::ToldRecord told;
  TaskState* task = FindTask(trial.task);
  told.set_task(task->row.hash);
  told.set_steps(trial.steps);
  told.set_program_hash(trial.program_hash);
  told.set_features_hash(trial.features_hash);
  told.set_point(trial.point);
  *told.mutable_resources() = ResourcesFromJson(trial.resources);
  // What says nothing about the candidate only keeps it from being chosen again.
  const bool judged = record != nullptr && record->valid &&
                      record->outcome != log::Outcome::kDeviceLost &&
                      record->outcome != log::Outcome::kCancelled;
  if (!judged) {
    told.set_measurement_id(WorkItemName(job_.uid, trial.task, trial.number));
    told.set_pending(true);
    return told;
  }
  told.set_measurement_id(record->measurement_id);
  told.set_outcome(ToProto(record->outcome));
  if (record->usable()) {
    told.set_median_ns(record->median);
    told.set_ci_rel(record->ci_rel);
  }
  return told;
}

void JobCore::AskTell() {
  v1::BuilderRequest request;
  v1::Tell* tell = request.mutable_tell();
  if (!pending_told_) {
    tell->mutable_relatives()->Assign(relatives_.begin(), relatives_.end());
    for (const auto& [number, trial] : open_) *tell->add_records() = ToldOf(trial.row, nullptr);
  }
  telling_upto_ = std::min(told_.size(), told_upto_ + kTellRecords);
  for (size_t i = told_upto_; i < telling_upto_; ++i) *tell->add_records() = told_[i];
  search_request_ = StrCat("Tell from ", told_upto_);
  Ask(SearchStep::kTell, request, kTellTimeoutMs);
}

absl::Status JobCore::AskLoadModel() {
  model_loaded_ = true;
  if (model_id_.empty()) return PumpSearch();
  TW_ASSIGN(const log::ModelRow model, env_.log->GetModel(job_.id, model_id_));
  v1::BuilderRequest request;
  request.mutable_load_model()->set_model_id(model.id);
  request.mutable_load_model()->set_model(model.bytes);
  search_request_ = "LoadModel " + model.id;
  Ask(SearchStep::kLoadModel, request, kModelTimeoutMs);
  return absl::OkStatus();
}

bool JobCore::TrainDue() const {
  if (job_.cost_model != log::kXgboostModel || training_out_ || !parts_.training) return false;
  const int64_t fresh = ok_rows_ - trained_rows_;
  if (retrainings_ == 0) return fresh >= options_.train_min_rows;
  return fresh >= options_.train_every_rows ||
         (fresh >= options_.train_grown_rows &&
          static_cast<double>(fresh) >= options_.train_growth * static_cast<double>(trained_rows_));
}

void JobCore::AskTrain() {
  v1::BuilderRequest request;
  request.mutable_train_model()->set_background(train_in_background_);
  training_rows_ = ok_rows_;
  search_request_ = StrCat("TrainModel on ", ok_rows_);
  Ask(SearchStep::kTrain, request, kModelTimeoutMs);
}

void JobCore::AskTake() {
  v1::BuilderRequest request;
  request.mutable_take_model();
  search_request_ = StrCat("TakeModel of ", training_rows_);
  Ask(SearchStep::kTake, request, kModelTimeoutMs);
}

absl::Status JobCore::AskPicks() {
  TW_TRY(AddDefaultTrials());  // of tasks that another job was at work on
  const int64_t open = static_cast<int64_t>(open_.size());
  const int64_t budget = spec_.budget().max_trials();
  // What is known counts as if this job had measured it, once the defaults are known, too.
  const int64_t left = budget > 0 ? budget - proposed_ - recalled_ : kNoLimit;
  if (left <= 0 || (open > 0 && (waves_.SearchWaits() || open >= open_limit())))
    return absl::OkStatus();
  TW_ASSIGN(TaskState* const picked, ChooseTask());
  if (picked == nullptr) return absl::OkStatus();
  if (!picked->has_default) return AddDefaults({picked});
  const TaskState& task = *picked;
  if (told_upto_ < told_.size()) {
    AskTell();  // another job was at work on it until now
    return absl::OkStatus();
  }
  const int64_t count = BatchSize(task.view, left, options_.scheduler);
  if (open > 0 && open + count > open_limit()) return absl::OkStatus();
  if (training_out_ && batches_ > training_batches_) {
    AskTake();
    return absl::OkStatus();
  }
  asked_task_ = task.row.name;
  asked_batch_ = StrCat(job_.uid, "/b", batches_ + 1);
  asked_count_ = count;
  v1::BuilderRequest request;
  request.mutable_ask()->set_task(task.row.hash);
  request.mutable_ask()->set_count(static_cast<int32_t>(count));
  // Without the job's name: two jobs of one seed choose the same.
  request.mutable_ask()->set_batch_id(StrCat("b", batches_ + 1));
  search_request_ = StrCat("Ask ", asked_batch_, " for task ", asked_task_);
  Ask(SearchStep::kAsk, request, kAskTimeoutMs);
  return absl::OkStatus();
}

std::vector<TaskView> JobCore::Views() const {
  std::vector<TaskView> views;
  for (const TaskState& task : tasks_) {
    views.push_back(task.view);
    views.back().default_time = task.standard.time;
  }
  return views;
}

// The task that gets the next batch, claimed; null: none, as things are.
absl::StatusOr<JobCore::TaskState*> JobCore::ChooseTask() {
  std::vector<TaskView> views = Views();
  for (size_t i = 0; i < tasks_.size(); ++i) {
    if (Barred(tasks_[i])) views[i].exhausted = true;
  }
  for (;;) {
    const int index = PickTask(views, batches_, options_.scheduler);
    if (index < 0) return nullptr;
    TaskState* task = &tasks_[static_cast<size_t>(index)];
    TW_ASSIGN(const bool mine, Claim(task));
    if (mine) return task;
    views[static_cast<size_t>(index)].exhausted = true;
  }
}

absl::Status JobCore::AskCompile() {
  for (TaskState& task : tasks_) {
    TW_TRY(TakeNews(&task));
    UpdateBest(&task);
  }
  v1::BuilderRequest request;
  v1::CompileModule* compile = request.mutable_compile_module();
  for (const TaskState& task : tasks_) {
    if (task.best.median <= 0) {
      // No schedule was measured and confirmed: its default, unless that is known to be wrong.
      if (!task.default_wrong) continue;
      return Fail("job.task.wrong_result: the default schedule of task " + task.row.name +
                  " failed the result check, and no other schedule was measured and confirmed");
    }
    (*compile->mutable_steps_by_task())[task.row.hash] = task.best.steps;
    (*compile->mutable_program_hash_by_task())[task.row.hash] = task.best.program_hash;
    (*compile->mutable_record_by_task())[task.row.hash] = task.best.measurement_id;
    (*compile->mutable_predicted_ns_by_task())[task.row.hash] = task.best.median;
  }
  recipe_ = RecipeOf(*compile);
  TW_ASSIGN(const bool reused, ReuseModule());
  if (reused) return absl::OkStatus();
  compile->set_output_path(support::PathJoin(options_.state_dir, "model.tw"));
  compile->set_job(job_.uid);
  compile->set_predict_open_tasks(true);
  search_request_ = "CompileModule";
  Ask(SearchStep::kCompile, request, kCompileTimeoutMs);
  return absl::OkStatus();
}

absl::Status JobCore::On(SearchAnswered event) {
  if (!event.reply.ok()) return OnSearchDied(event.reply.status());
  const SearchStep step = std::exchange(search_step_, SearchStep::kNone);
  const v1::BuilderReply& reply = *event.reply;
  if (search_request_ == crashed_request_) search_crashes_ = search_kills_ = 0;
  ClearCondition(kSearchCondition);
  if (reply.has_error()) {
    search_step_ = step;
    return OnSearchRefused(search::FromBuilderError(reply.error()));
  }
  // What a new child is told first says nothing about the request that waits.
  const bool prepares =
      step == SearchStep::kOpen || step == SearchStep::kTell || step == SearchStep::kLoadModel;
  if (!prepares || search_request_ == waiting_request_) EndSearchWait();
  if (step == SearchStep::kOpen && reply.has_job_opened()) return OnOpened(reply.job_opened());
  if (step == SearchStep::kChecks && reply.has_checks_made()) {
    return OnChecksMade(reply.checks_made());
  }
  if (step == SearchStep::kTell && reply.has_told()) {
    pending_told_ = true;
    told_upto_ = telling_upto_;
    return absl::OkStatus();
  }
  if (step == SearchStep::kLoadModel && reply.has_model_loaded()) return absl::OkStatus();
  if ((step == SearchStep::kTrain || step == SearchStep::kTake) && reply.has_model_trained()) {
    return OnTrained(reply.model_trained());
  }
  if (step == SearchStep::kAsk && reply.has_asked()) return OnAsked(reply.asked());
  if (step == SearchStep::kCompile && reply.has_module_compiled()) {
    return OnCompiled(reply.module_compiled());
  }
  search_step_ = step;
  env_.search->Kill();
  return OnSearchDied(
      support::Internal("job.search.wrong_reply", "the reply does not fit " + search_request_));
}

// The same request is sent again later.
void JobCore::WaitWithSearch(const absl::Status& why) {
  const support::Shortage shortage = support::ShortageOf(why);
  waiting_request_ = search_request_;
  search_wait_.Failed(shortage, env_.clock->NowNs());
  SetCondition(kSearchWaitsCondition, StrCat("job.waits.", support::ShortageName(shortage)),
               StrCat(search_request_, " waits for ", support::ShortageText(shortage), ": ",
                      support::StatusText(why).substr(0, kMaxReasonBytes)));
}

void JobCore::EndSearchWait() {
  search_wait_.Over();
  waiting_request_.clear();
  ClearCondition(kSearchWaitsCondition);
}

// The child is gone: another one is told everything. The same request must not kill them for ever.
absl::Status JobCore::OnSearchDied(const absl::Status& why) {
  const SearchStep step = std::exchange(search_step_, SearchStep::kNone);
  opened_ = false;
  pending_told_ = false;
  model_loaded_ = false;
  told_upto_ = 0;
  if (training_out_) train_in_background_ = false;
  training_out_ = false;
  if (search_request_ != crashed_request_) search_crashes_ = search_kills_ = 0;
  crashed_request_ = search_request_;
  const std::string text = support::StatusText(why).substr(0, kMaxReasonBytes);
  const support::Shortage shortage = support::ShortageOf(why);
  const bool is_short = shortage != support::Shortage::kNone;
  if (!is_short || !search_wait_.waits()) {
    TW_TRY(AddText(StrCat("search child ended on ", search_request_, ": ", text)));
  }
  if (is_short) WaitWithSearch(why);
  if (shortage == support::Shortage::kKilled && ++search_kills_ >= options_.max_search_kills) {
    search_kills_ = 0;
    EndSearchWait();
    return GiveUpRequest(step, StrCat("job.search.killed: the search child was killed ",
                                      options_.max_search_kills, " times on ", search_request_,
                                      ", which may need more memory than there is: ", text));
  }
  if (is_short) return absl::OkStatus();
  ++search_crashes_;
  if (search_crashes_ == 1) search_backoff_.Reset();
  search_retry_ns_ = env_.clock->NowNs() + search_backoff_.NextNs();
  SetCondition(kSearchCondition, "job.search.died", text);
  if (search_crashes_ < options_.max_search_crashes) return absl::OkStatus();
  search_crashes_ = 0;
  return GiveUpRequest(
      step, StrCat("job.search.crashed: the search child ended ", options_.max_search_crashes,
                   " times on ", search_request_, ": ", text));
}

// A request that children die of is left out, where the job can do without its answer.
absl::Status JobCore::GiveUpRequest(SearchStep step, const std::string& text) {
  if (step == SearchStep::kAsk) {
    FindTask(asked_task_)->view.exhausted = true;
    return AddText("no more candidates of task " + asked_task_);
  }
  if (step == SearchStep::kTrain || step == SearchStep::kTake) {
    trained_rows_ = training_rows_;
    return absl::OkStatus();
  }
  if (step == SearchStep::kLoadModel) {
    model_id_.clear();
    trained_rows_ = 0;
    return absl::OkStatus();
  }
  return Fail(text);
}

// The child lives and says no: for now, or because of the request.
absl::Status JobCore::OnSearchRefused(const absl::Status& why) {
  const SearchStep step = std::exchange(search_step_, SearchStep::kNone);
  if (support::ShortageOf(why) != support::Shortage::kNone) {
    WaitWithSearch(why);
    return absl::OkStatus();
  }
  EndSearchWait();
  const std::string text = support::StatusText(why).substr(0, kMaxReasonBytes);
  switch (step) {
    case SearchStep::kAsk:
      FindTask(asked_task_)->view.exhausted = true;
      return AddText(StrCat("no more candidates of task ", asked_task_, ": ", text));
    case SearchStep::kTrain:
    case SearchStep::kTake:
      training_out_ = false;
      trained_rows_ = training_rows_;
      return AddText("training refused: " + text);
    case SearchStep::kLoadModel:
      model_id_.clear();
      trained_rows_ = 0;
      TW_TRY(UseShippedModel());
      return AddText("the stored model was refused and will be trained again: " + text);
    default:
      return Fail(text);
  }
}

absl::Status JobCore::OnOpened(const v1::JobOpened& opened) {
  std::vector<log::TaskRow> rows;
  for (const v1::BuilderTask& task : opened.tasks()) {
    log::TaskRow row;
    row.job = job_.id;
    row.index = static_cast<int64_t>(rows.size());
    row.name = task.name();
    row.hash = task.hash();
    row.description = task.description();
    row.text = task.canonical_text();
    row.weight = task.weight();
    row.flops = task.flops();
    row.default_steps = task.default_steps();
    row.default_program_hash = task.default_program_hash();
    row.data_type = task.data_type();
    row.launch_names = task.launch_names();
    rows.push_back(std::move(row));
  }
  if (rows.empty()) return Fail(NoTasks(spec_));
  const std::string toolchain = log::WithCompiler(opened.toolchain(), compiler_.name());
  const absl::Status put = env_.log->PutTasks(job_.id, toolchain, opened.model_name(), rows);
  if (absl::IsFailedPrecondition(put)) return Fail(support::StatusText(put));
  TW_TRY(put);
  TW_ASSIGN(job_, env_.log->GetJob(job_.id));
  if (tasks_.empty()) {
    for (const log::TaskRow& row : rows) {
      tasks_.emplace_back();
      tasks_.back().row = row;
      tasks_.back().view.weight = static_cast<double>(row.weight);
    }
    TW_TRY(Recall());
  }
  // What results are checked against is the same whichever child made it: made once, kept.
  for (size_t i = checks_made_; i < tasks_.size(); ++i) {
    TaskState& task = tasks_[i];
    task.spec = opened.tasks(static_cast<int>(i));
    task.view.estimate = task.spec.default_estimate_ns();
  }
  compiler_build_ = opened.compiler_build();
  shipped_ = opened.shipped_model();
  TW_TRY(UseShippedModel());
  opened_ = true;
  return job_.state == log::JobState::kRunning ? AddDefaultTrials() : absl::OkStatus();
}

absl::Status JobCore::OnChecksMade(const v1::ChecksMade& made) {
  TaskState& task = tasks_[checks_made_];
  if (made.tasks_size() != 1 || made.tasks(0).hash() != task.row.hash) {
    return Fail("job.search.wrong_reply: expected the checks of task " + task.row.name);
  }
  v1::BuilderTask spec = task.spec;
  spec.MergeFrom(made.tasks(0));
  TW_ASSIGN(const std::string hex, daemon::DigestToHex(spec.expected_output()));
  if (!env_.blobs->Contains(hex)) {
    TW_ASSIGN(const std::string bytes,
              support::ReadFile(support::PathJoin(options_.state_dir, spec.expected_output_path()),
                                search::kMaxExpectedBytes));
    TW_TRY(env_.blobs->PutVerified(hex, bytes));
  }
  task.spec = std::move(spec);
  task.view.headroom = task.spec.predicted_gain();
  checked_ = ++checks_made_ == tasks_.size();
  return absl::OkStatus();
}

// What ranks before the first training is in the log before any pick names it, like any other.
absl::Status JobCore::UseShippedModel() {
  if (!model_id_.empty() || shipped_.model_id().empty()) return absl::OkStatus();
  log::ModelRow model;
  model.id = shipped_.model_id();
  model.job = job_.id;
  model.bytes = shipped_.model();
  model.sha256 = support::Sha256Hex(model.bytes);
  model.features_schema = shipped_.features_schema();
  model.replaced = true;
  model.reason = "shipped";
  model.created_us = env_.clock->WallMicros();
  TW_TRY(env_.log->AddModel(model));
  model_id_ = model.id;
  model_loaded_ = true;  // this child has it already
  return absl::OkStatus();
}

// Tasks whose default schedule must be measured, and is not even a trial yet.
std::vector<JobCore::TaskState*> JobCore::MissingDefaults() {
  std::vector<TaskState*> missing;
  for (const int index : DefaultsFirst(Views(), spec_.budget().max_trials())) {
    TaskState& task = tasks_[static_cast<size_t>(index)];
    if (!task.has_default) missing.push_back(&task);
  }
  return missing;
}

// The first trial of each task is its default schedule: what every other one is compared with.
absl::Status JobCore::AddDefaultTrials() {
  std::vector<TaskState*> mine;
  for (TaskState* task : MissingDefaults()) {
    TW_ASSIGN(const bool claimed, Claim(task));
    if (claimed && !task->has_default) mine.push_back(task);
  }
  const int64_t budget = spec_.budget().max_trials();
  const auto left = static_cast<size_t>(std::max<int64_t>(budget - proposed_, 0));
  if (budget > 0 && mine.size() > left) mine.resize(left);
  return AddDefaults(mine);
}

absl::Status JobCore::AddDefaults(const std::vector<TaskState*>& tasks) {
  log::NewBatch batch;
  for (const TaskState* task : tasks) {
    log::TrialRow trial;
    trial.job = job_.id;
    trial.task = task->row.name;
    trial.steps = task->row.default_steps;
    trial.program_hash = task->row.default_program_hash;
    trial.generated_by = kDefault;
    trial.proposed_by = kDefault;
    trial.is_default = true;
    trial.created_us = env_.clock->WallMicros();
    batch.trials.push_back(std::move(trial));
  }
  return batch.trials.empty() ? absl::OkStatus() : AddTrials(std::move(batch));
}

// Stores the batch, then makes its trials open ones.
absl::Status JobCore::AddTrials(log::NewBatch batch) {
  TW_ASSIGN(const std::vector<int64_t> numbers, env_.log->AddBatch(job_.id, batch));
  if (batch.batch) ++batches_;
  for (size_t i = 0; i < numbers.size(); ++i) {
    OpenTrial open;
    open.row = std::move(batch.trials[i]);
    open.row.number = numbers[i];
    TaskState* task = FindTask(open.row.task);
    CountProposed(open.row, task);
    ++task->open;
    open_[numbers[i]] = std::move(open);
  }
  return absl::OkStatus();
}

absl::Status JobCore::OnTrained(const v1::ModelTrained& trained) {
  training_out_ = trained.started();
  if (training_out_) {
    training_batches_ = batches_;
    return absl::OkStatus();
  }
  train_in_background_ = true;
  trained_rows_ = training_rows_;
  if (!trained.trained()) return absl::OkStatus();
  log::ModelRow model;
  model.id = trained.model_id();
  model.job = job_.id;
  model.bytes = trained.model();
  model.sha256 = support::Sha256Hex(model.bytes);
  model.features_schema = trained.features_schema();
  model.replaced = trained.replaced();
  model.reason = trained.reason();
  const v1::ModelMetrics& metrics = trained.metrics();
  model.train_rows = metrics.train_rows();
  model.held_out_rows = metrics.held_out_rows();
  model.pairwise_accuracy = metrics.pairwise_accuracy();
  model.recall_at_8 = metrics.recall_at_8();
  model.previous_recall_at_8 = metrics.previous_recall_at_8();
  model.prior_recall_at_8 = metrics.prior_recall_at_8();
  model.rounds = metrics.rounds();
  model.seconds = trained.seconds();
  model.created_us = env_.clock->WallMicros();
  // In the log before any pick names it.
  TW_TRY(env_.log->AddModel(model));
  ++retrainings_;
  if (trained.replaced()) model_id_ = model.id;
  return absl::OkStatus();
}

absl::Status JobCore::OnAsked(const v1::Asked& asked) {
  if (job_.state != log::JobState::kRunning || search_ended_) return absl::OkStatus();
  TaskState* task = FindTask(asked_task_);
  const int64_t now_us = env_.clock->WallMicros();
  log::NewBatch batch;
  log::BatchRow& row = batch.batch.emplace();
  row.id = asked_batch_;
  row.job = job_.id;
  row.task = asked_task_;
  row.model_id = model_id_;
  row.asked = asked_count_;
  row.considered = asked.drafts_size();
  row.exploration_share = asked.exploration_share();
  row.invalid = asked.invalid();
  row.search_s = asked.search_seconds();
  row.features_s = asked.features_seconds();
  row.model_s = asked.model_seconds();
  row.told = static_cast<int64_t>(told_upto_);
  row.created_us = now_us;
  std::set<std::string> fresh;
  for (const v1::Candidate& pick : asked.picks()) {
    if (static_cast<int64_t>(batch.trials.size()) == asked_count_) break;
    if (task->hashes.count(pick.program_hash()) != 0 || !fresh.insert(pick.program_hash()).second) {
      continue;  // chosen before
    }
    log::TrialRow trial;
    trial.job = job_.id;
    trial.task = asked_task_;
    trial.steps = pick.steps();
    trial.program_hash = pick.program_hash();
    trial.generated_by = pick.generated_by();
    trial.proposed_by = pick.proposed_by();
    trial.batch = asked_batch_;
    trial.rank = pick.rank();
    trial.considered = pick.considered();
    trial.predicted = pick.predicted();
    trial.model_id = pick.model_id();
    trial.features.assign(pick.features().begin(), pick.features().end());
    trial.features_hash = pick.features_hash();
    trial.point = pick.point();
    trial.is_default = pick.is_default();
    trial.created_us = now_us;
    batch.trials.push_back(std::move(trial));
  }
  std::set<int64_t> ranks;
  for (const v1::Draft& draft : asked.drafts()) {
    if (!ranks.insert(draft.rank()).second) continue;
    batch.drafts.push_back({asked_batch_, draft.rank(), draft.program_hash(), draft.steps(),
                            draft.predicted(), draft.picked(),
                            std::vector<float>(draft.features().begin(), draft.features().end()),
                            draft.features_hash()});
  }
  current_task_ = asked_task_;
  if (batch.trials.empty()) {
    task->view.exhausted = true;
    return AddText("the search has no more candidates of task " + asked_task_);
  }
  return AddTrials(std::move(batch));
}

absl::Status JobCore::OnCompiled(const v1::ModuleCompiled& compiled) {
  // The child measured these schedules itself: that one does not replay is a fault to be seen.
  for (const std::string& stale : compiled.stale()) {
    TW_TRY(AddText("the best schedule was not applied, " + stale.substr(0, kMaxReasonBytes)));
  }
  const auto published = env_.modules->Publish(MakePublishRequest(compiled));
  if (absl::IsDataLoss(published.status()) || absl::IsNotFound(published.status())) {
    return Fail(support::StatusText(published.status()));
  }
  TW_TRY(published.status());
  return Succeed(*published);
}

}  // namespace tilewright::jobs
