// Whether a measuring process of profile `driver` may start processes, which its driver must while
// it loads and may not later. The process cannot decide it itself: by then foreign code runs in
// it. So the kernel asks the worker at each such call (seccomp user notification), and the worker
// changes its answer after loading. Not thread-safe; one per measurement.
#pragma once

#include "deploy/support/status.h"

namespace tilewright::device_agent {

class ProcessGate {
 public:
  ProcessGate() = default;
  ~ProcessGate();
  ProcessGate(const ProcessGate&) = delete;
  ProcessGate& operator=(const ProcessGate&) = delete;

  // Before the fork. unavailable (sandbox.gate.refused).
  absl::Status Open();

  // In the child, before it runs foreign code. unavailable (sandbox.gate.*, sandbox.filter.*).
  absl::Status Install();

  // In the parent, after the fork.
  void ForgetChildsEnd();
  // To poll for reading; -1 when there is nothing to wait for.
  int fd() const { return listener_ >= 0 ? listener_ : ends_[0]; }
  // Answers one call; REQUIRES: fd() is ready.
  void Serve();

  // From now on each such call is refused, and recorded.
  void Shut() { shut_ = true; }
  bool installed() const { return listener_ >= 0; }
  bool violated() const { return violated_; }

 private:
  int ends_[2] = {-1, -1};  // a socket, over which the child sends the listener
  int listener_ = -1;
  bool shut_ = false;
  bool violated_ = false;
};

}  // namespace tilewright::device_agent
