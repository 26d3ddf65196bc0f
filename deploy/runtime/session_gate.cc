// A waiter marks the gate kAwaited while it holds the mutex. A holder that finds the mark when it
// leaves takes the mutex too, so it frees the gate either before the waiter looks or after the
// waiter sleeps: no wake-up is lost.
#include "deploy/runtime/session_gate.h"

#include <unistd.h>

#include "deploy/support/status.h"

namespace tilewright::runtime {

SessionGate::SessionGate() : process_(getpid()) {}

bool SessionGate::InThisProcess() const { return getpid() == process_; }

absl::Status SessionGate::EnterSlowly(Overlap overlap) {
  if (!InThisProcess()) {
    return support::FailedPrecondition(
        "runtime.session.forked",
        "the session was in use when this process was forked; make a session in this process");
  }
  if (overlap == Overlap::kRefuse) {
    return support::Aborted("runtime.session.busy",
                            "another thread uses the session; make whole calls (tw_session_call), "
                            "or give each thread a session of its own");
  }
  const support::MutexLock lock(mutex_);
  ++waiting_;
  while (!closed_ && state_.exchange(kAwaited, std::memory_order_acquire) != kFree) {
    changed_.Wait(mutex_);
  }
  --waiting_;
  if (!closed_) return absl::OkStatus();
  changed_.NotifyAll();  // Close() waits for this thread
  return support::Aborted("runtime.session.closed", "the session was destroyed meanwhile");
}

void SessionGate::LeaveSlowly() {
  const support::MutexLock lock(mutex_);
  state_.store(kFree, std::memory_order_release);
  changed_.NotifyAll();
}

void SessionGate::Close() {
  if (!InThisProcess()) return;  // whoever is inside or waits is in the parent
  const support::MutexLock lock(mutex_);
  closed_ = true;
  changed_.NotifyAll();
  while (waiting_ > 0 || state_.exchange(kAwaited, std::memory_order_acquire) != kFree) {
    changed_.Wait(mutex_);
  }
}

}  // namespace tilewright::runtime
