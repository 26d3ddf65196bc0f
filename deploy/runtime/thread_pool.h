// Fork-join threads for parallel loops of generated code. The calling thread takes part; the
// others spin for a short while after a loop and then sleep, so that the loops of one model follow
// each other in well under a microsecond and an idle pool costs nothing.
//
// Tasks are divided statically: each thread has its own contiguous range and starts there in every
// loop, which keeps a tile's data on one core; a thread that is done takes tasks from the others'
// ranges. A thread that never comes (its core is taken) delays nobody: the loop ends when all tasks
// have, and threads that have not joined by then stay out.
//
// One loop at a time: ParallelFor is called by one thread at a time (a session's caller). A call
// from inside a task runs serially on the calling thread.
#ifndef DEPLOY_RUNTIME_THREAD_POOL_H_
#define DEPLOY_RUNTIME_THREAD_POOL_H_

#include <cstdint>
#include <memory>

#include "deploy/runtime/c_abi.h"

namespace tilewright::runtime {

class ThreadPool {
 public:
  // num_threads counts the caller: 1 starts no thread. Where a thread cannot be started the pool
  // has fewer. REQUIRES: num_threads >= 1.
  explicit ThreadPool(int num_threads);
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

// Cores that this process may use, at least 1: the sensible upper bound of num_threads.
int UsableCores();

}  // namespace tilewright::runtime

#endif  // DEPLOY_RUNTIME_THREAD_POOL_H_
