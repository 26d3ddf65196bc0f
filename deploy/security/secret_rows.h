// What files of tokens and of enrolment tickets share: a row for each secret that was handed out.
// Each change takes the lock and writes the whole file again. Functions are stateless.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "deploy/support/file.h"
#include "deploy/support/status.h"

namespace tilewright::security {

inline constexpr size_t kIdBytes = 6, kSecretBytes = 32;
inline constexpr size_t kCheckDigits = 8;  // at the end of a secret's text: finds typing mistakes
inline constexpr int64_t kDaySeconds = 86'400;
// How often a running daemon looks whether its files (tokens, revocations) have changed.
inline constexpr int64_t kLookEveryNs = 1'000'000'000;

// Returns this many random bytes as hexadecimal text.
absl::StatusOr<std::string> RandomHex(size_t bytes);
// Whether the text is this many hexadecimal digits in lower case.
bool IsHex(std::string_view text, size_t digits);

// Takes the lock; waits up to a second, because changes take milliseconds.
absl::StatusOr<support::FileLock> LockSecretRows(const std::string& path);
// Replaces the file, synced to the disk. A new file has mode 0600; mode and owner of an old one
// stay, so that the daemon can still read it.
absl::Status WriteSecretRows(const std::string& path, const std::string& text);

}  // namespace tilewright::security
