// The durable rows of the tracker, shared by the state machine that makes them and the store that
// keeps them. Plain values.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tilewright/v1/agent.pb.h"
#include "tilewright/v1/dispatch.pb.h"
#include "tilewright/v1/fleet_admin.pb.h"
#include "tracker/stored_item.h"

namespace tilewright::tracker {

// One grant of a work item.
struct Attempt {
  int number = 0;  // from the item's attempts_before + 1
  std::string lease;
  int64_t token = 0;
  std::string device;
  // UNSPECIFIED until a result arrives.
  v1::Disposition disposition = v1::DISPOSITION_UNSPECIFIED;
  bool accepted = false;  // this result closed the item
};

struct WorkRow {
  std::string consumer;
  int64_t seq = 0;  // order of submission
  StoredItem item;
  uint64_t spec_hash = 0;  // of the item as submitted
  v1::WorkState state = v1::WORK_STATE_QUEUED;
  std::vector<Attempt> attempts;
  int infra_losses = 0;
  int candidate_kills = 0;
  int invalid_results = 0;
  int64_t submitted_us = 0;
  int64_t closed_us = 0;
  // On this process's monotonic clock; after a restart the time of the start. Not stored.
  int64_t queued_ns = 0;
  int64_t closed_ns = 0;

  bool open() const { return state == v1::WORK_STATE_QUEUED || state == v1::WORK_STATE_LEASED; }
};

struct ResultRow {
  v1::Disposition disposition = v1::DISPOSITION_UNSPECIFIED;
  int64_t at_us = 0;
  v1::MeasurementResult result;
};

struct OutboxRow {
  int64_t seq = 0;
  std::string consumer;
  std::string work_item;
  v1::WorkState state = v1::WORK_STATE_UNSPECIFIED;
  std::string reason;
  std::string measurement_id;  // empty without a result
  int64_t at_us = 0;
  v1::MeasurementResult result;  // kept once, in the result's row, when stored
};

struct HoldRow {
  std::string name;
  std::string holder;
  std::string purpose;
  int64_t expire_us = 0;
};

// The tracker's verdict on a device; see device_health.h.
enum class Verdict { kGood = 0, kSuspect = 1, kQuarantined = 2 };

struct HealthRow {
  Verdict verdict = Verdict::kGood;
  std::string reason;  // slug; empty when good
  std::string detail;  // for people
  int probes = 0;      // canaries that failed since it was quarantined
  int64_t since_us = 0;
  int64_t next_probe_us = 0;  // not before

  bool operator==(const HealthRow&) const = default;
};

struct DeviceRow {
  std::string name;
  std::string agent;  // that reported it last, "agents/{agent}"; empty before schema 4
  int64_t last_token = 0;
  v1::AdminState admin_state = v1::ADMIN_STATE_ENABLED;
  std::string admin_reason;
  int64_t admin_version = 0;  // the etag
  std::optional<HoldRow> hold;
  HealthRow health;
  int64_t canaries = 0;  // measured or under way: names the next one
  int64_t resets = 0;    // ordered: names the newest, "resets/{device}-{n}"
};

// What a user has used of devices on one day.
struct UsageRow {
  std::string user;
  int64_t day = 0;  // since 1970, UTC
  double seconds = 0;
};

// One transaction's worth of changes.
struct Changes {
  std::vector<WorkRow> items;             // new or changed, with all their attempts
  std::vector<std::string> forgotten;     // closed items to delete, with attempts and results
  std::vector<ResultRow> results;         // new
  std::vector<OutboxRow> outbox;          // new
  std::map<std::string, int64_t> acked;   // consumer -> delete its updates up to this seq
  std::vector<std::string> gone_devices;  // to delete, before `devices` are written
  std::vector<DeviceRow> devices;         // new or changed
  std::vector<UsageRow> usage;            // new or changed; older days of the user go

  bool empty() const {
    return items.empty() && forgotten.empty() && results.empty() && outbox.empty() &&
           acked.empty() && gone_devices.empty() && devices.empty() && usage.empty();
  }
};

// Everything durable, as of the last commit.
struct Snapshot {
  std::string
      store_id;        // random name of this database; cursors of another one are recognised by it
  uint64_t epoch = 1;  // rises at each start
  int64_t next_work_seq = 1;
  int64_t next_outbox_seq = 1;
  std::vector<WorkRow> items;  // by name
  std::vector<OutboxRow> outbox;
  std::vector<DeviceRow> devices;
  std::vector<UsageRow> usage;
};

}  // namespace tilewright::tracker
