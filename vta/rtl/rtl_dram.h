// DRAM as the RTL sees it: reads come in order, a beat a cycle, not sooner than the latency after
// their request; a last write is answered when the latency has passed. A stream that is not in the
// image is behind it. Times are cycles. Not thread-safe.
#pragma once

#include <cstdint>
#include <deque>
#include <span>

#include "absl/status/status.h"
#include "vta/isa/isa.h"

namespace tilewright::vta {

class RtlDram {
 public:
  static constexpr int64_t kBeatBytes = 8;

  // `image` outlives it.
  RtlDram(std::span<uint8_t> image, int64_t latency) : image_(image), latency_(latency) {}

  // Puts a stream, which outlives this object, behind the image and returns its address.
  int64_t PlaceBehind(std::span<const Word128> stream);

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

  const std::span<uint8_t> image_;
  const int64_t latency_;
  std::span<const Word128> stream_;  // behind the image
  int64_t stream_address_ = 0;
  std::deque<Request> reads_;
  std::deque<int64_t> responses_;  // when they come
  absl::Status status_;
};

}  // namespace tilewright::vta
