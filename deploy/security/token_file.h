// Bearer tokens on disk. A token is "twt_{id}_{secret}_{check}". The file has one line for each,
// with the SHA-256 of the secret, never the secret. There is no salt: 256 random bits cannot be
// guessed.
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
// unauthenticated (auth.token.malformed) for a text that cannot be a token, so that a typing
// mistake differs from an unknown token. The message never contains the text.
absl::StatusOr<TokenText> ParseToken(std::string_view token);

// Reads the text of a file. data_loss (tokens.file.invalid) names the line.
absl::StatusOr<std::vector<TokenRow>> ParseTokenRows(std::string_view text);

// Reads a file; not_found if there is none.
absl::StatusOr<std::vector<TokenRow>> LoadTokens(const std::string& path);

struct NewToken {
  TokenRow row;
  std::string token;  // shown once; only the hash is stored
};

// Adds a token. Makes the file (0600) if there is none. `days` 0 = the token never expires.
absl::StatusOr<NewToken> CreateToken(const std::string& path, Role role, const std::string& name,
                                     int days, int64_t now_s);

// Ends a token now. not_found (tokens.id.unknown). A second time changes nothing.
absl::Status RevokeToken(const std::string& path, const std::string& id, int64_t now_s);

// Makes a new token for the same role and name. The old one ends `grace_s` seconds from now.
// failed_precondition (tokens.id.revoked) for one that has ended already.
absl::StatusOr<NewToken> RotateToken(const std::string& path, const std::string& id, int days,
                                     int64_t grace_s, int64_t now_s);

}  // namespace tilewright::security
