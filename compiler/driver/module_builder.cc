#include "compiler/driver/module_builder.h"

#include <algorithm>
#include <map>

#include "compiler/graph/graph_passes.h"
#include "deploy/module/launch_names.h"
#include "deploy/runtime/c_abi.h"
#include "deploy/support/hash.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"
#include "deploy/support/version.h"

namespace tilewright::driver {
namespace {

using graph::Graph;
using graph::Node;
using graph::ValueId;
using support::StrCat;

std::vector<module::Dim> Dims(const op::TensorType& type) {
  return {type.shape.begin(), type.shape.end()};
}

absl::StatusOr<module::Tensor> TensorOf(const op::TensorType& type, module::TensorKind kind,
                                        int64_t id) {
  module::Tensor tensor;
  tensor.id = id;
  TW_ASSIGN(tensor.dtype, ModuleDType(type.dtype));
  tensor.shape = Dims(type);
  tensor.kind = kind;
  tensor.bytes = type.bytes();
  return tensor;
}

void Describe(const ir::Target& target, const codegen::Artifact& code, module::Manifest* manifest) {
  manifest->producer["tilewright"] = support::Version();
  manifest->producer["toolchain"] = codegen::ToolchainName();
  manifest->target = target.ToString();
  manifest->cpu_features = target.required_features;
  std::sort(manifest->cpu_features.begin(), manifest->cpu_features.end());
  manifest->code.push_back({code.format, TW_ABI_VERSION, 0, ""});
  for (int64_t bytes : code.workspace_bytes) {
    manifest->workspace_bytes = std::max(manifest->workspace_bytes, bytes);
  }
}

// Adds what a kernel has prepared: tensors behind the arena's intermediates, and the launch that
// writes them once. `inputs` are the task's; returns the tensors.
absl::StatusOr<std::vector<int64_t>> AddPrepared(
    const PreparedKernel& prepared, const std::vector<int64_t>& inputs, const std::string& name,
    const codegen::Artifact& code, module::Manifest* manifest, module::Function* function) {
  std::vector<int64_t> made;
  if (prepared.symbol < 0) return made;
  for (const op::TensorType& type : prepared.tensors) {
    TW_ASSIGN(module::Tensor tensor, TensorOf(type, module::TensorKind::kPrepared,
                                              static_cast<int64_t>(manifest->tensors.size())));
    tensor.name = StrCat(name, ".prepared", tensor.id);
    tensor.offset = (manifest->arena_bytes + module::kTensorAlignment - 1) /
                    module::kTensorAlignment * module::kTensorAlignment;
    manifest->arena_bytes = tensor.offset + tensor.bytes;
    made.push_back(tensor.id);
    manifest->tensors.push_back(std::move(tensor));
  }
  module::Launch launch;
  launch.symbol = code.symbols[static_cast<size_t>(prepared.symbol)];
  for (size_t i : prepared.reads) launch.args.push_back(inputs[i]);
  launch.args.insert(launch.args.end(), made.begin(), made.end());
  launch.num_outputs = static_cast<int64_t>(made.size());
  launch.workspace_bytes = code.workspace_bytes[static_cast<size_t>(prepared.symbol)];
  launch.name = StrCat("prepare ", name);
  function->prepare.push_back(std::move(launch));
  return made;
}

// Lays out a model: which tensor each value is, where constants and intermediates lie.
class ModelLayout {
 public:
  ModelLayout(const Graph& g, const graph::MemoryPlan& plan, module::ModuleParts* parts)
      : g_(g),
        plan_(plan),
        parts_(*parts),
        roots_(graph::StorageRoots(g)),
        tensor_(g.values.size(), -1) {}

