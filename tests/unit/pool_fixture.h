// Makes the messages that tests of the tracker's state machine need. Free functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "deploy/support/hash.h"
#include "deploy/support/strings.h"
#include "tilewright/v1/agent.pb.h"
#include "tilewright/v1/dispatch.pb.h"
#include "tracker/device_pool.h"

namespace tilewright::tracker::testing {

inline v1::Digest DigestOf(const std::string& text) {
  v1::Digest digest;
  digest.set_algorithm("sha256");
  digest.set_hash(support::HexDecode(support::Sha256Hex(text)).value());
  digest.set_size_bytes(static_cast<int64_t>(text.size()));
  return digest;
}

inline v1::WorkItem Item(const std::string& name, const std::string& job = "job") {
  v1::WorkItem item;
  item.set_name(name);
  item.set_job(job);
  item.set_pool("board");
  item.set_target("cpu,arch=x86_64,threads=2");
  *item.mutable_work()->mutable_artifact() = DigestOf("artifact of " + name);
  return item;
}

inline v1::DeviceReport Report(const std::string& device) {
  v1::DeviceReport report;
  report.set_device(device);
  report.set_key("board");
  report.set_fingerprint("f1");
  (*report.mutable_labels())["site"] = "lab";
  auto& attributes = *report.mutable_attributes();
  attributes["kind"].set_s("cpu");
  attributes["arch"].set_s("x86_64");
  attributes["cpu"].set_s("znver4");
  attributes["cpu_accepts"].set_s("x86-64,x86-64-v3,znver4");
  attributes["cores"].set_i(2);
  report.set_health(v1::HEALTH_GOOD);
  report.set_activity(v1::ACTIVITY_IDLE);
  return report;
}

inline v1::SyncRequest SyncOf(const std::string& agent, const std::vector<std::string>& devices,
                              uint64_t sequence, const std::string& session = "s1") {
  v1::SyncRequest request;
  request.set_agent(agent);
  request.set_session_id(session);
  request.set_sequence(sequence);
  request.set_protocol_revision(1);
  for (const std::string& device : devices) *request.add_devices() = Report(device);
  return request;
}

// The result of one item of a grant.
inline v1::MeasurementResult ResultOf(const v1::Grant& grant, int index,
                                      v1::Outcome outcome = v1::OK) {
  const v1::Work& work = grant.work(index);
  v1::MeasurementResult result;
  result.set_measurement_id(support::StrCat(work.work_item(), "/", work.attempt()));
  result.set_work_item(work.work_item());
  result.set_attempt(work.attempt());
  result.set_lease(grant.lease());
  result.set_fencing_token(grant.fencing_token());
  result.set_device(grant.device());
  result.set_outcome(outcome);
  result.set_value_kind(v1::VALUE_KIND_WALL_NS);
  result.set_valid(true);
  result.add_samples(1000.0);
  result.set_median(1000.0);
  return result;
}

inline Snapshot EmptySnapshot() {
  Snapshot snapshot;
  snapshot.store_id = "test";
  return snapshot;
}

inline Now At(double seconds) {
  return {static_cast<int64_t>(seconds * 1e9), static_cast<int64_t>(seconds * 1e6)};
}

}  // namespace tilewright::tracker::testing
