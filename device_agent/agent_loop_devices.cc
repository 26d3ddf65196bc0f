// Workers, measuring and health of the devices: the part of AgentLoop that one thread per device
// runs.
#include <google/protobuf/util/time_util.h>

#include <thread>
#include <utility>

#include "deploy/daemon/daemon_log.h"
#include "deploy/daemon/fleet_contract.h"
#include "deploy/support/clock.h"
#include "deploy/support/failpoint.h"
#include "deploy/support/strings.h"
#include "device_agent/agent_loop.h"
#include "device_agent/fingerprint.h"
#include "device_agent/measured_result.h"

namespace tilewright::device_agent {
namespace {

using daemon::LogInfo;
using daemon::LogWarning;
using google::protobuf::util::TimeUtil;

}  // namespace

// --- workers
// --------------------------------------------------------------------------------------

bool AgentLoop::StartDevice(const AgentDevice& device, absl::Status* status) {
  const auto ready = supervisors_.at(device.name)->Start();
  *status = ready.status();
  if (!ready.ok()) return false;
  v1::DeviceReport found = DeviceFrom(ready->attributes());
  // Kinds of devices tell different things.
  const auto attribute = [&](const char* name) {
    const auto it = found.attributes().find(name);
    return it == found.attributes().end() ? v1::Attribute() : it->second;
  };
  const std::string pool =
      device.pool.empty() ? found.key() : support::ClassOfUnit(device.pool, UnitOf(found));
  LogInfo("agent.device", {{"device", device.name},
                           {"pool", pool},
                           {"unit", std::string(UnitOf(found).name)},
                           {"fingerprint", found.fingerprint()},
                           {"name", attribute("name").s()},
                           {"cores", attribute("cores").i()},
                           {"peak_gflops", attribute("peak_gflops").d()},
                           {"sandboxed", ready->sandboxed()},
                           {"detail", ready->sandbox_detail()}});
  if (!ready->sandboxed()) {
    LogWarning("agent.unsandboxed", {{"device", device.name}, {"reason", ready->sandbox_detail()}});
  } else if (!ready->sandbox_full()) {
    LogWarning("agent.weak_sandbox",
               {{"device", device.name}, {"lacks", ready->sandbox_missing()}});
  }
  support::MutexLock lock(mutex_);
  v1::DeviceReport& report = devices_.at(device.name);
  report.set_key(pool);
  report.set_fingerprint(found.fingerprint());
  *report.mutable_attributes() = found.attributes();
  return true;
}

absl::Status AgentLoop::StartDevices() {
  std::vector<absl::Status> statuses(options_.devices.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < statuses.size(); ++i) {
    threads.emplace_back([this, &statuses, i] { StartDevice(options_.devices[i], &statuses[i]); });
  }
  for (std::thread& thread : threads) thread.join();
  bool any = false;
  // One that fails its self-test joins with the reason, for people to see, and gets no work.
  for (const absl::Status& status : statuses) {
    any = any || status.ok() || support::Slug(status) == "agent.self_test.failed";
  }
  if (!any && !statuses.empty()) return statuses[0];
  for (size_t i = 0; i < statuses.size(); ++i) SetHealth(options_.devices[i].name, statuses[i]);
  return absl::OkStatus();
}

// --- measuring
// ------------------------------------------------------------------------------------

absl::Status AgentLoop::Fetch(const WorkOrder& order, const v1::Digest& digest, std::string* bytes,
                              bool* fetched) {
  daemon::Backoff backoff(Jitter(MeasurementId(order.work)));
  while (true) {
    auto got = cache_->Get(digest, fetched);
    if (got.ok()) {
      *bytes = *std::move(got);
      return absl::OkStatus();
    }
    // No candidate pays for a token that has ended.
    if (!daemon::IsRetryable(got.status()) && !daemon::IsRefused(got.status())) return got.status();
    {
      support::MutexLock lock(mutex_);
      if (!core_->StillWanted(order)) return got.status();
    }
    if (!Pause(backoff.NextMs())) return got.status();
  }
}

absl::Status AgentLoop::FetchAll(const WorkOrder& order, MeasureInput* input, bool* fetched) {
  TW_TRY(Fetch(order, order.work.artifact(), &input->module, fetched));
  if (order.work.has_expected_output()) {
    TW_TRY(Fetch(order, order.work.expected_output(), &input->expected, fetched));
  }
  if (order.work.has_baseline()) {
    TW_TRY(Fetch(order, order.work.baseline(), &input->baseline, fetched));
  }
  return absl::OkStatus();
}

void AgentLoop::CountResult(const v1::MeasurementResult& result) {
  const std::string outcome = daemon::OutcomeText(result.outcome());
  LogInfo("measurement.done", {{"measurement_id", result.measurement_id()},
                               {"outcome", outcome},
                               {"error_class", result.error_class()},
                               {"median_ns", result.median()}});
  metrics_
      ->Counter("tilewright_agent_measurements_total", "measurements by outcome",
                {{"outcome", outcome}})
      .Increment();
}

void AgentLoop::MeasureOne(const WorkOrder& order, Supervisor* supervisor) {
  const std::string id = MeasurementId(order.work);
  support::SystemClock clock;
  const int64_t begin_ns = clock.NowNs();
  const int64_t begin_us = clock.WallMicros();
  MeasureInput input;
  input.work = order.work;
  // Faults are the candidates': the tracker's canaries show that the device works.
  if (order.work.job() != daemon::kCanaryJob) input.fault = options_.faults.Choose(id);
  bool fetched = false;
  const absl::Status ready = FetchAll(order, &input, &fetched);
  const int64_t fetched_ns = clock.NowNs() - begin_ns;
  v1::ModuleMeasured measured;
  support::HitFailpoint(support::Failpoint::agent_fetched);
  if (ready.ok()) {
    {
      support::MutexLock lock(mutex_);
      if (!core_->StillWanted(order)) return;
    }
    Record started;
    {
      support::MutexLock lock(mutex_);
      started = core_->StartedRecord(order);
    }
    if (!PersistStubbornly(started, order.device)) return;
    {
      support::MutexLock lock(mutex_);
      if (!core_->busy(order.device)) return;  // revoked in the meantime
    }
    support::HitFailpoint(support::Failpoint::agent_started);
    measured = supervisor->Measure(input);
    support::HitFailpoint(support::Failpoint::agent_measured);
    {
      support::MutexLock lock(mutex_);
      RefuseImpossible(order.work, devices_.at(order.device), &measured);
    }
    MarkTestFault(input.fault, &measured);
    if (order.work.job() != daemon::kCanaryJob && options_.faults.Disturbs(id)) Disturb(&measured);
  } else {
    {
      support::MutexLock lock(mutex_);
      if (!core_->StillWanted(order)) return;
    }
    measured.set_outcome(v1::DEVICE_LOST);
    // The tracker lost it: it asks the tuner for it again.
    measured.set_error_class(absl::IsNotFound(ready) ? daemon::kArtifactMissingClass : "AGENT");
    measured.set_error_detail("an artifact could not be fetched: " + support::StatusText(ready));
  }
  v1::MeasurementResult result = ResultFrom(measured, order.work.plan());
  *result.mutable_started_at() = TimeUtil::MicrosecondsToTimestamp(begin_us);
  if (fetched) *result.mutable_fetch_time() = TimeUtil::NanosecondsToDuration(fetched_ns);
  Record record;
  {
    support::MutexLock lock(mutex_);
    record = core_->ResultRecord(order, std::move(result));
  }
  CountResult(record.result);
  PersistStubbornly(record, order.device);
  support::HitFailpoint(support::Failpoint::agent_result_spooled);
  support::MutexLock lock(mutex_);
  changed_.NotifyAll();
}

void AgentLoop::DeviceLoop(const AgentDevice& device) {
  Supervisor* supervisor = supervisors_.at(device.name).get();
  daemon::Backoff backoff(Jitter(device.name));
  bool degraded = false;
  {
    support::MutexLock lock(mutex_);
    degraded = devices_.at(device.name).health() != v1::HEALTH_GOOD;
  }
  while (true) {
    // A worker that does not start is the host's or the cable's trouble: no candidate pays for it.
    if (degraded) {
      if (!Pause(backoff.NextMs())) return;
      absl::Status why;
      if (!StartDevice(device, &why)) continue;
      SetHealth(device.name, absl::OkStatus());
      degraded = false;
    }
    WorkOrder order;
    {
      support::MutexLock lock(mutex_);
      std::optional<WorkOrder> next;
      while (!ending_ && !(next = core_->Next(device.name)).has_value()) changed_.Wait(mutex_);
      if (ending_) return;
      order = *std::move(next);
      core_->Hold(order);
    }
    MeasureOne(order, supervisor);
    {
      support::MutexLock lock(mutex_);
      core_->LetGo(device.name);
      changed_.NotifyAll();
    }
    degraded = supervisor->broken();
    if (degraded) {
      SetHealth(device.name, supervisor->trouble());
    } else {
      backoff.Reset();
    }
  }
}

}  // namespace tilewright::device_agent
