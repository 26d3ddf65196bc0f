// Who did what, from where, with what outcome: JSON lines, appended to one file of a daemon's state
// folder. Each line contains the SHA-256 of the line before it, so `tilewright audit verify` finds
// a line that was changed, removed or inserted. The file is opened again for every line: a log
// rotation may move it away at any moment, and the chain continues in the next file. Thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "deploy/security/rate_limiter.h"
#include "deploy/support/clock.h"
#include "deploy/support/mutex.h"
#include "deploy/support/status.h"

namespace tilewright::security {

struct AuditEntry {
  std::string who;          // "engineer/ana"; empty = unknown
  std::string token;        // its id
  std::string certificate;  // the peer's URI
  std::string from;         // address; empty if gRPC does not give it (refused calls)
  std::string on_behalf;    // whom the tuner forwarded the call for
  std::string method;       // "/package.Service/Method"
  std::string what;         // what it was about: "devices/bench-3-cpu"
  std::string outcome;      // "OK" or the error's code
  std::string detail;       // the error's slug
};

class AuditLog {
 public:
  // Continues after the last whole line; drops the part of a line that a power cut left. Moves a
  // file with another end away (see damaged) and begins a new chain, so that the daemon starts in
  // any case. The clock is not owned.
  static absl::StatusOr<std::unique_ptr<AuditLog>> Open(std::string path, support::Clock* clock);

  // Returns where Open moved a damaged file; empty if there was none.
  const std::string& damaged() const { return damaged_; }

  // Writes a line. It survives the end of the process, but not a power cut.
  absl::Status Append(const AuditEntry& entry) TW_EXCLUDES(mutex_);

  // Writes a line for a refused call, at most a few a second per peer. Others are counted, and the
  // next line says how many ("suppressed"), so that refused calls cannot fill the disk.
  absl::Status AppendRefusal(const AuditEntry& entry) TW_EXCLUDES(mutex_);

 private:
  AuditLog(std::string path, support::Clock* clock)
      : path_(std::move(path)), clock_(clock), refusals_(clock, 1000) {}

  const std::string path_;
  support::Clock* const clock_;
  std::string damaged_;
  RateLimiter refusals_;
  support::Mutex mutex_;
  int64_t seq_ TW_GUARDED_BY(mutex_) = 0;
  int64_t suppressed_ TW_GUARDED_BY(mutex_) = 0;
  std::string previous_ TW_GUARDED_BY(mutex_);  // SHA-256 of the last line
};

struct AuditSummary {
  int64_t lines = 0;
  int64_t first_seq = 0;
  int64_t last_seq = 0;
};
// Checks the chain of a file. data_loss (audit.chain.broken, audit.file.invalid) names the line.
absl::StatusOr<AuditSummary> VerifyAuditFile(const std::string& path);

// When each token was last seen in a file, by its id ("2026-11-22T07:30:00.000000Z"): of calls that
// are audited, and of refused ones. Lines that are none are left out. not_found
// (audit.file.missing).
absl::StatusOr<std::map<std::string, std::string>> LastTokenUses(const std::string& path);

}  // namespace tilewright::security
