// Bearer tokens on disk. A token is "twt_{id}_{secret}_{check}"; the file keeps one line for each,
// with the SHA-256 of the secret (256 random bits: nothing to guess, so no salt) and never the
// secret itself:
//   {id} {role} {name} {sha256} {created} {expires} {revoked}
// Times are seconds since the Unix epoch (UTC), 0 = never. Changes lock the file, so that two
// administrators cannot lose one of them. Functions are stateless and thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "deploy/security/access.h"
#include "deploy/support/status.h"

namespace tilewright::security {

inline constexpr int kTokenDays = 365;

struct TokenRow {
  std::string id;  // 12 hexadecimal digits
  Role role = Role::kCi;
  std::string name;    // of the person, pipeline, agent or tuner
  std::string sha256;  // of the secret
  int64_t created_s = 0;
  int64_t expires_s = 0;
  int64_t revoked_s = 0;
};

struct TokenText {
  std::string id;
  std::string secret;
};
// unauthenticated (auth.token.malformed) for a text that no token has: a typing mistake is told
// from a token that is not known. The message never holds the text.
absl::StatusOr<TokenText> ParseToken(std::string_view token);

// The whole file. data_loss (tokens.file.invalid) names the line.
absl::StatusOr<std::vector<TokenRow>> ParseTokenRows(std::string_view text);

// The rows of a file; not_found when there is none.
absl::StatusOr<std::vector<TokenRow>> LoadTokens(const std::string& path);

struct NewToken {
  TokenRow row;
  std::string token;  // shown once, then only the hash is left
};

// Adds a token (and the file, 0600, if missing). `days` 0 = it never expires.
absl::StatusOr<NewToken> CreateToken(const std::string& path, Role role, const std::string& name,
                                     int days, int64_t now_s);

// Ends a token now. not_found (tokens.id.unknown). A second time changes nothing.
absl::Status RevokeToken(const std::string& path, const std::string& id, int64_t now_s);

// A new token for the same role and name; the old one ends `grace_s` seconds from now.
// failed_precondition (tokens.id.revoked) for one that has ended already.
absl::StatusOr<NewToken> RotateToken(const std::string& path, const std::string& id, int days,
                                     int64_t grace_s, int64_t now_s);

}  // namespace tilewright::security
