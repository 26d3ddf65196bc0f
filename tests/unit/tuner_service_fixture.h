// The tuner's services in one process over loopback, for the suites of tuner_service_test: real
// storage, threads, children and gRPC; a stand-in for the compiler (fake_builder_main.cc), a real
// tracker with a simulated agent.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "deploy/daemon/artifact_service.h"
#include "deploy/daemon/wire.h"
#include "deploy/support/file.h"
#include "deploy/support/hash.h"
#include "deploy/support/strings.h"
#include "tests/support/patience.h"
#include "tests/unit/mini_fleet.h"
#include "tilewright/v1/fleet_admin.grpc.pb.h"
#include "tilewright/v1/job.grpc.pb.h"
#include "tilewright/v1/module.grpc.pb.h"
#include "tuner_server/service/tuner_server.h"

namespace tilewright::service {

inline constexpr int64_t kCallMs = tests::Patiently(30'000);
inline constexpr int64_t kJobMs = tests::Patiently(120'000);
inline constexpr char kModel[] = "model bytes";
inline constexpr char kTarget[] = "cpu,arch=x86_64,cpu=x86-64,threads=2";

template <typename T>
T Value(absl::StatusOr<T> result) {
  TW_CHECK(result.ok()) << support::StatusText(result.status());
  return *std::move(result);
}

class TunerServiceTest : public testing::Test {
 protected:
  void SetUp() override {
    fleet_ = std::make_unique<tests::MiniFleet>(dir_.File("tracker"));
    options_.state_dir = dir_.File("tuner");
    options_.tracker = fleet_->address();
    options_.builder = Value(support::FindSibling("tilewright_fake_builder"));
    Start();
    Value(Upload(kModel));
  }

  void Start() {
    ASSERT_TRUE(support::MakeDirs(options_.state_dir).ok());
    server_ = Value(TunerServer::Start(options_));
    channel_ = daemon::MakeChannel(server_->address(), {true});
    jobs_ = v1::JobService::NewStub(channel_);
    modules_ = v1::ModuleService::NewStub(channel_);
    artifacts_ = v1::ArtifactService::NewStub(channel_);
    devices_ = v1::FleetAdminService::NewStub(channel_);
  }

  absl::StatusOr<v1::Digest> Upload(const std::string& bytes) {
    const std::string hex = support::Sha256Hex(bytes);
    TW_TRY(daemon::UploadArtifact(artifacts_.get(), hex, bytes, kCallMs));
    return daemon::MakeDigest(hex, static_cast<int64_t>(bytes.size()));
  }

  template <typename Stub, typename Request, typename Response>
  absl::StatusOr<Response> Call(Stub* stub,
                                grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&,
                                                             Response*),
                                const Request& request) {
    grpc::ClientContext context;
    daemon::SetTimeout(&context, kCallMs);
    Response response;
    TW_TRY(daemon::FromGrpc((stub->*method)(&context, request, &response)));
    return response;
  }

  v1::CreateJobRequest Request(int32_t trials) {
    v1::CreateJobRequest request;
    v1::Job* job = request.mutable_job();
    *job->mutable_model() = daemon::MakeDigest(support::Sha256Hex(kModel), sizeof(kModel) - 1);
    job->set_target(kTarget);
    job->set_display_name("Net.onnx");
    job->mutable_budget()->set_max_trials(trials);
    return request;
  }

  absl::StatusOr<v1::Job> Create(const v1::CreateJobRequest& request) {
    return Call(jobs_.get(), &v1::JobService::Stub::CreateJob, request);
  }

  absl::StatusOr<v1::Job> Get(const std::string& name) {
    v1::GetJobRequest request;
    request.set_name(name);
    return Call(jobs_.get(), &v1::JobService::Stub::GetJob, request);
  }

  // All events of one stream, until the server ends it or `stop` says so.
  std::vector<v1::JobEvent> Watch(const std::string& name, const std::string& cursor = "",
                                  const std::function<bool(const v1::JobEvent&)>& stop = nullptr) {
    grpc::ClientContext context;
    daemon::SetTimeout(&context, kJobMs);
    v1::WatchJobRequest request;
    request.set_name(name);
    request.set_cursor(cursor);
    const auto reader = jobs_->WatchJob(&context, request);
    std::vector<v1::JobEvent> events;
    v1::JobEvent event;
    while (reader->Read(&event)) {
      events.push_back(event);
      if (stop && stop(event)) context.TryCancel();
    }
    watch_status_ = daemon::FromGrpc(reader->Finish());
    return events;
  }
  // Until the job has trials.
  void WatchUntilProposed(const std::string& name) {
    Watch(name, "", [](const v1::JobEvent& event) {
      return event.has_progress() && event.progress().proposed() > 0;
    });
  }

  // Waits until the job has ended, through restarts of nothing.
  v1::Job WaitForEnd(const std::string& name) {
    Watch(name);
    EXPECT_TRUE(watch_status_.ok()) << watch_status_;
    return Value(Get(name));
  }

  std::string Export(const v1::ExportLogRequest& request) {
    grpc::ClientContext context;
    daemon::SetTimeout(&context, kCallMs);
    const auto reader = jobs_->ExportLog(&context, request);
    v1::Chunk chunk;
    std::string text;
    while (reader->Read(&chunk)) {
      EXPECT_EQ(chunk.offset(), static_cast<int64_t>(text.size()));
      text += chunk.data();
    }
    const absl::Status status = daemon::FromGrpc(reader->Finish());
    EXPECT_TRUE(status.ok()) << status;
    return text;
  }

  std::vector<v1::Trial> AllTrials(const std::string& parent, int32_t page_size) {
    std::vector<v1::Trial> trials;
    v1::ListTrialsRequest request;
    request.set_parent(parent);
    request.mutable_page()->set_page_size(page_size);
    do {
      const auto response = Value(Call(jobs_.get(), &v1::JobService::Stub::ListTrials, request));
      trials.insert(trials.end(), response.trials().begin(), response.trials().end());
      request.mutable_page()->set_page_token(response.next_page_token());
    } while (!request.page().page_token().empty());
    return trials;
  }

  support::TempDir dir_ = Value(support::TempDir::Create("tuner-service"));
  std::unique_ptr<tests::MiniFleet> fleet_;
  TunerOptions options_;
  std::unique_ptr<TunerServer> server_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::JobService::Stub> jobs_;
  std::unique_ptr<v1::ModuleService::Stub> modules_;
  std::unique_ptr<v1::ArtifactService::Stub> artifacts_;
  std::unique_ptr<v1::FleetAdminService::Stub> devices_;
  absl::Status watch_status_;
};

}  // namespace tilewright::service
