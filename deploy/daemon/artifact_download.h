// Fetching an artifact into a file, so that a broken connection or a killed client costs only what
// had not arrived yet. Blocking; one download per path at a time.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "deploy/support/status.h"
#include "tilewright/v1/artifact.grpc.pb.h"

namespace tilewright::daemon {

struct DownloadStats {
  int64_t resumed_bytes = 0;  // that an earlier download had left
  int64_t moved_bytes = 0;    // that came over the wire
};

// Where the bytes gather until they are all there: beside `path`, named by the digest, so that
// parts of different artifacts never mix.
std::string PartPath(const std::string& path, std::string_view hex);

// Fetches the artifact named `hex` to `path`, which is replaced at once when all bytes are there
// and their digest is right. Goes on where an earlier call for the same path and digest ended, and
// up to `attempts` times when the connection breaks; after a lasting error the part stays for the
// next call. A part that turns out to be damaged is fetched anew. not_found when the server lacks
// it; data_loss (artifact.read.digest_mismatch) when its bytes are wrong.
absl::StatusOr<DownloadStats> DownloadArtifact(v1::ArtifactService::StubInterface* stub,
                                               std::string_view hex, const std::string& path,
                                               int64_t timeout_ms, int attempts = 5);

}  // namespace tilewright::daemon
