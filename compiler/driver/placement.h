// Which tasks of a model run on the processor next to a device: those of open sizes, what counts
// the trips of loops, and what has no parts to compute at once. Inside of the driver. Pure
// functions.
#pragma once

#include <set>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/driver/tasks.h"
#include "compiler/target/target.h"

namespace tilewright::driver {

struct Placement {
  std::string host_reason;           // for people; empty: the target's device runs the task
  std::set<std::string> open_sizes;  // of inputs, for which a call decides that it runs there
};

// By task of these graphs, of which the first one is "main". For targets without a device no task
// has a reason.
std::vector<Placement> PlaceTasks(std::span<const graph::Graph* const> graphs,
                                  const ModelTasks& model, const target::Target& target);

// The processor next to a device: the one that the target names, or else any of the architecture
// that this program runs on.
absl::StatusOr<target::Target> HostOf(const target::Target& target);

}  // namespace tilewright::driver
