#include "compiler/driver/module_builder.h"

#include <algorithm>
#include <map>
#include <utility>

#include "compiler/graph/graph_passes.h"
#include "compiler/ir/buffer_bytes.h"
#include "compiler/targets/backend.h"
#include "deploy/module/launch_names.h"
#include "deploy/module/size_plan.h"
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

absl::StatusOr<module::Tensor> TensorOf(const op::TensorType& type, module::TensorKind kind,
                                        int64_t id) {
  module::Tensor tensor;
  tensor.id = id;
  TW_ASSIGN(tensor.dtype, ModuleDType(type.dtype));
  tensor.shape = type.shape;
  tensor.kind = kind;
  if (type.fixed()) tensor.bytes = type.bytes();  // SetNeedsAtMaxima knows the others
  return tensor;
}

int64_t RoundUp(int64_t bytes, int64_t alignment) {
  return (bytes + alignment - 1) / alignment * alignment;
}

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
  std::vector<std::string>& features = backend.on_device ? object.features : manifest->cpu_features;
  features = code.required_features;
  std::sort(features.begin(), features.end());
  manifest->code.push_back(std::move(object));
  parts->code.push_back(code.bytes);
  for (const codegen::Program& program : code.programs) {
    const int64_t bytes = program.workspace_bytes.constant().value_or(0);
    manifest->workspace_bytes = std::max(manifest->workspace_bytes, bytes);
  }
}

// Turns programs into launches. What passes between the launches of one program lies behind the
// arena's intermediates, in one place that all programs use in turn; prepared tensors follow.
class LaunchWriter {
 public:
  LaunchWriter(const std::vector<CodePart>& parts, int64_t alignment, module::Manifest* manifest)
      : parts_(parts), alignment_(alignment), manifest_(*manifest) {
    scratch_ = RoundUp(manifest_.arena_bytes, alignment_);
    int64_t objects = 0;
    for (const CodePart& part : parts_) {
      object_.push_back(objects);
      objects += part.code.programs.empty() ? 0 : 1;
      for (const codegen::Program& program : part.code.programs) {
        const int64_t bytes = ScratchBytes(program);
        if (bytes > 0) manifest_.arena_bytes = std::max(manifest_.arena_bytes, scratch_ + bytes);
      }
    }
  }

  // The launches of program `index` of a part on the tensors of its function's parameters. The last
  // launch carries what `about` says of the task.
  absl::StatusOr<std::vector<module::Launch>> Launches(size_t part, int index,
                                                       const std::vector<int64_t>& params,
                                                       const module::Launch& about) {
    const codegen::Program& program = parts_[part].code.programs[static_cast<size_t>(index)];
    std::vector<int64_t> tensors = params;
    TW_TRY(AddTemporaries(program, about.name, &tensors));
    std::vector<module::Launch> launches;
    for (const codegen::Call& call : program.calls) {
      module::Launch& launch = launches.emplace_back();
      if (launches.size() == program.calls.size()) launch = about;
      launch.name = about.name;
      launch.task = about.task;
      launch.symbol = call.symbol;
      launch.code = object_[part];
      launch.grid = call.grid;
      launch.group = call.group;
      for (int buffer : call.buffers) launch.args.push_back(tensors[static_cast<size_t>(buffer)]);
      launch.num_outputs = call.num_outputs;
      launch.workspace_bytes = program.workspace_bytes;
      launch.sizes = about.sizes;
    }
    return launches;
  }

  // Adds what a task has prepared: tensors at the end of the arena, and the launches that write
  // them once. `inputs` are the task's; returns the tensors.
  absl::StatusOr<std::vector<int64_t>> Prepare(size_t part, const PreparedKernel& prepared,
                                               const std::vector<int64_t>& inputs,
                                               const std::string& name,
                                               module::Function* function) {
    std::vector<int64_t> made;
    if (prepared.program < 0) return made;
    // In a module of open sizes they have a region of their own.
    int64_t& end = manifest_.open_sizes() ? prepared_ : manifest_.arena_bytes;
    for (const op::TensorType& type : prepared.tensors) {
      const int64_t offset = RoundUp(end, alignment_);
      TW_ASSIGN(const int64_t id,
                AddTensor(type, module::TensorKind::kPrepared, offset, StrCat(name, ".prepared")));
      end = offset + type.bytes();
      made.push_back(id);
    }
    std::vector<int64_t> params;
    for (size_t i : prepared.reads) params.push_back(inputs[i]);
    params.insert(params.end(), made.begin(), made.end());
    module::Launch about;
    about.name = StrCat("prepare ", name);
    TW_ASSIGN(std::vector<module::Launch> launches,
              Launches(part, prepared.program, params, about));
    function->prepare.insert(function->prepare.end(), launches.begin(), launches.end());
    return made;
  }

 private:
  int64_t ScratchBytes(const codegen::Program& program) const {
    int64_t bytes = 0;
    for (const ir::Buffer& b : program.temporaries)
      bytes += RoundUp(*ir::ConstantBytes(*b), alignment_);
    return bytes;
  }

