// The agent's durable memory: an append-only file of ledger records. A record for which Append
// returned ok survives the death of the process; with `durable` also a power cut. A record that was
// being written at that moment is cut off at the next start. The file is rewritten when most of it
// is obsolete. Not thread-safe.
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

// The file under a spool. An interface: the simulation's file loses what was not synced.
class SpoolFile {
 public:
  virtual ~SpoolFile() = default;
  // Returns its contents; empty if there is no file yet.
  virtual absl::StatusOr<std::string> Read() = 0;
  // Writes bytes at `size`, the end as the spool knows it, and cuts off the rest. With `durable`
  // they are on the disk when ok is returned. After an error any bytes may follow `size`.
  virtual absl::Status WriteAt(int64_t size, std::string_view bytes, bool durable) = 0;
  // Replaces everything, atomically and durably.
  virtual absl::Status Replace(std::string_view content) = 0;
};

class Spool {
 public:
  // Works on any file; `name` is for messages.
  static absl::StatusOr<std::unique_ptr<Spool>> Open(std::unique_ptr<SpoolFile> file,
                                                     const std::string& name, Ledger* ledger);
  // Opens or creates the file and replays it into `ledger`. Bytes that are no records and reach to
  // the end of the file are a torn write: they are cut off (dropped_bytes), with acknowledgements
  // after them. If other intact records follow them, the disk has lost data: data_loss
  // (spool.file.damaged), and nothing is changed.
  static absl::StatusOr<std::unique_ptr<Spool>> Open(const std::string& path, Ledger* ledger);

  // With `durable` the record and all before it are on the disk when ok is returned. After an error
  // nothing of it counts: the next write overwrites it, so the caller may try again.
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

// Returns whether a record must survive a power cut before the agent acts on it. A grant need not:
// it is synced with the start of its first item; if a power cut takes it before, it is offered
// again with the same token. Nor an acknowledgement: if it is lost, the result is reported again.
bool MustBeSynced(Record::Kind kind);

// Returns the bytes of one record in the file. Exposed for tests.
std::string EncodeRecord(const Record& record);

}  // namespace tilewright::device_agent
