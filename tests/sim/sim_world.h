// A world without threads and real time: events in the order of a virtual clock, nodes that die,
// pause and have clocks of their own, one seed for everything. What a node planned dies with it;
// what reaches a paused node waits. The same seed gives the same run.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "deploy/support/clock.h"
#include "deploy/support/rng.h"
#include "deploy/support/status.h"

namespace tilewright::sim {

inline constexpr int64_t kMs = 1'000'000;
inline constexpr int64_t kSecond = 1000 * kMs;

// How often a simulated daemon looks at what is due.
inline constexpr int64_t kTickNs = 200 * kMs;

// What a call returns that cannot fail in a simulation.
template <typename T>
T Value(absl::StatusOr<T> result) {
  TW_CHECK(result.ok()) << support::StatusText(result.status());
  return *std::move(result);
}

class SimWorld {
 public:
  explicit SimWorld(uint64_t seed) : rng_(seed) {}

  int64_t now_ns() const { return now_ns_; }
  support::Rng& rng() { return rng_; }
  bool Happens(double chance) { return chance > 0 && rng_.Bernoulli(chance); }
  // Uniform between the two.
  int64_t Between(int64_t low_ns, int64_t high_ns) { return rng_.UniformInt(low_ns, high_ns); }

  // --- nodes; they begin dead
  int AddNode(std::string name);
  void Boot(int node) { nodes_[Index(node)].up = true; }
  void Kill(int node);
  bool up(int node) const { return nodes_[Index(node)].up; }
  // SIGSTOP for this long.
  void Pause(int node, int64_t for_ns);
  bool paused(int node) const { return nodes_[Index(node)].paused_until_ns > now_ns_; }
  // Counts the deaths of the node.
  uint64_t life(int node) const { return nodes_[Index(node)].life; }
  const std::string& name(int node) const { return nodes_[Index(node)].name; }
  support::Clock* clock(int node) { return nodes_[Index(node)].clock.get(); }
  // An administrator sets the clock of the wall; the monotonic one does not care.
  void JumpWall(int node, int64_t by_us) { nodes_[Index(node)].wall_offset_us += by_us; }

  // --- events
  // Runs on the node, unless it dies before.
  void After(int node, int64_t delay_ns, std::function<void()> action);
  // Runs whatever happens to nodes: the network, the world's own plans.
  void AfterAlways(int64_t delay_ns, std::function<void()> action);
  // Lets the next event happen. False: there is none.
  bool Step();
  int64_t events() const { return events_; }

  // --- what went wrong
  // The first failure stays.
  void Fail(const std::string& what);
  const std::string& failure() const { return failure_; }
  // A line of the story, kept for failures only.
  void Tell(const std::string& line);
  // The last lines.
  std::string Story() const;

 private:
  class NodeClock final : public support::Clock {
   public:
    NodeClock(const SimWorld* world, size_t node) : world_(world), node_(node) {}
    int64_t NowNs() override;
    int64_t WallMicros() override;

   private:
    const SimWorld* world_;
    size_t node_;
  };
  struct Node {
    std::string name;
    bool up = false;
    uint64_t life = 0;
    int64_t paused_until_ns = 0;
    int64_t wall_offset_us = 0;
    std::unique_ptr<NodeClock> clock;
  };
  struct Event {
    int node = -1;  // -1: the world's own
    uint64_t life = 0;
    std::function<void()> action;
  };
  static size_t Index(int node) { return static_cast<size_t>(node); }

  support::Rng rng_;
  int64_t now_ns_ = kSecond;
  int64_t events_ = 0;
  uint64_t next_event_ = 0;
  std::vector<Node> nodes_;
  std::map<std::pair<int64_t, uint64_t>, Event> queue_;  // by time, then by order of planning
  std::string failure_;
  std::deque<std::string> story_;
};

}  // namespace tilewright::sim
