// Requests to sign a key (PKCS #10). A machine makes its own key and asks for a certificate with
// it, so that the key never leaves that machine. A request contains the public key and nothing
// else; the one who signs it decides the name (SignRequest of authority.h). Functions read and
// write files. REQUIRES: one call at a time per folder.
#pragma once

#include <string>
#include <string_view>

#include "deploy/support/status.h"

namespace tilewright::security {

// Makes the folder (0700), its key.pem (0600) and request.pem. A key.pem that exists is used again,
// as for a renewal. Returns the fingerprint of the key, which people compare on both machines.
// failed_precondition (identity.key.permissions), invalid_argument (certs.file.invalid).
absl::StatusOr<std::string> RequestIdentity(const std::string& folder);

// Returns the fingerprint of a request's key. invalid_argument (certs.request.invalid) if the text
// is no request, if the key's owner has not signed it, or if the key is too weak.
absl::StatusOr<std::string> RequestFingerprint(std::string_view pem);

}  // namespace tilewright::security
