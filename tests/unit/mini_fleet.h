// A tracker and one simulated agent with one device, in this process over loopback: for tests of
// tuners. The agent reports a time for every work item at once: the smaller the hash of the
// artifact, the faster. Stop ends all threads; the tracker's state lasts as long as the object.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>

#include "deploy/daemon/artifact_service.h"
#include "deploy/daemon/server_host.h"
#include "deploy/support/clock.h"
#include "deploy/support/file.h"
#include "tracker/tracker_loop.h"
#include "tracker/tracker_metrics.h"
#include "tracker/tracker_service.h"
#include "tracker/tracker_store.h"

namespace tilewright::tests {

class MiniFleet {
 public:
  explicit MiniFleet(const std::string& state_dir);
  ~MiniFleet();

  const std::string& address() const { return host_->address(); }
  int64_t measured() const { return measured_.load(); }
  // The agent gets nothing while false, nor once it has measured so many (or a few more: what it
  // was granted together).
  std::atomic<bool> measuring{true};
  std::atomic<int64_t> most{INT64_MAX};

 private:
  void AgentLoop();
  void MeasureGrant(const v1::Grant& grant, v1::AgentService::Stub* stub);

  support::SystemClock clock_;
  std::unique_ptr<tracker::TrackerStore> store_;
  std::unique_ptr<daemon::BlobStore> blobs_;
  std::unique_ptr<daemon::Metrics> registry_;
  std::unique_ptr<tracker::TrackerMetrics> metrics_;
  std::unique_ptr<tracker::TrackerLoop> loop_;
  std::unique_ptr<daemon::ArtifactServiceImpl> artifacts_;
  std::unique_ptr<tracker::AgentServiceImpl> agents_;
  std::unique_ptr<tracker::DispatchServiceImpl> dispatch_;
  std::unique_ptr<tracker::FleetAdminServiceImpl> admin_;
  std::unique_ptr<daemon::ServerHost> host_;
  std::atomic<bool> stopping_{false};
  std::atomic<int64_t> measured_{0};
  std::thread agent_;
};

}  // namespace tilewright::tests
