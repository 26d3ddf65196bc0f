// Between the builder's own values and its messages. Pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/codegen/codegen.h"
#include "compiler/driver/compile.h"
#include "compiler/driver/tasks.h"
#include "tilewright/v1/builder.pb.h"
#include "tuner_server/search/search_task.h"

namespace tilewright::search {

// Lower-case letters, digits and '-', starting with a letter; "model" when nothing is left.
std::string ResourceName(std::string_view text);
// invalid_argument (builder.checks.too_large) if the expected outputs of the task are too large to
// compare, or would take longer to compute than a request may. Reads the task; computes nothing.
absl::Status CheckMeasurable(const driver::Task& task);
// What an agent needs to make the operands of a task's measurement.
absl::Status DescribeInputs(const driver::Task& task, uint64_t seed, v1::InputSpec* spec);
void FillResources(const std::vector<codegen::KernelResources>& kernels,
                   v1::ResourceReport* report);
// `chooser`: what ranks now (prior, model or random).
void FillAsked(const AskResult& result, const std::string& chooser, const std::string& model_id,
               v1::Asked* reply);
// Of a module that was just written, manifest digest and the summary JSON:
//   {"target", "inputs", "outputs", "functions": [{name, at, launches}],
//    "kernels": [{task_hash, task_name, uses, tuned, stale, stale_reason, steps, program_hash,
//                 measurement_id, flops, bytes}],
//    "arena_bytes", "arena_bound_bytes", "constant_bytes", "workspace_bytes",
//    "ram_bytes": {total, weights, arena, workspace, inputs_outputs, code},
//    "seconds": {graph, lower, codegen, link}}
absl::Status DescribeModule(const std::string& path, const target::Target& target,
                            const driver::CompileReport& report, v1::ModuleCompiled* reply);

// The schedules that a CompileModule request names.
class RequestSchedules final : public driver::ScheduleProvider {
 public:
  explicit RequestSchedules(const v1::CompileModule& request) : request_(request) {}
  Found Find(const std::string& task_hash, const target::Target& target) override;

 private:
  const v1::CompileModule& request_;
};

}  // namespace tilewright::search
