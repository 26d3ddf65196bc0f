#include "deploy/runtime/session_memory.h"

#include <algorithm>
#include <utility>

#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::runtime {
namespace {

int64_t BytesOf(const Buffer& buffer) { return static_cast<int64_t>(buffer.bytes()); }

}  // namespace

int64_t SessionMemory::Held() const {
  int64_t held = BytesOf(arena_) + BytesOf(workspace_) + BytesOf(prepared_);
  for (const auto& [list, buffer] : state_) held += BytesOf(buffer);
  for (const auto* ends : {&inputs, &outputs}) {
    for (const SessionEnd& end : *ends) held += BytesOf(end.buffer);
  }
  return held;
}

// What to allocate in place of `buffer`.
absl::StatusOr<int64_t> SessionMemory::Capacity(const Buffer& buffer, int64_t bytes,
                                                int64_t most) const {
  const int64_t old = BytesOf(buffer);
  const int64_t roomy = std::max(bytes, std::min(old + old / 2, most));
  if (limit_bytes_ <= 0) return roomy;
  const int64_t others = Held() - old;
  if (bytes > limit_bytes_ - others) {
    return support::ResourceExhausted(
        "runtime.session.memory_limit",
        support::StrCat("expected at most ", limit_bytes_, " bytes, found a need of ",
                        others + bytes, " for these sizes"));
  }
  return std::min(roomy, limit_bytes_ - others);
}

absl::Status SessionMemory::Grow(Buffer* buffer, int64_t bytes, int64_t most) {
  if (buffer->data() != nullptr && BytesOf(*buffer) >= bytes) return absl::OkStatus();
  TW_ASSIGN(const int64_t capacity, Capacity(*buffer, bytes, most));
  ++version_;
  *buffer = Buffer();  // first, so that both are never held
  TW_ASSIGN(*buffer, Buffer::Allocate(static_cast<size_t>(capacity)));
  return absl::OkStatus();
}

absl::Status SessionMemory::GrowArena(int64_t bytes, int64_t most) {
  return Grow(&arena_, bytes, most);
}

absl::Status SessionMemory::GrowWorkspace(int64_t bytes, int64_t most) {
  return Grow(&workspace_, bytes, most);
}

absl::Status SessionMemory::AllocatePrepared(int64_t bytes) {
  return Grow(&prepared_, bytes, bytes);
}

absl::Status SessionMemory::AllocateState(int64_t list, int64_t bytes) {
  return Grow(&state_[list], bytes, bytes);
}

absl::Status SessionMemory::Reshape(SessionEnd* end, std::span<const int64_t> shape,
                                    int64_t bytes) {
  const int64_t held = BytesOf(end->buffer);
  const bool fits = end->buffer.data() != nullptr && (guard_ ? held == bytes : held >= bytes);
  if (!fits) {
    TW_ASSIGN(const int64_t capacity, Capacity(end->buffer, bytes, end->tensor->bytes));
    const auto size = static_cast<size_t>(guard_ ? bytes : capacity);
    TW_ASSIGN(Buffer buffer, guard_ ? Buffer::AllocateGuarded(size) : Buffer::Allocate(size));
    end->buffer = std::move(buffer);
    ++version_;
  }
  end->shape.assign(shape.begin(), shape.end());
  end->bytes = static_cast<size_t>(bytes);
  return absl::OkStatus();
}

}  // namespace tilewright::runtime
