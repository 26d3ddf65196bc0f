#include "tuner_server/cli/compare_command.h"

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "compiler/onnx/onnx_import.h"
#include "deploy/module/module_file.h"
#include "deploy/support/file.h"
#include "deploy/support/hash.h"
#include "deploy/support/strings.h"
#include "tuner_server/cli/cli_error.h"
#include "tuner_server/cli/compile_command.h"
#include "tuner_server/cli/launch_text.h"
#include "tuner_server/cli/model_compiler.h"
#include "tuner_server/cli/native_target.h"
#include "tuner_server/cli/operator_files.h"
#include "tuner_server/cli/own_process.h"
#include "tuner_server/cli/predicted_schedules.h"
#include "tuner_server/cli/progress.h"
#include "tuner_server/cli/run_host.h"
#include "tuner_server/cli/shape_flags.h"
#include "tuner_server/cli/tensor_files.h"

namespace tilewright::cli {
namespace {

using nlohmann::json;
using op::RefTensor;
using support::StrCat;

std::string_view VerdictText(LayerVerdict verdict) {
  switch (verdict) {
    case LayerVerdict::kSame:
      return "ok";
    case LayerVerdict::kDiffers:
      return "DIFFERS";
    case LayerVerdict::kInherits:
      return "inherits";
  }
  return "";
}

std::string_view BytesOf(const runtime::TensorView& view) {
  return {static_cast<const char*>(view.data), view.bytes};
}

// The graph's large constants lie in the module.
std::map<std::string, std::shared_ptr<const graph::ConstantData>> ConstantsOf(
    const module::ModuleFile& file) {
  std::map<std::string, std::shared_ptr<const graph::ConstantData>> found;
  for (const module::Tensor& tensor : file.manifest().tensors) {
    if (tensor.kind != module::TensorKind::kConstant) continue;
    const std::string_view bytes = file.constants().substr(static_cast<size_t>(tensor.offset),
                                                           static_cast<size_t>(tensor.bytes));
    found[support::Sha256Hex(bytes)] = std::make_shared<graph::ConstantData>(std::string(bytes));
  }
  return found;
}

class Comparer {
 public:
  Comparer(const CompareOptions& options, const StepSink& step) : options_(options), step_(step) {}

  absl::Status Run() {
    TW_TRY(Compile());
    step_("running it");
    TW_ASSIGN(const module::Sizes minima, FillInputs({options_.inputs, {}, options_.seed},
                                                     host_->manifest(), host_->tensors()));
    if (!minima.empty()) {
      PrintErr(StrCat("comparing at ", SizesText(minima),
                      ", the smallest sizes (--input files choose others)\n"));
    }
    TW_TRY(host_->Execute(1, false).status());
    step_("computing the reference");
    TW_TRY(ReadInputs());
    TW_TRY(CompareKernels());
    TW_TRY(CompareOutputs());
    Show();
    return Conclusion();
  }

 private:
  struct Output {
    std::string name;
    runtime::CompareResult compared;
  };

  absl::Status Compile() {
    step_("compiling it");
    TW_ASSIGN(model_sizes_, ParseSizes({options_.shapes, {}, {}}));
    TW_ASSIGN(const std::string target, ExpandTarget(options_.target));
    TW_ASSIGN(ModelCompiler compiler, ModelCompiler::Open({.model_path = options_.model_path,
                                                           .target = target,
                                                           .sizes = model_sizes_,
                                                           .operators = options_.operators,
                                                           .disabled = options_.disabled_passes,
                                                           .enabled = {},
                                                           .predict = options_.effort_s > 0}));
    v1::CompileModule request;
    if (!options_.log_path.empty()) {
      TW_TRY(
          UseLogFile(options_.log_path, target, options_.device_class, compiler.opened(), &request)
              .status());
    }
    if (options_.effort_s > 0) {
      TW_TRY(PredictSchedules(options_.effort_s, &compiler, &request).status());
    }
    request.set_show_values(true);
    std::string bytes;
    TW_ASSIGN(const v1::ModuleCompiled compiled, compiler.Compile(std::move(request), &bytes));
    TW_ASSIGN(module::ModuleFile file, module::ModuleFile::FromBytes(bytes));
    TW_ASSIGN(graph_, graph::ParseGraph(compiled.graph_text(), ConstantsOf(file)));
    const int threads = module::TargetThreads(file.manifest().target);
    step_("loading its code");
    TW_ASSIGN(host_, LoadHere(std::move(file), threads, /*device=*/"", options_.libraries));
    for (const module::LaunchNames& names : NamesOf(host_->manifest())) {
      nodes_[names.launch] = names.nodes;
    }
    return absl::OkStatus();
  }

  absl::Status ReadInputs() {
    for (size_t i = 0; i < graph_.inputs.size(); ++i) {
      op::TensorType type = graph_.values[graph_.inputs[i]].type;
      const runtime::TensorView view = host_->tensors()->input(i);
      for (size_t d = 0; d < type.shape.size(); ++d) {
        const std::string variable = type.shape[d].variable();
        if (!variable.empty()) sizes_[variable] = view.shape[d];
        type.shape[d] = view.shape[d];
      }
      TW_ASSIGN(RefTensor input, op::FromBytes(type, BytesOf(view)));
      inputs_.push_back(std::move(input));
    }
    return absl::OkStatus();
  }

