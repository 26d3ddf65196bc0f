// Certificates that do not count any more though they have not ended: an X.509 revocation list,
// crl.pem, signed by the authority (authority.h makes it) and lying in the identity folder of each
// daemon that listens. Thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>

#include "deploy/support/clock.h"
#include "deploy/support/file.h"
#include "deploy/support/mutex.h"
#include "deploy/support/status.h"

namespace tilewright::security {

inline constexpr char kRevocationFile[] = "crl.pem";

// The serial numbers (as in CertificateInfo) of a list that one of the authorities has signed.
// invalid_argument (certs.revocations.invalid), failed_precondition (certs.revocations.untrusted).
absl::StatusOr<std::set<std::string>> ReadRevocations(std::string_view pem,
                                                      std::string_view authorities_pem);

// The list in an identity folder, read again within a second of a change.
class RevocationList {
 public:
  // No file is an empty list; a bad one is ReadRevocations' error. The clock is not owned.
  static absl::StatusOr<std::unique_ptr<RevocationList>> Open(const std::string& identity,
                                                              support::Clock* clock);

  // unauthenticated (auth.certificate.revoked) when the list has this certificate (PEM, of a
  // handshake that verified it).
  absl::Status Check(std::string_view certificate_pem) TW_EXCLUDES(mutex_);

  // Why the file could not be read lately, also when it is gone; the list read last goes on
  // counting.
  absl::Status FileStatus() TW_EXCLUDES(mutex_);

 private:
  RevocationList(std::string identity, support::Clock* clock)
      : identity_(std::move(identity)), clock_(clock) {}
  absl::Status Reload() TW_REQUIRES(mutex_);

  const std::string identity_;
  support::Clock* const clock_;
  support::Mutex mutex_;
  std::set<std::string> serials_ TW_GUARDED_BY(mutex_);
  std::string read_ TW_GUARDED_BY(mutex_);  // the text that serials_ are of
  // Serial numbers of certificates seen, so that a connection's is parsed once.
  std::map<std::string, std::string, std::less<>> seen_ TW_GUARDED_BY(mutex_);
  int64_t next_look_ns_ TW_GUARDED_BY(mutex_) = 0;
  absl::Status file_status_ TW_GUARDED_BY(mutex_);
};

}  // namespace tilewright::security
