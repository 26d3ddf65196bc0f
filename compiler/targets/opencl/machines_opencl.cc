// Targets name no device, so one row serves devices from phones to servers. The limits of a launch
// are what all of them have; the specification guarantees less. Numbers that differ from device to
// device are those of PoCL, a driver for processors, by clGetDeviceInfo on two cores of a Xeon with
// vectors of 512 bits: CL_DEVICE_MAX_COMPUTE_UNITS 2, CL_DEVICE_NATIVE_VECTOR_WIDTH_FLOAT 16,
// CL_DEVICE_GLOBAL_MEM_CACHELINE_SIZE 64. It would take groups of 4096 threads and 1280 KiB of
// local memory. A core runs the threads of a group one after the other: more of them hide no
// latency. What a device reports of itself is in its fingerprint.
#include "compiler/targets/kind_table.h"

namespace tilewright::opencl {
namespace {

constexpr target::Machine kOpenClMachines[] = {
    {.features = "fma",
     .searched_body_ops = 256,
     .searched_tile = {.steps = 256},
     .short_reduction = 8,
     .launch = {.group_threads = 256,
                .shared_bytes = 32 << 10,
                .registers = 256,
                .usual_threads = 64,
                .units = 2,
                .busy_threads = 1 << 14,
                .thread_bytes = 64,
                .launch_ns = 10'000,
                .group_ns = 100,
                .barrier_cycles = 5},
     .rule_set = target::RuleSet::kGroups,
     .feature_set = target::FeatureSet::kGroups},
};

}  // namespace

constinit const target::Family kFamily = {
    .machines = kOpenClMachines, .code_format = "opencl-c", .driver_compiles = true};

}  // namespace tilewright::opencl
