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
[[kernel, max_total_threads_per_threadgroup(8 * 8 * 1)]] void split_k_k0(device const float* restrict A [[buffer(0)]], device const float* restrict B [[buffer(1)]], device float* restrict C_rf [[buffer(2)]], uint3 tw_group [[threadgroup_position_in_grid]], uint3 tw_thread [[thread_position_in_threadgroup]], uint3 tw_threads [[threads_per_threadgroup]], uint tw_lane [[thread_index_in_simdgroup]], uint tw_simdgroup [[simdgroup_index_in_threadgroup]], uint tw_width [[threads_per_simdgroup]]) {
  const int k_0 = (int)tw_group.z;
  const int i_0 = (int)tw_group.y;
  const int j_0 = (int)tw_group.x;
  const int ty = (int)tw_thread.y;
  const int tx = (int)tw_thread.x;
  {
    float C_rf_local;
    C_rf_local = 0.0f;
    for (int k_1 = 0; k_1 < 16; ++k_1) {
      C_rf_local = (C_rf_local + (A[((((i_0 * 512) + (ty * 64)) + (k_0 * 16)) + k_1)] * B[((((k_0 * 256) + (k_1 * 16)) + (j_0 * 8)) + tx)]));
    }
    C_rf[(((((k_0 * 256) + (i_0 * 128)) + (ty * 16)) + (j_0 * 8)) + tx)] = C_rf_local;
  }
}

[[kernel, max_total_threads_per_threadgroup(64 * 1 * 1)]] void split_k_k1(device const float* restrict C_rf [[buffer(0)]], device float* restrict C [[buffer(1)]], uint3 tw_group [[threadgroup_position_in_grid]], uint3 tw_thread [[thread_position_in_threadgroup]], uint3 tw_threads [[threads_per_threadgroup]], uint tw_lane [[thread_index_in_simdgroup]], uint tw_simdgroup [[simdgroup_index_in_threadgroup]], uint tw_width [[threads_per_simdgroup]]) {
  const int i_w_j_w_f_0 = (int)tw_group.x;
  const int tx = (int)tw_thread.x;
  C[((i_w_j_w_f_0 * 64) + tx)] = 0.0f;
  for (int k_0_w = 0; k_0_w < 4; ++k_0_w) {
    C[((i_w_j_w_f_0 * 64) + tx)] = (C[((i_w_j_w_f_0 * 64) + tx)] + C_rf[(((k_0_w * 256) + (i_w_j_w_f_0 * 64)) + tx)]);
  }
}
