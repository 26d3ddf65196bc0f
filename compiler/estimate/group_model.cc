#include "compiler/estimate/group_model.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "compiler/target/occupancy.h"

namespace tilewright::estimate {
namespace {

constexpr double kWordBytes = 4;
// Multiply-adds of a product of fragments, m16n8k16. Those of four warps take so many terms in a
// group that a warp waits for.
constexpr double kProductWork = 16 * 8 * 16, kFourWarps = 4, kSharedTerms = 64;

// Whether a loop of the thread walks along the memory that one transaction gives, so that the next
// iterations find what this one did not use.
bool WalksAlong(const StatementSummary& s, const AccessSummary& access, int64_t bytes) {
  for (size_t i = 0; i < s.loops.size(); ++i) {
    const int64_t apart = std::abs(access.strides[i]) * access.element_bytes;
    if (!ir::IsBound(s.loops[i].kind) && s.loops[i].extent > 1 && apart > 0 && apart < bytes)
      return true;
  }
  return false;
}

// The threads of a warp share out the iterations of marked loops.
void ShareOut(int64_t warp, StatementSummary* s) {
  for (LoopSummary& loop : s->loops) {
    if (!loop.shared_out) continue;
    const int64_t own = (loop.extent + warp - 1) / warp;
    s->iterations *= static_cast<double>(own) / static_cast<double>(loop.extent);
    loop.extent = own;
  }
}

bool InTurn(const target::LaunchLimits& limits) { return limits.warp <= 1; }

// Drivers for processors make vectors of copies of the body that work on neighbours: the innermost
// unrolled loop is one of lanes where each access stays or moves by one element.
void FindLanes(StatementSummary* s) {
  if (s->Product(ir::ForKind::kVectorized) > 1) return;
  for (size_t i = s->loops.size(); i-- > BodyStart(*s);) {
    if (!s->loops[i].moves_store || s->loops[i].extent < 2) continue;
    const bool together =
        std::all_of(s->accesses.begin(), s->accesses.end(), [&](const AccessSummary& access) {
          return access.strides[i] == 0 || access.strides[i] == 1;
        });
    if (together) s->loops[i].kind = ir::ForKind::kVectorized;
    return;
  }
}

// Warps of a group that run the statement.
double Warps(const StatementSummary& s, const target::LaunchLimits& limits) {
  return std::ceil(s.Threads() / static_cast<double>(std::max<int64_t>(1, limits.warp)));
}

bool IsAccumulator(const StatementSummary& s, const AccessSummary& access) {
  return access.is_write && s.accumulates && access.buffer->scope == ir::Scope::kLocal;
}

// Cycles of the first cache for the transactions of an access.
double CacheCycles(const StepAccess& step, const target::Machine& machine) {
  if (InTurn(machine.launch) || machine.l1.bytes_per_cycle <= 0) return step.transactions;
  const double bytes =
      step.transactions / step.accesses * static_cast<double>(machine.launch.transaction_bytes);
  return step.accesses * machine.launch.cache_cycles *
             std::max(1.0, bytes / machine.l1.bytes_per_cycle) +
         machine.launch.excess_cycles * step.transactions * (1 - step.coalesced);
}

// Cycles of the ports that loads and stores take for one operation of a thread or warp.
double PortCycles(const StatementSummary& s, const RegisterTile& tile,
                  const target::Target& thread) {
  const target::LaunchLimits& limits = thread.machine.launch;
  const bool kept = tile.live <= thread.machine.vector_registers;
  double cycles = 0;
  for (const AccessSummary& access : s.accesses) {
    if (IsAccumulator(s, access)) continue;
    const BodyLoads loads = LoadsOf(s, access, tile);
    const StepAccess step = AnalyzeStep(s, access, limits, std::max<int64_t>(1, limits.warp));
    double each = CacheCycles(step, thread.machine);
    if (access.buffer->scope == ir::Scope::kLocal) each = InTurn(limits) ? 1 : 0;
    if (access.buffer->scope == ir::Scope::kShared && !InTurn(limits)) each = step.bank_cycles;
    // The step is that of the whole vector, which is several loads of the thread.
    if (loads.vector_moves && !InTurn(limits)) each /= tile.vectors;
    // A vector of several transactions is several vectors of the thread.
    if (loads.vector_moves && InTurn(limits) && loads.vector_stride == 1) each = 1;
    cycles += (kept ? loads.distinct : loads.all) * each;
  }
  return cycles / std::max(tile.body_ops, 1.0) / std::max(thread.machine.loads_per_cycle, 0.5);
}

// Cycles of one operation of a thread or warp, `warps` of which are in flight on the unit.
double OperationCycles(const StatementSummary& s, const RegisterTile& tile,
                       const target::Target& thread, double warps) {
  const target::Machine& machine = thread.machine;
  const double arithmetic = ArithmeticCycles(s, std::max(tile.accumulators, 1.0) * warps, machine);
  const double port = PortCycles(s, tile, thread);
  double cycles = std::max(arithmetic, port) + machine.port_share * std::min(arithmetic, port);
  cycles += s.ops.special * machine.special_cycles + s.ops.divide * machine.divide_cycles;
  cycles += tile.spill * machine.spill_cycles * 2 / std::max(tile.body_ops, 1.0);
  return s.guarded ? cycles * machine.estimate.guarded_body : cycles;
}

bool StoresTo(const StatementSummary& s, ir::Scope scope) {
  return s.accesses[0].buffer->scope == scope;
}

// Elements of what a statement of fragments writes that one warp has.
double WarpElements(const StatementSummary& s) {
  double elements = 1;
  for (const LoopSummary& loop : s.loops) {
    if (loop.moves_store && !ir::IsBound(loop.kind)) elements *= static_cast<double>(loop.extent);
  }
  return elements;
}

// Whether a product reads its factors where they are in shared memory, for four warps together.
bool IsOfFourWarps(const StatementSummary& s) {
  return StoresTo(s, ir::Scope::kWmmaAcc) && s.accumulates &&
         s.accesses.back().buffer->scope == ir::Scope::kShared;
}

// Cycles of a unit for one group's statement of fragments, and of a warp alone.
struct FragmentCycles {
  double unit = 0, alone = 0;
};
FragmentCycles CyclesOfFragments(const StatementSummary& s, const target::Machine& machine) {
  const target::LaunchLimits& limits = machine.launch;
  const double points = s.iterations / s.Groups(), own = s.ThreadIterations();
  const auto bytes = static_cast<double>(s.accesses.back().element_bytes);
  if (IsOfFourWarps(s)) {
    const double groups = own / std::max(WarpElements(s), 1.0) / kSharedTerms;
    const double rate = std::max(machine.fragments.shared_half_products, 1.0);
    return {points / rate, groups * machine.fragments.shared_latency + own / rate};
  }
  if (StoresTo(s, ir::Scope::kWmmaAcc) && s.accumulates) {
    const target::FragmentUnit& unit = machine.fragments;
    const double rate = bytes > 2   ? unit.rounded_products
                        : bytes > 1 ? unit.half_products
                                    : unit.byte_products;
    const double terms = bytes > 2 ? 8 : 16;
    const double chain =
        own / std::max(WarpElements(s), 1.0) / terms;  // products, one after the other
    return {points / std::max(rate, 1.0),
            std::max(chain * machine.fragments.latency, own / kProductWork)};
  }
  if (StoresTo(s, ir::Scope::kWmmaA) || StoresTo(s, ir::Scope::kWmmaB)) {
    const bool global = s.accesses.back().buffer->scope == ir::Scope::kGlobal;
    const double width = static_cast<double>(limits.shared_banks) * kWordBytes;
    const double rounds = own / std::max(WarpElements(s), 1.0);
    return {points * bytes / width * (global ? machine.launch.cache_cycles : 1),
            rounds * (global ? limits.load_latency : limits.shared_latency) / 2};
  }
  // On the registers: each thread has its own elements.
  const double each = StoresTo(s, ir::Scope::kGlobal) ? machine.launch.cache_cycles : 1;
  const double lanes = static_cast<double>(std::max<int64_t>(1, limits.warp));
  return {points / lanes * each / machine.loads_per_cycle,
          own / lanes * machine.launch.issue_cycles};
}

// Cycles of control of one thread's loops.
double ControlCycles(const StatementSummary& s, const target::Machine& machine) {
  double trips = 1, cycles = 0;
  for (const LoopSummary& loop : s.loops) {
    if (ir::IsBlockAxis(loop.kind) || !IsRolled(loop)) continue;
    if (!ir::IsThreadAxis(loop.kind)) trips *= static_cast<double>(loop.extent);
    cycles += trips * machine.estimate.round_cycles;
  }
  return cycles;
}

bool HasLoop(const StatementSummary& s, const ir::Var& var) {
  return std::any_of(s.loops.begin(), s.loops.end(),
                     [&](const LoopSummary& loop) { return loop.var == var; });
}

// Loops between the group and its threads that other statements are in, too: as often the threads
// start anew. The rounds of a copy alone need no barrier between them.
std::vector<const LoopSummary*> SharedRounds(const ProgramSummary& program,
                                             const StatementSummary& s) {
  std::vector<const LoopSummary*> rounds;
  for (const LoopSummary& loop : s.loops) {
    if (ir::IsThreadAxis(loop.kind)) break;
    const bool shared = std::any_of(
        program.statements.begin(), program.statements.end(), [&](const StatementSummary& other) {
          return other.launch == s.launch && &other != &s && HasLoop(other, loop.var);
        });
    if (!ir::IsBlockAxis(loop.kind) && shared) rounds.push_back(&loop);
  }
  return rounds;
}

bool FillsShared(const StatementSummary& s) {
  return s.accesses[0].buffer->scope == ir::Scope::kShared;
}
bool ReadsShared(const StatementSummary& s) {
  return std::any_of(s.accesses.begin(), s.accesses.end(), [](const AccessSummary& access) {
    return !access.is_write && access.buffer->scope == ir::Scope::kShared;
  });
}

// Barriers that a group comes to: before what fills shared memory, and behind it. Copies that come
// one behind the other have them together.
double Barriers(const ProgramSummary& program, size_t launch) {
  double barriers = 0;
  const StatementSummary* before = nullptr;
  for (const StatementSummary& s : program.statements) {
    if (s.launch != launch) continue;
    const StatementSummary* filled = std::exchange(before, FillsShared(s) ? &s : nullptr);
    if (before == nullptr) continue;
    const std::vector<const LoopSummary*> rounds = SharedRounds(program, s);
    const bool together = filled != nullptr && !ReadsShared(s) &&
                          std::all_of(rounds.begin(), rounds.end(), [&](const LoopSummary* loop) {
                            return HasLoop(*filled, loop->var);
                          });
    double times = together ? 0 : 2;
    for (const LoopSummary* loop : rounds) times *= static_cast<double>(loop->extent);
    barriers += times;
  }
  return barriers;
}

// One launch, its parts in ns.
struct LaunchTime {
  TimeEstimate time;
  double barrier_ns = 0, start_ns = 0;
  double waste = 1;  // factor
  double work(const target::Machine& machine) const {
    return waste * (Overlapped(time, machine.traffic_share) + barrier_ns);
  }
};

// Transactions of a launch, of all its accesses of memory, and those that the bytes need.
struct Requests {
  double transactions = 0, least = 0;

