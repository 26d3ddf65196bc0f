#include "deploy/runtime/thread_pool.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "deploy/runtime/cpu_info.h"
#include "deploy/support/status.h"

namespace tilewright::runtime {
namespace {

constexpr size_t kCacheLine = 64;
// About 50 µs of looking for the next loop before a thread sleeps: longer than the gap between two
// launches of a model, shorter than what a neighbour would notice.
constexpr int kSpinsBeforeSleep = 2000;
// A caller that waits for the last tasks gives up its core this often; where cores are scarce the
// thread it waits for may need it.
constexpr int kSpinsBeforeYield = 1000;

void CpuPause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Cores that the calling thread may use; none where that cannot be told.
std::vector<int> AllowedCores() {
  std::vector<int> cores;
#if defined(__linux__)
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &set)) cores.push_back(core);
  }
#endif
  return cores;
}

void RunOn(const std::vector<int>& cores) {
#if defined(__linux__)
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int core : cores) CPU_SET(core, &set);
  (void)sched_setaffinity(0, sizeof(set), &set);  // refused: threads stay where they are
#else
  (void)cores;
#endif
}

int CoreOfThisThread() {
#if defined(__linux__)
  return sched_getcpu();
#else
  return -1;
#endif
}

// To any other core that this thread may use; afterwards it is as free as before.
void MoveOff(int core) {
  const std::vector<int> allowed = AllowedCores();
  std::vector<int> others = allowed;
  std::erase(others, core);
  if (others.empty() || others.size() == allowed.size()) return;
  RunOn(others);
  RunOn(allowed);
}

// Tells a process from its children by fork(), without a system call: a page that the kernel gives
// to a child zeroed.
class ForkMark {
 public:
  ForkMark() : process_(getpid()) {
#if defined(MADV_WIPEONFORK)
    const auto size = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    void* page = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) return;
    page_ = static_cast<volatile char*>(page);
    if (madvise(page, size, MADV_WIPEONFORK) == 0) {
      *page_ = 1;
    } else {
      Unmap();
    }
#endif
  }
  ~ForkMark() { Unmap(); }
  ForkMark(const ForkMark&) = delete;
  ForkMark& operator=(const ForkMark&) = delete;

  bool in_child() const { return page_ != nullptr ? *page_ == 0 : getpid() != process_; }

 private:
  void Unmap() {
    if (page_ == nullptr) return;
    munmap(const_cast<char*>(page_), static_cast<size_t>(sysconf(_SC_PAGESIZE)));
    page_ = nullptr;
  }

  const pid_t process_;
  volatile char* page_ = nullptr;  // none where the kernel is older than 4.14
};

// The tasks one thread starts with. `next` runs past `end` when others look for work in vain.
struct alignas(kCacheLine) Range {
  std::atomic<int64_t> next{0};
  int64_t end = 0;
};

// True on a thread that is inside a task; nested loops run serially there. Aligned because lld 19
// may lay the read-only part of a program out wrongly if no thread-local variable has an alignment
// of 8: then the program cannot start.
alignas(8) thread_local bool inside_task = false;

// What the state word holds: a loop's number, whether threads may still join it, and how many have.
constexpr uint64_t kActiveMask = 0xFFFF;
constexpr uint64_t kOpen = uint64_t{1} << 16;
constexpr uint64_t kLoopOne = uint64_t{1} << 17;

}  // namespace

struct ThreadPool::Impl {
  Impl(int num_threads, Placement where)
      : placement(where), ranges(static_cast<size_t>(num_threads)) {}

  void WorkerMain(size_t slot);
  bool WaitForLoop(uint64_t* seen);
  bool Join(uint64_t* seen);
  void RunTasks(size_t slot);
  void RunRange(Range* range);
  void Open(TwTaskBody new_body, void* new_closure, int64_t num_tasks);
  void CloseAndWait();

  const Placement placement;
  const ForkMark fork_mark;
  std::atomic<int> placed{0};  // threads that are where they belong

  // The loop; written by the caller before `state` opens it, constant while it is open or any
  // thread is in it.
  TwTaskBody body = nullptr;
  void* closure = nullptr;
  int caller_core = -1;
  std::vector<Range> ranges;
  alignas(kCacheLine) std::atomic<int32_t> error{0};
  alignas(kCacheLine) std::atomic<uint64_t> state{0};

  // Sleeping: a thread counts itself in `sleepers` before it looks at `state` a last time, the
  // caller changes `state` before it looks at `sleepers`; so one of them sees the other.
  alignas(kCacheLine) std::atomic<int> sleepers{0};
  std::atomic<bool> stop{false};
  std::mutex mutex;
  std::condition_variable wake;
  std::vector<std::thread> threads;
};

void ThreadPool::Impl::RunRange(Range* range) {
  while (error.load(std::memory_order_relaxed) == 0) {
    if (range->next.load(std::memory_order_relaxed) >= range->end) return;
    const int64_t task = range->next.fetch_add(1, std::memory_order_relaxed);
    if (task >= range->end) return;
    const int32_t result = body(closure, task);
    if (result != 0) {
      int32_t none = 0;
      error.compare_exchange_strong(none, result, std::memory_order_relaxed);
    }
  }
}

void ThreadPool::Impl::RunTasks(size_t slot) {
  inside_task = true;
  for (size_t i = 0; i < ranges.size(); ++i) RunRange(&ranges[(slot + i) % ranges.size()]);
  inside_task = false;
}

