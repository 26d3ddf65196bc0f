/* Attacks of the attack lane (tests/long/attacks.py): each tries to read, change or end something
 * that is not its own. A maker of modules writes into `tw_attack` which one runs, when, and what it
 * is after (attack_corpus.h). What an attack gets hold of it prints, so that the lane finds it in
 * the answer, and it ends with abort(). If it is refused, the kernel is honest: 2 * x + 1. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
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
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "deploy/runtime/c_abi.h"

/* "TWATTACK" + when ('L' on load, 'K' in the kernel) + name + '\0' + path of a secret file + '\0' +
 * id of a process that it may harm, if it can, + '\0'. */
__attribute__((visibility("default"))) volatile char tw_attack[512] = "TWATTACK";

static char name[64];
static char secret_path[384];
static pid_t victim = 0;

static void Learn(void) {
  size_t at = 9;
  for (size_t i = 0; tw_attack[at] != 0 && i < sizeof(name) - 1; ++i) name[i] = tw_attack[at++];
  ++at;
  for (size_t i = 0; tw_attack[at] != 0 && i < sizeof(secret_path) - 1; ++i) {
    secret_path[i] = tw_attack[at++];
  }
  victim = atoi((const char*)tw_attack + at + 1);
}

static void Loot(const void* bytes, ssize_t size) {
  if (size <= 0) return;
  if (write(2, "LOOT ", 5) < 0 || write(2, bytes, (size_t)size) < 0) _exit(7);
  abort();
}

/* Prints what belongs to the lane and no one else: its secret starts with this. */
static void LootSecret(const char* bytes, ssize_t size) {
  static const char mark[] = "SECRET-";
  for (ssize_t i = 0; i + 48 <= size; ++i) {
    if (memcmp(bytes + i, mark, sizeof(mark) - 1) == 0) Loot(bytes + i, 48);
  }
}

static void ReadAndLoot(const char* path) {
  static char bytes[1 << 16];
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return;
  const ssize_t got = read(fd, bytes, sizeof(bytes));
  LootSecret(bytes, got);
  close(fd);
}

/* From a file where it can be read: the system call may be forbidden. */
static pid_t Parent(void) {
  static char line[512];
  const int fd = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
  if (fd >= 0 && read(fd, line, sizeof(line) - 1) > 0) {
    const char* at = strrchr(line, ')');
    int parent = 0;
    close(fd);
    if (at != NULL && sscanf(at, ") %*c %d", &parent) == 1 && parent > 0) return parent;
  }
  return (pid_t)syscall(SYS_getppid);
}

/* --- reading what is others' --------------------------------------------------------------------
 */
static void read_secret(void) { ReadAndLoot(secret_path); }
static void read_secret_openat2(void) {
  struct {
    uint64_t flags, mode, resolve;
  } how = {O_RDONLY, 0, 0};
  static char bytes[256];
  const long fd = syscall(SYS_openat2, AT_FDCWD, secret_path, &how, sizeof(how));
  if (fd >= 0) LootSecret(bytes, read((int)fd, bytes, sizeof(bytes)));
}
static void read_secret_by_link(void) {
  char path[96];
  snprintf(path, sizeof(path), "/tmp/tw-attack-%d", (int)getpid());
  if (symlink(secret_path, path) == 0) ReadAndLoot(path);
}
static void read_parent_environment(void) {
  char path[64];
  snprintf(path, sizeof(path), "/proc/%d/environ", (int)Parent());
  ReadAndLoot(path);
}
static void read_victim_environment(void) {
  char path[64];
  snprintf(path, sizeof(path), "/proc/%d/environ", (int)victim);
  ReadAndLoot(path);
}
static void MemoryOf(pid_t pid) {
  static char line[1 << 15];
  static char page[1 << 16];
  char path[64];
  snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
  const int maps = open(path, O_RDONLY);
  if (maps < 0) return;
  snprintf(path, sizeof(path), "/proc/%d/mem", (int)pid);
  const int mem = open(path, O_RDONLY);
  const ssize_t got = mem < 0 ? 0 : read(maps, line, sizeof(line) - 1);
  for (char* at = line; got > 0 && at != NULL && *at != 0;) {
    unsigned long from = 0, to = 0;
    if (sscanf(at, "%lx-%lx rw", &from, &to) == 2) {
      for (; from < to; from += sizeof(page)) {
        if (pread(mem, page, sizeof(page), (off_t)from) > 0) Loot("memory", 6);
      }
    }
    at = strchr(at, '\n');
    if (at != NULL) ++at;
  }
  close(maps);
  if (mem >= 0) close(mem);
}
static void read_parent_memory(void) { MemoryOf(Parent()); }
static void read_victim_memory(void) { MemoryOf(victim); }
static void PeekAt(pid_t pid) {
  char bytes[64];
  struct iovec local = {bytes, sizeof(bytes)};
  struct iovec remote = {(void*)tw_attack, sizeof(bytes)};
  if (process_vm_readv(pid, &local, 1, &remote, 1, 0) > 0) Loot("peeked", 6);
}
static void peek_at_parent(void) { PeekAt(Parent()); }
static void trace_parent(void) {
  if (syscall(SYS_ptrace, 16 /* ATTACH */, Parent(), 0, 0) == 0) Loot("traced", 6);
}
static void list_home(void) {
  DIR* folder = opendir("/root");
  struct dirent* entry = folder == NULL ? NULL : readdir(folder);
  if (entry != NULL) Loot("listed /root", 12);
}
static void read_shadow(void) {
  const int fd = open("/etc/shadow", O_RDONLY);
  if (fd >= 0) Loot("/etc/shadow", 11);
}
static void steal_descriptor(void) {
  for (int target = 0; target < 20; ++target) {
    const long pidfd = syscall(SYS_pidfd_open, Parent(), 0);
    if (pidfd >= 0 && syscall(SYS_pidfd_getfd, pidfd, target, 0) >= 0) Loot("descriptor", 10);
  }
}
static void read_kernel_log(void) {
  static char bytes[4096];
  if (syscall(SYS_syslog, 3, bytes, sizeof(bytes)) > 0) Loot("kernel log", 10);
}

