// `tilewright targets`: the targets there are, and what `native` means here.
#pragma once

#include "tuner_server/cli/table.h"

namespace tilewright::cli {

int ListTargets(OutputFormat format);

}  // namespace tilewright::cli
