// A device file mapped into this process: registers of hardware, or memory that it shares with the
// processor. Objects belong to one owner.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "absl/status/statusor.h"

namespace tilewright::vta {

struct MapRequest {
  std::string path;
  int64_t offset = 0;  // of the mapping in the file, a multiple of the page
  int64_t bytes = 0;
  bool uncached = false;  // opens with O_SYNC: drivers then map without the processor's cache
  // Holds a lock on the file: hardware has one user at a time.
  bool exclusive = false;
};

class MappedDevice {
 public:
  // The errors of open and mmap are vta.board.open and vta.board.map. UNAVAILABLE vta.board.busy:
  // another process holds the lock, after some seconds of patience for one that is about to end.
  static absl::StatusOr<MappedDevice> Open(const MapRequest& request);
  MappedDevice(MappedDevice&& other) noexcept;
  MappedDevice& operator=(MappedDevice&& other) = delete;
  ~MappedDevice();

  std::span<uint8_t> bytes() const { return bytes_; }

 private:
  MappedDevice(int fd, std::span<uint8_t> bytes) : fd_(fd), bytes_(bytes) {}

  int fd_ = -1;  // stays open for its lock
  std::span<uint8_t> bytes_;
};

}  // namespace tilewright::vta
