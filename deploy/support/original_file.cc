#include "deploy/support/original_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "deploy/support/file.h"
#include "deploy/support/strings.h"

namespace tilewright::support {
namespace {

constexpr char kTemporarySuffix[] = ".new";
constexpr uint64_t kFirstLineBytes = 128;

// The line that says which file it is. `fd` open, or negative: the file at `path`.
absl::StatusOr<std::string> IdentityLine(int fd, const std::string& path) {
  struct statx info{};
  const int flags = fd >= 0 ? AT_EMPTY_PATH : AT_SYMLINK_NOFOLLOW;
  if (statx(fd >= 0 ? fd : AT_FDCWD, fd >= 0 ? "" : path.c_str(), flags, STATX_INO | STATX_BTIME,
            &info) != 0) {
    return ErrnoError(errno, "file.original.failed", path);
  }
  std::string line = StrCat("inode ", info.stx_ino);
  if ((info.stx_mask & STATX_BTIME) != 0) {
    line += StrCat(" created ", info.stx_btime.tv_sec, ".", info.stx_btime.tv_nsec);
  }
  return line + "\n";
}

absl::Status WriteSynced(int fd, std::string_view data, const std::string& path) {
  while (!data.empty()) {
    const ssize_t written = write(fd, data.data(), data.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return ErrnoError(errno, "file.write.failed", path);
    data.remove_prefix(static_cast<size_t>(written));
  }
  return fsync(fd) == 0 ? absl::OkStatus() : ErrnoError(errno, "file.write.failed", path);
}

absl::Status SyncFolder(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return ErrnoError(errno, "file.write.failed", path);
  const bool synced = fsync(fd) == 0;
  const int error = errno;
  close(fd);
  return synced ? absl::OkStatus() : ErrnoError(error, "file.write.failed", path);
}

}  // namespace

absl::Status WriteOriginalFile(const std::string& path, std::string_view text) {
  const std::string temporary = path + kTemporarySuffix;
  TW_TRY(RemoveFile(temporary));  // of a crash
  const int fd = open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (fd < 0) return ErrnoError(errno, "file.write.failed", temporary);
  absl::StatusOr<std::string> line = IdentityLine(fd, temporary);
  absl::Status status = line.status();
  if (status.ok()) status = WriteSynced(fd, StrCat(*line, text), temporary);
  close(fd);
  if (status.ok() && rename(temporary.c_str(), path.c_str()) != 0) {
    status = ErrnoError(errno, "file.write.failed", path);
  }
  if (!status.ok()) {
    unlink(temporary.c_str());
    return status;
  }
  return SyncFolder(DirName(path));
}

absl::StatusOr<std::string> ReadOriginalFile(const std::string& path, uint64_t max_bytes) {
  TW_ASSIGN(const std::string content, ReadFile(path, max_bytes + kFirstLineBytes));
  TW_ASSIGN(const std::string line, IdentityLine(-1, path));
  if (content.compare(0, line.size(), line) == 0) return content.substr(line.size());
  return FailedPrecondition(
      "file.original.copy",
      StrCat(path, " is a copy: expected ", Quote(line), " at its beginning, found ",
             Quote(content.substr(0, content.find('\n') + 1), kFirstLineBytes)));
}

}  // namespace tilewright::support
