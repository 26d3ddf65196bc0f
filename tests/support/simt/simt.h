// An emulated GPU: runs the threads of a kernel's groups, one group after the other, and refuses
// what a GPU leaves undefined. Kernels are functions of compiled text (simt_compile.h). One thread
// at a time.
//
// Errors are those of the first fault; what the launch has written until then stays:
//   simt.race.shared | simt.race.global       two threads, one of which writes, without a barrier
//                                             between them; or two groups
//   simt.uninitialised.shared | .global       a read of what nothing has written
//   simt.out_of_bounds | simt.misaligned      of one access
//   simt.barrier.divergent                    not all threads of a group come to the same barrier
//   simt.warp.divergent                       the same of the threads of a shuffle, or of what a
//                                             whole warp, or four of them, do together
//   simt.unordered.shared                     a unit next to the threads reads what a thread has
//                                             written and not ordered
//   simt.product.*                            a product of four warps (simt_warp_groups.h)
//   simt.bulk.*                               a copy that a unit does (simt_bulk_copies.h)
//   simt.launch.limits                        no such group, or too much shared memory
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "tests/support/simt/simt_fiber.h"
#include "tests/support/simt/simt_hooks.h"
#include "tests/support/simt/simt_memory.h"
#include "tests/support/simt/simt_tensor_map.h"
#include "tests/support/simt/simt_traffic.h"

namespace tilewright::simt {

struct Limits {
  int64_t group_threads = 1024;
  int64_t shared_bytes = 48 << 10;
};

// A compiled kernel, and the function that tells its object which emulator runs it.
struct Kernel {
  void* entry = nullptr;
  void (*bind)(SimtHooks*) = nullptr;
  uint32_t warp = 32;  // threads that shuffle with each other: 32 or 64
  // Of its last parameters: the number of a buffer among its buffers, elements of its rows, rows;
  // elements of the rows of a box, rows.
  std::vector<std::array<int64_t, 5>> maps = {};
  int64_t dynamic_shared_bytes = 0;  // that its launches give each group
};

struct LaunchRequest {
  Kernel kernel;
  std::array<int64_t, 3> groups{1, 1, 1}, threads{1, 1, 1};
  std::vector<uint64_t> arguments = {};  // pointers and integers
  std::vector<SimtTensorMap> maps = {};  // behind them
  int64_t dynamic_shared_bytes = 0;      // that the launch gives; 0: the limit holds
  bool count_traffic = false;
  int64_t most_groups = 0;  // runs only so many, at even distances; 0: all
};

class Emulator {
 public:
  explicit Emulator(Limits limits = {});
  Emulator(const Emulator&) = delete;
  Emulator& operator=(const Emulator&) = delete;

  Memory& memory() { return memory_; }
  absl::Status Launch(const LaunchRequest& request);
  // Of the last launch that counted.
  Traffic traffic() const { return Sum(traffic_); }
  const TrafficParts& traffic_parts() const { return traffic_; }

 private:
  enum class Wait : uint8_t { kNone, kBarrier, kWarp, kFourWarps };
  struct Thread {
    Wait wait = Wait::kNone;
    uint64_t site = 0;
    bool global = false;  // barrier
    uint64_t mask = 0;    // exchange
    uint32_t from = 0;    // exchange
    uint64_t value = 0, result = 0;
    const void* own = nullptr;  // gather
    uint64_t bytes = 0;         // gather: of `own`; 0: an exchange
  };

  static void OnAccess(SimtHooks* hooks, const void* address, unsigned long bytes,
                       unsigned long align, int kind, const void* site);
  static void OnBarrier(SimtHooks* hooks, int global, unsigned long site);
  static void* OnShared(SimtHooks* hooks, const char* name, unsigned long bytes,
                        unsigned long element, unsigned long align);
  static unsigned OnSharedAddress(SimtHooks* hooks, const void* element);
  static const void* OnSharedAt(SimtHooks* hooks, unsigned address);
  static void OnOrderWrites(SimtHooks* hooks);
  static void OnMeet(SimtHooks* hooks, unsigned long site);
  static void OnFail(SimtHooks* hooks, const char* slug, const char* detail);
  static unsigned long OnExchange(SimtHooks* hooks, unsigned long mask, unsigned long value,
                                  unsigned from, unsigned long site);
  static const void* OnGather(SimtHooks* hooks, const void* own, unsigned long bytes,
                              unsigned long site);

  absl::Status CheckLaunch(const LaunchRequest& request) const;
  void RunGroup(const LaunchRequest& request);
  void RunWarp(uint32_t first, uint32_t end);
  void RunFourWarps(uint32_t first, uint32_t end);
  bool FinishMeeting(uint32_t first, uint32_t end);
  bool FinishExchange(uint32_t first, uint32_t end);
  bool GatherFrom(uint32_t first, uint32_t end);
  void FinishInterval();
  void Resume(uint32_t thread);
  void Fail(Fault fault);        // of the group
  void FailThread(Fault fault);  // of the running thread, which never runs again
  bool failed() const { return !fault_.none(); }

  const Limits limits_;
  SimtHooks hooks_ = {};
  Memory memory_;
  Fibers fibers_;
  std::vector<Thread> threads_;  // of the running group
  std::vector<char> gathered_;   // of the last gather
  Actor actor_;                  // the running thread
  bool counts_ = false;
  TrafficCounter counter_;
  TrafficParts traffic_;
  Fault fault_;
};

}  // namespace tilewright::simt
