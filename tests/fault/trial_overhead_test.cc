// What a trial costs beside the kernel's own time (check, warm-up and timed runs): from the moment
// its artifact is ready at the tuner's side to the moment its record is committed there, through a
// real tracker, agent and worker, all durable. One trial at a time: nothing hides behind another.
// The bar here is wide, for machines that do other things too; tests/long/overhead.py compares with
// the published one.
#include <gtest/gtest.h>

#include <cstdio>
#include <string>
#include <vector>

#include "deploy/sql/database.h"
#include "tests/fault/loopback_fleet.h"
#include "tests/support/patience.h"
#include "tests/support/steady_work.h"
#include "tests/support/test_seed.h"

namespace tilewright::tests {
namespace {

constexpr double kBarMs = 250;
// A trial waits for five, and others write to this disk, too.
constexpr double kSyncs = 20;

double MsOf(const google::protobuf::Duration& duration) {
  return static_cast<double>(duration.seconds()) * 1e3 +
         static_cast<double>(duration.nanos()) * 1e-6;
}

class TrialOverheadTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto dir = support::TempDir::Create("trial_overhead");
    ASSERT_TRUE(dir.ok()) << dir.status();
    dir_ = std::make_unique<support::TempDir>(*std::move(dir));
    tracker_ = std::make_unique<LoopbackDaemon>("tilewright-tracker", dir_->File("tracker"),
                                                std::vector<std::string>{});
    tracker_->Start({"--listen", "127.0.0.1:0"});
    ASSERT_TRUE(tracker_->Ready()) << tracker_->log();
    agent_ = std::make_unique<LoopbackDaemon>(
        "tilewright-agent", dir_->File("agent"),
        std::vector<std::string>{"--tracker", tracker_->Address(), "--device", "cpu", "--name",
                                 "a"});
    agent_->Start();
    ASSERT_TRUE(agent_->Ready()) << agent_->log();
    setup_.Connect(tracker_->Address());
    stub_ = v1::DispatchService::NewStub(daemon::MakeChannel(tracker_->Address(), {true}));
    auto log = sql::Database::Open(dir_->File("log.db"));
    ASSERT_TRUE(log.ok()) << log.status();
    log_ = std::make_unique<sql::Database>(*std::move(log));
    ASSERT_TRUE(log_->Exec("CREATE TABLE records (id TEXT PRIMARY KEY, result BLOB)").ok());
  }

  // A trial of one task (equal inputs and outputs) whose module nobody has yet.
  v1::WorkItem Prepare(int number, std::string* module) {
    KernelOptions options;
    options.name = support::StrCat("trial", number);
    *module = KernelModule("honest", options);
    return setup_.Item(support::StrCat("w", number), "honest");
  }

  // From here the clock runs.
  void Submit(v1::WorkItem item, const std::string& module) {
    *item.mutable_work()->mutable_artifact() = setup_.Upload(module);
    setup_.Submit({item});
  }

  // The open item's last update. On a machine that stood still longer than a lease the tracker says
  // before it that the item was queued again.
  v1::WorkUpdate Pull() {
    support::SystemClock clock;
    const int64_t end_ns = clock.NowNs() + Patiently(kDeadlineMs) * 1'000'000;
    while (clock.NowNs() < end_ns) {
      v1::PullResultsRequest request;
      request.set_consumer(kConsumer);
      request.set_cursor(cursor_);
      request.mutable_max_wait()->set_seconds(20);
      v1::PullResultsResponse response;
      grpc::ClientContext context;
      daemon::SetTimeout(&context, Patiently(kDeadlineMs));
      EXPECT_TRUE(stub_->PullResults(&context, request, &response).ok());
      cursor_ = response.cursor();
      for (const v1::WorkUpdate& update : response.updates()) {
        if (update.state() != v1::WORK_STATE_QUEUED) return update;
      }
    }
    return {};
  }

  // Pulls the open item's result and commits it.
  v1::MeasurementResult Record() {
    const v1::WorkUpdate update = Pull();
    const v1::MeasurementResult& result = update.result();
    auto insert = log_->Prepare("INSERT INTO records VALUES (?1, ?2)");
    EXPECT_TRUE(insert.ok()) << insert.status();
    EXPECT_TRUE(insert->BindText(1, result.measurement_id())
                    .BindBlob(2, result.SerializeAsString())
                    .Run()
                    .ok());
    return result;
  }

  // What a durable write costs on this disk just now.
  double SyncMs() {
    support::SystemClock clock;
    const int64_t begin_ns = clock.NowNs();
    EXPECT_TRUE(support::WriteFileAtomic(dir_->File("sync"), "as long as a record").ok());
    return static_cast<double>(clock.NowNs() - begin_ns) * 1e-6;
  }

  std::unique_ptr<support::TempDir> dir_;
  std::unique_ptr<LoopbackDaemon> tracker_;
  std::unique_ptr<LoopbackDaemon> agent_;
  LoopbackConsumer setup_;
  std::unique_ptr<v1::DispatchService::Stub> stub_;
  std::unique_ptr<sql::Database> log_;
  std::string cursor_;
};

TEST_F(TrialOverheadTest, FromArtifactToCommittedRecord) {
  const int trials = static_cast<int>(TestRounds(30));
  constexpr int kWarmUp = 5;
  support::SystemClock clock;
  std::vector<double> overhead, fetch, load, run, sync;
  for (int i = 0; i < trials + kWarmUp; ++i) {
    std::string module;
    const v1::WorkItem item = Prepare(i, &module);
    const int64_t begin_ns = clock.NowNs();
    Submit(item, module);
    const v1::MeasurementResult result = Record();
    const double total_ms = static_cast<double>(clock.NowNs() - begin_ns) * 1e-6;
    ASSERT_EQ(result.outcome(), v1::OK) << result.DebugString();
    ASSERT_EQ(result.work_item(), item.name());
    if (i < kWarmUp) continue;
    sync.push_back(SyncMs());
    run.push_back(MsOf(result.run_time()));
    fetch.push_back(MsOf(result.fetch_time()));
    load.push_back(MsOf(result.load_time()));
    overhead.push_back(total_ms - run.back());
  }
  EXPECT_GT(Quantile(run, 0.5), 0) << "the kernel's own time is known";
  EXPECT_GT(Quantile(overhead, 0), 0);
  if (kSlowdown == 1) {
    EXPECT_LT(Quantile(overhead, 0.5), kBarMs + kSyncs * Quantile(sync, 0.5));
  }
  EXPECT_EQ(log_->QueryInt64("SELECT COUNT(*) FROM records").value_or(0), trials + kWarmUp);
  std::printf(
      "counts: trials=%d overhead_p50_ms=%.3f overhead_p90_ms=%.3f fetch_p50_ms=%.3f "
      "load_p50_ms=%.3f run_p50_ms=%.3f sync_p50_ms=%.3f\n",
      trials, Quantile(overhead, 0.5), Quantile(overhead, 0.9), Quantile(fetch, 0.5),
      Quantile(load, 0.5), Quantile(run, 0.5), Quantile(sync, 0.5));
  EXPECT_EQ(agent_->End().exit_code, 0);
}

}  // namespace
}  // namespace tilewright::tests
