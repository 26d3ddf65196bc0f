// The devices of the plug-in, by index: the cycle model, which a program gets that names none, the
// functional simulator, the RTL where it was built, and the boards of the machine. Thread-safe.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "vta/driver/accelerator.h"

namespace tilewright::vta {

// Boards whose description is broken do not count; to open one says what is wrong.
int32_t CountDevices();

// A simulator is a new one for each call. A board is one for all of this process that have it open:
// they share it, and other processes do not get it. NOT_FOUND vta.driver.index: no such device; as
// FindBoards and OpenBoard. TILEWRIGHT_VTA_ROOT names a folder that stands for "/" when boards are
// looked for.
absl::StatusOr<std::shared_ptr<Accelerator>> OpenDevice(int32_t index);

}  // namespace tilewright::vta
