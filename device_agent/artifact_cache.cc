#include "device_agent/artifact_cache.h"

#include <utility>

#include "deploy/daemon/artifact_service.h"
#include "deploy/daemon/wire.h"

namespace tilewright::device_agent {
namespace {

constexpr int64_t kFetchTimeoutMs = 60'000;

}  // namespace

absl::StatusOr<std::unique_ptr<ArtifactCache>> ArtifactCache::Open(
    const std::string& dir, int64_t max_bytes, v1::ArtifactService::StubInterface* stub) {
  TW_ASSIGN(std::unique_ptr<daemon::BlobStore> store,
            daemon::BlobStore::Open(dir, daemon::BlobStore::Durability::kCache));
  return std::unique_ptr<ArtifactCache>(new ArtifactCache(std::move(store), max_bytes, stub));
}

absl::StatusOr<std::string> ArtifactCache::Get(const v1::Digest& digest, bool* fetched) {
  TW_ASSIGN(const std::string hex, daemon::DigestToHex(digest));
  if (store_->Contains(hex)) {
    auto bytes = store_->Get(hex);
    // What went bad on the disk is removed by the store and fetched again.
    if (bytes.ok() || !absl::IsDataLoss(bytes.status())) return bytes;
  }
  *fetched = true;
  TW_TRY(daemon::FetchArtifact(stub_, store_.get(), hex, kFetchTimeoutMs));
  TW_ASSIGN(std::string bytes, store_->Get(hex));
  store_->Collect(max_bytes_, [](const std::string&) { return false; });
  return bytes;
}

}  // namespace tilewright::device_agent
