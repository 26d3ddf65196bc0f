// A copy of a database that programs are writing to at this moment.
#pragma once

#include <string>

#include "deploy/support/status.h"

namespace tilewright::sql {

// Copies the state that `path` has at one moment, all committed transactions and nothing else, into
// the new file `copy`, checks it page by page and syncs it. Writers of the source go on meanwhile.
// Afterwards the copy needs no other file. Errors as in database.h (sql.backup.*); already_exists
// (sql.backup.exists) when the copy is there; data_loss (sql.backup.corrupt, sql.open.corrupt) when
// the source is damaged: then there is no copy.
absl::Status BackupDatabase(const std::string& path, const std::string& copy);

}  // namespace tilewright::sql
