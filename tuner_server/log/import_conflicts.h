// Finds the rows that an import must skip, because the log has other rows under the same name.
// Internal to tuner_server/log.
#pragma once

#include "deploy/support/status.h"
#include "tuner_server/log/import_export.h"

namespace tilewright::log {

// Keeps the new rows in `rows`, removes known ones and conflicts, and counts both in `report`. Two
// jobs are the same if model, target, cost model and seed are equal; two trials if their programs
// are; two records if all exported fields are.
absl::Status DropConflicts(TuningLog* log, TuningLog::Import* rows, ImportReport* report);

}  // namespace tilewright::log
