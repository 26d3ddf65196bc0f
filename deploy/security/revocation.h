// Certificates that were revoked before their end: an X.509 revocation list, crl.pem, signed by the
// authority (authority.h makes it), in the identity folder of each daemon and client. Thread-safe.
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

// Returns the serial numbers (as in CertificateInfo) of a list that one of the authorities signed.
// invalid_argument (certs.revocations.invalid), failed_precondition (certs.revocations.untrusted).
absl::StatusOr<std::set<std::string>> ReadRevocations(std::string_view pem,
                                                      std::string_view authorities_pem);

// The list in an identity folder, read again within a second of a change.
class RevocationList {
 public:
  // No file means an empty list; for a bad one, errors of ReadRevocations. The clock is not owned.
  static absl::StatusOr<std::unique_ptr<RevocationList>> Open(const std::string& identity,
                                                              support::Clock* clock);

  // unauthenticated (auth.certificate.revoked) if the list has this certificate (PEM, which a
  // handshake verified).
  absl::Status Check(std::string_view certificate_pem) TW_EXCLUDES(mutex_);

  // Returns why the file could not be read, also if it was removed. Until it can be read, the list
  // read last counts.
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
