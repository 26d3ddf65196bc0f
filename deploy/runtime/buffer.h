// Memory for tensors: aligned, zeroed, optionally between inaccessible pages. A Buffer owns its
// memory; the address stays the same when it is moved. Only const use is thread-safe.
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
  // Allocates `bytes`, rounded up to TW_BUFFER_ALIGNMENT, zeroed. 0 gives a valid pointer, too.
  // RESOURCE_EXHAUSTED `runtime.buffer.memory` if there is not enough memory.
  static absl::StatusOr<Buffer> Allocate(size_t bytes);
  // The same between two inaccessible pages: its rounded end touches the upper one. The bytes
  // around the data hold a pattern that PaddingIntact() checks.
  static absl::StatusOr<Buffer> AllocateGuarded(size_t bytes);

  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  ~Buffer();

  void* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  bool guarded() const { return guarded_; }

  // Returns whether nothing wrote to the bytes around the data; true for buffers without guards.
  bool PaddingIntact() const;
  // Makes the pages read-only, or writable again. Does nothing to buffers without guards.
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
