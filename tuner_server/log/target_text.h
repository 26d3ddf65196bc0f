// The text of a target as far as the tuner's server needs it: canonical form, the part that keys
// records, and whether the kind is one that exists. What a target means is the compiler's business.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "deploy/support/status.h"

namespace tilewright::log {

struct TargetText {
  std::string kind;                             // "cpu"
  std::map<std::string, std::string> settings;  // "arch" -> "x86_64", ...

  std::string ToString() const;        // kind, then settings by key
  std::string WithoutThreads() const;  // likewise, less threads: part of a record's key
  int64_t threads() const;             // 1 where not given
};

// "KIND[,key=value...]". invalid_argument target.text.bad for anything else, .unknown_kind for a
// kind that no part of Tilewright knows, .not_expanded for `native`, which only the machine it
// means can expand.
absl::StatusOr<TargetText> ParseTargetText(std::string_view text);

}  // namespace tilewright::log
