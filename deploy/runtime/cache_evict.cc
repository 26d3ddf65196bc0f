#include "deploy/runtime/cache_evict.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace tilewright::runtime {
namespace {

constexpr size_t kLineBytes = 64;

#if defined(__x86_64__)
// Flushes of different lines overlap, unlike those of the older instruction.
__attribute__((target("clflushopt"))) void FlushOverlapping(const char* data, size_t bytes) {
  for (size_t i = 0; i < bytes; i += kLineBytes) {
    _mm_clflushopt(const_cast<char*>(data + i));
  }
  _mm_sfence();
}

void Flush(const char* data, size_t bytes) {
  if (__builtin_cpu_supports("clflushopt")) return FlushOverlapping(data, bytes);
  for (size_t i = 0; i < bytes; i += kLineBytes) _mm_clflush(data + i);
}
#elif defined(__aarch64__)
void Flush(const char* data, size_t bytes) {
  for (size_t i = 0; i < bytes; i += kLineBytes) {
    asm volatile("dc civac, %0" : : "r"(data + i) : "memory");
  }
  asm volatile("dsb ish" : : : "memory");
}
#else
void Flush(const char*, size_t) {}
#endif

}  // namespace

void EvictFromCaches(const void* data, size_t bytes) {
  if (bytes > 0) Flush(static_cast<const char*>(data), bytes);
}

}  // namespace tilewright::runtime
