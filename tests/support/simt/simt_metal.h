// The Metal Shading Language for the emulator: the words that generated texts use. Kernels' last
// parameters, which a device gives, become declarations (simt_compile.cc).
#include "tests/support/simt/simt_cpp.h"

using uchar = unsigned char;
using ushort = unsigned short;
using uint = unsigned int;
using ulong = unsigned long;
using half = simt_half;
using uint3 = simt_dim;

SIMT_PLAIN uint3 simt_metal_thread_position_in_threadgroup() { return simt_dim_of(simt->thread); }
SIMT_PLAIN uint3 simt_metal_threadgroup_position_in_grid() { return simt_dim_of(simt->group); }
SIMT_PLAIN uint3 simt_metal_threads_per_threadgroup() { return simt_dim_of(simt->threads); }
SIMT_PLAIN uint simt_metal_thread_index_in_simdgroup() { return simt_number() % simt->warp; }
SIMT_PLAIN uint simt_metal_simdgroup_index_in_threadgroup() { return simt_number() / simt->warp; }
SIMT_PLAIN uint simt_metal_threads_per_simdgroup() { return simt->warp; }

#define device
#define threadgroup
namespace metal {
enum class mem_flags { mem_none = 0, mem_device = 1, mem_threadgroup = 2 };
SIMT_PLAIN mem_flags operator|(mem_flags a, mem_flags b) { return (mem_flags)((int)a | (int)b); }
SIMT_PLAIN uint min(uint a, uint b) { return a < b ? a : b; }
SIMT_PLAIN void simt_barrier(mem_flags flags, unsigned long site) {
  if (((int)flags & (int)mem_flags::mem_threadgroup) == 0) __builtin_trap();
  simt->barrier(simt, ((int)flags & (int)mem_flags::mem_device) != 0, site);
}
#define threadgroup_barrier(flags) simt_barrier(flags, __LINE__)

// All threads of a simdgroup get what all of them have.
template <class T, class F>
SIMT_PLAIN T simt_reduce(T x, unsigned long site, F both) {
  static_assert(sizeof(T) <= 4, "as the language has it");
  const uint lanes = simt_lanes();
  uint word = 0;
  __builtin_memcpy(&word, &x, sizeof(T));
  T sum = x;
  for (uint lane = 0; lane < lanes; ++lane) {
    const uint other = simt_shuffle(simt_whole_warp(), word, lane, site);
    T value;
    __builtin_memcpy(&value, &other, sizeof(T));
    sum = lane == 0 ? value : both(sum, value);
  }
  return sum;
}
#define simd_sum(x) simt_reduce(x, __LINE__, [](auto a, auto b) { return a + b; })
#define simd_min(x) simt_reduce(x, __LINE__, [](auto a, auto b) { return a < b ? a : b; })
#define simd_max(x) simt_reduce(x, __LINE__, [](auto a, auto b) { return a > b ? a : b; })
}  // namespace metal
