// OpenCL C for the emulator, as C++: the words and the vectors that generated texts use. Literals
// ((float4)(a, b, c, d)) are rewritten to simt_make (simt_compile.cc).
#include "tests/support/simt/simt_device.h"

#define __kernel
#define __global
#define restrict
#define reqd_work_group_size(...)
#define CLK_LOCAL_MEM_FENCE 1
#define CLK_GLOBAL_MEM_FENCE 2

using uchar = unsigned char;
using ushort = unsigned short;
using uint = unsigned int;
using ulong = unsigned long;

SIMT_PLAIN unsigned long get_local_id(unsigned axis) { return simt_at(simt->thread, axis); }
SIMT_PLAIN unsigned long get_group_id(unsigned axis) { return simt_at(simt->group, axis); }
SIMT_PLAIN unsigned long get_local_size(unsigned axis) { return simt_at(simt->threads, axis); }
SIMT_PLAIN unsigned long get_num_groups(unsigned axis) { return simt_at(simt->groups, axis); }
SIMT_PLAIN unsigned long get_global_id(unsigned axis) {
  return get_group_id(axis) * get_local_size(axis) + get_local_id(axis);
}
SIMT_PLAIN void simt_barrier(int fences, unsigned long site) {
  simt->barrier(simt, (fences & 2) != 0, site);
}
#define barrier(fences) simt_barrier(fences, __LINE__)

// clang-format off
// Vectors are arrays whose elements have names, too.
template <class T, int N>
struct simt_vec;
template <class T>
struct simt_vec<T, 2> {
  union {
    T v[2];
    struct {
      T s0, s1;
    };
  };
};
template <class T>
struct simt_vec<T, 4> {
  union {
    T v[4];
    struct {
      T s0, s1, s2, s3;
    };
  };
};
template <class T>
struct simt_vec<T, 8> {
  union {
    T v[8];
    struct {
      T s0, s1, s2, s3, s4, s5, s6, s7;
    };
  };
};
template <class T>
struct simt_vec<T, 16> {
  union {
    T v[16];
    struct {
      T s0, s1, s2, s3, s4, s5, s6, s7, s8, s9, sa, sb, sc, sd, se, sf;
    };
  };
};
template <class V>
struct simt_traits;
template <class T, int N>
struct simt_traits<simt_vec<T, N>> {
  using type = T;
  static constexpr int lanes = N;
};

template <class V, class... A>
SIMT_PLAIN V simt_make(A... a) {
  using T = typename simt_traits<V>::type;
  const T given[] = {(T)a...};
  V r;
  for (int i = 0; i < simt_traits<V>::lanes; ++i) r.v[i] = given[sizeof...(A) == 1 ? 0 : i];
  return r;
}
template <class R, class F>
SIMT_PLAIN R simt_each(F f) {
  R r;
  for (int i = 0; i < simt_traits<R>::lanes; ++i) r.v[i] = f(i);
  return r;
}
#define SIMT_BINARY(op)                                                             \
  template <class T, int N>                                                         \
  SIMT_PLAIN simt_vec<T, N> operator op(simt_vec<T, N> a, simt_vec<T, N> b) {       \
    return simt_each<simt_vec<T, N>>([&](int i) { return (T)(a.v[i] op b.v[i]); }); \
  }
SIMT_BINARY(+)
SIMT_BINARY(-)
SIMT_BINARY(*)
SIMT_BINARY(/)
#define SIMT_COMPARISON(op)                                                               \
  template <class T, int N>                                                               \
  SIMT_PLAIN simt_vec<int, N> operator op(simt_vec<T, N> a, simt_vec<T, N> b) {           \
    return simt_each<simt_vec<int, N>>([&](int i) { return a.v[i] op b.v[i] ? -1 : 0; }); \
  }
SIMT_COMPARISON(<)
SIMT_COMPARISON(>) template <class T, int N>
SIMT_PLAIN simt_vec<T, N> select(simt_vec<T, N> no, simt_vec<T, N> yes, simt_vec<int, N> which) {
  return simt_each<simt_vec<T, N>>([&](int i) { return which.v[i] < 0 ? yes.v[i] : no.v[i]; });
}
#define SIMT_VECTOR_MATH1(name)                                                       \
  template <class T, int N>                                                           \
  SIMT_PLAIN simt_vec<T, N> name(simt_vec<T, N> a) {                                  \
    return simt_each<simt_vec<T, N>>([&](int i) { return simt_math::name(a.v[i]); }); \
  }
#define SIMT_VECTOR_MATH2(name)                                                               \
  template <class T, int N>                                                                   \
  SIMT_PLAIN simt_vec<T, N> name(simt_vec<T, N> a, simt_vec<T, N> b) {                        \
    return simt_each<simt_vec<T, N>>([&](int i) { return simt_math::name(a.v[i], b.v[i]); }); \
  }
