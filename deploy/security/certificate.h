// X.509 certificates as values: what a file of them says, and whether one may be used now. The only
// headers that hide OpenSSL are this one and authority.h. Pure functions; thread-safe. Times are
// seconds since the Unix epoch (UTC), always an argument.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "deploy/support/status.h"

namespace tilewright::security {

// What a certificate of ours was made for; it travels in the URI
// spiffe://tilewright/{kind}/{name} among the certificate's subject alternative names.
enum class CertificateKind { kTracker, kTuner, kAgent, kClient };

// "tracker", "tuner", "agent", "client".
std::string KindText(CertificateKind kind);
// invalid_argument (certs.kind.invalid) on anything else.
absl::StatusOr<CertificateKind> ParseKind(std::string_view text);

struct Peer {
  CertificateKind kind = CertificateKind::kClient;
  std::string name;
};
std::string PeerUri(const Peer& peer);
// not_found (certs.uri.foreign): a certificate of somebody else's authority has no such URI.
absl::StatusOr<Peer> ParsePeerUri(std::string_view uri);

// Letters, digits, '-', '_' and '.', at most 64: also what agents may be called.
// invalid_argument (certs.name.invalid).
absl::Status CheckName(std::string_view name);

struct CertificateInfo {
  std::string subject;             // common name
  std::string issuer;              // common name
  std::string serial;              // hexadecimal
  std::string sha256;              // of the DER bytes, hexadecimal
  std::vector<std::string> hosts;  // DNS names and IP addresses
  std::vector<std::string> uris;
  int64_t not_before_s = 0;
  int64_t not_after_s = 0;
  bool authority = false;
};

// All certificates of a PEM text, in its order. invalid_argument (certs.file.invalid) when there is
// none or one cannot be read; `what` names the text in messages.
absl::StatusOr<std::vector<CertificateInfo>> ReadCertificates(std::string_view pem,
                                                              std::string_view what);

// "2026-11-22 07:30:00" (UTC).
std::string TimeText(int64_t seconds);

// Whether `certificate` was signed by one of `authorities`, is meant for what it does, and is valid
// now; and whether `key` is its private key. Slugs: identity.certificate.expired,
// identity.certificate.early, identity.certificate.untrusted, identity.key.mismatch
// (failed_precondition); certs.file.invalid for texts that are no PEM.
absl::Status CheckCertificate(std::string_view certificate_pem, std::string_view key_pem,
                              std::string_view authorities_pem, int64_t now_s);

}  // namespace tilewright::security
