// A private certificate authority in a folder: ca.pem (its certificates, the newest first) and
// ca-key.pem (the newest one's private key, for its owner alone). It signs identities: folders with
// ca.pem, cert.pem and key.pem (see identity.h). Keys are P-256, signatures ECDSA with SHA-256.
// Functions touch files and take the moment of issue (`now_s`, seconds since the Unix epoch) as an
// argument; one at a time per folder.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "deploy/security/certificate.h"
#include "deploy/security/identity.h"
#include "deploy/support/status.h"

namespace tilewright::security {

inline constexpr int kAuthorityDays = 3650;
inline constexpr int kLeafDays = 90;

// Makes the folder (0700) and the authority. already_exists (certs.authority.exists) when there is
// one.
absl::Status CreateAuthority(const std::string& folder, const std::string& name, int days,
                             int64_t now_s);

// Puts a new authority in front of the present ones: it signs from now on, the older ones stay
// trusted by identities that are issued or renewed afterwards, until RetireAuthorities. The list of
// revoked certificates is signed anew.
absl::Status RotateAuthority(const std::string& folder, int days, int64_t now_s);

// Drops all but the newest from ca.pem. Identities forget the old ones when they are renewed.
absl::Status RetireAuthorities(const std::string& folder);

struct LeafRequest {
  Peer peer;
  std::vector<std::string> hosts;  // DNS names and IP addresses that clients dial
  int days = kLeafDays;
};

// Signs a fresh key and writes the identity (0700; key 0600), which must not be there yet:
// already_exists (certs.identity.exists). Trackers and tuners also get localhost, 127.0.0.1 and ::1
// as hosts. A certificate never outlives its authority. not_found (certs.authority.missing).
absl::Status IssueIdentity(const std::string& authority, const LeafRequest& request,
                           const std::string& folder, int64_t now_s);

// Signs the key of a request (certificate_request.h), of which nothing but the key counts.
// invalid_argument (certs.request.invalid).
absl::StatusOr<IdentityFiles> SignRequest(const std::string& authority,
                                          std::string_view request_pem, const LeafRequest& request,
                                          int64_t now_s);
// The same, and writes an identity without key.pem: those files belong beside the key, where the
// request was made. What is there already is replaced. invalid_argument (certs.request.invalid).
absl::Status SignRequest(const std::string& authority, std::string_view request_pem,
                         const LeafRequest& request, const std::string& folder, int64_t now_s);

// The same kind, name and hosts with a new key and a new date, in place and at once: whoever reads
// the folder sees the old files or the new ones. Other files in it (the token) stay.
// failed_precondition (certs.identity.keyless) where the key is elsewhere.
absl::Status RenewIdentity(const std::string& authority, const std::string& folder, int days,
                           int64_t now_s);

// Adds certificates, by their serial numbers (hexadecimal, as CertificateInfo has them), to the
// authority's signed list of revoked ones, crl.pem (revocation.h), and returns all that are on it.
// invalid_argument (certs.serial.invalid).
absl::StatusOr<std::set<std::string>> RevokeCertificates(const std::string& folder,
                                                         const std::vector<std::string>& serials,
                                                         int64_t now_s);

}  // namespace tilewright::security
