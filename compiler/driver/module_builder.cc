#include "compiler/driver/module_builder.h"

#include <algorithm>
#include <map>
#include <utility>

#include "compiler/driver/launch_writer.h"
#include "compiler/driver/model_layout.h"
#include "compiler/graph/loops.h"
#include "compiler/targets/backend.h"
#include "deploy/module/launch_names.h"
#include "deploy/module/size_plan.h"
#include "deploy/runtime/c_abi.h"
#include "deploy/runtime/external_library.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"
#include "deploy/support/version.h"

namespace tilewright::driver {
namespace {

using graph::Graph;
using graph::Node;
using graph::ValueId;
using support::StrCat;

void Describe(const target::Target& target, module::Manifest* manifest) {
  manifest->producer["tilewright"] = support::Version();
  manifest->producer["toolchain"] = targets::BackendOf(target).toolchain();
  manifest->target = target.ToString();
}

// Adds a part's code object. Without programs (no result has elements) there is none.
void AddCode(const CodePart& part, module::ModuleParts* parts) {
  const codegen::Artifact& code = part.code;
  if (code.programs.empty()) return;
  const targets::Backend& backend = targets::BackendOf(part.target);
  module::Manifest* manifest = &parts->manifest;
  module::CodeObject object;
  object.format = code.format;
  object.abi_version = TW_ABI_VERSION;
  if (backend.on_device) object.device = part.target.kind;
  if (code.format != runtime::kLibraryFormat) {
    auto& features = backend.on_device ? object.features : manifest->cpu_features;
    features = code.required_features;
    std::sort(features.begin(), features.end());
  }
  manifest->code.push_back(std::move(object));
  parts->code.push_back(code.bytes);
  for (const codegen::Program& program : code.programs) {
    const int64_t bytes = program.workspace_bytes.constant().value_or(0);
    manifest->workspace_bytes = std::max(manifest->workspace_bytes, bytes);
  }
}

// "at_batch_1_seq_128"; its own where names make two equal.
std::string FunctionName(const module::Sizes& at, const module::Manifest& manifest) {
  if (at.empty()) return "main";
  std::string name = "at";
  for (const auto& [variable, size] : at) name += StrCat("_", variable, "_", size);
  while (manifest.FindFunction(name) != nullptr) name += "_";
  return name;
}

// The functions of a model from its graphs.
class ModelWriter {
 public:
  // All must outlive it. REQUIRES: the manifest has its size variables.
  ModelWriter(const std::vector<Task>& tasks, const std::vector<PlacedTask>& placed,
              const std::vector<CompileReport::Kernel>& kernels, const std::vector<CodePart>& code,
              module::ModuleParts* parts)
      : tasks_(tasks),
        placed_(placed),
        kernels_(kernels),
        code_(code),
        manifest_(parts->manifest),
        alignment_(targets::BackendOf(code[0].target).alignment),
        constants_(alignment_, parts) {}

  absl::Status Add(std::span<const ModelFunction> functions) {
    // Temporaries of programs lie behind all intermediates.
    std::vector<ModelLayout> layouts;
    for (const ModelFunction& of : functions) {
      module::Function function;
      function.name = FunctionName(of.at, manifest_);
      function.at = of.at;
      TW_TRY(layouts.emplace_back(*of.fused, of.plan, &constants_, &manifest_).Run(&function));
      for (const graph::Storage& part : graph::StorageOf(*of.fused)) {
        if (part.offset.DivideExactly(op::Dim(alignment_))) continue;
        manifest_.alignment = code_[0].target.machine.tensor_alignment();
      }
      if (!manifest_.open_sizes()) manifest_.arena_bytes = of.plan.arena_bytes;
      manifest_.functions.push_back(std::move(function));
    }
    LaunchWriter writer(code_, alignment_, &manifest_);
    for (size_t f = 0; f < functions.size(); ++f) {
      TW_TRY(AddLaunches(functions[f], layouts[f], &writer, &manifest_.functions[f]));
    }
    return absl::OkStatus();
  }