  void Add(const StatementSummary& s, const RegisterTile& tile, const target::Target& thread) {
    const target::LaunchLimits& limits = thread.machine.launch;
    const bool kept = tile.live <= thread.machine.vector_registers;
    for (const AccessSummary& access : s.accesses) {
      if (access.buffer->scope != ir::Scope::kGlobal) continue;
      const BodyLoads loads = LoadsOf(s, access, tile);
      const StepAccess step = AnalyzeStep(s, access, limits, limits.warp);
      const double times = tile.bodies * (kept ? loads.distinct : loads.all) /
                           (loads.vector_moves ? tile.vectors : 1);
      transactions += times * step.transactions;
      least += times * step.transactions * step.coalesced;
    }
  }
  double Factor(double share) const {
    return least > 0 ? 1 + share * (transactions / least - 1) : 1;
  }
};

class LaunchModel {
 public:
  LaunchModel(const ProgramSummary& program, const target::Target& target)
      : program_(program),
        machine_(target.machine),
        limits_(target.machine.launch),
        thread_(ThreadTarget(target)),
        footprint_(program.parameter_bytes + program.global_alloc_bytes) {
    for (StatementSummary& s : program_.statements) {
      if (limits_.sub_groups) ShareOut(limits_.warp, &s);
      if (InTurn(limits_)) FindLanes(&s);
    }
  }

