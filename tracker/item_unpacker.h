// Makes stored items from the bytes of the database, one batch at a time, while the caller reads
// the next batch. So a restart with a million items takes the longer of the two times, not their
// sum. Belongs to one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <future>
#include <string>
#include <string_view>
#include <vector>

#include "deploy/support/status.h"
#include "tracker/pool_rows.h"

namespace tilewright::tracker {

class ItemUnpacker {
 public:
  // Fills `item` of the rows. REQUIRES: nothing moves or uses the rows until Finish.
  explicit ItemUnpacker(std::vector<WorkRow>* rows) : rows_(rows) {}
  ~ItemUnpacker();

  // The next row's. An error may be that of an earlier row: data_loss (tracker.store.damaged) for
  // bytes that are not a work item of that name.
  absl::Status Add(std::string_view name, std::string_view spec);
  absl::Status Finish();

 private:
  // Names and specs one after the other: no allocation for each.
  struct Batch {
    size_t first_row = 0;
    std::string bytes;
    std::vector<uint32_t> lengths;  // name, spec, name, spec, ...
  };
  absl::Status Flush();
  absl::Status Wait();
  absl::Status Unpack(const Batch& batch);

  std::vector<WorkRow>* const rows_;
  StoredItem::SharedTerms last_;  // of the one thread that unpacks
  Batch batch_;
  std::future<absl::Status> under_way_;
};

}  // namespace tilewright::tracker
