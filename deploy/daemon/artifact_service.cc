#include "deploy/daemon/artifact_service.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "deploy/daemon/wire.h"
#include "deploy/support/strings.h"

namespace tilewright::daemon {
namespace {

// Bytes of all artifacts in one BatchWrite.
constexpr int64_t kBatchBytes = 3 << 20;

grpc::ServerUnaryReactor* Finish(grpc::CallbackServerContext* context, const absl::Status& status) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(ToGrpc(status));
  return reactor;
}

// One upload. gRPC calls its methods one after the other.
class WriteReactor final : public grpc::ServerReadReactor<v1::WriteChunk> {
 public:
  WriteReactor(BlobStore* store, const ArtifactServiceOptions& options, v1::WriteResponse* response)
      : store_(store), options_(options), response_(response) {
    if (options_.read_only) {
      FinishOnce(support::PermissionDenied("artifact.write.read_only", "this store is read-only"));
      return;
    }
    StartRead(&chunk_);
  }

  void OnReadDone(bool ok) override {
    if (finished_) return;
    if (!ok) {
      FinishOnce(support::InvalidArgument("artifact.write.incomplete",
                                          "the stream ended before a chunk with finish"));
      return;
    }
    const absl::Status status = Take();
    if (!status.ok() || complete_) {
      FinishOnce(status);
      return;
    }
    StartRead(&chunk_);
  }

  void OnDone() override { delete this; }

 private:
  absl::Status Take() {
    if (writer_ == nullptr) {
      TW_ASSIGN(hex_, DigestToHex(chunk_.digest()));
      TW_ASSIGN(writer_, store_->NewWriter());
    }
    if (chunk_.offset() != writer_->size()) {
      return support::InvalidArgument(
          "artifact.write.offset",
          support::StrCat("expected offset ", writer_->size(), ", found ", chunk_.offset()));
    }
    if (writer_->size() + static_cast<int64_t>(chunk_.data().size()) >
        options_.max_artifact_bytes) {
      return support::ResourceExhausted(
          "artifact.write.too_large",
          support::StrCat("expected at most ", options_.max_artifact_bytes, " bytes"));
    }
    TW_TRY(writer_->Append(chunk_.data()));
    if (!chunk_.finish()) return absl::OkStatus();
    TW_TRY(writer_->Commit(hex_).status());
    response_->set_committed_size(writer_->size());
    response_->set_complete(true);
    if (options_.metrics != nullptr) {
      options_.metrics
          ->Counter("tilewright_artifact_bytes_total", "bytes of artifacts moved",
                    {{"direction", "in"}})
          .Increment(static_cast<double>(writer_->size()));
    }
    complete_ = true;
    return absl::OkStatus();
  }

  void FinishOnce(const absl::Status& status) {
    finished_ = true;
    writer_.reset();  // removes what is not committed
    Finish(ToGrpc(status));
  }

  BlobStore* store_;
  const ArtifactServiceOptions& options_;
  v1::WriteResponse* response_;
  v1::WriteChunk chunk_;
  std::string hex_;
  std::unique_ptr<BlobStore::Writer> writer_;
  bool complete_ = false;
  bool finished_ = false;
};

// One download, from a mapping that was verified when it was opened.
class ReadReactor final : public grpc::ServerWriteReactor<v1::Chunk> {
 public:
  ReadReactor(BlobStore* store, Metrics* metrics, const v1::ReadRequest& request)
      : metrics_(metrics) {
    const absl::Status status = Open(store, request);
    if (!status.ok()) {
      Finish(ToGrpc(status));
      return;
    }
    Next();
  }

  void OnWriteDone(bool ok) override {
    if (!ok) {
      Finish(grpc::Status::CANCELLED);
      return;
    }
    Next();
  }

  void OnDone() override { delete this; }

 private:
  absl::Status Open(BlobStore* store, const v1::ReadRequest& request) {
    TW_ASSIGN(const std::string hex, DigestToHex(request.digest()));
    TW_ASSIGN(file_, store->Map(hex));
    const int64_t size = static_cast<int64_t>(file_->size());
    if (request.digest().size_bytes() != 0 && request.digest().size_bytes() != size) {
      return support::InvalidArgument(
          "artifact.digest.size",
          support::StrCat("expected ", size, " bytes, found ", request.digest().size_bytes()));
    }
    if (request.offset() < 0 || request.offset() > size || request.limit() < 0) {
      return support::InvalidArgument(
          "artifact.read.range",
          support::StrCat("expected an offset in 0..", size, ", found ", request.offset()));
    }
    offset_ = request.offset();
    end_ = request.limit() == 0 ? size : std::min(size, offset_ + request.limit());
    empty_ = offset_ == end_;
    return absl::OkStatus();
  }

