// Which job works on which task. Jobs that run at the same time may share tasks: models of one
// family, or users with the same model. One job at a time searches a task, and all of them use what
// it measures. A job holds a task only while it has open trials of it or asks for some. Then the
// other jobs get their turn, so the budgets of all of them count.
//
// Nothing here is stored: after a restart the open trials in the log say who holds what
// (RestoreClaims in job_recall.h). Thread-safe. Times are nanoseconds of the caller's monotonic
// clock.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "deploy/support/mutex.h"

namespace tilewright::jobs {

class TaskClaims {
 public:
  // A holder that had no new record for so long no longer keeps other jobs away. Its user may have
  // no device left, for example.
  static constexpr int64_t kPatienceNs = int64_t{10} * 60 * 1'000'000'000;

  // Makes `job` the holder of the task and returns true. Returns false if another job holds it.
  bool Take(const std::string& task, const std::string& job, int64_t now_ns);
  // Makes `job` a holder even if there are others: it has open trials of the task.
  void Restore(const std::string& task, const std::string& job, int64_t now_ns);
  // The holder has a new record of the task.
  void Renew(const std::string& task, const std::string& job, int64_t now_ns);
  void Release(const std::string& task, const std::string& job);
  void ReleaseAll(const std::string& job);
  // Returns the job that keeps `job` away from the task; empty: none.
  std::string BarredBy(const std::string& task, const std::string& job, int64_t now_ns);

  // Counts a stored record of the task with this hash.
  void NoteRecord(const std::string& task_hash);
  // Returns how many were counted.
  int64_t Noted(const std::string& task_hash);

 private:
  std::string Holder(const std::string& task, const std::string& except, int64_t now_ns)
      TW_REQUIRES(mutex_);

  support::Mutex mutex_;
  // By task, then by job: the time of its last record.
  std::map<std::string, std::map<std::string, int64_t>> holders_ TW_GUARDED_BY(mutex_);
  std::map<std::string, int64_t> noted_ TW_GUARDED_BY(mutex_);
};

}  // namespace tilewright::jobs
