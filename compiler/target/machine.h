// What the hardware has, in numbers. Rules, default schedules, estimates and code generators read
// them: a constant that was fitted on one machine is a field here, never a literal in a rule. The
// rows are in compiler/targets/KIND/machines_*.cc.
//
// The unit in which a device measures is no field: the device says it, and a processor that is
// emulated measures in another unit than a real one.
//
// Constant data and pure functions; thread-safe.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tilewright::target {

// One level of cache as one core sees it.
struct CacheLevel {
  int64_t bytes = 0;           // that the core can count on: the level's size over its sharers
  int sharers = 1;             // cores that share the level
  double bytes_per_cycle = 0;  // from this level to the one closer to the core
  int64_t line_bytes = 64;     // what one access of the next level brings

  int64_t all_bytes() const { return bytes * sharers; }
  // Returns what each of `threads` busy cores can fill: the parts of idle sharers, too.
  double ReachableBytes(int threads) const;
};

// No machine's group has more threads. Schedule primitives, which know no machine, refuse more
// along one axis.
inline constexpr int64_t kMostGroupThreads = 1024;

// Of a device of groups and threads. A unit runs whole groups: a multiprocessor, or the core of a
// processor. Registers have 32 bits. occupancy.h says what the limits leave of a unit.
struct LaunchLimits {
  int64_t group_threads = 0;  // most threads of one group; 0: the machine has no groups
  int64_t groups_yz = 0;      // most groups of a launch along y, and along z; 0: no limit
  int64_t shared_bytes = 0;   // most shared memory of one group
  // The same where the launch says how much it is; 0: there is no such launch.
  int64_t launch_shared_bytes = 0;
  int64_t registers = 0;  // of one thread, for its sums: more of them spill
  // Threads of a group where nobody chose, and most of them along one axis of a tile: enough to
  // hide a load's latency.
  int64_t usual_threads = 0;
  int64_t row_threads = 8;  // least threads that add up a row together
  int64_t warp = 1;         // threads that go in step, whose accesses are served together
  bool sub_groups = false;  // these threads can add up what each of them has
  // What the groups that a unit runs at a time share. A unit that runs threads one after the other
  // is full with one thread. 0 bytes or registers: groups share none.
  int64_t unit_threads = 1, unit_shared_bytes = 0, unit_registers = 0;
  int64_t unit_groups = 0;  // that a unit runs at a time; 0: as many as fit
  int64_t units = 1;
  // As many threads keep the largest device of the row busy: with as many results, a thread for
  // each is enough.
  int64_t busy_threads = 0;
  int64_t thread_bytes = 4;        // that one operation of a thread computes
  int64_t load_bytes = 16;         // that one access of a thread moves at most
  int64_t transaction_bytes = 64;  // that memory gives at a time
  int64_t shared_banks = 32;       // words of 32 bits that shared memory gives at a time
  double launch_ns = 0;            // to start a launch
  double group_ns = 0;             // to start a group on a unit
  double barrier_cycles = 0;       // of one thread or warp
  // Of an access of global memory that the first cache answers; of shared memory it is one. Of each
  // transaction more than the bytes of the access need, on top. Of a warp alone, from one operation
  // to the next. These order 175 kernels on an H100 best (tests/bench/results/gpu_estimate.txt).
  double cache_cycles = 2, excess_cycles = 0.75, issue_cycles = 2;
  // Compilers write out bodies of so few operations: then the loads of so many rounds are under
  // way.
  double small_body = 16, rounds_under_way = 2;
  // Of what a body loads, what the compiler keeps in registers at a time, if there are no more
  // sums: by NVRTC's reports of the chosen kernels (tests/bench/results/simt_counts.json).
  int64_t operands_kept = 16;
  // Terms of a sum of floats that the default adds up in one go; 0: any number. For drivers that
  // may round products before they add them.
  int64_t summed_terms = 0;
  // What of a launch's time each transaction costs that its bytes do not need, relative to those
  // that they need: the parts of the estimate know neither queues nor who else uses the caches.
  double waste_share = 0.25;
  // With a smaller share of its threads in flight a unit waits for loads, whatever the tile.
  double least_occupancy = 0.1;
  // Cycles until a load of global memory answers, mostly from the second cache, and one of shared
  // memory; 0: hidden where threads run one after the other.
  double load_latency = 0, shared_latency = 0;

  int64_t most_shared_bytes() const { return std::max(shared_bytes, launch_shared_bytes); }
};

