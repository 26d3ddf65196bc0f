#include "tuner_server/modules/retention.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>

namespace tilewright::modules {
namespace {

// How many kept versions have each content, and their bytes in all.
class Contents {
 public:
  void Add(const log::ModuleVersionRow& version) {
    if (++users_[version.sha256] == 1) bytes_ += version.size;
  }
  // The bytes that this frees.
  int64_t Drop(const log::ModuleVersionRow& version) {
    if (--users_[version.sha256] > 0) return 0;
    bytes_ -= version.size;
    return version.size;
  }
  int64_t bytes() const { return bytes_; }

 private:
  std::map<std::string, int64_t> users_;
  int64_t bytes_ = 0;
};

}  // namespace

PruneReport PlanPruning(const std::vector<log::ModuleVersionRow>& versions,
                        const std::vector<log::ModuleAliasRow>& aliases,
                        const RetentionPolicy& policy) {
  std::set<std::pair<std::string, int64_t>> aliased;
  for (const log::ModuleAliasRow& alias : aliases) aliased.emplace(alias.module, alias.number);
  Contents contents;
  std::map<std::string, int64_t> seen;
  std::vector<std::pair<const log::ModuleVersionRow*, bool>> droppable;  // and whether it must go
  for (const log::ModuleVersionRow& version : versions) {
    contents.Add(version);
    const int64_t newer = seen[version.module]++;
    if (newer == 0 || aliased.count({version.module, version.number}) != 0) continue;
    droppable.emplace_back(&version, policy.keep_versions > 0 && newer >= policy.keep_versions);
  }
  std::reverse(droppable.begin(), droppable.end());
  PruneReport report;
  // What is too many goes first: it may be enough.
  for (auto& [version, must_go] : droppable) {
    if (!must_go) continue;
    report.freed_bytes += contents.Drop(*version);
    report.pruned.push_back(*version);
  }
  for (auto& [version, gone] : droppable) {
    if (gone || policy.max_bytes <= 0 || contents.bytes() <= policy.max_bytes) continue;
    report.freed_bytes += contents.Drop(*version);
    report.pruned.push_back(*version);
  }
  report.kept_bytes = contents.bytes();
  report.within_limits = policy.max_bytes <= 0 || report.kept_bytes <= policy.max_bytes;
  return report;
}

}  // namespace tilewright::modules
