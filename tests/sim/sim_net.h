// The network of a simulated world: unary calls with a deadline between nodes. Requests and answers
// are delayed (and so overtake each other), lost, doubled; links are cut, in one direction or both;
// a node that dies resets the calls it was serving, most of the time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <utility>

#include "deploy/support/status.h"
#include "tests/sim/sim_world.h"

namespace tilewright::sim {

struct NetFaults {
  double lose = 0;   // each message
  double twice = 0;  // a request arrives again
  double slow = 0;   // a message takes up to slow_ns instead of fast_ns
  int64_t fast_ns = 2 * kMs;
  int64_t slow_ns = 3 * kSecond;
};

class SimNet {
 public:
  // What the server does with a request: runs on its node, calls `finish` once, then or later.
  using Finish = std::function<void(const absl::Status&)>;
  template <typename Response>
  using Serve =
      std::function<void(const std::shared_ptr<Response>&, std::function<bool()> gone, Finish)>;
  template <typename Response>
  using Done = std::function<void(const absl::Status&, const Response&)>;

  explicit SimNet(SimWorld* world) : world_(world) {}

  NetFaults faults;

  // Nothing gets from one node to the other until Join.
  void Cut(int from, int to) { cut_.insert({from, to}); }
  void Join(int from, int to) { cut_.erase({from, to}); }
  void JoinAll() { cut_.clear(); }
  bool cut(int from, int to) const { return cut_.count({from, to}) != 0; }

  // `done` runs on the caller exactly once, unless it dies: with the answer, deadline_exceeded
  // after the time, or unavailable.
  template <typename Response>
  void Call(int from, int to, int64_t timeout_ns, Serve<Response> serve, Done<Response> done) {
    auto call = std::make_shared<OpenCall>();
    const uint64_t life = world_->life(from);
    const auto end = [done](const absl::Status& status, const std::shared_ptr<Response>& response) {
      done(status, status.ok() ? *response : Response());
    };
    const auto answer = [this, from, to, life, call, end](
                            const absl::Status& status, const std::shared_ptr<Response>& response) {
      Send(to, from, [this, from, life, call, end, status, response] {
        if (world_->life(from) != life) return;  // who asked is dead
        world_->After(from, 0, [call, end, status, response] {
          if (std::exchange(call->over, true)) return;
          end(status, response);
        });
      });
    };
    world_->After(from, timeout_ns, [call, end] {
      if (std::exchange(call->over, true)) return;
      end(absl::DeadlineExceededError("rpc.deadline_exceeded: simulated"), nullptr);
    });
    const int copies = world_->Happens(faults.twice) ? 2 : 1;
    for (int i = 0; i < copies; ++i) {
      Send(from, to, [this, to, call, serve, answer] {
        if (!world_->up(to)) {
          answer(absl::UnavailableError("rpc.unavailable: connection refused"), nullptr);
          return;
        }
        Reset(to, call, [answer] {
          answer(absl::UnavailableError("rpc.unavailable: connection reset"), nullptr);
        });
        world_->After(to, 0, [call, serve, answer] {
          auto response = std::make_shared<Response>();
          serve(
              response, [call] { return call->over; },
              [call, answer, response](const absl::Status& status) {
                call->answered = true;
                answer(status, response);
              });
        });
      });
    }
  }

 private:
  struct OpenCall {
    bool over = false;      // the caller has its answer, or gave up
    bool answered = false;  // the server has said its word
  };

  int64_t Delay() {
    return world_->Happens(faults.slow) ? world_->Between(0, faults.slow_ns)
                                        : world_->Between(faults.fast_ns / 10, faults.fast_ns);
  }
  // One message; may be lost.
  void Send(int from, int to, std::function<void()> arrive);
  // When the serving node dies before it answered, the caller may hear of it.
  void Reset(int node, const std::shared_ptr<OpenCall>& call, std::function<void()> tell);

  SimWorld* world_;
  std::set<std::pair<int, int>> cut_;
};

}  // namespace tilewright::sim
