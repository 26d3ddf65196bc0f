// The columns that only machines of groups and threads have. Pure functions; thread-safe.
#pragma once

#include "compiler/estimate/analytical_model.h"
#include "compiler/estimate/loop_summary.h"
#include "cost_model/feature_row.h"

namespace tilewright::cost_model {

// Adds the columns of the critical statement's launch and accesses. Returns the estimate that they
// are from.
estimate::TimeEstimate AddGroupFeatures(const estimate::ProgramSummary& program,
                                        const estimate::StatementSummary& critical,
                                        const target::Target& target, FeatureRow* row);

}  // namespace tilewright::cost_model
