#include "tuner_server/jobs/task_claims.h"

#include <iterator>

namespace tilewright::jobs {

using support::MutexLock;

std::string TaskClaims::Holder(const std::string& task, const std::string& except, int64_t now_ns) {
  const auto holders = holders_.find(task);
  if (holders == holders_.end()) return "";
  for (const auto& [job, news_ns] : holders->second) {
    if (job != except && now_ns - news_ns < kPatienceNs) return job;
  }
  return "";
}

bool TaskClaims::Take(const std::string& task, const std::string& job, int64_t now_ns) {
  MutexLock lock(mutex_);
  if (!Holder(task, job, now_ns).empty()) return false;
  holders_[task][job] = now_ns;
  return true;
}

void TaskClaims::Restore(const std::string& task, const std::string& job, int64_t now_ns) {
  MutexLock lock(mutex_);
  holders_[task][job] = now_ns;
}

void TaskClaims::Renew(const std::string& task, const std::string& job, int64_t now_ns) {
  MutexLock lock(mutex_);
  const auto holders = holders_.find(task);
  if (holders == holders_.end()) return;
  const auto holder = holders->second.find(job);
  if (holder != holders->second.end()) holder->second = now_ns;
}

void TaskClaims::Release(const std::string& task, const std::string& job) {
  MutexLock lock(mutex_);
  const auto holders = holders_.find(task);
  if (holders == holders_.end()) return;
  holders->second.erase(job);
  if (holders->second.empty()) holders_.erase(holders);
}

void TaskClaims::ReleaseAll(const std::string& job) {
  MutexLock lock(mutex_);
  for (auto it = holders_.begin(); it != holders_.end();) {
    it->second.erase(job);
    it = it->second.empty() ? holders_.erase(it) : std::next(it);
  }
}

std::string TaskClaims::BarredBy(const std::string& task, const std::string& job, int64_t now_ns) {
  MutexLock lock(mutex_);
  return Holder(task, job, now_ns);
}

void TaskClaims::NoteRecord(const std::string& task_hash) {
  MutexLock lock(mutex_);
  ++noted_[task_hash];
}

int64_t TaskClaims::Noted(const std::string& task_hash) {
  MutexLock lock(mutex_);
  const auto it = noted_.find(task_hash);
  return it == noted_.end() ? 0 : it->second;
}

}  // namespace tilewright::jobs
