// The x86-64 processors. Sources: the vendors' optimisation manuals (vector width, throughput,
// caches) and LLVM's processor definitions (names and features). Cache sizes are typical: a
// machine's own may differ.
#include "compiler/targets/kind_table.h"

namespace tilewright::x86 {
namespace {

using target::Machine;

constexpr int64_t KiB = 1 << 10;
constexpr int64_t MiB = 1 << 20;

constexpr std::string_view kV1 = "sse2";
constexpr std::string_view kV2 = "sse2,sse3,ssse3,sse4.1,sse4.2,popcnt";
constexpr std::string_view kV3 = "sse2,sse3,ssse3,sse4.1,sse4.2,popcnt,avx,avx2,fma,f16c,bmi,bmi2";
constexpr std::string_view kV3Vnni =
    "sse2,sse3,ssse3,sse4.1,sse4.2,popcnt,avx,avx2,fma,f16c,bmi,bmi2,avxvnni";
constexpr std::string_view kV4 =
    "sse2,sse3,ssse3,sse4.1,sse4.2,popcnt,avx,avx2,fma,f16c,bmi,bmi2,"
    "avx512f,avx512bw,avx512cd,avx512dq,avx512vl";
constexpr std::string_view kVnni =
    "sse2,sse3,ssse3,sse4.1,sse4.2,popcnt,avx,avx2,fma,f16c,bmi,bmi2,"
    "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx512vnni";

constexpr std::string_view kBFloat =
    "sse2,sse3,ssse3,sse4.1,sse4.2,popcnt,avx,avx2,fma,f16c,bmi,bmi2,"
    "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx512vnni,avx512bf16";
constexpr std::string_view kHalf =
    "sse2,sse3,ssse3,sse4.1,sse4.2,popcnt,avx,avx2,fma,f16c,bmi,bmi2,"
    "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx512vnni,avx512bf16,avx512fp16";

// Latencies, bandwidths and the clock were fitted to the layers of tests/bench on a Zen 4 (cycles
// are nearly the same from Haswell on, and only ratios matter for ranking). Eight cores share the
// last level, of which the table has each one's slice. All load as many vectors as they multiply,
// and begin as many dot products where there are any (uops.info: five cycles, Zen four). Others
// make one of two products of 16-bit pairs and two additions, by three ports, and widen operands:
// ResNet-18 and MobileNet ran 0.4 to 0.6 of them in a cycle, with SSE2, AVX2 and AVX-512 alike.
constexpr Machine Row(std::string_view name, int vector_bytes, int vector_registers,
                      double fma_per_cycle, int64_t l1_bytes, int64_t l2_bytes, int64_t l3_bytes,
                      std::string_view features) {
  const bool dots = features.find("vnni") != std::string_view::npos;
  const bool pairs = !dots && features.find("ssse3") != std::string_view::npos;
  return {.name = name,
          .features = features,
          .vector_bytes = vector_bytes,
          .vector_registers = vector_registers,
          .multiplies_broadcasts = vector_bytes == 64,
          .fma_per_cycle = fma_per_cycle,
          .loads_per_cycle = fma_per_cycle,
          .fma_latency = 4,
          .sums_in_flight = 10,
          .dots_per_cycle = dots ? fma_per_cycle : 0.5,
          .dot_latency = name.starts_with("znver") ? 4.0 : 5.0,
          // By vpmaddubsw, whose 16 bits hold eight products of fields of four bits.
          .small_dots_per_cycle = pairs ? 1.25 : 0,
          .converts_f16 = features.find("f16c") != std::string_view::npos,
          .computes_f16 = features.find("avx512fp16") != std::string_view::npos,
          .l1 = {.bytes = l1_bytes},
          .l2 = {.bytes = l2_bytes, .bytes_per_cycle = 28},
          .l3 = {.bytes = l3_bytes, .sharers = 8, .bytes_per_cycle = 22},
          .memory_bytes_per_cycle = 7,
          .clock_ghz = 3.5,
          .predictor = target::Predictor::kShippedModel};
}

// Fitted to the layers of ResNet-18 and of a small U-Net on one: direct convolutions run at the
// rate of their multiply-adds, and the last level answers half as fast as a Zen's (11 bytes a cycle
// by tests/bench/machine_limits), so less of its traffic overlaps.
constexpr Machine SapphireRapids() {
  Machine m = Row("sapphirerapids", 64, 32, 2, 48 * KiB, 2 * MiB, 1920 * KiB, kHalf);
  m.port_share = 0.2;
  m.traffic_share = 0.5;
  // Winograd's products for 28x28 and 14x14 pixels with 7, 14, 21 and 28 uses: 0.65, 0.59, 0.55 and
  // 0.51 ms, and 1.00, 0.91, 0.86 and 0.79 ms.
  m.tile.far_uses = 24;
  return m;
}

// Means of channels of images on one, by rows of a tile: 1.02, 1.48, 1.48 and 1.17 us with 1, 2, 4
// and 10 (7x7 pixels, 60 blocks of channels), 4.4, 5.6, 4.7 and 3.4 (14x14), 310, 294, 266 and 277
// (28x28, 512 blocks).
constexpr Machine Zen5() {
  Machine m = Row("znver5", 64, 32, 2, 48 * KiB, 1 * MiB, 4 * MiB, kBFloat);
  m.tile.streams = 10;
  return m;
}

constexpr Machine kX86Machines[] = {
    Row("x86-64", 16, 16, 1, 32 * KiB, 256 * KiB, 2 * MiB, kV1),
    Row("x86-64-v2", 16, 16, 1, 32 * KiB, 256 * KiB, 2 * MiB, kV2),
    Row("x86-64-v3", 32, 16, 2, 32 * KiB, 256 * KiB, 2 * MiB, kV3),
    Row("x86-64-v4", 64, 32, 2, 32 * KiB, 1 * MiB, 2 * MiB, kV4),
    Row("haswell", 32, 16, 2, 32 * KiB, 256 * KiB, 2 * MiB, kV3),
    Row("broadwell", 32, 16, 2, 32 * KiB, 256 * KiB, 2 * MiB, kV3),
    Row("skylake", 32, 16, 2, 32 * KiB, 256 * KiB, 2 * MiB, kV3),
    Row("skylake-avx512", 64, 32, 2, 32 * KiB, 1 * MiB, 1408 * KiB, kV4),
    Row("cascadelake", 64, 32, 2, 32 * KiB, 1 * MiB, 1408 * KiB, kVnni),
    Row("cooperlake", 64, 32, 2, 32 * KiB, 1 * MiB, 1408 * KiB, kBFloat),
    Row("icelake-server", 64, 32, 2, 48 * KiB, 1280 * KiB, 1536 * KiB, kVnni),
    SapphireRapids(),
    Row("alderlake", 32, 16, 2, 48 * KiB, 1280 * KiB, 3 * MiB, kV3Vnni),
    Row("znver1", 32, 16, 1, 32 * KiB, 512 * KiB, 4 * MiB, kV3),
    Row("znver2", 32, 16, 2, 32 * KiB, 512 * KiB, 4 * MiB, kV3),
    Row("znver3", 32, 16, 2, 32 * KiB, 512 * KiB, 4 * MiB, kV3),
    Row("znver4", 64, 32, 1, 32 * KiB, 1 * MiB, 4 * MiB, kBFloat),
    Zen5(),
};

constexpr std::string_view kX86Levels[] = {"x86-64-v4", "x86-64-v3", "x86-64-v2", "x86-64"};

// Display family and model, as the vendors' identification manuals list them.
constexpr target::ModelRow kX86Models[] = {
    {"AuthenticAMD", 0x17, 0x00, 0x2F, "znver1"},
    {"AuthenticAMD", 0x17, 0x30, 0xFF, "znver2"},
    {"AuthenticAMD", 0x19, 0x00, 0x0F, "znver3"},
    {"AuthenticAMD", 0x19, 0x10, 0x1F, "znver4"},
    {"AuthenticAMD", 0x19, 0x20, 0x5F, "znver3"},
    {"AuthenticAMD", 0x19, 0x60, 0xAF, "znver4"},
    {"AuthenticAMD", 0x1A, 0x00, 0xFF, "znver5"},
    // Hypervisors may hide bf16; code for these runs on all of them.
    {"AuthenticAMD", 0x19, 0x10, 0x1F, "cascadelake"},
    {"AuthenticAMD", 0x19, 0x60, 0xAF, "cascadelake"},
    {"AuthenticAMD", 0x1A, 0x00, 0xFF, "cascadelake"},
    {"GenuineIntel", 6, 0x3C, 0x3C, "haswell"},
    {"GenuineIntel", 6, 0x3F, 0x3F, "haswell"},
    {"GenuineIntel", 6, 0x45, 0x46, "haswell"},
    {"GenuineIntel", 6, 0x4F, 0x4F, "broadwell"},
    {"GenuineIntel", 6, 0x56, 0x56, "broadwell"},
    {"GenuineIntel", 6, 0x4E, 0x4E, "skylake"},
    {"GenuineIntel", 6, 0x5E, 0x5E, "skylake"},
    {"GenuineIntel", 6, 0x8E, 0x8E, "skylake"},
    {"GenuineIntel", 6, 0x9E, 0x9E, "skylake"},
    {"GenuineIntel", 6, 0x55, 0x55, "cooperlake"},
    {"GenuineIntel", 6, 0x55, 0x55, "cascadelake"},     // without bf16
    {"GenuineIntel", 6, 0x55, 0x55, "skylake-avx512"},  // without VNNI
    {"GenuineIntel", 6, 0x6A, 0x6C, "icelake-server"},
    {"GenuineIntel", 6, 0x8F, 0x8F, "sapphirerapids"},
    {"GenuineIntel", 6, 0xCF, 0xCF, "sapphirerapids"},  // emeraldrapids
    {"GenuineIntel", 6, 0x8F, 0x8F, "cooperlake"},      // without f16
    {"GenuineIntel", 6, 0xCF, 0xCF, "cooperlake"},
    {"GenuineIntel", 6, 0x8F, 0x8F, "icelake-server"},  // without bf16
    {"GenuineIntel", 6, 0xCF, 0xCF, "icelake-server"},
    {"GenuineIntel", 6, 0x97, 0x9A, "alderlake"},
};

}  // namespace

constinit const target::Family kFamily = {.arch = "x86_64",
                                          .machines = kX86Machines,
                                          .levels = kX86Levels,
                                          .models = kX86Models,
                                          .code_format = "elf-x86_64"};

}  // namespace tilewright::x86