  absl::Status CompareKernels() {
    const std::vector<graph::Storage> storage = graph::StorageOf(graph_);
    ActualValues actual;
    for (size_t i = 0; i < host_->tensors()->num_outputs(); ++i) {
      actual[storage[graph_.outputs[i]].root] = BytesOf(host_->tensors()->output(i));
    }
    CountedProgress progress("layers", options_.format == OutputFormat::kJson);
    TW_ASSIGN(layers_, CompareLayers(graph_, sizes_, inputs_, actual, options_.precision,
                                     [&](size_t done, size_t all) {
                                       progress.Update(done, all, "reference");
                                     }));
    progress.Done();
    return absl::OkStatus();
  }

  // Against the model as it was imported: what graph passes did wrong shows here only.
  absl::Status CompareOutputs() {
    step_("computing the reference of the model as imported");
    TW_ASSIGN(const graph::OnnxModel onnx, OpenModel(options_.model_path, options_.operators));
    graph::ImportOptions import;
    import.shapes = model_sizes_.shapes;
    for (const auto& [name, range] : model_sizes_.open) import.open[name] = {range.min, range.max};
    TW_ASSIGN(const graph::Graph imported, graph::ImportOnnx(onnx, import));
    TW_ASSIGN(const std::vector<RefTensor> expected, graph::Interpret(imported, inputs_, sizes_));
    for (size_t i = 0; i < expected.size(); ++i) {
      const runtime::TensorView view = host_->tensors()->output(i);
      Output output{view.tensor->name, {}};
      TW_ASSIGN(output.compared,
                CompareWithReference(expected[i], BytesOf(view), options_.precision));
      outputs_.push_back(std::move(output));
    }
    return absl::OkStatus();
  }

  // The first kernel that computes something else.
  const LayerResult* FirstDivergent() const {
    for (const LayerResult& layer : layers_) {
      if (layer.verdict == LayerVerdict::kDiffers) return &layer;
    }
    return nullptr;
  }

  std::string NodesOf(const std::string& kernel) const {
    const auto found = nodes_.find(kernel);
    return NodesText(found == nodes_.end() ? std::vector<std::string>{} : found->second);
  }

  void Show() const {
    if (options_.format == OutputFormat::kJson) return PrintJson(Document());
    Table table({{"kernel"},
                 {"result"},
                 {"max |a-e|", true},
                 {"|a-e|/|e|", true},
                 {"type"},
                 {"ONNX nodes"}});
    for (const LayerResult& layer : layers_) {
      table.AddRow({layer.kernel, std::string(VerdictText(layer.verdict)),
                    StrCat(layer.compared.max_abs_diff), StrCat(layer.compared.relative_norm),
                    op::ToText(layer.type), NodesOf(layer.kernel)});
    }
    PrintOut(table.Render());
    for (const Output& output : outputs_) {
      PrintOut(StrCat("output ", output.name, ": ", output.compared.ok() ? "ok" : "DIFFERS",
                      " from the model as imported  max|a-e|=", output.compared.max_abs_diff,
                      "  |a-e|/|e|=", output.compared.relative_norm));
    }
  }

  json Document() const {
    json layers = json::array(), outputs = json::array();
    for (const LayerResult& layer : layers_) {
      const auto nodes = nodes_.find(layer.kernel);
      layers.push_back(
          {{"kernel", layer.kernel},
           {"result", VerdictText(layer.verdict)},
           {"max_abs_diff", layer.compared.max_abs_diff},
           {"relative_norm", layer.compared.relative_norm},
           {"mismatches", layer.compared.mismatches},
           {"elements", layer.compared.count},
           {"type", op::ToText(layer.type)},
           {"onnx_nodes", nodes == nodes_.end() ? std::vector<std::string>{} : nodes->second}});
    }
    for (const Output& output : outputs_) {
      outputs.push_back({{"output", output.name},
                         {"ok", output.compared.ok()},
                         {"max_abs_diff", output.compared.max_abs_diff},
                         {"relative_norm", output.compared.relative_norm}});
    }
    const LayerResult* first = FirstDivergent();
    return {{"model", options_.model_path},
            {"layers", layers},
            {"outputs", outputs},
            {"first_divergent", first == nullptr ? json() : json(first->kernel)}};
  }

  absl::Status Conclusion() const {
    if (const LayerResult* first = FirstDivergent()) {
      return support::FailedPrecondition(
          "cli.mismatch.kernel",
          StrCat("the first kernel that computes something else is ", first->kernel, ", of ",
                 NodesOf(first->kernel), ": ", runtime::CompareText(first->compared)));
    }
    for (const Output& output : outputs_) {
      if (output.compared.ok()) continue;
      return support::FailedPrecondition(
          "cli.mismatch.graph",
          StrCat(
              "output ", output.name,
              " differs from the model as imported, though each kernel computes what it should: ",
              runtime::CompareText(output.compared)));
    }
    return absl::OkStatus();
  }

  const CompareOptions& options_;
  const StepSink& step_;
  log::ModelSizes model_sizes_;
  graph::Graph graph_;  // what was compiled
  op::Sizes sizes_;     // of the variables of its inputs
  std::unique_ptr<RunHost> host_;
  std::map<std::string, std::vector<std::string>> nodes_;  // ONNX nodes by kernel
  std::vector<RefTensor> inputs_;
  std::vector<LayerResult> layers_;
  std::vector<Output> outputs_;
};

}  // namespace

int CompareModel(const CompareOptions& options) {
  const std::string what = "cannot compare " + options.model_path;
  return RunInOwnProcess(
      {"compare", what, "tilewright-compile", "run.code.crashed"},
      [&](const StepSink& step) { return Finish("compare", what, Comparer(options, step).Run()); });
}

}  // namespace tilewright::cli
