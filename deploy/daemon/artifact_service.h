// ArtifactService over a BlobStore, for the tracker and the tuner, and the matching client calls.
// The service is thread-safe; it does not own the store. Client functions block.
#pragma once

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "deploy/daemon/blob_store.h"
#include "deploy/daemon/metrics.h"
#include "deploy/support/status.h"
#include "tilewright/v1/artifact.grpc.pb.h"

namespace tilewright::daemon {

struct ArtifactServiceOptions {
  int64_t max_artifact_bytes = int64_t{4} << 30;  // larger uploads are refused
  bool read_only = false;                         // refuse Write and BatchWrite
  Metrics* metrics = nullptr;                     // not owned
};

class ArtifactServiceImpl final : public v1::ArtifactService::CallbackService {
 public:
  ArtifactServiceImpl(BlobStore* store, ArtifactServiceOptions options);

  grpc::ServerUnaryReactor* FindMissing(grpc::CallbackServerContext* context,
                                        const v1::FindMissingRequest* request,
                                        v1::FindMissingResponse* response) override;
  grpc::ServerUnaryReactor* BatchWrite(grpc::CallbackServerContext* context,
                                       const v1::BatchWriteRequest* request,
                                       v1::BatchWriteResponse* response) override;
  grpc::ServerReadReactor<v1::WriteChunk>* Write(grpc::CallbackServerContext* context,
                                                 v1::WriteResponse* response) override;
  grpc::ServerWriteReactor<v1::Chunk>* Read(grpc::CallbackServerContext* context,
                                            const v1::ReadRequest* request) override;

 private:
  void Count(const char* direction, int64_t bytes);

  BlobStore* store_;
  ArtifactServiceOptions options_;
};

inline constexpr char kArtifactServiceName[] = "tilewright.v1.ArtifactService";

// Which of these the server lacks (hexadecimal digests).
absl::StatusOr<std::vector<std::string>> FindMissingArtifacts(
    v1::ArtifactService::StubInterface* stub, const std::vector<std::string>& hex_digests,
    int64_t timeout_ms);

// Streams the bytes to the server. `timeout_ms` is for the whole transfer.
absl::Status UploadArtifact(v1::ArtifactService::StubInterface* stub, std::string_view hex,
                            std::string_view data, int64_t timeout_ms);

// Uploads what the server lacks of these, taking the bytes from `store`: small ones together, large
// ones streamed.
absl::Status UploadMissingArtifacts(v1::ArtifactService::StubInterface* stub, BlobStore* store,
                                    const std::vector<std::string>& hex_digests,
                                    int64_t timeout_ms);

// Fetches a blob into the store and verifies it; does nothing if it is there. not_found if the
// server lacks it. If the connection breaks, resumes at the byte it had reached, up to `attempts`
// times.
absl::Status FetchArtifact(v1::ArtifactService::StubInterface* stub, BlobStore* store,
                           std::string_view hex, int64_t timeout_ms, int attempts = 3);

// Fetches a blob, calling `sink` with its pieces in order; the digest is verified at the end
// (data_loss, artifact.read.digest_mismatch).
absl::Status StreamArtifact(v1::ArtifactService::StubInterface* stub, std::string_view hex,
                            int64_t timeout_ms,
                            const std::function<absl::Status(std::string_view)>& sink);

// Streams the bytes from `*offset` to the end into the sink. `*offset` follows what the sink has
// taken, so that the caller can resume after an error. The caller checks the digest.
absl::Status StreamArtifactFrom(v1::ArtifactService::StubInterface* stub, std::string_view hex,
                                int64_t timeout_ms, int64_t* offset,
                                const std::function<absl::Status(std::string_view)>& sink);

}  // namespace tilewright::daemon
