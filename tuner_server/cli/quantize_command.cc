#include "tuner_server/cli/quantize_command.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "compiler/driver/tasks.h"
#include "compiler/graph/graph.h"
#include "compiler/onnx/onnx_import.h"
#include "compiler/quantize/quantize.h"
#include "deploy/support/file.h"
#include "deploy/support/strings.h"
#include "tuner_server/cli/calibration_data.h"
#include "tuner_server/cli/cli_error.h"
#include "tuner_server/cli/native_target.h"
#include "tuner_server/cli/observed_run.h"
#include "tuner_server/cli/operator_files.h"
#include "tuner_server/cli/own_process.h"
#include "tuner_server/cli/progress.h"
#include "tuner_server/cli/quantize_report.h"
#include "tuner_server/cli/shape_flags.h"

namespace tilewright::cli {
namespace {

using support::StrCat;

absl::StatusOr<std::vector<module::Tensor>> InputsOf(const graph::Graph& graph) {
  std::vector<module::Tensor> inputs;
  for (const graph::ValueId id : graph.inputs) {
    const graph::Value& value = graph.values[static_cast<size_t>(id)];
    module::Tensor& tensor = inputs.emplace_back();
    tensor.name = value.name;
    TW_ASSIGN(tensor.dtype, driver::ModuleDType(value.type.dtype));
    for (const int64_t dim : value.type.sizes()) tensor.shape.push_back(dim);
  }
  return inputs;
}

class Quantizer {
 public:
  Quantizer(const QuantizeCommandOptions& options, const StepSink& step)
      : options_(options),
        step_(step),
        progress_("samples", options.format == OutputFormat::kJson) {}

  absl::Status Run() {
    TW_TRY(Open());
    TW_TRY(Calibrate());
    if (data_->size() > 0 && !options_.no_report) TW_TRY(Compare());
    progress_.Done();
    TW_TRY(Write());
    report_.Show(options_.format);
    return absl::OkStatus();
  }

 private:
  absl::Status Open() {
    step_("reading it");
    TW_ASSIGN(choice_, quantize::ParseRangeChoice(options_.ranges));
    TW_ASSIGN(shapes_, ParseShapes(options_.shapes));
    TW_ASSIGN(target_, ExpandTarget(options_.target));
    TW_ASSIGN(bytes_, ReadModel(options_.model_path, options_.operators));
    TW_ASSIGN(const graph::Graph graph, Import(bytes_));
    TW_ASSIGN(model_, quantize::FloatModel::Read(bytes_, ModelOptions()));
    TW_ASSIGN(std::vector<module::Tensor> inputs, InputsOf(graph));
    TW_ASSIGN(data_, CalibrationData::Find(options_.data, std::move(inputs)));
    if (data_->size() == 0 && !options_.weights_only) {
      return support::InvalidArgument(
          "cli.usage.data", "expected --data with inputs of the model, or --weights-only");
    }
    for (const graph::ValueId id : graph.outputs) {
      const graph::Value& value = graph.values[static_cast<size_t>(id)];
      if (value.type.dtype == ir::kF32) report_.AddOutput(value.name, value.type.sizes());
    }
    report_.model = options_.model_path;
    report_.output = OutputPath();
    report_.ranges = options_.weights_only ? "" : quantize::RangeChoiceText(choice_);
    report_.bytes_before = bytes_.size();
    report_.samples = data_->size();
    report_.folded_norms = model_->num_folded_norms();
    report_.float_layers = model_->float_layers();
    for (const quantize::QuantizedLayer& layer : model_->layers()) report_.AddLayer(layer);
    return absl::OkStatus();
  }

  absl::StatusOr<graph::Graph> Import(const std::string& bytes) const {
    graph::ImportOptions import;
    import.shapes = shapes_;
    return graph::ImportOnnx(bytes, import);
  }

  std::string OutputPath() const {
    if (!options_.output.empty()) return options_.output;
    std::string name = support::BaseName(options_.model_path);
    if (name.ends_with(".onnx")) name.resize(name.size() - 5);
    return name + ".int8.onnx";
  }

  // Both passes over the data are one bar.
  void Progress(size_t done, const char* note) { progress_.Update(done, Samples(), note); }
  size_t Samples() const {
    const int passes = (options_.weights_only ? 0 : 1) + (options_.no_report ? 0 : 1);
    return data_->size() * static_cast<size_t>(passes);
  }

  absl::Status Calibrate() {
    if (options_.weights_only) return absl::OkStatus();
    step_("compiling the float model");
    Progress(0, "compiling the float model");
    TW_ASSIGN(ObservedRun run, ObservedRun::Compile(model_->WithTensors(), target_, shapes_));
    step_("running the float model");
    std::vector<quantize::Histogram> histograms(model_->tensors().size());
    for (size_t s = 0; s < data_->size(); ++s) {
      TW_TRY(run.Run(&*data_, s));
      for (size_t i = 0; i < histograms.size(); ++i) histograms[i].Add(run.Observed(i));
      Progress(s + 1, "calibrating");
    }
    for (size_t i = 0; i < histograms.size(); ++i) {
      const std::string& tensor = model_->tensors()[i];
      if (!histograms[i].finite()) {
        return support::InvalidArgument(
            "cli.calibration.not_finite",
            StrCat("expected finite numbers, found others in tensor ", support::Quote(tensor)));
      }
      ranges_[tensor] = quantize::ChooseRange(histograms[i], choice_);
    }
    return absl::OkStatus();
  }

