// A board with the accelerator in a fleet: tracker, agent and worker are real, the hardware is a
// mock board (tests/support/vta_mock_board.h). Candidates that hang, that take too long, whose
// stream is bad, or whose result is wrong: each has a typed outcome with what the driver said, the
// agent lives, and the next good candidate is right. For tests of one thread.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "deploy/module/kernel_module.h"
#include "deploy/runtime/input_gen.h"
#include "deploy/support/file.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"
#include "tests/fault/loopback_fleet.h"
#include "tests/support/vta_mock_board.h"
#include "tests/support/vta_programs.h"
#include "vta/driver/device_list.h"

namespace tilewright::device_agent {
namespace {

using support::StrCat;
using testing::HasSubstr;
using tests::BoardFault;
using tests::LoopbackConsumer;
using tests::LoopbackDaemon;
using tests::MockBoard;

constexpr int64_t kVectors = 6, kFactor = 3;
constexpr uint64_t kSeed = 5;
constexpr module::Distribution kLaw{module::Distribution::Kind::kIntRange, -100, 100};
constexpr char kDevice[] = "devices/bench-board";

// `add` gives no token to the store, which then waits for ever.
vta::Program WithoutToken(vta::Program program) {
  for (vta::Instruction& i : program.stream) i.push_next = 0;
  return program;
}

std::string ModuleOf(const vta::Program& program) {
  const vta::Config config;
  module::KernelModule made;
  made.name = program.name;
  made.target = "vta";
  made.format = vta::kCodeFormat;
  made.code = tests::CodeBytes(config, {program});
  made.inputs = {{"x", {kVectors * config.block}, module::DType::kInt32}};
  made.outputs = {{"y", {kVectors * config.block}, module::DType::kInt8}};
  made.launches.emplace_back().symbol = StrCat("tw_kernel_", program.name);
  const auto bytes = module::SerializeKernelModule(made);
  EXPECT_TRUE(bytes.ok()) << bytes.status();
  return bytes.value_or("");
}

v1::InputSpec Inputs() {
  v1::InputSpec inputs;
  v1::TensorSpec* tensor = inputs.add_tensors();
  tensor->set_name("x");
  tensor->set_dtype("i32");
  tensor->add_shape(kVectors * vta::Config().block);
  tensor->set_seed(kSeed);
  tensor->mutable_distribution()->mutable_integers()->set_low(static_cast<int64_t>(kLaw.a));
  tensor->mutable_distribution()->mutable_integers()->set_high(static_cast<int64_t>(kLaw.b));
  return inputs;
}

std::string Expected() {
  std::vector<int32_t> x(static_cast<size_t>(kVectors * vta::Config().block));
  const absl::Status made = runtime::GenerateInput(
      module::DType::kInt32, static_cast<int64_t>(x.size()), kLaw, kSeed, x.data());
  EXPECT_TRUE(made.ok()) << made;
  const std::vector<int8_t> y = tests::Scaled(x, kFactor);
  return {y.begin(), y.end()};
}

class VtaBoardFleet : public testing::Test {
 protected:
  void SetUp() override {
    setenv("TILEWRIGHT_VTA_ROOT", board_.root().c_str(), 1);
    dir_ = std::make_unique<support::TempDir>(*support::TempDir::Create("vta_fleet"));
    tracker_ = std::make_unique<LoopbackDaemon>(
        "tilewright-tracker", dir_->File("tracker"),
        std::vector<std::string>{"--listen", "127.0.0.1:0", "--log-level", "info"});
    tracker_->Start();
    ASSERT_TRUE(tracker_->Ready()) << tracker_->log();
    const std::string device =
        StrCat("vta,name=board,index=", vta::CountDevices() - 1, ",nodes=", board_.root());
    agent_ = std::make_unique<LoopbackDaemon>(
        "tilewright-agent", dir_->File("agent"),
        std::vector<std::string>{"--tracker", tracker_->Address(), "--name", "bench", "--device",
                                 device, "--log-level", "info"});
    agent_->Start();
    ASSERT_TRUE(agent_->Ready()) << agent_->log();
    consumer_.Connect(tracker_->Address());
    good_ = tests::ScaleProgram({}, kVectors, kFactor);
  }
  void TearDown() override { unsetenv("TILEWRIGHT_VTA_ROOT"); }

