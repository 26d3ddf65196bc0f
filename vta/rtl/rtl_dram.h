// DRAM as the RTL sees it: reads come in order, a beat a cycle, not sooner than the latency after
// their request; a last write is answered when the latency has passed. The stream lies behind the
// image. Times are cycles. Not thread-safe.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "vta/isa/isa.h"

namespace tilewright::vta {

class RtlDram {
 public:
  static constexpr int64_t kBeatBytes = 8;

  // `image` and `stream` outlive it.
  RtlDram(std::vector<uint8_t>* image, std::span<const Word128> stream, int64_t latency);

  int64_t stream_address() const { return stream_address_; }

  // In each cycle first what DRAM gives, then what it takes.
  bool HasBeat(int64_t now) const { return !reads_.empty() && reads_.front().ready <= now; }
  // REQUIRES: HasBeat(now).
  uint64_t TakeBeat();
  bool TakeResponse(int64_t now);
  void Read(int64_t now, int64_t address, int64_t beats);
  void Write(int64_t now, int64_t address, uint64_t beat, bool last);

  bool idle() const { return reads_.empty() && responses_.empty(); }
  // vta.rtl.bounds: the first access outside of image and stream.
  const absl::Status& status() const { return status_; }

 private:
  struct Request {
    int64_t ready, address, beats;
  };

  uint64_t BeatAt(int64_t address);
  void Fail(const char* what, int64_t address);

  std::vector<uint8_t>& image_;
  const std::span<const Word128> stream_;
  const int64_t latency_;
  const int64_t stream_address_;
  std::deque<Request> reads_;
  std::deque<int64_t> responses_;  // when they come
  absl::Status status_;
};

}  // namespace tilewright::vta
