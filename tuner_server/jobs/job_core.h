// One job from its first state to its last: an event-driven core without threads, clocks or I/O of
// its own. It asks its ports (job_ports.h) and takes their answers as events. It writes everything
// that must not be lost to the log before it acts on it. Therefore a core made from the log at any
// moment continues where the last one stopped.
//
//   search ──Ask──▶ trials in the log ──▶ build ──▶ artifact ──▶ work item ──▶ tracker
//      ▲                                                                          │
//      └── Tell, TrainModel ◀── record in the log (then AckResults) ◀─────────────┘
//
// All stages of several batches overlap; the number of open trials bounds them together.
//
// Handle returns an error if the log or the artifact store failed. The owner then discards the core
// and makes another one from the log later. The core handles all other failures itself: it starts a
// dead search child again and tells it the log; it waits for a tracker that is away. A child may
// fail because the machine is short of something: a full disk, no memory. Then the core repeats the
// request until it succeeds. A condition says what it waits for.
//
// Not thread-safe; owns nothing of its environment.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "deploy/daemon/blob_store.h"
#include "deploy/support/backoff.h"
#include "deploy/support/clock.h"
#include "deploy/support/status.h"
#include "tilewright/v1/job.pb.h"
#include "tuner_server/jobs/fleet_compiler.h"
#include "tuner_server/jobs/job_ports.h"
#include "tuner_server/jobs/job_queue.h"
#include "tuner_server/jobs/job_times.h"
#include "tuner_server/jobs/shortage_wait.h"
#include "tuner_server/jobs/task_claims.h"
#include "tuner_server/jobs/task_scheduler.h"
#include "tuner_server/jobs/trial_waves.h"
#include "tuner_server/log/schedule_rule.h"
#include "tuner_server/log/tuning_log.h"
#include "tuner_server/modules/module_store.h"
#include "tuner_server/search/search_parts.h"

namespace tilewright::jobs {

// Work items on which a job's log and the tracker did not agree, as after one of them was restored
// from a backup. Names of work items.
struct Reconciled {
  std::vector<std::string> ended;    // acknowledged at the tracker: their results come once more
  std::vector<std::string> unknown;  // to the tracker, which had them once: submitted again
  std::vector<std::string> foreign;  // updates of work that this log does not know: left out

  bool empty() const { return ended.empty() && unknown.empty() && foreign.empty(); }
};

struct JobEnvironment {
  log::TuningLog* log = nullptr;
  modules::ModuleStore* modules = nullptr;
  daemon::BlobStore* blobs = nullptr;
  support::Clock* clock = nullptr;
  SearchChild* search = nullptr;
  BuildPool* builds = nullptr;
  Dispatcher* dispatcher = nullptr;
  TaskClaims* claims = nullptr;  // of all jobs of the log
  // Called with what was reconciled with the tracker; may be null.
  std::function<void(const Reconciled&)> on_reconciled;
};

struct JobCoreOptions {
  std::string state_dir;  // the job's own folder, exists; children write into it
  double exploration_share = 0.1;
  int64_t min_open = 16;        // open trials that are always allowed
  int64_t open_per_device = 8;  // and more for each device that could measure
  int64_t max_open = 512;
  int64_t train_min_rows = 16;    // first training
  int64_t train_every_rows = 16;  // later ones: after so many new rows,
  int64_t train_grown_rows = 8;   // or after so many, if they are
  double train_growth = 0.2;      // this share of the last training's rows
  int max_search_crashes = 3;     // on one request, in a row
  int max_build_crashes = 2;      // of one trial
  int max_search_kills = 40;      // from outside, on one request: it may need too much memory
  int max_build_kills = 10;       // of one trial
  int64_t wind_down_ns = int64_t{15} * 1'000'000'000;  // for what is measured when a job ends early
  SchedulerOptions scheduler;
};

class JobCore {
 public:
  // Reads the job from the log. failed_precondition job.core.ended: it is in a final state.
  static absl::StatusOr<std::unique_ptr<JobCore>> Resume(const JobEnvironment& environment,
                                                         const JobCoreOptions& options,
                                                         const std::string& job);

