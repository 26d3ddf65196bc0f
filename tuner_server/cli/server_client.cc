#include "tuner_server/cli/server_client.h"

#include <grpcpp/generic/generic_stub.h>

#include <ctime>
#include <utility>

#include "deploy/daemon/artifact_download.h"
#include "deploy/daemon/credentials.h"
#include "deploy/daemon/server_probe.h"
#include "deploy/support/env.h"
#include "deploy/support/file.h"
#include "deploy/support/hash.h"
#include "deploy/support/strings.h"

namespace tilewright::cli {
namespace {

constexpr int64_t kProbeTimeoutMs = 2'000;
constexpr char kHealthCheck[] = "/grpc.health.v1.Health/Check";

}  // namespace

absl::StatusOr<std::string> ServerAddress(const std::string& flag) {
  std::string address = flag;
  if (address.empty()) address = support::GetEnv("TILEWRIGHT_SERVER").value_or("");
  if (address.empty()) {
    return support::InvalidArgument(
        "cli.usage.server", "expected --server HOST:PORT or TILEWRIGHT_SERVER, found neither");
  }
  const size_t colon = address.rfind(':');
  const auto port =
      colon == std::string::npos ? std::nullopt : support::ParseInt64(address.substr(colon + 1));
  if (!port || *port < 1 || *port > 65535 || colon == 0) {
    return support::InvalidArgument("cli.usage.server",
                                    "expected HOST:PORT, found " + support::Quote(address));
  }
  return address;
}

absl::StatusOr<ServerClient> ServerClient::Connect(const ServerPlace& place) {
  TW_ASSIGN(const std::string address, ServerAddress(place.address));
  std::string identity = place.identity;
  if (identity.empty()) identity = support::GetEnv("TILEWRIGHT_IDENTITY").value_or("");
  if (identity.empty()) return ServerClient(address);
  const std::string token = support::GetEnv("TILEWRIGHT_TOKEN").value_or("");
  // The channel's credentials use it as long as the process lives.
  static support::SystemClock* const clock = new support::SystemClock();
  TW_ASSIGN(auto credentials, daemon::TlsChannelCredentials(identity, token, clock));
  ServerClient client(address, std::move(credentials));
  client.identity_ = place.identity;
  client.identity_dir_ = identity;
  return client;
}

std::string ServerClient::Flags() const {
  return "--server " + address_ + (identity_.empty() ? "" : " --identity " + identity_);
}

ServerClient::ServerClient(const std::string& address,
                           std::shared_ptr<grpc::ChannelCredentials> credentials)
    : address_(address),
      credentials_(std::move(credentials)),
      channel_(daemon::MakeChannel(address, {false, credentials_})),
      jobs_(v1::JobService::NewStub(channel_)),
      modules_(v1::ModuleService::NewStub(channel_)),
      fleet_(v1::FleetAdminService::NewStub(channel_)),
      artifacts_(v1::ArtifactService::NewStub(channel_)) {}

// Whether a connection of its own gets any answer, be it a refusal: both need the handshake.
bool ServerClient::IsAnswered() const {
  const auto channel = daemon::MakeChannel(address_, {true, credentials_});
  grpc::GenericStub stub(channel);
  grpc::ClientContext context;
  daemon::SetTimeout(&context, kProbeTimeoutMs);
  grpc::CompletionQueue queue;
  grpc::ByteBuffer answer;
  grpc::Status status;
  const auto call = stub.PrepareUnaryCall(&context, kHealthCheck, grpc::ByteBuffer(), &queue);
  call->StartCall();
  call->Finish(&answer, &status, nullptr);
  void* tag = nullptr;
  bool ok = false;
  queue.Next(&tag, &ok);
  return status.error_code() != grpc::UNAVAILABLE;
}

absl::Status ServerClient::Explain(const absl::Status& status) const {
  if (answered_ || !absl::IsUnavailable(status)) return status;
  const bool has_identity = credentials_ != nullptr;
  const daemon::Speaks speaks = daemon::ProbeServer(address_, kProbeTimeoutMs);
  if (speaks == daemon::Speaks::kTls && !has_identity) {
    return support::FailedPrecondition("rpc.tls.wanted",
                                       "the server wants TLS, and no identity was given");
  }
  if (speaks == daemon::Speaks::kPlainText && has_identity) {
    return support::FailedPrecondition(
        "rpc.tls.plain",
        "the server speaks plain text, and the identity " + identity_dir_ + " was given");
  }
  // Where this side does not trust the server, the status says so already.
  if (speaks != daemon::Speaks::kTls || support::Slug(status) == "rpc.tls" || IsAnswered()) {
    return status;
  }
  return support::FailedPrecondition(
      "rpc.tls.identity",
      "the server closed the connection: it does not accept the identity " + identity_dir_);
}

absl::StatusOr<v1::Digest> ServerClient::Upload(std::string_view bytes) {
  const std::string hex = support::Sha256Hex(bytes);
  absl::StatusOr<std::vector<std::string>> missing =
      daemon::FindMissingArtifacts(artifacts_.get(), {hex}, kCallTimeoutMs);
  if (!missing.ok()) {
    return support::WithContext(Explain(missing.status()), "server " + address_);
  }
  answered_ = true;
  if (!missing->empty()) {
    TW_TRY(daemon::UploadArtifact(artifacts_.get(), hex, bytes, kTransferTimeoutMs));
  }
  return daemon::MakeDigest(hex, static_cast<int64_t>(bytes.size()));
}

absl::StatusOr<int64_t> ServerClient::Download(const v1::Digest& digest, const std::string& path) {
  TW_ASSIGN(std::string hex, daemon::DigestToHex(digest));
  const auto stats = daemon::DownloadArtifact(artifacts_.get(), hex, path, kTransferTimeoutMs);
  if (!stats.ok()) return support::WithContext(stats.status(), "server " + address_);
  return stats->moved_bytes;
}

std::string JobName(const std::string& text) {
  return text.starts_with("projects/") ? text : "projects/default/jobs/" + text;
}

std::string LastPart(const std::string& name) {
  const size_t slash = name.rfind('/');
  return slash == std::string::npos ? name : name.substr(slash + 1);
}

double Seconds(const google::protobuf::Duration& duration) {
  return static_cast<double>(duration.seconds()) + duration.nanos() * 1e-9;
}

std::string TimestampText(const google::protobuf::Timestamp& timestamp) {
  if (timestamp.seconds() == 0) return "-";
  const std::time_t seconds = timestamp.seconds();
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &parts);
  return text;
}

}  // namespace tilewright::cli
