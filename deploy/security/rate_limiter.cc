#include "deploy/security/rate_limiter.h"

#include <algorithm>

namespace tilewright::security {

void RateLimiter::Refill(Bucket* bucket, int64_t now_ns) {
  const double seconds = static_cast<double>(now_ns - bucket->at_ns) * 1e-9;
  bucket->left = std::min(bucket->burst, bucket->left + seconds * bucket->per_second);
  bucket->at_ns = now_ns;
}

void RateLimiter::ForgetFull(int64_t now_ns) {
  for (auto it = buckets_.begin(); it != buckets_.end();) {
    Refill(&it->second, now_ns);
    it = it->second.left >= it->second.burst ? buckets_.erase(it) : std::next(it);
  }
}

bool RateLimiter::Take(const std::string& key, const RateLimit& limit) {
  const int64_t now_ns = clock_->NowNs();
  support::MutexLock lock(mutex_);
  auto found = buckets_.find(key);
  if (found == buckets_.end()) {
    if (buckets_.size() >= max_keys_) ForgetFull(now_ns);
    if (buckets_.size() >= max_keys_) return false;
    found = buckets_.emplace(key, Bucket{limit.burst, limit.burst, limit.per_second, now_ns}).first;
  }
  Bucket& bucket = found->second;
  Refill(&bucket, now_ns);
  if (bucket.left < 1) return false;
  bucket.left -= 1;
  return true;
}

}  // namespace tilewright::security
