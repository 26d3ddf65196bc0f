// What an import must leave out, because the log has something else under the same name. Internal
// to tuner_server/log.
#pragma once

#include "deploy/support/status.h"
#include "tuner_server/log/import_export.h"

namespace tilewright::log {

// Sorts the rows into new ones, which stay in `rows`, known ones and conflicts, which go; `report`
// counts them. Two jobs are the same when their model, target, cost model and seed are; two trials
// when their program is; two records when everything that is exported is.
absl::Status DropConflicts(TuningLog* log, TuningLog::Import* rows, ImportReport* report);

}  // namespace tilewright::log