  absl::StatusOr<int64_t> AddTensor(const op::TensorType& type, module::TensorKind kind,
                                    int64_t offset, const std::string& name) {
    TW_ASSIGN(module::Tensor tensor,
              TensorOf(type, kind, static_cast<int64_t>(manifest_.tensors.size())));
    tensor.name = StrCat(name, tensor.id);
    tensor.offset = offset;
    manifest_.tensors.push_back(std::move(tensor));
    return manifest_.tensors.back().id;
  }

  absl::Status AddTemporaries(const codegen::Program& program, const std::string& name,
                              std::vector<int64_t>* tensors) {
    int64_t offset = scratch_;
    for (const ir::Buffer& buffer : program.temporaries) {
      op::TensorType type{buffer->dtype, {}};
      for (const ir::Expr& extent : buffer->shape) type.shape.push_back(*ir::AsInt(extent));
      TW_ASSIGN(const int64_t id, AddTensor(type, module::TensorKind::kIntermediate, offset,
                                            StrCat(name, ".", buffer->name, ".")));
      tensors->push_back(id);
      offset += RoundUp(type.bytes(), alignment_);
    }
    return absl::OkStatus();
  }

  const std::vector<CodePart>& parts_;
  const int64_t alignment_;
  module::Manifest& manifest_;
  int64_t scratch_ = 0;
  int64_t prepared_ = 0;         // end of the region of prepared tensors
  std::vector<int64_t> object_;  // each part's code object, by index in the manifest
};

// Lays out a model: which tensor each value is, where constants and intermediates lie.
class ModelLayout {
 public:
  ModelLayout(const Graph& g, const graph::MemoryPlan& plan, int64_t alignment,
              module::ModuleParts* parts)
      : g_(g), plan_(plan), alignment_(alignment), parts_(*parts), storage_(graph::StorageOf(g)) {}

  absl::Status Run(module::Function* main) {
    for (ValueId id : g_.inputs) {
      TW_TRY(Add(id, module::TensorKind::kInput, 0));
      main->inputs.push_back(TensorId(id));
    }
    // An output may be a view: its kernel writes the root, under the output's own name and shape.
    for (ValueId id : g_.outputs) {
      if (Known(id)) {
        return support::Internal("driver.module.output",
                                 StrCat("expected outputs with storage of their own, found ",
                                        g_.values[id].name, " to share its"));
      }
      TW_TRY(Add(id, module::TensorKind::kOutput, 0));
      main->outputs.push_back(TensorId(id));
    }
    const size_t results = main->outputs.size() - g_.checks.size();
    for (size_t i = 0; i < g_.checks.size(); ++i) {
      main->checks.push_back(
          {main->outputs[results + i], g_.checks[i].expected, g_.checks[i].what});
    }
    main->outputs.resize(results);
    for (const Node& node : g_.nodes) {
      if (graph::IsView(node)) continue;
      for (ValueId id : node.inputs) {
        TW_TRY(g_.values[storage_[id].root].constant ? Constant(storage_[id].root)
                                                     : Intermediate(id));
      }
      for (ValueId id : node.outputs) TW_TRY(Intermediate(id));
    }
    if (parts_.manifest.open_sizes()) {
      PlaceOpen();
    } else {
      parts_.manifest.arena_bytes = plan_.arena_bytes;
    }
    parts_.manifest.constants_bytes = static_cast<int64_t>(parts_.constants.size());
    return absl::OkStatus();
  }

  int64_t TensorId(ValueId id) const { return tensor_.at(PlaceOf(id)); }

 private:
  // Values of one place are one tensor, whatever their shapes: the bytes of a root that they are.
  struct Place {
    ValueId root;
    int64_t offset, bytes;
    auto operator<=>(const Place&) const = default;
  };
  Place PlaceOf(ValueId id) const {
    // Of open size, only whole tensors have views.
    const op::TensorType& type = g_.values[id].type;
    return {storage_[id].root, storage_[id].offset, type.fixed() ? type.bytes() : 0};
  }
  bool Known(ValueId id) const { return tensor_.contains(PlaceOf(id)); }

  absl::Status Add(ValueId id, module::TensorKind kind, int64_t offset) {
    const graph::Value& value = g_.values[id];
    auto& tensors = parts_.manifest.tensors;
    TW_ASSIGN(module::Tensor tensor,
              TensorOf(value.type, kind, static_cast<int64_t>(tensors.size())));
    tensor.name = value.name;
    tensor.offset = offset;
    tensor_[PlaceOf(id)] = tensor.id;
    tensors.push_back(std::move(tensor));
    return absl::OkStatus();
  }

  // Offsets follow from the tensors below.
  void PlaceOpen() {
    for (size_t i = 0; i < g_.values.size(); ++i) {
      const ValueId id = static_cast<ValueId>(i);
      if (!Known(id)) continue;
      module::Tensor& tensor = parts_.manifest.tensors[static_cast<size_t>(TensorId(id))];
      if (tensor.kind != module::TensorKind::kIntermediate || !tensor.after.empty()) continue;
      tensor.offset = 0;
      for (ValueId below : plan_.after[i]) tensor.after.push_back(TensorId(below));
    }
  }

