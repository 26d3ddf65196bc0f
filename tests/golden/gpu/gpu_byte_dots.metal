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
template <class A, class B>
static inline int tw_dot4(int sum, A a0, A a1, A a2, A a3, B b0, B b1, B b2, B b3) {
  return (int)((uint)sum + (uint)((int)a0 * b0 + (int)a1 * b1 + (int)a2 * b2 + (int)a3 * b3));
}
[[kernel, max_total_threads_per_threadgroup(2 * 1 * 1)]] void dots_k0(device const uchar* restrict A [[buffer(0)]], device const char* restrict W [[buffer(1)]], device int* restrict C [[buffer(2)]], uint3 tw_group [[threadgroup_position_in_grid]], uint3 tw_thread [[thread_position_in_threadgroup]], uint3 tw_threads [[threads_per_threadgroup]], uint tw_lane [[thread_index_in_simdgroup]], uint tw_simdgroup [[simdgroup_index_in_threadgroup]], uint tw_width [[threads_per_simdgroup]]) {
  const int i = (int)tw_group.x;
  const int tx = (int)tw_thread.x;
  {
    const int lane = ((int)(0));
    const int lane_1 = ((int)(0));
    const int lane_2 = ((int)(0));
    const int lane_3 = ((int)(0));
    const tw_wide<int, 4> wide = {{lane, lane_1, lane_2, lane_3}};
    *(device tw_wide<int, 4>*)(C + ((i * 8) + (tx * 4))) = wide;
  }
  for (int ko = 0; ko < 5; ++ko) {
    {
      const auto run = *(const device tw_wide<int, 4>*)(C + ((i * 8) + (tx * 4)));
      const auto run_1 = *(const device tw_wide<uchar, 4>*)(A + ((i * 20) + (ko * 4)));
      const auto run_2 = *(const device tw_wide<char, 16>*)(W + ((tx * 80) + (ko * 16)));
      const int lane_4 = tw_dot4(run.v[0], run_1.v[0], run_1.v[1], run_1.v[2], run_1.v[3], run_2.v[0], run_2.v[1], run_2.v[2], run_2.v[3]);
      const int lane_5 = tw_dot4(run.v[1], run_1.v[0], run_1.v[1], run_1.v[2], run_1.v[3], run_2.v[4], run_2.v[5], run_2.v[6], run_2.v[7]);
      const int lane_6 = tw_dot4(run.v[2], run_1.v[0], run_1.v[1], run_1.v[2], run_1.v[3], run_2.v[8], run_2.v[9], run_2.v[10], run_2.v[11]);
      const int lane_7 = tw_dot4(run.v[3], run_1.v[0], run_1.v[1], run_1.v[2], run_1.v[3], run_2.v[12], run_2.v[13], run_2.v[14], run_2.v[15]);
      const tw_wide<int, 4> wide_1 = {{lane_4, lane_5, lane_6, lane_7}};
      *(device tw_wide<int, 4>*)(C + ((i * 8) + (tx * 4))) = wide_1;
    }
  }
}