  // Sends the first requests to the ports. Call once.
  absl::Status Start();
  // Handles one event. After an error the core must not be used any more.
  absl::Status Handle(JobEvent event);

  // True when the job is in a final state and nothing is left to do.
  bool done() const { return done_; }

  const log::JobRow& job() const { return job_; }
  v1::Progress progress() const;
  // As BestTrial (job_times.h).
  std::string best_trial() const;
  std::vector<v1::Condition> conditions() const;
  // What a child of the job waits for; kNone: for nothing.
  support::Shortage shortage() const;

 private:
  // A trial that has not ended.
  struct OpenTrial {
    enum class Phase { kToBuild, kBuilding, kToSubmit, kSubmitting, kAtTracker };
    log::TrialRow row;
    Phase phase = Phase::kToBuild;
    int build_crashes = 0;
    int build_kills = 0;
    int64_t attempts = 0;  // the highest of which a record is known
  };

  // A task and what is known about it.
  struct TaskState {
    log::TaskRow row;
    v1::BuilderTask spec;  // of the search child
    TaskView view;
    int64_t records = 0;
    bool has_default = false;    // its default schedule is a trial
    bool default_wrong = false;  // and gave wrong results
    TrialTime standard;          // of the default schedule
    log::TrialRow best;          // what the module gets; valid when best.median > 0
    log::RecordRow best_record;
    log::Contenders contenders;     // which those two are chosen from
    int finals = 0;                 // proposed by this job
    std::set<std::string> hashes;   // programs that were chosen before
    int64_t open = 0;               // trials
    std::string claim;              // held of TaskClaims; empty: none
    int64_t recalled_position = 0;  // of the last known record that was looked at
    int64_t own_noted = 0;          // records that this core told TaskClaims of
    int64_t others_noted = 0;       // those of others that it knew of at the last look
  };

  // Of the job's time.
  struct Limit {
    double used = 0;  // share; 0: unlimited
    std::string_view over;
  };

  // A request to the search child, and how often it died over it.
  enum class SearchStep { kNone, kOpen, kChecks, kTell, kLoadModel, kTrain, kTake, kAsk, kCompile };

  JobCore(const JobEnvironment& environment, const JobCoreOptions& options, log::JobRow job)
      : env_(environment), options_(options), job_(std::move(job)) {}

  // Pauses that differ from job to job: those of a restarted tuner do not all return together.
  support::Backoff Retries(std::string_view purpose) const;

  // job_recall.cc: what other jobs know
  absl::Status Recall();
  void TakeRecalled(TaskState* task, log::TrialRow trial, const log::RecordRow& record);
  bool AllKnown();

  // job_share.cc: other jobs that run now
  void RestoreOwnClaims();
  absl::StatusOr<bool> Claim(TaskState* task);
  bool Barred(const TaskState& task) const;
  std::string BarredBy(const TaskState& task) const;
  void ReleaseIdle();
  absl::Status TakeNews(TaskState* task);
  absl::Status PumpShared();
  void NoteOwnRecord(TaskState* task);

  // job_core.cc: state from the log, time, the job's own states
  absl::Status Load();
  absl::Status LoadTrials();
  absl::Status LoadTrial(const log::TrialRow& trial, std::vector<EndedTrial>* ended);
  void CountBuilt(const log::TrialRow& trial);
  void CountProposed(const log::TrialRow& trial, TaskState* task);
  absl::StatusOr<int64_t> KnownAttempts(int64_t trial);
  absl::Status Pump();
  absl::Status CheckBudget();
  Limit NearestLimit() const;
  std::optional<std::string> WhySearchEnds();
  bool NoGain() const;
  std::vector<TaskTimes> Times() const;
  absl::Status Move(JobAction action, const std::string& reason);
  absl::Status AddText(const std::string& text);
  double elapsed_s() const;
  int64_t open_limit() const;
  TaskState* FindTask(const std::string& name);
  std::string Phase() const;
  void SetCondition(const std::string& type, const std::string& reason, const std::string& message);
  void ClearCondition(const std::string& type) { conditions_.erase(type); }

