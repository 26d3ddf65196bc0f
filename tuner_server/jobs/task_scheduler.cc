#include "tuner_server/jobs/task_scheduler.h"

#include <algorithm>
#include <limits>

namespace tilewright::jobs {
namespace {

// Operations per time of the task that is fastest in that sense.
double BestRate(const std::vector<TaskView>& tasks) {
  double rate = 0;
  for (const TaskView& task : tasks) {
    if (task.best > 0) rate = std::max(rate, task.flops / task.best);
  }
  return rate;
}

double TotalTime(const std::vector<TaskView>& tasks) {
  double total = 0;
  for (const TaskView& task : tasks) total += task.weight * task.best;
  return total;
}

// Improvement per trial over the last `window` ended trials.
double RecentGain(const TaskView& task, int64_t window) {
  const auto& history = task.best_by_trial;
  if (history.empty() || history.back() <= 0) return 0;
  size_t from = history.size() > static_cast<size_t>(window)
                    ? history.size() - 1 - static_cast<size_t>(window)
                    : 0;
  while (history[from] <= 0) ++from;  // there was no time yet
  const size_t trials = history.size() - 1 - from;
  if (trials == 0) return 0;
  return (history[from] - history.back()) / static_cast<double>(trials);
}

// The index with the smallest key among those that `eligible` accepts; -1 for none.
template <typename Eligible, typename Key>
int ArgMin(const std::vector<TaskView>& tasks, Eligible eligible, Key key) {
  int best = -1;
  double best_key = std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < tasks.size(); ++i) {
    if (!eligible(tasks[i])) continue;
    const double k = key(tasks[i]);
    if (best < 0 || k < best_key) {
      best = static_cast<int>(i);
      best_key = k;
    }
  }
  return best;
}

}  // namespace

double ExpectedGain(const TaskView& task, double best_rate, const SchedulerOptions& options) {
  if (task.best <= 0) return 0;
  // Optimism: what is left above the time that the best rate of operations (and some headroom)
  // would give, less likely to be found the more was tried.
  const double reachable =
      best_rate > 0 && task.flops > 0 ? task.flops / (best_rate * options.headroom) : 0;
  const double tried = static_cast<double>(std::max<int64_t>(task.proposed, 1));
  const double optimism = std::max(0.0, task.best - reachable) / tried;
  return task.weight * (options.recent_share * RecentGain(task, options.window) +
                        (1 - options.recent_share) * optimism);
}

int PickTask(const std::vector<TaskView>& tasks, int64_t batches_so_far,
             const SchedulerOptions& options) {
  const auto usable = [](const TaskView& task) { return !task.exhausted; };
  // Everybody's first trials, the least tried task first.
  const int cold = ArgMin(
      tasks, [&](const TaskView& task) { return usable(task) && task.proposed < options.warm_up; },
      [](const TaskView& task) { return static_cast<double>(task.proposed); });
  if (cold >= 0) return cold;

  const double total = TotalTime(tasks);
  const auto matters = [&](const TaskView& task) {
    return usable(task) &&
           (task.best <= 0 || task.weight * task.best >= options.frozen_share * total);
  };
  if (options.round_robin_every > 0 &&
      batches_so_far % options.round_robin_every == options.round_robin_every - 1) {
    const int least = ArgMin(
        tasks, matters, [](const TaskView& task) { return static_cast<double>(task.proposed); });
    if (least >= 0) return least;
  }
  // A task without any good trial yet has the most to gain, but not for ever.
  const int hopeless = ArgMin(
      tasks, [&](const TaskView& task) { return usable(task) && task.best <= 0; },
      [](const TaskView& task) { return static_cast<double>(task.proposed); });
  if (hopeless >= 0 && tasks[static_cast<size_t>(hopeless)].proposed < 8 * options.warm_up) {
    return hopeless;
  }
  const double rate = BestRate(tasks);
  const int best = ArgMin(
      tasks, [&](const TaskView& task) { return matters(task) && task.best > 0; },
      [&](const TaskView& task) { return -ExpectedGain(task, rate, options); });
  if (best >= 0) return best;
  return ArgMin(tasks, usable,
                [](const TaskView& task) { return static_cast<double>(task.proposed); });
}

}  // namespace tilewright::jobs