  void Next() {
    // An empty range still gives one (empty) chunk, so that a client sees that it was answered.
    if (offset_ == end_ && !empty_) {
      Finish(grpc::Status::OK);
      return;
    }
    empty_ = false;
    const int64_t size = std::min(kChunkBytes, end_ - offset_);
    chunk_.set_offset(offset_);
    chunk_.set_data(file_->view().data() + offset_, static_cast<size_t>(size));
    offset_ += size;
    if (metrics_ != nullptr) {
      metrics_
          ->Counter("tilewright_artifact_bytes_total", "bytes of artifacts moved",
                    {{"direction", "out"}})
          .Increment(static_cast<double>(size));
    }
    StartWrite(&chunk_);
  }

  Metrics* metrics_;
  std::optional<support::MappedFile> file_;
  int64_t offset_ = 0;
  int64_t end_ = 0;
  bool empty_ = false;
  v1::Chunk chunk_;
};

}  // namespace

ArtifactServiceImpl::ArtifactServiceImpl(BlobStore* store, ArtifactServiceOptions options)
    : store_(store), options_(options) {}

void ArtifactServiceImpl::Count(const char* direction, int64_t bytes) {
  if (options_.metrics == nullptr) return;
  options_.metrics
      ->Counter("tilewright_artifact_bytes_total", "bytes of artifacts moved",
                {{"direction", direction}})
      .Increment(static_cast<double>(bytes));
}

grpc::ServerUnaryReactor* ArtifactServiceImpl::FindMissing(grpc::CallbackServerContext* context,
                                                           const v1::FindMissingRequest* request,
                                                           v1::FindMissingResponse* response) {
  for (const v1::Digest& digest : request->digests()) {
    const auto hex = DigestToHex(digest);
    if (!hex.ok()) return Finish(context, hex.status());
    if (!store_->Contains(*hex)) *response->add_missing() = digest;
  }
  return Finish(context, absl::OkStatus());
}

grpc::ServerUnaryReactor* ArtifactServiceImpl::BatchWrite(grpc::CallbackServerContext* context,
                                                          const v1::BatchWriteRequest* request,
                                                          v1::BatchWriteResponse* response) {
  if (options_.read_only) {
    return Finish(context,
                  support::PermissionDenied("artifact.write.read_only", "this store is read-only"));
  }
  int64_t total = 0;
  for (const v1::InlineArtifact& artifact : request->artifacts()) {
    total += static_cast<int64_t>(artifact.data().size());
  }
  if (total > kBatchBytes) {
    return Finish(context, support::InvalidArgument(
                               "artifact.batch.too_large",
                               support::StrCat("expected at most ", kBatchBytes,
                                               " bytes in all, found ", total, "; use Write")));
  }
  for (const v1::InlineArtifact& artifact : request->artifacts()) {
    const auto hex = DigestToHex(artifact.digest());
    const absl::Status status =
        hex.ok() ? store_->PutVerified(*hex, artifact.data()) : hex.status();
    v1::WriteStatus* out = response->add_statuses();
    *out->mutable_digest() = artifact.digest();
    out->set_code(static_cast<int>(status.code()));
    if (!status.ok()) out->set_message(support::StatusText(status));
  }
  Count("in", total);
  return Finish(context, absl::OkStatus());
}

grpc::ServerReadReactor<v1::WriteChunk>* ArtifactServiceImpl::Write(grpc::CallbackServerContext*,
                                                                    v1::WriteResponse* response) {
  return new WriteReactor(store_, options_, response);
}

grpc::ServerWriteReactor<v1::Chunk>* ArtifactServiceImpl::Read(grpc::CallbackServerContext*,
                                                               const v1::ReadRequest* request) {
  return new ReadReactor(store_, options_.metrics, *request);
}

// --- client
// ----------------------------------------------------------------------------------------

absl::StatusOr<std::vector<std::string>> FindMissingArtifacts(
    v1::ArtifactService::StubInterface* stub, const std::vector<std::string>& hex_digests,
    int64_t timeout_ms) {
  v1::FindMissingRequest request;
  for (const std::string& hex : hex_digests) *request.add_digests() = MakeDigest(hex, 0);
  v1::FindMissingResponse response;
  grpc::ClientContext context;
  SetTimeout(&context, timeout_ms);
  TW_TRY(FromGrpc(stub->FindMissing(&context, request, &response)));
  std::vector<std::string> missing;
  for (const v1::Digest& digest : response.missing()) {
    TW_ASSIGN(missing.emplace_back(), DigestToHex(digest));
  }
  return missing;
}

absl::Status UploadArtifact(v1::ArtifactService::StubInterface* stub, std::string_view hex,
                            std::string_view data, int64_t timeout_ms) {
  grpc::ClientContext context;
  SetTimeout(&context, timeout_ms);
  v1::WriteResponse response;
  const auto writer = stub->Write(&context, &response);
  v1::WriteChunk chunk;
  *chunk.mutable_digest() = MakeDigest(hex, static_cast<int64_t>(data.size()));
  size_t offset = 0;
  do {
    const size_t size = std::min<size_t>(kChunkBytes, data.size() - offset);
    chunk.set_offset(static_cast<int64_t>(offset));
    chunk.set_data(data.data() + offset, size);
    offset += size;
    chunk.set_finish(offset == data.size());
    // A refused write shows its reason in the status.
    if (!writer->Write(chunk)) break;
    chunk.clear_digest();
  } while (offset < data.size());
  writer->WritesDone();
  TW_TRY(FromGrpc(writer->Finish()));
  if (!response.complete()) {
    return support::Internal("artifact.write.incomplete", "the server did not complete the upload");
  }
  return absl::OkStatus();
}

