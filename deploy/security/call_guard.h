// Decides about every call of a listening daemon: who calls (by a certificate that names one member
// of the fleet, and a token that fits it),
// how often, and whether the table of access.h allows it. A refusal has a slug and says nothing
// that the caller has not proved to know. The token file is read again within a second of a change,
// so a revocation needs no restart. Thread-safe; its only I/O is one stat a second.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "deploy/security/access.h"
#include "deploy/security/rate_limiter.h"
#include "deploy/security/token_file.h"
#include "deploy/support/clock.h"
#include "deploy/support/mutex.h"
#include "deploy/support/status.h"

namespace tilewright::security {

// What is known about a call before its handler runs.
struct CallFacts {
  std::string_view method;             // "/package.Service/Method"
  std::string_view authorization;      // the header's value: "Bearer twt_..."
  std::vector<std::string> peer_uris;  // all of the verified certificate (certificate.h: PeerOf)
};

struct Caller {
  Role role = Role::kCi;
  std::string name;
  std::string token_id;
  // "engineer/ana"
  std::string Text() const { return RoleText(role) + "/" + name; }
};

class CallGuard {
 public:
  // Reads the token file, which must be there. The clock is not owned.
  static absl::StatusOr<std::unique_ptr<CallGuard>> Open(std::string tokens_path, Listener listener,
                                                         support::Clock* clock);

  // Returns the caller, or why the call is refused:
  //   unauthenticated    auth.token.missing, .malformed, .unknown, .expired, .revoked
  //   permission_denied  auth.certificate.unnamed, auth.certificate.mismatch, auth.method.unknown,
  //                      auth.role.denied
  //   resource_exhausted auth.rate.exceeded
  absl::StatusOr<Caller> Admit(const CallFacts& facts) TW_EXCLUDES(mutex_);

  // Returns who calls, by token and certificate alone: for handlers and the audit of admitted
  // calls. A token that was revoked or has ended since then still names its holder.
  absl::StatusOr<Caller> Identify(const CallFacts& facts) TW_EXCLUDES(mutex_);

  // Returns why the token file could not be read. Until it can be read, the rows read last count.
  absl::Status FileStatus() TW_EXCLUDES(mutex_);

 private:
  // Which content of the file was read: another size, time or inode means another content.
  struct FileStamp {
    int64_t mtime_ns = 0;
    int64_t size = 0;
    uint64_t inode = 0;
    bool operator==(const FileStamp&) const = default;
  };

  CallGuard(std::string path, Listener listener, support::Clock* clock)
      : path_(std::move(path)), listener_(listener), clock_(clock), limiter_(clock) {}
  absl::Status Reload() TW_REQUIRES(mutex_);
  void RefreshSometimes() TW_REQUIRES(mutex_);
  absl::StatusOr<TokenRow> FindToken(std::string_view authorization) TW_EXCLUDES(mutex_);
  absl::Status StillCounts(const TokenRow& row) const;

  const std::string path_;
  const Listener listener_;
  support::Clock* const clock_;
  support::Mutex mutex_;
  std::map<std::string, TokenRow, std::less<>> rows_ TW_GUARDED_BY(mutex_);
  FileStamp stamp_ TW_GUARDED_BY(mutex_);
  int64_t next_look_ns_ TW_GUARDED_BY(mutex_) = 0;
  absl::Status file_status_ TW_GUARDED_BY(mutex_);
  RateLimiter limiter_;
};

}  // namespace tilewright::security
