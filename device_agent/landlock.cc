#include "device_agent/landlock.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/landlock.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

#include "deploy/support/file.h"
#include "deploy/support/strings.h"

namespace tilewright::device_agent {
namespace {

using support::ErrnoError;
using support::StrCat;
using support::Unavailable;

// Rights that later kernels know than the headers that this may be compiled with; the numbers are
// the kernel's ABI.
constexpr uint64_t kTruncate = uint64_t{1} << 14;     // version 3
constexpr uint64_t kIoctlDevice = uint64_t{1} << 15;  // version 5
constexpr uint64_t kTcpBindConnect = 3;               // version 4
constexpr uint64_t kAbstractSocketsSignals = 3;       // version 6
constexpr int kRenameVersion = 2;

// The kernel's struct landlock_ruleset_attr as of version 6; an older kernel gets the part it
// knows.
struct RulesetAttributes {
  uint64_t files = 0;
  uint64_t network = 0;
  uint64_t scoped = 0;
};

constexpr uint64_t kFirstVersion = (uint64_t{1} << 13) - 1;
constexpr uint64_t kReadRights = LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR;
constexpr uint64_t kScratchRights =
    kReadRights | LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_REMOVE_DIR |
    LANDLOCK_ACCESS_FS_REMOVE_FILE | LANDLOCK_ACCESS_FS_MAKE_DIR | LANDLOCK_ACCESS_FS_MAKE_REG |
    LANDLOCK_ACCESS_FS_MAKE_SYM | LANDLOCK_ACCESS_FS_REFER | kTruncate;
// Those that exist for something that is no folder.
constexpr uint64_t kFileRights = LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_WRITE_FILE |
                                 LANDLOCK_ACCESS_FS_READ_FILE | kTruncate | kIoctlDevice;

uint64_t RightsOf(FileAccess access) {
  switch (access) {
    case FileAccess::kRead:
      return kReadRights;
    case FileAccess::kReadExecute:
      return kReadRights | LANDLOCK_ACCESS_FS_EXECUTE;
    case FileAccess::kChange:
      return kReadRights | LANDLOCK_ACCESS_FS_WRITE_FILE | kTruncate;
    case FileAccess::kDevice:
      return kReadRights | LANDLOCK_ACCESS_FS_WRITE_FILE | kIoctlDevice;
    case FileAccess::kScratch:
      return kScratchRights;
  }
  return 0;
}

uint64_t KnownFileRights(long version) {
  uint64_t rights = kFirstVersion | LANDLOCK_ACCESS_FS_REFER;
  if (version >= 3) rights |= kTruncate;
  if (version >= 5) rights |= kIoctlDevice;
  return rights;
}

absl::Status AddRule(int ruleset, const FileRule& rule, uint64_t known) {
  const int fd = open(rule.path.c_str(), O_PATH | O_CLOEXEC);
  if (fd < 0) return absl::OkStatus();
  struct stat found{};
  landlock_path_beneath_attr beneath{};
  beneath.parent_fd = fd;
  beneath.allowed_access = RightsOf(rule.access) & known;
  if (fstat(fd, &found) == 0 && !S_ISDIR(found.st_mode)) beneath.allowed_access &= kFileRights;
  const long result =
      syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &beneath, 0);
  const int error = errno;
  close(fd);
  if (result == 0) return absl::OkStatus();
  return Unavailable("sandbox.landlock.rule", ErrnoError(error, "", rule.path).ToString());
}

absl::Status Apply(int ruleset, const std::vector<FileRule>& rules, uint64_t known) {
  for (const FileRule& rule : rules) TW_TRY(AddRule(ruleset, rule, known));
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
      syscall(SYS_landlock_restrict_self, ruleset, 0) == 0) {
    return absl::OkStatus();
  }
  return Unavailable("sandbox.landlock.apply", ErrnoError(errno, "", "").ToString());
}

}  // namespace

absl::Status RestrictFiles(const std::vector<FileRule>& rules) {
  const long version =
      syscall(SYS_landlock_create_ruleset, nullptr, 0, LANDLOCK_CREATE_RULESET_VERSION);
  if (version < kRenameVersion) {
    return Unavailable("sandbox.landlock.missing",
                       StrCat("expected a kernel with Landlock of version ", kRenameVersion,
                              " or later (Linux 5.19), found ", version < 0 ? 0 : version));
  }
  RulesetAttributes attributes;
  attributes.files = KnownFileRights(version);
  size_t bytes = sizeof(attributes.files);
  if (version >= 4) {
    attributes.network = kTcpBindConnect;
    bytes += sizeof(attributes.network);
  }
  if (version >= 6) {
    attributes.scoped = kAbstractSocketsSignals;
    bytes += sizeof(attributes.scoped);
  }
  const int ruleset = static_cast<int>(syscall(SYS_landlock_create_ruleset, &attributes, bytes, 0));
  if (ruleset < 0) {
    return Unavailable("sandbox.landlock.refused", ErrnoError(errno, "", "").ToString());
  }
  const absl::Status status = Apply(ruleset, rules, attributes.files);
  close(ruleset);
  return status;
}

}  // namespace tilewright::device_agent
