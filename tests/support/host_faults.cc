#include "tests/support/host_faults.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <new>

namespace tilewright::tests {

absl::StatusOr<std::unique_ptr<HostFaults>> HostFaults::Create() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return support::Unavailable("test.host_faults", "a sanitizer build");
#endif
  TW_ASSIGN(support::TempDir dir, support::TempDir::Create("host-faults"));
  std::unique_ptr<HostFaults> faults(new HostFaults(std::move(dir)));
  faults->file_ = faults->dir_.File("control");
  const int fd = open(faults->file_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0 || ftruncate(fd, sizeof(HostFaultsControl)) != 0) {
    return support::ErrnoError(errno, "test.host_faults", faults->file_);
  }
  void* mapped =
      mmap(nullptr, sizeof(HostFaultsControl), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (mapped == MAP_FAILED) return support::ErrnoError(errno, "test.host_faults", "mmap");
  faults->control_ = new (mapped) HostFaultsControl();
  return faults;
}

HostFaults::~HostFaults() {
  if (control_ != nullptr) munmap(control_, sizeof(HostFaultsControl));
}

std::vector<std::pair<std::string, std::string>> HostFaults::env() const {
  return {{"LD_PRELOAD", TILEWRIGHT_TEST_HOST_FAULTS}, {kHostFaultsVariable, file_}};
}

void HostFaults::SetReadOnly(const std::string& folder) {
  struct stat info{};
  ASSERT_EQ(stat(folder.c_str(), &info), 0) << folder;
  control_->read_only_device.store(info.st_dev);
}

}  // namespace tilewright::tests
