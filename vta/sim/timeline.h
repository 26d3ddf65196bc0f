// When load, compute and store worked, as a picture and as events: both show how much of the loads
// the products hide. Made from the trace of the cycle model. Pure functions.
#pragma once

#include <span>
#include <string>

#include "vta/isa/isa.h"
#include "vta/sim/cycle_model.h"

namespace tilewright::vta {

// An SVG picture: a row for each module with the share of all cycles in which it is busy, a bar for
// each instruction in the colour of its kind, and an axis of cycles. Where several
// instructions share half a pixel, the kind that takes most of it has it: the size of a picture is
// limited, however long the run.
// REQUIRES: the report is that of a run of `stream`.
std::string TimelineSvg(std::span<const Instruction> stream, const CycleReport& report);

// Events in the JSON format of Chrome's trace viewer, which Perfetto reads, too: a thread for each
// module, an event for each instruction with its disassembly. One cycle is one microsecond.
// REQUIRES: as above.
std::string ChromeTrace(std::span<const Instruction> stream, const CycleReport& report);

}  // namespace tilewright::vta
