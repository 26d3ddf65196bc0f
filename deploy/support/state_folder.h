// The folder in which a program keeps its state: for its own user alone, whatever the umask says.
// Others must not read models and measurements, and whoever can open a lock file can hold it.
// Functions are safe from any thread.
#pragma once

#include <string>

#include "deploy/support/status.h"

namespace tilewright::support {

// Makes the folder (mode 0700) and its missing parents. If the folder exists, takes the rights of
// other users away: what lies in it is out of their reach then, whatever its own mode is. Returns
// whether others had rights. failed_precondition (state.folder.shared): the folder has a sticky bit,
// as /tmp has, or belongs to somebody else; nothing was changed then.
absl::StatusOr<bool> MakeStateFolder(const std::string& path);

}  // namespace tilewright::support