  absl::Status Intermediate(ValueId id) {
    if (Known(id)) return absl::OkStatus();
    return Add(id, module::TensorKind::kIntermediate, plan_.offset[id]);
  }

  // Equal bytes are stored once.
  absl::Status Constant(ValueId id) {
    const graph::Value& value = g_.values[id];
    if (Known(id)) return absl::OkStatus();
    auto [it, fresh] =
        offsets_.try_emplace(support::Sha256Hex(value.constant->view()), parts_.constants.size());
    if (fresh) {
      parts_.constants += value.constant->view();
      const auto bytes = static_cast<int64_t>(parts_.constants.size());
      parts_.constants.resize(static_cast<size_t>(RoundUp(bytes, alignment_)), '\0');
    }
    return Add(id, module::TensorKind::kConstant, static_cast<int64_t>(it->second));
  }

  const Graph& g_;
  const graph::MemoryPlan& plan_;
  const int64_t alignment_;
  module::ModuleParts& parts_;
  const std::vector<graph::Storage> storage_;
  std::map<Place, int64_t> tensor_;
  std::map<std::string, size_t> offsets_;
};

}  // namespace

absl::StatusOr<module::ModuleParts> ModelParts(const Graph& fused, const std::vector<Task>& tasks,
                                               const std::vector<PlacedTask>& placed,
                                               const graph::MemoryPlan& plan,
                                               const std::vector<CodePart>& code,
                                               const CompileOptions& options,
                                               CompileReport* report) {
  module::ModuleParts parts;
  module::Manifest& manifest = parts.manifest;
  manifest.name = options.model_name.empty() ? fused.name : options.model_name;
  Describe(code[0].target, &manifest);
  for (const CodePart& part : code) AddCode(part, &parts);
  for (const std::string& name : graph::SizeVariables(fused)) {
    const graph::SizeRange range = fused.size_ranges.at(name);
    manifest.size_vars.push_back({name, range.min, range.max});
  }
  for (const graph::SizeEquality& equal : fused.equal_sizes) {
    manifest.equal_sizes.push_back({equal.left, equal.right, equal.what});
  }
  module::Function main;
  main.name = "main";
  const int64_t alignment = targets::BackendOf(code[0].target).alignment;
  ModelLayout layout(fused, plan, alignment, &parts);
  TW_TRY(layout.Run(&main));
  LaunchWriter writer(code, alignment, &manifest);
  std::map<std::string, size_t> by_hash;
  for (size_t i = 0; i < tasks.size(); ++i) by_hash[tasks[i].hash] = i;
  std::vector<module::LaunchNames> names;
  for (const Node& node : fused.nodes) {
    if (graph::IsView(node)) continue;
    const size_t i = by_hash.at(TaskHash(graph::CanonicalText(*node.body)));
    const CompileReport::Kernel& kernel = report->kernels[i];
    std::vector<int64_t> params;
    for (ValueId id : node.inputs) params.push_back(layout.TensorId(id));
    TW_ASSIGN(const std::vector<int64_t> made,
              writer.Prepare(placed[i].part, placed[i].prepared, params, node.name, &main));
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
    TW_ASSIGN(std::vector<module::Launch> launches,
              writer.Launches(placed[i].part, placed[i].program, params, about));
    for (module::Launch& launch : launches) {
      names.push_back({tasks[i].label, node.name, graph::SourcesOf(fused, node)});
      main.launches.push_back(std::move(launch));
    }
  }
  manifest.functions.push_back(std::move(main));
  if (manifest.open_sizes()) TW_TRY(module::SetNeedsAtMaxima(&manifest));
  manifest.provenance[module::kLaunchNamesKey] = module::LaunchNamesText(names);
  if (!options.job.empty()) manifest.provenance["job"] = options.job;
  if (!options.model_digest.empty()) manifest.provenance["model_digest"] = options.model_digest;
  std::vector<std::string> records, predicted;
  for (const CompileReport::Kernel& kernel : report->kernels) {
    if (!kernel.measurement_id.empty()) records.push_back(kernel.measurement_id);
    if (kernel.predicted) predicted.push_back(kernel.task_hash);
  }
  if (!records.empty()) manifest.provenance["log_records"] = support::Join(records, ",");
  if (!predicted.empty()) {
    manifest.provenance["predicted_tasks"] = support::Join(predicted, ",");
  }
  report->arena_bytes = manifest.arena_bytes;
  report->arena_bound_bytes = plan.liveness_bound;
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
        {tensor.id, inputs[i].seed, inputs[i].distribution, inputs[i].far});
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
  TW_ASSIGN(main.launches, writer.Launches(0, 0, params, about));
  measurement.flops = description.flops;
  manifest.functions.push_back(std::move(main));
  manifest.measurement = std::move(measurement);
  return parts;
}

}  // namespace tilewright::driver
