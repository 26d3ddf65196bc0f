#include "deploy/security/call_guard.h"

#include <sys/stat.h>

#include <cerrno>
#include <utility>

#include "deploy/security/secret_rows.h"
#include "deploy/support/hash.h"
#include "deploy/support/strings.h"

namespace tilewright::security {
namespace {

using support::MutexLock;

// In lower case; clients may write the scheme in any (RFC 9110).
constexpr std::string_view kScheme = "bearer ";

absl::Status Unauthenticated(std::string_view slug, std::string_view detail) {
  return support::MakeError(absl::StatusCode::kUnauthenticated, slug, detail);
}

// Takes the same time wherever two texts of one length differ.
bool SameHash(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  unsigned char difference = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference = static_cast<unsigned char>(difference | (a[i] ^ b[i]));
  }
  return difference == 0;
}

// The token's holder, who may use it with their own certificate only.
absl::StatusOr<Caller> HolderOf(const TokenRow& row, const std::vector<std::string>& peer_uris) {
  Caller caller{row.role, row.name, row.id};
  const auto peer = PeerOf(peer_uris);
  // A company's authority signs certificates for many purposes. One that does not say whom it names
  // here would go with every stolen token.
  if (!peer.ok()) {
    return support::PermissionDenied(
        "auth.certificate.unnamed",
        "the certificate does not name a member of the fleet: " + support::Detail(peer.status()));
  }
  if (CertificateFits(*peer, caller.role, caller.name)) return caller;
  return support::PermissionDenied(
      "auth.certificate.mismatch",
      support::StrCat("the token of ", caller.Text(), " may not be used with the certificate of ",
                      KindText(peer->kind), " ", peer->name));
}

}  // namespace

absl::StatusOr<std::unique_ptr<CallGuard>> CallGuard::Open(std::string tokens_path,
                                                           Listener listener,
                                                           support::Clock* clock) {
  std::unique_ptr<CallGuard> guard(new CallGuard(std::move(tokens_path), listener, clock));
  MutexLock lock(guard->mutex_);
  TW_TRY(guard->Reload());
  return guard;
}

absl::Status CallGuard::Reload() {
  struct stat info{};
  if (stat(path_.c_str(), &info) != 0) {
    return support::ErrnoError(errno, "tokens.file.missing",
                               path_ + "; 'tilewright tokens create' makes it");
  }
  FileStamp stamp;
  stamp.mtime_ns = info.st_mtim.tv_sec * int64_t{1'000'000'000} + info.st_mtim.tv_nsec;
  stamp.size = info.st_size;
  stamp.inode = info.st_ino;
  if (stamp == stamp_) return absl::OkStatus();
  if ((info.st_mode & 022) != 0) {
    return support::FailedPrecondition(
        "tokens.file.permissions",
        "expected a file that only its owner can write, found " + path_ + "; chmod 600 it");
  }
  TW_ASSIGN(std::vector<TokenRow> rows, LoadTokens(path_));
  rows_.clear();
  for (TokenRow& row : rows) {
    std::string id = row.id;
    rows_.insert_or_assign(std::move(id), std::move(row));
  }
  stamp_ = stamp;
  return absl::OkStatus();
}

void CallGuard::RefreshSometimes() {
  const int64_t now_ns = clock_->NowNs();
  if (now_ns < next_look_ns_) return;
  next_look_ns_ = now_ns + kLookEveryNs;
  file_status_ = Reload();
}

absl::Status CallGuard::FileStatus() {
  MutexLock lock(mutex_);
  return file_status_;
}

absl::StatusOr<TokenRow> CallGuard::FindToken(std::string_view authorization) {
  if (authorization.empty()) {
    return Unauthenticated("auth.token.missing", "expected a bearer token, found none");
  }
  if (support::ToLower(authorization.substr(0, kScheme.size())) != kScheme) {
    return Unauthenticated("auth.token.malformed",
                           "expected 'authorization: Bearer twt_...', found another scheme");
  }
  TW_ASSIGN(const TokenText token, ParseToken(authorization.substr(kScheme.size())));
  const std::string hash = support::Sha256Hex(token.secret);
  MutexLock lock(mutex_);
  RefreshSometimes();
  const auto found = rows_.find(token.id);
  if (found == rows_.end() || !SameHash(found->second.sha256, hash)) {
    return Unauthenticated("auth.token.unknown", "this server does not know the token");
  }
  return found->second;
}

absl::Status CallGuard::StillCounts(const TokenRow& row) const {
  if (row.revoked_s != 0) {
    return Unauthenticated("auth.token.revoked", "the token of " + row.name + " was revoked");
  }
  if (row.expires_s != 0 && clock_->WallMicros() / 1'000'000 >= row.expires_s) {
    return Unauthenticated("auth.token.expired", "the token of " + row.name + " has ended");
  }
  return absl::OkStatus();
}

absl::StatusOr<Caller> CallGuard::Identify(const CallFacts& facts) {
  TW_ASSIGN(const TokenRow row, FindToken(facts.authorization));
  return HolderOf(row, facts.peer_uris);
}

absl::StatusOr<Caller> CallGuard::Admit(const CallFacts& facts) {
  TW_ASSIGN(const TokenRow row, FindToken(facts.authorization));
  TW_TRY(StillCounts(row));
  TW_ASSIGN(Caller caller, HolderOf(row, facts.peer_uris));
  const MethodRule* rule = FindRule(facts.method);
  if (rule == nullptr) {
    return support::PermissionDenied("auth.method.unknown", "no such method here");
  }
  if (!Allows(*rule, listener_, caller.role)) {
    return support::PermissionDenied(
        "auth.role.denied",
        support::StrCat("role ", RoleText(caller.role), " may not call ", facts.method, " here"));
  }
  if (!limiter_.Take(caller.token_id, LimitOf(caller.role))) {
    return support::ResourceExhausted(
        "auth.rate.exceeded", support::StrCat("expected at most ", LimitOf(caller.role).per_second,
                                              " calls a second of ", caller.Text()));
  }
  return caller;
}

}  // namespace tilewright::security
