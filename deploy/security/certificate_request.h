// Requests to sign a key (PKCS #10): whoever will be an identity makes its own key and asks with
// it, so that the key never leaves its machine. A request carries the key and nothing else: whose
// it is, whoever signs it says (SignRequest of authority.h). Functions touch files; one at a time
// per folder.
#pragma once

#include <string>
#include <string_view>

#include "deploy/support/status.h"

namespace tilewright::security {

// Makes the folder (0700), its key.pem (0600) unless one is there (which then goes on, as for a
// renewal), and request.pem. Returns the fingerprint of the key, to be compared by voice.
// failed_precondition (identity.key.permissions), invalid_argument (certs.file.invalid).
absl::StatusOr<std::string> RequestIdentity(const std::string& folder);

// The same of a request's key. invalid_argument (certs.request.invalid): no request, one that the
// key's owner has not signed, a key that is too weak.
absl::StatusOr<std::string> RequestFingerprint(std::string_view pem);

}  // namespace tilewright::security
