// What the launches of a scheduled program move, counted on the emulated GPU (tests/support/simt),
// and the time that these counts mean. Needs no GPU. One thread at a time.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/codegen/host_device.h"
#include "compiler/driver/tasks.h"
#include "compiler/estimate/group_model.h"
#include "compiler/target/target.h"
#include "tests/support/simt/simt_plan.h"

namespace tilewright::tests {

// Groups of a launch that are counted, at even distances: groups of a launch are alike.
inline constexpr int64_t kCountedGroups = 4;

struct CountedLaunch {
  codegen::Launch launch;
  estimate::LaunchShape shape;  // by the estimate
  simt::TrafficParts parts;     // of the counted groups

  double OfAllGroups(int64_t counted) const {
    return static_cast<double>(counted) * std::max(1.0, shape.groups / kCountedGroups);
  }
};
struct CountedProgram {
  std::string text;  // CUDA C
  std::vector<CountedLaunch> launches;
  double estimated_ns = 0;
  // The estimate of the same program if its loads and stores took no cycles of their ports: what
  // arithmetic, waiting, memory beyond the first cache, barriers and starts take.
  double without_ports_ns = 0;

  // The estimate with counted cycles of the ports in place of its own.
  double CountedNs(const target::Machine& machine) const;
};

// Whether a task has a product, a convolution or attention in it: what is counted.
bool HasProduct(const driver::Task& task);

// A program of the task, by steps. Errors: schedule.*, those of the passes and of code generation,
// and simt.* of the emulator.
absl::StatusOr<CountedProgram> CountProgram(const std::string& task_text, std::string_view steps,
                                            const target::Target& target);

}  // namespace tilewright::tests
