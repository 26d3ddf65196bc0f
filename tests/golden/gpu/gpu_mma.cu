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
#ifdef __CUDACC_RTC__
static inline float tw_half_to_float(unsigned short h) {
  float f;
  asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h));
  return f;
}
static inline unsigned short tw_float_to_half(float f) {
  unsigned short h;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(f));
  return h;
}
#define TW_HALF_INSTRUCTION(name) \
  static inline unsigned short tw_half_##name(unsigned short a, unsigned short b) { \
    unsigned short result; \
    asm(#name ".rn.f16 %0, %1, %2;" : "=h"(result) : "h"(a), "h"(b)); \
    return result; \
  }
TW_HALF_INSTRUCTION(add)
TW_HALF_INSTRUCTION(sub)
TW_HALF_INSTRUCTION(mul)
#endif
struct half {
  unsigned short bits;
  half() = default;
  half(float f) : bits(tw_float_to_half(f)) {}
  operator float() const { return tw_half_to_float(bits); }
};
#define TW_HALF_OPERATOR(op, name) \
  static inline half operator op(half a, half b) { \
    half result; \
    result.bits = tw_half_##name(a.bits, b.bits); \
    return result; \
  }
TW_HALF_OPERATOR(+, add)
TW_HALF_OPERATOR(-, sub)
TW_HALF_OPERATOR(*, mul)
static inline half operator/(half a, half b) { return (float)a / (float)b; }
#ifdef __CUDACC_RTC__
#define TW_MMA(form, kind, d, a, b) \
  asm volatile("mma.sync.aligned." form " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, " \
               "{%0, %1, %2, %3};" \
               : "+" kind(d[0]), "+" kind(d[1]), "+" kind(d[2]), "+" kind(d[3]) \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))
#define TW_LDMATRIX4(turned, f, row) \
  asm volatile("ldmatrix.sync.aligned.m8n8.x4" turned ".shared.b16 {%0, %1, %2, %3}, [%4];" \
               : "=r"(f[0]), "=r"(f[1]), "=r"(f[2]), "=r"(f[3]) \
               : "r"((tw_u32)__cvta_generic_to_shared(row)) : "memory")
#define TW_LDMATRIX2(turned, f, row) \
  asm volatile("ldmatrix.sync.aligned.m8n8.x2" turned ".shared.b16 {%0, %1}, [%2];" \
               : "=r"(f[0]), "=r"(f[1]) \
               : "r"((tw_u32)__cvta_generic_to_shared(row)) : "memory")
#define TW_ROUND_TF32(bits) \
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(__uint_as_float(bits)))
#endif
template <class T> static inline tw_u32 tw_bits(const T& x) {
  if constexpr (sizeof(T) == 4) return *(const tw_u32*)&x;
  return sizeof(T) == 1 ? *(const tw_u8*)&x : *(const tw_u16*)&x;
}
template <int along, bool whole, class T> static inline tw_u32 tw_terms(const T* first) {
  if (along == 1 && whole) return *(const tw_u32*)first;
  tw_u32 word = 0;
  for (int i = 0; i < 4 / (int)sizeof(T); ++i)
    word |= tw_bits(first[i * along]) << 8 * (int)sizeof(T) * i;
  return word;
}
template <int rows, int columns, int bytes, bool shared, class T>
static inline void tw_load_a(tw_u32 (&f)[4], const T* p) {
  constexpr int eight = 16 / sizeof(T);
  const int lane = threadIdx.x;
  if constexpr (shared && bytes == 16 && columns == 1) {
    TW_LDMATRIX4("", f, p + lane % 16 * rows + lane / 16 * eight);
  } else if constexpr (shared && bytes == 16 && rows == 1 && eight == 8) {
    TW_LDMATRIX4(".trans", f, p + (lane % 8 + lane / 16 * 8) * columns + lane / 8 % 2 * 8);
  } else {
    for (int r = 0; r < 4; ++r)
      f[r] = tw_terms<columns, bytes >= 4>(p + (lane / 4 + r % 2 * 8) * rows +
                                           (lane % 4 * (eight / 4) + r / 2 * eight) * columns);
  }
}
template <int rows, int columns, int bytes, bool shared, class T>
static inline void tw_load_b(tw_u32 (&f)[2], const T* p) {
  constexpr int eight = 16 / sizeof(T);
  const int lane = threadIdx.x;
  if constexpr (shared && bytes == 16 && rows == 1) {
    TW_LDMATRIX2("", f, p + lane % 8 * columns + lane / 8 % 2 * eight);
  } else if constexpr (shared && bytes == 16 && columns == 1 && eight == 8) {
    TW_LDMATRIX2(".trans", f, p + lane % 16 * rows);
  } else {
    for (int r = 0; r < 2; ++r)
      f[r] = tw_terms<rows, bytes >= 4>(p + lane / 4 * columns +
                                        (lane % 4 * (eight / 4) + r * eight) * rows);
  }
}
#define TW_LOAD(name, fragment, registers) \
  template <int rows, int columns, int bytes, bool shared, class T> \
  static inline void tw_cuda_load_##name(tw_u32 (&f)[registers], const T* p) { \
    tw_load_##fragment<rows, columns, bytes, shared>(f, p); \
    if constexpr (sizeof(T) == 4) { \
      for (int r = 0; r < registers; ++r) TW_ROUND_TF32(f[r]); \
    } \
  }
