// `tilewright backup`: the state folder of a tracker or a tuner, copied while the daemon works, and
// put back. Local files only: run where the daemon runs, as a user that may read its folder.
#pragma once

#include <string>

#include "tuner_server/cli/table.h"

namespace tilewright::cli {

struct BackupOptions {
  std::string state_dir;
  std::string backup;  // folder
  OutputFormat format = OutputFormat::kTable;
};

// Each returns an exit code.

// A new folder with the databases as they are at one moment, all else that matters, and
// backup.json: what is in it, with checksums. It appears whole or not at all.
int BackupCreate(const BackupOptions& options);
// Whether a backup is whole: 1 when a file is missing, changed or too much.
int BackupVerify(const BackupOptions& options);
// Into a state folder that is not there yet, or empty, after verifying.
int BackupRestore(const BackupOptions& options);

}  // namespace tilewright::cli
