#include "vta/driver/accelerator.h"

#include <utility>

#include "deploy/support/status.h"

namespace tilewright::vta {

Accelerator::Accelerator(std::unique_ptr<Backend> backend)
    : backend_(std::move(backend)), allocator_(backend_->info().memory_bytes, kDramAlignment) {}

absl::StatusOr<DramRange> Accelerator::Allocate(int64_t bytes) {
  const std::lock_guard lock(mutex_);
  TW_ASSIGN(const int64_t address, allocator_.Allocate(bytes));
  const absl::Status grown = backend_->Grow(allocator_.high_water());
  if (!grown.ok()) {
    allocator_.Free(address);
    return grown;
  }
  return DramRange{address, bytes};
}

void Accelerator::Free(const DramRange& range) {
  const std::lock_guard lock(mutex_);
  allocator_.Free(range.address);
}

int64_t Accelerator::used_bytes() const {
  const std::lock_guard lock(mutex_);
  return allocator_.used_bytes();
}

std::span<uint8_t> Accelerator::Bytes(const DramRange& range) {
  const std::span<uint8_t> memory = backend_->memory();
  TW_CHECK(range.address >= 0 && range.bytes >= 0 &&
           range.address + range.bytes <= static_cast<int64_t>(memory.size()));
  return memory.subspan(static_cast<size_t>(range.address), static_cast<size_t>(range.bytes));
}

absl::StatusOr<int64_t> Accelerator::Run(const Isa& isa, const StreamRun& run) {
  const std::lock_guard lock(mutex_);
  return backend_->Run(isa, run);
}

}  // namespace tilewright::vta
