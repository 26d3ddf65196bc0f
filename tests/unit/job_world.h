// The world of a job, made of fakes: a search child, a build pool and a tracker whose answers wait
// in one bag and are handed out in random order, with faults. The log, the blob store and the
// module store are the real ones. Everything follows from one seed. For one thread.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "deploy/daemon/blob_store.h"
#include "deploy/support/clock.h"
#include "deploy/support/file.h"
#include "deploy/support/rng.h"
#include "tuner_server/jobs/job_core.h"
#include "tuner_server/log/tuning_log.h"
#include "tuner_server/modules/module_store.h"

namespace tilewright::tests {

// Steps in which each job of these tests ends.
inline constexpr int64_t kManySteps = 200'000;

template <typename T>
T Value(absl::StatusOr<T> result) {
  TW_CHECK(result.ok()) << support::StatusText(result.status());
  return *std::move(result);
}

// Chances of each fault, per opportunity.
struct Faults {
  double search_dies = 0;       // a search child dies instead of answering
  double search_is_short = 0;   // the disk is full
  double search_is_killed = 0;  // memory ran out
  double build_is_short = 0;
  double build_is_killed = 0;
  double build_crashes = 0;  // a build child dies; a second try may go well
  double build_fails = 0;    // the candidate does not compile
  double build_times_out = 0;
  double submit_fails = 0;  // the tracker is away; it may have taken the items all the same
  double pull_fails = 0;
  double ack_is_lost = 0;      // updates come again
  double attempt_is_lost = 0;  // the device goes away with a work item, which is queued again
  double invalid = 0;          // a measurement is invalid, twice at most
  double wrong_result = 0;
  double tracker_restarts = 0;   // per step
  double tracker_loses_all = 0;  // per step: its database is gone
  double core_restarts = 0;      // per event
};

class JobWorld {
 public:
  JobWorld(uint64_t seed, const Faults& faults);

  // A queued job with this many trials in all; the spec may be changed by `edit`.
  void CreateJob(int64_t max_trials, const std::function<void(v1::Job*)>& edit = nullptr,
                 const std::string& cost_model = "xgboost");

  // Makes a core from the log, as a started tuner does.
  // Ends the core; what is created next is a job of this id, beside the others in the log.
  void NextJob(const std::string& id);
  void StartCore();
  // What kill -9 leaves: log, blobs, files, tracker.
  void KillCore();

  // Backups, as of a tuner with a log in a file (call KeepLogInFile before CreateJob) and of a
  // tracker. Restoring the tuner starts a core; artifacts are not part of it.
  void KeepLogInFile();
  void BackUpTuner();
  void RestoreTuner();
  void BackUpTracker() { tracker_backup_ = tracker_; }
  // `same_epoch`: the restored tracker starts with an epoch that was there before.
  void RestoreTracker(bool same_epoch = false);
  // Everything that cores reconciled with the tracker.
  const jobs::Reconciled& reconciled() const { return reconciled_; }

  // Lets one thing happen.
  void Step();
  // Steps until the job has ended; fails the test after `max_steps`. `restart_at`: the core is
  // killed and made again after so many events (-1: never).
  void RunToEnd(int64_t max_steps, int64_t restart_at = -1);

  // The tracker has an item of this name with another content.
  void OccupyName(const std::string& work_item);

  // Asks for cancellation the way the service does.
  void Cancel();

  // Checks what must hold for every job that has ended.
  void CheckEnded();

  log::TuningLog& log() { return *log_; }
  jobs::TaskClaims& claims() { return claims_; }
  log::JobRow job();
  jobs::JobCore* core() { return core_.get(); }
  support::FakeClock& clock() { return clock_; }
  int64_t events() const { return events_; }
  int64_t searches_started() const { return searches_started_; }
  const std::vector<int>& submit_sizes() const { return submit_sizes_; }

