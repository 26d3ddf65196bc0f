#include "cost_model/features.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "compiler/estimate/analytical_model.h"
#include "compiler/estimate/group_model.h"
#include "compiler/estimate/loop_summary.h"
#include "cost_model/feature_row.h"
#include "cost_model/group_features.h"
#include "deploy/support/hash.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::cost_model {
namespace {

using estimate::AccessSummary;
using estimate::AnalyzeTile;
using estimate::EstimateTime;
using estimate::LoopSummary;
using estimate::ProgramSummary;
using estimate::RegisterTile;
using estimate::StatementSummary;
using estimate::Summarize;
using estimate::ThreadTarget;
using estimate::TimeEstimate;

// Raised when a column of the schema changes its meaning without changing its name.
constexpr int kFeatureVersion = 6, kGroupFeatureVersion = 2;
constexpr size_t kAccesses = 4;  // accesses described one by one

// Signed logarithm of a stride: small strides differ, large ones look alike.
double StrideClass(int64_t stride) {
  return stride == 0 ? 0 : std::log2(1 + std::abs(static_cast<double>(stride)));
}

void AddWorkload(const ProgramSummary& program, double flops, FeatureRow* row) {
  row->Add("work.intensity", std::log2(1 + flops / std::max(program.parameter_bytes, 1.0)));
  row->Add("work.statements", static_cast<double>(program.statements.size()));
  row->AddLog("alloc.local_bytes", program.local_bytes);
  row->AddLog("alloc.global_bytes", program.global_alloc_bytes);
}

void AddMachine(const target::Target& target, FeatureRow* row) {
  row->Add("target.lanes", target.machine.vector_bytes / 4.0);
  row->Add("target.registers", target.machine.vector_registers);
  row->Add("target.threads", target.threads);
}

void AddTasks(const StatementSummary& s, double flops, const target::Target& target,
              FeatureRow* row) {
  const double tasks = s.Product(ir::ForKind::kParallel);
  const double threads = std::max(1, target.threads);
  row->AddLog("loop.parallel_tasks", tasks);
  row->Add("loop.makespan", tasks > 1 ? std::ceil(tasks / threads) * threads / tasks : threads);
  row->Add("loop.task_share", Relative(flops / std::max(tasks, 1.0), flops));
}

void AddLoops(const StatementSummary& s, double flops, FeatureRow* row) {
  row->Add("loop.vector_length", s.Product(ir::ForKind::kVectorized));
  double unrolled_spatial = 1, unrolled_reduction = 1, serial_reduction = 1, serial_spatial = 1;
  double innermost_serial = 1;
  int rolled = 0;
  for (const LoopSummary& loop : s.loops) {
    const double extent = static_cast<double>(loop.extent);
    if (loop.kind == ir::ForKind::kUnrolled) {
      (loop.moves_store ? unrolled_spatial : unrolled_reduction) *= extent;
    } else if (loop.kind == ir::ForKind::kSerial) {
      (loop.moves_store ? serial_spatial : serial_reduction) *= extent;
      innermost_serial = extent;
      ++rolled;
    }
  }
  row->AddLog("loop.unrolled_spatial", unrolled_spatial);
  row->AddLog("loop.unrolled_reduction", unrolled_reduction);
  row->AddLog("loop.serial_spatial", serial_spatial);
  row->AddLog("loop.serial_reduction", serial_reduction);
  row->AddLog("loop.innermost_serial", innermost_serial);
  row->Add("loop.rolled", rolled);
  row->Add("loop.depth", static_cast<double>(s.loops.size()));
  row->Add("loop.guarded", s.guarded ? 1 : 0);
  row->Add("loop.peeled", s.guarded && s.peeled ? 1 : 0);
  row->Add("loop.waste", std::log2(std::max(s.flops() / std::max(flops, 1.0), 1e-3)));
}

void AddOps(const StatementSummary& s, FeatureRow* row) {
  row->Add("op.add", s.ops.add + s.ops.dots);
  row->Add("op.mul", s.ops.mul + s.ops.dots);
  row->Add("op.divide", s.ops.divide);
  row->Add("op.special", s.ops.special);
  row->Add("op.compare", s.ops.compare + s.ops.select);
  row->Add("op.integer", s.ops.integer);
  row->Add("op.accumulates", s.accumulates ? 1 : 0);
}

void AddTile(const StatementSummary& s, const target::Target& target, FeatureRow* row) {
  const RegisterTile tile = AnalyzeTile(s, target);
  row->Add("tile.lanes", tile.lanes);
  row->Add("tile.lane_use", tile.lanes * 4 / std::max(target.machine.vector_bytes, 1));
  row->Add("tile.accumulators", tile.accumulators);
  row->Add("tile.registers", tile.registers / std::max(target.machine.vector_registers, 1));
  row->AddLog("tile.spill", tile.spill);
  row->Add("tile.loads_per_op", tile.loads_per_op);
  row->Add("tile.slow_lanes_per_op", tile.slow_lanes_per_op);
  row->AddLog("tile.body_ops", tile.body_ops);
  row->Add("tile.distinct_loads_per_op", tile.distinct_loads_per_op);
  row->Add("tile.live", tile.live / std::max(target.machine.vector_registers, 1));
  row->AddLog("tile.bodies", tile.bodies);
}

// Places of the buffer, far from each other, that the body from loop `body` on walks along at once:
// one is what prefetching keeps up with best.
double Streams(const StatementSummary& s, const AccessSummary& access, size_t body) {
  constexpr int64_t kFar = 512;  // bytes
  double streams = 1;
  for (size_t i = body; i < s.loops.size(); ++i) {
    if (std::abs(access.strides[i]) * access.element_bytes < kFar) continue;
    streams *= static_cast<double>(s.loops[i].extent);
  }
  return streams;
}

void AddAccess(const StatementSummary& s, const AccessSummary* access, size_t index, double flops,
               FeatureRow* row) {
  const std::string prefix = support::StrCat("access", index, ".");
  double touches = 0, unique = 0, run = 0, task_bytes = 0, body_unique = 0;
  double vector_stride = 0, inner_stride = 0, page_steps = 0, is_write = 0, local = 0;
  double streams = 0;
  if (access != nullptr) {
    const double bytes = static_cast<double>(access->element_bytes);
    touches = s.iterations * bytes;
    unique = access->unique[0] * bytes;
    is_write = access->is_write ? 1 : 0;
    local = access->buffer->scope == ir::Scope::kLocal ? 1 : 0;
    size_t parallel_end = 0, body = s.loops.size();
    run = bytes;
    for (size_t i = 0; i < s.loops.size(); ++i) {
      const LoopSummary& loop = s.loops[i];
      const int64_t stride = access->strides[i];
      if (loop.kind == ir::ForKind::kParallel || ir::IsBlockAxis(loop.kind)) parallel_end = i + 1;
      if (loop.kind == ir::ForKind::kVectorized) vector_stride = StrideClass(stride);
      if (loop.kind == ir::ForKind::kSerial) inner_stride = StrideClass(stride), body = i + 1;
      if (stride == 1) run = std::max(run, bytes * static_cast<double>(loop.extent));
      // Steps of a multiple of a page fall into the same cache set again and again.
      if (stride != 0 && stride * access->element_bytes % 4096 == 0 && loop.extent > 1)
        page_steps += 1;
    }
    streams = Streams(s, *access, body);
    task_bytes = access->unique[parallel_end] * bytes;
    body_unique = access->unique[std::min(body, s.loops.size())] * bytes;
  }
  row->Add(prefix + "is_write", is_write);
  row->Add(prefix + "local", local);
  row->Add(prefix + "bytes_per_flop", access != nullptr ? Relative(touches, flops) : 0);
  row->AddLog(prefix + "unique_bytes", unique);
  row->AddLog(prefix + "task_bytes", task_bytes);
  row->AddLog(prefix + "body_bytes", body_unique);
  row->AddLog(prefix + "reuse", unique > 0 ? touches / unique : 0);
  row->AddLog(prefix + "run_bytes", run);
  row->Add(prefix + "vector_stride", vector_stride);
  row->Add(prefix + "inner_stride", inner_stride);
  row->Add(prefix + "page_steps", page_steps);
  row->Add(prefix + "streams", streams);
}

void AddAccesses(const StatementSummary& s, double flops, FeatureRow* row) {
  // The store first, then loads from the most to the least bytes.
  std::vector<const AccessSummary*> order;
  for (const AccessSummary& access : s.accesses) order.push_back(&access);
  if (order.size() > 1) {
    std::stable_sort(order.begin() + 1, order.end(), [](const auto* a, const auto* b) {
      return a->unique[0] * static_cast<double>(a->element_bytes) >
             b->unique[0] * static_cast<double>(b->element_bytes);
    });
  }
  for (size_t i = 0; i < kAccesses; ++i)
    AddAccess(s, i < order.size() ? order[i] : nullptr, i, flops, row);
}

double PriorScore(double ns) { return -std::log2(1 + ns); }

void AddEstimate(const TimeEstimate& t, FeatureRow* row) {
  row->AddLog("level.l1_fill", t.l1_fill);
  row->AddLog("level.l2_fill", t.l2_fill);
  row->AddLog("level.l3_fill", t.l3_fill);
  row->AddLog("level.l2_bytes", t.l2_bytes);
  row->AddLog("level.l3_bytes", t.l3_bytes);
  row->AddLog("level.memory_bytes", t.memory_bytes);
  row->Add("time.compute", Relative(t.compute_ns, t.total_ns));
  row->Add("time.other", Relative(t.other_ns, t.total_ns));
  row->Add("time.other_traffic", Relative(t.other_traffic_ns, t.total_ns));
  row->Add("time.second", Relative(t.second_ns, t.total_ns));
  row->Add("time.tail", t.tail);
  row->Add("time.other_share", t.total_ns > 0 ? t.other_ns / t.total_ns : 0);
  row->Add("time.l2", Relative(t.l2_ns, t.total_ns));
  row->Add("time.l3", Relative(t.l3_ns, t.total_ns));
  row->Add("time.memory", Relative(t.memory_ns, t.total_ns));
  row->Add("time.overhead", Relative(t.overhead_ns, t.total_ns));
  row->Add("time.balance", t.balance);
  row->Add("prior.score", PriorScore(t.total_ns));
}

void AddOthers(const ProgramSummary& program, FeatureRow* row) {
  double iterations = 0, flops = 0;
  for (size_t i = 0; i < program.statements.size(); ++i) {
    if (i == program.critical) continue;
    iterations += program.statements[i].iterations;
    flops += program.statements[i].flops();
  }
  row->AddLog("other.iterations", iterations);
  row->AddLog("other.flops", flops);
}

FeatureRow MakeRow(const ProgramSummary& program, double flops, const target::Target& target) {
  static const StatementSummary kNone;
  const StatementSummary& critical =
      program.statements.empty() ? kNone : program.statements[program.critical];
  const bool groups = target.machine.feature_set == FeatureSet::kGroups;
  FeatureRow row;
  AddWorkload(program, flops, &row);
  if (!groups) {
    AddMachine(target, &row);
    AddTasks(critical, flops, target, &row);
  }
  AddLoops(critical, flops, &row);
  AddOps(critical, &row);
  AddTile(critical, groups ? ThreadTarget(target) : target, &row);
  AddAccesses(critical, flops, &row);
  AddOthers(program, &row);
  if (groups) {
    AddEstimate(AddGroupFeatures(program, critical, target, &row), &row);
  } else {
    AddEstimate(EstimateTime(program, target), &row);
  }
  return row;
}

// Of no machine of that set in particular: names are the same for all.
target::Target AnyTarget(FeatureSet set) {
  target::Target target;
  target.machine.feature_set = set;
  return target;
}

struct Schema {
  explicit Schema(FeatureSet set) : names(MakeRow(ProgramSummary(), 0, AnyTarget(set)).names) {
    support::Hasher64 hasher;
    hasher.Add(
        static_cast<uint64_t>(set == FeatureSet::kLoops ? kFeatureVersion : kGroupFeatureVersion));
    for (const std::string& name : names) hasher.Add(std::string_view(name));
    hash = support::Hex64(hasher.Finish());
  }
  std::vector<std::string> names;
  std::string hash;
};

const Schema& SchemaOf(FeatureSet set) {
  static const Schema* const loops = new Schema(FeatureSet::kLoops);
  static const Schema* const groups = new Schema(FeatureSet::kGroups);
  return set == FeatureSet::kGroups ? *groups : *loops;
}

}  // namespace

