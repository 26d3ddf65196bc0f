// Which module versions may lose their bytes. Pure functions over rows.
//
// Two kinds of versions are always kept: those that an alias names, and the newest of each module.
#pragma once

#include <cstdint>
#include <vector>

#include "tuner_server/log/log_types.h"

namespace tilewright::modules {

struct RetentionPolicy {
  int64_t keep_versions = 0;  // how many of the newest of each module stay; 0: no limit
  int64_t max_bytes = 0;      // of all modules together; equal bytes count once; 0: no limit

  bool limits() const { return keep_versions > 0 || max_bytes > 0; }
};

struct PruneReport {
  std::vector<log::ModuleVersionRow> pruned;  // oldest first
  int64_t freed_bytes = 0;                    // bytes that no kept version has
  int64_t kept_bytes = 0;
  bool within_limits = true;  // false: the versions that must stay have more than max_bytes
};

// Returns what to drop. `versions`: all that have their bytes, newest first.
PruneReport PlanPruning(const std::vector<log::ModuleVersionRow>& versions,
                        const std::vector<log::ModuleAliasRow>& aliases,
                        const RetentionPolicy& policy);

}  // namespace tilewright::modules
