// The tracker's database: what goes in comes out, whole transactions or nothing, damage and full
// disks are errors that leave the data as it was.
#include "tracker/tracker_store.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "deploy/support/file.h"
#include "tests/support/small_disk.h"
#include "tests/unit/pool_fixture.h"

namespace tilewright::tracker::testing {
namespace {

WorkRow LeasedRow(const std::string& name, int64_t seq) {
  WorkRow row;
  row.consumer = "tuner";
  row.seq = seq;
  row.item = StoredItem(Item(name));
  row.spec_hash = 0xfedcba9876543210ULL;
  row.state = v1::WORK_STATE_LEASED;
  row.infra_losses = 1;
  row.candidate_kills = 2;
  row.invalid_results = 3;
  row.submitted_us = 44;
  row.closed_us = 0;
  row.attempts.push_back({1, "leases/d-1", 1, "devices/d", v1::DISPOSITION_STORED, false});
  row.attempts.push_back({2, "leases/d-7", 7, "devices/d", v1::DISPOSITION_UNSPECIFIED, false});
  return row;
}

ResultRow ResultRowOf(const std::string& item, int attempt, double median) {
  ResultRow row;
  row.disposition = v1::DISPOSITION_STORED;
  row.at_us = 55;
  row.result.set_measurement_id(support::StrCat(item, "/", attempt));
  row.result.set_work_item(item);
  row.result.set_attempt(attempt);
  row.result.set_median(median);
  return row;
}

OutboxRow UpdateOf(int64_t seq, const std::string& item, const std::string& measurement) {
  OutboxRow row;
  row.seq = seq;
  row.consumer = "tuner";
  row.work_item = item;
  row.state = v1::WORK_STATE_DONE;
  row.reason = "because";
  row.measurement_id = measurement;
  row.at_us = 66;
  return row;
}

class TrackerStoreTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto dir = support::TempDir::Create();
    ASSERT_TRUE(dir.ok());
    dir_ = std::make_unique<support::TempDir>(*std::move(dir));
    Open();
  }

  void Open() {
    store_.reset();
    auto store = TrackerStore::Open(Path());
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
    Reload();
  }

  void Reload() {
    auto snapshot = store_->Load();
    ASSERT_TRUE(snapshot.ok()) << snapshot.status();
    snapshot_ = *std::move(snapshot);
  }

  std::string Path() const { return dir_->File("tracker.db"); }

  std::unique_ptr<support::TempDir> dir_;
  std::unique_ptr<TrackerStore> store_;
  Snapshot snapshot_;
};

