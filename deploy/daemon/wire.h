// What both ends of a gRPC connection share: errors as absl::Status, channels that reconnect fast
// and notice dead peers, deadlines, and the pauses between attempts. Functions are thread-safe;
// Backoff belongs to one owner.
#pragma once

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "deploy/daemon/digest_message.h"
#include "deploy/support/backoff.h"
#include "deploy/support/rng.h"
#include "deploy/support/status.h"
#include "tilewright/v1/common.pb.h"

namespace tilewright::daemon {

// Largest message either side accepts. Artifacts of any size travel in chunks below it.
inline constexpr int kMaxMessageBytes = 16 << 20;
// Largest piece of an artifact in one chunk.
inline constexpr int64_t kChunkBytes = 1 << 20;

// Keepalive of clients, and what servers tolerate of it, so that the two cannot disagree. A silent
// peer is given up after the sum of the first two: else calls on a connection that the network has
// forgotten would time out one after the other.
inline constexpr int kKeepaliveTimeMs = 10'000;
inline constexpr int kKeepaliveTimeoutMs = 5'000;
inline constexpr int kMinPingIntervalMs = 5'000;
// Pauses between a channel's attempts to connect, which grow from the first to the second (each
// drawn within 20 % of it).
inline constexpr int kReconnectMinMs = 200;
inline constexpr int kReconnectMaxMs = 3'000;
// An attempt is given up after this long, handshake included: more than the handshakes of 1,000
// agents take a tracker that has just been started.
inline constexpr int kConnectTimeoutMs = 8'000;
// The longest pause between calls that fail.
inline constexpr int kBackoffMaxMs = 10'000;

// The same code and message. The slug also travels as google.rpc.ErrorInfo.reason (domain
// "tilewright") in the status details, where clients of any language find it. Long messages are cut
// so that the trailer stays within gRPC's metadata limit.
grpc::Status ToGrpc(const absl::Status& status);

// The inverse. A transport's own error (server gone, deadline) has no slug: it gets rpc.<code>,
// e.g. "rpc.unavailable: failed to connect ...", or rpc.tls where this side does not
// trust the server's certificate.
absl::Status FromGrpc(const grpc::Status& status);

struct ChannelOptions {
  // A connection of its own instead of one shared by all channels to that address.
  bool own_connection = false;
  // TLS and token (credentials.h); null = plain text.
  std::shared_ptr<grpc::ChannelCredentials> credentials = nullptr;
};

// A channel to HOST:PORT that connects when it is first used.
std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address,
                                           const ChannelOptions& options = {});

// Every call has a deadline: this long from now.
void SetTimeout(grpc::ClientContext* context, int64_t timeout_ms);

// True for errors after which the same idempotent call may succeed later: unavailable,
// deadline_exceeded, resource_exhausted, aborted.
bool IsRetryable(const absl::Status& status);

// True when the other side's guard refused the call (token, certificate, role): an administrator
// can change that at any time.
bool IsRefused(const absl::Status& status);

// Pauses between calls that fail.
class Backoff : public support::Backoff {
 public:
  explicit Backoff(support::Rng rng, int64_t max_ms = kBackoffMaxMs)
      : support::Backoff(rng, kReconnectMinMs, max_ms) {}
};

// "wall_ns", "device_ns", ...; "unspecified" for anything unknown.
std::string ValueKindText(v1::ValueKind kind);
// "OK", "RUN_CRASH", ...; "OUTCOME_UNSPECIFIED" for anything unknown.
std::string OutcomeText(v1::Outcome outcome);

}  // namespace tilewright::daemon
