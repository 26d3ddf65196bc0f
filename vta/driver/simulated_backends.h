// The simulators as devices of the driver. They run code for any configuration.
#pragma once

#include <cstdint>
#include <memory>

#include "vta/driver/vta_backend.h"
#include "vta/sim/cycle_model.h"

namespace tilewright::vta {

// Returns the cycle model.
std::unique_ptr<Backend> MakeCycleModel(const CycleTiming& timing = {});

// Returns the functional simulator. Its cycles are those of the instructions one after the other
// (SerialCycles): it knows no overlap. Each run takes another order of the modules, drawn from the
// seed.
std::unique_ptr<Backend> MakeFunctionalSimulator(uint64_t seed = 1);

}  // namespace tilewright::vta
