// Identities with subject alternative names that `tilewright certs` never makes, as another
// authority of a company may sign them. For tests of who is let in.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "deploy/support/status.h"

namespace tilewright::tests {

// Writes an identity (ca.pem, cert.pem, key.pem) whose certificate is signed by the authority in
// the folder `pki`, for clients and servers, with exactly these URIs (any bytes).
absl::Status IssueWithUris(const std::string& pki, const std::vector<std::string>& uris,
                           const std::string& folder, int64_t now_s);

}  // namespace tilewright::tests
