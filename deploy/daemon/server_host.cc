#include "deploy/daemon/server_host.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/resource_quota.h>

#include <chrono>
#include <memory>

#include "deploy/daemon/daemon_log.h"
#include "deploy/daemon/reflection_service.h"
#include "deploy/daemon/wire.h"
#include "deploy/support/clock.h"
#include "deploy/support/file.h"
#include "deploy/support/strings.h"

namespace tilewright::daemon {
namespace {

constexpr int kMaxConcurrentCalls = 4096;  // of one connection; a tuner has two per job and more
constexpr int kMaxStrangersCalls = 16;     // of one connection whose calls no guard looks at
// What gRPC may hold of requests that are not complete, all connections together; an idle one with
// TLS takes up to 30 KB of it. Beyond it calls end with RESOURCE_EXHAUSTED or UNAVAILABLE, and
// clients repeat them.
constexpr size_t kRequestBytes = 96 << 20;
constexpr size_t kStrangersRequestBytes = 32 << 20;
constexpr char kReflectionName[] = "grpc.reflection.v1.ServerReflection";

// Counts finished calls by method and code and their time. One object per call.
class CallCounter final : public grpc::experimental::Interceptor {
 public:
  CallCounter(Metrics* metrics, const char* method) : metrics_(metrics), method_(method) {
    support::SystemClock clock;
    start_ns_ = clock.NowNs();
  }

  void Intercept(grpc::experimental::InterceptorBatchMethods* batch) override {
    using Hook = grpc::experimental::InterceptionHookPoints;
    if (batch->QueryInterceptionHookPoint(Hook::PRE_SEND_STATUS)) {
      support::SystemClock clock;
      const double seconds = static_cast<double>(clock.NowNs() - start_ns_) * 1e-9;
      const int code = static_cast<int>(batch->GetSendStatus().error_code());
      metrics_
          ->Counter("tilewright_rpc_calls_total", "finished calls",
                    {{"method", method_},
                     {"code", absl::StatusCodeToString(static_cast<absl::StatusCode>(code))}})
          .Increment();
      metrics_
          ->Histogram("tilewright_rpc_duration_seconds",
                      "time from a call's arrival to its status; long polls wait on purpose",
                      LatencyBuckets(), {{"method", method_}})
          .Observe(seconds);
    }
    batch->Proceed();
  }

 private:
  Metrics* metrics_;
  const char* method_;
  int64_t start_ns_;
};

class CallCounterFactory final : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  explicit CallCounterFactory(Metrics* metrics) : metrics_(metrics) {}
  grpc::experimental::Interceptor* CreateServerInterceptor(
      grpc::experimental::ServerRpcInfo* info) override {
    return new CallCounter(metrics_, info->method());
  }

 private:
  Metrics* metrics_;
};

}  // namespace

absl::StatusOr<HostPort> ParseHostPort(const std::string& text, std::string_view slug) {
  const absl::Status bad =
      support::InvalidArgument(slug, "expected HOST:PORT, found " + support::Quote(text));
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos || colon == 0) return bad;
  std::string host = text.substr(0, colon);
  const auto port = support::ParseInt64(std::string_view(text).substr(colon + 1));
  if (!port.has_value() || *port < 0 || *port > 65535) return bad;
  if (host.front() == '[') {
    if (host.size() < 3 || host.back() != ']') return bad;
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string::npos) {
    return bad;
  }
  return HostPort{std::move(host), static_cast<int>(*port)};
}

bool IsLoopbackHost(const std::string& host) {
  if (host == "localhost" || host == "::1") return true;
  // 127.0.0.0/8, written as four numbers: a name that merely begins with "127." is not one.
  const auto parts = support::Split(host, '.');
  if (parts.size() != 4 || parts[0] != "127") return false;
  for (const std::string& part : parts) {
    const auto number = support::ParseInt64(part);
    if (!number.has_value() || *number < 0 || *number > 255) return false;
  }
  return true;
}

ServerHost::ServerHost(HostOptions options) : options_(std::move(options)) {}

ServerHost::~ServerHost() { Stop(); }

void ServerHost::AddService(grpc::Service* service, std::string full_name) {
  TW_CHECK(server_ == nullptr) << "services are added before Start";
  services_.emplace_back(service, std::move(full_name));
}

bool ServerHost::secure() const {
  return options_.credentials != nullptr ||
         (options_.security != nullptr && options_.security->secure());
}

// Plain text off loopback is for those who asked for it.
absl::Status CheckListen(const std::string& listen, bool secure, bool insecure) {
  TW_ASSIGN(const HostPort where, ParseHostPort(listen, "daemon.listen.invalid"));
  if (secure || insecure || IsLoopbackHost(where.host)) return absl::OkStatus();
  return support::FailedPrecondition(
      "daemon.listen.insecure",
      "expected --identity DIR and --tokens FILE (TLS; see 'tilewright certs --help'), or a "
      "loopback address, or --insecure (plain text), found " +
          support::Quote(listen));
}

