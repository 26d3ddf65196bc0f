#define TW_LANES 64
#pragma clang force_cuda_host_device begin
#ifndef __global__
#define __global__ __attribute__((global))
#define __shared__ __attribute__((shared))
#endif
#undef __launch_bounds__
#define __launch_bounds__(n) __attribute__((amdgpu_flat_work_group_size(n, n)))
#undef __align__
#define __align__(n) __attribute__((aligned(n)))
#define restrict __restrict__
#undef NAN
#undef INFINITY
#define NAN __builtin_nanf("")
#define INFINITY __builtin_inff()
#define TW_BITS_OF(f) __builtin_bit_cast(unsigned, f)
#define TW_FLOAT_OF(bits) __builtin_bit_cast(float, bits)
struct tw_axes { unsigned x, y, z; };
#define TW_AXES(name, function) \
  static inline tw_axes tw_##name() { return {function##_x(), function##_y(), function##_z()}; }
TW_AXES(thread_at, __builtin_amdgcn_workitem_id)
TW_AXES(group_at, __builtin_amdgcn_workgroup_id)
TW_AXES(group_size, __builtin_amdgcn_workgroup_size)
#define threadIdx tw_thread_at()
#define blockIdx tw_group_at()
#define blockDim tw_group_size()
#define __syncthreads() \
  (__builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup"), __builtin_amdgcn_s_barrier(), \
   __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup"))
typedef signed char tw_i8;
typedef unsigned char tw_u8;
typedef unsigned short tw_u16;
typedef unsigned int tw_u32;
typedef unsigned long tw_u64;
#define TW_TO_INT(type, least, most, lowest, highest) \
  static inline type convert_##type##_sat_rtz(double x) { \
    return x != x ? 0 : x <= least ? lowest : x >= most ? highest : (type)x; \
  }
TW_TO_INT(tw_i8, -128.0, 127.0, -128, 127)
TW_TO_INT(short, -32768.0, 32767.0, -32768, 32767)
TW_TO_INT(int, -2147483648.0, 2147483647.0, -2147483647 - 1, 2147483647)
TW_TO_INT(long, -0x1p63, 0x1p63, -9223372036854775807L - 1, 9223372036854775807L)
TW_TO_INT(tw_u8, 0.0, 255.0, 0, 255)
TW_TO_INT(tw_u16, 0.0, 65535.0, 0, 65535)
TW_TO_INT(tw_u32, 0.0, 4294967295.0, 0, 4294967295U)
TW_TO_INT(tw_u64, 0.0, 0x1p64, 0, 18446744073709551615UL)
#define TW_BUILTIN(name) \
  static inline float tw_##name(float x) { return __builtin_##name##f(x); } \
  static inline double tw_##name(double x) { return __builtin_##name(x); }
TW_BUILTIN(sqrt)
TW_BUILTIN(fabs)
TW_BUILTIN(floor)
TW_BUILTIN(ceil)
TW_BUILTIN(rint)
static inline float tw_exp(float x) { return __builtin_expf(x); }
static inline float tw_log(float x) { return __builtin_logf(x); }
static inline float tw_fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
static inline double tw_fma(double a, double b, double c) { return __builtin_fma(a, b, c); }
static inline int tw_abs(int x) { return x < 0 ? -x : x; }
static inline long tw_abs(long x) { return x < 0 ? -x : x; }
#ifndef TW_LIBRARY
#define TW_LIBRARY(name, type, suffix) \
  extern "C" type __ocml_##name##_##suffix(type); \
  static inline type tw_##name(type x) { return __ocml_##name##_##suffix(x); }
#define TW_LIBRARY2(name, type, suffix) \
  extern "C" type __ocml_##name##_##suffix(type, type); \
  static inline type tw_##name(type x, type y) { return __ocml_##name##_##suffix(x, y); }
