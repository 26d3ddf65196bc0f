#include "tracker/enrolment_service.h"

#include <utility>

#include "deploy/daemon/daemon_log.h"
#include "deploy/daemon/wire.h"
#include "deploy/security/identity.h"
#include "deploy/support/file.h"

namespace tilewright::tracker {
namespace {

// An enrolment is two calls. Of all hosts together: what a rack that is set up at once needs.
constexpr security::RateLimit kPerHost{0.5, 10};
constexpr security::RateLimit kAltogether{20, 200};

}  // namespace

absl::Status EnrolmentServiceImpl::Admit(const grpc::ServerContext& context) {
  if (rates_.Take(daemon::PeerHost(context.peer()), kPerHost) && rates_.Take("", kAltogether)) {
    return absl::OkStatus();
  }
  return support::ResourceExhausted("enrol.rate", "too many calls; wait a minute");
}

grpc::Status EnrolmentServiceImpl::GetAuthority(grpc::ServerContext* context,
                                                const v1::GetAuthorityRequest*,
                                                v1::GetAuthorityResponse* response) {
  const auto answer = [&]() -> absl::Status {
    TW_TRY(Admit(*context));
    TW_ASSIGN(*response->mutable_authorities_pem(),
              support::ReadFile(support::PathJoin(files_.authority, security::kAuthorityFile),
                                security::kMaxPemBytes));
    return absl::OkStatus();
  };
  return daemon::ToGrpc(answer());
}

absl::Status EnrolmentServiceImpl::Answer(const v1::EnrolRequest& request,
                                          v1::EnrolResponse* response) {
  TW_ASSIGN(security::Enrolled enrolled,
            security::Enrol(files_, {request.ticket(), request.name(), request.request_pem()},
                            clock_->WallMicros() / 1'000'000));
  response->set_name(enrolled.name);
  response->set_certificate_pem(std::move(enrolled.identity.certificate));
  response->set_authorities_pem(std::move(enrolled.identity.authorities));
  response->set_revocations_pem(std::move(enrolled.identity.revocations));
  response->set_token(std::move(enrolled.token));
  return absl::OkStatus();
}

grpc::Status EnrolmentServiceImpl::Enrol(grpc::ServerContext* context,
                                         const v1::EnrolRequest* request,
                                         v1::EnrolResponse* response) {
  // Who asks too often fills no log, either.
  const absl::Status admitted = Admit(*context);
  if (!admitted.ok()) return daemon::ToGrpc(admitted);
  const absl::Status status = Answer(*request, response);
  security::AuditEntry entry;
  // The ticket's number says which; its secret is nobody's business.
  if (const auto ticket = security::ParseTicket(request->ticket()); ticket.ok()) {
    entry.token = ticket->id;
  }
  entry.from = daemon::PeerHost(context->peer());
  entry.method = "/" + std::string(kEnrolmentServiceName) + "/Enrol";
  if (status.ok()) entry.what = "agents/" + response->name();
  entry.outcome = absl::StatusCodeToString(status.code());
  entry.detail = support::Slug(status);
  security_->Record(entry, status);
  if (status.ok()) {
    daemon::LogInfo("enrol.done", {{"agent", response->name()}, {"ticket", entry.token}});
  } else {
    daemon::LogWarning(
        "enrol.refused",
        {{"from", entry.from}, {"ticket", entry.token}, {"error", support::StatusText(status)}});
  }
  return daemon::ToGrpc(status);
}

}  // namespace tilewright::tracker
