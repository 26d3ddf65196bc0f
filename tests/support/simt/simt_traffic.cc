#include "tests/support/simt/simt_traffic.h"

#include <algorithm>
#include <set>

namespace tilewright::simt {
namespace {

constexpr uintptr_t kSector = 32, kBanks = 32, kWord = 4;
// The banks serve so many bytes in a turn: wider accesses of a warp take several turns even without
// conflicts, a part of the threads in each.
constexpr size_t kTurnBytes = kBanks * kWord;

}  // namespace

void TrafficCounter::Add(const Access& access, bool shared, uint32_t thread) {
  const uint32_t visit = visits_[{access.site, thread}]++;
  Request& request = requests_[{{access.site, thread / kWarp}, visit}];
  request.shared = shared;
  request.bytes = access.bytes;
  request.addresses.push_back(access.address);
}

void TrafficCounter::EndInterval() {
  for (const auto& [place, request] : requests_) {
    if (request.shared) {
      CountShared(request);
    } else {
      CountGlobal(request);
    }
  }
  requests_.clear();
  visits_.clear();
}

void TrafficCounter::CountGlobal(const Request& request) {
  std::set<uintptr_t> sectors, bytes;
  for (uintptr_t address : request.addresses) {
    for (uintptr_t at = address; at < address + request.bytes; ++at) bytes.insert(at);
    for (uintptr_t s = address / kSector; s <= (address + request.bytes - 1) / kSector; ++s)
      sectors.insert(s);
  }
  ++total_.global_requests;
  total_.global_sectors += static_cast<int64_t>(sectors.size());
  total_.global_ideal_sectors += static_cast<int64_t>((bytes.size() + kSector - 1) / kSector);
}

void TrafficCounter::CountShared(const Request& request) {
  ++total_.shared_requests;
  const size_t wide = std::max<size_t>(request.bytes, kWord);
  const size_t threads_in_turn = kTurnBytes / std::min(wide, kTurnBytes);
  for (size_t first = 0; first < request.addresses.size(); first += threads_in_turn) {
    std::vector<std::set<uintptr_t>> words(kBanks);  // of each bank
    const size_t end = std::min(first + threads_in_turn, request.addresses.size());
    for (size_t i = first; i < end; ++i) {
      const uintptr_t address = request.addresses[i];
      for (uintptr_t w = address / kWord; w <= (address + request.bytes - 1) / kWord; ++w)
        words[w % kBanks].insert(w);
    }
    size_t turns = 0;
    for (const auto& bank : words) turns = std::max(turns, bank.size());
    total_.shared_turns += static_cast<int64_t>(turns);
    ++total_.shared_ideal_turns;
  }
}

}  // namespace tilewright::simt
