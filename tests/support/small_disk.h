// A small file system of its own in memory, for tests of full disks. Needs the right to mount;
// where that is missing the test says [SKIP]. One owner; unmounted on destruction.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace tilewright::tests {

class SmallDisk {
 public:
  // Null when this machine lets the test mount nothing.
  static std::unique_ptr<SmallDisk> Mount(int64_t bytes);
  ~SmallDisk();
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;

  const std::string& path() const { return path_; }

  // Not a byte is left, until Free.
  void Fill();
  void Free();
  // Every write is refused while true. Nobody may have a file open for writing.
  void SetReadOnly(bool read_only);

 private:
  explicit SmallDisk(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

inline constexpr char kNoMountSkip[] = "[SKIP] needs the right to mount a tmpfs (run as root)";

}  // namespace tilewright::tests
