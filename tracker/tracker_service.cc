#include "tracker/tracker_service.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "deploy/daemon/wire.h"
#include "tracker/tracker_calls.h"

namespace tilewright::tracker {
namespace {

constexpr int kDefaultPageSize = 50;
constexpr int kMaxPageSize = 1000;
constexpr size_t kMaxPageBytes = 2 << 20;  // devices may have long attributes

// Hands a call to the loop; the reactor finishes when the loop says so.
grpc::ServerUnaryReactor* Start(TrackerLoop* loop, grpc::CallbackServerContext* context,
                                LoopCall call) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  call.finish = [reactor](const absl::Status& status) { reactor->Finish(daemon::ToGrpc(status)); };
  loop->Post(std::move(call));
  return reactor;
}

grpc::ServerUnaryReactor* Refuse(grpc::CallbackServerContext* context, const absl::Status& why) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(daemon::ToGrpc(why));
  return reactor;
}

grpc::ServerUnaryReactor* StartSimple(TrackerLoop* loop, grpc::CallbackServerContext* context,
                                      std::function<absl::Status(DevicePool&, Now)> apply) {
  LoopCall call;
  call.apply = std::move(apply);
  return Start(loop, context, std::move(call));
}

absl::Status RevokedMeanwhile() {
  return support::MakeError(absl::StatusCode::kUnauthenticated, "auth.certificate.revoked",
                            "the agent's certificate was revoked");
}

}  // namespace

absl::Status AgentServiceImpl::CheckAgent(grpc::CallbackServerContext* context,
                                          const std::string& agent) const {
  return security_ == nullptr ? absl::OkStatus() : security_->CheckAgent(*context, agent);
}

grpc::ServerUnaryReactor* AgentServiceImpl::Sync(grpc::CallbackServerContext* context,
                                                 const v1::SyncRequest* request,
                                                 v1::SyncResponse* response) {
  const absl::Status checked = CheckAgent(context, request->agent());
  if (!checked.ok()) return Refuse(context, checked);
  const bool secure = security_ != nullptr && security_->secure();
  LoopCall call = SyncCall(request, response, daemon::PeerHost(context->peer()),
                           secure ? security_->CredentialOf(*context) : "");
  // A call that is held while its certificate is revoked ends; the next one is refused at the door.
  const auto is_revoked = [context, security = secure ? security_ : nullptr] {
    return security != nullptr && security->IsRevoked(*context);
  };
  call.cancelled = [context, is_revoked] { return context->IsCancelled() || is_revoked(); };
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  call.finish = [reactor, is_revoked](const absl::Status& status) {
    reactor->Finish(daemon::ToGrpc(is_revoked() ? RevokedMeanwhile() : status));
  };
  loop_->Post(std::move(call));
  return reactor;
}

grpc::ServerUnaryReactor* AgentServiceImpl::ReportResults(grpc::CallbackServerContext* context,
                                                          const v1::ReportResultsRequest* request,
                                                          v1::ReportResultsResponse* response) {
  const absl::Status checked = CheckAgent(context, request->agent());
  if (!checked.ok()) return Refuse(context, checked);
  return Start(loop_, context, ReportCall(request, response, daemon::PeerHost(context->peer())));
}

grpc::ServerUnaryReactor* DispatchServiceImpl::SubmitWork(grpc::CallbackServerContext* context,
                                                          const v1::SubmitWorkRequest* request,
                                                          v1::SubmitWorkResponse* response) {
  return Start(loop_, context, SubmitCall(request, response, blobs_));
}

grpc::ServerUnaryReactor* DispatchServiceImpl::PullResults(grpc::CallbackServerContext* context,
                                                           const v1::PullResultsRequest* request,
                                                           v1::PullResultsResponse* response) {
  LoopCall call = PullCall(request, response);
  call.cancelled = [context] { return context->IsCancelled(); };
  return Start(loop_, context, std::move(call));
}

grpc::ServerUnaryReactor* DispatchServiceImpl::AckResults(grpc::CallbackServerContext* context,
                                                          const v1::AckResultsRequest* request,
                                                          google::protobuf::Empty*) {
  return StartSimple(loop_, context,
                     [request](DevicePool& pool, Now) { return pool.Acknowledge(*request); });
}

