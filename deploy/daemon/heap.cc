#include "deploy/daemon/heap.h"

#include <algorithm>
#include <thread>

#include "deploy/support/env.h"

#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace tilewright::daemon {

#ifdef __GLIBC__

void BoundHeaps() {
  if (support::GetEnv("MALLOC_ARENA_MAX") || support::GetEnv("GLIBC_TUNABLES")) return;
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  mallopt(M_ARENA_MAX, std::clamp(cores / 2, 2, 8));
}

void ReturnFreeHeap() { malloc_trim(0); }

#else

void BoundHeaps() {}
void ReturnFreeHeap() {}

#endif

}  // namespace tilewright::daemon
