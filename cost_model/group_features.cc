#include "cost_model/group_features.h"

#include <algorithm>
#include <string>

#include "compiler/estimate/group_model.h"
#include "deploy/support/strings.h"

namespace tilewright::cost_model {
namespace {

using estimate::AccessSummary;
using estimate::AnalyzeStep;
using estimate::EstimateGroups;
using estimate::GroupEstimate;
using estimate::kStepThreads;
using estimate::LaunchShape;
using estimate::ProgramSummary;
using estimate::StatementSummary;
using estimate::StepAccess;
using estimate::TimeEstimate;

constexpr size_t kLoads = 3;  // described one by one

// Accesses as threads that go in step see them. Of a machine whose threads run one after the other:
// as a GPU would, since targets that name no device serve both.
void AddStep(const StatementSummary& s, const AccessSummary* access, const std::string& prefix,
             const target::LaunchLimits& limits, FeatureRow* row) {
  StepAccess step;
  bool shared = false;
  if (access != nullptr) {
    shared = access->buffer->scope == ir::Scope::kShared;
    step = AnalyzeStep(s, *access, limits, limits.warp > 1 ? limits.warp : kStepThreads);
  }
  row->Add(prefix + "shared", shared ? 1 : 0);
  row->AddLog(prefix + "transactions", shared ? 0 : step.transactions);
  row->Add(prefix + "coalesced", shared ? 1 : step.coalesced);
  row->AddLog(prefix + "conflicts", shared ? step.conflicts : 1);
}

}  // namespace

TimeEstimate AddGroupFeatures(const ProgramSummary& program, const StatementSummary& critical,
                              const target::Target& target, FeatureRow* row) {
  const GroupEstimate estimate = EstimateGroups(program, target);
  const LaunchShape& shape = estimate.shape;
  row->AddLog("group.groups", shape.groups);
  row->AddLog("group.threads", shape.threads);
  row->AddLog("group.thread_work", critical.ThreadIterations());
  row->AddLog("group.registers", shape.registers);
  row->AddLog("group.shared_bytes", shape.shared_bytes);
  row->AddLog("group.barriers", shape.barriers);
  row->AddLog("group.per_unit", shape.groups_per_unit);
  row->Add("group.occupancy", shape.occupancy);
  row->AddLog("group.waves", shape.waves);
  row->Add("group.tail", shape.tail);
  row->Add("group.launches", static_cast<double>(program.launches.size()));
  const target::LaunchLimits& limits = target.machine.launch;
  for (size_t i = 0; i <= kLoads; ++i) {
    const AccessSummary* access = i < critical.accesses.size() ? &critical.accesses[i] : nullptr;
    AddStep(critical, access, i == 0 ? "store." : support::StrCat("load", i, "."), limits, row);
  }
  row->Add("time.barrier", Relative(estimate.barrier_ns, estimate.time.total_ns));
  row->Add("time.launch", Relative(estimate.launch_ns, estimate.time.total_ns));
  return estimate.time;
}

}  // namespace tilewright::cost_model
