#include "deploy/support/status.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "deploy/support/shortage.h"

namespace tilewright::support {

absl::Status MakeError(absl::StatusCode code, std::string_view slug, std::string_view detail) {
  TW_CHECK(code != absl::StatusCode::kOk) << "an error needs an error code: " << slug;
  TW_CHECK(slug.find(':') == std::string_view::npos) << "a slug has no colon: " << slug;
  std::string message;
  message.reserve(slug.size() + 2 + detail.size());
  message.append(slug).append(": ").append(detail);
  return absl::Status(code, message);
}

absl::Status InvalidArgument(std::string_view slug, std::string_view detail) {
  return MakeError(absl::StatusCode::kInvalidArgument, slug, detail);
}
absl::Status NotFound(std::string_view slug, std::string_view detail) {
  return MakeError(absl::StatusCode::kNotFound, slug, detail);
}
absl::Status AlreadyExists(std::string_view slug, std::string_view detail) {
  return MakeError(absl::StatusCode::kAlreadyExists, slug, detail);
}
absl::Status FailedPrecondition(std::string_view slug, std::string_view detail) {
  return MakeError(absl::StatusCode::kFailedPrecondition, slug, detail);
}
absl::Status Internal(std::string_view slug, std::string_view detail) {
  return MakeError(absl::StatusCode::kInternal, slug, detail);
}
absl::Status Unavailable(std::string_view slug, std::string_view detail) {
  return MakeError(absl::StatusCode::kUnavailable, slug, detail);
}
absl::Status Unimplemented(std::string_view slug, std::string_view detail) {
  return MakeError(absl::StatusCode::kUnimplemented, slug, detail);
}
absl::Status ResourceExhausted(std::string_view slug, std::string_view detail) {
  return MakeError(absl::StatusCode::kResourceExhausted, slug, detail);
}
absl::Status DataLoss(std::string_view slug, std::string_view detail) {
  return MakeError(absl::StatusCode::kDataLoss, slug, detail);
}
absl::Status DeadlineExceeded(std::string_view slug, std::string_view detail) {
  return MakeError(absl::StatusCode::kDeadlineExceeded, slug, detail);
}
absl::Status Cancelled(std::string_view slug, std::string_view detail) {
  return MakeError(absl::StatusCode::kCancelled, slug, detail);
}
absl::Status Aborted(std::string_view slug, std::string_view detail) {
  return MakeError(absl::StatusCode::kAborted, slug, detail);
}
absl::Status PermissionDenied(std::string_view slug, std::string_view detail) {
  return MakeError(absl::StatusCode::kPermissionDenied, slug, detail);
}

namespace {

absl::StatusCode CodeOfErrno(int error_number) {
  switch (error_number) {
    case ENOENT:
    case ENOTDIR:
      return absl::StatusCode::kNotFound;
    case EEXIST:
    case ENOTEMPTY:
      return absl::StatusCode::kAlreadyExists;
    case EACCES:
    case EPERM:
      return absl::StatusCode::kPermissionDenied;
    case EROFS:  // no room to write, as on a full disk; rights do not help
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
    case EMFILE:
    case ENFILE:
    case ENOMEM:
      return absl::StatusCode::kResourceExhausted;
    case EAGAIN:
    case EBUSY:
    case ETXTBSY:
    case EPIPE:
    case ECONNREFUSED:
    case ECONNRESET:
      return absl::StatusCode::kUnavailable;
    case EINVAL:
    case EISDIR:
    case ENAMETOOLONG:
    case ELOOP:
      return absl::StatusCode::kInvalidArgument;
    case ETIMEDOUT:
      return absl::StatusCode::kDeadlineExceeded;
    default:
      return absl::StatusCode::kInternal;
  }
}

std::string Message(const absl::Status& status) {
  return std::string(status.message().data(), status.message().size());
}

}  // namespace

absl::Status ErrnoError(int error_number, std::string_view slug, std::string_view detail) {
  char buffer[128];
  const char* text = strerror_r(error_number, buffer, sizeof(buffer));
  std::string full(detail);
  full.append(": ").append(text);
  return MarkShortage(MakeError(CodeOfErrno(error_number), slug, full),
                      ShortageOfErrno(error_number));
}

std::string Slug(const absl::Status& status) {
  if (status.ok()) return "";
  std::string message = Message(status);
  return message.substr(0, message.find(':'));
}

std::string Detail(const absl::Status& status) {
  std::string message = Message(status);
  size_t colon = message.find(": ");
  return colon == std::string::npos ? message : message.substr(colon + 2);
}

std::string StatusText(const absl::Status& status) {
  if (status.ok()) return "ok";
  std::string message = Message(status);
  return message.empty() ? absl::StatusCodeToString(status.code()) : message;
}

absl::Status WithContext(const absl::Status& status, std::string_view context) {
  if (status.ok()) return status;
  std::string detail(context);
  detail.append(": ").append(Detail(status));
  return CopyShortage(status, MakeError(status.code(), Slug(status), detail));
}

namespace internal {

CheckFailure::CheckFailure(const char* file, int line, const char* condition) {
  message_ << file << ':' << line << ": check failed: " << condition << ' ';
}

CheckFailure::~CheckFailure() {
  message_ << '\n';
  std::string text = message_.str();
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
  std::abort();
}

}  // namespace internal
}  // namespace tilewright::support
