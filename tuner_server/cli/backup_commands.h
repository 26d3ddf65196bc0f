// `tilewright backup`: copies the state folder of a tracker or a tuner while the daemon works, and
// restores it. Local files only: run it on the daemon's machine, as a user that may read its
// folder.
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

// Makes a new folder with the databases of one moment, the other files that a restore needs, and
// backup.json: the list of files with checksums. The folder appears complete or not at all.
int BackupCreate(const BackupOptions& options);
// Checks a backup: 1 if a file is missing, changed or not in the list.
int BackupVerify(const BackupOptions& options);
// Verifies a backup and copies it into a state folder that is missing or empty.
int BackupRestore(const BackupOptions& options);

}  // namespace tilewright::cli
