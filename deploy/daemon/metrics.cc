#include "deploy/daemon/metrics.h"

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

absl::StatusOr<std::unique_ptr<Metrics>> Metrics::Create(const std::string& service,
                                                         const std::string& listen, bool insecure) {
  auto metrics = std::unique_ptr<Metrics>(new Metrics());
  metrics->registry_ = std::make_shared<prometheus::Registry>();
  metrics
      ->Gauge("tilewright_build_info", "1; labels tell what runs",
              {{"service", service}, {"version", support::Version()}})
      .Set(1);
  if (listen.empty()) return metrics;
  TW_ASSIGN(const HostPort where, ParseHostPort(listen, "daemon.metrics.invalid"));
  if (!insecure && !IsLoopbackHost(where.host)) {
    return support::FailedPrecondition(
        "daemon.metrics.insecure",
        "expected a loopback address or --insecure, found " + support::Quote(listen));
  }
  try {
    metrics->exposer_ = std::make_unique<prometheus::Exposer>(listen, 1);
    metrics->exposer_->RegisterCollectable(metrics->registry_);
    const auto ports = metrics->exposer_->GetListeningPorts();
    if (ports.empty()) {
      return support::Unavailable("daemon.metrics.failed", "no port was bound for " + listen);
    }
    const bool v6 = where.host.find(':') != std::string::npos;
    metrics->address_ =
        support::StrCat(v6 ? "[" : "", where.host, v6 ? "]" : "", ":", ports.front());
  } catch (const std::exception& e) {
    return support::Unavailable("daemon.metrics.failed", listen + ": " + e.what());
  }
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
