// The tracker's gRPC services: thin handlers that decode, hand a call to the loop, and encode.
// Thread-safe; the loop and the blob store are not owned and outlive the services.
#pragma once

#include <grpcpp/grpcpp.h>

#include "deploy/daemon/blob_store.h"
#include "deploy/daemon/server_security.h"
#include "tilewright/v1/agent.grpc.pb.h"
#include "tilewright/v1/dispatch.grpc.pb.h"
#include "tilewright/v1/fleet_admin.grpc.pb.h"
#include "tracker/tracker_loop.h"

namespace tilewright::tracker {

inline constexpr char kAgentServiceName[] = "tilewright.v1.AgentService";
inline constexpr char kDispatchServiceName[] = "tilewright.v1.DispatchService";
inline constexpr char kFleetAdminServiceName[] = "tilewright.v1.FleetAdminService";

class AgentServiceImpl final : public v1::AgentService::CallbackService {
 public:
  // `security` checks that each agent sends only its own name; null: callers show no identity.
  explicit AgentServiceImpl(TrackerLoop* loop, const daemon::ServerSecurity* security = nullptr)
      : loop_(loop), security_(security) {}

  grpc::ServerUnaryReactor* Sync(grpc::CallbackServerContext* context,
                                 const v1::SyncRequest* request,
                                 v1::SyncResponse* response) override;
  grpc::ServerUnaryReactor* ReportResults(grpc::CallbackServerContext* context,
                                          const v1::ReportResultsRequest* request,
                                          v1::ReportResultsResponse* response) override;

 private:
  absl::Status CheckAgent(grpc::CallbackServerContext* context, const std::string& agent) const;

  TrackerLoop* loop_;
  const daemon::ServerSecurity* security_;
};

class DispatchServiceImpl final : public v1::DispatchService::CallbackService {
 public:
  DispatchServiceImpl(TrackerLoop* loop, const daemon::BlobStore* blobs)
      : loop_(loop), blobs_(blobs) {}

  grpc::ServerUnaryReactor* SubmitWork(grpc::CallbackServerContext* context,
                                       const v1::SubmitWorkRequest* request,
                                       v1::SubmitWorkResponse* response) override;
  grpc::ServerUnaryReactor* PullResults(grpc::CallbackServerContext* context,
                                        const v1::PullResultsRequest* request,
                                        v1::PullResultsResponse* response) override;
  grpc::ServerUnaryReactor* AckResults(grpc::CallbackServerContext* context,
                                       const v1::AckResultsRequest* request,
                                       google::protobuf::Empty* response) override;
  grpc::ServerUnaryReactor* CancelWork(grpc::CallbackServerContext* context,
                                       const v1::CancelWorkRequest* request,
                                       v1::CancelWorkResponse* response) override;
  grpc::ServerUnaryReactor* GetPoolLoad(grpc::CallbackServerContext* context,
                                        const v1::GetPoolLoadRequest* request,
                                        v1::PoolLoad* response) override;

 private:
  TrackerLoop* loop_;
  const daemon::BlobStore* blobs_;
};

class FleetAdminServiceImpl final : public v1::FleetAdminService::CallbackService {
 public:
  explicit FleetAdminServiceImpl(TrackerLoop* loop) : loop_(loop) {}

  grpc::ServerUnaryReactor* ListDevices(grpc::CallbackServerContext* context,
                                        const v1::ListDevicesRequest* request,
                                        v1::ListDevicesResponse* response) override;
  grpc::ServerUnaryReactor* GetDevice(grpc::CallbackServerContext* context,
                                      const v1::GetDeviceRequest* request,
                                      v1::Device* response) override;
  grpc::ServerUnaryReactor* SetDeviceAdminState(grpc::CallbackServerContext* context,
                                                const v1::SetDeviceAdminStateRequest* request,
                                                v1::Device* response) override;
  grpc::ServerUnaryReactor* CreateHold(grpc::CallbackServerContext* context,
                                       const v1::CreateHoldRequest* request,
                                       v1::Hold* response) override;
  grpc::ServerUnaryReactor* ReleaseHold(grpc::CallbackServerContext* context,
                                        const v1::ReleaseHoldRequest* request,
                                        google::protobuf::Empty* response) override;
  grpc::ServerUnaryReactor* ResetDevice(grpc::CallbackServerContext* context,
                                        const v1::ResetDeviceRequest* request,
                                        v1::Device* response) override;
  grpc::ServerUnaryReactor* ForgetDevice(grpc::CallbackServerContext* context,
                                         const v1::ForgetDeviceRequest* request,
                                         google::protobuf::Empty* response) override;
  grpc::ServerUnaryReactor* ListShares(grpc::CallbackServerContext* context,
                                       const v1::ListSharesRequest* request,
                                       v1::ListSharesResponse* response) override;

 private:
  TrackerLoop* loop_;
};

}  // namespace tilewright::tracker
