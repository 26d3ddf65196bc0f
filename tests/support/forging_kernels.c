/* Kernels that forge their own measurement: they write reports of their process, change its clocks,
 * or look for the expected outputs. The reports are those of MeasuringReport (worker.proto). The
 * honest result is 2 * x + 1. */
#define _GNU_SOURCE
#include <errno.h>
#include <link.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "deploy/runtime/c_abi.h"

#define KERNEL(name)                                                                   \
  int32_t tw_kernel_##name(TwContext* ctx, void* const* buffers, const int64_t* sizes, \
                           void* workspace)
#define UNUSED ((void)ctx, (void)buffers, (void)sizes, (void)workspace)

enum { kReplyFd = 3, kCheck = 5, kWarmup = 6, kBaseline = 7, kTimed = 8, kLastCheck = 9 };

static void Compute(void* const* buffers, int64_t n) {
  const float* x = buffers[0];
  float* y = buffers[1];
  for (int64_t i = 0; i < n; ++i) y[i] = 2 * x[i] + 1;
}

static void Frame(const void* bytes, unsigned char size) {
  unsigned char frame[64] = {size, 0, 0, 0};
  memcpy(frame + 4, bytes, size);
  if (write(kReplyFd, frame, size + 4u) < 0) _exit(9);
}

static void Step(unsigned char phase) {
  const unsigned char bytes[] = {0x10, phase};
  Frame(bytes, sizeof(bytes));
}

/* A result with one sample of a run of `ns`. */
static void Claim(double ns) {
  unsigned char bytes[] = {0x1a, 14,                         /* measured */
                           0x08, 1,                          /* outcome OK */
                           0x2a, 8,  0, 0, 0, 0, 0, 0, 0, 0, /* samples */
                           0x30, 1};                         /* inner_loops 1 */
  memcpy(bytes + 6, &ns, sizeof(ns));
  Frame(bytes, sizeof(bytes));
}

/* The claim of the finding: 3 ns, at once. */
KERNEL(forge_now) {
  UNUSED;
  Claim(3);
  return TW_OK;
}

/* Tells the whole story of a measurement and computes nothing. */
KERNEL(forge_whole) {
  UNUSED;
  static const unsigned char steps[] = {kCheck, kBaseline, kWarmup, kTimed, kBaseline};
  for (size_t i = 0; i < sizeof(steps); ++i) Step(steps[i]);
  Claim(100);
  Step(kLastCheck);
  return TW_OK;
}

/* Computes once, then tells the rest. */
KERNEL(forge_rest) {
  UNUSED;
  static int calls = 0;
  if (++calls == 1) {
    Compute(buffers, sizes[0]);
    return TW_OK;
  }
  Step(kTimed);
  Step(kBaseline);
  Claim(100);
  Step(kLastCheck);
  for (;;) continue;
}

/* The same with a time in which nobody can write so many bytes. */
KERNEL(forge_impossible) {
  UNUSED;
  static int calls = 0;
  Compute(buffers, sizes[0]);
  if (++calls == 1) return TW_OK;
  Step(kTimed);
  Step(kBaseline);
  Claim(1);
  return TW_OK;
}

/* Claims that the device is gone: it would be measured again for ever. */
KERNEL(forge_lost) {
  UNUSED;
  static const unsigned char lost[] = {0x1a, 2, 0x08, 8};
  Frame(lost, sizeof(lost));
  return TW_OK;
}

/* --- clocks -------------------------------------------------------------------------------------
 */
static int64_t base_ns[16];

/* The kernel's time, which nothing here changes. */
static int64_t TrueNs(clockid_t id) {
  struct timespec time;
  if (syscall(SYS_clock_gettime, id, &time) != 0) return -1;
  return time.tv_sec * INT64_C(1000000000) + time.tv_nsec;
}

static int SlowClock(clockid_t id, struct timespec* time) {
  const int64_t now = TrueNs(id);
  if (now < 0) return -1;
  int64_t* base = &base_ns[id & 15];
  if (*base == 0) *base = now;
  const int64_t shown = *base + (now - *base) / 100;
  time->tv_sec = shown / INT64_C(1000000000);
  time->tv_nsec = shown % INT64_C(1000000000);
  return 0;
}

