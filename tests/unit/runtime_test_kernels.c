/* Kernels by hand, to the ABI of generated code: what the runtime's tests load as a code object.
 * Small, without dependencies, some of them wrong on purpose. */
#include "deploy/runtime/c_abi.h"

/* out[i] = a[i] + b[i], in parallel chunks. sizes: n. */
struct AddClosure {
  const float* a;
  const float* b;
  float* out;
  int64_t n;
};
enum { kChunk = 8 };
static int32_t AddChunk(void* closure, int64_t task) {
  const struct AddClosure* c = (const struct AddClosure*)closure;
  const int64_t end = (task + 1) * kChunk < c->n ? (task + 1) * kChunk : c->n;
  for (int64_t i = task * kChunk; i < end; ++i) c->out[i] = c->a[i] + c->b[i];
  return TW_OK;
}
int32_t tw_kernel_add(TwContext* ctx, void* const* buffers, const int64_t* sizes, void* workspace) {
  (void)workspace;
  if (ctx->abi_version < TW_ABI_VERSION) return TW_ERROR_ABI;
  struct AddClosure c = {buffers[0], buffers[1], buffers[2], sizes[0]};
  return ctx->parallel_for(ctx, AddChunk, &c, (c.n + kChunk - 1) / kChunk);
}

/* sums[n] = a[0][n] + a[1][n] + ...; fails if a sum is not finite. sizes: rows, n. */
int32_t tw_kernel_column_sums(TwContext* ctx, void* const* buffers, const int64_t* sizes,
                              void* workspace) {
  (void)ctx;
  (void)workspace;
  const float* a = buffers[0];
  float* sums = buffers[1];
  for (int64_t n = 0; n < sizes[1]; ++n) {
    sums[n] = 0;
    for (int64_t r = 0; r < sizes[0]; ++r) sums[n] += a[r * sizes[1] + n];
    if (sums[n] - sums[n] != 0) return 7;
  }
  return TW_OK;
}

/* packed[n][k] = w[k][n]. sizes: k, n. */
int32_t tw_kernel_pack(TwContext* ctx, void* const* buffers, const int64_t* sizes,
                       void* workspace) {
  (void)ctx;
  (void)workspace;
  const float* w = buffers[0];
  float* packed = buffers[1];
  for (int64_t k = 0; k < sizes[0]; ++k) {
    for (int64_t n = 0; n < sizes[1]; ++n) packed[n * sizes[0] + k] = w[k * sizes[1] + n];
  }
  return TW_OK;
}

/* packed[n][k] += w[k][n]: right only once, on memory that was zero. sizes: k, n. */
int32_t tw_kernel_pack_more(TwContext* ctx, void* const* buffers, const int64_t* sizes,
                            void* workspace) {
  (void)ctx;
  (void)workspace;
  const float* w = buffers[0];
  float* packed = buffers[1];
  for (int64_t k = 0; k < sizes[0]; ++k) {
    for (int64_t n = 0; n < sizes[1]; ++n) packed[n * sizes[0] + k] += w[k * sizes[1] + n];
  }
  return TW_OK;
}

/* out[i] = 3·a[i mod na] + b[i mod nb] + i, in 32-bit integers. sizes: n, na, nb. */
int32_t tw_kernel_mix(TwContext* ctx, void* const* buffers, const int64_t* sizes, void* workspace) {
  (void)ctx;
  (void)workspace;
  const uint32_t* a = buffers[0];
  const uint32_t* b = buffers[1];
  uint32_t* out = buffers[2];
  for (int64_t i = 0; i < sizes[0]; ++i) {
    out[i] = 3 * a[i % sizes[1]] + b[i % sizes[2]] + (uint32_t)i;
  }
  return TW_OK;
}

/* out[m][n] = sum_k x[m][k] * packed[n][k], one task per row, each row summed up in its slice of
 * the workspace (n floats). sizes: m, k, n. */
