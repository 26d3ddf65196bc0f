// "native" means the CPU of the machine the CLI runs on; it is expanded before anything is sent or
// stored. Reads the machine; safe from any thread.
#pragma once

#include <string>

#include "deploy/support/status.h"

namespace tilewright::cli {

// "native[,threads=N]" becomes "cpu,arch=…,cpu=…,threads=…"; any other target is checked and made
// canonical. Errors ir.target.* for a text that is no target.
absl::StatusOr<std::string> ExpandTarget(const std::string& text);

// The same of a target whose devices shall measure. Also `cli.usage.no_devices` where this version
// has no plug-in for them.
absl::StatusOr<std::string> ExpandMeasuredTarget(const std::string& text);

}  // namespace tilewright::cli
