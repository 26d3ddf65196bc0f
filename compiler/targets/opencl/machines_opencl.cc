// What devices from phones to servers have; the specification guarantees less. Targets name no
// device, so there is one row.
#include "compiler/targets/kind_table.h"

namespace tilewright::opencl {
namespace {

constexpr target::Machine kOpenClMachines[] = {
    {.features = "fma",
     .launch =
         {.group_threads = 256, .shared_bytes = 32 << 10, .usual_threads = 64, .thread_sums = 256}},
};

}  // namespace

constinit const target::Family kFamily = {.machines = kOpenClMachines, .driver_compiles = true};

}  // namespace tilewright::opencl
