// The folder in which a program keeps its state: for its own user alone, for any umask. Other users
// must not read models and measurements, and must not hold locks.
// Functions are safe from any thread.
#pragma once

#include <string>

#include "deploy/support/status.h"

namespace tilewright::support {

// Makes the folder and its missing parents (mode 0700). If the folder exists, takes the rights
// of other users away: they cannot reach what is in it then. Returns whether they had rights.
// failed_precondition (state.folder.shared): the folder has a sticky bit, as /tmp has, or belongs
// to another user; nothing was changed then.
absl::StatusOr<bool> MakeStateFolder(const std::string& path);

}  // namespace tilewright::support