  // job_search.cc: the dialogue with the search child
  absl::Status PumpSearch();
  void Ask(SearchStep step, const v1::BuilderRequest& request, int64_t timeout_ms);
  void AskOpen();
  void AskChecks();
  void AskTell();
  absl::Status AskLoadModel();
  void AskTrain();
  void AskTake();
  absl::Status AskCompile();
  absl::Status AskPicks();
  std::vector<TaskView> Views() const;
  absl::StatusOr<TaskState*> ChooseTask();
  bool TrainDue() const;
  absl::Status On(SearchAnswered event);
  absl::Status OnSearchDied(const absl::Status& why);
  absl::Status OnSearchRefused(const absl::Status& why);
  void WaitWithSearch(const absl::Status& why);
  void EndSearchWait();
  absl::Status GiveUpRequest(SearchStep step, const std::string& text);
  absl::Status OnOpened(const v1::JobOpened& opened);
  absl::Status UseShippedModel();
  absl::Status OnChecksMade(const v1::ChecksMade& made);
  std::vector<TaskState*> MissingDefaults();
  absl::Status AddDefaultTrials();
  absl::Status AddDefaults(const std::vector<TaskState*>& tasks);
  absl::Status OnTrained(const v1::ModelTrained& trained);
  absl::Status OnAsked(const v1::Asked& asked);
  absl::Status OnCompiled(const v1::ModuleCompiled& compiled);
  absl::Status AddTrials(log::NewBatch batch);
  v1::ToldRecord ToldOf(const log::TrialRow& trial, const log::RecordRow* record);

  // job_trials.cc: builds, submissions, results
  absl::Status PumpBuilds();
  absl::Status On(BuildEnded event);
  bool WaitsToBuild(const BuildEnded& event, OpenTrial* trial);
  void EndBuildWait();
  absl::Status TakeArtifact(OpenTrial* trial, const v1::Built& built);
  absl::Status PumpSubmit();
  absl::Status On(WorkSubmitted event);
  absl::Status TakeOutcome(OpenTrial* trial, const v1::SubmitOutcome& outcome,
                           Reconciled* reconciled);
  absl::Status NoteQueued(const std::vector<int64_t>& trials);
  void TellReconciled(const Reconciled& reconciled) const;
  void PumpTracker();
  absl::Status On(ResultsPulled event);
  absl::Status TakeUpdates(const v1::PullResultsResponse& response);
  absl::StatusOr<std::optional<log::TrialNews>> TakeUpdate(const v1::WorkUpdate& update);
  absl::Status On(LoadKnown event);
  void ResubmitAll();
  absl::Status Store(const std::vector<log::TrialNews>& news);
  void EndTrial(EndedTrial ended);
  void CountEnd(const log::TrialRow& trial);
  void TakeEnd(const log::TrialRow& trial, const log::RecordRow* record);
  void TakeRecord(TaskState* task, const log::TrialRow& trial, const log::RecordRow& record);
  void UpdateBest(TaskState* task);

  // job_finals.cc: winners are measured again
  static const log::TrialRow* NextFinal(const TaskState& task);
  absl::StatusOr<bool> PumpFinals();

  // job_end.cc: ways for a job to end
  absl::Status Finish(const std::string& why);
  absl::Status Fail(const std::string& why);
  absl::Status FinishWithRecords();
  absl::Status On(CancelRequested event);
  absl::Status On(WorkCancelled event);
  absl::Status On(Tick event);
  void WindDown();
  absl::Status PumpEnd();
  absl::Status CancelTrials(bool at_tracker_too, const std::string& reason);
  std::string PublishedName() const;
  std::string RecipeOf(const v1::CompileModule& compile) const;
  absl::StatusOr<bool> ReuseModule();
  absl::Status Succeed(const log::ModuleVersionRow& version);
  modules::PublishRequest MakePublishRequest(const v1::ModuleCompiled& compiled) const;