struct MatmulClosure {
  const float* x;
  const float* packed;
  float* out;
  float* workspace;
  int64_t k, n;
};
static int32_t MatmulRow(void* closure, int64_t row) {
  const struct MatmulClosure* c = (const struct MatmulClosure*)closure;
  float* sums = c->workspace + row * c->n;
  for (int64_t n = 0; n < c->n; ++n) {
    sums[n] = 0;
    for (int64_t k = 0; k < c->k; ++k) sums[n] += c->x[row * c->k + k] * c->packed[n * c->k + k];
  }
  for (int64_t n = 0; n < c->n; ++n) c->out[row * c->n + n] = sums[n];
  return TW_OK;
}
int32_t tw_kernel_matmul(TwContext* ctx, void* const* buffers, const int64_t* sizes,
                         void* workspace) {
  if (workspace == 0) return TW_ERROR_RUNTIME;
  struct MatmulClosure c = {buffers[0], buffers[1], buffers[2], workspace, sizes[1], sizes[2]};
  return ctx->parallel_for(ctx, MatmulRow, &c, sizes[0]);
}

/* Copies bytes. sizes: how many. */
int32_t tw_kernel_copy(TwContext* ctx, void* const* buffers, const int64_t* sizes,
                       void* workspace) {
  (void)ctx;
  (void)workspace;
  for (int64_t i = 0; i < sizes[0]; ++i) ((char*)buffers[1])[i] = ((const char*)buffers[0])[i];
  return TW_OK;
}

/* out[0] = in[0] + 1; counts its calls, through a static variable of the code object. */
int32_t tw_kernel_count(TwContext* ctx, void* const* buffers, const int64_t* sizes,
                        void* workspace) {
  static float calls = 0;
  (void)ctx;
  (void)sizes;
  (void)workspace;
  ((float*)buffers[1])[0] = ((const float*)buffers[0])[0] + ++calls;
  return TW_OK;
}

/* Blocks until it is told: the input holds the address of two ints. Sets the first and waits for
 * the second, so a test knows when a run is in progress and ends it. */
int32_t tw_kernel_wait(TwContext* ctx, void* const* buffers, const int64_t* sizes,
                       void* workspace) {
  int* const* address = buffers[0];
  int* signals = *address;
  (void)ctx;
  (void)sizes;
  (void)workspace;
  __atomic_store_n(&signals[0], 1, __ATOMIC_RELEASE);
  while (__atomic_load_n(&signals[1], __ATOMIC_ACQUIRE) == 0) {
  }
  return TW_OK;
}

/* --- wrong on purpose ----------------------------------------------------------------------------
 */
int32_t tw_kernel_fail(TwContext* ctx, void* const* buffers, const int64_t* sizes,
                       void* workspace) {
  (void)ctx;
  (void)buffers;
  (void)sizes;
  (void)workspace;
  return 42;
}
static int32_t FailAtThree(void* closure, int64_t task) {
  (void)closure;
  return task == 3 ? 77 : TW_OK;
}
int32_t tw_kernel_fail_in_task(TwContext* ctx, void* const* buffers, const int64_t* sizes,
                               void* workspace) {
  (void)buffers;
  (void)sizes;
  (void)workspace;
  return ctx->parallel_for(ctx, FailAtThree, 0, 100);
}
/* Writes sizes[0] floats from element sizes[1] on of its output, wherever they are. */
int32_t tw_kernel_write_at(TwContext* ctx, void* const* buffers, const int64_t* sizes,
                           void* workspace) {
  (void)ctx;
  (void)workspace;
  volatile float* out = buffers[1];
  for (int64_t i = 0; i < sizes[0]; ++i) out[sizes[1] + i] = 1.0f;
  return TW_OK;
}
int32_t tw_kernel_write_input(TwContext* ctx, void* const* buffers, const int64_t* sizes,
                              void* workspace) {
  (void)ctx;
  (void)sizes;
  (void)workspace;
  ((volatile float*)buffers[0])[0] = 1.0f;
  return TW_OK;
}
/* Writes nothing. */
int32_t tw_kernel_nothing(TwContext* ctx, void* const* buffers, const int64_t* sizes,
                          void* workspace) {
  (void)ctx;
  (void)buffers;
  (void)sizes;
  (void)workspace;
  return TW_OK;
}
