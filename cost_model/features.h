// What the cost models see of a program: one fixed vector of named columns, computed from the
// lowered loop program (scheduled tensor IR after LowerToLoops, stage kLoops). The statement with
// most arithmetic is described in detail, the others in sums. Columns are logs, ratios and classes,
// so that programs of different tasks are comparable; none is NaN or infinite. The analytical
// model's estimate and its parts are columns, too (analytical_model.h).
//
// Machines of loops and machines of groups and threads have a schema each (target::FeatureSet): the
// latter's programs are described by groups, occupancy, shared memory and how accesses coalesce
// (group_features.cc). The last column of both is the estimate, prior.score.
//
// Sources of the columns: Ansor (OSDI'20, appendix) for access and loop features; the
// hardware-aware ones (registers, cache working sets, ports) follow the machine's limits in the
// target.
//
// Pure functions; thread-safe. A new column changes SchemaHash, and models of another schema refuse
// to load.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/ir/ir.h"
#include "compiler/target/target.h"

namespace tilewright::cost_model {

using FeatureVector = std::vector<float>;
using target::FeatureSet;

const std::vector<std::string>& FeatureNames(FeatureSet set = FeatureSet::kLoops);
// 16 hexadecimal digits over the version and the column names.
const std::string& SchemaHash(FeatureSet set = FeatureSet::kLoops);

// `flops` of one run of the task (what the unscheduled program computes); columns of wasted work
// relate to it. The columns are those of the machine's set. invalid_argument features.stage for a
// function that is not at stage kLoops.
absl::StatusOr<FeatureVector> ComputeFeatures(const ir::Function& loops, double flops,
                                              const target::Target& target);
// 16 hexadecimal digits over the exact values.
std::string FeaturesHash(const FeatureVector& features);
// Returns the analytical estimate that is in the features: nanoseconds of one run.
double EstimatedNs(const FeatureVector& features);
// Puts a better one in its place: of a rule that knows the machine's programs. All programs that
// are compared must have theirs from the same place.
void SetEstimate(double ns, FeatureVector* features);
// Position of a column. REQUIRES: it exists.
size_t FeatureIndex(std::string_view name, FeatureSet set = FeatureSet::kLoops);

}  // namespace tilewright::cost_model
