// The queue of work items that wait for a device: by priority class, inside a class by fair share
// (fair_share.h), inside a job by age. Who gets nothing for five minutes rises a class, until it is
// served: a job waits behind more urgent ones for at most five minutes per class between them.
// Without clock or I/O; not thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tracker/fair_share.h"

namespace tilewright::tracker {

struct QueuedWork {
  std::string name;
  int64_t seq = 0;  // order of submission; kept over re-queueing
  Flow flow;
  double weight = 1;        // of the job among those of its user
  int priority = 3;         // 1 (urgent) .. 5 (idle)
  int max_batch = 0;        // 0 = no wish
  std::string requirement;  // Requirement::Key
};

// A device asks for work.
struct TakeRequest {
  std::string device_class;
  // Which requirements the device satisfies.
  std::function<bool(const std::string&)> matches;
  // Which users may have one more device. Null: all.
  std::function<bool(const std::string&)> admits;
  int default_batch = 8;  // at most so many items, and at most what each item in it wishes
  double quantum_s = 10;  // of at least one item, no more than are expected to take so long
  int64_t age_class_ns = int64_t{300} * 1'000'000'000;  // without service, to rise a class
  int64_t now_ns = 0;
};

// Items of one job and one requirement, oldest first.
struct Batch {
  Flow flow;
  double weight = 1;
  double item_seconds = 0;  // expected of each
  std::vector<std::string> names;
};

class WorkQueue {
 public:
  // REQUIRES: no item of that name is queued.
  void Add(const QueuedWork& work, int64_t now_ns);

  // False when it is not queued.
  bool Remove(const std::string& name);

  bool Contains(const std::string& name) const { return by_name_.count(name) != 0; }

  // Takes the next batch for a device, which then counts as one decision of `share`. No names when
  // nothing fits.
  Batch Take(const TakeRequest& request, FairShare* share);

  // How many queued items have a requirement that `matches` accepts.
  int64_t Count(const std::function<bool(const std::string&)>& matches) const;

  int64_t size() const { return static_cast<int64_t>(by_name_.size()); }

 private:
  // Items of one job, priority and requirement, by order of submission.
  struct Group {
    std::map<int64_t, QueuedWork> items;
    int64_t since_ns = 0;  // waits: since something was taken from it, or it began
  };
  using GroupKey = std::pair<int, Flow>;  // priority, job
  using Groups = std::map<GroupKey, Group>;
  struct Candidate {
    Flow flow;
    Group* group = nullptr;
    int age_class = 0;
  };

  std::vector<Candidate> FirstClass(const TakeRequest& request);

  std::map<std::string, Groups> by_requirement_;
  std::map<std::string, QueuedWork> by_name_;
};

}  // namespace tilewright::tracker