  // Layers against those of the same network in float, outputs against the model as given.
  absl::Status Compare() {
    const size_t done = options_.weights_only ? 0 : data_->size();
    step_("compiling the quantised model");
    Progress(done, "compiling the quantised model");
    TW_ASSIGN(ObservedRun given, ObservedRun::Compile({bytes_, {}}, target_, shapes_));
    TW_ASSIGN(ObservedRun alone,
              ObservedRun::Compile(model_->EachLayerAlone(ranges_), target_, shapes_));
    TW_ASSIGN(ObservedRun network,
              ObservedRun::Compile(model_->QuantizedWithLayers(ranges_), target_, shapes_));
    step_("running the quantised model");
    for (size_t s = 0; s < data_->size(); ++s) {
      TW_TRY(given.Run(&*data_, s));
      TW_TRY(alone.Run(&*data_, s));
      TW_TRY(network.Run(&*data_, s));
      for (size_t i = 0; i < report_.layers.size(); ++i) {
        report_.layers[i].network.Add(alone.Observed(2 * i), network.Observed(i));
        report_.layers[i].alone.Add(alone.Observed(2 * i), alone.Observed(2 * i + 1));
      }
      TW_TRY(CompareOutputs(given, network, &report_.outputs));
      Progress(done + s + 1, "comparing");
    }
    report_.compared = true;
    return TrySuggestions(&given);
  }

  static absl::Status CompareOutputs(const ObservedRun& given, const ObservedRun& network,
                                     std::vector<OutputReport>* outputs) {
    for (OutputReport& output : *outputs) {
      TW_ASSIGN(const runtime::TensorView exact, given.Output(output.name));
      TW_ASSIGN(const runtime::TensorView rounded, network.Output(output.name));
      output.Add(FloatsOf(exact), FloatsOf(rounded));
    }
    return absl::OkStatus();
  }

  // What the network would compute if the suggested layers stayed in float, too.
  absl::Status TrySuggestions(ObservedRun* given) {
    quantize::QuantizeOptions options = ModelOptions();
    const std::vector<std::string> more = report_.Suggestions();
    if (more.empty() || more.size() == report_.layers.size()) return absl::OkStatus();
    options.keep.insert(options.keep.end(), more.begin(), more.end());
    TW_ASSIGN(const quantize::FloatModel model, quantize::FloatModel::Read(bytes_, options));
    Progress(Samples(), "trying what is suggested");
    TW_ASSIGN(ObservedRun network,
              ObservedRun::Compile({model.Quantized(ranges_), {}}, target_, shapes_));
    for (const OutputReport& output : report_.outputs) {
      report_.outputs_if_kept.push_back({output.name, output.row, {}});
    }
    for (size_t s = 0; s < data_->size(); ++s) {
      TW_TRY(given->Run(&*data_, s));
      TW_TRY(network.Run(&*data_, s));
      TW_TRY(CompareOutputs(*given, network, &report_.outputs_if_kept));
    }
    return absl::OkStatus();
  }

  quantize::QuantizeOptions ModelOptions() const {
    const bool symmetric = options_.activations == "symmetric-int8";
    return {.keep = options_.keep,
            .weights_only = options_.weights_only,
            .data = symmetric                        ? quantize::ByteForm::kSymmetricInt8
                    : options_.activations == "int8" ? quantize::ByteForm::kInt8
                                                     : quantize::ByteForm::kUint8};
  }

  absl::Status Write() {
    step_("writing the quantised model");
    const std::string bytes = model_->Quantized(ranges_);
    // What cannot be read again is not written.
    TW_TRY(Import(bytes).status());
    report_.bytes_after = bytes.size();
    return support::WriteFileAtomic(report_.output, bytes);
  }

  const QuantizeCommandOptions& options_;
  const StepSink& step_;
  CountedProgress progress_;
  std::string bytes_;  // of the model
  quantize::RangeChoice choice_;
  std::map<std::string, std::vector<int64_t>> shapes_;
  std::string target_;
  std::optional<quantize::FloatModel> model_;
  std::optional<CalibrationData> data_;
  quantize::Ranges ranges_;
  QuantizeReport report_;
};

}  // namespace

int QuantizeModel(const QuantizeCommandOptions& options) {
  const std::string what = "cannot quantize " + options.model_path;
  return RunInOwnProcess({"quantize", what, "tilewright-compile", "run.code.crashed"},
                         [&](const StepSink& step) {
                           return Finish("quantize", what, Quantizer(options, step).Run());
                         });
}

}  // namespace tilewright::cli
