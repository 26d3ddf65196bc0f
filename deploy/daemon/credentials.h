// TLS for both ends of a connection, from an identity folder (deploy/security/identity.h). The
// files are watched. A renewed certificate, key or authority counts for new connections within ten
// seconds; a new token or list of revoked certificates for new calls within one second. Both ends
// show a certificate. A client also checks that the server is the host that it dialled, and sends
// nothing to a server whose certificate was revoked. Thread-safe.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

#include "deploy/support/clock.h"
#include "deploy/support/status.h"

namespace tilewright::daemon {

// Credentials of a client: TLS, and the bearer token with every call. The token is `token` if that
// is not empty, else the one in the folder, else none is sent. Errors are those of LoadIdentity
// (which a handshake would refuse without a message), ReadToken and RevocationList::Open. A call to
// a revoked server ends as unavailable, with auth.certificate.revoked in its text. The clock is not
// owned.
absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> TlsChannelCredentials(
    const std::string& identity, const std::string& token, support::Clock* clock);

// Credentials of a listener that wants a certificate of every client. `processor` sees each call
// before its handler.
absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> TlsServerCredentials(
    const std::string& identity, std::shared_ptr<grpc::AuthMetadataProcessor> processor,
    support::Clock* clock);

// Credentials of a listener whose callers have no certificate yet: it shows its own.
absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> TlsServerOnlyCredentials(
    const std::string& identity, support::Clock* clock);

}  // namespace tilewright::daemon
