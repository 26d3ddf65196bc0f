#include "deploy/support/cpu_table.h"

#include <algorithm>

#include "deploy/support/strings.h"

namespace tilewright::support {
namespace {

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

// "fma" is part of the base architecture.
constexpr std::string_view kArm = "fma,neon";
constexpr std::string_view kArmCrc = "fma,neon,crc";
constexpr std::string_view kArmDots = "fma,neon,crc,lse,fullfp16,dotprod";
constexpr std::string_view kArmMatrix = "fma,neon,crc,lse,fullfp16,dotprod,sve,bf16,i8mm";

// Rows of one architecture from the oldest to the newest.
constexpr CpuRow kCpus[] = {
    {"x86-64", "x86_64", 16, 16, 1, 32 * KiB, 256 * KiB, 2 * MiB, kV1},
    {"x86-64-v2", "x86_64", 16, 16, 1, 32 * KiB, 256 * KiB, 2 * MiB, kV2},
    {"x86-64-v3", "x86_64", 32, 16, 2, 32 * KiB, 256 * KiB, 2 * MiB, kV3},
    {"x86-64-v4", "x86_64", 64, 32, 2, 32 * KiB, 1 * MiB, 2 * MiB, kV4},
    {"haswell", "x86_64", 32, 16, 2, 32 * KiB, 256 * KiB, 2 * MiB, kV3},
    {"broadwell", "x86_64", 32, 16, 2, 32 * KiB, 256 * KiB, 2 * MiB, kV3},
    {"skylake", "x86_64", 32, 16, 2, 32 * KiB, 256 * KiB, 2 * MiB, kV3},
    {"skylake-avx512", "x86_64", 64, 32, 2, 32 * KiB, 1 * MiB, 1408 * KiB, kV4},
    {"cascadelake", "x86_64", 64, 32, 2, 32 * KiB, 1 * MiB, 1408 * KiB, kVnni},
    {"icelake-server", "x86_64", 64, 32, 2, 48 * KiB, 1280 * KiB, 1536 * KiB, kVnni},
    {"sapphirerapids", "x86_64", 64, 32, 2, 48 * KiB, 2 * MiB, 1920 * KiB, kVnni},
    {"alderlake", "x86_64", 32, 16, 2, 48 * KiB, 1280 * KiB, 3 * MiB, kV3Vnni},
    {"znver1", "x86_64", 32, 16, 1, 32 * KiB, 512 * KiB, 4 * MiB, kV3},
    {"znver2", "x86_64", 32, 16, 2, 32 * KiB, 512 * KiB, 4 * MiB, kV3},
    {"znver3", "x86_64", 32, 16, 2, 32 * KiB, 512 * KiB, 4 * MiB, kV3},
    {"znver4", "x86_64", 64, 32, 1, 32 * KiB, 1 * MiB, 4 * MiB, kVnni},
    {"znver5", "x86_64", 64, 32, 2, 48 * KiB, 1 * MiB, 4 * MiB, kVnni},
    {"generic", "aarch64", 16, 32, 2, 32 * KiB, 512 * KiB, 1 * MiB, kArm},
    {"cortex-a53", "aarch64", 16, 32, 1, 32 * KiB, 512 * KiB, 512 * KiB, kArmCrc},
    {"cortex-a72", "aarch64", 16, 32, 1, 32 * KiB, 512 * KiB, 1 * MiB, kArmCrc},
    {"cortex-a55", "aarch64", 16, 32, 1, 32 * KiB, 128 * KiB, 512 * KiB, kArmDots},
    {"cortex-a76", "aarch64", 16, 32, 2, 64 * KiB, 512 * KiB, 1 * MiB, kArmDots},
    {"neoverse-n1", "aarch64", 16, 32, 2, 64 * KiB, 1 * MiB, 1 * MiB, kArmDots},
    {"neoverse-v1", "aarch64", 16, 32, 4, 64 * KiB, 1 * MiB, 1 * MiB, kArmMatrix},
};

struct ModelRow {
  std::string_view vendor;
  int family, model_low, model_high;
  std::string_view cpu;
};
// Display family and model, as the vendors' identification manuals list them.
constexpr ModelRow kModels[] = {
    {"AuthenticAMD", 0x17, 0x00, 0x2F, "znver1"},
    {"AuthenticAMD", 0x17, 0x30, 0xFF, "znver2"},
    {"AuthenticAMD", 0x19, 0x00, 0x0F, "znver3"},
    {"AuthenticAMD", 0x19, 0x10, 0x1F, "znver4"},
    {"AuthenticAMD", 0x19, 0x20, 0x5F, "znver3"},
    {"AuthenticAMD", 0x19, 0x60, 0xAF, "znver4"},
    {"AuthenticAMD", 0x1A, 0x00, 0xFF, "znver5"},
    {"GenuineIntel", 6, 0x3C, 0x3C, "haswell"},
    {"GenuineIntel", 6, 0x3F, 0x3F, "haswell"},
    {"GenuineIntel", 6, 0x45, 0x46, "haswell"},
    {"GenuineIntel", 6, 0x4F, 0x4F, "broadwell"},
    {"GenuineIntel", 6, 0x56, 0x56, "broadwell"},
    {"GenuineIntel", 6, 0x4E, 0x4E, "skylake"},
    {"GenuineIntel", 6, 0x5E, 0x5E, "skylake"},
    {"GenuineIntel", 6, 0x8E, 0x8E, "skylake"},
    {"GenuineIntel", 6, 0x9E, 0x9E, "skylake"},
    {"GenuineIntel", 6, 0x55, 0x55, "skylake-avx512"},  // cascadelake where it has VNNI
    {"GenuineIntel", 6, 0x6A, 0x6C, "icelake-server"},
    {"GenuineIntel", 6, 0x8F, 0x8F, "sapphirerapids"},
    {"GenuineIntel", 6, 0xCF, 0xCF, "sapphirerapids"},  // emeraldrapids
    {"GenuineIntel", 6, 0x97, 0x9A, "alderlake"},
    // The implementer's and the part's number of the main identification register; 8: ARMv8.
    {"0x41", 8, 0xD03, 0xD03, "cortex-a53"},
    {"0x41", 8, 0xD05, 0xD05, "cortex-a55"},
    {"0x41", 8, 0xD08, 0xD08, "cortex-a72"},
    {"0x41", 8, 0xD0B, 0xD0B, "cortex-a76"},
    {"0x41", 8, 0xD0C, 0xD0C, "neoverse-n1"},
    {"0x41", 8, 0xD40, 0xD40, "neoverse-v1"},
};

bool CanRun(const CpuRow& row, const std::vector<std::string>& features) {
  for (const std::string& feature : FeaturesOf(row)) {
    if (std::find(features.begin(), features.end(), feature) == features.end()) return false;
  }
  return true;
}

}  // namespace

std::span<const CpuRow> Cpus() { return kCpus; }

const CpuRow* FindCpu(std::string_view arch, std::string_view name) {
  for (const CpuRow& row : kCpus) {
    if (row.arch == arch && row.name == name) return &row;
  }
  return nullptr;
}

std::vector<std::string> FeaturesOf(const CpuRow& row) { return Split(row.features, ','); }

std::vector<std::string> RunnableCpus(std::string_view arch,
                                      const std::vector<std::string>& features) {
  std::vector<std::string> names;
  for (const CpuRow& row : kCpus) {
    if (row.arch == arch && CanRun(row, features)) names.emplace_back(row.name);
  }
  return names;
}

std::string BestCpuName(std::string_view arch, std::string_view vendor, int family, int model,
                        const std::vector<std::string>& features) {
  for (const ModelRow& row : kModels) {
    if (row.vendor != vendor || row.family != family) continue;
    if (model < row.model_low || model > row.model_high) continue;
    std::string_view name = row.cpu;
    if (name == "skylake-avx512" && CanRun(*FindCpu(arch, "cascadelake"), features)) {
      name = "cascadelake";
    }
    if (CanRun(*FindCpu(arch, name), features)) return std::string(name);
  }
  if (arch == "aarch64") return "generic";
  for (const std::string_view level : {"x86-64-v4", "x86-64-v3", "x86-64-v2"}) {
    if (CanRun(*FindCpu(arch, level), features)) return std::string(level);
  }
  return "x86-64";
}

}  // namespace tilewright::support
