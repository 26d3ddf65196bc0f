// Files as the rest of the code needs them: whole reads with a limit, atomic writes, locks, mapped
// files, temporary folders. Functions are safe from any thread; objects belong to one owner each.
// Errors carry the path and the slug file.<what>.<why>; the code follows ErrnoError.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "deploy/support/status.h"

namespace tilewright::support {

// The whole file. not_found when it does not exist, resource_exhausted (file.read.too_large) when
// it is longer than max_bytes. Reads pipes and /proc files too.
absl::StatusOr<std::string> ReadFile(const std::string& path, uint64_t max_bytes);

// Writes by temporary file in the same folder, fsync, rename, fsync of the folder: a reader or a
// crash sees the old content or the new one, never a part. The temporary file is gone after
// failure. A device or a pipe is written to directly.
absl::Status WriteFileAtomic(const std::string& path, std::string_view data, uint32_t mode = 0644);
// The same of pieces, one behind the other.
absl::Status WriteFileAtomic(const std::string& path, std::span<const std::string_view> pieces,
                             uint32_t mode = 0644);

// Creates the folder and its parents; ok when it exists already.
absl::Status MakeDirs(const std::string& path);

// Removes a file or a folder with everything in it; ok when there is nothing. Follows no links.
absl::Status RemoveTree(const std::string& path);

absl::Status RemoveFile(const std::string& path);
// Gives a file that will not change a second name (a hard link). file.link.failed across file
// systems, and on those without hard links.
absl::Status LinkFile(const std::string& path, const std::string& new_name);
// Gives a file that was written atomically another place, as atomically. Copies it across file
// systems, and to a device or a pipe; then the first is removed.
absl::Status MoveFile(const std::string& from, const std::string& to);
bool FileExists(const std::string& path);
bool IsDirectory(const std::string& path);
absl::StatusOr<uint64_t> FileSize(const std::string& path);

// Names (not paths) in the folder, sorted, without "." and "..".
absl::StatusOr<std::vector<std::string>> ListDir(const std::string& path);

// "a" + "b" = "a/b"; an absolute second part wins.
std::string PathJoin(std::string_view folder, std::string_view name);
std::string BaseName(std::string_view path);
std::string DirName(std::string_view path);

// Returns a folder whose files live in memory, for at most `bytes` of scratch that need not survive
// a crash. Empty if there is none with room; TempDir then takes the system's temporary folder.
std::string MemoryFolder(uint64_t bytes);

// A fresh folder under the system's temporary folder (or `parent`), removed with its content on
// destruction.
class TempDir {
 public:
  static absl::StatusOr<TempDir> Create(std::string_view prefix = "tilewright",
                                        const std::string& parent = "");
  TempDir(TempDir&& other) noexcept;
  TempDir& operator=(TempDir&& other) noexcept;
  ~TempDir();

  const std::string& path() const { return path_; }
  // A path inside the folder.
  std::string File(std::string_view name) const { return PathJoin(path_, name); }
  // Leaves the folder on disk, for looking into after a failure.
  std::string Release();

 private:
  explicit TempDir(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

// An exclusive lock on a file, held until destruction or the process's end. Waits up to
// `patience_ms` for another process or object that holds it, then returns unavailable
// (file.lock.held). A process that was killed while it started a child leaves the child a copy of
// its locks until the child calls exec: a successor needs a moment of patience.
class FileLock {
 public:
  // Makes the file if it is missing, and never removes it. Only its owner can open it, since a
  // process that can open a file can hold its lock. The error names the holder's process id.
  static absl::StatusOr<FileLock> Lock(const std::string& path, int64_t patience_ms);
  static absl::StatusOr<FileLock> TryLock(const std::string& path) { return Lock(path, 0); }
  // Locks a file that holds something else, under all its names and links, and writes nothing.
  // Makes an empty file (for its owner alone) if it is missing. Programs that do not ask for this
  // lock are not disturbed. REQUIRES: this process closes the file before it drops the lock, and
  // has it open nowhere else: a database loses its own locks when any descriptor is closed.
  static absl::StatusOr<FileLock> LockContent(const std::string& path, int64_t patience_ms);
  FileLock(FileLock&& other) noexcept;
  FileLock& operator=(FileLock&& other) noexcept;
  ~FileLock();

 private:
  explicit FileLock(int fd) : fd_(fd) {}
  int fd_ = -1;
};

// A read-only view of a whole file. The view stays valid when the file is renamed or removed; a
// file that another process truncates while it is mapped raises SIGBUS, so map only files that are
// written atomically.
class MappedFile {
 public:
  static absl::StatusOr<MappedFile> Open(const std::string& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  const uint8_t* data() const { return data_; }
  size_t size() const { return size_; }
  std::string_view view() const { return {reinterpret_cast<const char*>(data_), size_}; }

 private:
  MappedFile() = default;
  const uint8_t* data_ = nullptr;
  size_t size_ = 0;
};

// The folder of the running executable.
absl::StatusOr<std::string> SelfExeDir();

// The path of another binary of ours: next to the running executable. not_found with the path it
// looked for.
absl::StatusOr<std::string> FindSibling(std::string_view binary_name);

}  // namespace tilewright::support
