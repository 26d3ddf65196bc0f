#include "deploy/daemon/enrolment_client.h"

#include <grpcpp/grpcpp.h>
#include <grpcpp/security/tls_certificate_verifier.h>
#include <grpcpp/security/tls_credentials_options.h>

#include <memory>

#include "deploy/daemon/wire.h"
#include "deploy/security/certificate_request.h"
#include "deploy/security/enrolment.h"
#include "deploy/security/identity.h"
#include "deploy/support/file.h"
#include "tilewright/v1/enrolment.grpc.pb.h"

namespace tilewright::daemon {
namespace {

// TLS to whoever answers: nothing secret goes over it, and nothing that comes is believed.
std::shared_ptr<grpc::ChannelCredentials> AnybodysCredentials() {
  grpc::experimental::TlsChannelCredentialsOptions options;
  options.set_verify_server_certs(false);
  options.set_check_call_host(false);
  options.set_certificate_verifier(std::make_shared<grpc::experimental::NoOpCertificateVerifier>());
  return grpc::experimental::TlsCredentials(options);
}

absl::StatusOr<std::string> FetchAuthority(const EnrolmentOptions& options,
                                           const std::string& pin) {
  const auto stub =
      v1::EnrolmentService::NewStub(grpc::CreateChannel(options.address, AnybodysCredentials()));
  v1::GetAuthorityResponse response;
  grpc::ClientContext context;
  SetTimeout(&context, options.timeout_ms);
  TW_TRY(FromGrpc(stub->GetAuthority(&context, v1::GetAuthorityRequest(), &response)));
  return security::PinnedAuthority(response.authorities_pem(), pin);
}

// The token comes before the certificate, whose being there means that all is there.
absl::Status WriteIdentity(const std::string& folder, const v1::EnrolResponse& response,
                           support::Clock* clock) {
  TW_TRY(support::WriteFileAtomic(support::PathJoin(folder, security::kTokenFile),
                                  response.token() + "\n", 0600));
  security::IdentityFiles files;
  files.authorities = response.authorities_pem();
  files.certificate = response.certificate_pem();
  files.revocations = response.revocations_pem();
  TW_TRY(security::ReplaceIdentity(folder, files));
  return security::LoadIdentity(folder, clock->WallMicros() / 1'000'000).status();
}

}  // namespace

absl::StatusOr<std::string> EnrolIdentity(const EnrolmentOptions& options, support::Clock* clock) {
  TW_ASSIGN(const security::TicketText ticket, security::ParseTicket(options.ticket));
  TW_TRY(security::RequestIdentity(options.identity).status());
  v1::EnrolRequest request;
  request.set_ticket(options.ticket);
  request.set_name(options.name);
  TW_ASSIGN(*request.mutable_request_pem(),
            support::ReadFile(support::PathJoin(options.identity, security::kRequestFile),
                              security::kMaxPemBytes));
  TW_ASSIGN(const std::string authority, FetchAuthority(options, ticket.authority));
  grpc::SslCredentialsOptions trusted;
  trusted.pem_root_certs = authority;
  const auto stub = v1::EnrolmentService::NewStub(
      grpc::CreateChannel(options.address, grpc::SslCredentials(trusted)));
  v1::EnrolResponse response;
  grpc::ClientContext context;
  SetTimeout(&context, options.timeout_ms);
  TW_TRY(FromGrpc(stub->Enrol(&context, request, &response)));
  TW_TRY(WriteIdentity(options.identity, response, clock));
  return response.name();
}

}  // namespace tilewright::daemon
