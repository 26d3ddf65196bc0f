// The tuning log in one SQLite file (tuner.db): write-ahead log, synchronous FULL, numbered
// migrations. Thread-safe: one connection behind one mutex, which serialises its I/O. SQLite has
// one writer anyway, and reads are short or paged.
#pragma once

#include <memory>
#include <string>

#include "tuner_server/log/tuning_log.h"

namespace tilewright::log {

struct SqliteLogOptions {
  bool read_only = false;    // the file must exist; writing methods fail
  bool quick_check = false;  // data_loss when the file is damaged
};

// Opens or creates the file. failed_precondition sql.migrate.newer: a newer program wrote it.
absl::StatusOr<std::unique_ptr<TuningLog>> OpenSqliteLog(const std::string& path,
                                                         const SqliteLogOptions& options = {});

}  // namespace tilewright::log
