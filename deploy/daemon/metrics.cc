#include "deploy/daemon/metrics.h"

#include <prometheus/text_serializer.h>

#include <exception>
#include <utility>

#include "deploy/daemon/server_host.h"
#include "deploy/support/strings.h"
#include "deploy/support/version.h"

namespace tilewright::daemon {
namespace {

// prometheus-cpp reports mistakes in names by exceptions; for us they are bugs.
template <typename F>
auto OrAbort(const std::string& name, F make) -> decltype(make()) {
  try {
    return make();
  } catch (const std::exception& e) {
    TW_CHECK(false) << "metric " << name << ": " << e.what();
    throw;  // not reached: TW_CHECK aborts
  }
}

}  // namespace

absl::Status CheckMetrics(const MetricsOptions& options) {
  if (options.listen.empty()) {
    if (options.identity.empty() && options.token_file.empty()) return absl::OkStatus();
    return support::FailedPrecondition("daemon.metrics.incomplete",
                                       "expected --metrics HOST:PORT with --metrics-identity and "
                                       "--metrics-token, found none");
  }
  TW_ASSIGN(const HostPort where, ParseHostPort(options.listen, "daemon.metrics.invalid"));
  if (!options.identity.empty()) TW_TRY(CheckMetricsIdentity(options.identity));
  if (!options.token_file.empty()) TW_TRY(ReadMetricsToken(options.token_file).status());
  const bool secure = !options.identity.empty() && !options.token_file.empty();
  if (secure || options.plain_text || IsLoopbackHost(where.host)) return absl::OkStatus();
  return support::FailedPrecondition(
      "daemon.metrics.insecure",
      "expected --metrics-identity DIR and --metrics-token FILE, or a loopback address, or "
      "--metrics-insecure (plain text for anybody), found " +
          support::Quote(options.listen));
}

absl::StatusOr<std::unique_ptr<Metrics>> Metrics::Create(const std::string& service,
                                                         const MetricsOptions& options) {
  auto metrics = std::unique_ptr<Metrics>(new Metrics());
  metrics->registry_ = std::make_shared<prometheus::Registry>();
  metrics
      ->Gauge("tilewright_build_info", "1; labels tell what runs",
              {{"service", service}, {"version", support::Version()}})
      .Set(1);
  TW_TRY(CheckMetrics(options));
  if (options.listen.empty()) return metrics;
  MetricsEndpointOptions endpoint;
  endpoint.listen = options.listen;
  endpoint.identity = options.identity;
  endpoint.token_file = options.token_file;
  TW_ASSIGN(metrics->endpoint_, MetricsEndpoint::Start(endpoint, [registry = metrics->registry_] {
              return prometheus::TextSerializer().Serialize(registry->Collect());
            }));
  return metrics;
}

prometheus::Counter& Metrics::Counter(const std::string& name, const std::string& help,
                                      const MetricLabels& labels) {
  return OrAbort(name, [&]() -> prometheus::Counter& {
    return prometheus::BuildCounter().Name(name).Help(help).Register(*registry_).Add(labels);
  });
}

prometheus::Gauge& Metrics::Gauge(const std::string& name, const std::string& help,
                                  const MetricLabels& labels) {
  return OrAbort(name, [&]() -> prometheus::Gauge& {
    return prometheus::BuildGauge().Name(name).Help(help).Register(*registry_).Add(labels);
  });
}

prometheus::Histogram& Metrics::Histogram(const std::string& name, const std::string& help,
                                          const std::vector<double>& buckets,
                                          const MetricLabels& labels) {
  return OrAbort(name, [&]() -> prometheus::Histogram& {
    return prometheus::BuildHistogram()
        .Name(name)
        .Help(help)
        .Register(*registry_)
        .Add(labels, prometheus::Histogram::BucketBoundaries(buckets.begin(), buckets.end()));
  });
}

std::vector<double> LatencyBuckets() {
  return {0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30};
}

}  // namespace tilewright::daemon
