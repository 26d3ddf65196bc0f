/* Kernels that a worker is given to measure: honest ones, and ones that misbehave in every way a
 * worker has to survive. Each has an input and an output of sizes[0] floats; the honest result is
 * 2 * x + 1. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <unistd.h>

#include "deploy/runtime/c_abi.h"

#define KERNEL(name)                                                                   \
  int32_t tw_kernel_##name(TwContext* ctx, void* const* buffers, const int64_t* sizes, \
                           void* workspace)
#define UNUSED ((void)ctx, (void)buffers, (void)sizes, (void)workspace)

static void Honest(void* const* buffers, int64_t begin, int64_t end) {
  const float* x = buffers[0];
  float* y = buffers[1];
  for (int64_t i = begin; i < end; ++i) y[i] = 2 * x[i] + 1;
}

KERNEL(honest) {
  UNUSED;
  Honest(buffers, 0, sizes[0]);
  return TW_OK;
}

/* How often these lines are in a cache depends on where in its page the workspace, of 9 pages or
 * more, begins: there it meets one line of the output, and each of those is used another number of
 * times. */
KERNEL(pages) {
  UNUSED;
  volatile float* y = buffers[1];
  for (int line = 0; line < 64; ++line) {
    for (int again = 0; again <= line; ++again) {
      y[line * 16] = 0;
      for (int page = 0; page < 8; ++page) ((volatile char*)workspace)[page * 4096] = 0;
    }
  }
  Honest(buffers, 0, sizes[0]);
  return TW_OK;
}

struct Half {
  void* const* buffers;
  int64_t n;
};
static int32_t HonestHalf(void* closure, int64_t task) {
  const struct Half* half = closure;
  Honest(half->buffers, task * half->n / 2, (task + 1) * half->n / 2);
  return TW_OK;
}
KERNEL(parallel) {
  UNUSED;
  struct Half half = {buffers, sizes[0]};
  return ctx->parallel_for(ctx, HonestHalf, &half, 2);
}

/* About two milliseconds of work. */
KERNEL(slow) {
  UNUSED;
  volatile uint64_t sum = 0;
  for (uint64_t i = 0; i < 2000000; ++i) sum += i;
  Honest(buffers, 0, sizes[0]);
  return TW_OK;
}

/* --- wrong results ------------------------------------------------------------------------------
 */
KERNEL(wrong) {
  UNUSED;
  Honest(buffers, 0, sizes[0]);
  ((float*)buffers[1])[sizes[0] / 2] += 1;
  return TW_OK;
}
/* Right at first. */
KERNEL(wrong_later) {
  UNUSED;
  static int calls = 0;
  Honest(buffers, 0, sizes[0]);
  if (++calls > 1) ((float*)buffers[1])[0] += 1;
  return TW_OK;
}
/* Leaves the work to the first call. */
KERNEL(lazy) {
  UNUSED;
  static int calls = 0;
  if (calls++ == 0) Honest(buffers, 0, sizes[0]);
  return TW_OK;
}
KERNEL(nothing) {
  UNUSED;
  return TW_OK;
}
/* One float behind the end: into the padding where there is some, else into the guard page. */
KERNEL(past_end) {
  UNUSED;
  Honest(buffers, 0, sizes[0]);
  ((volatile float*)buffers[1])[sizes[0]] = 1;
  return TW_OK;
}
KERNEL(before_begin) {
  UNUSED;
  Honest(buffers, 0, sizes[0]);
  ((volatile float*)buffers[1])[-1] = 1;
  return TW_OK;
}
KERNEL(write_input) {
  UNUSED;
  ((volatile float*)buffers[0])[0] = 0;
  return TW_OK;
}
KERNEL(error) {
  UNUSED;
  return 42;
}

/* --- ends and hangs -----------------------------------------------------------------------------
 */
KERNEL(hang) {
  UNUSED;
  for (volatile int forever = 1; forever;) continue;
  return TW_OK;
}
KERNEL(crash) {
  UNUSED;
  *(volatile int*)8 = 1;
  return TW_OK;
}
KERNEL(exit_zero) {
  UNUSED;
  _exit(0);
}
KERNEL(abort) {
  UNUSED;
  abort();
}
static __attribute__((noinline, optimize("stack-protector-all"))) void Smash(int n) {
  volatile char small[8];
  for (int i = 0; i < n; ++i) small[i] = 'x';
}
KERNEL(stack_smash) {
  UNUSED;
  Smash(64);
  return TW_OK;
}
static int Recurse(volatile char* up) {
  volatile char frame[4096];
  frame[0] = up[0];
  return Recurse(frame) + frame[0];
}
KERNEL(stack_overflow) {
  UNUSED;
  char start = 1;
  return Recurse(&start);
}
/* Talks a lot, then dies. */
KERNEL(chatter) {
  UNUSED;
  char line[1024];
  memset(line, 'a', sizeof(line));
  line[sizeof(line) - 1] = '\n';
  for (int i = 0; i < 4096; ++i) {
    if (write(2, line, sizeof(line)) < 0) return 1;
  }
  if (write(2, "last words\n", 11) < 0) return 1;
  abort();
}

