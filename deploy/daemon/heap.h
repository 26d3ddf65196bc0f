// What keeps the memory of a daemon that runs for months level: glibc gives each of its threads a
// heap of its own (up to eight per core), and each of those grows to the most that its thread ever
// held at once and stays there. Both do nothing with another C library. Thread-safe.
#pragma once

namespace tilewright::daemon {

// Few heaps, shared by all threads: one per two cores, two at least and eight at most. Before the
// first thread is started. An operator's own MALLOC_ARENA_MAX or GLIBC_TUNABLES counts instead.
void BoundHeaps();

// Gives pages that hold nothing back to the system; takes up to a few milliseconds. For the end of
// something big, a tuning job for one.
void ReturnFreeHeap();

}  // namespace tilewright::daemon
