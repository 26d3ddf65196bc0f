#include "deploy/support/state_folder.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "deploy/support/file.h"
#include "deploy/support/strings.h"

namespace tilewright::support {

namespace {

absl::Status MakeParents(const std::string& path) {
  const std::string parent = DirName(path);
  if (parent == path || IsDirectory(parent)) return absl::OkStatus();
  TW_TRY(MakeParents(parent));
  if (mkdir(parent.c_str(), 0700) == 0 || errno == EEXIST) return absl::OkStatus();
  return ErrnoError(errno, "file.mkdir.failed", parent);
}

}  // namespace

absl::StatusOr<bool> MakeStateFolder(const std::string& path) {
  constexpr mode_t kOthers = 077;
  TW_TRY(MakeParents(path));
  if (mkdir(path.c_str(), 0700) == 0) return false;
  if (errno != EEXIST) return ErrnoError(errno, "file.mkdir.failed", path);
  struct stat info{};
  if (stat(path.c_str(), &info) != 0) return ErrnoError(errno, "file.mkdir.failed", path);
  if (!S_ISDIR(info.st_mode)) return ErrnoError(ENOTDIR, "file.mkdir.failed", path);
  if ((info.st_mode & kOthers) == 0) return false;
  const bool ours = info.st_uid == geteuid() || geteuid() == 0;
  if (ours && (info.st_mode & S_ISVTX) == 0 &&
      chmod(path.c_str(), info.st_mode & 07777 & ~kOthers) == 0) {
    return true;
  }
  return FailedPrecondition(
      "state.folder.shared",
      StrCat("expected a folder for this user alone, found ", path, " of user ", info.st_uid,
             " with mode ", std::oct, info.st_mode & 07777));
}

}  // namespace tilewright::support
