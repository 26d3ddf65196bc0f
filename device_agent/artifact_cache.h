// The artifacts that an agent has fetched from the tracker, by digest, under the state folder.
// Every read verifies them; beyond a size the least recently used are dropped. Thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "deploy/daemon/blob_store.h"
#include "deploy/support/status.h"
#include "tilewright/v1/artifact.grpc.pb.h"

namespace tilewright::device_agent {

class ArtifactCache {
 public:
  // `stub` is the tracker's ArtifactService; it is not owned.
  static absl::StatusOr<std::unique_ptr<ArtifactCache>> Open(
      const std::string& dir, int64_t max_bytes, v1::ArtifactService::StubInterface* stub);

  // Returns the artifact's bytes; fetches them first if they are not here. not_found if the tracker
  // does not have it, data_loss if the bytes have another digest; unavailable and deadline_exceeded
  // are worth another try. Sets `fetched` if it called the tracker.
  absl::StatusOr<std::string> Get(const v1::Digest& digest, bool* fetched);

 private:
  ArtifactCache(std::unique_ptr<daemon::BlobStore> store, int64_t max_bytes,
                v1::ArtifactService::StubInterface* stub)
      : store_(std::move(store)), max_bytes_(max_bytes), stub_(stub) {}

  const std::unique_ptr<daemon::BlobStore> store_;
  const int64_t max_bytes_;
  v1::ArtifactService::StubInterface* const stub_;
};

}  // namespace tilewright::device_agent
