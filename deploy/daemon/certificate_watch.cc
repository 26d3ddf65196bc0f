#include "deploy/daemon/certificate_watch.h"

#include <utility>

#include "deploy/daemon/daemon_log.h"
#include "deploy/security/identity.h"
#include "deploy/support/file.h"

namespace tilewright::daemon {
namespace {

constexpr int64_t kWarnDays = 14;
constexpr int64_t kDayS = 86'400;

}  // namespace

CertificateWatch::CertificateWatch(std::string identity, Metrics* metrics, support::Clock* clock,
                                   int64_t look_ms)
    : path_(support::PathJoin(identity, security::kCertificateFile)),
      metrics_(metrics),
      clock_(clock) {
  Look();
  thread_ = std::thread([this, look_ms] { Loop(look_ms); });
}

CertificateWatch::~CertificateWatch() {
  {
    support::MutexLock lock(mutex_);
    stopping_ = true;
  }
  wake_.NotifyAll();
  thread_.join();
}

void CertificateWatch::Loop(int64_t look_ms) {
  for (;;) {
    {
      support::MutexLock lock(mutex_);
      if (!stopping_) wake_.WaitForMs(mutex_, look_ms);
      if (stopping_) return;
    }
    Look();
  }
}

void CertificateWatch::Look() {
  const auto pem = support::ReadFile(path_, security::kMaxPemBytes);
  const auto infos = security::ReadCertificates(pem.value_or(""), path_);
  if (!infos.ok()) {
    if (std::exchange(readable_, false)) {
      LogError("identity.certificate.unreadable", {{"error", support::StatusText(infos.status())}});
    }
    return;
  }
  readable_ = true;
  const int64_t end_s = infos->front().not_after_s;
  metrics_
      ->Gauge("tilewright_certificate_expiry_timestamp_seconds",
              "end of the daemon's own certificate, seconds since 1970")
      .Set(static_cast<double>(end_s));
  const int64_t now_s = clock_->WallMicros() / 1'000'000;
  const int64_t days = (end_s - now_s) / kDayS;
  if (days >= kWarnDays || now_s < next_warning_s_) return;
  next_warning_s_ = now_s + kDayS;
  LogWarning("identity.certificate.ends",
             {{"days_left", days}, {"message", "'tilewright certs renew' it"}});
}

}  // namespace tilewright::daemon