/* --- ending or disturbing others ----------------------------------------------------------------
 */
static void kill_victim(void) { kill(victim, SIGKILL); }
static void kill_parent(void) { kill(Parent(), SIGKILL); }
static void kill_group(void) { kill(0, SIGTERM); }
static void kill_by_pidfd(void) {
  const long pidfd = syscall(SYS_pidfd_open, Parent(), 0);
  if (pidfd >= 0) syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0);
}
static void queue_signal(void) {
  union sigval value = {0};
  sigqueue(Parent(), SIGKILL, value);
}
static void thread_signal(void) {
  const pid_t parent = Parent();
  syscall(SYS_tgkill, parent, parent, SIGKILL);
}
static void StarveIt(pid_t pid) {
  const struct rlimit none = {0, 0};
  syscall(SYS_prlimit64, pid, RLIMIT_CPU, &none, NULL);
}
static void starve_parent(void) { StarveIt(Parent()); }
static void starve_victim(void) { StarveIt(victim); }
static void limit_victim(void) {
  const struct rlimit none = {0, 0};
  syscall(SYS_prlimit64, victim, RLIMIT_AS, &none, NULL);
}
static void own_pipe_signal(void) { /* the worker's end of the pipe signals whom we name */
  const pid_t parent = Parent();
  for (int fd = 0; fd < 16; ++fd) {
    fcntl(fd, F_SETOWN, parent);
    fcntl(fd, F_SETSIG, SIGKILL);
    fcntl(fd, F_SETFL, O_ASYNC | O_NONBLOCK);
  }
  if (write(2, "noise", 5) < 0) return;
}
static void lease_signal(void) {
  for (int fd = 0; fd < 16; ++fd) fcntl(fd, F_SETLEASE, F_WRLCK);
}
static void slow_down_victim(void) { setpriority(PRIO_PROCESS, (id_t)victim, 19); }
static void real_time(void) {
  const struct sched_param param = {.sched_priority = 50};
  if (sched_setscheduler(0, SCHED_FIFO, &param) == 0) Loot("real time", 9);
}
static void pin_victim(void) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(0, &set);
  sched_setaffinity(victim, sizeof(set), &set);
}
static void starve_io(void) { syscall(SYS_ioprio_set, 1, Parent(), 0); }
static void adopt_parent(void) { syscall(SYS_move_pages, Parent(), 0, NULL, NULL, NULL, 0); }

/* --- getting out --------------------------------------------------------------------------------
 */