grpc::ServerUnaryReactor* DispatchServiceImpl::CancelWork(grpc::CallbackServerContext* context,
                                                          const v1::CancelWorkRequest* request,
                                                          v1::CancelWorkResponse* response) {
  return StartSimple(loop_, context, [request, response](DevicePool& pool, Now now) {
    *response = pool.Cancel(*request, now);
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* DispatchServiceImpl::GetPoolLoad(grpc::CallbackServerContext* context,
                                                           const v1::GetPoolLoadRequest* request,
                                                           v1::PoolLoad* response) {
  return StartSimple(loop_, context, [request, response](DevicePool& pool, Now now) {
    TW_TRY(ValidateRequirement({request->pool(), request->target(), ""}));
    *response = pool.Load(*request, now);
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* FleetAdminServiceImpl::ListDevices(grpc::CallbackServerContext* context,
                                                             const v1::ListDevicesRequest* request,
                                                             v1::ListDevicesResponse* response) {
  return StartSimple(loop_, context, [request, response](DevicePool& pool, Now now) {
    constexpr std::string_view kPools = "pools/";
    std::string wanted = request->parent();
    if (wanted.rfind(kPools, 0) == 0) wanted = wanted.substr(kPools.size());
    const int asked = request->page().page_size();
    const int size = asked <= 0 ? kDefaultPageSize : std::min(asked, kMaxPageSize);
    // The token is the last name given: devices are listed by name. One more says whether there are
    // others.
    const std::string& after = request->page().page_token();
    size_t bytes = 0;
    for (v1::Device& device : pool.ListDevices(wanted, after, static_cast<size_t>(size) + 1, now)) {
      bytes += device.ByteSizeLong();
      const bool full = response->devices_size() == size || bytes > kMaxPageBytes;
      if (full && response->devices_size() > 0) {
        response->set_next_page_token(response->devices().rbegin()->name());
        break;
      }
      *response->add_devices() = std::move(device);
    }
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* FleetAdminServiceImpl::GetDevice(grpc::CallbackServerContext* context,
                                                           const v1::GetDeviceRequest* request,
                                                           v1::Device* response) {
  return StartSimple(loop_, context, [request, response](DevicePool& pool, Now now) {
    TW_ASSIGN(*response, pool.GetDevice(request->name(), now));
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* FleetAdminServiceImpl::SetDeviceAdminState(
    grpc::CallbackServerContext* context, const v1::SetDeviceAdminStateRequest* request,
    v1::Device* response) {
  return StartSimple(loop_, context, [request, response](DevicePool& pool, Now now) {
    TW_ASSIGN(*response, pool.SetAdminState(*request, now));
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* FleetAdminServiceImpl::CreateHold(grpc::CallbackServerContext* context,
                                                            const v1::CreateHoldRequest* request,
                                                            v1::Hold* response) {
  return StartSimple(loop_, context, [request, response](DevicePool& pool, Now now) {
    TW_ASSIGN(*response, pool.CreateHold(*request, now));
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* FleetAdminServiceImpl::ReleaseHold(grpc::CallbackServerContext* context,
                                                             const v1::ReleaseHoldRequest* request,
                                                             google::protobuf::Empty*) {
  return StartSimple(loop_, context, [request](DevicePool& pool, Now) {
    return pool.ReleaseHold(request->name());
  });
}

grpc::ServerUnaryReactor* FleetAdminServiceImpl::ResetDevice(grpc::CallbackServerContext* context,
                                                             const v1::ResetDeviceRequest* request,
                                                             v1::Device* response) {
  return StartSimple(loop_, context, [request, response](DevicePool& pool, Now now) {
    TW_ASSIGN(*response, pool.ResetDevice(*request, now));
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* FleetAdminServiceImpl::ForgetDevice(
    grpc::CallbackServerContext* context, const v1::ForgetDeviceRequest* request,
    google::protobuf::Empty*) {
  return StartSimple(loop_, context, [request](DevicePool& pool, Now now) {
    return pool.ForgetDevice(request->name(), now);
  });
}

grpc::ServerUnaryReactor* FleetAdminServiceImpl::ListShares(grpc::CallbackServerContext* context,
                                                            const v1::ListSharesRequest*,
                                                            v1::ListSharesResponse* response) {
  return StartSimple(loop_, context, [response](DevicePool& pool, Now now) {
    for (v1::UserShare& share : pool.Shares(now)) *response->add_shares() = std::move(share);
    return absl::OkStatus();
  });
}

}  // namespace tilewright::tracker
