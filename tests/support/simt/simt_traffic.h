// What the accesses of warps cost on a GPU: sectors of global memory, and turns of the banks of
// shared memory. The threads of a warp are emulated one after the other, so their accesses are put
// together by the place in the program and by how often each thread has been there since the last
// barrier. Where threads of a warp went through a loop a different number of times, the counts are
// those of a machine on which they meet again at each place. One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/simt/simt_memory.h"

namespace tilewright::simt {

// Counts of a launch. A request is one access of one warp.
struct Traffic {
  int64_t global_requests = 0;
  int64_t global_sectors = 0;        // of 32 bytes
  int64_t global_ideal_sectors = 0;  // that the bytes of the requests would need at least
  int64_t shared_requests = 0;
  int64_t shared_turns = 0;        // of the banks: a bank gives one word of 32 bits in a turn
  int64_t shared_ideal_turns = 0;  // without conflicts
  int64_t shared_conflicts() const { return shared_turns - shared_ideal_turns; }
};

// Returns the sum of two counts.
Traffic operator+(const Traffic& a, const Traffic& b);
// By the array that is accessed, and whether it is written.
using TrafficParts = std::map<std::pair<std::string, bool>, Traffic>;
Traffic Sum(const TrafficParts& parts);

class TrafficCounter {
 public:
  static constexpr uint32_t kWarp = 32;
  // Of the visits of a thread to a place between two barriers so many are kept: more of them are
  // alike, and a thread may come a million times.
  static constexpr uint32_t kKeptVisits = 2048;

  // `array`: the name of what is accessed; it stays until the interval ends.
  void Add(const Access& access, bool shared, const std::string& array, uint32_t thread);
  // All threads have come to a barrier, or to their end.
  void EndInterval();
  TrafficParts Take() { return std::exchange(parts_, {}); }

 private:
  struct Request {
    bool shared = false, write = false;
    const std::string* array = nullptr;
    size_t bytes = 0;  // of one thread
    std::vector<uintptr_t> addresses;
  };
  static Traffic CountGlobal(const Request& request);
  static Traffic CountShared(const Request& request);

  using Place = std::pair<const void*, uint32_t>;           // a site, and the warp or the thread
  std::map<std::pair<Place, uint32_t>, Request> requests_;  // of the warp's n-th visit
  std::map<Place, uint32_t> visits_;                        // of a thread
  TrafficParts parts_;
};

}  // namespace tilewright::simt
