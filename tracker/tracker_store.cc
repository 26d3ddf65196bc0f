#include "tracker/tracker_store.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "deploy/support/failpoint.h"
#include "deploy/support/file.h"
#include "deploy/support/strings.h"
#include "tracker/item_unpacker.h"

namespace tilewright::tracker {
namespace {

constexpr std::array<sql::Migration, 4> kMigrations = {{{1, R"sql(
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
CREATE TABLE work_items (
  name TEXT PRIMARY KEY,
  consumer TEXT NOT NULL,
  job TEXT NOT NULL,
  seq INTEGER NOT NULL UNIQUE,
  spec BLOB NOT NULL,            -- WorkItem; after closing only name and job
  spec_hash INTEGER NOT NULL,    -- of the item as submitted
  state INTEGER NOT NULL,        -- WorkState
  infra_losses INTEGER NOT NULL,
  candidate_kills INTEGER NOT NULL,
  invalid_results INTEGER NOT NULL,
  submitted_us INTEGER NOT NULL,
  closed_us INTEGER NOT NULL
) STRICT;
CREATE TABLE attempts (
  work_item TEXT NOT NULL,
  number INTEGER NOT NULL,
  lease TEXT NOT NULL,
  token INTEGER NOT NULL,
  device TEXT NOT NULL,
  disposition INTEGER NOT NULL,  -- Disposition of its result; 0 = none yet
  accepted INTEGER NOT NULL,
  PRIMARY KEY (work_item, number)
) STRICT, WITHOUT ROWID;
-- A second accepted result of one work item is impossible, whatever the code above believes.
CREATE UNIQUE INDEX one_accepted ON attempts (work_item) WHERE accepted = 1;
CREATE TABLE results (
  measurement_id TEXT PRIMARY KEY,
  work_item TEXT NOT NULL,
  disposition INTEGER NOT NULL,
  at_us INTEGER NOT NULL,
  result BLOB NOT NULL           -- MeasurementResult
) STRICT;
CREATE INDEX results_by_item ON results (work_item);
CREATE TABLE outbox (
  seq INTEGER PRIMARY KEY,
  consumer TEXT NOT NULL,
  work_item TEXT NOT NULL,
  state INTEGER NOT NULL,
  reason TEXT NOT NULL,
  measurement_id TEXT NOT NULL,  -- empty without a result
  at_us INTEGER NOT NULL
) STRICT;
CREATE INDEX outbox_by_consumer ON outbox (consumer, seq);
CREATE TABLE devices (
  name TEXT PRIMARY KEY,
  last_token INTEGER NOT NULL,
  admin_state INTEGER NOT NULL,
  admin_reason TEXT NOT NULL,
  admin_version INTEGER NOT NULL,
  hold_name TEXT,
  hold_holder TEXT,
  hold_purpose TEXT,
  hold_expire_us INTEGER
) STRICT;
)sql"},
                                                        {2, R"sql(
CREATE TABLE usage (
  user TEXT PRIMARY KEY,
  day INTEGER NOT NULL,          -- since 1970, UTC
  seconds REAL NOT NULL          -- of devices
) STRICT;
)sql"},
                                                        {3, R"sql(
ALTER TABLE devices ADD COLUMN verdict INTEGER NOT NULL DEFAULT 0;
ALTER TABLE devices ADD COLUMN verdict_reason TEXT NOT NULL DEFAULT '';
ALTER TABLE devices ADD COLUMN verdict_detail TEXT NOT NULL DEFAULT '';
ALTER TABLE devices ADD COLUMN probes INTEGER NOT NULL DEFAULT 0;
ALTER TABLE devices ADD COLUMN verdict_since_us INTEGER NOT NULL DEFAULT 0;
ALTER TABLE devices ADD COLUMN next_probe_us INTEGER NOT NULL DEFAULT 0;
ALTER TABLE devices ADD COLUMN canaries INTEGER NOT NULL DEFAULT 0;
ALTER TABLE devices ADD COLUMN resets INTEGER NOT NULL DEFAULT 0;
)sql"},
                                                        {4, R"sql(
ALTER TABLE devices ADD COLUMN agent TEXT NOT NULL DEFAULT '';
)sql"}}};

absl::Status Damaged(const std::string& what) {
  return support::DataLoss("tracker.store.damaged", what);
}

bool IsVerdict(int number) {
  return number >= static_cast<int>(Verdict::kGood) &&
         number <= static_cast<int>(Verdict::kQuarantined);
}

// Enums are stored by their number. One that this version does not know is damage, or was written
// by a later version.
template <typename Enum>
absl::StatusOr<Enum> ReadEnum(const sql::Statement& rows, int column, bool (*known)(int)) {
  const int64_t number = rows.ColumnInt64(column);
  if (number != static_cast<int>(number) || !known(static_cast<int>(number))) {
    return Damaged(support::StrCat("unknown state ", number, " in column ", column));
  }
  return static_cast<Enum>(number);
}

// A name no other database has: outbox cursors carry it.
absl::StatusOr<std::string> RandomId() {
  TW_ASSIGN(const std::string uuid, support::ReadFile("/proc/sys/kernel/random/uuid", 64));
  const std::string text(support::Trim(uuid));
  return text.substr(0, 8);
}

// Is the file large, and needs it nothing but to be read until it is known to be whole?
absl::StatusOr<bool> CheckedBeside(const std::string& path, uint64_t check_beside_bytes) {
  if (!support::FileExists(path)) return false;
  TW_ASSIGN(const uint64_t bytes, support::FileSize(path));
  if (bytes < check_beside_bytes) return false;
  TW_ASSIGN(sql::Database database, sql::Database::Open(path));
  TW_ASSIGN(const int version, sql::SchemaVersion(&database));
  return version == kMigrations.back().version;
}

}  // namespace

struct TrackerStore::Statements {
  sql::Statement write_meta;
  sql::Statement read_meta;
  sql::Statement write_item;
  sql::Statement write_attempt;
  sql::Statement write_result;
  sql::Statement write_update;
  sql::Statement ack_updates;
  sql::Statement write_device;
  sql::Statement forget_device;
  sql::Statement write_usage;
  sql::Statement forget_item;
  sql::Statement forget_attempts;
  sql::Statement forget_results;
  sql::Statement read_results;
};

TrackerStore::TrackerStore(sql::Database database) : database_(std::move(database)) {}

TrackerStore::~TrackerStore() = default;

absl::StatusOr<std::unique_ptr<TrackerStore>> TrackerStore::Open(const std::string& path,
                                                                 uint64_t check_beside_bytes) {
  TW_ASSIGN(const bool beside, CheckedBeside(path, check_beside_bytes));
  sql::OpenOptions options;
  options.quick_check = !beside;
  TW_ASSIGN(sql::Database database, sql::Database::Open(path, options));
  support::HitFailpoint(support::Failpoint::tracker_opened);
  if (!beside) TW_TRY(sql::Migrate(&database, kMigrations));
  support::HitFailpoint(support::Failpoint::tracker_migrated);
  auto store = std::unique_ptr<TrackerStore>(new TrackerStore(std::move(database)));
  TW_TRY(store->Prepare());
  if (beside) {
    store->StartCheck();
  } else {
    TW_TRY(store->RaiseEpoch());
  }
  return store;
}

void TrackerStore::StartCheck() {
  check_ = std::async(std::launch::async, [path = database_.path()] {
    sql::OpenOptions options;
    options.read_only = true;
    options.quick_check = true;
    return sql::Database::Open(path, options).status();
  });
}

absl::Status TrackerStore::AwaitCheck() {
  if (!check_.valid()) return absl::OkStatus();
  TW_TRY(check_.get());
  return RaiseEpoch();
}

absl::Status TrackerStore::Prepare() {
  const auto prepare = [this](std::string_view text) { return database_.Prepare(text); };
  TW_ASSIGN(sql::Statement write_meta, prepare("INSERT OR REPLACE INTO meta VALUES (?1, ?2)"));
  TW_ASSIGN(sql::Statement read_meta, prepare("SELECT value FROM meta WHERE key = ?1"));
  TW_ASSIGN(sql::Statement write_item,
            prepare("INSERT OR REPLACE INTO work_items VALUES "
                    "(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)"));
  TW_ASSIGN(sql::Statement write_attempt,
            prepare("INSERT INTO attempts VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) "
                    "ON CONFLICT (work_item, number) DO UPDATE SET "
                    "disposition = excluded.disposition, accepted = excluded.accepted"));
  TW_ASSIGN(sql::Statement write_result,
            prepare("INSERT OR IGNORE INTO results VALUES (?1, ?2, ?3, ?4, ?5)"));
  TW_ASSIGN(sql::Statement write_update,
            prepare("INSERT INTO outbox VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)"));
  TW_ASSIGN(sql::Statement ack_updates,
            prepare("DELETE FROM outbox WHERE consumer = ?1 AND seq <= ?2"));
  TW_ASSIGN(sql::Statement write_device,
            prepare("INSERT OR REPLACE INTO devices VALUES "
                    "(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, "
                    "?15, ?16, ?17, ?18)"));
  TW_ASSIGN(sql::Statement forget_device, prepare("DELETE FROM devices WHERE name = ?1"));
  TW_ASSIGN(sql::Statement write_usage,
            prepare("INSERT OR REPLACE INTO usage VALUES (?1, ?2, ?3)"));
  TW_ASSIGN(sql::Statement forget_item, prepare("DELETE FROM work_items WHERE name = ?1"));
  TW_ASSIGN(sql::Statement forget_attempts, prepare("DELETE FROM attempts WHERE work_item = ?1"));
  TW_ASSIGN(sql::Statement forget_results, prepare("DELETE FROM results WHERE work_item = ?1"));
  TW_ASSIGN(sql::Statement read_results,
            prepare("SELECT disposition, at_us, result FROM results WHERE work_item = ?1"));
  statements_ = std::make_unique<Statements>(
      Statements{std::move(write_meta), std::move(read_meta), std::move(write_item),
                 std::move(write_attempt), std::move(write_result), std::move(write_update),
                 std::move(ack_updates), std::move(write_device), std::move(forget_device),
                 std::move(write_usage), std::move(forget_item), std::move(forget_attempts),
                 std::move(forget_results), std::move(read_results)});
  return absl::OkStatus();
}

absl::Status TrackerStore::WriteMeta(const std::string& key, const std::string& value) {
  return statements_->write_meta.BindText(1, key).BindText(2, value).Run();
}

absl::StatusOr<std::string> TrackerStore::ReadMeta(const std::string& key) {
  sql::Statement& statement = statements_->read_meta;
  statement.BindText(1, key);
  TW_ASSIGN(const bool row, statement.Step());
  std::string value = row ? statement.ColumnText(0) : std::string();
  statement.Reset();
  return value;
}

absl::Status TrackerStore::RaiseEpoch() {
  TW_ASSIGN(sql::Transaction transaction, sql::Transaction::Begin(&database_));
  TW_ASSIGN(const std::string store_id, ReadMeta("store_id"));
  if (store_id.empty()) {
    TW_ASSIGN(const std::string fresh, RandomId());
    TW_TRY(WriteMeta("store_id", fresh));
  }
  TW_ASSIGN(const std::string epoch, ReadMeta("epoch"));
  TW_TRY(WriteMeta("epoch", support::StrCat(support::ParseInt64(epoch).value_or(0) + 1)));
  support::HitFailpoint(support::Failpoint::tracker_epoch_written);
  TW_TRY(transaction.Commit());
  support::HitFailpoint(support::Failpoint::tracker_epoch_raised);
  return absl::OkStatus();
}

absl::StatusOr<Snapshot> TrackerStore::Load() {
  Snapshot snapshot;
  TW_TRY(LoadItems(&snapshot));
  support::HitFailpoint(support::Failpoint::tracker_loaded_items);
  TW_TRY(LoadOutbox(&snapshot));
  support::HitFailpoint(support::Failpoint::tracker_loaded_outbox);
  TW_TRY(LoadDevices(&snapshot));
  TW_TRY(LoadUsage(&snapshot));
  TW_TRY(AwaitCheck());
  TW_ASSIGN(snapshot.store_id, ReadMeta("store_id"));
  TW_ASSIGN(const std::string epoch, ReadMeta("epoch"));
  snapshot.epoch = static_cast<uint64_t>(support::ParseInt64(epoch).value_or(1));
  TW_ASSIGN(const std::string work_seq, ReadMeta("next_work_seq"));
  TW_ASSIGN(const std::string outbox_seq, ReadMeta("next_outbox_seq"));
  snapshot.next_work_seq = support::ParseInt64(work_seq).value_or(1);
  snapshot.next_outbox_seq = support::ParseInt64(outbox_seq).value_or(1);
  support::HitFailpoint(support::Failpoint::tracker_loaded);
  next_work_seq_ = snapshot.next_work_seq;
  next_outbox_seq_ = snapshot.next_outbox_seq;
  return snapshot;
}

absl::Status TrackerStore::LoadItems(Snapshot* snapshot) {
  TW_ASSIGN(const int64_t count, database_.QueryInt64("SELECT count(*) FROM work_items"));
  snapshot->items.resize(static_cast<size_t>(count));
  TW_ASSIGN(sql::Statement rows, database_.Prepare("SELECT * FROM work_items ORDER BY name"));
  ItemUnpacker unpacker(&snapshot->items);
  for (WorkRow& item : snapshot->items) {
    TW_ASSIGN(const bool row, rows.Step());
    if (!row) return Damaged("there are fewer work items than their table counts");
    TW_TRY(unpacker.Add(rows.ColumnView(0), rows.ColumnView(4)));
    item.consumer = rows.ColumnText(1);
    item.seq = rows.ColumnInt64(3);
    item.spec_hash = static_cast<uint64_t>(rows.ColumnInt64(5));
    TW_ASSIGN(item.state, ReadEnum<v1::WorkState>(rows, 6, v1::WorkState_IsValid));
    item.infra_losses = static_cast<int>(rows.ColumnInt64(7));
    item.candidate_kills = static_cast<int>(rows.ColumnInt64(8));
    item.invalid_results = static_cast<int>(rows.ColumnInt64(9));
    item.submitted_us = rows.ColumnInt64(10);
    item.closed_us = rows.ColumnInt64(11);
  }
  TW_TRY(unpacker.Finish());
  return LoadAttempts(snapshot);
}

// Both sides come by name: one walk through them.
absl::Status TrackerStore::LoadAttempts(Snapshot* snapshot) {
  TW_ASSIGN(sql::Statement rows,
            database_.Prepare("SELECT * FROM attempts ORDER BY work_item, number"));
  auto item = snapshot->items.begin();
  while (true) {
    TW_ASSIGN(const bool row, rows.Step());
    if (!row) break;
    const std::string_view name = rows.ColumnView(0);
    while (item != snapshot->items.end() && item->item.name() < name) ++item;
    if (item == snapshot->items.end() || item->item.name() != name) {
      return Damaged("an attempt without a work item");
    }
    Attempt& attempt = item->attempts.emplace_back();
    attempt.number = static_cast<int>(rows.ColumnInt64(1));
    attempt.lease = rows.ColumnText(2);
    attempt.token = rows.ColumnInt64(3);
    attempt.device = rows.ColumnText(4);
    TW_ASSIGN(attempt.disposition, ReadEnum<v1::Disposition>(rows, 5, v1::Disposition_IsValid));
    attempt.accepted = rows.ColumnInt64(6) != 0;
    if (attempt.number != item->item.attempts_before() + static_cast<int>(item->attempts.size())) {
      return Damaged("attempts of " + support::Quote(item->item.name()) + " have gaps");
    }
  }
  for (const WorkRow& row : snapshot->items) {
    if (row.state == v1::WORK_STATE_LEASED && row.attempts.empty()) {
      return Damaged("work item " + support::Quote(row.item.name()) +
                     " is leased, but has no attempt");
    }
  }
  return absl::OkStatus();
}

absl::Status TrackerStore::LoadOutbox(Snapshot* snapshot) {
  TW_ASSIGN(sql::Statement rows,
            database_.Prepare("SELECT o.seq, o.consumer, o.work_item, o.state, o.reason, "
                              "o.measurement_id, o.at_us, r.result FROM outbox o LEFT JOIN results "
                              "r ON r.measurement_id = o.measurement_id ORDER BY o.seq"));
  while (true) {
    TW_ASSIGN(const bool row, rows.Step());
    if (!row) return absl::OkStatus();
    OutboxRow& update = snapshot->outbox.emplace_back();
    update.seq = rows.ColumnInt64(0);
    update.consumer = rows.ColumnText(1);
    update.work_item = rows.ColumnText(2);
    TW_ASSIGN(update.state, ReadEnum<v1::WorkState>(rows, 3, v1::WorkState_IsValid));
    update.reason = rows.ColumnText(4);
    update.measurement_id = rows.ColumnText(5);
    update.at_us = rows.ColumnInt64(6);
    if (update.measurement_id.empty()) continue;
    if (rows.ColumnIsNull(7) || !update.result.ParseFromString(rows.ColumnBlob(7))) {
      return Damaged("result " + support::Quote(update.measurement_id) + " cannot be read");
    }
  }
}

absl::Status TrackerStore::LoadDevices(Snapshot* snapshot) {
  TW_ASSIGN(sql::Statement rows, database_.Prepare("SELECT * FROM devices ORDER BY name"));
  while (true) {
    TW_ASSIGN(const bool row, rows.Step());
    if (!row) return absl::OkStatus();
    DeviceRow& device = snapshot->devices.emplace_back();
    device.name = rows.ColumnText(0);
    device.last_token = rows.ColumnInt64(1);
    TW_ASSIGN(device.admin_state, ReadEnum<v1::AdminState>(rows, 2, v1::AdminState_IsValid));
    device.admin_reason = rows.ColumnText(3);
    device.admin_version = rows.ColumnInt64(4);
    TW_ASSIGN(device.health.verdict, ReadEnum<Verdict>(rows, 9, IsVerdict));
    device.health.reason = rows.ColumnText(10);
    device.health.detail = rows.ColumnText(11);
    device.health.probes = static_cast<int>(rows.ColumnInt64(12));
    device.health.since_us = rows.ColumnInt64(13);
    device.health.next_probe_us = rows.ColumnInt64(14);
    device.canaries = rows.ColumnInt64(15);
    device.resets = rows.ColumnInt64(16);
    device.agent = rows.ColumnText(17);
    if (rows.ColumnIsNull(5)) continue;
    device.hold =
        HoldRow{rows.ColumnText(5), rows.ColumnText(6), rows.ColumnText(7), rows.ColumnInt64(8)};
  }
}

absl::Status TrackerStore::LoadUsage(Snapshot* snapshot) {
  TW_ASSIGN(sql::Statement rows, database_.Prepare("SELECT user, day, seconds FROM usage"));
  while (true) {
    TW_ASSIGN(const bool row, rows.Step());
    if (!row) return absl::OkStatus();
    snapshot->usage.push_back({rows.ColumnText(0), rows.ColumnInt64(1), rows.ColumnDouble(2)});
  }
}

absl::StatusOr<std::vector<ResultRow>> TrackerStore::LoadResults(const std::string& work_item) {
  sql::Statement& rows = statements_->read_results;
  rows.BindText(1, work_item);
  std::vector<ResultRow> results;
  while (true) {
    TW_ASSIGN(const bool row, rows.Step());
    if (!row) break;
    ResultRow& one = results.emplace_back();
    one.disposition = static_cast<v1::Disposition>(rows.ColumnInt64(0));
    one.at_us = rows.ColumnInt64(1);
    if (!one.result.ParseFromString(rows.ColumnBlob(2))) {
      return Damaged("a result of " + support::Quote(work_item) + " cannot be read");
    }
  }
  rows.Reset();
  return results;
}

absl::Status TrackerStore::WriteItem(const WorkRow& row) {
  TW_TRY(statements_->write_item.BindText(1, row.item.name())
             .BindText(2, row.consumer)
             .BindText(3, row.item.job())
             .BindInt64(4, row.seq)
             .BindBlob(5, row.item.SerializeAsString())
             .BindInt64(6, static_cast<int64_t>(row.spec_hash))
             .BindInt64(7, row.state)
             .BindInt64(8, row.infra_losses)
             .BindInt64(9, row.candidate_kills)
             .BindInt64(10, row.invalid_results)
             .BindInt64(11, row.submitted_us)
             .BindInt64(12, row.closed_us)
             .Run());
  for (const Attempt& attempt : row.attempts) {
    TW_TRY(statements_->write_attempt.BindText(1, row.item.name())
               .BindInt64(2, attempt.number)
               .BindText(3, attempt.lease)
               .BindInt64(4, attempt.token)
               .BindText(5, attempt.device)
               .BindInt64(6, attempt.disposition)
               .BindInt64(7, attempt.accepted ? 1 : 0)
               .Run());
  }
  next_work_seq_ = std::max(next_work_seq_, row.seq + 1);
  return absl::OkStatus();
}

absl::Status TrackerStore::WriteResult(const ResultRow& row) {
  std::string bytes;
  row.result.SerializeToString(&bytes);
  return statements_->write_result.BindText(1, row.result.measurement_id())
      .BindText(2, row.result.work_item())
      .BindInt64(3, row.disposition)
      .BindInt64(4, row.at_us)
      .BindBlob(5, bytes)
      .Run();
}

absl::Status TrackerStore::WriteUpdate(const OutboxRow& row) {
  next_outbox_seq_ = std::max(next_outbox_seq_, row.seq + 1);
  return statements_->write_update.BindInt64(1, row.seq)
      .BindText(2, row.consumer)
      .BindText(3, row.work_item)
      .BindInt64(4, row.state)
      .BindText(5, row.reason)
      .BindText(6, row.measurement_id)
      .BindInt64(7, row.at_us)
      .Run();
}

absl::Status TrackerStore::WriteDevice(const DeviceRow& row) {
  sql::Statement& statement = statements_->write_device;
  statement.BindText(1, row.name)
      .BindInt64(2, row.last_token)
      .BindInt64(3, row.admin_state)
      .BindText(4, row.admin_reason)
      .BindInt64(5, row.admin_version)
      .BindInt64(10, static_cast<int64_t>(row.health.verdict))
      .BindText(11, row.health.reason)
      .BindText(12, row.health.detail)
      .BindInt64(13, row.health.probes)
      .BindInt64(14, row.health.since_us)
      .BindInt64(15, row.health.next_probe_us)
      .BindInt64(16, row.canaries)
      .BindInt64(17, row.resets)
      .BindText(18, row.agent);
  if (row.hold.has_value()) {
    statement.BindText(6, row.hold->name)
        .BindText(7, row.hold->holder)
        .BindText(8, row.hold->purpose)
        .BindInt64(9, row.hold->expire_us);
  } else {
    for (int position = 6; position <= 9; ++position) statement.BindNull(position);
  }
  return statement.Run();
}

absl::Status TrackerStore::Forget(const std::string& work_item) {
  TW_TRY(statements_->forget_item.BindText(1, work_item).Run());
  TW_TRY(statements_->forget_attempts.BindText(1, work_item).Run());
  return statements_->forget_results.BindText(1, work_item).Run();
}

absl::Status TrackerStore::Commit(const Changes& changes) {
  TW_ASSIGN(sql::Transaction transaction, sql::Transaction::Begin(&database_));
  support::HitFailpoint(support::Failpoint::tracker_commit_begun);
  for (const WorkRow& row : changes.items) {
    TW_TRY(WriteItem(row));
    support::HitFailpoint(support::Failpoint::tracker_commit_item);
  }
  support::HitFailpoint(support::Failpoint::tracker_commit_items);
  for (const ResultRow& row : changes.results) TW_TRY(WriteResult(row));
  support::HitFailpoint(support::Failpoint::tracker_commit_results);
  for (const OutboxRow& row : changes.outbox) TW_TRY(WriteUpdate(row));
  support::HitFailpoint(support::Failpoint::tracker_commit_outbox);
  for (const auto& [consumer, seq] : changes.acked) {
    TW_TRY(statements_->ack_updates.BindText(1, consumer).BindInt64(2, seq).Run());
  }
  support::HitFailpoint(support::Failpoint::tracker_commit_acked);
  for (const std::string& name : changes.gone_devices) {
    TW_TRY(statements_->forget_device.BindText(1, name).Run());
  }
  for (const DeviceRow& row : changes.devices) TW_TRY(WriteDevice(row));
  support::HitFailpoint(support::Failpoint::tracker_commit_devices);
  for (const UsageRow& row : changes.usage) {
    TW_TRY(statements_->write_usage.BindText(1, row.user)
               .BindInt64(2, row.day)
               .BindDouble(3, row.seconds)
               .Run());
  }
  for (const std::string& name : changes.forgotten) TW_TRY(Forget(name));
  if (!changes.items.empty()) {
    TW_TRY(WriteMeta("next_work_seq", support::StrCat(next_work_seq_)));
  }
  if (!changes.outbox.empty()) {
    TW_TRY(WriteMeta("next_outbox_seq", support::StrCat(next_outbox_seq_)));
  }
  support::HitFailpoint(support::Failpoint::tracker_commit_last);
  TW_TRY(transaction.Commit());
  support::HitFailpoint(support::Failpoint::tracker_committed);
  return absl::OkStatus();
}

}  // namespace tilewright::tracker
