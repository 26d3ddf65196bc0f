// Jobs of a tuner from their creation to their end, over gRPC.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "deploy/module/module_file.h"
#include "deploy/support/clock.h"
#include "tests/unit/tuner_service_fixture.h"

namespace tilewright::service {
namespace {

using support::Slug;
using support::StatusText;
using testing::HasSubstr;

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

TEST_F(TunerServiceTest, OpenSizesComeBackWithTheJobAndItsModule) {
  v1::CreateJobRequest request = Request(8);
  (*request.mutable_job()->mutable_open_sizes())["batch"].set_min(1);
  (*request.mutable_job()->mutable_open_sizes())["batch"].set_max(32);
  (*request.mutable_job()->add_specialise()->mutable_sizes())["batch"] = 8;
  const v1::Job created = Value(Create(request));
  EXPECT_EQ(created.open_sizes().at("batch").max(), 32);
  Watch(created.name());
  const v1::Job job = Value(Get(created.name()));
  ASSERT_EQ(v1::Job::State_Name(job.state()), "SUCCEEDED") << job.state_reason();
  ASSERT_EQ(job.specialise_size(), 1);
  EXPECT_EQ(job.specialise(0).sizes().at("batch"), 8);

  v1::ResolveModuleRequest question;
  question.set_parent("projects/default/modules/fake-net");
  const auto resolve = [&](int64_t batch) {
    (*question.mutable_sizes()->mutable_input_shapes())["batch"].Clear();
    (*question.mutable_sizes()->mutable_input_shapes())["batch"].add_dims(batch);
    return Call(modules_.get(), &v1::ModuleService::Stub::ResolveModule, question);
  };
  const v1::ModuleVersion version = Value(resolve(4)).version();
  EXPECT_EQ(version.name(), job.published_module());
  EXPECT_EQ(version.sizes().open_sizes().at("batch").max(), 32);
  EXPECT_EQ(version.sizes().specialise(0).sizes().at("batch"), 8);
  EXPECT_EQ(Slug(resolve(64).status()), "module.not_found");
}

TEST_F(TunerServiceTest, ListsPageAndAgree) {
  const std::string name = Value(Create(Request(12))).name();
  Value(Create(Request(2)));
  WaitForEnd(name);
  // One by one and all at once give the same.
  const std::vector<v1::Trial> one_by_one = AllTrials(name, 1);
  const std::vector<v1::Trial> at_once = AllTrials(name, 0);
  const auto again = [](const v1::Trial& trial) { return trial.winner_again(); };
  const size_t all = 12 + static_cast<size_t>(std::count_if(at_once.begin(), at_once.end(), again));
  ASSERT_EQ(one_by_one.size(), all);
  ASSERT_EQ(at_once.size(), all);
  std::set<std::string> names;
  for (size_t i = 0; i < all; ++i) {
    EXPECT_EQ(one_by_one[i].name(), at_once[i].name());
    names.insert(one_by_one[i].name());
    EXPECT_EQ(at_once[i].state(), v1::Trial::SUCCEEDED);
    ASSERT_EQ(at_once[i].measurements_size(), 1);
    EXPECT_EQ(at_once[i].device(), "devices/sim");
  }
  EXPECT_EQ(names.size(), all);
  EXPECT_EQ(AllTrials(name + "/tasks/t0", 2).size() + AllTrials(name + "/tasks/t1", 2).size(), all);

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
      {"job.spec.bad",
       [](auto* r) {
         r->mutable_job()->mutable_budget()->mutable_max_wall()->set_seconds(int64_t{1} << 60);
       }},
      {"job.cost_model.unknown", [](auto* r) { r->mutable_job()->set_cost_model("oracle"); }},
      {"search.part", [](auto* r) { r->mutable_job()->add_search_parts("luck=on"); }},
      {"job.name.unprintable", [](auto* r) { r->mutable_job()->set_display_name("\x1b[2Jx"); }},
      {"job.name.unprintable",
       [](auto* r) { r->mutable_job()->set_display_name(std::string("a\0b", 3)); }},
      {"job.name.unprintable", [](auto* r) { r->mutable_job()->set_model_name("\u202Exnno.x"); }},
      {"job.priority.bad", [](auto* r) { r->mutable_job()->set_priority(9); }},
      {"job.shape.bad",
       [](auto* r) { (*r->mutable_job()->mutable_input_shapes())["x"].add_dims(0); }},
      {"job.shape.bad", [](auto* r) { (*r->mutable_job()->mutable_open_sizes())["n"].set_min(2); }},
      {"driver.specialise.fixed",
       [](auto* r) { (*r->mutable_job()->add_specialise()->mutable_sizes())["n"] = 2; }},
      {"driver.specialise.name",
       [](auto* r) {
         (*r->mutable_job()->mutable_open_sizes())["n"].set_max(8);
         (*r->mutable_job()->add_specialise()->mutable_sizes())["m"] = 2;
       }},
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
  size_t finals = 0;
  v1::ExportLogRequest request;
  request.set_name(name);
  for (const std::string& line : support::Split(Export(request), '\n')) {
    if (line.empty()) continue;
    const auto record = nlohmann::json::parse(line, nullptr, false);
    ASSERT_TRUE(record.is_object()) << line;
    EXPECT_TRUE(ids.insert(record["measurement_id"].get<std::string>()).second);
    if (record["generated_by"] == "final") ++finals;
  }
  EXPECT_EQ(ids.size(), 60 + finals);
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

TEST_F(TunerServiceTest, DeviceCallsGoOnToTheTracker) {
  v1::GetDeviceRequest request;
  request.set_name("devices/sim");
  absl::StatusOr<v1::Device> device;
  for (int i = 0; i < 1200; ++i) {  // until the agent's first call
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
