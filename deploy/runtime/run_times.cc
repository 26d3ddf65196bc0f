#include "deploy/runtime/run_times.h"

#include <algorithm>
#include <cstdint>
#include <span>

#include "deploy/support/clock.h"
#include "deploy/support/status.h"

namespace tilewright::runtime {
namespace {

constexpr int kWarmUps = 3;

double Quantile(const std::vector<int64_t>& sorted, double q) {
  const auto index = static_cast<size_t>(q * static_cast<double>(sorted.size() - 1) + 0.5);
  return static_cast<double>(sorted[index]);
}

absl::Status TimeLaunches(Session* session, int repeat, RunTimes* times) {
  std::vector<std::vector<int64_t>> samples(session->function().launches.size());
  for (int i = 0; i < repeat; ++i) {
    std::span<const TwLaunchTime> launches;
    TW_TRY(session->ResetState());
    TW_TRY(session->RunProfiled(&launches));
    for (size_t k = 0; k < launches.size(); ++k) samples[k].push_back(launches[k].ns);
  }
  for (std::vector<int64_t>& ns : samples) {
    std::sort(ns.begin(), ns.end());
    times->launches.push_back(static_cast<double>(ns[ns.size() / 2]));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<RunTimes> TimeRuns(Session* session, int repeat, bool per_launch) {
  support::Clock& clock = *session->clock();
  TW_TRY(session->Prepare());
  // Each run is the first one of a state.
  for (int i = 0; i < kWarmUps; ++i) {
    TW_TRY(session->ResetState());
    TW_TRY(session->Run());
  }
  std::vector<int64_t> samples;
  for (int i = 0; i < repeat; ++i) {
    TW_TRY(session->ResetState());
    const int64_t start = clock.NowNs();
    TW_TRY(session->Run());
    samples.push_back(clock.NowNs() - start);
  }
  std::sort(samples.begin(), samples.end());
  RunTimes times{Quantile(samples, 0.5), Quantile(samples, 0.1), Quantile(samples, 0.9), {}};
  if (per_launch) TW_TRY(TimeLaunches(session, repeat, &times));
  return times;
}

}  // namespace tilewright::runtime
