#include "tests/sim/sim_net.h"

namespace tilewright::sim {
namespace {

// How often a caller with an open call looks whether the other side is still there (keepalive).
constexpr int64_t kNoticeNs = kSecond;
constexpr double kResetIsHeard = 0.8;

}  // namespace

void SimNet::Send(int from, int to, std::function<void()> arrive) {
  if (cut(from, to) || world_->Happens(faults.lose)) return;
  world_->AfterAlways(Delay(), [this, from, to, arrive = std::move(arrive)] {
    if (!cut(from, to)) arrive();
  });
}

void SimNet::Reset(int node, const std::shared_ptr<OpenCall>& call, std::function<void()> tell) {
  const uint64_t life = world_->life(node);
  if (!world_->Happens(kResetIsHeard)) return;
  // A closure that looks again for as long as the call is open.
  auto look = std::make_shared<std::function<void()>>();
  *look = [this, node, life, call, tell = std::move(tell), weak = std::weak_ptr(look)] {
    if (call->over || call->answered) return;
    if (world_->life(node) != life) {
      tell();
      return;
    }
    if (const auto again = weak.lock()) {
      world_->AfterAlways(kNoticeNs, [again] { (*again)(); });
    }
  };
  world_->AfterAlways(kNoticeNs, [look] { (*look)(); });
}

}  // namespace tilewright::sim
