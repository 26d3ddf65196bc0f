// Watches what a client sends on one HTTP/2 connection, and says when to close it: gRPC 1.51 reads
// header blocks without an end and keeps what it read of them, some ten bytes for each one sent,
// although it accepts 8 KiB. The gate reads nothing but the heads of frames. It keeps no bytes.
// Belongs to one thread at a time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "deploy/support/clock.h"

namespace tilewright::daemon {

enum class Http2Abuse {
  kNone,
  kLongHeaders,      // a header block of more than kMaxHeaderBlockBytes
  kManyHeaderParts,  // a header block in more than kMaxHeaderParts frames
  kSmallFrames,      // more than kSmallFrameBurst frames in kSmallFrameWindowNs that move no data
  kManyCalls,        // more than kMaxEarlyCalls before the client acknowledged the settings
  kEarlyAck,         // settings acknowledged that were not sent: gRPC then has no limit of calls
};

// "long_headers", ...; for logs.
std::string_view Http2AbuseText(Http2Abuse abuse);

class Http2Gate {
 public:
  // What gRPC accepts of headers is 8 KiB, unpacked; clients send that in one frame.
  static constexpr uint32_t kMaxHeaderBlockBytes = 32 << 10;
  static constexpr int kMaxHeaderParts = 16;
  // SETTINGS, PING, RST_STREAM, PRIORITY, unknown frames, and pieces of messages of a few bytes.
  // gRPC keeps some 20 KB of each call that is opened and reset until it comes round to it.
  static constexpr int kSmallFrameBurst = 2'000;
  static constexpr int64_t kSmallFrameWindowNs = 1'000'000'000;
  // gRPC limits the calls of a connection only after the client has acknowledged that limit.
  static constexpr int kMaxEarlyCalls = 128;
  // A piece of a message below this size costs gRPC more to keep than it holds.
  static constexpr uint32_t kSmallDataBytes = 64;

  // The clock is not owned.
  explicit Http2Gate(support::Clock* clock) : clock_(clock) {}

  // Takes the next bytes of the client; `answered`: whether the server may have sent its settings
  // before. After an abuse every call returns that abuse. A connection that does not begin as
  // HTTP/2 does is gRPC's to refuse: the gate looks no further.
  Http2Abuse Take(std::string_view bytes, bool answered = true);

 private:
  static constexpr size_t kHeadBytes = 9;

  void TakePreface(std::string_view* bytes);
  Http2Abuse TakeHead(bool answered);
  Http2Abuse TakeHeadersHead(bool begins_block);
  Http2Abuse CountSmallFrame();

  support::Clock* const clock_;
  Http2Abuse abuse_ = Http2Abuse::kNone;
  bool foreign_ = false;       // no HTTP/2
  size_t preface_bytes_ = 0;   // seen so far
  uint32_t payload_left_ = 0;  // of the present frame
  std::array<unsigned char, kHeadBytes> head_{};
  size_t head_bytes_ = 0;     // of the next frame, so far
  uint32_t block_bytes_ = 0;  // of the present header block, so far
  int block_parts_ = 0;
  bool acknowledged_ = false;  // the settings of the server
  int early_calls_ = 0;        // before that
  int small_frames_ = 0;       // since window_start_ns_
  int64_t window_start_ns_ = 0;
};

}  // namespace tilewright::daemon
