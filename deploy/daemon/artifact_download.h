// Fetches an artifact into a file. After a broken connection or a kill of the client, only the
// bytes that had not arrived are fetched again. Blocking; one download per path at a time.
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

// Returns where the bytes are collected until they are complete: a file next to `path`, named by
// the digest, so that parts of different artifacts never mix.
std::string PartPath(const std::string& path, std::string_view hex);

// Fetches the artifact named `hex`. Replaces `path` atomically once all bytes are there and their
// digest is right. Resumes where an earlier call for the same path and digest ended, and up to
// `attempts` times if the connection breaks. After a lasting error the part stays for the next
// call. A damaged part is fetched again. not_found if the server lacks the artifact; data_loss
// (artifact.read.digest_mismatch) if the server's bytes are wrong.
absl::StatusOr<DownloadStats> DownloadArtifact(v1::ArtifactService::StubInterface* stub,
                                               std::string_view hex, const std::string& path,
                                               int64_t timeout_ms, int attempts = 5);

}  // namespace tilewright::daemon
