// Metal's words for clang as a compiler of C++ for OpenCL (metal_types.h), which has Metal's
// address spaces by other names. Part of the checked program, not of tests.
#define device __global
#define threadgroup __local

// Neighbours in memory. Metal copies objects between address spaces by members that it declares
// itself; here they are written down.
#define TW_OWN_WIDE
template <class T, int N>
struct alignas(sizeof(T) * N) tw_wide {
  T v[N];
  struct Values {
    T v[N];
  };
  tw_wide() __private {}
  tw_wide(Values values) __private { Take(values.v); }
  tw_wide(const __private tw_wide& from) __private { Take(from.v); }
  tw_wide(const __global tw_wide& from) __private { Take(from.v); }
  tw_wide(const __local tw_wide& from) __private { Take(from.v); }
  void operator=(const __private tw_wide& from) __private { Take(from.v); }
  void operator=(const __global tw_wide& from) __private { Take(from.v); }
  void operator=(const __local tw_wide& from) __private { Take(from.v); }
  void operator=(const __private tw_wide& from) __global {
    for (int i = 0; i < N; ++i) v[i] = from.v[i];
  }
  void operator=(const __private tw_wide& from) __local {
    for (int i = 0; i < N; ++i) v[i] = from.v[i];
  }

 private:
  template <class From>
  void Take(const From& from) __private {
    for (int i = 0; i < N; ++i) v[i] = from[i];
  }
};

namespace metal {
enum class mem_flags { mem_none = 0, mem_device = 1, mem_threadgroup = 2 };
inline mem_flags operator|(mem_flags a, mem_flags b) { return (mem_flags)((int)a | (int)b); }
void threadgroup_barrier(mem_flags flags);
template <class T>
T simd_sum(T x);
template <class T>
T simd_min(T x);
template <class T>
T simd_max(T x);
}  // namespace metal
