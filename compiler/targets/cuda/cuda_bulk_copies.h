// Copies of tiles in CUDA C by the tensor memory accelerator of sm_90. What else compiles these
// texts than NVRTC defines the macros of instructions itself. Constants.
#pragma once

#include <string_view>

#include "compiler/codegen/c_like.h"

namespace tilewright::cuda {

// A tile is boxes of rows of 64 elements, which the map swizzles as products read them
// (cuda_fragments.h). The first thread of a group asks for them. A group of copies has a word in
// shared memory (an mbarrier), which counts the bytes that are still to come; eight words take
// turns, since no pipeline has as many groups under way. Its phase changes when all have come,
// which every thread waits for by itself.
inline constexpr std::string_view kBulkCopies = R"(#ifdef __CUDACC_RTC__
struct alignas(64) tw_tensor_map { tw_u64 words[16]; };
#define TW_TENSOR_MAP const __grid_constant__ tw_tensor_map
#define TW_WORD(word) "r"((tw_u32)__cvta_generic_to_shared(word))
#define TW_ARRIVAL_INIT(word) \
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: TW_WORD(word) : "memory")
#define TW_ARRIVALS_READY() \
  asm volatile("fence.mbarrier_init.release.cluster;\nfence.proxy.async.shared::cta;" ::: "memory")
#define TW_EXPECT(word, bytes) \
  asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" \
               :: TW_WORD(word), "r"(bytes) : "memory")
#define TW_ARRIVE(word) \
  asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 _, [%0];" :: TW_WORD(word) : "memory")
#define TW_ARRIVED(word, phase, done) \
  asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.acquire.cta.shared::cta.b64 p, [%1], " \
               "%2;\nselp.u32 %0, 1, 0, p;\n}" : "=r"(done) : TW_WORD(word), "r"(phase) : "memory")
#define TW_COPY_BOX(to, map, column, row, word) \
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes " \
               "[%0], [%1, {%2, %3}], [%4];" \
               :: TW_WORD(to), "l"(&map), "r"(column), "r"(row), TW_WORD(word) : "memory")
#endif
#define TW_FIRST_THREAD (threadIdx.x == 0 && threadIdx.y == 0 && threadIdx.z == 0)
#define TW_BULK_BEGIN(words) \
  tw_u64* const tw_arrivals = words; \
  tw_u32 tw_asked = 0, tw_come = 0; \
  if (TW_FIRST_THREAD) { \
    for (int i = 0; i < 8; ++i) TW_ARRIVAL_INIT(tw_arrivals + i); \
    TW_ARRIVALS_READY(); \
  } \
  __syncthreads();
#define TW_BULK_COMMIT() \
  if (TW_FIRST_THREAD) TW_ARRIVE(tw_arrivals + tw_asked % 8); \
  ++tw_asked;
#define TW_BULK_WAIT(groups) \
  for (; tw_come + groups < tw_asked; ++tw_come) { \
    tw_u32 done = 0; \
    while (!done) TW_ARRIVED(tw_arrivals + tw_come % 8, tw_come / 8 % 2, done); \
  }
#define TW_BULK_COPY(boxes, box_rows, rows, to, map, column, row) \
  TW_EXPECT(tw_arrivals + tw_asked % 8, boxes * box_rows * 128); \
  for (int box = 0; box < boxes; ++box) \
    TW_COPY_BOX(to + box * rows * 64, map, (int)(column) + box * 64, (int)(row), \
                tw_arrivals + tw_asked % 8);
)";

inline constexpr codegen::BulkCopyWords kBulkCopyWords = {
    .prologue = kBulkCopies,
    .begin = "TW_BULK_BEGIN(@);",
    .words = 8,
    .parameter = "TW_TENSOR_MAP @",
    .maps = "extern \"C\" __device__ long long @_tensor_maps[#] = {%};",
    .copy = "TW_BULK_COPY",
    .commit = "TW_BULK_COMMIT();",
    .wait = "TW_BULK_WAIT(@);",
    .bytes = 2,
    .most_rows = 256,
    .align = 16};

}  // namespace tilewright::cuda
