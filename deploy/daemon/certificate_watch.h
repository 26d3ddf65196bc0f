// Looks after the certificate of a daemon's identity: its end as a metric that follows a renewal
// within seconds, and a warning in the log once a day when the end is near. One thread;
// thread-safe.
#pragma once

#include <memory>
#include <string>
#include <thread>

#include "deploy/daemon/metrics.h"
#include "deploy/support/clock.h"
#include "deploy/support/mutex.h"

namespace tilewright::daemon {

inline constexpr int64_t kCertificateLookMs = 5'000;

class CertificateWatch {
 public:
  // Looks once before it returns, then every `look_ms`. Metrics and clock are not owned.
  CertificateWatch(std::string identity, Metrics* metrics, support::Clock* clock,
                   int64_t look_ms = kCertificateLookMs);
  ~CertificateWatch();

 private:
  void Loop(int64_t look_ms);
  void Look();

  const std::string path_;
  Metrics* const metrics_;
  support::Clock* const clock_;
  bool readable_ = true;  // at the last look; of the thread
  int64_t next_warning_s_ = 0;
  support::Mutex mutex_;
  support::CondVar wake_;
  bool stopping_ TW_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace tilewright::daemon
