// Which task of a job gets the next trials: the one where one more trial is expected to save the
// most end-to-end time. Before anything is measured, the cost model's estimates count as times.
// Pure: the answer depends on the views alone, so a restarted job decides in the same way.
#pragma once

#include <cstdint>
#include <vector>

namespace tilewright::jobs {

// A task as the scheduler sees it.
struct TaskView {
  double weight = 1;        // uses in the model
  double estimate = 0;      // of the default schedule's time; right up to a factor that all tasks
                            // share; 0: not known
  double headroom = 0;      // log2 of the speedup that the cost model sees; 0: not known
  int64_t proposed = 0;     // trials chosen so far, ended or not, the default included
  double default_time = 0;  // median of the default schedule; 0: none yet
  double best = 0;          // best median so far; 0: none yet
  std::vector<double> best_by_trial;  // best median after each ended trial; 0 while none
  bool exhausted = false;             // the search has nothing more to propose
};

struct SchedulerOptions {
  int64_t window = 24;             // trials over which recent improvement is taken
  double recent_share = 0.2;       // weight of recent improvement against what is still expected
  double decay = 0.5;              // what is left to gain falls with trials to the power of -decay
  double unknown_headroom = 0.3;   // log2, of a task that the model says nothing about
  double least_headroom = 0.05;    // log2: the model may be wrong
  double headroom_trials = 8;      // trials of a task that say as much as the model's headroom
  double frozen_share = 0.005;     // tasks below this share of the total time get nothing more
  int64_t round_robin_every = 20;  // every so many batches the least tried task gets one
  int64_t hopeless_trials = 40;    // a task without any usable result is tried this often
  int64_t small_batch = 4;         // the first batches of a task
  int64_t batch = 8;               // later ones
  int64_t batches_left = 8;        // the trials that are left make at least so many batches,
  int64_t least_batch = 2;         // unless they would be smaller than this
};

// Tasks whose default schedules a job measures before anything else, the heaviest by estimate
// first. All of them, but at most half of the budget is spent in this way (`max_trials`; 0: no
// limit). Measured times do not matter: a second job for the same model names the same tasks.
std::vector<int> DefaultsFirst(const std::vector<TaskView>& tasks, int64_t max_trials);

// The index of the task for the next batch, or -1 when all are exhausted.
int PickTask(const std::vector<TaskView>& tasks, int64_t batches_so_far,
             const SchedulerOptions& options = {});

// Trials in the task's next batch when the budget has `left` more.
int64_t BatchSize(const TaskView& task, int64_t left, const SchedulerOptions& options = {});

// Time of each task's best known schedule: measured, or estimated on the scale of what is measured.
std::vector<double> ExpectedTimes(const std::vector<TaskView>& tasks);

// What one more trial of each task is expected to save of the end-to-end time.
std::vector<double> ExpectedGains(const std::vector<TaskView>& tasks,
                                  const SchedulerOptions& options = {});

}  // namespace tilewright::jobs