TW_LOAD(a_f16, a, 4)
TW_LOAD(a_bf16, a, 4)
TW_LOAD(a_i8, a, 4)
TW_LOAD(a_u8, a, 4)
TW_LOAD(a_f32, a, 4)
TW_LOAD(b_f16, b, 2)
TW_LOAD(b_bf16, b, 2)
TW_LOAD(b_i8, b, 2)
TW_LOAD(b_f32, b, 2)
#define TW_PRODUCT(name, type, form, kind) \
  static inline void tw_cuda_mma_##name##_reset(type (&d)[4]) { d[0] = d[1] = d[2] = d[3] = 0; } \
  static inline void tw_cuda_mma_##name(type (&d)[4], const tw_u32 (&a)[4], \
                                        const tw_u32 (&b)[2]) { \
    TW_MMA(form, kind, d, a, b); \
  }
TW_PRODUCT(f16, float, "m16n8k16.row.col.f32.f16.f16.f32", "f")
TW_PRODUCT(bf16, float, "m16n8k16.row.col.f32.bf16.bf16.f32", "f")
TW_PRODUCT(s8s8, int, "m16n8k32.row.col.s32.s8.s8.s32", "r")
TW_PRODUCT(u8s8, int, "m16n8k32.row.col.s32.u8.s8.s32", "r")
TW_PRODUCT(tf32, float, "m16n8k8.row.col.f32.tf32.tf32.f32", "f")
extern "C" __global__ __launch_bounds__(32 * 2 * 1) void mma_k0(const half* restrict A, const half* restrict B, float* restrict C) {
  __shared__ __align__(16) half A_shared[768];
  __shared__ __align__(16) half B_shared[640];
  const int ty = (int)threadIdx.y;
  const int tx = (int)threadIdx.x;
  {
    float C_local[4][4];
    tw_cuda_mma_f16_reset(C_local[0]);
    tw_cuda_mma_f16_reset(C_local[1]);
    tw_cuda_mma_f16_reset(C_local[2]);
    tw_cuda_mma_f16_reset(C_local[3]);
    for (int k_0 = 0; k_0 < 2; ++k_0) {
      __syncthreads();
      {
        const auto run = *(const tw_wide<half, 8>*)(B + (((k_0 * 512) + (ty * 256)) + (tx * 8)));
        const tw_wide<half, 8> wide = {{run.v[0], run.v[1], run.v[2], run.v[3], run.v[4], run.v[5], run.v[6], run.v[7]}};
        *(tw_wide<half, 8>*)(B_shared + (((ty * 320) + ((tx / 4) * 40)) + ((tx % 4) * 8))) = wide;
      }
      {
        const auto run_1 = *(const tw_wide<half, 8>*)(A + ((((ty * 512) + ((tx / 2) * 32)) + (k_0 * 16)) + ((tx % 2) * 8)));
        const tw_wide<half, 8> wide_1 = {{run_1.v[0], run_1.v[1], run_1.v[2], run_1.v[3], run_1.v[4], run_1.v[5], run_1.v[6], run_1.v[7]}};
        *(tw_wide<half, 8>*)(A_shared + (((ty * 384) + ((tx / 2) * 24)) + ((tx % 2) * 8))) = wide_1;
      }
      __syncthreads();
      {
        tw_u32 B_shared_local[2][2];
        tw_cuda_load_b_f16<40, 1, 16, true>(B_shared_local[0], B_shared + ((0 + (ty * 16)) + 0));
        tw_cuda_load_b_f16<40, 1, 16, true>(B_shared_local[1], B_shared + (((0 + (ty * 16)) + 0) + 8));
        {
          tw_u32 A_shared_local[2][4];
          tw_cuda_load_a_f16<24, 1, 16, true>(A_shared_local[0], A_shared + 0);
          tw_cuda_load_a_f16<24, 1, 16, true>(A_shared_local[1], A_shared + 384);
          tw_cuda_mma_f16(C_local[0], A_shared_local[0], B_shared_local[0]);
          tw_cuda_mma_f16(C_local[1], A_shared_local[0], B_shared_local[1]);
          tw_cuda_mma_f16(C_local[2], A_shared_local[1], B_shared_local[0]);
          tw_cuda_mma_f16(C_local[3], A_shared_local[1], B_shared_local[1]);
        }
      }
    }
    #pragma unroll
    for (int element = 0; element < 2; ++element) {
      const int i_c_a_1 = (int)(threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4 + element % 2 * 8);
      const int j_c_a_2 = (int)(threadIdx.x % 4 + element / 2 * 4);
      {
        const float lane = C_local[0][(element * 2)];
        const float lane_1 = C_local[0][((element * 2) + 1)];
        const tw_wide<float, 2> wide_2 = {{lane, lane_1}};
        *(tw_wide<float, 2>*)(C + (((i_c_a_1 * 32) + (ty * 16)) + (j_c_a_2 * 2))) = wide_2;
      }
    }
    #pragma unroll
    for (int element_1 = 0; element_1 < 2; ++element_1) {
      const int i_c_a_1_1 = (int)(threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4 + element_1 % 2 * 8);
      const int j_c_a_2_1 = (int)(threadIdx.x % 4 + element_1 / 2 * 4);
      {
        const float lane_2 = C_local[1][(element_1 * 2)];
        const float lane_3 = C_local[1][((element_1 * 2) + 1)];
        const tw_wide<float, 2> wide_3 = {{lane_2, lane_3}};
        *(tw_wide<float, 2>*)(C + ((((i_c_a_1_1 * 32) + (ty * 16)) + (j_c_a_2_1 * 2)) + 8)) = wide_3;
      }
    }
    #pragma unroll
    for (int element_2 = 0; element_2 < 2; ++element_2) {
      const int i_c_a_1_2 = (int)(threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4 + element_2 % 2 * 8);
      const int j_c_a_2_2 = (int)(threadIdx.x % 4 + element_2 / 2 * 4);
      {
        const float lane_4 = C_local[2][(element_2 * 2)];
        const float lane_5 = C_local[2][((element_2 * 2) + 1)];
        const tw_wide<float, 2> wide_4 = {{lane_4, lane_5}};
        *(tw_wide<float, 2>*)(C + ((((i_c_a_1_2 * 32) + (ty * 16)) + (j_c_a_2_2 * 2)) + 512)) = wide_4;
      }
    }
    #pragma unroll
    for (int element_3 = 0; element_3 < 2; ++element_3) {
      const int i_c_a_1_3 = (int)(threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4 + element_3 % 2 * 8);
      const int j_c_a_2_3 = (int)(threadIdx.x % 4 + element_3 / 2 * 4);
      {
        const float lane_6 = C_local[3][(element_3 * 2)];
        const float lane_7 = C_local[3][((element_3 * 2) + 1)];
        const tw_wide<float, 2> wide_5 = {{lane_6, lane_7}};
        *(tw_wide<float, 2>*)(C + ((((i_c_a_1_3 * 32) + (ty * 16)) + (j_c_a_2_3 * 2)) + 520)) = wide_5;
      }
    }
  }
}
