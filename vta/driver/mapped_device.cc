#include "vta/driver/mapped_device.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "deploy/support/clock.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::vta {
namespace {

// A process that was killed keeps its lock until the kernel has torn it down.
constexpr int64_t kLockPatienceMs = 2'000, kLockPollMs = 10;

absl::Status Lock(int fd, const std::string& path) {
  for (int64_t waited = 0;; waited += kLockPollMs) {
    if (flock(fd, LOCK_EX | LOCK_NB) == 0) return absl::OkStatus();
    if (errno != EWOULDBLOCK && errno != EINTR)
      return support::ErrnoError(errno, "vta.board.open", path);
    if (waited >= kLockPatienceMs) break;
    support::SleepMs(kLockPollMs);
  }
  return support::Unavailable(
      "vta.board.busy",
      support::StrCat(path, ": expected no other user, found a process that holds it; end it"));
}

}  // namespace

absl::StatusOr<MappedDevice> MappedDevice::Open(const MapRequest& request) {
  const int flags = O_RDWR | O_CLOEXEC | (request.uncached ? O_SYNC : 0);
  const int fd = open(request.path.c_str(), flags);
  if (fd < 0) return support::ErrnoError(errno, "vta.board.open", request.path);
  MappedDevice device(fd, {});
  if (request.exclusive) TW_TRY(Lock(fd, request.path));
  const auto bytes = static_cast<size_t>(request.bytes);
  void* mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, request.offset);
  if (mapped == MAP_FAILED) {
    return support::ErrnoError(
        errno, "vta.board.map",
        support::StrCat(request.path, ": ", request.bytes, " bytes at ", request.offset));
  }
  device.bytes_ = {static_cast<uint8_t*>(mapped), bytes};
  return device;
}

MappedDevice::MappedDevice(MappedDevice&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), bytes_(std::exchange(other.bytes_, {})) {}

MappedDevice::~MappedDevice() {
  if (!bytes_.empty()) munmap(bytes_.data(), bytes_.size());
  if (fd_ >= 0) close(fd_);
}

}  // namespace tilewright::vta
