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
extern "C" __global__ __launch_bounds__(32 * 1 * 1) void stream_k_k0(const float* restrict A, const float* restrict B, const float* restrict bias, float* restrict D, float* restrict C_rest_rf) {
  __shared__ __align__(16) float B_shared[128];
  __shared__ __align__(16) float A_shared[64];
  const int i_0_j_0_f_both = (int)blockIdx.x;
  const int tx = (int)threadIdx.x;
  if ((i_0_j_0_f_both < 6)) {
    {
      float C[4];
      {
        const float lane = 0.0f;
        const float lane_1 = 0.0f;
        const float lane_2 = 0.0f;
        const float lane_3 = 0.0f;
        C[0] = lane;
        C[1] = lane_1;
        C[2] = lane_2;
        C[3] = lane_3;
      }
      for (int k_a_0 = 0; k_a_0 < 4; ++k_a_0) {
        __syncthreads();
        {
          const auto run = *(const tw_wide<float, 4>*)(B + ((((tx / 2) * 32) + (k_a_0 * 8)) + ((tx % 2) * 4)));
          const tw_wide<float, 4> wide = {{run.v[0], run.v[1], run.v[2], run.v[3]}};
          *(tw_wide<float, 4>*)(B_shared + (tx * 4)) = wide;
        }
        if ((tx < 16)) {
          {
            const auto run_1 = *(const tw_wide<float, 4>*)(A + ((((i_0_j_0_f_both * 256) + ((tx / 2) * 32)) + (k_a_0 * 8)) + ((tx % 2) * 4)));
            const tw_wide<float, 4> wide_1 = {{run_1.v[0], run_1.v[1], run_1.v[2], run_1.v[3]}};
            *(tw_wide<float, 4>*)(A_shared + (tx * 4)) = wide_1;
          }
        }
        __syncthreads();
        for (int k_a_1 = 0; k_a_1 < 8; ++k_a_1) {
          {
            const float lane_4 = (C[0] + (A_shared[(((tx / 4) * 8) + k_a_1)] * B_shared[(((tx % 4) * 32) + k_a_1)]));
            const float lane_5 = (C[1] + (A_shared[(((tx / 4) * 8) + k_a_1)] * B_shared[((((tx % 4) * 32) + k_a_1) + 8)]));
            const float lane_6 = (C[2] + (A_shared[(((tx / 4) * 8) + k_a_1)] * B_shared[((((tx % 4) * 32) + k_a_1) + 16)]));
            const float lane_7 = (C[3] + (A_shared[(((tx / 4) * 8) + k_a_1)] * B_shared[((((tx % 4) * 32) + k_a_1) + 24)]));
            C[0] = lane_4;
            C[1] = lane_5;
            C[2] = lane_6;
            C[3] = lane_7;
          }
        }
      }
      {
        const auto run_2 = *(const tw_wide<float, 4>*)(bias + ((tx % 4) * 4));
        const float lane_8 = ((C[0] + run_2.v[0]) > 0.0f ? (C[0] + run_2.v[0]) : 0.0f);
        const float lane_9 = ((C[1] + run_2.v[1]) > 0.0f ? (C[1] + run_2.v[1]) : 0.0f);
        const float lane_10 = ((C[2] + run_2.v[2]) > 0.0f ? (C[2] + run_2.v[2]) : 0.0f);
        const float lane_11 = ((C[3] + run_2.v[3]) > 0.0f ? (C[3] + run_2.v[3]) : 0.0f);
        const tw_wide<float, 4> wide_2 = {{lane_8, lane_9, lane_10, lane_11}};
        *(tw_wide<float, 4>*)(D + ((i_0_j_0_f_both * 128) + (tx * 4))) = wide_2;
      }
    }
  }
  else {
    {
      float C_rest_rf_local[4];
      {
        const float lane_12 = 0.0f;
        const float lane_13 = 0.0f;
        const float lane_14 = 0.0f;
        const float lane_15 = 0.0f;
        C_rest_rf_local[0] = lane_12;
        C_rest_rf_local[1] = lane_13;
        C_rest_rf_local[2] = lane_14;
        C_rest_rf_local[3] = lane_15;
      }
      for (int k_r_1_a_0 = 0; k_r_1_a_0 < 2; ++k_r_1_a_0) {
        __syncthreads();
        {
          const auto run_3 = *(const tw_wide<float, 4>*)(B + ((((((tx / 2) * 32) + ((i_0_j_0_f_both / 2) * 16)) + (k_r_1_a_0 * 8)) + ((tx % 2) * 4)) - 48));
          const tw_wide<float, 4> wide_3 = {{run_3.v[0], run_3.v[1], run_3.v[2], run_3.v[3]}};
          *(tw_wide<float, 4>*)(B_shared + (tx * 4)) = wide_3;
        }
        if ((tx < 16)) {
          {
            const auto run_4 = *(const tw_wide<float, 4>*)(A + (((((((i_0_j_0_f_both % 2) * 256) + ((tx / 2) * 32)) + ((i_0_j_0_f_both / 2) * 16)) + (k_r_1_a_0 * 8)) + ((tx % 2) * 4)) + 1488));
            const tw_wide<float, 4> wide_4 = {{run_4.v[0], run_4.v[1], run_4.v[2], run_4.v[3]}};
            *(tw_wide<float, 4>*)(A_shared + (tx * 4)) = wide_4;
          }
        }
        __syncthreads();
        for (int k_r_1_a_1 = 0; k_r_1_a_1 < 8; ++k_r_1_a_1) {
          {
            const float lane_16 = (C_rest_rf_local[0] + (A_shared[(((tx / 4) * 8) + k_r_1_a_1)] * B_shared[(((tx % 4) * 32) + k_r_1_a_1)]));
            const float lane_17 = (C_rest_rf_local[1] + (A_shared[(((tx / 4) * 8) + k_r_1_a_1)] * B_shared[((((tx % 4) * 32) + k_r_1_a_1) + 8)]));
            const float lane_18 = (C_rest_rf_local[2] + (A_shared[(((tx / 4) * 8) + k_r_1_a_1)] * B_shared[((((tx % 4) * 32) + k_r_1_a_1) + 16)]));
            const float lane_19 = (C_rest_rf_local[3] + (A_shared[(((tx / 4) * 8) + k_r_1_a_1)] * B_shared[((((tx % 4) * 32) + k_r_1_a_1) + 24)]));
            C_rest_rf_local[0] = lane_16;
            C_rest_rf_local[1] = lane_17;
            C_rest_rf_local[2] = lane_18;
            C_rest_rf_local[3] = lane_19;
          }
        }
      }
      {
        const float lane_20 = C_rest_rf_local[0];
        const float lane_21 = C_rest_rf_local[1];
        const float lane_22 = C_rest_rf_local[2];
        const float lane_23 = C_rest_rf_local[3];
        const tw_wide<float, 4> wide_5 = {{lane_20, lane_21, lane_22, lane_23}};
        *(tw_wide<float, 4>*)(C_rest_rf + (((i_0_j_0_f_both * 128) + (tx * 4)) - 768)) = wide_5;
      }
    }
  }
}

extern "C" __global__ __launch_bounds__(128 * 1 * 1) void stream_k_k1(const float* restrict bias, const float* restrict C_rest_rf, float* restrict D) {
  const int i_r_r1_j_r_r1_f_0 = (int)blockIdx.x;
  const int tx = (int)threadIdx.x;
  {
    float C_rest;
    C_rest = 0.0f;
    for (int k_r_0_w_a = 0; k_r_0_w_a < 2; ++k_r_0_w_a) {
      C_rest = (C_rest + C_rest_rf[(((k_r_0_w_a * 256) + (i_r_r1_j_r_r1_f_0 * 128)) + tx)]);
    }
    D[(((i_r_r1_j_r_r1_f_0 * 128) + tx) + 768)] = ((C_rest + bias[(tx % 16)]) > 0.0f ? (C_rest + bias[(tx % 16)]) : 0.0f);
  }
}
