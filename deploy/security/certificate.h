// X.509 certificates as values: what a file of them says, and whether one may be used now. Pure
// functions; thread-safe. Times are arguments, in seconds since the Unix epoch (UTC).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "deploy/support/status.h"

namespace tilewright::security {

// What a certificate of a fleet is for. It is part of the URI spiffe://tilewright/{kind}/{name},
// which is one of the certificate's subject alternative names.
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
// not_found (certs.uri.foreign) if it is no such URI.
absl::StatusOr<Peer> ParsePeerUri(std::string_view uri);
// Returns whom a certificate with these URIs names. It must have exactly one, a PeerUri: one with
// two could be taken for either holder. not_found: certs.uri.none, certs.uri.several,
// certs.uri.foreign.
absl::StatusOr<Peer> PeerOf(const std::vector<std::string>& uris);

// Checks a name of a certificate or an agent: at most 64 letters, digits, '-', '_' and '.'.
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

// Returns all certificates of a PEM text, in its order. invalid_argument (certs.file.invalid) if
// there is none or one cannot be read; `what` names the text in messages.
absl::StatusOr<std::vector<CertificateInfo>> ReadCertificates(std::string_view pem,
                                                              std::string_view what);

// "2026-11-22 07:30:00" (UTC).
std::string TimeText(int64_t seconds);

// Checks that one of `authorities` signed `certificate`, that it is used for its purpose and valid
// now, and that `key` is its private key. failed_precondition: identity.certificate.expired,
// .early, .untrusted, identity.key.mismatch. invalid_argument (certs.file.invalid) for texts that
// are no PEM.
absl::Status CheckCertificate(std::string_view certificate_pem, std::string_view key_pem,
                              std::string_view authorities_pem, int64_t now_s);

}  // namespace tilewright::security