  LaunchTime Estimate(size_t launch) const {
    const LaunchShape shape = Shape(launch);
    LaunchTime out;
    const double per_unit = std::min(shape.groups_per_unit, std::ceil(shape.groups / Units()));
    const double in_waves = shape.waves * per_unit / machine_.clock_ghz;
    const target::Target thread = ThreadOf(shape);
    Requests requests;
    for (const StatementSummary& s : program_.statements) {
      if (s.launch != launch) continue;
      if (s.fragments) {
        const FragmentCycles cycles = CyclesOfFragments(s, machine_);
        out.time.compute_ns += in_waves * std::max(cycles.unit, cycles.alone / per_unit);
        StatementSummary global = s;
        std::erase_if(global.accesses, [](const AccessSummary& access) {
          return access.buffer->scope != ir::Scope::kGlobal;
        });
        if (!global.accesses.empty()) AddTraffic(global, shape, &out.time);
        continue;
      }
      if (s.bulk) {
        out.time.compute_ns +=
            in_waves * BulkRounds(s) * Latency(s) / static_cast<double>(1 + s.ahead) / per_unit;
        AddTraffic(s, shape, &out.time);
        continue;
      }
      const RegisterTile tile = AnalyzeTile(s, thread);
      const double warps = Warps(s, limits_);
      const double operations = s.ThreadIterations() / tile.lanes;
      const double cycles = operations * OperationCycles(s, tile, thread, warps * per_unit);
      // Copies that are under way for several iterations share out what one waits for.
      const double alone = RoundCycles(s, tile, thread) * tile.bodies /
                           (s.Groups() * s.Threads() * static_cast<double>(1 + s.ahead));
      out.time.compute_ns +=
          in_waves * std::max(warps * (cycles + ControlCycles(s, machine_)), alone / per_unit);
      AddTraffic(s, shape, &out.time);
      if (!InTurn(limits_)) requests.Add(s, tile, thread);
    }
    out.waste = requests.Factor(limits_.waste_share);
    out.barrier_ns = in_waves * BarrierCycles(launch, shape);
    // Behind its first tile a group starts no more, but its threads meet.
    const double warps =
        std::ceil(shape.threads / static_cast<double>(std::max<int64_t>(1, limits_.warp)));
    const bool starts = launch == 0 || !IsWithNext(launch - 1);
    out.start_ns = (starts ? limits_.launch_ns : 0) + shape.starts * per_unit * limits_.group_ns +
                   std::max(0.0, shape.waves - shape.starts) * per_unit * warps *
                       limits_.barrier_cycles / machine_.clock_ghz;
    return out;
  }

