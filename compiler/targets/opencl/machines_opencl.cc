// Targets that name no device have one row, from phones to servers. The limits of a launch
// are what all of them have; the specification guarantees less. Numbers that differ from device to
// device are those of PoCL, a driver for processors, by clGetDeviceInfo on two cores of a Xeon with
// vectors of 512 bits: CL_DEVICE_MAX_COMPUTE_UNITS 2, CL_DEVICE_NATIVE_VECTOR_WIDTH_FLOAT 16,
// CL_DEVICE_GLOBAL_MEM_CACHELINE_SIZE 64. It would take groups of 4096 threads and 1280 KiB of
// local memory. A core runs the threads of a group one after the other: more of them hide no
// latency. What a device reports of itself is in its fingerprint.
#include "compiler/targets/gpu_machine.h"
#include "compiler/targets/kind_table.h"
#include "compiler/targets/phone_gpus.h"

namespace tilewright::opencl {
namespace {

constexpr target::Machine OpenClDevice() {
  target::Machine m = targets::AnyDevice();
  m.launch.registers = 256;
  m.launch.thread_bytes = 64;
  m.launch.group_ns = 100;
  m.launch.barrier_cycles = 5;
  return m;
}
constexpr target::Machine kOpenClMachines[] = {OpenClDevice(), targets::Valhall(),
                                               targets::Adreno()};

}  // namespace

constinit const target::Family kFamily = {
    .machines = kOpenClMachines, .code_format = "opencl-c", .driver_compiles = true};

}  // namespace tilewright::opencl
