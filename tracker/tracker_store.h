// The tracker's database: SQLite, one file, one connection, every commit durable before an answer
// goes out. Belongs to the tracker's loop; not thread-safe.
#pragma once

#include <cstdint>
#include <future>
#include <memory>
#include <string>

#include "deploy/sql/database.h"
#include "deploy/support/status.h"
#include "tracker/pool_store.h"

namespace tilewright::tracker {

inline constexpr uint64_t kCheckBesideBytes = uint64_t{32} << 20;

class TrackerStore final : public PoolStore {
 public:
  // Opens or creates the file, migrates its schema, raises the epoch durably. data_loss if the file
  // is damaged: it is not changed. Codes follow deploy/sql/database.h. A file of
  // `check_beside_bytes` or more that needs no migration is checked for damage while the first Load
  // runs. If the check fails, that Load returns data_loss. The epoch rises at its end.
  static absl::StatusOr<std::unique_ptr<TrackerStore>> Open(
      const std::string& path, uint64_t check_beside_bytes = kCheckBesideBytes);

  // REQUIRES: called before the first Commit.
  absl::StatusOr<Snapshot> Load() override;
  absl::Status Commit(const Changes& changes) override;
  absl::StatusOr<std::vector<ResultRow>> LoadResults(const std::string& work_item) override;

 private:
  explicit TrackerStore(sql::Database database);
  absl::Status Prepare();
  absl::Status RaiseEpoch();
  void StartCheck();
  absl::Status AwaitCheck();
  absl::Status WriteItem(const WorkRow& row);
  absl::Status WriteResult(const ResultRow& row);
  absl::Status WriteUpdate(const OutboxRow& row);
  absl::Status WriteDevice(const DeviceRow& row);
  absl::Status Forget(const std::string& work_item);
  absl::Status WriteMeta(const std::string& key, const std::string& value);
  absl::StatusOr<std::string> ReadMeta(const std::string& key);
  absl::Status LoadItems(Snapshot* snapshot);
  absl::Status LoadAttempts(Snapshot* snapshot);
  absl::Status LoadOutbox(Snapshot* snapshot);
  absl::Status LoadDevices(Snapshot* snapshot);
  absl::Status LoadUsage(Snapshot* snapshot);

  struct Statements;

  sql::Database database_;
  std::unique_ptr<Statements> statements_;  // destroyed before the database
  std::future<absl::Status> check_;         // under way until the first Load
  int64_t next_work_seq_ = 1;
  int64_t next_outbox_seq_ = 1;

 public:
  ~TrackerStore() override;
};

}  // namespace tilewright::tracker
