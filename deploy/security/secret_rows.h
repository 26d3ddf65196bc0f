// Files with a row for each secret that was handed out (tokens, enrolment tickets): what they
// share. Each change takes the lock and writes the whole file anew. Functions are stateless.
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

// So many random bytes, two digits each.
absl::StatusOr<std::string> RandomHex(size_t bytes);
// So many hexadecimal digits, in lower case.
bool IsHex(std::string_view text, size_t digits);

// Waits up to a second: changes take milliseconds.
absl::StatusOr<support::FileLock> LockSecretRows(const std::string& path);
// 0600 when it is new; else mode and owner stay: a daemon that may read it goes on reading it. On
// the disk when this returns.
absl::Status WriteSecretRows(const std::string& path, const std::string& text);

}  // namespace tilewright::security
