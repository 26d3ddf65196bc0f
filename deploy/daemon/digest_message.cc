#include "deploy/daemon/digest_message.h"

#include "deploy/support/strings.h"

namespace tilewright::daemon {

v1::Digest MakeDigest(std::string_view sha256_hex, int64_t size_bytes) {
  v1::Digest digest;
  digest.set_algorithm("sha256");
  digest.set_hash(support::HexDecode(sha256_hex).value_or(""));
  digest.set_size_bytes(size_bytes);
  return digest;
}

absl::StatusOr<std::string> DigestToHex(const v1::Digest& digest) {
  if (digest.algorithm() != "sha256" || digest.hash().size() != 32) {
    return support::InvalidArgument("artifact.digest.invalid",
                                    support::StrCat("expected a sha256 of 32 bytes, found ",
                                                    support::Quote(digest.algorithm(), 32), " of ",
                                                    digest.hash().size(), " bytes"));
  }
  return support::HexEncode(digest.hash());
}

}  // namespace tilewright::daemon
