// Decides who is served next: start-time fair queueing over users and, inside a user, over jobs.
// The cost is the device seconds that they use, divided by their weights. Each device class has a
// clock of its own: seconds of a phone do not count for the next GPU. The cost of a grant is known
// only when it ends: it is charged as expected first and corrected afterwards.
//
// A user or job that starts (again) to compete begins at the least served competitor, so that idle
// time earns no claim. A restart of the tracker forgets everything: all shares start equal.
//
// Pure; without clock or I/O; not thread-safe.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "tracker/share_policy.h"

namespace tilewright::tracker {

// What devices are shared between.
struct Flow {
  std::string user;
  std::string job;

  auto operator<=>(const Flow&) const = default;
};

// Virtual time over names that compete. A name's start tag is the cost charged to it so far.
class VirtualClock {
 public:
  // One decision between these. A name that was not in the decision before, and is not being
  // served, starts at the least start tag of the others.
  void Compete(const std::set<std::string>& names);

  // The start tag; least first.
  double start(const std::string& name) const;
  // `cost` is weighted already; negative for a correction.
  void Charge(const std::string& name, double cost);
  void BeginService(const std::string& name) { ++tags_[name].in_service; }
  void EndService(const std::string& name);

 private:
  struct Tag {
    double start = 0;
    uint64_t turn = 0;  // of the last decision that it took part in
    int in_service = 0;
  };
  void Forget();

  double floor_ = 0;
  uint64_t turn_ = 0;
  std::map<std::string, Tag> tags_;
};

class FairShare {
 public:
  explicit FairShare(SharePolicy policy) : policy_(std::move(policy)) {}

  // Order of service; least first.
  struct Rank {
    double user = 0;
    double job = 0;
    std::partial_ordering operator<=>(const Rank&) const = default;
  };

  // One decision for a device of that class, between these flows.
  void Compete(const std::string& device_class, const std::set<Flow>& flows);
  Rank RankOf(const std::string& device_class, const Flow& flow) const;

  // Seconds of a device that one more work item of the flow is expected to take.
  double ItemSeconds(const std::string& device_class, const Flow& flow) const;

  // A device of the class works for the flow from now on, until End. `weight` is the job's own,
  // among the jobs of its user.
  void Begin(const std::string& device_class, const Flow& flow, double weight);
  // Seconds of the device that the flow is charged with; negative to take a charge back.
  void Charge(const std::string& device_class, const Flow& flow, double seconds);
  // `seconds` is the real use of the device, over `items` work items. It updates the expected cost
  // of later items.
  void End(const std::string& device_class, const Flow& flow, double seconds, int items);

  const SharePolicy& policy() const { return policy_; }

 private:
  struct Cost {
    double seconds = 0;
    double items = 0;
  };
  struct JobShare {
    double weight = 1;
    int in_service = 0;
    Cost cost;
  };
  struct UserShare {
    VirtualClock jobs;
    std::map<std::string, JobShare> job;
  };
  struct Class {
    VirtualClock users;
    std::map<std::string, UserShare> user;
    Cost cost;  // of all jobs: what a new one is expected to take
  };
  static void Learn(Cost* cost, double seconds, int items);

  const SharePolicy policy_;
  std::map<std::string, Class> classes_;
};

}  // namespace tilewright::tracker