 private:
  absl::Status AddLaunches(const ModelFunction& of, const ModelLayout& layout, LaunchWriter* writer,
                           module::Function* function) {
    Scratch scratch = writer->ScratchBehind(of.plan.arena_bytes);
    if (graph::IsSymbolic(*of.fused)) scratch = {0, layout.LastIntermediates()};
    std::vector<module::LaunchNames> names;
    std::vector<int64_t> first;  // by node: how many launches there are before it
    for (size_t n = 0; n < of.fused->nodes.size(); ++n) {
      const Node& node = of.fused->nodes[n];
      first.push_back(static_cast<int64_t>(function->launches.size()));
      if (graph::IsView(node)) continue;
      const auto task = static_cast<size_t>(of.of_node[n]);
      TW_ASSIGN(std::vector<module::Launch> launches,
                Launches(node, task, layout, scratch, writer, function));
      for (module::Launch& launch : launches) {
        names.push_back({tasks_[task].label, node.name, graph::SourcesOf(*of.fused, node)});
        function->launches.push_back(std::move(launch));
      }
    }
    manifest_.provenance[module::LaunchNamesKey(function->name)] = module::LaunchNamesText(names);
    for (const graph::Loop& loop : graph::LoopsOf(*of.fused)) {
      function->loops.push_back(LoopOf(loop, first, layout));
    }
    return absl::OkStatus();
  }

  static module::Loop LoopOf(const graph::Loop& loop, const std::vector<int64_t>& first,
                             const ModelLayout& layout) {
    module::Loop made{first[loop.begin], first[loop.end], {}, {}};
    const auto id = [&](ValueId value) { return layout.TensorId(value); };
    for (const graph::Loop::Carried& c : loop.carried) {
      made.carried.push_back({id(c.init), id(c.value), id(c.next)});
    }
    for (const graph::Loop::Stacked& s : loop.stacked) {
      made.stacked.push_back({id(s.part), id(s.whole)});
    }
    return made;
  }

  absl::StatusOr<std::vector<module::Launch>> Launches(const Node& node, size_t task,
                                                       const ModelLayout& layout,
                                                       const Scratch& scratch, LaunchWriter* writer,
                                                       module::Function* function) const {
    const PlacedTask& placed = placed_[task];
    const CompileReport::Kernel& kernel = kernels_[task];
    std::vector<int64_t> params;
    for (ValueId id : node.inputs) params.push_back(layout.TensorId(id));
    TW_ASSIGN(const std::vector<int64_t> made,
              writer->Prepare(placed.part, placed.prepared, params, node.name, function));
    params.insert(params.end(), made.begin(), made.end());
    for (ValueId id : node.outputs) params.push_back(layout.TensorId(id));
    module::Launch about;
    about.name = node.name;
    about.task = kernel.task_hash;
    about.steps = kernel.steps;
    about.program_hash = kernel.program_hash;
    about.flops = kernel.flops;
    for (const std::string& size : graph::SizeVariables(*node.body)) {
      about.sizes.push_back(module::Dim::Variable(size));
    }
    return writer->Launches(placed.part, placed.program, params, scratch, about);
  }

