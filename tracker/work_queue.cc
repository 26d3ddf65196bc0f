#include "tracker/work_queue.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <tuple>

#include "deploy/support/status.h"

namespace tilewright::tracker {
namespace {

// Jobs that wait for nothing are forgotten beyond this many.
constexpr size_t kMaxServedEntries = 1000;

}  // namespace

double WorkQueue::LeastServed() const {
  double least = std::numeric_limits<double>::infinity();
  for (const auto& [job, count] : queued_of_job_) {
    const auto it = served_.find(job);
    if (it != served_.end()) least = std::min(least, it->second);
  }
  return std::isinf(least) ? 0 : least;
}

void WorkQueue::Add(const QueuedWork& work) {
  TW_CHECK(by_name_.emplace(work.name, work).second) << work.name << " is queued twice";
  by_requirement_[work.requirement][{work.priority, work.job}].emplace(work.seq, work);
  if (queued_of_job_.count(work.job) == 0) {
    const double floor = LeastServed();
    double& served = served_.try_emplace(work.job, floor).first->second;
    served = std::max(served, floor);
  }
  ++queued_of_job_[work.job];
  if (served_.size() > kMaxServedEntries) {
    for (auto it = served_.begin(); it != served_.end();) {
      it = queued_of_job_.count(it->first) == 0 ? served_.erase(it) : std::next(it);
    }
  }
}

bool WorkQueue::Remove(const std::string& name) {
  const auto found = by_name_.find(name);
  if (found == by_name_.end()) return false;
  const QueuedWork work = found->second;
  by_name_.erase(found);
  const auto groups = by_requirement_.find(work.requirement);
  const auto group = groups->second.find({work.priority, work.job});
  group->second.erase(work.seq);
  if (group->second.empty()) groups->second.erase(group);
  if (groups->second.empty()) by_requirement_.erase(groups);
  const auto count = queued_of_job_.find(work.job);
  if (--count->second == 0) queued_of_job_.erase(count);
  return true;
}

std::vector<std::string> WorkQueue::Take(const std::function<bool(const std::string&)>& matches,
                                         int default_batch) {
  const Group* best = nullptr;
  std::tuple<int, double, int64_t> best_rank;
  for (const auto& [requirement, groups] : by_requirement_) {
    if (!matches(requirement)) continue;
    for (const auto& [key, group] : groups) {
      const auto served = served_.find(key.second);
      const std::tuple<int, double, int64_t> rank{
          key.first, served == served_.end() ? 0.0 : served->second, group.begin()->first};
      if (best == nullptr || rank < best_rank) {
        best = &group;
        best_rank = rank;
      }
    }
  }
  std::vector<std::string> names;
  if (best == nullptr) return names;
  int limit = default_batch;
  const std::string job = best->begin()->second.job;
  for (const auto& [seq, work] : *best) {
    // The first item decides the size of the batch when it has a wish; later ones only shrink it.
    if (names.empty() && work.max_batch > 0) limit = work.max_batch;
    const int allowed = work.max_batch > 0 ? std::min(limit, work.max_batch) : limit;
    if (static_cast<int>(names.size()) >= allowed) break;
    limit = allowed;
    names.push_back(work.name);
  }
  for (const std::string& name : names) Remove(name);
  served_[job] += static_cast<double>(names.size());
  return names;
}

int64_t WorkQueue::Count(const std::function<bool(const std::string&)>& matches) const {
  int64_t count = 0;
  for (const auto& [requirement, groups] : by_requirement_) {
    if (!matches(requirement)) continue;
    for (const auto& [key, group] : groups) count += static_cast<int64_t>(group.size());
  }
  return count;
}

}  // namespace tilewright::tracker
