// Keeps the memory of a daemon that runs for months level. glibc gives each thread a heap of its
// own (up to eight per core). Each heap grows to the most that its thread ever held, and never
// shrinks. Both functions do nothing with another C library. Thread-safe.
#pragma once

namespace tilewright::daemon {

// Sets the number of heaps that all threads share: one per two cores, at least two, at most eight.
// An operator's MALLOC_ARENA_MAX or GLIBC_TUNABLES takes precedence. REQUIRES: no thread was
// started.
void BoundHeaps();

// Returns empty pages to the system; takes up to a few milliseconds. Call it when something large
// ends, such as a tuning job.
void ReturnFreeHeap();

}  // namespace tilewright::daemon
