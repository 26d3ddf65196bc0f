// What an authority has signed: each certificate is added to issued.pem of its folder, so that one
// can ask who exists. Functions touch files; one at a time per folder.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "deploy/security/certificate.h"
#include "deploy/support/status.h"

namespace tilewright::security {

inline constexpr char kIssuedFile[] = "issued.pem";

enum class CertificateState { kValid, kEnded, kRevoked };
std::string StateText(CertificateState state);  // "valid", "ended", "revoked"

struct IssuedCertificate {
  CertificateInfo info;
  Peer peer;
  CertificateState state = CertificateState::kValid;
};

// Adds a certificate. An authority that signs must not depend on it: callers ignore an error (a
// read-only folder).
absl::Status RecordIssued(const std::string& authority, std::string_view certificate_pem);

// All that are known, by kind and name, the newest first: those of issued.pem, and those of the
// folders below issued/ (made before there was such a file). not_found (certs.authority.missing)
// where there is no authority.
absl::StatusOr<std::vector<IssuedCertificate>> ListIssued(const std::string& authority,
                                                          int64_t now_s);

}  // namespace tilewright::security
