// Describes the CPU that this process runs on: for the check before code is loaded, and for a
// device's fingerprint. Read once from the CPU and the kernel; a plain value.
#ifndef DEPLOY_RUNTIME_CPU_INFO_H_
#define DEPLOY_RUNTIME_CPU_INFO_H_

#include <cstdint>
#include <string>
#include <vector>

namespace tilewright::runtime {

struct CpuInfo {
  std::string arch;        // "x86_64", "aarch64", …
  std::string vendor;      // "AuthenticAMD"; "" if unknown
  std::string model_name;  // "AMD EPYC …", from the CPU itself; "" if unknown
  int family = 0;          // x86: display family and model
  int model = 0;
  int stepping = 0;
  // Usable by user code (the operating system saves their registers), LLVM spelling, sorted:
  // "avx2", "avx512f", "fma", …
  std::vector<std::string> features;
  // Cores of the machine that are on line, and those this process may use (affinity, cgroup).
  int cores_online = 1;
  int cores_usable = 1;
  // Sizes of the caches one core sees, in bytes; 0 where unknown. L3 is the shared slice.
  int64_t l1d_bytes = 0;
  int64_t l2_bytes = 0;
  int64_t l3_bytes = 0;
  int64_t line_bytes = 64;

  bool HasFeature(const std::string& name) const;
};

// Returns the cores as they are now: affinity and cgroup limits can change while a process runs.
// The rest is read once per process; processes that it forks afterwards know it, too.
CpuInfo DetectCpu();

// Returns how many cores this process may use, at least 1. More threads than that do not help.
int UsableCores();

// Returns the features of `required` that `cpu` lacks, in order.
std::vector<std::string> MissingFeatures(const CpuInfo& cpu,
                                         const std::vector<std::string>& required);

}  // namespace tilewright::runtime

#endif  // DEPLOY_RUNTIME_CPU_INFO_H_
