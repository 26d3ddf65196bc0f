// Learns from many probes of a core (ProbeNs) what a probe takes if no other thread shares the
// core. It is not the fastest probe: on virtual machines the thread's clock sometimes omits stolen
// time, and one such probe would make all later ones look disturbed. One owner.
#pragma once

#include <cstddef>
#include <deque>

namespace tilewright::device_agent {

class QuietReference {
 public:
  // Only the last probes count: a neighbour that stays is part of the machine.
  static constexpr size_t kWindow = 2000;
  // A level that fewer than this share of the probes reach is an error of the clock, or too rare to
  // wait for.
  static constexpr double kShare = 0.02;

  void Add(double probe_ns);
  // 0 before the first probe.
  double ns() const;

 private:
  std::deque<double> probes_;
};

}  // namespace tilewright::device_agent