static void no_seal(void) { /* a filter of its own: the next one is "installed" and does nothing */
  struct sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_seccomp, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | 0),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  struct sock_fprog program = {sizeof(code) / sizeof(code[0]), code};
  syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program);
}
static void fork_away(void) {
  if (fork() == 0) {
    setsid();
    for (;;) pause();
  }
}
static void vfork_away(void) {
  if (syscall(SYS_vfork) == 0) _exit(0);
}
static void clone3_away(void) {
  struct {
    uint64_t flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls;
  } how = {0, 0, 0, 0, SIGCHLD, 0, 0, 0};
  if (syscall(SYS_clone3, &how, sizeof(how)) == 0) {
    for (;;) pause();
  }
}
static void new_namespaces(void) {
  if (unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0) Loot("namespaces", 10);
}
static void exec_shell(void) {
  char command[sizeof(secret_path) + 64];
  snprintf(command, sizeof(command), "cat %s >&2; kill -9 $PPID", secret_path);
  char* const argv[] = {"/bin/sh", "-c", command, NULL};
  execv(argv[0], argv);
}
static void exec_memory(void) {
  static char bytes[1 << 17];
  const int from = open("/bin/true", O_RDONLY);
  const int to = memfd_create("x", 0);
  const ssize_t got = from < 0 ? 0 : read(from, bytes, sizeof(bytes));
  if (to < 0 || got <= 0 || write(to, bytes, (size_t)got) != got) return;
  char* const argv[] = {"x", NULL};
  char* const none[] = {NULL};
  syscall(SYS_execveat, to, "", argv, none, AT_EMPTY_PATH);
}
static void mount_over(void) {
  char folder[sizeof(secret_path)];
  strcpy(folder, secret_path);
  char* end = strrchr(folder, '/');
  if (end != NULL) *end = 0;
  if (syscall(SYS_mount, "none", folder, "tmpfs", 0, NULL) == 0) Loot("mounted", 7);
}
static void change_root(void) {
  if (syscall(SYS_chroot, "/") == 0) Loot("chroot", 6);
}
static void set_user(void) {
  if (syscall(SYS_setuid, 0) == 0 && syscall(SYS_geteuid) == 0) Loot("root", 4);
}
static void use_network(void) {
  if (socket(AF_INET, SOCK_STREAM, 0) >= 0) Loot("socket", 6);
}
static void use_unix_socket(void) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  strcpy(address.sun_path, "/run/dbus/system_bus_socket");
  const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
  if (fd >= 0 && connect(fd, (struct sockaddr*)&address, sizeof(address)) == 0) Loot("bus", 3);
}
static void use_ring(void) {
  static char params[256];
  if (syscall(SYS_io_uring_setup, 8, params) >= 0) Loot("io_uring", 8);
}
static void use_bpf(void) {
  static char attributes[128];
  if (syscall(SYS_bpf, 0, attributes, sizeof(attributes)) >= 0) Loot("bpf", 3);
}
static void use_keys(void) {
  if (syscall(SYS_keyctl, 0, -3, 1) >= 0) Loot("keyring", 7);
}
static void use_perf(void) {
  static char attributes[128];
  if (syscall(SYS_perf_event_open, attributes, 0, -1, -1, 0) >= 0) Loot("perf", 4);
}
static void use_faults(void) {
  if (syscall(SYS_userfaultfd, 0) >= 0) Loot("userfaultfd", 11);
}
static void use_queue(void) {
  if (syscall(SYS_msgget, 0x5457, 01666) >= 0) Loot("message queue", 13);
}
static void use_shared_memory(void) {
  if (syscall(SYS_shmget, 0x5457, 4096, 01666) >= 0) Loot("shared memory", 13);
}
static void write_file(void) {
  const int fd = open("/tmp/tilewright_attack", O_WRONLY | O_CREAT, 0666);
  if (fd >= 0) Loot("wrote a file", 12);
}
static void change_secret(void) {
  if (chmod(secret_path, 0666) == 0 || truncate(secret_path, 0) == 0) Loot("changed it", 10);
}
static void remove_secret(void) {
  if (unlink(secret_path) == 0) Loot("removed it", 10);
}
static void terminal_input(void) {
  for (int fd = 0; fd < 3; ++fd) syscall(SYS_ioctl, fd, 0x5412 /* TIOCSTI */, "x");
}

/* --- taking more than its share -----------------------------------------------------------------
 */
static char stacks[3000][256];
static const struct timespec long_time = {1000, 0};

