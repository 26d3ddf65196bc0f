// Which rows of a log file are as they were written. Every row of the tables below has a checksum
// over its values (of jobs, tasks, batches, drafts, trials, records, models, module versions, their
// aliases and signatures; the events of jobs have none). Reading a damaged row is an error, so this
// is for files as a whole: before an export, and to find out what can be kept.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "deploy/support/status.h"

namespace tilewright::log {

struct LogHealth {
  struct Table {
    std::string name;
    int64_t rows = 0;  // that could be read
    int64_t damaged = 0;
  };

  std::vector<Table> tables;
  std::map<std::string, int64_t> jobs;  // each job, with its number of damaged rows
  std::vector<std::string> examples;    // of damaged rows, the first few of each table
  std::vector<std::string> structure;   // what is wrong with the file: pages, indexes, missing rows

  int64_t damaged() const;
  bool whole() const { return structure.empty() && damaged() == 0; }
};

enum class CheckDepth {
  kRows,   // each row, and the pages that it is in
  kFully,  // indexes and references between tables, too: several times slower
};

// Reads the whole file on a connection of its own; writers are not disturbed. Errors are those of
// opening: sql.open.corrupt (nothing can be read), log.open.version.
absl::StatusOr<LogHealth> CheckLogFile(const std::string& path, CheckDepth depth);

// data_loss (log.check.damaged) if anything in the file is damaged.
absl::Status RequireWhole(const LogHealth& health, const std::string& path);
// The same, as CheckDepth::kRows sees it.
absl::Status RequireWhole(const std::string& path);

}  // namespace tilewright::log
