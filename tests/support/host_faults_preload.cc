// Preloaded into a daemon under test (host_faults.h): what this process sees of its host's clock
// and disk is what the control file says. Nothing else is changed. Its children see the truth,
// unless a variable says otherwise.
//
// The wall clock is shifted for everybody who asks, and for who sleeps until a time of day: those
// wake early and look again, so that a jump in mid-sleep counts as it would with a real clock. On
// one device (stat's st_dev) every change is refused as on a disk that became read-only; on one,
// writes and syncs take longer.
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "tests/support/host_faults_control.h"

using tilewright::tests::HostFaultsControl;
using tilewright::tests::kHostFaultsChildrenVariable;
using tilewright::tests::kHostFaultsVariable;

namespace {

constexpr int64_t kSecondNs = 1'000'000'000;
constexpr int64_t kLookNs = 50'000'000;  // sleepers look at the clock this often
// Conditions wait by the wall clock or the monotonic one, and do not say which: times of day are
// beyond this, uptimes are not.
constexpr int64_t kOldestTimeOfDayS = 1'000'000'000;

HostFaultsControl g_none;
HostFaultsControl* g_control = &g_none;

template <typename F>
F Real(const char* name, const char* version = nullptr) {
  return reinterpret_cast<F>(version == nullptr ? dlsym(RTLD_NEXT, name)
                                                : dlvsym(RTLD_NEXT, name, version));
}
#define REAL(name) static const auto real = Real<decltype(&::name)>(#name)

__attribute__((constructor)) void Attach() {
  const char* path = getenv(kHostFaultsVariable);
  if (path == nullptr) return;
  const int fd = Real<int (*)(const char*, int, ...)>("open")(path, O_RDWR | O_CLOEXEC);
  void* mapped =
      fd < 0 ? MAP_FAILED : mmap(nullptr, sizeof(HostFaultsControl), PROT_READ, MAP_SHARED, fd, 0);
  if (mapped == MAP_FAILED) abort();  // a test that hurts nobody proves nothing
  close(fd);
  g_control = static_cast<HostFaultsControl*>(mapped);
  if (getenv(kHostFaultsChildrenVariable) != nullptr) return;
  unsetenv(kHostFaultsVariable);
  unsetenv("LD_PRELOAD");
}

// --- the clock

int64_t OffsetNs() { return g_control->clock_offset_ns.load(std::memory_order_relaxed); }
int64_t NsOf(const timespec& time) { return time.tv_sec * kSecondNs + time.tv_nsec; }

timespec SpecOf(int64_t ns) {
  int64_t seconds = ns / kSecondNs;
  int64_t rest = ns % kSecondNs;
  if (rest < 0) {
    rest += kSecondNs;
    --seconds;
  }
  return {static_cast<time_t>(seconds), static_cast<long>(rest)};
}

int64_t RealWallNs() {
  REAL(clock_gettime);
  timespec now{};
  real(CLOCK_REALTIME, &now);
  return NsOf(now);
}

// How long to sleep of what is left until `deadline`, a time of day as this process sees it, and
// until when that is. False: the time has come.
bool NextSlice(const timespec& deadline, timespec* until, bool* last) {
  const int64_t now_ns = RealWallNs();
  const int64_t seconds = std::min<int64_t>(deadline.tv_sec, INT64_MAX / kSecondNs - 1);
  const int64_t left_ns = seconds * kSecondNs + deadline.tv_nsec - (now_ns + OffsetNs());
  *last = left_ns <= kLookNs;
  *until = SpecOf(now_ns + std::clamp<int64_t>(left_ns, 0, kLookNs));
  return left_ns > 0;
}

// --- the disk

bool IsReadOnly(uint64_t device) {
  const uint64_t read_only = g_control->read_only_device.load(std::memory_order_relaxed);
  return read_only != 0 && device == read_only;
}
bool AnyReadOnly() { return g_control->read_only_device.load(std::memory_order_relaxed) != 0; }

bool Refused() {
  errno = EROFS;
  return true;
}

// Sleeps if the file is on the slow disk.
void Delay(int fd, const std::atomic<int64_t>& delay_ns) {
  const uint64_t device = g_control->slow_device.load(std::memory_order_relaxed);
  const int64_t ns = delay_ns.load(std::memory_order_relaxed);
  if (device == 0 || ns <= 0) return;
  const int kept = errno;
  struct stat info{};
  if (fstat(fd, &info) == 0 && info.st_dev == device) {
    timespec left = {static_cast<time_t>(ns / kSecondNs), static_cast<long>(ns % kSecondNs)};
    while (nanosleep(&left, &left) != 0 && errno == EINTR) continue;
  }
  errno = kept;
}

// Of a change of an open file, which may also take its time.
bool RefusesFile(int fd) {
  Delay(fd, g_control->slow_write_ns);
  if (!AnyReadOnly()) return false;
  const int kept = errno;
  struct stat info{};
  const bool refused = fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && IsReadOnly(info.st_dev);
  errno = kept;
  return refused && Refused();
}

// Of the file, or of the folder in which it would be.
bool RefusesPath(int folder, const char* path) {
  if (!AnyReadOnly()) return false;
  const int kept = errno;
  struct stat info{};
  bool refused = false;
  if (fstatat(folder, path, &info, AT_SYMLINK_NOFOLLOW) == 0) {
    refused = IsReadOnly(info.st_dev);
  } else {
    std::string parent = path;
    const size_t slash = parent.find_last_of('/');
    parent = slash == std::string::npos ? "." : slash == 0 ? "/" : parent.substr(0, slash);
    refused = fstatat(folder, parent.c_str(), &info, 0) == 0 && IsReadOnly(info.st_dev);
  }
  errno = kept;
  return refused && Refused();
}

bool Changes(int flags) {
  return (flags & O_ACCMODE) != O_RDONLY || (flags & (O_CREAT | O_TRUNC)) != 0;
}

}  // namespace

