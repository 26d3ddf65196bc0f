// Restricts the files that a process and its descendants may use to a list (Landlock, Linux 5.19 or
// later). If the kernel can: also no TCP, no signals and no ptrace to processes outside. A process
// calls it once, before it runs code that it does not trust.
#pragma once

#include <string>
#include <vector>

#include "deploy/support/status.h"

namespace tilewright::device_agent {

enum class FileAccess {
  kRead,         // files and folders
  kReadExecute,  // and run programs
  kChange,       // files that are there: read and write
  kDevice,       // a device node: read, write, ioctl
  kScratch,      // a folder of its own: all but programs and special files
};

struct FileRule {
  std::string path;  // with everything beneath; left out where there is none
  FileAccess access = FileAccess::kRead;
};

// Cannot be undone. unavailable (sandbox.landlock.*) if the kernel lacks Landlock or refuses.
absl::Status RestrictFiles(const std::vector<FileRule>& rules);

}  // namespace tilewright::device_agent
