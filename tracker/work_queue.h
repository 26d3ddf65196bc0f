// The queue of work items that wait for a device: by priority class, inside a class by fair share
// (fair_share.h), inside a job by age. A job that was not served for five minutes moves up one
// priority class, until it is served. So it waits behind more urgent jobs for at most five minutes
// per class between them. Without clock or I/O; not thread-safe.
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

inline constexpr int kMostUrgent = 1;  // of the priorities 1 .. 5

// What decides when a work item is served; equal for most items of a job.
struct QueueTerms {
  Flow flow;
  double weight = 1;        // of the job among those of its user
  int priority = 3;         // 1 (urgent) .. 5 (idle)
  int max_batch = 0;        // items in a batch with this one; 0 = TakeRequest::default_batch
  std::string requirement;  // Requirement::Key
};

// A device asks for work.
struct TakeRequest {
  std::string device_class;
  // Which requirements the device satisfies.
  std::function<bool(const std::string&)> matches;
  // Which users may have one more device. Null: all.
  std::function<bool(const std::string&)> admits;
  int default_batch = 8;  // limit of items if the first one has no max_batch
  int max_batch = 64;     // limit of an item's own max_batch
  double quantum_s = 10;  // expected time of the batch at most; one item always fits
  int64_t age_class_ns = int64_t{300} * 1'000'000'000;  // time without service to move up a class
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
  // `seq`: order of submission, kept over re-queueing. REQUIRES: no item of that seq is queued.
  void Add(const std::string& name, int64_t seq, const QueueTerms& terms, int64_t now_ns);

  // The item of that seq, which was added on these terms. False when it is not queued.
  bool Remove(int64_t seq, const QueueTerms& terms);
  bool Contains(int64_t seq, const QueueTerms& terms) const;

  // Takes the next batch for a device; this is one decision of `share`. Returns no names if nothing
  // fits.
  Batch Take(const TakeRequest& request, FairShare* share);

  // How many queued items have a requirement that `matches` accepts.
  int64_t Count(const std::function<bool(const std::string&)>& matches) const;

  int64_t size() const { return size_; }

 private:
  struct Waiting {
    std::string name;
    double weight = 1;
    int max_batch = 0;
  };
  // Items of one job, priority and requirement, by order of submission.
  struct Group {
    std::map<int64_t, Waiting> items;
    int64_t since_ns = 0;  // waits: since something was taken from it, or it began
  };
  // Priority, job; looked up without a copy of the job's name.
  struct GroupOrder {
    using is_transparent = void;
    template <class A, class B>
    bool operator()(const A& a, const B& b) const {
      return a.first != b.first ? a.first < b.first : a.second < b.second;
    }
  };
  using GroupKey = std::pair<int, Flow>;
  using GroupView = std::pair<int, const Flow&>;
  using Groups = std::map<GroupKey, Group, GroupOrder>;
  struct Candidate {
    QueueTerms terms;  // of the group, without what differs inside it
    Group* group = nullptr;
    int age_class = 0;
  };

  std::vector<Candidate> FirstClass(const TakeRequest& request);

  std::map<std::string, Groups> by_requirement_;
  int64_t size_ = 0;
};

}  // namespace tilewright::tracker
