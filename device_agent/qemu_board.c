/* A QEMU plug-in (API version 1) that makes qemu-user a board with a deterministic cycle counter: an
 * in-order core with two caches. Each instruction costs a few cycles by its class, each miss some
 * more. The caches are indexed by page numbers in order of first use, so that a count does not
 * depend on where the host put the guest's memory. The worker reads the counter (cycle_counter.h).
 *
 *   qemu-aarch64 -plugin libtilewright_qemu_board.so,at=0x545743000000 tilewright-worker
 *       --cycle-counter=0x545743000000
 *
 * sve=BITS (128 unless given) is how long the emulator's vectors of SVE are: what they cost.
 *
 * One vCPU thread counts at a time: modules for this board use one thread. */
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "device_agent/board_counter.h"

/* --- QEMU's interface, which Debian ships no header of --- */

typedef uint64_t PluginId;
struct qemu_plugin_tb;
struct qemu_plugin_insn;
typedef struct {
  const char* target_name;
  struct {
    int min, cur;
  } version;
  bool system_emulation;
} PluginInfo;
typedef void (*MemoryFn)(unsigned vcpu, uint32_t info, uint64_t address, void* data);

enum { kAddU64 = 0, kNoRegisters = 0, kReadsAndWrites = 3 };

void qemu_plugin_register_vcpu_tb_trans_cb(PluginId id,
                                           void (*fn)(PluginId, struct qemu_plugin_tb*));
void qemu_plugin_register_vcpu_tb_exec_inline(struct qemu_plugin_tb* block, int op, void* counter,
                                              uint64_t amount);
void qemu_plugin_register_vcpu_mem_cb(struct qemu_plugin_insn* insn, MemoryFn fn, int registers,
                                      int accesses, void* data);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb* block);
struct qemu_plugin_insn* qemu_plugin_tb_get_insn(const struct qemu_plugin_tb* block, size_t index);
const void* qemu_plugin_insn_data(const struct qemu_plugin_insn* insn);
size_t qemu_plugin_insn_size(const struct qemu_plugin_insn* insn);
unsigned qemu_plugin_mem_size_shift(uint32_t info);

__attribute__((visibility("default"))) int qemu_plugin_version = 1;
__attribute__((visibility("default"))) int qemu_plugin_install(PluginId id, const PluginInfo* info,
                                                               int argc, char** argv);

/* --- the core --- */

enum { kDivide = 10, kIntegerDivide = 8, kMultiply = 3 };

static bool g_arm64;
static uint64_t g_sve_bits = 128;
static TwBoardCounter* g_counter;

/* fdiv and fsqrt, of scalars and of vectors. */
static bool Divides(uint32_t word) {
  return (word & 0xff20fc00u) == 0x1e201800u || (word & 0xff3ffc00u) == 0x1e21c000u ||
         (word & 0xbfa0fc00u) == 0x2e20fc00u || (word & 0xbfbffc00u) == 0x2ea1f800u;
}

/* fdiv, fdivr and fsqrt of SVE. */
static bool DividesSve(uint32_t word) {
  const uint32_t form = word & 0xff3fe000u;
  return form == 0x650d8000u || form == 0x650c8000u || form == 0x650da000u;
}

/* Loads and stores have the highest bit. Predicates and compares that make them are one cycle. */
static uint64_t CostOfSve(uint32_t word) {
  if (word >> 31 != 0 || word >> 24 == 0x25) return 1;
  const uint64_t halves = g_sve_bits / 64;
  return DividesSve(word) ? kDivide * halves : halves;
}

/* Cycles of an A64 instruction word, by bits 28 to 25 (the architecture's main table). The unit of
 * vectors is 64 bits wide: what has 128 takes it twice, by element or not. */
static uint64_t CostOfA64(uint32_t word) {
  const uint32_t group = word >> 25 & 15;
  if (group == 2) return CostOfSve(word);
  if (group == 7 || group == 15) { /* vectors and floats */
    const bool is_vector = (word & 0x9e000000u) == 0x0e000000u;
    const uint64_t halves = is_vector && (word >> 30 & 1) != 0 ? 2 : 1;
    return Divides(word) ? kDivide * halves : halves;
  }
  if (group == 5 || group == 13) { /* register operands */
    if ((word & 0x7fe0f800u) == 0x1ac00800u) return kIntegerDivide;
    if ((word & 0x1f000000u) == 0x1b000000u) return kMultiply;
  }
  return 1;
}

/* --- the caches: exact LRU over lines of 64 bytes --- */

enum { kLineShift = 6, kPageShift = 12, kSecondCycles = 8, kMemoryCycles = 80 };
enum { kPageBits = 20, kPages = 1 << kPageBits, kMostTries = 64 }; /* of the table of pages */
enum { kL1Sets = 128, kL1Ways = 4, kL2Sets = 512, kL2Ways = 16 };

