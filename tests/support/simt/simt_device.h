// Included before emulated kernel texts: the hooks, and what the compiler's -fsanitize=thread calls
// for each access of memory (the object is not linked with that sanitizer's library). Part of the
// emulated program, not of tests.
#include "tests/support/simt/simt_hooks.h"

static SimtHooks* simt;
extern "C" __attribute__((visibility("default"), no_sanitize("thread"))) void simt_bind(
    SimtHooks* hooks) {
  simt = hooks;
}

#define SIMT_PLAIN static inline __attribute__((no_sanitize("thread"), unused))
#define SIMT_HERE __builtin_return_address(0)
#define SIMT_HOOK(name, bytes, align, write)                             \
  extern "C" __attribute__((no_sanitize("thread"))) void name(void* p) { \
    simt->access(simt, p, bytes, align, write, SIMT_HERE);               \
  }
#define SIMT_ACCESS(bytes)                             \
  SIMT_HOOK(__tsan_read##bytes, bytes, bytes, 0)       \
  SIMT_HOOK(__tsan_write##bytes, bytes, bytes, 1)      \
  SIMT_HOOK(__tsan_unaligned_read##bytes, bytes, 1, 0) \
  SIMT_HOOK(__tsan_unaligned_write##bytes, bytes, 1, 1)
#pragma GCC visibility push(hidden)
SIMT_ACCESS(1)
SIMT_ACCESS(2)
SIMT_ACCESS(4)
SIMT_ACCESS(8)
SIMT_ACCESS(16)
#define SIMT_RANGE(name, write)                                                           \
  extern "C" __attribute__((no_sanitize("thread"))) void name(void* p, unsigned long n) { \
    simt->access(simt, p, n, 1, write, SIMT_HERE);                                        \
  }
SIMT_RANGE(__tsan_read_range, 0)
SIMT_RANGE(__tsan_write_range, 1)
extern "C" void __tsan_init() {}
#pragma GCC visibility pop

SIMT_PLAIN void* simt_shared(const char* name, unsigned long bytes, unsigned long element,
                             unsigned long align) {
  return simt->shared(simt, name, bytes, element, align);
}
// A shared array: `type name[count];` of a kernel's body, at a multiple of `align` bytes.
#define SIMT_SHARED_AT(type, name, count, align) \
  type* const name = (type*)simt_shared(#name, sizeof(type) * (count), sizeof(type), align)
#define SIMT_SHARED(type, name, count) SIMT_SHARED_AT(type, name, count, 16)

SIMT_PLAIN unsigned simt_at(const unsigned* axes, unsigned axis) { return axes[axis]; }

#define NAN __builtin_nanf("")
#define INFINITY __builtin_inff()

// Functions of floats and doubles by one name.
#define SIMT_MATH1(name)                                            \
  SIMT_PLAIN float name(float x) { return __builtin_##name##f(x); } \
  SIMT_PLAIN double name(double x) { return __builtin_##name(x); }
#define SIMT_MATH2(name)                                                        \
  SIMT_PLAIN float name(float x, float y) { return __builtin_##name##f(x, y); } \
  SIMT_PLAIN double name(double x, double y) { return __builtin_##name(x, y); }
namespace simt_math {
// clang-format off
SIMT_MATH1(exp) SIMT_MATH1(log) SIMT_MATH1(sqrt) SIMT_MATH1(tanh) SIMT_MATH1(erf) SIMT_MATH1(fabs)
SIMT_MATH1(floor) SIMT_MATH1(ceil) SIMT_MATH1(rint) SIMT_MATH1(sin) SIMT_MATH1(cos)
SIMT_MATH1(tan) SIMT_MATH1(asin) SIMT_MATH1(acos) SIMT_MATH1(atan) SIMT_MATH1(sinh)
SIMT_MATH1(cosh) SIMT_MATH1(asinh) SIMT_MATH1(acosh) SIMT_MATH1(atanh) SIMT_MATH1(expm1)
SIMT_MATH2(pow) SIMT_MATH2(fmod)
    // clang-format on
    SIMT_PLAIN float fma(float a, float b, float c) {
  return __builtin_fmaf(a, b, c);
}
SIMT_PLAIN double fma(double a, double b, double c) { return __builtin_fma(a, b, c); }
SIMT_PLAIN int abs(int x) { return x < 0 ? -x : x; }
SIMT_PLAIN long abs(long x) { return x < 0 ? -x : x; }
}  // namespace simt_math
using namespace simt_math;
