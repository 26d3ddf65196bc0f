// Lets one thread at a time use a session. Thread-safe. An entry without a competitor costs two
// atomic operations and no system call.
#ifndef DEPLOY_RUNTIME_SESSION_GATE_H_
#define DEPLOY_RUNTIME_SESSION_GATE_H_

#include <sys/types.h>

#include <atomic>
#include <cstdint>

#include "absl/status/status.h"
#include "deploy/support/mutex.h"

namespace tilewright::runtime {

// What a thread does that finds another one inside.
enum class Overlap : uint8_t { kRefuse, kWait };

class SessionGate {
 public:
  SessionGate();
  SessionGate(const SessionGate&) = delete;
  SessionGate& operator=(const SessionGate&) = delete;

  // Takes the gate. ABORTED `runtime.session.busy` with kRefuse if another thread has it; ABORTED
  // `runtime.session.closed` for a thread that waits while Close() is called; FAILED_PRECONDITION
  // `runtime.session.forked` if the holder stayed in the parent of a fork(), and so never leaves.
  absl::Status Enter(Overlap overlap) {
    uint32_t expected = kFree;
    if (state_.compare_exchange_strong(expected, kHeld, std::memory_order_acquire)) {
      return absl::OkStatus();
    }
    return EnterSlowly(overlap);
  }
  // REQUIRES: the calling thread has the gate. The gate may be destroyed as soon as Close() has
  // returned: Leave() does not touch it after it let go.
  void Leave() {
    uint32_t expected = kHeld;
    if (state_.compare_exchange_strong(expected, kFree, std::memory_order_release)) return;
    LeaveSlowly();
  }
  // Sends waiting threads away and returns when no thread is inside. No thread may enter any more.
  void Close();

 private:
  // kAwaited: held, and some thread may wait for it to become free.
  enum State : uint32_t { kFree, kHeld, kAwaited };

  absl::Status EnterSlowly(Overlap overlap);
  void LeaveSlowly();
  bool InThisProcess() const;

  const pid_t process_;
  std::atomic<uint32_t> state_{kFree};
  support::Mutex mutex_;  // orders sleeping and waking, not the use of the session
  support::CondVar changed_;
  int waiting_ TW_GUARDED_BY(mutex_) = 0;
  bool closed_ TW_GUARDED_BY(mutex_) = false;
};

// The calling thread's turn: from a successful Enter() to the end of the scope.
class SessionTurn {
 public:
  SessionTurn(SessionGate& gate, Overlap overlap) : gate_(gate), status_(gate.Enter(overlap)) {}
  ~SessionTurn() {
    if (status_.ok()) gate_.Leave();
  }
  SessionTurn(const SessionTurn&) = delete;
  SessionTurn& operator=(const SessionTurn&) = delete;

  // Whether the turn was given.
  const absl::Status& status() const { return status_; }

 private:
  SessionGate& gate_;
  const absl::Status status_;
};

}  // namespace tilewright::runtime

#endif  // DEPLOY_RUNTIME_SESSION_GATE_H_
