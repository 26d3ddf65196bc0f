#include "deploy/support/scratch_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "deploy/support/env.h"

namespace tilewright::support {
namespace {

// Sweeps of other processes may take a folder in the moment before it is locked.
constexpr int kAttempts = 10;

// The descriptor of the folder, locked; -1 with errno if another process holds it (EWOULDBLOCK), it
// is gone (ENOENT), or it is not ours.
int LockFolder(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) return -1;
  struct stat opened{};
  struct stat named{};
  const bool locked =
      fstat(fd, &opened) == 0 && opened.st_uid == geteuid() && flock(fd, LOCK_EX | LOCK_NB) == 0;
  int why = errno;
  const bool named_so = locked && lstat(path.c_str(), &named) == 0 &&
                        named.st_ino == opened.st_ino && named.st_dev == opened.st_dev;
  if (named_so) return fd;
  if (locked) why = ENOENT;
  close(fd);
  errno = why;
  return -1;
}

std::string ParentOf(const std::string& parent) {
  return parent.empty() ? GetEnv("TMPDIR").value_or("/tmp") : parent;
}

}  // namespace

absl::StatusOr<ScratchFolder> ScratchFolder::Create(std::string_view prefix,
                                                    const std::string& parent) {
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    TW_ASSIGN(TempDir folder, TempDir::Create(prefix, ParentOf(parent)));
    const int lock = LockFolder(folder.path());
    // A file system without locks: no sweep can take one there either.
    const bool taken = lock < 0 && (errno == EWOULDBLOCK || errno == ENOENT);
    if (!taken) return ScratchFolder(std::move(folder), lock);
  }
  return ErrnoError(errno, "file.tempdir.failed", "cannot lock a folder in " + ParentOf(parent));
}

ScratchFolder::ScratchFolder(ScratchFolder&& other) noexcept
    : folder_(std::move(other.folder_)), lock_(std::exchange(other.lock_, -1)) {}

ScratchFolder::~ScratchFolder() {
  // The folder goes first: an unlocked one may be swept by another process meanwhile.
  {
    const TempDir gone = std::move(folder_);
  }
  if (lock_ >= 0) close(lock_);
}

int SweepScratchFolders(std::string_view prefix, const std::string& parent) {
  const std::string base = ParentOf(parent);
  const auto names = ListDir(base);
  if (!names.ok()) return 0;
  int removed = 0;
  for (const std::string& name : *names) {
    if (!name.starts_with(prefix)) continue;
    const std::string path = PathJoin(base, name);
    const int lock = LockFolder(path);
    if (lock < 0) continue;
    if (RemoveTree(path).ok()) ++removed;
    close(lock);
  }
  return removed;
}

}  // namespace tilewright::support