  LaunchShape Shape(size_t launch) const {
    LaunchShape shape;
    for (const StatementSummary& s : program_.statements) {
      if (s.launch != launch) continue;
      shape.tiles = std::max(shape.tiles, s.Groups());
      shape.groups = std::max(shape.groups, s.LaunchedGroups());
      const double together = IsOfFourWarps(s) ? kFourWarps * static_cast<double>(limits_.warp) : 1;
      shape.threads = std::max(shape.threads, s.Threads() * together);
      shape.registers = std::max(shape.registers, Registers(s));
    }
    shape.barriers = Barriers(program_, launch);
    if (launch < program_.launches.size())
      shape.shared_bytes = static_cast<double>(program_.launches[launch].shared_bytes);
    const auto threads = static_cast<int64_t>(shape.threads);
    const auto shared = static_cast<int64_t>(shape.shared_bytes);
    const auto registers = static_cast<int64_t>(shape.registers);
    shape.occupancy = target::Occupancy(limits_, threads, shared, registers);
    shape.groups_per_unit = std::max<double>(
        1, static_cast<double>(target::GroupsPerUnit(limits_, threads, shared, registers)));
    const double per_unit = std::min(shape.groups_per_unit, std::ceil(shape.groups / Units()));
    const double slots = Units() * per_unit;
    shape.starts = std::ceil(shape.groups / slots);
    shape.waves = shape.starts * std::ceil(shape.tiles / shape.groups);
    if (IsWithNext(launch)) {  // what the last wave leaves free is the next one's
      shape.waves = shape.tiles / slots;
    } else if (launch > 0 && IsWithNext(launch - 1)) {
      const double before = Shape(launch - 1).tiles * WorkOfTile(launch - 1) / WorkOfTile(launch);
      shape.waves = std::ceil((before + shape.tiles) / slots) - before / slots;
    }
    shape.tail = shape.waves * slots / shape.tiles;
    return shape;
  }

