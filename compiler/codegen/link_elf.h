// Links one object file to a shared object with lld, inside the process. Thread-safe: lld is not,
// so calls queue.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace tilewright::codegen {

// Begins the names of the linker's folders in memory, or in the folder for temporary files
// (deploy/support/scratch_folder.h).
inline constexpr std::string_view kLinkScratch = "tilewright-link";

// Same bytes in, same bytes out. Symbols that stay undefined are libc's and libm's.
absl::StatusOr<std::string> LinkSharedObject(const std::string& object);  // codegen.link.*

}  // namespace tilewright::codegen