  absl::Status Run(module::Function* main) {
    for (ValueId id : g_.inputs) {
      TW_TRY(Add(id, id, module::TensorKind::kInput, 0));
      main->inputs.push_back(tensor_[id]);
    }
    // An output may be a view: its kernel writes the root, under the output's own name and shape.
    for (ValueId id : g_.outputs) {
      if (tensor_[roots_[id]] >= 0) {
        return support::Internal("driver.module.output",
                                 StrCat("expected outputs with storage of their own, found ",
                                        g_.values[id].name, " to share its"));
      }
      TW_TRY(Add(roots_[id], id, module::TensorKind::kOutput, 0));
      main->outputs.push_back(tensor_[roots_[id]]);
    }
    for (const Node& node : g_.nodes) {
      if (node.op == graph::kViewOp) continue;
      for (ValueId id : node.inputs) TW_TRY(Constant(roots_[id]));
      for (ValueId id : node.outputs) {
        if (tensor_[id] >= 0) continue;
        TW_TRY(Add(id, id, module::TensorKind::kIntermediate, plan_.offset[id]));
      }
    }
    parts_.manifest.arena_bytes = plan_.arena_bytes;
    parts_.manifest.constants_bytes = static_cast<int64_t>(parts_.constants.size());
    return absl::OkStatus();
  }

  int64_t TensorId(ValueId id) const { return tensor_[roots_[id]]; }

 private:
  absl::Status Add(ValueId root, ValueId shown, module::TensorKind kind, int64_t offset) {
    const graph::Value& value = g_.values[shown];
    auto& tensors = parts_.manifest.tensors;
    TW_ASSIGN(module::Tensor tensor,
              TensorOf(value.type, kind, static_cast<int64_t>(tensors.size())));
    tensor.name = value.name;
    tensor.offset = offset;
    tensor_[root] = tensor.id;
    tensors.push_back(std::move(tensor));
    return absl::OkStatus();
  }

  // Equal bytes are stored once.
  absl::Status Constant(ValueId id) {
    const graph::Value& value = g_.values[id];
    if (value.constant == nullptr || tensor_[id] >= 0) return absl::OkStatus();
    auto [it, fresh] =
        offsets_.try_emplace(support::Sha256Hex(value.constant->view()), parts_.constants.size());
    if (fresh) {
      parts_.constants += value.constant->view();
      const size_t aligned = (parts_.constants.size() + module::kTensorAlignment - 1) /
                             module::kTensorAlignment * module::kTensorAlignment;
      parts_.constants.resize(aligned, '\0');
    }
    return Add(id, id, module::TensorKind::kConstant, static_cast<int64_t>(it->second));
  }

