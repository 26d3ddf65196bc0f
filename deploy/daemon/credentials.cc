#include "deploy/daemon/credentials.h"

#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_credentials_options.h>

#include <atomic>
#include <utility>

#include "deploy/daemon/daemon_log.h"
#include "deploy/daemon/peer_certificate.h"
#include "deploy/security/identity.h"
#include "deploy/security/revocation.h"
#include "deploy/support/file.h"
#include "deploy/support/mutex.h"

namespace tilewright::daemon {
namespace {

constexpr unsigned kCertificateLookSeconds = 10;
constexpr int64_t kTokenLookNs = 1'000'000'000;

std::shared_ptr<grpc::experimental::CertificateProviderInterface> WatchFiles(
    const std::string& identity) {
  return std::make_shared<grpc::experimental::FileWatcherCertificateProvider>(
      support::PathJoin(identity, security::kKeyFile),
      support::PathJoin(identity, security::kCertificateFile),
      support::PathJoin(identity, security::kAuthorityFile), kCertificateLookSeconds);
}

absl::Status CheckFiles(const std::string& identity, support::Clock* clock) {
  return security::LoadIdentity(identity, clock->WallMicros() / 1'000'000).status();
}

// Sees each call before anything of it is sent: none goes to a server whose certificate was
// revoked, others get "authorization: Bearer ..." of the file as it is now.
class BeforeEachCall final : public grpc::MetadataCredentialsPlugin {
 public:
  BeforeEachCall(std::string identity, std::string token,
                 std::unique_ptr<security::RevocationList> revocations, support::Clock* clock)
      : identity_(std::move(identity)),
        clock_(clock),
        revocations_(std::move(revocations)),
        token_(std::move(token)) {
    if (!token_.empty()) next_look_ns_ = INT64_MAX;  // given, not read
  }

  bool IsBlocking() const override { return false; }

  grpc::Status GetMetadata(grpc::string_ref, grpc::string_ref, const grpc::AuthContext& server,
                           std::multimap<grpc::string, grpc::string>* metadata) override {
    const absl::Status trusted = revocations_->Check(PeerCertificate(&server));
    TellOfRevocations();
    if (!trusted.ok()) {
      return {grpc::StatusCode::UNAUTHENTICATED, "the server's " + support::StatusText(trusted)};
    }
    support::MutexLock lock(mutex_);
    const int64_t now_ns = clock_->NowNs();
    if (now_ns >= next_look_ns_) {
      next_look_ns_ = now_ns + kTokenLookNs;
      // While the file cannot be read, the token read last goes on counting.
      if (auto token = security::ReadToken(identity_); token.ok()) token_ = *std::move(token);
    }
    if (!token_.empty()) metadata->emplace("authorization", "Bearer " + token_);
    return grpc::Status::OK;
  }

 private:
  // Once when the list cannot be read any more; the one read last goes on counting.
  void TellOfRevocations() {
    const absl::Status status = revocations_->FileStatus();
    if (revocations_bad_.exchange(!status.ok()) == !status.ok() || status.ok()) return;
    LogError("revocations.file.unreadable", {{"error", support::StatusText(status)}});
  }

  const std::string identity_;
  support::Clock* const clock_;
  const std::unique_ptr<security::RevocationList> revocations_;
  std::atomic<bool> revocations_bad_{false};
  support::Mutex mutex_;
  std::string token_ TW_GUARDED_BY(mutex_);
  int64_t next_look_ns_ TW_GUARDED_BY(mutex_) = 0;
};

}  // namespace

absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> TlsChannelCredentials(
    const std::string& identity, const std::string& token, support::Clock* clock) {
  TW_TRY(CheckFiles(identity, clock));
  TW_TRY(security::ReadToken(identity).status());
  TW_ASSIGN(auto revocations, security::RevocationList::Open(identity, clock));
  grpc::experimental::TlsChannelCredentialsOptions options;
  options.set_certificate_provider(WatchFiles(identity));
  options.watch_root_certs();
  options.watch_identity_key_cert_pairs();
  return grpc::CompositeChannelCredentials(
      grpc::experimental::TlsCredentials(options),
      grpc::MetadataCredentialsFromPlugin(
          std::make_unique<BeforeEachCall>(identity, token, std::move(revocations), clock)));
}

absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> TlsServerCredentials(
    const std::string& identity, std::shared_ptr<grpc::AuthMetadataProcessor> processor,
    support::Clock* clock) {
  TW_TRY(CheckFiles(identity, clock));
  grpc::experimental::TlsServerCredentialsOptions options(WatchFiles(identity));
  options.watch_root_certs();
  options.watch_identity_key_cert_pairs();
  options.set_cert_request_type(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  auto credentials = grpc::experimental::TlsServerCredentials(options);
  if (processor != nullptr) credentials->SetAuthMetadataProcessor(std::move(processor));
  return credentials;
}

absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> TlsServerOnlyCredentials(
    const std::string& identity, support::Clock* clock) {
  TW_TRY(CheckFiles(identity, clock));
  grpc::experimental::TlsServerCredentialsOptions options(WatchFiles(identity));
  options.watch_identity_key_cert_pairs();
  options.set_cert_request_type(GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE);
  return grpc::experimental::TlsServerCredentials(options);
}

}  // namespace tilewright::daemon
