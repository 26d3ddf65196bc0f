// The calls of a measuring process of profile `driver` that its worker decides, one by one. The
// process cannot decide them itself: foreign code runs in it. So the kernel asks the worker
// (seccomp user notification). Not thread-safe; one per measurement.
//
//   starting a process     while it loads, as its driver must; afterwards refused and recorded
//   memory without owner   up to a limit: files in memory and shared pages, which no limit of a
//                          process counts. They count for good, whether or not they are given back
#pragma once

#include <linux/seccomp.h>

#include <cstdint>

#include "deploy/support/status.h"

namespace tilewright::device_agent {

class DriverGate {
 public:
  // `memory_bytes`: of all memory without owner, 0 = no limit; `file_bytes`: the most that one file
  // may hold, for which it counts.
  DriverGate(int64_t memory_bytes, int64_t file_bytes);
  ~DriverGate();
  DriverGate(const DriverGate&) = delete;
  DriverGate& operator=(const DriverGate&) = delete;

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

  // From now on no process may start another.
  void Shut() { shut_ = true; }
  bool installed() const { return listener_ >= 0; }
  bool violated() const { return violated_; }

 private:
  // The error number of the call, 0 if it may continue.
  int Decide(const seccomp_data& call);
  bool Take(uint64_t bytes);

  int ends_[2] = {-1, -1};  // a socket, over which the child sends the listener
  int listener_ = -1;
  uint64_t memory_left_;
  const uint64_t file_bytes_;
  bool shut_ = false;
  bool violated_ = false;
};

}  // namespace tilewright::device_agent
