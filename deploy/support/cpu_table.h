// The CPUs that targets may name: LLVM's name, what code for it needs, and the limits that matter
// for kernels. The one source for the compiler's targets, the agent's fingerprint and the CLI's
// "native". Constant data; thread-safe.
//
// Sources: the vendors' optimisation manuals (vector width, FMA throughput, caches) and LLVM's CPU
// definitions (names and features). Cache sizes are typical: the measured machine may differ.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tilewright::support {

struct CpuRow {
  std::string_view name;  // LLVM's name: "znver4"
  std::string_view arch;  // "x86_64", "aarch64"
  int vector_bytes;       // widest SIMD register worth using
  int vector_registers;
  double
      fma_per_cycle;  // vector FMAs (or multiplies where there is no FMA) of that width per cycle
  int64_t l1_bytes, l2_bytes, l3_bytes;  // per core, per core, per core's share or slice
  std::string_view features;             // comma list, LLVM spelling, that code for this CPU needs
};

std::span<const CpuRow> Cpus();
const CpuRow* FindCpu(std::string_view arch, std::string_view name);
// The row's features, in table order.
std::vector<std::string> FeaturesOf(const CpuRow& row);

// Names of all rows of this architecture that a machine with `features` can run.
std::vector<std::string> RunnableCpus(std::string_view arch,
                                      const std::vector<std::string>& features);

// The best name for a machine: its own microarchitecture where the table knows (vendor, family,
// model) and the machine has the features, else the highest feature level it reaches.
std::string BestCpuName(std::string_view arch, std::string_view vendor, int family, int model,
                        const std::vector<std::string>& features);

}  // namespace tilewright::support
