#include "tuner_server/search/builder_error.h"

#include "deploy/support/printable.h"

namespace tilewright::search {
namespace {

using support::Shortage;

// Switches without a default: the compiler names the value that one of them lacks.

v1::Shortage ToProto(Shortage shortage) {
  switch (shortage) {
    case Shortage::kNone:
      return v1::SHORTAGE_NONE;
    case Shortage::kDiskFull:
      return v1::SHORTAGE_DISK_FULL;
    case Shortage::kDiskReadOnly:
      return v1::SHORTAGE_DISK_READ_ONLY;
    case Shortage::kDiskFailing:
      return v1::SHORTAGE_DISK_FAILING;
    case Shortage::kMemory:
      return v1::SHORTAGE_MEMORY;
    case Shortage::kDescriptors:
      return v1::SHORTAGE_DESCRIPTORS;
    case Shortage::kBusy:
      return v1::SHORTAGE_BUSY;
    case Shortage::kKilled:
      return v1::SHORTAGE_KILLED;
  }
  return v1::SHORTAGE_NONE;
}

Shortage FromProto(v1::Shortage shortage) {
  switch (shortage) {
    case v1::SHORTAGE_NONE:
      return Shortage::kNone;
    case v1::SHORTAGE_DISK_FULL:
      return Shortage::kDiskFull;
    case v1::SHORTAGE_DISK_READ_ONLY:
      return Shortage::kDiskReadOnly;
    case v1::SHORTAGE_DISK_FAILING:
      return Shortage::kDiskFailing;
    case v1::SHORTAGE_MEMORY:
      return Shortage::kMemory;
    case v1::SHORTAGE_DESCRIPTORS:
      return Shortage::kDescriptors;
    case v1::SHORTAGE_BUSY:
      return Shortage::kBusy;
    case v1::SHORTAGE_KILLED:
      return Shortage::kKilled;
    case v1::Shortage_INT_MIN_SENTINEL_DO_NOT_USE_:
    case v1::Shortage_INT_MAX_SENTINEL_DO_NOT_USE_:
      break;
  }
  return Shortage::kNone;
}

}  // namespace

v1::BuilderError ToBuilderError(const absl::Status& status) {
  v1::BuilderError error;
  error.set_code(static_cast<int32_t>(status.code()));
  // It may name a path, and those may have any bytes.
  error.set_message(support::Printable(support::StatusText(status), support::LineBreaks::kKeep));
  error.set_shortage(ToProto(support::ShortageOf(status)));
  return error;
}

absl::Status FromBuilderError(const v1::BuilderError& error) {
  // The message is "slug: detail" already.
  const absl::Status status(static_cast<absl::StatusCode>(error.code()), error.message());
  if (status.ok()) return support::Internal("builder.error.code", "expected an error, found OK");
  return support::MarkShortage(status, FromProto(error.shortage()));
}

}  // namespace tilewright::search
