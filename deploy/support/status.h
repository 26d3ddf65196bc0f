// Errors as values: the macros and constructors that every part of Tilewright uses on top of
// absl::Status, and TW_CHECK for what only a bug can cause.
//
// An error message is "area.subject.reason: expected ..., found ..." in lower case without a final
// period. The part before the first ':' is the slug; tests and callers match on it, so it is
// stable. Everything here is a free function or a macro without state and may be used from any
// thread.
#pragma once

#include <ostream>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tilewright::support {

// "slug: detail" with the given code. REQUIRES: code is not OK and slug has no ':'.
absl::Status MakeError(absl::StatusCode code, std::string_view slug, std::string_view detail);

absl::Status InvalidArgument(std::string_view slug, std::string_view detail);
absl::Status NotFound(std::string_view slug, std::string_view detail);
absl::Status AlreadyExists(std::string_view slug, std::string_view detail);
absl::Status FailedPrecondition(std::string_view slug, std::string_view detail);
absl::Status Internal(std::string_view slug, std::string_view detail);
absl::Status Unavailable(std::string_view slug, std::string_view detail);
absl::Status Unimplemented(std::string_view slug, std::string_view detail);
absl::Status ResourceExhausted(std::string_view slug, std::string_view detail);
absl::Status DataLoss(std::string_view slug, std::string_view detail);
absl::Status DeadlineExceeded(std::string_view slug, std::string_view detail);
absl::Status Cancelled(std::string_view slug, std::string_view detail);
absl::Status Aborted(std::string_view slug, std::string_view detail);
absl::Status PermissionDenied(std::string_view slug, std::string_view detail);

// The error of a failed system call: `error_number` chooses the code (ENOENT not_found, ENOSPC and
// EDQUOT resource_exhausted, EROFS and EACCES permission_denied, EAGAIN unavailable, ...) and its
// text ends the message.
absl::Status ErrnoError(int error_number, std::string_view slug, std::string_view detail);

// The text before the first ':' of the message; empty for OK.
std::string Slug(const absl::Status& status);

// The message without the slug; the whole message where there is none.
std::string Detail(const absl::Status& status);

// The message as std::string, never empty for an error: a status without a message gives the name
// of its code. OK gives "ok".
std::string StatusText(const absl::Status& status);

// The same error with `context` put before the detail: "slug: context: detail".
absl::Status WithContext(const absl::Status& status, std::string_view context);

namespace internal {

// Collects the message of a failed TW_CHECK and aborts when it is destroyed.
class CheckFailure {
 public:
  CheckFailure(const char* file, int line, const char* condition);
  CheckFailure(const CheckFailure&) = delete;
  CheckFailure& operator=(const CheckFailure&) = delete;
  [[noreturn]] ~CheckFailure();
  std::ostream& stream() { return message_; }

 private:
  std::ostringstream message_;
};

// Gives both branches of TW_CHECK's conditional the type void.
struct Voidify {
  void operator&(std::ostream&) {}
};

}  // namespace internal
}  // namespace tilewright::support

#define TW_INTERNAL_CONCAT2(a, b) a##b
#define TW_INTERNAL_CONCAT(a, b) TW_INTERNAL_CONCAT2(a, b)

// Returns from the enclosing function when the absl::Status expression is an error.
#define TW_TRY(...)                                          \
  do {                                                       \
    ::absl::Status tw_internal_status = (__VA_ARGS__);       \
    if (!tw_internal_status.ok()) return tw_internal_status; \
  } while (false)

// Evaluates an absl::StatusOr<T> expression; returns its error or assigns its value:
//   TW_ASSIGN(std::string text, ReadFile(path, kMax));
#define TW_ASSIGN(lhs, ...) \
  TW_INTERNAL_ASSIGN(TW_INTERNAL_CONCAT(tw_internal_result_, __LINE__), lhs, __VA_ARGS__)
#define TW_INTERNAL_ASSIGN(result, lhs, ...)             \
  auto result = (__VA_ARGS__);                           \
  if (!result.ok()) return ::std::move(result).status(); \
  lhs = *::std::move(result)

// Aborts with file, line and the streamed text when the condition is false. On in every build type;
// the streamed operands are evaluated only on failure. For bugs only: input errors are
// absl::Status.
#define TW_CHECK(condition)                          \
  (condition)                                        \
      ? static_cast<void>(0)                         \
      : ::tilewright::support::internal::Voidify() & \
            ::tilewright::support::internal::CheckFailure(__FILE__, __LINE__, #condition).stream()