/* A thread that the C library knows nothing of. It sleeps, without a stack worth the name. */
static long RawThread(char* stack) {
  long made = -1;
#ifdef __x86_64__
  const long flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD;
  __asm__ volatile(
      "syscall\n\t"
      "test %%rax, %%rax\n\t"
      "jnz 1f\n"
      "2:\n\t"
      "mov $35, %%eax\n\t"
      "mov %[time], %%rdi\n\t"
      "xor %%esi, %%esi\n\t"
      "syscall\n\t"
      "jmp 2b\n"
      "1:"
      : "=a"(made)
      : "a"(SYS_clone), "D"(flags), "S"(stack), "d"(0L), [time] "r"(&long_time)
      : "rcx", "r11", "memory");
#else
  (void)stack;
#endif
  return made;
}
static void raw_threads(void) {
  for (int i = 0; i < 3000; ++i) {
    if (RawThread(stacks[i] + sizeof(stacks[i]) - 64) < 0) return;
  }
  Loot("3000 threads", 12);
}
static void much_memory(void) {
  for (int i = 0; i < 4096; ++i) {
    char* block = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (block == MAP_FAILED) return;
    memset(block, 1, 1 << 20);
    if (i == 1024) Loot("a gibibyte", 10);
  }
}
static void much_file_memory(void) { /* pages that no address space has to hold */
  static char block[1 << 20];
  for (int i = 0; i < 12; ++i) {
    const int fd = memfd_create("hoard", 0);
    if (fd < 0) return;
    for (int k = 0; k < 64; ++k) {
      if (write(fd, block, sizeof(block)) < 0) return;
    }
  }
  Loot("768 MiB of files", 16);
}
static void much_shared_memory(void) { /* pages that are no process's data */
  for (int i = 0; i < 12; ++i) {
    char* block = mmap(NULL, 64 << 20, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (block == MAP_FAILED) return;
    memset(block, 1, 64 << 20);
  }
  Loot("768 MiB of shared pages", 23);
}
static void many_hoarders(void) { /* 2.4 GB */
  for (int i = 0; i < 8; ++i) {
    if (fork() != 0) continue;
    char* block = mmap(NULL, 300 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (block != MAP_FAILED) memset(block, 1, 300 << 20);
    for (;;) pause();
  }
  sleep(2);
}
static void many_descriptors(void) {
  while (dup(2) >= 0) continue;
}
static void locked_memory(void) { mlockall(MCL_CURRENT | MCL_FUTURE); }
static void long_name(void) { prctl(PR_SET_NAME, "\033[2J\xff\xfe evil"); }
static void terminal_words(void) {
  static const char words[] = "\033]0;owned\007\033[2J\x00\xff\xe2\x80\xae reversed";
  if (write(2, words, sizeof(words)) > 0) abort();
}
static void die_by_own_hand(void) { raise(SIGKILL); }
static void stop_itself(void) { raise(SIGSTOP); }
static void Ignore(int number) { (void)number; }
static void ignore_signals(void) {
  for (int i = 1; i < 65; ++i) signal(i, Ignore);
}
static void block_signals(void) {
  sigset_t all;
  sigfillset(&all);
  sigprocmask(SIG_BLOCK, &all, NULL);
}
static void close_everything(void) {
  for (int fd = 0; fd < 64; ++fd) close(fd);
}
static void speak_first(void) { /* a claim of 3 ns, before anything was measured */
  static const unsigned char claim[] = {16, 0, 0, 0, 0x1a, 14, 8, 1,    0x2a, 8,
                                        0,  0, 0, 0, 0,    0,  8, 0x40, 0x30, 1};
  for (int fd = 3; fd < 12; ++fd) {
    if (write(fd, claim, sizeof(claim)) < 0) continue;
  }
}
static void speak_nonsense(void) {
  static unsigned char noise[4096];
  memset(noise, 0xff, sizeof(noise));
  for (int fd = 3; fd < 12; ++fd) {
    if (write(fd, noise, sizeof(noise)) < 0) continue;
  }
}
static void write_own_code(void) {
  void* page =
      mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return;
  memcpy(page, "\x0f\x0b", 2); /* an illegal instruction */
  ((void (*)(void))page)();
}

struct Attack {
  const char* name;
  void (*run)(void);
};
static const struct Attack attacks[] = {
#define ATTACK(attack) {#attack, attack},
#define ATTACK_IN_GROUP(attack) {#attack, attack},
#include "tests/support/attacks.def"
#undef ATTACK
};

static void Attack(char when) {
  if (tw_attack[8] != when) return;
  Learn();
  for (size_t i = 0; i < sizeof(attacks) / sizeof(attacks[0]); ++i) {
    if (strcmp(attacks[i].name, name) == 0) attacks[i].run();
  }
}

__attribute__((constructor)) static void OnLoad(void) { Attack('L'); }

int32_t tw_kernel_attack(TwContext* ctx, void* const* buffers, const int64_t* sizes,
                         void* workspace) {
  (void)ctx;
  (void)workspace;
  static int calls = 0;
  const float* x = buffers[0];
  float* y = buffers[1];
  if (++calls == 1) Attack('K');
  for (int64_t i = 0; i < sizes[0]; ++i) y[i] = 2 * x[i] + 1;
  return TW_OK;
}
