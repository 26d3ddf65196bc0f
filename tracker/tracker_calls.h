// The tracker's RPCs as calls of its rounds, without gRPC: the service (tracker_service.h) and the
// simulation make the same ones. Request and response must live until `finish` has run.
#pragma once

#include <string>

#include "deploy/daemon/blob_store.h"
#include "tilewright/v1/agent.pb.h"
#include "tilewright/v1/dispatch.pb.h"
#include "tracker/tracker_rounds.h"

namespace tilewright::tracker {

// `credential`: see DevicePool::Sync.
LoopCall SyncCall(const v1::SyncRequest* request, v1::SyncResponse* response, std::string address,
                  std::string credential = "");

// invalid_argument (agent.report.too_many) beyond 256 results. A result of a device that another
// agent owns is rejected (result.device.foreign).
LoopCall ReportCall(const v1::ReportResultsRequest* request, v1::ReportResultsResponse* response,
                    std::string address);

// invalid_argument (dispatch.submit.too_many) beyond 1000 items. `blobs` is not owned.
LoopCall SubmitCall(const v1::SubmitWorkRequest* request, v1::SubmitWorkResponse* response,
                    const daemon::BlobStore* blobs);

LoopCall PullCall(const v1::PullResultsRequest* request, v1::PullResultsResponse* response);

}  // namespace tilewright::tracker
