// What the languages that are C++ share on the emulator: places of threads, shuffles, wide
// accesses, 16-bit floats.
#include "tests/support/simt/simt_device.h"

struct simt_dim {
  unsigned x, y, z;
};
SIMT_PLAIN simt_dim simt_dim_of(const unsigned* axes) { return {axes[0], axes[1], axes[2]}; }
SIMT_PLAIN simt_dim simt_thread() { return simt_dim_of(simt->thread); }
SIMT_PLAIN simt_dim simt_group() { return simt_dim_of(simt->group); }
SIMT_PLAIN simt_dim simt_threads() { return simt_dim_of(simt->threads); }
SIMT_PLAIN simt_dim simt_groups() { return simt_dim_of(simt->groups); }
// Of the thread, in its group.
SIMT_PLAIN unsigned simt_number() {
  return simt->thread[0] +
         simt->threads[0] * (simt->thread[1] + simt->threads[1] * simt->thread[2]);
}

template <class T>
SIMT_PLAIN T simt_shuffle(unsigned long mask, T value, unsigned from, unsigned long site) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8, "as the language has it");
  unsigned long bits = 0;
  __builtin_memcpy(&bits, &value, sizeof(T));
  bits = simt->exchange(simt, mask, bits, from, site);
  __builtin_memcpy(&value, &bits, sizeof(T));
  return value;
}
SIMT_PLAIN unsigned simt_lane() { return simt_number() % simt->warp; }
// The threads of the warp, of which the last one of a group may have fewer.
SIMT_PLAIN unsigned simt_lanes() {
  const unsigned left = simt->threads[0] * simt->threads[1] * simt->threads[2] -
                        simt_number() / simt->warp * simt->warp;
  return left < simt->warp ? left : simt->warp;
}
SIMT_PLAIN unsigned long simt_whole_warp() {
  const unsigned lanes = simt_lanes();
  return lanes == 64 ? ~0ul : (1ul << lanes) - 1;
}

// Neighbours in memory: a copy is one access. The texts' own type is a plain struct.
#define TW_OWN_WIDE
template <class T, int N>
struct alignas(sizeof(T) * N) tw_wide {
  T v[N];
  tw_wide() = default;
  __attribute__((noinline, no_sanitize("thread"))) tw_wide(const tw_wide& from) {
    simt->access(simt, &from, sizeof(v), sizeof(v), 0, SIMT_HERE);
    for (int i = 0; i < N; ++i) v[i] = from.v[i];
  }
  __attribute__((no_sanitize("thread"))) tw_wide(const T (&values)[N]) {
    for (int i = 0; i < N; ++i) v[i] = values[i];
  }
  __attribute__((noinline, no_sanitize("thread"))) tw_wide& operator=(const tw_wide& from) {
    simt->access(simt, &from, sizeof(v), sizeof(v), 0, SIMT_HERE);
    simt->access(simt, this, sizeof(v), sizeof(v), 1, SIMT_HERE);
    for (int i = 0; i < N; ++i) v[i] = from.v[i];
    return *this;
  }
};

SIMT_PLAIN float simt_float_of(int bits) {
  float value;
  __builtin_memcpy(&value, &bits, 4);
  return value;
}

// 16-bit floats: exact to 32 bits, and rounded to the nearest, ties to even.
SIMT_PLAIN float tw_half_to_float(unsigned short h) {
  const unsigned sign = (h & 0x8000u) << 16, exponent = h >> 10 & 31, fraction = h & 0x3FFu;
  if (exponent == 31) return simt_float_of((int)(sign | 0x7F800000u | fraction << 13));
  const float size = exponent == 0 ? (float)fraction * 0x1p-24f
                                   : simt_float_of((int)((exponent + 112) << 23 | fraction << 13));
  return sign != 0 ? -size : size;
}
SIMT_PLAIN unsigned short tw_float_to_half(float f) {
  unsigned bits;
  __builtin_memcpy(&bits, &f, 4);
  const unsigned sign = bits >> 16 & 0x8000u;
  const float size = f < 0 ? -f : f;
  if (f != f) return (unsigned short)(sign | 0x7E00u);
  if (size >= 65520.0f) return (unsigned short)(sign | 0x7C00u);
  if (size < 0x1p-14f) return (unsigned short)(sign | (unsigned)rint(size * 0x1p24f));
  const unsigned magnitude = bits & 0x7FFFFFFFu;
  const unsigned rounded = magnitude + 0xFFFu + (magnitude >> 13 & 1);
  return (unsigned short)(sign | ((rounded >> 13) - (112u << 10)));
}

// The instructions of CUDA C's type.
#define SIMT_HALF_INSTRUCTION(name, op)                                          \
  SIMT_PLAIN unsigned short tw_half_##name(unsigned short a, unsigned short b) { \
    return tw_float_to_half(tw_half_to_float(a) op tw_half_to_float(b));         \
  }
SIMT_HALF_INSTRUCTION(add, +)
SIMT_HALF_INSTRUCTION(sub, -)
SIMT_HALF_INSTRUCTION(mul, *)

// The type of languages that have it: each operation rounds.
struct simt_half {
  unsigned short bits;
  simt_half() = default;
  simt_half(float f) : bits(tw_float_to_half(f)) {}
  operator float() const { return tw_half_to_float(bits); }
};
#define SIMT_HALF(op)                                            \
  SIMT_PLAIN simt_half operator op(simt_half a, simt_half b) {   \
    return tw_half_to_float(a.bits) op tw_half_to_float(b.bits); \
  }
SIMT_HALF(+)
SIMT_HALF(-)
SIMT_HALF(*)
SIMT_HALF(/)
