#include "deploy/runtime/buffer.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>

#include "deploy/runtime/c_abi.h"
#include "deploy/support/status.h"

namespace tilewright::runtime {
namespace {

// From here on, pages are mapped instead of taken from the heap, and large ones asked for: weights
// and big activations then need fewer address translations.
constexpr size_t kHugePage = size_t{2} << 20;
constexpr uint8_t kGuardPattern = 0xA5;
constexpr size_t kMaxBuffer = size_t{1} << 47;

size_t RoundUp(size_t value, size_t unit) { return (value + unit - 1) / unit * unit; }

size_t PageSize() { return static_cast<size_t>(sysconf(_SC_PAGESIZE)); }

absl::Status NoMemory(size_t bytes) {
  return support::ResourceExhausted("runtime.buffer.memory",
                                    std::to_string(bytes) + " bytes are not available");
}

bool AllPattern(const uint8_t* begin, const uint8_t* end) {
  for (const uint8_t* p = begin; p < end; ++p) {
    if (*p != kGuardPattern) return false;
  }
  return true;
}

}  // namespace

absl::StatusOr<Buffer> Buffer::Allocate(size_t bytes) {
  if (bytes > kMaxBuffer) return NoMemory(bytes);
  Buffer out;
  out.bytes_ = bytes;
  const size_t size = RoundUp(bytes == 0 ? 1 : bytes, TW_BUFFER_ALIGNMENT);
  if (size < kHugePage) {
    out.data_ = std::aligned_alloc(TW_BUFFER_ALIGNMENT, size);
    if (out.data_ == nullptr) return NoMemory(bytes);
    std::memset(out.data_, 0, size);
    return out;
  }
  // One huge page more than needed, so that the data can start at a huge page's boundary.
  const size_t total = RoundUp(size, PageSize()) + kHugePage;
  void* mapping = mmap(nullptr, total, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping == MAP_FAILED) return NoMemory(bytes);
  out.mapping_ = mapping;
  out.mapping_bytes_ = total;
  out.data_ = reinterpret_cast<void*>(RoundUp(reinterpret_cast<uintptr_t>(mapping), kHugePage));
  madvise(out.data_, RoundUp(size, PageSize()), MADV_HUGEPAGE);  // a wish; ordinary pages do, too
  return out;
}

absl::StatusOr<Buffer> Buffer::AllocateGuarded(size_t bytes) {
  if (bytes > kMaxBuffer) return NoMemory(bytes);
  const size_t page = PageSize();
  const size_t size = RoundUp(bytes == 0 ? 1 : bytes, TW_BUFFER_ALIGNMENT);
  const size_t body = RoundUp(size, page);
  const size_t total = body + 2 * page;
  void* mapping = mmap(nullptr, total, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping == MAP_FAILED) return NoMemory(bytes);
  Buffer out;
  out.mapping_ = mapping;
  out.mapping_bytes_ = total;
  out.guarded_ = true;
  out.bytes_ = bytes;
  auto* first = static_cast<uint8_t*>(mapping) + page;
  if (mprotect(first, body, PROT_READ | PROT_WRITE) != 0) return NoMemory(bytes);
  uint8_t* data = first + (body - size);
  std::memset(first, kGuardPattern, static_cast<size_t>(data - first));
  std::memset(data + bytes, kGuardPattern, size - bytes);
  out.data_ = data;
  return out;
}

Buffer::Buffer(Buffer&& other) noexcept { *this = std::move(other); }

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  if (this == &other) return *this;
  Release();
  data_ = std::exchange(other.data_, nullptr);
  bytes_ = std::exchange(other.bytes_, 0);
  mapping_ = std::exchange(other.mapping_, nullptr);
  mapping_bytes_ = std::exchange(other.mapping_bytes_, 0);
  guarded_ = std::exchange(other.guarded_, false);
  read_only_ = std::exchange(other.read_only_, false);
  return *this;
}

Buffer::~Buffer() { Release(); }

void Buffer::Release() {
  if (mapping_ != nullptr) {
    munmap(mapping_, mapping_bytes_);
  } else {
    std::free(data_);
  }
  data_ = nullptr;
  mapping_ = nullptr;
}

bool Buffer::PaddingIntact() const {
  if (!guarded_) return true;
  const size_t page = PageSize();
  const auto* data = static_cast<const uint8_t*>(data_);
  const auto* first = static_cast<const uint8_t*>(mapping_) + page;
  const auto* end = static_cast<const uint8_t*>(mapping_) + mapping_bytes_ - page;
  return AllPattern(first, data) && AllPattern(data + bytes_, end);
}

absl::Status Buffer::SetReadOnly(bool read_only) {
  if (!guarded_ || read_only == read_only_) return absl::OkStatus();
  const size_t page = PageSize();
  const int access = read_only ? PROT_READ : PROT_READ | PROT_WRITE;
  if (mprotect(static_cast<uint8_t*>(mapping_) + page, mapping_bytes_ - 2 * page, access) != 0) {
    return support::ErrnoError(errno, "runtime.buffer.protect", "mprotect");
  }
  read_only_ = read_only;
  return absl::OkStatus();
}

}  // namespace tilewright::runtime
