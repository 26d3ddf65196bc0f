// A lowered function cut into launches: what a host does to run it on a device. Each kernel is a
// function of the tensor IR itself (so it prints, verifies and is interpreted like any other); its
// grid and its groups of threads are its bound loops. Value types; pure function.
#pragma once

#include <array>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/ir/ir.h"
#include "compiler/target/target.h"

namespace tilewright::codegen {

struct Launch {
  ir::Function kernel;  // parameters: the size parameters of the plan, then the buffers it uses
  std::array<ir::Expr, 3> grid, group;  // x y z; over the size parameters, group constant
  std::vector<int> arguments;           // indices into HostPlan::buffers
  int num_outputs = 0;                  // the last arguments are written, the others only read
  // Bytes of the shared buffers of one group.
  int64_t shared_bytes = 0;
};

struct HostPlan {
  std::string name;
  std::vector<ir::Var> size_params;
  std::vector<ir::Buffer> buffers;  // the function's parameters, then what the host allocates
  size_t num_params = 0;            // how many of them are parameters
  std::vector<Launch> launches;     // in order
};

// f: kLoops or kFlat, after merge_threads: sequences and global allocations around launches. A
// statement without bound loops is a launch of one thread. Refuses (codegen.split_host_device.*)
// anything else on the host's side.
absl::StatusOr<HostPlan> SplitHostDevice(const ir::Function& f);

// Whether every launch fits a device of the kind: codegen.launch_limits.threads | groups |
// shared_bytes.
absl::Status CheckLaunchLimits(const HostPlan& plan, const target::LaunchLimits& limits);

}  // namespace tilewright::codegen
