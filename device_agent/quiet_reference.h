// What the probe of a core (ProbeNs) gives when nobody shares the core, learned from many probes.
// Not the fastest of them: on virtual machines the thread's clock now and then leaves out time that
// the machine was not given, and one such probe would make every later one look disturbed. One
// owner.
#pragma once

#include <cstddef>
#include <deque>

namespace tilewright::device_agent {

class QuietReference {
 public:
  // Probes of longer ago than this many are forgotten: a neighbour that stays is part of the
  // machine.
  static constexpr size_t kWindow = 2000;
  // A state that fewer than this share of the probes saw is an error of the clock, or too rare to
  // be waited for.
  static constexpr double kShare = 0.02;

  void Add(double probe_ns);
  // 0 before the first probe.
  double ns() const;

 private:
  std::deque<double> probes_;
};

}  // namespace tilewright::device_agent
