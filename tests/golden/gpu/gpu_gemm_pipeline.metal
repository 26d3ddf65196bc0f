#include <metal_stdlib>
using namespace metal;
#if __METAL_VERSION__ >= 320
#pragma METAL fp math_mode(safe)
#pragma METAL fp contract(off)
#endif
#define restrict
#define TW_TO_INT(type, least, most, lowest, highest) \
  static inline type convert_##type##_sat_rtz(float x) { \
    return x != x ? 0 : x <= least ? lowest : x >= most ? highest : (type)x; \
  }
TW_TO_INT(char, -128.0f, 127.0f, -128, 127)
TW_TO_INT(short, -32768.0f, 32767.0f, -32768, 32767)
TW_TO_INT(int, -2147483648.0f, 2147483648.0f, -2147483647 - 1, 2147483647)
TW_TO_INT(long, -9223372036854775808.0f, 9223372036854775808.0f, -9223372036854775807L - 1, 9223372036854775807L)
TW_TO_INT(uchar, 0.0f, 255.0f, 0, 255)
TW_TO_INT(ushort, 0.0f, 65535.0f, 0, 65535)
TW_TO_INT(uint, 0.0f, 4294967296.0f, 0, 4294967295U)
TW_TO_INT(ulong, 0.0f, 18446744073709551616.0f, 0, 18446744073709551615UL)
static inline float expm1(float x) {
  if (x > 1.0f) return exp(x) - 1.0f;
  const float t = tanh(0.5f * x);
  return 2.0f * t / (1.0f - t);
}
static inline float erf(float x) {
  const float z = fabs(x), square = x * x;
  if (z < 1.0f)
    return fma(x, fma(fma(fma(fma(fma(fma(7.920368e-05f, square, -0.00080307614f), square, 0.005190734f), square, -0.026855126f), square, 0.11283618f), square, -0.3761263f), square, 0.12837917f), x);
  const float t = z > 4.0f ? 4.0f : z;
  const float far = 1.0f - exp(fma(fma(fma(fma(fma(fma(fma(-2.1684384e-05f, t, 0.0004413091f), t, -0.0042044404f), t, 0.025207976f), t, -0.10841822f), t, -0.63322014f), t, -1.1295784f), t, 0.00018803669f));
  return x < 0.0f ? -far : far;
}
#ifndef TW_OWN_WIDE
template <class T, int N> struct alignas(sizeof(T) * N) tw_wide { T v[N]; };
#endif
[[kernel, max_total_threads_per_threadgroup(8 * 8 * 1)]] void gemm_k0(device const float* restrict A [[buffer(0)]], device const float* restrict B [[buffer(1)]], device float* restrict C [[buffer(2)]], uint3 tw_group [[threadgroup_position_in_grid]], uint3 tw_thread [[thread_position_in_threadgroup]], uint3 tw_threads [[threads_per_threadgroup]], uint tw_lane [[thread_index_in_simdgroup]], uint tw_simdgroup [[simdgroup_index_in_threadgroup]], uint tw_width [[threads_per_simdgroup]]) {
  alignas(16) threadgroup float A_shared[768];
  alignas(16) threadgroup float B_shared[768];
  const int j_0 = (int)tw_group.x;
  const int ty = (int)tw_thread.y;
  const int tx = (int)tw_thread.x;
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
      threadgroup_barrier(mem_flags::mem_threadgroup);
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
    threadgroup_barrier(mem_flags::mem_threadgroup);
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
    threadgroup_barrier(mem_flags::mem_threadgroup);
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
      *(device tw_wide<float, 4>*)(C + (((ty * 256) + (j_0 * 32)) + (tx * 4))) = wide;
    }
    {
      const float lane_4 = C_local_4;
      const float lane_5 = C_local_5;
      const float lane_6 = C_local_6;
      const float lane_7 = C_local_7;
      const tw_wide<float, 4> wide_1 = {{lane_4, lane_5, lane_6, lane_7}};
      *(device tw_wide<float, 4>*)(C + ((((ty * 256) + (j_0 * 32)) + (tx * 4)) + 64)) = wide_1;
    }
    {
      const float lane_8 = C_local_8;
      const float lane_9 = C_local_9;
      const float lane_10 = C_local_10;
      const float lane_11 = C_local_11;
      const tw_wide<float, 4> wide_2 = {{lane_8, lane_9, lane_10, lane_11}};
      *(device tw_wide<float, 4>*)(C + ((((ty * 256) + (j_0 * 32)) + (tx * 4)) + 128)) = wide_2;
    }
    {
      const float lane_12 = C_local_12;
      const float lane_13 = C_local_13;
      const float lane_14 = C_local_14;
      const float lane_15 = C_local_15;
      const tw_wide<float, 4> wide_3 = {{lane_12, lane_13, lane_14, lane_15}};
      *(device tw_wide<float, 4>*)(C + ((((ty * 256) + (j_0 * 32)) + (tx * 4)) + 192)) = wide_3;
    }
  }
}
