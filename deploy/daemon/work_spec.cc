#include "deploy/daemon/work_spec.h"

#include <string>

#include "deploy/support/hash.h"

namespace tilewright::daemon {

// Message types of work items have no maps, so equal items give equal bytes.
uint64_t WorkSpecHash(const v1::WorkItem& item) {
  v1::WorkItem canonical = item;
  canonical.mutable_work()->clear_attempt();
  canonical.clear_attempts_before();
  std::string bytes;
  canonical.SerializeToString(&bytes);
  return support::StableHash64(bytes);
}

}  // namespace tilewright::daemon
