// The CLI's side of the tuner's services: one channel with all stubs, calls with deadlines,
// artifacts up and down. Blocking; one thread.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "deploy/daemon/artifact_service.h"
#include "deploy/daemon/wire.h"
#include "deploy/support/clock.h"
#include "deploy/support/status.h"
#include "tilewright/v1/artifact.grpc.pb.h"
#include "tilewright/v1/fleet_admin.grpc.pb.h"
#include "tilewright/v1/job.grpc.pb.h"
#include "tilewright/v1/module.grpc.pb.h"
#include "tuner_server/cli/server_place.h"

namespace tilewright::cli {

inline constexpr int64_t kCallTimeoutMs = 15'000;
inline constexpr int64_t kTransferTimeoutMs = 600'000;
// How long commands that wait for a job keep trying to reach a server.
inline constexpr int64_t kPatienceMs = 300'000;

// Returns --server, else TILEWRIGHT_SERVER; invalid_argument (cli.usage.server) without either.
absl::StatusOr<std::string> ServerAddress(const std::string& flag);

class ServerClient {
 public:
  // Takes the address from flags or environment, and with an identity TLS and its token
  // (TILEWRIGHT_TOKEN, if set, replaces its token file). Errors of ServerAddress, and identity.*
  // for an identity that cannot be used.
  static absl::StatusOr<ServerClient> Connect(const ServerPlace& place);
  // Null credentials: plain text.
  explicit ServerClient(const std::string& address,
                        std::shared_ptr<grpc::ChannelCredentials> credentials = nullptr);

  const std::string& address() const { return address_; }
  // Returns the flags with which another command reaches the same server.
  std::string Flags() const;
  v1::JobService::Stub* jobs() { return jobs_.get(); }
  v1::ModuleService::Stub* modules() { return modules_.get(); }
  v1::FleetAdminService::Stub* fleet() { return fleet_.get(); }
  v1::ArtifactService::Stub* artifacts() { return artifacts_.get(); }

  // Makes one unary call with the usual deadline; the error names the address.
  template <typename Stub, typename Request, typename Response>
  absl::StatusOr<Response> Call(Stub* stub,
                                grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&,
                                                             Response*),
                                const Request& request, int64_t timeout_ms = kCallTimeoutMs) {
    grpc::ClientContext context;
    daemon::SetTimeout(&context, timeout_ms);
    Response response;
    const absl::Status status = daemon::FromGrpc((stub->*method)(&context, request, &response));
    if (!status.ok()) return support::WithContext(Explain(status), "server " + address_);
    answered_ = true;
    return response;
  }

  // Returns the same error, or what is behind it, if no call of this client was answered yet and
  // the connection was closed. Then failed_precondition:
  //   rpc.tls.wanted    the server wants TLS, and there is no identity
  //   rpc.tls.plain     the server speaks plain text, and there is an identity
  //   rpc.tls.identity  the server does not accept the identity
  // A retry does not help with any of them.
  absl::Status Explain(const absl::Status& status) const;

  // Uploads the bytes unless the server has them. Returns their digest.
  absl::StatusOr<v1::Digest> Upload(std::string_view bytes);
  // Fetches a blob (verified; continued where an earlier call for that path was cut off) and
  // renames it into place. Returns how many bytes were transferred.
  absl::StatusOr<int64_t> Download(const v1::Digest& digest, const std::string& path);

 private:
  bool IsAnswered() const;

  std::string address_;
  std::string identity_;      // as --identity had it
  std::string identity_dir_;  // the folder in use; empty: plain text
  std::shared_ptr<grpc::ChannelCredentials> credentials_;
  bool answered_ = false;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::JobService::Stub> jobs_;
  std::unique_ptr<v1::ModuleService::Stub> modules_;
  std::unique_ptr<v1::FleetAdminService::Stub> fleet_;
  std::unique_ptr<v1::ArtifactService::Stub> artifacts_;
};

inline const absl::Status& StatusOf(const absl::Status& status) { return status; }
template <typename T>
const absl::Status& StatusOf(const absl::StatusOr<T>& result) {
  return result.status();
}

// Repeats an idempotent call while the server cannot be reached, at most patience_ms. Returns the
// last error then.
template <typename Fn>
auto Patiently(int64_t patience_ms, Fn call) -> decltype(call()) {
  support::SystemClock clock;
  const int64_t start_ns = clock.NowNs();
  daemon::Backoff backoff(support::Rng(1), 2'000);
  while (true) {
    auto result = call();
    if (StatusOf(result).ok() || !daemon::IsRetryable(StatusOf(result)) ||
        clock.NowNs() - start_ns > patience_ms * 1'000'000) {
      return result;
    }
    support::SleepMs(backoff.NextMs());
  }
}

// "abc" -> "projects/default/jobs/abc"; a full name stays.
std::string JobName(const std::string& text);
// The part after the last '/'.
std::string LastPart(const std::string& name);
// Seconds of a Duration.
double Seconds(const google::protobuf::Duration& duration);
// "2026-11-21 18:00:05" (UTC); "-" when unset.
std::string TimestampText(const google::protobuf::Timestamp& timestamp);

}  // namespace tilewright::cli
