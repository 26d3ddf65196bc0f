#include "vta/rtl/rtl_dram.h"

#include <algorithm>
#include <cstring>

#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::vta {
namespace {

constexpr int64_t kPage = 4096;

int64_t PageAfter(size_t bytes) {
  return (static_cast<int64_t>(bytes) + kPage - 1) / kPage * kPage + kPage;
}

}  // namespace

int64_t RtlDram::PlaceBehind(std::span<const Word128> stream) {
  stream_ = stream;
  stream_address_ = PageAfter(image_.size());
  return stream_address_;
}

void RtlDram::Fail(const char* what, int64_t address) {
  if (!status_.ok()) return;
  status_ = support::InvalidArgument("vta.rtl.bounds",
                                     support::StrCat("expected a ", what, " below ", image_.size(),
                                                     ", the end of the image, found ", address));
}

uint64_t RtlDram::BeatAt(int64_t address) {
  const auto size = static_cast<int64_t>(image_.size());
  uint64_t beat = 0;
  if (address >= 0 && address < size) {
    std::memcpy(&beat, image_.data() + address,
                static_cast<size_t>(std::min(kBeatBytes, size - address)));
    return beat;
  }
  const int64_t half = (address - stream_address_) / kBeatBytes;
  if (address < stream_address_ || half >= 2 * static_cast<int64_t>(stream_.size())) {
    Fail("read", address);
    return 0;
  }
  const Word128& word = stream_[static_cast<size_t>(half / 2)];
  return half % 2 == 0 ? word.low : word.high;
}

uint64_t RtlDram::TakeBeat() {
  Request& request = reads_.front();
  const uint64_t beat = BeatAt(request.address);
  request.address += kBeatBytes;
  if (--request.beats == 0) reads_.pop_front();
  return beat;
}

bool RtlDram::TakeResponse(int64_t now) {
  if (responses_.empty() || responses_.front() > now) return false;
  responses_.pop_front();
  return true;
}

void RtlDram::Read(int64_t now, int64_t address, int64_t beats) {
  reads_.push_back({now + latency_, address, beats});
}

void RtlDram::Write(int64_t now, int64_t address, uint64_t beat, bool last) {
  if (address < 0 || address + kBeatBytes > static_cast<int64_t>(image_.size())) {
    Fail("write", address);
  } else {
    std::memcpy(image_.data() + address, &beat, sizeof beat);
  }
  if (last) responses_.push_back(now + latency_);
}

}  // namespace tilewright::vta
