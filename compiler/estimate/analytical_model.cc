#include "compiler/estimate/analytical_model.h"

#include <algorithm>
#include <cmath>

#include "compiler/estimate/group_model.h"

namespace tilewright::estimate {
namespace {

double Fill(const StatementSummary& s, size_t depth) {
  double bytes = 0;
  for (const AccessSummary& access : s.accesses) {
    bytes += access.unique[depth] * static_cast<double>(access.element_bytes);
  }
  return bytes;
}

// Cycles of one vector operation of the body. Arithmetic and loads overlap, but not perfectly.
double BodyCycles(const StatementSummary& s, const RegisterTile& tile,
                  const target::Machine& machine) {
  const double per_op = ArithmeticCycles(s, tile.accumulators, machine);
  // What the body needs twice is loaded once where there are registers to keep it in.
  const bool kept = tile.live <= machine.vector_registers;
  const double loads = kept ? tile.distinct_loads_per_op : tile.loads_per_op;
  const double port = loads / std::max(machine.loads_per_cycle, 0.5);
  double cycles = std::max(per_op, port) + machine.port_share * std::min(per_op, port);
  cycles += tile.slow_lanes_per_op * machine.slow_lane_cycles;
  cycles += s.ops.special * machine.special_cycles + s.ops.divide * machine.divide_cycles;
  cycles += tile.spill * machine.spill_cycles * 2 / std::max(tile.body_ops, 1.0);
  if (s.guarded && !s.peeled) cycles *= machine.estimate.guarded_body;
  return cycles;
}

// What peeled tails change: their last iterations do less, and less efficiently, as fewer
// accumulators hide less latency and the vectors of the other side are loaded for fewer operations.
double TailFactor(const StatementSummary& s, const RegisterTile& tile,
                  const target::Machine& machine) {
  const double full = BodyCycles(s, tile, machine);
  double factor = 1;
  for (const LoopSummary& loop : s.loops) {
    if (loop.last_share >= 1) continue;
    const double trips = static_cast<double>(loop.extent);
    if (loop.reduces) {  // fewer rounds of the same body
      factor *= (trips - 1 + loop.last_share) / trips;
      continue;
    }
    RegisterTile last = tile;
    last.accumulators = std::max(1.0, tile.accumulators * loop.last_share);
    last.body_ops = std::max(1.0, tile.body_ops * loop.last_share);
    const double loads = 0.5 + 0.5 / loop.last_share;
    last.loads_per_op = tile.loads_per_op * loads;
    last.distinct_loads_per_op = tile.distinct_loads_per_op * loads;
    const double tail = loop.last_share * BodyCycles(s, last, machine) / full;
    factor *= (trips - 1 + tail) / trips;
  }
  return factor;
}

double ComputeCycles(const StatementSummary& s, const target::Target& target, double* control) {
  const RegisterTile tile = AnalyzeTile(s, target);
  const double operations = s.iterations / tile.lanes;
  double trips = 1;
  *control = 0;
  for (const LoopSummary& loop : s.loops) {
    if (!IsRolled(loop)) continue;
    trips *= static_cast<double>(loop.extent);
    *control += trips * target.machine.estimate.round_cycles;
  }
  return operations * BodyCycles(s, tile, target.machine) * TailFactor(s, tile, target.machine);
}

void AddTraffic(const StatementSummary& s, const target::Target& target, double footprint,
                double speed, TimeEstimate* t) {
  const target::Machine& machine = target.machine;
  const double l1 = machine.l1.ReachableBytes(target.threads);
  const double l2 = machine.l2.ReachableBytes(target.threads);
  const double l3 = machine.l3.ReachableBytes(target.threads);
  const double share = machine.estimate.cache_share;
  t->l2_bytes = Traffic(s, l1, share, &t->l1_fill);
  t->l3_bytes = Traffic(s, l2, share, &t->l2_fill);
  t->memory_bytes = Traffic(s, l3, share, &t->l3_fill) * MissShare(footprint, l3);
  t->l2_ns = t->l2_bytes / machine.l2.bytes_per_cycle / machine.clock_ghz / speed;
  t->l3_ns = t->l3_bytes / machine.l3.bytes_per_cycle / machine.clock_ghz / speed;
  t->memory_ns = t->memory_bytes / machine.memory_bytes_per_cycle / machine.clock_ghz / speed;
}

// Makespan of n equal tasks on p threads, relative to an even share.
double Imbalance(double tasks, double threads) {
  if (threads <= 1) return 1;
  return std::ceil(tasks / threads) * threads / tasks;
}

// Of `ops` operations of a vector, each on one of `sums` independent sums (0: on none). Too few of
// them leave the pipeline idle.
double PipelineCycles(double ops, double per_cycle, double latency, double sums) {
  const double cycles = ops / per_cycle;
  return sums == 0 ? cycles : cycles * std::max(1.0, latency * per_cycle / std::max(sums, 1.0));
}

}  // namespace

double ArithmeticCycles(const StatementSummary& s, double sums, const target::Machine& machine) {
  if (!s.accumulates) sums = 0;
  if (s.ops.dots > 0)
    return PipelineCycles(s.ops.dots, machine.dots_per_cycle, machine.dot_latency, sums);
  const double floats = std::max({s.ops.add, s.ops.mul, s.ops.compare + s.ops.select, 0.5});
  return PipelineCycles(std::max(floats, s.ops.whole), std::max(machine.fma_per_cycle, 0.5),
                        machine.fma_latency, sums);
}

bool IsRolled(const LoopSummary& loop) {
  return loop.kind != ir::ForKind::kVectorized && loop.kind != ir::ForKind::kUnrolled;
}

size_t BodyStart(const StatementSummary& s) {
  size_t start = s.loops.size();
  while (start > 0 && !IsRolled(s.loops[start - 1])) --start;
  return start;
}

// The outermost nest whose working set fits is loaded once per iteration of the loops around it.
double Traffic(const StatementSummary& s, double size, double share, double* fill) {
  size_t depth = 0;
  while (depth < s.loops.size() && Fill(s, depth) > share * size) ++depth;
  *fill = depth == 0 ? Fill(s, 0) / size : Fill(s, depth - 1) / size;
  double bytes = 0;
  for (const AccessSummary& access : s.accesses) {
    const double all = access.unique[0] * static_cast<double>(access.element_bytes);
    if (access.buffer->scope == ir::Scope::kLocal && all <= size) continue;  // stays there
    // Loops outside that do not move the access find its data still there only when nothing else
    // moved in between: the innermost of them, as long as the nest inside fits.
    double trips = 1;
    bool reused = true;
    for (size_t i = depth; i-- > 0;) {
      if (access.strides[i] != 0) reused = false;
      if (!reused || i + 1 < depth) trips *= static_cast<double>(s.loops[i].extent);
    }
    const double once = access.unique[depth] * static_cast<double>(access.element_bytes);
    const double compulsory = access.unique[0] * static_cast<double>(access.element_bytes);
    bytes += std::max(compulsory, once * trips) * (access.is_write ? 2 : 1);
  }
  return bytes;
}

// A program runs again and again: nothing comes from memory where its data fit.
double MissShare(double footprint, double size) {
  return std::clamp(2 * footprint / size - 1, 0.0, 1.0);
}

double Overlapped(const TimeEstimate& t, double share) {
  const double parts[] = {t.compute_ns, t.l2_ns, t.l3_ns, t.memory_ns};
  const double largest = *std::max_element(std::begin(parts), std::end(parts));
  double rest = 0;
  for (double part : parts) rest += part;
  return largest + share * (rest - largest);
}

BodyLoads LoadsOf(const StatementSummary& s, const AccessSummary& access,
                  const RegisterTile& tile) {
  BodyLoads loads;
  const size_t body = BodyStart(s);
  for (size_t i = body; i < s.loops.size(); ++i) {
    const LoopSummary& loop = s.loops[i];
    if (access.strides[i] == 0) continue;
    if (loop.kind == ir::ForKind::kUnrolled) loads.all *= static_cast<double>(loop.extent);
  }
  for (size_t i = s.loops.size(); i-- > 0;) {
    if (s.loops[i].kind != ir::ForKind::kVectorized) continue;
    loads.vector_stride = access.strides[i];
    loads.vector_moves = loads.vector_stride != 0;
    if (loads.vector_moves) loads.all *= tile.vectors;
    break;
  }
  loads.distinct = std::min(
      loads.all, access.unique[body] / (loads.vector_moves ? std::max(tile.lanes, 1.0) : 1));
  return loads;
}

RegisterTile AnalyzeTile(const StatementSummary& s, const target::Target& target) {
  RegisterTile tile;
  const double machine_lanes =
      static_cast<double>(target.machine.vector_bytes) /
      std::max<double>(1,
                       static_cast<double>(s.accesses.empty() ? 4 : s.accesses[0].element_bytes));
  const double vector = s.Product(ir::ForKind::kVectorized);
  tile.vectors = std::max(1.0, std::ceil(vector / machine_lanes));
  tile.lanes = vector / tile.vectors;
  const size_t body = BodyStart(s);
  double spatial = tile.vectors, reduction = 1;
  for (size_t i = body; i < s.loops.size(); ++i) {
    if (s.loops[i].kind != ir::ForKind::kUnrolled) continue;
    (s.loops[i].moves_store ? spatial : reduction) *= static_cast<double>(s.loops[i].extent);
  }
  tile.accumulators = s.accumulates ? spatial : 1;
  tile.body_ops = spatial * reduction;
  double loads = 0, slow = 0, live = 0, distinct_loads = 0;
  for (const AccessSummary& access : s.accesses) {
    const bool is_accumulator =
        access.is_write && s.accumulates && access.buffer->scope == ir::Scope::kLocal;
    if (is_accumulator) continue;
    const BodyLoads one = LoadsOf(s, access, tile);
    loads += one.all;
    distinct_loads += one.distinct;
    if (one.vector_moves && one.vector_stride != 1) slow += one.all * tile.lanes;
    if (!access.is_write) live = std::max(live, one.vector_moves ? tile.vectors : 1.0);
  }
  tile.loads_per_op = loads / std::max(tile.body_ops, 1.0);
  tile.slow_lanes_per_op = slow / std::max(tile.body_ops, 1.0);
  tile.registers = tile.accumulators + live + 1;
  tile.spill = std::max(0.0, tile.registers - target.machine.vector_registers);
  tile.distinct_loads_per_op = distinct_loads / std::max(tile.body_ops, 1.0);
  tile.live = tile.accumulators + distinct_loads;
  for (size_t i = 0; i < body; ++i) {
    if (IsRolled(s.loops[i])) tile.bodies *= static_cast<double>(s.loops[i].extent);
  }
  return tile;
}

TimeEstimate EstimateTime(const ProgramSummary& program, const target::Target& target) {
  TimeEstimate t;
  if (program.statements.empty()) return t;
  if (target.machine.has_groups()) return EstimateGroups(program, target).time;
  const target::Machine& machine = target.machine;
  const target::EstimateWeights& weights = machine.estimate;
  const double threads = std::max(1, target.threads);
  double regions = 0;
  const double footprint =
      program.parameter_bytes + program.global_alloc_bytes + program.local_bytes;
  for (size_t i = 0; i < program.statements.size(); ++i) {
    const StatementSummary& s = program.statements[i];
    const double tasks = s.Product(ir::ForKind::kParallel);
    const double speed = tasks > 1 ? threads / Imbalance(tasks, threads) : 1;
    double control = 0;
    const double cycles = ComputeCycles(s, target, &control);
    const double ns = (cycles + weights.round_share * control) / machine.clock_ghz / speed;
    if (tasks > 1) regions = std::max(regions, 1.0);
    t.overhead_ns += control / machine.clock_ghz / speed * weights.round_overhead;
    TimeEstimate one;
    one.compute_ns = ns;
    AddTraffic(s, target, footprint, speed, &one);
    if (i != program.critical) {
      t.other_ns += ns;
      t.second_ns = std::max(t.second_ns, ns);
      t.other_traffic_ns += Overlapped(one, machine.stream_share) - ns;
      continue;
    }
    t.balance = tasks > 1 ? Imbalance(tasks, threads) : threads;
    t.tail = TailFactor(s, AnalyzeTile(s, target), machine);
    one.other_ns = t.other_ns, one.second_ns = t.second_ns, one.overhead_ns = t.overhead_ns;
    one.other_traffic_ns = t.other_traffic_ns;
    one.balance = t.balance, one.tail = t.tail;
    t = one;
  }
  t.overhead_ns += regions * (threads > 1 ? machine.parallel_region_ns : weights.lone_thread_ns);
  t.total_ns =
      Overlapped(t, machine.traffic_share) + t.other_ns + t.other_traffic_ns + t.overhead_ns;
  return t;
}

}  // namespace tilewright::estimate
