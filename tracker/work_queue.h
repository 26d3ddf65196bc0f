// The queue of work items that wait for a device: by priority class, inside a class the job that
// was served least first, inside a job by age. A value type without clock or I/O; not thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace tilewright::tracker {

struct QueuedWork {
  std::string name;
  int64_t seq = 0;  // order of submission; kept over re-queueing
  std::string job;
  int priority = 3;         // 1 (urgent) .. 5 (idle)
  int max_batch = 0;        // 0 = no wish
  std::string requirement;  // Requirement::Key
};

class WorkQueue {
 public:
  // REQUIRES: no item of that name is queued.
  void Add(const QueuedWork& work);

  // False when it is not queued.
  bool Remove(const std::string& name);

  bool Contains(const std::string& name) const { return by_name_.count(name) != 0; }

  // Takes the next batch for a device: items of one job and one requirement, oldest first, at most
  // `default_batch` and at most what each item in it wishes. `matches` says which requirements the
  // device satisfies. Empty when nothing fits.
  std::vector<std::string> Take(const std::function<bool(const std::string&)>& matches,
                                int default_batch);

  // How many queued items have a requirement that `matches` accepts.
  int64_t Count(const std::function<bool(const std::string&)>& matches) const;

  int64_t size() const { return static_cast<int64_t>(by_name_.size()); }

 private:
  // Within a requirement: (priority, job) -> seq -> item.
  using Group = std::map<int64_t, QueuedWork>;
  using Groups = std::map<std::pair<int, std::string>, Group>;

  double LeastServed() const;

  std::map<std::string, Groups> by_requirement_;
  std::map<std::string, QueuedWork> by_name_;
  std::map<std::string, int64_t> queued_of_job_;
  // Items handed out per job, the clock of fair sharing. A job that comes (back) starts at the
  // least of those that wait, so that nobody saves up a claim.
  std::map<std::string, double> served_;
};

}  // namespace tilewright::tracker
