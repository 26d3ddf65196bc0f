// What the tracker's database may be told, judged by everything that it was told before and by true
// time, which no clock of a node can change: attempts and tokens are named once, what became of a
// result stays, a lease ends no sooner than its time. Not thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "tests/sim/sim_world.h"
#include "tilewright/v1/agent.pb.h"
#include "tracker/pool_rows.h"

namespace tilewright::sim {

class CommitOracle {
 public:
  CommitOracle(SimWorld* world, int64_t lease_ttl_ns) : world_(world), ttl_ns_(lease_ttl_ns) {}

  // The database is another one, empty.
  void NewDatabase();
  // The tracker takes a Sync in: it keeps its leases alive from now on.
  void SyncTaken(const v1::SyncRequest& request);
  // Hears of every new lease, with its device.
  void set_on_lease(std::function<void(const std::string&)> on_lease) {
    on_lease_ = std::move(on_lease);
  }
  // The database has these.
  void Committed(const tracker::Changes& changes);

 private:
  struct Lease {
    std::string device;
    int64_t token = 0;
    int64_t alive_ns = 0;   // granted, or named by a Sync
    int64_t before_ns = 0;  // the moment of that before this one
    int64_t commit = 0;     // that granted it
  };
  struct KnownAttempt {
    std::string lease;
    v1::Disposition disposition = v1::DISPOSITION_UNSPECIFIED;
    bool accepted = false;
  };
  void CheckAttempt(const std::string& item, const tracker::Attempt& attempt);
  void CheckExpiry(const std::string& item, const std::map<int, KnownAttempt>& before);

  SimWorld* world_;
  std::function<void(const std::string&)> on_lease_;
  const int64_t ttl_ns_;
  // Whether the tracker takes a message in: it is of the newest session, and not overtaken.
  bool InOrder(const v1::SyncRequest& request);

  int64_t commits_ = 0;
  struct Session {
    std::string id;
    std::set<std::string> replaced;
    uint64_t sequence = 0;
  };
  std::map<std::string, Session> sessions_;  // by agent
  std::map<std::string, Lease> leases_;
  std::map<std::string, int64_t> tokens_;                        // highest by device
  std::map<std::string, std::map<int, KnownAttempt>> attempts_;  // by item
  std::set<std::string> results_;                                // measurement ids
};

}  // namespace tilewright::sim
