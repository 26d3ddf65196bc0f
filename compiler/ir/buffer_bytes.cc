#include "compiler/ir/buffer_bytes.h"

namespace tilewright::ir {

std::optional<int64_t> ConstantBytes(const BufferNode& buffer) {
  int64_t bytes = buffer.dtype.bytes();
  for (const Expr& dim : buffer.shape) {
    const int64_t* extent = AsInt(dim);
    if (extent == nullptr || *extent < 0) return std::nullopt;
    if (__builtin_mul_overflow(bytes, *extent, &bytes)) return std::nullopt;
  }
  return bytes;
}

}  // namespace tilewright::ir
