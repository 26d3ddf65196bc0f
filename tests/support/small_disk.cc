#include "tests/support/small_disk.h"

#include <gtest/gtest.h>
#include <sys/mount.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <utility>

#include "deploy/support/file.h"
#include "deploy/support/strings.h"

namespace tilewright::tests {

std::unique_ptr<SmallDisk> SmallDisk::Mount(int64_t bytes) {
  auto dir = support::TempDir::Create("small-disk");
  if (!dir.ok()) return nullptr;
  const std::string options = support::StrCat("size=", bytes);
  if (mount("tmpfs", dir->path().c_str(), "tmpfs", 0, options.c_str()) != 0) return nullptr;
  return std::unique_ptr<SmallDisk>(new SmallDisk(dir->Release()));
}

SmallDisk::~SmallDisk() {
  // Lazily: a child of the test may still hold a file open.
  umount2(path_.c_str(), MNT_DETACH);
  rmdir(path_.c_str());
}

void SmallDisk::Fill() {
  std::ofstream ballast(support::PathJoin(path_, "ballast"), std::ios::app | std::ios::binary);
  for (size_t bytes = 1 << 20; bytes > 0; bytes /= 2) {
    while (ballast << std::string(bytes, 'x') && ballast.flush()) continue;
    ballast.clear();
  }
}

void SmallDisk::Free() {
  EXPECT_TRUE(support::RemoveFile(support::PathJoin(path_, "ballast")).ok());
}

void SmallDisk::SetReadOnly(bool read_only) {
  const unsigned long flags = MS_REMOUNT | (read_only ? MS_RDONLY : 0);
  EXPECT_EQ(mount(nullptr, path_.c_str(), nullptr, flags, nullptr), 0) << strerror(errno);
}

}  // namespace tilewright::tests
