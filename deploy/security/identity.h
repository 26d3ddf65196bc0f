// An identity is a folder with all that one daemon or person needs to talk to the fleet:
//   ca.pem    the authorities it trusts
//   cert.pem  its certificate
//   key.pem   its private key (only its owner can read it)
//   crl.pem   certificates that were revoked (no file = none)
//   token     its bearer token (only its owner can read it; daemons that only listen have none)
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

// Reads an identity, and finds what a handshake would refuse without giving the reason. `now_s` is
// seconds since the Unix epoch. not_found (identity.file.missing), failed_precondition
// (identity.key.permissions, identity.key.mismatch, identity.certificate.expired, .early,
// .untrusted), invalid_argument (certs.file.invalid).
absl::StatusOr<IdentityFiles> LoadIdentity(const std::string& folder, int64_t now_s);

// Returns whom the certificate of the folder names; nullopt if it does not name exactly one member
// of the fleet. Daemons refuse every call of such a certificate (call_guard.h).
absl::StatusOr<std::optional<Peer>> ReadPeer(const std::string& folder);

// Returns the token of the folder without the line's end; empty if there is none.
// failed_precondition (identity.key.permissions).
absl::StatusOr<std::string> ReadToken(const std::string& folder);

// Replaces the three files together: a reader of the folder sees all old ones or all new ones.
// Other files in it stay. Makes the folder (0700) if it does not exist.
absl::Status ReplaceIdentity(const std::string& folder, const IdentityFiles& files);

// failed_precondition (identity.key.permissions) if others than the owner may read the file.
absl::Status CheckPrivateFile(const std::string& path);
// Makes the folder with mode 0700, and missing ones above it; ok if it exists already.
absl::Status MakePrivateFolder(const std::string& path);

}  // namespace tilewright::security
