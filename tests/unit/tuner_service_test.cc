// The tuner's services in one process over loopback: real storage, threads, children and gRPC; a
// stand-in for the compiler (fake_builder_main.cc), a real tracker with a simulated agent.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "deploy/daemon/artifact_service.h"
#include "deploy/daemon/wire.h"
#include "deploy/module/module_file.h"
#include "deploy/support/clock.h"
#include "deploy/support/file.h"
#include "deploy/support/hash.h"
#include "deploy/support/strings.h"
#include "tests/unit/mini_fleet.h"
#include "tilewright/v1/fleet_admin.grpc.pb.h"
#include "tilewright/v1/job.grpc.pb.h"
#include "tilewright/v1/module.grpc.pb.h"
#include "tuner_server/service/tuner_server.h"

namespace tilewright::service {
namespace {

using support::Slug;
using support::StatusText;
using support::StrCat;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr int64_t kCallMs = 30'000;
constexpr int64_t kJobMs = 120'000;
constexpr char kModel[] = "model bytes";
constexpr char kTarget[] = "cpu,arch=x86_64,cpu=x86-64,threads=2";

template <typename T>
T Value(absl::StatusOr<T> result) {
  TW_CHECK(result.ok()) << StatusText(result.status());
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
    options_.host.listen = server_->address();
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

TEST_F(TunerServiceTest, AJobFromCreationToTheModulesBytes) {
  v1::CreateJobRequest request = Request(50);
  request.set_job_id("first");
  const v1::Job created = Value(Create(request));
  EXPECT_EQ(created.name(), "projects/default/jobs/first");
  EXPECT_EQ(created.target(), kTarget);
  EXPECT_EQ(created.cost_model(), "xgboost");

  const std::vector<v1::JobEvent> events = Watch(created.name());
  ASSERT_TRUE(watch_status_.ok()) << watch_status_;
  ASSERT_FALSE(events.empty());
  EXPECT_TRUE(events.front().has_job()) << "the present state comes first";
  int64_t trials_seen = 0;
  int32_t measured = 0;
  int64_t cursor = 0;
  for (const v1::JobEvent& event : events) {
    EXPECT_GE(*support::ParseInt64(event.cursor()), cursor) << "cursors rise";
    cursor = *support::ParseInt64(event.cursor());
    if (event.has_trial()) ++trials_seen;
    if (event.has_progress()) {
      EXPECT_GE(event.progress().measured(), measured);
      measured = event.progress().measured();
    }
  }
  EXPECT_EQ(measured, 50);
  EXPECT_GE(trials_seen, 40) << "each trial that ends is an event";

  const v1::Job job = Value(Get(created.name()));
  EXPECT_EQ(v1::Job::State_Name(job.state()), "SUCCEEDED") << job.state_reason();
  EXPECT_EQ(job.progress().measured(), 50);
  EXPECT_GE(job.progress().retrainings(), 2);
  EXPECT_GT(job.progress().best_us(), 0);
  EXPECT_LT(job.progress().best_us(), job.progress().baseline_us());
  EXPECT_THAT(job.best_trial(), HasSubstr("projects/default/jobs/first/tasks/t"));

  // The module, by its name and by its digest.
  EXPECT_EQ(job.published_module(), "projects/default/modules/fake-net/versions/1");
  v1::GetModuleVersionRequest get;
  get.set_name(job.published_module());
  const v1::ModuleVersion version =
      Value(Call(modules_.get(), &v1::ModuleService::Stub::GetModuleVersion, get));
  EXPECT_EQ(version.source_job(), job.name());
  EXPECT_EQ(version.target().at("cpu").s(), "x86-64");
  const std::string hex = Value(daemon::DigestToHex(version.files(0).digest()));
  std::string bytes;
  ASSERT_TRUE(daemon::StreamArtifact(artifacts_.get(), hex, kCallMs, [&](std::string_view piece) {
                bytes += piece;
                return absl::OkStatus();
              }).ok());
  EXPECT_EQ(support::Sha256Hex(bytes), hex);
  EXPECT_TRUE(module::ModuleFile::FromBytes(bytes).ok());
  // A job that ended leaves no files; its folder goes just after the news of the end.
  const std::string folder = support::PathJoin(options_.state_dir, "jobs");
  for (int i = 0; i < 1000 && !Value(support::ListDir(folder)).empty(); ++i) support::SleepMs(20);
  EXPECT_TRUE(Value(support::ListDir(folder)).empty());
}

TEST_F(TunerServiceTest, ListsPageAndAgree) {
  const std::string name = Value(Create(Request(12))).name();
  Value(Create(Request(2)));
  WaitForEnd(name);
  // One by one and all at once give the same.
  const std::vector<v1::Trial> one_by_one = AllTrials(name, 1);
  const std::vector<v1::Trial> at_once = AllTrials(name, 0);
  ASSERT_EQ(one_by_one.size(), 12U);
  ASSERT_EQ(at_once.size(), 12U);
  std::set<std::string> names;
  for (size_t i = 0; i < 12; ++i) {
    EXPECT_EQ(one_by_one[i].name(), at_once[i].name());
    names.insert(one_by_one[i].name());
    EXPECT_EQ(at_once[i].state(), v1::Trial::SUCCEEDED);
    ASSERT_EQ(at_once[i].measurements_size(), 1);
    EXPECT_EQ(at_once[i].device(), "devices/sim");
  }
  EXPECT_EQ(names.size(), 12U);
  EXPECT_EQ(AllTrials(name + "/tasks/t0", 2).size() + AllTrials(name + "/tasks/t1", 2).size(), 12U);

  v1::ListTasksRequest tasks;
  tasks.set_parent(name);
  tasks.mutable_page()->set_page_size(1);
  auto page = Value(Call(jobs_.get(), &v1::JobService::Stub::ListTasks, tasks));
  ASSERT_EQ(page.tasks_size(), 1);
  EXPECT_EQ(page.tasks(0).name(), name + "/tasks/t0");
  EXPECT_GT(page.tasks(0).default_us(), 0);
  tasks.mutable_page()->set_page_token(page.next_page_token());
  page = Value(Call(jobs_.get(), &v1::JobService::Stub::ListTasks, tasks));
  EXPECT_EQ(page.tasks(0).name(), name + "/tasks/t1");
  EXPECT_EQ(page.next_page_token(), "");

  v1::ListJobsRequest list;
  list.mutable_page()->set_page_size(1);
  auto first = Value(Call(jobs_.get(), &v1::JobService::Stub::ListJobs, list));
  ASSERT_EQ(first.jobs_size(), 1);
  EXPECT_NE(first.jobs(0).name(), name) << "newest first";
  // A token belongs to its list, unchanged.
  v1::ListTrialsRequest trials;
  trials.set_parent(name);
  trials.mutable_page()->set_page_token(first.next_page_token());
  EXPECT_EQ(Slug(Call(jobs_.get(), &v1::JobService::Stub::ListTrials, trials).status()),
            "page.token.invalid");
  list.mutable_page()->set_page_token(first.next_page_token());
  first = Value(Call(jobs_.get(), &v1::JobService::Stub::ListJobs, list));
  EXPECT_EQ(first.jobs(0).name(), name);
  EXPECT_EQ(first.next_page_token(), "");
}

TEST_F(TunerServiceTest, RequestsThatMakeNoSenseAreRefusedBySlug) {
  struct Case {
    const char* slug;
    std::function<void(v1::CreateJobRequest*)> spoil;
  };
  const std::vector<Case> cases = {
      {"job.parent.bad", [](auto* r) { r->set_parent("projects/other"); }},
      {"job.id.bad", [](auto* r) { r->set_job_id("a/b"); }},
      {"target.text.unknown_kind", [](auto* r) { r->mutable_job()->set_target("abacus"); }},
      {"target.text.bad", [](auto* r) { r->mutable_job()->set_target(""); }},
      {"target.text.not_expanded", [](auto* r) { r->mutable_job()->set_target("native"); }},
      {"job.budget.missing", [](auto* r) { r->mutable_job()->clear_budget(); }},
      {"job.budget.bad", [](auto* r) { r->mutable_job()->mutable_budget()->set_max_trials(-1); }},
      {"job.cost_model.unknown", [](auto* r) { r->mutable_job()->set_cost_model("oracle"); }},
      {"job.priority.bad", [](auto* r) { r->mutable_job()->set_priority(9); }},
      {"job.shape.bad",
       [](auto* r) { (*r->mutable_job()->mutable_input_shapes())["x"].add_dims(0); }},
      {"artifact.digest.invalid", [](auto* r) { r->mutable_job()->clear_model(); }},
      {"job.model.missing",
       [](auto* r) {
         *r->mutable_job()->mutable_model() = daemon::MakeDigest(std::string(64, 'a'), 1);
       }},
      {"job.model.size", [](auto* r) { r->mutable_job()->mutable_model()->set_size_bytes(3); }},
  };
  for (const Case& one : cases) {
    v1::CreateJobRequest request = Request(4);
    one.spoil(&request);
    EXPECT_EQ(Slug(Create(request).status()), one.slug);
  }
  v1::CreateJobRequest fine = Request(4);
  fine.set_validate_only(true);
  EXPECT_TRUE(Create(fine).ok());
  EXPECT_EQ(
      Value(Call(jobs_.get(), &v1::JobService::Stub::ListJobs, v1::ListJobsRequest())).jobs_size(),
      0)
      << "nothing was created";
  EXPECT_TRUE(absl::IsNotFound(Get("projects/default/jobs/nope").status()));
  EXPECT_EQ(Slug(Get("jobs/nope").status()), "job.name.bad");
  Watch("projects/default/jobs/nope");
  EXPECT_TRUE(absl::IsNotFound(watch_status_));
}

TEST_F(TunerServiceTest, CreatingTwiceWithOneRequestIdMakesOneJob) {
  v1::CreateJobRequest request = Request(4);
  request.set_request_id("r1");
  const v1::Job first = Value(Create(request));
  EXPECT_EQ(Value(Create(request)).name(), first.name());
  request.mutable_job()->set_seed(99);
  EXPECT_EQ(Slug(Create(request).status()), "log.job.request_id_reused");
  request = Request(4);
  request.set_job_id("named");
  Value(Create(request));
  EXPECT_EQ(Slug(Create(request).status()), "log.job.exists");
}

TEST_F(TunerServiceTest, AModelThatCannotBeReadFailsItsJob) {
  const v1::Digest garbage = Value(Upload("garbage"));
  v1::CreateJobRequest request = Request(4);
  *request.mutable_job()->mutable_model() = garbage;
  const v1::Job job = WaitForEnd(Value(Create(request)).name());
  EXPECT_EQ(job.state(), v1::Job::FAILED);
  EXPECT_THAT(job.state_reason(), HasSubstr("onnx.parse.invalid"));
}

TEST_F(TunerServiceTest, DeadHangingAndRefusingBuildersCostTheirTrialOnly) {
  server_.reset();
  options_.builder_args = {"--faults"};
  options_.build_timeout_ms = 5'000;  // what a healthy build never takes, starved machine or not
  Start();
  const v1::Job job = WaitForEnd(Value(Create(Request(24))).name());
  EXPECT_EQ(job.state(), v1::Job::SUCCEEDED) << job.state_reason();
  EXPECT_EQ(job.progress().measured(), 24);
  // "split 3" dies twice, 4 is refused, 5 hangs; whichever tasks meet them, nothing else fails.
  std::map<std::string, std::string> reasons;
  int32_t errors = 0;
  int32_t timeouts = 0;
  for (const v1::Trial& trial : AllTrials(job.name(), 0)) {
    if (trial.schedule() == "split 3" || trial.schedule() == "split 4") {
      EXPECT_EQ(trial.outcome(), v1::BUILD_ERROR);
      ++errors;
    } else if (trial.schedule() == "split 5") {
      EXPECT_EQ(trial.outcome(), v1::BUILD_TIMEOUT);
      ++timeouts;
    } else {
      EXPECT_EQ(trial.outcome(), v1::OK) << trial.schedule();
    }
    if (trial.state() == v1::Trial::INFEASIBLE) reasons[trial.schedule()] = trial.reason();
  }
  EXPECT_EQ(job.progress().failed_by_kind().at("BUILD_ERROR"), errors);
  EXPECT_EQ(job.progress().failed_by_kind().at("BUILD_TIMEOUT"), timeouts);
  EXPECT_THAT(reasons["split 3"], HasSubstr("builder.died"));
  EXPECT_THAT(reasons["split 4"], HasSubstr("codegen.fake.refused"));
  EXPECT_THAT(reasons["split 5"], HasSubstr("builder.timeout"));
}

TEST_F(TunerServiceTest, ARestartedServerGoesOnAndTellsWatchersTheRest) {
  server_.reset();
  options_.builder_args = {"--slow-ms=50"};
  Start();
  const std::string name = Value(Create(Request(60))).name();
  std::string cursor;
  int stops = 0;
  for (const int32_t at : {5, 15, 30}) {
    const std::vector<v1::JobEvent> events = Watch(name, cursor, [at](const v1::JobEvent& event) {
      return event.has_progress() && event.progress().measured() >= at;
    });
    ASSERT_FALSE(events.empty());
    cursor = events.back().cursor();
    server_->Stop();
    server_.reset();
    ++stops;
    Start();
  }
  const std::vector<v1::JobEvent> rest = Watch(name, cursor);
  ASSERT_TRUE(watch_status_.ok()) << watch_status_;
  std::set<std::string> after;
  for (const v1::JobEvent& event : rest) {
    if (!event.has_trial()) continue;
    EXPECT_TRUE(after.insert(event.trial().name()).second);
  }
  const v1::Job job = Value(Get(name));
  EXPECT_EQ(job.state(), v1::Job::SUCCEEDED) << job.state_reason();
  EXPECT_EQ(job.progress().measured(), 60);
  std::set<std::string> ids;
  v1::ExportLogRequest request;
  request.set_name(name);
  for (const std::string& line : support::Split(Export(request), '\n')) {
    if (line.empty()) continue;
    const auto record = nlohmann::json::parse(line, nullptr, false);
    ASSERT_TRUE(record.is_object()) << line;
    EXPECT_TRUE(ids.insert(record["measurement_id"].get<std::string>()).second);
  }
  EXPECT_EQ(ids.size(), 60U);
  EXPECT_EQ(stops, 3);
}

TEST_F(TunerServiceTest, CancellingEndsTheJobAndItsWatchers) {
  fleet_->measuring = false;
  const std::string name = Value(Create(Request(1000))).name();
  Watch(name, "", [](const v1::JobEvent& event) {
    return event.has_progress() && event.progress().built() >= 2;
  });
  v1::CancelJobRequest cancel;
  cancel.set_name(name);
  cancel.set_reason("enough");
  const v1::Job at_once = Value(Call(jobs_.get(), &v1::JobService::Stub::CancelJob, cancel));
  EXPECT_NE(at_once.state(), v1::Job::RUNNING);
  const v1::Job job = WaitForEnd(name);
  EXPECT_EQ(job.state(), v1::Job::CANCELLED);
  EXPECT_EQ(job.state_reason(), "enough");
  EXPECT_EQ(Value(Call(jobs_.get(), &v1::JobService::Stub::CancelJob, cancel)).state(),
            v1::Job::CANCELLED);
}

TEST_F(TunerServiceTest, JobsWaitForTheirTurnAndUrgentOnesGoFirst) {
  server_.reset();
  options_.running_jobs = 1;
  Start();
  fleet_->measuring = false;
  const std::string running = Value(Create(Request(4))).name();
  Watch(running, "", [](const v1::JobEvent& event) {
    return event.has_progress() && event.progress().proposed() > 0;
  });
  v1::CreateJobRequest later = Request(4);
  const std::string ordinary = Value(Create(later)).name();
  later.mutable_job()->set_priority(1);
  const std::string urgent = Value(Create(later)).name();
  const v1::Job waiting = Value(Get(ordinary));
  EXPECT_EQ(waiting.state(), v1::Job::QUEUED);
  ASSERT_EQ(waiting.conditions_size(), 1);
  EXPECT_EQ(waiting.conditions(0).reason(), "job.queue.waiting");
  fleet_->measuring = true;
  WaitForEnd(running);
  const v1::Job first = WaitForEnd(urgent);
  const v1::Job second = WaitForEnd(ordinary);
  EXPECT_LT(first.end_time().seconds() * 1'000'000'000 + first.end_time().nanos(),
            second.end_time().seconds() * 1'000'000'000 + second.end_time().nanos());
  EXPECT_EQ(second.state(), v1::Job::SUCCEEDED);
}

TEST_F(TunerServiceTest, TheSameTasksInTwoJobsAreTunedOnce) {
  fleet_->measuring = false;
  v1::CreateJobRequest request = Request(20);
  request.mutable_job()->set_recall(true);
  const std::string first = Value(Create(request)).name();
  Watch(first, "", [](const v1::JobEvent& event) {
    return event.has_progress() && event.progress().proposed() > 0;
  });
  const std::string second = Value(Create(request)).name();
  request.mutable_job()->set_recall(false);
  const std::string fresh = Value(Create(request)).name();
  // One that measures for itself runs beside the first; the second of the same waits.
  Watch(fresh, "", [](const v1::JobEvent& event) {
    return event.has_progress() && event.progress().proposed() > 0;
  });
  const v1::Job waiting = Value(Get(second));
  EXPECT_EQ(waiting.state(), v1::Job::QUEUED);
  ASSERT_EQ(waiting.conditions_size(), 1);
  EXPECT_EQ(waiting.conditions(0).reason(), "job.queue.same_tasks");
  fleet_->measuring = true;
  EXPECT_EQ(WaitForEnd(first).progress().measured(), 20);
  const v1::Job ended = WaitForEnd(second);
  EXPECT_EQ(ended.state(), v1::Job::SUCCEEDED) << ended.state_reason();
  EXPECT_EQ(ended.progress().measured(), 0);
  EXPECT_GE(ended.progress().cached(), 20);
  EXPECT_EQ(WaitForEnd(fresh).progress().measured(), 20);
}

// Another model of another user with the same two tasks: both jobs run, one is at work on a task at
// a time, and each program is measured once.
TEST_F(TunerServiceTest, ATaskThatTwoModelsShareIsSearchedOnce) {
  constexpr char kOther[] = "model of another size, with the same tasks";
  fleet_->measuring = false;
  v1::CreateJobRequest request = Request(30);
  request.mutable_job()->set_recall(true);
  const std::string first = Value(Create(request)).name();
  const auto proposed = [](const v1::JobEvent& event) {
    return event.has_progress() && event.progress().proposed() > 0;
  };
  Watch(first, "", proposed);
  *request.mutable_job()->mutable_model() = Value(Upload(kOther));
  const std::string second = Value(Create(request)).name();
  // It waits for what is being measured, and says so.
  v1::Job waiting;
  for (int i = 0; i < 1000; ++i) {
    waiting = Value(Get(second));
    if (waiting.conditions_size() > 0 && waiting.conditions(0).reason() == "job.tasks.shared")
      break;
    support::SleepMs(20);
  }
  ASSERT_EQ(waiting.state(), v1::Job::RUNNING);
  ASSERT_GT(waiting.conditions_size(), 0);
  EXPECT_EQ(waiting.conditions(0).reason(), "job.tasks.shared");
  EXPECT_THAT(waiting.conditions(0).message(), HasSubstr(first.substr(first.rfind('/') + 1)));
  EXPECT_EQ(waiting.progress().proposed(), 0);
  // A restart forgets nobody's work: the open trials of the log say who is at it.
  server_.reset();
  Start();
  fleet_->measuring = true;
  const v1::Job one = WaitForEnd(first);
  const v1::Job two = WaitForEnd(second);
  EXPECT_EQ(one.state(), v1::Job::SUCCEEDED) << one.state_reason();
  EXPECT_EQ(two.state(), v1::Job::SUCCEEDED) << two.state_reason();
  // Both know as much as if each had measured it all, and both modules are of the best of both.
  EXPECT_GE(one.progress().measured() + one.progress().cached(), 30);
  EXPECT_GE(two.progress().measured() + two.progress().cached(), 30);
  EXPECT_LT(one.progress().measured() + two.progress().measured(), 60);
  std::set<std::string> programs;
  for (const std::string& job : {first, second}) {
    for (const v1::Trial& trial : AllTrials(job, 100)) {
      const std::string program =
          trial.name().substr(trial.name().find("/tasks/"), 9) + trial.schedule();
      EXPECT_TRUE(programs.insert(program).second) << program << " was measured twice";
    }
  }
}

// Who is cancelled leaves its tasks to the others.
TEST_F(TunerServiceTest, ACancelledJobLeavesItsTasksToTheOthers) {
  fleet_->measuring = false;
  v1::CreateJobRequest request = Request(20);
  request.mutable_job()->set_recall(true);
  const std::string first = Value(Create(request)).name();
  Watch(first, "", [](const v1::JobEvent& event) {
    return event.has_progress() && event.progress().proposed() > 0;
  });
  *request.mutable_job()->mutable_model() = Value(Upload("model number three"));
  const std::string second = Value(Create(request)).name();
  v1::CancelJobRequest cancel;
  cancel.set_name(first);
  Value(Call(jobs_.get(), &v1::JobService::Stub::CancelJob, cancel));
  fleet_->measuring = true;
  EXPECT_EQ(WaitForEnd(first).state(), v1::Job::CANCELLED);
  const v1::Job ended = WaitForEnd(second);
  EXPECT_EQ(ended.state(), v1::Job::SUCCEEDED) << ended.state_reason();
  EXPECT_EQ(ended.progress().measured() + ended.progress().cached(), 20);
}

TEST_F(TunerServiceTest, TheLogComesOutAsLines) {
  const std::string name = Value(Create(Request(20))).name();
  WaitForEnd(name);
  v1::ExportLogRequest request;
  request.set_name(name);
  request.set_features(true);
  int64_t with_features = 0;
  const std::string records = Export(request);
  EXPECT_EQ(std::count(records.begin(), records.end(), '\n'), 20);
  for (const std::string& line : support::Split(records, '\n')) {
    const auto record = nlohmann::json::parse(line, nullptr, false);
    if (record.is_object() && record["features"].size() == 1) ++with_features;
  }
  EXPECT_EQ(with_features, 18) << "all but the two default schedules";
  request.set_drafts(true);
  const std::string drafts = Export(request);
  EXPECT_EQ(std::count(drafts.begin(), drafts.end(), '\n') % 20, 0) << "20 drafts a batch";
  EXPECT_GT(drafts.size(), 0U);
  EXPECT_EQ(Export(v1::ExportLogRequest()).size(), Export([&name] {
                                                     v1::ExportLogRequest one;
                                                     one.set_name(name);
                                                     return one;
                                                   }())
                                                       .size());
}

TEST_F(TunerServiceTest, ALogIsTakenOverWhileJobsRun) {
  const std::string source = Value(Create(Request(12))).name();
  EXPECT_EQ(WaitForEnd(source).state(), v1::Job::SUCCEEDED);
  const std::string id = source.substr(source.rfind('/') + 1);
  v1::ExportLogRequest all;
  all.set_name(source);
  const std::string lines = Export(all);
  // The same measurements as another server would tell of them: other names.
  std::string foreign = lines;
  for (size_t at = 0; (at = foreign.find(id, at)) != std::string::npos; at += id.size()) {
    foreign.replace(at, 3, "far");
  }
  const auto import = [this](const std::string& text,
                             const std::string& prefix) -> absl::StatusOr<v1::ImportLogResponse> {
    v1::ImportLogRequest request;
    TW_ASSIGN(*request.mutable_lines(), Upload(text));
    request.set_job_prefix(prefix);
    return Call(jobs_.get(), &v1::JobService::Stub::ImportLog, request);
  };
  EXPECT_EQ(Value(import(lines, "")).known(), 12);
  v1::ImportLogResponse report = Value(import(foreign, ""));
  EXPECT_EQ(report.new_records(), 12);
  report = Value(import(foreign, ""));
  EXPECT_EQ(report.new_records(), 0);
  EXPECT_EQ(report.known(), 12) << "twice is harmless";
  // Imported measurements count like own ones.
  v1::CreateJobRequest again = Request(12);
  again.mutable_job()->set_recall(true);
  EXPECT_EQ(WaitForEnd(Value(Create(again)).name()).progress().measured(), 0);

  // A job that is at work here numbers its trials itself.
  fleet_->measuring = false;
  v1::CreateJobRequest open = Request(12);
  open.set_job_id("open");
  const std::string running = Value(Create(open)).name();
  Watch(running, "", [](const v1::JobEvent& event) {
    return event.has_progress() && event.progress().proposed() > 0;
  });
  std::string clash = lines;
  for (size_t at = 0; (at = clash.find(id, at)) != std::string::npos; at += 4) {
    clash.replace(at, id.size(), "open");
  }
  report = Value(import(clash, ""));
  EXPECT_EQ(report.new_records(), 0);
  EXPECT_EQ(report.conflicts(), 12);
  EXPECT_THAT(report.examples(0), HasSubstr("not over"));
  EXPECT_EQ(Value(import(clash, "far-")).new_records(), 12);
  fleet_->measuring = true;
  EXPECT_EQ(WaitForEnd(running).progress().measured(), 12);

  EXPECT_EQ(Slug(import("nonsense", "").status()), "log.import.bad_line");
  EXPECT_EQ(Slug(import(lines, "a/b").status()), "job.id.bad");
  v1::ImportLogRequest unknown;
  *unknown.mutable_lines() = daemon::MakeDigest(support::Sha256Hex("never sent"), 10);
  EXPECT_EQ(Slug(Call(jobs_.get(), &v1::JobService::Stub::ImportLog, unknown).status()),
            "log.import.missing");
}

TEST_F(TunerServiceTest, ModulesAreResolvedAndListed) {
  for (int i = 0; i < 2; ++i) {
    v1::CreateJobRequest request = Request(4 + i);
    EXPECT_EQ(WaitForEnd(Value(Create(request)).name()).state(), v1::Job::SUCCEEDED);
  }
  v1::ResolveModuleRequest resolve;
  resolve.set_parent("projects/default/modules/fake-net");
  resolve.set_target("cpu,threads=2,cpu=x86-64,arch=x86_64");
  auto got = Value(Call(modules_.get(), &v1::ModuleService::Stub::ResolveModule, resolve));
  EXPECT_EQ(got.match(), v1::ResolveModuleResponse::EXACT);
  EXPECT_EQ(got.version().number(), 2);
  resolve.set_known_etag(got.version().etag());
  got = Value(Call(modules_.get(), &v1::ModuleService::Stub::ResolveModule, resolve));
  EXPECT_EQ(got.match(), v1::ResolveModuleResponse::NOT_MODIFIED);
  resolve.clear_known_etag();
  resolve.set_constraint("1");
  got = Value(Call(modules_.get(), &v1::ModuleService::Stub::ResolveModule, resolve));
  EXPECT_EQ(got.version().number(), 1);
  resolve.set_constraint("exact");
  resolve.set_target("cpu,arch=x86_64,cpu=x86-64,threads=1");
  got = Value(Call(modules_.get(), &v1::ModuleService::Stub::ResolveModule, resolve));
  EXPECT_EQ(got.match(), v1::ResolveModuleResponse::NONE);
  EXPECT_NE(got.explanation(), "");
  v1::ListModuleVersionsRequest list;
  list.set_parent("projects/default/modules/-");
  list.mutable_page()->set_page_size(1);
  std::vector<std::string> names;
  do {
    const auto page =
        Value(Call(modules_.get(), &v1::ModuleService::Stub::ListModuleVersions, list));
    for (const auto& version : page.versions()) names.push_back(version.name());
    list.mutable_page()->set_page_token(page.next_page_token());
  } while (!list.page().page_token().empty());
  EXPECT_THAT(names, ElementsAre("projects/default/modules/fake-net/versions/2",
                                 "projects/default/modules/fake-net/versions/1"));
}

TEST_F(TunerServiceTest, AliasesSignaturesProvenanceAndPruning) {
  for (int i = 0; i < 3; ++i) {
    v1::CreateJobRequest request = Request(4 + i);
    EXPECT_EQ(WaitForEnd(Value(Create(request)).name()).state(), v1::Job::SUCCEEDED);
  }
  const std::string parent = "projects/default/modules/fake-net";
  v1::SetModuleAliasRequest alias;
  alias.set_parent(parent);
  alias.set_alias("stable");
  alias.set_version(parent + "/versions/1");
  const auto set = Value(Call(modules_.get(), &v1::ModuleService::Stub::SetModuleAlias, alias));
  EXPECT_NE(set.updated_by(), "");
  v1::ResolveModuleRequest resolve;
  resolve.set_parent(parent);
  resolve.set_alias("stable");
  const auto got = Value(Call(modules_.get(), &v1::ModuleService::Stub::ResolveModule, resolve));
  EXPECT_EQ(got.version().number(), 1);
  EXPECT_THAT(got.version().aliases(), ElementsAre("stable"));

  v1::AddModuleSignatureRequest sign;
  sign.set_name(parent + "/versions/1");
  sign.mutable_signature()->set_key_id("0011223344556677");
  sign.mutable_signature()->set_signature("short");
  const auto add = [this, &sign] {
    return Call(modules_.get(), &v1::ModuleService::Stub::AddModuleSignature, sign);
  };
  EXPECT_EQ(Slug(add().status()), "module.signature.bad");
  sign.mutable_signature()->set_signature(std::string(64, 's'));
  EXPECT_EQ(Value(add()).signatures_size(), 1);

  v1::GetModuleVersionRequest get;
  get.set_name(parent + "/versions/1");
  const auto shown = Value(Call(modules_.get(), &v1::ModuleService::Stub::GetModuleVersion, get));
  EXPECT_NE(shown.created_by(), "");
  EXPECT_NE(shown.toolchain(), "");
  EXPECT_EQ(shown.device_class(), "cpu-sim");

  v1::PruneModulesRequest prune;
  EXPECT_EQ(Slug(Call(modules_.get(), &v1::ModuleService::Stub::PruneModules, prune).status()),
            "module.prune.limits");
  prune.set_keep_versions(1);
  prune.set_dry_run(true);
  auto pruned = Value(Call(modules_.get(), &v1::ModuleService::Stub::PruneModules, prune));
  ASSERT_EQ(pruned.pruned_size(), 1);
  EXPECT_EQ(pruned.pruned(0).name(), parent + "/versions/2");
  prune.set_dry_run(false);
  pruned = Value(Call(modules_.get(), &v1::ModuleService::Stub::PruneModules, prune));
  EXPECT_EQ(pruned.pruned_size(), 1);
  get.set_name(parent + "/versions/2");
  EXPECT_EQ(Value(Call(modules_.get(), &v1::ModuleService::Stub::GetModuleVersion, get)).state(),
            v1::ModuleVersion::PRUNED);
}

TEST_F(TunerServiceTest, DeviceCallsGoOnToTheTracker) {
  v1::GetDeviceRequest request;
  request.set_name("devices/sim");
  absl::StatusOr<v1::Device> device;
  for (int i = 0; i < 200; ++i) {  // until the agent's first call
    device = Call(devices_.get(), &v1::FleetAdminService::Stub::GetDevice, request);
    if (device.ok()) break;
    support::SleepMs(25);
  }
  EXPECT_EQ(Value(device).pool(), "cpu-sim");
  request.set_name("devices/nope");
  EXPECT_EQ(Slug(Call(devices_.get(), &v1::FleetAdminService::Stub::GetDevice, request).status()),
            "device.name.not_found");
  fleet_.reset();
  const absl::Status away =
      Call(devices_.get(), &v1::FleetAdminService::Stub::GetDevice, request).status();
  EXPECT_TRUE(daemon::IsRetryable(away)) << away;
  EXPECT_THAT(StatusText(away), HasSubstr("tracker"));
}

}  // namespace
}  // namespace tilewright::service
