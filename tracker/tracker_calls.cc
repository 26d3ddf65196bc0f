#include "tracker/tracker_calls.h"

#include <utility>
#include <vector>

#include "deploy/support/duration.h"
#include "deploy/support/hash.h"
#include "deploy/support/strings.h"

namespace tilewright::tracker {
namespace {

constexpr int kMaxResultsPerReport = 256;
constexpr int kMaxItemsPerSubmit = 1000;

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

// A device whose agent has not been heard of since the start could be anybody's: the fencing token
// has to do.
bool IsForeign(const DevicePool& pool, const std::string& agent,
               const v1::MeasurementResult& result) {
  const std::string owner = pool.OwnerOf(result.device());
  return !owner.empty() && owner != agent;
}

v1::Ack ForeignResult(const v1::MeasurementResult& result) {
  v1::Ack ack;
  ack.set_measurement_id(result.measurement_id());
  ack.set_disposition(v1::DISPOSITION_REJECTED);
  ack.set_detail("result.device.foreign: the device belongs to another agent");
  return ack;
}

PollResult PollSync(const v1::SyncRequest& request, v1::SyncResponse* response,
                    const PollContext& poll) {
  if (poll.superseded) {  // what it carried could be lost; the newer call gets all of it
    response->Clear();
    response->set_tracker_epoch(poll.pool->epoch());
    return PollResult::kAnswer;
  }
  const bool news =
      poll.pool->FillSyncResponse(request.agent(), poll.may_grant, poll.now, response);
  if (poll.draining) {
    response->mutable_restarting()->mutable_retry_after_min()->set_nanos(200'000'000);
    response->mutable_restarting()->mutable_retry_after_max()->set_seconds(2);
    return PollResult::kAnswer;
  }
  if (news) return PollResult::kAnswer;
  // Told before, and the agent's state does not show it yet: the answer may have been lost.
  const bool pending = response->grants_size() > 0 || response->revokes_size() > 0 ||
                       response->unknown_leases_size() > 0;
  if (pending) return PollResult::kSoon;
  return poll.pool->CouldTakeWork(request.agent(), poll.now) ? PollResult::kIdle
                                                             : PollResult::kWait;
}

void SubmitOne(const v1::SubmitWorkRequest& request, const v1::WorkItem& item,
               const daemon::BlobStore& blobs, DevicePool* pool, Now now,
               v1::SubmitOutcome* outcome) {
  const std::vector<v1::Digest> missing =
      pool->Knows(item.name()) && !pool->AwaitsArtifacts(item.name())
          ? std::vector<v1::Digest>()
          : MissingArtifacts(blobs, item.work());
  if (missing.empty()) {
    *outcome = pool->Submit(request.consumer(), item, now);
    return;
  }
  outcome->set_work_item(item.name());
  outcome->set_kind(v1::SubmitOutcome::KIND_MISSING_ARTIFACT);
  outcome->set_detail("upload what is missing, then submit again");
  for (const v1::Digest& digest : missing) *outcome->add_missing() = digest;
}

}  // namespace

LoopCall SyncCall(const v1::SyncRequest* request, v1::SyncResponse* response, std::string address,
                  std::string credential) {
  LoopCall call;
  call.apply = [request, address = std::move(address), credential = std::move(credential)](
                   DevicePool& pool, Now now) {
    return pool.Sync(*request, address, now, credential).status();
  };
  call.poll = [request, response](const PollContext& poll) {
    return PollSync(*request, response, poll);
  };
  call.wait_ms = support::DurationMs(request->max_wait());
  call.key = "sync " + request->agent();
  call.about = request->agent();
  return call;
}

LoopCall ReportCall(const v1::ReportResultsRequest* request, v1::ReportResultsResponse* response,
                    std::string address) {
  LoopCall call;
  call.apply = [request, response, address = std::move(address)](DevicePool& pool,
                                                                 Now now) -> absl::Status {
    if (request->results_size() > kMaxResultsPerReport) {
      return support::InvalidArgument("agent.report.too_many",
                                      support::StrCat("expected at most ", kMaxResultsPerReport,
                                                      " results, found ", request->results_size()));
    }
    for (const v1::MeasurementResult& result : request->results()) {
      *response->add_acks() = IsForeign(pool, request->agent(), result)
                                  ? ForeignResult(result)
                                  : pool.Report(result, address, now);
    }
    return absl::OkStatus();
  };
  return call;
}

LoopCall SubmitCall(const v1::SubmitWorkRequest* request, v1::SubmitWorkResponse* response,
                    const daemon::BlobStore* blobs) {
  LoopCall call;
  call.apply = [request, response, blobs](DevicePool& pool, Now now) -> absl::Status {
    if (request->work_items_size() > kMaxItemsPerSubmit) {
      return support::InvalidArgument(
          "dispatch.submit.too_many",
          support::StrCat("expected at most ", kMaxItemsPerSubmit, " work items, found ",
                          request->work_items_size()));
    }
    for (const v1::WorkItem& item : request->work_items()) {
      SubmitOne(*request, item, *blobs, &pool, now, response->add_outcomes());
    }
    return absl::OkStatus();
  };
  return call;
}

LoopCall PullCall(const v1::PullResultsRequest* request, v1::PullResultsResponse* response) {
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
  call.wait_ms = support::DurationMs(request->max_wait());
  call.key = "pull " + request->consumer();
  call.about = request->consumer();
  return call;
}

}  // namespace tilewright::tracker
