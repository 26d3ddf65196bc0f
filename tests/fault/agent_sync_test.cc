// The real agent against a tracker of this test's own, which answers its calls in orders that the
// real one only now and then does.
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "deploy/support/file.h"
#include "deploy/support/strings.h"
#include "tests/fault/loopback_fleet.h"
#include "tilewright/v1/agent.grpc.pb.h"

namespace tilewright::device_agent {
namespace {

using support::StrCat;
using tests::LoopbackDaemon;
using tests::WaitFor;

// Holds every Sync until the next one is there, as a tracker with nothing to say does, but gives
// the first lease at once, and the second one in an answer that a newer call has overtaken: the
// tracker had decided on it before it saw that call.
class OvertakenTracker final : public v1::AgentService::Service {
 public:
  grpc::Status Sync(grpc::ServerContext* context, const v1::SyncRequest* request,
                    v1::SyncResponse* response) override {
    std::unique_lock lock(mutex_);
    const int call = ++calls_;
    for (const v1::LeaseReport& lease : request->leases()) named_.insert(lease.lease());
    changed_.notify_all();
    response->set_tracker_epoch(1);
    if (request->devices().empty()) return grpc::Status::OK;
    if (granted_ == 0) {
      Grant(request->devices(0).device(), response);
      return grpc::Status::OK;
    }
    // Held until overtaken. Nothing else comes: a newer call waits as long as the agent lets it.
    ++held_;
    changed_.notify_all();
    while (calls_ == call && !stop_ && !context->IsCancelled()) {
      changed_.wait_for(lock, std::chrono::milliseconds(20));
    }
    --held_;
    if (granted_ == 1 && reported_) Grant(request->devices(0).device(), response);
    return grpc::Status::OK;
  }

  grpc::Status ReportResults(grpc::ServerContext*, const v1::ReportResultsRequest* request,
                             v1::ReportResultsResponse* response) override {
    std::unique_lock lock(mutex_);
    // What the acknowledgement makes the agent say must find a call to overtake.
    while (held_ == 0 && !stop_) changed_.wait_for(lock, std::chrono::milliseconds(20));
    for (const v1::MeasurementResult& result : request->results()) {
      v1::Ack* ack = response->add_acks();
      ack->set_measurement_id(result.measurement_id());
      ack->set_disposition(v1::DISPOSITION_STORED);
      reported_ = true;
    }
    return grpc::Status::OK;
  }

  bool Named(const std::string& lease) {
    const std::scoped_lock lock(mutex_);
    return named_.count(lease) != 0;
  }
  void Stop() {
    const std::scoped_lock lock(mutex_);
    stop_ = true;
    changed_.notify_all();
  }

 private:
  // Work whose artifact nobody has: it ends by itself, without a worker.
  void Grant(const std::string& device, v1::SyncResponse* response) {
    ++granted_;
    v1::Grant* grant = response->add_grants();
    grant->set_lease(StrCat("leases/", granted_));
    grant->set_fencing_token(granted_);
    grant->set_device(device);
    grant->mutable_ttl()->set_seconds(60);
    v1::Work* work = grant->add_work();
    work->set_work_item(StrCat("w", granted_));
    work->set_attempt(1);
    work->mutable_artifact()->set_algorithm("sha256");
    work->mutable_artifact()->set_hash(std::string(32, 'a'));
    work->mutable_artifact()->set_size_bytes(1);
    work->mutable_wall_limit()->set_seconds(10);
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  int calls_ = 0, granted_ = 0, held_ = 0;
  bool reported_ = false, stop_ = false;
  std::set<std::string> named_;
};

TEST(AgentSync, AGrantInTheAnswerToAnOvertakenCallIsTakenAtOnce) {
  auto dir = support::TempDir::Create("agent_sync");
  ASSERT_TRUE(dir.ok()) << dir.status();
  OvertakenTracker service;
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  ASSERT_NE(server, nullptr);
  LoopbackDaemon agent("tilewright-agent", dir->File("agent"),
                       {"--tracker", StrCat("127.0.0.1:", port), "--device", "cpu", "--name",
                        "solo", "--sync-hold-ms", "60000"});
  agent.Start();
  EXPECT_TRUE(WaitFor([&] { return service.Named("leases/1"); })) << agent.log();
  // The newest call is held for a minute: only the overtaken one's answer can tell of it.
  EXPECT_TRUE(WaitFor([&] { return service.Named("leases/2"); }, 30'000)) << agent.log();
  agent.Kill9();
  service.Stop();
  server->Shutdown();
}

}  // namespace
}  // namespace tilewright::device_agent
