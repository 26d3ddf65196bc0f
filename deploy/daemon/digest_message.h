// The protocol's Digest and a SHA-256 in lower-case hexadecimal, one as the other. Pure functions;
// thread-safe. Links no gRPC.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "deploy/support/status.h"
#include "tilewright/v1/common.pb.h"

namespace tilewright::daemon {

v1::Digest MakeDigest(std::string_view sha256_hex, int64_t size_bytes);
// invalid_argument (artifact.digest.invalid) unless it is a sha256 of 32 bytes.
absl::StatusOr<std::string> DigestToHex(const v1::Digest& digest);

}  // namespace tilewright::daemon
