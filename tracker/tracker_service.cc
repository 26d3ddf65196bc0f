#include "tracker/tracker_service.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "deploy/daemon/wire.h"
#include "deploy/support/strings.h"

namespace tilewright::tracker {
namespace {

constexpr int kMaxResultsPerReport = 256;
constexpr int kMaxItemsPerSubmit = 1000;
constexpr int kDefaultPageSize = 50;
constexpr int kMaxPageSize = 1000;

// Hands a call to the loop; the reactor finishes when the loop says so.
grpc::ServerUnaryReactor* Start(TrackerLoop* loop, grpc::CallbackServerContext* context,
                                LoopCall call) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  call.finish = [reactor](const absl::Status& status) { reactor->Finish(daemon::ToGrpc(status)); };
  loop->Post(std::move(call));
  return reactor;
}

grpc::ServerUnaryReactor* StartSimple(TrackerLoop* loop, grpc::CallbackServerContext* context,
                                      std::function<absl::Status(DevicePool&, Now)> apply) {
  LoopCall call;
  call.apply = std::move(apply);
  return Start(loop, context, std::move(call));
}

grpc::ServerUnaryReactor* Refuse(grpc::CallbackServerContext* context, const absl::Status& status) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(daemon::ToGrpc(status));
  return reactor;
}

int64_t ToMs(const google::protobuf::Duration& duration) {
  return duration.seconds() * 1000 + duration.nanos() / 1'000'000;
}

// The artifacts of an item that the store lacks.
std::vector<v1::Digest> MissingArtifacts(const daemon::BlobStore& blobs, const v1::Work& work) {
  std::vector<v1::Digest> missing;
  const auto check = [&](bool present, const v1::Digest& digest) {
    if (present && !blobs.Contains(support::HexEncode(digest.hash()))) missing.push_back(digest);
  };
  check(work.has_artifact(), work.artifact());
  check(work.has_expected_output(), work.expected_output());
  check(work.has_baseline(), work.baseline());
  return missing;
}

}  // namespace

std::string PeerHost(const std::string& peer) {
  const size_t scheme = peer.find(':');
  const size_t port = peer.rfind(':');
  if (scheme == std::string::npos || port <= scheme) return peer;
  std::string host = peer.substr(scheme + 1, port - scheme - 1);
  // gRPC writes an IPv6 host percent-encoded and in brackets.
  if (host.rfind("%5B", 0) == 0 && host.size() > 6) return host.substr(3, host.size() - 6);
  if (!host.empty() && host.front() == '[' && host.back() == ']') {
    return host.substr(1, host.size() - 2);
  }
  return host;
}

grpc::ServerUnaryReactor* AgentServiceImpl::Sync(grpc::CallbackServerContext* context,
                                                 const v1::SyncRequest* request,
                                                 v1::SyncResponse* response) {
  LoopCall call;
  call.apply = [request, address = PeerHost(context->peer())](DevicePool& pool, Now now) {
    return pool.Sync(*request, address, now).status();
  };
  call.poll = [request, response](const PollContext& poll) {
    if (poll.superseded) {  // what it carried could be lost; the newer call gets all of it
      response->Clear();
      response->set_tracker_epoch(poll.pool->epoch());
      return PollResult::kAnswer;
    }
    const bool news =
        poll.pool->FillSyncResponse(request->agent(), poll.may_grant, poll.now, response);
    if (poll.draining) {
      response->mutable_restarting()->mutable_retry_after_min()->set_nanos(200'000'000);
      response->mutable_restarting()->mutable_retry_after_max()->set_seconds(2);
      return PollResult::kAnswer;
    }
    if (news) return PollResult::kAnswer;
    // Told before, and the agent's state does not show it yet: the answer may have been lost.
    const bool pending = response->grants_size() > 0 || response->revokes_size() > 0 ||
                         response->unknown_leases_size() > 0;
    return pending ? PollResult::kSoon : PollResult::kWait;
  };
  call.cancelled = [context] { return context->IsCancelled(); };
  call.wait_ms = ToMs(request->max_wait());
  call.key = "sync " + request->agent();
  return Start(loop_, context, std::move(call));
}

grpc::ServerUnaryReactor* AgentServiceImpl::ReportResults(grpc::CallbackServerContext* context,
                                                          const v1::ReportResultsRequest* request,
                                                          v1::ReportResultsResponse* response) {
  if (request->results_size() > kMaxResultsPerReport) {
    return Refuse(context, support::InvalidArgument(
                               "agent.report.too_many",
                               support::StrCat("expected at most ", kMaxResultsPerReport,
                                               " results, found ", request->results_size())));
  }
  return StartSimple(
      loop_, context,
      [request, response, address = PeerHost(context->peer())](DevicePool& pool, Now now) {
        for (const v1::MeasurementResult& result : request->results()) {
          *response->add_acks() = pool.Report(result, address, now);
        }
        return absl::OkStatus();
      });
}

grpc::ServerUnaryReactor* DispatchServiceImpl::SubmitWork(grpc::CallbackServerContext* context,
                                                          const v1::SubmitWorkRequest* request,
                                                          v1::SubmitWorkResponse* response) {
  if (request->work_items_size() > kMaxItemsPerSubmit) {
    return Refuse(context, support::InvalidArgument(
                               "dispatch.submit.too_many",
                               support::StrCat("expected at most ", kMaxItemsPerSubmit,
                                               " work items, found ", request->work_items_size())));
  }
  return StartSimple(loop_, context, [this, request, response](DevicePool& pool, Now now) {
    for (const v1::WorkItem& item : request->work_items()) {
      v1::SubmitOutcome* outcome = response->add_outcomes();
      const std::vector<v1::Digest> missing = pool.Knows(item.name())
                                                  ? std::vector<v1::Digest>()
                                                  : MissingArtifacts(*blobs_, item.work());
      if (missing.empty()) {
        *outcome = pool.Submit(request->consumer(), item, now);
        continue;
      }
      outcome->set_work_item(item.name());
      outcome->set_kind(v1::SubmitOutcome::KIND_MISSING_ARTIFACT);
      outcome->set_detail("upload what is missing, then submit again");
      for (const v1::Digest& digest : missing) *outcome->add_missing() = digest;
    }
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* DispatchServiceImpl::PullResults(grpc::CallbackServerContext* context,
                                                           const v1::PullResultsRequest* request,
                                                           v1::PullResultsResponse* response) {
  LoopCall call;
  call.apply = [](DevicePool&, Now) { return absl::OkStatus(); };
  call.poll = [request, response](const PollContext& poll) {
    if (poll.superseded) {
      response->set_cursor(request->cursor());
      response->set_tracker_epoch(poll.pool->epoch());
      return PollResult::kAnswer;
    }
    return poll.pool->Pull(*request, response) ? PollResult::kAnswer : PollResult::kWait;
  };
  call.cancelled = [context] { return context->IsCancelled(); };
  call.wait_ms = ToMs(request->max_wait());
  call.key = "pull " + request->consumer();
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
    // The token is the last name given: devices are listed by name.
    const std::string& after = request->page().page_token();
    for (const v1::Device& device : pool.ListDevices(wanted, now)) {
      if (!after.empty() && device.name() <= after) continue;
      if (response->devices_size() == size) {
        response->set_next_page_token(response->devices(size - 1).name());
        break;
      }
      *response->add_devices() = device;
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

}  // namespace tilewright::tracker
