// The tuning log in one SQLite file (tuner.db): write-ahead log, synchronous FULL, numbered
// migrations, a checksum in each row (log_check.h). Thread-safe: one connection behind one mutex,
// which serialises its I/O. SQLite has one writer anyway, and reads are short or paged.
#pragma once

#include <memory>
#include <string>

#include "tuner_server/log/tuning_log.h"

namespace tilewright::log {

struct SqliteLogOptions {
  bool read_only = false;    // the file must exist; writing methods fail
  bool quick_check = false;  // data_loss when pages of the file are damaged
  // With read_only: damaged rows are as if they were not there. Otherwise reading one is data_loss
  // (log.row.damaged).
  bool whole_rows_only = false;
};

// Opens or creates the file. A log has one writer: unavailable (log.open.in_use) if another process
// has the file open for writing, under this or another name. failed_precondition
// sql.migrate.newer: a newer program wrote it.
absl::StatusOr<std::unique_ptr<TuningLog>> OpenSqliteLog(const std::string& path,
                                                         const SqliteLogOptions& options = {});

// ok if OpenSqliteLog could write to the file, or make it, now; else its error log.open.in_use.
// REQUIRES: this process does not have the file open.
absl::Status CheckLogIsFree(const std::string& path);

}  // namespace tilewright::log
