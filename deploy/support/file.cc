#include "deploy/support/file.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "deploy/support/clock.h"
#include "deploy/support/env.h"
#include "deploy/support/failpoint.h"
#include "deploy/support/strings.h"

namespace tilewright::support {
namespace {

class Fd {
 public:
  explicit Fd(int fd) : fd_(fd) {}
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  ~Fd() {
    if (fd_ >= 0) close(fd_);
  }
  int get() const { return fd_; }
  int Release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

int OpenRetry(const std::string& path, int flags, mode_t mode = 0) {
  int fd = -1;
  do {
    fd = open(path.c_str(), flags | O_CLOEXEC, mode);
  } while (fd < 0 && errno == EINTR);
  return fd;
}

absl::Status WriteAll(int fd, std::string_view data, const std::string& path) {
  while (!data.empty()) {
    const ssize_t written = write(fd, data.data(), data.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      return ErrnoError(errno, "file.write.failed", path);
    }
    data.remove_prefix(static_cast<size_t>(written));
  }
  return absl::OkStatus();
}

absl::Status SyncDir(const std::string& path) {
  Fd fd(OpenRetry(path, O_RDONLY | O_DIRECTORY));
  if (fd.get() < 0) return ErrnoError(errno, "file.sync.failed", path);
  // Some file systems have no fsync for folders; their renames are durable or nothing helps.
  if (fsync(fd.get()) != 0 && errno != EINVAL && errno != ENOTSUP) {
    return ErrnoError(errno, "file.sync.failed", path);
  }
  return absl::OkStatus();
}

// Unique among the threads of this process and, by its id, among processes.
std::string TemporaryName(const std::string& path) {
  static std::atomic<uint64_t> counter{0};
  return StrCat(path, ".tmp-", getpid(), "-", counter.fetch_add(1));
}

absl::Status RemoveTreeAt(int parent_fd, const char* name, const std::string& path) {
  if (unlinkat(parent_fd, name, 0) == 0 || errno == ENOENT) return absl::OkStatus();
  if (errno != EISDIR && errno != EPERM) return ErrnoError(errno, "file.remove.failed", path);
  const int unlink_error = errno;
  const int fd = openat(parent_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) {
    return ErrnoError(errno == ENOTDIR ? unlink_error : errno, "file.remove.failed", path);
  }
  DIR* dir = fdopendir(fd);
  if (dir == nullptr) {
    close(fd);
    return ErrnoError(errno, "file.remove.failed", path);
  }
  absl::Status status;
  while (status.ok()) {
    const dirent* entry = readdir(dir);
    if (entry == nullptr) break;
    const std::string_view child = entry->d_name;
    if (child == "." || child == "..") continue;
    status = RemoveTreeAt(dirfd(dir), entry->d_name, PathJoin(path, child));
  }
  closedir(dir);
  TW_TRY(status);
  if (unlinkat(parent_fd, name, AT_REMOVEDIR) != 0 && errno != ENOENT) {
    return ErrnoError(errno, "file.remove.failed", path);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> ReadFile(const std::string& path, uint64_t max_bytes) {
  Fd fd(OpenRetry(path, O_RDONLY));
  if (fd.get() < 0) return ErrnoError(errno, "file.read.failed", path);
  struct stat info{};
  if (fstat(fd.get(), &info) != 0) return ErrnoError(errno, "file.read.failed", path);
  if (S_ISDIR(info.st_mode)) return ErrnoError(EISDIR, "file.read.failed", path);
  const auto too_large = [&] {
    return ResourceExhausted("file.read.too_large",
                             StrCat(path, ": expected at most ", max_bytes, " bytes"));
  };
  const auto known_size = static_cast<uint64_t>(info.st_size);
  if (S_ISREG(info.st_mode) && known_size > max_bytes) return too_large();
  std::string data;
  // One byte more than the known size, so that the usual file ends with a single empty read.
  size_t chunk = known_size > 0 ? known_size + 1 : size_t{64} << 10;
  for (size_t filled = 0;; chunk = std::max<size_t>(chunk, 64 << 10)) {
    data.resize(filled + chunk);
    const ssize_t got = read(fd.get(), data.data() + filled, chunk);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return ErrnoError(errno, "file.read.failed", path);
    filled += static_cast<size_t>(got);
    if (filled > max_bytes) return too_large();
    if (got == 0) {
      data.resize(filled);
      return data;
    }
  }
}

namespace {

// A device, a pipe, a terminal: /dev/null as root would be gone after a rename.
bool IsSpecialFile(const std::string& path) {
  struct stat info{};
  return stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode);
}

absl::Status WriteEach(int fd, std::span<const std::string_view> pieces, const std::string& path) {
  for (const std::string_view piece : pieces) TW_TRY(WriteAll(fd, piece, path));
  return absl::OkStatus();
}

absl::Status WriteInPlace(const std::string& path, std::span<const std::string_view> pieces) {
  Fd fd(OpenRetry(path, O_WRONLY, 0));
  if (fd.get() < 0) return ErrnoError(errno, "file.write.failed", path);
  return WriteEach(fd.get(), pieces, path);
}

}  // namespace

absl::Status WriteFileAtomic(const std::string& path, std::string_view data, uint32_t mode) {
  return WriteFileAtomic(path, std::span(&data, 1), mode);
}

absl::Status WriteFileAtomic(const std::string& path, std::span<const std::string_view> pieces,
                             uint32_t mode) {
  if (IsSpecialFile(path)) return WriteInPlace(path, pieces);
  const std::string temporary = TemporaryName(path);
  Fd fd(OpenRetry(temporary, O_WRONLY | O_CREAT | O_EXCL, mode));
  if (fd.get() < 0) return ErrnoError(errno, "file.write.failed", path);
  absl::Status status = WriteEach(fd.get(), pieces, path);
  HitFailpoint(Failpoint::file_written);
  if (status.ok() && fsync(fd.get()) != 0) status = ErrnoError(errno, "file.write.failed", path);
  HitFailpoint(Failpoint::file_synced);
  const int raw_fd = fd.Release();
  if (close(raw_fd) != 0 && status.ok()) status = ErrnoError(errno, "file.write.failed", path);
  if (status.ok() && rename(temporary.c_str(), path.c_str()) != 0) {
    status = ErrnoError(errno, "file.write.failed", path);
  }
  if (!status.ok()) {
    unlink(temporary.c_str());
    return status;
  }
  HitFailpoint(Failpoint::file_renamed);
  return SyncDir(DirName(path));
}

absl::Status MakeDirs(const std::string& path) {
  if (path.empty() || IsDirectory(path)) return absl::OkStatus();
  const std::string parent = DirName(path);
  if (parent != path) TW_TRY(MakeDirs(parent));
  if (mkdir(path.c_str(), 0777) == 0 || (errno == EEXIST && IsDirectory(path))) {
    return absl::OkStatus();
  }
  return ErrnoError(errno, "file.mkdir.failed", path);
}

absl::Status RemoveTree(const std::string& path) {
  return RemoveTreeAt(AT_FDCWD, path.c_str(), path);
}

absl::Status RemoveFile(const std::string& path) {
  if (unlink(path.c_str()) == 0 || errno == ENOENT) return absl::OkStatus();
  return ErrnoError(errno, "file.remove.failed", path);
}

absl::Status LinkFile(const std::string& path, const std::string& new_name) {
  if (link(path.c_str(), new_name.c_str()) == 0) return absl::OkStatus();
  return ErrnoError(errno, "file.link.failed", path + " as " + new_name);
}

absl::Status MoveFile(const std::string& from, const std::string& to) {
  if (!IsSpecialFile(to)) {
    if (rename(from.c_str(), to.c_str()) == 0) return SyncDir(DirName(to));
    if (errno != EXDEV) return ErrnoError(errno, "file.move.failed", from + " to " + to);
  }
  TW_ASSIGN(const std::string bytes, ReadFile(from, std::numeric_limits<int64_t>::max()));
  TW_TRY(WriteFileAtomic(to, bytes));
  return RemoveFile(from);
}

bool FileExists(const std::string& path) {
  struct stat info{};
  return stat(path.c_str(), &info) == 0;
}

bool IsDirectory(const std::string& path) {
  struct stat info{};
  return stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

absl::StatusOr<uint64_t> FileSize(const std::string& path) {
  struct stat info{};
  if (stat(path.c_str(), &info) != 0) return ErrnoError(errno, "file.stat.failed", path);
  return static_cast<uint64_t>(info.st_size);
}

absl::StatusOr<std::vector<std::string>> ListDir(const std::string& path) {
  DIR* dir = opendir(path.c_str());
  if (dir == nullptr) return ErrnoError(errno, "file.list.failed", path);
  std::vector<std::string> names;
  errno = 0;
  while (const dirent* entry = readdir(dir)) {
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
  const int error = errno;
  closedir(dir);
  if (error != 0) return ErrnoError(error, "file.list.failed", path);
  std::sort(names.begin(), names.end());
  return names;
}

std::string PathJoin(std::string_view folder, std::string_view name) {
  if (folder.empty() || name.starts_with('/')) return std::string(name);
  std::string path(folder);
  if (!path.ends_with('/')) path.push_back('/');
  path.append(name);
  return path;
}

std::string BaseName(std::string_view path) {
  while (path.size() > 1 && path.ends_with('/')) path.remove_suffix(1);
  const size_t slash = path.rfind('/');
  return std::string(slash == std::string_view::npos || path.size() == 1 ? path
                                                                         : path.substr(slash + 1));
}

std::string DirName(std::string_view path) {
  while (path.size() > 1 && path.ends_with('/')) path.remove_suffix(1);
  const size_t slash = path.rfind('/');
  if (slash == std::string_view::npos) return ".";
  return slash == 0 ? "/" : std::string(path.substr(0, slash));
}

std::string MemoryFolder(uint64_t bytes) {
  constexpr char kFolder[] = "/dev/shm";
  constexpr uint64_t kSpare = uint64_t{16} << 20;  // others live there, too
  struct statvfs state{};
  if (access(kFolder, W_OK | X_OK) != 0 || statvfs(kFolder, &state) != 0) return "";
  const uint64_t room = static_cast<uint64_t>(state.f_bavail) * state.f_frsize;
  return room > kSpare && room - kSpare >= bytes ? kFolder : "";
}

absl::StatusOr<TempDir> TempDir::Create(std::string_view prefix, const std::string& parent) {
  const std::string base = parent.empty() ? GetEnv("TMPDIR").value_or("/tmp") : parent;
  std::string path = PathJoin(base, StrCat(prefix, "-XXXXXX"));
  if (mkdtemp(path.data()) == nullptr) return ErrnoError(errno, "file.tempdir.failed", path);
  return TempDir(std::move(path));
}

TempDir::TempDir(TempDir&& other) noexcept : path_(std::exchange(other.path_, "")) {}

TempDir& TempDir::operator=(TempDir&& other) noexcept {
  std::swap(path_, other.path_);
  return *this;
}

TempDir::~TempDir() {
  // Nothing can be done about a failure here, and nothing depends on it.
  if (!path_.empty()) RemoveTree(path_).IgnoreError();
}

std::string TempDir::Release() { return std::exchange(path_, ""); }

namespace {

// Whether the lock was taken within the time; false: another descriptor holds it.
absl::StatusOr<bool> LockWithin(int fd, int64_t patience_ms, const std::string& path) {
  constexpr int64_t kRetryMs = 20;
  for (int64_t waited_ms = 0;; waited_ms += kRetryMs) {
    if (flock(fd, LOCK_EX | LOCK_NB) == 0) return true;
    if (errno != EWOULDBLOCK && errno != EINTR) return ErrnoError(errno, "file.lock.failed", path);
    if (waited_ms >= patience_ms) return false;
    SleepMs(kRetryMs);
  }
}

// Files of older versions may be open to others.
void CloseToOthers(int fd) {
  struct stat info{};
  if (fstat(fd, &info) != 0 || (info.st_mode & 077) == 0) return;
  // Nobody can mend the file of another user; the lock itself holds.
  if (fchmod(fd, info.st_mode & 0700) != 0) errno = 0;
}

}  // namespace

absl::StatusOr<FileLock> FileLock::LockContent(const std::string& path, int64_t patience_ms) {
  Fd fd(OpenRetry(path, O_RDONLY | O_CREAT, 0600));
  if (fd.get() < 0) return ErrnoError(errno, "file.lock.failed", path);
  TW_ASSIGN(const bool locked, LockWithin(fd.get(), patience_ms, path));
  if (locked) return FileLock(fd.Release());
  return Unavailable("file.lock.held",
                     path + ": expected a file that no other process writes, found it in use");
}

absl::StatusOr<FileLock> FileLock::Lock(const std::string& path, int64_t patience_ms) {
  Fd fd(OpenRetry(path, O_RDWR | O_CREAT, 0600));
  if (fd.get() < 0) return ErrnoError(errno, "file.lock.failed", path);
  CloseToOthers(fd.get());
  TW_ASSIGN(const bool locked, LockWithin(fd.get(), patience_ms, path));
  if (!locked) {
    char holder[32] = {};
    const ssize_t got = pread(fd.get(), holder, sizeof(holder) - 1, 0);
    const std::string text(holder, got > 0 ? static_cast<size_t>(got) : 0);
    return Unavailable(
        "file.lock.held",
        StrCat(path, ": expected an unlocked file, found it held by process ", Trim(text)));
  }
  const std::string self = StrCat(getpid(), "\n");
  if (ftruncate(fd.get(), 0) != 0 ||
      pwrite(fd.get(), self.data(), self.size(), 0) != static_cast<ssize_t>(self.size())) {
    // The process id only helps whoever finds the lock held; the lock itself stands.
    errno = 0;
  }
  return FileLock(fd.Release());
}

FileLock::FileLock(FileLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

FileLock& FileLock::operator=(FileLock&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

FileLock::~FileLock() {
  if (fd_ >= 0) close(fd_);
}

absl::StatusOr<MappedFile> MappedFile::Open(const std::string& path) {
  Fd fd(OpenRetry(path, O_RDONLY));
  if (fd.get() < 0) return ErrnoError(errno, "file.map.failed", path);
  struct stat info{};
  if (fstat(fd.get(), &info) != 0) return ErrnoError(errno, "file.map.failed", path);
  if (!S_ISREG(info.st_mode)) {
    return InvalidArgument("file.map.not_a_file", StrCat(path, ": expected a regular file"));
  }
  MappedFile file;
  file.size_ = static_cast<size_t>(info.st_size);
  if (file.size_ == 0) return file;
  void* data = mmap(nullptr, file.size_, PROT_READ, MAP_PRIVATE, fd.get(), 0);
  if (data == MAP_FAILED) {
    file.size_ = 0;
    return ErrnoError(errno, "file.map.failed", path);
  }
  file.data_ = static_cast<const uint8_t*>(data);
  return file;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) munmap(const_cast<uint8_t*>(data_), size_);
}

absl::StatusOr<std::string> SelfExeDir() {
  std::string path(4096, '\0');
  const ssize_t length = readlink("/proc/self/exe", path.data(), path.size());
  if (length < 0) return ErrnoError(errno, "file.self.failed", "/proc/self/exe");
  path.resize(static_cast<size_t>(length));
  return DirName(path);
}

absl::StatusOr<std::string> FindSibling(std::string_view binary_name) {
  TW_ASSIGN(const std::string dir, SelfExeDir());
  std::string path = PathJoin(dir, binary_name);
  if (access(path.c_str(), X_OK) != 0) {
    return NotFound("file.sibling.missing", StrCat("expected the executable ", path));
  }
  return path;
}

}  // namespace tilewright::support
