#include "tests/unit/mini_fleet.h"

#include <gtest/gtest.h>

#include <utility>

#include "deploy/daemon/wire.h"
#include "deploy/support/strings.h"
#include "tests/support/patience.h"

namespace tilewright::tests {
namespace {

constexpr int64_t kCallMs = 10'000;
constexpr int64_t kPauseMs = 20;

template <typename T>
T Value(absl::StatusOr<T> result) {
  TW_CHECK(result.ok()) << support::StatusText(result.status());
  return *std::move(result);
}

v1::DeviceReport Device() {
  v1::DeviceReport report;
  report.set_device("devices/sim");
  report.set_key("cpu-sim");
  report.set_fingerprint("sim-fp");
  auto& attributes = *report.mutable_attributes();
  attributes["kind"].set_s("cpu");
  attributes["arch"].set_s("x86_64");
  attributes["cpu"].set_s("x86-64");
  attributes["cores"].set_i(2);
  report.set_health(v1::HEALTH_GOOD);
  report.set_activity(v1::ACTIVITY_IDLE);
  return report;
}

}  // namespace

MiniFleet::MiniFleet(const std::string& state_dir) {
  TW_CHECK(support::MakeDirs(state_dir).ok());
  store_ = Value(tracker::TrackerStore::Open(support::PathJoin(state_dir, "tracker.db")));
  blobs_ = Value(daemon::BlobStore::Open(support::PathJoin(state_dir, "artifacts")));
  registry_ = Value(daemon::Metrics::Create("test"));
  metrics_ = std::make_unique<tracker::TrackerMetrics>(registry_.get());
  loop_ = Value(tracker::TrackerLoop::Create(tracker::LoopOptions(), tracker::PoolOptions(),
                                             store_.get(), blobs_.get(), &clock_, metrics_.get()));
  loop_->Start([](absl::Status status) { ADD_FAILURE() << status; });
  artifacts_ =
      std::make_unique<daemon::ArtifactServiceImpl>(blobs_.get(), daemon::ArtifactServiceOptions());
  agents_ = std::make_unique<tracker::AgentServiceImpl>(loop_.get());
  dispatch_ = std::make_unique<tracker::DispatchServiceImpl>(loop_.get(), blobs_.get());
  admin_ = std::make_unique<tracker::FleetAdminServiceImpl>(loop_.get());
  host_ = std::make_unique<daemon::ServerHost>(daemon::HostOptions());
  host_->AddService(artifacts_.get(), daemon::kArtifactServiceName);
  host_->AddService(agents_.get(), tracker::kAgentServiceName);
  host_->AddService(dispatch_.get(), tracker::kDispatchServiceName);
  host_->AddService(admin_.get(), tracker::kFleetAdminServiceName);
  const absl::Status status = host_->Start();
  TW_CHECK(status.ok()) << support::StatusText(status);
  agent_ = std::thread([this] { AgentLoop(); });
}

MiniFleet::~MiniFleet() {
  stopping_ = true;
  loop_->Drain();
  agent_.join();
  host_->Stop();
  loop_->Stop();
}

void MiniFleet::AgentLoop() {
  const auto stub = v1::AgentService::NewStub(daemon::MakeChannel(host_->address(), {true}));
  uint64_t sequence = 0;
  while (!stopping_) {
    if (!measuring || measured_ >= most) {
      support::SleepMs(kPauseMs);
      continue;
    }
    v1::SyncRequest request;
    request.set_agent("agents/sim");
    request.set_session_id("s1");
    request.set_sequence(++sequence);
    request.set_protocol_revision(1);
    *request.add_devices() = Device();
    request.mutable_max_wait()->set_nanos(200'000'000);
    v1::SyncResponse response;
    grpc::ClientContext context;
    daemon::SetTimeout(&context, Patiently(kCallMs));
    if (!stub->Sync(&context, request, &response).ok()) {
      support::SleepMs(kPauseMs);
      continue;
    }
    for (const v1::Grant& grant : response.grants()) MeasureGrant(grant, stub.get());
  }
}

void MiniFleet::MeasureGrant(const v1::Grant& grant, v1::AgentService::Stub* stub) {
  v1::ReportResultsRequest request;
  request.set_agent("agents/sim");
  request.set_session_id("s1");
  for (const v1::Work& work : grant.work()) {
    v1::MeasurementResult* result = request.add_results();
    result->set_work_item(work.work_item());
    result->set_attempt(work.attempt());
    result->set_measurement_id(support::StrCat(work.work_item(), "/", work.attempt()));
    result->set_lease(grant.lease());
    result->set_fencing_token(grant.fencing_token());
    result->set_device(grant.device());
    result->set_device_class("cpu-sim");
    result->set_device_fingerprint("sim-fp");
    result->set_outcome(v1::OK);
    result->set_valid(true);
    result->set_value_kind(v1::VALUE_KIND_WALL_NS);
    // Whatever was submitted must be there, as a real agent would need it.
    for (const v1::Digest* digest : {&work.artifact(), &work.expected_output()}) {
      EXPECT_TRUE(blobs_->Contains(support::HexEncode(digest->hash()))) << work.work_item();
    }
    const double median = 1000 + static_cast<uint8_t>(work.artifact().hash()[0]);
    result->set_median(median);
    result->add_samples(median);
  }
  v1::ReportResultsResponse response;
  grpc::ClientContext context;
  daemon::SetTimeout(&context, Patiently(kCallMs));
  if (!stub->ReportResults(&context, request, &response).ok()) return;
  for (const v1::Ack& ack : response.acks()) {
    EXPECT_NE(ack.disposition(), v1::DISPOSITION_REJECTED) << ack.detail();
  }
  measured_ += request.results_size();
}

}  // namespace tilewright::tests
