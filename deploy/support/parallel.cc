#include "deploy/support/parallel.h"

#include <algorithm>
#include <atomic>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "deploy/support/mutex.h"

namespace tilewright::support {
namespace {

struct Shared {
  const size_t count;
  std::atomic<size_t> next{0};
  std::atomic<bool> failed{false};
  Mutex mutex = {};
  size_t first TW_GUARDED_BY(mutex) = 0;  // the least position with an error
  absl::Status error TW_GUARDED_BY(mutex) = absl::OkStatus();

  void Fail(size_t position, absl::Status status) {
    failed = true;
    const MutexLock lock(mutex);
    if (!error.ok() && first <= position) return;
    first = position;
    error = std::move(status);
  }
};

void WorkOn(const std::function<absl::StatusOr<PieceOfWork>()>& make, Shared* shared) {
  const absl::StatusOr<PieceOfWork> work = make();
  if (!work.ok()) return shared->Fail(shared->count, work.status());
  while (!shared->failed) {
    const size_t position = shared->next++;
    if (position >= shared->count) return;
    if (absl::Status status = (*work)(position); !status.ok()) {
      shared->Fail(position, std::move(status));
    }
  }
}

}  // namespace

absl::Status ForEachInParallel(size_t count,
                               const std::function<absl::StatusOr<PieceOfWork>()>& make) {
  if (count == 0) return absl::OkStatus();
  Shared shared{count};
  const size_t processors = std::max(1U, std::thread::hardware_concurrency());
  std::vector<std::thread> others;
  try {
    for (size_t t = 1; t < std::min(count, processors); ++t) {
      others.emplace_back([&] { WorkOn(make, &shared); });
    }
  } catch (const std::system_error&) {
    // The machine has no more threads: those that there are do it.
  }
  WorkOn(make, &shared);
  for (std::thread& thread : others) thread.join();
  const MutexLock lock(shared.mutex);
  return shared.error;
}

}  // namespace tilewright::support