void ServerHost::SetLimits(grpc::ServerBuilder* builder) const {
  const bool strangers = options_.credentials != nullptr;
  builder->SetMaxReceiveMessageSize(options_.max_message_bytes > 0 ? options_.max_message_bytes
                                                                   : kMaxMessageBytes);
  builder->SetMaxSendMessageSize(kMaxMessageBytes);
  builder->AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS,
                              strangers ? kMaxStrangersCalls : kMaxConcurrentCalls);
  builder->AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, options_.handshake_timeout_ms);
  grpc::ResourceQuota quota("daemon");
  quota.Resize(strangers ? kStrangersRequestBytes : kRequestBytes);
  builder->SetResourceQuota(quota);
  // gRPC inflates a message before it looks at its size. No client of ours compresses.
  for (const auto algorithm : {GRPC_COMPRESS_DEFLATE, GRPC_COMPRESS_GZIP}) {
    builder->SetCompressionAlgorithmSupportStatus(algorithm, false);
  }
}

void ServerHost::AddInterceptors(grpc::ServerBuilder* builder) {
  std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>> factories;
  if (options_.metrics != nullptr) {
    factories.push_back(std::make_unique<CallCounterFactory>(options_.metrics));
  }
  if (options_.security != nullptr) {
    auto audit = options_.security->AuditInterceptor();
    if (audit != nullptr) factories.push_back(std::move(audit));
  }
  if (!factories.empty()) builder->experimental().SetInterceptorCreators(std::move(factories));
}

absl::Status ServerHost::Start() {
  TW_ASSIGN(const HostPort where, ParseHostPort(options_.listen, "daemon.listen.invalid"));
  TW_TRY(CheckListen(options_.listen, secure(), options_.insecure));
  if (!secure() && !IsLoopbackHost(where.host)) {
    LogWarning("daemon.listen.insecure",
               {{"listen", options_.listen},
                {"message", "plain text without authentication: use on trusted networks only"}});
  }
  std::shared_ptr<grpc::ServerCredentials> credentials = grpc::InsecureServerCredentials();
  if (options_.credentials != nullptr) {
    credentials = options_.credentials;
  } else if (options_.security != nullptr) {
    TW_ASSIGN(credentials, options_.security->Credentials());
  }
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort(options_.listen, credentials, &port);
  SetLimits(&builder);
  // Without this a second server on the same port would silently share its connections.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveTimeMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                             kMinPingIntervalMs);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0);
  std::vector<std::string> names = {kReflectionName, "grpc.reflection.v1alpha.ServerReflection",
                                    "grpc.health.v1.Health"};
  for (const auto& [service, name] : services_) {
    builder.RegisterService(service);
    names.push_back(name);
  }
  if (options_.credentials == nullptr) {  // not for callers that no guard looks at
    reflection_ = std::make_unique<ReflectionService>(std::move(names));
    builder.RegisterService(reflection_.get());
  }
  AddInterceptors(&builder);
  // Before the first connection, if clients can know the port by then.
  GateTls();
  if (!secure()) plain_text_gate_.emplace(where.port);
  server_ = builder.BuildAndStart();
  if (!secure() && port != where.port) plain_text_gate_.emplace(port);
  if (server_ == nullptr || port == 0) {
    server_.reset();
    plain_text_gate_.reset();
    return support::Unavailable("daemon.listen.failed", "cannot listen on " + options_.listen);
  }
  const bool v6 = where.host.find(':') != std::string::npos;
  address_ = support::StrCat(v6 ? "[" : "", where.host, v6 ? "]" : "", ":", port);
  SetServing(true);
  if (!options_.port_file.empty()) {
    absl::Status written = support::WriteFileAtomic(options_.port_file, address_ + "\n");
    if (!written.ok()) {
      options_.port_file.clear();
      Stop();
      return written;
    }
  }
  return absl::OkStatus();
}

void ServerHost::SetServing(bool serving) {
  if (server_ == nullptr) return;
  grpc::HealthCheckServiceInterface* health = server_->GetHealthCheckService();
  if (health == nullptr) return;
  health->SetServingStatus(serving);
  for (const auto& [service, name] : services_) health->SetServingStatus(name, serving);
}

void ServerHost::Stop() {
  if (server_ == nullptr) return;
  SetServing(false);
  if (!options_.port_file.empty()) {
    const absl::Status removed = support::RemoveFile(options_.port_file);
    if (!removed.ok()) LogWarning("daemon.port_file.remove", {{"error", removed.ToString()}});
  }
  server_->Shutdown(gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                                 gpr_time_from_millis(options_.drain_ms, GPR_TIMESPAN)));
  server_->Wait();
  server_.reset();
  plain_text_gate_.reset();
}

}  // namespace tilewright::daemon
