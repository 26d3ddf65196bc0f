#include "deploy/security/token_file.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "deploy/security/secret_rows.h"
#include "deploy/support/file.h"
#include "deploy/support/hash.h"
#include "deploy/support/strings.h"

namespace tilewright::security {
namespace {

using support::StrCat;

constexpr std::string_view kTokenPrefix = "twt";
constexpr size_t kTokenFields = 7;
constexpr uint64_t kMaxTokenFileBytes = 64 << 20;
constexpr char kTokenHeader[] =
    "# tilewright tokens 1: id role name sha256 created expires revoked\n";

std::string CheckOf(std::string_view id, std::string_view secret) {
  return support::Sha256Hex(StrCat("tilewright token ", id, " ", secret)).substr(0, kCheckDigits);
}

std::string FormatRow(const TokenRow& row) {
  return StrCat(row.id, " ", RoleText(row.role), " ", row.name, " ", row.sha256, " ", row.created_s,
                " ", row.expires_s, " ", row.revoked_s, "\n");
}

std::optional<TokenRow> ParseTokenRow(std::string_view line) {
  const std::vector<std::string> fields = support::Split(line, ' ');
  if (fields.size() != kTokenFields) return std::nullopt;
  TokenRow row;
  row.id = fields[0];
  row.name = fields[2];
  row.sha256 = fields[3];
  const auto role = ParseRole(fields[1]);
  const auto created = support::ParseInt64(fields[4]);
  const auto expires = support::ParseInt64(fields[5]);
  const auto revoked = support::ParseInt64(fields[6]);
  if (!IsHex(row.id, 2 * kIdBytes) || !role.ok() || !CheckName(row.name).ok() ||
      !IsHex(row.sha256, 64) || !created || !expires || !revoked || *created < 0 || *expires < 0 ||
      *revoked < 0) {
    return std::nullopt;
  }
  row.role = *role;
  row.created_s = *created;
  row.expires_s = *expires;
  row.revoked_s = *revoked;
  return row;
}

absl::Status WriteRows(const std::string& path, const std::vector<TokenRow>& rows) {
  std::string text = kTokenHeader;
  for (const TokenRow& row : rows) text += FormatRow(row);
  return WriteSecretRows(path, text);
}

absl::StatusOr<NewToken> MakeToken(Role role, const std::string& name, int days, int64_t now_s) {
  TW_TRY(CheckName(name));
  if (days < 0 || days > 36'500) {
    return support::InvalidArgument("tokens.days.invalid",
                                    StrCat("expected 0 (for ever) to 36500 days, found ", days));
  }
  NewToken made;
  TW_ASSIGN(made.row.id, RandomHex(kIdBytes));
  TW_ASSIGN(const std::string secret, RandomHex(kSecretBytes));
  made.row.role = role;
  made.row.name = name;
  made.row.sha256 = support::Sha256Hex(secret);
  made.row.created_s = now_s;
  made.row.expires_s = days == 0 ? 0 : now_s + days * kDaySeconds;
  made.token =
      StrCat(kTokenPrefix, "_", made.row.id, "_", secret, "_", CheckOf(made.row.id, secret));
  return made;
}

absl::StatusOr<TokenRow*> FindRow(std::vector<TokenRow>* rows, const std::string& id) {
  for (TokenRow& row : *rows) {
    if (row.id == id) return &row;
  }
  return support::NotFound("tokens.id.unknown", "no token has the id " + support::Quote(id));
}

}  // namespace

absl::StatusOr<TokenText> ParseToken(std::string_view token) {
  const std::vector<std::string> parts = support::Split(token, '_');
  if (parts.size() == 4 && parts[0] == kTokenPrefix && IsHex(parts[1], 2 * kIdBytes) &&
      IsHex(parts[2], 2 * kSecretBytes) && parts[3] == CheckOf(parts[1], parts[2])) {
    return TokenText{parts[1], parts[2]};
  }
  return support::MakeError(absl::StatusCode::kUnauthenticated, "auth.token.malformed",
                            "expected twt_..., found something else, or a typing mistake in it");
}

absl::StatusOr<std::vector<TokenRow>> ParseTokenRows(std::string_view text) {
  std::vector<TokenRow> rows;
  int number = 0;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    text = end == std::string_view::npos ? "" : text.substr(end + 1);
    ++number;
    if (line.empty() || line.front() == '#') continue;
    const std::optional<TokenRow> row = ParseTokenRow(line);
    if (!row.has_value()) {
      return support::DataLoss("tokens.file.invalid",
                               StrCat("expected seven fields of a token, found something else in "
                                      "line ",
                                      number));
    }
    rows.push_back(*row);
  }
  return rows;
}

absl::StatusOr<std::vector<TokenRow>> LoadTokens(const std::string& path) {
  TW_ASSIGN(const std::string text, support::ReadFile(path, kMaxTokenFileBytes));
  auto rows = ParseTokenRows(text);
  if (!rows.ok()) return support::WithContext(rows.status(), path);
  return rows;
}

absl::StatusOr<NewToken> CreateToken(const std::string& path, Role role, const std::string& name,
                                     int days, int64_t now_s) {
  TW_ASSIGN(NewToken made, MakeToken(role, name, days, now_s));
  TW_ASSIGN(const support::FileLock lock, LockSecretRows(path));
  std::vector<TokenRow> rows;
  if (support::FileExists(path)) {
    TW_ASSIGN(rows, LoadTokens(path));
  }
  rows.push_back(made.row);
  TW_TRY(WriteRows(path, rows));
  return made;
}

absl::Status RevokeToken(const std::string& path, const std::string& id, int64_t now_s) {
  TW_TRY(support::FileSize(path).status());  // no lock file where there are no tokens
  TW_ASSIGN(const support::FileLock lock, LockSecretRows(path));
  TW_ASSIGN(std::vector<TokenRow> rows, LoadTokens(path));
  TW_ASSIGN(TokenRow * row, FindRow(&rows, id));
  if (row->revoked_s != 0) return absl::OkStatus();
  row->revoked_s = now_s;
  return WriteRows(path, rows);
}

absl::StatusOr<NewToken> RotateToken(const std::string& path, const std::string& id, int days,
                                     int64_t grace_s, int64_t now_s) {
  TW_TRY(support::FileSize(path).status());  // no lock file where there are no tokens
  TW_ASSIGN(const support::FileLock lock, LockSecretRows(path));
  TW_ASSIGN(std::vector<TokenRow> rows, LoadTokens(path));
  TW_ASSIGN(TokenRow * old, FindRow(&rows, id));
  if (old->revoked_s != 0 || (old->expires_s != 0 && old->expires_s <= now_s)) {
    return support::FailedPrecondition("tokens.id.revoked",
                                       "expected a token in use, found one that has ended: " + id);
  }
  TW_ASSIGN(NewToken made, MakeToken(old->role, old->name, days, now_s));
  const int64_t end_s = now_s + std::max<int64_t>(0, grace_s);
  old->expires_s = old->expires_s == 0 ? end_s : std::min(old->expires_s, end_s);
  rows.push_back(made.row);
  TW_TRY(WriteRows(path, rows));
  return made;
}

}  // namespace tilewright::security
