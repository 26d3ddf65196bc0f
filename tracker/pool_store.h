// Stores the rows of the state machine: the interface between the rounds and a database. The daemon
// uses tracker_store.h; the simulation wraps it with faults. Not thread-safe.
#pragma once

#include <string>
#include <vector>

#include "deploy/support/status.h"
#include "tracker/pool_rows.h"

namespace tilewright::tracker {

class PoolStore {
 public:
  virtual ~PoolStore() = default;

  // Everything committed so far.
  virtual absl::StatusOr<Snapshot> Load() = 0;

  // All or nothing, durable when ok is returned. After an error the store is as before; the caller
  // must go back to Load().
  virtual absl::Status Commit(const Changes& changes) = 0;

  // The committed results of a work item, in any order.
  virtual absl::StatusOr<std::vector<ResultRow>> LoadResults(const std::string& work_item) = 0;
};

}  // namespace tilewright::tracker
