// The AArch64 processors. Sources: Arm's software optimisation guides (pipelines; a sum's next
// multiply-add begins four cycles later where the accumulator is forwarded) and LLVM 19's
// scheduling models (llvm-mca; the guides say nothing of the A53), Arm's technical reference
// manuals (caches), LLVM's processor definitions (names and features). Cache sizes, sharers and
// clock are those of a common board: Raspberry Pi 3 (A53), 4 (A72) and 5 (A76), Graviton 2 (N1) and
// 3 (V1); those of the A64FX are in Fujitsu's microarchitecture manual. Bandwidths are estimates,
// for ranking only: the width of a cache's interface, half of it where the core works in order and
// waits for misses; half of the peak of a board's memory.
#include "compiler/targets/kind_table.h"

namespace tilewright::arm {
namespace {

using target::Machine;

constexpr int64_t KiB = 1 << 10;
constexpr int64_t MiB = 1 << 20;

// "fma" is part of the base architecture.
constexpr std::string_view kBase = "fma,neon";
constexpr std::string_view kCrc = "fma,neon,crc";
constexpr std::string_view kDots = "fma,neon,crc,lse,fullfp16,dotprod";
constexpr std::string_view kMatrix = "fma,neon,crc,lse,fullfp16,fp16fml,dotprod,sve,bf16,i8mm";
// "sve512": SVE's vectors have 512 bits, which a kernel may restrict.
constexpr std::string_view kLong = "fma,neon,crc,lse,fullfp16,sve,sve512";

// In order, two NEON pipelines of 64 bits: one vector at a time.
constexpr Machine InOrder(std::string_view name, std::string_view features, double fma_latency) {
  return {.name = name,
          .features = features,
          .vector_registers = 32,
          .block_vectors = 4,
          .multiplies_broadcasts = true,
          .fma_latency = fma_latency,
          .sums_in_flight = fma_latency,
          .divide_cycles = 14,
          .slow_lane_cycles = 1,
          .spill_cycles = 2,
          .l1 = {.bytes = 32 * KiB}};
}

// Out of order, with so many NEON pipelines of 128 bits that multiply, and that load.
constexpr Machine OutOfOrder(std::string_view name, std::string_view features, double multiply,
                             double load) {
  return {.name = name,
          .features = features,
          .vector_registers = 32,
          .block_vectors = 4,
          .multiplies_broadcasts = true,
          .fma_per_cycle = multiply,
          .loads_per_cycle = load,
          .fma_latency = 4,
          .sums_in_flight = 4 * multiply,
          .divide_cycles = 14 / multiply,
          .slow_lane_cycles = 1 / load,
          .spill_cycles = 2 / load,
          .l1 = {.bytes = 64 * KiB}};
}

constexpr Machine A53() {
  Machine m = InOrder("cortex-a53", kCrc, 10);
  m.l2 = m.l3 = {.bytes = 128 * KiB, .sharers = 4, .bytes_per_cycle = 8};
  m.memory_bytes_per_cycle = 1.5;
  m.clock_ghz = 1.2;
  return m;
}

constexpr Machine A55() {
  Machine m = InOrder("cortex-a55", kDots, 4);
  m.divide_cycles = 10;
  m.l2 = {.bytes = 128 * KiB, .bytes_per_cycle = 8};
  m.l3 = {.bytes = 256 * KiB, .sharers = 4, .bytes_per_cycle = 8};
  m.memory_bytes_per_cycle = 3;
  m.clock_ghz = 1.8;
  return m;
}

// Its two NEON pipelines make one multiply-add of 128 bits together.
constexpr Machine A72() {
  Machine m = OutOfOrder("cortex-a72", kCrc, 1, 1);
  m.divide_cycles = 34;
  m.l1 = {.bytes = 32 * KiB};
  m.l2 = m.l3 = {.bytes = 256 * KiB, .sharers = 4, .bytes_per_cycle = 16};
  m.memory_bytes_per_cycle = 4;
  m.clock_ghz = 1.5;
  return m;
}

constexpr Machine A76() {
  Machine m = OutOfOrder("cortex-a76", kDots, 2, 2);
  m.l2 = {.bytes = 512 * KiB, .bytes_per_cycle = 32};
  m.l3 = {.bytes = 512 * KiB, .sharers = 4, .bytes_per_cycle = 16};
  m.memory_bytes_per_cycle = 3.5;
  m.clock_ghz = 2.4;
  return m;
}

constexpr Machine N1() {
  Machine m = OutOfOrder("neoverse-n1", kDots, 2, 2);
  m.l2 = {.bytes = 1 * MiB, .bytes_per_cycle = 32};
  m.l3 = {.bytes = 512 * KiB, .sharers = 64, .bytes_per_cycle = 16};
  m.memory_bytes_per_cycle = 7;
  m.clock_ghz = 2.5;
  return m;
}

// Four pipelines of 128 bits, or two of 256 bits with SVE; code uses 128 bits.
constexpr Machine V1() {
  Machine m = OutOfOrder("neoverse-v1", kMatrix, 4, 3);
  m.l2 = {.bytes = 1 * MiB, .bytes_per_cycle = 32};
  m.l3 = {.bytes = 512 * KiB, .sharers = 64, .bytes_per_cycle = 16};
  m.memory_bytes_per_cycle = 7;
  m.clock_ghz = 2.6;
  return m;
}

// Two pipelines of 512 bits with SVE, which NEON uses a quarter of. Lines of 256 bytes; a group of
// twelve cores shares the second level, the last. No dot products.
constexpr Machine A64fx() {
  Machine m = OutOfOrder("a64fx", kLong, 2, 2);
  m.vector_bytes = 64;
  m.block_vectors = 1;  // a cache line of other processors, 16 channels
  m.fma_latency = 9;
  m.sums_in_flight = 18;
  m.divide_cycles = 98;
  m.l1.line_bytes = 256;
  m.l2 = m.l3 = {.bytes = 682 * KiB, .sharers = 12, .bytes_per_cycle = 64, .line_bytes = 256};
  m.memory_bytes_per_cycle = 9;
  m.clock_ghz = 2.2;
  return m;
}

// Code for any of them: an A72 with the base features alone.
constexpr Machine Generic() {
  Machine m = A72();
  m.name = "generic";
  m.features = kBase;
  return m;
}

// `parallel_work`: as many multiply-adds as one core makes while a second one starts. The value for
// x86-64 is what this gives there for vectors of 128 bits. The weights of a register tile are those
// of x86-64; they are not fitted here. LD2 to LD4 are the shuffles of `shuffled_stride`. A load to
// one lane is a load and a merge: `gathered_lane_loads`. `split_work`: in the same proportion to
// `parallel_work` as on x86-64. A tile of matrix products (i8mm) has for each vector of columns two
// loads and two instructions that interleave, for each row a load and half of a move.
// Dot products: as many as multiply-adds; out of order the sum is forwarded within a cycle. Others
// make one of four instructions.
constexpr Machine Made(Machine m) {
  constexpr target::Machine kOther = {};
  const bool dots = m.features.find("dotprod") != std::string_view::npos;
  m.dots_per_cycle = dots ? m.fma_per_cycle : m.fma_per_cycle / 4;
  m.converts_f16 = true;
  m.computes_f16 = m.features.find("fullfp16") != std::string_view::npos;
  m.multiplies_f16 = m.features.find("fp16fml") != std::string_view::npos;
  m.dot_latency = dots && m.fma_per_cycle > 1 ? 1 : m.fma_latency;
  m.parallel_work = static_cast<int64_t>(m.parallel_region_ns * m.clock_ghz * m.fma_per_cycle *
                                         (m.vector_bytes / 4));
  m.split_work = m.parallel_work * kOther.split_work / kOther.parallel_work;
  m.tile.square_column = 4;
  m.tile.square_row = 1.5;
  return m;
}

constexpr Machine kArmMachines[] = {Made(Generic()), Made(A53()), Made(A72()),   Made(A55()),
                                    Made(A76()),     Made(N1()),  Made(A64fx()), Made(V1())};

constexpr std::string_view kArmLevels[] = {"generic"};

// The implementer's and the part's number of the main identification register; 8: ARMv8.
constexpr target::ModelRow kArmModels[] = {
    {"0x41", 8, 0xD03, 0xD03, "cortex-a53"},  {"0x41", 8, 0xD05, 0xD05, "cortex-a55"},
    {"0x41", 8, 0xD08, 0xD08, "cortex-a72"},  {"0x41", 8, 0xD0B, 0xD0B, "cortex-a76"},
    {"0x41", 8, 0xD0C, 0xD0C, "neoverse-n1"}, {"0x41", 8, 0xD40, 0xD40, "neoverse-v1"},
    {"0x46", 8, 0x001, 0x001, "a64fx"},
};

}  // namespace

constinit const target::Family kFamily = {.arch = "aarch64",
                                          .machines = kArmMachines,
                                          .levels = kArmLevels,
                                          .models = kArmModels,
                                          .code_format = "elf-aarch64"};

}  // namespace tilewright::arm