  const Graph& g_;
  const graph::MemoryPlan& plan_;
  module::ModuleParts& parts_;
  const std::vector<ValueId> roots_;
  std::vector<int64_t> tensor_;  // per storage root
  std::map<std::string, size_t> offsets_;
};

}  // namespace

absl::StatusOr<module::ModuleParts> ModelParts(
    const Graph& fused, const std::vector<Task>& tasks, const std::vector<PreparedKernel>& prepared,
    const graph::MemoryPlan& plan, const ir::Target& target, const codegen::Artifact& code,
    const CompileOptions& options, CompileReport* report) {
  module::ModuleParts parts;
  module::Manifest& manifest = parts.manifest;
  manifest.name = options.model_name.empty() ? fused.name : options.model_name;
  Describe(target, code, &manifest);
  parts.code.push_back(code.bytes);
  module::Function main;
  main.name = "main";
  ModelLayout layout(fused, plan, &parts);
  TW_TRY(layout.Run(&main));
  std::map<std::string, size_t> by_hash;
  for (size_t i = 0; i < tasks.size(); ++i) by_hash[tasks[i].hash] = i;
  std::vector<module::LaunchNames> names;
  for (const Node& node : fused.nodes) {
    if (node.op == graph::kViewOp) continue;
    const size_t i = by_hash.at(TaskHash(graph::CanonicalText(*node.body)));
    const CompileReport::Kernel& kernel = report->kernels[i];
    module::Launch launch;
    launch.symbol = code.symbols[i];
    for (ValueId id : node.inputs) launch.args.push_back(layout.TensorId(id));
    TW_ASSIGN(std::vector<int64_t> made,
              AddPrepared(prepared[i], launch.args, node.name, code, &manifest, &main));
    launch.args.insert(launch.args.end(), made.begin(), made.end());
    for (ValueId id : node.outputs) launch.args.push_back(layout.TensorId(id));
    launch.num_outputs = static_cast<int64_t>(node.outputs.size());
    launch.workspace_bytes = code.workspace_bytes[i];
    launch.name = node.name;
    names.push_back({tasks[i].label, node.name, graph::SourcesOf(fused, node)});
    launch.task = kernel.task_hash;
    launch.steps = kernel.steps;
    launch.program_hash = kernel.program_hash;
    launch.flops = kernel.flops;
    main.launches.push_back(std::move(launch));
  }
  manifest.functions.push_back(std::move(main));
  manifest.provenance[module::kLaunchNamesKey] = module::LaunchNamesText(names);
  if (!options.job.empty()) manifest.provenance["job"] = options.job;
  if (!options.model_digest.empty()) manifest.provenance["model_digest"] = options.model_digest;
  std::vector<std::string> records;
  for (const CompileReport::Kernel& kernel : report->kernels) {
    if (!kernel.measurement_id.empty()) records.push_back(kernel.measurement_id);
  }
  if (!records.empty()) manifest.provenance["log_records"] = support::Join(records, ",");
  report->arena_bytes = manifest.arena_bytes;
  report->arena_bound_bytes = plan.liveness_bound;
  report->constant_bytes = manifest.constants_bytes;
  report->workspace_bytes = manifest.workspace_bytes;
  return parts;
}

absl::StatusOr<module::ModuleParts> CandidateParts(
    const Graph& task, const std::vector<TaskInput>& inputs, const PreparedKernel& prepared,
    const std::string& steps, const std::string& program_hash, const ir::Target& target,
    const codegen::Artifact& code) {
  module::ModuleParts parts;
  module::Manifest& manifest = parts.manifest;
  const Task description = DescribeTask(task);
  manifest.name = description.name;
  Describe(target, code, &manifest);
  parts.code.push_back(code.bytes);
  module::Function main;
  main.name = "main";
  module::Launch launch;
  module::Measurement measurement;
  for (size_t i = 0; i < inputs.size(); ++i) {
    TW_ASSIGN(module::Tensor tensor, TensorOf(inputs[i].type, module::TensorKind::kInput,
                                              static_cast<int64_t>(manifest.tensors.size())));
    tensor.name = StrCat(inputs[i].weight ? "weight" : "input", i);
    main.inputs.push_back(tensor.id);
    launch.args.push_back(tensor.id);
    measurement.inputs.push_back(
        {tensor.id, inputs[i].seed, inputs[i].distribution, inputs[i].far});
    manifest.tensors.push_back(std::move(tensor));
  }
  TW_ASSIGN(std::vector<int64_t> made,
            AddPrepared(prepared, launch.args, description.name, code, &manifest, &main));
  launch.args.insert(launch.args.end(), made.begin(), made.end());
  for (size_t i = 0; i < task.outputs.size(); ++i) {
    TW_ASSIGN(module::Tensor tensor,
              TensorOf(task.values[task.outputs[i]].type, module::TensorKind::kOutput,
                       static_cast<int64_t>(manifest.tensors.size())));
    tensor.name = StrCat("output", i);
    main.outputs.push_back(tensor.id);
    launch.args.push_back(tensor.id);
    manifest.tensors.push_back(std::move(tensor));
  }
  launch.symbol = code.symbols[0];
  launch.num_outputs = static_cast<int64_t>(task.outputs.size());
  launch.workspace_bytes = code.workspace_bytes[0];
  launch.name = description.name;
  launch.task = description.hash;
  launch.steps = steps;
  launch.program_hash = program_hash;
  launch.flops = description.flops;
  main.launches.push_back(std::move(launch));
  measurement.flops = description.flops;
  manifest.functions.push_back(std::move(main));
  manifest.measurement = std::move(measurement);
  return parts;
}

}  // namespace tilewright::driver
