// FleetAdminService of the tuner: forwards each call to the tracker, so that people and CI need one
// address only. Thread-safe.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>

#include "deploy/daemon/server_security.h"
#include "tilewright/v1/fleet_admin.grpc.pb.h"

namespace tilewright::service {

inline constexpr char kFleetAdminServiceName[] = "tilewright.v1.FleetAdminService";

class FleetForwarder final : public v1::FleetAdminService::Service {
 public:
  // `security` names the caller for the tracker's audit log; null: the caller is unknown.
  explicit FleetForwarder(std::shared_ptr<grpc::Channel> tracker,
                          const daemon::ServerSecurity* security = nullptr)
      : stub_(v1::FleetAdminService::NewStub(tracker)), security_(security) {}

  grpc::Status ListDevices(grpc::ServerContext* context, const v1::ListDevicesRequest* request,
                           v1::ListDevicesResponse* response) override;
  grpc::Status GetDevice(grpc::ServerContext* context, const v1::GetDeviceRequest* request,
                         v1::Device* response) override;
  grpc::Status SetDeviceAdminState(grpc::ServerContext* context,
                                   const v1::SetDeviceAdminStateRequest* request,
                                   v1::Device* response) override;
  grpc::Status CreateHold(grpc::ServerContext* context, const v1::CreateHoldRequest* request,
                          v1::Hold* response) override;
  grpc::Status ReleaseHold(grpc::ServerContext* context, const v1::ReleaseHoldRequest* request,
                           google::protobuf::Empty* response) override;
  grpc::Status ResetDevice(grpc::ServerContext* context, const v1::ResetDeviceRequest* request,
                           v1::Device* response) override;
  grpc::Status ForgetDevice(grpc::ServerContext* context, const v1::ForgetDeviceRequest* request,
                            google::protobuf::Empty* response) override;
  grpc::Status ListShares(grpc::ServerContext* context, const v1::ListSharesRequest* request,
                          v1::ListSharesResponse* response) override;

 private:
  // The same call to the tracker, with what remains of the caller's deadline.
  template <typename Request, typename Response>
  grpc::Status Forward(grpc::Status (v1::FleetAdminService::Stub::*method)(grpc::ClientContext*,
                                                                           const Request&,
                                                                           Response*),
                       grpc::ServerContext* caller, const Request* request, Response* response);

  std::unique_ptr<v1::FleetAdminService::Stub> stub_;
  const daemon::ServerSecurity* security_;
};

}  // namespace tilewright::service
