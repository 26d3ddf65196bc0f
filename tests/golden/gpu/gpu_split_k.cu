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
extern "C" __global__ __launch_bounds__(8 * 8 * 1) void split_k_k0(const float* restrict A, const float* restrict B, float* restrict C_rf) {
  const int k_0 = (int)blockIdx.z;
  const int i_0 = (int)blockIdx.y;
  const int j_0 = (int)blockIdx.x;
  const int ty = (int)threadIdx.y;
  const int tx = (int)threadIdx.x;
  {
    float C_rf_local;
    C_rf_local = 0.0f;
    for (int k_1 = 0; k_1 < 16; ++k_1) {
      C_rf_local = (C_rf_local + (A[((((i_0 * 512) + (ty * 64)) + (k_0 * 16)) + k_1)] * B[((((k_0 * 256) + (k_1 * 16)) + (j_0 * 8)) + tx)]));
    }
    C_rf[(((((k_0 * 256) + (i_0 * 128)) + (ty * 16)) + (j_0 * 8)) + tx)] = C_rf_local;
  }
}

extern "C" __global__ __launch_bounds__(64 * 1 * 1) void split_k_k1(const float* restrict C_rf, float* restrict C) {
  const int i_w_j_w_f_0 = (int)blockIdx.x;
  const int tx = (int)threadIdx.x;
  C[((i_w_j_w_f_0 * 64) + tx)] = 0.0f;
  for (int k_0_w = 0; k_0_w < 4; ++k_0_w) {
    C[((i_w_j_w_f_0 * 64) + tx)] = (C[((i_w_j_w_f_0 * 64) + tx)] + C_rf[(((k_0_w * 256) + (i_w_j_w_f_0 * 64)) + tx)]);
  }
}
