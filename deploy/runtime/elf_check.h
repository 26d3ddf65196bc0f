// Whether a code object may be given to the system's loader, which trusts what it reads: a wrong
// offset there ends the process. Checks the file header, the segments, the dynamic table and where
// relocations write. What the code does is not checked: code that is not trusted needs a process of
// its own. Pure.
#ifndef DEPLOY_RUNTIME_ELF_CHECK_H_
#define DEPLOY_RUNTIME_ELF_CHECK_H_

#include <string_view>

#include "absl/status/status.h"

namespace tilewright::runtime {

// DATA_LOSS `runtime.code.elf` unless the bytes are a 64-bit little-endian shared object of
// `machine` (EM_X86_64 ...) whose tables are inside the file and its segments.
absl::Status CheckSharedObject(std::string_view image, int machine);

}  // namespace tilewright::runtime

#endif  // DEPLOY_RUNTIME_ELF_CHECK_H_
