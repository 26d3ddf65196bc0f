// Sets of WebAssembly's instructions: a module runs in every engine that has them, on any
// processor, so the numbers are those that x86-64 and 64-bit Arm have in common. Vectors have 128
// bits. Sixteen of them stay in registers: V8 allocates xmm0 to xmm14 on x86-64 (xmm15 is its
// scratch register, src/codegen/x64/register-x64.h) and v0 to v28 on 64-bit Arm, and what does not
// fit the fewer it spills. A multiply-add is two instructions without the relaxed ones. Caches and
// bandwidths are typical, for ranking only. There is no instruction for prefetching.
#include <limits>

#include "compiler/targets/kind_table.h"

namespace tilewright::wasm {
namespace {

using target::Machine;

constexpr int64_t KiB = 1 << 10;
constexpr int64_t MiB = 1 << 20;

constexpr Machine Row(std::string_view name, std::string_view features, double fma_per_cycle) {
  return {.name = name,
          .features = features,
          .fma_per_cycle = fma_per_cycle,
          .loads_per_cycle = 2,
          .fma_latency = 4,
          .dots_per_cycle = 0.5,
          .prefetch = {.from_bytes = std::numeric_limits<int64_t>::max()},
          .l1 = {.bytes = 32 * KiB},
          .l2 = {.bytes = 512 * KiB, .bytes_per_cycle = 20},
          .l3 = {.bytes = 1 * MiB, .sharers = 8, .bytes_per_cycle = 12},
          .memory_bytes_per_cycle = 5,
          .clock_ghz = 3,
          .predictor = target::Predictor::kEstimate};
}

constexpr Machine kWasmMachines[] = {
    Row("simd128", "simd128", 1),
    // Relaxed SIMD: engines may round a * b + c once or twice.
    Row("relaxed_simd", "fma,relaxed_simd,simd128", 2),
};

constexpr std::string_view kWasmLevels[] = {"relaxed_simd", "simd128"};

}  // namespace

constinit const target::Family kFamily = {
    .arch = "wasm", .machines = kWasmMachines, .levels = kWasmLevels, .code_format = "wasm"};

}  // namespace tilewright::wasm
