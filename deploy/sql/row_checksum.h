// A checksum over the values of a row, as a function of SQL: a reader of the row notices what a
// disk or a memory chip changed. It protects from accidents, not from people: it has no key.
#pragma once

#include "deploy/sql/database.h"

namespace tilewright::sql {

// Lets statements of this connection call row_checksum(value, ...), an integer that depends on the
// type and every bit of every value. Its values never change. Files that store it can still be read
// without it.
absl::Status AddRowChecksum(Database* db);

}  // namespace tilewright::sql
