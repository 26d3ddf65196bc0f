// A private certificate authority in a folder: ca.pem (its certificates, the newest first) and
// ca-key.pem (the newest one's private key, which only its owner can read). It signs identities:
// folders with ca.pem, cert.pem and key.pem (see identity.h). Keys are P-256, signatures ECDSA with
// SHA-256. Functions read and write files, and take the time of issue (`now_s`, seconds since the
// Unix epoch) as an argument. REQUIRES: one call at a time per folder.
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

// Makes the folder (0700) and the authority. already_exists (certs.authority.exists) if there is an
// authority.
absl::Status CreateAuthority(const std::string& folder, const std::string& name, int days,
                             int64_t now_s);

// Puts a new authority before the present ones. It signs from now on. Identities that are issued or
// renewed afterwards also trust the older ones, until RetireAuthorities. Signs the list of revoked
// certificates again.
absl::Status RotateAuthority(const std::string& folder, int days, int64_t now_s);

// Removes all but the newest from ca.pem. An identity trusts the old ones until it is renewed.
absl::Status RetireAuthorities(const std::string& folder);

struct LeafRequest {
  Peer peer;
  std::vector<std::string> hosts;  // DNS names and IP addresses that clients dial
  int days = kLeafDays;
};

// Makes and signs a new key and writes the identity (0700; key 0600). Trackers and tuners also get
// localhost, 127.0.0.1 and ::1 as hosts. A certificate ends at the latest with its authority.
// already_exists (certs.identity.exists), not_found (certs.authority.missing).
absl::Status IssueIdentity(const std::string& authority, const LeafRequest& request,
                           const std::string& folder, int64_t now_s);

// Signs the key of a request (certificate_request.h); uses nothing else of the request.
// invalid_argument (certs.request.invalid).
absl::StatusOr<IdentityFiles> SignRequest(const std::string& authority,
                                          std::string_view request_pem, const LeafRequest& request,
                                          int64_t now_s);
// Does the same, and writes an identity without key.pem: copy its files to the folder with the key,
// where the request was made. Replaces files that exist. invalid_argument (certs.request.invalid).
absl::Status SignRequest(const std::string& authority, std::string_view request_pem,
                         const LeafRequest& request, const std::string& folder, int64_t now_s);

// Replaces key and certificate by new ones for the same kind, name and hosts. A reader of the
// folder sees either the old files or the new ones. Other files in it (the token) stay.
// failed_precondition (certs.identity.keyless) if the key is elsewhere.
absl::Status RenewIdentity(const std::string& authority, const std::string& folder, int days,
                           int64_t now_s);

// Adds certificates to the authority's signed list of revoked ones, crl.pem (revocation.h), by
// their serial numbers (hexadecimal, as in CertificateInfo). Returns all serial numbers of the
// list. invalid_argument (certs.serial.invalid).
absl::StatusOr<std::set<std::string>> RevokeCertificates(const std::string& folder,
                                                         const std::vector<std::string>& serials,
                                                         int64_t now_s);

}  // namespace tilewright::security
