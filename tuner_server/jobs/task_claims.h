// Which job is at work on which task, for jobs that run beside each other and share tasks (models
// of one family, users with the same one): a task is searched by one job at a time, and what that
// job measures serves all of them. A job holds a task only while trials of it are open or being
// asked for, so that the others get their turn, and everybody's urgency and budget counts.
//
// Nothing here must last: holders are known from the open trials in the log (RestoreClaims in
// job_recall.h). Thread-safe. Times are of the caller's monotonic clock, in nanoseconds.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "deploy/support/mutex.h"

namespace tilewright::jobs {

class TaskClaims {
 public:
  // A holder without any news of its task for so long keeps nobody away any more: its user may
  // have no device left, say.
  static constexpr int64_t kPatienceNs = int64_t{10} * 60 * 1'000'000'000;

  // `job` is at work on the task from now on, true; unless another one is, false.
  bool Take(const std::string& task, const std::string& job, int64_t now_ns);
  // The same whoever else is: the job has open trials of it.
  void Restore(const std::string& task, const std::string& job, int64_t now_ns);
  // The holder has news of the task.
  void Renew(const std::string& task, const std::string& job, int64_t now_ns);
  void Release(const std::string& task, const std::string& job);
  void ReleaseAll(const std::string& job);
  // The job that keeps `job` away from the task; empty: none.
  std::string BarredBy(const std::string& task, const std::string& job, int64_t now_ns);

  // Somebody stored a record of the task with this hash.
  void NoteRecord(const std::string& task_hash);
  // How many were noted.
  int64_t Noted(const std::string& task_hash);

 private:
  std::string Holder(const std::string& task, const std::string& except, int64_t now_ns)
      TW_REQUIRES(mutex_);

  support::Mutex mutex_;
  // By task, then by job: when it last had news.
  std::map<std::string, std::map<std::string, int64_t>> holders_ TW_GUARDED_BY(mutex_);
  std::map<std::string, int64_t> noted_ TW_GUARDED_BY(mutex_);
};

}  // namespace tilewright::jobs
