#include "tuner_server/jobs/job_versions.h"

namespace tilewright::jobs {

void JobVersions::Rise(const std::string& job) {
  int64_t& version = by_job_[job];
  if (version != 0) by_version_.erase(version);
  version = ++newest_;
  by_version_.emplace(version, job);
  while (by_job_.size() > max_jobs_) {
    const auto oldest = by_version_.begin();
    forgotten_ = oldest->first;
    by_job_.erase(oldest->second);
    by_version_.erase(oldest);
  }
}

int64_t JobVersions::Of(const std::string& job) const {
  const auto it = by_job_.find(job);
  return it == by_job_.end() ? forgotten_ : it->second;
}

}  // namespace tilewright::jobs
