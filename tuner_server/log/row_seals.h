// Gives the rows of older versions their checksums.
// Internal to tuner_server/log. A connection belongs to one thread at a time.
#pragma once

#include "deploy/sql/database.h"

namespace tilewright::log {

// Gives rows a checksum over the columns that this version knows, if they have none, or one over
// the columns of an older version that fits. A damaged row keeps a checksum that does not fit.
// Afterwards a row is whole if and only if its checksum fits. All in one transaction; nothing to do
// in a file that was opened for writing before.
absl::Status SealRows(sql::Database* db);

// Whether SealRows would have nothing to do.
absl::StatusOr<bool> AllSealed(sql::Database* db);

}  // namespace tilewright::log
