// Answers enrolment (deploy/security/enrolment.h) for a tracker, on a listener of its own. Callers
// have no certificate there. So answers reveal little, calls are rate limited, and each call leaves
// a line in the audit log. Thread-safe.
#pragma once

#include <string>

#include "deploy/daemon/server_security.h"
#include "deploy/security/enrolment.h"
#include "deploy/security/rate_limiter.h"
#include "deploy/support/clock.h"
#include "tilewright/v1/enrolment.grpc.pb.h"

namespace tilewright::tracker {

inline constexpr char kEnrolmentServiceName[] = "tilewright.v1.EnrolmentService";
// Largest request.
inline constexpr int kMaxEnrolmentBytes = 64 << 10;

class EnrolmentServiceImpl final : public v1::EnrolmentService::Service {
 public:
  // `security` keeps the audit log. Neither it nor the clock is owned.
  EnrolmentServiceImpl(security::EnrolmentFiles files, daemon::ServerSecurity* security,
                       support::Clock* clock)
      : files_(std::move(files)), security_(security), clock_(clock), rates_(clock) {}

  grpc::Status GetAuthority(grpc::ServerContext* context, const v1::GetAuthorityRequest* request,
                            v1::GetAuthorityResponse* response) override;
  grpc::Status Enrol(grpc::ServerContext* context, const v1::EnrolRequest* request,
                     v1::EnrolResponse* response) override;

 private:
  // resource_exhausted (enrol.rate) for a host, or all together, that ask too often.
  absl::Status Admit(const grpc::ServerContext& context);
  absl::Status Answer(const v1::EnrolRequest& request, v1::EnrolResponse* response);

  const security::EnrolmentFiles files_;
  daemon::ServerSecurity* const security_;
  support::Clock* const clock_;
  security::RateLimiter rates_;
};

}  // namespace tilewright::tracker
