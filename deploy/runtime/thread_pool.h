// Fork-join threads for parallel loops of generated code. The calling thread takes part; the
// others spin for a short while after a loop and then sleep, so that the loops of one model follow
// each other in well under a microsecond and an idle pool costs nothing.
//
// Tasks are divided statically: each thread has its own contiguous range and starts there in every
// loop, which keeps a tile's data on one core; a thread that is done takes tasks from the others'
// ranges. A thread that never comes (its core is taken) delays nobody: the loop ends when all tasks
// have, and threads that have not joined by then stay out.
//
// Threads of one pool want a core each. Schedulers like to wake a thread where its waker runs, and
// on a busy machine leave it there: both then take turns on one core while the caller waits. A
// thread that joins a loop on its caller's core moves off (kSpread), or all stay where they were
// put (kPinned).
//
// One loop at a time: ParallelFor is called by one thread at a time (a session's caller). A call
// from inside a task runs serially on the calling thread.
#ifndef DEPLOY_RUNTIME_THREAD_POOL_H_
#define DEPLOY_RUNTIME_THREAD_POOL_H_

#include <cstdint>
#include <memory>

#include "deploy/runtime/c_abi.h"

namespace tilewright::runtime {

// kPinned: each thread, with more than one the constructing one too, on a core of its own for good;
// for measurements, whose process has its cores for itself and may not move threads later
// (sandbox).
enum class Placement : uint8_t { kSpread, kPinned };

class ThreadPool {
 public:
  // num_threads counts the caller: 1 starts no thread. Where a thread cannot be started the pool
  // has fewer. REQUIRES: num_threads >= 1.
  explicit ThreadPool(int num_threads, Placement placement = Placement::kSpread);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const;

  // Runs body(closure, t) once for every t in [0, num_tasks), unless a task fails: then tasks that
  // have not begun are skipped and the first failure seen is returned. All writes of the tasks are
  // visible to the caller afterwards.
  int32_t ParallelFor(TwTaskBody body, void* closure, int64_t num_tasks);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tilewright::runtime

#endif  // DEPLOY_RUNTIME_THREAD_POOL_H_
