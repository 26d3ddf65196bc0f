// The tracker and the agent die at every failpoint of theirs (deploy/support/failpoints.def), as
// kill -9 does, and are started again: every work item is measured, every measurement arrives once.
// Promise R2 of tests/README.md.
#include "deploy/support/failpoint.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "deploy/support/strings.h"
#include "tests/fault/loopback_fleet.h"
#include "tests/support/patience.h"
#include "tests/support/test_seed.h"

namespace tilewright::tests {
namespace {

using support::StrCat;

constexpr int kItems = 3;  // so that a point is passed more than once
constexpr int64_t kPatienceMs = 60'000;
constexpr int64_t kSubmitEveryMs = 500;
constexpr int64_t kDeathMs = 10'000;   // to a death that must come
constexpr int64_t kLateDeathMs = 300;  // to one that may

class FailpointTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto dir = support::TempDir::Create("failpoint");
    ASSERT_TRUE(dir.ok()) << dir.status();
    dir_ = std::make_unique<support::TempDir>(*std::move(dir));
    tracker_ = std::make_unique<LoopbackDaemon>(
        "tilewright-tracker", dir_->File("tracker"),
        std::vector<std::string>{"--lease-ttl-ms", "1500", "--recovery-ms", "300"});
    tracker_->Start({"--listen", "127.0.0.1:0"});
    ASSERT_TRUE(tracker_->Ready()) << tracker_->log();
    address_ = tracker_->Address();
    agent_ = std::make_unique<LoopbackDaemon>(
        "tilewright-agent", dir_->File("agent"),
        std::vector<std::string>{"--tracker", address_, "--device", "cpu", "--name", "a",
                                 "--sync-hold-ms", "300"});
    agent_->Start();
    ASSERT_TRUE(agent_->Ready()) << agent_->log();
    consumer_.Connect(address_);
    for (int i = 0; i < kItems; ++i) models_.push_back(consumer_.Item("", "honest"));
  }

  // The daemon is started with the failpoint and does its work until it has died of it, or has done
  // all. True when it died. Either way it runs again afterwards, without the failpoint.
  bool DieAt(LoopbackDaemon* daemon, std::string_view point, int hit, int64_t death_ms) {
    const bool tracker = daemon == tracker_.get();
    daemon->Kill9();
    std::vector<std::string> args = {"--test-failpoint", StrCat(point, "=", hit)};
    if (tracker) args.insert(args.end(), {"--listen", address_});
    daemon->Start(args);
    bool died = !daemon->Ready();
    if (!died) Work([&] { return daemon->Dead(); });
    // The last item may be done in the moment of the death, which takes a moment itself. One that
    // did not come by now must not come later.
    died = died || daemon->Dead(Patiently(death_ms));
    if (died) {
      EXPECT_EQ(daemon->End(0).signal, SIGKILL) << daemon->log();
    }
    daemon->Kill9();
    daemon->Start(tracker ? std::vector<std::string>{"--listen", address_}
                          : std::vector<std::string>{});
    EXPECT_TRUE(daemon->Ready()) << daemon->log();
    return died;
  }

  // New items where none are open; submits, pulls, and submits again what the tracker may not have
  // heard of, until all are done or `stop`. False when that takes too long.
  bool Work(const std::function<bool()>& stop) {
    if (open_.empty()) {
      for (v1::WorkItem item : models_) {
        item.set_name(StrCat("w", ++names_));
        item.mutable_work()->set_work_item(item.name());
        open_.push_back(item);
      }
      finals_wanted_ += open_.size();
    }
    support::SystemClock clock;
    const int64_t begin_ns = clock.NowNs();
    int64_t submit_ns = begin_ns;
    bool uploaded = false;
    while ((!uploaded || consumer_.finals().size() < finals_wanted_) && !stop()) {
      const int64_t now_ns = clock.NowNs();
      if (now_ns - begin_ns > Patiently(kPatienceMs) * 1'000'000) return false;
      if (now_ns >= submit_ns) {
        submit_ns = now_ns + kSubmitEveryMs * 1'000'000;
        // Something that the artifact store has not got yet.
        uploaded =
            consumer_.TryUpload(StrCat("blob ", ++uploads_, " of ", dir_->path())) || uploaded;
        consumer_.TrySubmit(open_);
      }
      consumer_.Pull();
    }
    return true;
  }

  void FinishAll(std::string_view point) {
    ASSERT_TRUE(Work([] { return false; })) << point << "\n"
                                            << agent_->log() << "\n"
                                            << tracker_->log();
    for (const v1::WorkItem& item : open_) {
      const v1::WorkUpdate& update = consumer_.finals().at(item.name());
      EXPECT_EQ(update.state(), v1::WORK_STATE_DONE) << point << ": " << update.ShortDebugString();
      EXPECT_EQ(update.result().outcome(), v1::OK) << point << ": " << update.ShortDebugString();
    }
    open_.clear();
  }

  std::unique_ptr<support::TempDir> dir_;
  std::unique_ptr<LoopbackDaemon> tracker_;
  std::unique_ptr<LoopbackDaemon> agent_;
  std::string address_;
  LoopbackConsumer consumer_;
  std::vector<v1::WorkItem> models_;
  std::vector<v1::WorkItem> open_;
  size_t finals_wanted_ = 0;
  int names_ = 0;
  int uploads_ = 0;
};

TEST_F(FailpointTest, DyingAtEveryOneLosesNothingAndCountsNothingTwice) {
  const int64_t rounds = TestRounds(1);
  int deaths = 0;
  for (int64_t round = 0; round < rounds; ++round) {
    for (const std::string_view point : support::kFailpointNames) {
      if (point.starts_with("tuner.")) continue;  // tuner_death_test.cc
      SCOPED_TRACE(point);
      const bool tracker = point.starts_with("tracker.") || point.starts_with("store.");
      LoopbackDaemon* daemon = tracker ? tracker_.get() : agent_.get();
      const bool died = DieAt(daemon, point, 1 + static_cast<int>(round % 3),
                              round == 0 ? kDeathMs : kLateDeathMs);
      // Later hits may not come in a short run; the first one must.
      if (round == 0) {
        EXPECT_TRUE(died) << point << " was not reached";
      }
      deaths += died ? 1 : 0;
      FinishAll(point);
      if (HasFatalFailure()) return;
    }
  }
  for (const auto& [id, count] : consumer_.results_by_id()) EXPECT_EQ(count, 1) << id;
  std::printf("%d deaths, %zu work items, each measured and counted once\n", deaths,
              finals_wanted_);
}

}  // namespace
}  // namespace tilewright::tests
