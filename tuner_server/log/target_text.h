// The parts of a target's text that the tuner's server needs: canonical form, the key of records,
// and whether the kind exists. Only the compiler knows what a target means.
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
  std::string WithoutThreads() const;  // the same without threads: part of a record's key
  int64_t threads() const;             // 1 where not given
  // Whether the drivers of its devices compile the code, so that records depend on them.
  bool driver_compiles() const;
};

// Parses "KIND[,key=value...]". invalid_argument:
//   target.text.unknown_kind  the kind is not in compiler/targets/targets.def
//   target.text.not_expanded  `native`, which only the machine that it names can expand
//   target.text.bad           any other fault
absl::StatusOr<TargetText> ParseTargetText(std::string_view text);

}  // namespace tilewright::log
