#include "deploy/support/frame_io.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <limits>

#include "deploy/support/clock.h"
#include "deploy/support/process.h"
#include "deploy/support/strings.h"

namespace tilewright::support {
namespace {

constexpr int64_t kNoDeadline = std::numeric_limits<int64_t>::max();

int64_t DeadlineNs(int64_t timeout_ms) {
  if (timeout_ms < 0) return kNoDeadline;
  return SystemClock().NowNs() + timeout_ms * 1'000'000;
}

// True when the descriptor can make progress (also towards an error), false when the time is up.
bool WaitReady(int fd, short events, int64_t deadline_ns) {
  while (true) {
    int wait_ms = -1;
    if (deadline_ns != kNoDeadline) {
      const int64_t left_ns = deadline_ns - SystemClock().NowNs();
      wait_ms =
          static_cast<int>(std::clamp<int64_t>((left_ns + 999'999) / 1'000'000, 0, 3'600'000));
    }
    pollfd entry{fd, events, 0};
    const int ready = poll(&entry, 1, wait_ms);
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return true;  // the transfer itself reports the error
    if (deadline_ns != kNoDeadline && SystemClock().NowNs() >= deadline_ns) return false;
  }
}

absl::Status WriteFully(int fd, std::string_view data, int64_t deadline_ns) {
  while (!data.empty()) {
    if (!WaitReady(fd, POLLOUT, deadline_ns)) {
      return DeadlineExceeded("frame.write.timeout", StrCat("the reader took nothing in time, ",
                                                            data.size(), " bytes left"));
    }
    const ssize_t written = write(fd, data.data(), data.size());
    if (written >= 0) {
      data.remove_prefix(static_cast<size_t>(written));
    } else if (errno == EPIPE || errno == ECONNRESET) {
      return ErrnoError(errno, "frame.write.closed", "the reader is gone");
    } else if (errno != EINTR && errno != EAGAIN) {
      return ErrnoError(errno, "frame.write.failed", StrCat("descriptor ", fd));
    }
  }
  return absl::OkStatus();
}

// Reads up to `size` bytes; fewer only at the end of the stream.
absl::StatusOr<size_t> ReadFully(int fd, char* data, size_t size, int64_t deadline_ns) {
  size_t filled = 0;
  while (filled < size) {
    if (!WaitReady(fd, POLLIN, deadline_ns)) {
      return DeadlineExceeded("frame.read.timeout",
                              StrCat("expected ", size, " bytes, found ", filled, " in time"));
    }
    const ssize_t got = read(fd, data + filled, size - filled);
    if (got > 0) {
      filled += static_cast<size_t>(got);
    } else if (got == 0 || errno == ECONNRESET) {
      return filled;
    } else if (errno != EINTR && errno != EAGAIN) {
      return ErrnoError(errno, "frame.read.failed", StrCat("descriptor ", fd));
    }
  }
  return filled;
}

}  // namespace

absl::Status WriteFrame(int fd, std::string_view data, int64_t timeout_ms) {
  IgnoreSigpipe();
  if (data.size() > std::numeric_limits<uint32_t>::max()) {
    return InvalidArgument("frame.write.too_large",
                           StrCat("expected less than 4 GiB, found ", data.size(), " bytes"));
  }
  const int64_t deadline_ns = DeadlineNs(timeout_ms);
  // Small frames go out in one write, so that a reader is woken once.
  constexpr size_t kOneWrite = 4096;
  std::string head(4, '\0');
  for (int i = 0; i < 4; ++i) head[i] = static_cast<char>(data.size() >> (8 * i) & 0xff);
  const size_t joined = std::min(data.size(), kOneWrite - head.size());
  head.append(data.substr(0, joined));
  TW_TRY(WriteFully(fd, head, deadline_ns));
  return WriteFully(fd, data.substr(joined), deadline_ns);
}

absl::StatusOr<std::string> ReadFrame(int fd, size_t max_bytes, int64_t timeout_ms) {
  const int64_t deadline_ns = DeadlineNs(timeout_ms);
  std::array<char, 4> head;
  TW_ASSIGN(const size_t head_bytes, ReadFully(fd, head.data(), head.size(), deadline_ns));
  if (head_bytes == 0) return Unavailable("frame.read.closed", "the stream ended");
  if (head_bytes < head.size()) {
    return DataLoss("frame.read.truncated",
                    StrCat("expected a length of 4 bytes, found ", head_bytes, " bytes"));
  }
  size_t size = 0;
  for (int i = 0; i < 4; ++i) size |= static_cast<size_t>(static_cast<uint8_t>(head[i])) << (8 * i);
  if (size > max_bytes) {
    return ResourceExhausted("frame.read.too_large",
                             StrCat("expected at most ", max_bytes, " bytes, found ", size));
  }
  // Grows with what arrives: a lying length costs no memory.
  constexpr size_t kStep = size_t{4} << 20;
  std::string data;
  while (data.size() < size) {
    const size_t filled = data.size();
    const size_t step = std::min(kStep, size - filled);
    data.resize(filled + step);
    TW_ASSIGN(const size_t got, ReadFully(fd, data.data() + filled, step, deadline_ns));
    if (got < step) {
      return DataLoss("frame.read.truncated",
                      StrCat("expected ", size, " bytes, found ", filled + got));
    }
  }
  return data;
}

}  // namespace tilewright::support