 private:
  bool IsWithNext(size_t launch) const {
    return launch + 1 < program_.launches.size() && program_.launches[launch].with_next;
  }
  // Iterations of the largest statement for one tile.
  double WorkOfTile(size_t launch) const {
    double most = 1;
    for (const StatementSummary& s : program_.statements) {
      if (s.launch == launch) most = std::max(most, s.iterations / s.Groups());
    }
    return most;
  }
  double Units() const { return static_cast<double>(std::max<int64_t>(1, limits_.units)); }

  // A thread of a large group has no more registers than its share; the compiler spills the rest.
  target::Target ThreadOf(const LaunchShape& shape) const {
    target::Target thread = thread_;
    if (limits_.unit_registers == 0 || InTurn(limits_)) return thread;
    const int64_t share = limits_.unit_registers / static_cast<int64_t>(shape.threads);
    thread.machine.vector_registers =
        std::min(thread.machine.vector_registers, static_cast<int>(share));
    return thread;
  }

  // Cycles until a thread has what one round of the statement loads.
  double Latency(const StatementSummary& s) const {
    const auto is_global = [](const AccessSummary& access) {
      return !access.is_write && access.buffer->scope == ir::Scope::kGlobal;
    };
    const bool global = std::any_of(s.accesses.begin(), s.accesses.end(), is_global);
    return global ? limits_.load_latency : std::min(limits_.shared_latency, limits_.load_latency);
  }

  // Cycles of a warp alone for one round of the statement: nothing else hides what it waits for.
  double RoundCycles(const StatementSummary& s, const RegisterTile& tile,
                     const target::Target& thread) const {
    if (InTurn(limits_)) return Latency(s);
    const double waits =
        Latency(s) / (tile.body_ops <= limits_.small_body ? limits_.rounds_under_way : 1);
    return waits +
           limits_.issue_cycles * tile.body_ops * std::max(1.0, PortCycles(s, tile, thread));
  }

  // How often a group has a tile copied: the two innermost loops are those of the tile.
  static double BulkRounds(const StatementSummary& s) {
    const auto extent = [&](size_t from_last) {
      return static_cast<double>(s.loops[s.loops.size() - from_last].extent);
    };
    return s.loops.size() < 2 ? 1 : s.iterations / s.Groups() / extent(1) / extent(2);
  }

  // Registers of a thread, of 32 bits.
  double Registers(const StatementSummary& s) const {
    if (s.fragments) {  // elements of 32 bits, half as many of the factors of a step
      const bool shared = IsOfFourWarps(s);
      const double threads = static_cast<double>(limits_.warp) * (shared ? kFourWarps : 1);
      const auto sums =
          static_cast<int64_t>(StoresTo(s, ir::Scope::kWmmaAcc) ? WarpElements(s) / threads : 0);
      return static_cast<double>(std::min(target::TileRegisters(sums, shared ? 0 : sums / 2),
                                          std::max<int64_t>(limits_.registers, 1)));
    }
    const RegisterTile tile = AnalyzeTile(s, thread_);
    const double words =
        tile.lanes * std::max(1.0, static_cast<double>(s.accesses[0].element_bytes) / kWordBytes);
    const auto sums = static_cast<int64_t>(tile.accumulators * words);
    // Of a large body the compiler loads one part after the other.
    const auto operands = std::min(static_cast<int64_t>((tile.live - tile.accumulators) * words),
                                   std::max(limits_.operands_kept, sums));
    int64_t used = target::TileRegisters(sums, operands);
    // Loads of later rounds go where registers cost no group.
    if (s.accumulates)
      used = std::max(used, std::min(2 * used, target::FreeRegisters(
                                                   limits_, static_cast<int64_t>(s.Threads()))));
    return static_cast<double>(std::min(used, std::max<int64_t>(limits_.registers, 1)));
  }

