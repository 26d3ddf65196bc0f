// The builder's side of a job of open sizes: which tasks it gets, and what the module makes of
// their schedules.
#include "tuner_server/search/builder_session.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "compiler/driver/compile.h"
#include "deploy/module/module_file.h"
#include "deploy/support/file.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"
#include "tests/support/run_compiled.h"
#include "tests/unit/onnx_builder.h"
#include "tilewright_onnx.pb.h"
#include "tuner_server/search/predicted_steps.h"

namespace tilewright::search {
namespace {

using tests::OnnxBuilder;

// y = relu(x W1) W2 of [batch, 48]; `scale` doubles a constant vector, whatever the batch is.
std::string OpenModel() {
  OnnxBuilder b;
  b.Input("x", {2, 48}).Input("v", {32}).Weight("w1", {48, 96}, 0.2).Weight("w2", {96, 10}, 0.2);
  b.Node("MatMul", {"x", "w1"}, "h");
  b.Node("Relu", {"h"}, "r");
  b.Node("MatMul", {"r", "w2"}, "y");
  b.Node("Add", {"v", "v"}, "scale");
  b.Output("y", {2, 10}).Output("scale", {32});
  tilewright_onnx::ModelProto model;
  EXPECT_TRUE(model.ParseFromString(b.Bytes()));
  auto* x = model.mutable_graph()->mutable_input(0)->mutable_type()->mutable_tensor_type();
  x->mutable_shape()->mutable_dim(0)->set_dim_param("batch");
  for (auto& output : *model.mutable_graph()->mutable_output()) {
    output.mutable_type()->mutable_tensor_type()->clear_shape();
  }
  return model.SerializeAsString();
}

class OpenSizesSession : public testing::Test {
 protected:
  void SetUp() override {
    auto folder = support::TempDir::Create("builder-session");
    ASSERT_TRUE(folder.ok()) << folder.status();
    folder_ = std::make_unique<support::TempDir>(*std::move(folder));
    ASSERT_TRUE(support::WriteFileAtomic(folder_->File("m.onnx"), OpenModel()).ok());
  }

  v1::BuilderReply Open(const std::vector<std::map<std::string, int64_t>>& points,
                        bool states = false, const std::string& cost_model = "prior",
                        const std::string& target = tests::WidestTarget().ToString(),
                        int64_t most = 32) {
    session_ = std::make_unique<BuilderSession>();
    v1::BuilderRequest request;
    v1::OpenJob* open = request.mutable_open_job();
    open->set_model_path(folder_->File("m.onnx"));
    open->set_target(target);
    open->set_cost_model(cost_model);
    (*open->mutable_open_sizes())["batch"].set_min(1);
    (*open->mutable_open_sizes())["batch"].set_max(most);
    for (const auto& point : points) {
      open->add_specialise()->mutable_sizes()->insert(point.begin(), point.end());
    }
    open->set_known_states(states);
    return session_->Handle(request);
  }

