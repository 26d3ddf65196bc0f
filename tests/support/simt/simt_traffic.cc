#include "tests/support/simt/simt_traffic.h"

#include <algorithm>
#include <cmath>
#include <set>

namespace tilewright::simt {
namespace {

constexpr uintptr_t kSector = 32, kBanks = 32, kWord = 4;
// The banks serve so many bytes in a turn: wider accesses of a warp take several turns even without
// conflicts, a part of the threads in each.
constexpr size_t kTurnBytes = kBanks * kWord;

// What the kept ones of so many visits to a place stand for.
Traffic Scaled(const Traffic& kept, uint32_t visits) {
  if (visits <= TrafficCounter::kKeptVisits) return kept;
  const double factor = static_cast<double>(visits) / TrafficCounter::kKeptVisits;
  const auto scaled = [&](int64_t count) {
    return static_cast<int64_t>(std::llround(static_cast<double>(count) * factor));
  };
  return {scaled(kept.global_requests),      scaled(kept.global_sectors),
          scaled(kept.global_ideal_sectors), scaled(kept.shared_requests),
          scaled(kept.shared_turns),         scaled(kept.shared_ideal_turns)};
}

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
  if (visit >= kKeptVisits) return;
  Request& request = requests_[{{access.site, thread / kWarp}, visit}];
  request.shared = shared;
  request.write = access.write;
  request.array = &array;
  request.bytes = access.bytes;
  request.addresses.push_back(access.address);
}

void TrafficCounter::EndInterval() {
  std::map<Place, uint32_t> visits;  // of a warp: those of the thread that came most often
  for (const auto& [place, times] : visits_) {
    uint32_t& most = visits[{place.first, place.second / kWarp}];
    most = std::max(most, times);
  }
  // The requests of one place of one warp follow each other.
  for (auto it = requests_.begin(); it != requests_.end();) {
    const Place place = it->first.first;
    TrafficParts parts;
    for (; it != requests_.end() && it->first.first == place; ++it) {
      const Request& request = it->second;
      Traffic& part = parts[{*request.array, request.write}];
      part = part + (request.shared ? CountShared(request) : CountGlobal(request));
    }
    for (const auto& [array, part] : parts) {
      Traffic& sum = parts_[array];
      sum = sum + Scaled(part, visits[place]);
    }
  }
  requests_.clear();
  visits_.clear();
}

Traffic TrafficCounter::CountGlobal(const Request& request) {
  std::vector<uintptr_t> addresses = request.addresses;
  std::sort(addresses.begin(), addresses.end());
  uintptr_t bytes = 0, end = 0, next_sector = 0;  // behind those that are counted
  Traffic out;
  out.global_requests = 1;
  for (const uintptr_t address : addresses) {
    const uintptr_t stop = address + request.bytes;
    bytes += stop - std::clamp(end, address, stop);
    end = std::max(end, stop);
    const uintptr_t first = std::max(next_sector, address / kSector);
    next_sector = std::max(next_sector, (stop - 1) / kSector + 1);
    out.global_sectors += static_cast<int64_t>(next_sector - std::min(first, next_sector));
  }
  out.global_ideal_sectors = static_cast<int64_t>((bytes + kSector - 1) / kSector);
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
