#include "deploy/runtime/cpu_info.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/auxv.h>
#include <sys/prctl.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "deploy/support/file.h"
#include "deploy/support/strings.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace tilewright::runtime {
namespace {

constexpr uint64_t kMaxKernelText = 1 << 20;

std::string KernelText(const std::string& path) {
  absl::StatusOr<std::string> text = support::ReadFile(path, kMaxKernelText);
  return text.ok() ? std::string(support::Trim(*text)) : std::string();
}

#if defined(__x86_64__)

struct Leaf {
  uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
};

Leaf Cpuid(uint32_t leaf, uint32_t subleaf = 0) {
  Leaf out;
  const uint32_t base = leaf & 0x80000000u;
  if (__get_cpuid_max(base, nullptr) >= leaf) {
    __cpuid_count(leaf, subleaf, out.eax, out.ebx, out.ecx, out.edx);
  }
  return out;
}

// Which register files the operating system saves: XCR0.
uint64_t EnabledStates(const Leaf& leaf1) {
  if ((leaf1.ecx & (1u << 27)) == 0) return 0;
  uint32_t low = 0;
  uint32_t high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (static_cast<uint64_t>(high) << 32) | low;
}

// Register state that a feature needs: none, AVX (ymm), AVX-512 (zmm, masks), AMX (tiles).
enum class State { kNone, kAvx, kAvx512, kAmx };

struct FeatureBit {
  const char* name;
  uint32_t Leaf::* word;
  int bit;
  State state;
};

constexpr FeatureBit kLeaf1[] = {
    {"cx8", &Leaf::edx, 8, State::kNone},     {"cmov", &Leaf::edx, 15, State::kNone},
    {"mmx", &Leaf::edx, 23, State::kNone},    {"fxsr", &Leaf::edx, 24, State::kNone},
    {"sse", &Leaf::edx, 25, State::kNone},    {"sse2", &Leaf::edx, 26, State::kNone},
    {"sse3", &Leaf::ecx, 0, State::kNone},    {"pclmul", &Leaf::ecx, 1, State::kNone},
    {"ssse3", &Leaf::ecx, 9, State::kNone},   {"fma", &Leaf::ecx, 12, State::kAvx},
    {"cx16", &Leaf::ecx, 13, State::kNone},   {"sse4.1", &Leaf::ecx, 19, State::kNone},
    {"sse4.2", &Leaf::ecx, 20, State::kNone}, {"movbe", &Leaf::ecx, 22, State::kNone},
    {"popcnt", &Leaf::ecx, 23, State::kNone}, {"aes", &Leaf::ecx, 25, State::kNone},
    {"xsave", &Leaf::ecx, 26, State::kAvx},   {"avx", &Leaf::ecx, 28, State::kAvx},
    {"f16c", &Leaf::ecx, 29, State::kAvx},    {"rdrnd", &Leaf::ecx, 30, State::kNone},
};
constexpr FeatureBit kLeaf7[] = {
    {"fsgsbase", &Leaf::ebx, 0, State::kNone},
    {"bmi", &Leaf::ebx, 3, State::kNone},
    {"avx2", &Leaf::ebx, 5, State::kAvx},
    {"bmi2", &Leaf::ebx, 8, State::kNone},
    {"avx512f", &Leaf::ebx, 16, State::kAvx512},
    {"avx512dq", &Leaf::ebx, 17, State::kAvx512},
    {"rdseed", &Leaf::ebx, 18, State::kNone},
    {"adx", &Leaf::ebx, 19, State::kNone},
    {"avx512ifma", &Leaf::ebx, 21, State::kAvx512},
    {"clflushopt", &Leaf::ebx, 23, State::kNone},
    {"clwb", &Leaf::ebx, 24, State::kNone},
    {"avx512cd", &Leaf::ebx, 28, State::kAvx512},
    {"sha", &Leaf::ebx, 29, State::kNone},
    {"avx512bw", &Leaf::ebx, 30, State::kAvx512},
    {"avx512vl", &Leaf::ebx, 31, State::kAvx512},
    {"avx512vbmi", &Leaf::ecx, 1, State::kAvx512},
    {"avx512vbmi2", &Leaf::ecx, 6, State::kAvx512},
    {"gfni", &Leaf::ecx, 8, State::kNone},
    {"vaes", &Leaf::ecx, 9, State::kAvx},
    {"vpclmulqdq", &Leaf::ecx, 10, State::kAvx},
    {"avx512vnni", &Leaf::ecx, 11, State::kAvx512},
    {"avx512bitalg", &Leaf::ecx, 12, State::kAvx512},
    {"avx512vpopcntdq", &Leaf::ecx, 14, State::kAvx512},
    {"rdpid", &Leaf::ecx, 22, State::kNone},
    {"avx512vp2intersect", &Leaf::edx, 8, State::kAvx512},
    {"amx-bf16", &Leaf::edx, 22, State::kAmx},
    {"avx512fp16", &Leaf::edx, 23, State::kAvx512},
    {"amx-tile", &Leaf::edx, 24, State::kAmx},
    {"amx-int8", &Leaf::edx, 25, State::kAmx},
};
constexpr FeatureBit kLeaf7Sub1[] = {
    {"avxvnni", &Leaf::eax, 4, State::kAvx},
    {"avx512bf16", &Leaf::eax, 5, State::kAvx512},
};
constexpr FeatureBit kExtended1[] = {
    {"sahf", &Leaf::ecx, 0, State::kNone},   {"lzcnt", &Leaf::ecx, 5, State::kNone},
    {"sse4a", &Leaf::ecx, 6, State::kNone},  {"prfchw", &Leaf::ecx, 8, State::kNone},
    {"64bit", &Leaf::edx, 29, State::kNone},
};

bool StateEnabled(State state, uint64_t xcr0) {
  switch (state) {
    case State::kNone:
      return true;
    case State::kAvx:
      return (xcr0 & 0x6) == 0x6;
    case State::kAvx512:
      return (xcr0 & 0xE6) == 0xE6;
    case State::kAmx:
      return (xcr0 & 0x60000) == 0x60000;
  }
  return false;
}

template <size_t N>
void AddFeatures(const FeatureBit (&table)[N], const Leaf& leaf, uint64_t xcr0,
                 std::vector<std::string>* features) {
  for (const FeatureBit& row : table) {
    if (((leaf.*row.word >> row.bit) & 1) != 0 && StateEnabled(row.state, xcr0)) {
      features->push_back(row.name);
    }
  }
}

std::string RegisterText(std::initializer_list<uint32_t> words) {
  std::string text;
  for (const uint32_t word : words) {
    char bytes[4];
    std::memcpy(bytes, &word, 4);
    text.append(bytes, 4);
  }
  return std::string(support::Trim(text.substr(0, text.find('\0'))));
}

void DetectArch(CpuInfo* info) {
  const Leaf zero = Cpuid(0);
  const Leaf one = Cpuid(1);
  const uint64_t xcr0 = EnabledStates(one);
  info->vendor = RegisterText({zero.ebx, zero.edx, zero.ecx});
  const Leaf b0 = Cpuid(0x80000002u);
  const Leaf b1 = Cpuid(0x80000003u);
  const Leaf b2 = Cpuid(0x80000004u);
  info->model_name = RegisterText({b0.eax, b0.ebx, b0.ecx, b0.edx, b1.eax, b1.ebx, b1.ecx, b1.edx,
                                   b2.eax, b2.ebx, b2.ecx, b2.edx});
  const int base_family = static_cast<int>((one.eax >> 8) & 0xF);
  info->family = base_family == 15 ? 15 + static_cast<int>((one.eax >> 20) & 0xFF) : base_family;
  info->model = static_cast<int>(((one.eax >> 4) & 0xF) | ((one.eax >> 12) & 0xF0));
  info->stepping = static_cast<int>(one.eax & 0xF);
  AddFeatures(kLeaf1, one, xcr0, &info->features);
  AddFeatures(kLeaf7, Cpuid(7), xcr0, &info->features);
  AddFeatures(kLeaf7Sub1, Cpuid(7, 1), xcr0, &info->features);
  AddFeatures(kExtended1, Cpuid(0x80000001u), xcr0, &info->features);
}

#elif defined(__aarch64__)

void DetectArch(CpuInfo* info) {
  struct Bit {
    const char* name;
    int bit;
  };
  constexpr Bit kBits[] = {{"fp-armv8", 0}, {"neon", 1},    {"aes", 3},       {"sha2", 6},
                           {"crc", 7},      {"lse", 8},     {"fullfp16", 10}, {"dotprod", 20},
                           {"sve", 22},     {"fp16fml", 23}};
  constexpr Bit kBits2[] = {{"sve2", 1}, {"i8mm", 13}, {"bf16", 14}};
  info->features.push_back("fma");  // every processor of the architecture has it
  const unsigned long hwcap = getauxval(AT_HWCAP);
  const unsigned long hwcap2 = getauxval(AT_HWCAP2);
  for (const Bit& row : kBits) {
    if ((hwcap >> row.bit) & 1) info->features.push_back(row.name);
  }
  for (const Bit& row : kBits2) {
    if ((hwcap2 >> row.bit) & 1) info->features.push_back(row.name);
  }
  // The length of SVE's vectors, in bytes: code is made for one.
  constexpr int kSveGetLength = 51, kLengthMask = 0xffff;
  const int sve = prctl(kSveGetLength);
  if (sve > 0) info->features.push_back("sve" + std::to_string(8 * (sve & kLengthMask)));
  info->model_name = KernelText("/sys/firmware/devicetree/base/model");
  // The kernel's copy of the main identification register (MIDR_EL1), of the first core.
  const std::string text = KernelText("/sys/devices/system/cpu/cpu0/regs/identification/midr_el1");
  const unsigned long long midr = std::strtoull(text.c_str(), nullptr, 16);
  if (midr == 0) return;
  constexpr char kHex[] = "0123456789abcdef";
  info->vendor = {'0', 'x', kHex[(midr >> 28) & 0xF], kHex[(midr >> 24) & 0xF]};
  info->family = 8;  // of the architecture
  info->model = static_cast<int>((midr >> 4) & 0xFFF);
  info->stepping = static_cast<int>(midr & 0xF);
}

#else

void DetectArch(CpuInfo*) {}

#endif

std::optional<int64_t> ParseCacheSize(std::string_view text) {
  int64_t unit = 1;
  if (!text.empty() && (text.back() == 'K' || text.back() == 'M')) {
    unit = text.back() == 'K' ? 1024 : 1024 * 1024;
    text.remove_suffix(1);
  }
  const std::optional<int64_t> value = support::ParseInt64(text);
  if (!value.has_value() || *value < 0) return std::nullopt;
  return *value * unit;
}

void DetectCaches(CpuInfo* info) {
  constexpr int kMaxIndex = 8;
  for (int index = 0; index < kMaxIndex; ++index) {
    const std::string folder = "/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(index);
    const std::string level = KernelText(folder + "/level");
    if (level.empty()) break;
    const std::string type = KernelText(folder + "/type");
    const std::optional<int64_t> size = ParseCacheSize(KernelText(folder + "/size"));
    if (type == "Instruction" || !size.has_value()) continue;
    if (level == "1") info->l1d_bytes = *size;
    if (level == "2") info->l2_bytes = *size;
    if (level == "3") info->l3_bytes = *size;
    const auto line = support::ParseInt64(KernelText(folder + "/coherency_line_size"));
    if (line.has_value() && *line > 0) info->line_bytes = *line;
  }
  const auto fallback = [](int64_t* bytes, int name) {
    if (*bytes == 0) *bytes = std::max<int64_t>(sysconf(name), 0);
  };
  fallback(&info->l1d_bytes, _SC_LEVEL1_DCACHE_SIZE);
  fallback(&info->l2_bytes, _SC_LEVEL2_CACHE_SIZE);
  fallback(&info->l3_bytes, _SC_LEVEL3_CACHE_SIZE);
}

// CPU time that the control group grants, in whole cores (rounded up); nullopt without a limit.
std::optional<int> CgroupCores() {
  const std::vector<std::string> parts = support::Split(KernelText("/sys/fs/cgroup/cpu.max"), ' ');
  if (parts.size() != 2) return std::nullopt;
  const auto quota = support::ParseInt64(parts[0]);
  const auto period = support::ParseInt64(parts[1]);
  if (!quota.has_value() || !period.has_value() || *period <= 0 || *quota <= 0) return std::nullopt;
  return static_cast<int>(std::clamp<int64_t>((*quota + *period - 1) / *period, 1, 1 << 16));
}

void DetectCores(CpuInfo* info) {
  info->cores_online = static_cast<int>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN)));
  info->cores_usable = info->cores_online;
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) info->cores_usable = CPU_COUNT(&set);
  const std::optional<int> limit = CgroupCores();
  if (limit.has_value()) info->cores_usable = std::min(info->cores_usable, *limit);
  info->cores_usable = std::max(info->cores_usable, 1);
}

}  // namespace

bool CpuInfo::HasFeature(const std::string& name) const {
  return std::binary_search(features.begin(), features.end(), name);
}

CpuInfo DetectCpu() {
  // Asked for whenever a module is loaded, and 0.2 ms each: on a virtual machine the hypervisor
  // answers every CPUID. All but the cores stays as it is while a process lives, its forks
  // included.
  static const auto& fixed = *new CpuInfo([] {
    CpuInfo info;
    utsname names{};
    if (uname(&names) == 0) info.arch = names.machine;
    DetectArch(&info);
    DetectCaches(&info);
    std::sort(info.features.begin(), info.features.end());
    return info;
  }());
  CpuInfo info = fixed;
  DetectCores(&info);
  return info;
}

int UsableCores() {
  CpuInfo info;
  DetectCores(&info);
  return info.cores_usable;
}

std::vector<std::string> MissingFeatures(const CpuInfo& cpu,
                                         const std::vector<std::string>& required) {
  std::vector<std::string> missing;
  for (const std::string& name : required) {
    if (!cpu.HasFeature(name)) missing.push_back(name);
  }
  return missing;
}

}  // namespace tilewright::runtime