#endif
#define TW_LIBRARY_BOTH(name) TW_LIBRARY(name, float, f32) TW_LIBRARY(name, double, f64)
TW_LIBRARY(exp, double, f64)
TW_LIBRARY(log, double, f64)
TW_LIBRARY(tanh, double, f64)
TW_LIBRARY(erf, double, f64)
TW_LIBRARY(expm1, double, f64)
TW_LIBRARY_BOTH(sin)
TW_LIBRARY_BOTH(cos)
TW_LIBRARY_BOTH(tan)
TW_LIBRARY_BOTH(asin)
TW_LIBRARY_BOTH(acos)
TW_LIBRARY_BOTH(atan)
TW_LIBRARY_BOTH(sinh)
TW_LIBRARY_BOTH(cosh)
TW_LIBRARY_BOTH(asinh)
TW_LIBRARY_BOTH(acosh)
TW_LIBRARY_BOTH(atanh)
TW_LIBRARY2(pow, float, f32)
TW_LIBRARY2(pow, double, f64)
TW_LIBRARY2(fmod, float, f32)
TW_LIBRARY2(fmod, double, f64)
static inline float tw_tanh(float x) {
  const float square = x * x;
  if (square < 0.4f)
    return tw_fma(x * square, tw_fma(tw_fma(tw_fma(tw_fma(-0.005655758f, square, 0.020597411f), square, -0.053727806f), square, 0.13331312f), square, -0.33333278f), x);
  const float far = 1.0f - 2.0f / (tw_exp(2.0f * tw_fabs(x)) + 1.0f);
  return x < 0.0f ? -far : far;
}
static inline float tw_expm1(float x) {
  if (x > 1.0f) return tw_exp(x) - 1.0f;
  const float t = tw_tanh(0.5f * x);
  return 2.0f * t / (1.0f - t);
}
static inline float tw_erf(float x) {
  const float z = tw_fabs(x), square = x * x;
  if (z < 1.0f)
    return tw_fma(x, tw_fma(tw_fma(tw_fma(tw_fma(tw_fma(tw_fma(7.920368e-05f, square, -0.00080307614f), square, 0.005190734f), square, -0.026855126f), square, 0.11283618f), square, -0.3761263f), square, 0.12837917f), x);
  const float t = z > 4.0f ? 4.0f : z;
  const float far = 1.0f - tw_exp(tw_fma(tw_fma(tw_fma(tw_fma(tw_fma(tw_fma(tw_fma(-2.1684384e-05f, t, 0.0004413091f), t, -0.0042044404f), t, 0.025207976f), t, -0.10841822f), t, -0.63322014f), t, -1.1295784f), t, 0.00018803669f));
  return x < 0.0f ? -far : far;
}
#ifndef TW_OWN_WIDE
template <class T, int N> struct alignas(sizeof(T) * N) tw_wide { T v[N]; };
#endif
#if defined(__GFX11__) || defined(__GFX12__)
#define TW_DP4A(a_type, b_type, sum, a, b) \
  sum = __builtin_amdgcn_sudot4(TW_SIGN_##a_type, a, TW_SIGN_##b_type, b, sum, false)
#define TW_SIGN_s32 true
#define TW_SIGN_u32 false
#else
template <class A, class B> static inline int tw_add_bytes(int sum, tw_u32 a, tw_u32 b) {
  for (int i = 0; i < 32; i += 8)
    sum = (int)((tw_u32)sum + (tw_u32)((A)(a >> i) * (B)(b >> i)));
  return sum;
}
#define TW_DP4A(a_type, b_type, sum, a, b) sum = TW_ADD_##a_type##_##b_type(sum, a, b)
#define TW_ADD_s32_u32(sum, a, b) tw_add_bytes<tw_i8, tw_u8>(sum, a, b)
#define TW_ADD_u32_s32(sum, a, b) tw_add_bytes<tw_u8, tw_i8>(sum, a, b)
#ifdef __GFX9__
#define TW_ADD_s32_s32(sum, a, b) __builtin_amdgcn_sdot4(a, b, sum, false)
#define TW_ADD_u32_u32(sum, a, b) (int)__builtin_amdgcn_udot4(a, b, (tw_u32)sum, false)
#else
#define TW_ADD_s32_s32(sum, a, b) tw_add_bytes<tw_i8, tw_i8>(sum, a, b)
#define TW_ADD_u32_u32(sum, a, b) tw_add_bytes<tw_u8, tw_u8>(sum, a, b)
#endif
#endif
static inline tw_u32 tw_four(tw_u8 a, tw_u8 b, tw_u8 c, tw_u8 d) {
  return a | b << 8 | c << 16 | (tw_u32)d << 24;
}
#define TW_DOT4(a_type, b_type, A, B) \
  static inline int tw_dot4(int sum, A a0, A a1, A a2, A a3, B b0, B b1, B b2, B b3) { \
    TW_DP4A(a_type, b_type, sum, tw_four(a0, a1, a2, a3), tw_four(b0, b1, b2, b3)); \
    return sum; \
  }
TW_DOT4(s32, s32, tw_i8, tw_i8)
TW_DOT4(s32, u32, tw_i8, tw_u8)
TW_DOT4(u32, s32, tw_u8, tw_i8)
TW_DOT4(u32, u32, tw_u8, tw_u8)
extern "C" __global__ __launch_bounds__(2 * 1 * 1) void dots_k0(const tw_u8* restrict A, const tw_i8* restrict W, int* restrict C) {
  const int i = (int)blockIdx.x;
  const int tx = (int)threadIdx.x;
  {
    const int lane = ((int)(0));
    const int lane_1 = ((int)(0));
    const int lane_2 = ((int)(0));
    const int lane_3 = ((int)(0));
    const tw_wide<int, 4> wide = {{lane, lane_1, lane_2, lane_3}};
    *(tw_wide<int, 4>*)(C + ((i * 8) + (tx * 4))) = wide;
  }
  for (int ko = 0; ko < 5; ++ko) {
    {
      const auto run = *(const tw_wide<int, 4>*)(C + ((i * 8) + (tx * 4)));
      const auto run_1 = *(const tw_wide<tw_u8, 4>*)(A + ((i * 20) + (ko * 4)));
      const auto run_2 = *(const tw_wide<tw_i8, 16>*)(W + ((tx * 80) + (ko * 16)));
      const int lane_4 = tw_dot4(run.v[0], run_1.v[0], run_1.v[1], run_1.v[2], run_1.v[3], run_2.v[0], run_2.v[1], run_2.v[2], run_2.v[3]);
      const int lane_5 = tw_dot4(run.v[1], run_1.v[0], run_1.v[1], run_1.v[2], run_1.v[3], run_2.v[4], run_2.v[5], run_2.v[6], run_2.v[7]);
      const int lane_6 = tw_dot4(run.v[2], run_1.v[0], run_1.v[1], run_1.v[2], run_1.v[3], run_2.v[8], run_2.v[9], run_2.v[10], run_2.v[11]);
      const int lane_7 = tw_dot4(run.v[3], run_1.v[0], run_1.v[1], run_1.v[2], run_1.v[3], run_2.v[12], run_2.v[13], run_2.v[14], run_2.v[15]);
      const tw_wide<int, 4> wide_1 = {{lane_4, lane_5, lane_6, lane_7}};
      *(tw_wide<int, 4>*)(C + ((i * 8) + (tx * 4))) = wide_1;
    }
  }
}