  std::unique_ptr<support::TempDir> folder_;
  std::unique_ptr<BuilderSession> session_;
};

// A compiler that stands in for NVRTC reports that every kernel spills registers. Only the default
// schedule goes to a device.
TEST(Candidates, ThatSpillAreNoDevicesWork) {
  ASSERT_NE(dlopen(TILEWRIGHT_FAKE_NVRTC, RTLD_NOW | RTLD_GLOBAL), nullptr) << dlerror();
  const target::Target target = *target::ParseTarget("cuda,arch=sm_90");
  v1::BuilderRequest request;
  v1::Build& build = *request.mutable_build();
  build.set_task_canonical_text(
      "graph {\n  input %0: f32[8,256]\n  %1: f32[8,256] = relu(%0)\n  output %1\n}\n");
  build.set_target(target.ToString());
  build.set_inline_limit(1 << 20);
  const auto usual = driver::DefaultSteps(build.task_canonical_text(), target);
  ASSERT_TRUE(usual.ok()) << usual.status();
  BuilderSession session;
  v1::ResourceReport reported;
  const auto outcome_of = [&](const std::string& steps, const char* spills) {
    setenv("FAKE_NVRTC_SPILLS", spills, 1);
    build.set_steps(steps);
    const v1::BuilderReply reply = session.Handle(request);
    unsetenv("FAKE_NVRTC_SPILLS");
    EXPECT_TRUE(reply.has_built()) << reply.error().message();
    reported = reply.built().resources();
    return support::StrCat(v1::Outcome_Name(reply.built().outcome()), " ", reply.built().error());
  };
  const std::string other = "fuse %0 %1; split %3 [?,32]; bind %4 blockIdx.x; bind %5 threadIdx.x";
  EXPECT_EQ(outcome_of(other, "0"), "OK ");
  EXPECT_EQ(outcome_of(*usual, "64"), "OK ") << *usual;
  ASSERT_EQ(reported.kernels_size(), 1);
  EXPECT_EQ(reported.kernels(0).spill_bytes(), 64);
  EXPECT_GT(reported.kernels(0).registers(), 0);
  EXPECT_THAT(outcome_of(other, "64"),
              testing::AllOf(testing::StartsWith("BUILD_ERROR codegen.resources.spills: "),
                             testing::HasSubstr("spills 64 bytes")));
}

// The processor runs open tasks of a device's module: its agents get the others.
TEST_F(OpenSizesSession, DevicesGetTasksOfFixedSizes) {
  for (const char* cost_model : {"prior", "xgboost"}) {
    const v1::BuilderReply open = Open({}, false, cost_model, "opencl");
    ASSERT_TRUE(open.has_job_opened()) << open.error().message();
    ASSERT_EQ(open.job_opened().tasks_size(), 1);
    EXPECT_EQ(open.job_opened().tasks(0).description(), "add 32 → 32");
    EXPECT_EQ(open.job_opened().open_tasks_size(), 0);
    const v1::BuilderReply special = Open({{{"batch", 4}}}, false, cost_model, "opencl");
    ASSERT_TRUE(special.has_job_opened()) << special.error().message();
    EXPECT_EQ(special.job_opened().tasks_size(), 3);
    EXPECT_EQ(special.job_opened().open_tasks_size(), 0);
  }
}

TEST_F(OpenSizesSession, TasksAreThoseOfAllPointsEachOnce) {
  const v1::BuilderReply opened = Open({{{"batch", 1}}, {{"batch", 8}}});
  ASSERT_TRUE(opened.has_job_opened()) << opened.error().message();
  std::map<std::string, int> uses;
  for (const v1::BuilderTask& task : opened.job_opened().tasks()) {
    EXPECT_TRUE(uses.emplace(task.description(), task.weight()).second) << task.description();
    EXPECT_EQ(task.description().find("batch"), std::string::npos) << "an open task";
  }
  EXPECT_EQ(uses, (std::map<std::string, int>{{"add 32 → 32", 3},
                                              {"dense_relu 1x48 → 1x96", 1},
                                              {"dense 1x96 → 1x10", 1},
                                              {"dense_relu 8x48 → 8x96", 1},
                                              {"dense 8x96 → 8x10", 1}}));
}

TEST_F(OpenSizesSession, SchedulesOfTasksReachTheFunctionsOfTheirSizesAndTheManifestNamesRecords) {
  const v1::BuilderReply opened = Open({{{"batch", 8}}});
  ASSERT_TRUE(opened.has_job_opened()) << opened.error().message();
  v1::BuilderRequest request;
  v1::CompileModule* compile = request.mutable_compile_module();
  for (const v1::BuilderTask& task : opened.job_opened().tasks()) {
    (*compile->mutable_steps_by_task())[task.hash()] = task.default_steps();
    (*compile->mutable_program_hash_by_task())[task.hash()] = task.default_program_hash();
    (*compile->mutable_record_by_task())[task.hash()] = "record-of-" + task.name();
  }
  compile->set_output_path(folder_->File("m.tw"));
  const v1::BuilderReply reply = session_->Handle(request);
  ASSERT_TRUE(reply.has_module_compiled()) << reply.error().message();
  EXPECT_EQ(reply.module_compiled().stale_size(), 0);
  const auto summary = nlohmann::json::parse(reply.module_compiled().manifest_summary_json());
  for (const auto& kernel : summary["kernels"]) {
    const bool open = kernel["task_name"].get<std::string>().find("batch") != std::string::npos;
    EXPECT_EQ(kernel["tuned"].get<bool>(), !open) << kernel["task_name"];
  }
  const auto file =
      module::ModuleFile::FromBytes(*support::ReadFile(folder_->File("m.tw"), 1 << 24));
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_EQ(file->manifest().functions.size(), 2U);
  EXPECT_EQ(file->manifest().functions[1].at, (module::Sizes{{"batch", 8}}));
  const std::string records = file->manifest().provenance.at("log_records");
  for (const v1::BuilderTask& task : opened.job_opened().tasks()) {
    EXPECT_NE(records.find("record-of-" + task.name()), std::string::npos) << records;
  }
}

TEST_F(OpenSizesSession, WithoutPointsOnlyWhatDependsOnNoSizeIsATask) {
  const v1::BuilderReply opened = Open({});
  ASSERT_TRUE(opened.has_job_opened()) << opened.error().message();
  ASSERT_EQ(opened.job_opened().tasks_size(), 1);
  EXPECT_EQ(opened.job_opened().tasks(0).description(), "add 32 → 32");
}

// Nothing can measure the kernels of all sizes; the cost model chooses their schedules.
TEST_F(OpenSizesSession, SchedulesOfOpenTasksArePredicted) {
  // Of a machine that the model has learned on, wherever the test runs.
  const v1::BuilderReply opened =
      Open({}, false, "xgboost", "cpu,arch=x86_64,cpu=znver3,threads=1");
  ASSERT_TRUE(opened.has_job_opened()) << opened.error().message();
  ASSERT_EQ(opened.job_opened().open_tasks_size(), 2);
  v1::BuilderRequest compile;
  v1::CompileModule* module = compile.mutable_compile_module();
  module->set_output_path(folder_->File("m.tw"));
  for (const v1::BuilderTask& task : opened.job_opened().open_tasks()) {
    EXPECT_GT(task.default_estimate_ns(), 0) << task.description();
  }
  v1::BuilderRequest request;
  request.mutable_predict_schedules();
  const v1::BuilderReply answer = session_->Handle(request);
  ASSERT_TRUE(answer.has_schedules_predicted()) << answer.error().message();
  UsePredicted(answer.schedules_predicted(), module);
  ASSERT_GT(module->predicted_tasks_size(), 0);
  const v1::BuilderReply reply = session_->Handle(compile);
  ASSERT_TRUE(reply.has_module_compiled()) << reply.error().message();
  EXPECT_EQ(reply.module_compiled().stale_size(), 0);
  const auto summary = nlohmann::json::parse(reply.module_compiled().manifest_summary_json());
  int predicted = 0;
  for (const auto& kernel : summary["kernels"])
    predicted += kernel.value("predicted", false) ? 1 : 0;
  EXPECT_EQ(predicted, module->predicted_tasks_size());

  // A job asks for the same with its compilation.
  v1::BuilderRequest of_job;
  of_job.mutable_compile_module()->set_output_path(folder_->File("job.tw"));
  of_job.mutable_compile_module()->set_predict_open_tasks(true);
  const v1::BuilderReply same = session_->Handle(of_job);
  ASSERT_TRUE(same.has_module_compiled()) << same.error().message();
  EXPECT_EQ(same.module_compiled().digest().hash(), reply.module_compiled().digest().hash());
}

// A task of one row takes no time next to those of thousands, but most of that of its function.
TEST_F(OpenSizesSession, WhatASpecialisationRunsIsWorthPredicting) {
  const std::string target = tests::WidestTarget().ToString();
  const v1::BuilderReply opened =
      Open({{{"batch", 1}}, {{"batch", 4096}}}, false, "xgboost", target, 4096);
  ASSERT_TRUE(opened.has_job_opened()) << opened.error().message();
  v1::BuilderRequest request;
  request.mutable_predict_schedules()->mutable_time();  // none: all that are worth it are out of it
  const v1::BuilderReply answer = session_->Handle(request);
  ASSERT_TRUE(answer.has_schedules_predicted()) << answer.error().message();
  EXPECT_EQ(answer.schedules_predicted().schedules_size(), 0);
  EXPECT_GE(answer.schedules_predicted().out_of_time(), 6);  // two products of each function
}

TEST_F(OpenSizesSession, BadPointsAreRefused) {
  EXPECT_TRUE(Open({{{"width", 1}}}).error().message().starts_with("driver.specialise.name"));
  EXPECT_TRUE(Open({{{"batch", 33}}}).error().message().starts_with("driver.specialise.size"));
}

}  // namespace
}  // namespace tilewright::search
