// A copy of a database that programs are writing to at this moment.
#pragma once

#include <string>

#include "deploy/support/status.h"

namespace tilewright::sql {

// Copies all committed transactions of one moment from `path` into the new file `copy`, checks the
// copy page by page and syncs it. Writers of the source are not interrupted. The copy needs no
// other file. Errors as in database.h (sql.backup.*); already_exists (sql.backup.exists) if `copy`
// exists; data_loss (sql.backup.corrupt, sql.open.corrupt) if the source is damaged: then there is
// no copy.
absl::Status BackupDatabase(const std::string& path, const std::string& copy);

}  // namespace tilewright::sql
