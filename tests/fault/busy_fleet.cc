#include "tests/fault/busy_fleet.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "deploy/daemon/fleet_contract.h"
#include "deploy/support/strings.h"
#include "tests/support/patience.h"

namespace tilewright::tests {
namespace {

using support::StrCat;

constexpr int kModels = 4;
constexpr int64_t kSubmitAgainMs = 700;
constexpr int64_t kEvidenceMs = 25;

// What a worker has measured, in contrast to what kept it from measuring.
bool IsRecord(const std::string& outcome) {
  return outcome != "DEVICE_LOST" && outcome != "CANCELLED";
}

}  // namespace

void MeasurementEvidence::Read(const std::string& log_tail) {
  for (const std::string_view line : support::Split(log_tail, '\n')) {
    // Cheap first: the tail is read again and again.
    const bool measured = line.find("\"measurement.done\"") != std::string_view::npos;
    if (!measured && line.find("\"result.acked\"") == std::string_view::npos) continue;
    const auto json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!json.is_object()) continue;  // cut by the tail's begin or by a death
    const std::string id = json.value("measurement_id", "");
    if (measured) {
      measured_[id] = json.value("outcome", "");
    } else {
      acked_.emplace(id, json.value("disposition", ""));  // the first answer says most
    }
  }
}

BusyFleet::~BusyFleet() {
  stop_.store(true);
  if (thread_.joinable()) thread_.join();
}

void BusyFleet::StartTracker() {
  auto dir = support::TempDir::Create("busy_fleet");
  ASSERT_TRUE(dir.ok()) << dir.status();
  dir_ = std::make_unique<support::TempDir>(*std::move(dir));
  state_dir_ = options_.state_dir.empty() ? dir_->path() : options_.state_dir;
  tracker_ = std::make_unique<LoopbackDaemon>(
      "tilewright-tracker", StateDir("tracker"),
      std::vector<std::string>{"--lease-ttl-ms", StrCat(options_.lease_ttl_ms), "--recovery-ms",
                               "100"});
  if (options_.host_faults) {
    ASSERT_TRUE(tracker_->UseHostFaults().ok());
  }
  tracker_->Start({"--listen", "127.0.0.1:0"});
  ASSERT_TRUE(tracker_->Ready()) << tracker_->log();
  address_ = tracker_->Address();
}

void BusyFleet::StartWork(const std::string& agents_dial, const std::string& consumer_dials) {
  for (int i = 0; i < options_.agents; ++i) {
    const std::string name = StrCat("agent", i);
    agents_.push_back(std::make_unique<LoopbackDaemon>(
        "tilewright-agent", StateDir(name),
        std::vector<std::string>{"--tracker", agents_dial, "--device", "cpu", "--name", name,
                                 "--sync-hold-ms", "300", "--log-level", "debug"}));
    if (options_.host_faults) {
      ASSERT_TRUE(agents_.back()->UseHostFaults().ok());
    }
    agents_.back()->Start();
  }
  for (const auto& agent : agents_) ASSERT_TRUE(agent->Ready()) << agent->log();
  consumer_.Connect(consumer_dials);
  for (int i = 0; i < kModels; ++i) models_.push_back(consumer_.Item("", "honest"));
  thread_ = std::thread([this] { ConsumeLoop(); });
}

void BusyFleet::AddItems(std::vector<v1::WorkItem>* open) {
  while (open->size() < options_.open_items) {
    v1::WorkItem item = models_[items_ % models_.size()];
    item.set_name(StrCat("w", ++items_));
    item.mutable_work()->set_work_item(item.name());
    item.set_max_batch(3);
    open->push_back(std::move(item));
  }
}

void BusyFleet::ConsumeLoop() {
  support::SystemClock clock;
  std::vector<v1::WorkItem> open;
  int64_t submit_ns = 0;
  while (!stop_.load()) {
    const size_t before = open.size();
    std::erase_if(
        open, [&](const v1::WorkItem& item) { return consumer_.finals().count(item.name()) != 0; });
    finals_.store(consumer_.finals().size());
    const bool finishing = finishing_.load();
    if (finishing && open.empty()) break;
    if (!finishing) AddItems(&open);
    // Again after a while: the tracker may not have heard of them.
    if (open.size() > before || clock.NowNs() >= submit_ns) {
      consumer_.TrySubmit(open);
      submit_ns = clock.NowNs() + kSubmitAgainMs * 1'000'000;
    }
    consumer_.Pull();
  }
  done_.store(true);
}