// NOLINTBEGIN: the C library's names and parameters.
extern "C" {

int clock_gettime(clockid_t clock, timespec* time) noexcept {
  REAL(clock_gettime);
  const int result = real(clock, time);
  const bool wall = clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE;
  if (result == 0 && wall) *time = SpecOf(NsOf(*time) + OffsetNs());
  return result;
}

int gettimeofday(timeval* __restrict time, void* __restrict) noexcept {
  const timespec now = SpecOf(RealWallNs() + OffsetNs());
  *time = {now.tv_sec, now.tv_nsec / 1000};
  return 0;
}

time_t time(time_t* out) noexcept {
  const time_t now = SpecOf(RealWallNs() + OffsetNs()).tv_sec;
  if (out != nullptr) *out = now;
  return now;
}

int pthread_cond_timedwait(pthread_cond_t* __restrict condition, pthread_mutex_t* __restrict mutex,
                           const timespec* __restrict deadline) {
  static const auto real =
      Real<decltype(&::pthread_cond_timedwait)>("pthread_cond_timedwait", "GLIBC_2.3.2");
  if (deadline->tv_sec < kOldestTimeOfDayS) return real(condition, mutex, deadline);
  timespec until{};
  bool last = false;
  if (!NextSlice(*deadline, &until, &last)) last = true;
  const int result = real(condition, mutex, &until);
  return result == ETIMEDOUT && !last ? 0 : result;  // 0: woken without a reason, which may be
}

int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                           const timespec* deadline) {
  REAL(pthread_cond_clockwait);
  if (clock != CLOCK_REALTIME) return real(condition, mutex, clock, deadline);
  timespec until{};
  bool last = false;
  if (!NextSlice(*deadline, &until, &last)) last = true;
  const int result = real(condition, mutex, clock, &until);
  return result == ETIMEDOUT && !last ? 0 : result;
}

