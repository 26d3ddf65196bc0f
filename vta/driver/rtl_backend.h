// The RTL in Verilator (vta/rtl) as a device of the driver: exact cycles of the hardware. It is in
// builds with TILEWRIGHT_BUILD_RTL only.
#pragma once

#include <cstdint>
#include <memory>

#include "vta/driver/vta_backend.h"

namespace tilewright::vta {

// Returns the RTL with DRAM of that latency, as in CycleTiming. It runs code for the configurations
// with a name: another one is vta.config.other. What a stream does wrong is vta.rtl.*, as RtlSim.
std::unique_ptr<Backend> MakeRtl(int64_t dram_latency);

}  // namespace tilewright::vta
