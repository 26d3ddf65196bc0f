// Prometheus metrics of a daemon: a registry, and an HTTP endpoint when one is asked for. Names
// start with tilewright_, units are base units and part of the name, labels never carry ids.
// Metric objects are thread-safe and live as long as the Metrics that made them.
#pragma once

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "deploy/daemon/metrics_endpoint.h"
#include "deploy/support/status.h"

namespace tilewright::daemon {

using MetricLabels = std::map<std::string, std::string>;

// Where metrics are served, and to whom.
struct MetricsOptions {
  std::string listen{};      // HOST:PORT (port 0 = any); empty = nowhere
  std::string identity{};    // folder with the certificate that is shown; empty = no TLS
  std::string token_file{};  // callers show its token; empty = none
  bool plain_text = false;   // may be read off loopback by anybody, without TLS
};

// What Create would refuse, without listening: failed_precondition daemon.metrics.insecure (off
// loopback without TLS and a token), daemon.metrics.incomplete (a flag without what it needs), and
// what is wrong with address or token file.
absl::Status CheckMetrics(const MetricsOptions& options);

class Metrics {
 public:
  // CheckMetrics' errors, and unavailable (daemon.metrics.failed) when the address cannot be bound.
  // Adds tilewright_build_info{service,version}.
  static absl::StatusOr<std::unique_ptr<Metrics>> Create(const std::string& service,
                                                         const MetricsOptions& options = {});

  // The metric of that name and these labels, made on the first call. A bad name, or one name with
  // two types, is a bug and aborts.
  prometheus::Counter& Counter(const std::string& name, const std::string& help,
                               const MetricLabels& labels = {});
  prometheus::Gauge& Gauge(const std::string& name, const std::string& help,
                           const MetricLabels& labels = {});
  // Buckets are upper bounds, rising.
  prometheus::Histogram& Histogram(const std::string& name, const std::string& help,
                                   const std::vector<double>& buckets,
                                   const MetricLabels& labels = {});

  // HOST:PORT of the endpoint; empty without one.
  std::string address() const { return endpoint_ == nullptr ? "" : endpoint_->address(); }

 private:
  Metrics() = default;

  std::shared_ptr<prometheus::Registry> registry_;
  std::unique_ptr<MetricsEndpoint> endpoint_;  // ends before the registry that it reads
};

// 0.1 ms .. 30 s, for latencies in seconds.
std::vector<double> LatencyBuckets();

}  // namespace tilewright::daemon
