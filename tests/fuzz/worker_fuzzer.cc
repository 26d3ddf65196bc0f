// libFuzzer entry for what crosses the pipes between an agent, its worker and the process that runs
// a candidate: foreign code writes there. The first byte chooses the message, the rest is its
// bytes.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "deploy/support/status.h"
#include "device_agent/device_spec.h"
#include "device_agent/fingerprint.h"
#include "device_agent/input_cache.h"
#include "device_agent/measure.h"
#include "device_agent/measured_result.h"
#include "device_agent/output_judge.h"
#include "device_agent/referee.h"
#include "tilewright/v1/worker.pb.h"

namespace tilewright::device_agent {
namespace {

constexpr size_t kMostResultBytes = 1 << 18;
constexpr int64_t kCacheBytes = 1 << 16;

bool Finite(const v1::MeasurementResult& result) {
  return std::isfinite(result.median()) && std::isfinite(result.mad()) &&
         std::isfinite(result.ci_rel());
}

// What is believed is a measurement: known outcome, finite times, short enough to be passed on.
void Measured(const v1::ModuleMeasured& measured) {
  const int64_t second = 1'000'000'000;
  if (!CheckPlausible(measured, second, second).ok()) return;
  v1::MeasurementPlan plan;
  plan.set_max_baseline_drift(0.1);
  const v1::MeasurementResult result = ResultFrom(measured, plan);
  TW_CHECK(v1::Outcome_IsValid(result.outcome()) && result.outcome() != v1::CANCELLED);
  TW_CHECK(std::isfinite(result.baseline_before()) && std::isfinite(result.baseline_after()));
  if (result.outcome() == v1::OK) TW_CHECK(Finite(result) && result.median() >= 1);
  TW_CHECK(result.ByteSizeLong() <= kMostResultBytes) << result.ByteSizeLong();
}

void Reply(std::string_view bytes) {
  v1::WorkerReply reply;
  if (!reply.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return;
  if (reply.has_measured()) Measured(reply.measured());
  if (reply.has_ready()) {
    const v1::DeviceReport device = DeviceFrom(reply.ready().attributes());
    TW_CHECK(device.fingerprint().size() == 64);
  }
}

// Reports of a measuring process, each after a byte with its length. None computes anything.
void Reports(std::string_view bytes) {
  OutputJudge judge;
  std::string expected(64, '\1');
  TW_CHECK(judge.Expect(&expected).ok());
  Observed now;
  Referee referee({{}, 1, false}, &judge, [&now] {
    now.wall_ns += 1'000'000;
    now.cpu_ns += 1'000'000;
    return now;
  });
  while (!bytes.empty() && !referee.done()) {
    const size_t size = std::min<size_t>(static_cast<uint8_t>(bytes[0]), bytes.size() - 1);
    v1::MeasuringReport report;
    if (report.ParseFromArray(bytes.data() + 1, static_cast<int>(size))) {
      (void)referee.Take(report);
    } else {
      (void)referee.Garbled();
    }
    bytes.remove_prefix(1 + size);
  }
  if (referee.done()) TW_CHECK(referee.answer().outcome() != v1::OK) << "believed a forged result";
}

void Inputs(std::string_view bytes) {
  v1::InputSpec inputs;
  if (!inputs.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return;
  InputCache cache(kCacheBytes);
  cache.Prepare(inputs);
}

void Device(std::string_view text) {
  const auto spec = ParseDeviceSpec(text);
  if (!spec.ok()) return;
  TW_CHECK(CheckDeviceKind(spec->kind).ok() && spec->threads >= 0 && spec->index >= 0);
  TW_CHECK(spec->memory_limit_bytes >= 0);
  (void)ParseDevices({std::string(text), "cpu,name=other,cores=0-3"});
}

}  // namespace
}  // namespace tilewright::device_agent

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data + 1), size - 1);
  switch (data[0]) {
    case 'i':
      tilewright::device_agent::Inputs(text);
      break;
    case 'm':
      tilewright::device_agent::Reports(text);
      break;
    case 'd':
      tilewright::device_agent::Device(text);
      break;
    default:
      tilewright::device_agent::Reply(text);
  }
  return 0;
}
