// Targets: the string form of DESIGN.md section 8 and the limits the space rules and generators
// use. `cpu,arch=x86_64,cpu=znver4,threads=2`. `native` is expanded (CLI only) from the machine it
// runs on.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace tilewright::target {

struct Target {
  std::string kind = "cpu";
  std::string arch = "x86_64";
  std::string cpu = "x86-64";  // LLVM CPU name
  int threads = 1;
  // Derived from (arch, cpu): what the hardware gives.
  int vector_bytes = 16;  // widest useful SIMD register
  int vector_registers = 16;
  int64_t l1_bytes = 32 << 10, l2_bytes = 512 << 10, l3_bytes = 8 << 20;
  double fma_per_cycle = 1;  // vector FMAs per cycle at vector_bytes
  std::vector<std::string>
      required_features;  // cpuid names the module needs ("avx512f", "fma", ...)

  std::string ToString() const;        // canonical, keys sorted; parses back
  std::string WithoutThreads() const;  // part of a record's key
};
// ir.target.unknown_kind | unknown_cpu | bad_value | native (the command line expands that one)
absl::StatusOr<Target> ParseTarget(std::string_view text);

// What every device of a GPU kind offers; schedules for the kind keep to it.
struct GpuLimits {
  std::string_view kind;      // "opencl"
  int64_t max_group_threads;  // threads of one group
  int64_t shared_bytes;       // of one group
  int warp;                   // threads that go in step; 1 where the language knows none
};
const GpuLimits* FindGpu(std::string_view kind);  // null: no such kind

// "native[,threads=N]" becomes the canonical text for the machine described by the other arguments
// (`threads` where the text names none); any other target is checked and made canonical.
absl::StatusOr<std::string> ExpandNative(std::string_view text, std::string_view arch,
                                         std::string_view cpu, int threads);

}  // namespace tilewright::target
