/* What emulated kernels and the emulator know of each other: kernels call these functions. Plain C,
 * so that the compiled text includes nothing else of ours. One table per emulator; the emulator
 * runs one thread of a group at a time. */
#ifndef TESTS_SUPPORT_SIMT_SIMT_HOOKS_H_
#define TESTS_SUPPORT_SIMT_SIMT_HOOKS_H_

enum { SIMT_READ, SIMT_WRITE, SIMT_UNIT_READ /* by a unit next to the thread */ };

typedef struct SimtHooks {
  /* Of the thread that runs: its place in the group, its group, sizes of both; along x y z. */
  unsigned thread[3], group[3], threads[3], groups[3];
  void* emulator;
  unsigned warp; /* threads of a warp: 32 or 64 */
  unsigned run;  /* of a group: another one each time that one runs */
  /* One access of memory, of kind SIMT_READ and so on. `site` tells the places of a program apart.
   * `align`: what the address has to be a multiple of. Returns if the access is allowed; else the
   * thread never runs again. */
  void (*access)(struct SimtHooks* self, const void* address, unsigned long bytes,
                 unsigned long align, int kind, const void* site);
  /* Waits for all threads of the group. `global`: orders global memory, too. */
  void (*barrier)(struct SimtHooks* self, int global, unsigned long site);
  /* The memory of a shared array: the same for all threads of a group. The device has it at a
   * multiple of `align`, and of no larger power of two. */
  void* (*shared)(struct SimtHooks* self, const char* name, unsigned long bytes,
                  unsigned long element, unsigned long align);
  /* Where the device has an element of a shared array, and the reverse (null: nothing is there). */
  unsigned (*shared_address)(struct SimtHooks* self, const void* element);
  const void* (*shared_at)(struct SimtHooks* self, unsigned address);
  /* What the thread has written to shared memory so far, units next to the thread may read. */
  void (*order_writes)(struct SimtHooks* self);
  /* Waits for all threads of four warps. The first of them goes on first. */
  void (*meet)(struct SimtHooks* self, unsigned long site);
  /* The thread does what a device leaves undefined: `slug` says what, `detail` more of it. */
  void (*fail)(struct SimtHooks* self, const char* slug, const char* detail);
  /* Waits for the threads of the warp in `mask`, and returns the value that thread `from` (of the
   * warp) has given; if that thread is not there, the own value. */
  unsigned long (*exchange)(struct SimtHooks* self, unsigned long mask, unsigned long value,
                            unsigned from, unsigned long site);
  /* Waits for all threads of a whole warp, and returns what each of them has given, `bytes` of each,
   * in their order. It stays until the next call. */
  const void* (*gather)(struct SimtHooks* self, const void* own, unsigned long bytes,
                        unsigned long site);
} SimtHooks;

#endif /* TESTS_SUPPORT_SIMT_SIMT_HOOKS_H_ */
