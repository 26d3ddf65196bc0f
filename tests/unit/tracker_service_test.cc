// The tracker's services over real gRPC in one process: long polls, missing artifacts, admin calls,
// draining, a disk that is full for a while.
#include "tracker/tracker_service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <string>

#include "deploy/daemon/artifact_service.h"
#include "deploy/daemon/server_host.h"
#include "deploy/daemon/wire.h"
#include "deploy/support/clock.h"
#include "deploy/support/file.h"
#include "tests/support/small_disk.h"
#include "tests/unit/pool_fixture.h"
#include "tracker/tracker_store.h"

namespace tilewright::tracker::testing {
namespace {

using ::testing::HasSubstr;

class TrackerServiceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto dir = support::TempDir::Create();
    ASSERT_TRUE(dir.ok());
    dir_ = std::make_unique<support::TempDir>(*std::move(dir));
  }

  void TearDown() override {
    if (loop_ != nullptr) loop_->Drain();
    if (host_ != nullptr) host_->Stop();
    if (loop_ != nullptr) loop_->Stop();
  }

  void Start(const std::string& state_dir) {
    auto store = TrackerStore::Open(support::PathJoin(state_dir, "tracker.db"));
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
    auto blobs = daemon::BlobStore::Open(dir_->File("artifacts"));
    ASSERT_TRUE(blobs.ok()) << blobs.status();
    blobs_ = *std::move(blobs);
    registry_ = *daemon::Metrics::Create("test");
    metrics_ = std::make_unique<TrackerMetrics>(registry_.get());
    auto loop = TrackerLoop::Create(LoopOptions(), PoolOptions(), store_.get(), blobs_.get(),
                                    &clock_, metrics_.get());
    ASSERT_TRUE(loop.ok()) << loop.status();
    loop_ = *std::move(loop);
    loop_->Start([](absl::Status status) { ADD_FAILURE() << status; });
    artifacts_ = std::make_unique<daemon::ArtifactServiceImpl>(blobs_.get(),
                                                               daemon::ArtifactServiceOptions());
    agents_ = std::make_unique<AgentServiceImpl>(loop_.get());
    dispatch_ = std::make_unique<DispatchServiceImpl>(loop_.get(), blobs_.get());
    admin_ = std::make_unique<FleetAdminServiceImpl>(loop_.get());
    host_ = std::make_unique<daemon::ServerHost>(daemon::HostOptions());
    host_->AddService(artifacts_.get(), daemon::kArtifactServiceName);
    host_->AddService(agents_.get(), kAgentServiceName);
    host_->AddService(dispatch_.get(), kDispatchServiceName);
    host_->AddService(admin_.get(), kFleetAdminServiceName);
    const absl::Status status = host_->Start();
    ASSERT_TRUE(status.ok()) << status;
    const auto channel = daemon::MakeChannel(host_->address(), {true});
    agent_ = v1::AgentService::NewStub(channel);
    tuner_ = v1::DispatchService::NewStub(channel);
    people_ = v1::FleetAdminService::NewStub(channel);
  }

  struct SyncAnswer {
    absl::Status status;
    v1::SyncResponse response;
    double seconds = 0;
  };