// Abseil sleeps in futexes until a time of day.
long syscall(long number, ...) noexcept {
  va_list list;
  va_start(list, number);
  long a[6];
  for (long& argument : a) argument = va_arg(list, long);
  va_end(list);
  REAL(syscall);
  const bool by_wall = number == SYS_futex && (a[1] & FUTEX_CLOCK_REALTIME) != 0 && a[3] != 0 &&
                       (a[1] & FUTEX_CMD_MASK) == FUTEX_WAIT_BITSET;
  if (!by_wall) return real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
  timespec until{};
  bool last = false;
  if (!NextSlice(*reinterpret_cast<const timespec*>(a[3]), &until, &last)) last = true;
  const long result = real(number, a[0], a[1], a[2], &until, a[4], a[5]);
  if (result == -1 && errno == ETIMEDOUT && !last) errno = EINTR;
  return result;
}

int open(const char* path, int flags, ...) {
  va_list list;
  va_start(list, flags);
  const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(list, mode_t) : 0;
  va_end(list);
  if (Changes(flags) && RefusesPath(AT_FDCWD, path)) return -1;
  REAL(open);
  return real(path, flags, mode);
}

int open64(const char* path, int flags, ...) {
  va_list list;
  va_start(list, flags);
  const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(list, mode_t) : 0;
  va_end(list);
  if (Changes(flags) && RefusesPath(AT_FDCWD, path)) return -1;
  REAL(open64);
  return real(path, flags, mode);
}

int openat(int folder, const char* path, int flags, ...) {
  va_list list;
  va_start(list, flags);
  const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(list, mode_t) : 0;
  va_end(list);
  if (Changes(flags) && RefusesPath(folder, path)) return -1;
  REAL(openat);
  return real(folder, path, flags, mode);
}

ssize_t write(int fd, const void* bytes, size_t size) {
  if (RefusesFile(fd)) return -1;
  REAL(write);
  return real(fd, bytes, size);
}

ssize_t writev(int fd, const iovec* parts, int count) {
  if (RefusesFile(fd)) return -1;
  REAL(writev);
  return real(fd, parts, count);
}

ssize_t pwrite(int fd, const void* bytes, size_t size, off_t offset) {
  if (RefusesFile(fd)) return -1;
  REAL(pwrite);
  return real(fd, bytes, size, offset);
}

ssize_t pwrite64(int fd, const void* bytes, size_t size, off64_t offset) {
  if (RefusesFile(fd)) return -1;
  REAL(pwrite64);
  return real(fd, bytes, size, offset);
}

int fsync(int fd) {
  Delay(fd, g_control->slow_sync_ns);
  REAL(fsync);
  return real(fd);
}

int fdatasync(int fd) {
  Delay(fd, g_control->slow_sync_ns);
  REAL(fdatasync);
  return real(fd);
}

int ftruncate(int fd, off_t size) noexcept {
  if (RefusesFile(fd)) return -1;
  REAL(ftruncate);
  return real(fd, size);
}

int ftruncate64(int fd, off64_t size) noexcept {
  if (RefusesFile(fd)) return -1;
  REAL(ftruncate64);
  return real(fd, size);
}

int rename(const char* from, const char* to) noexcept {
  if (RefusesPath(AT_FDCWD, from) || RefusesPath(AT_FDCWD, to)) return -1;
  REAL(rename);
  return real(from, to);
}

int unlink(const char* path) noexcept {
  if (RefusesPath(AT_FDCWD, path)) return -1;
  REAL(unlink);
  return real(path);
}

int unlinkat(int folder, const char* path, int flags) noexcept {
  if (RefusesPath(folder, path)) return -1;
  REAL(unlinkat);
  return real(folder, path, flags);
}

int mkdir(const char* path, mode_t mode) noexcept {
  if (RefusesPath(AT_FDCWD, path)) return -1;
  REAL(mkdir);
  return real(path, mode);
}

int rmdir(const char* path) noexcept {
  if (RefusesPath(AT_FDCWD, path)) return -1;
  REAL(rmdir);
  return real(path);
}

}  // extern "C"
// NOLINTEND