/* --- what a sandbox is for ----------------------------------------------------------------------
 */
KERNEL(fork_bomb) {
  UNUSED;
  for (int i = 0; i < 10000; ++i) {
    if (fork() < 0) return 1;
  }
  return TW_OK;
}
KERNEL(connect) {
  UNUSED;
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(9)};
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  return connect(fd, (struct sockaddr*)&address, sizeof(address));
}
KERNEL(open_write) {
  UNUSED;
  return open("/tmp/tilewright_hostile", O_WRONLY | O_CREAT, 0666) < 0;
}
KERNEL(open_read) {
  UNUSED;
  return open("/etc/passwd", O_RDONLY) < 0;
}
/* The same by the other thread: a pool is there before its process is sealed. */
static int32_t OpenByOther(void* closure, int64_t task) {
  volatile int* file = closure;
  (void)task;
  if (gettid() != getpid()) *file = open("/etc/passwd", O_RDONLY);
  while (*file == -2) continue; /* its thread has the other task */
  return *file < 0;
}
KERNEL(open_by_thread) {
  UNUSED;
  volatile int file = -2;
  Honest(buffers, 0, sizes[0]);
  return ctx->parallel_for(ctx, OpenByOther, (void*)&file, 2);
}
KERNEL(unlink) {
  UNUSED;
  return unlink("/tmp/tilewright_hostile") != 0;
}
KERNEL(exec) {
  UNUSED;
  char* const argv[] = {"/bin/true", NULL};
  return execv(argv[0], argv);
}
KERNEL(ptrace) {
  UNUSED;
  return ptrace(PTRACE_ATTACH, getppid(), NULL, NULL) != 0;
}
KERNEL(kill_parent) {
  UNUSED;
  return kill(getppid(), SIGKILL);
}
/* Far more than any limit of the test. */
KERNEL(big_malloc) {
  UNUSED;
  char* big = malloc((size_t)10 << 30);
  if (big == NULL) return 12;
  memset(big, 1, (size_t)10 << 30);
  return TW_OK;
}
static void* Sleeper(void* unused) {
  sleep(1000);
  return unused;
}
KERNEL(thread_bomb) {
  UNUSED;
  pthread_t thread;
  pthread_attr_t large; /* what is left by the last one that fails is enough to end in order */
  pthread_attr_init(&large);
  pthread_attr_setstacksize(&large, 48 << 20);
  for (int i = 0; i < 100000; ++i) {
    if (pthread_create(&thread, &large, Sleeper, NULL) != 0) return 11;
  }
  return TW_OK;
}
/* Touches memory, page by page, until there is no more. */
KERNEL(memory_hog) {
  UNUSED;
  for (;;) {
    char* page = malloc(1 << 20);
    if (page == NULL) abort();
    memset(page, 1, 1 << 20);
  }
}
/* Says more than anyone wants to hear: 10 GiB as its result, or as its last words. */
static int Flood(int fd) {
  static char noise[1 << 20];
  for (int i = 0; i < 10 << 10; ++i) {
    if (write(fd, noise, sizeof(noise)) < 0) return 1;
  }
  return TW_OK;
}
KERNEL(flood_result) {
  UNUSED;
  return Flood(3);
}
KERNEL(flood_error) {
  UNUSED;
  const int result = Flood(2);
  for (;;) continue;
  return result;
}
/* Leaves its process group and its parent, three deep. */
KERNEL(escape) {
  UNUSED;
  for (int i = 0; i < 3; ++i) {
    if (fork() > 0) sleep(i == 0 ? 1 : 1000);
    setsid();
    prctl(PR_SET_NAME, "tw_escaped");
  }
  sleep(1000);
  return TW_OK;
}
/* Claims a result of its own: a frame with outcome OK and one sample of half a nanosecond. */
KERNEL(forge) {
  UNUSED;
  static const unsigned char frame[] = {16,   0,  0, 0,                         /* length */
                                        0x1a, 14,                               /* measured */
                                        0x08, 1,                                /* outcome OK */
                                        0x2a, 8,  0, 0, 0, 0, 0, 0, 0xe0, 0x3f, /* samples 0.5 */
                                        0x30, 1};                               /* inner_loops 1 */
  return write(3, frame, sizeof(frame)) != sizeof(frame);
}
/* Claims that its agent had called it off: it would be measured again for ever. */
KERNEL(forge_cancelled) {
  UNUSED;
  static const unsigned char frame[] = {4, 0, 0, 0, 0x1a, 2, 0x08, 10};
  return write(3, frame, sizeof(frame)) != sizeof(frame);
}
/* Claims with noise: no frame at all. */
KERNEL(garble) {
  UNUSED;
  char noise[64];
  memset(noise, 0xff, sizeof(noise));
  for (int i = 0; i < 1000; ++i) {
    if (write(3, noise, sizeof(noise)) < 0) return 1;
  }
  return TW_OK;
}

#ifdef HOSTILE_CONSTRUCTOR
__attribute__((constructor)) static void Constructor(void) {
#if HOSTILE_CONSTRUCTOR == 1
  _exit(0);
#else
  open("/tmp/tilewright_hostile", O_WRONLY | O_CREAT, 0666);
#endif
}
#endif