void BusyFleet::ReadEvidence() {
  for (const auto& agent : agents_) evidence_.Read(agent->log());
}

void BusyFleet::KillAndRestart(LoopbackDaemon* daemon) {
  daemon->Kill9();
  ReadEvidence();
  if (daemon != tracker_.get()) {
    daemon->Start();
    return;
  }
  daemon->Start({"--listen", address_});
  ASSERT_TRUE(daemon->Ready()) << daemon->log();
}

void BusyFleet::RunFor(int64_t ms) {
  support::SystemClock clock;
  const int64_t end_ns = clock.NowNs() + ms * 1'000'000;
  for (;;) {
    ReadEvidence();
    const int64_t left_ms = (end_ns - clock.NowNs()) / 1'000'000;
    if (left_ms <= 0) return;
    support::SleepMs(std::min(left_ms, kEvidenceMs));
  }
}

bool BusyFleet::Finish(int64_t patience_ms) {
  finishing_.store(true);
  support::SystemClock clock;
  const int64_t end_ns = clock.NowNs() + Patiently(patience_ms) * 1'000'000;
  while (!done_.load() && clock.NowNs() < end_ns) RunFor(kEvidenceMs);
  stop_.store(true);
  thread_.join();
  // An orderly end: the agents hear what they have not heard yet. One may just have been started.
  for (const auto& agent : agents_) EXPECT_TRUE(agent->Ready()) << agent->log();
  ReadEvidence();
  for (const auto& agent : agents_) EXPECT_EQ(agent->End().exit_code, 0) << agent->log();
  ReadEvidence();
  return done_.load();
}

void BusyFleet::CheckEveryMeasurement() const {
  const auto& received = consumer_.results_by_id();
  EXPECT_EQ(consumer_.finals().size(), items_);
  for (const auto& [name, update] : consumer_.finals()) {
    if (update.state() == v1::WORK_STATE_QUARANTINED) {
      // It ran when two agents were killed: nobody can know that it was not to blame.
      EXPECT_EQ(update.reason(), "work.candidate.poison");
      EXPECT_EQ(update.result().phase(), daemon::kAgentEndedPhase) << update.ShortDebugString();
      EXPECT_GE(update.result().attempt(), 2);
      continue;
    }
    EXPECT_EQ(update.state(), v1::WORK_STATE_DONE) << update.ShortDebugString();
    EXPECT_EQ(update.result().outcome(), v1::OK) << update.ShortDebugString();
    EXPECT_EQ(update.result().work_item(), name);
    EXPECT_TRUE(received.count(update.result().measurement_id())) << update.ShortDebugString();
  }
  for (const auto& [id, count] : received) {
    EXPECT_EQ(count, 1) << id << " came more than once";
    // An agent that died in mid-measurement says so when it is back, without having measured.
    const auto update = consumer_.finals().find(id.substr(0, id.find('/')));
    const bool final = update != consumer_.finals().end() &&
                       update->second.state() == v1::WORK_STATE_DONE &&
                       update->second.result().measurement_id() == id;
    EXPECT_TRUE(!final || evidence_.measured().count(id)) << id << " was never measured";
  }
  for (const auto& [id, disposition] : evidence_.acked()) {
    const auto measured = evidence_.measured().find(id);
    if (measured == evidence_.measured().end() || !IsRecord(measured->second)) continue;
    EXPECT_NE(disposition, "DISPOSITION_REJECTED") << id;
    const auto final = consumer_.finals().find(id.substr(0, id.find('/')));
    if (final == consumer_.finals().end()) continue;  // a canary is the tracker's own
    // One that came after another attempt had ended the item is kept, but not passed on.
    const bool superseded =
        disposition != "DISPOSITION_STORED" && final->second.result().measurement_id() != id;
    EXPECT_TRUE(superseded || received.count(id)) << id << " was acknowledged and lost";
  }
}

std::string BusyFleet::Logs() const {
  std::string text = StrCat("--- tracker\n", tracker_->log());
  for (const auto& agent : agents_) text += StrCat("--- agent\n", agent->log());
  return text;
}

}  // namespace tilewright::tests