void ThreadPool::Impl::Open(TwTaskBody new_body, void* new_closure, int64_t num_tasks) {
  body = new_body;
  closure = new_closure;
  if (placement == Placement::kSpread) caller_core = CoreOfThisThread();
  error.store(0, std::memory_order_relaxed);
  const auto count = static_cast<int64_t>(ranges.size());
  const int64_t share = num_tasks / count;
  const int64_t extra = num_tasks % count;
  int64_t begin = 0;
  for (int64_t i = 0; i < count; ++i) {
    Range& range = ranges[static_cast<size_t>(i)];
    range.next.store(begin, std::memory_order_relaxed);
    begin += share + (i < extra ? 1 : 0);
    range.end = begin;
  }
  const uint64_t loop = state.load(std::memory_order_relaxed) & ~(kOpen | kActiveMask);
  state.store((loop + kLoopOne) | kOpen, std::memory_order_seq_cst);
  if (sleepers.load(std::memory_order_seq_cst) > 0) {
    const std::lock_guard<std::mutex> lock(mutex);
    wake.notify_all();
  }
}

void ThreadPool::Impl::CloseAndWait() {
  uint64_t now = state.fetch_and(~kOpen, std::memory_order_acq_rel) & ~kOpen;
  for (int spins = 1; (now & kActiveMask) != 0; ++spins) {
    if (spins % kSpinsBeforeYield == 0) {
      sched_yield();
    } else {
      CpuPause();
    }
    now = state.load(std::memory_order_acquire);
  }
}

// Enters the loop that is open, if it is not the one in `seen`. False when there is none (any
// more).
bool ThreadPool::Impl::Join(uint64_t* seen) {
  uint64_t now = state.load(std::memory_order_seq_cst);
  while ((now & kOpen) != 0 && (now & ~(kOpen | kActiveMask)) != *seen) {
    if (state.compare_exchange_weak(now, now + 1, std::memory_order_acq_rel)) {
      *seen = now & ~(kOpen | kActiveMask);
      return true;
    }
  }
  return false;
}

bool ThreadPool::Impl::WaitForLoop(uint64_t* seen) {
  for (int spins = 0; spins < kSpinsBeforeSleep; ++spins) {
    if (Join(seen)) return true;
    if (stop.load(std::memory_order_relaxed)) return false;
    CpuPause();
  }
  std::unique_lock<std::mutex> lock(mutex);
  sleepers.fetch_add(1, std::memory_order_seq_cst);
  bool joined = false;
  while (!stop.load(std::memory_order_relaxed) && !(joined = Join(seen))) wake.wait(lock);
  sleepers.fetch_sub(1, std::memory_order_relaxed);
  return joined;
}

void ThreadPool::Impl::WorkerMain(size_t slot) {
  uint64_t seen = 0;
  while (WaitForLoop(&seen)) {
    if (caller_core >= 0 && CoreOfThisThread() == caller_core) MoveOff(caller_core);
    RunTasks(slot);
    state.fetch_sub(1, std::memory_order_release);
  }
}

ThreadPool::ThreadPool(int num_threads, Placement placement)
    : impl_(std::make_unique<Impl>(num_threads, placement)) {
  TW_CHECK(num_threads >= 1 && num_threads < static_cast<int>(kActiveMask)) << num_threads;
  // Signals are the host program's business: its handlers run on its own threads.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::vector<int> cores;
  if (placement == Placement::kPinned && num_threads > 1) cores = AllowedCores();
  if (!cores.empty()) RunOn({cores[0]});
  for (int slot = 1; slot < num_threads; ++slot) {
    try {
      impl_->threads.emplace_back([impl = impl_.get(), slot, cores] {
        pthread_setname_np(pthread_self(), "tw-worker");
        if (!cores.empty()) RunOn({cores[static_cast<size_t>(slot) % cores.size()]});
        impl->placed.fetch_add(1, std::memory_order_release);
        impl->WorkerMain(static_cast<size_t>(slot));
      });
    } catch (const std::system_error&) {
      break;  // the ranges of threads that are missing are taken over by the others
    }
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  // A sandbox may close behind the constructor: by then all have moved.
  const int all_placed = cores.empty() ? 0 : static_cast<int>(impl_->threads.size());
  while (impl_->placed.load(std::memory_order_acquire) < all_placed) sched_yield();
}

ThreadPool::~ThreadPool() {
  if (lost_threads()) {
    (void)impl_.release();  // there is no thread to join, and the mutex may be held for good
    return;
  }
  {
    const std::lock_guard<std::mutex> lock(impl_->mutex);
    impl_->stop.store(true, std::memory_order_relaxed);
  }
  impl_->wake.notify_all();
  for (std::thread& thread : impl_->threads) thread.join();
}

int ThreadPool::num_threads() const { return static_cast<int>(impl_->threads.size()) + 1; }

bool ThreadPool::lost_threads() const {
  return !impl_->threads.empty() && impl_->fork_mark.in_child();
}

int32_t ThreadPool::ParallelFor(TwTaskBody body, void* closure, int64_t num_tasks) {
  if (num_tasks <= 0) return TW_OK;
  if (inside_task || impl_->threads.empty() || num_tasks == 1) {
    for (int64_t task = 0; task < num_tasks; ++task) {
      const int32_t result = body(closure, task);
      if (result != 0) return result;
    }
    return TW_OK;
  }
  impl_->Open(body, closure, num_tasks);
  impl_->RunTasks(0);
  impl_->CloseAndWait();
  return impl_->error.load(std::memory_order_relaxed);
}

}  // namespace tilewright::runtime
