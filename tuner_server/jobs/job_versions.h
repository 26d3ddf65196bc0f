// A version number for each job, which rises whenever the job may have changed. Streams wait for
// it. Only the jobs that changed last are kept. All others have the version of the newest job that
// was forgotten, so the version of a job may rise once without a change. Not thread-safe.
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
