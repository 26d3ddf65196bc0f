// A small file that recognises its copies. Its text survives renames of the file and of its
// folders, restarts and chown; a copy (cp, rsync, tar, a restored backup) is recognised, also one
// that was copied over the original.
//
// The first line of the file says which file it is: its inode number and the time of its creation.
// No tool that copies files can keep both. A file system that has no creation times
// (statx: STATX_BTIME) leaves the inode number alone. A rolled back disk or machine looks the same
// as before: nothing in it can be recognised as old.
// Functions are stateless and thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "deploy/support/status.h"

namespace tilewright::support {

// Writes a new file atomically, as WriteFileAtomic does, in place of the one that is there.
absl::Status WriteOriginalFile(const std::string& path, std::string_view text);

// Returns the text. not_found if there is no file; failed_precondition (file.original.copy) if the
// file is a copy, or was not written by WriteOriginalFile; errors of ReadFile.
absl::StatusOr<std::string> ReadOriginalFile(const std::string& path, uint64_t max_bytes);

}  // namespace tilewright::support
