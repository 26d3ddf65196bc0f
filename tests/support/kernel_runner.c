/* Loads one kernel and calls it once: the far side of run_emulated.h, built for the emulated
 * processor.
 *   kernel_runner LIBRARY SYMBOL WORKSPACE_BYTES COUNTER [SIZE...]
 * COUNTER: the address of the emulated board's counter (device_agent/board_counter.h), 0 without one.
 * With one, "cycles instructions" of the call go to standard error.
 * Standard input: for each buffer two 64-bit numbers (bytes, 1 for an output) and its contents.
 * Standard output: the kernel's result as 32 bits, then the contents of the outputs. Buffers end at
 * a guard page; a kernel that changes an input or the bytes around a buffer is exit code 3. All
 * symbols of the library are resolved when it is loaded, by libc and libm alone. */
#include <dlfcn.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "deploy/runtime/c_abi.h"
#include "device_agent/board_counter.h"

enum { kMaxBuffers = 64, kMaxSizes = 16, kCanary = 0xA5, kFailed = 2, kOverrun = 3 };

typedef struct {
  int64_t bytes, padded, body;
  int64_t output;
  uint8_t *start, *data, *before;
} Guarded;

static void Fail(int code, const char* what) {
  fprintf(stderr, "%s\n", what);
  exit(code);
}

static int64_t RoundUp(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

static void Read(void* to, size_t bytes) {
  if (bytes > 0 && fread(to, bytes, 1, stdin) != 1) Fail(kFailed, "standard input ended early");
}

static Guarded ReadBuffer(int64_t bytes) {
  Guarded g = {.bytes = bytes};
  const int64_t page = sysconf(_SC_PAGESIZE);
  Read(&g.output, sizeof(g.output));
  g.padded = RoundUp(bytes, TW_BUFFER_ALIGNMENT);
  g.body = RoundUp(g.padded + 1, page);
  uint8_t* base = mmap(NULL, (size_t)(g.body + 2 * page), PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (base == MAP_FAILED) Fail(kFailed, "no memory");
  g.start = base + page;
  g.data = g.start + g.body - g.padded;
  memset(g.start, kCanary, (size_t)g.body);
  mprotect(base, (size_t)page, PROT_NONE);
  mprotect(g.start + g.body, (size_t)page, PROT_NONE);
  Read(g.data, (size_t)bytes);
  if (g.output) memset(g.data, kCanary, (size_t)bytes);
  g.before = malloc((size_t)bytes + 1);
  memcpy(g.before, g.data, (size_t)bytes);
  return g;
}

static void Check(const Guarded* g) {
  for (const uint8_t* p = g->start; p < g->start + g->body; ++p) {
    const int inside = p >= g->data && p < g->data + g->bytes;
    if (!inside && *p != kCanary) Fail(kOverrun, "bytes around a buffer changed");
  }
  if (!g->output && memcmp(g->before, g->data, (size_t)g->bytes) != 0)
    Fail(kOverrun, "bytes of an input changed");
}

static int32_t ParallelFor(TwContext* ctx, TwTaskBody body, void* closure, int64_t num_tasks) {
  (void)ctx;
  for (int64_t task = num_tasks; task-- > 0;) {
    const int32_t rc = body(closure, task);
    if (rc != TW_OK) return rc;
  }
  return TW_OK;
}

int main(int argc, char** argv) {
  Guarded buffers[kMaxBuffers];
  void* pointers[kMaxBuffers];
  int64_t sizes[kMaxSizes] = {0}, bytes = 0;
  int count = 0;
  if (argc < 5 || argc - 5 > kMaxSizes) Fail(kFailed, "wrong arguments");
  for (int i = 5; i < argc; ++i) sizes[i - 5] = atoll(argv[i]);
  const volatile TwBoardCounter* counter =
      (const volatile TwBoardCounter*)(uintptr_t)strtoull(argv[4], NULL, 0);
  while (fread(&bytes, sizeof(bytes), 1, stdin) == 1) {
    if (count == kMaxBuffers) Fail(kFailed, "too many buffers");
    buffers[count] = ReadBuffer(bytes);
    pointers[count] = buffers[count].data;
    ++count;
  }
  void* library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) Fail(kFailed, dlerror());
  void* symbol = dlsym(library, argv[2]);
  if (symbol == NULL) Fail(kFailed, dlerror());
  const int64_t workspace_bytes = RoundUp(atoll(argv[3]), TW_BUFFER_ALIGNMENT);
  void* workspace =
      workspace_bytes == 0 ? NULL : aligned_alloc(TW_BUFFER_ALIGNMENT, (size_t)workspace_bytes);
  if (workspace != NULL) memset(workspace, kCanary, (size_t)workspace_bytes);
  TwContext context = {TW_ABI_VERSION, 2, NULL, ParallelFor};
  TwKernelFn kernel;
  memcpy(&kernel, &symbol, sizeof(kernel));
  const TwBoardCounter start = counter != NULL ? *counter : (TwBoardCounter){0};
  const int32_t result = kernel(&context, pointers, sizes, workspace);
  if (counter != NULL) {
    fprintf(stderr, "%llu %llu\n", (unsigned long long)(counter->cycles - start.cycles),
            (unsigned long long)(counter->instructions - start.instructions));
  }
  fwrite(&result, sizeof(result), 1, stdout);
  for (int i = 0; i < count; ++i) {
    Check(&buffers[i]);
    if (buffers[i].output) fwrite(buffers[i].data, (size_t)buffers[i].bytes, 1, stdout);
  }
  return fflush(stdout) == 0 ? 0 : kFailed;
}
