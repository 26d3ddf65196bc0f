// An accelerator that several streams share: its memory, and one run at a time. Who comes during a
// run waits for its end; each run has a limit of cycles. Thread-safe; the bytes of DRAM belong to
// who allocated them.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "vta/driver/dram_allocator.h"
#include "vta/driver/vta_backend.h"

namespace tilewright::vta {

// Bytes of the accelerator's DRAM.
struct DramRange {
  int64_t address = 0, bytes = 0;
  bool operator==(const DramRange&) const = default;
};

class Accelerator {
 public:
  explicit Accelerator(std::unique_ptr<Backend> backend);

  const BackendInfo& info() const { return backend_->info(); }
  // As Backend::CheckConfig.
  absl::Status CheckConfig(const Config& config) const { return backend_->CheckConfig(config); }

  // vta.driver.bytes | vta.driver.memory: as DramAllocator.
  absl::StatusOr<DramRange> Allocate(int64_t bytes);
  void Free(const DramRange& range);
  int64_t used_bytes() const;
  // The bytes of a range. REQUIRES: within an allocation. Valid until the next Allocate of any
  // stream; on boards, whose memory is mapped once, as long as the allocation.
  std::span<uint8_t> Bytes(const DramRange& range);

  // As Backend::Run.
  absl::StatusOr<int64_t> Run(const Isa& isa, const StreamRun& run);

 private:
  mutable std::mutex mutex_;
  const std::unique_ptr<Backend> backend_;
  DramAllocator allocator_;
};

}  // namespace tilewright::vta
