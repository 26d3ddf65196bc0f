// A number for each job that rises whenever something of the job may have changed, for streams that
// wait for news. Of any number of jobs over the months of a server it keeps the latest to change:
// for the others the number is that of the newest one forgotten, so that it rises once more when
// its job is forgotten, without news. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

namespace tilewright::jobs {

class JobVersions {
 public:
  // REQUIRES: max_jobs is at least 1.
  explicit JobVersions(size_t max_jobs = 10'000) : max_jobs_(max_jobs) {}

  void Rise(const std::string& job);
  int64_t Of(const std::string& job) const;
  size_t size() const { return by_job_.size(); }

 private:
  const size_t max_jobs_;
  int64_t newest_ = 0;     // of all jobs
  int64_t forgotten_ = 0;  // the newest of those forgotten
  std::map<std::string, int64_t> by_job_;
  std::map<int64_t, std::string> by_version_;
};

}  // namespace tilewright::jobs
