// Which task of a job gets the next batch: where the end-to-end time is expected to gain most.
// Pure: the answer depends on the views alone, so a restarted job decides alike.
#pragma once

#include <cstdint>
#include <vector>

namespace tilewright::jobs {

// A task as the scheduler sees it.
struct TaskView {
  double weight = 1;                  // uses in the model
  double flops = 0;                   // of one use; 0: not known
  int64_t proposed = 0;               // trials chosen so far, ended or not
  double best = 0;                    // best median so far; 0: none yet
  std::vector<double> best_by_trial;  // best median after each ended trial; 0 while none
  bool exhausted = false;             // the search has nothing more to propose
};

struct SchedulerOptions {
  int64_t warm_up = 5;             // trials that every task gets first, the default included
  int64_t window = 24;             // trials over which recent improvement is taken
  double recent_share = 0.2;       // weight of recent improvement against optimism
  double headroom = 1.5;           // a task may get this much faster per operation than the best is
  double frozen_share = 0.005;     // tasks below this share of the total time get nothing more
  int64_t round_robin_every = 20;  // every so many batches the least tried task gets one
};

// The index of the task, or -1 when all are exhausted.
int PickTask(const std::vector<TaskView>& tasks, int64_t batches_so_far,
             const SchedulerOptions& options = {});

// What one more trial of a task is expected to gain, in the unit of `best`; 0 without a `best`.
// Exposed for tests and for people.
double ExpectedGain(const TaskView& task, double best_rate, const SchedulerOptions& options = {});

}  // namespace tilewright::jobs
