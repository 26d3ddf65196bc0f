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
#ifndef TW_OWN_WIDE
template <class T, int N> struct alignas(sizeof(T) * N) tw_wide { T v[N]; };
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