TEST_F(TrackerStoreTest, EveryFieldSurvivesAReopen) {
  Changes changes;
  changes.items.push_back(LeasedRow("w1", 9));
  changes.results.push_back(ResultRowOf("w1", 1, 12.5));
  changes.outbox.push_back(UpdateOf(31, "w1", "w1/1"));
  DeviceRow device;
  device.name = "devices/d";
  device.last_token = 7;
  device.admin_state = v1::ADMIN_STATE_HELD;
  device.admin_reason = "demo";
  device.admin_version = 4;
  device.hold = HoldRow{"holds/d-4", "ann", "demo", 123456};
  device.health = {Verdict::kQuarantined, "device.canary.failed", "crashed", 3, 77, 88};
  device.canaries = 5;
  device.resets = 2;
  changes.devices.push_back(device);
  changes.usage = {{"ann", 19'000, 12.25}, {"ann", 19'001, 1.5}};
  ASSERT_TRUE(store_->Commit(changes).ok());
  const uint64_t epoch = snapshot_.epoch;
  const std::string store_id = snapshot_.store_id;
  Open();
  EXPECT_EQ(snapshot_.epoch, epoch + 1);
  EXPECT_EQ(snapshot_.store_id, store_id);
  EXPECT_EQ(snapshot_.next_work_seq, 10);
  EXPECT_EQ(snapshot_.next_outbox_seq, 32);
  ASSERT_EQ(snapshot_.usage.size(), 1u) << "of today";
  EXPECT_EQ(snapshot_.usage[0].user, "ann");
  EXPECT_EQ(snapshot_.usage[0].day, 19'001);
  EXPECT_EQ(snapshot_.usage[0].seconds, 1.5);
  ASSERT_EQ(snapshot_.items.size(), 1u);
  const WorkRow& row = snapshot_.items[0];
  const WorkRow& wanted = changes.items[0];
  EXPECT_EQ(row.consumer, wanted.consumer);
  EXPECT_EQ(row.seq, wanted.seq);
  EXPECT_EQ(row.item.SerializeAsString(), wanted.item.SerializeAsString());
  EXPECT_EQ(row.spec_hash, wanted.spec_hash);
  EXPECT_EQ(row.state, wanted.state);
  EXPECT_EQ(row.infra_losses, 1);
  EXPECT_EQ(row.candidate_kills, 2);
  EXPECT_EQ(row.invalid_results, 3);
  EXPECT_EQ(row.submitted_us, 44);
  ASSERT_EQ(row.attempts.size(), 2u);
  EXPECT_EQ(row.attempts[1].lease, "leases/d-7");
  EXPECT_EQ(row.attempts[1].token, 7);
  EXPECT_EQ(row.attempts[0].disposition, v1::DISPOSITION_STORED);
  ASSERT_EQ(snapshot_.outbox.size(), 1u);
  EXPECT_EQ(snapshot_.outbox[0].reason, "because");
  EXPECT_EQ(snapshot_.outbox[0].result.median(), 12.5);
  const auto results = store_->LoadResults("w1");
  ASSERT_TRUE(results.ok()) << results.status();
  ASSERT_EQ(results->size(), 1u);
  EXPECT_EQ(results->at(0).disposition, changes.results[0].disposition);
  EXPECT_EQ(results->at(0).result.median(), 12.5);
  EXPECT_TRUE(store_->LoadResults("w")->empty());
  ASSERT_EQ(snapshot_.devices.size(), 1u);
  EXPECT_EQ(snapshot_.devices[0].last_token, 7);
  EXPECT_EQ(snapshot_.devices[0].hold->holder, "ann");
  EXPECT_EQ(snapshot_.devices[0].hold->expire_us, 123456);
  EXPECT_EQ(snapshot_.devices[0].health, device.health);
  EXPECT_EQ(snapshot_.devices[0].canaries, 5);
  EXPECT_EQ(snapshot_.devices[0].resets, 2);
}

TEST_F(TrackerStoreTest, SequenceNumbersNeverComeBackAfterEverythingWasAcknowledged) {
  Changes changes;
  changes.items.push_back(LeasedRow("w1", 5));
  changes.outbox.push_back(UpdateOf(8, "w1", ""));
  ASSERT_TRUE(store_->Commit(changes).ok());
  Changes ack;
  ack.acked["tuner"] = 8;
  ack.forgotten.push_back("w1");
  ASSERT_TRUE(store_->Commit(ack).ok());
  Open();
  EXPECT_TRUE(snapshot_.items.empty());
  EXPECT_TRUE(snapshot_.outbox.empty());
  EXPECT_EQ(snapshot_.next_outbox_seq, 9);
  EXPECT_EQ(snapshot_.next_work_seq, 6);
}

TEST_F(TrackerStoreTest, AMeasurementIsKeptOnceTheFirstWins) {
  Changes changes;
  changes.items.push_back(LeasedRow("w1", 1));
  changes.results.push_back(ResultRowOf("w1", 1, 1.0));
  changes.results.push_back(ResultRowOf("w1", 1, 2.0));
  changes.outbox.push_back(UpdateOf(1, "w1", "w1/1"));
  ASSERT_TRUE(store_->Commit(changes).ok());
  Reload();
  EXPECT_EQ(snapshot_.outbox[0].result.median(), 1.0);
}

TEST_F(TrackerStoreTest, ASecondAcceptedResultIsRefusedWithTheWholeTransaction) {
  Changes good;
  good.items.push_back(LeasedRow("w1", 1));
  good.items[0].attempts[0].accepted = true;
  ASSERT_TRUE(store_->Commit(good).ok());
  Changes bad;
  DeviceRow device;
  device.name = "devices/x";
  bad.devices.push_back(device);
  bad.items.push_back(good.items[0]);
  bad.items[0].attempts[1].accepted = true;
  const absl::Status status = store_->Commit(bad);
  EXPECT_EQ(status.code(), absl::StatusCode::kAlreadyExists) << status;
  Reload();
  EXPECT_TRUE(snapshot_.devices.empty()) << "a failed transaction left something behind";
  EXPECT_FALSE(snapshot_.items[0].attempts[1].accepted);
  Changes again;
  again.devices.push_back(device);
  EXPECT_TRUE(store_->Commit(again).ok()) << "the store is usable after an error";
}

TEST_F(TrackerStoreTest, ADamagedFileIsRefusedAndLeftAsItIs) {
  Changes changes;
  for (int i = 0; i < 200; ++i) changes.items.push_back(LeasedRow(support::StrCat("w", i), i));
  ASSERT_TRUE(store_->Commit(changes).ok());
  store_.reset();
  auto bytes = support::ReadFile(Path(), 64 << 20);
  ASSERT_TRUE(bytes.ok());
  ASSERT_GT(bytes->size(), 20000u);
  for (size_t i = 8192; i < bytes->size(); i += 97) (*bytes)[i] = static_cast<char>(i);
  ASSERT_TRUE(support::WriteFileAtomic(Path(), *bytes).ok());
  const auto store = TrackerStore::Open(Path());
  ASSERT_FALSE(store.ok());
  EXPECT_EQ(store.status().code(), absl::StatusCode::kDataLoss) << store.status();
  EXPECT_EQ(*support::ReadFile(Path(), 64 << 20), *bytes);
}

TEST_F(TrackerStoreTest, AStateThatNoVersionKnowsIsDamage) {
  Changes changes;
  changes.items.push_back(LeasedRow("w", 1));
  changes.outbox.push_back(UpdateOf(1, "w", ""));
  DeviceRow device;
  device.name = "devices/d";
  changes.devices.push_back(device);
  ASSERT_TRUE(store_->Commit(changes).ok());
  const auto set = [&](const std::string& where, int number) {
    const std::string column = where.substr(where.find('.') + 1);
    auto database = sql::Database::Open(Path());
    ASSERT_TRUE(database.ok());
    ASSERT_TRUE(database
                    ->Exec(support::StrCat("UPDATE ", where.substr(0, where.find('.')), " SET ",
                                           column, " = ", number))
                    .ok());
  };
  for (const char* where : {"work_items.state", "attempts.disposition", "outbox.state",
                            "devices.admin_state", "devices.verdict"}) {
    set(where, 77);
    EXPECT_EQ(store_->Load().status().code(), absl::StatusCode::kDataLoss) << where;
    set(where, 1);
    EXPECT_TRUE(store_->Load().ok()) << where;
  }
}

// Of a large file the check runs beside the first load: the damage is in an index that no load
// reads.
TEST_F(TrackerStoreTest, ADamagedLargeFileIsRefusedByItsFirstLoad) {
  Changes changes;
  for (int i = 0; i < 4000; ++i) {
    changes.items.push_back(LeasedRow(support::StrCat("w", i), i));
    changes.results.push_back(ResultRowOf(support::StrCat("w", i), 1, i));
  }
  ASSERT_TRUE(store_->Commit(changes).ok());
  store_.reset();
  int64_t page = 0;
  {
    auto database = sql::Database::Open(Path());
    ASSERT_TRUE(database.ok());
    page =
        *database->QueryInt64("SELECT rootpage FROM sqlite_schema WHERE name = 'results_by_item'");
  }
  auto bytes = support::ReadFile(Path(), 64 << 20);
  ASSERT_TRUE(bytes.ok());
  const auto begin = static_cast<size_t>(page - 1) * 4096;
  ASSERT_GT(bytes->size(), begin + 4096);
  for (size_t i = begin; i < begin + 4096; ++i) (*bytes)[i] = static_cast<char>(i * 7);
  ASSERT_TRUE(support::WriteFileAtomic(Path(), *bytes).ok());
  auto store = TrackerStore::Open(Path(), 0);
  ASSERT_TRUE(store.ok()) << store.status();
  const auto snapshot = (*store)->Load();
  ASSERT_FALSE(snapshot.ok());
  EXPECT_EQ(snapshot.status().code(), absl::StatusCode::kDataLoss) << snapshot.status();
  store->reset();
  EXPECT_EQ(*support::ReadFile(Path(), 64 << 20), *bytes);
}

// More than one batch of the unpacker, in another thread than the reader's.
TEST_F(TrackerStoreTest, ManyItemsComeBackEachWithItsOwn) {
  constexpr int kItems = 20'000;
  Changes changes;
  for (int i = 0; i < kItems; ++i) {
    WorkRow& row = changes.items.emplace_back(LeasedRow(support::StrCat("w", i), i + 1));
    v1::WorkItem item = Item(support::StrCat("w", i), support::StrCat("job", i / 1000));
    item.set_attempts_before(i % 3);
    row.item = StoredItem(item);
    row.attempts.resize(1);
    row.attempts[0].number = i % 3 + 1;
  }
  ASSERT_TRUE(store_->Commit(changes).ok());
  const uint64_t epoch = snapshot_.epoch;
  store_.reset();
  auto store = TrackerStore::Open(Path(), 0);
  ASSERT_TRUE(store.ok()) << store.status();
  store_ = *std::move(store);
  Reload();
  EXPECT_EQ(snapshot_.epoch, epoch + 1);
  ASSERT_EQ(snapshot_.items.size(), static_cast<size_t>(kItems));
  for (const WorkRow& row : snapshot_.items) {
    const WorkRow& wanted = changes.items[static_cast<size_t>(row.seq) - 1];
    ASSERT_EQ(row.item.SerializeAsString(), wanted.item.SerializeAsString());
    ASSERT_EQ(row.item.name(), wanted.item.name());
    ASSERT_EQ(row.item.job(), wanted.item.job());
    ASSERT_EQ(row.item.digests(), wanted.item.digests());
    ASSERT_EQ(row.item.attempts_before(), wanted.item.attempts_before());
    ASSERT_EQ(row.attempts.size(), 1u);
  }
  Reload();
  EXPECT_EQ(snapshot_.epoch, epoch + 1) << "only an open raises it";
  ASSERT_TRUE(
      sql::Database::Open(Path())->Exec("UPDATE work_items SET spec = x'0a' WHERE seq = 9").ok());
  const auto damaged = store_->Load();
  ASSERT_FALSE(damaged.ok());
  EXPECT_EQ(support::Slug(damaged.status()), "tracker.store.damaged") << damaged.status();
}

TEST_F(TrackerStoreTest, AFullDiskIsAnErrorAndNothingIsLost) {
  const auto disk = tests::SmallDisk::Mount(2 << 20);
  if (disk == nullptr) GTEST_SKIP() << tests::kNoMountSkip;
  auto opened = TrackerStore::Open(support::PathJoin(disk->path(), "t.db"));
  ASSERT_TRUE(opened.ok()) << opened.status();
  auto& store = *opened;
  ASSERT_TRUE(store->Load().ok());
  int committed = 0;
  absl::Status status;
  for (int i = 0; i < 10000; ++i) {
    Changes changes;
    changes.items.push_back(LeasedRow(support::StrCat("w", i), i + 1));
    changes.results.push_back(ResultRowOf(support::StrCat("w", i), 1, i));
    changes.results[0].result.set_error_detail(std::string(4000, 'x'));
    status = store->Commit(changes);
    if (!status.ok()) break;
    ++committed;
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_GT(committed, 10);
  auto snapshot = store->Load();
  ASSERT_TRUE(snapshot.ok()) << snapshot.status();
  EXPECT_EQ(static_cast<int>(snapshot->items.size()), committed);
}

TEST_F(TrackerStoreTest, APoolGoesOnFromItsSnapshot) {
  DevicePool pool(PoolOptions(), snapshot_, At(1));
  pool.Submit("tuner", Item("w1"), At(1));
  pool.Submit("tuner", Item("w2"), At(1));
  ASSERT_TRUE(pool.Sync(SyncOf("agents/a", {"devices/d"}, 1), "10.0.0.2", At(2)).ok());
  v1::SyncResponse answer;
  ASSERT_TRUE(pool.FillSyncResponse("agents/a", true, At(2), &answer));
  const v1::Grant grant = answer.grants(0);
  ASSERT_EQ(grant.work_size(), 2);
  pool.Report(ResultOf(grant, 0), "10.0.0.2", At(3));
  ASSERT_TRUE(store_->Commit(pool.TakeChanges()).ok());
  Open();
  // Another process, another clock: its monotonic time starts anywhere.
  DevicePool next(PoolOptions(), snapshot_, At(1000));
  ASSERT_TRUE(next.CheckInvariants().ok()) << next.CheckInvariants();
  EXPECT_EQ(next.Report(ResultOf(grant, 0), "", At(1000)).disposition(),
            v1::DISPOSITION_ALREADY_STORED);
  // The lease is kept for an agent that comes back with it ...
  v1::SyncRequest sync = SyncOf("agents/a", {"devices/d"}, 1, "s2");
  v1::LeaseReport* lease = sync.add_leases();
  lease->set_lease(grant.lease());
  lease->set_fencing_token(grant.fencing_token());
  ASSERT_TRUE(next.Sync(sync, "", At(1001)).ok());
  v1::SyncResponse again;
  EXPECT_FALSE(next.FillSyncResponse("agents/a", true, At(1001), &again));
  EXPECT_EQ(again.unknown_leases_size(), 0);
  EXPECT_EQ(next.Report(ResultOf(grant, 1), "", At(1002)).disposition(), v1::DISPOSITION_STORED);
  // ... and the consumer finds both results, each once.
  v1::PullResultsRequest pull;
  pull.set_consumer("tuner");
  v1::PullResultsResponse page;
  ASSERT_TRUE(next.Pull(pull, &page));
  ASSERT_EQ(page.updates_size(), 2);
  EXPECT_EQ(page.updates(0).result().measurement_id(), "w1/1");
  EXPECT_EQ(page.updates(0).result().agent_address(), "10.0.0.2");
  EXPECT_EQ(page.updates(1).result().measurement_id(), "w2/1");
  // A grant after the restart has a higher token than the one before.
  next.Submit("tuner", Item("w3"), At(1003));
  ASSERT_TRUE(next.Sync(SyncOf("agents/a", {"devices/d"}, 2, "s2"), "", At(1003)).ok());
  ASSERT_TRUE(next.FillSyncResponse("agents/a", true, At(1003), &again));
  EXPECT_GT(again.grants(0).fencing_token(), grant.fencing_token());
}

TEST_F(TrackerStoreTest, ARestartedPoolWaitsBeforeItTakesLeasesBack) {
  DevicePool pool(PoolOptions(), snapshot_, At(1));
  pool.Submit("tuner", Item("w1"), At(1));
  ASSERT_TRUE(pool.Sync(SyncOf("agents/a", {"devices/d"}, 1), "", At(2)).ok());
  v1::SyncResponse answer;
  ASSERT_TRUE(pool.FillSyncResponse("agents/a", true, At(2), &answer));
  ASSERT_TRUE(store_->Commit(pool.TakeChanges()).ok());
  Reload();
  DevicePool next(PoolOptions(), snapshot_, At(5000));
  next.Tick(At(5029));
  EXPECT_EQ(next.stats(At(5029)).queued, 0);
  next.Tick(At(5031));
  EXPECT_EQ(next.stats(At(5031)).queued, 1);
}

}  // namespace
}  // namespace tilewright::tracker::testing
