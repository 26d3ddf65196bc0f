#include "tests/sim/sim_disk.h"

#include <algorithm>

namespace tilewright::sim {
namespace {

constexpr size_t kSector = 64;  // small, so that a record can lie in two

absl::Status Full() {
  return support::ResourceExhausted("spool.write.failed", "no space left (simulated)");
}

}  // namespace

void SimFile::PowerCut(support::Rng* rng) {
  // The length may have become durable without the bytes: what is missing reads as zeros.
  const size_t low = std::min(bytes.size(), synced.size());
  const size_t size = bytes.size() >= synced.size()
                          ? low + rng->Uniform(bytes.size() - low + 1)
                          : (rng->Bernoulli(0.5) ? bytes.size() : synced.size());
  std::string left(size, '\0');
  for (size_t at = 0; at < size; at += kSector) {
    const size_t end = std::min(size, at + kSector);
    const bool same = synced.compare(at < synced.size() ? at : synced.size(), end - at, bytes,
                                     at < bytes.size() ? at : bytes.size(), end - at) == 0;
    const bool fresh = same || rng->Bernoulli(0.5);
    const std::string& from = fresh ? bytes : synced;
    for (size_t i = at; i < end && i < from.size(); ++i) left[i] = from[i];
    // A sector that was not written holds what was synced; beyond that, zeros.
  }
  bytes = left;
  synced = left;
}

absl::Status SimSpoolFile::WriteAt(int64_t size, std::string_view bytes, bool durable) {
  file_->bytes.resize(static_cast<size_t>(size));
  if (file_->full) {
    file_->bytes += bytes.substr(0, bytes.size() / 2);
    return Full();
  }
  file_->bytes += bytes;
  if (durable) file_->Sync();
  return absl::OkStatus();
}

absl::Status SimSpoolFile::Replace(std::string_view content) {
  if (file_->full) return Full();
  file_->bytes = content;
  file_->Sync();
  return absl::OkStatus();
}

}  // namespace tilewright::sim
