// Fork-join threads for parallel loops of generated code. The calling thread takes part. The other
// threads spin for a short time after a loop and then sleep. So the loops of one model follow each
// other in well under a microsecond, and an idle pool costs nothing.
//
// Tasks are divided statically: each thread has its own contiguous range and starts there in every
// loop, which keeps a tile's data on one core. A thread that is done takes tasks from the ranges of
// others. A thread that does not come (its core is busy) delays no loop: the loop ends when all
// tasks have ended, and threads that have not joined by then skip it.
//
// Each thread of a pool needs a core of its own. Schedulers tend to wake a thread on the core of
// its waker, and on a busy machine leave it there: both then take turns while the caller waits. So
// a thread that joins a loop on its caller's core moves to another (kSpread), or all threads stay
// on the cores that they were given (kPinned).
//
// One loop at a time: one thread at a time may call ParallelFor (SessionGate sees to it). A call
// from inside a task runs serially on the calling thread.
#ifndef DEPLOY_RUNTIME_THREAD_POOL_H_
#define DEPLOY_RUNTIME_THREAD_POOL_H_

#include <cstdint>
#include <memory>

#include "deploy/runtime/c_abi.h"

namespace tilewright::runtime {

// kPinned: each thread gets a core of its own for good, the constructing thread too if there are
// several. For measurements: their process has its cores for itself, and its sandbox may not allow
// threads to move later.
enum class Placement : uint8_t { kSpread, kPinned };

class ThreadPool {
 public:
  // num_threads counts the caller: 1 starts no thread. If a thread cannot be started, the pool has
  // fewer. REQUIRES: num_threads >= 1.
  explicit ThreadPool(int num_threads, Placement placement = Placement::kSpread);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const;
  // True in a child of fork(): the pool's threads are in the parent, so loops must not be run. The
  // pool may still be destroyed. Always false for a pool of one thread, which the caller brings.
  bool lost_threads() const;

  // Runs body(closure, t) once for every t in [0, num_tasks). If a task fails, tasks that have not
  // begun are skipped, and the first failure seen is returned. Afterwards the caller sees all
  // writes of the tasks.
  int32_t ParallelFor(TwTaskBody body, void* closure, int64_t num_tasks);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tilewright::runtime

#endif  // DEPLOY_RUNTIME_THREAD_POOL_H_