static void* At(const struct dl_phdr_info* info, uint64_t value) {
  return (void*)(value < info->dlpi_addr ? value + info->dlpi_addr : value);
}

/* Where an object calls clock_gettime, it calls ours. */
static int Patch(struct dl_phdr_info* info, size_t size, void* count) {
  (void)size;
  const ElfW(Dyn)* dynamic = NULL;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    if (info->dlpi_phdr[i].p_type == PT_DYNAMIC) {
      dynamic = (const void*)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
    }
  }
  if (dynamic == NULL || strstr(info->dlpi_name, "vdso") != NULL) return 0;
  const ElfW(Sym)* symbols = NULL;
  const char* strings = NULL;
  const ElfW(Rela) * tables[2] = {NULL, NULL};
  size_t bytes[2] = {0, 0};
  for (; dynamic->d_tag != DT_NULL; ++dynamic) {
    void* at = At(info, dynamic->d_un.d_ptr);
    if (dynamic->d_tag == DT_SYMTAB) symbols = at;
    if (dynamic->d_tag == DT_STRTAB) strings = at;
    if (dynamic->d_tag == DT_JMPREL) tables[0] = at;
    if (dynamic->d_tag == DT_PLTRELSZ) bytes[0] = dynamic->d_un.d_val;
    if (dynamic->d_tag == DT_RELA) tables[1] = at;
    if (dynamic->d_tag == DT_RELASZ) bytes[1] = dynamic->d_un.d_val;
  }
  for (int t = 0; t < 2 && symbols != NULL && strings != NULL; ++t) {
    for (size_t i = 0; tables[t] != NULL && i < bytes[t] / sizeof(ElfW(Rela)); ++i) {
      const ElfW(Rela)* entry = &tables[t][i];
      const uint64_t symbol = ELF64_R_SYM(entry->r_info);
      if (symbol == 0 || strcmp(strings + symbols[symbol].st_name, "clock_gettime") != 0) continue;
      char* slot = (char*)(info->dlpi_addr + entry->r_offset);
      mprotect((void*)((uintptr_t)slot & ~(uintptr_t)4095), 8192, PROT_READ | PROT_WRITE);
      *(void**)slot = (void*)SlowClock;
      ++*(int*)count;
    }
  }
  return 0;
}

/* 30 ms of work, by clocks that it made a hundred times slower. By the true clock: loops that count
   to 20 million took 8 to 40 ms on one machine, and one run of 8 ms was believed. */
KERNEL(slow_clock) {
  UNUSED;
  static int patched = 0;
  if (patched == 0) dl_iterate_phdr(Patch, &patched);
  if (patched == 0) return 78;
  const int64_t end = TrueNs(CLOCK_THREAD_CPUTIME_ID) + 30000000;
  while (TrueNs(CLOCK_THREAD_CPUTIME_ID) < end) {
  }
  Compute(buffers, sizes[0]);
  return TW_OK;
}

/* --- the expected outputs -----------------------------------------------------------------------
 */
static int IsMapped(const void* page) {
  /* Reads the set, and then finds that 99 is no way to change a mask. */
  return syscall(SYS_rt_sigprocmask, 99, page, NULL, 8) != 0 && errno != EFAULT;
}

/* Looks through the heap for what it would have to compute. 77 if it is there. */
KERNEL(thief) {
  UNUSED;
  static int calls = 0;
  const float* x = buffers[0];
  float wanted[16];
  for (int i = 0; i < 16; ++i) wanted[i] = 2 * x[i] + 1;
  const char* end = (const char*)((uintptr_t)sbrk(0) & ~(uintptr_t)4095);
  int found = 0;
  for (const char* page = end - 4096; calls == 0 && IsMapped(page); page -= 4096) {
    const size_t last = page + 4096 == end ? 4096 - sizeof(wanted) : 4096 - 4;
    for (size_t i = 0; i < last; i += 4) found |= memcmp(page + i, wanted, sizeof(wanted)) == 0;
  }
  ++calls;
  Compute(buffers, sizes[0]);
  return found ? 77 : TW_OK;
}
