/* One candidate that computes honestly (y = 2 x + 1) and attacks its host on the way: while it is
 * loaded, or when it runs first. What it does, and to whom, is patched into `plan` by the test
 * (sandbox_attack_test.cc). An attack that works says TAKEN on standard error and aborts; one that
 * is refused goes on, as if nothing had been tried. */
#define _GNU_SOURCE
#include "tests/support/sandbox_attacks.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "deploy/runtime/c_abi.h"

static volatile struct AttackPlan plan = {.magic = TW_ATTACK_MAGIC, .attack = "none"};

static void Taken(const char* what, long size) {
  if (write(2, "TAKEN ", 6) < 0 || write(2, what, (size_t)size) < 0) _exit(99);
  abort();
}
static void TakenIf(int worked) {
  if (worked) Taken((const char*)plan.attack, (long)strlen((const char*)plan.attack));
}

static void ReadFile(void) {
  char text[64];
  const int fd = open((const char*)plan.path, O_RDONLY);
  const long got = fd < 0 ? -1 : read(fd, text, sizeof(text));
  if (got > 0) Taken(text, got);
}

static void ReadMemory(void) {
  char path[64];
  char text[TW_ATTACK_SECRET_BYTES];
  snprintf(path, sizeof(path), "/proc/%d/mem", plan.pid);
  const int fd = open(path, O_RDONLY);
  if (fd >= 0 && pread(fd, text, sizeof(text), (off_t)plan.address) > 0) Taken(text, sizeof(text));
}

static void ReadMemoryByCall(void) {
  char text[TW_ATTACK_SECRET_BYTES];
  struct iovec here = {text, sizeof(text)};
  struct iovec there = {(void*)plan.address, sizeof(text)};
  if (process_vm_readv(plan.pid, &here, 1, &there, 1, 0) > 0) Taken(text, sizeof(text));
}

static void SeeProcess(void) {
  char path[64];
  struct stat found;
  snprintf(path, sizeof(path), "/proc/%d", plan.pid);
  TakenIf(stat(path, &found) == 0);
}
static void SeeFile(void) {
  struct stat found;
  TakenIf(stat("/etc/passwd", &found) == 0 || stat("/home", &found) == 0);
}

static void LimitProcess(void) {
  const struct rlimit none = {0, 0};
  TakenIf(prlimit(plan.pid, RLIMIT_CPU, &none, NULL) == 0);
}
static void KillProcess(void) { TakenIf(kill(plan.pid, SIGKILL) == 0); }
static void KillThread(void) { TakenIf(syscall(SYS_tgkill, plan.pid, plan.pid, SIGKILL) == 0); }
static void OpenProcess(void) { TakenIf(syscall(SYS_pidfd_open, plan.pid, 0) >= 0); }
static void MoveProcess(void) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(0, &set);
  TakenIf(sched_setaffinity(plan.pid, sizeof(set), &set) == 0);
}

/* A write to the pipe then signals the owner. */
static void OwnDescriptor(void) {
  const int owned = fcntl(2, F_SETOWN, plan.pid) == 0;
  fcntl(2, F_SETSIG, SIGKILL);
  fcntl(2, F_SETFL, O_ASYNC | O_WRONLY);
  TakenIf(owned);
}
static void SignalOfDescriptor(void) { TakenIf(fcntl(2, F_SETSIG, SIGKILL) == 0); }
static void AsyncDescriptor(void) { TakenIf(fcntl(2, F_SETFL, O_ASYNC | O_WRONLY) == 0); }
static void GrowPipe(void) { TakenIf(fcntl(2, F_SETPIPE_SZ, 1 << 20) > 0); }

/* From now on seccomp() and landlock calls succeed without doing anything. */
static void FilterOfItsOwn(int by_prctl) {
  struct sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_seccomp, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  struct sock_fprog program = {sizeof(code) / sizeof(code[0]), code};
  TakenIf(by_prctl ? prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0
                   : syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) == 0);
}
static void FilterByCall(void) { FilterOfItsOwn(0); }
static void FilterByPrctl(void) { FilterOfItsOwn(1); }

/* Below the thread library, without its stacks: nothing but the kernel counts them. */
static void SleepForEver(void) {
  static const struct timespec long_time = {1000, 0};
  for (;;) syscall(SYS_nanosleep, &long_time, NULL);
}
static void ManyThreads(void) {
  enum { kThreads = 3000, kWords = 256 };
  const unsigned long flags =
      CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM;
  uintptr_t* stacks = mmap(NULL, kThreads * kWords * sizeof(uintptr_t), PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (stacks == MAP_FAILED) return;
  int made = 0;
  for (int i = 0; i < kThreads; ++i) {
    /* The new thread returns from the call on its own stack: to SleepForEver. */
    uintptr_t* top = stacks + (i + 1) * kWords - 2;
    *top = (uintptr_t)SleepForEver;
    made += syscall(SYS_clone, flags, top, NULL, NULL, 0) > 0;
  }
  TakenIf(made == kThreads);
}

/* Libraries that a candidate needs must be there, whoever it runs as. */
static void None(void) {
  if (plan.on_load && access("/usr/lib", R_OK | X_OK) != 0) abort();
}

static void Attack(void) {
  static const struct {
    const char* name;
    void (*run)(void);
  } kAttacks[] = {
      {"none", None},
      {"read_file", ReadFile},
      {"read_memory", ReadMemory},
      {"read_memory_by_call", ReadMemoryByCall},
      {"see_process", SeeProcess},
      {"see_file", SeeFile},
      {"limit_process", LimitProcess},
      {"kill_process", KillProcess},
      {"kill_thread", KillThread},
      {"open_process", OpenProcess},
      {"move_process", MoveProcess},
      {"own_descriptor", OwnDescriptor},
      {"signal_of_descriptor", SignalOfDescriptor},
      {"async_descriptor", AsyncDescriptor},
      {"grow_pipe", GrowPipe},
      {"filter_by_call", FilterByCall},
      {"filter_by_prctl", FilterByPrctl},
      {"many_threads", ManyThreads},
  };
  for (size_t i = 0; i < sizeof(kAttacks) / sizeof(kAttacks[0]); ++i) {
    if (strcmp(kAttacks[i].name, (const char*)plan.attack) == 0) {
      kAttacks[i].run();
      return;
    }
  }
  abort(); /* a plan that nobody wrote */
}

__attribute__((constructor)) static void OnLoad(void) {
  if (plan.on_load) Attack();
}

int32_t tw_kernel_attack(TwContext* ctx, void* const* buffers, const int64_t* sizes,
                         void* workspace) {
  (void)ctx;
  (void)workspace;
  static int ran;
  if (!plan.on_load && !ran++) Attack();
  const float* x = buffers[0];
  float* y = buffers[1];
  for (int64_t i = 0; i < sizes[0]; ++i) y[i] = 2 * x[i] + 1;
  return TW_OK;
}
