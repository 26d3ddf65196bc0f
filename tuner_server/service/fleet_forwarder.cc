#include "tuner_server/service/fleet_forwarder.h"

#include <cstdint>

#include "deploy/daemon/wire.h"
#include "deploy/support/status.h"

namespace tilewright::service {
namespace {

using Stub = v1::FleetAdminService::Stub;

constexpr int64_t kTimeoutMs = 10'000;

}  // namespace

template <typename Request, typename Response>
grpc::Status FleetForwarder::Forward(grpc::Status (Stub::*method)(grpc::ClientContext*,
                                                                  const Request&, Response*),
                                     grpc::ServerContext* caller, const Request* request,
                                     Response* response) {
  const std::unique_ptr<grpc::ClientContext> context =
      grpc::ClientContext::FromServerContext(*caller);
  if (security_ != nullptr) {
    context->AddMetadata(daemon::kOnBehalfKey, security_->CallerText(*caller));
  }
  daemon::SetTimeout(context.get(), kTimeoutMs);  // the caller's own deadline holds as well
  const absl::Status status =
      daemon::FromGrpc((stub_.get()->*method)(context.get(), *request, response));
  if (status.ok()) return grpc::Status::OK;
  return daemon::ToGrpc(support::WithContext(status, "tracker"));
}

grpc::Status FleetForwarder::ListDevices(grpc::ServerContext* context,
                                         const v1::ListDevicesRequest* request,
                                         v1::ListDevicesResponse* response) {
  return Forward(&Stub::ListDevices, context, request, response);
}

grpc::Status FleetForwarder::GetDevice(grpc::ServerContext* context,
                                       const v1::GetDeviceRequest* request, v1::Device* response) {
  return Forward(&Stub::GetDevice, context, request, response);
}

grpc::Status FleetForwarder::SetDeviceAdminState(grpc::ServerContext* context,
                                                 const v1::SetDeviceAdminStateRequest* request,
                                                 v1::Device* response) {
  return Forward(&Stub::SetDeviceAdminState, context, request, response);
}

grpc::Status FleetForwarder::CreateHold(grpc::ServerContext* context,
                                        const v1::CreateHoldRequest* request, v1::Hold* response) {
  return Forward(&Stub::CreateHold, context, request, response);
}

grpc::Status FleetForwarder::ReleaseHold(grpc::ServerContext* context,
                                         const v1::ReleaseHoldRequest* request,
                                         google::protobuf::Empty* response) {
  return Forward(&Stub::ReleaseHold, context, request, response);
}

grpc::Status FleetForwarder::ResetDevice(grpc::ServerContext* context,
                                         const v1::ResetDeviceRequest* request,
                                         v1::Device* response) {
  return Forward(&Stub::ResetDevice, context, request, response);
}

grpc::Status FleetForwarder::ForgetDevice(grpc::ServerContext* context,
                                          const v1::ForgetDeviceRequest* request,
                                          google::protobuf::Empty* response) {
  return Forward(&Stub::ForgetDevice, context, request, response);
}

grpc::Status FleetForwarder::ListShares(grpc::ServerContext* context,
                                        const v1::ListSharesRequest* request,
                                        v1::ListSharesResponse* response) {
  return Forward(&Stub::ListShares, context, request, response);
}

}  // namespace tilewright::service
