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

Traffic operator+(const Traffic& a, const Traffic& b) {
  return {a.global_requests + b.global_requests,
          a.global_sectors + b.global_sectors,
          a.global_ideal_sectors + b.global_ideal_sectors,
          a.shared_requests + b.shared_requests,
          a.shared_turns + b.shared_turns,
          a.shared_ideal_turns + b.shared_ideal_turns};
}

Traffic Sum(const TrafficParts& parts) {
  Traffic sum;
  for (const auto& [array, part] : parts) sum = sum + part;
  return sum;
}

void TrafficCounter::Add(const Access& access, bool shared, const std::string& array,
                         uint32_t thread) {
  const uint32_t visit = visits_[{access.site, thread}]++;
  Request& request = requests_[{{access.site, thread / kWarp}, visit}];
  request.shared = shared;
  request.write = access.write;
  request.array = &array;
  request.bytes = access.bytes;
  request.addresses.push_back(access.address);
}

void TrafficCounter::EndInterval() {
  for (const auto& [place, request] : requests_) {
    Traffic& part = parts_[{*request.array, request.write}];
    part = part + (request.shared ? CountShared(request) : CountGlobal(request));
  }
  requests_.clear();
  visits_.clear();
}

Traffic TrafficCounter::CountGlobal(const Request& request) {
  std::set<uintptr_t> sectors, bytes;
  for (uintptr_t address : request.addresses) {
    for (uintptr_t at = address; at < address + request.bytes; ++at) bytes.insert(at);
    for (uintptr_t s = address / kSector; s <= (address + request.bytes - 1) / kSector; ++s)
      sectors.insert(s);
  }
  Traffic out;
  out.global_requests = 1;
  out.global_sectors = static_cast<int64_t>(sectors.size());
  out.global_ideal_sectors = static_cast<int64_t>((bytes.size() + kSector - 1) / kSector);
  return out;
}

Traffic TrafficCounter::CountShared(const Request& request) {
  Traffic out;
  out.shared_requests = 1;
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
    out.shared_turns += static_cast<int64_t>(turns);
    ++out.shared_ideal_turns;
  }
  return out;
}

}  // namespace tilewright::simt