typedef struct {
  uint64_t line, epoch, used;
} Way;

static Way g_l1[kL1Sets * kL1Ways], g_l2[kL2Sets * kL2Ways];
static struct {
  uint64_t page, epoch, frame;
} g_frames[kPages];
static uint64_t g_epoch = 1, g_clock, g_next_frame;

static bool Hits(Way* cache, uint64_t sets, int ways, uint64_t line) {
  Way* set = cache + line % sets * (uint64_t)ways;
  Way* oldest = set;
  for (int w = 0; w < ways; ++w) {
    const bool here = set[w].epoch == g_epoch;
    if (here && set[w].line == line) {
      set[w].used = ++g_clock;
      return true;
    }
    if (!here) set[w].used = 0;
    if (set[w].used < oldest->used) oldest = &set[w];
  }
  *oldest = (Way){line, g_epoch, ++g_clock};
  return false;
}

/* The page's number in order of first use since the caches were emptied. */
static uint64_t FrameOf(uint64_t page) {
  uint64_t at = page * 0x9e3779b97f4a7c15u >> (64 - kPageBits);
  for (int tries = 0; tries < kMostTries; ++tries, at = (at + 1) % kPages) {
    if (g_frames[at].epoch == g_epoch && g_frames[at].page == page) return g_frames[at].frame;
    if (g_frames[at].epoch == g_epoch) continue;
    g_frames[at].page = page;
    g_frames[at].epoch = g_epoch;
    return g_frames[at].frame = g_next_frame++;
  }
  return page; /* almost 4 GiB were touched */
}

static void OnAccess(unsigned vcpu, uint32_t info, uint64_t address, void* data) {
  (void)vcpu;
  (void)data;
  if (g_counter->empty_caches != 0) {
    g_counter->empty_caches = 0;
    g_next_frame = 0;
    ++g_epoch;
  }
  const uint64_t last = address + ((uint64_t)1 << qemu_plugin_mem_size_shift(info)) - 1;
  for (uint64_t line = address >> kLineShift; line <= last >> kLineShift; ++line) {
    const int lines_shift = kPageShift - kLineShift;
    const uint64_t frame = FrameOf(line >> lines_shift);
    const uint64_t physical = frame << lines_shift | (line & ((1u << lines_shift) - 1));
    if (Hits(g_l1, kL1Sets, kL1Ways, physical)) continue;
    g_counter->cycles += Hits(g_l2, kL2Sets, kL2Ways, physical) ? kSecondCycles : kMemoryCycles;
  }
}

static void OnTranslate(PluginId id, struct qemu_plugin_tb* block) {
  (void)id;
  const size_t count = qemu_plugin_tb_n_insns(block);
  uint64_t cycles = 0;
  for (size_t i = 0; i < count; ++i) {
    struct qemu_plugin_insn* insn = qemu_plugin_tb_get_insn(block, i);
    uint32_t word = 0;
    if (g_arm64 && qemu_plugin_insn_size(insn) == sizeof(word)) {
      memcpy(&word, qemu_plugin_insn_data(insn), sizeof(word));
    }
    cycles += g_arm64 ? CostOfA64(word) : 1;
    qemu_plugin_register_vcpu_mem_cb(insn, OnAccess, kNoRegisters, kReadsAndWrites, NULL);
  }
  qemu_plugin_register_vcpu_tb_exec_inline(block, kAddU64, &g_counter->cycles, cycles);
  qemu_plugin_register_vcpu_tb_exec_inline(block, kAddU64, &g_counter->instructions, count);
}

int qemu_plugin_install(PluginId id, const PluginInfo* info, int argc, char** argv) {
  uintptr_t at = 0;
  for (int i = 0; i < argc; ++i) {
    if (strncmp(argv[i], "at=", 3) == 0) at = (uintptr_t)strtoull(argv[i] + 3, NULL, 0);
    if (strncmp(argv[i], "sve=", 4) == 0) g_sve_bits = strtoull(argv[i] + 4, NULL, 10);
  }
  void* page = at == 0 ? MAP_FAILED
                       : mmap((void*)at, sizeof(TwBoardCounter), PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  const bool is_length = g_sve_bits >= 128 && g_sve_bits <= 2048 && g_sve_bits % 128 == 0;
  if (page == MAP_FAILED || info->system_emulation || !is_length) {
    fprintf(stderr,
            "error: qemu_board: expected at=ADDRESS, a free page, qemu-user, and for sve= "
            "128 to 2048 bits\n");
    return 1;
  }
  g_counter = page;
  g_counter->magic = TW_BOARD_MAGIC;
  g_arm64 = strcmp(info->target_name, "aarch64") == 0;
  qemu_plugin_register_vcpu_tb_trans_cb(id, OnTranslate);
  return 0;
}
