// The power goes while the databases of tracker and tuner are written: what was acknowledged is
// there afterwards, once; what was under way is there wholly or not at all; the file is intact. The
// disk is tests/support/power_loss_disk.h; each seed is a life of one database with several cuts,
// some of them while the file is made, while it is recovered, or while it is closed.
// Promise R2 of tests/README.md.
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "deploy/sql/database.h"
#include "deploy/support/file.h"
#include "deploy/support/rng.h"
#include "deploy/support/strings.h"
#include "tests/support/power_loss_disk.h"
#include "tests/support/test_seed.h"
#include "tests/unit/tuning_log_fixture.h"
#include "tracker/tracker_store.h"

namespace tilewright {
namespace {

using support::Rng;
using support::StatusText;
using support::StrCat;

constexpr int kCuts = 4;

// A store under test, and what it must hold.
class Subject {
 public:
  virtual ~Subject() = default;
  virtual absl::Status Open(const std::string& path) = 0;
  virtual void Close() = 0;
  // One random change, acknowledged when ok.
  virtual absl::Status Change(Rng* rng) = 0;
  // Of an open store: empty, or what is wrong. The change that was under way counts or does not.
  virtual std::string Check() = 0;
};

std::string CheckIntegrity(const std::string& path) {
  const auto db = sql::Database::Open(path);
  if (!db.ok()) return StatusText(db.status());
  auto check = const_cast<sql::Database&>(*db).Prepare("PRAGMA integrity_check");
  if (!check.ok()) return StatusText(check.status());
  const auto row = check->Step();
  if (!row.ok()) return StatusText(row.status());
  return check->ColumnText(0) == "ok" ? "" : check->ColumnText(0);
}

struct Outcome {
  std::string wrong;  // empty: nothing
  int64_t acknowledged = 0;
  int64_t lost_sectors = 0;
};

// Changes until the power goes; the store is left closed.
absl::Status UseUntilTheCut(const std::string& path, tests::PowerLossDisk* disk, Rng* rng,
                            Subject* subject, int64_t* acknowledged) {
  bool open = false;
  while (!disk->off()) {
    absl::Status status;
    if (!open) {
      status = subject->Open(path);
      open = status.ok();
    } else if (rng->Bernoulli(0.05)) {
      subject->Close();
      open = false;
    } else {
      status = subject->Change(rng);
      *acknowledged += status.ok();
    }
    if (!status.ok() && !disk->off()) return status;  // nothing else may go wrong
  }
  subject->Close();
  return absl::OkStatus();
}

Outcome Live(uint64_t seed, bool forgets_syncs, Subject* subject) {
  const auto dir = *support::TempDir::Create("power-loss");
  const std::string path = dir.File("store.db");
  Rng rng(seed);
  tests::PowerLossDisk disk(seed + 1);
  disk.set_forgets_syncs(forgets_syncs);
  Outcome outcome;
  const auto wrong = [&](const std::string& what) {
    outcome.wrong = StrCat("seed ", seed, ": ", what);
    return outcome;
  };
  for (int cut = 0; cut < kCuts; ++cut) {
    disk.CutAfter(1 + static_cast<int64_t>(rng.Uniform(rng.Bernoulli(0.3) ? 20 : 300)));
    const absl::Status used = UseUntilTheCut(path, &disk, &rng, subject, &outcome.acknowledged);
    if (!used.ok()) return wrong(StrCat("before the cut: ", StatusText(used)));
    disk.Restore();
    if (rng.Bernoulli(0.3)) {  // again, while it recovers
      disk.CutAfter(1 + static_cast<int64_t>(rng.Uniform(8)));
      subject->Open(path).IgnoreError();
      subject->Close();
      disk.Restore();
    }
    if (const std::string damage = CheckIntegrity(path); !damage.empty()) return wrong(damage);
    if (const absl::Status opened = subject->Open(path); !opened.ok()) {
      return wrong(StrCat("opened again: ", StatusText(opened)));
    }
    if (const std::string found = subject->Check(); !found.empty()) return wrong(found);
    subject->Close();
  }
  outcome.lost_sectors = disk.lost_sectors();
  return outcome;
}

using MakeSubject = std::function<std::unique_ptr<Subject>()>;

// Nothing is wrong with any seed, and the disk did lose something.
void ExpectNothingLost(uint64_t first_seed, int64_t seeds, const MakeSubject& make) {
  int64_t acknowledged = 0, lost_sectors = 0;
  for (uint64_t seed = first_seed; seed < first_seed + static_cast<uint64_t>(seeds); ++seed) {
    const auto subject = make();
    const Outcome outcome = Live(seed, false, subject.get());
    ASSERT_EQ(outcome.wrong, "") << "replay: TILEWRIGHT_SEED=" << seed << " TILEWRIGHT_ROUNDS=1";
    acknowledged += outcome.acknowledged;
    lost_sectors += outcome.lost_sectors;
  }
  std::cout << seeds << " seeds, " << seeds * kCuts << " cuts: " << acknowledged
            << " acknowledged changes, " << lost_sectors << " sectors lost\n";
  EXPECT_GT(acknowledged, 5 * seeds);
  EXPECT_GT(lost_sectors, seeds);
}

// Of a store, or disk, that does not do what it says at least one of 50 seeds shows it.
void ExpectFound(bool forgets_syncs, const MakeSubject& make) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    const auto subject = make();
    const Outcome outcome = Live(seed, forgets_syncs, subject.get());
    if (outcome.wrong.empty()) continue;
    std::cout << "found: " << outcome.wrong.substr(0, 200) << "\n";
    return;
  }
  FAIL() << "a planted bug that no seed finds";
}

