// What a machine is short of when a request fails that may succeed later, unchanged: room on a disk
// that somebody will empty, memory that another process will give back. The kind travels with the
// status as a payload, and across processes as an enum, so that no code has to read the message.
// ErrnoError, WithContext and the database set it. Code that makes a new status from an old one
// keeps it with CopyShortage. Free functions without state, for any thread.
#pragma once

#include <string_view>

#include "deploy/support/status.h"

namespace tilewright::support {

// builder.proto has the same kinds.
enum class Shortage {
  kNone,          // trying again is not known to help
  kDiskFull,      // ENOSPC, EDQUOT, EFBIG
  kDiskReadOnly,  // EROFS
  kDiskFailing,   // EIO, ESTALE
  kMemory,        // ENOMEM
  kDescriptors,   // EMFILE, ENFILE
  kBusy,          // EAGAIN, EBUSY, ETXTBSY
  kKilled,        // a child was killed from outside or got no memory: retried, but not for ever
};
inline constexpr int kShortages = 8;

Shortage ShortageOfErrno(int error_number);

// kNone for OK and for an error without a mark.
Shortage ShortageOf(const absl::Status& status);

// The same error, marked.
absl::Status MarkShortage(absl::Status status, Shortage shortage);
// `status` with the mark of `from`.
absl::Status CopyShortage(const absl::Status& from, absl::Status status);

// "disk_full": stable, for slugs, logs and metrics. "none" for kNone.
std::string_view ShortageName(Shortage shortage);
// What one waits for, for people: "room on the disk".
std::string_view ShortageText(Shortage shortage);

}  // namespace tilewright::support
