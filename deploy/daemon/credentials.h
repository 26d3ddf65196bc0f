// TLS for both ends of a connection, from an identity folder (deploy/security/identity.h). The
// files are watched: a renewed certificate, key or authority counts for new connections within ten
// seconds, a new token or list of revoked certificates for new calls within one. Both ends show a
// certificate; a client also checks that the server is the host that it dialled, and sends nothing
// to one whose certificate was revoked, on no connection. Thread-safe.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

#include "deploy/support/clock.h"
#include "deploy/support/status.h"

namespace tilewright::daemon {

// Credentials of a client: TLS, and the bearer token with every call. The token is `token` when
// that is not empty, else the folder's file, else none is sent. Errors are LoadIdentity's (what a
// handshake would refuse later without a word), ReadToken's and RevocationList::Open's. A call to a
// server that was revoked ends as unavailable, with auth.certificate.revoked in its text. The clock
// is not owned.
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
