// Token buckets by key: a burst, then a steady number a second. Thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "deploy/security/access.h"
#include "deploy/support/clock.h"
#include "deploy/support/mutex.h"

namespace tilewright::security {

class RateLimiter {
 public:
  // The clock is not owned. With more than max_keys, keys whose buckets are full are dropped.
  explicit RateLimiter(support::Clock* clock, size_t max_keys = 100'000)
      : clock_(clock), max_keys_(max_keys) {}

  // Takes one from the key's bucket. Returns false if the bucket is empty.
  bool Take(const std::string& key, const RateLimit& limit) TW_EXCLUDES(mutex_);

 private:
  struct Bucket {
    double left = 0;
    double burst = 0;
    double per_second = 0;
    int64_t at_ns = 0;
  };
  static void Refill(Bucket* bucket, int64_t now_ns);
  void ForgetFull(int64_t now_ns) TW_REQUIRES(mutex_);

  support::Clock* const clock_;
  const size_t max_keys_;
  support::Mutex mutex_;
  std::map<std::string, Bucket> buckets_ TW_GUARDED_BY(mutex_);
};

}  // namespace tilewright::security
