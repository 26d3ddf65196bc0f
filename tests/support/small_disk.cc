#include "tests/support/small_disk.h"

#include <sys/mount.h>
#include <unistd.h>

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

}  // namespace tilewright::tests
