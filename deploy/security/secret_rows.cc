#include "deploy/security/secret_rows.h"

#include <openssl/rand.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

#include "deploy/support/strings.h"

namespace tilewright::security {

absl::StatusOr<std::string> RandomHex(size_t bytes) {
  std::string drawn(bytes, '\0');
  if (RAND_bytes(reinterpret_cast<unsigned char*>(drawn.data()), static_cast<int>(bytes)) != 1) {
    return support::Internal("tokens.random.failed", "no randomness from the system");
  }
  return support::HexEncode(drawn);
}

bool IsHex(std::string_view text, size_t digits) {
  return text.size() == digits &&
         text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

absl::StatusOr<support::FileLock> LockSecretRows(const std::string& path) {
  constexpr int64_t kPatienceMs = 1'000;
  const std::string lock_path = path + ".lock";
  auto lock = support::FileLock::Lock(lock_path, kPatienceMs);
  struct stat rows{};
  // What root changes for a daemon stays within the daemon's reach.
  if (lock.ok() && geteuid() == 0 && stat(path.c_str(), &rows) == 0 && rows.st_uid != 0 &&
      chown(lock_path.c_str(), rows.st_uid, rows.st_gid) != 0) {
    return support::ErrnoError(errno, "tokens.file.owner", lock_path);
  }
  return lock;
}

absl::Status WriteSecretRows(const std::string& path, const std::string& text) {
  struct stat before{};
  const bool there = stat(path.c_str(), &before) == 0;
  if (!there) return support::WriteFileAtomic(path, text, 0600);
  TW_TRY(support::WriteFileAtomic(path, text, before.st_mode & 0777));
  if (before.st_uid == geteuid() && before.st_gid == getegid()) return absl::OkStatus();
  if (chown(path.c_str(), before.st_uid, before.st_gid) == 0) return absl::OkStatus();
  return support::ErrnoError(errno, "tokens.file.owner", path);
}

}  // namespace tilewright::security
