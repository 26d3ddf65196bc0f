// The compiler's public API: graph + target + schedules → module; task + steps + target → one-kernel candidate module.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "compiler/driver/tasks.h"
#include "compiler/graph/graph.h"
#include "compiler/ir/target.h"

namespace tilewright::driver {

// Where schedules come from (the tuning log implements it). Empty result = none known: the default schedule is used.
class ScheduleProvider {
 public:
  virtual ~ScheduleProvider() = default;
  struct Found {
    std::string steps;                     // empty = none
    std::string program_hash;              // must match the replay, else the record is stale and not applied
    std::string measurement_id;
  };
  virtual Found Find(const std::string& task_hash, const ir::Target& target) = 0;
};

struct CompileOptions {
  std::string dump_dir;
  std::string model_digest;                // provenance
  std::string job;                         // provenance
};
struct CompileReport {
  struct Kernel {
    std::string task_hash, task_name, steps, program_hash;
    int uses;
    bool tuned, stale;
    double flops;
  };
  std::vector<Kernel> kernels;
  int64_t arena_bytes = 0, constant_bytes = 0;
  double seconds_import = 0, seconds_graph = 0, seconds_lower = 0, seconds_codegen = 0;
};
// The bytes of a model.tw; reproducible: same inputs, same bytes.
absl::StatusOr<std::string> CompileModel(const graph::Graph& fused, const ir::Target& target, ScheduleProvider* schedules,
                                         const CompileOptions& options, CompileReport* report);

struct BuiltCandidate {
  std::string module_bytes;                // one function; measurement inputs are specified, weights never travel
  std::string program_hash;
  double seconds_lower = 0, seconds_codegen = 0, seconds_link = 0;
};
absl::StatusOr<BuiltCandidate> BuildCandidate(std::string_view task_text, std::string_view steps, const ir::Target& target,
                                              const TaskCheck* check, const std::string& test_miscompile = "");

}  // namespace tilewright::driver