  JobEnvironment env_;
  JobCoreOptions options_;
  log::JobRow job_;
  v1::Job spec_;
  search::SearchParts parts_;  // of the search
  bool done_ = false;
  int64_t started_ns_ = 0;       // of this core
  double elapsed_before_s_ = 0;  // of the cores before it
  std::map<std::string, v1::Condition> conditions_;

  // Trials.
  std::vector<TaskState> tasks_;
  std::map<int64_t, OpenTrial> open_;
  TrialWaves waves_;
  FleetCompiler compiler_;
  int64_t recalled_ = 0;      // measured by other jobs, as good as own trials
  std::string recall_class_;  // device class of those
  int64_t share_next_ns_ = 0;
  int64_t proposed_ = 0;  // as the next three, without finals
  int64_t built_ = 0;
  int64_t ended_ = 0;
  std::map<log::Outcome, int64_t> by_outcome_;
  double device_s_ = 0;
  int64_t batches_ = 0;
  std::vector<double> total_by_trial_;  // end-to-end best after each ended trial; 0 while unknown
  std::string current_task_;
  int64_t last_trial_ = 0;                   // the highest number
  std::optional<std::string> search_ended_;  // why; only finals are measured from then on

  // Search child.
  SearchStep search_step_ = SearchStep::kNone;  // what is being asked
  std::string search_request_;                  // names the request, to count its crashes
  std::string compiler_build_;                  // of the child
  std::string recipe_;                          // of the module that is being compiled
  std::string crashed_request_;
  int search_crashes_ = 0;  // on crashed_request_, in a row
  int search_kills_ = 0;    // the same, from outside
  ShortageWait search_wait_{Retries("search wait")};
  std::string waiting_request_;  // of that
  int64_t search_retry_ns_ = 0;
  support::Backoff search_backoff_ = Retries("search");
  bool opened_ = false;
  bool checked_ = false;    // the tasks' specs have what measurements need
  size_t checks_made_ = 0;  // of so many tasks, in their order
  bool model_loaded_ = false;
  bool pending_told_ = false;  // this child knows the trials that were open when it started
  std::vector<v1::RelativeProgram> relatives_;  // what the tasks inherit
  std::vector<v1::ToldRecord> told_;            // everything measured, in order
  size_t told_upto_ = 0;                        // by this child
  size_t telling_upto_ = 0;                     // when the Tell that is out succeeds
  std::string asked_task_;
  std::string asked_batch_;
  int64_t asked_count_ = 0;
  std::string model_id_;       // in use
  v1::ShippedModel shipped_;   // of this child; ranks where nothing was trained
  int64_t ok_rows_ = 0;        // usable records
  int64_t trained_rows_ = 0;   // of them at the last training
  int64_t training_rows_ = 0;  // of them in the training that is out
  int64_t retrainings_ = 0;
  // A training runs while the search continues, until the batch after the next one. What it made is
  // used from then on, whenever it ended, so that picks do not depend on how fast it was.
  bool training_out_ = false;
  bool train_in_background_ = true;  // not after a child died with one: the next one is watched
  int64_t training_batches_ = 0;     // batches asked for when it was started

  // Builds and tracker.
  int64_t building_ = 0;
  ShortageWait build_wait_{Retries("build wait")};
  bool submitting_ = false;
  int64_t submit_retry_ns_ = 0;
  support::Backoff submit_backoff_ = Retries("submit");
  bool pulling_ = false;
  int64_t pull_retry_ns_ = 0;
  support::Backoff pull_backoff_ = Retries("pull");
  std::string cursor_;
  uint64_t tracker_epoch_ = 0;
  bool load_asked_ = false;
  int64_t load_next_ns_ = 0;
  int64_t devices_ = 0;  // that could measure, as far as known
  int64_t resubmit_ns_ = 0;

  // The end.
  bool winding_down_ = false;
  bool cancel_sent_ = false;
  int64_t wind_down_until_ns_ = 0;
};

}  // namespace tilewright::jobs
