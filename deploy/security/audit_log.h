// Who did what, from where, and what came of it: JSON lines, only ever appended, in one file of a
// daemon's state folder. Each line holds the SHA-256 of the line before it, so a line that was
// changed, removed or put in shows (`tilewright audit verify`). The file is opened anew for every
// line: a log rotation may move it away at any moment, the chain goes on in the next file.
// Thread-safe.
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
  std::string from;         // address; empty where gRPC does not tell it (refused calls)
  std::string on_behalf;    // whom the tuner forwarded the call for
  std::string method;       // "/package.Service/Method"
  std::string what;         // what it was about: "devices/bench-3-cpu"
  std::string outcome;      // "OK" or the error's code
  std::string detail;       // the error's slug
};

class AuditLog {
 public:
  // Goes on after the last whole line that is there; what a power cut left of another is dropped. A
  // file that ends with something else is moved aside (see damaged) and a new chain begins: a
  // daemon starts all the same. The clock is not owned.
  static absl::StatusOr<std::unique_ptr<AuditLog>> Open(std::string path, support::Clock* clock);

  // Where Open has moved a damaged file; empty when there was none.
  const std::string& damaged() const { return damaged_; }

  // The line is with the system when this returns (it survives the process, not a power cut).
  absl::Status Append(const AuditEntry& entry) TW_EXCLUDES(mutex_);

  // The same for refused calls, a few a second per peer: more are counted, and the next line says
  // how many ("suppressed"), so that nobody fills the disk by being refused.
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
// Walks the chain of a file. data_loss (audit.chain.broken, audit.file.invalid) with the line.
absl::StatusOr<AuditSummary> VerifyAuditFile(const std::string& path);

// When each token was last seen in a file, by its id ("2026-11-22T07:30:00.000000Z"): of calls that
// are audited, and of refused ones. Lines that are none are left out. not_found
// (audit.file.missing).
absl::StatusOr<std::map<std::string, std::string>> LastTokenUses(const std::string& path);

}  // namespace tilewright::security