namespace {

// Sends the artifacts of one batch; the first refusal is the error.
absl::Status SendBatch(v1::ArtifactService::StubInterface* stub, v1::BatchWriteRequest* batch,
                       int64_t timeout_ms) {
  if (batch->artifacts().empty()) return absl::OkStatus();
  v1::BatchWriteResponse response;
  grpc::ClientContext context;
  SetTimeout(&context, timeout_ms);
  TW_TRY(FromGrpc(stub->BatchWrite(&context, *batch, &response)));
  batch->Clear();
  for (const v1::WriteStatus& status : response.statuses()) {
    if (status.code() != 0) {
      return absl::Status(static_cast<absl::StatusCode>(status.code()), status.message());
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status UploadMissingArtifacts(v1::ArtifactService::StubInterface* stub, BlobStore* store,
                                    const std::vector<std::string>& hex_digests,
                                    int64_t timeout_ms) {
  TW_ASSIGN(const std::vector<std::string> missing,
            FindMissingArtifacts(stub, hex_digests, timeout_ms));
  v1::BatchWriteRequest batch;
  int64_t batch_bytes = 0;
  for (const std::string& hex : missing) {
    TW_ASSIGN(const support::MappedFile file, store->Map(hex));
    const int64_t size = static_cast<int64_t>(file.size());
    if (size > kBatchBytes / 2) {
      TW_TRY(UploadArtifact(stub, hex, file.view(), timeout_ms));
      continue;
    }
    if (batch_bytes + size > kBatchBytes) {
      TW_TRY(SendBatch(stub, &batch, timeout_ms));
      batch_bytes = 0;
    }
    v1::InlineArtifact* artifact = batch.add_artifacts();
    *artifact->mutable_digest() = MakeDigest(hex, size);
    artifact->set_data(file.view().data(), file.size());
    batch_bytes += size;
  }
  return SendBatch(stub, &batch, timeout_ms);
}

absl::Status StreamArtifactFrom(v1::ArtifactService::StubInterface* stub, std::string_view hex,
                                int64_t timeout_ms, int64_t* offset,
                                const std::function<absl::Status(std::string_view)>& sink) {
  v1::ReadRequest request;
  *request.mutable_digest() = MakeDigest(hex, 0);
  request.set_offset(*offset);
  grpc::ClientContext context;
  SetTimeout(&context, timeout_ms);
  const auto reader = stub->Read(&context, request);
  v1::Chunk chunk;
  while (reader->Read(&chunk)) {
    absl::Status taken =
        chunk.offset() == *offset
            ? sink(chunk.data())
            : support::DataLoss("artifact.read.offset",
                                support::StrCat("expected ", *offset, ", found ", chunk.offset()));
    if (!taken.ok()) {
      context.TryCancel();
      (void)reader->Finish();
      return taken;
    }
    *offset += static_cast<int64_t>(chunk.data().size());
  }
  return FromGrpc(reader->Finish());
}

absl::Status FetchArtifact(v1::ArtifactService::StubInterface* stub, BlobStore* store,
                           std::string_view hex, int64_t timeout_ms, int attempts) {
  if (store->Contains(hex)) return absl::OkStatus();
  TW_ASSIGN(const std::unique_ptr<BlobStore::Writer> writer, store->NewWriter());
  int64_t offset = 0;
  absl::Status status;
  for (int attempt = 0; attempt < attempts; ++attempt) {
    status = StreamArtifactFrom(stub, hex, timeout_ms, &offset,
                                [&](std::string_view piece) { return writer->Append(piece); });
    if (status.ok()) return writer->Commit(hex).status();
    if (!absl::IsUnavailable(status)) return status;
  }
  return status;
}

absl::Status StreamArtifact(v1::ArtifactService::StubInterface* stub, std::string_view hex,
                            int64_t timeout_ms,
                            const std::function<absl::Status(std::string_view)>& sink) {
  support::Sha256 hash;
  int64_t offset = 0;
  TW_TRY(StreamArtifactFrom(stub, hex, timeout_ms, &offset, [&](std::string_view piece) {
    hash.Update(piece);
    return sink(piece);
  }));
  const std::string found = support::DigestHex(hash.Finish());
  if (found == hex) return absl::OkStatus();
  return support::DataLoss("artifact.read.digest_mismatch",
                           support::StrCat("expected ", hex, ", found ", found));
}

}  // namespace tilewright::daemon