// A unit that multiplies fragments of matrices, which the threads of a warp keep in registers: the
// tensor intrinsics of TensorOp::kMma. Multiply-adds that a multiprocessor begins in a cycle.
struct FragmentUnit {
  double half_products = 0;     // of 16-bit floats with sums f32; 0: the machine has no such unit
  double byte_products = 0;     // of bytes with sums i32
  double rounded_products = 0;  // of f32 whose factors are rounded (Machine::inexact_feature)
  // The first by groups of four warps, which read the factors where they are in shared memory; 0:
  // the machine has no such products.
  double shared_half_products = 0;
  // Cycles until a warp may use the sums of a product again (Sun et al., "Dissecting Tensor Cores
  // via Microbenchmarks", 2022: 33 of m16n8k16 on an A100), and four warps those of the 64 terms
  // that they wait for (Luo et al., 2024: 128 of m64n256k16 on an H100, of which the issue is
  // half).
  double latency = 33, shared_latency = 128;
  // A unit copies tiles of what these read from global memory, for one thread that asks for it.
  bool bulk_copies = false;
};

// A unit that multiplies vectors of bytes by square matrices, on memories of its own that programs
// fill. Its instructions are the tensor intrinsics `NAME.*`, its memories the scopes `NAME.inp`,
// `NAME.wgt` and `NAME.acc`.
struct MatrixUnit {
  std::string_view name = {};  // empty: the machine has none
  int64_t block = 0;           // lanes of a vector; rows and columns of a matrix
  // What the memories hold: vectors of bytes, matrices, vectors of sums.
  int64_t inputs = 0, weights = 0, sums = 0;
  // Points of loops beyond two around an instruction, on the chip at a time. Programs with more
  // load them again and again.
  int64_t micro_ops = 0;
  int64_t micro_op_bytes = 4;
  int64_t instructions = 0;  // of a program, at most
  int64_t padding = 0;       // rows or columns of zeros at a side of what a load brings, at most
  // A product of a vector and a matrix takes a cycle; an operation on two vectors of sums so many.
  int64_t sums_cycles = 0;
  int64_t start_cycles = 0;     // of an instruction, in addition to its products or operations
  int64_t bytes_per_cycle = 0;  // of memory
  int64_t load_cycles = 0;      // from the start of a load to its first bytes
};

// Which rules make the space of a machine's programs (compiler/space/rules).
enum class RuleSet : uint8_t { kLoops, kGroups, kMatrix };
// Which columns describe a machine's programs to cost models (cost_model/features.h).
enum class FeatureSet : uint8_t { kLoops, kGroups };

// What ranks a machine's schedules that were never measured, well enough to choose by: nothing, the
// analytical estimate, or the shipped cost model, which has learned on machines of its family.
enum class Predictor : uint8_t { kNone, kEstimate, kShippedModel };

// How the default schedule weighs a register tile. The unit is one multiply-add, on a machine that
// begins as many loads as multiply-adds in a cycle.
struct TileWeights {
  double load = 0.8;               // of a vector from the first cache, or of a broadcast
  double second_cache_load = 1.2;  // of a vector from the second cache
  double far_load = 3;             // of one from behind it
  double ragged_share = 0.95;  // what is left of the speed where a tile does not divide its axis
  // How often a vector of weights from behind the second cache is used at least, so that the
  // products of one take longer than the next one's way. 0: any tile's do.
  int64_t far_uses = 0;
  int64_t max_rows = 14, max_vectors = 8;
  // Windows that overlap: a row of so many leaves registers for so many factors.
  int64_t windows_in_row = 6, held_factors = 12;
  // Long sums that share no load: each row is a stream of its own from memory. So many hide an
  // addition's latency; more of them only wait for each other.
  int64_t streams = 2;
  // Sums of a single row wait for their weights: so many steps of each vector are written out. It
  // reads as many lines in turn before the next vector's.
  int64_t steps_of_one_row = 4;
  // A tile of instructions that multiply several rows by several columns: the other instructions of
  // a vector of columns, and of a row. Only machines that have such an instruction need them.
  double square_column = 1, square_row = 1;
  // Lanes along an axis of open size: it ends in a part of a vector, with all steps of its sums.
  double open_lanes = 1.03;
  // In stores: a condition that no loop of open size was cut by, and one on the lanes of a vector.
  double guarded_store = 2, masked_store = 1;
  // Rows of a tile along an axis of open size that is typically longer; images of shorter rows have
  // tiles of several.
  int64_t long_row = 32;
  int64_t partial_vectors = 4;    // at most, of a sum whose lanes run along the reduction
  int64_t stored_rows = 4;        // at once, of words, where vectors lie across rows
  int64_t fold = 4;               // partial results that become one in a step of their combination
  int64_t windows_in_flight = 8;  // of dot products, whose results are no chain
  // Of an inner loop of a reduction that is worth writing out: for two or three taps of a filter
  // transposed convolutions lost a third.
  int64_t least_steps = 4;
};