  // The search dies on every request of which this says true.
  std::function<bool(const v1::BuilderRequest&)> search_poison;
  // The search is killed from outside on every request of which this says true.
  std::function<bool(const v1::BuilderRequest&)> search_killer;
  // The search finds a full disk on every request of which this says true.
  std::function<bool(const v1::BuilderRequest&)> search_short;
  // What the machine is short of when the trial is built.
  std::function<support::Shortage(int64_t trial)> build_short;
  // The search refuses every request of which this says something.
  std::function<std::string(const v1::BuilderRequest&)> search_refusal;
  // Work items that the tracker refuses.
  std::function<std::string(const v1::WorkItem&)> tracker_refusal;
  bool tracker_away = false;
  bool tracker_measures = true;  // false: items stay queued
  int64_t devices = 1;
  std::string device_class = "cpu-x";  // of all devices
  std::string target = "cpu,arch=x86_64,cpu=x86-64,threads=1";
  std::map<std::string, int> driver_compilers;  // as in a PoolLoad
  std::string measured_with;                    // driver compiler of the device that measures
  int64_t space = 1000;                         // candidates of each task
  int64_t first_candidate = 0;                  // the search begins there
  std::string compiler_build;                   // of the search children
  bool has_tasks = true;                        // the model
  std::string steps_of_module;                  // what the last compiled module was made of
  std::map<int, int> models_taken;  // how often, by the asks answered during the training
  bool grows_on_retrain = true;
  int64_t extent = 0;  // of all tasks' tensors: other tasks of the same kinds; 0: the usual ones
  std::vector<std::vector<v1::RelativeProgram>> relatives_told;  // to each child
  std::vector<std::string> told;  // measurements, to the last child, in that order
  std::function<double(const std::string& steps)> time_of;   // instead of the built-in times
  std::function<bool(const std::string& steps)> wrong_when;  // gives wrong results
  std::function<bool(const std::string& steps)> crash_when;  // crashes, on any device
  // Measurements of modules (text of the task|steps) of which this says true are never valid.
  std::function<bool(const std::string& module)> invalid_when;

 private:
  friend class FakeSearch;
  friend class FakeBuilds;
  friend class FakeDispatcher;

  struct Item {
    v1::WorkItem item;
    std::string consumer;
    v1::WorkState state = v1::WORK_STATE_QUEUED;
    int attempts = 0;
    int invalid = 0;
  };
  struct Tracker {
    uint64_t epoch = 1;
    std::map<std::string, Item> items;
    std::vector<v1::WorkUpdate> outbox;  // cursor = index + 1 + dropped
    std::map<std::string, std::vector<v1::WorkUpdate>> acknowledged;  // by work item
    int64_t next_cursor = 1;
    std::set<std::string> blobs;
  };
  // What one search child knows.
  struct SearchState {
    bool alive = false;
    bool opened = false;
    bool told = false;  // something, once
    std::string model;
    std::string training;      // what the training in the background makes
    int asks_in_training = 0;  // answered since it was started
    std::set<std::string> measurements;
    std::map<std::string, std::set<std::string>> programs;  // by task: told, pending or picked
    int64_t ok_rows = 0;
  };

  bool Happens(double chance) { return chance > 0 && rng_.Bernoulli(chance); }
  jobs::SearchAnswered Search(const v1::BuilderRequest& request);
  v1::BuilderReply AnswerSearch(const v1::BuilderRequest& request);
  void TakeModel(v1::ModelTrained* trained);
  void AnswerAsk(const v1::Ask& ask, v1::Asked* asked);
  jobs::BuildEnded Build(int64_t trial, const v1::Build& request);
  jobs::WorkSubmitted Submit(const std::vector<jobs::Submission>& items);
  jobs::ResultsPulled Pull(const std::string& cursor);
  bool DeliverAgain(const Item& item);
  void OpenLogFile();
  void MeasureOne();
  v1::MeasurementResult Measure(Item* item);
  void AddUpdate(const Item& item, v1::WorkState state, const v1::MeasurementResult* result);
  double TimeOf(const std::string& steps) const;

  support::Rng rng_;
  Faults faults_;
  support::FakeClock clock_;
  support::TempDir dir_;
  std::unique_ptr<log::TuningLog> log_;
  std::unique_ptr<daemon::BlobStore> blobs_;
  std::unique_ptr<modules::ModuleStore> modules_;
  std::unique_ptr<jobs::SearchChild> search_;
  std::unique_ptr<jobs::BuildPool> builds_;
  std::unique_ptr<jobs::Dispatcher> dispatcher_;
  jobs::TaskClaims claims_;
  std::unique_ptr<jobs::JobCore> core_;
  std::vector<std::function<jobs::JobEvent()>> bag_;  // answers on their way
  Tracker tracker_;
  Tracker tracker_backup_;
  jobs::Reconciled reconciled_;
  SearchState search_state_;
  std::string job_id_ = "job1";
  int64_t events_ = 0;
  int64_t searches_started_ = 0;
  int64_t models_ = 0;
  std::vector<int> submit_sizes_;
  std::set<std::string> accepted_;  // measurement ids that the tracker closed items with
  bool lost_everything_ = false;
};

}  // namespace tilewright::tests
