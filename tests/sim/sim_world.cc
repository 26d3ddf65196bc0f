#include "tests/sim/sim_world.h"

#include <algorithm>

#include "deploy/support/strings.h"

namespace tilewright::sim {
namespace {

constexpr size_t kStoryLines = 120;
constexpr int64_t kFirstWallUs = 1'700'000'000'000'000;

}  // namespace

int64_t SimWorld::NodeClock::NowNs() { return world_->now_ns_; }

int64_t SimWorld::NodeClock::WallMicros() {
  return kFirstWallUs + world_->now_ns_ / 1000 + world_->nodes_[node_].wall_offset_us;
}

int SimWorld::AddNode(std::string name) {
  const size_t index = nodes_.size();
  nodes_.emplace_back();
  nodes_.back().name = std::move(name);
  nodes_.back().clock = std::make_unique<NodeClock>(this, index);
  return static_cast<int>(index);
}

void SimWorld::Kill(int node) {
  Node& one = nodes_[Index(node)];
  one.up = false;
  one.paused_until_ns = 0;
  ++one.life;
}

void SimWorld::Pause(int node, int64_t for_ns) {
  Node& one = nodes_[Index(node)];
  one.paused_until_ns = std::max(one.paused_until_ns, now_ns_ + for_ns);
}

void SimWorld::After(int node, int64_t delay_ns, std::function<void()> action) {
  queue_.emplace(std::pair{now_ns_ + delay_ns, next_event_++},
                 Event{node, nodes_[Index(node)].life, std::move(action)});
}

void SimWorld::AfterAlways(int64_t delay_ns, std::function<void()> action) {
  queue_.emplace(std::pair{now_ns_ + delay_ns, next_event_++}, Event{-1, 0, std::move(action)});
}

bool SimWorld::Step() {
  if (queue_.empty()) return false;
  const auto first = queue_.begin();
  now_ns_ = std::max(now_ns_, first->first.first);
  Event event = std::move(first->second);
  queue_.erase(first);
  if (event.node >= 0) {
    const Node& node = nodes_[Index(event.node)];
    if (!node.up || node.life != event.life) return true;
    if (node.paused_until_ns > now_ns_) {
      queue_.emplace(std::pair{node.paused_until_ns, next_event_++}, std::move(event));
      return true;
    }
  }
  ++events_;
  event.action();
  return true;
}

void SimWorld::Fail(const std::string& what) {
  if (failure_.empty()) failure_ = what;
}

void SimWorld::Tell(const std::string& line) {
  story_.push_back(support::StrCat(now_ns_ / kMs, " ms: ", line));
  if (story_.size() > kStoryLines) story_.pop_front();
}

std::string SimWorld::Story() const {
  std::string text;
  for (const std::string& line : story_) text += line + "\n";
  return text;
}

}  // namespace tilewright::sim