  void Submit(const std::string& name, const vta::Program& program) {
    v1::WorkItem item;
    item.set_name(name);
    item.set_target("vta");
    item.set_job("job");
    v1::Work* work = item.mutable_work();
    work->set_work_item(name);
    *work->mutable_artifact() = consumer_.Upload(ModuleOf(program));
    *work->mutable_expected_output() = consumer_.Upload(Expected());
    *work->mutable_inputs() = Inputs();
    work->mutable_wall_limit()->set_seconds(60);
    *work->mutable_plan() = tests::ShortPlan();
    consumer_.Submit({item});
    ++submitted_;
  }
  v1::MeasurementResult Await(const std::string& name) {
    EXPECT_TRUE(consumer_.PullUntil(submitted_)) << agent_->log();
    const auto found = consumer_.finals().find(name);
    return found == consumer_.finals().end() ? v1::MeasurementResult() : found->second.result();
  }
  v1::MeasurementResult Measure(const std::string& name, const vta::Program& program) {
    Submit(name, program);
    return Await(name);
  }
  void ExpectGood(const std::string& name) {
    const v1::MeasurementResult result = Measure(name, good_);
    EXPECT_EQ(result.outcome(), v1::OK) << result.DebugString();
    EXPECT_EQ(result.device(), kDevice);
    EXPECT_EQ(result.value_kind(), v1::VALUE_KIND_DEVICE_NS);
    EXPECT_FALSE(agent_->Dead());
    if (good_ns_ == 0) good_ns_ = result.median();
    EXPECT_EQ(result.median(), good_ns_) << "the mock board counts the same cycles each time";
    EXPECT_GT(good_ns_, 0);
  }

  MockBoard board_{{.for_agents = true}};
  std::unique_ptr<support::TempDir> dir_;
  std::unique_ptr<LoopbackDaemon> tracker_, agent_;
  LoopbackConsumer consumer_;
  vta::Program good_;
  size_t submitted_ = 0;
  double good_ns_ = 0;
};

TEST_F(VtaBoardFleet, BadCandidatesEndAsWhatTheyAre) {
  ASSERT_FALSE(HasFatalFailure());
  struct Row {
    const char* name;
    vta::Program program;
    BoardFault fault;
    v1::Outcome outcome;
    const char* error_class;
    const char* detail;
  };
  const Row rows[] = {
      {"time-out", good_, BoardFault::kNeverDone, v1::RUN_TIMEOUT, "DEVICE_LIMIT",
       "vta.board.timeout"},
      {"bad-stream", WithoutToken(good_), BoardFault::kNone, v1::BUILD_ERROR, "LOAD_REFUSED",
       "program scale"},
      {"wrong", tests::ScaleProgram({}, kVectors, kFactor + 1), BoardFault::kNone, v1::WRONG_RESULT,
       "FIRST_RUN", ""},
  };
  ExpectGood("first");
  for (const Row& row : rows) {
    board_.set_fault(row.fault);
    const v1::MeasurementResult result = Measure(row.name, row.program);
    board_.set_fault(BoardFault::kNone);
    EXPECT_EQ(result.outcome(), row.outcome) << row.name << ": " << result.DebugString();
    EXPECT_EQ(result.error_class(), row.error_class) << row.name;
    EXPECT_THAT(result.error_detail(), HasSubstr(row.detail)) << row.name;
    ExpectGood(StrCat("after-", row.name));
  }
  EXPECT_THAT(consumer_.again(), testing::IsEmpty()) << "what a candidate does is not tried again";
}

// Hardware that stands still may be at fault itself: the trial is given back, with what the driver
// said, and measured when the device passes its self-test again.
TEST_F(VtaBoardFleet, ABoardThatHangsGivesItsTrialBack) {
  ASSERT_FALSE(HasFatalFailure());
  ExpectGood("first");
  board_.set_fault(BoardFault::kFrozen);
  Submit("hang", good_);
  EXPECT_TRUE(tests::WaitFor([&] {
    consumer_.Pull();
    return !consumer_.again().empty();
  })) << agent_->log();
  board_.set_fault(BoardFault::kNone);
  EXPECT_EQ(Await("hang").outcome(), v1::OK) << agent_->log();
  ASSERT_FALSE(consumer_.given_back().empty());
  const v1::MeasurementResult& lost = consumer_.given_back().front();
  EXPECT_EQ(lost.outcome(), v1::DEVICE_LOST);
  EXPECT_EQ(lost.error_class(), "DRIVER");
  EXPECT_THAT(lost.error_detail(), HasSubstr("vta.board.hang"));
  ExpectGood("after-hang");
}

}  // namespace
}  // namespace tilewright::device_agent
