// Which module versions a server may give up. Pure functions over rows.
//
// Kept whatever the policy says: a version that an alias names, and the newest of each module.
#pragma once

#include <cstdint>
#include <vector>

#include "tuner_server/log/log_types.h"

namespace tilewright::modules {

struct RetentionPolicy {
  int64_t keep_versions = 0;  // of the newest of each module; 0: no limit
  int64_t max_bytes = 0;      // of all modules together, each content counted once; 0: no limit

  bool limits() const { return keep_versions > 0 || max_bytes > 0; }
};

struct PruneReport {
  std::vector<log::ModuleVersionRow> pruned;  // oldest first
  int64_t freed_bytes = 0;                    // of contents that no kept version has
  int64_t kept_bytes = 0;
  bool within_limits = true;  // false: what must be kept is more than max_bytes
};

// `versions`: all that have their bytes, newest first.
PruneReport PlanPruning(const std::vector<log::ModuleVersionRow>& versions,
                        const std::vector<log::ModuleAliasRow>& aliases,
                        const RetentionPolicy& policy);

}  // namespace tilewright::modules