// Which stages the default schedule computes again at every use.
struct InlineLimits {
  int nodes = 24;           // of the expression, at most
  int decided_nodes = 64;   // the same where loops around the use decide the choices in it
  int64_t reads = 3;        // of each element of a stage that chooses, by a reduction
  int64_t window_taps = 4;  // a reduction of so few has a body for each, whatever padding they read
  // Products with each element of a padded image of open size that is not worth keeping: eight
  // filters of 3x3. They have 1.05 of the speed at 64x64, 1.75 at 512x512 (16 channels, Zen 5).
  int64_t open_reads = 72;
};

// Which tensors lie in blocks that zeros fill up.
struct BlockLimits {
  int64_t padded = 8;  // blocks of a weight, at least, whose last one zeros may fill
  int64_t whole =
      16;  // channels of bytes that are one block of their own, up to a multiple of four
  int64_t filled = 3;  // a last block is filled with at most this part of all channels
};

// What the analytical estimate adds to the rates of a machine.
struct EstimateWeights {
  // Of one iteration of a rolled loop: its counter, and the addresses that move with it. What of
  // it the body does not hide, and what no thread does in another's place.
  double round_cycles = 1, round_share = 0.3, round_overhead = 0.2;
  double guarded_body = 2.5;   // times as long, with a condition in the innermost body
  double lone_thread_ns = 30;  // of a parallel loop of one thread
  // Where nothing else predicts (Predictor::kNone), one of two programs is surely the faster if it
  // takes such a share of the other's time. ResNet-18's layers of one tap and stride two took 1.14
  // to 1.17 in blocks where the estimate saw 0.66 to 0.83 (PoCL, a Cortex-A76).
  double sure_share = 0.8;
  double cache_share = 0.6;  // of a level, that one working set may use
  // The shipped model takes what computes on images in blocks for slower than it is, and is right
  // about what only moves them. Of 17 exported models whose plain tasks it predicts at 0.85 to 1 of
  // the time of those in blocks, none was slower in blocks and 13 were faster, by 1.02 to 1.9. It
  // holds where images pass from task to task in blocks: single layers, which move an image before
  // and behind them, were slower by 1.09 and 1.1. The estimate must be sure of those.
  double blocks_share = 0.85;
};

// How attention, which is one operator, is cut, and where that pays.
struct AttentionBlocks {
  // Vectors of a block of queries, and so of each register tile's rows.
  int64_t vectors = 2;
  // Keys of a block. Larger blocks compute more of what a causal mask bars: with 64, prompts of 128
  // to 512 tokens take 1.1 to 1.17 times as long, attention without a mask 1.0 to 1.03.
  int64_t keys = 32;
  // With fewer keys, scores of many tokens lie in the caches, and products of whole matrices are as
  // fast. Measured with heads of 64, AVX-512, one thread: 1.25 with 512 keys, 0.95 with 197, 0.4
  // with 77; one token 2.7 with 128.
  int64_t pays_from_keys = 256;
  // Up to so many tokens, lanes along the elements of a head are faster than lanes along tokens.
  int64_t tokens_along_heads = 4;
  // Half the vectors take so much of the time for the same work: they load more for each product.
  // But fewer of them may be idle.
  double half_cost = 1.15;
  // Of devices of groups: queries of a group, so that each value of a block of keys that it copies
  // serves so many; 0: attention stays in operators. With fewer tokens than these most would idle.
  int64_t group_rows = 0, group_tokens = 8;
};

// How dense layers with integer weights of few bits (packed_dense) read them.
struct PackedRows {
  // With more rows such a layer is faster with floats, which it need not unpack.
  int64_t most = 4;
  // Where the number of rows is open: up to so many, unpacking in registers is faster than
  // unpacking first. Measured with 4 bits, AVX-512, one thread: unpacked first, 7 rows take 0.92 of
  // the time in registers, 12 rows 0.74.
  int64_t in_registers = 6;
  // The same of products of integers, of all layers of a decoder: unpacked first, 10 rows take 1.16
  // of their time, 12 rows 1.05, 16 rows 0.95.
  int64_t in_fixed_point = 12;
};

