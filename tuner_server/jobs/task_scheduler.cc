#include "tuner_server/jobs/task_scheduler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace tilewright::jobs {
namespace {

// The learned factor of all headrooms starts at 1, and this much log2 of gain weighs as much.
constexpr double kFactorPrior = 1;
constexpr double kMinFactor = 0.25, kMaxFactor = 4;

int64_t EndedPicks(const TaskView& task) {
  return std::max<int64_t>(static_cast<int64_t>(task.best_by_trial.size()) - 1, 0);
}

// The share of a task's headroom that so many picks are expected to find.
double FoundShare(int64_t picks, const SchedulerOptions& options) {
  return 1 - std::pow(static_cast<double>(picks + 1), -options.decay);
}

// log2 of the speedup that was found so far.
double FoundGain(const TaskView& task) {
  if (task.default_time <= 0 || task.best <= 0) return 0;
  return std::max(0.0, std::log2(task.default_time / task.best));
}

double SeenHeadroom(const TaskView& task, const SchedulerOptions& options) {
  return std::max(options.least_headroom,
                  task.headroom > 0 ? task.headroom : options.unknown_headroom);
}

// How much more (or less) tasks gain than the model said, as far as this job's trials tell.
double LearnedFactor(const std::vector<TaskView>& tasks, const SchedulerOptions& options) {
  double found = kFactorPrior, expected = kFactorPrior;
  for (const TaskView& task : tasks) {
    if (task.default_time <= 0 || EndedPicks(task) == 0) continue;
    found += FoundGain(task);
    expected += SeenHeadroom(task, options) * FoundShare(EndedPicks(task), options);
  }
  return std::clamp(found / expected, kMinFactor, kMaxFactor);
}

// log2 of the speedup that many trials would find: the model's word, corrected by what tasks of
// this job gained, and replaced by the task's own trials as they come.
double Headroom(const TaskView& task, double factor, const SchedulerOptions& options) {
  const double model = factor * SeenHeadroom(task, options);
  const int64_t picks = EndedPicks(task);
  if (picks == 0 || task.default_time <= 0) return model;
  const double own = FoundGain(task) / FoundShare(picks, options);
  const auto weight = static_cast<double>(picks);
  return std::max(options.least_headroom, (options.headroom_trials * model + weight * own) /
                                              (options.headroom_trials + weight));
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
    if (!eligible(i)) continue;
    const double k = key(i);
    if (best < 0 || k < best_key) {
      best = static_cast<int>(i);
      best_key = k;
    }
  }
  return best;
}

}  // namespace

std::vector<double> ExpectedTimes(const std::vector<TaskView>& tasks) {
  std::vector<double> ratios;  // measured time of an estimated one
  for (const TaskView& task : tasks) {
    const double measured = task.default_time > 0 ? task.default_time : task.best;
    if (measured > 0 && task.estimate > 0) ratios.push_back(measured / task.estimate);
  }
  double scale = 1;
  if (!ratios.empty()) {
    const auto middle = ratios.begin() + static_cast<std::ptrdiff_t>(ratios.size() / 2);
    std::nth_element(ratios.begin(), middle, ratios.end());
    scale = *middle;
  }
  std::vector<double> times(tasks.size());
  double sum = 0;
  int known = 0;
  for (size_t i = 0; i < tasks.size(); ++i) {
    times[i] = tasks[i].best > 0 ? tasks[i].best : tasks[i].estimate * scale;
    sum += times[i];
    known += times[i] > 0 ? 1 : 0;
  }
  for (double& time : times) {
    if (time <= 0) time = known > 0 ? sum / known : 1;
  }
  return times;
}

std::vector<double> ExpectedGains(const std::vector<TaskView>& tasks,
                                  const SchedulerOptions& options) {
  const std::vector<double> times = ExpectedTimes(tasks);
  const double factor = LearnedFactor(tasks, options);
  std::vector<double> gains;
  for (size_t i = 0; i < tasks.size(); ++i) {
    const TaskView& task = tasks[i];
    const auto tried = static_cast<double>(std::max<int64_t>(task.proposed, 1));
    // The slope of what is left to gain.
    const double log2_gain =
        Headroom(task, factor, options) * options.decay * std::pow(tried, -1 - options.decay);
    double expected = times[i] * (1 - std::exp2(-log2_gain));
    if (task.proposed == 0) expected /= 2;  // its default, which gains nothing, comes first
    gains.push_back(task.weight * (options.recent_share * RecentGain(task, options.window) +
                                   (1 - options.recent_share) * expected));
  }
  return gains;
}

std::vector<int> DefaultsFirst(const std::vector<TaskView>& tasks, int64_t max_trials) {
  std::vector<int> order(tasks.size());
  std::iota(order.begin(), order.end(), 0);
  const auto share = [&](int i) {
    const TaskView& task = tasks[static_cast<size_t>(i)];
    return task.weight * (task.estimate > 0 ? task.estimate : 1);
  };
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return share(a) > share(b); });
  const auto most = static_cast<size_t>((max_trials + 1) / 2);
  if (max_trials > 0 && order.size() > most) order.resize(most);
  return order;
}

int PickTask(const std::vector<TaskView>& tasks, int64_t batches_so_far,
             const SchedulerOptions& options) {
  const auto usable = [&](size_t i) { return !tasks[i].exhausted; };
  const auto proposed = [&](size_t i) { return static_cast<double>(tasks[i].proposed); };
  // A task whose trials all failed has no schedule that is known to work, but not for ever.
  const int hopeless = ArgMin(
      tasks,
      [&](size_t i) {
        const TaskView& task = tasks[i];
        return usable(i) && task.best <= 0 && task.proposed > 0 &&
               task.proposed < options.hopeless_trials &&
               static_cast<int64_t>(task.best_by_trial.size()) >= task.proposed;
      },
      proposed);
  if (hopeless >= 0) return hopeless;

  const std::vector<double> times = ExpectedTimes(tasks);
  double total = 0;
  for (size_t i = 0; i < tasks.size(); ++i) total += tasks[i].weight * times[i];
  const auto matters = [&](size_t i) {
    const bool given_up = tasks[i].best <= 0 && tasks[i].proposed >= options.hopeless_trials;
    return usable(i) && !given_up && tasks[i].weight * times[i] >= options.frozen_share * total;
  };
  if (options.round_robin_every > 0 &&
      batches_so_far % options.round_robin_every == options.round_robin_every - 1) {
    const int least = ArgMin(tasks, matters, proposed);
    if (least >= 0) return least;
  }
  const std::vector<double> gains = ExpectedGains(tasks, options);
  const int best = ArgMin(tasks, matters, [&](size_t i) { return -gains[i]; });
  return best >= 0 ? best : ArgMin(tasks, usable, proposed);
}

int64_t BatchSize(const TaskView& task, int64_t left, const SchedulerOptions& options) {
  const int64_t usual = task.proposed > options.small_batch ? options.batch : options.small_batch;
  const int64_t share = std::max(options.least_batch, left / options.batches_left);
  return std::max<int64_t>(1, std::min({usual, share, left}));
}

}  // namespace tilewright::jobs
