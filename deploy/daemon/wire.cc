#include "deploy/daemon/wire.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "deploy/support/strings.h"

namespace tilewright::daemon {
namespace {

// gRPC's default limit on all trailers together is 8 KiB; the message travels twice (in the status
// and in its details), percent-encoded once.
constexpr size_t kMaxMessageText = 1500;

// How long a client is asked to wait before it repeats a call that may succeed later.
constexpr uint32_t kRetryDelaySeconds = 1;

// google.rpc.Status, ErrorInfo and RetryInfo are not packaged; these are their wire formats.
constexpr uint32_t LengthDelimitedTag(uint32_t field) { return field << 3 | 2; }
constexpr uint32_t VarintTag(uint32_t field) { return field << 3; }

void PutBytes(google::protobuf::io::CodedOutputStream* out, uint32_t field,
              std::string_view bytes) {
  out->WriteTag(LengthDelimitedTag(field));
  out->WriteVarint32(static_cast<uint32_t>(bytes.size()));
  out->WriteRaw(bytes.data(), static_cast<int>(bytes.size()));
}

template <typename Fill>
std::string Build(const Fill& fill) {
  std::string bytes;
  google::protobuf::io::StringOutputStream stream(&bytes);
  google::protobuf::io::CodedOutputStream out(&stream);
  fill(&out);
  out.Trim();
  return bytes;
}

// A google.protobuf.Any of google.rpc.{name}.
std::string AnyOf(std::string_view name, std::string_view bytes) {
  return Build([&](auto* out) {
    PutBytes(out, 1, support::StrCat("type.googleapis.com/google.rpc.", name));
    PutBytes(out, 2, bytes);
  });
}

std::string StatusDetails(int code, std::string_view message, std::string_view slug, bool retry) {
  const std::string info = Build([&](auto* out) {
    PutBytes(out, 1, slug);          // ErrorInfo.reason
    PutBytes(out, 2, "tilewright");  // ErrorInfo.domain
  });
  return Build([&](auto* out) {
    out->WriteTag(VarintTag(1));
    out->WriteVarint32(static_cast<uint32_t>(code));
    PutBytes(out, 2, message);
    PutBytes(out, 3, AnyOf("ErrorInfo", info));
    if (!retry) return;
    const std::string delay = Build([](auto* duration) {
      duration->WriteTag(VarintTag(1));  // Duration.seconds
      duration->WriteVarint32(kRetryDelaySeconds);
    });
    PutBytes(out, 3, AnyOf("RetryInfo", Build([&](auto* retry_info) {
                             PutBytes(retry_info, 1, delay);  // RetryInfo.retry_delay
                           })));
  });
}

// This side refused the server's certificate: only the text tells. (A server that refuses the
// client's just closes the connection.)
bool IsHandshakeFailure(const grpc::Status& status) {
  if (status.error_code() != grpc::UNAVAILABLE) return false;
  for (const char* sign : {"Ssl handshake failed", "SSL_ERROR", "Hostname Verification",
                           "is not in peer certificate"}) {
    if (status.error_message().find(sign) != std::string::npos) return true;
  }
  return false;
}

// Cut at a character boundary, so that the text stays valid UTF-8.
std::string Shorten(std::string text) {
  if (text.size() <= kMaxMessageText) return text;
  size_t end = kMaxMessageText;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return text.substr(0, end) + "...";
}

}  // namespace

grpc::Status ToGrpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  const int code = static_cast<int>(status.code());
  const std::string message = Shorten(support::StatusText(status));
  const std::string slug = support::Slug(status);
  if (slug.empty()) return grpc::Status(static_cast<grpc::StatusCode>(code), message);
  return grpc::Status(static_cast<grpc::StatusCode>(code), message,
                      StatusDetails(code, message, slug, IsRetryable(status)));
}

absl::Status FromGrpc(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  const auto code = static_cast<absl::StatusCode>(status.error_code());
  // Our servers always send details with a slug; whatever comes without is the transport's own.
  if (!status.error_details().empty()) return absl::Status(code, status.error_message());
  // So does the guard in front of the handlers, which cannot send details.
  if (status.error_message().rfind("auth.", 0) == 0) {
    return absl::Status(code, status.error_message());
  }
  const std::string slug = IsHandshakeFailure(status)
                               ? "rpc.tls"
                               : "rpc." + support::ToLower(absl::StatusCodeToString(code));
  return support::MakeError(code, slug, status.error_message());
}

std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address,
                                           const ChannelOptions& options) {
  grpc::ChannelArguments args;
  args.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveTimeMs);
  args.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  args.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  args.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  args.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, kReconnectMinMs);
  args.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, kConnectTimeoutMs);
  args.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kReconnectMaxMs);
  // A channel whose connection was refused tries again only after it resolved its address again,
  // which gRPC limits to once in 30 s (and then takes about 5 s even for an address in numbers).
  const bool numeric =
      !address.empty() && (address[0] == '[' || (address[0] >= '0' && address[0] <= '9'));
  args.SetInt(GRPC_ARG_DNS_MIN_TIME_BETWEEN_RESOLUTIONS_MS,
              numeric ? kReconnectMinMs : kReconnectMinMs * 10);
  args.SetMaxReceiveMessageSize(kMaxMessageBytes);
  args.SetMaxSendMessageSize(kMaxMessageBytes);
  // Peers are named by address; a proxy of the environment is never meant.
  args.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  if (options.own_connection) args.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return grpc::CreateCustomChannel(
      address, options.credentials ? options.credentials : grpc::InsecureChannelCredentials(),
      args);
}

void SetTimeout(grpc::ClientContext* context, int64_t timeout_ms) {
  context->set_deadline(
      gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_millis(timeout_ms, GPR_TIMESPAN)));
}

bool IsRetryable(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kResourceExhausted:
    case absl::StatusCode::kAborted:
      return true;
    default:
      return false;
  }
}

bool IsRefused(const absl::Status& status) {
  return (absl::IsUnauthenticated(status) || absl::IsPermissionDenied(status)) &&
         support::Slug(status).rfind("auth.", 0) == 0;
}

std::string ValueKindText(v1::ValueKind kind) {
  constexpr std::string_view kPrefix = "VALUE_KIND_";
  const std::string& name = v1::ValueKind_Name(kind);
  if (name.size() <= kPrefix.size()) return "unspecified";
  return support::ToLower(std::string_view(name).substr(kPrefix.size()));
}

std::string OutcomeText(v1::Outcome outcome) {
  const std::string& name = v1::Outcome_Name(outcome);
  return name.empty() ? "OUTCOME_UNSPECIFIED" : name;
}

}  // namespace tilewright::daemon
