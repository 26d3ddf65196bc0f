// `tilewright log import` and `log merge`: measurements of another log into one on this machine, or
// into that of a server.
#pragma once

#include <string>
#include <vector>

#include "tuner_server/cli/server_place.h"
#include "tuner_server/cli/table.h"

namespace tilewright::cli {

struct LogImportOptions {
  std::string log_path;  // made when it is not there; empty: the server's
  ServerPlace server;
  std::vector<std::string> sources;  // exports (JSON lines) and logs (SQLite)
  std::string job_prefix;            // put before the names of imported jobs
  std::string sha256;                // of the only source; empty: FILE.sha256 where there is one
  OutputFormat format = OutputFormat::kTable;
};
// Exit code 5 if a checksum does not match: then nothing of that file is imported. Conflicts are
// counted and skipped; they are no error.
int LogImport(const LogImportOptions& options, const std::string& command);

}  // namespace tilewright::cli
