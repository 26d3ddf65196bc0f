// The compiler's public API: graph + target + schedules → module; task + steps + target →
// one-kernel candidate module. Both are reproducible: same inputs, same bytes. Functions keep no
// state; code generation serialises its linker, so concurrent calls are safe.
#pragma once

#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/codegen/codegen.h"
#include "compiler/driver/tasks.h"
#include "compiler/graph/graph.h"
#include "compiler/target/target.h"
#include "deploy/module/module_writer.h"

namespace tilewright::driver {

// Where schedules come from (the tuning log implements it). Empty result = none known: the default
// schedule is used.
class ScheduleProvider {
 public:
  virtual ~ScheduleProvider() = default;
  struct Found {
    std::string steps;         // empty = none
    std::string program_hash;  // must match the replay, else the record is stale and not applied
    std::string measurement_id;
    bool predicted = false;  // it was never measured
  };
  virtual Found Find(const std::string& task_hash, const target::Target& target) = 0;
};

struct CompileOptions {
  std::string
      dump_dir;  // --dump-ir: one folder per kernel with the IR after each pass; none where empty
  std::string model_name;    // the manifest's name; the graph's where empty
  std::string model_digest;  // provenance
  std::string job;           // provenance
  // The same model at some sizes of a graph of open sizes (SpecialiseModel). Each becomes a
  // function of the module, with kernels of its own where tasks differ. Runs at these sizes take
  // it.
  std::span<const graph::Graph> specialised = {};
};
// Whether the processor alone runs modules for the target: it runs all of their launches.
bool RunsOnProcessor(const target::Target& target);
// By task of these graphs, of which the first one is "main": whether the processor next to the
// target's device runs it, by any schedule (placement.h). Nothing measures it on the device.
std::vector<bool> TasksOnHost(std::span<const graph::Graph* const> graphs, const ModelTasks& model,
                              const target::Target& target);

struct CompileReport {
  struct Kernel {
    std::string task_hash, task_name, task_label, steps, program_hash;
    int uses = 0;                      // in all functions of the module
    bool tuned = false;                // a provided schedule that was measured was applied
    bool predicted = false;            // one that was never measured
    bool on_host = false;              // on the processor next to the target's device
    std::string host_reason;           // why it is there
    std::set<std::string> open_sizes;  // that are the reason, where calls decide about them
    bool stale = false;  // one was provided but did not replay to its hash: `stale_reason` says how
    std::string stale_reason;
    std::string measurement_id;
    std::string library;  // whose function computes it; empty: a kernel of the compiler does
    double flops = 0;
    int64_t bytes = 0;  // operands and results of one use, each once
  };
  std::vector<Kernel> kernels;  // in order of first use
  int64_t arena_bytes = 0, constant_bytes = 0, workspace_bytes = 0;
  int64_t arena_bound_bytes = 0;  // of what lives at a time: no arena can be smaller
  double seconds_graph = 0, seconds_lower = 0, seconds_codegen = 0, seconds_link = 0;
};
// The parts of a model.tw, which refer to the graphs' weights. `fused` is what RunGraphPasses
// returns; `schedules` and `report` may be null. INVALID_ARGUMENT driver.specialise.* if a
// specialised graph is not the same model.
absl::StatusOr<module::ModuleParts> CompileParts(const graph::Graph& fused,
                                                 const target::Target& target,
                                                 ScheduleProvider* schedules,
                                                 const CompileOptions& options,
                                                 CompileReport* report);
// The same as the bytes of the file.
absl::StatusOr<std::string> CompileModel(const graph::Graph& fused, const target::Target& target,
                                         ScheduleProvider* schedules, const CompileOptions& options,
                                         CompileReport* report);

struct BuiltCandidate {
  std::string module_bytes;  // one function; measurement inputs are specified, weights never travel
  std::string program_hash;  // ir::ProgramHash of the scheduled function
  double seconds_lower = 0, seconds_codegen = 0, seconds_link = 0;
  std::vector<codegen::KernelResources> resources;  // of its kernels, where a compiler says so
};
// `check` null: the module asks for a timing without a result check. Errors of the steps are
// schedule.*; test_miscompile plants a fault for tests ("tail" | "init").
absl::StatusOr<BuiltCandidate> BuildCandidate(std::string_view task_text, std::string_view steps,
                                              const target::Target& target, const TaskCheck* check,
                                              const std::string& test_miscompile = "");

// Whether the kernel of a task of open sizes chooses between two algorithms when it runs, each by
// its default schedule. Steps that are given for such a task leave it only one of them.
absl::StatusOr<bool> ChoosesWhenItRuns(const graph::Graph& task);

// The schedule a task gets when nothing is known about it, in the language of all schedules. Of
// open sizes that of the first algorithm: a model's typical sizes may choose another
// (CompileModel).
absl::StatusOr<std::string> DefaultSteps(std::string_view task_text, const target::Target& target);

}  // namespace tilewright::driver
