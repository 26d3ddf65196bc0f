#include "tests/bench/agent_protocol.h"

#include "deploy/support/status.h"
#include "device_agent/measure_child.h"
#include "device_agent/sample_stats.h"
#include "tuner_server/jobs/work_items.h"

namespace tilewright::bench {

AgentProtocol::AgentProtocol(int threads, double ci) : threads_(threads), ci_(ci) { Probe(200); }

v1::ModuleMeasured AgentProtocol::Measure(const std::string& module_bytes, double best_ns) {
  v1::MeasureModule request;
  v1::MeasurementPlan wanted;
  wanted.set_target_rel_ci(ci_);
  *request.mutable_plan() = jobs::TrialPlan(wanted, best_ns);
  request.mutable_wall_limit()->set_seconds(30);
  device_agent::ChildJob job;
  job.measure.module = module_bytes;
  job.measure.request = &request;
  job.measure.max_threads = threads_;
  Probe(20);
  job.measure.quiet_probe_ns = quiet_.ns();
  job.sandboxed = false;  // this process has what the sandbox forbids; it costs no time
  return device_agent::Measure(job.measure, {});
}

void AgentProtocol::Probe(int times) {
  for (int i = 0; i < times; ++i) quiet_.Add(device_agent::ProbeNs());
}

double MedianOf(const v1::ModuleMeasured& measured) {
  TW_CHECK(measured.outcome() == v1::OK)
      << v1::Outcome_Name(measured.outcome()) << " " << v1::WorkerPhase_Name(measured.phase())
      << " " << measured.error_detail();
  return device_agent::ComputeStats({measured.samples().begin(), measured.samples().end()}).median;
}

}  // namespace tilewright::bench
