#include "deploy/support/shortage.h"

#include <array>
#include <cerrno>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/cord.h"

namespace tilewright::support {
namespace {

constexpr char kPayload[] = "tilewright/shortage";

struct Row {
  std::string_view name;
  std::string_view text;
};

constexpr std::array<Row, kShortages> kRows = {{
    {"none", "nothing"},
    {"disk_full", "room on the disk"},
    {"disk_read_only", "a disk that can be written"},
    {"disk_failing", "a disk without errors"},
    {"memory", "memory"},
    {"descriptors", "file descriptors"},
    {"busy", "what another process holds"},
    {"killed", "memory, or an end of the kills of its children"},
}};

const Row& RowOf(Shortage shortage) { return kRows[static_cast<size_t>(shortage)]; }

}  // namespace

Shortage ShortageOfErrno(int error_number) {
  switch (error_number) {
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
      return Shortage::kDiskFull;
    case EROFS:
      return Shortage::kDiskReadOnly;
    case EIO:
    case ESTALE:
      return Shortage::kDiskFailing;
    case ENOMEM:
      return Shortage::kMemory;
    case EMFILE:
    case ENFILE:
      return Shortage::kDescriptors;
    case EAGAIN:
    case EBUSY:
    case ETXTBSY:
      return Shortage::kBusy;
    default:
      return Shortage::kNone;
  }
}

Shortage ShortageOf(const absl::Status& status) {
  const auto payload = status.GetPayload(kPayload);
  if (!payload) return Shortage::kNone;
  const std::string name(*payload);
  for (size_t i = 0; i < kRows.size(); ++i) {
    if (kRows[i].name == name) return static_cast<Shortage>(i);
  }
  return Shortage::kNone;
}

absl::Status MarkShortage(absl::Status status, Shortage shortage) {
  if (status.ok() || shortage == Shortage::kNone) return status;
  const std::string_view name = ShortageName(shortage);
  status.SetPayload(kPayload, absl::Cord(absl::string_view(name.data(), name.size())));
  return status;
}

absl::Status CopyShortage(const absl::Status& from, absl::Status status) {
  return MarkShortage(std::move(status), ShortageOf(from));
}

std::string_view ShortageName(Shortage shortage) { return RowOf(shortage).name; }
std::string_view ShortageText(Shortage shortage) { return RowOf(shortage).text; }

}  // namespace tilewright::support
