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
