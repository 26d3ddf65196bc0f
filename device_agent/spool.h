// The agent's durable memory: an append-only file of ledger records. What Append returned ok for is
// there after the death of the process, with `durable` after a power cut, too; a record that was
// being written then is cut off at the next start.
// Rewritten when most of it is history. Not thread-safe.
//
// File: the 8 bytes "TWSPOOL1", then records: u32 length of the payload, u64 StableHash64 of the
// payload, payload (one byte kind, then the record's message), little-endian.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "deploy/support/status.h"
#include "device_agent/ledger.h"

namespace tilewright::device_agent {

// The file under a spool. A seam: the simulation has one that loses what was not synced.
class SpoolFile {
 public:
  virtual ~SpoolFile() = default;
  // Everything in it; empty where there is none yet.
  virtual absl::StatusOr<std::string> Read() = 0;
  // Adds bytes at `size`, the end as the spool knows it, and cuts off what lies beyond. With
  // `durable` they are on the disk when ok is returned. After an error anything may follow `size`.
  virtual absl::Status WriteAt(int64_t size, std::string_view bytes, bool durable) = 0;
  // Replaces everything, atomically and durably.
  virtual absl::Status Replace(std::string_view content) = 0;
};

class Spool {
 public:
  // Over any file; `name` is for messages.
  static absl::StatusOr<std::unique_ptr<Spool>> Open(std::unique_ptr<SpoolFile> file,
                                                     const std::string& name, Ledger* ledger);
  // Opens or creates the file and replays it into `ledger`. Bytes that are no records and reach to
  // the end of the file are a torn write: cut off (dropped_bytes), acknowledgements behind them
  // too. With other intact records behind them the disk has lost data: data_loss
  // (spool.file.damaged), nothing is changed.
  static absl::StatusOr<std::unique_ptr<Spool>> Open(const std::string& path, Ledger* ledger);

  // With `durable` the record is on the disk when ok is returned, and all before it. After an error
  // nothing of it counts (the next write goes over it), so that the same call can be tried again.
  absl::Status Append(const Record& record, bool durable = true);

  // True when rewriting is worth its cost.
  bool WantsCompaction() const;
  // Replaces the file by these records, atomically.
  absl::Status Rewrite(const std::vector<Record>& records);

  int64_t bytes() const { return bytes_; }
  int64_t dropped_bytes() const { return dropped_bytes_; }

 private:
  explicit Spool(std::unique_ptr<SpoolFile> file) : file_(std::move(file)) {}

  const std::unique_ptr<SpoolFile> file_;
  int64_t bytes_ = 0;
  int64_t compact_bytes_ = 0;  // size after the last rewrite
  int64_t dropped_bytes_ = 0;
};

// Whether a record must be on the disk before anything follows from it, not only safe from the
// death of the process. A grant need not: it is synced together with the start of its first item,
// and one that a power cut took before that is offered again, with the same token. Nor an
// acknowledgement: one that is lost is asked for again.
bool MustBeSynced(Record::Kind kind);

// One record as it stands in the file. Exposed for tests.
std::string EncodeRecord(const Record& record);

}  // namespace tilewright::device_agent