// --- SQLite itself, with the settings of deploy/sql ----------------------------------------------

class TableSubject final : public Subject {
 public:
  explicit TableSubject(std::string pragma = "") : pragma_(std::move(pragma)) {}

  absl::Status Open(const std::string& path) override {
    TW_ASSIGN(sql::Database db, sql::Database::Open(path));
    db_.emplace(std::move(db));
    TW_TRY(db_->Exec("PRAGMA wal_autocheckpoint = 20"));
    if (!pragma_.empty()) TW_TRY(db_->Exec(pragma_));
    return db_->Exec("CREATE TABLE IF NOT EXISTS t (id INTEGER PRIMARY KEY, value TEXT NOT NULL)");
  }
  void Close() override { db_.reset(); }

  absl::Status Change(Rng* rng) override {
    under_way_ = rows_;
    TW_ASSIGN(sql::Transaction transaction, sql::Transaction::Begin(&*db_));
    for (uint64_t i = rng->Uniform(4) + 1; i > 0; --i) {
      const auto id = static_cast<int64_t>(rng->Uniform(40));
      if (rng->Bernoulli(0.2)) {
        TW_ASSIGN(sql::Statement drop, db_->Prepare("DELETE FROM t WHERE id = ?1"));
        TW_TRY(drop.BindInt64(1, id).Run());
        under_way_.erase(id);
        continue;
      }
      const std::string value(rng->Uniform(3'000), static_cast<char>('a' + rng->Uniform(26)));
      TW_ASSIGN(sql::Statement put, db_->Prepare("INSERT OR REPLACE INTO t VALUES (?1, ?2)"));
      TW_TRY(put.BindInt64(1, id).BindText(2, value).Run());
      under_way_[id] = value;
    }
    TW_TRY(transaction.Commit());
    rows_ = under_way_;
    return absl::OkStatus();
  }

  std::string Check() override {
    std::map<int64_t, std::string> found;
    auto rows = db_->Prepare("SELECT id, value FROM t");
    if (!rows.ok()) return StatusText(rows.status());
    for (;;) {
      const auto more = rows->Step();
      if (!more.ok()) return StatusText(more.status());
      if (!*more) break;
      found[rows->ColumnInt64(0)] = rows->ColumnText(1);
    }
    if (found != rows_ && found != under_way_) {
      return StrCat("expected ", rows_.size(), " or ", under_way_.size(), " rows, found ",
                    found.size(), " rows or others");
    }
    rows_ = under_way_ = found;
    return "";
  }

 private:
  const std::string pragma_;
  std::optional<sql::Database> db_;
  std::map<int64_t, std::string> rows_, under_way_;
};

TEST(PowerLossTest, ACommitSurvives) {
  ExpectNothingLost(tests::TestSeed(), tests::TestRounds(200),
                    [] { return std::make_unique<TableSubject>(); });
}

TEST(PowerLossTest, WithoutSyncsItDoesNot) {
  ExpectFound(false, [] { return std::make_unique<TableSubject>("PRAGMA synchronous = OFF"); });
  ExpectFound(false, [] { return std::make_unique<TableSubject>("PRAGMA synchronous = NORMAL"); });
}

// --- the tracker's store
// ---------------------------------------------------------------------------

class TrackerSubject final : public Subject {
 public:
  absl::Status Open(const std::string& path) override {
    TW_ASSIGN(store_, tracker::TrackerStore::Open(path));
    TW_ASSIGN(const tracker::Snapshot snapshot, store_->Load());
    if (snapshot.epoch <= epoch_) {
      return support::Internal("test.epoch", StrCat(epoch_, " came again: ", snapshot.epoch));
    }
    epoch_ = snapshot.epoch;
    return absl::OkStatus();
  }
  void Close() override { store_.reset(); }

  absl::Status Change(Rng* rng) override {
    under_way_ = rows_;
    const tracker::Changes changes = RandomChanges(rng);
    Apply(changes);
    TW_TRY(store_->Commit(changes));
    rows_ = under_way_;
    return absl::OkStatus();
  }

  std::string Check() override {
    const auto snapshot = store_->Load();
    if (!snapshot.ok()) return StatusText(snapshot.status());
    Rows found;
    for (const tracker::WorkRow& row : snapshot->items) {
      found["item " + row.item.name()] = TextOf(row);
    }
    for (const tracker::OutboxRow& row : snapshot->outbox) {
      if (!found.emplace(StrCat("update ", row.seq), TextOf(row)).second) return "an update twice";
    }
    for (const tracker::DeviceRow& row : snapshot->devices) {
      found["device " + row.name] = StrCat(row.last_token);
    }
    if (found != rows_ && found != under_way_) return Differences(rows_, found);
    rows_ = under_way_ = found;
    return "";
  }

 private:
  using Rows = std::map<std::string, std::string>;

  static std::string TextOf(const tracker::WorkRow& row) {
    std::string text =
        StrCat(row.seq, " ", static_cast<int>(row.state), " ", row.item.SerializeAsString().size());
    for (const tracker::Attempt& attempt : row.attempts) {
      text += StrCat(" ", attempt.number, ":", attempt.token, ":", attempt.accepted ? 1 : 0);
    }
    return text;
  }
  static std::string TextOf(const tracker::OutboxRow& row) {
    return StrCat(row.work_item, " ", row.measurement_id, " ", row.result.median());
  }
  static std::string Differences(const Rows& wanted, const Rows& found) {
    std::string text = "tracker:";
    for (const auto& [name, value] : wanted) {
      const auto it = found.find(name);
      if (it == found.end()) text += StrCat(" lost ", name, ";");
      if (it != found.end() && it->second != value) text += StrCat(" changed ", name, ";");
    }
    for (const auto& [name, value] : found) {
      if (wanted.count(name) == 0) text += StrCat(" new ", name, ";");
    }
    return text;
  }

  // Items come, are leased, measured and told of; what was told of is acknowledged and forgotten.
  tracker::Changes RandomChanges(Rng* rng) {
    tracker::Changes changes;
    for (uint64_t i = rng->Uniform(3) + 1; i > 0; --i) {
      tracker::WorkRow row;
      row.consumer = "tuner";
      row.seq = ++seq_;
      v1::WorkItem item;
      item.set_name(StrCat("w", seq_));
      item.set_job(std::string(rng->Uniform(4'000), 'j'));
      row.item = tracker::StoredItem(item);
      row.state = v1::WORK_STATE_LEASED;
      row.attempts.push_back(
          {1, "leases/l", seq_, "devices/d", v1::DISPOSITION_UNSPECIFIED, false});
      changes.items.push_back(row);
      open_[row.item.name()] = row;
    }
    tracker::DeviceRow device;
    device.name = "devices/d";
    device.last_token = seq_;
    changes.devices.push_back(device);
    if (!open_.empty() && rng->Bernoulli(0.7)) Measure(rng, &changes);
    if (rng->Bernoulli(0.2))
      changes.acked["tuner"] = outbox_ - static_cast<int64_t>(rng->Uniform(3));
    return changes;
  }

  void Measure(Rng* rng, tracker::Changes* changes) {
    auto it = open_.begin();
    std::advance(it, static_cast<int64_t>(rng->Uniform(open_.size())));
    tracker::WorkRow row = it->second;
    open_.erase(it);
    row.state = v1::WORK_STATE_DONE;
    row.attempts[0].disposition = v1::DISPOSITION_STORED;
    row.attempts[0].accepted = true;
    tracker::ResultRow result;
    result.disposition = v1::DISPOSITION_STORED;
    result.result.set_measurement_id(row.item.name() + "/1");
    result.result.set_work_item(row.item.name());
    result.result.set_attempt(1);
    result.result.set_median(rng->UniformDouble());
    tracker::OutboxRow update;
    update.seq = ++outbox_;
    update.consumer = "tuner";
    update.work_item = row.item.name();
    update.state = row.state;
    update.measurement_id = result.result.measurement_id();
    update.result = result.result;
    std::erase_if(changes->items, [&row](const tracker::WorkRow& other) {
      return other.item.name() == row.item.name();
    });
    changes->items.push_back(row);
    changes->results.push_back(result);
    changes->outbox.push_back(update);
  }

  void Apply(const tracker::Changes& changes) {
    for (const tracker::WorkRow& row : changes.items) {
      under_way_["item " + row.item.name()] = TextOf(row);
    }
    for (const tracker::OutboxRow& row : changes.outbox) {
      under_way_[StrCat("update ", row.seq)] = TextOf(row);
    }
    for (const tracker::DeviceRow& row : changes.devices) {
      under_way_["device " + row.name] = StrCat(row.last_token);
    }
    for (const auto& [consumer, seq] : changes.acked) {
      for (int64_t i = 1; i <= seq; ++i) under_way_.erase(StrCat("update ", i));
    }
  }

  std::unique_ptr<tracker::TrackerStore> store_;
  uint64_t epoch_ = 0;
  int64_t seq_ = 0, outbox_ = 0;
  std::map<std::string, tracker::WorkRow> open_;
  Rows rows_, under_way_;
};

TEST(PowerLossTest, TheTrackerKeepsWhatItAcknowledged) {
  ExpectNothingLost(tests::TestSeed(), tests::TestRounds(150),
                    [] { return std::make_unique<TrackerSubject>(); });
}

TEST(PowerLossTest, ATrackerOnADiskThatForgetsIsFound) {
  ExpectFound(true, [] { return std::make_unique<TrackerSubject>(); });
}

// --- the tuner's log
// -------------------------------------------------------------------------------

// The same changes go to a log in memory, which is what the file must hold.
class LogSubject final : public Subject {
 public:
  absl::Status Open(const std::string& path) override {
    TW_ASSIGN(log_, log::OpenSqliteLog(path, {.quick_check = true}));
    return absl::OkStatus();
  }
  void Close() override { log_.reset(); }

  absl::Status Change(Rng* rng) override {
    under_way_ = RandomChange(rng);
    TW_TRY(under_way_(log_.get()));
    const absl::Status same = under_way_(memory_.get());
    TW_CHECK(same.ok()) << StatusText(same);
    under_way_ = nullptr;
    return absl::OkStatus();
  }

  std::string Check() override {
    const std::vector<std::string> found = Rows(log_.get());
    std::vector<std::string> wanted = Rows(memory_.get());
    if (found != wanted && under_way_ != nullptr) {
      const absl::Status same = under_way_(memory_.get());
      TW_CHECK(same.ok()) << StatusText(same);
      wanted = Rows(memory_.get());
    }
    under_way_ = nullptr;
    for (size_t i = 0; i < std::max(found.size(), wanted.size()); ++i) {
      const std::string is = i < found.size() ? found[i] : "(nothing)";
      const std::string should_be = i < wanted.size() ? wanted[i] : "(nothing)";
      if (is != should_be) return StrCat("log: expected ", should_be, ", found ", is);
    }
    return "";
  }

 private:
  using Change_ = std::function<absl::Status(log::TuningLog*)>;

  static std::vector<std::string> Rows(log::TuningLog* log) {
    std::vector<std::string> rows;
    for (const log::JobRow& job : log::Value(log->ListJobs({.limit = 1000}))) {
      rows.push_back(StrCat("job ", job.id, " ", job.number, " ", log::JobStateName(job.state), " ",
                            job.published_module, " ", job.elapsed_s, " ",
                            log::Value(log->ListEvents(job.id, 0, 10'000)).size(), " ",
                            log::Value(log->ListModels(job.id)).size()));
      for (const log::TrialRow& trial :
           log::Value(log->ListTrials({.job = job.id, .limit = 9999}))) {
        rows.push_back(StrCat("trial ", job.id, " ", trial.number, " ",
                              log::TrialStateName(trial.state), " ", trial.measurement_id));
      }
    }
    for (const log::RecordRow& record :
         log::Value(log->ListRecords({.job = "", .limit = 99'999}))) {
      rows.push_back(StrCat("record ", record.seq, " ", record.known_position, " ",
                            record.measurement_id, " ", record.median));
    }
    return rows;
  }

  Change_ RandomChange(Rng* rng) {
    std::vector<log::JobRow> jobs = log::Value(memory_->ListJobs({.limit = 1000}));
    if (jobs.empty() || rng->Bernoulli(0.1)) {
      log::JobRow job = log::MakeJob(StrCat("j", jobs.size() + 1));
      job.spec_json = StrCat("{\"x\":\"", std::string(rng->Uniform(3'000), 'x'), "\"}");
      return [job](log::TuningLog* log) { return log->CreateJob(job).status(); };
    }
    const std::string job = rng->Choice(jobs).id;
    if (log::Value(memory_->ListTasks(job)).empty()) {
      return [job](log::TuningLog* log) {
        return log->PutTasks(job, "tc1", "net", {log::MakeTask(job, 0), log::MakeTask(job, 1)});
      };
    }
    const auto open =
        log::Value(memory_->ListTrials({.job = job, .limit = 999, .open_only = true}));
    if (open.empty()) return AddTrials(job, rng);
    switch (rng->Uniform(8)) {
      case 0:
        return AddTrials(job, rng);
      case 1:
        return [job](log::TuningLog* log) { return log->AddText(job, "a word", 5); };
      case 2: {
        log::ModelRow model;
        model.id = StrCat("m", rng->Uniform(100));
        model.job = job;
        model.bytes = std::string(rng->Uniform(20'000), 'm');
        return [model](log::TuningLog* log) { return log->AddModel(model); };
      }
      case 3: {
        log::ModuleVersionRow version;
        version.module = "net";
        version.job = job;
        return [version](log::TuningLog* log) { return log->AddModuleVersion(version).status(); };
      }
      default:
        return Measure(job, open, rng);
    }
  }

  static Change_ AddTrials(const std::string& job, Rng* rng) {
    log::NewBatch batch;
    for (uint64_t i = rng->Uniform(6) + 1; i > 0; --i) {
      batch.trials.push_back(log::MakeTrial(job, rng->Bernoulli(0.5) ? "conv0" : "conv1", ""));
    }
    return [job, batch](log::TuningLog* log) { return log->AddBatch(job, batch).status(); };
  }

  // Some come twice, some end nothing, some end their trial only when they come again.
  static Change_ Measure(const std::string& job, const std::vector<log::TrialRow>& open, Rng* rng) {
    std::vector<log::TrialNews> news;
    for (uint64_t i = rng->Uniform(4) + 1; i > 0; --i) {
      const log::TrialRow& trial = rng->Choice(open);
      news.push_back(
          log::Ended(trial.number, log::MakeRecord(job, trial.task, trial.number,
                                                   static_cast<int64_t>(rng->Uniform(2)), 50)));
      news.back().final = rng->Bernoulli(0.7);
    }
    return [job, news](log::TuningLog* log) { return log->StoreNews(job, news, 1, 7).status(); };
  }

  const std::unique_ptr<log::TuningLog> memory_ = log::MakeMemoryLog();
  std::unique_ptr<log::TuningLog> log_;
  Change_ under_way_;
};

TEST(PowerLossTest, TheTunersLogKeepsWhatItAcknowledged) {
  ExpectNothingLost(tests::TestSeed(), tests::TestRounds(150),
                    [] { return std::make_unique<LogSubject>(); });
}

TEST(PowerLossTest, ALogOnADiskThatForgetsIsFound) {
  ExpectFound(true, [] { return std::make_unique<LogSubject>(); });
}

}  // namespace
}  // namespace tilewright
