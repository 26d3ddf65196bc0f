#include "deploy/daemon/artifact_download.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <optional>
#include <utility>

#include "deploy/daemon/artifact_service.h"
#include "deploy/daemon/wire.h"
#include "deploy/support/clock.h"
#include "deploy/support/file.h"
#include "deploy/support/hash.h"
#include "deploy/support/strings.h"

namespace tilewright::daemon {
namespace {

constexpr size_t kNameDigits = 16;
constexpr size_t kReadBytes = size_t{1} << 20;

// The file that grows, and the digest of what it holds.
class Part {
 public:
  // Takes over what is there. resource errors as the file system has them.
  static absl::StatusOr<Part> Open(const std::string& path) {
    Part part(path);
    part.fd_ = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (part.fd_ < 0) return support::ErrnoError(errno, "file.write.failed", path);
    std::string buffer(kReadBytes, '\0');
    for (;;) {
      const ssize_t got = read(part.fd_, buffer.data(), buffer.size());
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return support::ErrnoError(errno, "file.read.failed", path);
      if (got == 0) return part;
      part.hash_.Update({buffer.data(), static_cast<size_t>(got)});
      part.size_ += got;
    }
  }
  Part(Part&& other) noexcept
      : path_(std::move(other.path_)),
        fd_(std::exchange(other.fd_, -1)),
        size_(other.size_),
        hash_(other.hash_) {}
  ~Part() {
    if (fd_ >= 0) close(fd_);
  }

  int64_t size() const { return size_; }

  absl::Status Append(std::string_view data) {
    hash_.Update(data);
    size_ += static_cast<int64_t>(data.size());
    while (!data.empty()) {
      const ssize_t put = write(fd_, data.data(), data.size());
      if (put < 0 && errno == EINTR) continue;
      if (put < 0) return support::ErrnoError(errno, "file.write.failed", path_);
      data.remove_prefix(static_cast<size_t>(put));
    }
    return absl::OkStatus();
  }

  // Makes it the file at `path`. REQUIRES: called once, last.
  absl::Status MoveTo(const std::string& path, std::string_view hex) {
    const std::string found = support::DigestHex(hash_.Finish());
    if (found != hex) {
      return support::DataLoss("artifact.read.digest_mismatch",
                               support::StrCat("expected ", hex, ", found ", found));
    }
    if (fsync(fd_) != 0 || rename(path_.c_str(), path.c_str()) != 0) {
      return support::ErrnoError(errno, "file.write.failed", path);
    }
    return absl::OkStatus();
  }

 private:
  explicit Part(std::string path) : path_(std::move(path)) {}
  std::string path_;
  int fd_ = -1;
  int64_t size_ = 0;
  support::Sha256 hash_;
};

// One download from whatever is there; nothing when the part must be fetched anew.
absl::StatusOr<std::optional<DownloadStats>> Try(v1::ArtifactService::StubInterface* stub,
                                                 std::string_view hex, const std::string& path,
                                                 int64_t timeout_ms, int attempts) {
  const std::string part_path = PartPath(path, hex);
  TW_ASSIGN(Part part, Part::Open(part_path));
  DownloadStats stats;
  stats.resumed_bytes = part.size();
  int64_t offset = part.size();
  Backoff backoff(support::Rng(static_cast<uint64_t>(getpid())), 2'000);
  absl::Status status;
  for (int attempt = 0; attempt < attempts; ++attempt) {
    if (attempt > 0) support::SleepMs(backoff.NextMs());
    status = StreamArtifactFrom(stub, hex, timeout_ms, &offset,
                                [&part](std::string_view piece) { return part.Append(piece); });
    if (status.ok() || !absl::IsUnavailable(status)) break;
  }
  stats.moved_bytes = part.size() - stats.resumed_bytes;
  // Too long a part is refused by the server, a damaged one by its digest.
  const bool part_may_be_wrong = stats.resumed_bytes > 0;
  if (status.ok()) status = part.MoveTo(path, hex);
  if (status.ok()) return stats;
  if (absl::IsDataLoss(status) || absl::IsOutOfRange(status) || absl::IsInvalidArgument(status)) {
    TW_TRY(support::RemoveFile(part_path));
    if (part_may_be_wrong) return std::optional<DownloadStats>();
  }
  if (part.size() == 0) (void)support::RemoveFile(part_path);  // nothing worth keeping
  return status;
}

}  // namespace

std::string PartPath(const std::string& path, std::string_view hex) {
  return support::StrCat(path, ".", hex.substr(0, kNameDigits), ".part");
}

absl::StatusOr<DownloadStats> DownloadArtifact(v1::ArtifactService::StubInterface* stub,
                                               std::string_view hex, const std::string& path,
                                               int64_t timeout_ms, int attempts) {
  TW_ASSIGN(std::optional<DownloadStats> stats, Try(stub, hex, path, timeout_ms, attempts));
  if (stats) return *stats;
  TW_ASSIGN(stats, Try(stub, hex, path, timeout_ms, attempts));
  if (stats) return *stats;
  return support::DataLoss("artifact.read.digest_mismatch", "the part was damaged twice");
}

}  // namespace tilewright::daemon
