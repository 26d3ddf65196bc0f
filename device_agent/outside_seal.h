// What a worker does to a measuring process that has loaded its code, and checks of it. The process
// runs foreign code by then, so that nothing which it does or says itself would prove anything. All
// is the kernel's: the process can neither undo nor fake it.
#pragma once

#include <sys/types.h>

#include "deploy/support/status.h"
#include "device_agent/sandbox.h"

namespace tilewright::device_agent {

// Takes from `child` the right to make files longer and, under profile strict, to open any. Checks
// that its system-call filters are those that its profile has, and no more, which foreign code
// might have added. data_loss (sandbox.seal.missing); unavailable (sandbox.seal.gone) if it has
// ended.
absl::Status SealFromOutside(pid_t child, SandboxProfile profile);

}  // namespace tilewright::device_agent
