/* C ABI of generated code: the contract between code objects, which the compiler writes, and the
 * runtime that loads and calls them. Plain C without dependencies, so that a firmware build can use
 * it unchanged.
 *
 * Ownership: the runtime owns every buffer, the context and the workspace. Generated code borrows
 * them for one call and keeps nothing. Thread-safety: a kernel entry is re-entrant and has no
 * static state. Two calls at the same time need two contexts and two workspaces.
 *
 * Versioning: we raise TW_ABI_VERSION when an existing field or rule changes. The context grows
 * only at its end, so code built for version N runs under any runtime whose context has
 * abi_version >= N. The manifest names the version that the code was built for. */
#ifndef DEPLOY_RUNTIME_C_ABI_H_
#define DEPLOY_RUNTIME_C_ABI_H_

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TW_ABI_VERSION 1u

/* Every buffer and the workspace start at a multiple of this many bytes. */
#define TW_BUFFER_ALIGNMENT 64

/* Prefix of every kernel entry's symbol: tw_kernel_<name>. */
#define TW_KERNEL_SYMBOL_PREFIX "tw_kernel_"

/* Results of kernel entries and task bodies: TW_OK, one of the named codes, or any other non-zero
 * value, which the runtime reports as it is. */
enum {
  TW_OK = 0,
  TW_ERROR_ABI = 1,     /* the context's abi_version is older than the code needs */
  TW_ERROR_SIZE = 2,    /* a size parameter is outside the range that the code was built for */
  TW_ERROR_RUNTIME = 3, /* the runtime could not do what the code asked of it */
};

typedef struct TwContext TwContext;

/* Body of a parallel loop: runs task number `task`. Tasks of one loop may run at the same time and
 * in any order; they share only what `closure` points to. */
typedef int32_t (*TwTaskBody)(void* closure, int64_t task);

/* What generated code may use of the runtime. The offsets are part of the ABI (64-bit pointers):
 * abi_version 0, num_threads 4, opaque 8, parallel_for 16. */
struct TwContext {
  uint32_t abi_version; /* version of the runtime, >= the version the code was built for */
  int32_t num_threads;  /* how many threads parallel_for may use; >= 1 */
  void* opaque;         /* the runtime's own; generated code does not look inside */
  /* Runs body(closure, t) for every t in [0, num_tasks), the calling thread included, and returns
   * when all have ended: with TW_OK, or with the non-zero result of one failing task (after which
   * tasks that have not begun are skipped). Called from inside a body it runs the tasks serially
   * on the calling thread. num_tasks <= 0 does nothing. */
  int32_t (*parallel_for)(TwContext* ctx, TwTaskBody body, void* closure, int64_t num_tasks);
};

/* A kernel entry, `int32_t tw_kernel_<name>(...)`.
 *   buffers    one pointer per buffer parameter in declared order (inputs, constants, outputs).
 *              Each is row-major, compact, aligned to the target's vectors (16 to
 *              TW_BUFFER_ALIGNMENT bytes), and holds at least the bytes of its declared shape
 *              rounded up to TW_BUFFER_ALIGNMENT. Nothing of that padding may be written, nor read
 *              in a way that changes a result.
 *   sizes      one value per integer size parameter in declared order; NULL when there is none.
 *   workspace  scratch of the launch's declared workspace_bytes (NULL when 0), contents undefined
 *              on entry, shared by all tasks of the call. Scratch of one task is the task's own
 *              stack (keep it below TW_TASK_STACK_BYTES) or its own slice of the workspace.
 * A code object has no undefined symbols but those of libc and libm. */
typedef int32_t (*TwKernelFn)(TwContext* ctx, void* const* buffers, const int64_t* sizes,
                              void* workspace);

/* Stack that a kernel entry or a task body may count on, in bytes. */
#define TW_TASK_STACK_BYTES (512 * 1024)

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* DEPLOY_RUNTIME_C_ABI_H_ */