namespace simt_math {
SIMT_VECTOR_MATH1(exp)
SIMT_VECTOR_MATH1(log)
SIMT_VECTOR_MATH1(sqrt)
SIMT_VECTOR_MATH1(tanh)
SIMT_VECTOR_MATH1(erf) SIMT_VECTOR_MATH1(fabs) SIMT_VECTOR_MATH1(floor) SIMT_VECTOR_MATH1(ceil)
    SIMT_VECTOR_MATH1(rint) SIMT_VECTOR_MATH1(sin) SIMT_VECTOR_MATH1(cos) SIMT_VECTOR_MATH1(tan)
        SIMT_VECTOR_MATH1(asin) SIMT_VECTOR_MATH1(acos) SIMT_VECTOR_MATH1(atan)
            SIMT_VECTOR_MATH1(sinh) SIMT_VECTOR_MATH1(cosh) SIMT_VECTOR_MATH1(asinh)
                SIMT_VECTOR_MATH1(acosh) SIMT_VECTOR_MATH1(atanh) SIMT_VECTOR_MATH1(expm1)
                    SIMT_VECTOR_MATH2(pow) SIMT_VECTOR_MATH2(fmod) template <class T, int N>
                    SIMT_PLAIN simt_vec<T, N> fma(simt_vec<T, N> a, simt_vec<T, N> b,
                                                  simt_vec<T, N> c) {
  return simt_each<simt_vec<T, N>>([&](int i) { return simt_math::fma(a.v[i], b.v[i], c.v[i]); });
}
}  // namespace simt_math

// A run of elements: one access, aligned as its elements are.
template <class V, class T>
__attribute__((noinline, no_sanitize("thread"))) static V simt_load(const T* p) {
  V r;
  simt->access(simt, p, sizeof(T) * simt_traits<V>::lanes, sizeof(T), 0, SIMT_HERE);
  for (int i = 0; i < simt_traits<V>::lanes; ++i) r.v[i] = p[i];
  return r;
}
template <class T, int N>
__attribute__((noinline, no_sanitize("thread"))) static void simt_store(simt_vec<T, N> value,
                                                                        T* p) {
  simt->access(simt, p, sizeof(T) * N, sizeof(T), 1, SIMT_HERE);
  for (int i = 0; i < N; ++i) p[i] = value.v[i];
}
#define SIMT_LANES(n)                                                                     \
  using char##n = simt_vec<char, n>;                                                      \
  using uchar##n = simt_vec<uchar, n>;                                                    \
  using short##n = simt_vec<short, n>;                                                    \
  using ushort##n = simt_vec<ushort, n>;                                                  \
  using int##n = simt_vec<int, n>;                                                        \
  using uint##n = simt_vec<uint, n>;                                                      \
  using long##n = simt_vec<long, n>;                                                      \
  using ulong##n = simt_vec<ulong, n>;                                                    \
  using float##n = simt_vec<float, n>;                                                    \
  using double##n = simt_vec<double, n>;                                                  \
  template <class T>                                                                      \
  SIMT_PLAIN simt_vec<T, n> vload##n(long at, const T* p) {                               \
    return simt_load<simt_vec<T, n>>(p + at * n);                                         \
  }                                                                                       \
  template <class T>                                                                      \
  SIMT_PLAIN void vstore##n(simt_vec<T, n> value, long at, T* p) {                        \
    simt_store(value, p + at * n);                                                        \
  }                                                                                       \
  SIMT_PLAIN int##n as_int##n(uint##n a) {                                                \
    return simt_each<int##n>([&](int i) { return (int)a.v[i]; });                         \
  }                                                                                       \
  SIMT_PLAIN uint##n as_uint##n(int##n a) {                                               \
    return simt_each<uint##n>([&](int i) { return (uint)a.v[i]; });                       \
  }                                                                                       \
  SIMT_CONVERT(char, n)                                                                   \
  SIMT_CONVERT(uchar, n)                                                                  \
  SIMT_CONVERT(short, n)                                                                  \
  SIMT_CONVERT(ushort, n)                                                                 \
  SIMT_CONVERT(int, n) SIMT_CONVERT(uint, n) SIMT_CONVERT(long, n) SIMT_CONVERT(ulong, n) \
      SIMT_CONVERT(float, n) SIMT_CONVERT(double, n)
#define SIMT_CONVERT(type, n)                                       \
  template <class T>                                                \
  SIMT_PLAIN type##n convert_##type##n(simt_vec<T, n> a) {          \
    return simt_each<type##n>([&](int i) { return (type)a.v[i]; }); \
  }
SIMT_LANES(2)
SIMT_LANES(4)
SIMT_LANES(8)
SIMT_LANES(16)

// clang-format on

// To the nearest number that the type has, towards zero; no number is 0.
template <class R>
SIMT_PLAIN R simt_saturate(double x, double least, double most) {
  if (x != x) return 0;
  constexpr bool is_signed = (R)-1 < 0;
  constexpr R top = is_signed ? (R)((1UL << (8 * sizeof(R) - 1)) - 1) : (R)-1;
  if (x >= most) return top;
  if (x <= least) return is_signed ? (R)(-top - 1) : (R)0;
  return (R)x;
}
#define SIMT_SATURATE(type, least, most) \
  SIMT_PLAIN type convert_##type##_sat_rtz(double x) { return simt_saturate<type>(x, least, most); }
SIMT_SATURATE(char, -128.0, 127.0)
SIMT_SATURATE(short, -32768.0, 32767.0)
SIMT_SATURATE(int, -2147483648.0, 2147483647.0)
SIMT_SATURATE(long, -0x1p63, 0x1p63)
SIMT_SATURATE(uchar, 0.0, 255.0)
SIMT_SATURATE(ushort, 0.0, 65535.0)
SIMT_SATURATE(uint, 0.0, 4294967295.0)
SIMT_SATURATE(ulong, 0.0, 0x1p64)
