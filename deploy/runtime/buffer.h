// Memory for tensors: aligned, zeroed, optionally between inaccessible pages. A Buffer owns its
// memory; moving it keeps the pointer. Not thread-safe beyond const use.
#ifndef DEPLOY_RUNTIME_BUFFER_H_
#define DEPLOY_RUNTIME_BUFFER_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tilewright::runtime {

class Buffer {
 public:
  Buffer() = default;
  // `bytes` rounded up to TW_BUFFER_ALIGNMENT, zeroed; 0 gives a buffer with a valid pointer, too.
  // RESOURCE_EXHAUSTED `runtime.buffer.memory` where that much is not to be had.
  static absl::StatusOr<Buffer> Allocate(size_t bytes);
  // The same, with its rounded end against an inaccessible page and one before its first page. The
  // bytes between are filled with a pattern that PaddingIntact() looks at.
  static absl::StatusOr<Buffer> AllocateGuarded(size_t bytes);

  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  ~Buffer();

  void* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  bool guarded() const { return guarded_; }

  // Guarded buffers: whether the bytes around the data are as they were; true for others.
  bool PaddingIntact() const;
  // Guarded buffers: makes the pages read-only, or writable again. Nothing for others.
  absl::Status SetReadOnly(bool read_only);

 private:
  void Release();

  void* data_ = nullptr;
  size_t bytes_ = 0;
  void* mapping_ = nullptr;  // nullptr: data_ is from the heap
  size_t mapping_bytes_ = 0;
  bool guarded_ = false;
  bool read_only_ = false;
};

}  // namespace tilewright::runtime

#endif  // DEPLOY_RUNTIME_BUFFER_H_