// The largest tiles that a search tries, where registers, caches and bodies have room for larger
// ones.
struct SearchedTile {
  int64_t rows = 16;        // of a register tile, along one axis
  int64_t planes = 4;       // of a register tile whose rows are windows or tiles of an image
  int64_t windows = 14;     // in a row of such a tile
  int64_t block_rows = 56;  // of results that share a copy of what their windows read
  int64_t steps = 64;       // of a reduction, along one axis
  double waste = 2;         // points that it computes, for each one that is needed
};

// Constants that no cache of a core holds from one call to the next are fetched early.
struct ConstantPrefetch {
  int64_t from_bytes = 256 << 10;  // smaller constants stay near
  // Longer than memory takes to answer while a tile multiplies what came before. On x86-64, tuned
  // ResNet-18 at 2, 4, 8, 16, 32 KB: 9.2, 8.4, 8.2, 8.7, 9.2 ms.
  int64_t ahead_bytes = 8192;
  // A vector with fewer uses arrives as fast as it can: such a loop waits for memory's bandwidth,
  // not for its latency.
  int64_t least_uses = 8;
};

// The default values are those of a plain processor with vectors of 128 bits.
struct Machine {
  std::string_view name = {};      // LLVM's name of the processor; empty: targets name no machine
  std::string_view features = {};  // comma list, LLVM's spelling, that code for this machine needs
  // A feature that targets ask for (`NAME=on`), as code that uses it rounds more than models say;
  // empty: none. Whether this target does.
  std::string_view inexact_feature = {};
  bool is_inexact = false;

  int vector_bytes = 16;  // widest SIMD register worth using
  // Whose multiple all tensors of a kernel begin at: that of its vectors, at most a line's.
  int tensor_alignment() const { return std::clamp(vector_bytes, 16, 64); }
  int vector_registers = 16;
  // Vectors of a block of channels in memory. More than one pays where a broadcast is a load of its
  // own and registers are many: a register tile of several vectors loads fewer values.
  int block_vectors = 1;
  // A multiply-add takes one value for all lanes from memory, or from a register's lane. Elsewhere
  // a broadcast is an instruction and a load of its own, so tiles have several vectors for each.
  bool multiplies_broadcasts = false;
  // Vectors of that width: multiply-adds (or multiplies where there is no FMA), and loads, that
  // begin in one cycle; cycles from one multiply-add to the next of the same sum.
  double fma_per_cycle = 1, loads_per_cycle = 1, fma_latency = 4;
  // What does not overlap: of the shorter of arithmetic and loads, and, of the statement with most
  // arithmetic, of all but the longest of that and the traffic between levels of memory.
  double port_share = 0.3, traffic_share = 0.25;
  double stream_share = 0.25;  // the second of a simple statement: what it reads is fetched ahead
  double sums_in_flight = 10;  // independent sums that keep the multipliers busy
  // The same of dot products: vectors of 32-bit sums, each of four products of bytes. The defaults
  // are those of a processor that makes them of multiplications, widenings and additions.
  double dots_per_cycle = 0.25, dot_latency = 4;
  // The same where the bytes of one factor are below 128, such as fields of weights. 0: no faster.
  double small_dots_per_cycle = 0;
  // One instruction makes a vector of f16 one of f32, or the reverse. (A shift makes bf16 f32.)
  bool converts_f16 = false;
  // Arithmetic in f16 (vectors have twice the lanes of f32): sums, differences, products, quotients
  // and roots, rounded once, numbers below the normal ones kept; whole numbers; comparisons.
  bool computes_f16 = false;
  // One instruction adds the exact products of two vectors of f16 to a vector of f32, rounded once.
  bool multiplies_f16 = false;
  double divide_cycles = 6;       // of one vector
  double special_cycles = 20;     // exp, tanh, ... of one vector
  double slow_lane_cycles = 1.2;  // one element of a gather or scatter
  double spill_cycles = 1.5;      // store and reload of one vector
  // Vector operations of a written-out body that instruction caches hold; more of them where
  // windows overlap, which share what they load.
  int64_t body_ops = 192, windows_body_ops = 720;
  // The same for bodies that a search may try; of vectors of calls (exp), each of tens of
  // operations. Compilers take a minute for a few times as many.
  int64_t searched_body_ops = 512, searched_body_calls = 32;
  SearchedTile searched_tile = {};
  // Steps of a reduction that is written out; more where neighbours' windows share what they
  // load.
  int64_t short_reduction = 16, short_windows = 25;
  TileWeights tile = {};
  InlineLimits inlined = {};
  BlockLimits blocks = {};
  EstimateWeights estimate = {};
  AttentionBlocks attention = {};
  PackedRows packed_rows = {};
  ConstantPrefetch prefetch = {};
  // Loads whose lanes are up to this stride apart are whole vectors and shuffles of them, one of
  // each per stride. Those of other lanes cost so many contiguous loads for each lane.
  int64_t shuffled_stride = 4, gathered_lane_loads = 2;
  // Fewer scalar operations than this are done before a second thread has started.
  int64_t parallel_work = 20'000;
  // A reduction of fewer is not split among threads, whose sums a second loop adds up.
  int64_t split_work = 1 << 15;
  // So many tiles of results for each thread are work enough without splitting.
  int64_t tiles_per_thread = 2;
  // A layer whose weights no near cache holds waits for them. With so few rows a tile is wide, so
  // that many lines are on their way; with more, it multiplies most per load.
  int64_t few_rows = 2;

