#include "vta/sim/token_order.h"

#include <algorithm>
#include <deque>

#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::vta {
namespace {

using support::StrCat;

// Runs the stream abstractly, in any one order: clocks do not depend on which.
class ClockRun {
 public:
  explicit ClockRun(const Stream& stream) : stream_(stream) {
    order_.before.resize(stream.size());
    order_.sequence.reserve(stream.size());
  }

  absl::StatusOr<TokenOrder> Run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t m = 0; m < kModules; ++m) {
        while (Step(m)) moved = true;
      }
    }
    TW_TRY(CheckAllRan());
    TW_TRY(CheckNoneLeft());
    return std::move(order_);
  }

 private:
  // Runs the next instruction of a module if it has its tokens.
  bool Step(size_t m) {
    if (next_[m] == stream_.of[m].size()) return false;
    const size_t index = stream_.of[m][next_[m]];
    const Instruction& i = stream_.instructions[index];
    const TokenSet pops = PopsOf(i), pushes = PushesOf(i);
    for (size_t q = 0; q < kNumTokenQueues; ++q) {
      if (pops[q] && tokens_[q].empty()) return false;
    }
    VectorClock& now = now_[m];
    for (size_t q = 0; q < kNumTokenQueues; ++q) {
      if (!pops[q]) continue;
      const VectorClock& pushed = tokens_[q].front();
      for (size_t k = 0; k < kModules; ++k) now[k] = std::max(now[k], pushed[k]);
      tokens_[q].pop_front();
    }
    order_.before[index] = now;
    order_.sequence.push_back(index);
    now[m] = static_cast<int64_t>(++next_[m]);
    for (size_t q = 0; q < kNumTokenQueues; ++q) {
      if (pushes[q]) tokens_[q].push_back(now);
    }
    return true;
  }

  absl::Status CheckAllRan() const {
    for (size_t m = 0; m < kModules; ++m) {
      if (next_[m] == stream_.of[m].size()) continue;
      const size_t index = stream_.of[m][next_[m]];
      return support::FailedPrecondition(
          "vta.tokens.deadlock",
          StrCat("expected that every instruction runs, found that ", index,
                 " waits for ever: ", Disassemble(stream_.instructions[index])));
    }
    return absl::OkStatus();
  }

  absl::Status CheckNoneLeft() const {
    for (size_t q = 0; q < kNumTokenQueues; ++q) {
      if (tokens_[q].empty()) continue;
      return support::FailedPrecondition(
          "vta.tokens.balance", StrCat("expected as many pops as pushes, found ", tokens_[q].size(),
                                       " tokens left from ", TokenQueueText(q)));
    }
    return absl::OkStatus();
  }

  const Stream& stream_;
  TokenOrder order_;
  std::array<std::deque<VectorClock>, kNumTokenQueues> tokens_;
  std::array<VectorClock, kModules> now_ = {};
  std::array<size_t, kModules> next_ = {};
};

}  // namespace

absl::StatusOr<TokenOrder> OrderOf(const Stream& stream) { return ClockRun(stream).Run(); }

absl::Status CheckFinishIsLast(const Stream& stream, const TokenOrder& order) {
  const VectorClock& done = order.before.back();
  for (size_t m = 0; m < kModules; ++m) {
    const auto all = static_cast<int64_t>(stream.of[m].size());
    const bool has_finish = m == static_cast<size_t>(Module::kCompute);
    if (has_finish || done[m] == all) continue;
    const size_t index = stream.of[m].back();
    return support::FailedPrecondition(
        "vta.tokens.finish", StrCat("expected that finish waits for all work, found that ", index,
                                    " may run later: ", Disassemble(stream.instructions[index])));
  }
  return absl::OkStatus();
}

}  // namespace tilewright::vta
