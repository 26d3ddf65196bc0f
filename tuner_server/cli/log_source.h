// The source of the `log` commands: a tuning log on disk, or a server's export of its log. The same
// code serves both. Reads only; one owner, one thread.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "deploy/support/status.h"
#include "tuner_server/cli/server_place.h"
#include "tuner_server/log/tuning_log.h"

namespace tilewright::cli {

struct LogPlace {
  std::string log_path;  // --log
  ServerPlace server;    // --server, --identity
};

struct ExportRequest {
  std::string job;  // id or full name; empty: all
  bool features = false;
  bool drafts = false;
  bool skip_damaged = false;  // of a log file: what is whole, with a note of what is not
};

// --log, else --server, else TILEWRIGHT_SERVER, else the log of `tilewright tune` on this machine.
// not_found if there is none of these.
absl::StatusOr<LogPlace> ResolveLogPlace(const LogPlace& flags);

// A file is opened read-only. A server's records (and batches, with `drafts`) become a log in
// memory; its models and modules are not part of what servers export. Empty job: all.
absl::StatusOr<std::unique_ptr<log::TuningLog>> OpenLog(const LogPlace& place,
                                                        const std::string& job, bool drafts);

// The lines of the export as they come, in pieces of whole lines or of arbitrary size. Reads
// through a log file before its first line: data_loss (log.check.damaged) if any of it is damaged.
absl::Status StreamExport(const LogPlace& place, const ExportRequest& request,
                          const std::function<absl::Status(std::string_view)>& sink);

}  // namespace tilewright::cli