const std::vector<std::string>& FeatureNames(FeatureSet set) { return SchemaOf(set).names; }

const std::string& SchemaHash(FeatureSet set) { return SchemaOf(set).hash; }

double EstimatedNs(const FeatureVector& features) {
  return std::exp2(-static_cast<double>(features.back())) - 1;
}

void SetEstimate(double ns, FeatureVector* features) {
  features->back() = static_cast<float>(PriorScore(ns));
}

size_t FeatureIndex(std::string_view name, FeatureSet set) {
  const std::vector<std::string>& names = FeatureNames(set);
  const auto it = std::find(names.begin(), names.end(), name);
  TW_CHECK(it != names.end()) << "no feature " << name;
  return static_cast<size_t>(it - names.begin());
}

absl::StatusOr<FeatureVector> ComputeFeatures(const ir::Function& loops, double flops,
                                              const target::Target& target) {
  if (loops.stage != ir::Stage::kLoops) {
    return support::InvalidArgument("features.stage",
                                    "expected a function at stage loops, found another stage");
  }
  return MakeRow(Summarize(loops), flops, target).values;
}

std::string FeaturesHash(const FeatureVector& features) {
  support::Hasher64 hasher;
  for (const float value : features) {
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    hasher.Add(static_cast<uint64_t>(bits));
  }
  return support::Hex64(hasher.Finish());
}

}  // namespace tilewright::cost_model
