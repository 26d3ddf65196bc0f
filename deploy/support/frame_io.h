// Messages over a byte stream (pipe, socket, serial line): each frame is its length as a
// little-endian 32-bit number followed by that many bytes. Robust to interrupted and partial
// transfers; works on blocking and non-blocking descriptors. One reader and one writer per
// descriptor at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "deploy/support/status.h"

namespace tilewright::support {

// A negative timeout waits without end. The timeout covers the whole frame.
//
// unavailable frame.write.closed: the reader is gone. deadline_exceeded frame.write.timeout: it
// does not read (a part of the frame may be written: the stream is unusable from here on; the
// timeout needs a non-blocking descriptor). invalid_argument frame.write.too_large: 4 GiB or more.
absl::Status WriteFrame(int fd, std::string_view data, int64_t timeout_ms = -1);

// unavailable frame.read.closed: the stream ended between two frames. data_loss
// frame.read.truncated: it ended inside one. resource_exhausted frame.read.too_large: the frame is
// longer than max_bytes (nothing of it was read). deadline_exceeded frame.read.timeout: the frame
// is not complete in time.
absl::StatusOr<std::string> ReadFrame(int fd, size_t max_bytes, int64_t timeout_ms = -1);

}  // namespace tilewright::support