  const std::vector<Task>& tasks_;
  const std::vector<PlacedTask>& placed_;
  const std::vector<CompileReport::Kernel>& kernels_;
  const std::vector<CodePart>& code_;
  module::Manifest& manifest_;
  const int64_t alignment_;
  ConstantSection constants_;
};

void Substitute(const std::map<std::string, module::Dim>& values, module::Manifest* manifest) {
  const auto all = [&](std::vector<module::Dim>* dims) {
    for (module::Dim& dim : *dims) dim = dim.Substitute(values);
  };
  for (module::Tensor& tensor : manifest->tensors) all(&tensor.shape);
  if (manifest->state) {
    module::State& state = *manifest->state;
    state.length = *values.at(state.length).variables().begin();
    state.next = state.next.Substitute(values);
  }
  for (module::SizeEquality& equal : manifest->equal_sizes) {
    equal.left = equal.left.Substitute(values);
    equal.right = equal.right.Substitute(values);
  }
  for (module::Function& function : manifest->functions) {
    for (module::SizeCheck& check : function.checks) all(&check.expected);
    for (module::Launch& launch : function.launches) {
      all(&launch.sizes);
      launch.workspace_bytes = launch.workspace_bytes.Substitute(values);
      if (launch.open_flops) launch.open_flops = launch.open_flops->Substitute(values);
    }
  }
}

void AddProvenance(const CompileOptions& options, const CompileReport& report,
                   module::Manifest* manifest) {
  if (!options.job.empty()) manifest->provenance["job"] = options.job;
  if (!options.model_digest.empty()) manifest->provenance["model_digest"] = options.model_digest;
  std::vector<std::string> records, predicted;
  for (const CompileReport::Kernel& kernel : report.kernels) {
    if (!kernel.measurement_id.empty()) records.push_back(kernel.measurement_id);
    if (kernel.predicted) predicted.push_back(kernel.task_hash);
  }
  if (!records.empty()) manifest->provenance["log_records"] = support::Join(records, ",");
  if (!predicted.empty()) {
    manifest->provenance["predicted_tasks"] = support::Join(predicted, ",");
  }
}

}  // namespace

absl::StatusOr<module::ModuleParts> ModelParts(std::span<const ModelFunction> functions,
                                               const std::vector<Task>& tasks,
                                               const std::vector<PlacedTask>& placed,
                                               const std::vector<CodePart>& code,
                                               const CompileOptions& options,
                                               CompileReport* report) {
  module::ModuleParts parts;
  module::Manifest& manifest = parts.manifest;
  const Graph& main = *functions[0].fused;
  manifest.name = options.model_name.empty() ? main.name : options.model_name;
  Describe(code[0].target, &manifest);
  for (const CodePart& part : code) AddCode(part, &parts);
  std::map<std::string, module::Dim> counted;  // variables of sizes that may be 0
  for (const std::string& name : graph::SizeVariables(main)) {
    const graph::SizeRange range = main.size_ranges.at(name);
    if (range.size.empty()) {
      manifest.size_vars.push_back({name, range.min, range.max});
    } else {
      manifest.size_vars.push_back({range.size, range.min - 1, range.max - 1});
      counted.emplace(name, module::Dim::Variable(range.size) + 1);
    }
  }
  for (const graph::SizeEquality& equal : main.equal_sizes) {
    manifest.equal_sizes.push_back({equal.left, equal.right, equal.what});
  }
  TW_TRY(ModelWriter(tasks, placed, report->kernels, code, &parts).Add(functions));
  if (!counted.empty()) Substitute(counted, &manifest);
  manifest.format_version = manifest.NeededFormatVersion();
  if (manifest.open_sizes()) TW_TRY(module::SetNeedsAtMaxima(&manifest));
  AddProvenance(options, *report, &manifest);
  report->arena_bytes = manifest.arena_bytes;
  for (const ModelFunction& of : functions) {
    report->arena_bound_bytes = std::max(report->arena_bound_bytes, of.plan.liveness_bound);
  }
  for (const module::Tensor& tensor : manifest.tensors) {
    // Of open sizes they have a region of their own.
    if (tensor.kind == module::TensorKind::kPrepared && !manifest.open_sizes())
      report->arena_bound_bytes += tensor.bytes;
  }
  report->constant_bytes = manifest.constants_bytes;
  report->workspace_bytes = manifest.workspace_bytes;
  return parts;
}

absl::StatusOr<module::ModuleParts> CandidateParts(
    const Graph& task, const std::vector<TaskInput>& inputs, const PreparedKernel& prepared,
    const std::string& steps, const std::string& program_hash, const target::Target& target,
    const codegen::Artifact& code) {
  module::ModuleParts parts;
  module::Manifest& manifest = parts.manifest;
  const Task description = DescribeTask(task);
  manifest.name = description.name;
  const std::vector<CodePart> only = {{target, code}};
  Describe(target, &manifest);
  AddCode(only[0], &parts);
  module::Function main;
  main.name = "main";
  LaunchWriter writer(only, targets::BackendOf(target).alignment, &manifest);
  std::vector<int64_t> params;
  module::Measurement measurement;
  for (size_t i = 0; i < inputs.size(); ++i) {
    TW_ASSIGN(module::Tensor tensor, TensorOf(inputs[i].type, module::TensorKind::kInput,
                                              static_cast<int64_t>(manifest.tensors.size())));
    tensor.name = StrCat(inputs[i].weight ? "weight" : "input", i);
    main.inputs.push_back(tensor.id);
    params.push_back(tensor.id);
    measurement.inputs.push_back(
        {tensor.id, inputs[i].seed, inputs[i].distribution, inputs[i].cold});
    manifest.tensors.push_back(std::move(tensor));
  }
  TW_ASSIGN(std::vector<int64_t> made,
            writer.Prepare(0, prepared, params, description.name, &main));
  params.insert(params.end(), made.begin(), made.end());
  for (size_t i = 0; i < task.outputs.size(); ++i) {
    TW_ASSIGN(module::Tensor tensor,
              TensorOf(task.values[task.outputs[i]].type, module::TensorKind::kOutput,
                       static_cast<int64_t>(manifest.tensors.size())));
    tensor.name = StrCat("output", i);
    main.outputs.push_back(tensor.id);
    params.push_back(tensor.id);
    manifest.tensors.push_back(std::move(tensor));
  }
  module::Launch about;
  about.name = description.name;
  about.task = description.hash;
  about.steps = steps;
  about.program_hash = program_hash;
  about.flops = description.flops;
  TW_ASSIGN(main.launches, writer.Launches(0, 0, params, writer.ScratchBehind(0), about));
  measurement.flops = description.flops;
  manifest.functions.push_back(std::move(main));
  manifest.measurement = std::move(measurement);
  return parts;
}

}  // namespace tilewright::driver
