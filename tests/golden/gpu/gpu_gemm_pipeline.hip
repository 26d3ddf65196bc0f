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
extern "C" __global__ __launch_bounds__(8 * 8 * 1) void gemm_k0(const float* restrict A, const float* restrict B, float* restrict C) {
  __shared__ __align__(16) float A_shared[768];
  __shared__ __align__(16) float B_shared[768];
  const int j_0 = (int)blockIdx.x;
  const int ty = (int)threadIdx.y;
  const int tx = (int)threadIdx.x;
  {
    float C_local;
    float C_local_1;
    float C_local_2;
    float C_local_3;
    float C_local_4;
    float C_local_5;
    float C_local_6;
    float C_local_7;
    float C_local_8;
    float C_local_9;
    float C_local_10;
    float C_local_11;
    float C_local_12;
    float C_local_13;
    float C_local_14;
    float C_local_15;
    C_local = 0.0f;
    C_local_1 = 0.0f;
    C_local_2 = 0.0f;
    C_local_3 = 0.0f;
    C_local_4 = 0.0f;
    C_local_5 = 0.0f;
    C_local_6 = 0.0f;
    C_local_7 = 0.0f;
    C_local_8 = 0.0f;
    C_local_9 = 0.0f;
    C_local_10 = 0.0f;
    C_local_11 = 0.0f;
    C_local_12 = 0.0f;
    C_local_13 = 0.0f;
    C_local_14 = 0.0f;
    C_local_15 = 0.0f;
    for (int d0_r1_a_d1_r1_a_f_0 = 0; d0_r1_a_d1_r1_a_f_0 < 4; ++d0_r1_a_d1_r1_a_f_0) {
      B_shared[(((d0_r1_a_d1_r1_a_f_0 * 64) + (ty * 8)) + tx)] = B[(((((d0_r1_a_d1_r1_a_f_0 * 128) + ((ty / 4) * 64)) + (j_0 * 32)) + ((ty % 4) * 8)) + tx)];
    }
    for (int d0_a_d1_a_f_0 = 0; d0_a_d1_a_f_0 < 4; ++d0_a_d1_a_f_0) {
      A_shared[(((d0_a_d1_a_f_0 * 64) + (ty * 8)) + tx)] = A[(((d0_a_d1_a_f_0 * 256) + (ty * 32)) + tx)];
    }
    for (int d0_r1_a_d1_r1_a_f_0_1 = 0; d0_r1_a_d1_r1_a_f_0_1 < 4; ++d0_r1_a_d1_r1_a_f_0_1) {
      B_shared[((((d0_r1_a_d1_r1_a_f_0_1 * 64) + (ty * 8)) + tx) + 256)] = B[((((((d0_r1_a_d1_r1_a_f_0_1 * 128) + ((ty / 4) * 64)) + (j_0 * 32)) + ((ty % 4) * 8)) + tx) + 512)];
    }
    for (int d0_a_d1_a_f_0_1 = 0; d0_a_d1_a_f_0_1 < 4; ++d0_a_d1_a_f_0_1) {
      A_shared[((((d0_a_d1_a_f_0_1 * 64) + (ty * 8)) + tx) + 256)] = A[((((d0_a_d1_a_f_0_1 * 256) + (ty * 32)) + tx) + 8)];
    }
    for (int k_0 = 0; k_0 < 2; ++k_0) {
      __syncthreads();
      for (int d0_r1_a_d1_r1_a_f_0_2 = 0; d0_r1_a_d1_r1_a_f_0_2 < 4; ++d0_r1_a_d1_r1_a_f_0_2) {
        B_shared[((((((k_0 + 2) % 3) * 256) + (d0_r1_a_d1_r1_a_f_0_2 * 64)) + (ty * 8)) + tx)] = B[(((((((k_0 * 512) + (d0_r1_a_d1_r1_a_f_0_2 * 128)) + ((ty / 4) * 64)) + (j_0 * 32)) + ((ty % 4) * 8)) + tx) + 1024)];
      }
      for (int d0_a_d1_a_f_0_2 = 0; d0_a_d1_a_f_0_2 < 4; ++d0_a_d1_a_f_0_2) {
        A_shared[((((((k_0 + 2) % 3) * 256) + (d0_a_d1_a_f_0_2 * 64)) + (ty * 8)) + tx)] = A[(((((d0_a_d1_a_f_0_2 * 256) + (ty * 32)) + (k_0 * 8)) + tx) + 16)];
      }
      for (int k_1 = 0; k_1 < 8; ++k_1) {
        C_local = (C_local + (A_shared[(((k_0 * 256) + (ty * 32)) + k_1)] * B_shared[(((k_0 * 256) + (k_1 * 32)) + (tx * 4))]));
        C_local_1 = (C_local_1 + (A_shared[(((k_0 * 256) + (ty * 32)) + k_1)] * B_shared[((((k_0 * 256) + (k_1 * 32)) + (tx * 4)) + 1)]));
        C_local_2 = (C_local_2 + (A_shared[(((k_0 * 256) + (ty * 32)) + k_1)] * B_shared[((((k_0 * 256) + (k_1 * 32)) + (tx * 4)) + 2)]));
        C_local_3 = (C_local_3 + (A_shared[(((k_0 * 256) + (ty * 32)) + k_1)] * B_shared[((((k_0 * 256) + (k_1 * 32)) + (tx * 4)) + 3)]));
        C_local_4 = (C_local_4 + (A_shared[((((k_0 * 256) + (ty * 32)) + k_1) + 8)] * B_shared[(((k_0 * 256) + (k_1 * 32)) + (tx * 4))]));
        C_local_5 = (C_local_5 + (A_shared[((((k_0 * 256) + (ty * 32)) + k_1) + 8)] * B_shared[((((k_0 * 256) + (k_1 * 32)) + (tx * 4)) + 1)]));
        C_local_6 = (C_local_6 + (A_shared[((((k_0 * 256) + (ty * 32)) + k_1) + 8)] * B_shared[((((k_0 * 256) + (k_1 * 32)) + (tx * 4)) + 2)]));
        C_local_7 = (C_local_7 + (A_shared[((((k_0 * 256) + (ty * 32)) + k_1) + 8)] * B_shared[((((k_0 * 256) + (k_1 * 32)) + (tx * 4)) + 3)]));
        C_local_8 = (C_local_8 + (A_shared[((((k_0 * 256) + (ty * 32)) + k_1) + 16)] * B_shared[(((k_0 * 256) + (k_1 * 32)) + (tx * 4))]));
        C_local_9 = (C_local_9 + (A_shared[((((k_0 * 256) + (ty * 32)) + k_1) + 16)] * B_shared[((((k_0 * 256) + (k_1 * 32)) + (tx * 4)) + 1)]));
        C_local_10 = (C_local_10 + (A_shared[((((k_0 * 256) + (ty * 32)) + k_1) + 16)] * B_shared[((((k_0 * 256) + (k_1 * 32)) + (tx * 4)) + 2)]));
        C_local_11 = (C_local_11 + (A_shared[((((k_0 * 256) + (ty * 32)) + k_1) + 16)] * B_shared[((((k_0 * 256) + (k_1 * 32)) + (tx * 4)) + 3)]));
        C_local_12 = (C_local_12 + (A_shared[((((k_0 * 256) + (ty * 32)) + k_1) + 24)] * B_shared[(((k_0 * 256) + (k_1 * 32)) + (tx * 4))]));
        C_local_13 = (C_local_13 + (A_shared[((((k_0 * 256) + (ty * 32)) + k_1) + 24)] * B_shared[((((k_0 * 256) + (k_1 * 32)) + (tx * 4)) + 1)]));
        C_local_14 = (C_local_14 + (A_shared[((((k_0 * 256) + (ty * 32)) + k_1) + 24)] * B_shared[((((k_0 * 256) + (k_1 * 32)) + (tx * 4)) + 2)]));
        C_local_15 = (C_local_15 + (A_shared[((((k_0 * 256) + (ty * 32)) + k_1) + 24)] * B_shared[((((k_0 * 256) + (k_1 * 32)) + (tx * 4)) + 3)]));
      }
    }
    __syncthreads();
    for (int k_1_1 = 0; k_1_1 < 8; ++k_1_1) {
      C_local = (C_local + (A_shared[(((ty * 32) + k_1_1) + 512)] * B_shared[(((k_1_1 * 32) + (tx * 4)) + 512)]));
      C_local_1 = (C_local_1 + (A_shared[(((ty * 32) + k_1_1) + 512)] * B_shared[(((k_1_1 * 32) + (tx * 4)) + 513)]));
      C_local_2 = (C_local_2 + (A_shared[(((ty * 32) + k_1_1) + 512)] * B_shared[(((k_1_1 * 32) + (tx * 4)) + 514)]));
      C_local_3 = (C_local_3 + (A_shared[(((ty * 32) + k_1_1) + 512)] * B_shared[(((k_1_1 * 32) + (tx * 4)) + 515)]));
      C_local_4 = (C_local_4 + (A_shared[(((ty * 32) + k_1_1) + 520)] * B_shared[(((k_1_1 * 32) + (tx * 4)) + 512)]));
      C_local_5 = (C_local_5 + (A_shared[(((ty * 32) + k_1_1) + 520)] * B_shared[(((k_1_1 * 32) + (tx * 4)) + 513)]));
      C_local_6 = (C_local_6 + (A_shared[(((ty * 32) + k_1_1) + 520)] * B_shared[(((k_1_1 * 32) + (tx * 4)) + 514)]));
      C_local_7 = (C_local_7 + (A_shared[(((ty * 32) + k_1_1) + 520)] * B_shared[(((k_1_1 * 32) + (tx * 4)) + 515)]));
      C_local_8 = (C_local_8 + (A_shared[(((ty * 32) + k_1_1) + 528)] * B_shared[(((k_1_1 * 32) + (tx * 4)) + 512)]));
      C_local_9 = (C_local_9 + (A_shared[(((ty * 32) + k_1_1) + 528)] * B_shared[(((k_1_1 * 32) + (tx * 4)) + 513)]));
      C_local_10 = (C_local_10 + (A_shared[(((ty * 32) + k_1_1) + 528)] * B_shared[(((k_1_1 * 32) + (tx * 4)) + 514)]));
      C_local_11 = (C_local_11 + (A_shared[(((ty * 32) + k_1_1) + 528)] * B_shared[(((k_1_1 * 32) + (tx * 4)) + 515)]));
      C_local_12 = (C_local_12 + (A_shared[(((ty * 32) + k_1_1) + 536)] * B_shared[(((k_1_1 * 32) + (tx * 4)) + 512)]));
      C_local_13 = (C_local_13 + (A_shared[(((ty * 32) + k_1_1) + 536)] * B_shared[(((k_1_1 * 32) + (tx * 4)) + 513)]));
      C_local_14 = (C_local_14 + (A_shared[(((ty * 32) + k_1_1) + 536)] * B_shared[(((k_1_1 * 32) + (tx * 4)) + 514)]));
      C_local_15 = (C_local_15 + (A_shared[(((ty * 32) + k_1_1) + 536)] * B_shared[(((k_1_1 * 32) + (tx * 4)) + 515)]));
    }
    __syncthreads();
    for (int k_1_2 = 0; k_1_2 < 8; ++k_1_2) {
      C_local = (C_local + (A_shared[((ty * 32) + k_1_2)] * B_shared[((k_1_2 * 32) + (tx * 4))]));
      C_local_1 = (C_local_1 + (A_shared[((ty * 32) + k_1_2)] * B_shared[(((k_1_2 * 32) + (tx * 4)) + 1)]));
      C_local_2 = (C_local_2 + (A_shared[((ty * 32) + k_1_2)] * B_shared[(((k_1_2 * 32) + (tx * 4)) + 2)]));
      C_local_3 = (C_local_3 + (A_shared[((ty * 32) + k_1_2)] * B_shared[(((k_1_2 * 32) + (tx * 4)) + 3)]));
      C_local_4 = (C_local_4 + (A_shared[(((ty * 32) + k_1_2) + 8)] * B_shared[((k_1_2 * 32) + (tx * 4))]));
      C_local_5 = (C_local_5 + (A_shared[(((ty * 32) + k_1_2) + 8)] * B_shared[(((k_1_2 * 32) + (tx * 4)) + 1)]));
      C_local_6 = (C_local_6 + (A_shared[(((ty * 32) + k_1_2) + 8)] * B_shared[(((k_1_2 * 32) + (tx * 4)) + 2)]));
      C_local_7 = (C_local_7 + (A_shared[(((ty * 32) + k_1_2) + 8)] * B_shared[(((k_1_2 * 32) + (tx * 4)) + 3)]));
      C_local_8 = (C_local_8 + (A_shared[(((ty * 32) + k_1_2) + 16)] * B_shared[((k_1_2 * 32) + (tx * 4))]));
      C_local_9 = (C_local_9 + (A_shared[(((ty * 32) + k_1_2) + 16)] * B_shared[(((k_1_2 * 32) + (tx * 4)) + 1)]));
      C_local_10 = (C_local_10 + (A_shared[(((ty * 32) + k_1_2) + 16)] * B_shared[(((k_1_2 * 32) + (tx * 4)) + 2)]));
      C_local_11 = (C_local_11 + (A_shared[(((ty * 32) + k_1_2) + 16)] * B_shared[(((k_1_2 * 32) + (tx * 4)) + 3)]));
      C_local_12 = (C_local_12 + (A_shared[(((ty * 32) + k_1_2) + 24)] * B_shared[((k_1_2 * 32) + (tx * 4))]));
      C_local_13 = (C_local_13 + (A_shared[(((ty * 32) + k_1_2) + 24)] * B_shared[(((k_1_2 * 32) + (tx * 4)) + 1)]));
      C_local_14 = (C_local_14 + (A_shared[(((ty * 32) + k_1_2) + 24)] * B_shared[(((k_1_2 * 32) + (tx * 4)) + 2)]));
      C_local_15 = (C_local_15 + (A_shared[(((ty * 32) + k_1_2) + 24)] * B_shared[(((k_1_2 * 32) + (tx * 4)) + 3)]));
    }
    {
      const float lane = C_local;
      const float lane_1 = C_local_1;
      const float lane_2 = C_local_2;
      const float lane_3 = C_local_3;
      const tw_wide<float, 4> wide = {{lane, lane_1, lane_2, lane_3}};
      *(tw_wide<float, 4>*)(C + (((ty * 256) + (j_0 * 32)) + (tx * 4))) = wide;
    }
    {
      const float lane_4 = C_local_4;
      const float lane_5 = C_local_5;
      const float lane_6 = C_local_6;
      const float lane_7 = C_local_7;
      const tw_wide<float, 4> wide_1 = {{lane_4, lane_5, lane_6, lane_7}};
      *(tw_wide<float, 4>*)(C + ((((ty * 256) + (j_0 * 32)) + (tx * 4)) + 64)) = wide_1;
    }
    {
      const float lane_8 = C_local_8;
      const float lane_9 = C_local_9;
      const float lane_10 = C_local_10;
      const float lane_11 = C_local_11;
      const tw_wide<float, 4> wide_2 = {{lane_8, lane_9, lane_10, lane_11}};
      *(tw_wide<float, 4>*)(C + ((((ty * 256) + (j_0 * 32)) + (tx * 4)) + 128)) = wide_2;
    }
    {
      const float lane_12 = C_local_12;
      const float lane_13 = C_local_13;
      const float lane_14 = C_local_14;
      const float lane_15 = C_local_15;
      const tw_wide<float, 4> wide_3 = {{lane_12, lane_13, lane_14, lane_15}};
      *(tw_wide<float, 4>*)(C + ((((ty * 256) + (j_0 * 32)) + (tx * 4)) + 192)) = wide_3;
    }
  }
}
