// The search and build children of a simulated job: as little as a job's core needs to go on, with
// the same rules as the real ones (OpenJob first and once, nothing told twice, nothing picked
// twice). They die with the tuner, and now and then alone.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>

#include "tests/sim/sim_world.h"
#include "tuner_server/jobs/job_ports.h"

namespace tilewright::sim {

struct ChildFaults {
  double search_dies = 0;
  double build_crashes = 0;
  double build_fails = 0;
};

class SimSearch final : public jobs::SearchChild {
 public:
  SimSearch(SimWorld* world, int node, std::string state_dir, const ChildFaults* faults,
            jobs::JobEventSink sink)
      : world_(world),
        node_(node),
        dir_(std::move(state_dir)),
        faults_(faults),
        sink_(std::move(sink)) {}
  void Send(const v1::BuilderRequest& request, int64_t timeout_ms) override;
  void Kill() override { opened_ = false; }

 private:
  v1::BuilderReply Answer(const v1::BuilderRequest& request);
  void Open(v1::JobOpened* opened);
  void MakeChecks(const v1::MakeChecks& checks, v1::ChecksMade* made);
  void Pick(const v1::Ask& ask, v1::Asked* asked);

  SimWorld* world_;
  int node_;
  std::string dir_;
  const ChildFaults* faults_;
  jobs::JobEventSink sink_;
  bool opened_ = false;
  std::map<std::string, std::set<std::string>> programs_;  // by task: told, pending or picked
};

class SimBuilds final : public jobs::BuildPool {
 public:
  SimBuilds(SimWorld* world, int node, const ChildFaults* faults, jobs::JobEventSink sink)
      : world_(world), node_(node), faults_(faults), sink_(std::move(sink)) {}
  void Start(int64_t trial, const v1::Build& request) override;
  int64_t slots() const override { return 2; }

 private:
  SimWorld* world_;
  int node_;
  const ChildFaults* faults_;
  jobs::JobEventSink sink_;
};

}  // namespace tilewright::sim
