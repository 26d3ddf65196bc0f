#include "tuner_server/service/fleet_forwarder.h"

#include <cstdint>

#include "deploy/daemon/wire.h"
#include "deploy/support/status.h"

namespace tilewright::service {
namespace {

using Stub = v1::FleetAdminService::Stub;

constexpr int64_t kTimeoutMs = 10'000;

// The same call to the tracker, with what remains of the caller's deadline.
template <typename Request, typename Response>
grpc::Status Forward(Stub* stub,
                     grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Response*),
                     grpc::ServerContext* caller, const Request* request, Response* response) {
  const std::unique_ptr<grpc::ClientContext> context =
      grpc::ClientContext::FromServerContext(*caller);
  daemon::SetTimeout(context.get(), kTimeoutMs);  // the caller's own deadline holds as well
  const absl::Status status = daemon::FromGrpc((stub->*method)(context.get(), *request, response));
  if (status.ok()) return grpc::Status::OK;
  return daemon::ToGrpc(support::WithContext(status, "tracker"));
}

}  // namespace

grpc::Status FleetForwarder::ListDevices(grpc::ServerContext* context,
                                         const v1::ListDevicesRequest* request,
                                         v1::ListDevicesResponse* response) {
  return Forward(stub_.get(), &Stub::ListDevices, context, request, response);
}

grpc::Status FleetForwarder::GetDevice(grpc::ServerContext* context,
                                       const v1::GetDeviceRequest* request, v1::Device* response) {
  return Forward(stub_.get(), &Stub::GetDevice, context, request, response);
}

grpc::Status FleetForwarder::SetDeviceAdminState(grpc::ServerContext* context,
                                                 const v1::SetDeviceAdminStateRequest* request,
                                                 v1::Device* response) {
  return Forward(stub_.get(), &Stub::SetDeviceAdminState, context, request, response);
}

grpc::Status FleetForwarder::CreateHold(grpc::ServerContext* context,
                                        const v1::CreateHoldRequest* request, v1::Hold* response) {
  return Forward(stub_.get(), &Stub::CreateHold, context, request, response);
}

grpc::Status FleetForwarder::ReleaseHold(grpc::ServerContext* context,
                                         const v1::ReleaseHoldRequest* request,
                                         google::protobuf::Empty* response) {
  return Forward(stub_.get(), &Stub::ReleaseHold, context, request, response);
}

grpc::Status FleetForwarder::ListShares(grpc::ServerContext* context,
                                        const v1::ListSharesRequest* request,
                                        v1::ListSharesResponse* response) {
  return Forward(stub_.get(), &Stub::ListShares, context, request, response);
}

}  // namespace tilewright::service
