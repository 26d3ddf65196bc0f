// Tensor cores in CUDA C: fragments of a warp (mma.sync, ldmatrix), and products of a group of four
// warps (wgmma). What else compiles these texts than NVRTC defines the macros of instructions
// itself. Constants.
#pragma once

#include <string_view>

#include "compiler/codegen/c_like.h"

namespace tilewright::cuda {

// Fragments of tensor cores, as the PTX ISA lays them out. A register holds 4 bytes of a row's
// terms: thread t of a warp has rows t / 4 and 8 below (sums and A) or column t / 4 (B), and bytes
// t % 4 * 4 and 16 further. Rows in shared memory at multiples of 16 bytes are loaded by ldmatrix,
// for which threads name the rows of matrices of 8 x 16 bytes. Floats of 32 bits are rounded when
// they are loaded.
inline constexpr std::string_view kWarpFragments = R"(#ifdef __CUDACC_RTC__
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
)";

// Products whose factors are in shared memory, in the layout that the PTX ISA calls a 128-byte
// swizzle. Blocks of 8 rows of 64 elements are 1,024 bytes; in row r of a block the run of 8
// elements at place p is at p ^ r. The blocks of all rows stand one behind the other, behind them
// those of the next 64 elements: as bulk copies bring them. tw_block makes the descriptor of a
// factor that begins at a block's first element: 128 * `rows` bytes between blocks along a row,
// 1,024 between blocks of other rows. A factor whose rows are the terms is one that the ISA calls
// MN-major, `turned` here. An instruction has 16 terms; those of 64 are under way together.
inline constexpr std::string_view kWarpGroups = R"(#ifdef __CUDACC_RTC__
#define TW_TEN(a) "%" #a "0, %" #a "1, %" #a "2, %" #a "3, %" #a "4, %" #a "5, %" #a "6, %" #a \
                  "7, %" #a "8, %" #a "9, "
#define TW_4(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define TW_16(d, i) TW_4(d, i), TW_4(d, i + 4), TW_4(d, i + 8), TW_4(d, i + 12)
#define TW_32(d, i) TW_16(d, i), TW_16(d, i + 16)
#define TW_WARP_GROUP_MMA(n, type, sums, a, b, a_turned, b_turned) \
  "{\n.reg .pred p;\nsetp.ne.b32 p, 1, 0;\nwgmma.mma_async.sync.aligned.m64n" n "k16.f32." type \
  "." type " {" sums "}, " a ", " b ", p, 1, 1, " a_turned ", " b_turned ";\n}"
#define TW_WARP_GROUP_64(type, d, a, b, a_turned, b_turned) \
  asm volatile(TW_WARP_GROUP_MMA("64", type, TW_TEN() TW_TEN(1) TW_TEN(2) "%30, %31", "%32", \
                                 "%33", "%34", "%35") \
               : TW_32(d, 0) : "l"(a), "l"(b), "n"(a_turned), "n"(b_turned))
#define TW_WARP_GROUP_128(type, d, a, b, a_turned, b_turned) \
  asm volatile(TW_WARP_GROUP_MMA("128", type, TW_TEN() TW_TEN(1) TW_TEN(2) TW_TEN(3) TW_TEN(4) \
                                 TW_TEN(5) "%60, %61, %62, %63", "%64", "%65", "%66", "%67") \
               : TW_32(d, 0), TW_32(d, 32) : "l"(a), "l"(b), "n"(a_turned), "n"(b_turned))
#define TW_WARP_GROUP_256(type, d, a, b, a_turned, b_turned) \
  asm volatile(TW_WARP_GROUP_MMA("256", type, TW_TEN() TW_TEN(1) TW_TEN(2) TW_TEN(3) TW_TEN(4) \
                                 TW_TEN(5) TW_TEN(6) TW_TEN(7) TW_TEN(8) TW_TEN(9) TW_TEN(10) \
                                 TW_TEN(11) "%120, %121, %122, %123, %124, %125, %126, %127", \
                                 "%128", "%129", "%130", "%131") \
               : TW_32(d, 0), TW_32(d, 32), TW_32(d, 64), TW_32(d, 96) \
               : "l"(a), "l"(b), "n"(a_turned), "n"(b_turned))
#define TW_SHARED_ADDRESS(p) ((tw_u32)__cvta_generic_to_shared(p))
#define TW_PRODUCTS_BEGIN() asm volatile("wgmma.fence.sync.aligned;" ::: "memory")
#define TW_PRODUCTS_END() \
  asm volatile("wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;" ::: "memory")
#define TW_LANDED(sum) asm volatile("" : "+f"(sum)::"memory")
#define TW_ORDER_SHARED() asm volatile("fence.proxy.async.shared::cta;" ::: "memory")
#endif
template <int row, int rows> static inline tw_u32 tw_place(tw_u32 element) {
  const tw_u32 r = element / row, c = element % row;
  return (c / 64 * rows + r) * 64 + (c % 64 ^ r % 8 * 8);
}
template <int rows> static inline tw_u64 tw_block(const void* first) {
  constexpr tw_u64 swizzle_128 = 1, next_in_row = 128 * rows / 16, next_rows = 1024 / 16;
  return (TW_SHARED_ADDRESS(first) & 0x3FFFF) / 16 | next_in_row << 16 | next_rows << 32 |
         swizzle_128 << 62;
}
template <int n> static inline void tw_landed(float (&sums)[n]) {
  for (int i = 0; i < n; ++i) TW_LANDED(sums[i]);
}
#define TW_WARP_GROUP_PRODUCT(name, n) \
  static inline void tw_cuda_wgmma_##name##_n##n##_reset(float (&d)[n / 2]) { \
    for (int i = 0; i < n / 2; ++i) d[i] = 0; \
  } \
  template <int a_row, int a_term, int a_rows, int b_term, int b_column, int b_rows> \
  static inline void tw_cuda_wgmma_##name##_n##n(float (&d)[n / 2], const void* a, \
                                                 const void* b) { \
    constexpr bool a_turned = a_row == 1, b_turned = b_column == 1; \
    const tw_u64 from_a = tw_block<a_rows>(a), from_b = tw_block<b_rows>(b); \
    for (int k = 0; k < 4; ++k) { \
      TW_WARP_GROUP_##n(#name, d, from_a + k * (a_turned ? 128 : 2), \
                        from_b + k * (b_turned ? 128 : 2), a_turned, b_turned); \
    } \
  }
TW_WARP_GROUP_PRODUCT(f16, 64)
TW_WARP_GROUP_PRODUCT(f16, 128)
TW_WARP_GROUP_PRODUCT(f16, 256)
TW_WARP_GROUP_PRODUCT(bf16, 64)
TW_WARP_GROUP_PRODUCT(bf16, 128)
TW_WARP_GROUP_PRODUCT(bf16, 256)
)";

// The sums of a warp are 16 rows: thread t has rows t / 4 and 8 below, of each 8 columns two
// neighbours. The warps of a group have the next rows each.
inline constexpr codegen::FragmentWords kFragmentWords = {
    .prologue = kWarpFragments,
    .row = "threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4 + @ % 2 * 8",
    .run = "threadIdx.x % 4 + @ / 2 * 4",
    .neighbours = 2,
    .shared = {.prologue = kWarpGroups,
               .place = "tw_place",
               .rows = 8,
               .columns = 64,
               .run = 8,
               .align = 1024,
               .before = "TW_PRODUCTS_BEGIN();",
               .behind = "TW_PRODUCTS_END();",
               .landed = "tw_landed(@);",
               .barrier = "TW_ORDER_SHARED(); __syncthreads();"}};

}  // namespace tilewright::cuda