  // A thread that runs alone puts its sums away at each barrier, and takes them up again behind it.
  double BarrierCycles(size_t launch, const LaunchShape& shape) const {
    if (shape.barriers == 0) return 0;
    double kept = 0;
    for (const StatementSummary& s : program_.statements) {
      if (s.launch == launch && s.accumulates && !s.fragments)
        kept = std::max(kept, AnalyzeTile(s, thread_).accumulators);
    }
    const double warps =
        std::ceil(shape.threads / static_cast<double>(std::max<int64_t>(1, limits_.warp)));
    const double away = InTurn(limits_) ? kept * machine_.spill_cycles : 0;
    return shape.barriers * warps * (limits_.barrier_cycles + away / 2);
  }

  void AddTraffic(const StatementSummary& s, const LaunchShape& shape, TimeEstimate* t) const {
    const double busy = std::min(Units(), shape.groups);
    const auto units = static_cast<int>(Units());
    const double waste = Waste(s);
    const StatementSummary in_step = InTurn(limits_) ? s : InStep(s);
    const double share = machine_.estimate.cache_share;
    const double l2 =
        waste * Traffic(in_step, machine_.l1.ReachableBytes(units), share, &t->l1_fill);
    const double l3 =
        waste * Traffic(in_step, machine_.l2.ReachableBytes(units), share, &t->l2_fill);
    const double last = machine_.l3.ReachableBytes(1);
    const double memory =
        waste * Traffic(in_step, last, share, &t->l3_fill) * MissShare(footprint_, last);
    t->l2_bytes += l2, t->l3_bytes += l3, t->memory_bytes += memory;
    t->l2_ns += l2 / machine_.l2.bytes_per_cycle / machine_.clock_ghz / busy;
    t->l3_ns += l3 / machine_.l3.bytes_per_cycle / machine_.clock_ghz / busy;
    t->memory_ns += memory / machine_.memory_bytes_per_cycle / machine_.clock_ghz / busy;
  }

  // Bytes that transactions move for each byte that is used; weighted by bytes.
  double Waste(const StatementSummary& s) const {
    double used = 0, moved = 0;
    for (const AccessSummary& access : s.accesses) {
      if (access.buffer->scope != ir::Scope::kGlobal) continue;
      const double bytes = access.unique[0] * static_cast<double>(access.element_bytes);
      const bool walks = WalksAlong(s, access, limits_.transaction_bytes);
      used += bytes;
      moved += walks || InTurn(limits_)
                   ? bytes
                   : bytes / AnalyzeStep(s, access, limits_, limits_.warp).coalesced;
    }
    return used > 0 ? moved / used : 1;
  }

  ProgramSummary program_;
  const target::Machine& machine_;
  const target::LaunchLimits& limits_;
  target::Target thread_;
  double footprint_;
};

}  // namespace

target::Target ThreadTarget(const target::Target& target) {
  target::Target thread = target;
  const target::LaunchLimits& limits = target.machine.launch;
  thread.machine.vector_bytes = static_cast<int>(limits.thread_bytes);
  thread.machine.vector_registers = static_cast<int>(std::max<int64_t>(
      1, limits.registers * static_cast<int64_t>(kWordBytes) / limits.thread_bytes));
  return thread;
}

LaunchShape AnalyzeLaunch(const ProgramSummary& program, size_t launch,
                          const target::Target& target) {
  return LaunchModel(program, target).Shape(launch);
}

GroupEstimate EstimateGroups(const ProgramSummary& program, const target::Target& target) {
  GroupEstimate out;
  if (program.statements.empty()) return out;
  const LaunchModel model(program, target);
  const size_t critical = program.statements[program.critical].launch;
  double work = 0, others = 0, second = 0;
  for (size_t launch = 0; launch < program.launches.size(); ++launch) {
    const LaunchTime one = model.Estimate(launch);
    const double ns = one.work(target.machine);
    out.launch_ns += one.start_ns;
    if (launch == critical) {
      out.time = one.time;
      out.barrier_ns = one.barrier_ns;
      work = ns;
      continue;
    }
    others += ns;
    second = std::max(second, ns + one.start_ns);
  }
  out.shape = model.Shape(critical);
  TimeEstimate& t = out.time;
  t.other_ns = others;
  t.second_ns = second;
  t.overhead_ns = out.launch_ns + out.barrier_ns;
  t.balance = out.shape.tail;
  t.total_ns = work + t.other_ns + out.launch_ns;
  return out;
}

}  // namespace tilewright::estimate
