// Makes stored items of the bytes that come out of the database, a batch at a time and beside the
// reading of the next one: a restart with a million of them waits for whichever takes longer.
// Belongs to one thread.
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
  // Fills `item` of the rows, which must neither move nor be touched until Finish.
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
