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
extern "C" __global__ __launch_bounds__(32 * 1 * 1) void row_sum_k0(const float* restrict X, float* Y) {
  __shared__ __align__(16) float Y_rf[32];
  const int i_w = (int)blockIdx.x;
  const int tx = (int)threadIdx.x;
  Y_rf[tx] = 0.0f;
  for (int k_0_a = 0; k_0_a < 8; ++k_0_a) {
    Y_rf[tx] = (Y_rf[tx] + X[(((i_w * 256) + (k_0_a * 32)) + tx)]);
  }
  if ((tx == 0)) {
    Y[i_w] = 0.0f;
  }
  __syncthreads();
  if ((tx == 0)) {
    for (int k_1_w = 0; k_1_w < 32; ++k_1_w) {
      Y[i_w] = (Y[i_w] + Y_rf[k_1_w]);
    }
  }
}
