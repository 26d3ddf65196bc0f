// The columns that only machines of groups and threads have. Pure functions; thread-safe.
#pragma once

#include "cost_model/analytical_model.h"
#include "cost_model/feature_row.h"
#include "cost_model/loop_summary.h"

namespace tilewright::cost_model {

// Adds the columns of the critical statement's launch and accesses. Returns the estimate that they
// are from.
TimeEstimate AddGroupFeatures(const ProgramSummary& program, const StatementSummary& critical,
                              const target::Target& target, FeatureRow* row);

}  // namespace tilewright::cost_model
