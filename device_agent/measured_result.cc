#include "device_agent/measured_result.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "deploy/support/measure_units.h"
#include "deploy/support/strings.h"
#include "device_agent/fingerprint.h"
#include "device_agent/measure_names.h"
#include "device_agent/sample_stats.h"

namespace tilewright::device_agent {
namespace {

// Samples that say so little about their median tell nothing.
constexpr double kMaxRelCi = 0.25;

void Judge(const v1::MeasurementPlan& plan, v1::MeasurementResult* result) {
  if (result->outcome() == v1::DEVICE_LOST) result->add_invalid_reasons("measure.device.lost");
  if (result->outcome() == v1::CANCELLED) result->add_invalid_reasons("measure.run.cancelled");
  if (result->outcome() == v1::OK) {
    const double before = result->baseline_before();
    const double drift = before > 0 ? std::abs(result->baseline_after() / before - 1) : 0;
    if (plan.max_baseline_drift() > 0 && drift > plan.max_baseline_drift()) {
      result->add_invalid_reasons("measure.baseline.drift");
    }
    if (result->samples_size() > 1 && result->ci_rel() > kMaxRelCi) {
      result->add_invalid_reasons("measure.samples.scattered");
    }
  }
  result->set_valid(result->invalid_reasons().empty());
}

// Algorithms with fewer operations than the usual one (Winograd), operands of fewer bits than those
// of the measured peak, and a peak that was measured on a busy machine, together.
constexpr double kMostBeyondPeak = 10;

double AttributeOf(const v1::DeviceReport& device, const char* name) {
  const auto it = device.attributes().find(name);
  return it == device.attributes().end() ? 0 : it->second.d();
}

}  // namespace

void RefuseImpossible(const v1::Work& work, const v1::DeviceReport& device,
                      v1::ModuleMeasured* measured) {
  // 10^9 operations a second are one a nanosecond.
  const double per_ns =
      std::max(AttributeOf(device, "peak_gflops"), AttributeOf(device, "peak_int8_gops"));
  if (!UnitOf(device).time) return;
  if (measured->samples().empty() || work.flops() <= 0 || per_ns <= 0) return;
  const double least = work.flops() / (per_ns * kMostBeyondPeak);
  const double fastest = *std::min_element(measured->samples().begin(), measured->samples().end());
  if (fastest >= least) return;
  measured->Clear();
  measured->set_outcome(v1::RUN_CRASH);
  measured->set_error_class("SANDBOX");
  measured->set_error_detail(support::StrCat("forged: measure.samples.forged: ", work.flops(),
                                             " operations take at least ", least,
                                             " ns on this device, found ", fastest));
}

v1::MeasurementResult ResultFrom(const v1::ModuleMeasured& measured,
                                 const v1::MeasurementPlan& plan) {
  v1::MeasurementResult result;
  result.set_outcome(measured.outcome());
  result.set_error_class(measured.error_class());
  result.set_error_detail(measured.error_detail());
  result.set_signal(measured.signal());
  result.set_exit_code(measured.exit_code());
  result.set_phase(PhaseText(measured.phase()));
  result.set_value_kind(measured.value_kind());
  *result.mutable_samples() = measured.samples();
  result.set_inner_loops(measured.inner_loops());
  const std::vector<double> samples(measured.samples().begin(), measured.samples().end());
  const SampleStats stats = ComputeStats(samples);
  result.set_median(stats.median);
  result.set_mad(stats.mad);
  const support::MeasureUnit* unit = support::FindMeasureUnit(measured.value_kind());
  // One sample of a counter leaves nothing open.
  const bool exact = unit != nullptr && unit->deterministic;
  result.set_ci_rel(exact ? 0 : stats.ci_rel);
  result.set_baseline_before(measured.baseline_before());
  result.set_baseline_after(measured.baseline_after());
  *result.mutable_telemetry() = measured.telemetry();
  result.set_max_abs_error(measured.max_abs_error());
  *result.mutable_load_time() = measured.load_time();
  *result.mutable_run_time() = measured.run_time();
  Judge(plan, &result);
  return result;
}

}  // namespace tilewright::device_agent
