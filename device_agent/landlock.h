// What a process may do with files from now on: nothing but what is listed, for itself and its
// descendants (Landlock, Linux 5.19 or later; where the kernel can, also: no TCP, no signals and
// no ptrace to processes outside). Used once by a process about to run what it does not trust.
#pragma once

#include <string>
#include <vector>

#include "deploy/support/status.h"

namespace tilewright::device_agent {

enum class FileAccess {
  kRead,         // files and folders
  kReadExecute,  // and run programs
  kDevice,       // a device node: read, write, ioctl
  kScratch,      // a folder of its own: everything but running programs and special files
};

struct FileRule {
  std::string path;  // with everything beneath; left out where there is none
  FileAccess access = FileAccess::kRead;
};

// Cannot be undone. unavailable (sandbox.landlock.*) where the kernel has none, or refuses.
absl::Status RestrictFiles(const std::vector<FileRule>& rules);

}  // namespace tilewright::device_agent
