// An identity is a folder with all that one daemon or person needs to talk to the fleet:
//   ca.pem    the authorities it trusts
//   cert.pem  its certificate        key.pem  its private key (for its owner alone)
//   crl.pem   certificates that were revoked (where it listens; none = none)
//   token     its bearer token (for its owner alone; daemons that only listen have none)
// Every program takes it as --identity DIR. Functions are stateless and thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "deploy/security/certificate.h"
#include "deploy/support/status.h"

namespace tilewright::security {

inline constexpr char kAuthorityFile[] = "ca.pem";
inline constexpr char kCertificateFile[] = "cert.pem";
inline constexpr char kKeyFile[] = "key.pem";
inline constexpr char kTokenFile[] = "token";
inline constexpr char kRequestFile[] = "request.pem";  // certificate_request.h
inline constexpr uint64_t kMaxPemBytes = 1 << 20;

struct IdentityFiles {
  std::string authorities;  // PEM, as the other two
  std::string certificate;
  std::string key;          // empty = the folder's stays as it is
  std::string revocations;  // crl.pem (revocation.h); empty = the folder's stays as it is
};

// Everything a handshake would refuse without a word, with its reason. `now_s` is seconds since the
// Unix epoch. not_found (identity.file.missing), failed_precondition (identity.key.permissions,
// identity.key.mismatch, identity.certificate.expired, .early, .untrusted), invalid_argument
// (certs.file.invalid).
absl::StatusOr<IdentityFiles> LoadIdentity(const std::string& folder, int64_t now_s);

// Whom the certificate of the folder names; nothing for one of another authority's making.
absl::StatusOr<std::optional<Peer>> ReadPeer(const std::string& folder);

// The token of the folder without the line's end; empty when there is none.
// failed_precondition (identity.key.permissions).
absl::StatusOr<std::string> ReadToken(const std::string& folder);

// Writes the three files at once: readers of the folder see all old or all new ones. Other files in
// it stay. The folder is made 0700 when it is not there.
absl::Status ReplaceIdentity(const std::string& folder, const IdentityFiles& files);

// failed_precondition (identity.key.permissions) when others than the owner may read it.
absl::Status CheckPrivateFile(const std::string& path);
// 0700; ok when it exists already.
absl::Status MakePrivateFolder(const std::string& path);

}  // namespace tilewright::security