  SyncAnswer Sync(v1::SyncRequest request, int64_t wait_ms) {
    request.mutable_max_wait()->set_seconds(wait_ms / 1000);
    request.mutable_max_wait()->set_nanos(static_cast<int32_t>(wait_ms % 1000 * 1'000'000));
    SyncAnswer answer;
    grpc::ClientContext context;
    daemon::SetTimeout(&context, 30'000);
    const int64_t start = clock_.NowNs();
    answer.status = daemon::FromGrpc(agent_->Sync(&context, request, &answer.response));
    answer.seconds = static_cast<double>(clock_.NowNs() - start) * 1e-9;
    return answer;
  }

  v1::SyncRequest Request() { return SyncOf("agents/a", {"devices/d"}, ++sequence_); }

  absl::StatusOr<v1::SubmitOutcome> Submit(const std::string& name, bool upload = true) {
    if (upload) {
      TW_TRY(blobs_->Put("artifact of " + name).status());
    }
    v1::SubmitWorkRequest request;
    request.set_consumer("tuner");
    *request.add_work_items() = Item(name);
    v1::SubmitWorkResponse response;
    grpc::ClientContext context;
    daemon::SetTimeout(&context, 30'000);
    TW_TRY(daemon::FromGrpc(tuner_->SubmitWork(&context, request, &response)));
    return response.outcomes(0);
  }

  v1::PullResultsResponse Pull(int64_t wait_s) {
    v1::PullResultsRequest request;
    request.set_consumer("tuner");
    request.mutable_max_wait()->set_seconds(wait_s);
    v1::PullResultsResponse response;
    grpc::ClientContext context;
    daemon::SetTimeout(&context, 30'000);
    EXPECT_TRUE(tuner_->PullResults(&context, request, &response).ok());
    return response;
  }

  v1::Disposition Report(const v1::MeasurementResult& result, const char* agent = "agents/a") {
    v1::ReportResultsRequest request;
    request.set_agent(agent);
    *request.add_results() = result;
    v1::ReportResultsResponse response;
    grpc::ClientContext context;
    daemon::SetTimeout(&context, 30'000);
    EXPECT_TRUE(agent_->ReportResults(&context, request, &response).ok());
    return response.acks(0).disposition();
  }

  // Until the tracker has taken the first Sync in.
  void WaitForDevice() {
    const int64_t end_ns = clock_.NowNs() + 30'000'000'000;
    for (;;) {
      v1::ListDevicesResponse devices;
      grpc::ClientContext context;
      ASSERT_TRUE(people_->ListDevices(&context, v1::ListDevicesRequest(), &devices).ok());
      if (devices.devices_size() > 0) return;
      ASSERT_LT(clock_.NowNs(), end_ns);
      support::SleepMs(1);
    }
  }

  support::SystemClock clock_;
  std::unique_ptr<support::TempDir> dir_;
  std::unique_ptr<TrackerStore> store_;
  std::unique_ptr<daemon::BlobStore> blobs_;
  std::unique_ptr<daemon::Metrics> registry_;
  std::unique_ptr<TrackerMetrics> metrics_;
  std::unique_ptr<TrackerLoop> loop_;
  std::unique_ptr<daemon::ArtifactServiceImpl> artifacts_;
  std::unique_ptr<AgentServiceImpl> agents_;
  std::unique_ptr<DispatchServiceImpl> dispatch_;
  std::unique_ptr<FleetAdminServiceImpl> admin_;
  std::unique_ptr<daemon::ServerHost> host_;
  std::unique_ptr<v1::AgentService::Stub> agent_;
  std::unique_ptr<v1::DispatchService::Stub> tuner_;
  std::unique_ptr<v1::FleetAdminService::Stub> people_;
  uint64_t sequence_ = 0;
};

TEST_F(TrackerServiceTest, AWaitingSyncIsAnsweredWhenWorkArrives) {
  ASSERT_NO_FATAL_FAILURE(Start(dir_->path()));
  auto waiting = std::async(std::launch::async, [this] { return Sync(Request(), 20'000); });
  // Only then is the submission late enough.
  ASSERT_NO_FATAL_FAILURE(WaitForDevice());
  const auto outcome = Submit("w1");
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(outcome->kind(), v1::SubmitOutcome::KIND_ACCEPTED);
  const SyncAnswer answer = waiting.get();
  ASSERT_TRUE(answer.status.ok()) << answer.status;
  ASSERT_EQ(answer.response.grants_size(), 1);
  EXPECT_LT(answer.seconds, 15);
  auto pulling = std::async(std::launch::async, [this] { return Pull(20); });
  EXPECT_EQ(Report(ResultOf(answer.response.grants(0), 0), "agents/b"), v1::DISPOSITION_REJECTED)
      << "the device is another agent's";
  EXPECT_EQ(Report(ResultOf(answer.response.grants(0), 0), ""), v1::DISPOSITION_REJECTED);
  EXPECT_EQ(Report(ResultOf(answer.response.grants(0), 0)), v1::DISPOSITION_STORED);
  const v1::PullResultsResponse page = pulling.get();
  ASSERT_EQ(page.updates_size(), 1);
  EXPECT_EQ(page.updates(0).result().agent_address(), "127.0.0.1");
}

TEST_F(TrackerServiceTest, ASyncWithoutNewsIsHeldForAsLongAsItAsks) {
  ASSERT_NO_FATAL_FAILURE(Start(dir_->path()));
  EXPECT_GE(Sync(Request(), 300).seconds, 0.29);
  EXPECT_LT(Sync(Request(), 0).seconds, 5);
  EXPECT_EQ(Pull(0).updates_size(), 0);
}

TEST_F(TrackerServiceTest, ANewerSyncOfTheSameAgentFreesTheOlder) {
  ASSERT_NO_FATAL_FAILURE(Start(dir_->path()));
  const v1::SyncRequest first = Request();
  const v1::SyncRequest second = Request();
  auto waiting = std::async(std::launch::async, [&] { return Sync(first, 20'000); });
  ASSERT_NO_FATAL_FAILURE(WaitForDevice());
  EXPECT_TRUE(Sync(second, 0).status.ok());
  const SyncAnswer answer = waiting.get();
  EXPECT_TRUE(answer.status.ok());
  EXPECT_LT(answer.seconds, 15);
  EXPECT_EQ(answer.response.grants_size(), 0);
}

TEST_F(TrackerServiceTest, WorkWithoutItsArtifactsIsNotQueued) {
  ASSERT_NO_FATAL_FAILURE(Start(dir_->path()));
  const auto outcome = Submit("w1", /*upload=*/false);
  ASSERT_TRUE(outcome.ok());
  EXPECT_EQ(outcome->kind(), v1::SubmitOutcome::KIND_MISSING_ARTIFACT);
  ASSERT_EQ(outcome->missing_size(), 1);
  EXPECT_EQ(*daemon::DigestToHex(outcome->missing(0)), support::Sha256Hex("artifact of w1"));
  EXPECT_EQ(Sync(Request(), 0).response.grants_size(), 0);
  EXPECT_EQ(Submit("w1")->kind(), v1::SubmitOutcome::KIND_ACCEPTED);
  EXPECT_EQ(Submit("w1", false)->kind(), v1::SubmitOutcome::KIND_EXISTS);
}

TEST_F(TrackerServiceTest, AForgottenDeviceIsGoneFromTheStore) {
  ASSERT_NO_FATAL_FAILURE(Start(dir_->path()));
  ASSERT_TRUE(Sync(SyncOf("agents/a", {"devices/a", "devices/b"}, 1), 0).status.ok());
  const auto forget = [&](const std::string& name) {
    grpc::ClientContext context;
    v1::ForgetDeviceRequest request;
    request.set_name(name);
    google::protobuf::Empty nothing;
    return support::Slug(daemon::FromGrpc(people_->ForgetDevice(&context, request, &nothing)));
  };
  EXPECT_EQ(forget("devices/a"), "device.forget.in_use");
  EXPECT_EQ(forget("devices/none"), "device.name.not_found");
  // After a restart its agent has not come back yet.
  host_->Stop();
  loop_->Stop();
  ASSERT_NO_FATAL_FAILURE(Start(dir_->path()));
  EXPECT_EQ(forget("devices/a"), "");
  EXPECT_EQ(forget("devices/a"), "device.name.not_found");
  const auto snapshot = store_->Load();
  ASSERT_TRUE(snapshot.ok());
  ASSERT_EQ(snapshot->devices.size(), 1u);
  EXPECT_EQ(snapshot->devices[0].name, "devices/b");
  EXPECT_EQ(snapshot->devices[0].agent, "agents/a");
}

TEST_F(TrackerServiceTest, PeopleSeeAndSteerDevices) {
  ASSERT_NO_FATAL_FAILURE(Start(dir_->path()));
  v1::SyncRequest request = SyncOf("agents/a", {"devices/a", "devices/b", "devices/c"}, 1);
  ASSERT_TRUE(Sync(request, 0).status.ok());
  std::vector<std::string> names;
  v1::ListDevicesRequest list;
  list.mutable_page()->set_page_size(1);
  do {
    grpc::ClientContext context;
    v1::ListDevicesResponse page;
    ASSERT_TRUE(people_->ListDevices(&context, list, &page).ok());
    for (const v1::Device& device : page.devices()) names.push_back(device.name());
    list.mutable_page()->set_page_token(page.next_page_token());
  } while (!list.page().page_token().empty());
  EXPECT_THAT(names, ::testing::ElementsAre("devices/a", "devices/b", "devices/c"));
  v1::SetDeviceAdminStateRequest drain;
  drain.set_name("devices/a");
  drain.set_admin_state(v1::ADMIN_STATE_DRAINING);
  drain.set_reason("new fan");
  v1::Device device;
  {
    grpc::ClientContext context;
    ASSERT_TRUE(people_->SetDeviceAdminState(&context, drain, &device).ok());
  }
  EXPECT_EQ(device.admin_reason(), "new fan");
  drain.set_etag("999");
  grpc::ClientContext context;
  EXPECT_EQ(support::Slug(daemon::FromGrpc(people_->SetDeviceAdminState(&context, drain, &device))),
            "device.etag.mismatch");
  // It is durable: another pool over the same store knows it.
  const auto snapshot = store_->Load();
  ASSERT_TRUE(snapshot.ok());
  EXPECT_EQ(snapshot->devices[0].admin_reason, "new fan");
}

TEST_F(TrackerServiceTest, DrainingAnswersWaitingCallsWithAPause) {
  ASSERT_NO_FATAL_FAILURE(Start(dir_->path()));
  auto waiting = std::async(std::launch::async, [this] { return Sync(Request(), 20'000); });
  ASSERT_NO_FATAL_FAILURE(WaitForDevice());
  loop_->Drain();
  const SyncAnswer answer = waiting.get();
  ASSERT_TRUE(answer.status.ok()) << answer.status;
  EXPECT_TRUE(answer.response.has_restarting());
  EXPECT_LT(answer.seconds, 15);
}

TEST_F(TrackerServiceTest, AFullDiskRefusesWorkAndServesAgainWhenThereIsRoom) {
  const auto disk = tests::SmallDisk::Mount(2 << 20);
  if (disk == nullptr) GTEST_SKIP() << tests::kNoMountSkip;
  ASSERT_NO_FATAL_FAILURE(Start(disk->path()));
  ASSERT_TRUE(Submit("before").ok());
  const SyncAnswer granted = Sync(Request(), 0);
  ASSERT_EQ(granted.response.grants_size(), 1);
  // Fill the disk to the last page.
  const std::string ballast = support::PathJoin(disk->path(), "ballast");
  std::string bytes(4 << 20, 'x');
  while (bytes.size() > 512 && !support::WriteFileAtomic(ballast, bytes).ok()) {
    bytes.resize(bytes.size() - 4096);
  }
  absl::Status refused;
  int accepted = 0;
  for (; accepted < 2000 && refused.ok(); ++accepted) {
    refused = Submit(support::StrCat("w", accepted)).status();
  }
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted) << refused;
  // Whatever was acknowledged is there; what was refused is not, and may be sent again.
  EXPECT_EQ(store_->Load()->items.size(), static_cast<size_t>(accepted));
  ASSERT_TRUE(support::RemoveFile(ballast).ok());
  const auto again = Submit(support::StrCat("w", accepted - 1));
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_NE(again->kind(), v1::SubmitOutcome::KIND_EXISTS);
  EXPECT_EQ(Report(ResultOf(granted.response.grants(0), 0)), v1::DISPOSITION_STORED);
}

TEST(PeerHostTest, OnlyTheHostIsKept) {
  EXPECT_EQ(daemon::PeerHost("ipv4:10.0.0.2:5123"), "10.0.0.2");
  EXPECT_EQ(daemon::PeerHost("ipv6:%5B::1%5D:80"), "::1");
  EXPECT_EQ(daemon::PeerHost("ipv6:[fe80::1]:80"), "fe80::1");
  EXPECT_EQ(daemon::PeerHost("weird"), "weird");
}

}  // namespace
}  // namespace tilewright::tracker::testing
