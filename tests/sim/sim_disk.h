// A disk that forgets: bytes that were written and not synced are lost at a power cut, wholly or in
// part, in any order of sectors; the disk can be full. Bytes written survive the death of a
// process.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "deploy/support/rng.h"
#include "device_agent/spool.h"

namespace tilewright::sim {

// The content of one file, which outlives those who write it.
struct SimFile {
  std::string bytes;   // as processes see it
  std::string synced;  // as it is after a power cut, at least
  bool full = false;
  bool forgets_sync = false;  // a planted bug: says synced and is not

  void Sync() {
    if (!forgets_sync) synced = bytes;
  }
  // What is left: the synced bytes, and of those written since some sectors.
  void PowerCut(support::Rng* rng);
};

// A spool's file on such a disk. `file` is not owned.
class SimSpoolFile final : public device_agent::SpoolFile {
 public:
  explicit SimSpoolFile(SimFile* file) : file_(file) {}
  absl::StatusOr<std::string> Read() override { return file_->bytes; }
  absl::Status WriteAt(int64_t size, std::string_view bytes, bool durable) override;
  absl::Status Replace(std::string_view content) override;

 private:
  SimFile* file_;
};

}  // namespace tilewright::sim
