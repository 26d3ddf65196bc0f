// backup.json: the files of a backup, with checksums. Pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "deploy/support/status.h"

namespace tilewright::cli {

struct BackupFile {
  std::string path;  // relative, inside the folder
  uint64_t bytes = 0;
  std::string sha256;
};

// `daemon` is the program whose state it is; `created` a time for people.
std::string BackupManifestText(const std::string& daemon, const std::string& created,
                               const std::vector<BackupFile>& files);

// data_loss (backup.manifest.invalid) for any other text, and for paths outside the folder.
absl::StatusOr<std::vector<BackupFile>> ParseBackupManifest(std::string_view text);

}  // namespace tilewright::cli
