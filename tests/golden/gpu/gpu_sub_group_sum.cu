#define restrict __restrict__
#ifndef NAN
#define NAN __int_as_float(0x7fffffff)
#define INFINITY __int_as_float(0x7f800000)
#endif
#define TW_LANES 32
#define TW_MASK(lanes) (lanes == 32 ? 0xffffffffu : (1u << lanes) - 1)
#define TW_SHUFFLE(lanes, x, from) __shfl_sync(TW_MASK(lanes), x, from)
#define TW_SHUFFLE_DOWN(lanes, x, by) __shfl_down_sync(TW_MASK(lanes), x, by)
#define TW_BITS_OF(f) __float_as_uint(f)
#define TW_FLOAT_OF(bits) __uint_as_float(bits)
#ifdef __CUDACC_RTC__
#define TW_DP4A(a_type, b_type, sum, a, b) \
  asm("dp4a." #a_type "." #b_type " %0, %1, %2, %0;" : "+r"(sum) : "r"(a), "r"(b))
#endif
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
static inline int tw_thread() {
  return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
}
static inline int tw_lane() { return tw_thread() % TW_LANES; }
static inline int tw_lanes() {
  const int left = blockDim.x * blockDim.y * blockDim.z - tw_thread() / TW_LANES * TW_LANES;
  return left < TW_LANES ? left : TW_LANES;
}
#define TW_WARP(name, both) \
  template <class T> static inline T tw_warp_##name(T x) { \
    const int lane = tw_lane(), lanes = tw_lanes(); \
    for (int n = TW_LANES / 2; n > 0; n /= 2) { \
      const T y = TW_SHUFFLE_DOWN(lanes, x, n); \
      if (lane + n < lanes) x = both; \
    } \
    return TW_SHUFFLE(lanes, x, 0); \
  }
TW_WARP(add, x + y)
TW_WARP(min, x < y ? x : y)
TW_WARP(max, x > y ? x : y)
extern "C" __global__ __launch_bounds__(64 * 1 * 1) void row_sum_k0(const float* restrict X, float* restrict Y) {
  __shared__ __align__(16) float Y_rf[64];
  const int i_w_c = (int)blockIdx.x;
  const int tx = (int)threadIdx.x;
  {
    float Y_local;
    Y_rf[tx] = 0.0f;
    for (int k_0_a = 0; k_0_a < 4; ++k_0_a) {
      Y_rf[tx] = (Y_rf[tx] + X[(((i_w_c * 256) + (k_0_a * 64)) + tx)]);
    }
    Y_local = 0.0f;
    __syncthreads();
    {
      float part = 0.0f;
      for (int k_1_w_a = (int)tw_lane(); k_1_w_a < 64; k_1_w_a += (int)tw_lanes()) {
        part = (part + Y_rf[k_1_w_a]);
      }
      const float whole = tw_warp_add(part);
      Y_local = (Y_local + whole);
    }
    if ((tx == 0)) {
      Y[i_w_c] = Y_local;
    }
  }
}
