// The agent's measuring protocol in this process, with the tuner's plan: what a trial's time in the
// log rests on, for benchmarks of the protocol itself. One thread at a time; dies (TW_CHECK) where
// the machine refuses.
#pragma once

#include <string>

#include "device_agent/quiet_reference.h"
#include "tilewright/v1/worker.pb.h"

namespace tilewright::bench {

class AgentProtocol {
 public:
  // ci: relative half-width of the interval to stop at, 0 as the tuner has it.
  AgentProtocol(int threads, double ci);

  // best_ns: of the task so far, 0 when there is none.
  v1::ModuleMeasured Measure(const std::string& module_bytes, double best_ns);

 private:
  void Probe(int times);

  int threads_;
  double ci_;
  device_agent::QuietReference quiet_;
};

// Of the samples, as the log has it. REQUIRES: outcome OK.
double MedianOf(const v1::ModuleMeasured& measured);

}  // namespace tilewright::bench
