/* What emulated kernels and the emulator know of each other: kernels call these functions. Plain C,
 * so that the compiled text includes nothing else of ours. One table per emulator; the emulator
 * runs one thread of a group at a time. */
#ifndef TESTS_SUPPORT_SIMT_SIMT_HOOKS_H_
#define TESTS_SUPPORT_SIMT_SIMT_HOOKS_H_

typedef struct SimtHooks {
  /* Of the thread that runs: its place in the group, its group, sizes of both; along x y z. */
  unsigned thread[3], group[3], threads[3], groups[3];
  void* emulator;
  unsigned warp; /* threads of a warp: 32 or 64 */
  unsigned run;  /* of a group: another one each time that one runs */
  /* One access of memory. `site` tells the places of a program apart. `align`: what the address has
   * to be a multiple of. Returns if the access is allowed; else the thread never runs again. */
  void (*access)(struct SimtHooks* self, const void* address, unsigned long bytes,
                 unsigned long align, int write, const void* site);
  /* Waits for all threads of the group. `global`: orders global memory, too. */
  void (*barrier)(struct SimtHooks* self, int global, unsigned long site);
  /* The memory of a shared array: the same for all threads of a group. */
  void* (*shared)(struct SimtHooks* self, const char* name, unsigned long bytes,
                  unsigned long element);
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
