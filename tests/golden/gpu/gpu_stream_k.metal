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
[[kernel, max_total_threads_per_threadgroup(32 * 1 * 1)]] void stream_k_k0(device const float* restrict A [[buffer(0)]], device const float* restrict B [[buffer(1)]], device const float* restrict bias [[buffer(2)]], device float* restrict D [[buffer(3)]], device float* restrict C_rest_rf [[buffer(4)]], uint3 tw_group [[threadgroup_position_in_grid]], uint3 tw_thread [[thread_position_in_threadgroup]], uint3 tw_threads [[threads_per_threadgroup]], uint tw_lane [[thread_index_in_simdgroup]], uint tw_simdgroup [[simdgroup_index_in_threadgroup]], uint tw_width [[threads_per_simdgroup]]) {
  alignas(16) threadgroup float B_shared[128];
  alignas(16) threadgroup float A_shared[64];
  const int i_0_j_0_f_both = (int)tw_group.x;
  const int tx = (int)tw_thread.x;
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
        threadgroup_barrier(mem_flags::mem_device | mem_flags::mem_threadgroup);
        {
          const auto run = *(const device tw_wide<float, 4>*)(B + ((((tx / 2) * 32) + (k_a_0 * 8)) + ((tx % 2) * 4)));
          const tw_wide<float, 4> wide = {{run.v[0], run.v[1], run.v[2], run.v[3]}};
          *(threadgroup tw_wide<float, 4>*)(B_shared + (tx * 4)) = wide;
        }
        if ((tx < 16)) {
          {
            const auto run_1 = *(const device tw_wide<float, 4>*)(A + ((((i_0_j_0_f_both * 256) + ((tx / 2) * 32)) + (k_a_0 * 8)) + ((tx % 2) * 4)));
            const tw_wide<float, 4> wide_1 = {{run_1.v[0], run_1.v[1], run_1.v[2], run_1.v[3]}};
            *(threadgroup tw_wide<float, 4>*)(A_shared + (tx * 4)) = wide_1;
          }
        }
        threadgroup_barrier(mem_flags::mem_device | mem_flags::mem_threadgroup);
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
        const auto run_2 = *(const device tw_wide<float, 4>*)(bias + ((tx % 4) * 4));
        const float lane_8 = ((C[0] + run_2.v[0]) > 0.0f ? (C[0] + run_2.v[0]) : 0.0f);
        const float lane_9 = ((C[1] + run_2.v[1]) > 0.0f ? (C[1] + run_2.v[1]) : 0.0f);
        const float lane_10 = ((C[2] + run_2.v[2]) > 0.0f ? (C[2] + run_2.v[2]) : 0.0f);
        const float lane_11 = ((C[3] + run_2.v[3]) > 0.0f ? (C[3] + run_2.v[3]) : 0.0f);
        const tw_wide<float, 4> wide_2 = {{lane_8, lane_9, lane_10, lane_11}};
        *(device tw_wide<float, 4>*)(D + ((i_0_j_0_f_both * 128) + (tx * 4))) = wide_2;
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
        threadgroup_barrier(mem_flags::mem_device | mem_flags::mem_threadgroup);
        {
          const auto run_3 = *(const device tw_wide<float, 4>*)(B + ((((((tx / 2) * 32) + ((i_0_j_0_f_both / 2) * 16)) + (k_r_1_a_0 * 8)) + ((tx % 2) * 4)) - 48));
          const tw_wide<float, 4> wide_3 = {{run_3.v[0], run_3.v[1], run_3.v[2], run_3.v[3]}};
          *(threadgroup tw_wide<float, 4>*)(B_shared + (tx * 4)) = wide_3;
        }
        if ((tx < 16)) {
          {
            const auto run_4 = *(const device tw_wide<float, 4>*)(A + (((((((i_0_j_0_f_both % 2) * 256) + ((tx / 2) * 32)) + ((i_0_j_0_f_both / 2) * 16)) + (k_r_1_a_0 * 8)) + ((tx % 2) * 4)) + 1488));
            const tw_wide<float, 4> wide_4 = {{run_4.v[0], run_4.v[1], run_4.v[2], run_4.v[3]}};
            *(threadgroup tw_wide<float, 4>*)(A_shared + (tx * 4)) = wide_4;
          }
        }
        threadgroup_barrier(mem_flags::mem_device | mem_flags::mem_threadgroup);
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
        *(device tw_wide<float, 4>*)(C_rest_rf + (((i_0_j_0_f_both * 128) + (tx * 4)) - 768)) = wide_5;
      }
    }
  }
}

[[kernel, max_total_threads_per_threadgroup(128 * 1 * 1)]] void stream_k_k1(device const float* restrict bias [[buffer(0)]], device const float* restrict C_rest_rf [[buffer(1)]], device float* restrict D [[buffer(2)]], uint3 tw_group [[threadgroup_position_in_grid]], uint3 tw_thread [[thread_position_in_threadgroup]], uint3 tw_threads [[threads_per_threadgroup]], uint tw_lane [[thread_index_in_simdgroup]], uint tw_simdgroup [[simdgroup_index_in_threadgroup]], uint tw_width [[threads_per_simdgroup]]) {
  const int i_r_r1_j_r_r1_f_0 = (int)tw_group.x;
  const int tx = (int)tw_thread.x;
  {
    float C_rest;
    C_rest = 0.0f;
    for (int k_r_0_w_a = 0; k_r_0_w_a < 2; ++k_r_0_w_a) {
      C_rest = (C_rest + C_rest_rf[(((k_r_0_w_a * 256) + (i_r_r1_j_r_r1_f_0 * 128)) + tx)]);
    }
    D[(((i_r_r1_j_r_r1_f_0 * 128) + tx) + 768)] = ((C_rest + bias[(tx % 16)]) > 0.0f ? (C_rest + bias[(tx % 16)]) : 0.0f);
  }
}