  // Of weights that lie behind all caches: less than this part of what these hold (64 KB of 32 MB)
  // arrives while the kernel still starts.
  int64_t early_part = 512;

  // A machine without a third level has the second as its third.
  CacheLevel l1 = {.bytes = 32 << 10};
  CacheLevel l2 = {.bytes = 512 << 10, .bytes_per_cycle = 28};
  CacheLevel l3 = {.bytes = 8 << 20, .sharers = 8, .bytes_per_cycle = 22};
  double memory_bytes_per_cycle = 7;  // of one core
  double clock_ghz = 3.5;
  double parallel_region_ns = 700;  // to start and join the threads of a parallel loop

  LaunchLimits launch = {};
  FragmentUnit fragments = {};
  MatrixUnit matrix = {};
  RuleSet rule_set = RuleSet::kLoops;
  FeatureSet feature_set = FeatureSet::kLoops;
  Predictor predictor = Predictor::kNone;

  bool has_groups() const { return launch.group_threads > 0; }
  // The machine runs nothing else than products of its matrix unit and what follows them.
  bool has_matrix() const { return matrix.block > 0; }
  // Elements of a row that stays in the first cache, or in the shared memory of a group, next to a
  // second operand. They are counted as 32-bit numbers: narrower ones become such on the way. 0:
  // groups have no rows, as their threads run one after the other.
  int64_t near_row() const {
    if (!has_groups()) return l1.bytes / 8;
    return launch.warp > 1 ? launch.shared_bytes / 8 : 0;
  }
  bool Has(std::string_view feature) const;
  std::vector<std::string> FeatureList() const;
};

// A processor says of itself who made it, its family and its model.
struct ModelRow {
  std::string_view vendor;
  int family, model_low, model_high;
  std::string_view machine;
};

// The machines of one instruction set, or of a kind whose targets name no machine.
struct Family {
  std::string_view arch = {};  // of target strings; empty: targets name no machine
  // The key with which targets of a kind without architectures name their machine.
  std::string_view machine_key = "config";
  std::span<const Machine> machines = {};  // from the oldest to the newest
  // Names of machines that stand for all with their features, the best first. Code for the last
  // runs on all of the family: targets that name no machine mean it.
  std::span<const std::string_view> levels = {};
  // The first row that fits, and whose machine's features are all there, is the machine's name.
  std::span<const ModelRow> models = {};
  // Of the code objects of its programs: what a plug-in, or the runtime of a processor, loads.
  std::string_view code_format = {};
  // Code is text, and the driver of each device compiles it: part of the toolchain.
  bool driver_compiles = false;
  // The runtime has a plug-in for its devices. Else modules can be compiled, and nothing of this
  // version runs or measures them.
  bool has_plugin = true;
};

// A kind of devices, which is a kind of targets: the first word of a target string.
struct Kind {
  std::string_view name;
  std::span<const Family> families = {};  // never empty

  // Modules run on its devices, and agents measure on them.
  bool has_devices() const { return families[0].has_plugin; }
};

// The table: every list of kinds and every check of one derives from it. It is made of
// compiler/targets/targets.def. Sorted by name.
std::span<const Kind> Kinds();
// Return null if there is no such row.
const Kind* FindKind(std::string_view name);
const Family* FindFamily(std::string_view arch);
const Machine* FindMachine(const Family& family, std::string_view name);

// Return the names in the table's order.
std::string KindNames(std::string_view separator);
std::string DeviceKindNames(std::string_view separator);

// Returns the names of the machines of this architecture for which code runs on a processor with
// `features`.
std::vector<std::string> RunnableMachines(std::string_view arch,
                                          const std::vector<std::string>& features);
// Returns the best name for a processor: its own where the table knows it and it has the features,
// else the highest level that it reaches. Empty: no machine of the architecture is known.
std::string BestMachineName(std::string_view arch, std::string_view vendor, int family, int model,
                            const std::vector<std::string>& features);

}  // namespace tilewright::target
