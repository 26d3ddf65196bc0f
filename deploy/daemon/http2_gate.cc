#include "deploy/daemon/http2_gate.h"

#include <algorithm>

namespace tilewright::daemon {
namespace {

// RFC 9113: what a client begins with, types of frames, flags.
constexpr std::string_view kPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
constexpr unsigned kData = 0;
constexpr unsigned kHeaders = 1;
constexpr unsigned kSettings = 4;
constexpr unsigned kWindowUpdate = 8;
constexpr unsigned kContinuation = 9;
constexpr unsigned kEndStream = 1;
constexpr unsigned kAck = 1;

}  // namespace

std::string_view Http2AbuseText(Http2Abuse abuse) {
  switch (abuse) {
    case Http2Abuse::kNone:
      return "none";
    case Http2Abuse::kLongHeaders:
      return "long_headers";
    case Http2Abuse::kManyHeaderParts:
      return "many_header_parts";
    case Http2Abuse::kSmallFrames:
      return "small_frames";
    case Http2Abuse::kManyCalls:
      return "many_calls";
    case Http2Abuse::kEarlyAck:
      return "early_acknowledgement";
  }
  return "unknown";
}

Http2Abuse Http2Gate::Take(std::string_view bytes, bool answered) {
  TakePreface(&bytes);
  while (!foreign_ && !bytes.empty() && abuse_ == Http2Abuse::kNone) {
    const size_t skipped = std::min<size_t>(payload_left_, bytes.size());
    payload_left_ -= static_cast<uint32_t>(skipped);
    bytes.remove_prefix(skipped);
    const size_t taken = std::min(kHeadBytes - head_bytes_, bytes.size());
    std::copy_n(bytes.begin(), taken, head_.begin() + head_bytes_);
    head_bytes_ += taken;
    bytes.remove_prefix(taken);
    if (head_bytes_ == kHeadBytes) abuse_ = TakeHead(answered);
  }
  return abuse_;
}

void Http2Gate::TakePreface(std::string_view* bytes) {
  const size_t seen = std::min(kPreface.size() - preface_bytes_, bytes->size());
  if (kPreface.substr(preface_bytes_, seen) != bytes->substr(0, seen)) foreign_ = true;
  preface_bytes_ += seen;
  bytes->remove_prefix(seen);
}

// The head of a frame is complete: 24 bits of length, 8 of type, 8 of flags, 32 of the stream.
Http2Abuse Http2Gate::TakeHead(bool answered) {
  head_bytes_ = 0;
  payload_left_ = static_cast<uint32_t>(head_[0]) << 16 | static_cast<uint32_t>(head_[1]) << 8 |
                  static_cast<uint32_t>(head_[2]);
  const unsigned type = head_[3];
  const unsigned flags = head_[4];
  if (type == kHeaders || type == kContinuation) return TakeHeadersHead(type == kHeaders);
  if (type == kWindowUpdate) return Http2Abuse::kNone;  // a good client sends many
  if (type == kData && ((flags & kEndStream) != 0 || payload_left_ >= kSmallDataBytes)) {
    return Http2Abuse::kNone;
  }
  if (type == kSettings && (flags & kAck) != 0) {
    if (!answered) return Http2Abuse::kEarlyAck;
    acknowledged_ = true;
  }
  return CountSmallFrame();
}

Http2Abuse Http2Gate::TakeHeadersHead(bool begins_block) {
  if (begins_block) {
    block_bytes_ = 0;
    block_parts_ = 0;
    if (!acknowledged_ && ++early_calls_ > kMaxEarlyCalls) return Http2Abuse::kManyCalls;
  }
  block_bytes_ += payload_left_;  // at most 2^24 more than the limit
  if (block_bytes_ > kMaxHeaderBlockBytes) return Http2Abuse::kLongHeaders;
  if (++block_parts_ > kMaxHeaderParts) return Http2Abuse::kManyHeaderParts;
  return Http2Abuse::kNone;
}

Http2Abuse Http2Gate::CountSmallFrame() {
  if (small_frames_++ == 0) window_start_ns_ = clock_->NowNs();
  if (small_frames_ <= kSmallFrameBurst) return Http2Abuse::kNone;
  if (clock_->NowNs() - window_start_ns_ < kSmallFrameWindowNs) return Http2Abuse::kSmallFrames;
  small_frames_ = 0;
  return Http2Abuse::kNone;
}

}  // namespace tilewright::daemon
