// Faults on purpose (agent flag --test-faults). Only a seed and the measurement's name decide which
// measurement gets which fault, so that a run can be repeated. Values; thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "deploy/support/status.h"
#include "tilewright/v1/worker.pb.h"

namespace tilewright::device_agent {

struct TestFaults {
  uint64_t seed = 0;
  double wrong = 0;  // shares of the measurements, together at most 1
  double crash = 0;
  double hang = 0;
  double noisy = 0;    // a share of its own: the machine seems slower after these than before
  int self_tests = 0;  // of each device the first so many compute a wrong answer

  bool any() const { return wrong > 0 || crash > 0 || hang > 0; }
  v1::InjectedFault Choose(std::string_view measurement_id) const;
  // Whether the measurement is disturbed. Each attempt is drawn anew: what is measured again may
  // succeed.
  bool Disturbs(std::string_view measurement_id) const;
};

// "seed=N,wrong=.1,crash=.1,hang=.05,noisy=.3,self_tests=2", each part optional. invalid_argument
// (agent.test_faults.invalid).
absl::StatusOr<TestFaults> ParseTestFaults(std::string_view text);

// Marks the result of a measurement that failed on purpose: class TEST_FAULT, the fault in the
// detail. The outcome stays what the ordinary checks found.
void MarkTestFault(v1::InjectedFault fault, v1::ModuleMeasured* measured);

// Makes the baseline four times as long after a good measurement as before it, so that the ordinary
// check of drift finds the result invalid. Does nothing if the outcome is not OK or has no
// baseline.
void Disturb(v1::ModuleMeasured* measured);

}  // namespace tilewright::device_agent
